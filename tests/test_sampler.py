"""The public interface of `Sampler`, without a model."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from helpers.counting import CounterChecker, run_counter
from helpers.processes import PATIENCE, all_ready, wait_until, workers_of
from helpers.samplers import PROCESSES, SERIAL, use_up

from sampler import (
    BatchTimeout,
    ConfigError,
    FastrlError,
    ReleasedBatchError,
    Sampler,
)
from sampler.envs.counter import CounterEnv
from sampler.shm.counters import Stage


def contents(sampler, batches=3):
    """The bytes of some batches."""
    return [
        {name: array.tobytes() for name, array in sampler.get_batch().fields.items()}
        for _ in range(batches)
    ]


# ---- batches


def test_iterating_gives_batches_and_releases_them_in_turn():
    seen = []
    with Sampler(SERIAL) as sampler:
        for batch in sampler:
            assert len(batch) == 8
            assert batch.rewards.shape == (8, 8)
            assert batch.obs.shape == (8, 9, 4)
            seen.append(batch)
            if len(seen) == 5:
                break
        for old in seen[:-1]:
            with pytest.raises(ReleasedBatchError, match="released"):
                _ = old.rewards
        assert seen[-1].rewards is not None


def test_fields_have_the_documented_shapes_and_dtypes():
    with Sampler(SERIAL) as sampler:
        batch = sampler.get_batch()
        shapes = {name: (a.shape, a.dtype.name) for name, a in batch.fields.items()}
    assert shapes == {
        "obs": ((8, 9, 4), "int64"),
        "age": ((8, 9), "int32"),
        "actions": ((8, 8), "int64"),
        "log_probs": ((8, 8), "float32"),
        "rewards": ((8, 8), "float32"),
        "terminated": ((8, 8), "bool"),
        "truncated": ((8, 8), "bool"),
        "mask": ((8, 8), "bool"),
        "policy_version": ((8, 8), "int64"),
        "episode_id": ((8, 8), "int64"),
        "lane_id": ((8,), "int64"),
    }


def test_a_batch_is_views_of_the_store_and_slices_are_views_of_a_batch():
    with Sampler(SERIAL) as sampler:
        batch = sampler.get_batch()
        part = batch[2:5]
        assert len(part) == 3
        assert np.shares_memory(part.rewards, batch.rewards)
        np.testing.assert_array_equal(part.actions, batch.actions[2:5])
        np.testing.assert_array_equal(part.is_first, batch.age[2:5] == 0)
        batch.release()
        with pytest.raises(ReleasedBatchError):
            _ = part.rewards
        with pytest.raises(ReleasedBatchError):
            _ = batch[0:1]
        with pytest.raises(ReleasedBatchError):
            _ = batch.fields


@pytest.mark.parametrize("how", ["views", "copies"])
def test_copies_are_kept_and_views_change(how):
    kept = []
    with Sampler(SERIAL) as sampler:
        for _, batch in zip(range(12), sampler, strict=False):
            tensors = batch.to("cpu") if how == "views" else batch.copy().to("cpu")
            kept.append((tensors["obs"], tensors["obs"].clone()))
    changed = sum(not now.equal(then) for now, then in kept)
    assert changed == (10 if how == "views" else 0)  # the last two are not written again


def test_an_unknown_field_is_named_with_those_there_are():
    with Sampler(SERIAL) as sampler:
        batch = sampler.get_batch()
        with pytest.raises(AttributeError, match=r"'reward' in this batch; it has .*rewards"):
            _ = batch.reward
        assert not hasattr(batch, "values")
        assert batch.rnn_state is None
        assert batch.action_mask is None


def test_releasing_twice_and_after_closing_does_nothing():
    with Sampler(SERIAL) as sampler:
        batch = sampler.get_batch()
        batch.release()
        batch.release()
        other = sampler.get_batch()
    other.release()


def test_released_rows_are_poisoned_in_debug_mode():
    with Sampler(replace(SERIAL, debug=True)) as sampler:
        batch = sampler.get_batch()
        arrays = dict(batch.fields)
        assert np.isfinite(arrays["rewards"]).all()
        batch.release()
        assert np.isnan(arrays["rewards"]).all()
        assert np.isnan(arrays["log_probs"]).all()
        assert (arrays["age"] == np.iinfo(np.int32).max).all()
        assert (arrays["obs"] == np.iinfo(np.int64).max).all()
        assert arrays["terminated"].all()


@pytest.mark.parametrize(("config", "overlap"), [(SERIAL, 5), (PROCESSES, 0)])
def test_poison_never_comes_back_in_a_batch(config, overlap):
    with Sampler(replace(config, debug=True, overlap=overlap, buffers=2)) as sampler:
        run_counter(sampler, 1000)


def test_to_torch_gives_equal_tensors():
    import torch

    kwargs = {"max_length": 12, "frames": True}
    with Sampler(replace(SERIAL, env_kwargs=kwargs)) as sampler:
        batch = sampler.get_batch()
        tensors = batch.to("cpu")
        assert len(tensors) == len(batch)
        assert tensors.rewards.dtype == torch.float32
        assert tensors.obs.dtype == torch.uint8
        assert tensors.obs.shape == (8, 9, 4, 84, 84)
        np.testing.assert_array_equal(tensors.obs.numpy(), batch.obs)
        np.testing.assert_array_equal(tensors[1:3].is_first.numpy(), batch[1:3].is_first)
        batch.release()
        with pytest.raises(ReleasedBatchError):
            _ = tensors.rewards
        with pytest.raises(ReleasedBatchError):
            batch.to("cpu")


def test_a_batch_that_does_not_come_in_time_is_a_timeout_and_comes_later():
    with Sampler(PROCESSES) as sampler:
        sampler.pause()
        with pytest.raises(BatchTimeout, match=r"within 0 s; \d+ steps .* a batch takes 64"):
            use_up(sampler)
        sampler.resume()
        assert len(sampler.get_batch(timeout=PATIENCE)) == 8


# ---- the same seed, the same bytes


@pytest.mark.parametrize("changes", [{}, {"overlap": 3}, {"sync": True}, {"policy_workers": 2}])
def test_the_same_seed_gives_the_same_bytes_in_serial_mode(changes):
    config = replace(SERIAL, **changes)
    with Sampler(config) as first, Sampler(config) as second:
        assert contents(first) == contents(second)


def test_lanes_differ_and_change_with_the_seed():
    seeds = []
    for seed in (0, 1, 2, 2**40):
        with Sampler(replace(SERIAL, seed=seed)) as sampler:
            seeds += np.unique(sampler.get_batch().obs[:, 0, 0]).tolist()
    assert len(set(seeds)) == len(seeds) == 4 * SERIAL.lanes


def test_identical_lanes_all_have_the_same_seed():
    with Sampler(replace(SERIAL, identical_lanes=True)) as sampler:
        assert len(np.unique(sampler.get_batch().obs[..., 0])) == 1


def test_actions_differ_between_lanes_and_policy_workers():
    with Sampler(replace(SERIAL, policy_workers=2, rollout=32)) as sampler:
        batch = sampler.get_batch()
        assert len(np.unique(batch.actions, axis=0)) == len(batch)


# ---- pausing


def paused(sampler):
    """Whether no rollout worker steps any more."""
    return all(worker["stage"] == Stage.PAUSED for worker in sampler.stats()["rollout"])


def test_paused_workers_stand_still_and_lose_nothing():
    with Sampler(PROCESSES) as sampler:
        checker = CounterChecker(sampler)
        for _ in range(3):
            checker.add(sampler.get_batch())
            sampler.pause()
            wait_until(lambda: paused(sampler), "the pause")
            steps = sampler.stats()["steps"]
            assert sampler.stats()["steps"] == steps
            sampler.resume()
        run_counter(sampler, 1000, checker)


def test_pausing_and_resuming_can_be_repeated():
    with Sampler(PROCESSES) as sampler:
        sampler.pause()
        sampler.pause()
        sampler.resume()
        sampler.resume()
        assert sampler.get_batch(timeout=PATIENCE) is not None


@pytest.mark.parametrize("config", [SERIAL, PROCESSES], ids=["serial", "processes"])
def test_a_paused_sampler_makes_no_steps_and_says_so(config):
    with Sampler(config) as sampler:
        checker = CounterChecker(sampler)
        checker.add(sampler.get_batch())
        sampler.pause()
        with pytest.raises(FastrlError, match=r"paused; call resume\(\)"):  # noqa: PT012
            while True:
                checker.add(sampler.get_batch())
        steps = sampler.stats()["steps"]
        with pytest.raises(BatchTimeout, match=r"0.05 s; .* is paused: call resume\(\)"):
            sampler.get_batch(timeout=0.05)
        assert sampler.stats()["steps"] == steps
        sampler.resume()
        run_counter(sampler, 500, checker)


def test_a_sampler_may_be_paused_for_a_while_by_another_thread():
    with Sampler(PROCESSES) as sampler:
        batches = []
        sampler.pause()
        with pytest.raises(BatchTimeout):
            use_up(sampler)
        thread = threading.Thread(target=lambda: batches.append(sampler.get_batch(PATIENCE)))
        thread.start()
        sampler.resume()
        thread.join()
        assert len(batches) == 1


@pytest.mark.parametrize("config", [SERIAL, PROCESSES], ids=["serial", "processes"])
def test_a_second_thread_that_takes_batches_is_refused(config):
    def take():
        together.wait()
        try:
            sampler.get_batch(timeout=1)
        except FastrlError as error:
            errors.append(error)

    with Sampler(config) as sampler:
        sampler.pause()
        with pytest.raises(BatchTimeout):
            use_up(sampler)
        errors, together = [], threading.Barrier(2)
        threads = [threading.Thread(target=take) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        refused, waited = errors
        assert "running in another thread; take batches in one thread" in str(refused)
        assert isinstance(waited, BatchTimeout)
        sampler.resume()
        assert sampler.get_batch(PATIENCE) is not None


# ---- weights


def test_there_is_nothing_to_publish_without_a_model():
    with Sampler(SERIAL) as sampler:
        assert sampler.model is None
        with pytest.raises(ConfigError, match='inference="random"'):
            sampler.publish(None)


# ---- statistics


def test_statistics_are_nested_and_cumulative():
    with Sampler(replace(PROCESSES, policy_workers=2)) as sampler:
        before = sampler.stats()
        for _ in range(5):
            sampler.get_batch()
        after = sampler.stats()
    assert after["learner"]["batches"] == 5
    assert after["time"] > before["time"]
    assert len(after["rollout"]) == len(after["policy"]) == 2
    assert after["steps"] == sum(row["steps"] for row in after["rollout"])
    assert after["steps"] + after["masked_steps"] >= 5 * 8 * 8
    assert sum(row["observations"] for row in after["policy"]) >= 5 * 8 * 8
    assert len({row["pid"] for row in after["rollout"] + after["policy"]}) == 4
    for name in ("steps", "frames", "episodes", "masked_steps"):
        assert after[name] >= before[name]
    assert (after["lost_steps"], after["abandoned_rows"], after["restarts"]) == (0, 0, 0)
    for row in after["rollout"] + after["policy"]:
        assert all(seconds >= 0 for seconds in row["seconds"].values())


# ---- environments of all kinds


def test_a_closure_as_environment():
    length = 7
    config = replace(PROCESSES, env=lambda: CounterEnv(max_length=length), env_kwargs={})
    with Sampler(config) as sampler:
        assert sampler.get_batch(timeout=PATIENCE).age.max() <= length


def test_keyword_arguments_reach_a_callable():
    config = replace(PROCESSES, env=CounterEnv, env_kwargs={"max_length": 5})
    with Sampler(config) as sampler:
        run_counter(sampler, 500)


@pytest.mark.parametrize("config", [SERIAL, PROCESSES], ids=["serial", "processes"])
@pytest.mark.parametrize("kind", [gym.vector.SyncVectorEnv, gym.vector.AsyncVectorEnv])
def test_a_vector_environment_as_a_group(config, kind):
    if kind is gym.vector.AsyncVectorEnv and not config.serial:
        kwargs = {"daemon": False, "context": "forkserver"}
    else:
        kwargs = {}

    def env(**env_kwargs):
        return kind([lambda: CounterEnv(**env_kwargs)] * 2, **kwargs)

    with Sampler(replace(config, env=env)) as sampler:
        run_counter(sampler, 500)


def test_a_vector_environment_of_the_wrong_size_is_refused():
    config = replace(SERIAL, env=lambda: gym.vector.SyncVectorEnv([CounterEnv] * 3), env_kwargs={})
    with pytest.raises(ConfigError, match="3 lanes but a group has 2; set envs_per_worker to"):
        Sampler(config)


# ---- torch stays out


def run_script(text, *options):
    return subprocess.run(
        [sys.executable, *options, "-c", textwrap.dedent(text)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def test_importing_does_nothing_to_the_process():
    """No fork hook, filter of warnings, signal handler, thread or environment variable."""
    text = """
        import os, signal, threading, warnings
        import gymnasium, numpy, cloudpickle, psutil, multiprocessing.connection
        hooks = []
        os.register_at_fork = lambda **given: hooks.append(given)

        def state():
            handlers = [signal.getsignal(number) for number in signal.valid_signals()]
            return [*hooks], [*warnings.filters], handlers, threading.enumerate(), dict(os.environ)

        before = state()
        import sampler, sampler.runtime.local_worker, sampler.envs, sampler.process.launch
        print(state() == before)
    """
    ran = run_script(text)
    assert (ran.stdout, ran.stderr) == ("True\n", "")


@pytest.mark.parametrize(
    "module",
    [
        "sampler.shm.shared",
        "sampler.shm.parameters",
        "sampler.envs",
        # What all processes of a sampler load, and the fork server for them.
        "sampler, sampler.rollout_worker.main, sampler.policy_worker.main",
    ],
)
def test_importing_does_not_import_torch(module):
    ran = run_script(f"import {module}, sys; print('torch' in sys.modules)")
    assert (ran.stdout, ran.stderr) == ("False\n", "")


class Spy(gym.Env):
    """Observes whether torch was imported in its process."""

    observation_space = gym.spaces.Discrete(2)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return int("torch" in sys.modules), {}

    def step(self, action):
        return int("torch" in sys.modules), 0.0, False, False, {}


def test_rollout_workers_never_import_torch():
    with Sampler(replace(PROCESSES, env=Spy, env_kwargs={})) as sampler:
        assert not sampler.get_batch().obs.any()


# ---- memory


@pytest.mark.parametrize(("steps", "overlap"), [(32, 0), (20, 0), (80, 40)])
def test_a_stacked_frame_is_stored_once(steps, overlap):
    """At most 3 % on top of the frames themselves, with the outputs of a policy for 18 actions."""
    from sampler.shm.store import ArraySpec, StoreSpec

    frame = ArraySpec("obs", (84, 84), np.dtype(np.uint8))
    action = ArraySpec("actions", (), np.dtype(np.int64))
    spec = StoreSpec(
        buffers=4,
        rows=64,
        steps=steps,
        overlap=overlap,
        rows_per_token=8,
        observations=(frame,),
        actions=(action,),
        frame_stack=4,
        outputs={"log_probs": (), "values": (), "logits": (18,)},
    )
    bound = 1.03 * 7056 * (steps + 4) / steps
    assert 7056 * (steps + 4) / steps < spec.bytes_per_step <= bound


def test_a_sampler_reports_the_bytes_of_its_store():
    kwargs = {"frames": True}
    with Sampler(replace(SERIAL, env_kwargs=kwargs, rollout=32)) as sampler:
        assert sampler.bytes_per_step <= 1.03 * 7056 * 36 / 32


def test_every_finished_row_is_delivered_or_stored():
    with Sampler(SERIAL) as sampler:
        checker = CounterChecker(sampler)
        for _ in range(4):
            checker.add(sampler.get_batch())
        checker.drain()
        checker.check(drained=True)


# ---- what is known of each worker


@pytest.mark.parametrize("config", [SERIAL, PROCESSES], ids=["serial", "processes"])
def test_statistics_say_what_each_worker_is_doing(config):
    with Sampler(config) as sampler:
        sampler.get_batch(timeout=PATIENCE)
        wait_until(lambda: all_ready(sampler), "the start of all workers")
        stats = sampler.stats()
        workers = stats["rollout"] + stats["policy"]
        assert len(workers) == config.workers + config.policy_workers
        running = {process.pid for process in workers_of()}
        assert {worker["pid"] for worker in workers} == (running or {0})
        assert all(isinstance(worker["stage"], Stage) for worker in workers)
        assert [worker["restarts"] for worker in workers] == [0] * len(workers)
        assert stats["learner"]["stage"] == Stage.LEARNING
