"""Ape-X DQN against loops over single steps, and its properties on rows of a real sampler."""

from __future__ import annotations

import io
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
import torch
from helpers.counting import TimeLine
from helpers.models import perturb
from helpers.q_learning import (
    PLAIN,
    RECURRENT,
    copy_of,
    no_publishing,
    q_factory,
    q_learner,
    serial_sampler,
)

from sampler import Sampler, SamplerConfig, seeds
from sampler.envs.bitflip import BitFlip
from sampler.envs.counter import counter_reward, decode, intact
from sampler.errors import ConfigError
from sampler.learner.algorithms.apex import ApeX, ApeXConfig, hindsight_of
from sampler.learner.algorithms.registry import ALGORITHMS
from sampler.learner.functional.normalize import RewardScaler
from sampler.learner.trainer import Trainer
from sampler.models import ModelConfig

SMALL = ApeXConfig(
    n_step=3,
    gamma=0.9,
    batch_size=16,
    learning_starts=0,
    replay_capacity=600,
    target_every=1000,
    learning_rate=1e-3,
)


def learner_for(sampler: Sampler, config: ApeXConfig = SMALL, model: ModelConfig = PLAIN):
    """A learner that begins with the sampler's own weights."""
    return q_learner(ApeX, sampler, config, model)


def q_values(network, obs: np.ndarray) -> np.ndarray:
    """[A] of one observation."""
    with torch.no_grad():
        first = torch.zeros(1, dtype=torch.bool)
        outputs, _ = network.step(torch.from_numpy(obs)[None], network.initial_state(1), first)
    return outputs["q_values"][0].double().numpy()


def reference(
    batch, row: int, t: int, config: ApeXConfig, unit: float = 1.0
) -> tuple[float, float, int] | None:
    """Return, discount and last observation of the transition that starts at step t of a row; None
    where none does. `unit`: what rewards are divided by."""
    steps = batch.rewards.shape[1]
    if not batch.mask[row, t] or t >= steps - config.overlap:
        return None
    total, factor, end = 0.0, 1.0, t
    for end in range(t, t + config.n_step):
        reward = float(batch.rewards[row, end]) * config.reward_scale
        if config.reward_clip:
            reward = min(max(reward, -config.reward_clip), config.reward_clip)
        total += factor * reward / unit
        factor *= 0.0 if batch.terminated[row, end] else config.gamma
        if batch.terminated[row, end] or batch.truncated[row, end]:
            break
    return total, factor, end + 1


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"alpha": 0.0, "n_step": 1},
        {"double": False},
        {"reward_clip": 0.5, "reward_scale": 3.0},
        {"normalize_rewards": True, "reward_scale": 3.0},
        {"masked": True},
    ],
    ids=str,
)
def test_loss_and_priorities_equal_a_loop_over_single_steps(changes):
    masked = changes.get("masked", False)
    config = replace(SMALL, **{k: v for k, v in changes.items() if k != "masked"})
    with serial_sampler(12, config.overlap, PLAIN, masked) as sampler:
        learner = learner_for(sampler, config)
        perturb(learner.target)
        batch = copy_of(learner, sampler.get_batch())
    learner.store(batch)
    before = learner.generator.bit_generator.state
    _, index, weights = learner.replay.sample(config.batch_size, learner.generator)
    learner.generator.bit_generator.state = before  # so that `learn` gets the same sample
    terms, errors = [], []
    for row, t in zip(*np.divmod(index, 12), strict=True):
        found = reference(batch, row, t, config, learner.reward_unit)
        assert found is not None, "this is no transition"
        total, discount, end = found
        target = q_values(learner.target, batch.obs[row, end])
        choice = q_values(learner.model, batch.obs[row, end]) if config.double else target.copy()
        if masked:
            choice[~batch.action_mask[row, end]] = -np.inf
        value = target[int(choice.argmax())]
        taken = q_values(learner.model, batch.obs[row, t])[int(batch.actions[row, t]) - 5]
        errors.append(total + discount * value - taken)
        terms.append(0.5 * errors[-1] ** 2)
    assert learner.learn()
    metrics = learner.metrics.means()
    assert metrics["losses/q_loss"] == pytest.approx(float((weights * terms).mean()), rel=1e-4)
    assert metrics["losses/td_error"] == pytest.approx(float(np.abs(errors).mean()), rel=1e-4)
    if config.prioritised:
        leaves = learner.replay.priorities.tree.get(index)
        np.testing.assert_allclose(leaves, np.abs(errors) ** config.alpha, rtol=1e-3)


