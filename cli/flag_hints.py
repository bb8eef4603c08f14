"""What was probably meant by a flag that there is not."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

ALIASES = {
    "algorithm": "--algo",
    "clip-coef": "--learner.clip",
    "ent-coef": "--learner.entropy-coef",
    "env-id": "--env",
    "gae-lambda": "--learner.lambda_",
    "learning-rate": "--learner.learning-rate",
    "lr": "--learner.learning-rate",
    "n-envs": "--envs-per-worker",
    "n-steps": "--rollout",
    "num-actors": "--workers",
    "num-envs": "--envs-per-worker",
    "num-envs-per-worker": "--envs-per-worker",
    "num-minibatches": "--learner.minibatches",
    "num-steps": "--rollout",
    "num-workers": "--workers",
    "timesteps": "--total-steps",
    "total-timesteps": "--total-steps",
    "update-epochs": "--learner.epochs",
    "vf-coef": "--learner.value-coef",
}
"""Names that settings have in other libraries, and the flags that they are here."""


def hint(flag: str, known: Sequence[str], others: Mapping[str, Sequence[str]]) -> str | None:
    """A remedy for the unknown `flag`; None where nothing resembles it.

    known: the flags there are. others: further ones that exist under another choice, such as of
    the algorithm, with these choices.
    """
    name = flag.removeprefix("--")
    last = name.rpartition(".")[2]
    meant = ALIASES.get(last, flag)
    if meant in others:
        what = "it" if meant == flag else f"did you mean {meant}? it"
        return f"{what} is a setting of {', '.join(others[meant])} alone"
    if meant in known:
        return f"did you mean {meant}?"
    if same := [one for one in known if one.removeprefix("--").rpartition(".")[2] == last]:
        return f"did you mean {' or '.join(same)}?"
    close = difflib.get_close_matches(flag, known, n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else None
