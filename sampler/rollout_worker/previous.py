"""The previous action and reward, for models that ask for them."""

from __future__ import annotations

from sampler.rollout_worker.rows import Block
from sampler.shm.store import StoreSpec


class PreviousInputs:
    """Writes each step's action and reward into the entries of the observation after it."""

    def __init__(self, spec: StoreSpec):
        names = [*(action.name for action in spec.actions), "rewards"]
        self._fields = [(name, f"previous_{name}") for name in names]

    def write(self, block: Block, step: int, began: list[int]) -> None:
        """Write them after the transition at `step`; zeros in lanes where it `began` an episode."""
        for name, previous in self._fields:
            target = block.arrays[previous][:, step + 1]
            target[:] = block.arrays[name][:, step]
            if began:
                target[began] = 0
