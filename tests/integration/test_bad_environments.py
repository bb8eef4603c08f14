"""Whatever an environment does wrong ends in one line that names it, never in a hang."""

from __future__ import annotations

import logging
import re
import threading
import time
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
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
from helpers.processes import PATIENCE, workers_of

from sampler import ConfigError, EnvError, FastrlError, Sampler, SamplerConfig, seeds

SERIAL = SamplerConfig(
    env=Faulty,
    workers=2,
    envs_per_worker=2,
    groups=1,
    rollout=8,
    batch=2,
    inference="random",
    max_restarts=0,
    serial=True,
)
PROCESSES = replace(SERIAL, serial=False)
DICT = spaces.Dict({"a": BOX, "b": spaces.Discrete(3)})
TUPLE = spaces.Tuple((BOX, spaces.MultiBinary(2)))
IN_WORKER_0 = "rollout worker 0, env Faulty, lane 0: "
IN_WORKER_0_LAST = "rollout worker 0, env Faulty, lane 1: "  # found when all lanes were stepped


def run(config, kwargs):
    """Sample until something goes wrong; the error, which is one line."""
    with pytest.raises(FastrlError) as caught:
        sample(replace(config, env_kwargs=kwargs))
    assert "\n" not in str(caught.value)
    return caught.value


def sample(config, batches=20):
    with Sampler(config) as sampler:
        for _ in range(batches):
            sampler.get_batch(timeout=PATIENCE)


def from_step(t, wrong):
    """Observations that are right until step t."""
    return lambda now: wrong if now >= t else GOOD


