"""Every profiler runs, and its report has what it promises. Figures themselves are not checked."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from perf.measure.limit import Settings as LimitSettings
from perf.measure.limit import frames_per_step, make_stepper

SHORT = ["--seconds", "0.5", "--rounds", "1"]
SMALL = [*SHORT, "--workers", "1", "--envs-per-worker", "4", "--batch", "4"]
CPU = ["--device", "cpu"]
STAGES = {"step", "wait", "token_wait", "other"}


def run(module: str, folder, *flags: str) -> dict:
    """The JSON report of `python -m perf.MODULE`; shows its output where it fails."""
    path = folder / "report.json"
    command = [sys.executable, "-m", f"perf.{module}", *flags, "--json", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(path.read_text())
    assert report["command"].startswith(f"python -m perf.{module} ")
    return report


@pytest.mark.parametrize(
    ("env", "frames"), [("BreakoutNoFrameskip-v4", 4), ("CartPole-v1", 1), ("fastrl/Null-v0", 1)]
)
def test_environments_step_alone(env, frames):
    assert frames_per_step(env) == frames
    step = make_stepper(LimitSettings(env=env), index=1)
    for t in range(1100):  # past the end of an episode
        step(t)


@pytest.mark.slow
def test_limit(tmp_path):
    report = run("measure.limit", tmp_path, *SHORT, "--env", "CartPole-v1")
    assert report["limit_fps"] == report["limit_sps"] > 0


@pytest.mark.slow
def test_ceiling(tmp_path):
    report = run("measure.ceiling", tmp_path, *SHORT, "--workers", "1", "--lanes", "4")
    assert report["sps"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("inference", ["random", "model"])
def test_fps(tmp_path, inference):
    report = run("fps", tmp_path, *SMALL, *CPU, "--inference", inference)
    assert report["fps"] == pytest.approx(4 * report["sps"])
    assert report["limit_fps"] > 0
    assert report["efficiency"] > 0
    assert set(report["stages"]) == {"rollout", "policy"}
    assert set(report["stages"]["rollout"]) == STAGES
    assert 0 < report["policy_batch_mean"] <= 4


@pytest.mark.slow
def test_train(tmp_path):
    learner = ["--learner-device", "cpu", "--threads", "1"]
    report = run("train", tmp_path, *SMALL, *CPU, *learner, "--minibatches", "2")
    assert report["fps"] == pytest.approx(4 * report["sps"])
    assert set(report["stages"]["learner"]) == {"wait", "update", "publish", "other"}
    assert sum(report["stages"]["learner"].values()) == pytest.approx(1)
    assert report["policy_lag_mean"] >= 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags", [[], ["--copy-frames", "--inference", "model", "--device", "cpu"]]
)
def test_overhead(tmp_path, flags):
    report = run("overhead", tmp_path, *SMALL, *flags)
    cost = report["microseconds"]
    assert cost["all"] == pytest.approx(cost["rollout"] + cost["policy"] + cost["learner"])
    assert report["share_of_ceiling"] > 0


@pytest.mark.slow
def test_scale(tmp_path):
    report = run("scale", tmp_path, *SMALL, "--workers", "2", "--step-us", "1000")
    assert report["share"] > 0
    assert report["ideal_sps"] < 2 / 1000e-6
    assert report["rollout_wait_share"] >= 0


@pytest.mark.slow
@pytest.mark.parametrize("flags", [["--no-learn"], ["--learner-device", "cpu"]])
def test_timeline(tmp_path, flags):
    files = ["--trace", str(tmp_path / "trace.json"), "--png", str(tmp_path / "timeline.png")]
    report = run("timeline", tmp_path, *SMALL, *CPU, *files, *flags)
    assert [take["groups"] for take in report["takes"]] == [1, 2]
    assert all(1 <= take["overlap"] <= 3 for take in report["takes"])
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert {"stepping", "inference"} <= {event["name"] for event in trace["traceEvents"]}
    assert (tmp_path / "timeline.png").exists()


@pytest.mark.slow
def test_memory(tmp_path):
    flags = ["--warm-up", "0.5", "--every", "0.2"]
    report = run("memory", tmp_path, *SMALL, *flags)
    assert report["bytes_of_stacked_observation"] == 4 * 84 * 84
    assert 84 * 84 < report["bytes_per_step"] < 2 * 84 * 84  # each frame is stored once
    assert report["processes"]["rollout"]["count"] == 1
    assert report["processes"]["rollout"]["pss_mib"] > 1


@pytest.mark.slow
def test_soak(tmp_path):
    steps = ["--steps", "20000", "--warm-up-steps", "2000", "--looks", "4"]
    report = run("soak", tmp_path, *SMALL, *steps)
    assert report["steps"] == pytest.approx(20_000, rel=0.2)
    assert report["restarts"] == 0
    names = {"learner", "rollout worker 0", "policy worker 0", "forkserver", "resource tracker"}
    assert set(report["processes"]) == names
    for trends in report["processes"].values():
        assert trends["own"]["first"] > 2**20
        assert trends["descriptors"]["first"] == trends["descriptors"]["last"] > 3


@pytest.mark.slow
def test_stragglers(tmp_path):
    sizes = ["--workers", "3", "--envs-per-worker", "2", "--rollout", "4", "--batch", "2"]
    slowness = ["--step-us", "2000", "--reset-s", "0.2", "--straggler-timeout", "0.1"]
    report = run("stragglers", tmp_path, *SHORT, *sizes, *slowness)
    alike, odd, limited = report["variants"].values()
    assert alike["share"]["median"] == 1.0
    assert all(sps > 0 for facts in (alike, odd, limited) for sps in facts["other_sps"])
    assert alike["given_up"] == odd["given_up"] == [0]


@pytest.mark.slow
def test_plan(tmp_path):
    report = run("plan", tmp_path, *SMALL, "--cores", "8", "--env", "CartPole-v1")
    assert report["fps"] == report["sps"] == min(report["bounds_sps"].values())
    assert report["bottleneck"] in report["bounds_sps"]


@pytest.mark.slow
def test_plan_is_checked_against_emulated_workers(tmp_path):
    report = run("plan", tmp_path, *SMALL, "--check", "--workers", "2", "--step-us", "1000")
    assert report["error"] == pytest.approx(report["sps"] / report["measured_sps"] - 1)


@pytest.mark.slow
def test_peers_that_need_no_installation(tmp_path):
    report = run("peers", tmp_path, *SHORT, "--tasks", "emulated", "--venv-dir", str(tmp_path),
                 "--python", str(tmp_path / "no-such-python"))  # fmt: skip
    emulated = report["tasks"]["emulated"]
    assert {"sleeping alone", "fastrl", "ceiling"} == set(emulated["contestants"])
    (reason,) = emulated["missing"]
    assert reason.startswith("sample-factory: ")


@pytest.mark.slow
def test_gpu_check_is_a_dry_run_without_cuda(tmp_path):
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is CUDA here: not a dry run")
    command = ["bash", "perf/gpu_check.sh", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=480)
    assert done.returncode == 0, done.stdout
    assert "dry run" in done.stdout
    assert "missing" not in done.stdout
