"""The comments of columns, as Spark shows them in `DESCRIBE`."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

from trunkline._protocols import RECORDED, rooms
from trunkline.columns import EVERY, RECEIVED_AT

if TYPE_CHECKING:
    from pyspark.sql.types import StructField, StructType

__all__ = ["ROWS", "comment", "commented", "declared"]

# The key of the rows of a capture, beside protocols and folded tables.
ROWS = "rows"

_NAMES = [protocol.name for protocol in RECORDED]

# Columns of a capture that messages keep.
_ROWS = {
    "capture_id": "The capture's id",
    "segment": "The number of the segment that the row is in",
    "seq": "The number of the row in its capture, from 0, without gaps",
    "received_at_ns": "When the message was received or sent, in nanoseconds since 1970",
    "protocol": f"{', '.join(_NAMES[:-1])} or {_NAMES[-1]}",
    "endpoint": "The endpoint it came by",
    "peer": "The routing id of the peer, where the role has peers with one",
    "direction": "in or out, as the role saw it",
    "topic": "The subject of CDT, the topic of mc0, the resource of MTL",
    "reply_to": "The subject that an answer goes to",
}

# Decoded columns of every protocol.
_SHARED = {
    "error": "What is wrong with the message, or what a column could not hold, by kind; null where nothing is",
    "_corrupt_record": "The frames of a message that does not decode",
    "timestamp": "The same as a timestamp, to the microsecond",
    RECEIVED_AT: "received_at_ns as a timestamp, to the microsecond",
}

# The tables that are of no protocol.
_OF_NONE = {
    ROWS: {
        "envelope": "The frames before the header",
        "header": "The header: the frame that says what the message is; of MTL's contents, the first; of CDT none",
        "payload": "The frames after the header; of CDT the body",
        "n_head": "How many frames of the payload stand before the data",
        "n_frames": "How many frames the message has",
        "n_bytes": "The bytes of these",
        "error": "What is wrong with the message, by kind; null where nothing is",
    },
    EVERY: {
        "record": "The position of the record in a CDTP2 message, else 0",
        "type": "What the message is, as the table of its protocol says it; of mc0 the verb",
        "rest": "All else that is decoded of the message and is not null, by the names of its protocol's columns",
    },
}

# Columns that the user named.
_NAMED = {"tag_": "The tag", "property_": "The property", "json_": "The member"}


def comment(name: str, table: str) -> str | None:
    """The comment of a column of a table: `ROWS`, a protocol, or a folded table; None for the user's own."""
    named = next(
        (f"{what} {name.removeprefix(prefix)}" for prefix, what in _NAMED.items() if name.startswith(prefix)), None
    )
    return {**_ROWS, **_SHARED, **_tables()[table]}.get(name, named)


@functools.cache
def _tables() -> Mapping[str, Mapping[str, str]]:
    """The comments of each table."""
    tables: dict[str, Mapping[str, str]] = dict(_OF_NONE)
    for _, room in rooms("trunkline.spark"):
        tables |= room.COMMENTS
    return tables


def commented(schema: StructType, table: str) -> StructType:
    """The columns with their comments."""
    from pyspark.sql.types import StructType

    return StructType([_commented(field, table) for field in schema])


def declared(ddl: str, table: str) -> StructType:
    """The columns of a DDL, with their comments; needs a session."""
    from pyspark.sql.types import StructType

    columns = StructType.fromDDL(ddl)
    assert isinstance(columns, StructType)
    return commented(columns, table)


def _commented(field: StructField, table: str) -> StructField:
    from pyspark.sql.types import StructField

    said = comment(field.name, table)
    metadata = field.metadata if said is None else {**field.metadata, "comment": said}
    return StructField(field.name, field.dataType, field.nullable, metadata)
