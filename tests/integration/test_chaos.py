"""Processes that are killed or stopped at random instants: no hang, nothing wrong, nothing left."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from helpers.counting import CounterChecker
from helpers.faults import Faulty, LeavesChild, hang, later
from helpers.models import make_history
from helpers.processes import (
    PATIENCE,
    all_ready,
    fork_server,
    is_alive,
    marked,
    open_files,
    wait_until,
    workers_of,
)

from sampler import Sampler, SamplerConfig

CONFIG = SamplerConfig(
    env="fastrl/Counter-v0",
    env_kwargs={"max_length": 12, "copies": 8},
    workers=4,
    envs_per_worker=4,
    rollout=8,
    batch=8,
    policy_workers=2,
    inference="random",
    max_restarts=10_000,
    seed=11,
)


class Killer(threading.Thread):
    """Kills and stops workers of a sampler at random instants, a number of times."""

    def __init__(self, sampler, times, kinds=("rollout", "policy"), pause=0.03, seed=0):
        super().__init__(daemon=True)
        self.sampler, self.kinds = sampler, kinds
        self.times, self.pause = times, pause
        self.random = random.Random(seed)
        self.killed = set()
        self.stopped = 0

    def run(self):
        done = 0
        while done < self.times:
            time.sleep(self.random.uniform(0, self.pause))
            stats = self.sampler.stats()
            pid = self.random.choice([w["pid"] for kind in self.kinds for w in stats[kind]])
            if pid == 0 or pid in self.killed:
                continue  # not started yet
            done += 1
            kind = self.random.choice(["kill", "kill", "stop", "stop and kill"])
            if kind != "kill":
                self.stopped += 1
                os.kill(pid, signal.SIGSTOP)
                time.sleep(self.random.uniform(0, 5 * self.pause))
            if kind == "stop":
                os.kill(pid, signal.SIGCONT)
            else:
                os.kill(pid, signal.SIGKILL)
                self.killed.add(pid)


def survive(sampler, checker, killer):
    """Consume and check batches while the killer works, then until everybody is well again."""
    killer.start()
    while killer.is_alive():
        checker.add(sampler.get_batch(timeout=PATIENCE))

    def recovered():
        return all_ready(sampler) and sampler.stats()["restarts"] == len(killer.killed)

    wait_until(recovered, "all workers to be there again")
    for _ in range(3 * sampler.config.batch_buffers):
        checker.add(sampler.get_batch(timeout=PATIENCE))
    checker.drain()
    checker.check()
    assert killer.killed
    assert sampler.stats()["restarts"] == len(killer.killed)
    steps = sampler.stats()["steps"]
    delivered, lost = checker.counts["steps"], sampler.stats()["lost_steps"]
    # A step between the environment and the counter, or a row between the two, may go uncounted.
    slack = len(killer.killed) * sampler.config.envs_per_worker * 2
    assert abs(steps - delivered - lost) <= slack
    return checker


@pytest.mark.parametrize(
    ("victims", "kills", "overlap"),
    [
        ("rollout", 8, 5),
        ("policy", 4, 0),
        pytest.param("rollout", 100, 0, marks=pytest.mark.slow),
        pytest.param("policy", 100, 5, marks=pytest.mark.slow),
        pytest.param("both", 200, 0, marks=pytest.mark.slow),
        pytest.param("both", 200, 5, marks=pytest.mark.slow),
        pytest.param("local", 200, 5, marks=pytest.mark.slow),
    ],
)
def test_workers_are_killed_and_stopped(victims, kills, overlap):
    """ "local": rollout workers that choose their own actions."""
    policy_workers = 0 if victims == "local" else CONFIG.policy_workers
    with Sampler(replace(CONFIG, overlap=overlap, policy_workers=policy_workers)) as sampler:
        kinds = {"both": ("rollout", "policy"), "policy": ("policy",)}.get(victims, ("rollout",))
        checker = CounterChecker(sampler, restarts=kills)
        survive(sampler, checker, Killer(sampler, kills, kinds))
        assert not checker.given_up


def test_the_fork_server_is_killed():
    """All its children then seem to have ended, though they have not. That is one failure."""
    with Sampler(replace(CONFIG, max_restarts=1)) as sampler:
        checker = CounterChecker(sampler, restarts=1)
        for _ in range(10):
            checker.add(sampler.get_batch(timeout=PATIENCE))
        pids = [worker.pid for worker in workers_of()]
        fork_server().kill()
        count = CONFIG.workers + CONFIG.policy_workers
        assert len(pids) == count

        def restarted():
            stats = sampler.stats()
            return all(worker["restarts"] for worker in stats["rollout"] + stats["policy"])

        while not restarted():
            checker.add(sampler.get_batch(timeout=PATIENCE))
        for _ in range(30):
            checker.add(sampler.get_batch(timeout=PATIENCE))
        checker.drain()
        checker.check()
        assert sampler.stats()["restarts"] == 1
        assert not [pid for pid in pids if psutil.pid_exists(pid) and is_alive(psutil.Process(pid))]
    assert workers_of() == []


@pytest.mark.slow
def test_workers_are_killed_while_late_rows_are_given_up():
    with Sampler(replace(CONFIG, straggler_timeout=0.05)) as sampler:
        checker = CounterChecker(sampler, gaps=True, restarts=200)
        survive(sampler, checker, Killer(sampler, 200))


@pytest.mark.slow
def test_policy_workers_with_recurrent_state_are_killed():
    """Their states are lost: the rows that went on from them begin again."""
    config = replace(CONFIG, inference="model", precision="float32")
    with Sampler(config, make_history) as sampler:
        sampler.get_batch()
        checker = CounterChecker(sampler, gaps=True, restarts=60)
        survive(sampler, checker, Killer(sampler, 20, pause=1.0))
        assert checker.given_up == 0


SCRIPT = """
    import subprocess, sys
    import gymnasium as gym
    from sampler import Sampler, SamplerConfig
    from sampler.envs.counter import CounterEnv

    class WithChild(CounterEnv):
        def __init__(self):
            super().__init__()
            self.child = subprocess.Popen(["sleep", "1000"])

        def close(self):
            pass  # forgets its child

    config = SamplerConfig(env=WithChild, workers=3, envs_per_worker=2, rollout=8, batch=4,
                           policy_workers=2, inference="random")
    with Sampler(config) as sampler:
        for number, batch in enumerate(sampler):
            if number == 20:
                print("running", flush=True)
            if number == {last}:
                break
    print("closed", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def temporary():
    """An empty folder in place of /tmp; not pytest's, whose names are too long for sockets."""
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        yield Path(folder)


def start_script(last, temporary):
    mark = f"FASTRL_TEST_MARK={uuid.uuid4()}"
    name, value = mark.split("=")
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SCRIPT.replace("{last}", str(last)))],
        env={**os.environ, name: value, "TMPDIR": str(temporary)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    return process, mark


def uses_dev_shm(process):
    """Whether a process has anything of /dev/shm open or mapped, such as a named semaphore."""
    maps = Path(f"/proc/{process.pid}/maps").read_text()
    return "/dev/shm" in maps or any("/dev/shm" in name for name in open_files(process.pid))


def family_of(process, mark):
    """Everything that the script has started, directly or not."""
    return [member for member in marked(mark) if member.pid != process.pid]


def end(process, mark):
    """Whatever a test left, so that it does not disturb the next."""
    for left in marked(mark):
        with suppress(psutil.NoSuchProcess):
            left.kill()
    process.communicate()


@pytest.mark.parametrize("stopped", [False, True])
def test_nothing_is_left_when_the_caller_is_killed(stopped, temporary):
    process, mark = start_script(-1, temporary)
    try:
        assert process.stdout.readline() == "running\n"
        # Five workers, an environment's child for each lane, multiprocessing's two servers.
        wait_until(lambda: len(family_of(process, mark)) == 5 + 6 + 2, "the whole family")
        family = family_of(process, mark)
        assert not [member for member in (process, *family) if uses_dev_shm(member)]
        for member in family if stopped else []:
            if member.ppid() != process.pid:  # not multiprocessing's servers
                member.suspend()
        process.kill()
        process.wait()
        wait_until(lambda: not marked(mark), "the end of the family")
        assert list(temporary.iterdir()) == []
    finally:
        end(process, mark)


def test_nothing_is_left_of_environments_when_a_sampler_closes(temporary):
    process, mark = start_script(25, temporary)
    try:
        assert process.stdout.readline() == "running\n"
        assert process.stdout.readline() == "closed\n"
        wait_until(lambda: len(family_of(process, mark)) == 2, "the end of all workers")
        for member in family_of(process, mark):
            assert "multiprocessing" in " ".join(member.cmdline())
        process.communicate()
        wait_until(lambda: not marked(mark), "the end of multiprocessing's servers")
        assert list(temporary.iterdir()) == []
    finally:
        end(process, mark)


def test_what_environments_leave_ends_with_their_process(tmp_path, monkeypatch):
    """Not only when the caller ends the group of a dead worker: the caller may be killed then."""
    config = replace(CONFIG, env=LeavesChild, env_kwargs={"folder": str(tmp_path)})
    with Sampler(config) as sampler:
        sampler.get_batch(timeout=PATIENCE)
        for module in ("process.launch", "runtime.supervisor"):
            monkeypatch.setattr(f"sampler.{module}.end_group", lambda process: None)
    children = [int(path.name) for path in tmp_path.iterdir()]
    assert len(children) == 1 + CONFIG.workers * CONFIG.envs_per_worker

    left = [process for process in psutil.process_iter() if process.pid in children]
    wait_until(lambda: not any(map(is_alive, left)), "the end of the children")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_the_caller_may_be_killed_at_any_instant(seed, temporary):
    process, mark = start_script(-1, temporary)
    try:
        time.sleep(random.Random(seed).uniform(0.2, 3.0))
        process.kill()
        process.wait()
        wait_until(lambda: not marked(mark), "the end of the family")
        assert list(temporary.iterdir()) == []
    finally:
        end(process, mark)


def test_a_sampler_whose_workers_hang_can_be_closed():
    """Some in their environments, one stopped; without waiting for any of them for long."""
    config = replace(CONFIG, env=Faulty, env_kwargs={"reward": later(hang)})
    sampler = Sampler(config)

    def hanging():
        return all(worker["steps"] >= 3 for worker in sampler.stats()["rollout"])

    wait_until(hanging, "the steps of all workers")
    os.kill(sampler.stats()["rollout"][0]["pid"], signal.SIGSTOP)
    sampler.close()
    sampler.close()
    assert workers_of() == []


def test_killed_workers_leave_no_descriptors():
    with Sampler(CONFIG) as sampler:
        sampler.get_batch()
    del sampler
    before = open_files()
    with Sampler(CONFIG) as sampler:
        checker = CounterChecker(sampler, restarts=10)
        survive(sampler, checker, Killer(sampler, 3, ("rollout",)))
    del sampler, checker
    assert open_files() == before
    assert workers_of() == []
