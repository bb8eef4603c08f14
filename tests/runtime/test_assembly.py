"""What a sampler's processes are made of, and who is given what."""

from __future__ import annotations

import errno
import os
from dataclasses import replace

import pytest
from helpers.memory import child
from helpers.processes import open_files
from helpers.samplers import PROCESSES, SERIAL

from sampler import ConfigError, Sampler, SamplerConfig
from sampler.envs.counter import CounterEnv
from sampler.process.bell import SilentBell
from sampler.runtime.assembly import assemble


@pytest.fixture
def assembly():
    """Three rollout workers, two policy workers."""
    made = assemble(replace(SERIAL, workers=3, policy_workers=2, batch=12), None)
    yield made
    made.close()


def test_a_worker_gets_the_bells_it_needs_and_no_others(assembly):
    workers, policies = assembly.worker_bells, assembly.policy_bells
    rollout = assembly.for_rollout_worker(2)
    assert (rollout.bell, rollout.peer_bells) == (workers[2], {0: policies[0]})
    assert rollout.learner_bell is assembly.bell
    assert rollout.make_model is None
    policy = assembly.for_policy_worker(0, threads=3)
    assert (policy.bell, policy.peer_bells) == (policies[0], {0: workers[0], 2: workers[2]})
    assert isinstance(policy.learner_bell, SilentBell)
    assert policy.threads == 3


def test_a_worker_that_acts_for_itself_has_no_other_bell():
    made = assemble(replace(SERIAL, policy_workers=0), None)
    local = made.for_local_worker(1)
    assert (local.bell, local.learner_bell) == (made.worker_bells[1], made.bell)
    assert [type(bell) for bell in local.peer_bells.values()] == [SilentBell]
    assert local.make_model is made.make_model
    made.close()


def tell(connection, context):
    opened = context.setup.opened
    connection.send((opened, context.config, context.facts, context.index, context.restarts))
    connection.send(open_files().count("anon_inode"))
    connection.recv()


def test_a_context_arrives_in_another_process(assembly):
    context = replace(assembly.for_policy_worker(0), restarts=4)
    with child(tell, context) as (_, connection):
        assert connection.recv() == (False, assembly.config, assembly.facts, 0, 4)
        assert connection.recv() == 3  # its own, and those of two rollout workers
        connection.send("end")


def test_everything_is_pickled_once_for_all_processes():
    """However many workers there are, and however often they are restarted."""
    pickled = []

    class Counted:
        def __call__(self, **env_kwargs):
            return CounterEnv(**env_kwargs)

        def __getstate__(self):
            pickled.append(1)
            return {}

    with Sampler(replace(PROCESSES, env=Counted(), workers=4)) as sampler:
        assert len(pickled) == 1 + 1  # for the look at the environment, and for the workers
        sampler.get_batch()
    assert len(pickled) == 2


@pytest.mark.parametrize("allowed", [0, 1, 3])
def test_refused_bells_leave_no_descriptor(monkeypatch, allowed):
    usual, made = os.eventfd, []

    def refuse(*arguments):
        if len(made) == allowed:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        made.append(usual(*arguments))
        return made[-1]

    config = SamplerConfig("CartPole-v1", inference="random", serial=True)
    before = open_files()
    monkeypatch.setattr(os, "eventfd", refuse)
    with pytest.raises(ConfigError, match=r"eventfd refused \(Too many open files\)"):
        Sampler(config)
    assert open_files() == before


def test_environments_are_closed_where_a_later_one_cannot_be_made():
    closed, made = [], []

    class Fourth(CounterEnv):
        def __init__(self):
            made.append(self)
            if len(made) == 4:  # the first one is only looked at
                raise ValueError("no more licences")
            super().__init__()

        def close(self):
            closed.append(self)

    with pytest.raises(Exception, match="no more licences"):
        Sampler(replace(SERIAL, env=Fourth, env_kwargs={}))
    assert set(closed) == set(made[:3])
