"""Copying rewards, as environments return them, into an array."""

from __future__ import annotations

import struct
from array import array
from typing import Any

import numpy as np

from sampler.errors import EnvError


class RewardWriter:
    """Writes one reward for each lane of a group."""

    def __init__(self, lanes: int):
        self._packing = struct.Struct(f"{lanes}f")
        self._packed = bytearray(self._packing.size)
        self._floats = np.frombuffer(self._packed, np.float32)

    def write(self, rewards: list[Any], target: np.ndarray) -> None:
        """Put `rewards`, one for each lane, into `target`, float32 [lanes].

        Raises EnvError unless they are plain numbers; text and arrays of shape (1,) are not. None
        becomes NaN, and numbers beyond float32 become infinite; the later check for non-finite
        rewards refuses both.
        """
        try:
            if getattr(rewards[0], "ndim", 0):
                raise TypeError
            # Faster than numpy, which looks for a common type first, and refuses text.
            self._packing.pack_into(self._packed, 0, *rewards)
            target[...] = self._floats
        except (struct.error, OverflowError):
            target[...] = _unusual(rewards)
        except TypeError:
            raise _refusal(rewards) from None


def _unusual(rewards: list[Any]) -> Any:
    """`rewards` for an array of float32, when some are not finite or of other types than float.

    Python's array makes numbers beyond float32 infinite without numpy's warning. Raises EnvError.
    """
    try:
        return array("f", rewards)
    except TypeError:
        if any(isinstance(reward, str | bytes) for reward in rewards):
            raise _refusal(rewards) from None  # numpy would read the number that a text spells
    try:
        return np.array(rewards, np.float32)  # takes some types that Python's array refuses
    except (TypeError, ValueError):
        raise _refusal(rewards) from None


def _refusal(rewards: list[Any]) -> EnvError:
    return EnvError(f"rewards {rewards} are not all numbers; return floats")