def test_huber_counts_large_errors_linearly():
    with serial_sampler(12, SMALL.overlap, PLAIN) as sampler:
        learner = learner_for(sampler, replace(SMALL, huber=0.5))
    terms = learner.loss_terms(torch.tensor([0.4, -2.0]))
    torch.testing.assert_close(terms, torch.tensor([0.08, 0.5 * (2.0 - 0.25)]))


@pytest.mark.parametrize("masked", [False, True])
def test_actor_priorities_come_from_the_behaviour_values(masked):
    with serial_sampler(12, SMALL.overlap, PLAIN, masked) as sampler:
        learner = learner_for(sampler)
        perturb(learner.model)  # what the learner knows now must not matter
        batch = copy_of(learner, sampler.get_batch())
    priorities = learner.actor_priorities(batch)
    learner.store(batch)
    leaves = learner.replay.priorities.tree.get(np.arange(priorities.size))
    checked = 0
    for (row, t), priority in np.ndenumerate(priorities):
        found = reference(batch, row, t, SMALL)
        leaf = leaves[row * 12 + t]
        if found is None:
            assert leaf == 0
            continue
        total, discount, end = found
        choice = batch.q_values[row, end].astype(float)
        if masked:
            choice[~batch.action_mask[row, end]] = -np.inf
        expected = total + discount * choice.max()
        expected -= batch.q_values[row, t][int(batch.actions[row, t]) - 5]
        assert priority == pytest.approx(abs(expected), rel=1e-4, abs=1e-5)
        assert leaf == pytest.approx(abs(expected) ** SMALL.alpha, rel=1e-4, abs=1e-3)
        checked += 1
    assert checked > 20


def test_rewards_are_normalized_by_the_returns_of_new_steps():
    config = replace(SMALL, normalize_rewards=True, reward_scale=2.0, reward_clip=1.5)
    with serial_sampler(12, config.overlap, PLAIN) as sampler:
        learner = learner_for(sampler, config)
        assert learner.reward_unit == pytest.approx(1.0)
        batch = copy_of(learner, sampler.get_batch())
    learner.update(batch, no_publishing)
    returns = []
    for row in range(len(batch)):
        total = 0.0
        for t in range(config.overlap, 12):
            if not batch.mask[row, t]:
                total = 0.0
                continue
            total = config.gamma * total + np.clip(2.0 * batch.rewards[row, t], -1.5, 1.5)
            returns.append(total)
            if batch.terminated[row, t] or batch.truncated[row, t]:
                total = 0.0
    assert learner.reward_unit == pytest.approx(np.std(returns), rel=1e-5)
    rewards = torch.tensor([0.1, -3.0])
    expected = torch.tensor([0.2, -1.5]) / np.std(returns)
    torch.testing.assert_close(learner.rewards(rewards), expected.float())


def test_a_rare_reward_is_bounded_when_normalized():
    """After 6,463 zeros a reward of 1.0 is 80.4 standard deviations of the returns; 10 are learned,
    by single transitions, too."""
    config = replace(SMALL, gamma=0.99, n_step=1, alpha=0.0, normalize_rewards=True)
    with serial_sampler(12, config.overlap, PLAIN) as sampler:
        learner = learner_for(sampler, config)
        batch = copy_of(learner, sampler.get_batch())
    learner.store(batch)
    scaler = learner.reward_scaler = RewardScaler(config.gamma)
    rewards = np.zeros((1, 6464))
    rewards[0, -1] = 1.0
    scaler.update(rewards, np.zeros(rewards.shape, bool), np.zeros(1, int))
    assert 1 / learner.reward_unit == pytest.approx(80.4, abs=0.05)
    assert learner.rewards(torch.tensor([1.0, -1.0, 0.01])).tolist() == pytest.approx(
        [10.0, -10.0, 0.804], abs=1e-3
    )
    learner.replay.storage.arrays["rewards"][:] = 1.0
    learner.replay.storage.arrays["terminated"][:] = True
    targets = []
    learner._targets = lambda fields: (
        targets.append(type(learner)._targets(learner, fields)) or targets[-1]
    )
    learner.learn()
    torch.testing.assert_close(targets[0], torch.full_like(targets[0], 10.0))


