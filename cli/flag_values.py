"""Numbers as people write them: 1e5 for a whole number, 64,64 for a list of them."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

MAX_DIGITS = 18  # of a number with an exponent: nothing that is counted here has more
VALUES = ConstructorRegistry()
"""How flags are read; a context manager to call tyro in."""


def whole_number(text: str) -> int:
    """`text` as an int; an exponent is allowed. Raises ValueError for anything but a whole one."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        value = Decimal(text)
        if value.is_finite() and value.adjusted() <= MAX_DIGITS and value == int(value):
            return int(value)
    except InvalidOperation:
        pass
    raise ValueError(f"{text!r} is not a whole number, such as 100000 or 1e5")


def whole_numbers(texts: Sequence[str]) -> tuple[int, ...]:
    """Whole numbers with spaces or commas between them. Raises ValueError for anything else."""
    return tuple(whole_number(part) for text in texts for part in text.split(","))


@VALUES.primitive_rule
def _whole_number(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[int] | None:
    if info.type is not int:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT",
        instance_from_str=lambda texts: whole_number(texts[0]),
        is_instance=lambda value: isinstance(value, int),
        str_from_instance=lambda value: [str(value)],
    )


@VALUES.primitive_rule
def _whole_numbers(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    if info.type != tuple[int, ...]:
        return None
    return PrimitiveConstructorSpec(
        nargs="*",
        metavar="[INT [INT ...]]",
        instance_from_str=whole_numbers,
        is_instance=lambda value: isinstance(value, tuple),
        str_from_instance=lambda values: [str(value) for value in values],
    )
