"""Every way for a role to end, in every style: no hang, no crash, nothing on stderr."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("endings.py")
STYLES = ["blocking", "asyncio", "capture"]


def start(ending, style, directory):
    command = [sys.executable, "-X", "dev", str(SCRIPT), ending, style, str(directory / "capture")]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process):
    try:
        out, err = process.communicate(timeout=50)
    finally:
        process.kill()
    assert err == ""
    assert process.returncode == 0
    assert out.endswith("ended\n")
    return out


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


@pytest.mark.parametrize("style", STYLES)
def test_ctrl_c_ends_a_wait_at_once(style, tmp_path):
    for number in range(4):
        process = start("interrupt", style, tmp_path / str(number))
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        assert finish(process) == "interrupted\nended\n"
