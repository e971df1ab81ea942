"""What a terminal shows of running roles, and what is logged without one."""

import dataclasses
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress

import msgpack
import pytest
import zmq
from rich.console import Console

from peers.commands import batch, release
from peers.recorded import write
from peers.waiting import until
from trunkline import dcp
from trunkline._metrics.counters import NO_LATENCIES
from trunkline._roles.notices import Connections
from trunkline.cdt import TargetStats
from trunkline.cli.process.running import draining
from trunkline.cli.terminal.display import _Display
from trunkline.cli.terminal.panel import _Panel, _sparkline
from trunkline.dcp import BrokerStats
from trunkline.dcp.broker import ServiceStats


class Terminal:
    """A command on a terminal of 80 columns; what it shows is read as it comes."""

    def __init__(self, *words, cwd, stdin=subprocess.DEVNULL, stdout=None, **environment):
        main, terminal = os.openpty()
        self._main, self._text = main, b""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "trunkline", *words],
            stdin=stdin,
            stdout=terminal if stdout is None else stdout,
            stderr=terminal,
            cwd=cwd,
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24", **environment},
        )
        os.close(terminal)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        with suppress(OSError):
            while read := os.read(self._main, 4096):
                self._text += read

    @property
    def raw(self):
        return self._text.decode(errors="replace")

    @property
    def text(self):
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.raw)

    @property
    def escapes(self):
        return re.findall(r"\x1b\[[0-9;]*m", self.raw)

    def end(self):
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(20) == 0
        self._reader.join(5)
        os.close(self._main)

    def close(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def terminal(tmp_path):
    running = []

    def start(*words, **given):
        running.append(Terminal(*words, cwd=tmp_path, **given))
        return running[-1]

    yield start
    for one in running:
        one.close()


def test_a_recorder_on_a_terminal_shows_what_comes(terminal, push):
    shown = terminal("cdtp", "record", "--capture", "c", "--connect", push.endpoint, "--count", "1000")
    until(lambda: "connected" in shown.text)
    push.send(release("Det", 0, 1, b"x"), [b"nonsense", b"x"])
    until(lambda: "1 bad_header" in shown.text)
    assert f"recording to c from {push.endpoint}" in shown.text
    until(lambda: re.search(r"\d messages?/s .*2 in all", shown.text))
    assert " free · accepted 1 · recorded 2" in shown.text
    assert "2 of 1,000" in shown.text
    shown.end()
    assert "stopped (signal): received 2" in shown.text


def test_results_that_go_elsewhere_leave_the_terminal_to_the_panel(terminal, push, tmp_path):
    with (tmp_path / "out").open("w") as out:
        shown = terminal("cdtp", "receive", "--connect", push.endpoint, "--json", stdout=out)
        push.send(release("Detector.one", 0, 1, b"x"), release("Detector.one", 0, 3, b"x"))
        until(lambda: re.search(r"Detector\.one +2 +\d+ B +1", shown.text))
        shown.end()
    lines = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert [line["event"] for line in lines] == ["ready", "message", "message", "stopped"]


def test_results_on_the_terminal_stand_alone(terminal, push):
    shown = terminal("cdtp", "receive", "--connect", push.endpoint)
    push.send(release("Det", 0, 1, b"x"))
    until(lambda: "Det DAT 1" in shown.text)
    shown.end()
    assert "messages/s" not in shown.text


def test_a_sender_on_a_terminal_shows_what_goes(terminal, push, pull, tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    unreachable = push.endpoint
    push.socket.close(linger=0)
    with (tmp_path / "out").open("w") as out:
        shown = terminal("cdtp", "send", "--name", "D", "--connect", unreachable, "--json", "file", stdout=out)
        until(lambda: "queued 1" in shown.text)
        shown.process.kill()
    assert f"sending to {unreachable}  0:00:0" in shown.text
    assert [json.loads(line)["event"] for line in (tmp_path / "out").read_text().splitlines()] == ["ready"]
    shown = terminal("cdtp", "send", "--name", "D", "--connect", pull.endpoint, "file", "-", stdin=subprocess.PIPE)
    until(lambda: re.search(r"1 in all.*sent 1", shown.text, re.DOTALL))
    assert pull.receive()[1] == b"x"
    shown.process.stdin.close()
    assert shown.process.wait(20) == 0


def test_a_worker_on_a_terminal_says_what_it_offers_and_to_whom(terminal):
    with dcp.Broker(bind="tcp://127.0.0.1:*") as broker:
        (endpoint,) = broker.endpoints
        shown = terminal("dcp", "worker", "echo", "--echo", "--connect", endpoint)
        until(lambda: f"offering echo to {endpoint}  0:00:0" in shown.text)
        until(lambda: re.search(r"messages?/s  \d+ B/s", shown.text))
        shown.end()


def test_lines_are_as_long_as_the_terminal_unless_it_is_said_how_long(terminal, push):
    receive = ("cdtp", "receive", "--connect", push.endpoint, "--count", "1")
    shown = terminal(*receive)
    push.send(release("Det", 0, 1, b"x" * 100))
    until(lambda: "Det DAT 1" in shown.text)
    assert shown.process.wait(20) == 0
    assert any(70 < len(line) <= 80 and line.endswith("…") for line in shown.text.splitlines())
    shown = terminal(*receive, "--payload-limit", "90")
    push.send(release("Det", 0, 1, b"x" * 100))
    until(lambda: f"Det DAT 1 {'x' * 90}… (100 B)" in shown.text)


def test_colours_are_for_those_who_want_them(terminal, push):
    shown = terminal("cdtp", "record", "--capture", "c", "--connect", push.endpoint, NO_COLOR="1")
    push.send([b"nonsense", b"x"])
    until(lambda: "1 bad_header" in shown.text)
    shown.end()
    assert not any(re.fullmatch(r"\x1b\[(3|4|9)[0-9].*m", escape) for escape in shown.escapes)


def test_a_terminal_that_is_gone_ends_nothing(tmp_path, push):
    main, terminal = os.openpty()
    words = [sys.executable, "-m", "trunkline", "cdtp", "record", "--capture", "c", "--connect", push.endpoint]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=terminal, stderr=terminal, cwd=tmp_path)
    os.close(terminal)
    try:
        text = b""
        while b"messages/s" not in text:
            text += os.read(main, 4096)
        os.close(main)
        push.send(*[release("Det", 0, number, b"x") for number in range(1, 4)])
        until(lambda: list((tmp_path / "c").glob(".*journal*")) or list((tmp_path / "c").glob("*.parquet")))
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()


def test_without_a_terminal_each_thing_that_happens_is_a_line(start, push):
    command = start("cdtp", "record", "--capture", "c", "--connect", push.endpoint, "--count", "1")
    push.send(release("Det", 0, 1, b"x"))
    _, err = command.end()
    lines = err.splitlines()
    assert lines[0] == f"trunkline: recording to c from {push.endpoint}; Ctrl-C stops"
    assert f"trunkline: recorder: {push.endpoint} connected" in lines
    assert lines[-1].startswith("trunkline: stopped (count)")


def test_connections_are_lines_beside_json_too_and_name_who_dialled(start, open_socket):
    command = start("--log-format", "json", "cdtp", "record", "--capture", "c", "--bind", "tcp://127.0.0.1:*", "--json")
    (endpoint,) = command.ready()["endpoints"]
    peer = open_socket(zmq.PUSH, connect=endpoint)
    peer.send_multipart(release("Det", 1, 0, b"\x80"))
    said = [json.loads(command.logged(words)) for words in ("connected", "began")]
    peer.close(linger=0)
    said.append(json.loads(command.logged("disconnected")))
    came, began, left = said
    address = re.fullmatch(rf"recorder: (tcp://127\.0\.0\.1:\d+) connected to {endpoint}", came["message"])[1]
    assert (came["kind"], came["endpoint"], came["address"]) == ("connected", endpoint, address)
    assert (began["message"], began["kind"], began["sender"]) == ("recorder: Det: a run began", "run_began", "Det")
    assert "run" not in began
    assert left["message"] == f"recorder: {address} disconnected from {endpoint}"
    command.signal(signal.SIGINT)
    out, _ = command.end()
    assert [json.loads(line)["event"] for line in out.splitlines()] == ["stopped"]


def test_runs_are_lines_as_they_begin_and_end(start, push):
    command = start("cdtp", "record", "--capture", "c", "--connect", push.endpoint, "--count", "6")
    for name in ("Det.one", "Det.two"):
        identity = b"\x81\xa6run_id\xa2r1"
        push.send(release(name, 1, 0, identity), release(name, 0, 1, b"x"), release(name, 2, 1, b"\x80"))
    lines = command.end()[1].splitlines()
    for name in ("Det.one", "Det.two"):
        assert [line for line in lines if name in line] == [
            f"trunkline: recorder: {name}: run r1 began",
            f"trunkline: recorder: {name}: run r1 ended",
        ]


def test_the_end_of_a_run_tells_its_condition_and_what_is_missing(start, push):
    command = start(
        "--log-format", "json", "cdtp", "record", "--capture", "c", "--connect", push.endpoint, "--count", "9"
    )
    identity = b"\x81\xa6run_id\xa2r1"
    tainted = msgpack.packb({"run_id": "r1", "condition_code": 1})
    push.send(
        release("Det.holes", 1, 0, identity), release("Det.holes", 0, 3, b"x"), release("Det.holes", 2, 5, b"\x80")
    )
    push.send(release("Det.bad", 1, 0, identity), release("Det.bad", 0, 1, b"x"), release("Det.bad", 2, 1, tainted))
    # Its BOR was not received.
    push.send(release("Det.late", 0, 7, b"x"), release("Det.late", 2, 8, identity))
    push.send(release("Det.good", 1, 0, identity))
    ends = [json.loads(line) for line in command.end()[1].splitlines()]
    ends = [line for line in ends if line.get("kind") == "run_ended"]
    assert [(line["level"], line["message"], line["condition"], line["missed"]) for line in ends] == [
        ("WARNING", "recorder: Det.holes: run r1 ended: INCOMPLETE, 3 messages missing", "INCOMPLETE", 3),
        ("WARNING", "recorder: Det.bad: run r1 ended: TAINTED", "TAINTED", 0),
        ("WARNING", "recorder: Det.late: run r1 ended: INCOMPLETE", "INCOMPLETE", 0),
    ]


def test_the_panel_shows_who_is_in_which_run(terminal, push):
    shown = terminal("cdtp", "record", "--capture", "c", "--connect", push.endpoint)
    for name in ("Det.one", "Det.two"):
        push.send(release(name, 1, 0, b"\x81\xa6run_id\xa2r1"))
    push.send(release("Det.three", 1, 0, b"\x80"))
    until(lambda: "in a run: r1 (Det.one, Det.two); without an id (Det.three)" in shown.text)
    until(lambda: "Det.two" in shown.text.partition("missed")[2])
    shown.end()


def test_the_log_for_machines(start, push):
    command = start(
        "--log-format",
        "json",
        "-v",
        "cdtp",
        "record",
        "--capture",
        "c",
        "--connect",
        push.endpoint,
        "--count",
        "1",
        "--json",
    )
    push.send([b"nonsense", b"x"])
    _, err = command.end()
    logged = [json.loads(line) for line in err.splitlines()]
    assert {line["logger"] for line in logged} == {"trunkline.cdtp"}
    (warned,) = [line for line in logged if line["level"] == "WARNING"]
    assert "bad_header" in warned["message"]
    assert re.fullmatch(r"20..-..-..T..:..:..\....Z", warned["time"])
    assert any("connected" in line["message"] for line in logged)


def test_all_that_is_told_is_a_line_for_machines(start, push):
    command = start(
        *("--log-format", "json", "cdtp", "record", "--capture", "c", "--connect", push.endpoint, "--count", "1")
    )
    push.send([b"nonsense", b"x"])
    _, err = command.end()
    said = [json.loads(line) for line in err.splitlines()]
    # What the role logs may come before the command says that it runs.
    begun, ended = [line["message"] for line in said if (line["logger"], line["level"]) == ("trunkline", "INFO")]
    assert begun.startswith("recording to c from")
    assert ended.startswith("stopped (count)")
    assert said[-1]["message"] == ended
    failed = start("--log-format", "json", "capture", "info", "nowhere")
    _, err = failed.end(1)
    assert json.loads(err)["level"] == "ERROR"


def test_records_are_told_from_the_messages_they_come_in(terminal, push):
    shown = terminal("cdtp", "record", "--capture", "c", "--connect", push.endpoint)
    until(lambda: "connected" in shown.text)
    push.send(batch("Det", *([number, {}, [b"x"]] for number in range(1, 6))))
    until(lambda: re.search(r"\d wire messages?/s .*1 in all", shown.text))
    assert re.search(r"records 5 · [\d.]+ .B free · recorded 1", shown.text)
    assert re.search(r"sender +records +bytes +missed", shown.text)
    shown.end()


class Screen(io.StringIO):
    """A terminal that breaks its lines anew when its width changes, as far as a panel makes use of one."""

    def __init__(self):
        super().__init__()
        self.lines = [""]
        self.column = 0
        self.width = 80

    def write(self, text):
        for part in re.findall(r"\x1b\[[0-9;]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", text):
            if part in "\r\n":
                self.column = 0
                self.lines += [""] if part == "\n" else []
            elif part == "\x1b[J":
                assert self.column < self.width, "the cursor is in another row"
                self.lines[-1] = self.lines[-1][: self.column]
            elif part == "\x1b[2K":
                self._erase()
            elif part == "\x1b[1A":
                assert self.lines[-1] == "", "a row is left that was not erased"
                self.lines.pop()
                self.lines = self.lines or [""]
            elif not part.startswith("\x1b"):
                line, end = self.lines[-1], self.column + len(part)
                self.lines[-1] = line[: self.column] + part + line[end:]
                self.column = end
        return len(text)

    def _erase(self):
        # The last row of a line that was broken; what is left of it stands above, a row of its own.
        rest = self.lines[-1][: (max(len(self.lines[-1]) - 1, 0)) // self.width * self.width]
        self.lines[-1:] = [rest, ""] if rest else [""]


def test_a_terminal_that_becomes_narrower_keeps_nothing_of_a_panel(monkeypatch):
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("COLUMNS", "80")
    display = _Display(screen, lambda: "\n".join(("x" * 80, "y" * 35, "z" * 70)))
    display.write("one\ntw")
    display.redraw()
    display.write("o\n")
    assert screen.lines == ["one", "two", "x" * 80, "y" * 35, "z" * 70]
    screen.width = 30
    monkeypatch.setattr(display._console, "_width", 30)
    display._draw = lambda: "narrow"
    display.redraw()
    display.write("three\n")
    assert screen.lines == ["one", "two", "three", "narrow"]
    display.clear()
    assert screen.lines == ["one", "two", "three", ""]


def test_what_a_terminal_echoes_goes_with_the_panel(monkeypatch):
    screen = Screen()
    monkeypatch.setenv("COLUMNS", "80")
    display = _Display(screen, lambda: "\n".join(("x" * 10, "z" * 80)))
    display.redraw()
    screen.write("^C")
    display.clear()
    assert screen.lines == [""]


def test_a_panel_has_no_more_lines_than_its_terminal(monkeypatch):
    screen = Screen()
    display = _Display(screen, lambda: "\n".join("abcdefgh"))
    monkeypatch.setattr(display._console, "_height", 4)
    display.redraw()
    assert screen.lines == ["a", "b", "c", "…"]


def test_runs_that_are_not_good_are_red(terminal, run, tmp_path):
    write(tmp_path / "runs.jsonl", [release("Det", 1, 0, b"\x80"), release("Det", 0, 3, b"x")], step_ns=1)
    run("capture", "import", "runs.jsonl", "--capture", "c")
    shown = terminal("capture", "runs", "c")
    assert shown.process.wait(20) == 0
    until(lambda: "ABORTED" in shown.text)
    assert re.search(r"\x1b\[31mINCOMPLETE\|ABORTED", shown.raw)
    assert re.search(r"\x1b\[31m +2\x1b\[0m", shown.raw)
    plain = terminal("capture", "runs", "c", NO_COLOR="1")
    assert plain.process.wait(20) == 0
    until(lambda: "ABORTED" in plain.text)
    assert "\x1b" not in plain.raw
    assert plain.raw == shown.text


def test_a_nats_server_on_a_terminal_shows_what_passes(terminal):
    shown = terminal("nats", "--port", "0")
    until(lambda: "clients" in shown.text or "direction" in shown.text)
    url = re.search(r"listening on nats://127\.0\.0\.1:(\d+)", shown.text)
    with socket.create_connection(("127.0.0.1", int(url[1]))) as client:
        client.sendall(b"CONNECT {}\r\nSUB a 1\r\nPUB a 5\r\nhello\r\nPING\r\n")
        until(lambda: re.search(r"clients 1 · subscriptions \d+ · memory [\d.]+ MB", shown.text))
        until(lambda: re.search(r"in +1 +5 B", shown.text) and re.search(r"out +1 +5 B", shown.text))
    shown.end()


def test_counters_are_told_with_their_rates(start, push):
    command = start(
        "cdtp", "record", "--capture", "c", "--connect", push.endpoint, "--json", "--stats-interval", "0.05"
    )
    command.ready()
    push.send(release("Det", 0, 1, b"x"))
    while not (stats := command.event("stats"))["messages_per_s"]:
        assert stats["bytes_per_s"] == 0
    assert (stats["stats"]["received"], stats["stats"]["bytes"]) == (1, 14)
    assert stats["bytes_per_s"] / stats["messages_per_s"] == pytest.approx(14, rel=0.01)
    assert command.event("stats")["messages_per_s"] == 0
    command.signal(signal.SIGINT)
    command.end()
    words = start("cdtp", "record", "--capture", "d", "--connect", push.endpoint, "--stats-interval", "0.05")
    assert words.logged("messages/s").endswith("; 0 messages/s; 0 B/s\n")
    words.signal(signal.SIGINT)


def test_an_end_that_takes_long_says_what_it_is_at(monkeypatch):
    screen = Screen()
    screen.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", screen)
    with draining(5.0):
        pass
    assert screen.lines == [""]
    monkeypatch.setattr("trunkline.cli.process.running._SILENT_S", 0.0)
    with draining(5.0):
        until(lambda: screen.lines != [""])
    note = "trunkline: finishing what has arrived, at most 5 s; Ctrl-C again ends at once"
    assert screen.lines == [note, ""]


def test_sparklines():
    assert _sparkline([]) == ""
    assert _sparkline([0, 0]) == "▁▁"
    assert _sparkline([0, 5, 10]) == "▁▅█"


def test_services_have_a_row_each(capsys):
    from rich.console import Console

    def stats(requests):
        services = [
            ServiceStats(b"echo\x1b", queued=1, workers=2, free=1, requests=requests, replies=requests, expired=0),
            *(ServiceStats(b"s%d" % at, 0, 1, 1, 0, 0, 3) for at in range(12)),
        ]
        return BrokerStats(
            received=requests,
            sent=0,
            dropped={"late": 2},
            bytes=1_000 * requests,
            peers=3,
            queued=1,
            lost=0,
            latency=NO_LATENCIES,
            services=services,
            capture_lost=0,
            refused=0,
            turned_away=0,
            connection_failures={},
            transport="zmtp",
        )

    panel = _Panel(lambda: stats(10), "dcp.broker", None, "received", None)
    Console(width=80).print(panel._draw(stats(10), 1.0, 1.0))
    panel._before = stats(10)
    Console(width=80).print(panel._draw(stats(30), 2.0, 3.0))
    out = capsys.readouterr().out
    assert "10 messages/s  10.0 kB/s  30 in all, 30.0 kB" in out
    assert re.search(r"echo\\x1b +1 +2 +1 +30 +30 +0 +\d", out)
    assert "and 5 more" in out
    assert "! 2 late" in out
    assert max(map(len, out.splitlines())) <= 80


def test_what_a_role_hears_of_itself_is_no_fault_and_one_is_a_singular(monkeypatch):
    monkeypatch.setattr("trunkline._roles.notices.connections", Connections())
    stats = TargetStats(2, 2, {"own_event": 6, "expired": 1}, 9, 1, 0, 0, 1, 0, NO_LATENCIES, 0, 0)
    panel = _Panel(lambda: stats, "cdt.target", None, "received", None)
    console = Console(width=100)
    with console.capture() as first:
        console.print(panel._draw(stats, 1.0, 1.0))
    panel._before = dataclasses.replace(stats, received=1)
    with console.capture() as second:
        console.print(panel._draw(stats, 1.0, 2.0))
    assert "not connected" in first.get()
    assert "own_event" not in second.get()
    assert "! 1 expired\n" in second.get()
    assert " 1 message/s" in second.get()
