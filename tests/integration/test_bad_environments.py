"""Whatever an environment does wrong ends in one line that names it, never in a hang."""

from __future__ import annotations

import logging
import re
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from gymnasium import spaces
from helpers.failures import PROCESSES, SERIAL, error_of, sample
from helpers.faults import (
    BOX,
    GOOD,
    Faulty,
    crash,
    fail,
    hang,
    in_worker,
    interrupt,
    later,
    leave,
    leave_quietly,
)
from helpers.processes import workers_of

from sampler import ConfigError, EnvError, Sampler

FIRST_LOOK = {
    "constructor that raises": (
        lambda: fail("no display"),
        EnvError,
        r"env \S+ could not be made: ValueError: no display",
    ),
    "reset that raises": (
        lambda: Faulty(reset=lambda result: fail("no\nlevel")),
        EnvError,
        r"env \S+: the first reset failed \(ValueError: no level\)",
    ),
    "old reset": (
        lambda: Faulty(reset=lambda result: result[0]),
        EnvError,
        r"env \S+: the first reset failed \(reset\(\) returned ndarray, not a tuple of 2",
    ),
    "reset without info": (
        lambda: Faulty(reset=lambda result: (result[0], None)),
        EnvError,
        r"env \S+: the first reset failed \(reset\(\) returned info of type NoneType; return",
    ),
    "something else": (lambda: 3, EnvError, r"env \S+ returned builtins.int; return a gymnasium"),
    "text observations": (
        lambda: Faulty(space=spaces.Text(5)),
        ConfigError,
        "obs: Text spaces have no fixed size; use Box, Discrete, MultiDiscrete",
    ),
    "no observations": (
        lambda: Faulty(space=spaces.Dict({}), observe=lambda t: {}),
        ConfigError,
        "the observation space .* has no entries",
    ),
    "no actions": (
        lambda: Faulty(action_space=spaces.Tuple(())),
        ConfigError,
        "the action space .* has no entries",
    ),
    "an entry without numbers": (
        lambda: Faulty(
            space=spaces.Dict({"a": BOX, "b": spaces.Box(0.0, 1.0, (3, 0), np.float32)}),
            observe=lambda t: {"a": GOOD, "b": np.zeros((3, 0), np.float32)},
        ),
        ConfigError,
        r"obs.b: Box\(.*\) holds no numbers; leave it out",
    ),
    "actions without numbers": (
        lambda: Faulty(action_space=spaces.Box(0.0, 1.0, (0,), np.float32)),
        ConfigError,
        r"actions: Box\(.*\) holds no numbers; leave it out",
    ),
    "two entries of one name": (
        lambda: Faulty(
            space=spaces.Dict({"a.b": BOX, "a": spaces.Dict({"b": BOX})}),
            observe=lambda t: {"a.b": GOOD, "a": {"b": GOOD}},
        ),
        ConfigError,
        "two arrays are called 'obs.a.b'; rename one",
    ),
}


@pytest.mark.parametrize("config", [SERIAL, PROCESSES], ids=["serial", "processes"])
@pytest.mark.parametrize(("env", "kind", "message"), FIRST_LOOK.values(), ids=FIRST_LOOK)
def test_environments_that_fail_at_the_first_look(env, kind, message, config):
    with pytest.raises(kind, match=message) as caught:
        Sampler(replace(config, env=env))
    assert "\n" not in str(caught.value)
    assert workers_of() == []


def test_an_environment_that_cannot_be_sent():
    lock = threading.Lock()
    with pytest.raises(ConfigError) as caught:
        Sampler(replace(PROCESSES, env=lambda: Faulty(close=lock.release)))
    text = str(caught.value)
    assert "cannot be sent to worker processes (TypeError: cannot pickle '_thread.lock'" in text
    assert "\n" not in text


@pytest.mark.parametrize("where", ["constructor", "reset"])
@pytest.mark.parametrize(
    ("action", "message"),
    [
        (leave_quietly, r"its process ended while it was made and reset \(exit code 3\)"),
        (leave, r"SystemExit: 4"),
        (crash, r"its process ended while it was made and reset \(exit code -11\)"),
    ],
)
def test_environments_that_end_their_process_at_the_first_look(where, action, message):
    def env():
        if where == "constructor":
            action()
        return Faulty(reset=lambda result: action())

    with pytest.raises(EnvError, match=message):
        Sampler(replace(PROCESSES, env=env))