def test_rows_given_up_are_not_replayed():
    with serial_sampler(12, SMALL.overlap, PLAIN) as sampler:
        learner = learner_for(sampler)
        batch = copy_of(learner, sampler.get_batch())
    batch.fields["mask"][1] = False
    batch.fields["rewards"][1] = np.nan
    batch.fields["q_values"][1] = np.nan
    metrics = learner.update(batch, no_publishing)
    assert learner.replay.storage.size == 3
    assert np.isfinite(list(metrics.values())).all()
    batch.fields["mask"][:] = False
    learner.update(batch, no_publishing)
    assert learner.replay.storage.size == 3


@pytest.mark.parametrize("save_replay", [True, False])
def test_state_continues_bit_for_bit(save_replay):
    config = replace(SMALL, save_replay=save_replay, replay_capacity=60, learning_starts=16)
    with serial_sampler(12, config.overlap, PLAIN) as sampler:
        first = learner_for(sampler, config)
        for _ in range(5):
            first.update(sampler.get_batch(), no_publishing)
        file = io.BytesIO()
        torch.save(first.state_dict(), file)
        rest = [copy_of(first, sampler.get_batch()) for _ in range(3)]
        second = learner_for(sampler, config)
    file.seek(0)
    perturb(second.model)
    second.load_state_dict(torch.load(file, weights_only=True))
    updates = second.updates
    assert updates == first.updates > 0
    if save_replay:
        for batch in rest:
            metrics = [learner.update(batch, no_publishing) for learner in (first, second)]
            assert metrics[0] == metrics[1]
        for a, b in zip(
            first.model.state_dict().values(), second.model.state_dict().values(), strict=True
        ):
            assert torch.equal(a, b)
    else:
        for batch in rest:
            second.update(batch, no_publishing)
        assert second.updates > updates


def test_learning_starts_when_the_replay_is_full_at_the_latest():
    """A row of 8 steps, one of which only resets, never holds 8 transitions."""
    config = replace(SMALL, n_step=1, alpha=0.0, replay_capacity=64, learning_starts=64)
    with serial_sampler(8, 0, PLAIN) as sampler:
        learner = learner_for(sampler, config)
        for _ in range(4):
            learner.update(sampler.get_batch(), no_publishing)
    assert learner.replay.storage.full
    assert learner.stored_steps < 64
    assert learner.updates > 0


def test_the_replay_is_made_before_the_first_batch_and_keeps_its_bounds():
    config = replace(SMALL, replay_capacity=10**9, replay_gib=0.001)
    with serial_sampler(12, config.overlap, PLAIN) as sampler:
        learner = learner_for(sampler, config)
        learner.prepare(sampler)
        replay = learner.replay
        assert 0.0009 * 2**30 < replay.nbytes < 0.0011 * 2**30
        batch = sampler.get_batch()
        learner.update(batch, no_publishing)
        assert learner.replay is replay
        assert len(replay) > 20
        huge = learner_for(sampler, replace(config, replay_gib=0.0, replay_capacity=10**12))
        with pytest.raises(ConfigError, match="GiB of memory are free: lower replay_capacity"):
            huge.prepare(sampler)


def test_importance_weights_are_annealed():
    config = replace(SMALL, beta=0.4, beta_end=1.0, replay_ratio=4.0)
    with serial_sampler(12, config.overlap, PLAIN) as sampler:
        learner = learner_for(sampler, config)
        assert learner.beta == 0.4
        learner.prepare(sampler)
        used, sample = [], learner.replay.sample
        learner.replay.sample = lambda *args, **kwargs: (
            used.append(kwargs["beta"]) or sample(*args, **kwargs)
        )
        for steps in (0, 50, 100, 200):
            learner.set_progress(steps, 100)
            learner.update(sampler.get_batch(), no_publishing)
    assert sorted(set(used)) == pytest.approx([0.4, 0.7, 1.0])
    constant = learner_for(sampler, SMALL)
    constant.set_progress(50, 100)
    assert constant.beta == SMALL.beta


def test_exploration():
    ladder = replace(SMALL, exploration_base=0.4, exploration_exponent=7.0).epsilons(10, 0)
    assert ladder[[0, 9]] == pytest.approx([0.4, 0.4**8])
    falling = replace(
        SMALL,
        exploration="anneal",
        exploration_start=1.0,
        exploration_end=0.1,
        exploration_steps=100,
    )
    np.testing.assert_allclose(falling.epsilons(2, 0), 1.0)
    np.testing.assert_allclose(falling.epsilons(2, 50), 0.55)
    np.testing.assert_allclose(falling.epsilons(3, 1000), [0.1] * 3)


