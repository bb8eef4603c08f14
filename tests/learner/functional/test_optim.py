from __future__ import annotations

import copy

import pytest
import torch

from sampler.learner.algorithms.apex import ApeXConfig
from sampler.learner.config import LearnerConfig
from sampler.learner.functional.optim import RMSPropTF
from sampler.learner.gradient_descent import make_optimiser


def reference(grads, value, lr, decay, eps, momentum, centered):
    """The formula, one number at a time."""
    square, average, velocity = 1.0, 0.0, 0.0
    for g in grads:
        square = decay * square + (1 - decay) * g * g
        average = decay * average + (1 - decay) * g
        variance = square - average * average if centered else square
        velocity = momentum * velocity + lr * g / (variance + eps) ** 0.5
        value -= velocity
    return value


@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_equals_the_formula(momentum, centered):
    settings = {"lr": 0.05, "decay": 0.9, "eps": 0.01, "momentum": momentum, "centered": centered}
    p = torch.tensor([1.0, -2.0], dtype=torch.float64, requires_grad=True)
    q = torch.tensor([[0.5]], dtype=torch.float64, requires_grad=True)
    optimiser = RMSPropTF([p, q], **settings)
    history = torch.randn(7, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for row in history:
        p.grad, q.grad = row[:2].clone(), row[2].clone().reshape(1, 1)
        optimiser.step()
    result = [*p.tolist(), q.item()]
    for i, start in enumerate((1.0, -2.0, 0.5)):
        assert result[i] == pytest.approx(
            reference(history[:, i].tolist(), start, **settings), rel=1e-12
        )


def test_first_step_differs_from_torch():
    """With s starting at 1, a first small gradient moves the parameter by about lr g."""
    p = torch.zeros(1, requires_grad=True)
    optimiser = RMSPropTF([p], lr=1.0, decay=0.99, eps=0.0)
    p.grad = torch.full((1,), 1e-3)
    optimiser.step()
    assert p.item() == pytest.approx(-1e-3, rel=0.01)


def test_constant_gradients_do_not_make_nan_when_centered():
    p = torch.zeros(1, requires_grad=True)
    optimiser = RMSPropTF([p], lr=1e-3, decay=0.5, eps=1e-10, centered=True)
    for _ in range(200):
        p.grad = torch.full((1,), 0.1)
        optimiser.step()
    assert torch.isfinite(p).all()


def test_parameters_without_gradient_are_left_alone():
    p, q = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
    optimiser = RMSPropTF([p, q])
    p.grad = torch.ones(1)
    optimiser.step()
    assert p.item() < 1
    assert q.item() == 1
    assert q not in optimiser.state


def test_resumes_from_its_state():
    def run(p, optimiser, steps):
        for _ in range(steps):
            optimiser.zero_grad()
            (p**2).sum().backward()
            optimiser.step()

    p = torch.ones(3, requires_grad=True)
    optimiser = RMSPropTF([p], momentum=0.9, centered=True)
    run(p, optimiser, 3)
    q = p.detach().clone().requires_grad_()
    other = RMSPropTF([q])
    other.load_state_dict(copy.deepcopy(optimiser.state_dict()))
    run(p, optimiser, 3)
    run(q, other, 3)
    assert torch.equal(p, q)


@pytest.mark.parametrize("kind", ["adam", "rmsprop", "rmsprop_tf"])
def test_settings_reach_the_optimiser(kind):
    settings = {"learning_rate": 0.1, "epsilon": 0.2, "rmsprop_decay": 0.3, "rmsprop_momentum": 0.4}
    config = LearnerConfig(optimiser=kind, rmsprop_centered=True, **settings)
    group = make_optimiser(torch.nn.Linear(1, 1), config).param_groups[0]
    assert (group["lr"], group["eps"]) == (0.1, 0.2)
    if kind != "adam":
        decay = group["alpha" if kind == "rmsprop" else "decay"]
        assert (decay, group["momentum"], group["centered"]) == (0.3, 0.4, True)
    assert ApeXConfig().rmsprop_centered  # Horgan et al. 2018