@pytest.mark.parametrize("where", ["constructor", "reset", "step"])
def test_environments_that_call_exit_do_not_end_the_caller(where):
    def env():
        if where == "constructor":
            leave()
        if where == "reset":
            return Faulty(reset=lambda result: leave())
        return Faulty(reward=later(leave))

    with pytest.raises(EnvError, match=r"env \S+ .*SystemExit: 4") as caught:
        sample(replace(SERIAL, env=env))
    assert "\n" not in str(caught.value)


class HangsAtClose(Faulty):
    def close(self):
        hang()


@pytest.mark.parametrize("where", ["constructor", "reset", "close"])
def test_environments_that_hang_at_the_first_look(where):
    def env():
        if where == "constructor":
            hang()
        return HangsAtClose() if where == "close" else Faulty(reset=lambda result: hang())

    message = r"env \S+: not made, reset and closed within start_timeout=0.5 s; raise it, or"
    with pytest.raises(EnvError, match=message):
        Sampler(replace(PROCESSES, env=env, start_timeout=0.5))
    assert workers_of() == []


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (leave_quietly, r"lane \d ended unexpectedly while stepping \(exit code 3\)"),
        (leave, r"lane \d: SystemExit: 4"),
        (interrupt, r"lane \d: KeyboardInterrupt: "),
        (crash, r"lane \d ended unexpectedly while stepping \(signal 11\)"),
    ],
)
def test_environments_that_end_their_process_later(action, message):
    error = error_of(PROCESSES, {"reward": later(action)})
    assert isinstance(error, EnvError)
    assert re.search(r"rollout worker \d, env Faulty, " + message, str(error))


class HangsAtSecondReset(Faulty):
    resets = 0

    def reset(self, *, seed=None, options=None):
        self.resets += 1
        return super().reset() if self.resets < 2 else hang()


@pytest.mark.parametrize(
    ("env", "kwargs"), [(Faulty, {"reward": later(hang)}), (HangsAtSecondReset, {})]
)
def test_environments_that_hang_later(env, kwargs):
    error = error_of(replace(PROCESSES, env=env, step_timeout=1.0), kwargs)
    assert isinstance(error, EnvError)
    message = f"env {env.__name__}, lane [02]: no step or reset was finished within step_timeout="
    assert re.search(message + "1 s; raise it, or correct", str(error))


@pytest.mark.slow
def test_environments_that_hang_while_workers_start():
    def env():
        if in_worker():
            hang()
        return Faulty()

    config = replace(PROCESSES, env=env, start_timeout=5.0)
    message = r"rollout worker 0, env \S+, lane 0, rollout worker 1, env \S+, lane 2 not ready "
    with pytest.raises(EnvError, match=message + "after start_timeout=5 s"):
        sample(config)


def test_environments_that_fail_only_in_workers_are_not_restarted():
    def env():
        if in_worker():
            fail("no GPU for workers")
        return Faulty()

    config = replace(PROCESSES, env=env, max_restarts=100)
    with pytest.raises(EnvError, match=r"^rollout worker \d, env .*ValueError: no GPU for workers"):
        sample(config)


@pytest.mark.slow
def test_a_worker_that_hangs_when_it_is_started_again(tmp_path):
    started = tmp_path / "started"

    def env():
        if in_worker():
            if started.exists():
                hang()
            started.write_text("")
        return Faulty(reward=later(fail))

    config = replace(PROCESSES, workers=1, env=env, max_restarts=1, start_timeout=5.0, groups=1)
    config = replace(config, envs_per_worker=1, batch=1)
    with pytest.raises(EnvError, match=r"gave up after 1 restarts .*not ready after start_timeout"):
        sample(config, 1000)


def test_slow_steps_of_several_lanes_together_are_no_hang():
    kwargs = {"reward": lambda t: time.sleep(0.3) or 1.0}
    config = replace(PROCESSES, workers=1, envs_per_worker=6, batch=6, rollout=1, step_timeout=1.5)
    sample(replace(config, env_kwargs=kwargs), 1)


def test_printing_environments_work():
    sample(replace(PROCESSES, env_kwargs={"info": lambda t: print("hello", t) or {}}), 3)


def test_an_environment_that_cannot_be_closed_is_only_reported(caplog):
    with caplog.at_level(logging.WARNING, "fastrl"):
        sample(replace(SERIAL, env_kwargs={"close": lambda: fail("stuck")}), 2)
    assert caplog.messages.count("closing an environment failed: ValueError: stuck") == 5


def test_an_error_is_not_hidden_by_one_at_closing():
    error = error_of(PROCESSES, {"reward": later(fail), "close": lambda: fail("stuck")})
    assert "the engine is gone" in str(error)
