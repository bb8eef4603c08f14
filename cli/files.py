"""Writing files."""

from __future__ import annotations

import io


def write_all(file: io.FileIO, data: bytes) -> None:
    """Write `data` to an unbuffered file: nothing is left for its close to fail at."""
    while data:
        data = data[file.write(data) :]
