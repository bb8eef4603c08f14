from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from sampler.envs.frames import FrameEnv
from sampler.errors import ConfigError, EnvError, ModelError
from sampler.evaluation import evaluate


class Policy(nn.Module):
    """Fixed logits; remembers everything that it was shown. Its state counts steps."""

    inputs: tuple[str, ...] = ("obs",)

    def __init__(self, logits=(0.0, 5.0), output="logits"):
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(logits))
        self.output = output
        self.seen = []

    def initial_state(self, n):
        return torch.zeros(n, 1)

    def step(self, obs, state, is_first):
        assert not self.training
        assert not torch.is_grad_enabled()
        state = torch.where(is_first[:, None], 0.0, state) + 1
        self.seen.append((obs, state.clone(), is_first.clone()))
        logits = self.logits.expand(len(is_first), -1)
        return {self.output: logits, "values": logits[:, 0]}, state

    def unroll(self, obs, state, is_first):
        raise AssertionError("evaluation goes step by step")


class Episodes(gym.Env):
    """Episodes of `length` steps; reward 1 for action 1, -0.5 for action 0. Observes the step."""

    observation_space = spaces.Box(0, 1000, (1,), np.float32)
    action_space = spaces.Discrete(2)
    made: tuple[Episodes, ...] = ()

    def __init__(self, length=3, by_lane=False):
        self.length = length
        if by_lane:  # the first instance has long games, the later ones short ones
            self.length = 50 if not Episodes.made else 2
        Episodes.made += (self,)
        self.seeds = []
        self.resets = 0
        self.closed = False

    def reset(self, *, seed=None, options=None):
        self.seeds.append(seed)
        self.resets += 1
        self.t = 0
        return self.observe(), {}

    def observe(self):
        return np.array([self.t], np.float32)

    def step(self, action):
        self.t += 1
        return self.observe(), 1.0 if action == 1 else -0.5, self.t == self.length, False, {}

    def close(self):
        self.closed = True


@pytest.fixture(autouse=True)
def _forget_environments():
    Episodes.made = ()


def test_scores_and_lengths_of_whole_games():
    result = evaluate(Policy(), Episodes, episodes=6, lanes=3)
    np.testing.assert_array_equal(result.scores, [3.0] * 6)
    np.testing.assert_array_equal(result.lengths, [3] * 6)
    assert (result.mean, result.std) == (3.0, 0.0)


def test_every_lane_plays_its_share_however_long_its_games_are():
    result = evaluate(Policy(), Episodes, env_kwargs={"by_lane": True}, episodes=6, lanes=3)
    np.testing.assert_array_equal(result.lengths, [50, 50, 2, 2, 2, 2])
    assert result.mean == pytest.approx(18.0)
    assert result.std == pytest.approx(np.std([50, 50, 2, 2, 2, 2]))


def test_a_remainder_goes_to_the_first_lanes():
    result = evaluate(Policy(), Episodes, env_kwargs={"by_lane": True}, episodes=4, lanes=3)
    np.testing.assert_array_equal(result.lengths, [50, 50, 2, 2])


def test_there_are_never_more_lanes_than_games():
    assert len(evaluate(Policy(), Episodes, episodes=2, lanes=8).scores) == 2
    assert len(Episodes.made) == 2


def test_lanes_that_are_done_rest():
    model = Policy()
    evaluate(model, Episodes, env_kwargs={"by_lane": True}, episodes=2, lanes=2)
    assert len(model.seen[0][2]) == 2
    assert len(model.seen[-1][2]) == 1


class LosesLives(Episodes):
    """Three lives of two steps each."""

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.resets = 0
        return super().reset(seed=seed)

    def step(self, action):
        observation, reward, terminated, _, _ = super().step(action)
        return observation, reward, terminated, False, {"game_over": self.resets % 3 == 0}


def test_a_lost_life_ends_an_episode_but_not_the_game():
    model = Policy()
    result = evaluate(model, LosesLives, env_kwargs={"length": 2}, episodes=2, lanes=1)
    np.testing.assert_array_equal(result.scores, [6.0, 6.0])
    np.testing.assert_array_equal(result.lengths, [6, 6])
    assert sum(bool(is_first) for _, _, is_first in model.seen) == 6


