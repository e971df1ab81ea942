"""The lines of JSON that each command prints with --json, and their JSON Schema, which the wheel has as a file.

Run: python tools/json_lines.py writes that file anew.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_type_hints
from urllib.parse import quote

import pyarrow as pa
from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from trunkline import capture, cdt, cdtp, chirp, dcp, mc0, mtl
from trunkline._native.analysis import Fold
from trunkline.cli import dcp_request, mtl_client, nats_stats, spark_stream
from trunkline.cli import mc0 as mc0_commands
from trunkline.report.cdtp_counts import SenderReport

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


@dataclass(frozen=True)
class Maybe:
    """The type of a field that a line may lack."""

    kind: Any


@dataclass(frozen=True)
class Line:
    """One kind of line.

    Attributes:
        event: The value of its field `event`.
        fields: The types of the others.
    """

    event: str
    fields: dict[str, Any] = field(default_factory=dict)


def line(event: str, **fields: Any) -> Line:
    """A kind of line with these fields."""
    return Line(event, fields)


def _of(event: str, kind: Any) -> Line:
    """A kind of line with the fields of a dataclass."""
    hints = get_type_hints(kind)
    return Line(event, {name: hints[name] for name in kind.__dataclass_fields__})


def _fold(event: str, name: str) -> Line:
    """A kind of line with the columns of a table of `Fold`."""
    return Line(event, {field.name: _type(field.type) for field in Fold(name).schema()})


def _type(kind: pa.DataType) -> Any:
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return int | None
    if pa.types.is_boolean(kind):
        return bool
    if pa.types.is_list(kind):
        return list[str]
    return dict[str, str] if pa.types.is_struct(kind) else str | None


# Why a command that has an end of its own has ended.
_Reason = Literal["signal", "count", "idle", "eof", "timeout", "error"]
_PAYLOAD = {"payload_sizes": list[int], "payload": list[str]}
_RATES = {"messages_per_s": float, "received_per_s": Maybe(float), "bytes_per_s": Maybe(float)}
_TIMED_OUT = line("timeout", index=int)
_CHECKED = line("checked")
_WRITTEN = {"rows": int, "path": str}
_EXPORTED = line("exported", **_WRITTEN)
_COUNTED = dict[str, Any]
_REPORT = line(
    "report",
    path=str,
    **dict.fromkeys(("rows", "bytes", "bucket_ns"), int),
    **dict.fromkeys(("first_received_at_ns", "last_received_at_ns"), int | None),
    selected=str | None,
    malformed=dict[str, int],
    messages=dict[str, int],
    volumes=dict[str, dict[str, int]],
    sections=dict[str, _COUNTED],
)


def _ready(**more: Any) -> Line:
    return line("ready", role=str, endpoints=list[str], pid=int, **more)


def _stopped(stats: Any, **more: Any) -> Line:
    return line("stopped", reason=_Reason, stats=stats, **more)


def _role(stats: Any, ready: Line | None = None, **more: Any) -> list[Line]:
    """What a command prints that runs a role: that it does, its counters from time to time, and those at its end."""
    return [ready or _ready(metrics_url=Maybe(str)), line("stats", stats=stats, **_RATES), _stopped(stats, **more)]


def _service(event: str) -> Line:
    return line(event, host=str, name=str | None, service=str, endpoint=str | None)


def _configuration(event: str) -> Line:
    fields = dict.fromkeys(("app_version_name", "endpoint_id", "config_id", "originator"), str)
    return line(event, **fields, originator_replica_id=str | None, timestamp_ms=int)


_OFFERS = [_service("offer"), _service("request"), _service("depart")]
_CONFIRMED = [line("sent"), line("stored", config_id=str), line("pushed", config_id=str)]
_FRAMES = dict.fromkeys(("envelope", "payload"), list[str])
_ROW = {
    **dict.fromkeys(("capture_id", "protocol", "direction", "received_at"), str),
    **dict.fromkeys(("segment", "seq", "received_at_ns", "n_frames", "n_bytes"), int),
    **dict.fromkeys(("endpoint", "peer", "topic", "reply_to", "header", "error"), str | None),
    "n_head": int | None,
    **_FRAMES,
    "messages": list[dict[str, Any]],
}
_MESSAGE = {
    "sender": str,
    "variant": Literal["S", "A", "B", "2"],
    "timestamp_ns": int | None,
    "type": str | None,
    "sequence": int | None,
    "tags": Any,
    "config": Maybe(Any),
    "metadata": Maybe(Any),
    **_PAYLOAD,
}
_MISSING = {"sender": str, "run_id": str | None, "condition": str, "missed": int}
_COUNTS = {"topic": str, **dict.fromkeys(("subscribers", "puts", "messages", "bytes"), int)}
_SERVICE = dict.fromkeys(("workers", "free", "queued", "requests", "replies", "expired"), int)
_QUEUE = {
    **dict.fromkeys(("messages", "bytes", "unconfirmed", "readers", "writers", "max-messages", "max-bytes"), int),
    "ttl-ms": int | None,
    "dead-letter": str | None,
}

# What each command prints.
LINES: dict[str, list[Line]] = {
    "demo": [_of("sender", SenderReport), line("report", path=str, seconds=float)],
    "nats": [_ready(), line("stats", stats=nats_stats.NatsStats, **_RATES), _stopped(dict[str, int])],
    "keygen": [line("key", name=str, public_key=str, public_file=str, secret_file=str)],
    "doctor": [line("finding", name=str, value=str, state=Literal["ok", "broken", "note"], advice=str)],
    "capture info": [_of("info", capture.CaptureInfo)],
    "capture runs": [_of("run", capture.Run), line("incomplete", let_go=int, unfollowed=int)],
    "capture gaps": [_fold("gap", "gaps"), _EXPORTED],
    "capture requests": [_fold("request", "requests"), _EXPORTED],
    "capture topics": [_fold("topic", "topics"), _EXPORTED],
    "capture contents": [_fold("content", "contents"), _EXPORTED],
    "capture rollout": [_fold("configuration", "rollout"), _EXPORTED],
    "capture cat": [line("row", **_ROW)],
    "capture decode": [line("decoded", **_WRITTEN)],
    "capture export": [_EXPORTED],
    "capture report": [_REPORT],
    "capture replay": [_ready(), _stopped(dict[str, int])],
    "capture import": [line("imported", messages=int, capture=str)],
    "capture recover": [_of("recovered", capture.Recovery)],
    "capture verify": [
        line("problem", path=str, what=str),
        line("verified", segments=int, messages=int, unchecked=int, problems=int),
    ],
    "capture compact": [_of("compacted", capture.Compaction)],
    "capture ship": [
        _ready(metrics_url=Maybe(str)),
        _of("shipped", capture.Shipped),
        line("retry", error=str, wait_s=float),
        _stopped(capture.Shipped),
    ],
    "cdt target": [_CHECKED, *_role(cdt.TargetStats)],
    "cdt put": _CONFIRMED,
    "cdt rollback": _CONFIRMED,
    "cdt pull": [
        line("config", **dict.fromkeys(("config_id", "content_type", "reason_phrase", "content"), str), status_code=int)
    ],
    "cdt applied": [line("sent", config_id=str)],
    "cdt watch": [*_role(cdt.SourceStats), _configuration("updated"), _configuration("new_available")],
    "cdt status": [_of("endpoint", cdt.Rollout)],
    "cdt history": [_of("assignment", cdt.Assignment)],
    "cdt record": _role(cdt.RecorderStats),
    "cdtp send": _role(cdtp.SenderStats),
    "cdtp receive": [*_role(cdtp.ReceiverStats), line("message", **_MESSAGE)],
    "cdtp record": _role(cdtp.RecorderStats, missing=list[dict[str, Any]]),
    "chirp watch": [*_role(chirp.BeaconStats), *_OFFERS],
    "chirp offer": [*_role(chirp.BeaconStats), *_OFFERS],
    "chirp list": [_service("offer")],
    "dcp broker": [_CHECKED, *_role(dcp.BrokerStats)],
    "dcp services": [line("service", service=str, **_SERVICE)],
    "dcp worker": _role(dcp.WorkerStats),
    "dcp request": [
        line("reply", index=int, data=list[str], metadata=list[str], latency_ms=float),
        _TIMED_OUT,
        _stopped(dcp_request.Asked, why=Maybe(Literal["no_broker", "refused", "no_worker", "no_reply"])),
    ],
    "mc0 subscribe": [
        *_role(mc0.ConnectorStats),
        line("message", topic=str, headers=list[tuple[str, str]], body=list[str]),
    ],
    "mc0 publish": [
        _TIMED_OUT,
        line("error", index=int, topic=str, text=str),
        _stopped(mc0_commands.Published, why=Maybe(Literal["no_middleware", "refused"])),
    ],
    "mc0 topics": [line("topic", **_COUNTS)],
    "mc0 ping": [
        line("pong", index=int, latency_ms=float),
        _TIMED_OUT,
        _stopped(mc0_commands.Pinged, why=Maybe(Literal["no_middleware", "refused"])),
    ],
    "mc0 middleware": [_CHECKED, *_role(mc0.MiddlewareStats)],
    "mtl server": [_CHECKED, *_role(mtl.ServerStats, _ready(data_endpoints=Maybe(list[str]), metrics_url=Maybe(str)))],
    "mtl send": [line("rejected", index=int), _stopped(mtl_client.Sent)],
    "mtl receive": [
        *_role(mtl.FlowStats),
        line("content", resource=str, sequence=int, properties=dict[str, Any], redelivered=bool, body=str),
    ],
    "mtl call": [line("reply", status=int, body=Any)],
    "mtl queues": [Line("queue", {"name": str, **_QUEUE})],
    "mtl users add": [line("added", name=str, file=str), line("changed", name=str, file=str)],
    "mtl users remove": [line("removed", name=str, file=str)],
    "mtl users list": [line("user", name=str)],
    "spark decode": [line("decoded", **_WRITTEN)],
    "spark report": [_REPORT],
    "spark stream": [
        _ready(metrics_url=Maybe(str)),
        line("batch", id=int, rows=int, rows_with_error=int, segments_behind=int),
        _stopped(spark_stream.Streamed),
    ],
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
