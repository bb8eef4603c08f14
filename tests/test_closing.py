"""However a sampler or its caller ends, nothing stays behind and nothing waits."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import threading
from dataclasses import replace

import numpy as np
import pytest
from helpers.counting import run_counter
from helpers.processes import PATIENCE, open_files, wait_until, workers_of
from helpers.samplers import PROCESSES, use_up

from sampler import BatchTimeout, FastrlError, Sampler
from sampler.shm.counters import Stage


def test_closing_twice_and_using_a_closed_sampler():
    sampler = Sampler(PROCESSES)
    batch = sampler.get_batch()
    copy = batch.rewards.copy()
    sampler.close()
    sampler.close()
    np.testing.assert_array_equal(batch.rewards, copy)  # who holds a batch may go on with it
    batch.release()
    assert sampler.closed
    assert list(sampler) == []
    with pytest.raises(FastrlError, match="closed"):
        sampler.get_batch()
    sampler.stats()
    sampler.episodes()
    assert workers_of() == []


def test_closing_from_another_thread_ends_a_waiting_get_batch():
    with Sampler(PROCESSES) as sampler:
        sampler.pause()
        with pytest.raises(BatchTimeout):
            use_up(sampler)
        raised = []

        def wait():
            try:
                sampler.get_batch(timeout=PATIENCE)
            except Exception as error:
                raised.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        wait_until(lambda: sampler.stats()["learner"]["stage"] == Stage.WAITING, "the wait")
        sampler.close()
        thread.join(PATIENCE)
        assert not thread.is_alive()
        assert isinstance(raised[0], FastrlError)
        assert "closed" in str(raised[0])


def test_a_sampler_can_live_in_a_thread():
    found = []

    def run():
        with Sampler(PROCESSES) as sampler:
            run_counter(sampler, 500)
            found.append(workers_of())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert len(found[0]) == 3
    assert workers_of() == []


def test_two_samplers_beside_each_other():
    with Sampler(PROCESSES) as first, Sampler(replace(PROCESSES, seed=4)) as second:
        run_counter(first, 500)
        run_counter(second, 500)


def shared_memories():
    """How many descriptors this process has of samplers' memory."""
    return sum(name.startswith("/memfd:fastrl") for name in open_files())


def test_a_close_that_is_interrupted_leaves_nothing(monkeypatch):
    """Ctrl-C once more, while it waits for the workers."""
    sampler = Sampler(PROCESSES)
    sampler.get_batch(timeout=PATIENCE)
    during = shared_memories()

    def interrupted(timeout):
        raise KeyboardInterrupt

    (watcher,) = (t for t in threading.enumerate() if t.name == "fastrl supervisor")
    monkeypatch.setattr(watcher, "is_alive", lambda: True)  # it may have ended by then
    monkeypatch.setattr(watcher, "join", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sampler.close()
    assert sampler.closed
    assert workers_of() == []
    assert shared_memories() == during - 1  # the other is the mapping's


def test_an_error_of_the_caller_closes_everything():
    with pytest.raises(ZeroDivisionError), Sampler(PROCESSES) as sampler:  # noqa: PT012
        sampler.get_batch()
        1 / 0  # noqa: B018
    assert workers_of() == []


def test_a_sampler_that_is_dropped_stops_its_workers():
    sampler = Sampler(PROCESSES)
    sampler.get_batch()
    del sampler
    gc.collect()
    assert workers_of() == []


@pytest.mark.parametrize("times", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_starts_and_stops_leave_nothing(times):
    with Sampler(PROCESSES) as sampler:  # starts multiprocessing's own servers
        sampler.get_batch()
    del sampler
    before = open_files()
    for _ in range(times):
        with Sampler(PROCESSES) as sampler:
            sampler.get_batch()
    del sampler
    assert open_files() == before
    assert workers_of() == []


def run_file(tmp_path, text):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(text))
    command = [sys.executable, str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)


SCRIPT = """
    import gymnasium as gym
    from sampler import Sampler, SamplerConfig

    class Own(gym.Env):
        observation_space = gym.spaces.Discrete(100)
        action_space = gym.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            self.t = 0
            return 0, {}

        def step(self, action):
            self.t += 1
            return self.t, 1.0, self.t == 5, False, {}

    print("once")
    config = SamplerConfig(env=Own, workers=2, envs_per_worker=2, rollout=4, batch=4,
                           inference="random")
"""


def test_a_script_needs_no_main_guard(tmp_path):
    ran = run_file(
        tmp_path,
        SCRIPT
        + """
    with Sampler(config) as sampler:
        print(sampler.get_batch().rewards.shape)
    """,
    )
    assert (ran.stdout, ran.stderr, ran.returncode) == ("once\n(4, 4)\n", "", 0)


def test_a_script_that_forgets_to_close_ends_by_itself(tmp_path):
    ran = run_file(tmp_path, SCRIPT + "    sampler = Sampler(config)\n    sampler.get_batch()\n")
    assert (ran.stdout, ran.stderr, ran.returncode) == ("once\n", "", 0)


def test_a_script_that_fails_shows_its_own_error_and_ends(tmp_path):
    ran = run_file(tmp_path, SCRIPT + "    sampler = Sampler(config)\n    1 / 0\n")
    assert ran.returncode == 1
    assert ran.stderr.endswith("ZeroDivisionError: division by zero\n")
    assert ran.stderr.count("Traceback") == 1


@pytest.mark.parametrize("leave", ["os._exit(0)", "raise SystemExit"])
def test_a_fork_of_the_caller_does_not_stop_the_workers(tmp_path, leave):
    script = (
        SCRIPT
        + """
    import gc, os
    with Sampler(config) as sampler:
        sampler.get_batch()
        pid = os.fork()
        if not pid:
            sampler = None
            gc.collect()
            LEAVE
        os.waitpid(pid, 0)
        for _ in range(20):
            sampler.get_batch()
        print(sampler.stats()["restarts"])
    """
    )
    ran = run_file(tmp_path, script.replace("LEAVE", leave))
    assert (ran.stdout, ran.stderr, ran.returncode) == ("once\n0\n", "", 0)
