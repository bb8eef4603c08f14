"""Losses against published numbers, finite differences and masks."""

from __future__ import annotations

import pytest
import torch
from gymnasium import spaces
from helpers.published import cases, check_tensors, parameters
from torch import Tensor
from torch.autograd import gradcheck

from sampler.learner.functional import losses
from sampler.models.distributions import make_distribution


def tensor(value) -> Tensor:
    return torch.tensor(value, dtype=torch.float32)


def distribution(logits):
    logits = tensor(logits)
    return make_distribution(spaces.Discrete(logits.shape[-1]))(logits)


# --- published numbers: one handler per operation; a case without one fails with a KeyError ------


def run_pg_loss(x: dict) -> dict:
    log_probs = distribution(x["logits"]).log_prob(torch.tensor(x["actions"]))
    weighted = tensor(x["weights"]) * tensor(x["advantages"])
    rows = zip(log_probs, weighted, strict=True)
    return {"loss": torch.stack([losses.policy_gradient_loss(*row) for row in rows])}


def run_entropy_loss(x: dict) -> dict:
    weighted = tensor(x["weights"]) * distribution(x["logits"]).entropy()
    return {"loss": torch.stack([losses.entropy_loss(row) for row in weighted])}


def run_baseline_sum(x: dict) -> dict:
    values = tensor(x["advantages"]).requires_grad_()
    loss = losses.value_loss(values, torch.zeros_like(values), reduction="sum")
    (grad,) = torch.autograd.grad(loss, values)
    return {"loss": loss.detach(), "grad": grad}


def run_is_ratio(x: dict) -> dict:
    actions = torch.tensor(x["actions"])
    pi, mu = (distribution(x[k]).log_prob(actions) for k in ("pi_logits", "mu_logits"))
    return {"rho": (pi - mu).exp()}


def run_kl(x: dict) -> dict:
    return {"kl": distribution(x["p_logits"]).kl(distribution(x["q_logits"]))}


def run_ppo_clip_sf(x: dict) -> dict:
    ratios, advantages = tensor(x["ratio"]), tensor(x["adv"])
    bounds = losses.clip_range(x["clip"], asymmetric=True)
    terms = losses.ppo_terms(ratios, advantages, *bounds)
    loss = losses.ppo_loss(
        ratios.log(), torch.zeros(5), advantages, x["clip"], asymmetric=True, reduction="sum"
    )
    torch.testing.assert_close(loss, terms.sum())
    return {"loss_terms": terms}


def run_huber(x: dict) -> dict:
    errors = tensor(x["x"]).requires_grad_()
    loss = losses.huber(errors, x["delta"])
    (grad,) = torch.autograd.grad(loss.sum(), errors)
    return {"loss": loss.detach(), "grad": grad}


HANDLERS = {
    "pg_loss": run_pg_loss,
    "entropy_loss": run_entropy_loss,
    "baseline_sum": run_baseline_sum,
    "is_ratio": run_is_ratio,
    "kl": run_kl,
    "ppo_clip_sf": run_ppo_clip_sf,
    "huber": run_huber,
}
PUBLISHED = cases("policy_losses") + cases("q_targets", only="huber")


@pytest.mark.parametrize("case", parameters(PUBLISHED))
def test_published_numbers(case):
    check_tensors(case, HANDLERS, torch.float32)


# --- properties ----------------------------------------------------------------------------------


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


LOSSES = {
    "policy_gradient": lambda a, b, c, **k: losses.policy_gradient_loss(a, b, **k),
    "ppo": lambda a, b, c, **k: losses.ppo_loss(a, b, c, 0.2, **k),
    "ppo_asymmetric": lambda a, b, c, **k: losses.ppo_loss(a, b, c, 0.1, True, **k),
    "value": lambda a, b, c, **k: losses.value_loss(a, b, **k),
    "value_clipped": lambda a, b, c, **k: losses.value_loss(a, b, c, clip=0.3, **k),
    "entropy": lambda a, b, c, **k: losses.entropy_loss(a, **k),
    "kl": lambda a, b, c, **k: losses.kl_loss(a, **k),
}


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("name", LOSSES)
def test_splicing_invalid_steps_changes_nothing(name, reduction):
    """Loss and gradient are the same with steps of another row and NaN spliced in, masked."""
    loss, arguments = LOSSES[name], [normal(3, 4, seed=i) for i in range(3)]
    mask = torch.ones(3, 7, dtype=torch.bool)
    mask[:, 2:5] = False
    junk = normal(3, 3, seed=9) * 100
    junk[0, 0] = torch.nan if name in ("entropy", "kl") else torch.inf
    spliced = [torch.cat((x[:, :2], junk, x[:, 2:]), 1) for x in arguments]

    x = arguments[0].requires_grad_()
    y = spliced[0].requires_grad_()
    plain = loss(x, *arguments[1:], reduction=reduction)
    masked = loss(y, *spliced[1:], reduction=reduction, mask=mask)
    torch.testing.assert_close(masked, plain)
    if name in ("entropy", "kl"):
        (g,) = torch.autograd.grad(plain, x)
        (h,) = torch.autograd.grad(masked, y)
        torch.testing.assert_close(h[mask].reshape(3, 4), g)
        assert h[~mask].eq(0).all()


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_by_finite_differences(name):
    x = normal(4, 5).requires_grad_()
    mask = normal(4, 5, seed=3) > -0.5
    assert gradcheck(
        lambda a: LOSSES[name](a, normal(4, 5, seed=1), normal(4, 5, seed=2), mask=mask), x
    )


