"""Weights of another run as a start."""

from __future__ import annotations

import pytest
import torch
from helpers.runs import SMALL, only_run

from cli import train
from sampler.learner.checkpoint import CheckpointStore

FROZEN = ("--learner.learning-rate", "1e-30")  # so that the first weights are still there


def weights(run):
    return CheckpointStore(run / "checkpoints").load_latest()[0]["learner"]["model"]


def test_a_run_starts_with_the_weights_of_another_and_nothing_else(tmp_path, capsys):
    first, second = tmp_path / "first", tmp_path / "second"
    flags = [*SMALL, "--serial", "--total-steps", "500"]
    assert train.run([*flags, "--run-dir", str(first)]) == 0
    source = only_run(first)
    given = weights(source)
    assert train.run([*flags, *FROZEN, "--init-from", str(source), "--run-dir", str(second)]) == 0
    assert f"starting with the weights of {source}" in capsys.readouterr().out
    found = weights(only_run(second))
    assert found.keys() == given.keys()
    for name, tensor in given.items():
        torch.testing.assert_close(found[name], tensor, msg=name)
    assert CheckpointStore(only_run(second) / "checkpoints").load_latest()[0]["steps"] < 600
    (file,) = (source / "checkpoints").iterdir()
    third = tmp_path / "third"
    assert train.run([*flags, *FROZEN, "--init-from", str(file), "--run-dir", str(third)]) == 0
    torch.testing.assert_close(weights(only_run(third)), given)


@pytest.mark.parametrize("other", [["--model.hidden", "8"], ["--algo", "r2d2"]])
def test_weights_that_do_not_fit_are_an_error_of_one_line(tmp_path, capsys, other):
    folder = ["--run-dir", str(tmp_path / "runs"), "--serial"]
    assert train.run([*SMALL, *folder, "--total-steps", "200"]) == 0
    source = only_run(tmp_path / "runs")
    sizes = [] if other[0] == "--model.hidden" else ["--env", "CartPole-v1"]
    arguments = sizes or SMALL
    capsys.readouterr()
    assert train.run([*arguments, *folder, *other, "--init-from", str(source)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "the weights do not fit" in err
    assert train.run([*SMALL, *folder, "--init-from", "nothing"]) == 2
    assert "no run 'nothing'" in capsys.readouterr().err
