"""Samplers of environments that go wrong, and the error that comes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.faults import Faulty
from helpers.processes import PATIENCE

from sampler import FastrlError, Sampler, SamplerConfig

SERIAL = SamplerConfig(
    env=Faulty,
    workers=2,
    envs_per_worker=2,
    groups=1,
    rollout=8,
    batch=2,
    inference="random",
    max_restarts=0,
    serial=True,
)
PROCESSES = replace(SERIAL, serial=False)


def error_of(config, kwargs):
    """Sample until something goes wrong; the error, which is one line."""
    with pytest.raises(FastrlError) as caught:
        sample(replace(config, env_kwargs=kwargs))
    assert "\n" not in str(caught.value)
    return caught.value


def sample(config, batches=20):
    with Sampler(config) as sampler:
        for _ in range(batches):
            sampler.get_batch(timeout=PATIENCE)
