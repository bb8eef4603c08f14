"""Another name for `sampler.learner.functional.targets`."""

from sampler.learner.functional.targets import *  # noqa: F403
