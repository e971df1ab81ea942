"""What the lines of JSON of a command are made of: `lines` in its module says which it prints.

The schema in the wheel is made of them. No command imports this when it runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, get_type_hints

from trunkline.cli.terminal.output import Reason

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "CHECKED",
    "EXPORTED",
    "PAYLOAD",
    "RATES",
    "REPORT",
    "TIMED_OUT",
    "WRITTEN",
    "Line",
    "Maybe",
    "fold",
    "line",
    "of",
    "ready",
    "role",
    "stopped",
]


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


def of(event: str, kind: Any) -> Line:
    """A kind of line with the fields of a dataclass."""
    hints = get_type_hints(kind)
    return Line(event, {name: hints[name] for name in kind.__dataclass_fields__})


def fold(event: str, name: str) -> Line:
    """A kind of line with the columns of a table of `Fold`."""
    from trunkline._native.analysis import Fold

    return Line(event, {field.name: _type(field.type) for field in Fold(name).schema()})


def _type(kind: pa.DataType) -> Any:
    import pyarrow as pa

    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return int | None
    if pa.types.is_boolean(kind):
        return bool
    if pa.types.is_list(kind):
        return list[str]
    return dict[str, str] if pa.types.is_struct(kind) else str | None


PAYLOAD = {"payload_sizes": list[int], "payload": list[str]}
RATES = {"messages_per_s": float, "received_per_s": Maybe(float), "bytes_per_s": Maybe(float)}
WRITTEN = {"rows": int, "path": str}
TIMED_OUT = line("timeout", index=int)
CHECKED = line("checked", file=str | None, variables=list[str], options=list[str])
EXPORTED = line("exported", **WRITTEN)
REPORT = line(
    "report",
    path=str,
    **dict.fromkeys(("rows", "bytes", "bucket_ns"), int),
    **dict.fromkeys(("first_received_at_ns", "last_received_at_ns"), int | None),
    selected=str | None,
    malformed=dict[str, int],
    messages=dict[str, int],
    volumes=dict[str, dict[str, int]],
    sections=dict[str, dict[str, Any] | list[dict[str, Any]]],
)


def ready(**more: Any) -> Line:
    """The line of a role that serves."""
    return line("ready", role=str, endpoints=list[str], pid=int, **more)


def stopped(stats: Any, **more: Any) -> Line:
    """The line of a command that ends, with its counters."""
    return line("stopped", reason=Reason, stats=stats, **more)


def role(stats: Any, first: Line | None = None, **more: Any) -> list[Line]:
    """What a command prints that runs a role: that it does, its counters from time to time, and those at its end."""
    return [first or ready(metrics_url=Maybe(str)), line("stats", stats=stats, **RATES), stopped(stats, **more)]
