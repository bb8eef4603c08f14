"""Targets against published numbers, plain reference loops and the properties that define them."""

from __future__ import annotations

import math

import pytest
import torch
from helpers.published import cases, check_tensors, parameters
from torch import Tensor

from sampler.learner.functional import targets
from sampler.learner.functional.targets import IDENTITY, Transform

SIGNED_LOG = Transform(lambda x: x.sign() * x.abs().log1p(), lambda x: x.sign() * x.abs().expm1())
TRANSFORMS = {"identity": IDENTITY, "signed_logp1": SIGNED_LOG}


ELSEWHERE = {"huber", "h_bounds"}  # test_losses.py; test_rescaled_values_are_bounded


def tensor(value) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def select(q_values: Tensor, actions: list) -> Tensor:
    return q_values.gather(-1, torch.tensor(actions).unsqueeze(-1)).squeeze(-1)


# --- published numbers: one handler per operation; a case without one fails with a KeyError ------


def run_vtrace(x: dict) -> dict:
    assert x["layout"] == "[T,B]"
    rows = {k: tensor(x[k]).T for k in ("log_rhos", "discounts", "rewards", "values")}
    bootstrap = torch.cat((rows["values"][:, 1:], tensor(x["bootstrap_value"])[:, None]), 1)
    clips = {k: x[k] for k in ("clip_rho", "clip_pg_rho", "clip_c")}
    result = targets.vtrace(**rows, bootstrap_values=bootstrap, **clips, lambda_=x["lambda"])
    return {"vs": result.vs.T, "pg_advantages": result.pg_advantages.T}


def run_lambda_returns(x: dict) -> dict:
    arguments = (tensor(x[k]) for k in ("discount_t", "r_t", "v_t"))
    return {"returns": targets.lambda_returns(*arguments, lambda_=x["lambda"])}


def run_n_step_returns(x: dict) -> dict:
    arguments = (tensor(x[k]) for k in ("discount_t", "r_t", "v_t"))
    return {"returns": targets.n_step_targets(*arguments, n=x["n"])}


def run_gae(x: dict) -> dict:
    values = tensor(x["values"])
    advantages = targets.gae(
        tensor(x["discount_t"]),
        tensor(x["r_t"]),
        values[:, :-1],
        values[:, 1:],
        lambda_=x["lambda"],
    )
    return {"advantages": advantages}


def run_gae_done(x: dict) -> dict:
    assert x["kind"] == "terminated"
    values, done = tensor([x["values"]]), torch.tensor([x["done"]], dtype=torch.bool)
    discounts = x["gamma"] * (~done).double()
    advantages = targets.gae(
        discounts, tensor([x["rewards"]]), values[:, :-1], values[:, 1:], done, x["lambda"]
    )
    return {"advantages": advantages[0], "targets": (advantages + values[:, :-1])[0]}


def run_gae_truncated(x: dict) -> dict:
    values, cuts = tensor([x["values"]]), torch.tensor([x["truncated"]], dtype=torch.bool)
    next_values = torch.where(cuts, tensor([x["final_value"]]), values[:, 1:])
    discounts = torch.full_like(next_values, x["gamma"])
    rewards = tensor([x["rewards"]])
    advantages = targets.gae(discounts, rewards, values[:, :-1], next_values, cuts, x["lambda"])
    return {"advantages": advantages[0]}


def run_seed_nstep(x: dict) -> dict:
    assert x["kind"] == "terminated"
    done = torch.tensor([x["done"]], dtype=torch.bool)
    discounts = x["gamma"] * (~done).double()
    next_values = tensor([x["values"]])[:, 1:]
    result = targets.n_step_targets(discounts, tensor([x["rewards"]]), next_values, done, x["n"])
    return {"targets": result[0]}


def run_h(x: dict) -> dict:
    return {"y": targets.value_rescale(tensor(x["x"]), x["eps"])}


def run_two_hot(x: dict) -> dict:
    return {"p": targets.two_hot(tensor(x["x"]), x["lo"], x["hi"], x["bins"])}


def run_transformed_n_step_td(x: dict) -> dict:
    next_values = select(tensor(x["target_q_t"]), x["a_t"])
    goal = targets.transformed_n_step(
        tensor(x["discount_t"]),
        tensor(x["r_t"]),
        next_values,
        n=x["n"],
        transform=TRANSFORMS[x["tx"]],
    )
    return {"td": goal - select(tensor(x["q_tm1"]), x["a_tm1"])}


def run_transformed_q_lambda_td(x: dict) -> dict:
    goal = targets.transformed_q_lambda(
        tensor(x["discount_t"]),
        tensor(x["r_t"]),
        tensor(x["q_t"]).amax(-1),
        lambda_=x["lambda"],
        transform=TRANSFORMS[x["tx"]],
    )
    return {"td": goal - select(tensor(x["q_tm1"]), x["a_tm1"])}


