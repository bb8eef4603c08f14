"""fastrl-train: trains an agent, and writes everything about it to a run folder."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import NoReturn

from cli.current_folder import look_in_current_folder
from cli.exits import StopSignals, leave, run_command
from cli.overview import TRAIN, asks_for_overview, with_full_help

PROG = "fastrl-train"


def main() -> NoReturn:
    """The command fastrl-train."""
    leave(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit code: 0, 1 failure, 2 configuration, 130 or 143 signal."""
    started = time.monotonic()
    return run_command(PROG, lambda signals: _train(arguments, signals, started))


def _train(arguments: Sequence[str], signals: StopSignals, started: float) -> int:
    if asks_for_overview(arguments):
        print(TRAIN, end="")
        return 0
    # here, not above: these need seconds, in which signals already have to end in one line
    from sampler.process.resources import let_threads_sleep

    let_threads_sleep()  # before torch is loaded
    from cli.display import make_display
    from cli.options import parse_options
    from cli.training import train

    look_in_current_folder()
    options, line, facts = parse_options(with_full_help(arguments))
    with make_display() as display:
        signals.on_exit = display.close
        display.message(line)
        train(options, [PROG, *arguments], display, signals, started, line, facts)
    return 0


if __name__ == "__main__":
    main()
