"""fastrl-eval: plays a run's checkpoint and prints raw whole-game scores."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from cli.current_folder import look_in_current_folder
from cli.exits import StopSignals, leave, run_command
from cli.overview import EVALUATE, asks_for_overview, with_full_help

PROG = "fastrl-eval"


def main() -> NoReturn:
    """The command fastrl-eval."""
    leave(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit code: 0, 1 failure, 2 configuration, 130 or 143 signal."""
    return run_command(PROG, lambda signals: _evaluate(arguments, signals))


def _evaluate(arguments: Sequence[str], signals: StopSignals) -> int:
    if asks_for_overview(arguments):
        print(EVALUATE, end="")
        return 0
    # not at the top: this takes seconds, in which signals must already end in one line
    from cli.evaluating import evaluate_run

    look_in_current_folder()
    evaluate_run(with_full_help(arguments), signals)
    return 0


if __name__ == "__main__":
    main()
