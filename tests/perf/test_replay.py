from __future__ import annotations

import json

import pytest

from perf.replay import TREES, Settings, copy_rows, main, tree_rows


def test_reports_every_measurement(tmp_path, capsys):
    path = tmp_path / "report.json"
    main(
        Settings(
            seconds=1e-6,
            rounds=2,
            json=path,
            steps=6,
            batch=4,
            megabytes=1,
            transitions=8,
            leaves=64,
            indices=16,
        )
    )
    report, printed = json.loads(path.read_text()), capsys.readouterr().out
    inserted = report["copies"]["insert rows"]
    assert inserted["items_per_second"]["median"] > 0
    assert inserted["of_copy"]["count"] == 2
    assert "of_copy" not in report["copies"]["plain copy of a batch of rows"]
    for what in ("set", "find", "set and find"):
        entry = report["sum_trees"][f"fastrl {what}"]
        assert entry["fastrl"]["median"] == pytest.approx(1)
    measured = {name.split()[0] for name in report["sum_trees"]} - {"not_measured"}
    missing = {line.split()[0] for line in report["sum_trees"]["not_measured"]}
    assert measured | missing == set(TREES)
    assert not measured & missing
    assert "sample 3-step transitions" in printed


def test_the_document_has_a_row_for_everything():
    one = {"median": 1.0, "low": 1.0, "high": 1.0, "count": 1}
    facts = {"items_per_second": one, "gib_per_second": one}
    report = {"copies": {"plain": facts, "insert": {**facts, "of_copy": {**one, "median": 0.75}}}}
    assert copy_rows(report) == [("plain", "1", "1.00", ""), ("insert", "1", "1.00", "75%")]
    tree = {"microseconds": one, "indices_per_second": one, "fastrl": one}
    trees = {"fastrl set": tree, "not_measured": ["torchrl is not measured"]}
    assert tree_rows({"sum_trees": trees}) == [
        ("fastrl set", "1", "1", "1.00"),
        ("torchrl is not measured", "", "", ""),
    ]
