"""Default settings of every algorithm for every kind of environment."""

from sampler.learner.presets.choose import Preset, choose_preset, family_of

__all__ = ["Preset", "choose_preset", "family_of"]
