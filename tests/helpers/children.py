"""What processes started by tests do; importable there."""

from __future__ import annotations

from multiprocessing.connection import Connection

from sampler.supervisor.child import prepare_child


def prepare(connection: Connection) -> None:
    """Become a sampler's process, say so, and end at the first word."""
    prepare_child()
    connection.send("prepared")
    connection.recv()
