"""The comments of columns, as Spark shows them in `DESCRIBE`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from trunkline.columns import EVERY, RECEIVED_AT

if TYPE_CHECKING:
    from pyspark.sql.types import StructField, StructType

__all__ = ["ROWS", "comment", "commented", "declared"]

# The key of the rows of a capture, beside protocols and folded tables.
ROWS = "rows"

# Columns of a capture that messages keep.
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

# Decoded columns of every protocol.
_SHARED = {
    "error": "What is wrong with the message, or what a column could not hold, by kind; null where nothing is",
    "_corrupt_record": "The frames of a message that does not decode",
    "timestamp": "The same as a timestamp, to the microsecond",
    RECEIVED_AT: "received_at_ns as a timestamp, to the microsecond",
}

_SAID: Mapping[str, Mapping[str, str]] = {
    ROWS: {
        "envelope": "The frames before the header",
        "header": "The header: the frame that says what the message is; of MTL's contents, the first; of CDT none",
        "payload": "The frames after the header; of CDT the body",
        "n_head": "How many frames of the payload stand before the data",
        "n_frames": "How many frames the message has",
        "n_bytes": "The bytes of these",
        "error": "What is wrong with the message, by kind; null where nothing is",
    },
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
    "runs": {
        "sender": "The sender's name",
        "ordinal": "The number of the BOR that the run begins with among its sender's, from 1; 0: before the first",
        "run_id": "The string of that name in the metadata, or else in the configuration",
        "condition": "GOOD, or what is wrong with the run, as INCOMPLETE|ABORTED",
        "condition_code": "The same as a number: 0, or the sum of TAINTED 1, INCOMPLETE 2, INTERRUPTED 4, ABORTED 8, DEGRADED 16",
        "messages": "DAT messages; of CDTP2 their records",
        "bytes": "The bytes of all frames",
        "missed": "Sequence numbers that were skipped",
        "duplicates": "DAT messages whose number was received before",
        "out_of_order": "DAT messages with a new number below the highest before",
        "first_received_at_ns": "When the first message was received, in nanoseconds since 1970",
        "last_received_at_ns": "When the last message was received, in nanoseconds since 1970",
        "bor_seq": "The seq of the row of its BOR; null for ordinal 0",
        "eor_seq": "The seq of the row of its first EOR; null where there is none yet",
        "config": "The configuration in the BOR",
        "metadata": "The metadata in the EOR",
    },
    "gaps": {
        "sender": "The sender's name",
        "received_at_ns": "When the message after the gap was received, in nanoseconds since 1970",
        "missed": "How many sequence numbers were skipped before it",
    },
    "requests": {
        "seen_by": "Who recorded it: broker, client or worker",
        "service": "The service that was asked",
        "client": "The address of the client",
        "worker": "The address of the worker",
        "forwarded_by": "The address of the worker that forwarded the request; null for one of a client",
        "metadata": "The parts that the reply copies of its request",
        "outcome": "What became of the request, as reply; null while it is open",
        "latency_ns": "From the request to its reply, in nanoseconds",
        "queued_ns": "At a broker, from the request to its dispatch, in nanoseconds",
        "worked_ns": "At a broker, from the dispatch to the worker's response, in nanoseconds",
        "request_seq": "The seq of the row of the request",
        "dispatch_seq": "The seq of the row of its dispatch",
        "response_seq": "The seq of the row of the worker's response",
        "reply_seq": "The seq of the row of the reply",
        "requested_at_ns": "When the request was recorded, in nanoseconds since 1970",
    },
    "topics": {
        "window": "From when until when it is counted",
        "seen_by": "Who recorded it: middleware or connector",
        "topic": "The topic",
        "puts": "PUTs that passed",
        "deliveries": "MESSAGEs that passed",
        "bytes": "The bytes of the bodies",
        "publishers": "How many peers put something; null at a connector",
        "subscribers": "How many peers had something delivered; null at a connector",
        "p50_ns": "The median of the way through a middleware, in nanoseconds; null at a connector",
        "p99_ns": "The 99th percentile of the same",
    },
    "contents": {
        "resource": "The resource",
        "sequence": "The sequence number of the content",
        "body_bytes": "The bytes of the body",
        "redelivered": "Whether it says that it may have been delivered before",
        "attempts": "Which delivery of the content it is, from 1",
        "fate": "What became of the content, as confirmed; null while it is open",
        "status": "The status of the Response that refused it",
        "latency_ns": "From the content to what settled it, in nanoseconds",
        "seq": "The seq of the row of the content",
        "settled_seq": "The seq of the row that settled it",
        "sent_at_ns": "When the content was recorded, in nanoseconds since 1970",
        "settled_at_ns": "When what settled it was recorded, in nanoseconds since 1970",
    },
    "rollout": {
        "app_version_name": "The version of the application",
        "endpoint_id": "The endpoint",
        "config_id": "The configuration",
        "available_at": "When it was first announced",
        "pulled_at": "When a target first answered with it",
        "applied_at": "When it was first reported as applied",
        "time_to_applied_ns": "From the announcement to that, in nanoseconds",
        "announcements": "How often it was announced",
        "pulls": "How often it was pulled",
        "reports": "How often it was reported as applied",
    },
}

# Columns that the user named.
_NAMED = {"tag_": "The tag", "property_": "The property", "json_": "The member"}


def comment(name: str, table: str) -> str | None:
    """The comment of a column of a table: `ROWS`, a protocol, or a folded table; None for the user's own."""
    named = next(
        (f"{what} {name.removeprefix(prefix)}" for prefix, what in _NAMED.items() if name.startswith(prefix)), None
    )
    return {**_ROWS, **_SHARED, **_SAID[table]}.get(name, named)


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
