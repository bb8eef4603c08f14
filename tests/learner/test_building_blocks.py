"""What docs/building_blocks.md shows is run as it is printed."""

from __future__ import annotations

import re
from inspect import getmembers, isfunction
from pathlib import Path

import pytest

from sampler.learner.functional import losses, targets

DOCUMENT = (Path(__file__).parents[2] / "docs" / "building_blocks.md").read_text()
PIECES = {"backward_recurrence", "reduce", "ppo_terms", "clip_range"}  # of other functions


def test_the_examples_run():
    blocks = re.findall(r"^```python\n(.*?)^```$", DOCUMENT, re.DOTALL | re.MULTILINE)
    assert len(blocks) > 3
    names: dict[str, object] = {"__name__": "building_blocks"}
    for block in blocks:
        exec(compile(block, "building_blocks.md", "exec"), names)


@pytest.mark.parametrize("module", [targets, losses])
def test_every_target_and_loss_is_listed(module):
    names = [name for name, _ in getmembers(module, isfunction) if not name.startswith("_")]
    own = [n for n in names if getattr(module, n).__module__ == module.__name__]
    assert len(own) > 5
    for name in set(own) - PIECES:
        assert f"`{name}`" in DOCUMENT
