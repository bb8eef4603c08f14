"""Another name for `sampler.learner.functional.normalize`."""

from sampler.learner.functional.normalize import *  # noqa: F403