class ScoresInResets(LosesLives):
    """Going on after a lost life scores 10; in the second time the game ends with it."""

    def reset(self, *, seed=None, options=None):
        observation, _ = super().reset(seed=seed)
        goes_on = self.resets % 3 != 1
        info = {"reset_reward": 10.0 if goes_on else 0.0, "game_over": self.resets % 3 == 0}
        return observation, info

    def step(self, action):
        observation, reward, terminated, _, _ = Episodes.step(self, action)
        return observation, reward, terminated, False, {"game_over": False}


def test_what_a_reset_scores_belongs_to_the_game():
    result = evaluate(Policy(), ScoresInResets, env_kwargs={"length": 2}, episodes=1, lanes=1)
    np.testing.assert_array_equal(result.scores, [2 + 10 + 2 + 10])
    np.testing.assert_array_equal(result.lengths, [4])


def test_the_first_step_after_a_reset_is_marked_and_state_is_kept_per_lane():
    model = Policy()
    evaluate(model, Episodes, episodes=2, lanes=1)
    firsts = [bool(first) for _, _, first in model.seen]
    assert firsts == [True, False, False, False, True, False, False]  # the 4th step resets
    assert [int(state) for _, state, _ in model.seen] == [1, 2, 3, 4, 1, 2, 3]
    assert [int(obs) for obs, _, _ in model.seen] == [0, 1, 2, 3, 0, 1, 2]


def test_seeds_are_given_once_differ_between_lanes_and_follow_the_seed():
    def lane_seeds(seed):
        Episodes.made = ()
        evaluate(Policy(), Episodes, episodes=4, lanes=2, seed=seed)
        assert all(value is None for env in Episodes.made for value in env.seeds[-1:])
        return [[value for value in env.seeds if value is not None][-1] for env in Episodes.made]

    first = lane_seeds(1)
    assert len(set(first)) == 2
    assert lane_seeds(1) == first
    assert not set(lane_seeds(2)) & set(first)


def test_sampled_actions_differ_from_greedy_ones_and_repeat_with_the_seed():
    model = Policy(logits=(0.0, 0.1))
    kwargs = {"env_kwargs": {"length": 100}, "episodes": 4, "lanes": 2}
    greedy = evaluate(model, Episodes, **kwargs)
    np.testing.assert_array_equal(greedy.scores, [100.0] * 4)
    sampled = evaluate(model, Episodes, greedy=False, seed=3, **kwargs)
    assert 0 < sampled.mean < 100
    again = evaluate(model, Episodes, greedy=False, seed=3, **kwargs)
    np.testing.assert_array_equal(sampled.scores, again.scores)
    assert len(set(sampled.scores)) > 1


class Plain(nn.Module):
    """A module without the model protocol, which always takes action 1."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 3)
        with torch.no_grad():
            self.layer.bias.copy_(torch.tensor([0.0, 1000.0, 0.0]))

    def forward(self, obs):
        outputs = self.layer(obs)
        return outputs[:, :2], outputs[:, 2]


def test_a_plain_module_can_be_evaluated():
    result = evaluate(Plain(), Episodes, episodes=2, lanes=2)
    np.testing.assert_array_equal(result.scores, [3.0, 3.0])


def test_a_factory_gets_the_spaces_as_the_model_sees_them():
    made = []

    def make_model(observation_space, action_space):
        made.append((observation_space.shape, action_space))
        return Policy()

    evaluate(make_model, Frames, episodes=2, lanes=2)
    assert made == [((3, 2, 2), spaces.Discrete(2))]


def test_q_values_are_maximised():
    result = evaluate(Policy(output="q_values"), Episodes, episodes=2, lanes=2)
    np.testing.assert_array_equal(result.scores, [3.0, 3.0])


class Frames(FrameEnv):
    """Single frames that hold the step's number plus one, of which the sampler stacks three."""

    frame_stack = 3

    def __init__(self):
        super().__init__(actions=2, shape=(2, 2))
        self.episodes = Episodes()

    def reset_into(self, out, seed=None):
        _, info = self.episodes.reset(seed=seed)
        out[:] = self.episodes.t + 1
        return info

    def step_into(self, action, out):
        _, *rest = self.episodes.step(action)
        out[:] = self.episodes.t + 1
        return tuple(rest)


