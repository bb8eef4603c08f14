"""What a model takes as `obs`: the observation, or a dict with the step before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

MODEL_INPUTS = ("obs", "previous_actions", "previous_rewards")
"""What a model may ask for in its attribute `inputs`."""


def model_inputs(names: tuple[str, ...], get: Callable[[str], Any]) -> Any:
    """`get("obs")` itself for a model whose `inputs` are ("obs",), else a dict of all `names`."""
    return get("obs") if names == ("obs",) else {name: get(name) for name in names}
