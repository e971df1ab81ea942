"""Help, versions, extras: what everybody sees first."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys

import pytest
import typer
from typer.core import TyperCommand
from typer.testing import CliRunner

import trunkline
from trunkline.cli.app import app


def examples(help_text):
    return [line.strip() for line in help_text.partition("Example:")[2].splitlines() if line.strip()]


def all_commands(command, *words):
    yield words, command
    for name, inside in getattr(command, "commands", {}).items():
        yield from all_commands(inside, *words, name)


ALL = [(list(words), command) for words, command in all_commands(typer.main.get_command(app))]
COMMANDS = [words for words, command in ALL if not hasattr(command, "commands")]
FAMILIES = [words for words, command in ALL if hasattr(command, "commands")]


def test_there_are_as_many_commands_as_there_were():
    assert len(COMMANDS) >= 48
    assert len(FAMILIES) >= 10


def test_no_help_has_a_piece_of_python_in_it():
    for words, command in ALL:
        text = command.get_help(command.make_context(" ".join(words), [], resilient_parsing=True))
        assert " object at 0x" not in text, words
        assert "None" not in text, words


@pytest.mark.parametrize("width", [40, 50, 60, 80])
def test_help_is_as_wide_as_the_terminal(monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    for words, command in ALL:
        text = command.get_help(command.make_context(" ".join(["trunkline", *words]), [], resilient_parsing=True))
        # An example is to be copied, and the choices of an option are one word.
        for line in text.partition("Example:")[0].splitlines():
            assert len(line) <= width or re.fullmatch(r" +--\S+ <\S+>", line), line


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_an_example_that_it_takes(run, command, monkeypatch):
    # Parsed to the end, and stopped before it runs.
    monkeypatch.setattr(TyperCommand, "invoke", lambda *_: print("parsed"))
    out, err = run(*command, "--help")
    assert err == ""
    found = [shlex.split(example.rpartition("|")[2].partition(" > ")[0]) for example in examples(out)]
    assert any(words[: len(command) + 1] == ["trunkline", *command] for words in found)
    for words in found:
        assert words[0] == "trunkline"
        parsed = CliRunner().invoke(app, words[1:])
        assert (parsed.exit_code, parsed.output) == (0, "parsed\n")


def test_the_examples_of_cdtp_work_together(start, run):
    # With a port of its own; everything else as printed.
    receive = start("cdtp", "receive", "--bind", "tcp://127.0.0.1:*", "--count", "1", "--json")
    (endpoint,) = receive.ready()["endpoints"]
    (example,) = examples(run("cdtp", "send", "--help")[0])
    words = shlex.split(example.rpartition("|")[2].replace("tcp://127.0.0.1:23999", endpoint))
    run(*words[1:], stdin="hello\n")
    message = receive.event("message")
    assert (message["sender"], message["tags"], message["payload_sizes"]) == ("Detector.one", {"run": 7}, [5])


def test_the_examples_of_dcp_work_together(start, run):
    def words(role, endpoint):
        (example,) = examples(run("dcp", role, "--help")[0])
        return shlex.split(example.replace("tcp://127.0.0.1:23990", endpoint))[1:]

    broker = start(*words("broker", "tcp://127.0.0.1:*"), "--json")
    (endpoint,) = broker.ready()["endpoints"]
    worker = start(*words("worker", endpoint), "--json")
    worker.ready()
    out, err = run(*words("request", endpoint))
    assert all(line.startswith("trunkline: asking upper") for line in err.splitlines())
    *replies, stopped = map(json.loads, out.splitlines())
    assert [reply["data"] for reply in replies] == [["HELLO"]] * 1000
    assert (stopped["stats"]["replies"], stopped["stats"]["timeouts"]) == (1000, 0)
    for command in (worker, broker):
        command.signal(signal.SIGTERM)
        assert command.event("stopped")["reason"] == "signal"
        command.end()


@pytest.mark.parametrize("room", FAMILIES, ids=" ".join)
def test_rooms_list_their_commands(run, room):
    out, _ = run(*room, "--help")
    for command in COMMANDS:
        if command[: len(room)] == room:
            assert f"\n  {command[len(room)]} " in out


def test_commands_load_what_they_need_alone():
    code = "import sys; from trunkline.cli import app\n"
    code += "print([name for name in ('zmq', 'pyarrow', 'pyspark', 'rich.console', 'asyncio') if name in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert out == "[]\n"


def test_version(run):
    build = rf"{trunkline.build_profile} build for \S+ \S+, Python {sys.version.split()[0]}"
    assert re.fullmatch(rf"trunkline {re.escape(trunkline.__version__)} \({build}\)\n", run("--version")[0])


def test_completion_is_there(run):
    words = {"_TRUNKLINE_COMPLETE": "complete_bash", "COMP_WORDS": "trunkline capture re", "COMP_CWORD": "2"}
    assert run(env=words)[0].split() == ["requests", "report", "replay", "recover"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["cdtp", "nonsense"],
        ["cdtp", "receive"],
        ["cdtp", "receive", "--count", "x", "--bind", "tcp://127.0.0.1:*"],
        ["cdtp", "record", "--bind", "tcp://127.0.0.1:*"],
        ["cdtp", "send", "--name", "D", "-"],
        ["cdtp", "send", "--name", "D", "--bind", "tcp://127.0.0.1:*"],
        ["cdtp", "send", "--name", "D", "--connect", "tcp://127.0.0.1:1", "--group", "g", "-"],
        ["cdtp", "send", "--name", "D", "--bind", "ipc:///tmp/d", "--group", "g", "-"],
        ["cdtp", "receive", "--group", "g", "--connect", "tcp://127.0.0.1:1"],
        ["cdtp", "receive", "--sender", "D", "--bind", "tcp://127.0.0.1:*"],
        ["cdtp", "record", "--capture", "c", "--group", "g", "--bind", "tcp://127.0.0.1:*"],
        ["chirp", "watch"],
        ["chirp", "offer", "--group", "g", "--name", "D", "--service", "data", "--port", "0"],
        ["chirp", "offer", "--group", "g", "--name", "D", "--service", "cdtp", "--port", "1"],
        ["chirp", "offer", "--group", "g", "--service", "data", "--port", "1"],
        ["dcp", "broker"],
        ["dcp", "broker", "--bind", "tcp://127.0.0.1:*", "--overflow", "newest"],
        ["dcp", "worker", "echo", "--echo"],
        ["dcp", "worker", "--connect", "tcp://127.0.0.1:1", "--echo"],
        ["dcp", "request", "echo"],
        ["dcp", "request", "echo", "--connect", "tcp://127.0.0.1:1", "--keep-days", "1"],
        ["dcp", "broker", "--bind", "tcp://127.0.0.1:*", "--capture-overflow", "block"],
        ["dcp", "broker", "--bind", "tcp://127.0.0.1:*", "--capture", "c", "--capture-overflow", "raise"],
        ["dcp", "request", "echo", "--connect", "tcp://127.0.0.1:1", "--count", "0"],
        ["dcp", "broker", "--bind", "tcp://127.0.0.1:*", "--heartbeat-interval", "1000000", "--liveness", "3"],
        ["capture", "info"],
        ["capture", "replay", "c"],
        ["spark", "decode", "c", "out"],
        ["spark", "decode", "c", "out", "--protocol", "cdtp", "--mode", "LENIENT"],
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_with_2(run, arguments):
    out, err = run(*arguments, returncode=2)
    assert out == ""
    assert "--help" in err


BROKER = ["dcp", "broker", "--bind", "tcp://127.0.0.1:*"]
WORKER = ["dcp", "worker", "echo", "--echo", "--connect", "tcp://127.0.0.1:1"]
ASK = ["dcp", "request", "echo", "--connect", "tcp://127.0.0.1:1"]
RECORD = ["cdtp", "record", "--bind", "tcp://127.0.0.1:*", "--capture", "c"]
SEND = ["cdtp", "send", "--connect", "tcp://127.0.0.1:1", "-"]


@pytest.mark.parametrize(
    ("arguments", "option", "value"),
    [
        (BROKER, "--queue-ttl", "inf"),
        (BROKER, "--heartbeat-interval", "1e300"),
        (BROKER, "--drain-seconds", "nan"),
        (BROKER, "--stats-interval", "inf"),
        (WORKER, "--heartbeat-interval", "inf"),
        (ASK, "--timeout", "inf"),
        (RECORD, "--segment-seconds", "inf"),
        (RECORD, "--keep-days", "1e300"),
        (RECORD, "--idle", "nan"),
        ([*SEND, "--name", "D"], "--batch-seconds", "inf"),
        (RECORD, "--keep-bytes", "9" * 23),
        (RECORD, "--keep-bytes", "9" * 5000),
        (RECORD, "--count", "9" * 23),
        (RECORD, "--max-message-bytes", "5 MX"),
        (RECORD, "--max-message-bytes", "0.1"),
        (SEND, "--name", b"\xff"),
        (["chirp", "offer", "--group", "g", "--service", "data", "--port", "1"], "--name", b"\xff"),
        (["chirp", "watch"], "--group", b"\xff"),
    ],
)
def test_a_value_that_is_none_is_told_with_its_option(tmp_path, arguments, option, value):
    command = [sys.executable, "-m", "trunkline", *arguments, option, value]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert option in ran.stderr.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["dcp", "request"], ["SERVICE", "[DATA]..."]),
        (["cdtp", "send"], ["FILE..."]),
        (["capture", "import"], ["FILE..."]),
    ],
)
def test_usage_says_what_repeats_once(run, command, words):
    usage = run(*command, "--help")[0].partition("\n")[0]
    assert usage.replace("{", "").replace("}", "").split()[-len(words) :] == words


@pytest.mark.parametrize(
    ("blocked", "arguments", "extra"),
    [
        ("typer", ["--help"], "cli"),
        ("pyarrow", ["capture", "decode", "{capture}", "out.parquet"], "capture"),
        ("pyspark", ["spark", "report", "{capture}", "out.html"], "spark"),
        ("pyspark", ["spark", "submit", "--master", "local", "--", "spark", "decode", "{capture}", "out"], "spark"),
    ],
)
def test_a_missing_extra_is_named(run, tmp_path, blocked, arguments, extra):
    (tmp_path / "empty.jsonl").write_text("")
    run("capture", "import", "empty.jsonl", "--capture", "capture")
    code = f"import sys; sys.modules[{blocked!r}] = None; from trunkline.__main__ import main; main()"
    arguments = [argument.format(capture=tmp_path / "capture") for argument in arguments]
    ran = subprocess.run(
        [sys.executable, "-c", code, *arguments], check=False, capture_output=True, text=True, cwd=tmp_path
    )
    assert (ran.returncode, ran.stdout) == (1, "")
    (line,) = ran.stderr.splitlines()
    assert f"install trunkline[{extra}]: pip install '.[{extra}]' in a checkout" in line


@pytest.mark.parametrize(
    ("endpoint", "what"), [("nowhere", "does not name its transport"), ("tcp://127.0.0.1:99999", "'99999'")]
)
@pytest.mark.parametrize(
    "command",
    [
        ["cdtp", "send", "--name", "D", "-"],
        ["cdtp", "receive"],
        ["cdtp", "record", "--capture", "c"],
        ["dcp", "broker"],
        ["dcp", "worker", "echo", "--echo"],
        ["dcp", "request", "echo"],
        ["capture", "replay", "c"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_what_is_no_endpoint_is_wrong_usage(run, command, endpoint, what):
    sides = ["--connect"] if command[1] in ("worker", "request") else ["--bind"]
    for side in sides if command[0] == "dcp" else ["--bind", "--connect"]:
        _, err = run(*command, side, endpoint, returncode=2)
        said = " ".join(err.split())
        assert side in said
        assert endpoint in said
        assert what in said


@pytest.mark.parametrize("blocked", ["pyspark", "pandas"])
def test_the_demo_says_what_is_missing_before_it_records(tmp_path, blocked):
    code = f"import sys; sys.modules[{blocked!r}] = None; from trunkline.__main__ import main; main()"
    ran = subprocess.run(
        [sys.executable, "-c", code, "demo"], check=False, capture_output=True, text=True, cwd=tmp_path
    )
    assert (ran.returncode, ran.stdout) == (1, "")
    (line,) = ran.stderr.splitlines()
    assert line.startswith(f"trunkline: error: this requires {blocked}: install trunkline[spark]")


def test_a_shell_completes_types_of_messages(run):
    words = {
        "_TRUNKLINE_COMPLETE": "complete_bash",
        "COMP_WORDS": "trunkline capture cat c --type r",
        "COMP_CWORD": "5",
    }
    assert {"REQUEST", "REPLY"} <= set(run(env=words)[0].upper().split())
