"""Vector environments, however they reset: every transition is right, and so is every score."""

from __future__ import annotations

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from helpers.vectors import Numbers, Undeclared

from sampler import ConfigError, Sampler, SamplerConfig
from sampler.evaluation import evaluate
from sampler.models import make_model

MODES = list(AutoresetMode)
CONFIG = SamplerConfig(
    env="",
    workers=1,
    envs_per_worker=2,
    groups=1,
    rollout=7,
    batch=2,
    inference="random",
    serial=True,
)


def declared(lengths, mode, **kwargs):
    makers = [lambda n=n: Numbers(n, **kwargs) for n in lengths]
    return gym.vector.SyncVectorEnv(makers, autoreset_mode=mode)


def undeclared(lengths, mode, **kwargs):
    return Undeclared(lengths, mode, **kwargs)


def rows_of_lanes(config, steps=200):
    """Rows of each lane, one after the other: fields [steps, ...], and the finished games."""
    fields = ("rewards", "mask", "terminated", "truncated", "age", "episode_id")
    found = {lane: [] for lane in range(config.lanes)}
    games = []
    with Sampler(config) as sampler:
        while sampler.stats()["steps"] < steps:
            batch = sampler.get_batch()
            for row, lane in enumerate(batch.lane_id.tolist()):
                arrays = {name: np.array(batch[name][row]) for name in fields}
                found[lane].append(arrays | {"obs": np.array(batch.obs[row])})
            games += sampler.episodes()
        return found, games, sampler.stats()


def check_rows(rows, length, truncates):
    """Each transition that is to be learned from is one of the environment's."""
    for row in rows:
        obs, age, mask = row["obs"], row["age"], row["mask"]
        np.testing.assert_array_equal(age, obs[:, 1])
        assert not row["rewards"][~mask].any()
        ends = row["terminated"] | row["truncated"]
        for t in range(len(mask)):
            episode, step = obs[t]
            if mask[t]:
                assert row["rewards"][t] == 10 * episode + step + 1
            if mask[t] and not (ends[t] and age[t + 1] == 0):
                assert obs[t + 1].tolist() == [episode, step + 1]
            else:  # the next episode begins
                assert obs[t + 1].tolist() == [episode + 1, 0]
            if row["terminated"][t]:
                assert not truncates
                assert step + 1 == length
            if row["truncated"][t]:  # bootstrapped from what is the next observation
                assert truncates
                assert mask[t]
                assert obs[t + 1].tolist() == [episode, step + 1]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("lengths", [(4, 4), (4, 6), (1, 1), (1, 3)])
@pytest.mark.parametrize("truncates", [False, True])
@pytest.mark.parametrize("changes", [{}, {"overlap": 3}, {"rollout": 1}])
def test_all_ways_of_resetting(mode, lengths, truncates, changes):
    config = replace(CONFIG, env=lambda: declared(lengths, mode, truncates=truncates), **changes)
    rows, games, stats = rows_of_lanes(config)
    for lane, length in enumerate(lengths):
        check_rows(rows[lane], length, truncates)
        scores = [game.score for game in games if game.lane == lane]
        whole = length * (length + 1) / 2
        assert scores == [10 * length * n + whole for n in range(len(scores))]
        assert len(scores) > 5
        assert {game.length for game in games if game.lane == lane} == {length}
        if not (truncates and mode is not AutoresetMode.NEXT_STEP):
            seen = {
                tuple(obs)
                for row in rows[lane]
                for obs, real in zip(row["obs"], row["mask"], strict=False)
                if real
            }
            whole_games = max(episode for episode, _ in seen)
            assert len([o for o in seen if o[0] < whole_games]) == whole_games * length
    assert stats["episodes"] >= len(games)


@pytest.mark.parametrize("final", ["final_obs", "final_observation"])
def test_final_observations_of_a_same_step_reset_are_in_the_sequence(final):
    config = replace(CONFIG, env=lambda: Undeclared(final=final))
    rows, games, _ = rows_of_lanes(config)
    first = rows[0][0]
    assert first["obs"].tolist() == [[0, 0], [0, 1], [0, 2], [0, 3], [0, 4], [1, 0], [1, 1], [1, 2]]
    assert first["mask"].tolist() == [True] * 4 + [False] + [True] * 2
    assert first["rewards"].tolist() == [1, 2, 3, 4, 0, 11, 12]
    assert [game.score for game in games if game.lane == 1][:3] == [10, 50, 90]


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize("lengths", [(4, 4), (3, 5)])
def test_an_undeclared_way_is_recognised(mode, lengths):
    config = replace(CONFIG, env=lambda: undeclared(lengths, mode))
    rows, games, _ = rows_of_lanes(config)
    for lane, length in enumerate(lengths):
        check_rows(rows[lane], length, False)
        scores = [game.score for game in games if game.lane == lane]
        whole = length * (length + 1) / 2
        assert scores == [10 * length * n + whole for n in range(len(scores))]


@pytest.mark.parametrize("serial", [True, False])
def test_contradictions_are_found_before_workers_start(serial):
    class Contradicts(Undeclared):
        metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    class Silent(Undeclared):
        def __init__(self):
            super().__init__(final=None)

    class Unknown(Undeclared):
        metadata = {"autoreset_mode": "sometimes"}  # noqa: RUF012

    for env, message in (
        (Contradicts, "autoreset_mode is NEXT_STEP, but it gives final observations"),
        (Silent, "does not say how it resets: it declares no autoreset_mode, gives no final_obs"),
        (Unknown, "autoreset_mode='sometimes' is not one of NEXT_STEP, SAME_STEP, DISABLED"),
    ):
        with pytest.raises(ConfigError, match=message):
            Sampler(replace(CONFIG, env=env, serial=serial))


