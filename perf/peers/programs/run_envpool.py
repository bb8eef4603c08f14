"""EnvPool: Atari with random actions, through its asynchronous interface (send and recv).

python run_envpool.py --num-envs 16 --batch-size 8 --threads 2
"""

from __future__ import annotations

import argparse

import envpool
import numpy as np
from reporter import Reporter


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--game", default="Breakout-v5")
    parser.add_argument("--num-envs", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    env = envpool.make(
        options.game,
        env_type="gymnasium",
        num_envs=options.num_envs,
        batch_size=options.batch_size,
        num_threads=options.threads,
        thread_affinity_offset=0,
        episodic_life=True,
        repeat_action_probability=0.0,
        noop_max=30,
        use_fire_reset=True,
        stack_num=4,
        frame_skip=4,
    )
    rng = np.random.default_rng(0)
    actions = rng.integers(env.action_space.n, size=(1000, options.batch_size)).astype(np.int32)
    report, steps, t = Reporter(), 0, 0
    env.async_reset()
    while True:
        _, _, terminated, truncated, info = env.recv()
        env.send(actions[t % len(actions)], info["env_id"])
        t += 1
        # The step after an episode's end only resets, so it does not count.
        steps += options.batch_size - int((terminated | truncated).sum())
        report(steps)


if __name__ == "__main__":
    main()
