"""Action distributions against torch.distributions, with and without masks."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor
from torch import distributions as reference

from sampler.errors import ConfigError
from sampler.models.distributions import distribution_for, make_distribution
from sampler.spaces import flatten, leaves

normalized = partial(make_distribution, action_units="normalized")

BATCHES = [(1,), (7,), (2, 3)]
DISCRETE = {
    "discrete": spaces.Discrete(5),
    "discrete_start": spaces.Discrete(4, start=-2),
    "multidiscrete": spaces.MultiDiscrete([2, 5, 3]),
    "multidiscrete_equal": spaces.MultiDiscrete([3, 3]),
    "multidiscrete_2d": spaces.MultiDiscrete([[2, 3], [4, 2]], start=[[1, 0], [5, -1]]),
    "multibinary": spaces.MultiBinary(4),
    "multibinary_2d": spaces.MultiBinary((2, 3)),
}
BOXES = {
    "unbounded": spaces.Box(-np.inf, np.inf, (3,), np.float32),
    "scalar": spaces.Box(-np.inf, np.inf, (), np.float32),
    "clipped": spaces.Box(np.float32([-2, 0, -1]), np.float32([2, 10, 1]), dtype=np.float32),
    "half_bounded": spaces.Box(np.float32([0, -1]), np.float32([np.inf, 1]), dtype=np.float32),
    "double": spaces.Box(-3.0, 5.0, (2, 2), np.float64),
}
NESTED = {
    "tuple": spaces.Tuple([spaces.Discrete(3), spaces.Box(-2, 2, (2,), np.float32)]),
    "dict": spaces.Dict(
        {
            "move": spaces.MultiDiscrete([2, 4]),
            "arm": spaces.Dict(
                {"force": spaces.Box(-1, 1, (2,), np.float32), "grip": spaces.MultiBinary(2)}
            ),
            "speak": spaces.Tuple([spaces.Discrete(3, start=1)]),
        }
    ),
}
SPACES = DISCRETE | BOXES | NESTED


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def parameters(space, batch, seed: int = 0) -> Tensor:
    size = normalized(space).num_parameters
    return torch.randn((*batch, size), generator=generator(seed))


def random_mask(space, batch, seed: int = 5) -> Tensor:
    """A mask that leaves at least one choice everywhere."""
    pieces = []
    g = generator(seed)
    for leaf in leaves(space, "actions"):
        for size in choices(leaf.space):
            mask = torch.rand((*batch, size), generator=g) < 0.5
            if not isinstance(leaf.space, spaces.MultiBinary):
                kept = torch.randint(0, size, (*batch, 1), generator=g)
                mask = mask.scatter(-1, kept, True)
            pieces.append(mask)
    return torch.cat(pieces, -1)


def choices(space) -> list[int]:
    """Sizes of a leaf's independent mask groups."""
    if isinstance(space, spaces.Discrete):
        return [int(space.n)]
    if isinstance(space, spaces.MultiDiscrete):
        return space.nvec.reshape(-1).tolist()
    if isinstance(space, spaces.MultiBinary):
        return [math.prod(space.shape)]
    return []


class Reference:
    """The same distribution made of torch.distributions: a list of (distribution, values of)."""

    def __init__(self, space, params: Tensor, mask: Tensor | None = None) -> None:
        self.space = space
        self.parts: list[list] = []
        for leaf in leaves(space, "actions"):
            self.parts.append(list(self._leaf(leaf.space, *self._take(leaf.space, params, mask))))
            used_p, used_m = self._sizes(leaf.space)
            params = params[..., used_p:]
            mask = None if mask is None else mask[..., used_m:]

    def _sizes(self, space) -> tuple[int, int]:
        if isinstance(space, spaces.Box):
            return 2 * math.prod(space.shape), 0
        return sum(choices(space)), sum(choices(space))

    def _take(self, space, params, mask):
        p, m = self._sizes(space)
        return params[..., :p], None if mask is None else mask[..., :m]

    def _leaf(self, space, params, mask):
        def columns(actions: Tensor) -> Tensor:
            """[..., *shape] -> [..., size]"""
            return actions.reshape(*actions.shape[: actions.dim() - len(space.shape)], -1)

        if isinstance(space, spaces.Box):
            mean, log_std = params.chunk(2, -1)
            low, high = torch.tensor(space.low).flatten(), torch.tensor(space.high).flatten()
            bounded = low.isfinite() & high.isfinite()
            scale = torch.where(bounded, (high - low) / 2, 1.0).float()
            centre = torch.where(bounded, (high + low) / 2, 0.0).float()
            normal = reference.Normal(centre + scale * mean, scale * log_std.exp())
            yield reference.Independent(normal, 1), lambda a: columns(a).float()
        elif isinstance(space, spaces.MultiBinary):
            probs = params.sigmoid()
            if mask is not None:
                probs = probs * mask
            bits = reference.Independent(reference.Bernoulli(probs), 1)
            yield bits, lambda a: columns(a).float()
        else:
            sizes = choices(space)
            starts = np.reshape(space.start, -1).tolist()
            masks = [1] * len(sizes) if mask is None else mask.split(sizes, -1)
            parts = zip(params.split(sizes, -1), masks, starts, strict=True)
            for i, (logits, part, start) in enumerate(parts):
                yield (
                    reference.Categorical(logits.softmax(-1) * part),
                    lambda a, i=i, start=start: columns(a)[..., i].long() - start,
                )

    def _sum(self, function) -> Tensor:
        return sum(function(*pair) for part in self.parts for pair in part)

    def log_prob(self, actions) -> Tensor:
        values = flatten(self.space, actions)
        return sum(
            distribution.log_prob(convert(value))
            for part, value in zip(self.parts, values, strict=True)
            for distribution, convert in part
        )

    def entropy(self) -> Tensor:
        return self._sum(lambda distribution, _: distribution.entropy())

    def kl(self, other: Reference) -> Tensor:
        return sum(
            reference.kl_divergence(p, q)
            for part, others in zip(self.parts, other.parts, strict=True)
            for (p, _), (q, _) in zip(part, others, strict=True)
        )


