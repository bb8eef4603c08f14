from __future__ import annotations

import traceback

import pytest

from sampler.errors import ConfigError, EnvError, FastrlError, ModelError, WorkerError, one_line
from sampler.process.report import error_of, report, reworded
from sampler.shm.mailbox import ERROR_BYTES


def reported(error, name="rollout worker 3"):
    try:
        raise error
    except Exception as raised:
        return report(raised, name)


@pytest.mark.parametrize("kind", [ConfigError, EnvError, ModelError])
def test_our_errors_keep_their_kind_and_their_words(kind):
    error = error_of(reported(kind("a = 3 is\nwrong")), WorkerError)
    assert type(error) is kind
    assert str(error) == "rollout worker 3: a = 3 is wrong"
    assert "Traceback" in error.traceback_text
    assert "raise error" in error.traceback_text


def test_other_errors_are_named_on_one_line():
    error = error_of(reported(KeyError("x")), EnvError)
    assert type(error) is EnvError
    assert str(error) == "rollout worker 3: KeyError: 'x'"
    assert str(error_of(reported(ValueError()), EnvError)) == "rollout worker 3: ValueError: "
    assert str(error_of(reported(ValueError("y"), ""), EnvError)) == "ValueError: y"


def test_the_other_processes_traceback_is_shown_as_the_cause():
    error = error_of(reported(KeyError("x")), EnvError)
    shown = "".join(traceback.format_exception(error))
    assert "in reported" in shown
    assert shown.endswith("EnvError: rollout worker 3: KeyError: 'x'\n")


def test_other_words_keep_kind_and_traceback():
    error = error_of(reported(ConfigError("x")), EnvError)
    other = reworded(error, "gave up after 3 restarts: x")
    assert type(other) is ConfigError
    assert str(other) == "gave up after 3 restarts: x"
    assert other.traceback_text == error.traceback_text
    assert other.__cause__ is error.__cause__


class FastrlLike(FastrlError):
    """One of ours that the parent's module of errors does not know."""


def test_errors_of_unknown_kinds_become_the_usual_one():
    assert type(error_of(reported(FastrlLike("x")), WorkerError)) is WorkerError


@pytest.mark.parametrize("character", ["x", "\n", "\x01", "ä", "\U0001f600", "\ud800", '"', "\\"])
def test_any_report_fits_its_slot(character):
    def fail(depth):
        if depth:
            fail(depth - 1)
        raise ValueError(character * 50_000)

    try:
        fail(30)
    except ValueError as error:
        text = report(error, "rollout worker 3, env " + character * 100)
    encoded = text.encode(errors="replace")
    assert len(encoded) <= ERROR_BYTES
    assert str(error_of(encoded.decode(), EnvError)).count("\n") <= 100 * (character == "\n")


def test_what_a_terminal_would_obey_is_replaced():
    assert one_line(ValueError("a\x1b[31m\nb\x00\ud800ä")) == "ValueError: a�[31m b��ä"


def test_long_lines_are_shortened():
    line = one_line(ValueError("word " * 1000))
    assert len(line) == 600
    assert line.startswith("ValueError: word word")
    assert line.endswith("...")
