"""Errors, sent from the process in which they happened to the caller's."""

from __future__ import annotations

import json
import traceback

from sampler import errors
from sampler.errors import FastrlError, one_line

TRACEBACK_BYTES = 11 * 1024  # of JSON; with its line a report takes less than 16 KiB


class RemoteTraceback(Exception):
    """The traceback in another process: the cause of an error that is raised in this one."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


def report(error: BaseException, name: str) -> str:
    """The report of a process that ends by `error`: kind, one line that begins with `name`, and
    traceback."""
    line = one_line(error)
    return json.dumps(
        {
            "kind": type(error).__name__,
            "message": f"{name}: {line}" if name else line,
            "traceback": _shortened("".join(traceback.format_exception(error))),
        },
        ensure_ascii=False,
    )


def _shortened(text: str) -> str:
    """At most TRACEBACK_BYTES of a traceback: its beginning, with the first cause, and its end."""
    kept = text
    half = len(text) // 2
    while len(json.dumps(kept, ensure_ascii=False).encode(errors="replace")) > TRACEBACK_BYTES:
        half = half * 3 // 4
        kept = f"{text[:half]}\n...\n{text[-half:]}"
    return kept


def error_of(text: str, other: type[FastrlError]) -> FastrlError:
    """The error that `report` describes, caused by a RemoteTraceback; `other` is the type for
    errors that are not ours."""
    reported = json.loads(text)
    error = getattr(errors, reported["kind"], other)(reported["message"])
    error.traceback_text = reported["traceback"]
    error.__cause__ = RemoteTraceback(error.traceback_text)
    return error


def reworded(error: FastrlError, message: str) -> FastrlError:
    """An error of the same kind and with the same traceback, but with the text `message`."""
    other = type(error)(message)
    other.traceback_text = error.traceback_text
    other.__cause__ = error.__cause__
    return other
