"""n-step transitions in rows: published cases, and the lane's stream that the rows came from."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.published import cases, check_numbers, parameters

from sampler.errors import ConfigError
from sampler.learner.replay import TransitionReplay, row_fields
from sampler.learner.replay.n_step import fold_windows, n_step_windows
from sampler.spaces import frame_stacks

# --- published numbers: one handler per operation; a case without one fails with a KeyError ------


def run_transitions(x: dict) -> dict:
    """An episode, and the shorter windows with which Acme's adder begins (once each)."""
    gamma, first = x["additional_discount"], x["obs_first"]
    rewards = np.array([x["rewards"]])
    discounts = gamma * np.array([x["discounts"]])
    steps = rewards.shape[1]
    cuts = np.arange(steps)[None] == steps - 1
    found = set()
    for n in range(1, x["n"] + 1):
        padded = (np.pad(a, ((0, 0), (0, n))) for a in (rewards, discounts, cuts))
        mask = np.arange(steps + n)[None] < steps
        windows = n_step_windows(*padded, mask, n)
        for t in range(steps if n == x["n"] else 1):
            assert windows.valid[0, t]
            found.add(
                (
                    first + t,
                    round(windows.returns[0, t], 9),
                    round(windows.discounts[0, t] / gamma, 9),
                    first + t + int(windows.lengths[0, t]),
                )
            )
    return {"transitions": [list(row) for row in sorted(found, key=lambda r: (r[0], r[3]))]}


def run_window(x: dict) -> dict:
    steps = x["base"] + x["n"]
    cuts = np.arange(steps)[None] == x.get("done_at", -1)
    rewards, mask = np.full((1, steps), x["reward"]), np.ones((1, steps), bool)
    windows = n_step_windows(rewards, x["gamma"] * ~cuts, cuts, mask, x["n"])
    assert windows.valid[0, x["base"]]
    discount = windows.discounts[0, x["base"]]
    return {
        "reward": windows.returns[0, x["base"]],
        "done": float(discount == 0),
        "bootstrap_discount": discount,
    }


def run_lengths(x: dict) -> dict:
    """Observations F(irst) M(id) L(ast) as a row: the step after an L only resets; the step before
    an F without an L has been lost."""
    types, n = x["step_types"], x["n"]
    steps = len(types) - 1
    mask = np.array([[types[t + 1] != "F" for t in range(steps)]])
    cuts = np.array([[types[t + 1] == "L" for t in range(steps)]])
    nothing = np.zeros((1, steps))
    if n > steps:  # rows are longer than a window; here the rest is padding
        nothing, mask, cuts = (np.pad(a, ((0, 0), (0, n))) for a in (nothing, mask, cuts))
    windows = n_step_windows(nothing, nothing, cuts, mask, n)
    starts = np.flatnonzero(windows.valid[0])
    ends = starts + windows.lengths[0, starts]
    return {
        "emitted": np.bincount(ends, minlength=len(types)).tolist(),
        "pairs": [[int(s), int(e)] for s, e in zip(starts, ends, strict=True)],
    }


HANDLERS = {
    "n_step_transitions": run_transitions,
    "n_step_window": run_window,
    "n_step_lengths": run_lengths,
}
ELSEWHERE = {"linear_schedule"}  # test_schedules.py


@pytest.mark.parametrize("case", parameters(cases("nstep_transitions"), ELSEWHERE))
def test_published_numbers(case):
    check_numbers(case, HANDLERS)


# --- a lane's stream, cut into rows as the sampler does ------------------------------------------


class Stream:
    """One lane for `steps` steps: random episodes with reset steps in between, frames numbered."""

    def __init__(self, steps: int, seed: int = 0, end: float = 0.15, stack: int = 3) -> None:
        rng = np.random.default_rng(seed)
        self.stack = stack
        self.rewards = rng.normal(size=steps).astype(np.float32)
        self.terminated, self.truncated = np.zeros((2, steps), bool)
        self.mask = np.ones(steps, bool)
        self.age = np.zeros(steps + 1, np.int32)
        self.frames = np.arange(1, steps + 2, dtype=np.uint8)[:, None, None] + np.zeros(
            (1, 2, 2), np.uint8
        )
        self.actions = rng.integers(5, size=steps)
        for t in range(steps):
            if t and (self.terminated[t - 1] or self.truncated[t - 1]):
                self.mask[t], self.rewards[t], self.age[t + 1] = False, 0, 0
                continue
            self.age[t + 1] = self.age[t] + 1
            if rng.random() < end:
                (self.terminated if rng.random() < 0.5 else self.truncated)[t] = True

    @property
    def cuts(self) -> np.ndarray:
        return self.terminated | self.truncated

    def rows(self, length: int, overlap: int) -> tuple[dict[str, np.ndarray], list[int]]:
        """All whole rows of T = length steps, and where in the stream each begins."""
        starts = list(range(0, len(self.rewards) - length + 1, length - overlap))
        early = np.full((self.stack - 1, 2, 2), 255, np.uint8)  # what a row's first stacks show
        frames = np.concatenate((early, self.frames))
        fields = {
            "frames": [frames[s : s + length + self.stack] for s in starts],
            "age": [self.age[s : s + length + 1] for s in starts],
        }
        for name in ("rewards", "terminated", "truncated", "mask", "actions"):
            fields[name] = [getattr(self, name)[s : s + length] for s in starts]
        return {name: np.stack(parts) for name, parts in fields.items()}, starts

    def transition(self, t: int, n: int, gamma: float) -> tuple[float, float, int]:
        """Return, discount and next observation from step t, by the definition."""
        total, factor = 0.0, 1.0
        for k in range(n):
            total += factor * float(self.rewards[t + k])
            factor *= gamma * (not self.terminated[t + k])
            if self.cuts[t + k]:
                break
        return total, factor, t + k + 1