def test_masked_gradients_are_zero_for_finite_junk():
    x = normal(2, 3).requires_grad_()
    mask = torch.tensor([[True, False, True], [False, True, True]])
    for name in LOSSES:
        loss = LOSSES[name](x, normal(2, 3, seed=1), normal(2, 3, seed=2), mask=mask)
        (grad,) = torch.autograd.grad(loss, x)
        assert grad[~mask].eq(0).all()


def test_nothing_valid_is_zero():
    mask = torch.zeros(2, 3, dtype=torch.bool)
    for reduction in ("mean", "sum"):
        assert losses.reduce(normal(2, 3), mask, reduction).item() == 0


def test_advantages_and_targets_get_no_gradient():
    x, y = normal(3).requires_grad_(), normal(3, seed=1).requires_grad_()
    for loss in (
        losses.policy_gradient_loss(x, y),
        losses.ppo_loss(x, torch.zeros(3), y, 0.2),
        losses.value_loss(x, y),
    ):
        assert torch.autograd.grad(loss, y, allow_unused=True)[0] is None


def test_ppo_at_ratio_one_is_the_policy_gradient():
    log_probs, advantages = normal(4, 5).requires_grad_(), normal(4, 5, seed=1)
    for asymmetric in (False, True):
        ppo = losses.ppo_loss(log_probs, log_probs.detach(), advantages, 0.2, asymmetric)
        plain = losses.policy_gradient_loss(log_probs, advantages)
        (g,) = torch.autograd.grad(ppo, log_probs)
        (h,) = torch.autograd.grad(plain, log_probs)
        torch.testing.assert_close(g, h)


def test_ppo_stops_at_the_clip():
    """No gradient where the ratio has already moved too far in the direction of the advantage."""
    log_ratios = torch.tensor([0.5, 0.5, -0.5, -0.5]).requires_grad_()
    advantages = torch.tensor([1.0, -1.0, 1.0, -1.0])
    loss = losses.ppo_loss(log_ratios, torch.zeros(4), advantages, 0.2)
    (grad,) = torch.autograd.grad(loss, log_ratios)
    assert (grad != 0).tolist() == [False, True, True, False]


def test_clipped_value_loss():
    """Moved by 0.5 towards the target where 0.2 is allowed: the larger error counts."""
    values, old, goal = torch.tensor([1.5, 1.1]), torch.tensor([1.0, 1.0]), torch.tensor([2.0, 2.0])
    loss = losses.value_loss(values, goal, old, clip=0.2)
    assert loss.item() == pytest.approx(0.5 * (0.8**2 + 0.9**2) / 2)
    with pytest.raises(ValueError, match="old_values"):
        losses.value_loss(values, goal, clip=0.2)


def test_approximate_kl_estimates_the_divergence():
    """Averaged over p, the estimate is the divergence itself."""
    p, q = distribution([[0.3, -0.2, 0.6]] * 3), distribution([[0.1, 0.4, 0.2]] * 3)
    actions = torch.arange(3)
    log_p, log_q = p.log_prob(actions), q.log_prob(actions)
    expected = sum(
        log_p.exp()[a] * losses.approximate_kl((log_q - log_p)[a].reshape(1)) for a in range(3)
    )
    torch.testing.assert_close(expected, p.kl(q)[0], rtol=1e-5, atol=1e-6)


def test_clip_fraction():
    log_ratios = torch.tensor([0.85, 0.95, 1.0, 1.05, 1.15]).log()
    assert losses.clip_fraction(log_ratios, 0.1).item() == pytest.approx(0.4)
    mask = torch.tensor([True, True, True, True, False])
    assert losses.clip_fraction(log_ratios, 0.1, mask=mask).item() == pytest.approx(0.25)


def test_explained_variance():
    goal = normal(3, 4)
    assert losses.explained_variance(goal, goal).item() == 1
    assert losses.explained_variance(torch.zeros(3, 4).double(), goal).item() == pytest.approx(0)
    assert losses.explained_variance(-goal, goal).item() == pytest.approx(-3)
    assert losses.explained_variance(goal, torch.ones(3, 4).double()).isnan()
    mask = goal > 0
    junk = torch.where(mask, goal, goal + 100)
    assert losses.explained_variance(junk, goal, mask).item() == 1