@pytest.mark.parametrize("name", ["next_step", "NextStep", "AutoresetMode.SAME_STEP"])
def test_modes_may_be_declared_by_name(name):
    mode = AutoresetMode.SAME_STEP if "SAME" in name else AutoresetMode.NEXT_STEP

    class Named(Undeclared):
        metadata = {"autoreset_mode": name}  # noqa: RUF012

    _, games, _ = rows_of_lanes(replace(CONFIG, env=lambda: Named(mode=mode)))
    assert [game.score for game in games if game.lane == 0][:3] == [10, 50, 90]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("lengths", [(2, 2), (2, 3)])
def test_infos_count_only_for_the_lanes_that_gave_them(mode, lengths):
    """`game_over` is given, False, only at lost lives: elsewhere an end is the game's."""
    config = replace(CONFIG, env=lambda: declared(lengths, mode, lives=2))
    _, games, _ = rows_of_lanes(config)
    alone, _ = games_alone(lengths)
    for lane in range(2):
        scores = [game.score for game in games if game.lane == lane]
        assert len(scores) > 5
        common = min(len(scores), len(alone[lane]))
        assert scores[:common] == alone[lane][:common]
    model = make_model(Numbers.observation_space, Numbers.action_space)
    result = evaluate(model, config.env, episodes=4, lanes=2)
    assert sorted(result.lengths) == sorted([2 * lengths[0]] * 2 + [2 * lengths[1]] * 2)


@pytest.mark.parametrize("mode", MODES)
def test_a_life_lost_in_one_lane_says_nothing_of_the_game_that_ends_in_another(mode):
    """Whenever a game ends, the other lane gives `game_over`, for itself."""

    def env():
        makers = [lambda: Numbers(lives=2), lambda: Numbers(lives=2, played=1)]
        return gym.vector.SyncVectorEnv(makers, autoreset_mode=mode)

    _, games, _ = rows_of_lanes(replace(CONFIG, env=env), steps=1360)
    assert len(games) >= 170
    assert [game.score for game in games if game.lane == 0][:2] == [10 + 50, 90 + 130]
    assert [game.score for game in games if game.lane == 1][:2] == [10, 50 + 90]
    model = make_model(Numbers.observation_space, Numbers.action_space)
    result = evaluate(model, env, episodes=4, lanes=2)
    assert sorted(result.scores) == [10, 60, 140, 220]


def games_alone(lengths):
    def separate():
        return Numbers(made.pop(0), lives=2)

    made = [lengths[0], *lengths, *lengths]  # the first one is only looked at
    config = replace(CONFIG, env=separate)
    rows, games, _ = rows_of_lanes(config)
    return [[game.score for game in games if game.lane == lane] for lane in range(2)], rows


@pytest.mark.parametrize("mode", MODES)
def test_evaluation_sees_the_first_observation_of_every_episode(mode):
    model = make_model(Numbers.observation_space, Numbers.action_space)
    result = evaluate(model, lambda: declared((3, 5), mode), episodes=6, lanes=2)
    np.testing.assert_array_equal(result.scores, [6, 36, 66, 15, 65, 115])


def cartpoles():
    return gym.make_vec("CartPole-v1", num_envs=4, vectorization_mode="vector_entry_point")


def atari():
    import ale_py

    return ale_py.AtariVectorEnv("breakout", num_envs=4, num_threads=1)


@pytest.mark.parametrize("env", [cartpoles, atari])
@pytest.mark.parametrize("serial", [True, False])
def test_vector_environments_that_take_one_seed(env, serial):
    config = replace(CONFIG, env=env, envs_per_worker=4, batch=4, serial=serial)
    with Sampler(config) as sampler:
        for _ in range(5):
            batch = sampler.get_batch()
        assert len({obs.tobytes() for obs in batch.obs[:, -1]}) == 4
        assert len(batch.obs) == 4
    model = make_model(sampler.observation_space, sampler.action_space)
    if env is cartpoles:
        assert len(evaluate(model, env, episodes=4, lanes=4).scores) == 4


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("lengths", [(4, 4), (4, 6)])
@pytest.mark.parametrize("last", [None, [1, 0]])
def test_action_masks_in_all_ways_of_resetting(mode, lengths, last):
    """The mask of each observation is stored with it; the final one may have none."""

    class Masked(Numbers):
        def _mask(self):
            return {"action_mask": np.array([1, self.t % 2], np.int8)}

        def reset(self, *, seed=None, options=None):
            observation, _ = super().reset()
            return observation, self._mask()

        def step(self, action):
            *rest, info = super().step(action)
            final = {} if last is None else {"action_mask": np.array(last, np.int8)}
            return (*rest, info | (final if self.t == self.length else self._mask()))

    def env():
        makers = [lambda n=n: Masked(n) for n in lengths]
        return gym.vector.SyncVectorEnv(makers, autoreset_mode=mode)

    with Sampler(replace(CONFIG, env=env)) as sampler:
        for _ in range(10):
            batch = sampler.get_batch()
            final = batch.obs[..., 1] == np.array(lengths)[batch.lane_id][:, None]
            expected = np.stack([np.ones(final.shape), batch.obs[..., 1] % 2], -1).astype(bool)
            np.testing.assert_array_equal(batch.action_mask[~final], expected[~final])
            assert (batch.action_mask[final] == ([True, True] if last is None else last)).all()


def test_a_game_alone_is_the_same():
    alone, rows = games_alone((2, 3))
    assert alone[0][:2] == [1 + 2 + 11 + 12, 21 + 22 + 31 + 32]
    check_rows(rows[1], 3, False)