def test_frames_are_stacked_oldest_first_with_zeros_before_the_episode():
    model = Policy()
    evaluate(model, Frames, episodes=2, lanes=1)
    stacks = [obs[0, :, 0, 0].tolist() for obs, _, _ in model.seen]
    assert stacks[:3] == [[0, 0, 1], [0, 1, 2], [1, 2, 3]]
    assert stacks[4:] == stacks[:3]  # stacks[3] is of the observation that ended the game
    assert model.seen[0][0].dtype == torch.uint8


def test_previous_actions_and_rewards_are_zero_at_the_start_of_an_episode():
    model = Policy()
    model.inputs = ("obs", "previous_actions", "previous_rewards")
    evaluate(model, Episodes, episodes=2, lanes=1)
    previous = [
        (int(o["previous_actions"]), float(o["previous_rewards"])) for o, _, _ in model.seen
    ]
    assert previous == [(0, 0.0), (1, 1.0), (1, 1.0), (1, 1.0), (0, 0.0), (1, 1.0), (1, 1.0)]


class Masked(Episodes):
    """Forbids action 1, in a Dict observation or in info."""

    def __init__(self, where):
        super().__init__()
        self.where = where
        if where == "observation":
            self.observation_space = spaces.Dict(
                {"t": Episodes.observation_space, "action_mask": spaces.MultiBinary(2)}
            )

    def _with_mask(self, observation, info):
        mask = np.array([1, 0], np.int8)
        if self.where == "info":
            return observation, {**info, "action_mask": mask}
        return {"t": observation, "action_mask": mask}, info

    def reset(self, *, seed=None, options=None):
        return self._with_mask(*super().reset(seed=seed))

    def step(self, action):
        observation, *rest, info = super().step(action)
        observation, info = self._with_mask(observation, info)
        return (observation, *rest, info)


@pytest.mark.parametrize("where", ["info", "observation"])
@pytest.mark.parametrize("output", ["logits", "q_values"])
def test_masked_actions_are_not_taken(where, output):
    model = Policy(output=output)
    result = evaluate(model, Masked, env_kwargs={"where": where}, episodes=2, lanes=1)
    np.testing.assert_array_equal(result.scores, [-1.5, -1.5])
    if where == "observation":
        assert set(model.seen[0][0]) == {"t", "action_mask"}


def test_vector_environments_play_until_all_of_their_lanes_are_done():
    def vector():
        return gym.vector.SyncVectorEnv([Episodes, lambda: Episodes(length=5)])

    result = evaluate(Policy(), vector, episodes=5, lanes=4)
    np.testing.assert_array_equal(result.lengths, [3, 3, 5, 3, 5])


def test_the_model_keeps_its_mode_and_environments_are_closed():
    model = Policy().train()
    evaluate(model, Episodes, episodes=2, lanes=2)
    assert model.training
    assert len(Episodes.made) == 2
    assert all(env.closed for env in Episodes.made)


def test_the_first_lane_can_be_watched():
    shown = []
    evaluate(Policy(), Episodes, episodes=4, lanes=2, watch=lambda env: shown.append((env, env.t)))
    assert {id(env) for env, _ in shown} == {id(Episodes.made[0])}
    assert [t for _, t in shown] == [0, 1, 2, 3, 0, 1, 2, 3]


class Broken(Episodes):
    def step(self, action):
        raise ValueError("the engine\nis gone")


def test_an_environment_that_raises_is_named_on_one_line():
    model = Policy().train()
    with pytest.raises(EnvError) as caught:
        evaluate(model, Broken, episodes=2, lanes=2)
    assert str(caught.value) == "env Broken, evaluation lane 0: ValueError: the engine is gone"
    assert model.training
    assert all(env.closed for env in Episodes.made)


