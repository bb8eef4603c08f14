"""Inspecting an environment in a process of its own.

It may hang, exit, crash or leave processes behind, which must not affect the caller.
"""

from __future__ import annotations

from contextlib import suppress
from multiprocessing.connection import Connection

import cloudpickle

from sampler.config import SamplerConfig
from sampler.envs.facts import EnvironmentFacts
from sampler.errors import EnvError, FastrlError
from sampler.process.child import end_own_group, prepare_child
from sampler.process.launch import end, start
from sampler.process.parcel import Parcel
from sampler.process.patience import Patience
from sampler.process.report import error_of, report
from sampler.process.resources import check_limits
from sampler.rollout_worker.probe import inspect_environment
from sampler.runtime.start_methods import worker_processes

END_TIMEOUT = 2.0  # seconds
POLL_INTERVAL = 0.2  # seconds between two checks of the time


def inspect(config: SamplerConfig) -> EnvironmentFacts:
    """What an environment says about itself, found out where it can do no harm: in a process of its
    own, unless everything is to run in the caller's.

    Raises EnvError or ConfigError where it cannot be made and reset.
    """
    return inspect_environment(config) if config.serial else inspect_in_process(config)


def inspect_in_process(config: SamplerConfig) -> EnvironmentFacts:
    """The result of `inspect_environment`, with the same EnvError and ConfigError.

    Also raises EnvError if the environment does not answer within `start_timeout` seconds.
    """
    check_limits(1, bells=1)  # otherwise multiprocessing's server fails with a traceback
    parcel = Parcel(config, f"env {config.env_name}")
    parcel.pack()
    chosen = worker_processes(config.start_method)
    ours, theirs = chosen.Pipe(duplex=False)
    process = chosen.Process(
        target=_main, args=(theirs, parcel, config.env_name), name="fastrl inspection"
    )
    try:
        start(process)
        theirs.close()
        patience = Patience(2 * POLL_INTERVAL)
        while not ours.poll(POLL_INTERVAL) and patience.look() < config.start_timeout:
            pass
        if not ours.poll():
            raise EnvError(
                f"env {config.env_name}: not made, reset and closed within start_timeout="
                f"{config.start_timeout:g} s; raise it, or correct the environment"
            )
        try:
            facts, text = cloudpickle.loads(ours.recv_bytes())
        except EOFError:
            process.join()
            raise EnvError(
                f"env {config.env_name}: its process ended while it was made and reset "
                f"(exit code {process.exitcode}); correct the environment"
            ) from None
    finally:
        theirs.close()
        ours.close()
        end(process, END_TIMEOUT)
    if text:
        raise error_of(text, EnvError)
    return facts


def _main(connection: Connection, parcel: Parcel[SamplerConfig], name: str) -> None:
    prepare_child()
    facts, text = None, ""
    try:
        facts = inspect_environment(parcel.value)
    except BaseException as error:  # an environment may even call sys.exit
        text = report(error, "" if isinstance(error, FastrlError) else f"env {name}")
    with suppress(BrokenPipeError):  # the caller has ended
        connection.send_bytes(cloudpickle.dumps((facts, text)))
    end_own_group()
