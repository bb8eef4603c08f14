"""Frames, rewards, ends and lives equal those of Gymnasium's wrappers."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import ale_py
import gymnasium as gym
import numpy as np
import pytest
from ale_py import roms
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

from sampler import Sampler, SamplerConfig
from sampler.envs import make
from sampler.envs.atari import CLASSIC, AtariEnv, AtariProtocol
from sampler.envs.atari_starts import REPEATABLE_STARTS
from sampler.errors import ConfigError, EnvError

gym.register_envs(ale_py)

COMPILED = importlib.util.find_spec("sampler.envs._preprocess") is not None
BACKENDS = ["opencv", "compiled"] if COMPILED else ["opencv"]
GAMES = ["Breakout", "Pong", "Seaquest", "MontezumaRevenge"]


class EpisodicLife(gym.Wrapper):
    """A lost life ends the episode; the next reset goes on with one no-op step."""

    game_over = True
    lives = 0

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.game_over = terminated or truncated
        lives = self.env.unwrapped.ale.lives()
        lost = 0 < lives < self.lives
        self.lives = lives
        return observation, reward, terminated or lost, truncated, info

    def reset(self, **kwargs):
        over = True
        if not self.game_over:
            observation, _, terminated, truncated, info = self.env.step(0)
            over = terminated or truncated
        if over:
            observation, info = self.env.reset(**kwargs)
        self.lives = self.env.unwrapped.ale.lives()
        return observation, info


class FireReset(gym.Wrapper):
    """FIRE, then the action after it, at each reset."""

    def reset(self, **kwargs):
        _, info = self.env.reset(**kwargs)
        for action in (1, 2):
            observation, _, terminated, truncated, info = self.env.step(action)
            if terminated or truncated:
                observation, info = self.env.reset()
        return observation, info


def preprocessed(env_id, noop_max, **kwargs):
    env = gym.make(env_id, frameskip=1, disable_env_checker=True, **kwargs)
    return AtariPreprocessing(env, noop_max=noop_max, frame_skip=4, screen_size=84)


def with_lives(env):
    env = EpisodicLife(env)
    return FireReset(env) if env.unwrapped.get_action_meanings()[1] == "FIRE" else env


def assert_equal_play(reference, ours, steps, seed):
    """Play the same random actions in `reference` (stacking 4) and in all of `ours`.

    Returns how many episodes ended, and how many of them by a lost life.
    """
    reference = FrameStackObservation(reference, 4, padding_type="zero")
    actions = np.random.default_rng(seed).integers(reference.action_space.n, size=steps)
    assert all(env.action_space == reference.action_space for env in ours)

    def reset(**kwargs):
        expected, info = reference.reset(**kwargs)
        for stack, env in zip(stacks, ours, strict=True):
            stack[:] = 0
            mine = env.reset_into(stack[-1], **kwargs)
            np.testing.assert_array_equal(stack, expected)
            assert mine["lives"] == info["lives"]

    stacks = np.zeros((len(ours), 4, 84, 84), np.uint8)
    reset(seed=seed)
    ends = lost_lives = 0
    for action in actions:
        expected, reward, terminated, truncated, info = reference.step(action)
        for stack, env in zip(stacks, ours, strict=True):
            stack[:-1] = stack[1:].copy()
            mine = env.step_into(action, stack[-1])
            np.testing.assert_array_equal(stack, expected)
            assert mine[:3] == (reward, terminated, truncated)
            assert mine[3]["lives"] == info["lives"]
            assert mine[3]["game_over"] == env.ale.game_over()
        if terminated or truncated:
            ends += 1
            lost_lives += not mine[3]["game_over"]
            reset()
    return ends, lost_lives


def play(protocol, game, steps, seed=3):
    if protocol == "classic":
        env_id = f"{game}NoFrameskip-v4"
        reference = with_lives(preprocessed(env_id, noop_max=30))
    elif protocol == "classic, whole games":
        env_id = f"{game}NoFrameskip-v4"
        reference = preprocessed(env_id, noop_max=30)
    else:
        env_id = f"ALE/{game}-v5"
        reference = preprocessed(env_id, noop_max=0)
    options = {"episodic_life": False, "fire_reset": False} if "whole" in protocol else {}
    ours = [make(env_id, backend=backend, **options) for backend in BACKENDS]
    return assert_equal_play(reference, ours, steps, seed)


@pytest.mark.slow
@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize("protocol", ["classic", "classic, whole games", "v5"])
def test_play_equals_gymnasium(protocol, game):
    play(protocol, game, steps=2_000)


@pytest.mark.parametrize("protocol", ["classic", "v5"])
def test_short_play_equals_gymnasium(protocol):
    ends, lost_lives = play(protocol, "Breakout", steps=250)
    assert ends > 0
    assert (lost_lives > 0) == (protocol == "classic")


@pytest.mark.parametrize("max_frames", [101, 102, 103, 104])
def test_time_limit_truncates_where_gymnasium_does(max_frames):
    reference = preprocessed(
        "PongNoFrameskip-v4", noop_max=0, max_num_frames_per_episode=max_frames
    )
    protocol = replace(
        CLASSIC, noop_max=0, max_frames=max_frames, episodic_life=False, fire_reset=False
    )
    ours = [AtariEnv("pong", protocol, backend=backend) for backend in BACKENDS]
    ends, lost_lives = assert_equal_play(reference, ours, steps=60, seed=0)
    assert ends == 2
    assert lost_lives == 0


def test_reset_after_a_lost_life_goes_on_with_the_game():
    env = make("BreakoutNoFrameskip-v4")
    env.reset(seed=1)
    terminated = False
    while not terminated:
        _, _, terminated, _, info = env.step(0)
    assert info == {"lives": 4, "game_over": False}
    frame = env.ale.getEpisodeFrameNumber()
    _, info = env.reset()
    assert info == {"lives": 4, "game_over": False, "reset_reward": 0.0}
    assert env.ale.getEpisodeFrameNumber() == frame + 3 * 4  # a no-op step, FIRE, RIGHT


@pytest.mark.parametrize("seed", [None, 2])
def test_reset_in_the_middle_of_an_episode_starts_a_new_game(seed):
    env = make("BreakoutNoFrameskip-v4", noop_max=0)
    env.reset(seed=1)
    terminated = False
    while not terminated:
        _, _, terminated, _, _ = env.step(0)
    env.reset()
    env.step(0)
    _, info = env.reset(seed=seed)
    assert info["lives"] == 5
    assert env.ale.getEpisodeFrameNumber() == 2 * 4


def test_reset_tells_score_and_ends_that_no_step_saw():
    # Skiing pays for every frame; a game of 6 frames is over in the second step of a reset.
    env = AtariEnv("skiing", AtariProtocol(noop_max=0))
    assert env.reset(seed=1)[1]["reset_reward"] == 0.0  # Skiing has no FIRE
    env = AtariEnv("skiing", AtariProtocol(noop_max=10))
    assert env.reset(seed=1)[1]["reset_reward"] < 0.0
    env = AtariEnv("breakout", AtariProtocol(noop_max=0, max_frames=6))
    assert env.reset(seed=1)[1]["game_over"]


@pytest.mark.parametrize(
    "game",
    [
        "breakout",
        "pong",
        *(pytest.param(g, marks=pytest.mark.slow) for g in sorted(REPEATABLE_STARTS)),
    ],
)
def test_restored_starts_equal_resets_whatever_was_played_before(game):
    ale = AtariEnv(game).ale
    ale.loadROM(roms.get_rom_path(game))
    ale.reset_game()
    start = ale.cloneState()
    actions = ale.getMinimalActionSet()
    rng = np.random.default_rng(0)
    plan = rng.integers(len(actions), size=100)

    def play():
        return [
            (ale.act(actions[i]), ale.lives(), ale.game_over(), *map(bytes, screen_and_memory()))
            for i in plan
        ]

    def screen_and_memory():
        return ale.getScreen(), ale.getRAM()

    shown, expected = bytes(ale.getScreen()), play()
    for scrambled in (True, False):
        for action in rng.integers(len(actions), size=300):
            ale.act(actions[action])
        if scrambled:
            for byte in range(128):
                ale.setRAM(byte, int(rng.integers(256)))
        ale.reset_game()
        assert bytes(ale.getScreen()) == shown
        assert play() == expected
        ale.restoreState(start)
        assert play() == expected


def test_seeds_decide_the_game():
    def first_frames(seed):
        env = make("ALE/Breakout-v5")
        frames = [env.reset(seed=seed)[0]]
        frames += [env.step(1 + t % 3)[0] for t in range(60)]
        return np.stack(frames)

    np.testing.assert_array_equal(first_frames(1), first_frames(1))
    assert (first_frames(1) != first_frames(2)).any()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("frame_skip", [1, 2, 3])
def test_frame_skip_equals_gymnasium(frame_skip, backend):
    env = gym.make("PongNoFrameskip-v4", disable_env_checker=True)
    reference = AtariPreprocessing(env, noop_max=0, frame_skip=frame_skip)
    ours = make(
        "PongNoFrameskip-v4",
        frame_skip=frame_skip,
        noop_max=0,
        episodic_life=False,
        fire_reset=False,
        backend=backend,
    )
    assert_equal_play(reference, [ours], steps=60, seed=0)


def test_spaces_and_attributes_follow_the_protocol():
    env = make("ALE/Pong-v5", full_action_space=True, screen_size=96, frame_skip=2, frame_stack=3)
    assert env.action_space == gym.spaces.Discrete(18)
    assert env.observation_space == gym.spaces.Box(0, 255, (96, 96), np.uint8)
    assert (env.frame_skip, env.frame_stack) == (2, 3)
    assert env.protocol.sticky == 0.25
    assert env.get_action_meanings()[:3] == ["NOOP", "FIRE", "UP"]
    frame, _ = env.reset(seed=0)
    assert frame.shape == (96, 96)
    assert make("PongNoFrameskip-v0").protocol == replace(CLASSIC, sticky=0.25)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noop_max": -1}, "noop_max=-1 must be a whole number of at least 0"),
        ({"frame_skip": 2.5}, "frame_skip=2.5 must be a whole number of at least 1"),
        ({"sticky": 1.5}, "sticky=1.5 is a probability: use 0 to 1"),
        ({"life": True}, "PongNoFrameskip-v4 has no option 'life'; it has noop_max, frame_skip"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ConfigError, match=f"^{message}"):
        make("PongNoFrameskip-v4", **options)


@pytest.mark.parametrize("action", [-1, 6, np.int64(-2)])
def test_actions_that_there_are_not_are_refused(action):
    env = make("PongNoFrameskip-v4")
    env.reset(seed=1)
    with pytest.raises(EnvError, match=r"^action=.* is not one of 0 to 5; give one of the action"):
        env.step(action)


def test_unknown_game_is_named():
    with (
        pytest.warns(UserWarning, match="not supported"),
        pytest.raises(ConfigError, match="game='tennis_elbow' is not an Atari ROM"),
    ):
        AtariEnv("tennis_elbow")


def test_a_missing_kernel_is_said_once_with_its_remedy(monkeypatch, caplog):
    monkeypatch.setattr("sampler.envs.atari.kernel_built", lambda: False)
    config = SamplerConfig(
        env="BreakoutNoFrameskip-v4", workers=2, rollout=4, serial=True, inference="random"
    )
    with Sampler(config):
        pass
    (line,) = (r.getMessage() for r in caplog.records if "slower" in r.getMessage())
    assert "a quarter slower" in line
    assert "C compiler" in line