def test_a_single_lane_stops_exploring():
    """The ladder's formula would give it 0.4 for ever."""
    config = replace(SMALL, exploration_end=0.05, exploration_steps=100)
    assert config.exploration == "ladder"
    assert [float(config.epsilons(1, steps)[0]) for steps in (0, 100)] == pytest.approx([1, 0.05])
    np.testing.assert_allclose(config.epsilons(2, 0), config.epsilons(2, 100))


def test_impossible_settings_are_refused():
    with pytest.raises(ConfigError, match="hindsight='past' is not one of"):
        replace(SMALL, hindsight="past")
    with pytest.raises(ConfigError, match="set alpha=0"):
        replace(SMALL, hindsight="future")
    with (
        serial_sampler(12, 0, RECURRENT) as sampler,
        pytest.raises(ConfigError, match="use algo=r2d2, or a model without core"),
    ):
        learner_for(sampler, SMALL, RECURRENT)
    with serial_sampler(12, 0, PLAIN) as sampler:
        with pytest.raises(ConfigError, match="its settings need overlap=3"):
            learner_for(sampler).check_sampler(sampler.config)
        learner_for(sampler, replace(SMALL, n_step=1, alpha=0)).check_sampler(sampler.config)
        with pytest.raises(ConfigError, match="hindsight_of"):
            learner_for(sampler, replace(SMALL, alpha=0, hindsight="future"))
        sampler.model.inputs = ("obs", "previous_rewards")
        with pytest.raises(ConfigError, match="this model's inputs are obs, previous_rewards; use"):
            ApeX.for_sampler(sampler, SMALL)
    with pytest.raises(ConfigError, match="has no goals to replace"):
        hindsight_of("CartPole-v1")
    box = gym.spaces.Box(-1, 1, (2,), np.float32)
    with pytest.raises(ConfigError, match="needs Discrete actions"):
        ApeX(torch.nn.Linear(1, 1), box, box, SMALL)


def test_dqn_speaks_of_itself_and_reads_what_apex_saved():
    with serial_sampler(12, 0, RECURRENT) as sampler:
        spaces = sampler.observation_space, sampler.action_space
        with pytest.raises(ConfigError, match="DQN replays single transitions"):
            ALGORITHMS["dqn"].learner(sampler.model, *spaces, SMALL, device="cpu")
    with serial_sampler(12, SMALL.overlap, PLAIN) as sampler:
        saved = learner_for(sampler)
        saved.update(sampler.get_batch(), no_publishing)
        dqn = ALGORITHMS["dqn"].learner.for_sampler(sampler, SMALL, "cpu")
    dqn.load_state_dict(saved.state_dict())
    assert dqn.updates == saved.updates > 0
    assert dqn.state_dict()["algorithm"] == "ApeX"


def test_epsilon_is_a_metric():
    config = replace(
        SMALL, exploration="anneal", exploration_start=1.0, exploration_end=0.5, exploration_steps=1
    )
    with serial_sampler(12, config.overlap, PLAIN) as sampler:
        seen = []
        trainer = Trainer(
            sampler, learner_for(sampler, config), total_steps=60, hooks=[seen.append]
        )
        trainer.run()
    assert [progress.metrics["charts/epsilon"] for progress in seen[:2]] == [1.0, 0.5]


class Goals(BitFlip):
    """Counts how many of its kind are open."""

    open = 0

    def __init__(self) -> None:
        super().__init__(bits=3)
        Goals.open += 1

    def close(self) -> None:
        Goals.open -= 1


def test_the_environment_that_rewards_replaced_goals_is_closed():
    hindsight = hindsight_of(Goals)
    assert Goals.open == 1
    achieved = np.zeros((2, 1, 3), np.int8)
    assert hindsight.rewards(achieved, np.array([[0, 0, 0], [0, 1, 0]])).tolist() == [[0], [-1]]
    del hindsight
    assert Goals.open == 0
    with pytest.raises(ConfigError, match="has no goals to replace"):
        hindsight_of(type("NoReward", (Goals,), {"compute_reward": property()}))
    assert Goals.open == 0


class Chain(gym.Env):
    """Five places in a row; action 1 goes right, 0 stays and pays 0.1; the end pays 1."""

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Discrete(5)
        self.action_space = gym.spaces.Discrete(2)
        self.place = self.age = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = int(self.np_random.integers(5))
        self.age = 0
        return self.place, {}

    def step(self, action):
        self.age += 1
        if action == 1 and self.place == 4:
            return 4, 1.0, True, False, {}
        self.place += int(action)
        return self.place, 0.1 * (action == 0), False, self.age >= 8, {}


