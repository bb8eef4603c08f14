"""A look at a few flags before all are parsed: those that decide which others there are."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from cli.flag_values import whole_number
from sampler.errors import ConfigError


def early_flags(
    arguments: Sequence[str], groups: Mapping[Any, Sequence[str]], given: Collection[str]
) -> argparse.Namespace:
    """The values of some flags; mistakes in all others are left to the parser of everything.

    groups: dataclasses with defaults, each with the names of its fields to look at. given: of
    these, the fields that are None unless their flag is given. Raises ConfigError for a value that
    does not fit.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for group, names in groups.items():
        for name in names:
            default = getattr(group(), name)
            spellings = dict.fromkeys((f"--{name.replace('_', '-')}", f"--{name}"))
            if isinstance(default, bool):
                parser.add_argument(*spellings, action="store_true")
            elif isinstance(default, tuple):
                parser.add_argument(*spellings, nargs="*", default=list(default))
            else:
                kind = _whole if isinstance(default, int) else type(default)
                parser.add_argument(
                    *spellings, type=kind, default=None if name in given else default
                )
    try:
        return parser.parse_known_args(arguments)[0]
    except argparse.ArgumentError as error:
        raise ConfigError(f"{error.argument_name}: {error.message}") from None


def _whole(text: str) -> int:
    try:
        return whole_number(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