def assert_close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("masked", [False, True])
def test_agrees_with_torch_distributions(name, batch, masked):
    space = SPACES[name]
    factory = normalized(space)
    p, q = parameters(space, batch), parameters(space, batch, 1)
    mask = random_mask(space, batch) if masked and factory.mask_size else None
    ours, other = factory(p, mask), factory(q, mask)
    theirs = Reference(space, p, mask)
    actions, log_prob = ours.sample_with_log_prob(generator())

    assert log_prob.shape == batch
    assert torch.equal(log_prob, ours.log_prob(actions))
    assert_close(log_prob, theirs.log_prob(actions))
    assert_close(ours.entropy(), theirs.entropy())
    assert_close(ours.kl(other), theirs.kl(Reference(space, q, mask)))
    assert_close(ours.kl(ours), torch.zeros(batch))
    # The mode is at least as likely as any sample.
    for seed in range(5):
        sample = ours.sample(generator(seed))
        assert (theirs.log_prob(ours.mode()) >= theirs.log_prob(sample) - 1e-5).all()


@pytest.mark.parametrize("name", SPACES)
def test_actions_have_the_space_s_form(name):
    space = SPACES[name]
    distribution = normalized(space)(parameters(space, (4,)))
    for actions in (distribution.sample(generator()), distribution.mode()):
        for leaf, value in zip(leaves(space, "actions"), flatten(space, actions), strict=True):
            assert value.shape == (4, *leaf.shape)
            assert value.numpy().dtype == leaf.dtype
            if not isinstance(leaf.space, spaces.Box):
                assert all(leaf.space.contains(v if v.shape else v[()]) for v in value.numpy())


@pytest.mark.parametrize("name", SPACES)
def test_sampling_depends_on_the_generator_alone(name):
    space = SPACES[name]
    distribution = normalized(space)(parameters(space, (50,)))
    torch.manual_seed(1)
    first = flatten(space, distribution.sample(generator(3)))
    torch.manual_seed(2)
    again = flatten(space, distribution.sample(generator(3)))
    other = flatten(space, distribution.sample_with_log_prob(generator(4))[0])
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_everything_is_float32_whatever_the_parameters_are(name, dtype):
    space = SPACES[name]
    params = parameters(space, (6,)).to(dtype)
    distribution = normalized(space)(params)
    exact = normalized(space)(params.float())
    actions, log_prob = distribution.sample_with_log_prob(generator())
    for value, expected in (
        (log_prob, exact.log_prob(actions)),
        (distribution.entropy(), exact.entropy()),
        (distribution.kl(exact), torch.zeros(6)),
    ):
        assert value.dtype == torch.float32
        torch.testing.assert_close(value, expected, rtol=0, atol=1e-6)


def chi_square_bound(freedom: int) -> float:
    """Five standard deviations above the mean: passed by chance about once in a million times."""
    return freedom + 5 * math.sqrt(2 * freedom) + 5


