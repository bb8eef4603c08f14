"""PPO against a plain implementation that shares no code with it."""

from __future__ import annotations

import copy

import gymnasium as gym
import numpy as np
import pytest
import torch

from sampler.learner.algorithms.ppo import PPO, PPOConfig

ACTIONS = gym.spaces.Discrete(4)
OBS = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)


def plain_gae(fields, values: np.ndarray, gamma: float, lambda_: float) -> np.ndarray:
    """[B, T]: generalised advantages by the textbook loop, values [B, T+1]."""
    rows, steps = fields["rewards"].shape
    advantages = np.zeros((rows, steps))
    for row in range(rows):
        last = 0.0
        for t in reversed(range(steps)):
            if fields["terminated"][row, t] or fields["truncated"][row, t]:
                last = 0.0
            alive = 0.0 if fields["terminated"][row, t] else 1.0
            delta = fields["rewards"][row, t] + gamma * alive * values[row, t + 1] - values[row, t]
            advantages[row, t] = last = delta + gamma * lambda_ * alive * last
    return advantages


def plain_update(model, fields, config: PPOConfig) -> None:
    """All epochs with one minibatch of all valid steps, by autograd on flat tensors."""
    valid = torch.as_tensor(fields["mask"])
    obs, first = torch.as_tensor(fields["obs"]), torch.as_tensor(fields["age"] == 0)
    rows = len(obs)
    state = torch.as_tensor(fields.get("rnn_state", np.zeros((rows, 0), np.float32)))
    actions = torch.as_tensor(fields["actions"])
    old_log_probs = torch.as_tensor(fields["log_probs"])[valid]
    with torch.no_grad():
        before = model.unroll(obs, state, first)[0]["values"]
    advantages = plain_gae(fields, before.numpy().astype(float), config.gamma, config.lambda_)
    advantages = torch.as_tensor(advantages, dtype=torch.float32)
    old_values = before[:, :-1][valid]
    returns = advantages[valid] + old_values
    normalized = (advantages[valid] - advantages[valid].mean()) / advantages[valid].std()
    optimiser = torch.optim.Adam(model.parameters(), config.learning_rate, eps=config.epsilon)
    for _ in range(config.epochs):
        out = model.unroll(obs, state, first)[0]
        policy = torch.distributions.Categorical(logits=out["logits"][:, :-1])
        ratio = (policy.log_prob(actions)[valid] - old_log_probs).exp()
        clipped = ratio.clamp(1 - config.clip, 1 + config.clip)
        policy_loss = -torch.min(ratio * normalized, clipped * normalized).mean()
        values = out["values"][:, :-1][valid]
        near = old_values + (values - old_values).clamp(-config.value_clip, config.value_clip)
        value_loss = torch.max((values - returns) ** 2, (near - returns) ** 2).mean() / 2
        entropy = policy.entropy()[valid].mean()
        loss = policy_loss + config.value_coef * value_loss - config.entropy_coef * entropy
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.max_grad_norm)
        optimiser.step()


@pytest.mark.parametrize("units", [0, 4])
def test_weights_after_an_update_equal_the_plain_implementation(
    tiny_model, random_fields, batch_from, units
):
    model = tiny_model(ACTIONS, units)
    fields = random_fields(model, ACTIONS, rows=6, steps=16)
    config = PPOConfig(learning_rate=0.01, epochs=5, minibatches=1, value_clip=0.02)
    expected = copy.deepcopy(model)
    plain_update(expected, fields, config)
    PPO(model, OBS, ACTIONS, config, device="cpu").update(batch_from(fields, ACTIONS), lambda: None)
    for got, wanted in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(got, wanted, rtol=0, atol=5e-5)


@pytest.mark.parametrize("units", [0, 4])
def test_minibatches_partition_the_valid_steps(tiny_model, random_fields, batch_from, units):
    model = tiny_model(ACTIONS, units)
    fields = random_fields(model, ACTIONS, rows=6)
    learner = PPO(model, OBS, ACTIONS, PPOConfig(minibatches=3), device="cpu")
    rollout = learner.rollout(batch_from(fields, ACTIONS))
    number = torch.arange(rollout.valid.numel()).reshape(rollout.valid.shape)
    seen, orders = [], []
    for part, index in learner.minibatches(rollout):
        numbers = number[index]
        assert torch.equal(part.rewards, rollout.rewards[index])
        assert part.obs.shape[0] == part.state.shape[0] == len(numbers)
        seen.extend(numbers[part.valid].tolist())
        orders.append(numbers)
    assert len(orders) == 3
    assert sorted(seen) == number[rollout.valid].tolist()
    assert seen != sorted(seen)
    sizes = [len(x) for x in orders]
    assert max(sizes) - min(sizes) <= 1


def test_the_values_take_no_more_rows_at_once_than_learning(tiny_model, random_fields, batch_from):
    model = tiny_model(ACTIONS, units=4)
    fields = random_fields(model, ACTIONS, rows=12)
    learner = PPO(model, OBS, ACTIONS, PPOConfig(minibatches=4), device="cpu")
    rollout = learner.rollout(batch_from(fields, ACTIONS))
    rows, unroll = [], model.unroll
    model.unroll = lambda obs, *rest: rows.append(len(obs)) or unroll(obs, *rest)
    values = learner.evaluated(rollout)[0].values
    assert rows == [3, 3, 3, 3]
    with torch.no_grad():
        together = unroll(rollout.obs, rollout.state, rollout.is_first)[0]["values"]
    torch.testing.assert_close(values, together[:, :-1])


def test_target_kl_ends_the_passes(tiny_model, random_fields, batch_from):
    updates = []
    for target in (0.0, 1e-9):
        model = tiny_model(ACTIONS)
        config = PPOConfig(learning_rate=0.05, epochs=4, minibatches=2, target_kl=target)
        learner = PPO(model, OBS, ACTIONS, config, device="cpu")
        learner.update(batch_from(random_fields(model, ACTIONS), ACTIONS), lambda: None)
        updates.append(learner.updates)
    assert updates == [8, 2]


def test_truncation_bootstraps_and_termination_does_not(tiny_model, random_fields, batch_from):
    """The final observation's value reaches a truncated step, and only that: two lanes with values
    of 1 and 100 do not mix."""
    model = tiny_model(ACTIONS)
    fields = random_fields(model, ACTIONS, rows=2, steps=6, seed=1)
    fields["obs"][0], fields["obs"][1] = 0.1, 0.9
    fields["rewards"][:] = 0
    fields["mask"][:] = True
    fields["terminated"][:] = False
    fields["truncated"][:] = False
    fields["truncated"][:, 2] = True
    fields["mask"][:, 3] = False
    fields["age"][:] = [0, 1, 2, 3, 0, 1, 2]

    def unroll(obs, state, is_first):
        values = torch.where(obs[..., 0] > 0.5, 100.0, 1.0) + 0 * model.value.bias
        return {"values": values, "logits": model.policy(obs)}, state

    model.unroll = unroll
    config = PPOConfig(lambda_=1.0, gamma=0.5, epochs=1, minibatches=1)
    learner = PPO(model, OBS, ACTIONS, config, device="cpu")
    rollout, advantages = learner.evaluated(learner.rollout(batch_from(fields, ACTIONS)))
    targets = advantages + rollout.values
    expected = torch.tensor([0.125, 0.25, 0.5, 0.0, 0.25, 0.5])
    torch.testing.assert_close(targets * rollout.valid, torch.stack((expected, 100 * expected)))
