"""Stable-Baselines3: its Atari wrappers, SubprocVecEnv and VecFrameStack, with random actions.

python run_stable_baselines3.py --num-envs 8
"""

from __future__ import annotations

import argparse

import ale_py
import gymnasium as gym
import numpy as np
from reporter import Reporter
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import SubprocVecEnv, VecFrameStack


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--env", default="BreakoutNoFrameskip-v4")
    parser.add_argument("--num-envs", type=int, default=8)
    options = parser.parse_args()
    gym.register_envs(ale_py)
    workers = {"start_method": "fork"}
    env = make_atari_env(
        options.env, options.num_envs, seed=0, vec_env_cls=SubprocVecEnv, vec_env_kwargs=workers
    )
    env = VecFrameStack(env, 4)
    rng = np.random.default_rng(0)
    actions = rng.integers(env.action_space.n, size=(1000, options.num_envs))
    report, t = Reporter(), 0
    env.reset()
    while True:
        env.step(actions[t % len(actions)])
        t += 1
        report(t * options.num_envs)


if __name__ == "__main__":
    main()