@pytest.mark.parametrize("name", DISCRETE)
@pytest.mark.parametrize("masked", [False, True])
def test_sampling_frequencies_match_the_probabilities(name, masked):
    space = DISCRETE[name]
    n = 20_000
    params = parameters(space, (1,), 2)
    mask = random_mask(space, (1,)) if masked else None
    factory = normalized(space)
    large = factory(params.expand(n, -1), None if mask is None else mask.expand(n, -1))
    actions = large.sample(generator(11))
    (parts,) = Reference(space, params, mask).parts
    for distribution, convert in parts:
        if isinstance(distribution, reference.Categorical):
            probs = distribution.probs[0]
            counts = torch.bincount(convert(actions), minlength=len(probs)).float()
            groups = [(counts, probs)]
        else:
            probs = distribution.base_dist.probs[0]
            ones = actions.reshape(n, -1).float().sum(0)
            groups = [
                (torch.stack((n - c, c)), torch.stack((1 - p, p)))
                for c, p in zip(ones, probs, strict=True)
            ]
        for counts, probs in groups:
            assert (counts[probs == 0] == 0).all()
            possible = probs > 0
            expected = n * probs[possible]
            statistic = ((counts[possible] - expected).square() / expected).sum().item()
            assert statistic < chi_square_bound(len(expected) - 1)


@pytest.mark.parametrize("name", [n for n in SPACES if n not in BOXES])
def test_masks_keep_everything_finite_even_where_they_permit_nothing(name):
    space = SPACES[name]
    factory = normalized(space)
    p = parameters(space, (5,)).requires_grad_()
    mask = random_mask(space, (5,))
    mask[0] = False
    distribution, free = factory(p, mask), factory(p)
    total = distribution.entropy() + distribution.kl(factory(p * 2, mask))
    total = total + free.kl(distribution).clamp(max=1.0) + distribution.kl(free)
    actions, log_prob = distribution.sample_with_log_prob(generator())
    (total + log_prob).sum().backward()
    assert total.isfinite().all()
    assert log_prob.isfinite().all()
    assert p.grad.isfinite().all()
    for leaf, value in zip(leaves(space, "actions"), flatten(space, actions), strict=True):
        if not isinstance(leaf.space, spaces.Box):
            assert all(leaf.space.contains(v if v.shape else v[()]) for v in value.numpy())


def test_a_forbidden_action_has_probability_zero():
    distribution = normalized(spaces.Discrete(3))(
        torch.zeros(1, 3), torch.tensor([[True, False, True]])
    )
    assert distribution.log_prob(torch.tensor([1])).exp().item() == 0
    torch.testing.assert_close(distribution.entropy(), torch.tensor([math.log(2)]))


def test_infinite_logits_of_a_model_s_own_masking_are_allowed():
    logits = torch.tensor([[0.0, float("-inf"), 0.0]])
    distribution = normalized(spaces.Discrete(3))(logits)
    torch.testing.assert_close(distribution.entropy(), torch.tensor([math.log(2)]))
    torch.testing.assert_close(distribution.kl(distribution), torch.zeros(1))
    assert distribution.sample(generator()).item() in (0, 2)


@pytest.mark.parametrize("name", DISCRETE)
def test_log_prob_of_values_outside_the_space_does_not_raise(name):
    space = DISCRETE[name]
    distribution = normalized(space)(parameters(space, (2,)))
    actions = torch.full((2, *space.shape), -100)
    assert distribution.log_prob(actions).shape == (2,)
    assert distribution.log_prob(-actions).shape == (2,)


def test_nested_distributions_are_products_of_their_leaves():
    space = NESTED["tuple"]
    p = parameters(space, (4,))
    joint = normalized(space)(p)
    actions = joint.sample(generator())
    first = normalized(space[0])(p[:, :3])
    second = normalized(space[1])(p[:, 3:])
    expected = first.log_prob(actions[0]) + second.log_prob(actions[1])
    torch.testing.assert_close(joint.log_prob(actions), expected)


def test_the_model_says_how_bounds_are_kept():
    space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    model = torch.nn.Linear(1, 1)
    params = torch.tensor([[3.0, 0.0]])
    assert distribution_for(model, space)(params).mode().item() == 3.0
    model.bounded_actions = "squashed"
    assert distribution_for(model, space)(params).mode().item() == pytest.approx(math.tanh(3))


def test_spaces_without_a_distribution_are_refused():
    with pytest.raises(ConfigError, match=r"actions\.x: a Box of int64"):
        normalized(spaces.Dict({"x": spaces.Box(0, 5, (2,), np.int64)}))
    with pytest.raises(ConfigError, match="Text"):
        normalized(spaces.Text(3))
    with pytest.raises(ConfigError, match="no entries"):
        normalized(spaces.Tuple([]))
    with pytest.raises(ConfigError, match="bounded_actions='none'"):
        normalized(spaces.Discrete(2), "none")
    with pytest.raises(ConfigError, match="action_units='pixels' is not one of environment"):
        make_distribution(spaces.Discrete(2), action_units="pixels")
