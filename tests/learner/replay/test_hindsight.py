from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from helpers.published import cases

from sampler import Sampler, SamplerConfig
from sampler.envs import make
from sampler.envs.bitflip import BitFlip
from sampler.errors import ConfigError
from sampler.evaluation import evaluate
from sampler.learner.algorithms.registry import ALGORITHMS
from sampler.learner.presets import choose_preset
from sampler.learner.replay import TransitionReplay, row_fields
from sampler.learner.replay.hindsight import Hindsight, episode_segments
from sampler.learner.trainer import Trainer


def sparse(achieved, goals, info):
    return (achieved == goals).all(-1) - 1.0


# --- published numbers: one handler per operation; a case without one fails with a KeyError ------


def run_future(x: dict) -> dict:
    """Steps 0..3 lead to observations 1..4; the last observation has only a reset step after it."""
    achieved = np.array(x["achieved"])
    steps, cuts, mask = np.arange(5), np.zeros((1, 5), bool), np.ones((1, 5), bool)
    cuts[0, 3], mask[0, 4] = True, False
    first, last = (part[0] for part in episode_segments(cuts, mask))
    hindsight, rng = Hindsight(sparse, goals=4), np.random.default_rng(0)
    assert x["p_substitute"] == 1.0
    seen = [set() for _ in range(4)]
    for _ in range(200):
        at = hindsight.goal_steps(steps[:4], first[:4], last[:4], rng)
        for t, goal in zip(steps[:4], achieved[at], strict=True):
            seen[t].add(int(goal))
    # The reset step is masked: no transition starts there, so any goal is allowed.
    return {"allowed_goals": [sorted(goals) for goals in seen] + [sorted(achieved.tolist())]}


def run_episode_bounds(x: dict) -> dict:
    lengths = np.array(x["lengths"])
    steps, ends = lengths.sum(), lengths.cumsum() - 1
    cuts, mask = np.isin(np.arange(steps), ends)[None], np.ones((1, steps), bool)
    episode = np.repeat(np.arange(len(lengths)), lengths)
    first, last = (part[0] for part in episode_segments(cuts, mask))
    rng, same = np.random.default_rng(0), True
    for strategy in ("future", "final", "episode"):
        hindsight = Hindsight(sparse, strategy=strategy)
        for _ in range(50):
            goals = hindsight.goal_steps(np.arange(steps), first, last, rng) - 1
            same &= bool((episode[goals] == episode).all())
    return {"goal_episode_equals_source_episode": same, "ends": np.unique(last - 1).tolist()}


def run_ratio(x: dict) -> dict:
    hindsight = Hindsight(sparse, goals=4)
    assert hindsight.ratio == pytest.approx(x["ratio"])
    chosen = hindsight.choose(x["batch"], np.random.default_rng(0))
    assert len(set(chosen.tolist())) == len(chosen)
    return {"relabelled": len(chosen), "untouched": x["batch"] - len(chosen)}


def run_future_p(x: dict) -> dict:
    return {"p": [Hindsight(sparse, goals=k).ratio for k in x["k"]]}


def run_relabel(x: dict) -> dict:
    assert x["reward"] == "sparse"

    def reached(achieved, goals, info):
        return np.linalg.norm(achieved - goals, axis=-1) <= x["threshold"]

    achieved = np.array(x["achieved_next"], float)[None]
    result = {}
    for name in ("orig", "new"):
        goals = np.array([x["desired" if name == "orig" else "new_goal"]], float)
        positive = Hindsight(lambda *a: 1.0 * reached(*a))
        negative = Hindsight(lambda *a: reached(*a) - 1.0, reached)
        result[f"reward_{name}_01"] = positive.rewards(achieved, goals)[0]
        result[f"reward_{name}_neg"] = negative.rewards(achieved, goals)[0]
        assert positive.terminated(achieved, goals) is None
        np.testing.assert_array_equal(
            negative.terminated(achieved, goals)[0], result[f"reward_{name}_01"] == 1
        )
    return result


