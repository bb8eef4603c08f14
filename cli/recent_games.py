"""Exact means of scores and lengths over finished games, even if not every game is listed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from sampler.shm.mailbox import RING, Episode


class Sums(NamedTuple):
    """A number of games, and the sums of their scores and of their lengths in steps."""

    games: int = 0
    score: float = 0.0
    length: int = 0

    def plus(self, other: Sums, sign: int = 1) -> Sums:
        """The sum of both, or with `sign=-1` their difference."""
        return Sums(
            self.games + sign * other.games,
            self.score + sign * other.score,
            self.length + sign * other.length,
        )

    @property
    def mean_score(self) -> float | None:
        """None of no games."""
        return self.score / self.games if self.games else None

    @property
    def mean_length(self) -> float | None:
        """None of no games."""
        return self.length / self.games if self.games else None


class RecentGames:
    """The `last` games of a run, those `since` some moment, and `all` of them.

    A list of games is complete unless very many have ended at once; then the sampler's own sums
    over those games are used.
    """

    def __init__(self, window: int, stats: Callable[[], Mapping[str, Any]]):
        """window: games in `last`, or a few more where necessary; stats: `Sampler.stats`."""
        self._window = window
        self._taken = lambda: _sums(stats()["games_taken"])
        self._before = self._taken()
        self._parts: deque[Sums] = deque()
        self._in_parts = 0  # games
        self.since = self.all = Sums()

    def add(self, episodes: Sequence[Episode]) -> None:
        """Record the result of `Sampler.episodes()`; call this after each call of that."""
        if len(episodes) < RING // 2:  # so short a list is complete
            for episode in episodes:
                self._append(Sums(1, episode.score, episode.length))
        else:
            self._append(self._taken().plus(self._before, -1).plus(self.all, -1))

    def _append(self, part: Sums) -> None:
        if not part.games:
            return
        self._parts.append(part)
        self._in_parts += part.games
        self.since, self.all = self.since.plus(part), self.all.plus(part)
        while self._in_parts - self._parts[0].games >= self._window:
            self._in_parts -= self._parts.popleft().games

    @property
    def last(self) -> Sums:
        """The games of the window."""
        return Sums(*map(sum, zip(*self._parts, strict=True))) if self._parts else Sums()

    def restart(self) -> None:
        """Start `since` again here."""
        self.since = Sums()


def _sums(games: Mapping[str, Any]) -> Sums:
    return Sums(games["games"], games["score"], games["length"])
