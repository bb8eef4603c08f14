"""Spans from heartbeats, and how much they overlap."""

from __future__ import annotations

import json

import numpy as np
import pytest

from perf.measure.spans import Span, common, length, overlap, spans, union
from perf.timeline import Take, chrome_trace, draw
from sampler.shm.counters import Stage

STEP, INFER, LEARN, WAIT = Stage.STEPPING, Stage.INFERENCE, Stage.LEARNING, Stage.WAITING


def test_spans_last_until_the_same_row_changes():
    ms = 1_000_000
    changes = np.array(
        [
            [1, STEP, 100 * ms],
            [2, INFER, 110 * ms],
            [1, WAIT, 130 * ms],
            [1, STEP, 150 * ms],
        ]
    )
    result = spans(changes, began=100 * ms, ended=200 * ms)
    assert [(s.row, s.stage) for s in result] == [(1, STEP), (1, WAIT), (1, STEP), (2, INFER)]
    assert [(s.begin, s.end) for s in result] == [
        pytest.approx(times) for times in [(0.0, 0.03), (0.03, 0.05), (0.05, 0.1), (0.01, 0.1)]
    ]


def test_spans_are_clipped_to_the_recording():
    changes = np.array([[1, WAIT, 5], [1, STEP, 40], [1, WAIT, 90]])
    result = spans(changes, began=50, ended=80)
    assert [s.stage for s in result] == [STEP]
    assert (result[0].begin, result[0].end) == pytest.approx((0.0, 30e-9))


def test_no_changes_give_no_spans():
    assert spans(np.zeros((0, 3), np.int64), 0, 10) == []


def test_union_joins_what_touches():
    assert union([(3, 4), (0, 1), (1, 2), (3.5, 5), (3.6, 3.7)]) == [(0, 2), (3, 5)]
    assert length(union([(0, 2), (1, 3)])) == 3


def test_common_time():
    assert common([(0, 2), (3, 5)], [(1, 4), (4.5, 9)]) == pytest.approx(1 + 1 + 0.5)
    assert common([(0, 1)], [(1, 2)]) == 0
    assert common([], [(0, 1)]) == 0


def test_taking_turns_is_an_overlap_of_one():
    turns = [Span(1, STEP, 0, 1), Span(2, INFER, 1, 2), Span(1, STEP, 2, 3), Span(2, WAIT, 2, 3)]
    assert overlap(turns) == {
        "overlap": 1.0,
        "inference_while_stepping": 0.0,
        "learning_while_stepping": 0.0,
    }


def test_overlap_counts_kinds_not_processes():
    # Two rollout workers step together all the time: that is one kind of work.
    recorded = [
        Span(1, STEP, 0, 4),
        Span(2, STEP, 0, 4),
        Span(3, INFER, 1, 3),
        Span(0, LEARN, 2, 6),
    ]
    result = overlap(recorded)
    assert result["overlap"] == pytest.approx((4 + 2 + 4) / 6)
    assert result["inference_while_stepping"] == 1.0
    assert result["learning_while_stepping"] == 0.5


def test_nothing_recorded_is_no_overlap():
    assert set(overlap([]).values()) == {0.0}


TAKES = [
    Take(1, 3.0, [Span(1, STEP, 0, 1), Span(2, INFER, 1, 2)], 10.0),
    Take(2, 3.0, [Span(1, STEP, 0, 2), Span(2, INFER, 1, 2)], 20.0),
]


def test_chrome_trace_has_a_named_thread_for_each_process():
    trace = json.loads(json.dumps(chrome_trace(TAKES, ["learner", "rollout 0", "policy 0"])))
    events = trace["traceEvents"]
    names = [e["args"]["name"] for e in events if e["ph"] == "M" and e["pid"] == 2]
    assert names == ["groups: 2", "learner", "rollout 0", "policy 0"]
    assert next(e for e in events if e["ph"] == "X") == {
        "ph": "X",
        "name": "stepping",
        "pid": 1,
        "tid": 1,
        "ts": 0.0,
        "dur": 1e6,
    }


def test_picture_is_drawn(tmp_path):
    path = tmp_path / "folder" / "timeline.png"
    draw(path, TAKES, ["learner", "rollout 0", "policy 0"], window=1.0)
    assert path.read_bytes().startswith(b"\x89PNG")
