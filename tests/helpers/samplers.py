"""Two small samplers of an environment that counts, and what tests do with any sampler."""

from __future__ import annotations

from dataclasses import replace

from sampler import SamplerConfig

SERIAL = SamplerConfig(
    env="fastrl/Counter-v0",
    env_kwargs={"max_length": 12},
    workers=2,
    envs_per_worker=4,
    rollout=8,
    batch=8,
    inference="random",
    seed=3,
    serial=True,
)
PROCESSES = replace(SERIAL, serial=False)


def use_up(sampler):
    """Take the batches made before a pause, until there is none."""
    while True:
        sampler.get_batch(timeout=0)
