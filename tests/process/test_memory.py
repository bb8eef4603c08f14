from __future__ import annotations

import pytest

from sampler.process.memory import available_memory


def test_cached_files_do_not_count_as_used_memory(groups):
    stat = "anon 100000\nfile 800000\ninactive_file 700000"
    files = {"memory.max": "1000000", "memory.current": "900000", "memory.stat": stat}
    groups.version_2("/", files)
    assert available_memory() == 800_000
    groups.version_2("/", {"memory.max": "max"})
    assert available_memory() > 1_000_000


@pytest.mark.parametrize(("inner", "outer", "left"), [(9, 8, 7), (5, 8, 4), (9, 2, 1)])
def test_the_tightest_group_decides(groups, inner, outer, left):
    own = {"job/step/memory.max": str(inner), "job/step/memory.current": "1"}
    around = {"job/memory.max": str(outer), "job/memory.current": "1"}
    groups.version_2("/job/step", {**own, **around})
    assert available_memory() == left


def test_groups_of_version_1(groups):
    files = {
        "job/memory.limit_in_bytes": "1000",
        "job/memory.usage_in_bytes": "400",
        "job/memory.stat": "inactive_file 1\ntotal_inactive_file 150",
        "memory.limit_in_bytes": "9223372036854771712",
        "memory.usage_in_bytes": "5000",
    }
    groups.version_1("memory", "/job/step_0", files)
    assert available_memory() == 750
