"""How commands end, whatever ends them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import termios
import time

import pyarrow.parquet
import pytest
import zmq

from peers import nats
from peers.commands import spec, wrong
from peers.recorded import line
from peers.waiting import until
from trunkline import mc0, mtl

ROLES = {
    "receive": ["cdtp", "receive", "--bind", "tcp://127.0.0.1:*"],
    "record": ["cdtp", "record", "--capture", "c", "--bind", "tcp://127.0.0.1:*"],
    "broker": ["dcp", "broker", "--bind", "tcp://127.0.0.1:*"],
    "worker": ["dcp", "worker", "echo", "--echo", "--connect", "tcp://127.0.0.1:9"],
    "send": ["cdtp", "send", "--name", "D", "--bind", "tcp://127.0.0.1:*", "-"],
}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
@pytest.mark.parametrize("role", ROLES)
def test_a_signal_stops_a_role(start, role, number):
    command = start(*ROLES[role], "--json")
    command.ready()
    command.signal(number)
    stopped = command.event("stopped")
    assert stopped["reason"] == "signal"
    assert command.quietly() == ("", "")


@pytest.mark.parametrize("role", ROLES)
def test_a_signal_that_comes_just_before_a_wait_ends_it(tmp_path, role):
    # As it is for the main thread when another one is interrupted instead: what waits is not.
    code = "import signal, threading, time\n"
    code += "threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n"
    code += "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\n"
    code += "from trunkline.__main__ import main; main()"
    command = [sys.executable, "-c", code, *ROLES[role], "--json"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    try:
        assert json.loads(process.stdout.readline())["event"] == "ready"
        process.send_signal(signal.SIGINT)
        assert json.loads(process.stdout.readline())["reason"] == "signal"
        assert process.wait() == 0
    finally:
        process.kill()
        process.communicate()


def test_a_second_signal_leaves_at_once(start, tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    command = start(*ROLES["send"][:-1], "file", "--json", "--drain-seconds", "50", "--stats-interval", "0.05")
    command.ready()
    assert command.event("stats")["stats"]["queued"] == 1
    command.signal(signal.SIGINT)
    began = time.monotonic()
    # Until the first one has been seen the second one may be the same to the system.
    while command.process.poll() is None:
        command.signal(signal.SIGINT)
        time.sleep(0.05)
    assert command.process.returncode == 130
    assert time.monotonic() - began < 10


def test_a_command_with_an_end_of_its_own_is_cut_off_with_130():
    # `--help` waits for nothing, so the command here is one that is stopped while it starts.
    code = "import os, signal, sys; from trunkline.cli.process import endings; "
    code += "sys.exit(endings.guarded(lambda: (os.kill(os.getpid(), signal.SIGTERM), signal.pause())))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 130


def ended(code, **options):
    """What a script exits with, and all that it says."""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, **options)
    return done.returncode, done.stdout, done.stderr


def test_what_fails_after_a_signal_is_not_told():
    code = "import os, signal, sys; from trunkline.cli.process import endings\n"
    code += "def command():\n    try: os.kill(os.getpid(), signal.SIGTERM); signal.pause()\n    finally: 1 / 0\n"
    code += "sys.exit(endings.guarded(command))"
    assert ended(code) == (130, "", "")


def test_a_signal_that_comes_as_the_interpreter_ends_is_not_told():
    code = "import atexit, os, signal, sys; from trunkline.cli.process import endings\n"
    code += "atexit.register(lambda: (os.kill(os.getpid(), signal.SIGTERM), signal.pause()))\n"
    code += "sys.exit(endings.guarded(lambda: None))"
    assert ended(code) == (130, "", "")


# Where an exception would be lost, or come out as another one.
IN_THE_MIDST = {
    "del": "class Finalized:\n    def __del__(self): terminate()\nFinalized()",
    "weakref": "class Finalized: pass\none = Finalized(); kept = weakref.ref(one, lambda _: terminate()); del one",
    "import": "import module",
}


@pytest.mark.parametrize("where", IN_THE_MIDST)
@pytest.mark.parametrize("stops", [False, True], ids=["cut-off", "stopped"])
def test_a_signal_is_not_lost_wherever_it_comes(tmp_path, where, stops):
    # Python 3.11 makes a RuntimeError of what is raised in `__set_name__`.
    module = "import os, signal\nclass Field:\n    def __set_name__(self, *_): os.kill(os.getpid(), signal.SIGTERM)\n"
    (tmp_path / "module.py").write_text(module + "class Owner:\n    field = Field()\n")
    code = "import os, signal, sys, weakref; from trunkline.cli.process import endings, signals\n"
    code += "def terminate(): os.kill(os.getpid(), signal.SIGTERM)\n"
    code += f"def come(): exec({IN_THE_MIDST[where]!r}, globals())\n"
    code += "def stop():\n    with signals.Stopping() as stopping: come(); print('stopped', stopping.stopped)\n"
    code += f"sys.exit(endings.guarded({'stop' if stops else 'come'}))"
    assert ended(code, cwd=tmp_path) == ((0, "stopped True\n", "") if stops else (130, "", ""))


@pytest.mark.parametrize("role", ["receive", "record"])
def test_a_peer_that_dies_ends_nothing(start, dial, role):
    command = start(*ROLES[role], "--json", "--stats-interval", "0.05")
    (endpoint,) = command.ready()["endpoints"]

    def wait_for(counter):
        event = command.event()
        while event["event"] != "stats" or event["stats"][counter] == 0:
            event = command.event()

    code = "import sys, zmq; s = zmq.Context().socket(zmq.PUSH); s.connect(sys.argv[1])\n"
    code += "while True: s.send_multipart([b'bad', b''])"
    with subprocess.Popen([sys.executable, "-c", code, endpoint]) as peer:
        try:
            wait_for("received")
        finally:
            peer.kill()
    dial(zmq.PUSH, endpoint).send_multipart(spec("D"))
    wait_for("accepted")
    command.signal(signal.SIGINT)
    command.end()


def test_a_broken_pipe_ends_quietly(start, push):
    command = start("cdtp", "receive", "--connect", push.endpoint, "--json")
    command.ready()
    command.process.stdout.close()
    push.send(spec("D"))
    assert command.process.wait() == 0
    assert wrong(command.process.stderr.read()) == ""
    command.process.stdout = None


@pytest.mark.parametrize(
    "words",
    [
        ["cdtp", "receive", "--bind", "tcp://127.0.0.1:*"],
        ["chirp", "watch", "--group", "g"],
        ["mc0", "subscribe", "topic", "--connect", "{mc0}"],
        ["mtl", "receive", "jobs", "--connect", "{mtl}"],
        ["cdt", "watch", "--nats", "{nats}"],
        ["capture", "cat", "c", "--tail", "1", "--follow"],
    ],
    ids=" ".join,
)
def test_what_prints_as_it_goes_ends_without_a_reader(start, run, tmp_path, words):
    (tmp_path / "one.jsonl").write_text(line([b"x"]))
    run("capture", "import", "one.jsonl", "--capture", "c")
    with (
        mc0.Middleware(bind="tcp://127.0.0.1:*") as bus,
        mtl.Server(bind="tcp://127.0.0.1:*", anonymous=True, resources=["jobs"]) as server,
        nats.server(tmp_path) as third,
    ):
        where = {"mc0": bus.endpoints[0], "mtl": server.endpoints[0], "nats": third.url}
        command = start(*(word.format(**where) for word in words), "--json")
        # A reader of the first line, as head is.
        assert command.event()["event"] in ("ready", "row")
        command.process.stdout.close()
        assert command.process.wait(10) == 0
        assert wrong(command.process.stderr.read()) == ""
        command.process.stdout = None


def test_a_recorder_whose_pipe_breaks_keeps_what_it_has(start, push, tmp_path):
    command = start(
        "cdtp", "record", "--capture", "c", "--connect", push.endpoint, "--json", "--stats-interval", "0.05"
    )
    command.ready()
    push.send(*[spec("D")] * 10)
    while command.event("stats")["stats"]["received"] < 10:
        pass
    command.process.stdout.close()
    assert command.process.wait() == 0
    assert wrong(command.process.stderr.read()) == ""
    command.process.stdout = None
    assert pyarrow.parquet.read_table(tmp_path / "c").num_rows == 10


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["cdtp", "receive", "--bind", "{taken}"], "choose another port"),
        (["cdtp", "record", "--bind", "tcp://127.0.0.1:*", "--capture", "/proc/here"], "/proc/here"),
        (["capture", "info", "missing"], "missing"),
    ],
)
def test_an_error_is_one_line(run, push, arguments, complaint):
    out, err = run(*(argument.format(taken=push.endpoint) for argument in arguments), returncode=1)
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("trunkline: error: ")
    assert complaint in line


def test_a_traceback_is_there_for_those_who_ask(start):
    command = start("capture", "info", "nowhere", env={"TRUNKLINE_DEBUG": "1"})
    _, err = command.process.communicate()
    assert command.process.returncode == 1
    assert err.startswith("Traceback")
    assert err.splitlines()[-1].startswith("trunkline: error: ")


def test_json_is_flushed_line_by_line(start, push):
    command = start("cdtp", "receive", "--connect", push.endpoint, "--json")
    command.ready()
    for at in range(3):
        push.send(spec("D", tags={"at": at}))
        assert json.loads(command.process.stdout.readline())["tags"] == {"at": at}


def without(stream, *arguments, cwd):
    """A command with one of its standard streams closed."""
    words = ["sh", "-c", f'exec "$@" {stream}', "sh", sys.executable, "-m", "trunkline", *arguments]
    return subprocess.run(words, check=False, capture_output=True, text=True, cwd=cwd, stdin=subprocess.DEVNULL)


def test_a_closed_output_is_one_that_nobody_reads(run, pull, tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    run("cdtp", "record", "--capture", "c", "--bind", "tcp://127.0.0.1:*", "--count", "0")
    send = ("cdtp", "send", "--name", "D", "--connect", pull.endpoint, "file")
    for arguments in (("capture", "info", "c"), ("capture", "info", "c", "--json"), (*send, "--json")):
        ran = without(">&-", *arguments, cwd=tmp_path)
        assert (ran.returncode, wrong(ran.stderr)) == (0, "")
    # A command that prints nothing needs no reader.
    ran = without(">&-", *send, cwd=tmp_path)
    assert ran.returncode == 0
    assert pull.receive()[1] == b"x"


def test_closed_streams_are_no_error(pull, tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    send = ("cdtp", "send", "--name", "D", "--connect", pull.endpoint)
    assert without("2>&-", *send, "file", cwd=tmp_path).returncode == 0
    assert pull.receive()[1] == b"x"
    assert without("<&-", *send, "-", cwd=tmp_path).returncode == 0
    ran = without("2>&-", "capture", "info", "missing", cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (1, "")


def test_a_terminal_that_is_closed_ends_a_recorder_in_order(start, push, tmp_path):
    words = ("--capture", "c", "--connect", push.endpoint, "--json", "--stats-interval", "0.05")
    command = start("cdtp", "record", *words)
    command.ready()
    push.send(*[spec("D")] * 10)
    while command.event()["stats"]["received"] < 10:
        pass
    # The shell says it, and so does the system.
    command.signal(signal.SIGHUP)
    while (event := command.event())["event"] == "stats":
        command.signal(signal.SIGHUP)
    assert (event["reason"], event["stats"]["segments"]) == ("signal", 1)
    command.end()
    assert pyarrow.parquet.read_table(tmp_path / "c").num_rows == 10


def test_a_command_with_an_end_of_its_own_is_cut_off_when_its_terminal_is_closed():
    code = "import os, signal, sys; from trunkline.cli.process import endings; "
    code += "sys.exit(endings.guarded(lambda: (os.kill(os.getpid(), signal.SIGHUP), signal.pause())))"
    assert ended(code) == (130, "", "")


def test_who_is_started_to_outlive_the_terminal_does():
    code = "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); from trunkline.cli.process import endings, signals\n"
    code += "def command():\n    with signals.Stopping() as stopping:\n"
    code += "        os.kill(os.getpid(), signal.SIGHUP); print(stopping.stopped)\n"
    code += "sys.exit(endings.guarded(command))"
    assert ended(code) == (0, "False\n", "")


def test_what_nobody_can_be_told_is_no_error(tmp_path):
    # A terminal that is gone: each write to it is an error of its own.
    main, terminal = os.openpty()
    (tmp_path / "file").write_bytes(b"x")
    words = [sys.executable, "-m", "trunkline", *ROLES["record"]]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=terminal, stderr=terminal, cwd=tmp_path)
    os.close(terminal)
    try:
        assert b"recording to c" in os.read(main, 1000)
        os.close(main)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()


def test_a_terminal_that_is_asked_for_a_password_echoes_again(tmp_path):
    main, terminal = os.openpty()
    words = [sys.executable, "-m", "trunkline", "mtl", "users", "add", "ada", "--file", "users.toml"]
    process = subprocess.Popen(
        words, stdin=terminal, stdout=terminal, stderr=terminal, cwd=tmp_path, start_new_session=True
    )
    try:
        until(lambda: not termios.tcgetattr(terminal)[3] & termios.ECHO)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert termios.tcgetattr(terminal)[3] & termios.ECHO
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
        os.close(main)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words",
    [("dcp", "request", "nobody", "x", "--timeout", "60"), ("mc0", "ping", "--timeout", "60")],
    ids=["request", "ping"],
)
def test_a_bar_that_is_cut_off_gives_the_terminal_its_cursor_back(words, tmp_path, open_socket):
    # This peer never answers.
    silent = open_socket(zmq.ROUTER, bind="tcp://127.0.0.1:*")
    main, terminal = os.openpty()
    words = [sys.executable, "-m", "trunkline", *words, "--connect", silent.last_endpoint.decode()]
    process = subprocess.Popen(
        words, stdin=terminal, stdout=terminal, stderr=terminal, cwd=tmp_path, start_new_session=True
    )
    try:
        said = b""
        while b"\x1b[?25l" not in said:
            said += os.read(main, 1000)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        os.write(terminal, b"END")
        while b"END" not in said:
            said += os.read(main, 1000)
        assert said.rpartition(b"\x1b[?25h")[2].strip(b"\r\n") == b"END"
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
        os.close(main)


def test_a_signal_ends_who_still_waits_to_be_let_in(open_socket):
    silent = open_socket(zmq.ROUTER, bind="tcp://127.0.0.1:*")
    where = silent.last_endpoint.decode()
    words = [sys.executable, "-m", "trunkline", "mtl", "receive", "jobs", "--connect", where, "--timeout", "1000"]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        # It has asked.
        assert silent.poll(20_000)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=20) == (b"", b"")
        assert process.returncode == 130
    finally:
        process.kill()
        process.wait()
