"""A model's weights by name, including names that compiled models and earlier releases saved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from sampler.errors import ConfigError

SAME_NAMES = (
    ("_orig_mod.", ""),  # prefix added by torch.compile
    ("observations.normaliser.", "observations.normalizer."),  # its former spelling
)
"""Parts of names, each with what replaces it."""


def renamed(state: Mapping[str, Tensor], names: Iterable[str]) -> dict[str, Tensor]:
    """`state` with weights renamed to `names`, those of a model, if it names the same weights
    differently.

    Weights without a counterpart keep their names.
    """
    own = {_canonical(name): name for name in names}
    return {own.get(_canonical(name), name): tensor for name, tensor in state.items()}


@torch.no_grad()
def load_weights(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Copy `state` (as of `state_dict()`, float32) into the model, whatever its own precision.

    Names that `torch.compile` or an earlier release gave are understood. Raises ConfigError where
    names or shapes do not match.
    """
    own = model.state_dict()
    if own.keys() != state.keys():
        state = renamed(state, own)
    if own.keys() != state.keys():
        different = sorted(own.keys() ^ state.keys())
        raise ConfigError(
            f"the weights do not fit {type(model).__name__}: {', '.join(different[:3])} "
            f"{'differs' if len(different) == 1 else 'differ'}; use the model they were made with"
        )
    for name, tensor in own.items():
        if tensor.shape != state[name].shape:
            raise ConfigError(
                f"the weights do not fit {type(model).__name__}: {name} has shape "
                f"{list(state[name].shape)}, expected {list(tensor.shape)}"
            )
        tensor.copy_(state[name], non_blocking=True)


def _canonical(name: str) -> str:
    for old, new in SAME_NAMES:
        name = name.replace(old, new)
    return name
