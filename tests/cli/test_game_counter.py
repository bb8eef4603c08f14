from __future__ import annotations

import io
import time

from cli.game_counter import GameCounter
from sampler.evaluation import EvaluationProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_has_one_line_that_is_gone_at_the_end(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with GameCounter(stream) as count:
        count(EvaluationProgress(games=0, episodes=20, steps=1500))
        count(EvaluationProgress(games=1, episodes=20, steps=3000))
    clear = "\r\x1b[K"
    expected = f"{clear}0/20 games, 1,500 steps{clear}1/20 games, 3,000 steps{clear}"
    assert stream.getvalue() == expected


def test_elsewhere_there_is_a_line_every_ten_seconds(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    stream = io.StringIO()
    with GameCounter(stream) as count:
        for games in range(25):
            clock[0] += 1.0
            count(EvaluationProgress(games, 30, 10 * games))
    assert stream.getvalue() == "9/30 games, 90 steps\n19/30 games, 190 steps\n"
