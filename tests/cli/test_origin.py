"""What a run folder says about where its run comes from."""

from __future__ import annotations

import os
import platform
import subprocess

import numpy as np
import torch

from cli.origin import commit, describe, origin


def git(folder, *arguments):
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    alone = os.environ | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    subprocess.run(
        ["git", *who, *arguments], cwd=folder, check=True, capture_output=True, env=alone
    )


def test_settings_versions_host_and_cores():
    found = origin("appo with settings for small tasks")
    assert found["settings"] == "appo with settings for small tasks"
    assert found["versions"]["python"] == platform.python_version()
    assert found["versions"]["numpy"] == np.__version__
    assert found["versions"]["torch"] == torch.__version__
    assert {"fastrl", "gymnasium", "ale-py"} <= set(found["versions"])
    assert found["host"] == platform.node()
    assert found["cores"] >= 1
    assert f"numpy {np.__version__}" in describe(found)


def test_the_commit_of_a_checkout_and_whether_files_differ(tmp_path):
    assert commit(tmp_path) is None
    git(tmp_path, "init")
    (tmp_path / "a").write_text("1")
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "-m", "one")
    found = commit(tmp_path)
    assert found is not None
    assert len(found) == 40
    (tmp_path / "a").write_text("2")
    assert commit(tmp_path) == f"{found}+changes"


def test_no_git(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit(tmp_path) is None
