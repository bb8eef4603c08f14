"""Values that do not fit an environment's spaces end in one line that names the lane and them."""

from __future__ import annotations

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from helpers.failures import PROCESSES, SERIAL, error_of, sample
from helpers.faults import BOX, GOOD, Faulty, fail, later
from helpers.processes import workers_of

from sampler import EnvError, Sampler, seeds

DICT = spaces.Dict({"a": BOX, "b": spaces.Discrete(3)})
TUPLE = spaces.Tuple((BOX, spaces.MultiBinary(2)))
IN_WORKER_0 = "rollout worker 0, env Faulty, lane 0: "
IN_WORKER_0_LAST = "rollout worker 0, env Faulty, lane 1: "  # found when all lanes were stepped


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
        {
            "space": spaces.Box(-1, 1, (2,), np.int8),
            "observe": lambda t: np.int8([0, 2 if t >= 2 else 1]),
        },
        "obs holds 2 at index (1,), outside its space Box(-1, 1, (2,), int8) "
        "(step 2 of the row); correct the environment, or its observation_space",
    ),
    "observation that is infinite": (
        {"observe": from_step(2, np.array([1.5, -np.inf], np.float32))},
        "obs holds -inf at index (1,), outside its space Box(-1.0, 1.0, (2,), float32) "
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
    "number as text": ({"reward": lambda t: "1"}, "rewards ['1', '1'] are not all numbers"),
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
    "nothing as terminated": (
        {"terminated": lambda t: None},
        "step() returned terminated=None of type NoneType; return a bool",
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


def test_a_reward_beyond_float32_is_refused_without_a_warning(recwarn):
    error = error_of(SERIAL, {"reward": lambda t: 1e300})
    assert "reward inf (step 0 of the row); rewards must be finite" in str(error)
    assert not [str(w.message) for w in recwarn if "overflow" in str(w.message)]


@pytest.mark.parametrize(("kwargs", "message"), WRONG_VALUES.values(), ids=WRONG_VALUES)
def test_wrong_values(kwargs, message):
    error = error_of(SERIAL, kwargs)
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
    error = error_of(PROCESSES, kwargs)
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
            return (GOOD * (np.nan if self.bad else 1), *rest)

    bad_seed = seeds.integer(0, seeds.LANE, 2, 0)
    with pytest.raises(EnvError, match=r"rollout worker 1, env \S*OneBadLane, lane 2: obs holds"):
        sample(replace(SERIAL, env=OneBadLane))


def test_finite_floats_outside_a_box_are_used_and_warned_of_once_by_each_worker(caplog):
    kwargs = {"observe": lambda t: np.array([0, 1.5 * t], np.float32)}
    with Sampler(replace(SERIAL, env_kwargs=kwargs)) as sampler:
        for _ in range(20):
            batch = sampler.get_batch()
            assert batch.obs.max() == 9.0
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == SERIAL.workers
    for lane, message in zip((0, 2), sorted(messages), strict=True):
        assert message.startswith(
            f"env Faulty, lane {lane}: obs holds 1.5 at index (1,), outside its space "
            "Box(-1.0, 1.0, (2,), float32); "
        )


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
