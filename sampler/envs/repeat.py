"""Memory tasks with cards: RepeatPrevious and RepeatFirst of POPGym (Morad et al., 2023).

Each step shows the suit of the next card of a shuffled deck, and the answer is a suit seen before.
Rewards are scaled so that an episode of right answers returns 1 and one of wrong answers -1;
guessing among four suits returns about -0.5.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import gymnasium as gym
import numpy as np

SUITS = 4
CARDS = 52  # in one deck


class CardEnv(gym.Env[np.int64, Any]):
    """Deals `decks` shuffled decks, one card a step, and terminates after the last card's step.

    `questions` is the number of steps that are rewarded. The final observation repeats the last
    card.
    """

    def __init__(self, decks: int, questions: int) -> None:
        self.observation_space = gym.spaces.Discrete(SUITS)
        self.action_space = gym.spaces.Discrete(SUITS)
        self._deck = np.repeat(np.arange(SUITS), decks * CARDS // SUITS)
        self._suits = self._deck
        self._value = 1.0 / questions
        self._step = 0

    @abstractmethod
    def answer(self, suits: np.ndarray, step: int) -> int | None:
        """The right action at `step`, given the order of the cards; None at steps that ask
        nothing."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.int64, dict[str, Any]]:
        super().reset(seed=seed)
        self._suits = self.np_random.permutation(self._deck)
        self._step = 0
        return self._suits[0], {}

    def step(self, action: Any) -> tuple[np.int64, float, bool, bool, dict[str, Any]]:
        answer = self.answer(self._suits, self._step)
        reward = 0.0
        if answer is not None:
            reward = self._value if action == answer else -self._value
        self._step += 1
        terminated = self._step >= len(self._suits)
        return self._suits[min(self._step, len(self._suits) - 1)], reward, terminated, False, {}


class RepeatPrevious(CardEnv):
    """The answer is the suit seen `k` steps ago (default 4); the first `k` steps ask nothing."""

    def __init__(self, k: int = 4, decks: int = 1) -> None:
        if not 0 <= k < CARDS * decks:
            raise ValueError(f"k={k} must be at least 0 and less than the {CARDS * decks} cards")
        super().__init__(decks, questions=CARDS * decks - k)
        self._k = k

    def answer(self, suits: np.ndarray, step: int) -> int | None:
        return suits[step - self._k] if step >= self._k else None


class RepeatFirst(CardEnv):
    """The answer is always the suit of the episode's first card."""

    def __init__(self, decks: int = 1) -> None:
        super().__init__(decks, questions=CARDS * decks)

    def answer(self, suits: np.ndarray, step: int) -> int | None:
        return suits[0]
