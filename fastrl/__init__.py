"""The library under a name that does not clash: `from fastrl import Sampler`.

It gives what `sampler` gives, even if a `sampler.py` of your own hides that package. `python -m
fastrl` runs the commands.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fastrl.names import claim

if TYPE_CHECKING:
    from sampler import (
        BatchTimeout,
        ConfigError,
        EnvError,
        FastrlError,
        ModelError,
        ReleasedBatchError,
        Sampler,
        SamplerConfig,
        SequenceBatch,
        WorkerError,
    )

__all__ = [
    "BatchTimeout",
    "ConfigError",
    "EnvError",
    "FastrlError",
    "ModelError",
    "ReleasedBatchError",
    "Sampler",
    "SamplerConfig",
    "SequenceBatch",
    "WorkerError",
]

claim("sampler")


def __getattr__(name: str) -> Any:
    """The library is loaded at the first use, so that commands can handle signals before that."""
    if name in __all__:
        return getattr(import_module("sampler"), name)
    raise AttributeError(f"module 'fastrl' has no attribute {name!r}")
