"""Gaussian policies over bounded Boxes, and the squashed form against torch.distributions."""

from __future__ import annotations

from functools import partial

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor
from torch import distributions as reference

from sampler import Sampler, SamplerConfig
from sampler.models import make_model
from sampler.models.distributions import distribution_for, make_distribution

normalized = partial(make_distribution, action_units="normalized")

BOX = spaces.Box(np.float32([-2, 0, -1]), np.float32([2, 10, 1]), dtype=np.float32)


def random_parameters(n: int, size: int, seed: int = 0) -> Tensor:
    return torch.randn(n, size, generator=torch.Generator().manual_seed(seed))


def test_gaussian_samples_have_the_right_moments():
    space = BOX
    params = torch.tensor([0.3, -0.5, 0.1, -1.0, 0.2, 0.0]).expand(50_000, -1)
    actions = normalized(space)(params).sample(torch.Generator().manual_seed(0))
    scale, centre = torch.tensor([2.0, 5, 1]), torch.tensor([0.0, 5, 0])
    torch.testing.assert_close(actions.mean(0), centre + scale * params[0, :3], rtol=0, atol=0.15)
    torch.testing.assert_close(actions.std(0), scale * params[0, 3:].exp(), rtol=0.02, atol=0)


def squashed_reference(space, params: Tensor) -> reference.Distribution:
    mean, log_std = params.double().chunk(2, -1)
    low, high = torch.tensor(space.low).double(), torch.tensor(space.high).double()
    base = reference.Independent(reference.Normal(mean, log_std.exp()), 1)
    transforms = [
        reference.TanhTransform(),
        reference.AffineTransform((low + high) / 2, (high - low) / 2),
    ]
    return reference.TransformedDistribution(base, transforms)


def test_squashed_gaussian_agrees_with_torch_distributions():
    space = BOX
    factory = normalized(space, "squashed")
    p = random_parameters(500, 6) * 0.7
    distribution, theirs = factory(p), squashed_reference(space, p)
    actions, log_prob = distribution.sample_with_log_prob(torch.Generator().manual_seed(0))
    assert torch.equal(log_prob, distribution.log_prob(actions))
    low, high = torch.tensor(space.low), torch.tensor(space.high)
    assert ((actions >= low) & (actions <= high)).all()
    spread = (actions - (low + high) / 2) / ((high - low) / 2)
    inside = (spread.abs() < 0.99).all(-1)  # beyond, float32 actions do not hold x exactly
    assert inside.float().mean() > 0.5
    expected = theirs.log_prob(actions.double()).float()
    torch.testing.assert_close(log_prob[inside], expected[inside], rtol=1e-4, atol=1e-4)
    mean = p.chunk(2, -1)[0]
    torch.testing.assert_close(
        distribution.mode(), mean.tanh() * (high - low) / 2 + (high + low) / 2
    )
    q = random_parameters(500, 6, seed=1)
    base = [
        reference.Independent(reference.Normal(x.chunk(2, -1)[0], x.chunk(2, -1)[1].exp()), 1)
        for x in (p, q)
    ]
    expected = reference.kl_divergence(*base)
    torch.testing.assert_close(distribution.kl(factory(q)), expected, rtol=1e-4, atol=1e-5)


def test_squashed_entropy_equals_a_monte_carlo_estimate():
    space = spaces.Box(-3.0, 1.0, (1,), np.float32)
    params = torch.tensor([[0.0, 0.0], [1.0, -1.0], [-2.0, 0.3], [0.5, -3.0]])
    theirs = squashed_reference(space, params)
    torch.manual_seed(0)
    sample = theirs.sample((100_000,))
    expected = -theirs.log_prob(sample).nanmean(0)
    entropy = normalized(space, "squashed")(params).entropy()
    torch.testing.assert_close(entropy, expected.float(), rtol=0, atol=0.02)


def test_squashed_gaussian_stays_finite_at_the_bounds():
    space = spaces.Box(-2.0, 2.0, (2,), np.float32)
    params = torch.tensor([[30.0, -30.0, 0.0, 0.0]], requires_grad=True)
    distribution = normalized(space, "squashed")(params)
    actions, log_prob = distribution.sample_with_log_prob(torch.Generator().manual_seed(0))
    assert actions.abs().max() <= 2
    total = log_prob + distribution.log_prob(torch.tensor([[2.0, -2.0]])) + distribution.entropy()
    total.sum().backward()
    assert total.isfinite().all()
    assert params.grad.isfinite().all()


def test_squashing_leaves_unbounded_spaces_alone():
    space = spaces.Box(np.float32([0, -1]), np.float32([np.inf, 1]), dtype=np.float32)
    p = random_parameters(3, 4)
    plain, squashed = normalized(space)(p), normalized(space, "squashed")(p)
    assert torch.equal(
        plain.sample(torch.Generator().manual_seed(0)),
        squashed.sample(torch.Generator().manual_seed(0)),
    )


def test_means_and_deviations_are_in_the_environment_s_units_unless_the_model_says_otherwise():
    """Another library's Gaussian, read as it was written; only squashing needs normalized units."""
    p = random_parameters(50, 6)
    mean, log_std = p.chunk(2, -1)
    theirs = reference.Independent(reference.Normal(mean, log_std.exp()), 1)
    model = torch.nn.Linear(1, 1)
    ours = distribution_for(model, BOX)(p)
    actions = ours.sample(torch.Generator().manual_seed(0))
    torch.testing.assert_close(ours.log_prob(actions), theirs.log_prob(actions))
    torch.testing.assert_close(ours.entropy(), theirs.entropy())
    torch.testing.assert_close(ours.mode(), mean)
    model.action_units = "normalized"
    actions = distribution_for(model, BOX)(p).mode()
    torch.testing.assert_close(actions, normalized(BOX)(p).mode())
    model.bounded_actions, model.action_units = "squashed", "environment"
    squashed = distribution_for(model, BOX)(p)
    torch.testing.assert_close(squashed.mode(), normalized(BOX, "squashed")(p).mode())


class Wide(gym.Env):
    """Actions between -2.1 and 2.1."""

    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = spaces.Box(-2.1, 2.1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 0.0, False, False, {}


class Plain(torch.nn.Module):
    """Mean 0 and log_std 0, in the environment's units."""

    def __init__(self):
        super().__init__()
        self.outputs = torch.nn.Parameter(torch.zeros(3))

    def forward(self, obs):
        outputs = self.outputs.expand(*obs.shape[:-1], 3)
        return outputs[..., :2], outputs[..., 2]


def test_a_custom_model_s_deviation_of_1_is_one_of_1_and_its_ratios_are_1():
    """In a range of action of 4.2; in units of half of it, the deviation would be 2.1."""
    config = SamplerConfig(
        env=Wide, workers=1, envs_per_worker=4, rollout=500, batch=4, serial=True, device="cpu"
    )
    with Sampler(config, lambda *spaces: Plain()) as sampler:
        batch = sampler.get_batch().to("cpu")
        log_probs = reference.Normal(0.0, 1.0).log_prob(batch.actions)[..., 0]
        assert abs(batch.actions.std() - 1.0) < 0.1
        torch.testing.assert_close(log_probs, batch.log_probs)


def test_the_library_s_own_models_are_normalized(build):
    model = build(make_model, BOX, BOX)
    params = torch.zeros(1, 6)
    assert distribution_for(model, BOX)(params).mode().tolist() == [[0.0, 5.0, 0.0]]
