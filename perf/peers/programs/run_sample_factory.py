"""Sample Factory: its sampler alone, or its APPO training, on Atari or environments that do
nothing.

    python run_sample_factory.py sample|train --task breakout|null|sleep [its own flags]

Runs in an environment of its own (`python -m perf.peers` makes it). `sample` is its simplified
sampling interface, as in its example sampler/use_simplified_sampling_api.py. Steps are agent steps;
in training, those that the learner has trained on.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from functools import partial

import gymnasium as gym
import numpy as np
from reporter import Reporter
from sample_factory.algo.runners.runner import AlgoObserver
from sample_factory.algo.sampling.simplified_sampling_api import SyncSamplingAPI
from sample_factory.algo.utils.context import global_model_factory
from sample_factory.algo.utils.env_info import obtain_env_info_in_a_separate_process
from sample_factory.algo.utils.rl_utils import samples_per_trajectory
from sample_factory.envs.env_utils import register_env
from sample_factory.model.encoder import Encoder
from sample_factory.train import make_runner
from sf_examples.atari.train_atari import parse_atari_args, register_atari_components

FEATURES = 8


class IdleEnv(gym.Env):
    """An environment that returns a stack of four 84x84 frames and does nothing, or only sleeps."""

    observation_space = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    action_space = gym.spaces.Discrete(4)

    def __init__(self, sleep_us: float):
        self.sleep_s, self.t = sleep_us * 1e-6, 0
        self.frames = np.random.default_rng(0).integers(255, size=(4, 84, 84), dtype=np.uint8)

    def reset(self, seed=None, options=None):
        return self.frames, {}

    def step(self, action):
        self.t += 1
        if self.sleep_s:
            time.sleep(self.sleep_s)
        return self.frames, 0.0, self.t % 1000 == 0, False, {}


def make_idle_env(sleep_us: float, name, cfg, env_config, render_mode=None) -> IdleEnv:
    return IdleEnv(sleep_us)


class IdleEncoder(Encoder):
    """The smallest model that its interface allows; it reads a few pixels."""

    def __init__(self, cfg, observation_space):
        super().__init__(cfg)

    def forward(self, observations):
        return observations["obs"][:, 0, 0, :FEATURES].float()

    def get_out_size(self) -> int:
        return FEATURES


class Progress(AlgoObserver):
    """Reports the steps trained on after each of the learner's iterations."""

    def __init__(self, steps_per_iteration: int):
        self.steps_per_iteration, self.report = steps_per_iteration, Reporter()

    def on_training_step(self, runner, training_iteration_since_resume):
        self.report(training_iteration_since_resume * self.steps_per_iteration)


def sample(cfg) -> None:
    sampler = SyncSamplingAPI(cfg, obtain_env_info_in_a_separate_process(cfg))
    sampler.start()
    report, steps = Reporter(), 0
    while True:
        steps += samples_per_trajectory(sampler.get_trajectories_sync())
        report(steps)


def train(cfg) -> None:
    cfg, runner = make_runner(cfg)
    runner.register_observer(Progress(cfg.batch_size * cfg.num_batches_per_epoch))
    runner.init()
    runner.run()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=("sample", "train"))
    parser.add_argument("--task", choices=("breakout", "null", "sleep"), default="breakout")
    parser.add_argument("--sleep-us", type=float, default=400)
    mine, theirs = parser.parse_known_args()
    folder = tempfile.mkdtemp(prefix="sample-factory-")
    register_atari_components()
    name = "atari_breakout"
    if mine.task != "breakout":
        name = "idle"
        sleep_us = mine.sleep_us if mine.task == "sleep" else 0.0
        register_env(name, partial(make_idle_env, sleep_us))
        global_model_factory().register_encoder_factory(IdleEncoder)
    argv = [f"--env={name}", f"--train_dir={folder}", "--device=cpu", *theirs]
    try:
        cfg = parse_atari_args(argv)
        (sample if mine.mode == "sample" else train)(cfg)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
