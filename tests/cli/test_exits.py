from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import sys
import termios
import textwrap
import time

import psutil
import pytest

from cli.exits import run_command
from sampler.errors import ConfigError, EnvError


def fail_with(error):
    def command(signals):
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ConfigError("workers=0 must be\n  at least 1"), 2, "workers=0 must be at least 1"),
        (EnvError("env broke"), 1, "env broke"),
        (ZeroDivisionError("division"), 1, "ZeroDivisionError: division (test_exits.py:"),
        (ValueError(), 1, "ValueError: "),
        (
            OSError(21, "Is a directory", "/runs/x/log.txt"),
            1,
            "/runs/x/log.txt: Is a directory; correct that, or choose another folder",
        ),
    ],
)
def test_errors_are_one_line_and_a_code(capsys, error, code, message):
    assert run_command("prog", fail_with(error)) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"prog: error: {message}")
    assert captured.err.count("\n") == 1


def test_the_command_s_own_code_is_returned():
    assert run_command("prog", lambda signals: 0) == 0


def test_a_deferred_signal_only_asks(capfd):
    def command(signals):
        signals.note = "saving"
        with signals.deferred():
            os.kill(os.getpid(), signal.SIGTERM)
            assert signals.requested
        return 0

    assert run_command("prog", command) == 143
    assert capfd.readouterr().err.startswith("prog: SIGTERM: saving;")


def test_handlers_are_put_back():
    before = signal.getsignal(signal.SIGINT)
    run_command("prog", lambda signals: 0)
    assert signal.getsignal(signal.SIGINT) is before


def run_script(body, *signals_to_send, deferred=True):
    """Run `body` as a command in a process of its own and signal it once it says 'ready'."""
    block = "with signals.deferred():" if deferred else "if True:"
    script = textwrap.dedent(
        f"""
        import sys, time
        from cli import exits
        exits.GRACE_SECONDS = 0.3
        def command(signals):
            {block}
                print("ready", flush=True)
        """
    ) + textwrap.indent(textwrap.dedent(body), " " * 8)
    script += '\nsys.exit(exits.run_command("prog", command))\n'
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    for number in signals_to_send:
        process.send_signal(number)
        time.sleep(0.05)  # two signals sent together may arrive in any order
    _, errors = process.communicate(timeout=20)
    return process.returncode, errors


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_what_has_nothing_to_save_at_once(number, code):
    result, errors = run_script("time.sleep(30)", number, deferred=False)
    assert result == code
    assert errors == f"prog: {number.name}: stopped\n"


def test_on_a_terminal_a_signal_s_line_breaks_between_words_and_paths_nowhere():
    path = "/a/path/of/some/length-with-hyphens"
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    script = (
        "import time\n"
        "from cli import exits\n"
        "def command(signals):\n"
        f"    signals.note = 'saving a checkpoint; to go on: train --resume {path}'\n"
        "    with signals.deferred():\n"
        "        print('ready', flush=True)\n"
        "        signals.event.wait(20)\n"
        "    return 0\n"
        "exits.run_command('prog', command)\n"
    )
    started = [sys.executable, "-c", script]
    with subprocess.Popen(started, stdout=subprocess.PIPE, stderr=theirs) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        process.wait(timeout=20)
    lines = os.read(ours, 1000).decode().splitlines()
    os.close(ours)
    os.close(theirs)
    assert path + ";" in " ".join(lines).split()
    assert len(lines) > 1
    assert max(map(len, lines)) <= 40


def test_a_second_signal_ends_at_once():
    code, errors = run_script("time.sleep(30)\nreturn 0", signal.SIGINT, signal.SIGINT)
    assert code == 130
    assert "Traceback" not in errors
    assert errors.count("\n") == 1


def test_a_command_that_does_not_end_is_ended():
    code, errors = run_script("while True: time.sleep(30)", signal.SIGTERM)
    assert code == 143
    assert errors.count("\n") == 1


def test_what_was_started_ends_with_the_command():
    body = """
        import subprocess
        shell = subprocess.Popen(["sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE)
        print(shell.pid, int(shell.stdout.readline()), "ready", flush=True)
        time.sleep(30)
    """
    script = "import sys, time\nfrom cli.exits import run_command\ndef command(signals):\n"
    script += textwrap.indent(textwrap.dedent(body), "    ")
    script += "\nrun_command('prog', command)\n"
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    started = [psutil.Process(int(pid)) for pid in process.stdout.readline().split()[:2]]
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) == 143
    _, alive = psutil.wait_procs(started, timeout=5)
    assert not [child for child in alive if child.status() != psutil.STATUS_ZOMBIE]


def test_sigusr1_shows_what_it_is_doing():
    code, errors = run_script("time.sleep(1)\nreturn 0", signal.SIGUSR1)
    assert code == 0
    assert "Current thread" in errors


@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-", ">&-"])
def test_closed_standard_streams_are_led_nowhere(tmp_path, closed):
    """Files that are opened later do not get their numbers, neither here nor in children."""
    script = textwrap.dedent(
        """
        import subprocess, sys
        from cli.exits import run_command
        def command(signals):
            file = open(sys.argv[1], "w")
            subprocess.run([sys.executable, "-c", "import sys; sys.stdout.write('child')"])
            print("out")
            print("err", file=sys.stderr, flush=True)
            file.write("whole")
            return 0 if file.fileno() > 2 else 3
        sys.exit(run_command("prog", command))
        """
    )
    shell = f'exec "$0" -c "$1" "$2" {closed}'
    command = ["sh", "-c", shell, sys.executable, script, str(tmp_path / "file")]
    assert subprocess.run(command, capture_output=True, timeout=20).returncode == 0
    assert (tmp_path / "file").read_text() == "whole"


def test_a_closed_pipe_is_one_line():
    script = (
        "import os, sys\nfrom cli.exits import run_command\n"
        "def command(signals):\n    [print('x' * 1000, flush=True) for _ in range(1000)]\n"
        "sys.exit(run_command('prog', command))"
    )
    reader, writer = os.pipe()
    os.close(reader)
    result = subprocess.run(
        [sys.executable, "-c", script], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=20
    )
    os.close(writer)
    assert result.returncode == 1
    assert result.stderr == "prog: error: standard output was closed\n"
