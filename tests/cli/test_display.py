from __future__ import annotations

import io
import logging

import pytest
from helpers.processes import wait_until

from cli.display import (
    DisplayHandler,
    LiveDisplay,
    PlainDisplay,
    Status,
    duration,
    make_display,
    status_line,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def status(**changes):
    values = {
        "steps": 50_000,
        "total_steps": 200_000,
        "seconds": 20.0,
        "seconds_left": 60.0,
        "fps": 10_000.0,
        "sps": 2_500.0,
        "mean_return": 12.34,
        "mean_length": 181.0,
        "games": 250,
        "lag_mean": 1.5,
        "lag_max": 3.0,
        "bottleneck": "environment",
        "evaluated": None,
    }
    return Status(**{**values, **changes})


def test_a_line_has_everything():
    assert status_line(status()) == (
        "step 50,000/200,000 (25%)  left 1m00s  FPS 10,000 frames/s  SPS 2,500 steps/s  "
        "return 12.3  length 181.0  games 250  lag 1.5 versions (max 3)  bottleneck environment"
    )


def test_a_line_before_anything_is_known():
    names = ("total_steps", "seconds_left", "mean_return", "mean_length", "lag_mean")
    line = status_line(status(steps=0, sps=0.0, **dict.fromkeys(names)))
    assert line.startswith("step 0  left -  ")
    assert "return -  length -" in line
    assert "lag -" in line


def test_evaluation_appears_once_there_is_one():
    assert status_line(status(evaluated=19.5)).endswith("eval 19.5")


def test_plain_lines_have_no_escape_codes():
    stream = io.StringIO()
    display = make_display(stream)
    assert type(display) is PlainDisplay
    with display:
        display.message("starting [bold]")
        display.update(status())
    assert "\x1b" not in stream.getvalue()
    assert stream.getvalue().splitlines()[0] == "starting [bold]"
    assert len(stream.getvalue().splitlines()) == 2


def test_a_terminal_gets_a_table_with_messages_above_it(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with make_display(stream) as display:
        assert isinstance(display, LiveDisplay)
        display.update(status())
        display.message("evaluated [something]")
        display.update(status(steps=60_000))
    text = stream.getvalue()
    assert "\x1b[" in text
    assert "evaluated [something]" in text
    assert "60,000/200,000 (30%)" in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # the cursor is back


def test_frames_are_shown_only_where_a_step_has_several():
    assert "FPS" not in status_line(status(fps=2_500.0))


def test_a_replay_that_is_filled_is_shown():
    line = status_line(status(filling=(3_710, 20_000)))
    assert "filling replay 3,710/20,000" in line


@pytest.fixture
def live(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(LiveDisplay, "interval", 0.05)
    stream = Terminal()
    with make_display(stream) as display:
        yield display, stream


def test_a_terminal_s_clock_goes_on_between_batches(live):
    display, stream = live
    display.update(status(seconds=20.0, seconds_left=60.0))
    wait_until(lambda: "21s, left 58s" in stream.getvalue(), "the clock")


def test_a_phase_is_shown_with_its_time_until_there_is_a_table(live):
    display, stream = live
    display.phase("starting workers ...")
    wait_until(lambda: "starting workers ... 1s" in stream.getvalue(), "the clock")
    display.update(status())
    assert "50,000/200,000" in stream.getvalue()


def test_what_is_printed_after_the_end_stays_below_the_table(live):
    display, stream = live
    display.update(status())
    display.close()
    shown = stream.getvalue()
    display.update(status(steps=70_000))
    display.message("saved step 70,000")
    assert stream.getvalue() == shown + "saved step 70,000\n"


def test_long_lines_break_between_words_and_paths_nowhere(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    stream = Terminal()
    path = "/a/very/long/path/" + "x" * 60
    with make_display(stream) as display:
        display.message(f"some words come before the path and it is {path}")
    assert path in stream.getvalue()
    assert [line.rstrip() for line in stream.getvalue().splitlines()][:1] == [
        "some words come before the path and it"
    ]


def test_a_dumb_terminal_gets_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    assert type(make_display(Terminal())) is PlainDisplay


def test_the_library_s_lines_are_shown_and_tracebacks_left_to_the_log():
    stream = io.StringIO()
    log = logging.getLogger("fastrl")
    level = log.level
    with DisplayHandler(PlainDisplay(stream)).attached():
        log.info("still starting after %d s: rollout worker 0", 5)
        log.info("env broke\nTraceback")
        log.debug("not shown")
        logging.getLogger("fastrl.cli").info("printed already")
    log.info("nobody listens")
    assert stream.getvalue() == "still starting after 5 s: rollout worker 0\n"
    assert log.level == level


def test_library_warnings_are_shown_on_one_line(capsys):
    handler = DisplayHandler(PlainDisplay(io.StringIO()))
    log = logging.Logger("sampler.test")
    log.addHandler(handler)
    log.warning("worker %d died:\n  exit code 9", 3)
    assert capsys.readouterr().err == "warning: worker 3 died: exit code 9\n"


def test_after_a_signal_warnings_are_not_shown(capsys):
    log = logging.Logger("sampler.test")
    log.addHandler(DisplayHandler(PlainDisplay(io.StringIO()), quiet=lambda: True))
    log.warning("worker 3 died")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "-"), (7.9, "7s"), (185, "3m05s"), (7620, "2h07m")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text
