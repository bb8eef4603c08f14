"""From arguments to a dataclass with tyro; every mistake is reported as one line."""

from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr
from typing import Any, TypeVar

import tyro

from cli.flag_hints import hint
from cli.flag_values import VALUES
from sampler.errors import ConfigError

T = TypeVar("T")


def parse(
    default: T,
    arguments: Sequence[str],
    prog: str,
    description: str,
    others: Mapping[str, Sequence[str]] | None = None,
) -> T:
    """A copy of the dataclass instance `default` with the flags in `arguments` applied.

    Every field that is a dataclass is a group in --help. Raises ConfigError, in one line, for an
    unknown flag or a value that does not fit; --help prints and raises SystemExit. others: flags
    that exist under another choice, such as of the algorithm, with these choices.
    """
    errors = io.StringIO()
    try:
        with redirect_stderr(errors), VALUES:
            parsed, unknown = tyro.cli(
                type(default),
                default=default,
                args=list(arguments),
                prog=prog,
                description=description,
                return_unknown_args=True,
            )
    except SystemExit as end:
        if not end.code:
            raise
        raise ConfigError(_first_sentence(errors.getvalue())) from None
    if unknown:
        raise ConfigError(_unknown(unknown[0], flags(default), others or {}, prog))
    return parsed


def flags(options: Any) -> list[str]:
    """The flags of a dataclass instance, in the order of --help."""
    return list(_flags(options, ""))


def _flags(options: Any, prefix: str) -> Iterator[str]:
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if dataclasses.is_dataclass(value):
            flat = "OmitArgPrefixes" in str(field.type)
            yield from _flags(value, "" if flat else f"{prefix}{field.name}.")
        else:
            yield f"--{prefix}{_dashed(field.name)}"


def _dashed(name: str) -> str:
    """`name` as tyro spells it: a trailing underscore stays."""
    stem = name.rstrip("_")
    return stem.replace("_", "-") + name[len(stem) :]


def _unknown(
    argument: str, known: list[str], others: Mapping[str, Sequence[str]], prog: str
) -> str:
    if not argument.startswith("-"):
        return f"unexpected argument {argument!r}; every setting has a flag, see {prog} --help"
    name = argument.split("=")[0].replace("_", "-")
    remedy = hint(name, known, others) or f"see {prog} --help"
    return f"unknown flag {name}; {remedy}"


def _first_sentence(box: str) -> str:
    """The first paragraph in the box that tyro draws around an error, in either character set."""
    paragraph = []
    for line in box.splitlines()[1:]:  # the first one holds the title
        text = line.strip("│ ")
        if text.strip("─-"):
            paragraph.append(text)
        elif paragraph:  # a rule
            break
    sentence = " ".join(" ".join(paragraph).split()).rstrip(".")
    # for a group's own check only the message; for a flag's value also the flag
    return re.sub(r"^Error parsing (?:(?!--)\S+: )?", "", sentence)
