from __future__ import annotations

import pytest
from helpers.control_groups import ControlGroups

from sampler.process import cgroups


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """Control groups that a test sets up, none at first."""
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    return ControlGroups(tmp_path)
