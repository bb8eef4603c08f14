from __future__ import annotations

import json
import logging
import os

import pytest

from cli import run_folder
from cli.run_folder import RunFolder, find_run, link_latest, read_config
from sampler.errors import ConfigError, FastrlError


def create(root, env="CartPole-v1"):
    run = RunFolder.create(root, env, "appo", 1)
    run.save_config({"seed": 1})
    run.note_command(["fastrl-train", "--seed", "1"])
    link_latest(run.path)
    return run


def test_new_folder_holds_config_and_command_and_is_latest(tmp_path):
    with create(tmp_path) as run:
        assert run.path.name.startswith("CartPole-v1__appo__1__")
        assert json.loads(run.config_file.read_text()) == {"seed": 1}
        assert run.command_file.read_text().rstrip().endswith("fastrl-train --seed 1")
        assert run.checkpoints.is_dir()
        assert (tmp_path / "latest").resolve() == run.path


def test_a_new_folder_is_not_latest_before_something_is_saved(tmp_path):
    with create(tmp_path) as first, RunFolder.create(tmp_path, "CartPole-v1", "appo", 2) as second:
        assert second.path != first.path
        assert (tmp_path / "latest").resolve() == first.path


def test_slashes_in_an_id_do_not_make_folders(tmp_path):
    with create(tmp_path, env="ALE/Breakout-v5") as run:
        assert run.path.parent == tmp_path
        assert run.path.name.startswith("ALE-Breakout-v5__appo__1__")


def test_an_existing_folder_is_never_used_again(tmp_path, monkeypatch):
    monkeypatch.setattr(run_folder.time, "strftime", lambda _: "now")
    with create(tmp_path) as first, create(tmp_path) as second:
        assert first.path != second.path
        assert second.path.name == first.path.name + "-2"
        assert (tmp_path / "latest").resolve() == second.path


def test_a_real_directory_called_latest_is_left_alone(tmp_path):
    (tmp_path / "latest").mkdir()
    with pytest.raises(ConfigError, match="move it away"):
        create(tmp_path)


def test_run_dir_that_is_a_file_is_one_line(tmp_path):
    (tmp_path / "runs").write_text("")
    with pytest.raises(ConfigError, match="run_dir="):
        create(tmp_path / "runs")


@pytest.mark.parametrize("by", ["path", "name", "latest"])
def test_open_finds_a_run_by_path_name_or_link(tmp_path, by):
    with create(tmp_path) as run:
        path = run.path
    name = {"path": str(path), "name": path.name, "latest": "latest"}[by]
    with RunFolder.open(name, tmp_path) as again:
        assert again.path == path


def test_unknown_run_names_what_is_there(tmp_path):
    with create(tmp_path) as run, pytest.raises(ConfigError, match=run.path.name):
        find_run("nothing", tmp_path)


def test_folder_without_config_is_not_a_run(tmp_path):
    (tmp_path / "other").mkdir()
    with pytest.raises(ConfigError, match=r"no config\.json"):
        find_run(tmp_path / "other", tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[1]"])
def test_damaged_config_is_one_line(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ConfigError, match=r"config\.json") as caught:
        read_config(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_run_in_use_cannot_be_opened_twice(tmp_path):
    with create(tmp_path) as run, pytest.raises(FastrlError, match="in use"):
        RunFolder.open(run.path)
    with RunFolder.open(run.path):
        pass


def test_log_holds_records_and_the_error_that_ended_the_run(tmp_path):
    run = create(tmp_path)

    def fail():
        with run:
            run.start_log()
            logging.getLogger("sampler.test").warning("worker 3 was restarted")
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        fail()
    text = run.log_file.read_text()
    assert "worker 3 was restarted" in text
    assert "ValueError: broken" in text
    assert "Traceback" in text


def test_a_full_disk_costs_the_log_its_lines_and_nothing_else(tmp_path, capfd):
    with create(tmp_path) as run:
        run.log_file.symlink_to("/dev/full")
        run.start_log()
        logging.getLogger("sampler.test").warning("lost")
    assert capfd.readouterr() == ("", "")
    with RunFolder.open(run.path):
        pass


@pytest.mark.parametrize("name", ["config.json", "command.txt"])
def test_a_full_disk_names_the_file(tmp_path, name):
    with create(tmp_path) as run:
        written = run.path / (".config.json" if name == "config.json" else name)
        written.unlink(missing_ok=True)
        written.symlink_to("/dev/full")
        with pytest.raises(OSError, match="No space left on device") as caught:
            run.save_config({}) if name == "config.json" else run.note_command(["x"])
        assert caught.value.filename == str(run.path / name)


def test_a_command_of_any_bytes_is_noted(tmp_path):
    with create(tmp_path) as run:
        run.note_command(["fastrl-train", "ä", "\udcff"])
        assert run.command_file.read_text(encoding="utf-8").endswith(r"'ä' '\udcff'" + "\n")


def test_resume_adds_a_command_line(tmp_path):
    with create(tmp_path) as run:
        run.note_command(["fastrl-train", "--resume", "a b"])
        lines = run.command_file.read_text().splitlines()
    assert len(lines) == 2
    assert lines[1].endswith("--resume 'a b'")


def test_no_temporary_files_are_left(tmp_path):
    with create(tmp_path) as run:
        assert not [name for name in os.listdir(run.path) if name.startswith(".")]
    assert sorted(os.listdir(tmp_path)) == sorted([run.path.name, "latest"])