@pytest.mark.parametrize(("n", "overlap"), [(1, 0), (3, 2), (3, 5), (5, 4)])
def test_every_real_step_starts_exactly_one_transition(n, overlap):
    stream, length = Stream(200, seed=n), 9
    fields, starts = stream.rows(length, overlap)
    cuts = fields["terminated"] | fields["truncated"]
    discounts = 0.9 * ~fields["terminated"]
    windows = n_step_windows(fields["rewards"], discounts, cuts, fields["mask"], n, overlap)
    found = []
    for row, start in enumerate(starts):
        for t in np.flatnonzero(windows.valid[row]):
            found.append(start + t)
            total, factor, following = stream.transition(start + t, n, 0.9)
            assert windows.returns[row, t] == pytest.approx(total, rel=1e-6, abs=1e-6)
            assert windows.discounts[row, t] == pytest.approx(factor)
            assert start + t + windows.lengths[row, t] == following
    covered = starts[-1] + length - overlap
    assert sorted(found) == np.flatnonzero(stream.mask[:covered]).tolist()


def test_a_terminal_reward_counts_and_its_value_does_not():
    cuts = np.array([[False, True, False]])
    windows = n_step_windows(
        np.array([[1.0, 2.0, 4.0]]), 0.5 * ~cuts, cuts, np.ones((1, 3), bool), 3
    )
    assert windows.returns[0, 0] == 2.0
    assert windows.discounts[0, 0] == 0
    assert windows.lengths[0, 0] == 2


def test_truncation_keeps_the_value_of_the_final_observation():
    cuts = np.array([[True, False]])
    windows = fold_windows(
        np.array([[1.0, 9.0]]), np.full((1, 2), 0.5), cuts, np.array([[True, False]])
    )
    assert windows.returns.tolist() == [1.0]
    assert windows.discounts.tolist() == [0.5]
    assert windows.valid.tolist() == [True]


def test_windows_into_lost_steps_are_no_transitions():
    mask = np.array([[True, True, True, False, False]])
    nothing = np.zeros((1, 5))
    windows = n_step_windows(nothing, nothing, nothing.astype(bool), mask, 2)
    assert windows.valid.tolist() == [[True, True, False, False, False]]


@pytest.mark.parametrize(
    ("n", "overlap", "rollout", "message"),
    [(3, 1, 8, "set overlap=2"), (0, 0, 8, "n_step=0"), (4, 3, 3, "rollout=3")],
)
def test_rows_that_lose_transitions_are_refused(n, overlap, rollout, message):
    rows = np.zeros((1, rollout))
    with pytest.raises(ConfigError, match=message):
        n_step_windows(rows, rows, rows.astype(bool), rows.astype(bool), n, overlap)


# --- transition replay ---------------------------------------------------------------------------

N, LENGTH, GAMMA = 3, 9, 0.9


def filled(stream: Stream, capacity: int, **settings) -> tuple[TransitionReplay, list[int]]:
    """A replay that took the stream's rows one by one, and where in the stream each row begins."""
    fields, starts = stream.rows(LENGTH, N - 1)
    replay = TransitionReplay(row_fields(fields), capacity, N, GAMMA, **settings)
    for row in range(len(starts)):
        replay.add({name: array[row : row + 1] for name, array in fields.items()})
    return replay, starts


