"""What commands print, whatever comes in between."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

from peers.processes import Child
from trunkline.cli.terminal.progress import Progress

SCRIPT = """if True:
    import signal
    from trunkline.cli.terminal.output import Output
    signal.signal(signal.SIGUSR1, lambda *_: None)
    output = Output(json=True)
    for number in range(100):
        output.event("message", number=number, text="x" * 1_000_000)
"""


def test_a_signal_takes_nothing_from_a_long_line():
    with Child([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True) as process:
        lines = [process.stdout.readline()]

        def disturb():
            while process.poll() is None:
                os.kill(process.pid, signal.SIGUSR1)
                time.sleep(0.001)

        disturbing = threading.Thread(target=disturb)
        disturbing.start()
        lines += process.stdout
        disturbing.join()
    assert [json.loads(line)["number"] for line in lines] == list(range(100))


BESIDE_A_BAR = """if True:
    import logging
    from trunkline.cli.process.endings import guarded
    from trunkline.cli.terminal.output import Output
    from trunkline.cli.terminal.progress import Progress
    def command():
        with Progress("doing", 2) as progress:
            Output(json=False).line("a result")
            progress.at(1)
            logging.getLogger("trunkline").warning("look out")
    guarded(command)
"""


def shown(stdout=None):
    """What a terminal shows of a command, as lines; its standard output may be redirected."""
    main, terminal = os.openpty()
    command = [sys.executable, "-c", BESIDE_A_BAR]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    with Child(command, stdout=stdout or terminal, stderr=terminal, env=environment) as process:
        os.close(terminal)
        text = b""
        with suppress(OSError):
            while read := os.read(main, 1000):
                text += read
        os.close(main)
    assert process.returncode == 0
    return [line.rsplit("\x1b[2K", 1)[-1] for line in text.decode().replace("\r", "").split("\n")]


def test_results_and_warnings_stand_above_a_bar():
    lines = shown()
    assert "a result" in lines
    assert "trunkline: WARNING: look out" in lines


def test_results_that_go_elsewhere_are_none_of_the_bars(tmp_path):
    with (tmp_path / "out").open("w") as out:
        lines = shown(out)
    assert (tmp_path / "out").read_text() == "a result\n"
    assert "a result" not in lines


def test_without_a_terminal_only_what_takes_long_is_told_of(monkeypatch, capsys):
    clock = [0.0]
    monkeypatch.setattr("trunkline.cli.terminal.progress.time.monotonic", lambda: clock[0])
    with Progress("counting (tasks)", 40) as progress:
        for clock[0] in range(40):
            progress.at(clock[0])
    assert capsys.readouterr().err.splitlines() == [
        f"trunkline: counting (tasks): {done} of 40" for done in (5, 15, 25, 35)
    ]
    monkeypatch.setattr("trunkline.cli.terminal.stderr._as_json", True)
    with Progress("counting (tasks)", 40) as progress:
        clock[0] += 6
        progress.at(7)
    assert json.loads(capsys.readouterr().err)["message"] == "counting (tasks): 7 of 40"
