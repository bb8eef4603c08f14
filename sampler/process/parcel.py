"""Values that are sent to other processes, including those that plain pickle cannot handle."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import cloudpickle

from sampler.errors import ConfigError
from sampler.process.pickling import dumps

T = TypeVar("T")


class Parcel(Generic[T]):
    """A value, pickled by cloudpickle once for all processes that it is sent to.

    It is unpickled when it is first used, so that a process loads no module for a value that it
    does not use.
    """

    def __init__(self, value: T, what: str):
        """`what` names the value in errors."""
        self._value = value
        self._what = what
        self._pickled: bytes | None = None
        self.opened = True

    @property
    def value(self) -> T:
        """The value. In another process, the first call unpickles it and may raise what that
        raises."""
        if not self.opened:
            assert self._pickled is not None
            self._value = cloudpickle.loads(self._pickled)
            self.opened = True
        return self._value

    def pack(self) -> bytes:
        """The pickled value. Raises ConfigError, naming the value, if it cannot be pickled."""
        if self._pickled is None:
            try:
                self._pickled = dumps(self._value)
            except Exception as error:
                reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
                raise ConfigError(
                    f"{self._what} cannot be sent to worker processes ({reason}); "
                    "make what cannot be pickled inside the callable, not outside"
                ) from error
        return self._pickled

    def __getstate__(self) -> dict[str, Any]:
        return {"_what": self._what, "_pickled": self.pack(), "opened": False}
