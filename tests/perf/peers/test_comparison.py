"""The comparison's own logic, with contestants that only pretend to run."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from functools import partial

import pytest

from perf.measure.programs import ProgramError
from perf.peers.comparison import Settings, compete, draw, fastest, show
from perf.peers.contestants import PROGRAMS, Contestant, Lab, Task, tasks
from perf.peers.venvs import NotInstalled, environment


class Running:
    def __init__(self, rate):
        self.rate = rate

    def measure(self, seconds):
        return self.rate


@contextmanager
def running(rate):
    yield Running(rate)


@contextmanager
def broken():
    raise ProgramError("peer.py ended; its last words: no such game")
    yield


def entry(name, *rates):
    """An entry of one contestant; each rate is one of its settings, None a broken one."""

    def candidates(lab):
        for number, rate in enumerate(rates):
            opened = broken if rate is None else partial(running, rate)
            yield Contestant(name, f"settings {number}", opened, f"run {name}")

    return candidates


def not_installed(lab):
    raise NotInstalled("envpool: no matching distribution")
    yield


@pytest.fixture
def lab(tmp_path):
    return Lab(tmp_path, sys.executable)


TASK = Task(
    "Sampling",
    "frames/s",
    4,
    "limit",
    [entry("limit", 100.0), entry("fastrl", 80.0), entry("slow", 10.0, 20.0), not_installed],
)


def test_a_report_has_rates_in_the_unit_and_ratios_to_the_baseline(lab, capsys):
    report = compete(TASK, lab, Settings(rounds=3, seconds=1.0))
    fastrl = report["contestants"]["fastrl"]
    assert fastrl["rate"] == 320.0
    assert fastrl["rounds"] == [320.0] * 3
    assert fastrl["to_baseline"] == {"median": 0.8, "low": 0.8, "high": 0.8, "count": 3}
    assert report["missing"] == ["envpool: no matching distribution"]
    show(report)
    shown = capsys.readouterr().out
    assert "missing: envpool: no matching distribution" in shown
    assert "fastrl" in shown


def test_recommended_settings_come_first_and_tuning_takes_the_fastest(lab):
    plain = compete(TASK, lab, Settings(rounds=1, seconds=1.0))
    assert plain["contestants"]["slow"]["settings"] == "settings 0"
    tuned = compete(TASK, lab, Settings(rounds=1, seconds=1.0, tune=True))
    assert tuned["contestants"]["slow"]["settings"] == "settings 1"
    assert tuned["contestants"]["slow"]["rate"] == 80.0


def test_settings_that_do_not_run_lose():
    candidates = list(entry("peer", None, 5.0)(None))
    assert fastest(candidates, 1.0).settings == "settings 1"
    with pytest.raises(ProgramError, match="no such game"):
        fastest(candidates[:1], 1.0)


def test_a_contestant_that_does_not_run_is_missing(lab):
    task = Task("Sampling", "steps/s", 1, "limit", [entry("limit", 1.0), entry("peer", None)])
    report = compete(task, lab, Settings(rounds=1, seconds=1.0))
    assert list(report["contestants"]) == ["limit"]
    assert report["missing"] == ["peer.py ended; its last words: no such game"]


def test_bars_are_drawn(lab, tmp_path):
    path = tmp_path / "docs" / "peers.png"
    draw(path, [compete(TASK, lab, Settings(rounds=2, seconds=1.0))])
    assert path.read_bytes().startswith(b"\x89PNG")


def test_every_task_of_the_command_line_exists():
    known = tasks()
    assert tuple(known) == Settings().tasks
    assert all(task.entries for task in known.values())


def test_an_interpreter_that_is_not_there_is_a_reason(tmp_path):
    with pytest.raises(NotInstalled, match=r"peer: .*no-such-python"):
        environment(tmp_path, "peer", ["nothing"], str(tmp_path / "no-such-python"))


def test_a_finished_environment_is_used_again(tmp_path):
    home = tmp_path / "peer"
    home.mkdir()
    (home / "requirements.json").write_text('["a", "b"]')
    assert environment(tmp_path, "peer", ["a", "b"], "unused") == str(home / "bin" / "python")


def test_programs_of_peers_need_nothing_of_this_repository():
    for script in PROGRAMS.glob("*.py"):
        text = script.read_text()
        assert "from perf" not in text
        assert "from sampler" not in text
