"""APPO against loops over single steps, and by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
import torch
from helpers.models import perturb

from sampler.learner.algorithms.appo import APPO, APPOConfig

ACTIONS = gym.spaces.Discrete(4)
OBS = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)


@torch.no_grad()
def reference_losses(model, fields, config: APPOConfig) -> dict[str, float]:
    """The losses of one minibatch, one step at a time, in Python numbers."""
    rows, steps = fields["rewards"].shape
    terms: list[tuple[float, float, float, float, float]] = []
    advantages: list[float] = []
    for row in range(rows):
        state = torch.as_tensor(fields["rnn_state"][row : row + 1])
        values, logits = [], []
        for t in range(steps + 1):
            first = torch.tensor([[bool(fields["age"][row, t] == 0)]])
            out, state = model.unroll(
                torch.as_tensor(fields["obs"][row, t])[None, None], state, first
            )
            values.append(float(out["values"]))
            logits.append(out["logits"].reshape(-1).double())
        policies = [torch.distributions.Categorical(logits=x) for x in logits[:-1]]
        new = [
            float(p.log_prob(torch.tensor(a)))
            for p, a in zip(policies, fields["actions"][row], strict=True)
        ]
        correction, v_next = 0.0, values[steps]
        for t in reversed(range(steps)):
            if not fields["mask"][row, t]:
                continue
            ended = fields["terminated"][row, t] or fields["truncated"][row, t]
            if ended:
                correction, v_next = 0.0, values[t + 1]
            discount = 0.0 if fields["terminated"][row, t] else config.gamma
            reward = float(fields["rewards"][row, t])
            ratio = math.exp(new[t] - float(fields["log_probs"][row, t]))
            if config.with_vtrace:
                rho, c = min(config.clip_rho, ratio), config.lambda_ * min(config.clip_c, ratio)
                delta = rho * (reward + discount * values[t + 1] - values[t])
                advantages.append(rho * (reward + discount * v_next - values[t]))
                correction = delta + discount * c * correction
            else:
                delta = reward + discount * values[t + 1] - values[t]
                correction = delta + discount * config.lambda_ * correction
                advantages.append(correction)
            v_next = values[t] + correction
            old = float(fields["values"][row, t])
            clipped = old + max(-config.value_clip, min(config.value_clip, values[t] - old))
            error = max((values[t] - v_next) ** 2, (clipped - v_next) ** 2) / 2
            kl = ratio - 1 - math.log(ratio)
            outside = not 1 / (1 + config.clip) <= ratio <= 1 + config.clip
            terms.append((ratio, error, float(policies[t].entropy()), kl, float(outside)))
    a = np.array(advantages)
    a = (a - a.mean()) / a.std(ddof=1)
    ratio, error, entropy, kl, outside = np.array(terms).T
    surrogate = np.minimum(ratio * a, ratio.clip(1 / (1 + config.clip), 1 + config.clip) * a)
    return {
        "losses/policy_loss": -surrogate.mean(),
        "losses/value_loss": error.mean(),
        "losses/entropy": entropy.mean(),
        "losses/approx_kl": kl.mean(),
        "losses/clipfrac": outside.mean(),
    }


@pytest.mark.parametrize("with_vtrace", [True, False])
@pytest.mark.parametrize("seed", [0, 1])
def test_losses_equal_a_loop_over_steps(tiny_model, random_fields, batch_from, with_vtrace, seed):
    model = tiny_model(ACTIONS, 4)
    fields = random_fields(model, ACTIONS, rows=5, steps=10, seed=seed)
    perturb(model, seed=1, scale=0.1)
    config = APPOConfig(with_vtrace=with_vtrace, value_clip=0.05, lambda_=0.9)
    expected = reference_losses(model, fields, config)
    learner = APPO(model, OBS, ACTIONS, config, device="cpu")
    metrics = learner.update(batch_from(fields, ACTIONS), lambda: None)
    for name, value in expected.items():
        assert metrics[name] == pytest.approx(value, rel=2e-4, abs=2e-5), name
    assert expected["losses/clipfrac"] > 0


def test_two_steps_by_hand(batch_from):
    """One row, two steps, a model of constants: V = 0.5, uniform over 2 actions, then terminated.

    Acted with probability 1/4, so the ratio is 2 and every clip at 1 binds.
    vs_1 = 2 (terminal reward), delta_1 = 1.5; delta_0 = 1 + 0.9 * 0.5 - 0.5 = 0.95;
    vs_0 = 0.5 + 0.95 + 0.9 * 1.5 = 2.8. Advantages: 1 + 0.9 * 2 - 0.5 = 2.3 and 1.5.
    policy: -min(2 A, 1.1 A) = -1.1 * 1.9; value: ((2.3)^2 + (1.5)^2) / 4 = 1.885.
    """

    class Constants(torch.nn.Module):
        inputs = ("obs",)

        def __init__(self):
            super().__init__()
            self.value = torch.nn.Parameter(torch.tensor(0.5))
            self.logits = torch.nn.Parameter(torch.zeros(2))

        def initial_state(self, n):
            return torch.zeros(n, 0)

        def unroll(self, obs, state, is_first):
            shape = is_first.shape
            return {
                "values": self.value.expand(shape),
                "logits": self.logits.expand(*shape, 2),
            }, state

    actions = gym.spaces.Discrete(2)
    fields = {
        "obs": np.zeros((1, 3, 3), np.float32),
        "age": np.array([[0, 1, 2]], np.int32),
        "actions": np.array([[0, 1]]),
        "log_probs": np.full((1, 2), np.log(0.25), np.float32),
        "values": np.full((1, 2), 0.5, np.float32),
        "rewards": np.array([[1.0, 2.0]], np.float32),
        "terminated": np.array([[False, True]]),
        "truncated": np.zeros((1, 2), bool),
        "mask": np.ones((1, 2), bool),
        "policy_version": np.zeros((1, 2), np.int64),
        "episode_id": np.zeros((1, 2), np.int64),
        "lane_id": np.zeros(1, np.int64),
    }
    config = APPOConfig(gamma=0.9, lambda_=1.0, value_clip=0.0, normalize_advantages=False)
    learner = APPO(Constants(), OBS, actions, config, device="cpu")
    metrics = learner.update(batch_from(fields, actions), lambda: None)
    assert metrics["losses/policy_loss"] == pytest.approx(-1.1 * 1.9, rel=1e-5)
    assert metrics["losses/value_loss"] == pytest.approx(1.885, rel=1e-5)
    assert metrics["losses/entropy"] == pytest.approx(math.log(2), rel=1e-5)
    assert metrics["losses/approx_kl"] == pytest.approx(1 - math.log(2), rel=1e-5)
    assert metrics["losses/clipfrac"] == 1
    # d loss / d V = value_coef * mean(V - vs) = 0.5 * -1.9; the ratio is clipped: only the
    # entropy acts on the policy, and its gradient is 0 at the uniform distribution
    assert metrics["losses/grad_norm"] == pytest.approx(0.95, rel=1e-5)


@pytest.mark.parametrize(("every", "times"), [("minibatch", 6), ("batch", 1)])
def test_publishing_and_updates(tiny_model, random_fields, batch_from, every, times):
    model = tiny_model(ACTIONS)
    fields = random_fields(model, ACTIONS, rows=7)
    config = APPOConfig(epochs=2, minibatches=3, publish_every=every)
    learner = APPO(model, OBS, ACTIONS, config, device="cpu")
    versions = iter(range(10, 100))
    published = []

    def publish() -> int:
        published.append(next(versions))
        return published[-1]

    learner.update(batch_from(fields, ACTIONS), publish)
    assert len(published) == times
    assert learner.updates == 6
    assert learner.version == published[-1]


def test_minibatches_are_views(tiny_model, random_fields, batch_from):
    model = tiny_model(ACTIONS)
    fields = random_fields(model, ACTIONS)
    learner = APPO(model, OBS, ACTIONS, APPOConfig(), device="cpu")
    part = learner.rollout(batch_from(fields, ACTIONS))[1:3]
    assert part.obs.data_ptr() == fields["obs"][1:].ctypes.data
    assert part.actions.data_ptr() == fields["actions"][1:].ctypes.data


def test_a_given_up_tail_does_not_leak(tiny_model, random_fields, batch_from):
    """Steps after which a row was given up: what stands in their place must not matter."""
    results = []
    for garbage in (0.0, 50.0):
        model = tiny_model(ACTIONS)
        fields = random_fields(model, ACTIONS, seed=3)
        fields["mask"][:, 5:] = False
        fields["rewards"][:, 5:] = garbage
        fields["obs"][:, 6:] = garbage
        learner = APPO(model, OBS, ACTIONS, replace(APPOConfig()), device="cpu")
        results.append(learner.update(batch_from(fields, ACTIONS), lambda: None))
    assert results[0] == pytest.approx(results[1], abs=1e-6)
