"""The lines of JSON that each command prints with --json, and their JSON Schema, which the wheel has as a file.

Run: python tools/json_lines.py writes that file anew.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from trunkline._protocols import PROTOCOLS
from trunkline.cli.terminal.json_lines import Line, Maybe

FILE = Path(__file__).parents[1] / "python" / "trunkline" / "cli" / "schemas.json"

# What stands for a type of its own, until all is put together.
_TEXT, _NUMBER = {"title": "Text"}, {"title": "Number"}
_DEFS = {
    "Text": {
        "description": "Text, or bytes that are not printable text, in base64.",
        "anyOf": [
            {"type": "string"},
            {"type": "object", "properties": {"base64": {"type": "string"}}, "required": ["base64"]},
        ],
    },
    "Number": {"description": "A number.", "anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]},
}


# The modules of the commands, in the order of the schema.
_MODULES = (
    "demo",
    "nats_server",
    "conform",
    "keygen",
    "doctor",
    "capture",
    *sorted(each.name for each in PROTOCOLS),
    "spark",
)

# What each command prints.
LINES: dict[str, list[Line]] = {
    command: lines
    for module in _MODULES
    for command, lines in importlib.import_module(f"trunkline.cli.commands.{module}").json_lines().items()
}


class _Generator(GenerateJsonSchema):
    """JSON Schema of values as the commands write them."""

    def str_schema(self, schema: Any) -> dict[str, Any]:  # noqa: ARG002 - pydantic calls it so
        return dict(_TEXT)

    bytes_schema = str_schema

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic calls it so
        return False

    def float_schema(self, schema: Any) -> dict[str, Any]:  # noqa: ARG002 - pydantic calls it so
        return dict(_NUMBER)

    def dataclass_schema(self, schema: Any) -> dict[str, Any]:
        """Every field is written, also one that has a default."""
        made = super().dataclass_schema(schema)
        # A name that is a word of Python's has an underscore there.
        properties = {name.rstrip("_"): kind for name, kind in made["properties"].items()}
        described = {name: kind for name, kind in made.items() if name not in ("title", "description")}
        return described | {"properties": properties, "required": list(properties)}


def schema() -> dict[str, Any]:
    """The lines of all commands, each command by its words as a definition."""
    kinds: dict[tuple[str, int, str], Any] = {
        (command, at, name): kind.kind if isinstance(kind, Maybe) else kind
        for command, lines in LINES.items()
        for at, one in enumerate(lines)
        for name, kind in one.fields.items()
    }
    made, shared = TypeAdapter.json_schemas(
        [(key, "serialization", TypeAdapter(kind)) for key, kind in kinds.items()],
        ref_template="#/$defs/{model}",
        schema_generator=_Generator,
    )
    commands = {}
    for command, lines in LINES.items():
        shapes = []
        for at, one in enumerate(lines):
            fields = {name: made[(command, at, name), "serialization"] for name in one.fields}
            required = [name for name, kind in one.fields.items() if not isinstance(kind, Maybe)]
            shapes.append(
                {
                    "type": "object",
                    "properties": {"event": {"const": one.event}, **fields},
                    "required": ["event", *required],
                }
            )
        commands[command] = {"description": f"A line of `trunkline {command} --json`.", "anyOf": shapes}
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Lines of JSON",
        "description": "What the commands of trunkline print with --json, one object a line. Later versions may add events and fields.",
        "anyOf": [{"$ref": f"#/$defs/{quote(command)}"} for command in commands],
        "$defs": {**commands, **_DEFS, **shared.get("$defs", {})},
    }
    linked: dict[str, Any] = _linked(whole)
    return linked


def _linked(node: Any) -> Any:
    """With a reference in place of each type of its own."""
    if node in (_TEXT, _NUMBER):
        return {"$ref": f"#/$defs/{node['title']}"}
    if isinstance(node, list):
        return [_linked(one) for one in node]
    return {name: _linked(one) for name, one in node.items()} if isinstance(node, dict) else node


def text() -> str:
    """The file."""
    return json.dumps(schema(), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