def run_retrace(x: dict) -> dict:
    probs, actions = tensor(x["pi"])[:, 1:], torch.tensor(x["actions"])
    chosen = probs.gather(-1, actions[:, 1:, None]).squeeze(-1)
    goal = targets.retrace(
        tensor(x["discounts"])[:, :-1],
        tensor(x["rewards"])[:, :-1],
        tensor(x["target_qs"])[:, 1:],
        probs,
        actions[:, 1:],
        chosen.log() - tensor(x["mu_a"])[:, 1:].log(),
        lambda_=x["lambda"],
        transform=TRANSFORMS[x["tx"]],
    )
    td = goal - select(tensor(x["qs"]), x["actions"])[:, :-1]
    return {"td": td, "half_sq_td": td.square() / 2}


def run_double_q_td(x: dict) -> dict:
    next_values = targets.double_q_values(tensor(x["q_t_value"]), tensor(x["q_t_selector"]))
    goal = one_step(x, next_values)
    return {"td": goal - select(tensor(x["q_tm1"]), x["a_tm1"])}


def run_td(x: dict) -> dict:
    return {"td": one_step(x, tensor(x["v_t"])) - tensor(x["v_tm1"])}


def one_step(x: dict, next_values: Tensor) -> Tensor:
    columns = (tensor(x["discount_t"]), tensor(x["r_t"]), next_values)
    return targets.n_step_targets(*(c.unsqueeze(1) for c in columns), n=1).squeeze(1)


def run_n_step_bellman(x: dict) -> dict:
    done = torch.tensor([x["done"]], dtype=torch.bool)
    discounts = x["gamma"] * (~done).double()
    rewards, next_values = tensor([x["rewards"]]), tensor([x["q_next"]])
    return {"targets": targets.n_step_targets(discounts, rewards, next_values, done, x["n"])[0]}


HANDLERS = {
    "vtrace": run_vtrace,
    "lambda_returns": run_lambda_returns,
    "n_step_returns": run_n_step_returns,
    "gae": run_gae,
    "gae_done": run_gae_done,
    "gae_truncated": run_gae_truncated,
    "seed_nstep": run_seed_nstep,
    "h": run_h,
    "two_hot": run_two_hot,
    "transformed_n_step_td": run_transformed_n_step_td,
    "transformed_q_lambda_td": run_transformed_q_lambda_td,
    "retrace": run_retrace,
    "double_q_td": run_double_q_td,
    "td": run_td,
    "n_step_bellman": run_n_step_bellman,
}
PUBLISHED = cases("vtrace", "returns_gae", "value_rescale", "q_targets")


@pytest.mark.parametrize("case", parameters(PUBLISHED, ELSEWHERE))
def test_published_numbers(case):
    check_tensors(case, HANDLERS, torch.float64)


# --- properties ----------------------------------------------------------------------------------


def random_rows(batch: int, steps: int, seed: int = 0, end: float = 0.2) -> dict[str, Tensor]:
    """Rows with random terminations and truncations, everything float64."""
    g = torch.Generator().manual_seed(seed)

    def normal() -> Tensor:
        return torch.randn(batch, steps, generator=g, dtype=torch.float64)

    cuts = torch.rand(batch, steps, generator=g) < end
    terminated = cuts & (torch.rand(batch, steps, generator=g) < 0.5)
    values, next_values = normal(), normal()
    # Inside an episode the next value is the value of the next step.
    next_values[:, :-1] = torch.where(cuts[:, :-1], next_values[:, :-1], values[:, 1:])
    return {
        "log_rhos": 0.5 * normal(),
        "discounts": 0.9 * (~terminated).double(),
        "rewards": normal(),
        "values": values,
        "next_values": next_values,
        "cuts": cuts,
    }


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 8, 20, 33, 128])
def test_recurrence_equals_the_loop(steps):
    g = torch.Generator().manual_seed(steps)
    decays = torch.rand(3, steps, generator=g, dtype=torch.float64)
    increments = torch.randn(3, steps, generator=g, dtype=torch.float64)
    expected = torch.empty_like(increments)
    following = torch.zeros(3, dtype=torch.float64)
    for t in reversed(range(steps)):
        following = expected[:, t] = increments[:, t] + decays[:, t] * following
    kept = decays.clone(), increments.clone()
    torch.testing.assert_close(targets.backward_recurrence(decays, increments), expected)
    torch.testing.assert_close((decays, increments), kept, rtol=0, atol=0)


def test_recurrence_is_accurate_in_float32():
    g = torch.Generator().manual_seed(0)
    decays = torch.rand(64, 128, generator=g) * 0.02 + 0.97
    increments = torch.randn(64, 128, generator=g)
    exact = targets.backward_recurrence(decays.double(), increments.double())
    torch.testing.assert_close(
        targets.backward_recurrence(decays, increments).double(), exact, rtol=1e-5, atol=1e-5
    )


