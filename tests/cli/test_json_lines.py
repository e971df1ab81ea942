"""The schema of what commands print with --json. Each test here that starts a command holds its lines to it, in conftest."""

from __future__ import annotations

import json

import pytest
from jsonschema import Draft202012Validator
from tools import commands
from tools import json_lines as declared

from peers import json_lines


def with_json():
    return {
        path.removeprefix("trunkline ")
        for page in commands.pages()
        for path, command, _ in page.commands
        if any("--json" in parameter.opts for parameter in command.params)
    }


def test_every_command_that_prints_json_has_a_schema():
    assert len(with_json()) > 40
    assert set(declared.LINES) == with_json()


def test_the_file_is_what_is_declared():
    assert declared.FILE.read_text() == declared.text(), "run python tools/json_lines.py"
    Draft202012Validator.check_schema(json_lines.schema())


@pytest.mark.parametrize("command", declared.LINES)
def test_a_line_of_another_shape_is_refused(command):
    with pytest.raises(AssertionError, match="schema lacks"):
        json_lines.check(command, '{"event": "no such event"}')
    line = next(line for line in declared.LINES[command] if line.fields)
    with pytest.raises(AssertionError, match=f"event {line.event}"):
        json_lines.check(command, json.dumps({"event": line.event, "no_such_field": 1}))


def test_the_schema_is_printed(run):
    assert json.loads(run("schema")[0]) == json_lines.schema()
    one = json.loads(run("schema", "mc0", "ping")[0])
    Draft202012Validator.check_schema(one)
    valid = Draft202012Validator(one)
    assert valid.is_valid({"event": "pong", "index": 0, "latency_ms": 0.5})
    assert not valid.is_valid({"event": "pong", "index": "0", "latency_ms": 0.5})
    assert len(one["$defs"]) < 10
    _, err = run("schema", "mc0", "pinng", returncode=2)
    assert "there is no command 'mc0 pinng': did you mean 'ping'?" in err
    _, err = run("schema", "capture", returncode=2)
    assert "trunkline capture prints no JSON. Did you mean" in err
