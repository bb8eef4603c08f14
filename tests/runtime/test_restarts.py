from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
import traceback
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.counting import CounterChecker, run_counter
from helpers.faults import Faulty, fail, in_worker, later
from helpers.inspection import failure
from helpers.processes import PATIENCE, all_ready, wait_until, workers_of

from sampler import EnvError, Sampler, SamplerConfig, WorkerError
from sampler.runtime import supervisor

CONFIG = SamplerConfig(
    env=Faulty,
    workers=2,
    envs_per_worker=2,
    groups=1,
    rollout=4,
    batch=2,
    inference="random",
)


def sample(sampler, batches):
    for _ in range(batches):
        sampler.get_batch(timeout=PATIENCE)


class FailsOnce(Faulty):
    """Fails at one step of one lane in the whole run: whoever is first to make the file."""

    def __init__(self, path):
        super().__init__(reward=later(self.fail_once))
        self.path = Path(path)

    def fail_once(self):
        try:
            self.path.touch(exist_ok=False)
        except FileExistsError:
            return
        fail()


class SlowReset(Faulty):
    """Takes seconds to be reset in a worker."""

    def reset(self, **arguments):
        time.sleep(2.0 if in_worker() else 0.0)
        return super().reset(**arguments)


def test_a_worker_that_fails_is_started_again_and_the_error_logged(tmp_path, caplog):
    config = replace(CONFIG, env=FailsOnce, env_kwargs={"path": str(tmp_path / "failed")})
    with Sampler(config) as sampler, caplog.at_level(logging.WARNING, "fastrl"):
        while sampler.stats()["restarts"] < 1:
            sampler.get_batch(timeout=PATIENCE)
        wait_until(lambda: all_ready(sampler), "the new worker")
        sample(sampler, 30)
        assert sampler.stats()["restarts"] == 1
        assert sampler.stats()["lost_steps"] <= 2 * 4
        assert len(workers_of()) == 3
    message = r"ValueError: the engine is gone; restart 1 of 3"
    assert [text for text in caplog.messages if text.endswith(message)]


class FailsLate(Faulty):
    """Fails at its 40th step, when some of its worker's rows are full."""

    def __init__(self):
        super().__init__(reward=lambda t: self.count())
        self.steps = 0

    def count(self):
        self.steps += 1
        return 1.0 if self.steps < 40 else fail()


def test_the_limit_of_restarts_is_of_all_workers_together():
    config = replace(CONFIG, env=FailsLate, max_restarts=3)
    with Sampler(config) as sampler:
        with pytest.raises(EnvError) as caught:
            sample(sampler, 1000)
        text = str(caught.value)
        assert text.startswith("gave up after 3 restarts (max_restarts): rollout worker ")
        assert text.endswith("ValueError: the engine is gone")
        assert sampler.stats()["restarts"] == 3
        with pytest.raises(EnvError):  # and it stays so
            sampler.get_batch()
    assert workers_of() == []


def test_an_error_that_comes_back_at_once_is_not_tried_again():
    config = replace(CONFIG, env_kwargs={"reward": later(fail)}, workers=1, max_restarts=100)
    with Sampler(config) as sampler:
        with pytest.raises(EnvError) as caught:
            sample(sampler, 1000)
        text = str(caught.value)
        assert text.startswith("gave up, for a restart changed nothing: rollout worker 0, env F")
        assert text.endswith("ValueError: the engine is gone")
        assert sampler.stats()["restarts"] == 1


@pytest.mark.parametrize("serial", [False, True])
def test_an_error_shows_the_line_of_the_environment_that_raised_it(serial, caplog):
    config = replace(CONFIG, env_kwargs={"reward": later(fail)}, serial=serial)
    caplog.set_level(logging.INFO, "fastrl")
    with Sampler(config) as sampler, pytest.raises(EnvError) as caught:
        sample(sampler, 1000)
    shown = "".join(traceback.format_exception(caught.value))
    for text in (shown, caught.value.traceback_text, caplog.text)[: 1 if serial else 3]:
        assert re.search(r'File ".*faults.py", line \d+, in fail\n\s+raise ValueError', text)


def test_so_it_does_where_the_environment_is_the_script_s_own(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import traceback
            from gymnasium.envs.classic_control.cartpole import CartPoleEnv
            from sampler import FastrlError, Sampler, SamplerConfig

            class Mine(CartPoleEnv):
                def step(self, action):
                    return {}["missing"]

            config = SamplerConfig(env=Mine, workers=1, envs_per_worker=1, rollout=4, batch=1,
                                   inference="random")
            try:
                with Sampler(config) as sampler:
                    sampler.get_batch()
            except FastrlError:
                traceback.print_exc()
            """
        )
    )
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    expected = f'File "{script}", line 8, in step\n    return {{}}["missing"]'
    assert expected in ran.stderr


def test_who_is_still_starting_is_logged(monkeypatch, caplog):
    monkeypatch.setattr(supervisor, "FIRST_NOTICE", 0.5)
    caplog.set_level(logging.INFO, "fastrl")
    with Sampler(replace(CONFIG, env=SlowReset)) as sampler:
        sample(sampler, 1)
    notices = [text for text in caplog.messages if text.startswith("still starting after ")]
    assert len(notices) == 1
    assert re.fullmatch(
        r"still starting after \d+ s: (rollout worker 0, env SlowReset, lane [01]|policy worker 0)"
        r"( and \d more)?",
        notices[0],
    )


@pytest.mark.parametrize("kind", ["rollout", "policy"])
def test_a_worker_that_is_killed_is_named(kind):
    with Sampler(replace(CONFIG, max_restarts=0)) as sampler:
        sampler.get_batch(timeout=PATIENCE)
        os.kill(sampler.stats()[kind][0]["pid"], signal.SIGKILL)
        name = "rollout worker 0, env Faulty, lane [01]" if kind == "rollout" else "policy worker 0"
        message = rf"gave up after 0 restarts \(max_restarts\): {name} ended unexpectedly while "
        with pytest.raises((WorkerError, EnvError), match=message + r"[a-z ]+ \(signal 9\)"):
            sample(sampler, 1000)


def test_a_failure_is_raised_although_others_go_on():
    """Batches that are ready do not hide it."""
    with Sampler(replace(CONFIG, max_restarts=0)) as sampler:
        sampler.get_batch(timeout=PATIENCE)
        os.kill(sampler.stats()["rollout"][1]["pid"], signal.SIGKILL)
        wait_until(lambda: failure(sampler), "the failure")
        with pytest.raises((WorkerError, EnvError), match="rollout worker 1"):
            sampler.get_batch()


def test_signals_change_nothing():
    """SIGUSR1 shows what a worker is doing; SIGINT is the caller's business."""
    with Sampler(replace(CONFIG, env="fastrl/Counter-v0", batch=4)) as sampler:
        checker = CounterChecker(sampler)
        checker.add(sampler.get_batch(timeout=PATIENCE))
        wait_until(lambda: all_ready(sampler), "the last worker's start")
        for row in sampler.stats()["rollout"] + sampler.stats()["policy"]:
            os.kill(row["pid"], signal.SIGUSR1)
            os.kill(row["pid"], signal.SIGINT)
        run_counter(sampler, 400, checker)
        assert sampler.stats()["restarts"] == 0
