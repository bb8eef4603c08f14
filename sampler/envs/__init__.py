"""Environments: `make()`, the direct Atari environment, and small ones for tests and checks.

Importing this package registers the `fastrl/...` ids with Gymnasium and imports nothing expensive:
the emulator, OpenCV and each environment's module are imported when an environment is made.
"""

from __future__ import annotations

from sampler.envs.factory import make
from sampler.envs.registration import register_environments

__all__ = ["make", "register_environments"]

register_environments()
