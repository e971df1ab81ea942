"""Every way for DCP's roles to end, in every style: no hang, no crash, nothing on stderr."""

import functools
import signal
import time
from pathlib import Path

import pytest

from peers import ended
from peers.ended import STYLES, finish

start = functools.partial(ended.start, Path(__file__).with_name("service_endings.py"))


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("ending", ["close_in_thread", "collect"])
def test_ends_cleanly(ending, style, tmp_path):
    finish(start(ending, style, tmp_path))


@pytest.mark.parametrize("style", ["blocking", "capture"])
@pytest.mark.parametrize("ending", ["fork", "terminate_context"])
def test_ends_cleanly_with_its_process_or_context(ending, style, tmp_path):
    finish(start(ending, style, tmp_path))


@pytest.mark.parametrize("style", STYLES)
def test_a_child_that_leaves_does_not_end_its_parents_roles(style, tmp_path):
    finish(start("fork_and_leave", style, tmp_path))


@pytest.mark.parametrize("style", ["blocking", "capture"])
def test_ctrl_c_ends_the_drain_of_a_role(style, tmp_path):
    lines = []
    with start("interrupt_close", style, tmp_path) as process:
        for line in process.stdout:
            lines.append(line)
            if line == "waiting\n":
                process.send_signal(signal.SIGINT)
        assert process.stderr.read() == ""
    assert process.returncode == 0
    assert lines == ["waiting\n", "interrupted\n"] * 3 + ["ended\n"]


@pytest.mark.parametrize("style", STYLES)
def test_interpreter_exit_ends_open_roles(style, tmp_path):
    for process in [start("leave", style, tmp_path / str(number)) for number in range(3)]:
        finish(process)


@pytest.mark.parametrize("style", STYLES)
def test_ctrl_c_ends_every_wait_at_once(style, tmp_path):
    process = start("interrupt", style, tmp_path)
    try:
        for line in process.stdout:
            if line == "ended\n":
                break
            said, name = line.split()
            assert said == "waiting"
            process.send_signal(signal.SIGINT)
            began = time.monotonic()
            answer = process.stdout.readline()
            assert answer == f"interrupted {name}\n", process.communicate()
            # Where it is not cut off, such a wait takes 20.
            assert time.monotonic() - began < 10
        assert process.wait(20) == 0
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.communicate()