@pytest.mark.parametrize("output", ["logits", "q_values"])
def test_a_model_that_is_nan_is_not_played(output):
    with pytest.raises(ModelError, match=f"the model's output '{output}' is NaN; play finite"):
        evaluate(Policy((float("nan"), 0.0), output), Episodes)


@pytest.mark.parametrize("name", ["episodes", "lanes"])
def test_numbers_below_one_are_refused(name):
    with pytest.raises(ConfigError, match=f"{name}=0"):
        evaluate(Policy(), Episodes, **{name: 0})


def test_unknown_ids_are_refused():
    with pytest.raises(ConfigError, match="CartPole-v1"):
        evaluate(Policy(), "CartPole-v11")


@pytest.mark.parametrize("output", ["logits", "q_values"])
@pytest.mark.parametrize("vector", [False, True])
def test_the_first_lane_s_decisions_are_traced(output, vector):
    def env():
        return gym.vector.SyncVectorEnv([Episodes] * 2) if vector else Episodes()

    traced = []
    model = Policy((3.0, 7.0), output)
    evaluate(model, env, episodes=4, lanes=2, trace=traced.append)
    assert [decision.is_first for decision in traced] == [True, False, False] * 2
    assert {decision.value for decision in traced} == {7.0 if output == "q_values" else 3.0}
    assert [[leaf.item() for leaf in decision.actions] for decision in traced] == [[1]] * 6


def test_a_traced_value_is_that_of_a_permitted_action():
    class Masked(Episodes):
        def reset(self, *, seed=None, options=None):
            return super().reset(seed=seed)[0], {"action_mask": [1, 0]}

        def step(self, action):
            return *super().step(action)[:4], {"action_mask": [1, 0]}

    traced = []
    evaluate(Policy((3.0, 7.0), "q_values"), Masked, episodes=1, lanes=1, trace=traced.append)
    assert {decision.value for decision in traced} == {3.0}


def test_a_traced_action_is_within_its_bounds():
    class Bounded(Episodes):
        action_space = spaces.Box(-0.5, 0.5, (1,), np.float32)

    class Valueless(Policy):
        def step(self, obs, state, is_first):
            outputs, state = super().step(obs, state, is_first)
            return {"logits": outputs["logits"]}, state

    traced = []
    evaluate(Valueless((9.0, 0.0)), Bounded, episodes=1, lanes=1, trace=traced.append)
    assert {decision.actions[0].item() for decision in traced} == {0.5}
    assert all(np.isnan(decision.value) for decision in traced)


