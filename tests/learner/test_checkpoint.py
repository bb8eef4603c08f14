"""Checkpoints survive kills and damage, and never run code."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import warnings

import pytest
import torch

from sampler.errors import ConfigError, FastrlError
from sampler.learner import checkpoint
from sampler.learner.checkpoint import CheckpointError, CheckpointStore, load, save

STATE = {"weights": torch.arange(1000.0), "nested": {"steps": 7, "names": ["a", "b"], "none": None}}


def state(number: int) -> dict:
    return {"number": number, "weights": torch.full((500,), float(number))}


def test_what_is_saved_reads_back(tmp_path):
    save(tmp_path / "deep" / "a.pt", STATE)
    back = load(tmp_path / "deep" / "a.pt")
    assert torch.equal(back["weights"], STATE["weights"])
    assert back["nested"] == STATE["nested"]
    plain = torch.load(tmp_path / "deep" / "a.pt", weights_only=True)
    assert plain["state"]["nested"] == STATE["nested"]
    assert sorted(p.name for p in (tmp_path / "deep").iterdir()) == ["a.pt"]


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_a_truncated_file_is_damaged(tmp_path, share):
    path = tmp_path / "a.pt"
    save(path, STATE)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(CheckpointError, match="damaged or foreign") as error:
        load(path)
    assert "\n" not in str(error.value)
    assert isinstance(error.value, FastrlError)


def test_every_flipped_bit_of_a_weight_is_noticed(tmp_path):
    path = tmp_path / "a.pt"
    save(path, STATE)
    content = bytearray(path.read_bytes())
    start = bytes(content).index(STATE["weights"].numpy().tobytes())
    for offset in range(0, 4000, 391):
        damaged = bytearray(content)
        damaged[start + offset] ^= 0x40
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match="damaged or foreign"):
            load(path)


def test_loading_runs_no_code(tmp_path):
    class Evil:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "pwned"),))

    path = tmp_path / "a.pt"
    torch.save({"format": checkpoint.FORMAT, "version": 1, "state": Evil()}, path)
    with pytest.raises(CheckpointError, match="holds more than tensors and plain values"):
        load(path)
    path.write_bytes(pickle.dumps(Evil()))
    with pytest.raises(CheckpointError, match="damaged or foreign"):
        load(path)
    assert not (tmp_path / "pwned").exists()


def test_missing_foreign_and_future_files(tmp_path):
    with pytest.raises(CheckpointError, match="does not exist"):
        load(tmp_path / "none.pt")
    torch.save({"weights": torch.zeros(3)}, tmp_path / "foreign.pt")
    with pytest.raises(CheckpointError, match="was not written by fastrl"):
        load(tmp_path / "foreign.pt")
    torch.save({"format": checkpoint.FORMAT, "version": 99, "state": {}}, tmp_path / "future.pt")
    with pytest.raises(CheckpointError, match="format version 99"):
        load(tmp_path / "future.pt")


@pytest.mark.parametrize("state", [{}, [1, 2], None, {"steps": 3}])
def test_states_of_something_else(tmp_path, state):
    content = {"format": checkpoint.FORMAT, "version": checkpoint.VERSION, "state": state}
    torch.save(content, tmp_path / "checkpoint_3.pt")
    with pytest.raises(CheckpointError, match="lacks 'learner'; use one of a training run"):
        load(tmp_path / "checkpoint_3.pt", fields=("steps", "learner")[::-1])
    reports: list[str] = []
    store = CheckpointStore(tmp_path, report=reports.append, fields=("learner", "steps"))
    store.save({"learner": {}, "steps": 1}, 1)
    assert store.load_latest()[0]["steps"] == 1
    assert "lacks 'learner'" in reports[0]


@pytest.mark.parametrize("learner", [{}, 3, [1], {"weights": 1}])
def test_states_without_a_part_of_a_part(tmp_path, learner):
    save(tmp_path / "checkpoint_3.pt", {"learner": learner, "steps": 3})
    with pytest.raises(CheckpointError, match=r"lacks 'learner\.model'; use one of"):
        load(tmp_path / "checkpoint_3.pt", fields=("steps", "learner.model"))
    save(tmp_path / "checkpoint_4.pt", {"learner": {"model": {}}, "steps": 4})
    assert load(tmp_path / "checkpoint_4.pt", fields=("steps", "learner.model"))["steps"] == 4


@pytest.mark.parametrize("moment", ["fsync", "replace", "load"])
def test_a_kill_while_saving_leaves_the_old_file(tmp_path, monkeypatch, moment):
    """SystemExit stands for the kill: it must not matter what had been done until then."""
    path = tmp_path / "a.pt"
    save(path, state(1))

    def kill(*args, **kwargs):
        raise SystemExit

    with monkeypatch.context() as patch:
        if moment == "load":
            patch.setattr(checkpoint, "load", kill)
        else:
            patch.setattr(os, moment, kill)
        with pytest.raises(SystemExit):
            save(path, state(2))
    assert load(path)["number"] == 1


def test_saving_takes_no_memory_for_a_second_state(tmp_path):
    """As much as a replay may have: reading all of it back would double it."""
    program = """
import resource, sys, torch
from pathlib import Path
from sampler.learner.checkpoint import save

state = {"replay": torch.ones(50_000_000)}
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
save(Path(sys.argv[1]), state)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    path = tmp_path / "a.pt"
    command = [sys.executable, "-c", program, str(path)]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert path.stat().st_size > 200_000_000  # bytes
    assert int(result.stdout) < 50_000  # KiB


def test_a_refusing_disk_is_one_line(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match="No space left on device; free space"):
        save(tmp_path / "a.pt", STATE)
    assert list(tmp_path.iterdir()) == []


def test_the_last_few_and_the_best_are_kept(tmp_path):
    store = CheckpointStore(tmp_path, keep=2)
    for number in (10, 200, 3000):
        store.save(state(number), number)
    store.save_best(state(5))
    assert [p.name for p in store.paths()] == [
        "checkpoint_000000003000.pt",
        "checkpoint_000000000200.pt",
    ]
    latest, path = store.load_latest()
    assert (latest["number"], path) == (3000, store.paths()[0])
    assert load(store.best)["number"] == 5


def test_leftovers_of_a_killed_save_are_removed(tmp_path):
    leftover = tmp_path / ".checkpoint_000000000005.pt.123.tmp"
    leftover.write_bytes(b"half")
    store = CheckpointStore(tmp_path)
    assert store.paths() == []
    store.save(state(1), 1)
    assert not leftover.exists()


def test_a_damaged_latest_falls_back_loudly(tmp_path):
    reports: list[str] = []
    store = CheckpointStore(tmp_path, report=reports.append)
    for number in (1, 2, 3):
        store.save(state(number), number)
    newest = store.paths()[0]
    newest.write_bytes(newest.read_bytes()[:-100])
    latest, _ = store.load_latest()
    assert latest["number"] == 2
    assert len(reports) == 1
    assert str(newest) in reports[0]
    assert "falling back" in reports[0]
    with pytest.warns(UserWarning, match="falling back"):
        CheckpointStore(tmp_path).load_latest()


def test_nothing_to_load_is_never_a_fresh_start(tmp_path):
    store = CheckpointStore(tmp_path / "none")
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        store.load_latest()
    store.save(state(1), 1)
    store.paths()[0].write_bytes(b"")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(CheckpointError, match="all 1 checkpoints"):
            store.load_latest()
    with pytest.raises(ConfigError, match="keep=1"):
        CheckpointStore(tmp_path, keep=1)
