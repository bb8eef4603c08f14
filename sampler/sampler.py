"""`Sampler`: finished batches out, weights in."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from math import inf
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from sampler.batch import SequenceBatch
from sampler.config import SamplerConfig
from sampler.envs.facts import EnvironmentFacts
from sampler.errors import BatchTimeout, ConfigError, FastrlError, StateError
from sampler.lease import Lease, LoanWatch
from sampler.runtime.assembly import Assembly, assemble
from sampler.runtime.process_workers import ProcessWorkers
from sampler.runtime.serial_workers import SerialWorkers
from sampler.runtime.state_tensors import to_arrays, to_tensors
from sampler.runtime.statistics import statistics
from sampler.shm.control import PAUSE
from sampler.shm.counters import Stage
from sampler.shm.mailbox import Episode
from sampler.shm.tokens import FINISHED
from sampler.worker.context import ModelFactory

if TYPE_CHECKING:
    from torch import nn

    from sampler.models import PolicyModel

logger = logging.getLogger("fastrl")

UNCHANGED = (
    *("env_name", "env_kwargs", "workers", "envs_per_worker", "groups", "rollout", "batch"),
    *("buffers", "overlap", "policy_workers", "inference", "seed", "identical_lanes", "sync"),
)
"""Settings that must equal those that a saved state was made with."""
POLL_INTERVAL = 0.5  # seconds between two checks for failures and stragglers


class Sampler:
    """Steps environments in worker processes and yields finished batches of sequences.

    Use it as a context manager and iterate; each batch is released at the next turn:

        with Sampler(config, model=make_model) as sampler:
            for batch in sampler:
                ...
                sampler.publish(model)

    `model` is a factory `make_model(observation_space, action_space)`, by default the library's
    own. The instance that it makes here is `sampler.model`; its weights are version 0.
    `facts`: what the environment says about itself (`sampler.runtime.inspection`), where that is
    known already. Raises ConfigError for settings that cannot work and EnvError for an environment
    that cannot be made, before any process is started.
    """

    model: PolicyModel = None  # type: ignore[assignment]
    """The caller's instance of the model; None with inference="random"."""

    def __init__(
        self,
        config: SamplerConfig,
        model: ModelFactory | None = None,
        facts: EnvironmentFacts | None = None,
    ):
        self.config = config
        self._assembly = assembly = assemble(config, model, facts)
        self._shared = assembly.shared
        self._counters = self._shared.counters.learner
        self.observation_space = assembly.observation_space
        self.action_space = assembly.action_space
        self._batch: SequenceBatch[np.ndarray] | None = None
        self._taking = threading.Lock()  # held while a thread takes a batch
        self._loans = LoanWatch() if config.debug else None
        if assembly.facts.slow is not None:
            logger.warning("%s", assembly.facts.slow)
        try:
            if assembly.parts is not None:
                self._prepare_publishing(assembly.parts.model)
            self._workers = SerialWorkers(assembly) if config.serial else ProcessWorkers(assembly)
        except BaseException:
            assembly.close()
            raise
        # Closes a sampler that is dropped without `close`, or still open when Python exits.
        self._shut_down = weakref.finalize(self, _shut_down, os.getpid(), self._workers, assembly)
        try:
            self._workers.start()
        except BaseException:
            self.close()
            raise

    def _prepare_publishing(self, model: nn.Module) -> None:
        from sampler.models import epsilon_ladder
        from sampler.shm.parameters import ParameterBlock

        self.model = cast("PolicyModel", model)
        self._parameters = ParameterBlock(model)
        if "q_values" in self._assembly.spec.outputs:
            self.set_epsilon(np.asarray(epsilon_ladder(self.config.lanes)))
        self.publish(model)

    # ---- batches

    def __iter__(self) -> Iterator[SequenceBatch[np.ndarray]]:
        """Endless batches; each is released when the next one is asked for."""
        while not self.closed:
            yield self.get_batch()

    def get_batch(self, timeout: float | None = None) -> SequenceBatch[np.ndarray]:
        """The next finished batch; releases the one before.

        Raises BatchTimeout if none is finished within `timeout` seconds, and the error of a worker
        that cannot be restarted any more. Without a timeout, raises FastrlError if the sampler was
        paused before the call and its last finished batch has been taken.
        """
        if not self._taking.acquire(blocking=False):
            raise FastrlError(
                "get_batch() is running in another thread; take batches in one thread"
            )
        try:
            return self._next_batch(timeout)
        finally:
            self._taking.release()

    def _next_batch(self, timeout: float | None) -> SequenceBatch[np.ndarray]:
        self._check()
        if self._batch is not None:
            self._batch.release()
        began = self._counters.enter(Stage.WAITING)
        deadline = None if timeout is None else time.monotonic() + timeout
        paused = timeout is None and self._shared.control.paused
        at_rest = False
        while (taken := self._shared.tokens.take()) is None:
            if at_rest:
                raise FastrlError(
                    "no batch can come while the sampler is paused; call resume() before, or give "
                    "a timeout and resume from another thread"
                )
            remaining = POLL_INTERVAL if deadline is None else deadline - time.monotonic()
            if remaining <= 0:
                raise BatchTimeout(f"no batch was finished within {timeout} s; {self._progress()}")
            patience = self.config.straggler_timeout
            interval = min(POLL_INTERVAL, inf if patience is None else patience / 4)
            self._workers.wait(min(remaining, interval))
            self._check()
            if patience is not None:
                self._shared.tokens.abandon_late(patience)
            paused = paused and self._shared.control.paused
            at_rest = paused and self._workers.at_rest  # then no batch follows after this check
        waited = self._counters.enter(Stage.LEARNING) - began
        self._counters.add("wait_ns", waited)
        self._counters.add("batches", 1)
        self._batch = self._batch_of(*taken)
        if self._counters["batches"] == 1 and self.model is not None:
            self._check_agreement(self.model, self._batch)
        return self._batch

    def _check_agreement(self, model: nn.Module, batch: SequenceBatch) -> None:
        """Warn if the model's log-probabilities of the first batch differ from those stored."""
        from sampler.models.agreement import disagreement
        from sampler.models.device import choose_device, choose_precision

        weights = self._assembly.weights
        if "logits" not in batch.fields or (batch.policy_version != self.version).any():
            return
        published = self._parameters.views(weights.copies[self.version % 2])
        precision = choose_precision(self.config.precision, choose_device(self.config.device))
        if (reason := disagreement(model, batch, published, precision)) is not None:
            logger.warning("%s", reason)

    def _check(self) -> None:
        """Raise if the sampler was closed (perhaps by another thread) or a worker has failed."""
        if self.closed:
            raise FastrlError("this sampler is closed; make a new one")
        self._workers.check()

    def _batch_of(self, buffer: int, given_up: np.ndarray) -> SequenceBatch[np.ndarray]:
        spec = self._assembly.spec
        fields = self._shared.store.buffer(buffer)
        if given_up.any():
            late = np.repeat(given_up, spec.rows_per_token)
            # A copy, since a late writer may still write to the store.
            fields["mask"] = fields["mask"] & ~late[:, None]
            self._counters.add("abandoned_rows", int(late.sum()))
        if self._loans is not None:
            fields = self._loans.lend(fields)
        return SequenceBatch(
            fields,
            spec,
            self.observation_space,
            self.action_space,
            self._assembly.model_inputs,
            Lease(lambda: self._release(buffer)),
        )

    def empty_batch(self) -> SequenceBatch[np.ndarray]:
        """A batch without rows, with the fields, shapes and dtypes of all later batches."""
        fields = {name: array[:0] for name, array in self._shared.store.buffer(0).items()}
        spec, inputs = self._assembly.spec, self._assembly.model_inputs
        return SequenceBatch(fields, spec, self.observation_space, self.action_space, inputs)

    def _release(self, buffer: int) -> None:
        if self.closed:
            return
        if self._loans is not None:
            self._loans.returned()
            # Not the rows of a late writer, which continues from their contents.
            finished = self._shared.tokens.status[buffer] == FINISHED
            rows = np.repeat(finished, self._assembly.spec.rows_per_token)
            poison(self._shared.store.buffer(buffer), rows)
        self._workers.wake(self._shared.tokens.release(buffer))

    def _progress(self) -> str:
        steps = sum(row["steps"] for row in self._shared.counters.rollout)
        per_batch = self.config.batch * self.config.rollout
        paused = "; the sampler is paused: call resume()" if self._shared.control.paused else ""
        return f"{steps} steps have been made so far, and a batch takes {per_batch}{paused}"

    # ---- weights and exploration

    def publish(self, model: nn.Module) -> int:
        """Send the weights of `model` to the policy workers; returns their version.

        Never waits for a policy worker. The model must have the same parameters as `sampler.model`.
        """
        if self.model is None:
            raise ConfigError('inference="random" uses no weights; there is nothing to publish')
        from sampler.models import as_policy_model, renamed

        began = time.monotonic_ns()
        names = {name for name, *_ in self._parameters.entries}
        state = renamed(as_policy_model(model).state_dict(), names)
        if missing := names ^ set(state):
            raise ConfigError(
                f"the published model differs from the sampler's in {sorted(missing)[0]!r}; "
                "publish a model made by the same factory"
            )
        for name, _, shape, *_ in self._parameters.entries:
            if state[name].shape != shape:
                raise ConfigError(
                    f"the published model's {name} has shape {list(state[name].shape)}, expected "
                    f"{list(shape)}; publish a model made by the same factory"
                )
        weights = self._assembly.weights
        self._parameters.copy(state, self._parameters.views(weights.begin()))
        version = weights.publish()
        self._counters["version"] = version
        self._counters.add("publishes", 1)
        self._counters.add("publish_ns", time.monotonic_ns() - began)
        return version

    @property
    def version(self) -> int:
        """Version of the weights last published."""
        return self._assembly.weights.version

    def set_epsilon(self, epsilon: float | np.ndarray) -> None:
        """Exploration of models with Q-values: one probability, or one for each lane, [lanes]."""
        try:
            values = np.broadcast_to(np.asarray(epsilon, np.float32), self._shared.epsilon.shape)
        except (TypeError, ValueError):
            raise ConfigError(
                f"epsilon={epsilon!r} is neither a number nor one for each of the "
                f"{self.config.lanes} lanes"
            ) from None
        if not ((values >= 0) & (values <= 1)).all():
            raise ConfigError(f"epsilon={epsilon!r} is not between 0 and 1")
        self._shared.epsilon[:] = values

    # ---- saving and restoring

    def state_dict(self) -> dict[str, Any]:
        """Everything that later batches depend on, as plain tensors, numbers and strings.

        Tensors share memory that the next step changes, so save them at once. A batch that is held
        counts as released. Raises StateError if there is no state to save: with worker processes
        (`serial=False`), and after a step that failed halfway.
        """
        if not isinstance(self._workers, SerialWorkers):
            raise StateError(
                "serial=False: what worker processes are doing cannot be saved; save the weights "
                "alone, or use serial=True"
            )
        if not self._workers.whole:
            raise StateError("the last step failed halfway; go on from a state saved before it")
        state = {
            "settings": self._settings(),
            "shared": self._shared.state_dict(),
            "workers": self._workers.state_dict(),
            "version": self.version,
        }
        if self.model is not None:
            state["weights"] = self._assembly.weights.copies[self.version % 2]
        return to_tensors(state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from where `state_dict()` was taken: the same batches follow, bit for bit.

        Environments are reset with their old seeds and play their old actions again, which takes as
        long as it did then. Raises StateError if the state does not fit, or if an environment
        behaves differently from before; the sampler must then be closed.
        """
        if not isinstance(self._workers, SerialWorkers):
            raise StateError("serial=False: only a serial sampler can go on where another was")
        state = to_arrays(dict(state))
        for name, value in self._settings().items():
            if value != (before := state["settings"].get(name)):
                raise StateError(f"{name}={value} was {before}")
        if self._batch is not None:
            self._batch.release()
        self._shared.load_state_dict(state["shared"])
        weights = self._assembly.weights
        weights.latest[0] = state["version"]
        if self.model is not None:
            weights.latest[0] -= 1  # `publish` makes this version again
            saved = self._parameters.views(state["weights"])
            self._parameters.copy(saved, self._parameters.views(weights.begin()))
            weights.publish()
        self._workers.load_state_dict(state["workers"])
        for buffer in np.flatnonzero(self._shared.tokens.held).tolist():
            self._release(buffer)

    def _settings(self) -> dict[str, Any]:
        settings = {name: getattr(self.config, name) for name in UNCHANGED}
        return settings | {"env_kwargs": repr(self.config.env_kwargs)}

    # ---- everything else

    def episodes(self) -> list[Episode]:
        """Whole games finished since the last call, with raw scores.

        If one worker has finished more than 512, its games are a random sample, in which lane and
        length play no part; `stats()["games"]` has exact sums over all games, and "episodes_missed"
        how many are in no list.
        """
        return self._shared.episodes.take()

    def stats(self) -> dict[str, Any]:
        """Counters of all processes since the start, as a nested dict."""
        keys = self.config.parsed_info_keys
        return statistics(self._shared, self._workers.restarts, keys)

    @property
    def bytes_per_step(self) -> float:
        """Bytes of shared memory that the store takes for each step that it holds."""
        return self._assembly.spec.bytes_per_step

    def pause(self) -> None:
        """Stop stepping environments after the current step, until `resume`."""
        self._shared.control.words[PAUSE] = 1

    def resume(self) -> None:
        """Go on after `pause`."""
        self._shared.control.words[PAUSE] = 0
        self._workers.wake(list(range(self._shared.topology.groups)))

    def close(self) -> None:
        """Stop all workers and give everything back, within seconds; idempotent.

        A batch that is still held stays readable; the memory is freed with the last reference to a
        batch or to the sampler.
        """
        self._shut_down()
        self._batch = None  # a batch refers to the sampler

    @property
    def closed(self) -> bool:
        return not self._shut_down.alive

    def __enter__(self) -> Sampler:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _shut_down(owner: int, workers: SerialWorkers | ProcessWorkers, assembly: Assembly) -> None:
    if os.getpid() != owner:
        return  # a fork of the owner's process is ending, which owns none of this
    assembly.bell.ring()  # another thread may be waiting for a batch
    try:
        workers.close()
    finally:
        assembly.close()


def poison(fields: dict[str, np.ndarray], rows: np.ndarray) -> None:
    """Overwrite released rows (bool [B]) with values that no learner can mistake for data."""
    for array in fields.values():
        if array.dtype.kind == "f":
            array[rows] = np.nan
        elif array.dtype.kind in "iu":
            array[rows] = np.iinfo(array.dtype).max
        else:
            array[rows] = True
