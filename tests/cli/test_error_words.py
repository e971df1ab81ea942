"""Errors of commands are in the words of a shell, not in those of Python."""

from __future__ import annotations

import re

import pytest
import typer

from trunkline.cli.app import app
from trunkline.cli.process import endings
from trunkline.errors import AuthenticationError, CaptureError, LocalProtocolError

ARGUMENT = re.compile(r"\b[a-z_]+=(?!\w)|\b[a-z]+_[a-z_]+=")


def options(command):
    """The names of all options of a command and of those below it."""
    for parameter in command.params:
        yield from getattr(parameter, "opts", ())
    for below in getattr(command, "commands", {}).values():
        yield from options(below)


@pytest.mark.parametrize("name", endings._OPTIONS)
@pytest.mark.parametrize("error", [LocalProtocolError, AuthenticationError, CaptureError])
@pytest.mark.parametrize("text", ["leave out {}=", "give {}= or another", "{}=: none", "{}=True, or none"])
def test_an_argument_is_named_as_the_option_that_gives_it(name, error, text):
    explained = endings._explain(error(text.format(name)))
    assert f"{name}=" not in explained
    assert endings._OPTIONS[name] in explained


def test_a_want_of_memory_is_said_as_such():
    assert endings._explain(MemoryError()) == "there is not enough memory"
    assert endings._explain(MemoryError("malloc of 9 failed")) == "there is not enough memory (malloc of 9 failed)"


def test_what_arguments_are_named_as_are_options():
    there = set(options(typer.main.get_command(app)))
    assert {each.partition(" ")[0] for each in endings._OPTIONS.values()} - there == set()


LISTEN, DIAL = ["--bind", "tcp://127.0.0.1:*"], ["--connect", "tcp://127.0.0.1:9"]

WRONG = {
    "inproc": [["cdtp", "receive", "--bind", "inproc://x"], ["mtl", "server", "--bind", "inproc://x", "--anonymous"]],
    "no users": [["mtl", "server", *LISTEN]],
    "keys": [
        ["dcp", "broker", *LISTEN, "--curve-allow", "."],
        ["mc0", "middleware", *LISTEN, "--curve-server-key", "nothing"],
        ["cdtp", "receive", *DIAL, "--curve-secret", "capture"],
        ["mc0", "subscribe", "t", *DIAL, "--curve-secret", "nothing"],
    ],
    "groups": [
        ["cdtp", "receive", "--sender", "D"],
        ["cdtp", "send", "--name", "D", "--group", "lab", *DIAL, "-"],
        ["cdtp", "send", "--name", "D", "--group", "lab", "--bind", "ipc://x", "-"],
        ["cdtp", "receive", "--group", "lab", *DIAL],
    ],
    "no endpoint": [
        [*role, *more] for role in (["cdtp", "receive"], ["dcp", "broker"]) for more in ([], ["--bind", "x"])
    ],
    "names": [
        ["cdt", "pull", "a", "b", "--target", "x y", "--nats", "nats://127.0.0.1:9"],
        ["cdt", "target", "c d", "--store", "store"],
    ],
    "captures": [
        ["capture", "cat", "nothing"],
        ["capture", "cat", "capture", "--max-message-bytes", "1"],
        ["capture", "cat", "capture", "--run", "99"],
        ["capture", "decode", "capture", "out.parquet", "--protocol", "smtp"],
        ["capture", "decode", "capture", "out.parquet", "--tags", "run=money"],
        ["capture", "export", "capture", "out.h5", "--tags", "run=bigint"],
        ["capture", "export", "capture", "out.h5", "--protocol", "dcp"],
        ["capture", "replay", "capture", "--connect", "x"],
        ["capture", "replay", "capture"],
    ],
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.usefixtures("recorded")
def test_no_error_of_a_command_names_an_argument_of_python(start, what):
    for command in WRONG[what]:
        started = start(*command)
        _, err = started.process.communicate("")
        assert started.process.returncode in (1, 2), (command, err)
        said = [line for line in err.splitlines() if "rror" in line]
        assert said, command
        assert not any(ARGUMENT.search(line) for line in said), (command, said)


LOCAL = [
    ["cdtp", "record", *LISTEN, "--capture", "s3://lab/x"],
    ["dcp", "broker", *LISTEN, "--capture", "s3://lab/x"],
    ["cdt", "record", "--nats", "nats://127.0.0.1:9", "--capture", "s3://lab/x"],
    ["capture", "import", "lines", "--capture", "s3://lab/x"],
    *(["capture", name, "s3://lab/x"] for name in ("recover", "compact")),
    ["capture", "ship", "s3://lab/x", "copy"],
    ["capture", "decode", "capture", "s3://lab/x"],
    ["capture", "export", "capture", "s3://lab/x.csv"],
    ["capture", "report", "capture", "s3://lab/x"],
    ["capture", "gaps", "capture", "--output", "s3://lab/x.csv"],
    ["spark", "decode", "capture", "s3://lab/x", "--protocol", "cdtp"],
    ["spark", "report", "capture", "s3://lab/x"],
    ["spark", "stream", "capture", "s3://lab/x", "--protocol", "cdtp"],
    ["spark", "stream", "capture", "table", "--checkpoint", "s3://lab/x", "--protocol", "cdtp"],
]


@pytest.mark.parametrize("command", LOCAL, ids=" ".join)
@pytest.mark.usefixtures("recorded")
def test_a_url_is_not_taken_for_a_path(start, tmp_path, command):
    (tmp_path / "lines").touch()
    started = start(*command)
    _, err = started.process.communicate("")
    assert started.process.returncode == 1
    assert re.search(
        r"s3://lab/x(\.csv)?: is a URL, and this takes paths of this machine alone: trunkline capture ship", err
    )
    assert not (tmp_path / "s3:").exists()
    assert not (tmp_path / "table").exists()
