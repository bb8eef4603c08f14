"""fastrl: a single-machine, high-throughput asynchronous sampler for reinforcement learning."""

from sampler.batch import SequenceBatch
from sampler.config import SamplerConfig
from sampler.errors import (
    BatchTimeout,
    ConfigError,
    EnvError,
    FastrlError,
    ModelError,
    ReleasedBatchError,
    WorkerError,
)
from sampler.sampler import Sampler

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
