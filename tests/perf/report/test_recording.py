"""Reports become tables, and tables find their places in the document."""

from __future__ import annotations

from pathlib import Path

import pytest

from perf.report import recording, rows
from perf.report.parts import PARTS
from perf.report.recording import block, fill

ROOT = Path(__file__).parents[3]

MACHINE = {"processor": "Some CPU", "cores": 2, "python": "3.11.7", "load_before": 0.1}


def test_text_goes_between_the_marks_of_its_part():
    document = (
        "a\n<!-- begin one -->\nold\n<!-- end one -->\n<!-- begin two -->\n<!-- end two -->\n"
    )
    filled = fill(document, "two", "new \\1")
    assert filled == document.replace("begin two -->\n", "begin two -->\nnew \\1\n")
    assert fill(filled, "two", "newer") == filled.replace("new \\1", "newer")
    with pytest.raises(ValueError, match="no marks for 'three'"):
        fill(document, "three", "new")


def test_the_document_has_a_place_for_every_part():
    document = (ROOT / "docs/performance.md").read_text()
    for name in PARTS:
        fill(document, name, "")


def test_a_block_shows_command_machine_and_figures():
    report = {
        "machine": MACHINE,
        "rounds": {"sps": [90.0, 80.0, 100.0], "ideal_sps": [100.0, 100.0, 100.0]},
        "share_range": [0.8, 1.0],
        "share": 0.9,
        "rollout_wait_share": 0.02,
        "rollout_wait_share_range": [0.01, 0.03],
        "stages": {"rollout": {"step": 0.95, "wait": 0.02, "other": 0.03}},
    }
    text = block("scale", report)
    assert text.startswith(
        "    python -m perf.scale --seconds 5 --workers 32 --step-us 400 --json docs/figures/"
    )
    assert "Some CPU, 2 cores" in text
    assert "| steps/s | 90 (80 to 100) |" in text
    assert "| share of it | 0.900 (0.800 to 1.000) |" in text
    assert "| rollout: time in | step 95.0%, wait 2.0%, other 3.0% |" in text


def test_a_comparison_names_settings_and_who_is_missing():
    facts = {
        "rate": 400.0,
        "rounds": [400.0],
        "to_baseline": {"median": 1.0, "low": 1.0, "high": 1.0, "count": 1},
        "settings": "--num-envs 8",
    }
    task = {
        "unit": "frames/s",
        "contestants": {"peer": facts},
        "missing": ["other: no wheel"],
        "machine": MACHINE,
    }
    assert rows.comparison({"tasks": {"random": task}}) == [
        ("peer", "400 frames/s", "1.000", "`--num-envs 8`"),
        ("missing", "other: no wheel", "", ""),
    ]


def test_waiting_for_a_quiet_machine(monkeypatch, capsys):
    used = iter([90.0, 40.0, 1.0])
    monkeypatch.setattr(recording.psutil, "cpu_percent", lambda interval: next(used))
    recording.wait_until_quiet(busy=8.0)
    assert capsys.readouterr().err.count("waiting") == 2


def test_it_runs_in_the_folder_that_holds_the_document(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["perf.report", "--write-only"])
    with pytest.raises(SystemExit, match=r"docs/performance\.md is not in this folder"):
        recording.main()
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/performance.md").write_text("nothing to fill\n")
    recording.main()
    assert (tmp_path / "docs/performance.md").read_text() == "nothing to fill\n"
