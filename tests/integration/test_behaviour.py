"""Stored behaviour outputs equal a recomputation with the same version of the weights."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch
from helpers.q_learning import Noise
from helpers.wave import Wave

from sampler import Sampler, SamplerConfig
from sampler.learner.algorithms.appo import APPO, APPOConfig
from sampler.models import (
    ModelConfig,
    epsilon_greedy_log_prob,
    epsilon_ladder,
    make_distribution,
    make_model,
    make_q_model,
)
from sampler.spaces import map_leaves

SMALL = SamplerConfig(
    env=Wave,
    workers=2,
    envs_per_worker=4,
    rollout=8,
    batch=8,
    precision="float32",
    seed=5,
    serial=True,
)
TINY = ModelConfig(hidden=(16,), core_size=12)
KINDS = {
    "feed-forward": partial(make_model, config=TINY),
    "lstm": partial(make_model, config=replace(TINY, core="lstm")),
    "gru": partial(make_model, config=replace(TINY, core="gru")),
    "previous": partial(make_model, config=replace(TINY, core="lstm", previous_inputs=True)),
}
FRAMES = {"env": "fastrl/Counter-v0", "env_kwargs": {"frames": True, "max_length": 9}}


class Recomputation:
    """All versions of a sampler's weights, and batches computed again with them."""

    def __init__(self, sampler):
        self.sampler, self.model = sampler, sampler.model
        self.versions = {}
        self.keep(sampler.version)
        self.mixed = self.uniform = 0
        self.distribution = make_distribution(sampler.action_space)

    def keep(self, version):
        self.versions[version] = {k: v.clone() for k, v in self.model.state_dict().items()}

    def publish(self, seed):
        """New weights, so far from the first ones that every version acts differently.

        Yet of a size that keeps activations near 1, where rounding stays below the tolerance.
        """
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, tensor in self.model.state_dict().items():
                noise = torch.randn(tensor.shape, generator=generator)
                scale = tensor[0].numel() ** -0.5 if tensor.dim() > 1 else 0.3
                tensor.copy_(self.versions[0][name] + scale * noise)
        self.keep(self.sampler.publish(self.model))

    @torch.no_grad()
    def check(self, batch):
        batch = batch.to("cpu")
        steps = batch.rewards.shape[1]
        state = batch.rnn_state
        if state is None:
            state = self.model.initial_state(len(batch))
        # Step by step, each lane with the weights that it had at that step.
        current = state.clone()
        for t in range(steps):
            obs = _at(batch.model_obs, t)
            for version in batch.policy_version[:, t].unique().tolist():
                rows = batch.policy_version[:, t] == version
                self.model.load_state_dict(self.versions[version])
                outputs, current[rows] = self.model.step(
                    _rows(obs, rows), current[rows], batch.is_first[rows, t]
                )
                self._compare(batch, rows, t, outputs)
        # And in one call, as a learner does it, where one version made the whole row.
        same = (batch.policy_version == batch.policy_version[:, :1]).all(1)
        self.mixed += int((~same).sum())
        self.uniform += int(same.sum())
        for version in batch.policy_version[same, 0].unique().tolist():
            rows = same & (batch.policy_version[:, 0] == version)
            self.model.load_state_dict(self.versions[version])
            obs = _rows(_before_last(batch.model_obs), rows)
            outputs, _ = self.model.unroll(obs, state[rows], batch.is_first[rows, :-1])
            self._compare(batch, rows, slice(None), outputs)
        self.model.load_state_dict(self.versions[self.sampler.version])

    def _compare(self, batch, rows, t, outputs):
        for name, output in outputs.items():
            torch.testing.assert_close(output, batch[name][rows][:, t], rtol=1e-5, atol=1e-5)
        actions = batch.actions[rows][:, t]
        if "logits" in outputs:
            log_probs = self.distribution(outputs["logits"]).log_prob(actions)
        else:
            epsilon = epsilon_ladder(self.sampler.config.lanes).float()
            epsilon = epsilon[batch.lane_id[rows]].view(-1, *(1,) * (actions.dim() - 1))
            q_values = outputs["q_values"]
            log_probs = epsilon_greedy_log_prob(q_values, epsilon.expand(actions.shape), actions)
        stored = batch.log_probs[rows][:, t]
        torch.testing.assert_close(log_probs, stored, rtol=1e-5, atol=1e-5)


def _at(obs, t):
    return map_leaves(lambda leaf: leaf[:, t], obs)


def _rows(obs, rows):
    return map_leaves(lambda leaf: leaf[rows], obs)


def _before_last(obs):
    return map_leaves(lambda leaf: leaf[:, :-1], obs)


def run(config, kind, batches):
    with Sampler(config, kind) as sampler:
        recomputation = Recomputation(sampler)
        for number in range(batches):
            batch = sampler.get_batch()
            recomputation.check(batch)
            assert not config.sync or (batch.policy_version == sampler.version).all()
            recomputation.publish(number)
        return recomputation


