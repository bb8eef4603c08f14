from __future__ import annotations

from cli.recent_games import RecentGames
from sampler.shm.mailbox import RING, Episode


class Taken:
    """What `Sampler.stats()` says of the games taken; some were taken before."""

    def __init__(self):
        self.games, self.score, self.length = 3, 30.0, 300

    def __call__(self):
        games = {"games": self.games, "score": self.score, "length": self.length}
        return {"games_taken": games}


def of(*scores):
    return [Episode(0, score, 10, 40) for score in scores]


def test_the_last_games_and_those_since_a_moment():
    games = RecentGames(3, Taken())
    assert games.last.mean_score is games.since.mean_length is None
    games.add(of(1.0, 2.0))
    assert (games.last.games, games.last.mean_score) == (2, 1.5)
    games.restart()
    games.add([])
    games.add(of(3.0, 7.0))
    assert (games.last.games, games.last.mean_score, games.last.mean_length) == (3, 4.0, 10.0)
    assert (games.since.games, games.since.mean_score) == (2, 5.0)
    assert (games.all.games, games.all.score) == (4, 13.0)


def test_where_a_list_is_a_sample_the_means_are_of_all_games():
    taken = Taken()
    games = RecentGames(100, taken)
    games.add(of(5.0))
    taken.games, taken.score, taken.length = 3 + 1 + 1000, 30 + 5 + 9000.0, 300 + 10 + 5000
    games.add(of(*[1.0] * RING))
    assert (games.last.games, games.last.mean_score, games.last.mean_length) == (1000, 9.0, 5.0)
    assert games.all.games == games.since.games == 1001
    games.add(of(*[0.0] * 99))
    assert games.last.games == 1099  # a part counts as a whole until 100 others have come
    games.add(of(0.0))
    assert (games.last.games, games.last.mean_score) == (100, 0.0)
    assert games.all.games == 1101
