"""The commands, run from where they are installed."""

from __future__ import annotations

import runpy
import sys
from typing import NoReturn

from fastrl.names import claim

USAGE = """usage: python -m fastrl train ...      as fastrl-train
       python -m fastrl eval ...       as fastrl-eval
       python -m fastrl perf NAME ...  as python -m perf.NAME
"""


def train() -> NoReturn:
    """The command fastrl-train."""
    claim("cli")
    from cli.train import main

    main()


def evaluate() -> NoReturn:
    """The command fastrl-eval."""
    claim("cli")
    from cli.evaluate import main

    main()


def profile(name: str) -> None:
    """The profiler `perf.name`, with the arguments that are left in `sys.argv`."""
    claim("perf")
    claim("cli")
    runpy.run_module(f"perf.{name}", run_name="__main__", alter_sys=True)


def _is_module(arguments: list[str]) -> bool:
    """Whether the first of `arguments` may name a module, such as fps or measure.limit."""
    return bool(arguments) and all(map(str.isidentifier, arguments[0].split(".")))


def main() -> None:
    """python -m fastrl: the first argument names the command, the others are its own."""
    arguments = sys.argv[1:]
    if arguments[:1] in (["train"], ["eval"]):
        sys.argv[1:] = arguments[1:]
        train() if arguments[0] == "train" else evaluate()
    elif arguments[:1] == ["perf"] and _is_module(arguments[1:]):
        sys.argv[1:] = arguments[2:]
        profile(arguments[1])
    elif arguments[:1] in (["-h"], ["--help"]):
        print(USAGE, end="")
    else:
        print(USAGE, end="", file=sys.stderr)
        sys.exit(2)
