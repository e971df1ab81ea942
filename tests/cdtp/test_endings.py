"""Every way for a role to end, in every style: no hang, no crash, nothing on stderr."""

import functools
import signal
from pathlib import Path

import pytest

from peers import ended
from peers.ended import STYLES, finish

start = functools.partial(ended.start, Path(__file__).with_name("endings.py"))


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("ending", ["close_in_thread", "fork", "collect"])
def test_ends_cleanly(ending, style, tmp_path):
    finish(start(ending, style, tmp_path))


@pytest.mark.parametrize("style", ["blocking", "capture"])
@pytest.mark.parametrize("ending", ["collect_socket", "collect_context", "terminate_context"])
def test_ends_cleanly_on_a_socket_or_context_of_the_users(ending, style, tmp_path):
    finish(start(ending, style, tmp_path))


@pytest.mark.parametrize("style", STYLES)
def test_interpreter_exit_ends_open_roles(style, tmp_path):
    for process in [start("leave", style, tmp_path / str(number)) for number in range(4)]:
        finish(process)


@pytest.mark.parametrize("style", ["blocking", "capture"])
def test_a_child_that_leaves_does_not_end_its_parents_roles(style, tmp_path):
    finish(start("fork_and_leave", style, tmp_path))


@pytest.mark.req("CDTP-18", "CDTP-19")
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(
    ("ending", "said"),
    [
        ("interrupt_close", ["Det: 3 messages were not sent", "ended", "interrupted", "waiting"]),
        ("leave_unsent", ["Det: 3 messages were not sent", "ended", "waiting"]),
    ],
)
def test_ctrl_c_ends_the_lingering_of_a_sender_and_tells_what_was_not_sent(ending, said, style, tmp_path):
    process = start(ending, style, tmp_path)
    lines = []
    while "waiting" not in lines:
        lines.append(process.stdout.readline().strip())
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (sorted([*lines, *out.split("\n")[:-1]]), err, process.returncode) == (said, "", 0)


@pytest.mark.parametrize("style", STYLES)
def test_ctrl_c_ends_a_wait_at_once(style, tmp_path):
    for number in range(4):
        process = start("interrupt", style, tmp_path / str(number))
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        assert finish(process) == "interrupted\nended\n"