@pytest.mark.parametrize("overlap", [0, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_serial(kind, overlap):
    recomputation = run(replace(SMALL, overlap=overlap), KINDS[kind], 12)
    assert recomputation.mixed
    assert recomputation.uniform


def test_rows_have_one_version_in_sync_mode():
    recomputation = run(replace(SMALL, sync=True), KINDS["lstm"], 8)
    assert recomputation.mixed == 0


def test_q_values():
    config = replace(SMALL, overlap=4, rollout=12)
    recomputation = run(
        config, partial(make_q_model, config=replace(TINY, core="lstm", head_size=8)), 10
    )
    assert recomputation.mixed


def test_stacked_frames():
    config = replace(SMALL, **FRAMES, overlap=3)
    recomputation = run(config, partial(make_model, config=ModelConfig(image_features=16)), 5)
    assert recomputation.mixed


def decided(observation_space, action_space):
    """A model on frames whose first policy is far from uniform, so that rounding shows."""
    torch.manual_seed(0)
    model = make_model(observation_space, action_space, ModelConfig(image_features=64))
    with torch.no_grad():
        for parameter in model.policy.parameters():
            parameter *= 300
    return model


@pytest.mark.parametrize(
    ("acting", "learning", "bound"),
    [
        ("float32", "float32", 1e-5),
        ("bfloat16", "bfloat16", 2e-2),
        ("bfloat16", "float32", 2e-2),
    ],
)
def test_without_lag_the_importance_ratio_is_one(acting, learning, bound):
    config = replace(SMALL, **FRAMES, precision=acting, device="cpu")
    farthest = 0.0
    with Sampler(config, decided) as sampler:
        learner = APPO.for_sampler(sampler, APPOConfig(), "cpu", learning)
        for _ in range(4):
            with torch.no_grad():
                now = learner.predict(learner.rollout(sampler.get_batch()))
            farthest = max(farthest, float((now.log_ratios.exp() - 1).abs().max()))
            assert now.distribution.log_probs.exp().max() > 0.5
    assert farthest < bound
    if acting != learning:
        assert farthest > 1e-4, "nothing was rounded"


class MaskInObservation(gym.Wrapper):
    """`Noise` with its action mask in the observation, where others have it in the info."""

    def __init__(self):
        super().__init__(Noise(masked=True))
        mask = gym.spaces.MultiBinary(3)
        self.observation_space = gym.spaces.Dict(
            {"x": self.env.observation_space, "action_mask": mask}
        )

    def reset(self, **kwargs):
        return self._moved(*self.env.reset(**kwargs))

    def step(self, action):
        obs, *rest, info = self.env.step(action)
        obs, info = self._moved(obs, info)
        return obs, *rest, info

    def _moved(self, obs, info):
        return {"x": obs, "action_mask": info["action_mask"].astype(np.int8)}, {}


@pytest.mark.parametrize("env", [partial(Noise, masked=True), MaskInObservation])
def test_action_masks_hold_in_worker_and_learner_alike(env):
    with Sampler(replace(SMALL, env=env, device="cpu"), KINDS["lstm"]) as sampler:
        learner = APPO.for_sampler(sampler, APPOConfig(), "cpu", "float32")
        for _ in range(3):
            rollout = learner.rollout(sampler.get_batch())
            with torch.no_grad():
                now = learner.predict(rollout)
            mask = rollout.action_mask[:, :-1]
            real = rollout.real
            assert mask[real].sum() == 2 * real.sum()
            assert mask.gather(-1, rollout.actions[..., None] - 5)[real].all()
            assert (now.distribution.log_probs.exp()[~mask] == 0).all()
            torch.testing.assert_close(
                now.log_probs[real], rollout.log_probs[real], rtol=0, atol=1e-5
            )
            assert (now.distribution.entropy()[real] < 0.7).all()  # log 2: two actions are left


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("feed-forward", {}),
        ("lstm", {"policy_workers": 2, "overlap": 5}),
        ("gru", {"overlap": 3, "groups": 4}),
        ("previous", {"policy_workers": 2}),
        ("lstm", {"sync": True}),
        ("lstm", {"sync": True, "policy_workers": 0}),
        ("gru", {"overlap": 5, "policy_workers": 0}),
    ],
)
def test_processes(kind, changes):
    config = replace(SMALL, serial=False, workers=4, **changes)
    recomputation = run(config, KINDS[kind], 200)
    assert recomputation.uniform
    assert bool(recomputation.mixed) != config.sync


@pytest.mark.slow
def test_stacked_frames_with_memory_in_processes():
    kind = partial(make_model, config=ModelConfig(image_features=16, core="gru", core_size=8))
    run(replace(SMALL, **FRAMES, serial=False, overlap=3), kind, 30)
