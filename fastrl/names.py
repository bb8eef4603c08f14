"""Packages of ours that have common names, found where this one is, whatever else has them.

Python looks into the folder of a script, and into PYTHONPATH, before it looks where packages are
installed, so that a `sampler.py` or a folder `cli` there hides ours.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

LOCATION = Path(__file__).resolve().parents[1]


class Claims(MetaPathFinder):
    """Finds the claimed packages in LOCATION, before anything else is asked."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if fullname not in self.names:
            return None
        return PathFinder.find_spec(fullname, [str(LOCATION)], target)


_claims = Claims()


def claim(name: str) -> None:
    """From now on `import name` gives our package of that name.

    Raises ImportError where another module has been imported under the name already.
    """
    if name in sys.modules:
        origin = getattr(sys.modules[name], "__file__", None)
        if origin is None or LOCATION not in Path(origin).resolve().parents:
            raise ImportError(
                f"{name!r} has been imported from {origin}, and fastrl has a package of that name; "
                "rename yours, or import fastrl first",
                name=name,
            )
    _claims.names.add(name)
    if _claims not in sys.meta_path:
        sys.meta_path.insert(0, _claims)