HANDLERS = {
    "her_future": run_future,
    "her_episode_bounds": run_episode_bounds,
    "her_ratio": run_ratio,
    "her_future_p": run_future_p,
    "her_relabel": run_relabel,
}
CASES = {case["name"]: case for case in cases("her")}
LEARNING = CASES.pop("sb3_bitflip")


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_published_numbers(case):
    result = HANDLERS[case["op"]](case["inputs"])
    for name, expected in case["expected"].items():
        if isinstance(expected, list) and isinstance(expected[0], list):
            assert result[name] == expected
        else:
            np.testing.assert_allclose(
                result[name], expected, rtol=case["rtol"], atol=case["atol"], err_msg=name
            )


def solved(bits: int, steps: int, **changes) -> float:
    """The share of 100 greedy games of BitFlip that reach the goal after so many steps of DQN."""
    env, env_kwargs = "fastrl/BitFlip-v0", {"bits": bits}
    made = make(env, **env_kwargs)
    preset = choose_preset("dqn", made.observation_space, made.action_space)
    kind, learning = ALGORITHMS["dqn"], replace(preset.learner, seed=1, **changes)
    config = SamplerConfig(
        env=env,
        env_kwargs=env_kwargs,
        seed=1,
        serial=True,
        device="cpu",
        precision="float32",
        **preset.sampler,
    )
    torch.manual_seed(1)
    with Sampler(config, partial(kind.model, settings=preset.model)) as sampler:
        learner = kind.learner.for_sampler(sampler, learning, "cpu")
        Trainer(sampler, learner, total_steps=steps).run()
    games = evaluate(learner.model, env, env_kwargs=env_kwargs, episodes=100, lanes=10)
    return float(np.mean(games.scores > -bits))


@pytest.mark.slow
def test_learns_as_fast_as_published_and_not_without_hindsight():
    steps, bar = LEARNING["inputs"]["steps"], LEARNING["expected"]["success_rate_gt"]
    assert LEARNING["inputs"]["env"] == "BitFlipping n_bits=10 discrete"
    assert solved(10, steps) > bar
    assert solved(10, steps, hindsight="none") < 0.1


# --- properties ----------------------------------------------------------------------------------


def test_segments_by_the_definition():
    rng = np.random.default_rng(0)
    cuts, mask = rng.random((20, 15)) < 0.2, rng.random((20, 15)) < 0.85
    first, last = episode_segments(cuts, mask)
    for b in range(20):
        for t in np.flatnonzero(mask[b]):
            begin = t
            while begin > 0 and mask[b, begin - 1] and not cuts[b, begin - 1]:
                begin -= 1
            end = t
            while end + 1 < 15 and mask[b, end + 1] and not cuts[b, end]:
                end += 1
            assert (first[b, t], last[b, t]) == (begin, end + 1)


@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
def test_goals_are_spread_as_the_strategy_says(strategy):
    """Step 2 of a segment with observations 1..5."""
    n = 4000
    hindsight = Hindsight(sparse, strategy=strategy)
    ones = np.ones(n, np.int64)
    at = hindsight.goal_steps(2 * ones, ones, 5 * ones, np.random.default_rng(0))
    allowed = {"future": [3, 4, 5], "final": [5], "episode": [2, 3, 4, 5]}[strategy]
    counts = np.bincount(at, minlength=6)
    assert np.flatnonzero(counts).tolist() == allowed
    np.testing.assert_allclose(counts[allowed], n / len(allowed), rtol=0.1)


@pytest.mark.parametrize("settings", [{"strategy": "past"}, {"goals": -1}])
def test_impossible_settings_are_refused(settings):
    with pytest.raises(ConfigError):
        Hindsight(sparse, **settings)


