"""Exact means of scores and lengths over finished games, also where not every game is listed."""

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
        """Both together, or with `sign=-1` what is left of this one without the other."""
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
    over what the list stands for are taken.
    """

    def __init__(self, window: int, stats: Callable[[], Mapping[str, Any]]):
        """window: games in `last`, if need be a few more; stats: `Sampler.stats`."""
        self._window = window
        self._taken = lambda: _sums(stats()["games_taken"])
        self._before = self._taken()
        self._parts: deque[Sums] = deque()
        self._in_parts = 0  # games
        self.since = self.all = Sums()

    def add(self, episodes: Sequence[Episode]) -> None:
        """Take in what `Sampler.episodes()` returned, each time that it was called."""
        if len(episodes) < RING // 2:  # no list so short is a sample
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
        """Let `since` begin here."""
        self.since = Sums()


def _sums(games: Mapping[str, Any]) -> Sums:
    return Sums(games["games"], games["score"], games["length"])
