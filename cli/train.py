"""fastrl-train: trains an agent, and writes everything about it to a run folder."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import NoReturn

from cli.exits import StopSignals, leave, run_command
from sampler.process.resources import let_threads_sleep

PROG = "fastrl-train"


def main() -> NoReturn:
    """The command fastrl-train."""
    leave(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit code: 0, 1 failure, 2 configuration, 130 or 143 signal."""
    started = time.monotonic()
    return run_command(PROG, lambda signals: _train(arguments, signals, started))


def _train(arguments: Sequence[str], signals: StopSignals, started: float) -> int:
    let_threads_sleep()
    # not at the top: these take seconds, in which signals must already end in one line
    from cli.display import make_display
    from cli.options import parse_options
    from cli.training import train

    options, line = parse_options(arguments)
    with make_display() as display:
        signals.on_exit = display.close
        display.message(line)
        train(options, [PROG, *arguments], display, signals, started)
    return 0


if __name__ == "__main__":
    main()
