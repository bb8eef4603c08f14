"""Finds our packages with common names where this package is, whatever else has these names.

Python searches the folder of a script, and PYTHONPATH, before the folder of installed packages, so
a `sampler.py` or a folder `cli` there hides ours.
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
    """Finds the claimed packages in LOCATION, before any other finder is asked."""

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
    """Make `import name` give our package of that name from now on.

    Raises ImportError if another module has already been imported under the name.
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