def test_vtrace_equals_the_double_sum_with_cuts():
    rows = random_rows(4, 12, seed=1)
    clips = {"clip_rho": 1.3, "clip_pg_rho": 0.8, "clip_c": 1.1, "lambda_": 0.9}
    result = targets.vtrace(*(rows[k] for k in rows), **clips)
    for b in range(4):
        x = {k: v[b].tolist() for k, v in rows.items()}
        rho = [math.exp(v) for v in x["log_rhos"]]
        vs = []
        for s in range(12):
            total, factor = x["values"][s], 1.0
            for t in range(s, 12):
                delta = x["rewards"][t] + x["discounts"][t] * x["next_values"][t] - x["values"][t]
                total += factor * min(rho[t], 1.3) * delta
                if x["cuts"][t]:
                    break
                factor *= x["discounts"][t] * 0.9 * min(rho[t], 1.1)
            vs.append(total)
        for s in range(12):
            last = s == 11 or x["cuts"][s]
            following = x["next_values"][s] if last else vs[s + 1]
            goal = x["rewards"][s] + x["discounts"][s] * following
            advantage = min(rho[s], 0.8) * (goal - x["values"][s])
            assert result.vs[b, s].item() == pytest.approx(vs[s], abs=1e-12)
            assert result.pg_advantages[b, s].item() == pytest.approx(advantage, abs=1e-12)


def test_vtrace_on_policy_is_the_n_step_return():
    rows = random_rows(5, 16, seed=2)
    rows["log_rhos"] = torch.zeros_like(rows["log_rhos"])
    vs, advantages = targets.vtrace(*rows.values())
    returns = targets.n_step_targets(
        rows["discounts"], rows["rewards"], rows["next_values"], rows["cuts"], n=16
    )
    torch.testing.assert_close(vs, returns)
    torch.testing.assert_close(advantages, returns - rows["values"])


def test_vtrace_with_large_traces_stays_finite_in_float32():
    ones = torch.ones(1, 128)
    cuts = torch.zeros(1, 128, dtype=torch.bool)
    cuts[0, 100] = True
    vs, _ = targets.vtrace(2 * ones, ones, 0 * ones, ones, ones, cuts, clip_c=math.inf)
    torch.testing.assert_close(vs, ones)


def test_gae_equals_the_sum_of_discounted_errors():
    rows = random_rows(3, 10, seed=3)
    del rows["log_rhos"]
    advantages = targets.gae(*rows.values(), lambda_=0.8)
    deltas = rows["rewards"] + rows["discounts"] * rows["next_values"] - rows["values"]
    for b in range(3):
        for s in range(10):
            total, factor = 0.0, 1.0
            for t in range(s, 10):
                total += factor * deltas[b, t].item()
                factor *= 0.8 * rows["discounts"][b, t].item() * (not rows["cuts"][b, t])
            assert advantages[b, s].item() == pytest.approx(total, abs=1e-12)


def test_gae_plus_values_are_lambda_returns():
    rows = random_rows(6, 9, seed=4)
    advantages = targets.gae(
        rows["discounts"], rows["rewards"], rows["values"], rows["next_values"], rows["cuts"], 0.7
    )
    returns = targets.lambda_returns(
        rows["discounts"], rows["rewards"], rows["next_values"], rows["cuts"], 0.7
    )
    torch.testing.assert_close(advantages + rows["values"], returns)


def test_lambda_one_and_zero_are_the_ends_of_n_step():
    rows = random_rows(4, 7, seed=5)
    arguments = [rows[k] for k in ("discounts", "rewards", "next_values", "cuts")]
    torch.testing.assert_close(
        targets.lambda_returns(*arguments, lambda_=1.0), targets.n_step_targets(*arguments, n=7)
    )
    torch.testing.assert_close(
        targets.lambda_returns(*arguments, lambda_=0.0), targets.n_step_targets(*arguments, n=1)
    )


def test_arguments_stay_as_they_were():
    rows = random_rows(2, 6, seed=6)
    kept = {k: v.clone() for k, v in rows.items()}
    x = rows
    targets.vtrace(*x.values())
    targets.gae(x["discounts"], x["rewards"], x["values"], x["next_values"], x["cuts"])
    targets.gae(x["discounts"], x["rewards"], x["values"], x["next_values"], lambda_=1.0)
    targets.lambda_returns(x["discounts"], x["rewards"], x["next_values"], lambda_=1.0)
    targets.n_step_targets(x["discounts"], x["rewards"], x["next_values"], x["cuts"])
    targets.transformed_n_step(x["discounts"], x["rewards"], x["next_values"], x["cuts"])
    for name, value in kept.items():
        torch.testing.assert_close(rows[name], value, rtol=0, atol=0)


