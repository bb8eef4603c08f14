"""ale_py's AtariVectorEnv with random actions; asynchronous where the batch is smaller.

python run_ale_vector.py --num-envs 16 --batch-size 8 --threads 2
"""

from __future__ import annotations

import argparse

import numpy as np
from ale_py.vector_env import AtariVectorEnv
from reporter import Reporter


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--game", default="breakout")
    parser.add_argument("--num-envs", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    env = AtariVectorEnv(
        options.game,
        num_envs=options.num_envs,
        batch_size=options.batch_size,
        num_threads=options.threads,
        thread_affinity_offset=0,
        episodic_life=True,
        repeat_action_probability=0.0,
    )
    rng = np.random.default_rng(0)
    actions = rng.integers(env.single_action_space.n, size=(1000, options.batch_size))
    report, steps, t = Reporter(), 0, 0
    env.reset(seed=0)
    while True:
        env.send(actions[t % len(actions)])
        _, _, terminated, truncated, _ = env.recv()
        t += 1
        # The step after an episode's end only resets, so it does not count.
        steps += options.batch_size - int((terminated | truncated).sum())
        report(steps)


if __name__ == "__main__":
    main()
