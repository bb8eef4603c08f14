"""What `pip install -e .` gives: the commands, and a library that type checkers find."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
pytest.importorskip("setuptools", reason="builds without a download")

ROOT = Path(__file__).parents[1]
PACKAGES = ("fastrl", "sampler", "cli", "perf")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder of commands of an environment that sees the packages of this one, and into which a
    copy of the library was installed by the README's command."""
    folder = tmp_path_factory.mktemp("installation")
    source = folder / "source"
    for package in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(ROOT / package, source / package, ignore=ignored)
    for name in ("setup.cfg", "setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    commands = folder / "venv" / "bin"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / "venv" / "lib" / version / "site-packages"
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    # As the README has it, but without downloading what is here already.
    offline = ("--no-deps", "--no-build-isolation", "--no-index")
    check([commands / "python", "-m", "pip", "install", *offline, "-e", "."], source)
    return commands


def check(command, folder, **environment):
    """Run a command that must not find this working tree."""
    others = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env={**others, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.parametrize("package", ["sampler", "fastrl"])
def test_type_checkers_know_the_library(package, installed, tmp_path):
    pytest.importorskip("mypy")
    (script,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.S | re.M)
    script = script.replace("from sampler import", f"from {package} import")
    script += "reveal_type(sampler)\nreveal_type(b.rewards)\nreveal_type(batch.values)\n"
    (tmp_path / "learner.py").write_text(script)
    found = check([installed / "python", "-m", "mypy", "--strict", "learner.py"], tmp_path)
    assert re.findall(r'Revealed type is "([\w.]+)', found) == [
        "sampler.sampler.Sampler",
        "torch._tensor.Tensor",
        "numpy.ndarray",
    ]


@pytest.mark.parametrize("command", ["fastrl-train", "fastrl-eval"])
def test_the_commands_are_ours_whatever_is_on_the_path(command, installed, tmp_path):
    (tmp_path / "cli").mkdir()
    for name in ("__init__", "train", "evaluate"):
        (tmp_path / "cli" / f"{name}.py").write_text("raise RuntimeError\n")
    text = check([installed / command, "--help"], tmp_path, PYTHONPATH=".")
    assert f"usage: {command}" in text
