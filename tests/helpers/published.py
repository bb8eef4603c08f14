"""Published numbers: cases of operations with their inputs and the results that others have.

A case of tests/data has a name, an operation `op`, its `inputs` by name, what is `expected` by
name, and the tolerances `rtol` and `atol`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

DATA = Path(__file__).parents[1] / "data"


def cases(*files: str, only: str | None = None) -> list[dict[str, Any]]:
    """The cases of these files of tests/data, or of them `only` those of one operation."""
    found = [c for name in files for c in json.loads((DATA / f"{name}.json").read_text())["cases"]]
    return [case for case in found if only in (None, case["op"])]


def parameters(found: Iterable[dict[str, Any]], elsewhere: Collection[str] = ()) -> list[Any]:
    """The cases as parameters of a test, without operations that are tested `elsewhere`."""
    return [pytest.param(case, id=case["name"]) for case in found if case["op"] not in elsewhere]


Handlers = Mapping[str, Callable[[dict[str, Any]], Mapping[str, Any]]]


def check_numbers(case: dict[str, Any], handlers: Handlers) -> None:
    """Compare what the handler of the case's operation gives; one that is missing is a KeyError."""
    result = handlers[case["op"]](case["inputs"])
    for name, expected in case["expected"].items():
        np.testing.assert_allclose(
            result[name], expected, rtol=case["rtol"], atol=case["atol"], err_msg=name
        )


def check_tensors(case: dict[str, Any], handlers: Handlers, dtype: torch.dtype) -> None:
    """The same of tensors, which must have that dtype and the expected shapes."""
    result = handlers[case["op"]](case["inputs"])
    for name, expected in case["expected"].items():
        wanted = torch.tensor(expected, dtype=dtype)
        torch.testing.assert_close(result[name], wanted, rtol=case["rtol"], atol=case["atol"])
