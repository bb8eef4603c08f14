"""The one validator of settings."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, nan
from typing import Any

import numpy as np
import pytest

from sampler.checks import check_choice, check_flags, check_numbers
from sampler.errors import ConfigError


@dataclass
class Settings:
    a: Any


@pytest.mark.parametrize(
    ("value", "bounds", "message"),
    [
        ("1", {}, "a='1' must be a number"),
        (True, {}, "a=True must be a number"),
        (None, {"least": 0}, "a=None must be a number of at least 0"),
        (nan, {}, "a=nan must be a number"),
        (nan, {"infinite": True}, "a=nan must be a number"),
        (inf, {}, "a=inf must be a number"),
        (-inf, {"least": 0, "infinite": True}, "a=-inf must be a number of at least 0"),
        (0, {"above": 0, "unit": "seconds"}, "a=0 must be a number of seconds greater than 0"),
        (1.0, {"whole": True}, "a=1.0 must be a whole number"),
        (1, {"whole": True, "least": 2, "reason": "two are needed"}, "at least 2: two are needed"),
        (3, {"least": 0, "most": 2}, "a=3 must be a number of at least 0 and of at most 2"),
    ],
)
def test_numbers_that_are_refused(value, bounds, message):
    with pytest.raises(ConfigError) as error:
        check_numbers(Settings(value), "a", **bounds)
    assert str(error.value).endswith(message)


@pytest.mark.parametrize(
    ("value", "bounds"),
    [
        (0, {"least": 0}),
        (np.float32(0.5), {"above": 0, "most": 1}),
        (np.int64(3), {"whole": True}),
        (10**40, {"whole": True}),
        (inf, {"above": 0, "infinite": True}),
        (None, {"above": 0, "optional": True}),
    ],
)
def test_numbers_that_pass(value, bounds):
    check_numbers(Settings(value), "a", **bounds)


def test_choices_and_flags():
    check_choice(Settings(None), "a", ("x", None))
    check_flags(Settings(False), "a")
    with pytest.raises(ConfigError, match="a='z' is not one of x, y"):
        check_choice(Settings("z"), "a", ("x", "y"))
    with pytest.raises(ConfigError, match="a=1 is not one of True, False"):
        check_choice(Settings(1), "a", (True, False))
    with pytest.raises(ConfigError, match="a=0 must be True or False"):
        check_flags(Settings(0), "a")
