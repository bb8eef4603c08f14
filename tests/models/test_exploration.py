"""Epsilon-greedy behaviour against published numbers and by its frequencies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from sampler.models import (
    epsilon_greedy,
    epsilon_greedy_log_prob,
    epsilon_greedy_probs,
    epsilon_ladder,
)

CASES = {
    case["name"]: case
    for case in json.loads((Path(__file__).parents[1] / "data" / "r2d2_pieces.json").read_text())[
        "cases"
    ]
}
Q = torch.tensor([[1.0, 1.0, 0.0, 0.0], [1.0, 2.0, 0.0, 3.0]])
MASK = torch.tensor([[True, True, False, True], [True, True, True, False]])


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("name", ["eps_ladder_10", "eps_ladder_1"])
def test_ladder_equals_the_published_one(name):
    case = CASES[name]
    given = case["inputs"]
    ladder = epsilon_ladder(given["N"], given["eps"], given["alpha"])
    expected = torch.tensor(case["expected"]["eps"], dtype=torch.float64)
    torch.testing.assert_close(ladder, expected, rtol=case["rtol"], atol=case["atol"])


def test_probabilities_equal_the_published_ones():
    case = CASES["eps_greedy_probs"]
    q, epsilon = torch.tensor(case["inputs"]["q"]).float(), case["inputs"]["eps"]
    expected = {key: torch.tensor(value) for key, value in case["expected"].items()}
    tolerance = {"rtol": case["rtol"], "atol": case["atol"]}
    probs = epsilon_greedy_probs(q, epsilon)
    torch.testing.assert_close(probs, expected["probs"], **tolerance)
    actions, log_probs = expected["logprob_of"].T
    ours = epsilon_greedy_log_prob(q, epsilon, actions)
    torch.testing.assert_close(ours, log_probs, **tolerance)
    entropy = -(probs * probs.log()).sum(-1)
    torch.testing.assert_close(entropy, expected["entropy"], **tolerance)


@pytest.mark.parametrize("mask", [None, MASK], ids=["free", "masked"])
def test_frequencies_match_the_probabilities(mask):
    n = 40_000
    epsilon = torch.tensor([0.4, 0.1])
    probs = epsilon_greedy_probs(Q, epsilon, mask)
    torch.testing.assert_close(probs.sum(-1), torch.ones(2))
    actions = epsilon_greedy(
        Q.repeat(n, 1),
        epsilon.repeat(n),
        generator(),
        None if mask is None else mask.repeat(n, 1),
    )
    for row, chosen in enumerate(actions.view(n, 2).T):
        counts = torch.bincount(chosen, minlength=4)
        assert (counts[probs[row] == 0] == 0).all()
        possible = probs[row] > 0
        expected = n * probs[row][possible]
        statistic = ((counts[possible] - expected).square() / expected).sum()
        assert statistic < 25  # three degrees of freedom: by chance once in 60,000 times


def test_each_lane_has_its_own_epsilon():
    q = torch.tensor([[0.0, 1.0, 0.0]]).repeat(1000, 1)
    epsilon = torch.cat((torch.zeros(500), torch.ones(500)))
    actions = epsilon_greedy(q, epsilon, generator())
    assert (actions[:500] == 1).all()
    assert torch.bincount(actions[500:], minlength=3).min() > 100


def test_the_generator_alone_decides():
    q, epsilon = torch.randn(100, 5, generator=generator(1)), torch.full((100,), 0.5)
    first = epsilon_greedy(q, epsilon, generator(7))
    torch.manual_seed(3)
    assert torch.equal(first, epsilon_greedy(q, epsilon, generator(7)))
    assert not torch.equal(first, epsilon_greedy(q, epsilon, generator(8)))


def test_the_log_probability_of_what_was_chosen_is_finite():
    q = torch.randn(500, 4, generator=generator(1))
    mask = torch.rand(500, 4, generator=generator(2)) < 0.5
    mask[:, 2] = True
    epsilon = epsilon_ladder(500).float()
    actions = epsilon_greedy(q, epsilon, generator(), mask)
    assert mask.gather(1, actions[:, None]).all()
    assert epsilon_greedy_log_prob(q, epsilon, actions, mask).isfinite().all()


def test_a_mask_that_permits_nothing_raises_nothing():
    nothing = torch.zeros(2, 4, dtype=torch.bool)
    assert epsilon_greedy(Q, torch.zeros(2), generator(), nothing).shape == (2,)