@pytest.mark.parametrize("prioritised", [False, True])
def test_finds_the_true_values_of_a_small_problem(prioritised):
    """Value iteration gives the optimum; bootstrapping at truncations is part of it."""
    gamma = 0.8
    config = ApeXConfig(
        learning_rate=0.02,
        optimiser="adam",
        epsilon=1e-8,
        anneal_learning_rate=True,
        gamma=gamma,
        n_step=1,
        batch_size=64,
        target_every=20,
        replay_ratio=40.0,
        replay_capacity=1000,
        learning_starts=100,
        alpha=0.6 if prioritised else 0.0,
        exploration="anneal",
        exploration_start=0.5,
        exploration_end=0.5,
    )
    linear = ModelConfig(hidden=(), dueling=False)
    with serial_sampler(16, config.overlap, linear, env=Chain) as sampler:
        learner = learner_for(sampler, config, linear)
        steps = 0
        while steps < 600:
            sampler.set_epsilon(learner.exploration(4, steps))
            learner.set_progress(steps, 600)
            batch = sampler.get_batch()
            steps += int(batch.mask[:, config.overlap :].sum())
            learner.update(batch, lambda: sampler.publish(learner.model))
    values = np.zeros(6)
    for _ in range(200):
        right = np.append(gamma * values[1:5], 1.0)
        stay = 0.1 + gamma * values[:5]
        values[:5] = np.maximum(right, stay)
    found = np.array([q_values(learner.model, np.array(place)) for place in range(5)])
    np.testing.assert_allclose(found, np.stack((stay, right), 1), atol=0.03)


@pytest.mark.parametrize("frames", [False, True])
def test_replayed_transitions_are_what_the_environment_did(frames):
    """Four workers, sampling at every batch, the capacity wrapped many times."""
    sampler_config = SamplerConfig(
        env="fastrl/Counter-v0",
        env_kwargs={"max_length": 12, "frames": frames},
        workers=4,
        envs_per_worker=4,
        rollout=10,
        overlap=2,
        batch=16,
        inference="random",
        seed=5,
    )
    config = replace(SMALL, alpha=0.0, gamma=1.0, replay_capacity=400, replay_ratio=0.1)
    lanes = range(sampler_config.lanes)
    own = [seeds.integer(sampler_config.seed, seeds.LANE, lane, 0) for lane in lanes]
    lines = {seed: TimeLine(seed, 1, 12) for seed in own}
    with Sampler(sampler_config) as sampler:
        learner = ApeX(
            q_factory(PLAIN)(sampler.observation_space, sampler.action_space),
            sampler.observation_space,
            sampler.action_space,
            config,
            device="cpu",
        )
        learner.check_sampler(sampler_config)
        for _ in range(40):
            learner.update(sampler.get_batch(), no_publishing)
            fields, _, _ = learner.replay.sample(64, learner.generator)
            check_transitions(fields, lines, config.n_step, frames)
        assert learner.updates > 0
        assert learner.replay.storage.added == 40 * 16 > 12 * learner.replay.storage.size


def check_transitions(fields, lines, n: int, frames: bool) -> None:
    """Each starts at a step of its lane's life and holds what followed, up to the episode's end."""
    obs, after = fields["obs"], fields["next_obs"]
    assert intact(obs).all()
    assert intact(after).all()
    if frames:
        check_stack(obs)
        check_stack(after)
        obs, after = obs[:, -1], after[:, -1]
    for i, (start, end) in enumerate(zip(decode(obs), decode(after), strict=True)):
        lane, episode, step, _ = start.tolist()
        line = lines[lane]
        line.reach(episode)
        length = int(line.lengths[episode])
        assert step < length, "a transition starts at a final observation"
        last = min(step + n, length)
        assert end[:3].tolist() == [lane, episode, last]
        if last == step + 1:
            assert end[3] == fields["actions"][i]
        rewards = counter_reward(lane, episode, np.arange(step + 1, last + 1))
        assert fields["rewards"][i] == rewards.sum()
        terminated = last == length and line.terminates[episode]
        assert fields["discounts"][i] == (0.0 if terminated else 1.0)


def check_stack(stacks: np.ndarray) -> None:
    """Frames one after the other, and zeros from before the episode."""
    newest = decode(stacks[:, -1])
    for back in range(1, stacks.shape[1]):
        frame = stacks[:, -1 - back]
        before = newest[:, 2] < back
        assert not frame[before].any()
        expected = newest[~before][:, :3] - [0, 0, back]
        np.testing.assert_array_equal(decode(frame[~before])[:, :3], expected)
