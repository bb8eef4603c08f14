"""The `fastrl/...` ids in Gymnasium's registry."""

from __future__ import annotations

import gymnasium as gym

ENTRY_POINTS = {
    "fastrl/Counter-v0": "sampler.envs.counter:make_counter",
    "fastrl/RepeatPrevious-v0": "sampler.envs.repeat:RepeatPrevious",
    "fastrl/RepeatFirst-v0": "sampler.envs.repeat:RepeatFirst",
    "fastrl/CartPoleNoVelocity-v0": "sampler.envs.cartpole:CartPoleNoVelocity",
    "fastrl/BitFlip-v0": "sampler.envs.bitflip:BitFlip",
    "fastrl/Null-v0": "sampler.envs.null:NullEnv",
    "fastrl/Sleep-v0": "sampler.envs.sleep:SleepEnv",
}


def register_environments() -> None:
    """Register every `fastrl/...` id that is not registered yet.

    No wrapper is put around them: Gymnasium's order and space checks would hide `step_into` and
    cost more than some of these environments' steps.
    """
    for env_id, entry_point in ENTRY_POINTS.items():
        if env_id not in gym.registry:
            gym.register(
                env_id, entry_point=entry_point, order_enforce=False, disable_env_checker=True
            )
