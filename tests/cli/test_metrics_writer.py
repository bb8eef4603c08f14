from __future__ import annotations

import csv
import os
import socket
import struct
from pathlib import Path

import pytest
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.record_writer import masked_crc32c

from cli.metrics_writer import COLUMNS, MetricsWriter, read_rows
from sampler.errors import FastrlError


def rows_of(folder):
    with (folder / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def write(folder, *rows, **settings):
    with MetricsWriter(folder, tensorboard=False, **settings) as writer:
        for step, metrics in rows:
            writer.write(step, step / 10, metrics)


def read_events(path):
    data, events = path.read_bytes(), []
    while data:  # records: length (8 bytes), its checksum (4), payload, its checksum (4)
        size = int.from_bytes(data[:8], "little")
        parts = data[:8], data[12 : 12 + size]
        checksums = [struct.pack("<I", masked_crc32c(part)) for part in parts]
        assert [data[8:12], data[12 + size :][:4]] == checksums
        events.append(Event.FromString(data[12 : 12 + size]))
        data = data[16 + size :]
    return events


def test_header_is_the_fixed_columns(tmp_path):
    write(tmp_path, (10, {"charts/SPS": 5.0}))
    columns, rows = read_rows(tmp_path / "metrics.csv")
    assert tuple(columns) == COLUMNS
    assert rows[0]["step"] == "10"
    assert rows[0]["seconds"] == "1.00"
    assert float(rows[0]["charts/SPS"]) == 5.0
    assert rows[0]["eval/episodic_return"] == ""
    assert not any(column.startswith("losses/") for column in columns)  # each algorithm has its own


def test_a_late_tag_becomes_the_last_column_and_nothing_moves(tmp_path):
    write(
        tmp_path,
        (1, {"charts/SPS": 1.0}),
        (2, {"losses/new": 7.0}),
        (3, {"losses/newer": 8.0, "losses/new": 9.0}),
    )
    columns, rows = read_rows(tmp_path / "metrics.csv")
    assert tuple(columns) == (*COLUMNS, "losses/new", "losses/newer")
    assert [row["losses/new"] for row in rows] == ["", "7", "9"]
    assert [row["charts/SPS"] for row in rows] == ["1", "", ""]


def test_every_row_is_on_disk_when_write_returns(tmp_path):
    with MetricsWriter(tmp_path, tensorboard=False) as writer:
        writer.write(5, 1.0, {"charts/SPS": 2.0})
        assert [row["step"] for row in rows_of(tmp_path)] == ["5"]


def test_an_existing_file_is_not_overwritten(tmp_path):
    write(tmp_path, (1, {}))
    with pytest.raises(FastrlError, match="resume"):
        MetricsWriter(tmp_path, tensorboard=False)
    assert len(rows_of(tmp_path)) == 1


def test_resume_appends_and_drops_what_will_be_repeated(tmp_path):
    write(tmp_path, (10, {"losses/a": 1.0}), (20, {"losses/a": 2.0}), (30, {"losses/a": 3.0}))
    write(tmp_path, (25, {"losses/a": 4.0}), resume_step=20)
    rows = rows_of(tmp_path)
    assert [row["step"] for row in rows] == ["10", "20", "25"]
    assert [row["losses/a"] for row in rows] == ["1", "2", "4"]


def test_resume_leaves_out_a_line_that_a_kill_cut_short(tmp_path):
    write(tmp_path, (10, {"losses/a": 1.0}))
    with (tmp_path / "metrics.csv").open("a") as file:
        file.write("20,2.0,3")
    write(tmp_path, (20, {"losses/a": 2.0}), resume_step=10)
    assert [row["step"] for row in rows_of(tmp_path)] == ["10", "20"]


def test_resume_without_a_file_starts_one(tmp_path):
    write(tmp_path, (30, {}), resume_step=20)
    assert [row["step"] for row in rows_of(tmp_path)] == ["30"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a,b\n1,2\n", "no step column"),
        (b"", "no step column"),
        (b"step,\xff\xfe\n", "UnicodeDecodeError: .*; move .*metrics.csv away to resume"),
        (b"step,a\n" + b"1" * 200_000 + b"\n", "field larger .*; move .*metrics.csv away"),
    ],
)
def test_a_foreign_file_is_one_line(tmp_path, content, message):
    (tmp_path / "metrics.csv").write_bytes(content)
    with pytest.raises(FastrlError, match=message):
        MetricsWriter(tmp_path, resume_step=1, tensorboard=False)


