"""Gymnasium's AsyncVectorEnv, its Atari preprocessing and frame stack, with random actions.

python run_gymnasium.py --num-envs 8
"""

from __future__ import annotations

import argparse
from functools import partial

import ale_py
import gymnasium as gym
import numpy as np
from reporter import Reporter


def make_env(env_id: str) -> gym.Env:
    import cv2

    cv2.setNumThreads(1)
    gym.register_envs(ale_py)
    env = gym.make(env_id)
    env = gym.wrappers.AtariPreprocessing(env, terminal_on_life_loss=True)
    return gym.wrappers.FrameStackObservation(env, 4)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--env", default="BreakoutNoFrameskip-v4")
    parser.add_argument("--num-envs", type=int, default=8)
    options = parser.parse_args()
    env = gym.vector.AsyncVectorEnv(
        [partial(make_env, options.env)] * options.num_envs, shared_memory=True, copy=False
    )
    rng = np.random.default_rng(0)
    actions = rng.integers(env.single_action_space.n, size=(1000, options.num_envs))
    report, steps, t = Reporter(), 0, 0
    env.reset(seed=0)
    while True:
        _, _, terminated, truncated, _ = env.step(actions[t % len(actions)])
        t += 1
        # The step after an episode's end only resets, so it does not count.
        steps += options.num_envs - int((terminated | truncated).sum())
        report(steps)


if __name__ == "__main__":
    main()
