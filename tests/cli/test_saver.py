from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest
import torch

from cli import saver as saver_module
from cli.saver import Saver
from sampler.errors import FastrlError
from sampler.learner.checkpoint import CheckpointStore
from sampler.learner.trainer import Progress


@pytest.fixture
def trainer():
    weight = torch.nn.Parameter(torch.zeros(2))
    learner = SimpleNamespace(
        non_finite_weight=lambda: None, optimiser=torch.optim.SGD([weight], 1.0)
    )
    return SimpleNamespace(
        weight=weight,
        learner=learner,
        progress=Progress(),
        state_dict=lambda: {"weight": weight.detach().clone()},
    )


def at(trainer, steps):
    trainer.progress = Progress(steps=steps)
    return trainer.progress


def test_checkpoints_come_by_steps_or_by_time_whichever_is_first(trainer, tmp_path, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    store = CheckpointStore(tmp_path)
    saver = Saver(store, trainer, every=100, seconds=600.0)
    for now, steps, newest in ((1, 90, None), (2, 110, 110), (601, 150, 110), (602, 160, 160)):
        clock[0] = float(now)
        saver(at(trainer, steps))
        names = [path.name for path in store.paths()]
        assert names[:1] == ([] if newest is None else [f"checkpoint_{newest:012d}.pt"])


def test_it_says_what_is_saved(trainer, tmp_path):
    saver = Saver(CheckpointStore(tmp_path), trainer, every=0)
    assert saver.describe() == "no checkpoint is saved"
    at(trainer, 57_507)
    saver.save()
    assert saver.describe() == "saved step 57,507"
    at(trainer, 60_000)
    assert saver.describe() == "the last checkpoint is that of step 57,507"


def test_only_what_has_learned_counts_as_a_save(trainer, tmp_path):
    saved = []
    saver = Saver(CheckpointStore(tmp_path), trainer, 0, on_save=lambda: saved.append(1))
    saver.save()
    assert saved == []
    at(trainer, 8)
    saver.save()
    assert saved == [1]


def test_another_thread_saves_between_steps_of_the_optimiser_never_within_one(trainer, tmp_path):
    store = CheckpointStore(tmp_path)
    saver = Saver(store, trainer, 0)
    saver.keep_weights_whole()
    optimiser, weight = trainer.learner.optimiser, trainer.weight
    inside, leave = threading.Event(), threading.Event()

    def halfway(*_):
        weight.data[0] = 7.0  # half of the weights are new
        inside.set()
        assert leave.wait(10)
        weight.data[1] = 7.0

    optimiser.register_step_pre_hook(halfway)
    at(trainer, 8)
    stepping = threading.Thread(target=optimiser.step)
    stepping.start()
    assert inside.wait(10)
    saving = threading.Thread(target=saver.save)
    saving.start()
    time.sleep(0.2)
    assert store.paths() == []
    leave.set()
    saving.join(10)
    stepping.join(10)
    assert store.load_latest()[0]["weight"].tolist() == [7.0, 7.0]


def test_a_step_without_end_is_an_error_and_no_wait_without_end(trainer, tmp_path, monkeypatch):
    monkeypatch.setattr(saver_module, "STEP_TIMEOUT", 0.1)
    saver = Saver(CheckpointStore(tmp_path), trainer, 0)
    saver.keep_weights_whole()
    inside, leave = threading.Event(), threading.Event()

    def wait(*_):
        inside.set()
        assert leave.wait(10)

    trainer.learner.optimiser.register_step_pre_hook(wait)
    stepping = threading.Thread(target=trainer.learner.optimiser.step)
    stepping.start()
    assert inside.wait(10)
    with pytest.raises(FastrlError, match="nothing was saved"):
        saver.save()
    leave.set()
    stepping.join(10)
