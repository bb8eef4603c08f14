"""Atari 2600 games, with the Arcade Learning Environment's emulator driven directly.

One step is `frame_skip` emulator frames, of which only the last two are read; the finished frame is
written straight into the caller's array. Frames equal those of
`gymnasium.wrappers.AtariPreprocessing` for the same seed and actions, pixel for pixel.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

import ale_py
import gymnasium as gym
import numpy as np
from ale_py import roms
from gymnasium.envs.registration import EnvSpec

from sampler.envs.atari_starts import REPEATABLE_STARTS
from sampler.envs.frames import FrameEnv
from sampler.envs.screens import NOT_BUILT, Backend, Screens, kernel_built, make_screens
from sampler.errors import ConfigError


@dataclass(frozen=True)
class AtariProtocol:
    """How a game is played. The defaults are the classic protocol of `...NoFrameskip-v4` ids."""

    noop_max: int = 30
    """A new game starts with 1 to this many no-op frames, drawn at random; 0: none."""
    frame_skip: int = 4
    """Emulator frames per step."""
    sticky: float = 0.0
    """Probability with which the emulator repeats its previous action, each frame."""
    episodic_life: bool = True
    """A lost life ends the training episode (`terminated`, info["game_over"] False); the game goes
    on at the next reset."""
    fire_reset: bool = True
    """Where the game has FIRE, begin episodes with a FIRE step and a step of the next action."""
    screen_size: int = 84
    """Height and width of a frame, pixels."""
    frame_stack: int = 4
    """Frames the sampler stacks for the model."""
    full_action_space: bool = False
    """All 18 actions instead of those the game reacts to."""
    max_frames: int = 108_000
    """Emulator frames after which a game is truncated (30 minutes); 0: never."""
    mode: int | None = None
    """Game mode; None: the game's default."""
    difficulty: int | None = None
    """Difficulty switch; None: the game's default."""

    def __post_init__(self) -> None:
        for name, least in (
            ("noop_max", 0),
            ("frame_skip", 1),
            ("screen_size", 1),
            ("frame_stack", 1),
            ("max_frames", 0),
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise ConfigError(f"{name}={value!r} must be a whole number of at least {least}")
        if not 0.0 <= self.sticky <= 1.0:
            raise ConfigError(f"sticky={self.sticky} is a probability: use 0 to 1")


CLASSIC = AtariProtocol()
"""Mnih et al. (2015) as played by most libraries: no-op starts, no sticky actions, life loss."""

STICKY = AtariProtocol(noop_max=0, sticky=0.25, episodic_life=False, fire_reset=False)
"""Machado et al. (2018), of the `ALE/...-v5` ids: sticky actions, whole games."""


def make_atari(spec: EnvSpec, **options: Any) -> AtariEnv:
    """The environment of a registered Atari id; `options` are fields of `AtariProtocol`, or
    `render_mode` or `backend`.

    Ids whose registration skips no frames get the classic protocol, the others the one that is
    registered.
    """
    registered = spec.kwargs
    own = {name: options.pop(name) for name in ("render_mode", "backend") if name in options}
    known = [field.name for field in fields(AtariProtocol)]
    for name in options:
        if name not in known:
            raise ConfigError(f"{spec.id} has no option {name!r}; it has {', '.join(known)}")
    base = (
        CLASSIC
        if registered["frameskip"] == 1
        else replace(STICKY, frame_skip=registered["frameskip"])
    )
    protocol = replace(
        base,
        sticky=registered["repeat_action_probability"],
        full_action_space=registered["full_action_space"],
        max_frames=registered["max_num_frames_per_episode"],
    )
    return AtariEnv(registered["game"], replace(protocol, **options), **own)


class AtariEnv(FrameEnv):
    """One game. Observation: the newest frame alone, uint8 [screen_size, screen_size].

    Rewards are the game's own. info of a step: `lives`, and `game_over`, False where an episode
    ended by a lost life. info of a reset: `lives`; `game_over`, True where the game ended and
    began anew while the reset advanced it; and `reset_reward`, the score made in the reset's own
    frames, which belongs to the game's score but to no step.

    After a lost life `reset()` goes on with the game, by one no-op step (Stable-Baselines3's
    EpisodicLifeEnv). With a seed, or in the middle of an episode, it starts a new game.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 60}  # noqa: RUF012

    def __init__(
        self,
        game: str,
        protocol: AtariProtocol = CLASSIC,
        render_mode: str | None = None,
        backend: Backend = "auto",
    ) -> None:
        facts = game_facts(game)
        actions = facts.all_actions if protocol.full_action_space else facts.minimal_actions
        size = protocol.screen_size
        super().__init__(len(actions), (size, size))
        self.game = game
        self.protocol = protocol
        self.frame_stack = protocol.frame_stack
        self.frame_skip = protocol.frame_skip
        self.render_mode = render_mode
        self.ale = _emulator(protocol)
        self._loaded = False
        self._restores = (
            game in REPEATABLE_STARTS
            and protocol.sticky == 0.0  # the action that may be repeated is not restored
            and protocol.mode is None
            and protocol.difficulty is None
            and render_mode is None  # the old screen is shown until the next step
        )
        self._start: tuple[Any, np.ndarray] | None = None  # state and screen of a new game
        self._actions = actions
        fires = protocol.fire_reset and len(actions) > 2 and actions[1] is ale_py.Action.FIRE
        self._opening = actions[1:3] if fires else ()
        # Attributes that every step uses are looked up once.
        self._act = self.ale.act
        self._over = self.ale.game_over
        self._get_lives = self.ale.lives
        self._screens: Screens = make_screens(self.ale, *facts.screen, size, backend)
        self.slow = NOT_BUILT if backend == "auto" and not kernel_built() else None
        self._unseen = range(protocol.frame_skip - 2)
        self._episodic_life = protocol.episodic_life
        self._lives = 0
        self._goes_on = False  # the last episode ended, but its game did not

    def get_action_meanings(self) -> list[str]:
        """Names of the actions, in the order of the action space."""
        return [action.name for action in self._actions]

    def render(self) -> np.ndarray:
        """The emulator's present screen, uint8 [height, width, 3]."""
        return self.ale.getScreenRGB()

    def step_into(self, action: Any, out: np.ndarray) -> tuple[float, bool, bool, dict[str, Any]]:
        reward, over = self._advance(self._actions[action], out)
        lives = self._get_lives()
        if over:
            self._goes_on = False
            terminated = self._over(with_truncation=False)
            truncated = self.ale.game_truncated()
            return float(reward), terminated, truncated, {"lives": lives, "game_over": True}
        # Some games show 0 lives for a few frames before they are over: wait for the end.
        lost = self._episodic_life and 0 < lives < self._lives
        self._goes_on = lost
        self._lives = lives
        return float(reward), lost, False, {"lives": lives, "game_over": False}

    def reset_into(self, out: np.ndarray, seed: int | None = None) -> dict[str, Any]:
        if seed is not None or not self._loaded:
            self._load(seed)
        reward, ended = self._begin(out)
        for action in self._opening:
            gained, over = self._advance(action, out)
            reward += gained
            lives = self._get_lives()
            lost = self._episodic_life and 0 < lives < self._lives
            self._lives = lives
            if over or lost:
                self._goes_on = lost and not over
                gained, restarted = self._begin(out)
                reward += gained
                ended = ended or over or restarted
        self._goes_on = False
        return {"lives": self._lives, "game_over": ended, "reset_reward": float(reward)}

    def _begin(self, out: np.ndarray) -> tuple[int, bool]:
        """Go on with the game after a lost life, or start one: (reward, whether a game ended)."""
        reward, over = self._advance(self._actions[0], out) if self._goes_on else (0, False)
        if over or not self._goes_on:
            reward += self._new_game(out)
        self._lives = self._get_lives()
        return reward, over

    def _new_game(self, out: np.ndarray) -> int:
        """Start a game with its no-ops, write its first frame, return the no-ops' reward."""
        reward = 0
        screen = self._restart()
        if self.protocol.noop_max:
            for _ in range(self.np_random.integers(1, self.protocol.noop_max + 1)):
                reward += self._act(self._actions[0])
                screen = self._restart() if self._over() else None
        self._screens.first(out, screen)
        return reward

    def _restart(self) -> np.ndarray | None:
        """Bring the emulator to the start of a game; returns the screen if the emulator shows
        another.

        A reset plays dozens of frames and takes as long as 15 to 30 steps. For games in which it
        always leads to the same state, that state is restored instead.
        """
        if self._start is not None:
            state, screen = self._start
            self.ale.restoreState(state)
            return screen
        self.ale.reset_game()
        if self._restores:
            self._start = self.ale.cloneState(), self._screens.read()
        return None

    def _advance(self, action: Any, out: np.ndarray) -> tuple[int, bool]:
        """Play `frame_skip` frames, fewer at a game's end: (reward, whether the game is over).

        The last frame of a game that ends is not shown: as in AtariPreprocessing, the screen from
        before stays.
        """
        act, over, screens = self._act, self._over, self._screens
        reward = 0
        for _ in self._unseen:
            reward += act(action)
            if over():
                screens.repeat(out)
                return reward, True
        if self.frame_skip > 1:
            reward += act(action)
            if over():
                screens.repeat(out)
                return reward, True
            screens.earlier()
        reward += act(action)
        if over():
            screens.cut(out)
            return reward, True
        screens.finish(out)
        return reward, False

    def _load(self, seed: int | None) -> None:
        """Load the game, the emulator and `np_random` seeded as ale_py's own environment does."""
        self._seed(seed)
        own, emulator = np.random.SeedSequence(seed).generate_state(2)
        self._np_random, _ = gym.utils.seeding.np_random(int(own))
        self.ale.setInt("random_seed", int(emulator.astype(np.int32)))
        self.ale.loadROM(_rom(self.game))
        if self.protocol.mode is not None:
            self.ale.setMode(self.protocol.mode)
        if self.protocol.difficulty is not None:
            self.ale.setDifficulty(self.protocol.difficulty)
        self._loaded = True
        self._start = None
        self._goes_on = False


@dataclass(frozen=True)
class GameFacts:
    """The facts of a game that its spaces depend on."""

    minimal_actions: tuple[Any, ...]
    all_actions: tuple[Any, ...]
    screen: tuple[int, int]
    """Height and width, pixels."""


@cache
def game_facts(game: str) -> GameFacts:
    """Facts of a game, by its ROM's name. Loading it takes 0.1 s, once per process.

    Raises ConfigError if there is no such ROM.
    """
    ale = _emulator(CLASSIC)
    ale.loadROM(_rom(game))
    return GameFacts(
        tuple(ale.getMinimalActionSet()), tuple(ale.getLegalActionSet()), ale.getScreenDims()
    )


@cache
def _rom(game: str) -> str:
    try:
        path = roms.get_rom_path(game)
    except OSError as error:
        raise ConfigError(f"ROM of {game!r} cannot be read: {error}") from error
    if path is None:
        raise ConfigError(f"game={game!r} is not an Atari ROM that ale-py has")
    return str(path)


def _emulator(protocol: AtariProtocol) -> Any:
    """An emulator without a game, which prints errors only."""
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.setFloat("repeat_action_probability", protocol.sticky)
    ale.setInt("max_num_frames_per_episode", protocol.max_frames)
    return ale
