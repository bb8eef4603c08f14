"""Small arenas, and children that share them."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from sampler.shm.arena import Arena, Field, Layout

context = multiprocessing.get_context("forkserver")


def arena_of(*fields: Field) -> Arena:
    return Arena(Layout(fields))


@contextmanager
def child(function: Callable[..., None], *args: Any) -> Iterator[tuple[BaseProcess, Connection]]:
    """A process that runs `function(connection, *args)`, and the other end of its connection."""
    ours, theirs = context.Pipe()
    process = context.Process(target=function, args=(theirs, *args), daemon=True)
    process.start()
    theirs.close()
    try:
        yield process, ours
    finally:
        ours.close()
        process.kill()
        process.join()
        process.close()
