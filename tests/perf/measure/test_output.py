"""Tables and reports."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

from perf.measure.output import markdown, table, write_json


def test_table_aligns_names_left_and_numbers_right(capsys):
    table("Title", ("", "steps/s"), [("fast", "1,000"), ("a longer name", "7")])
    assert capsys.readouterr().out.splitlines() == [
        "",
        "Title",
        "               steps/s",
        "-------------  -------",
        "fast             1,000",
        "a longer name        7",
    ]


def test_json_names_the_command(tmp_path, monkeypatch):
    spec = SimpleNamespace(name="perf.peers.__main__")
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__spec__=spec))
    monkeypatch.setattr("sys.argv", ["/somewhere/perf/peers/__main__.py", "--seconds", "2"])
    path = tmp_path / "folder" / "report.json"
    write_json(path, {"fps": 1.5})
    assert json.loads(path.read_text()) == {
        "command": "python -m perf.peers --seconds 2",
        "fps": 1.5,
    }
    write_json(None, {"fps": 1.5})


def test_markdown_table():
    assert markdown(("", "a"), [("x", "1")]) == "|  | a |\n| --- | --- |\n| x | 1 |"
