"""A small training run, and what it leaves behind."""

from __future__ import annotations

import csv


def words(text):
    return text.split()


SMALL = words("--env CartPole-v1 --workers 1 --envs-per-worker 4 --rollout 8 --batch 4")


def rows_of(run):
    with (run / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def only_run(folder):
    (run,) = (path for path in folder.iterdir() if not path.is_symlink())
    return run