@pytest.mark.parametrize("estimator", ["vtrace", "gae", "lambda_returns", "n_step", "transformed"])
def test_nothing_leaks_over_an_episode_end(estimator):
    """A truncated episode (V = 1) before another (V = 100), joined by a reset step, gives the same
    targets as the first episode alone."""
    first, second, gamma, reward = 4, 5, 0.9, 1.0
    steps = first + 1 + second
    values = torch.tensor([[1.0] * (first + 1) + [100.0] * (second + 1)], dtype=torch.float64)
    rewards = torch.full((1, steps), reward, dtype=torch.float64)
    rewards[0, first] = 0  # the step that only resets the environment
    cuts = torch.zeros(1, steps, dtype=torch.bool)
    cuts[0, first - 1] = True
    discounts = torch.full_like(rewards, gamma)

    def run(stop: int) -> Tensor:
        part = slice(0, stop)
        d, r, c = discounts[:, part], rewards[:, part], cuts[:, part]
        v, n = values[:, :stop], values[:, 1 : stop + 1]
        if estimator == "vtrace":
            return torch.cat(targets.vtrace(0.1 * torch.ones_like(v), d, r, v, n, c))
        if estimator == "gae":
            return targets.gae(d, r, v, n, c)
        if estimator == "lambda_returns":
            return targets.lambda_returns(d, r, n, c)
        if estimator == "n_step":
            return targets.n_step_targets(d, r, n, c, n=3)
        return targets.transformed_n_step(d, r, n, c, n=3)

    torch.testing.assert_close(run(steps)[:, :first], run(first), rtol=0, atol=1e-12)


def test_two_truncated_lanes_keep_to_their_own_values():
    """Lanes whose values are 1 and 100 everywhere, truncated every 5 steps: each target is that of
    a never-ending episode with the lane's own value."""
    gamma, values = 0.9, torch.tensor([[1.0], [100.0]], dtype=torch.float64).expand(2, 20)
    rewards = (1 - gamma) * values  # makes the lane's value a fixed point
    cuts = torch.zeros(2, 20, dtype=torch.bool)
    cuts[:, 4::5] = True
    discounts = torch.full_like(values, gamma)
    vs, advantages = targets.vtrace(
        torch.zeros_like(values), discounts, rewards, values, values, cuts
    )
    torch.testing.assert_close(vs, values.clone())
    torch.testing.assert_close(advantages, torch.zeros_like(values))
    torch.testing.assert_close(
        targets.gae(discounts, rewards, values, values, cuts), torch.zeros_like(values)
    )


def test_a_time_limit_does_not_bound_the_value():
    """Reward 1 in every step and a time limit: V tends to 1 / (1 - gamma)."""
    gamma, value = 0.9, torch.zeros((), dtype=torch.float64)
    cuts = torch.zeros(1, 10, dtype=torch.bool)
    cuts[0, 9] = True
    ones = torch.ones(1, 10, dtype=torch.float64)
    for _ in range(60):
        returns = targets.lambda_returns(gamma * ones, ones, value * ones, cuts)
        value = value + 0.5 * (returns.mean() - value)
    assert value.item() == pytest.approx(1 / (1 - gamma), rel=1e-3)


def test_rescaled_values_are_bounded():
    (case,) = cases("value_rescale", only="h_bounds")
    result = targets.value_rescale(tensor(case["inputs"]["x"])).tolist()
    bounds = case["expected"]
    for y, low, high in zip(result, bounds["greater_than"], bounds["less_than"], strict=True):
        assert low is None or y > low
        assert high is None or y < high


@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_value_rescale_round_trips(dtype, rtol):
    x = torch.tensor([0.0, 1e-9, 1e-6, 1e-3, 0.1, 1.0, 30.0, 1e4, 1e6], dtype=dtype)
    x = torch.cat((-x.flip(0), x))
    torch.testing.assert_close(
        targets.value_rescale_inv(targets.value_rescale(x)), x, rtol=rtol, atol=0
    )
    torch.testing.assert_close(
        targets.value_rescale(targets.value_rescale_inv(x)), x, rtol=rtol, atol=0
    )


def test_double_q_takes_the_selectors_action():
    q_values, selector = (
        torch.tensor([[[1.0, 5.0], [2.0, 3.0]]]),
        torch.tensor([[[9.0, 1], [0, 1]]]),
    )
    assert targets.double_q_values(q_values, selector).tolist() == [[1.0, 3.0]]


def test_targets_carry_no_gradient():
    rows = {
        k: v.requires_grad_() if v.dtype != torch.bool else v for k, v in random_rows(1, 4).items()
    }
    vs, advantages = targets.vtrace(*rows.values())
    assert not vs.requires_grad
    assert not advantages.requires_grad