WRONG_VALUES = {
    "observation of a wider dtype": (
        {"observe": from_step(2, np.array([0.1, 0.2]))},
        "obs has dtype float64 but its space says float32, and a conversion would change "
        "array([0.1, 0.2]); return float32 or declare float64",
    ),
    "observation of another kind": (
        {"observe": from_step(2, ["a", "b"])},
        "obs has dtype <U1 but its space says float32, and a conversion would change "
        "['a', 'b']; return float32 or declare <U1",
    ),
    "observation of another shape": (
        {"observe": from_step(2, np.zeros(3, np.float32))},
        "obs has shape (3,) but its space Box(-1.0, 1.0, (2,), float32) says (2,); "
        "correct the environment's observation_space or what it returns",
    ),
    "no observation": (
        {"observe": from_step(2, None)},
        "obs has shape () but its space Box(-1.0, 1.0, (2,), float32) says (2,); "
        "correct the environment's observation_space or what it returns",
    ),
    "observation out of range": (
        {"observe": from_step(2, np.array([0, 1.5], np.float32))},
        "obs holds 1.5 at index (1,), outside its space Box(-1.0, 1.0, (2,), float32) "
        "(step 2 of the row); correct the environment, or its observation_space",
    ),
    "observation that is not a number": (
        {"observe": from_step(2, np.array([np.nan, 0], np.float32))},
        "obs holds nan at index (0,), outside its space Box(-1.0, 1.0, (2,), float32) "
        "(step 2 of the row); correct the environment, or its observation_space",
    ),
    "choice out of range": (
        {"space": spaces.Discrete(3, start=-1), "observe": lambda t: 0 if t < 2 else 2},
        "obs holds 2 at index (), outside its space Discrete(3, start=-1) "
        "(step 2 of the row); correct the environment, or its observation_space",
    ),
    "bit out of range": (
        {"space": spaces.MultiBinary(2), "observe": lambda t: np.int8([0, t // 2])},
        "obs holds 2 at index (1,), outside its space MultiBinary(2) "
        "(step 4 of the row); correct the environment, or its observation_space",
    ),
    "missing key": (
        {"space": DICT, "observe": lambda t: {"a": GOOD, "b": 1} if t < 2 else {"a": GOOD}},
        "observation {'a': array([ 0.5, -0.5], dtype=float32)} is not nested like its space "
        f"{DICT} (KeyError: 'b'); return every entry that the space has",
    ),
    "array instead of a dict": (
        {"space": DICT, "observe": lambda t: {"a": GOOD, "b": 1} if t < 2 else GOOD},
        "observation array([ 0.5, -0.5], dtype=float32) is not nested like its space",
    ),
    "short tuple": (
        {"space": TUPLE, "observe": lambda t: (GOOD, np.int8([0, 1]))[: 2 if t < 2 else 1]},
        "is not nested like its space",
    ),
    "reward of another type": (
        {"reward": lambda t: "much"},
        "rewards ['much', 'much'] are not all numbers; return floats",
    ),
    "no reward": ({"reward": lambda t: None}, "reward nan (step 0 of the row); rewards must be"),
    "reward that is not a number": (
        {"reward": lambda t: float("nan")},
        "reward nan (step 0 of the row); rewards must be finite: "
        "correct or clip them in the environment",
    ),
    "reward beyond float32": (
        {"reward": lambda t: np.float64(-1e300)},
        "reward -inf (step 0 of the row)",
    ),
    "text as terminated": (
        {"terminated": lambda t: "no"},
        "step() returned terminated='no' of type str; return a bool",
    ),
    "array as terminated": (
        {"terminated": lambda t: np.array([True, True])},
        "ValueError: The truth value of an array with more than one element is ambiguous",
    ),
    "no info": (
        {"info": lambda t: None if t else {}},
        "step() returned info of type NoneType; return a dict",
    ),
    "old step": (
        {"step": lambda result: result[:4]},
        "step() returned 4 values, not a tuple of 5; follow the Gymnasium API (obs, info) and "
        "(obs, reward, terminated, truncated, info)",
    ),
    "step without result": (
        {"step": lambda result: None},
        "step() returned NoneType, not a tuple of 5",
    ),
    "step that raises": ({"reward": later(fail)}, "ValueError: the engine is gone"),
    "step that raises something long": (
        {"reward": later(lambda: fail("first line\nsecond line\n" + "ä" * 100_000))},
        "ValueError: first line second line ää",
    ),
}


@pytest.mark.parametrize(("kwargs", "message"), WRONG_VALUES.values(), ids=WRONG_VALUES)
def test_wrong_values(kwargs, message):
    error = run(SERIAL, kwargs)
    assert isinstance(error, EnvError)
    assert str(error).startswith((IN_WORKER_0 + message, IN_WORKER_0_LAST + message)) or (
        message in str(error) and str(error).startswith("rollout worker 0, env Faulty, lane ")
    )
    assert len(str(error)) < 800


@pytest.mark.parametrize(
    "case",
    ["observation out of range", "step that raises something long"],
)
def test_wrong_values_in_processes(case):
    kwargs, message = WRONG_VALUES[case]
    error = run(PROCESSES, kwargs)
    assert isinstance(error, EnvError)
    assert str(error).startswith("gave up after 0 restarts (max_restarts): rollout worker ")
    assert f", env Faulty, lane {error.args[0].split('lane ')[1][0]}: " in str(error)
    assert message in str(error)
    assert "Traceback" in error.traceback_text or "ä" in error.traceback_text
    assert workers_of() == []


def test_the_lane_at_fault_is_named():
    class OneBadLane(Faulty):
        def reset(self, *, seed=None, options=None):
            if seed is not None:
                self.bad = seed == bad_seed
            return super().reset()

        def step(self, action):
            _, *rest = super().step(action)
            return (GOOD * (1 + 2 * self.bad), *rest)

    bad_seed = seeds.integer(0, seeds.LANE, 2, 0)
    with pytest.raises(EnvError, match=r"rollout worker 1, env \S*OneBadLane, lane 2: obs holds"):
        sample(replace(SERIAL, env=OneBadLane))


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


@pytest.mark.parametrize("where", ["constructor", "reset"])
def test_environments_that_hang_at_the_first_look(where):
    def env():
        if where == "constructor":
            hang()
        return Faulty(reset=lambda result: hang())

    message = r"env \S+: not made and reset within start_timeout=0.5 s; raise it, or"
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
    error = run(PROCESSES, {"reward": later(action)})
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
    error = run(replace(PROCESSES, env=env, step_timeout=1.0), kwargs)
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
    error = run(PROCESSES, {"reward": later(fail), "close": lambda: fail("stuck")})
    assert "the engine is gone" in str(error)


def test_conversions_that_lose_nothing_are_fine():
    for observation in (np.array([0.5, -0.25]), [0, 1], (0.5, 1), np.array([0, 1], np.int8)):
        config = replace(SERIAL, env_kwargs={"observe": lambda t, o=observation: o})
        with Sampler(config) as sampler:
            batch = sampler.get_batch()
            assert batch.obs.dtype == np.float32
            np.testing.assert_array_equal(batch.obs[0, 0], observation)


def test_reward_and_flags_of_numpy_are_fine():
    kwargs = {"reward": lambda t: np.float64(0.5), "terminated": lambda t: np.bool_(t == 3)}
    with Sampler(replace(SERIAL, env_kwargs=kwargs)) as sampler:
        batch = sampler.get_batch()
        assert batch.terminated.any()
        assert set(np.unique(batch.rewards)) == {0.0, 0.5}


@pytest.mark.parametrize("kind", ["observation", "action"])
def test_spaces_that_differ_between_instances(kind):
    made = []

    def env():
        made.append(None)
        n = 2 + (len(made) == 3)
        if kind == "action":
            return Faulty(action_space=spaces.Discrete(n))
        space = spaces.Box(-1.0, 1.0, (n,), np.float32)
        return Faulty(space=space, observe=lambda t: np.zeros(n, np.float32))

    message = f"{kind}_space is .* here but was .* when the environment was first made"
    with pytest.raises(EnvError, match=message):
        Sampler(replace(SERIAL, env=env))


class Masked(Faulty):
    def __init__(self, mask):
        super().__init__(info=lambda t: {"action_mask": mask(t)} if mask(t) is not None else {})


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (lambda t: None if t == 3 else [1, 0, 1], "no action_mask in this step's info, though"),
        (lambda t: [1, 0, 1, 1][: 3 + (t == 3)], "the action mask has 4 entries, but Discrete"),
        (lambda t: [t != 3] * 3, "the action mask permits no action"),
    ],
)
def test_action_masks_that_are_wrong(mask, message):
    with pytest.raises(EnvError, match=message):
        sample(replace(SERIAL, env=lambda: Masked(mask)))


def test_masked_actions_are_never_taken():
    with Sampler(replace(SERIAL, env=lambda: Masked(lambda t: [1, 0, t % 2]))) as sampler:
        for _ in range(5):
            batch = sampler.get_batch()
            chosen = np.take_along_axis(batch.action_mask[:, :-1], batch.actions[..., None], 2)
            assert chosen.all()
            np.testing.assert_allclose(
                batch.log_probs, -np.log(batch.action_mask[:, :-1].sum(-1)), rtol=1e-6
            )


class Vector(gym.vector.SyncVectorEnv):
    def __init__(self, **kwargs):
        super().__init__([lambda: Faulty(**kwargs)] * 2)


def test_vector_environments_name_their_first_lane():
    config = replace(SERIAL, env=Vector, env_kwargs={"reward": later(fail)})
    with pytest.raises(EnvError, match="rollout worker 0, env Vector, lane 0: ValueError: the eng"):
        sample(config)


@pytest.mark.parametrize(("position", "name"), [(1, "rewards"), (2, "terminated")])
def test_vector_environments_return_a_value_for_each_lane(position, name):
    """One for all lanes would do for numpy, which repeats it."""

    class OneForAll(Vector):
        def step(self, actions):
            returned = list(super().step(actions))
            returned[position] = returned[position][0]
            return tuple(returned)

    message = rf"lane 0: step\(\) returned {name} of shape \(\), not \(2,\); return one for each"
    with pytest.raises(EnvError, match=message):
        sample(replace(SERIAL, env=OneForAll))


def test_vector_environments_that_reset_at_once_are_refused():
    def env():
        mode = gym.vector.AutoresetMode.SAME_STEP
        return gym.vector.SyncVectorEnv([Faulty] * 2, autoreset_mode=mode)

    with pytest.raises(ConfigError, match="autoreset_mode is SAME_STEP; make it with autoreset"):
        sample(replace(SERIAL, env=env))
