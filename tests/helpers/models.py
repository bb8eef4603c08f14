"""A model whose state can be worked out exactly, and changes to the weights of any."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from sampler.envs.counter import ACTIONS

MODULUS = 65521  # states stay whole numbers that float32 holds exactly


class History(nn.Module):
    """Remembers the whole episode of `fastrl/Counter-v0`: how many observations, and their hash."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.0))

    def initial_state(self, n):
        return torch.zeros(n, 2)

    def step(self, obs, state, is_first):
        state = torch.where(is_first[:, None], 0.0, state)
        count = state[:, 0] + 1
        digest = (state[:, 1] * 31 + obs[:, 2] + 7 * (obs[:, 3] + 1)) % MODULUS
        logits = self.scale * ((digest[:, None] + torch.arange(ACTIONS)) % 5)
        return {"logits": logits, "values": count}, torch.stack((count, digest), dim=1)

    def unroll(self, obs, state, is_first):
        outputs = []
        for t in range(is_first.shape[1]):
            output, state = self.step(obs[:, t], state, is_first[:, t])
            outputs.append(output)
        return {k: torch.stack([o[k] for o in outputs], 1) for k in outputs[0]}, state


def make_history(observation_space, action_space):
    return History()


def histories(decoded: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The states [N, 2] of `History` before and after a lane's consecutive observations [N, 4]."""
    before, after = np.zeros((2, len(decoded), 2), np.int64)
    count = digest = 0
    for t, (_, _, step, action) in enumerate(decoded.tolist()):
        if step == 0:
            count = digest = 0
        before[t] = count, digest
        count, digest = count + 1, (digest * 31 + step + 7 * (action + 1)) % MODULUS
        after[t] = count, digest
    return before, after


def perturb(network: nn.Module, seed: int = 0, scale: float = 0.3) -> None:
    """Move all weights at random."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += scale * torch.randn(parameter.shape, generator=generator)
