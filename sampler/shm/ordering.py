"""The order in which other processes see what this one writes into shared memory.

A writer writes the data, calls `release()`, and then writes the word that announces them; a reader
that has seen this word calls `acquire()` before it reads the data. Words have 8 bytes and are
aligned, so each is written as a whole.

An x86-64 processor keeps the order of writes and that of reads by itself. Others (Arm, RISC-V,
POWER) keep it only across fences, which need the compiled extension; without it, a sampler refuses
to start there.
"""

from __future__ import annotations

import platform

from sampler.errors import ConfigError

ORDERED = ("x86_64",)
"""Processors that need no fences, by their names in `platform.machine()`."""

try:
    from sampler.shm._ordering import acquire, release
except ImportError:  # installed without a C compiler
    FENCES = False

    def release() -> None:
        """Earlier reads and writes take effect before later writes."""

    def acquire() -> None:
        """Earlier reads take effect before later reads and writes."""

else:
    FENCES = True

__all__ = ["acquire", "check_processor", "release"]


def check_processor() -> None:
    """Raise ConfigError if writes may be seen out of order and there are no fences."""
    processor = platform.machine()
    if not FENCES and processor not in ORDERED:
        raise ConfigError(
            f"on this processor ({processor}) shared memory needs fences, and the extension "
            "sampler.shm._ordering that has them was not compiled; install a C compiler and "
            "install fastrl again"
        )
