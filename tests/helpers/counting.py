"""Proof that batches of `fastrl/Counter-v0` hold exactly what its lanes went through.

A lane's whole life follows from its seed: which episodes it plays, how long they are, and how they
end. So every observation has one time on its lane's time line (an episode of n steps takes n + 1
transitions: the last one resets), and a row must hold T consecutive times.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from gymnasium.utils.seeding import np_random
from helpers.inspection import advance, finished_rows, waits_for_rows

from sampler import Sampler, SequenceBatch, seeds
from sampler.envs.counter import counter_reward, decode, intact
from sampler.shm.store import FRAMES

LANE, EPISODE, STEP, ACTION = range(4)


class TimeLine:
    """What a lane with one seed goes through, worked out without the environment."""

    def __init__(self, seed: int, min_length: int, max_length: int):
        self.seed = seed
        self._rng = np_random(seed)[0]
        self._range = (min_length, max_length + 1)
        self.lengths = np.zeros(0, np.int64)
        self.terminates = np.zeros(0, bool)
        self.begins = np.zeros(1, np.int64)  # time of each episode's first observation

    def reach(self, episode: int) -> None:
        """Work out all episodes up to this one."""
        missing = episode + 1 - len(self.lengths)
        if missing <= 0:
            return
        drawn = [(self._rng.integers(*self._range), self._rng.integers(2)) for _ in range(missing)]
        lengths, terminates = np.array(drawn).T
        self.lengths = np.concatenate((self.lengths, lengths))
        self.terminates = np.concatenate((self.terminates, terminates.astype(bool)))
        self.begins = np.concatenate(([0], np.cumsum(self.lengths + 1)))

    def score(self, episode: int) -> float:
        steps = np.arange(1, self.lengths[episode] + 1)
        return float(counter_reward(self.seed, episode, steps).sum())


@dataclass(frozen=True)
class Row:
    """Copies of one stored row; `fields` are [T, ...] or [T+1, ...]."""

    start: int
    """Time of its first observation on its lane's time line."""
    fields: dict[str, np.ndarray]
    state: np.ndarray | None


