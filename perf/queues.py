"""The cost of one message between two processes, by queues and by the sampler's own means.

    python -m perf.queues
    pip install "fastrl[queues]"    # to measure faster-fifo, too

Measured in turn: `multiprocessing.Queue`, faster-fifo's, words in shared memory with bells (how
actions are asked for), and row tokens with bells. A round trip is one message and its answer; at
full load there are 32 messages at a time and 32 answers, in as few calls as the means allows.

Then a process that does nothing but use the means is killed at a random moment, and another one
tries to use it. This is repeated; `blocked` counts how often the other process stayed blocked
because the dead one had held the lock. For this, queues carry messages of 64 KiB, for which a lock
is held longer than for a number. For tokens, the test also does what the supervisor does: it takes
back what the dead worker had claimed.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import random
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import tyro

from perf.measure.output import machine, machine_line, table, write_json
from perf.measure.rounds import Summary, interleave
from perf.measure.settings import Measuring
from sampler.process.bell import Bell
from sampler.shm.arena import Arena, Field, Layout
from sampler.shm.lock import ProcessLock
from sampler.shm.tokens import NONE, TokenPool

LOAD = 32  # messages at a time
LONG_MESSAGE = bytes(2**16)
PATIENCE = 2.0  # seconds until a message counts as lost
FORK = multiprocessing.get_context("fork")
CLIENT, VICTIM, PROBE = range(3)  # groups that claim tokens


@dataclass(frozen=True)
class Settings(Measuring):
    """How long to measure, and how often to kill."""

    seconds: float = 1.0
    """Seconds of each measurement."""
    kills: int = 20
    """Processes that are killed while they use each means."""


class Means:
    """A means of sending `count` messages to a server process and having as many answers.

    Open it, and the server runs.
    """

    locks = True
    """Whether a process that uses it holds a lock at times."""

    def __init__(self, count: int):
        self.count = count

    def ask(self) -> None:
        """Send the messages and wait for the answers. Raises queue.Empty without them."""
        raise NotImplementedError

    def answer(self) -> None:
        """Serve once; returns after PATIENCE without a message."""
        raise NotImplementedError

    def use(self) -> None:
        """Use it once without a server, as the process to be killed does."""
        raise NotImplementedError

    def tidy(self) -> None:
        """What the process that watches the others does all the time."""

    def recover(self) -> None:
        """What the process that watches the others does when one of them has died."""

    def probe(self) -> None:
        """Use it once after that. Raises queue.Empty, or does not return, where that fails."""
        self.use()

    def __enter__(self) -> Means:
        self._server = FORK.Process(target=self._serve, args=(os.getpid(),), daemon=True)
        self._server.start()
        return self

    def _serve(self, parent: int) -> None:
        while os.getppid() == parent:
            self.answer()

    def measure(self, seconds: float) -> float:
        """Messages and answers, counted as one, per second."""
        began, exchanges = time.perf_counter(), 0
        while (elapsed := time.perf_counter() - began) < seconds:
            self.ask()
            exchanges += 1
        return self.count * exchanges / elapsed

    def __exit__(self, *error: object) -> None:
        self._server.kill()
        self._server.join()


class Queue(Means):
    """`multiprocessing.Queue`: a pipe, a lock at each end, and a thread that writes."""

    def __init__(self, count: int):
        super().__init__(count)
        self.there, self.back = self.make(), self.make()

    def make(self) -> Any:
        return FORK.Queue()

    def ask(self) -> None:
        for number in range(self.count):
            self.there.put(number)
        for _ in range(self.count):
            self.back.get(timeout=PATIENCE)

    def answer(self) -> None:
        with suppress(queue.Empty):  # not its turn
            self.back.put(self.there.get(timeout=PATIENCE))

    def use(self) -> None:
        self.there.put(LONG_MESSAGE)
        self.there.get(timeout=PATIENCE)


class FasterFifo(Queue):
    """A ring in shared memory under one mutex of pthreads."""

    def make(self) -> Any:
        import faster_fifo

        return faster_fifo.Queue()

    def ask(self) -> None:
        self.there.put_many(list(range(self.count)), timeout=PATIENCE)
        missing = self.count
        while missing:
            missing -= len(self.back.get_many(timeout=PATIENCE))

    def answer(self) -> None:
        with suppress(queue.Empty):  # not its turn
            self.back.put_many(self.there.get_many(timeout=PATIENCE), timeout=PATIENCE)


class Words(Means):
    """A word of shared memory for each message and each answer; bells wake the reader."""

    locks = False

    def __init__(self, count: int):
        super().__init__(count)
        word = np.dtype(np.int64)
        self._arena = Arena(Layout([Field(name, (count,), word) for name in ("asked", "answered")]))
        self.asked, self.answered = self._arena["asked"], self._arena["answered"]
        self.server_bell, self.client_bell = Bell(), Bell()

    def ask(self) -> None:
        self.asked += 1
        self.server_bell.ring()
        while (self.answered != self.asked).any():
            _sleep(self.client_bell)

    def answer(self) -> None:
        if self.server_bell.wait(PATIENCE):
            self.answered[:] = self.asked
            self.client_bell.ring()


class Tokens(Means):
    """Row tokens: the client claims and finishes them, the server frees the whole buffer."""

    def __init__(self, count: int):
        super().__init__(count)
        self._arena = Arena(Layout(TokenPool.fields(buffers=1, tokens_per_buffer=count, groups=3)))
        self.pool = TokenPool(self._arena, ProcessLock(self._arena.fd, timeout=PATIENCE))
        self.pool.reset()
        self.server_bell, self.client_bell = Bell(), Bell()

    def ask(self) -> None:
        for token in [self.pool.claim(CLIENT) for _ in range(self.count)]:
            self.pool.finish(token)
        self.server_bell.ring()
        _sleep(self.client_bell)

    def answer(self) -> None:
        if self.server_bell.wait(PATIENCE):
            self.tidy()
            self.client_bell.ring()

    def use(self) -> None:
        if (token := self.pool.claim(VICTIM)) != NONE:
            self.pool.finish(token)

    def tidy(self) -> None:
        if taken := self.pool.take():
            self.pool.release(taken[0])

    def recover(self) -> None:
        self.pool.reclaim(range(VICTIM, VICTIM + 1))
        self.tidy()

    def probe(self) -> None:
        if self.pool.claim(PROBE) == NONE:
            raise queue.Empty


MEANS: dict[str, type[Means]] = {
    "multiprocessing.Queue": Queue,
    "faster-fifo": FasterFifo,
    "words and bells": Words,
    "tokens and bells": Tokens,
}


def _sleep(bell: Bell) -> None:
    if not bell.wait(PATIENCE):
        raise queue.Empty


def blocks(means: Means, seconds: float) -> bool:
    """Whether a process killed while it used `means`, after so long, blocks the others."""
    victim = FORK.Process(target=_use_for_ever, args=(means, os.getpid()), daemon=True)
    victim.start()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        means.tidy()
        time.sleep(0)  # leaves the processor to the victim
    victim.kill()
    victim.join()
    means.recover()
    probe = FORK.Process(target=_probe, args=(means,), daemon=True)  # it may never return
    probe.start()
    probe.join(timeout=2 * PATIENCE)
    worked = probe.exitcode == 0
    probe.kill()
    probe.join()
    return not worked


def _use_for_ever(means: Means, parent: int) -> None:
    while os.getppid() == parent:
        means.use()


def _probe(means: Means) -> None:
    try:
        means.probe()
    except queue.Empty:
        sys.exit(1)


def installed() -> dict[str, type[Means]]:
    """The means that can be measured here; says on stderr which cannot."""
    found = {}
    for name, kind in MEANS.items():
        try:
            kind(1)
        except ImportError as error:
            print(f'{name} is not measured: {error}; pip install "fastrl[queues]"', file=sys.stderr)
        else:
            found[name] = kind
    return found


def measure(settings: Settings) -> dict[str, Any]:
    """The report: for each of `means`, microseconds, messages per second, kills and `blocked`."""
    facts, found = machine(), installed()
    with ExitStack() as stack:
        alone = {name: stack.enter_context(kind(1)).measure for name, kind in found.items()}
        loaded = {name: stack.enter_context(kind(LOAD)).measure for name, kind in found.items()}
        trips = interleave(alone, settings.rounds, settings.seconds)
        loads = interleave(loaded, settings.rounds, settings.seconds)
    moments = random.Random(0)
    return {
        "means": {
            name: {
                "round_trip_us": asdict(Summary.of([1e6 / rate for rate in trips[name]])),
                "messages_per_second": asdict(Summary.of(loads[name])),
                "kills": settings.kills if kind.locks else 0,
                "blocked": sum(
                    blocks(kind(LOAD), moments.uniform(0.05, 0.1))
                    for _ in range(settings.kills if kind.locks else 0)
                ),
            }
            for name, kind in found.items()
        },
        "machine": facts,
    }


COLUMNS = ("", "round trip, us", "messages/s, 32 at a time", "killed", "then others blocked")


def rows(result: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """A line for each means."""
    return [
        (
            name,
            Summary(**facts["round_trip_us"]).text(),
            Summary(**facts["messages_per_second"]).text(),
            str(facts["kills"]) if facts["kills"] else "has no lock",
            str(facts["blocked"]) if facts["kills"] else "",
        )
        for name, facts in result["means"].items()
    ]


def main() -> None:
    settings = tyro.cli(Settings, description=__doc__)
    result = measure(settings)
    table(f"Messages ({machine_line(result['machine'])})", COLUMNS, rows(result))
    write_json(settings.json, result)


if __name__ == "__main__":
    main()
