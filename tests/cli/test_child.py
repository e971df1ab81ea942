"""Work in a process of its own: whatever ends it, nothing of it is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from peers.processes import is_gone, state
from peers.waiting import until

# What a command does: it says who does it, and goes on for ever.
COMMAND = """
import json, os, signal, subprocess, sys, tempfile, time
from pathlib import Path
from trunkline.cli.process import endings
from trunkline.cli.process.child import apart
from trunkline.cli.process.atomic import whole

@apart
def command():
    with whole(Path("out")) as part, tempfile.TemporaryDirectory() as scratch:
        part.write_text("half")
        Path(scratch, "file").write_text("x")
        began = [sys.executable, "-c", "import time; time.sleep(1000)"]
        own, other = subprocess.Popen(began), subprocess.Popen(began, start_new_session=True)
        print(json.dumps([os.getpid(), own.pid, other.pid, scratch]), flush=True)
        {does}

sys.exit(endings.guarded(command))
"""
ENDLESS = "re.match('(a+)+$', 'a' * 60 + 'b')"


@pytest.fixture
def begin(tmp_path):
    """Starts a command that does this; gives the process and what it has said."""
    begun = []

    def begin(does):
        (tmp_path / "tmp").mkdir()
        code = COMMAND.replace("{does}", does)
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
        )
        begun.append(process)
        return process, json.loads(process.stdout.readline())

    yield begin
    for process in begun:
        process.kill()
        process.communicate()


def is_clean(tmp_path):
    return [path.name for path in tmp_path.iterdir()] == ["tmp"] and not list((tmp_path / "tmp").iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
@pytest.mark.parametrize(
    "does",
    ["time.sleep(1000)", f"import re; {ENDLESS}", "os.kill(os.getpid(), signal.SIGSTOP)"],
    ids=["waiting", "in-a-native-loop", "halted"],
)
def test_a_signal_ends_it_whatever_it_is_at(begin, tmp_path, does, number):
    process, (*pids, _) = begin(does)
    process.send_signal(number)
    assert process.communicate(timeout=20) == ("", "")
    assert process.returncode == 130
    assert all(map(is_gone, pids))
    assert is_clean(tmp_path)


def test_an_error_leaves_nothing(begin, tmp_path):
    process, (*pids, _) = begin("1 / 0")
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (1, "")
    assert "ZeroDivisionError" in err
    assert all(map(is_gone, pids))
    assert is_clean(tmp_path)


def test_what_is_done_stays(begin, tmp_path):
    process, (*pids, _) = begin("pass")
    assert process.communicate(timeout=20) == ("", "")
    assert process.returncode == 0
    # No process that it started is left.
    assert all(map(is_gone, pids))
    assert (tmp_path / "out").read_text() == "half"
    assert not list((tmp_path / "tmp").iterdir())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV], ids=lambda number: number.name)
def test_work_that_dies_is_told_in_a_line(begin, tmp_path, number):
    process, (worker, *pids, _) = begin("time.sleep(1000)")
    os.kill(worker, number)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (1, "")
    (line,) = err.splitlines()
    assert line.startswith(f"trunkline: error: the worker process was ended by {number.name}")
    assert all(map(is_gone, pids))
    assert is_clean(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_signal_to_the_work_itself_cuts_it_off_too(begin, tmp_path, number):
    process, (worker, *_) = begin("time.sleep(1000)")
    os.kill(worker, number)
    assert process.communicate(timeout=20) == ("", "")
    assert process.returncode == 130
    assert is_clean(tmp_path)


def test_work_ends_with_a_parent_that_is_killed(begin):
    process, (worker, *others, _) = begin("time.sleep(1000)")
    process.kill()
    until(lambda: is_gone(worker))
    # These are orphans now, as after every SIGKILL.
    for pid in others:
        os.kill(pid, signal.SIGKILL)


def test_a_pause_pauses_the_work(begin):
    process, (worker, *_) = begin("sum(iter(int, 1))")
    process.send_signal(signal.SIGTSTP)
    until(lambda: state(worker) == "T" and state(process.pid) == "T")
    process.send_signal(signal.SIGCONT)
    until(lambda: state(worker) in "RS")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 130


def test_a_signal_that_comes_as_it_begins_is_not_lost(tmp_path):
    # Between the fork and what the parent does next.
    code = "import os, signal, sys, time; from trunkline.cli.process import endings\nfrom trunkline.cli.process.child import apart\n"
    code += "fork = os.fork\ndef late():\n    pid = fork()\n    if pid: os.kill(os.getpid(), signal.SIGTERM)\n    return pid\n"
    code += "os.fork = late\nsys.exit(endings.guarded(apart(lambda: time.sleep(1000))))"
    began = time.monotonic()
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (found.returncode, found.stdout, found.stderr) == (130, "", "")
    assert time.monotonic() - began < 20