class CounterChecker:
    """Checks batches as they come (`add`), and what they add up to at the end.

    With `gaps`, rows may be missing between those of a lane (given up, or lost with a killed
    process), and masked rows may be delivered in their place; none may be wrong or doubled.
    """

    def __init__(self, sampler: Sampler, gaps: bool = False, restarts: int = 0):
        """`restarts`: how often a worker may have been restarted, which gives lanes new seeds."""
        self.sampler = sampler
        self.config = config = sampler.config
        self.spec = sampler.empty_batch().spec
        self.gaps = gaps
        kwargs = config.env_kwargs
        lengths = kwargs.get("min_length", 1), kwargs.get("max_length", 40)
        self.time_lines: dict[int, TimeLine] = {}
        self.lane_of: dict[int, int] = {}
        for lane in range(config.lanes):
            for restart in range(restarts + 1):
                seed = seeds.integer(config.seed, seeds.LANE, lane, restart)
                self.time_lines[seed] = TimeLine(seed, *lengths)
                self.lane_of[seed] = lane
        self.rows: dict[int, list[Row]] = defaultdict(list)  # by lane seed
        self.games: dict[int, list[Any]] = defaultdict(list)  # by lane
        self.given_up = 0

    # ---- each batch by itself

    def add(self, batch: SequenceBatch) -> None:
        """Check every transition of a batch, and keep a copy of its rows."""
        for episode in self.sampler.episodes():
            self.games[episode.lane].append(episode)
        fields = {name: np.array(array) for name, array in batch.fields.items() if name != FRAMES}
        if not len(batch):
            return
        seen, whole = self._decode(batch)
        kept = np.arange(len(batch))
        if self.gaps:
            kept = np.flatnonzero(fields["mask"].any(axis=1))
            self.given_up += len(batch) - len(kept)
        assert whole[kept].all(), "torn observation"
        self._check_rows({name: array[kept] for name, array in fields.items()}, seen[kept])
        if self.spec.stacks_frames:
            self._check_stacks(np.asarray(batch.obs)[kept], seen[kept])
        for i in kept:
            seed = int(seen[i, 0, LANE])
            line = self.time_lines[seed]
            start = int(line.begins[seen[i, 0, EPISODE]] + seen[i, 0, STEP])
            row = {n: a[i] for n, a in fields.items() if n not in ("lane_id", "rnn_state")}
            row["decoded"] = seen[i]
            state = fields["rnn_state"][i] if "rnn_state" in fields else None
            self.rows[seed].append(Row(start, row, state))

    def _decode(self, batch: SequenceBatch) -> tuple[np.ndarray, np.ndarray]:
        if self.spec.stacks_frames:
            observations = np.asarray(batch.fields[FRAMES])[:, self.spec.frame_stack - 1 :]
        else:
            observations = np.array(batch.obs)
        return decode(observations), intact(observations)

    def _check_rows(self, f: dict[str, np.ndarray], seen: np.ndarray) -> None:
        now, after = seen[:, :-1], seen[:, 1:]
        lane, episode, step, _ = np.moveaxis(now, -1, 0)
        assert (seen[..., LANE] == seen[:, :1, LANE]).all(), "lanes mixed in a row"
        lanes = np.array([self.lane_of[seed] for seed in seen[:, 0, LANE].tolist()], np.int64)
        np.testing.assert_array_equal(f["lane_id"], lanes)
        np.testing.assert_array_equal(f["age"], seen[..., STEP])
        lengths, terminates = self._episodes_of(seen[..., LANE], seen[..., EPISODE])
        ends = step == lengths[:, :-1]  # this transition only resets
        np.testing.assert_array_equal(f["mask"], ~ends)
        # Real transitions go one step on, by the stored action; others begin the next episode.
        expected = np.stack([lane, episode, step + 1, f["actions"]], axis=-1)
        reset = np.stack([lane, episode + 1, 0 * step, 0 * step - 1], axis=-1)
        np.testing.assert_array_equal(after, np.where(ends[..., None], reset, expected))
        rewards = np.where(ends, 0, counter_reward(lane, episode, step + 1))
        np.testing.assert_array_equal(f["rewards"], rewards)
        done = ~ends & (step + 1 == lengths[:, :-1])
        np.testing.assert_array_equal(f["terminated"], done & terminates[:, :-1])
        np.testing.assert_array_equal(f["truncated"], done & ~terminates[:, :-1])
        if self.config.inference == "random":
            np.testing.assert_array_equal(f["log_probs"], np.float32(-np.log(4)))
        assert (np.diff(f["policy_version"], axis=1) >= 0).all()
        if "previous_actions" in f:
            first = seen[..., STEP] == 0
            np.testing.assert_array_equal(
                f["previous_actions"], np.where(first, 0, seen[..., ACTION])
            )
            reward = counter_reward(seen[..., LANE], seen[..., EPISODE], seen[..., STEP])
            np.testing.assert_array_equal(f["previous_rewards"], np.where(first, 0, reward))

    def _episodes_of(self, lanes: np.ndarray, episodes: np.ndarray) -> tuple[np.ndarray, ...]:
        """Length and kind of end of each episode; arrays shaped like the arguments."""
        lengths, terminates = np.zeros_like(lanes), np.zeros(lanes.shape, bool)
        for row, (seed, numbers) in enumerate(zip(lanes[:, 0].tolist(), episodes, strict=True)):
            line = self.time_lines[seed]
            line.reach(int(numbers.max()))
            lengths[row], terminates[row] = line.lengths[numbers], line.terminates[numbers]
        return lengths, terminates

    def _check_stacks(self, stacks: np.ndarray, seen: np.ndarray) -> None:
        """Each stack holds the last S frames of its episode, and zeros before its beginning."""
        size = self.spec.frame_stack
        for position in range(size):
            back = size - 1 - position
            part = stacks[:, :, position]
            before = seen[..., STEP] < back
            assert not part[before].any(), "frames from before an episode are not zero"
            found = decode(part)
            assert intact(part).all()
            np.testing.assert_array_equal(
                found[~before][:, [LANE, EPISODE, STEP]],
                (seen[..., [LANE, EPISODE, STEP]] - [0, 0, back])[~before],
            )

    # ---- everything together

    def wait_for_back_pressure(self) -> None:
        """Until every group waits for rows, so that nothing is stepped any more."""
        for _ in range(100_000):
            if waits_for_rows(self.sampler).all():
                return
            advance(self.sampler, timeout=0.01)
        raise AssertionError(f"some group never waits for rows: {waits_for_rows(self.sampler)}")

    def drain(self) -> None:
        """Hold the present batch until nobody can go on, and add all finished rows."""
        self.wait_for_back_pressure()
        for rows in finished_rows(self.sampler):
            self.add(rows)

    def check(self, drained: bool = False) -> None:
        """Check that the rows of each lane follow one another with nothing lost or doubled.

        `drained`: all rows that exist have been added, so that episodes and counters must agree
        with them exactly.
        """
        for seed in self.rows:
            self._check_lane(seed)
        for lane in range(self.config.lanes):
            self._check_games(lane)
        if drained:
            self._check_counts()

    def _check_lane(self, seed: int) -> None:
        rows = sorted(self.rows[seed], key=lambda row: row.start)
        steps, overlap = self.spec.steps, self.spec.overlap
        if not self.gaps:
            assert rows[0].start == 0, "the lane's first row is missing"
        for before, after in pairwise(rows):
            common = before.start + steps - after.start
            if self.gaps:
                assert common <= overlap, "a step was delivered twice"
            else:
                assert common == overlap, f"{overlap - common} steps were lost in lane {seed}"
            if common < 0:
                continue
            for name, array in after.fields.items():
                shared = common + (len(array) > steps)  # observations have one more
                earlier = before.fields[name][len(before.fields[name]) - shared :]
                np.testing.assert_array_equal(array[:shared], earlier, err_msg=name)
        versions = np.concatenate([row.fields["policy_version"] for row in rows])
        if not overlap:
            assert (np.diff(versions) >= 0).all()
        shift = [row.fields["episode_id"] - row.fields["decoded"][:-1, EPISODE] for row in rows]
        assert len(np.unique(shift)) == 1, "episode ids do not follow the episodes"

    @cached_property
    def counts(self) -> dict[str, int]:
        """Of the transitions added, without those that rows repeat."""
        counts: dict[str, int] = defaultdict(int)
        for rows in self.rows.values():
            seen = 0  # everything before this time was counted
            for row in sorted(rows, key=lambda row: row.start):
                fresh = slice(max(0, seen - row.start), None)
                seen = row.start + self.spec.steps
                counts["steps"] += int(row.fields["mask"][fresh].sum())
                counts["masked_steps"] += int((~row.fields["mask"][fresh]).sum())
                ended = row.fields["terminated"] | row.fields["truncated"]
                counts["episodes"] += int(ended[fresh].sum())
        return dict(counts)

    def _check_counts(self) -> None:
        stats = self.sampler.stats()
        assert {name: stats[name] for name in self.counts} == self.counts
        assert stats["frames"] == stats["steps"]
        assert (stats["lost_steps"], stats["abandoned_rows"], stats["restarts"]) == (0, 0, 0)
        assert sum(len(games) for games in self.games.values()) == self.counts["episodes"]

    def _check_games(self, lane: int) -> None:
        """Reported games are all that the lane played, in order, from its first after a start."""
        lines = [line for seed, line in self.time_lines.items() if self.lane_of[seed] == lane]
        firsts = [self._game(lane, line, 0) for line in lines]
        # Which game of which line may come next; several, where games equal one another by chance.
        places = {(0, 0)}
        for game in self.games[lane]:
            started = min(line for line, _ in places) + 1  # perhaps its worker did, again
            places = {
                (line, number + 1)
                for line, number in places
                if game == self._game(lane, lines[line], number)
            } | {(line, 1) for line in range(started, len(lines)) if game == firsts[line]}
            assert places, f"lane {lane} cannot have played {game}"

    def _game(self, lane: int, line: TimeLine, number: int) -> tuple[int, float, int, int]:
        line.reach(number)
        length = int(line.lengths[number])
        return lane, line.score(number), length, length


def run_counter(sampler: Sampler, steps: int, checker: CounterChecker | None = None) -> Any:
    """Take batches until `steps` transitions were seen, then all that is left; check everything."""
    checker = checker or CounterChecker(sampler)
    per_batch = sampler.config.batch * (sampler.config.rollout - sampler.config.overlap)
    for _ in range(-(-steps // per_batch)):
        checker.add(sampler.get_batch())
    checker.drain()
    checker.check(drained=True)
    return checker
