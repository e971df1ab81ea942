"""Lines of JSON, held to the schema that users are given of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

from jsonschema import Draft202012Validator

__all__ = ["check", "command_of", "schema"]


def schema() -> dict[str, Any]:
    """What the wheel has."""
    loaded: dict[str, Any] = json.loads(resources.files("trunkline.cli").joinpath("schemas.json").read_text())
    return loaded


def command_of(arguments: Sequence[str]) -> str | None:
    """The command that is run; None where it prints no JSON of its own."""
    words = " ".join(arguments) + " "
    return next((name for name in schema()["$defs"] if f" {words}".find(f" {name} ") == 0), None)


def check(command: str, lines: str) -> None:
    """Each line is one of the command's, without a field that its schema does not name."""
    for line in lines.splitlines():
        event = json.loads(line)
        events = _shapes(command)
        assert event["event"] in events, f"trunkline {command} prints an event that its schema lacks: {line}"
        wrong = [f"{error.json_path}: {error.message}" for error in events[event["event"]].iter_errors(event)]
        assert not wrong, f"trunkline {command}, event {event['event']}: {wrong}"


@cache
def _shapes(command: str) -> dict[str, Draft202012Validator]:
    """The lines of a command by their events."""
    defs = {name: _closed(one) for name, one in schema()["$defs"].items()}
    shapes = defs[command]["anyOf"]
    return {shape["properties"]["event"]["const"]: Draft202012Validator({**shape, "$defs": defs}) for shape in shapes}


def _closed(node: Any) -> Any:
    """A schema by which an object has no fields but those it names."""
    if isinstance(node, list):
        return [_closed(one) for one in node]
    if not isinstance(node, dict):
        return node
    closed = {name: _closed(one) for name, one in node.items()}
    return closed | {"additionalProperties": False} if isinstance(node.get("properties"), dict) else closed
