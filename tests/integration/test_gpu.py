"""Inference on a GPU: pinned transfers, weights in device memory, batches on the device."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.inspection import sends_weights_through_device_memory

from sampler import Sampler, SamplerConfig
from sampler.models import make_distribution

CONFIG = SamplerConfig(
    env="fastrl/Counter-v0",
    env_kwargs={"frames": True, "max_length": 9},
    workers=2,
    envs_per_worker=4,
    rollout=8,
    batch=8,
    device="cuda",
    precision="float32",
)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_behaviour_equals_a_recomputation_on_the_gpu():
    with Sampler(CONFIG) as sampler:
        assert sends_weights_through_device_memory(sampler)
        model = sampler.model.to("cuda")
        sampler.publish(model)
        distribution = make_distribution(sampler.action_space)
        for _ in range(5):
            batch = sampler.get_batch(timeout=120.0).to("cuda")
            with torch.no_grad():
                outputs, _ = model.unroll(
                    batch.model_obs, model.initial_state(len(batch)), batch.is_first
                )
            values, logits = outputs["values"][:, :-1], outputs["logits"][:, :-1]
            torch.testing.assert_close(values, batch.values, rtol=1e-3, atol=1e-3)
            log_probs = distribution(logits).log_prob(batch.actions)
            torch.testing.assert_close(log_probs, batch.log_probs, rtol=1e-3, atol=1e-3)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_published_weights_reach_the_policy_workers_through_device_memory():
    with Sampler(CONFIG) as sampler:
        model = sampler.model.to("cuda")
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        version = sampler.publish(model)
        seen = False
        for _ in range(20):
            batch = sampler.get_batch(timeout=120.0)
            new = batch.policy_version == version
            assert (batch.values[new] == 0.0).all()
            seen = seen or bool(np.any(new))
        assert seen