def test_sampled_transitions_are_those_of_the_stream():
    stream = Stream(220, seed=4)
    replay, starts = filled(stream, capacity=12)
    assert len(starts) > 2 * 12  # the ring has wrapped
    fields, index, weights = replay.sample(300, np.random.default_rng(0))
    stacks = frame_stacks.assemble(
        np.concatenate((np.zeros((1, 2, 2, 2), np.uint8), stream.frames[None]), axis=1),
        stream.age[None],
        3,
    )[0]
    at = np.array(starts)[index // LENGTH] + index % LENGTH
    assert at.min() >= starts[-12]
    for i, t in enumerate(at):
        total, factor, following = stream.transition(t, N, GAMMA)
        assert stream.mask[t]
        assert fields["rewards"][i] == pytest.approx(total, rel=1e-5, abs=1e-6)
        assert fields["discounts"][i] == pytest.approx(factor)
        assert fields["actions"][i] == stream.actions[t]
        np.testing.assert_array_equal(fields["obs"][i], stacks[t])
        np.testing.assert_array_equal(fields["next_obs"][i], stacks[following])
    assert fields["obs"].shape == (300, 3, 2, 2)
    assert fields["obs"].dtype == np.uint8
    assert fields["rewards"].dtype == fields["discounts"].dtype == np.float32
    assert weights.tolist() == [1] * 300
    covered = np.arange(starts[-12], starts[-1] + LENGTH - N + 1)
    assert len(replay) == stream.mask[covered].sum()


def test_the_same_buffers_are_used_again():
    replay, _ = filled(Stream(60), 4)
    out = replay.buffers(8)
    kept = dict(out)
    fields, _, _ = replay.sample(8, np.random.default_rng(0), out)
    assert fields is out
    assert all(out[name] is kept[name] for name in kept)


def test_priorities_belong_to_single_steps():
    stream = Stream(100, end=0.0)
    fields, _ = stream.rows(LENGTH, N - 1)
    replay = TransitionReplay(row_fields(fields), 3, N, GAMMA, alpha=1.0)
    errors = np.full((2, LENGTH), np.nan)  # what is given where no transition starts is not used
    errors[:, : LENGTH - N + 1] = np.arange(1, 8)
    replay.add({name: array[:2] for name, array in fields.items()}, errors)
    np.testing.assert_allclose(
        replay.priorities.tree.values.reshape(3, LENGTH)[:2, : LENGTH - N + 1], errors[:, :7]
    )
    assert replay.priorities.tree.total == 56
    assert replay.update_priorities(np.array([0, LENGTH + 2, 0]), [9.0, 8.0, 7.0]) == 3
    assert replay.priorities.tree.get([0, LENGTH + 2]).tolist() == [7, 8]


def test_priorities_of_overwritten_transitions_are_dropped():
    stream = Stream(100, end=0.0)
    replay, starts = filled(stream, 4, alpha=1.0)
    before = replay.priorities.tree.values.copy()
    last = len(starts) - 1
    changed = replay.update_priorities(np.array([(last - 4) * LENGTH, last * LENGTH]), [5.0, 6.0])
    assert changed == 1
    difference = replay.priorities.tree.values - before
    assert np.flatnonzero(difference).tolist() == [(last % 4) * LENGTH]


def test_rewards_are_clipped_one_by_one():
    stream = Stream(40, end=0.0)
    stream.rewards[:] = 5
    replay, _ = filled(stream, 4, reward_clip=1.0)
    fields, _, _ = replay.sample(5, np.random.default_rng(0))
    np.testing.assert_allclose(fields["rewards"], 1 + GAMMA + GAMMA**2)


def test_nested_observations_and_action_masks():
    """Leaves are gathered by name; fields that learning does not need are not stored."""
    steps = np.arange(2 * 5).reshape(2, 5)
    rows = {
        "obs.a": steps.astype(np.float32),
        "obs.b.0": np.stack((steps, steps), -1),
        "action_mask": steps[..., None] % [2, 3] == 0,
        "actions.0": steps[:, :4],
        "rewards": np.ones((2, 4), np.float32),
        "terminated": np.zeros((2, 4), bool),
        "truncated": np.zeros((2, 4), bool),
        "mask": np.ones((2, 4), bool),
        "policy_version": np.zeros((2, 4), np.int64),
    }
    replay = TransitionReplay(row_fields(rows), 2, n=2, gamma=1.0)
    assert "policy_version" not in replay.storage.arrays
    replay.add(rows)
    fields, index, _ = replay.sample(20, np.random.default_rng(0))
    t = 5 * (index // 4) + index % 4
    assert (index % 4 < 3).all()
    np.testing.assert_array_equal(fields["obs.a"], t)
    np.testing.assert_array_equal(fields["next_obs.b.0"], np.stack((t, t), -1) + 2)
    np.testing.assert_array_equal(fields["actions.0"], t)
    np.testing.assert_array_equal(fields["next_action_mask"], (t[:, None] + 2) % [2, 3] == 0)


def test_transition_replay_restores():
    stream = Stream(120, seed=2)
    one, _ = filled(stream, 5)
    one.update_priorities(one.sample(20, np.random.default_rng(1))[1], np.linspace(0.1, 3, 20))
    fields, _ = stream.rows(LENGTH, N - 1)
    other = TransitionReplay(row_fields(fields), 5, N, GAMMA)
    other.load_state_dict(one.state_dict())
    assert len(other) == len(one)
    for a, b in zip(
        one.sample(30, np.random.default_rng(2)),
        other.sample(30, np.random.default_rng(2)),
        strict=True,
    ):
        np.testing.assert_equal(a, b)
