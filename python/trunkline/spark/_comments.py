"""What each column says, as Spark shows it in `DESCRIBE`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from trunkline.columns import EVERY, RECEIVED_AT

if TYPE_CHECKING:
    from pyspark.sql.types import StructField, StructType

__all__ = ["comment", "commented"]

# Columns of a capture that a message keeps of its row.
_ROWS = {
    "capture_id": "The capture's id",
    "segment": "The number of the segment that the row is in",
    "seq": "The number of the row in its capture, from 0, without gaps",
    "received_at_ns": "When the message was received or sent, in nanoseconds since 1970",
    "protocol": "cdtp, dcp, mc0, mtl or cdt",
    "endpoint": "The endpoint it came by",
    "peer": "The routing id of the peer, where the role has peers with one",
    "direction": "in or out, as the role saw it",
    "topic": "The subject of CDT, the topic of mc0, the resource of MTL",
    "reply_to": "The subject that an answer goes to",
}

# What is decoded of every protocol.
_SHARED = {
    "error": "What is wrong with the message, or what a column could not hold, by kind; null where nothing is",
    "_corrupt_record": "The frames of a message that does not decode",
    "timestamp": "The same as a timestamp, to the microsecond",
    RECEIVED_AT: "received_at_ns as a timestamp, to the microsecond",
}

_DECODED: Mapping[str, Mapping[str, str]] = {
    "cdtp": {
        "record": "The position of the record in a CDTP2 message, else 0",
        "variant": "The header: S, A, B or 2",
        "sender": "The sender's name",
        "timestamp_ns": "The sender's time, in nanoseconds since 1970",
        "type": "DAT, BOR or EOR; null for header S",
        "sequence": "The sequence number; null for header S",
        "tags": "The tags that have no column of their own",
        "payload_frames": "The frames of the payload, of CDTP2 the blocks of the record",
        "payload_bytes": "The bytes of these",
        "payload": "The frames of the payload, of CDTP2 the blocks of the record",
    },
    "dcp": {
        "type": "register, ping, pong, request, reply or reconnect",
        "service": "The service of a register or request",
        "client": "The client's address, of a request or reply",
        "metadata": "The parts that a reply copies of its request",
        "data_parts": "The parts of the data",
        "data_bytes": "The bytes of these",
        "data": "The parts of the data themselves",
    },
    "mc0": {
        "verb": "The verb, as PUT",
        "topic": "The topic of a PUT or MESSAGE",
        "topics": "The topics of a SUB or UNSUB",
        "id": "What asks for an answer, and what that bears",
        "version": "The version that a CONNECT names",
        "ttl_ms": "How long a connector may be silent, in milliseconds, by its CONNECT",
        "headers": "The headers that begin with X-",
        "text": "The text of an ERROR",
        "body_frames": "The frames of the body",
        "body_bytes": "The bytes of these",
        "body": "The frames of the body themselves",
    },
    "mtl": {
        "flow": "control or data",
        "name": "The name of a command",
        "status": "The status of a reply or response",
        "type": "command, reply, or the type of a message of data",
        "sequence": "The sequence number of a message of data",
        "resource": "The resource of a summon, dismiss or content",
        "lease_hash": "What stands for a lease: 16 digits of its SHA-256",
        "multiple": "Whether a confirm or reject is of all up to its sequence number",
        "recycle": "Whether a reject has contents delivered again",
        "properties": "The properties of a content that have no column of their own",
        "json": "The members of a command's or reply's JSON that have no column of their own",
        "body_bytes": "The bytes of a content's body",
        "body": "The body of a content",
    },
    "cdt": {
        "type": "The kind of message, by its subject",
        "instance": "The instance that the subject names",
        "replica": "The replica that the subject names",
        "originator": "The originator that the subject names",
        "correlation_id": "The id for tracing, which an answer has of its request",
        "timestamp_ms": "When the message was made, in milliseconds since 1970",
        "timeout_ms": "How long it is valid from then on, in milliseconds; -1 and 0: indefinitely",
        "endpoint_message_id": "The id of the endpoint's own message",
        "app_version_name": "The version of the application",
        "endpoint_id": "The endpoint",
        "config_id": "The configuration",
        "content_type": "The type of the content",
        "status_code": "The status of an answer, as of HTTP",
        "reason_phrase": "The reason for the status",
        "originator_replica_id": "The replica that sent an event",
        "content_bytes": "The bytes of the content",
        "content": "The content, which is a configuration",
    },
    EVERY: {
        "record": "The position of the record in a CDTP2 message, else 0",
        "type": "What the message is, as the table of its protocol says it; of mc0 the verb",
        "rest": "All else that is decoded of the message and is not null, by the names of its protocol's columns",
    },
}

# Columns that a user has asked for by a name.
_NAMED = {"tag_": "The tag", "property_": "The property", "json_": "The member"}


def comment(name: str, protocol: str) -> str | None:
    """What a column says of what is decoded of a protocol; None for a user's own."""
    named = next(
        (f"{what} {name.removeprefix(prefix)}" for prefix, what in _NAMED.items() if name.startswith(prefix)), None
    )
    return {**_ROWS, **_SHARED, **_DECODED[protocol]}.get(name, named)


def commented(schema: StructType, protocol: str) -> StructType:
    """The same columns with their comments."""
    from pyspark.sql.types import StructType

    return StructType([_commented(field, protocol) for field in schema])


def _commented(field: StructField, protocol: str) -> StructField:
    from pyspark.sql.types import StructField

    said = comment(field.name, protocol)
    metadata = field.metadata if said is None else {**field.metadata, "comment": said}
    return StructField(field.name, field.dataType, field.nullable, metadata)