def is_same(link, file):
    """Whether a link, which may be gone, leads to an open file."""
    return link.exists() and link.samefile(file)


@pytest.mark.parametrize("name", ["metrics.csv", "events"])
def test_a_full_disk_is_one_line(tmp_path, name):
    message = r"written to .* \(No space left on device\); free"
    with MetricsWriter(tmp_path) as writer, open("/dev/full", "ab", buffering=0) as full:
        (file,) = tmp_path.glob(f"{name}*")
        (descriptor,) = (int(d.name) for d in Path("/proc/self/fd").iterdir() if is_same(d, file))
        os.dup2(full.fileno(), descriptor)  # as if the disk were full from here on
        for _ in range(20):
            with pytest.raises(FastrlError, match=message):
                writer.write(1, 2.0, {"charts/SPS": 4.0})


@pytest.mark.parametrize("name", [".metrics.csv", "events"])
def test_a_disk_that_is_full_at_the_start_is_one_line(tmp_path, monkeypatch, name):
    if name == "events":
        monkeypatch.setattr("cli.event_file.time.time", lambda: 7.0)
        name = f"events.out.tfevents.7.{socket.gethostname()}.{os.getpid()}"
    (tmp_path / name).symlink_to("/dev/full")
    with pytest.raises(FastrlError, match=r"written to .* \(No space left on device\); free"):
        MetricsWriter(tmp_path)


def test_a_resumed_run_tells_tensorboard_what_to_forget(tmp_path):
    events = []
    for step in (10, 20):
        with MetricsWriter(tmp_path, resume_step=None if step == 10 else 10) as writer:
            writer.write(step, 1.0, {"losses/a": step})
        (file,) = tmp_path.glob("events.out.tfevents.*")
        events.append(read_events(file))
        file.unlink()
    first, second = events
    assert [event.file_version for event in first] == ["brain.Event:2", ""]
    assert second[1].session_log.status == SessionLog.START
    assert second[1].step == 11
    assert second[2].summary.value[0].simple_value == 20


def test_tensorboard_events_carry_the_same_tags_and_steps(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        writer.write(7, 1.0, {"charts/SPS": 3.0, "losses/a": 0.5})
    (file,) = tmp_path.glob("events.out.tfevents.*")
    found = {
        value.tag: (event.step, value.simple_value)
        for event in read_events(file)
        for value in event.summary.value
    }
    assert found == {"charts/SPS": (7, 3.0), "losses/a": (7, 0.5)}


def test_rows_stay_in_order_when_an_evaluation_comes_late(tmp_path):
    with MetricsWriter(tmp_path, tensorboard=False) as writer:
        for step in (100, 200, 300):
            writer.write(step, 1.0, {"charts/SPS": 1.0})
        writer.write(150, 1.0, {"eval/episodic_return": 7.0})
        writer.write(400, 1.0, {"charts/SPS": 2.0})
    _, rows = read_rows(tmp_path / "metrics.csv")
    assert [row["step"] for row in rows] == ["100", "150", "200", "300", "400"]
    assert rows[1]["eval/episodic_return"] == "7"


def test_tensorboard_gets_the_hyperparameters(tmp_path):
    from tensorboardX.proto.event_pb2 import Event

    with MetricsWriter(tmp_path) as writer:
        writer.hyperparameters({"learner": {"learning_rate": 0.25}, "seed": 3})
    (file,) = tmp_path.glob("events.*")
    data = file.read_bytes()
    texts = []
    while data:
        size = int.from_bytes(data[:8], "little")
        for value in Event.FromString(data[12 : 12 + size]).summary.value:
            texts.append((value.tag, value.tensor.string_val[0].decode()))
        data = data[16 + size :]
    (text,) = texts
    assert text[0].startswith("hyperparameters")
    assert "|learner.learning_rate|0.25|" in text[1]
    assert "|seed|3|" in text[1]
