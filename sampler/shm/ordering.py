"""The order in which other processes see what this one writes into shared memory.

Whoever publishes something writes it, calls `release()`, and then writes the word that says so;
whoever has seen that word calls `acquire()` before reading what it stands for. Words are 8 bytes,
aligned, and so written as a whole.

An x86-64 processor keeps the order of writes and that of reads by itself. Others (Arm, RISC-V,
POWER) keep it only across fences, which take the compiled extension; without it a sampler refuses
to start there.
"""

from __future__ import annotations

import platform

from sampler.errors import ConfigError

ORDERED = ("x86_64",)
"""Processors on which nothing need be done, by their names in `platform.machine()`."""

try:
    from sampler.shm._ordering import acquire, release
except ImportError:  # installed without a C compiler
    FENCES = False

    def release() -> None:
        """What was read and written before comes before whatever is written after."""

    def acquire() -> None:
        """What was read before comes before whatever is read and written after."""

else:
    FENCES = True

__all__ = ["acquire", "check_processor", "release"]


def check_processor() -> None:
    """Raise ConfigError where writes may be seen out of order and nothing here prevents it."""
    processor = platform.machine()
    if not FENCES and processor not in ORDERED:
        raise ConfigError(
            f"on this processor ({processor}) shared memory needs fences, and the extension "
            "sampler.shm._ordering that has them was not compiled; install a C compiler and "
            "install fastrl again"
        )