def bitflip_rows(rows: int, steps: int) -> dict[str, np.ndarray]:
    """Rows of random play, reset steps in between, as the sampler stores them."""
    env, rng = BitFlip(3, max_steps=4), np.random.default_rng(0)
    names = ("observation", "achieved_goal", "desired_goal")
    fields = {f"obs.{k}": np.zeros((rows, steps + 1, 3), np.int8) for k in names}
    fields["actions"] = rng.integers(3, size=(rows, steps))
    fields["rewards"] = np.zeros((rows, steps), np.float32)
    fields |= {k: np.zeros((rows, steps), bool) for k in ("terminated", "truncated", "mask")}
    for row in range(rows):
        observation, _ = env.reset(seed=row)
        ended = False
        for t in range(steps + 1):
            for k in names:
                fields[f"obs.{k}"][row, t] = observation[k]
            if t == steps:
                break
            if ended:
                observation, _ = env.reset()
                ended = False
                continue
            observation, reward, terminated, truncated, _ = env.step(fields["actions"][row, t])
            ended = terminated or truncated
            fields["rewards"][row, t], fields["mask"][row, t] = reward, True
            fields["terminated"][row, t], fields["truncated"][row, t] = terminated, truncated
    return fields


@pytest.mark.parametrize("terminating", [True, False])
@pytest.mark.parametrize("n", [1, 3])
def test_relabelled_transitions_are_consistent(n, terminating):
    """Rewards and discounts follow from the goal that the sample shows; without relabelling the
    same sample has the stored ones."""
    rows, env, gamma, batch = bitflip_rows(30, 12), BitFlip(3), 0.9, 500
    hindsight = Hindsight(
        env.compute_reward, env.compute_terminated if terminating else None, goals=4
    )
    plain = TransitionReplay(row_fields(rows), 30, n, gamma)
    relabelled = TransitionReplay(row_fields(rows), 30, n, gamma, hindsight=hindsight)
    plain.add(rows)
    relabelled.add(rows)
    before, index, _ = plain.sample(batch, np.random.default_rng(7))
    after, same, _ = relabelled.sample(batch, np.random.default_rng(7))
    np.testing.assert_array_equal(index, same)

    goals = after["obs.desired_goal"]
    changed = (goals != before["obs.desired_goal"]).any(-1)
    assert batch * 0.5 < changed.sum() <= round(batch * 0.8)
    same_ends = n == 1 or not terminating  # reaching a new goal may end a window sooner
    for name in ("obs.observation", "obs.achieved_goal", "actions"):
        np.testing.assert_array_equal(before[name], after[name])
        if same_ends and name != "actions":
            np.testing.assert_array_equal(before[f"next_{name}"], after[f"next_{name}"])
    np.testing.assert_array_equal(goals, after["next_obs.desired_goal"])

    successes = 0
    for i, (row, t) in enumerate(zip(index // 12, index % 12, strict=True)):
        total, factor, reached_later = 0.0, 1.0, False
        for k in range(n):
            reached = (rows["obs.achieved_goal"][row, t + k + 1] == goals[i]).all()
            total += factor * (float(reached) - 1)
            stored = rows["terminated"][row, t + k]
            ended = reached if terminating else stored
            factor *= gamma * (not ended)
            if stored or rows["truncated"][row, t + k] or ended:
                break
        successes += total > -1
        assert after["rewards"][i] == pytest.approx(total, abs=1e-6)
        assert after["discounts"][i] == pytest.approx(factor, abs=1e-6)
        if changed[i]:
            stop = t
            while stop < 12 and rows["mask"][row, stop]:
                reached_later |= (rows["obs.achieved_goal"][row, stop + 1] == goals[i]).all()
                stop += 1
            assert reached_later
    assert successes > 100


def test_no_goals_is_plain_replay():
    rows = bitflip_rows(5, 12)
    plain = TransitionReplay(row_fields(rows), 5, 1)
    other = TransitionReplay(row_fields(rows), 5, 1, hindsight=Hindsight(sparse, goals=0))
    plain.add(rows)
    other.add(rows)
    a, b = (r.sample(50, np.random.default_rng(0))[0] for r in (plain, other))
    for name in a:
        np.testing.assert_array_equal(a[name], b[name])
