"""cloudpickle, whose functions still know the file that they were written in.

By itself it forgets the file: an error in an environment of the caller's script would have no
source line in its traceback.
"""

from __future__ import annotations

import io
from collections import ChainMap
from collections.abc import Callable
from types import CodeType
from typing import Any, ClassVar

import cloudpickle


def dumps(value: Any) -> bytes:
    """The pickled value, for `cloudpickle.loads`; raises what pickling it raises."""
    with io.BytesIO() as file:
        _Pickler(file).dump(value)
        return file.getvalue()


def _code(make: Callable[..., CodeType], arguments: tuple[Any, ...], filename: str) -> CodeType:
    return make(*arguments).replace(co_filename=filename)


def _reduce_code(code: CodeType) -> tuple[Callable[..., CodeType], tuple[Any, ...]]:
    make, arguments = cloudpickle.Pickler.dispatch_table[CodeType](code)
    return _code, (make, arguments, code.co_filename)


class _Pickler(cloudpickle.Pickler):
    dispatch_table: ClassVar = ChainMap(
        {CodeType: _reduce_code}, cloudpickle.Pickler.dispatch_table
    )
