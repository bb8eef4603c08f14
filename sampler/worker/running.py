"""How every worker process runs: its priority, reports of errors, and its end."""

from __future__ import annotations

import os
from collections.abc import Callable

from sampler.process.child import end_own_group, prepare_child
from sampler.process.report import report
from sampler.shm.counters import CounterRow, Stage
from sampler.shm.shared import Shared

NICENESS = 5
"""Priority of all workers. If cores are scarce, the learner goes first: rows become stale while it
waits for a core, and the workers wait for it anyway when all rows are taken."""


def run_worker(
    shared: Shared,
    slot: int,
    counters: CounterRow,
    name: Callable[[], str],
    work: Callable[[], None],
) -> None:
    """Run `work` in a worker process, leave a report if it raises, and end the process group.

    `slot` is the worker's in `shared.errors`; `name()` says what it was doing, for the report.
    """
    prepare_child()
    os.nice(NICENESS)
    counters.enter(Stage.STARTING)
    try:
        work()
    except BaseException as error:  # an environment or a model may even call sys.exit
        shared.errors.put(slot, report(error, name()))
    else:
        counters.enter(Stage.STOPPED)
    end_own_group()
