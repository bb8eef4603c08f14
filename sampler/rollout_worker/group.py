"""One group of lanes: its environments, its rows, and its request to the policy worker."""

from __future__ import annotations

import warnings

import numpy as np

from sampler.errors import RAISED, EnvError, FastrlError, one_line
from sampler.rollout_worker.given_scores import GivenScores
from sampler.rollout_worker.lanes import Lanes, StepResult
from sampler.rollout_worker.likeness import LikenessCheck
from sampler.rollout_worker.observations import ObservationWriter, outside
from sampler.rollout_worker.rows import Block, RowFiller
from sampler.shm.shared import Shared
from sampler.shm.signals import ANSWERED, ASKED, REFUSED, REQUEST_WORDS, ROW, STEP, TOKEN
from sampler.shm.store import FRAMES
from sampler.shm.tokens import NONE

# Rewards beyond float32: whoever looks at a finished row reports them as what they are, infinite.
warnings.filterwarnings("ignore", "overflow encountered in cast", RuntimeWarning, __name__)


class Group:
    """One group of lanes: its environments, its rows, and its request to the policy worker."""

    def __init__(self, index: int, lanes: Lanes, shared: Shared, writer: ObservationWriter):
        self.index = index
        self.lanes = lanes
        self.writer = writer
        self.shared = shared
        spec = self.spec = shared.spec
        topology = shared.topology
        self.lane_ids = topology.lanes_of_group(index)
        self.filler = RowFiller(shared.store, self.lane_ids)
        # Scalar access through a memoryview is several times faster than through numpy.
        words = memoryview(shared.arena.memory).cast("q")
        start = shared.arena.layout.fields["requests"][0] // 8 + index * REQUEST_WORDS
        self.request = words[start : start + REQUEST_WORDS]
        self.asked = self.request[ASKED]
        self.observation_names = (
            [FRAMES] if spec.stacks_frames else [a.name for a in spec.observations]
        )
        self.newest = spec.frame_stack  # entry of observation t+1, counted from t
        self.episode_ids = np.zeros(len(self.lane_ids), np.int64)
        # Of the games in progress; rewards of the rows in progress are added when they end.
        self.scores = np.zeros(len(self.lane_ids))
        self.lengths = np.zeros(len(self.lane_ids), np.int64)
        self.given_scores = GivenScores(len(self.lane_ids))
        self.likeness: LikenessCheck | None = None
        self.token = NONE
        self.block: Block | None = None
        self.row = 0  # rows begun since the lanes' state was last unbroken
        self.step = 0
        self.real_steps = 0  # in the rows in progress: neither repeated nor resets

    def start(self) -> None:
        """Reset the lanes; their first observations wait in the carry for the first rows."""
        carry = self.filler.carry
        mask = carry.get("action_mask")
        try:
            self.lanes.reset([carry[name] for name in self.observation_names], -1, mask)
        except FastrlError:
            raise
        except RAISED as error:
            raise EnvError(one_line(error)) from error
        for lane, reward, _ in self.lanes.result.reset_games:
            self.scores[lane] += reward
            self.given_scores.add_reset(lane, reward)
        carry["age"][:, -1] = 0
        for lane in range(len(self.lane_ids)):
            self.episode_ids[lane] = self._next_episode(lane)

    def _next_episode(self, lane: int) -> int:
        identifier = int(self.shared.lane_episodes[self.lane_ids[lane]])
        self.shared.lane_episodes[self.lane_ids[lane]] = identifier + 1
        return identifier

    # ---- rows

    def claim(self) -> bool:
        """Ask for rows; False if the group has to wait for them."""
        self.token = self.shared.tokens.claim(self.index)
        return self.token != NONE and self._begin()

    def look_for_rows(self) -> bool:
        """Whether rows have been granted to the waiting group."""
        self.token = self.shared.tokens.granted(self.index)
        return self.token != NONE and self._begin()

    def _begin(self) -> bool:
        block = self.open_rows()
        self.real_steps = 0
        self.step = self.filler.begin(block, self.episode_ids)
        self.request[STEP] = self.step
        self.request[TOKEN] = self.token
        self.request[ROW] = self.row
        return True

    def open_rows(self) -> Block:
        """The rows of the group's token, from now on those at hand."""
        self.block = self.filler.block(self.token)
        a = self.block.arrays
        self._actions = [a[s.name] for s in self.spec.actions]
        self._observations = [a[name] for name in self.observation_names]
        self._mask = a.get("action_mask")
        return self.block

    def ask(self) -> None:
        """Publish the request for the actions of the current step; the caller rings the bell."""
        self.asked += 1
        self.request[STEP] = self.step
        self.request[ASKED] = self.asked

    @property
    def answered(self) -> bool:
        return self.request[ANSWERED] == self.asked

    @property
    def refused(self) -> bool:
        """The policy worker has lost the recurrent state that these rows go on from."""
        return self.request[REFUSED] == self.asked

    # ---- steps

    def advance(self) -> StepResult:
        """Step every lane once with the actions that have come, and record what happened."""
        block, t = self.block, self.step
        assert block is not None
        try:
            result = self.lanes.step(
                [leaf[:, t] for leaf in self._actions],
                self._observations,
                t + self.newest,
                self._mask,
                t + 1,
            )
        except FastrlError:
            raise
        except RAISED as error:
            raise EnvError(one_line(error)) from error
        try:
            block.rewards[:, t] = result.rewards
        except (TypeError, ValueError):
            raise EnvError(f"rewards {result.rewards} are not all numbers; return floats") from None
        self.real_steps += len(self.lane_ids) - result.masked_steps
        for lane in result.resets:
            self.episode_ids[lane] = self._next_episode(lane)
            self.filler.begin_episode(block, lane, t, int(self.episode_ids[lane]))
        for lane, terminated, truncated, _ in result.ended:
            block.terminated[lane, t] = terminated
            block.truncated[lane, t] = truncated
        if self.spec.previous:
            self._write_previous(block, t, result)
        self.step = t + 1
        return result

    def _write_previous(self, block: Block, t: int, result: StepResult) -> None:
        names = [spec.name for spec in self.spec.actions]
        for name in names:
            block.arrays[f"previous_{name}"][:, t + 1] = block.arrays[name][:, t]
        block.arrays["previous_rewards"][:, t + 1] = block.rewards[:, t]
        for lane in result.resets:
            for name in names:
                block.arrays[f"previous_{name}"][lane, t + 1] = 0
            block.arrays["previous_rewards"][lane, t + 1] = 0

    def begin_episode(self, lane: int) -> None:
        """Begin the next episode of `lane` with the observation just written: its last one ended in
        the same step, and its score and length were taken."""
        block, t = self.block, self.step - 1
        assert block is not None
        self.episode_ids[lane] = self._next_episode(lane)
        # What is taken out of the row still belongs to the score.
        self.scores[lane] += self.filler.begin_episode_at_once(
            block, lane, t, int(self.episode_ids[lane])
        )
        if self.spec.previous:
            for spec in self.spec.actions:
                block.arrays[f"previous_{spec.name}"][lane, t + 1] = 0
            block.arrays["previous_rewards"][lane, t + 1] = 0

    def end_episode(self, lane: int, game_over: bool) -> tuple[float, int]:
        """Score and length of the game in `lane`, whose episode ended with the last step.

        Both start again if the whole game is over.
        """
        block, end = self.block, self.step
        assert block is not None
        in_row = float(self._fresh_rewards(block)[lane].sum(dtype=np.float64))
        score = float(self.scores[lane]) + in_row
        steps = int(block.age[lane, end])
        self.given_scores.add_episode(lane, steps, self.lanes.result.given_scores.get(lane))
        self.lengths[lane] += steps
        length = int(self.lengths[lane])
        if game_over:
            score = self.given_scores.end_game(lane, score, length)
            self._new_game(lane, in_row)
        return score, length

    def reset_game(self, lane: int, reward: float, game_over: bool) -> tuple[float, int]:
        """Add what a reset scored to the game in `lane`; score and length of that game.

        Both start again if the game ended in the reset.
        """
        block = self.block
        assert block is not None
        self.scores[lane] += reward
        self.given_scores.add_reset(lane, reward)
        in_row = float(self._fresh_rewards(block)[lane].sum(dtype=np.float64))
        score, length = float(self.scores[lane]) + in_row, int(self.lengths[lane])
        if game_over:
            score = self.given_scores.end_game(lane, score, length)
            self._new_game(lane, in_row)
        return score, length

    def _new_game(self, lane: int, in_row: float) -> None:
        self.scores[lane] = -in_row  # so that the row's own sum leaves only what comes after
        self.lengths[lane] = 0

    def _fresh_rewards(self, block: Block) -> np.ndarray:
        """Rewards of the rows in progress so far, without those repeated from the rows before."""
        return block.rewards[:, self.filler.overlapping : self.step]

    # ---- ends of rows

    def finish(self) -> bool:
        """Check and hand over the full rows. False if they had been given up meanwhile."""
        block = self.block
        assert block is not None
        self._check(block)
        if self.likeness is not None:
            self.likeness.add(self.lane_ids.start, block.arrays, self.filler.overlapping)
            if self.likeness.done:
                self.likeness = None
        self.scores += self._fresh_rewards(block).sum(axis=1, dtype=np.float64)
        self.filler.end(block)
        self.row += 1
        return self.shared.tokens.finish(self.token)

    def cut(self) -> int:
        """Throw the half-filled rows away but go on from here; returns the steps lost."""
        block = self.block
        assert block is not None
        self.scores += self._fresh_rewards(block).sum(axis=1, dtype=np.float64)
        self.filler.cut(block, self.step)
        self.row = 0
        return self.real_steps

    def restart_rows(self) -> int:
        """Begin the same rows again from the current observation; returns the steps lost."""
        lost = self.cut()
        self._begin()
        return lost

    def _check(self, block: Block) -> None:
        """Refuse values outside the spaces before anybody learns from them."""
        if not np.isfinite(block.rewards).all():
            lane, step = np.argwhere(~np.isfinite(block.rewards))[0].tolist()
            self._blame(lane)
            raise EnvError(
                f"reward {block.rewards[lane, step]} (step {step} of the row); "
                "rewards must be finite: correct or clip them in the environment"
            )
        for leaf, rows in zip(self.writer.leaves, self._observations, strict=True):
            if (position := outside(leaf, rows)) is not None:
                self._blame(position[0])
                raise EnvError(
                    f"{leaf.name} holds {rows[position]} at index {position[2:]}, outside its "
                    f"space {leaf.space} (step {position[1]} of the row); correct the "
                    "environment, or its observation_space"
                )

    def _blame(self, lane: int) -> None:
        """Make this lane the one that errors name."""
        worker = self.index // self.shared.topology.groups_per_worker
        self.shared.counters.rollout[worker]["lane"] = self.lane_ids[lane]
