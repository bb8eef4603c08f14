"""Action distributions: `make_distribution(action_space)(parameters, action_mask)`."""

from sampler.models.distributions.base import ActionDistribution, DistributionFactory
from sampler.models.distributions.factory import distribution_for, make_distribution

__all__ = ["ActionDistribution", "DistributionFactory", "distribution_for", "make_distribution"]
