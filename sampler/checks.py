"""Checks of settings. Each raises one error that names the setting, its value and what would
work."""

from __future__ import annotations

from collections.abc import Collection
from math import inf
from numbers import Integral, Real
from typing import Any

from sampler.errors import ConfigError


def check_numbers(
    settings: object,
    *names: str,
    whole: bool = False,
    above: float | None = None,
    least: float | None = None,
    most: float | None = None,
    unit: str = "",
    optional: bool = False,
    infinite: bool = False,
    reason: str = "",
) -> None:
    """Raise ConfigError unless the named attributes of `settings` are finite numbers within bounds.

    whole: only integers. above, least, most: bounds, the last two inclusive. optional: None is
    allowed; infinite: infinity is allowed. unit (such as "seconds"), reason (why a bound holds):
    for the message.
    """
    for name in names:
        value = getattr(settings, name)
        if value is None and optional:
            continue
        kind = Integral if whole else Real
        good = isinstance(value, kind) and not isinstance(value, bool)
        good = good and (abs(value) <= inf if infinite else abs(value) < inf)  # NaN is neither
        good = good and (above is None or value > above)
        good = good and (least is None or value >= least)
        if not (good and (most is None or value <= most)):
            wanted = "a whole number" if whole else "a number"
            bounds = [
                f"{word} {bound:g}"
                for word, bound in (
                    ("greater than", above),
                    ("of at least", least),
                    ("of at most", most),
                )
                if bound is not None
            ]
            wanted = " ".join([wanted, *([f"of {unit}"] if unit else []), " and ".join(bounds)])
            because = f": {reason}" if reason else ""
            raise ConfigError(f"{name}={value!r} must be {wanted.strip()}{because}")


def check_choice(settings: object, name: str, allowed: Collection[Any]) -> None:
    """Raise ConfigError unless the named attribute of `settings` is one of `allowed`."""
    value = getattr(settings, name)
    if not any(type(value) is type(choice) and value == choice for choice in allowed):
        raise ConfigError(f"{name}={value!r} is not one of {', '.join(map(str, allowed))}")


def check_flags(settings: object, *names: str) -> None:
    """Raise ConfigError unless the named attributes of `settings` are True or False."""
    for name in names:
        if not isinstance(value := getattr(settings, name), bool):
            raise ConfigError(f"{name}={value!r} must be True or False")