class Strange(Episodes):
    """From the second step on, observes `value`."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, value, reward=1.0):
        super().__init__()
        self.value, self.reward = value, reward

    def observe(self):
        return np.array([self.value if self.t >= 2 else 0.0], np.float32)

    def step(self, action):
        observation, _, *rest = super().step(action)
        return (observation, self.reward, *rest)


def test_a_finite_float_outside_its_box_is_warned_of_once_as_in_sampling(caplog):
    result = evaluate(Policy(), Strange, env_kwargs={"value": 1.5}, episodes=4, lanes=2)
    np.testing.assert_array_equal(result.lengths, [3] * 4)
    (record,) = caplog.records
    assert record.getMessage().startswith(
        "env Strange, lane 0: obs holds 1.5 at index (0,), outside its space Box(-1.0, 1.0, (1,)"
    )


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"value": np.nan}, "obs holds nan at index (0,), outside its space Box(-1.0, 1.0, (1,)"),
        ({"value": 0.0, "reward": np.nan}, "reward nan; rewards must be finite: correct or clip"),
    ],
)
def test_values_that_are_not_finite_are_refused_as_in_sampling(kwargs, message):
    with pytest.raises(EnvError) as caught:
        evaluate(Policy(), Strange, env_kwargs=kwargs, episodes=2, lanes=2)
    assert str(caught.value).startswith(f"env Strange, evaluation lane 0: {message}")


def test_scores_add_up_rewards_as_sampling_does():
    kwargs = {"value": 0.0, "reward": 0.1}
    result = evaluate(Policy(), Strange, env_kwargs=kwargs, episodes=2, lanes=2)
    np.testing.assert_allclose(result.scores, 3 * float(np.float32(0.1)), rtol=1e-15)


def test_what_was_made_is_closed_when_a_later_environment_cannot_be_made():
    class Second(Episodes):
        def __init__(self):
            super().__init__()
            if len(Episodes.made) == 3:
                raise ValueError("no more licences")

    with pytest.raises(EnvError, match="no more licences"):
        evaluate(Policy(), Second, episodes=4, lanes=4)
    assert [env.closed for env in Episodes.made] == [True, True, False]  # the third was not made


@pytest.mark.parametrize("lane", [0, 2])
def test_what_was_made_is_closed_when_one_cannot_be_reset(lane):
    class Unresettable(Episodes):
        def reset(self, *, seed=None, options=None):
            if self is Episodes.made[lane]:
                raise ValueError("no level")
            return super().reset(seed=seed)

    with pytest.raises(
        EnvError, match=r"env Unresettable, evaluation lane .: ValueError: no level"
    ):
        evaluate(Policy(), Unresettable, episodes=3, lanes=3)
    assert [env.closed for env in Episodes.made] == [True] * 3


def test_a_game_that_does_not_end_is_named():
    env_kwargs = {"length": 10**9}
    message = (
        "env SecondIsEndless, evaluation lane 1: a game was not over after max_game_steps=40; raise"
    )
    with pytest.raises(EnvError, match=message):
        evaluate(
            Policy(), SecondIsEndless, episodes=2, lanes=2, env_kwargs=env_kwargs, max_game_steps=40
        )
    assert all(env.closed for env in Episodes.made)
    result = evaluate(Policy(), Episodes, episodes=5, lanes=1, max_game_steps=4)
    assert result.lengths.tolist() == [3] * 5


def SecondIsEndless(length):
    return Episodes(length if Episodes.made else 3)


def test_progress_is_told_while_games_are_played(monkeypatch):
    monkeypatch.setattr("sampler.evaluation.evaluator.PROGRESS_INTERVAL", 0.0)
    told = []
    evaluate(Policy(), Episodes, episodes=3, lanes=1, progress=told.append)
    assert [(p.games, p.steps) for p in told[:4]] == [(0, 1), (0, 2), (1, 3), (1, 4)]
    assert (told[-1].games, told[-1].episodes) == (3, 3)


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        (np.ones(1), r"rewards \[array\(\[1.\]\)\] are not all numbers; return floats"),
        ("much", r"rewards \['much'\] are not all numbers; return floats"),
        (None, "reward nan; rewards must be finite: correct or clip"),
        (float("inf"), "reward inf; rewards must be finite: correct or clip"),
    ],
)
def test_rewards_that_are_no_numbers_are_refused(reward, message):
    class Odd(Episodes):
        def step(self, action):
            observation, _, *rest = super().step(action)
            return observation, reward, *rest

    with pytest.raises(EnvError, match="env Odd, evaluation lane 0: " + message):
        evaluate(Policy(), Odd, episodes=1)


@pytest.mark.parametrize(("terminated", "truncated"), [(None, False), (False, None), (None, True)])
def test_ends_that_are_neither_true_nor_false_are_refused(terminated, truncated):
    class Odd(Episodes):
        def step(self, action):
            return self.observe(), 1.0, terminated, truncated, {}

    message = (
        r"env Odd, evaluation lane 0: step\(\) returned \w+=None of type NoneType; return a bool"
    )
    with pytest.raises(EnvError, match=message):
        evaluate(Policy(), Odd, episodes=1)


def test_an_observation_that_is_not_finite_is_named_and_not_the_model():
    class Lost(Episodes):
        def observe(self):
            return np.float32([np.nan])

    class Copies(Policy):
        def step(self, obs, state, is_first):
            outputs, state = super().step(obs, state, is_first)
            return {name: output + obs.sum() for name, output in outputs.items()}, state

    with pytest.raises(EnvError, match="env Lost, evaluation lane 0: obs holds nan at index"):
        evaluate(Copies(), Lost, episodes=1)
