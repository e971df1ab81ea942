"""Columns of recorded frames into columns of what they say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trunkline.errors import LocalProtocolError
from trunkline.spark._missing import needs_extra

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField, StructType

    from trunkline._decoding import DcpDecoding, Decoding, Mode, Tags

__all__ = [
    "ACCEPT",
    "capture_schema",
    "dcp_frames",
    "decode",
    "decode_keeping",
    "from_cdtp",
    "from_dcp",
    "headers",
    "need_columns",
]

ACCEPT = ("S", "A", "B", "2")

_TYPES = {
    "envelope": ("array<binary>",),
    "header": ("binary",),
    "n_frames": ("int", "bigint", "smallint", "tinyint"),
    "n_bytes": ("int", "bigint", "smallint", "tinyint"),
    "payload": ("array<binary>",),
    "protocol": ("string",),
}

# The columns that nothing but one column of numbers is made of. Of CDTP the number of frames says what is a message.
_COUNTED = {"cdtp": {"payload_bytes": "n_bytes"}, "dcp": {"data_parts": "n_frames", "data_bytes": "n_bytes"}}


@needs_extra
def decode(
    df: DataFrame,
    protocol: str,
    *,
    tags: Tags = "variant",
    mode: Mode = "PERMISSIVE",
    accept: str | Sequence[str] = ACCEPT,
    strict: bool = True,
    compat_dagbox: bool = False,
    payload: bool = False,
    columns: Sequence[str] | None = None,
) -> DataFrame:
    """A table of the messages in a table of frames, one row a message; a CDTP2 message is a row a record.

    For CDTP the columns are `capture_id, segment, seq, received_at_ns, endpoint`, where `df` has them, then `record` (the
    position in a CDTP2 message, else 0), `variant`, `sender`, `timestamp_ns` (nanoseconds since 1970), `timestamp`
    (the same, rounded down to microseconds), `type`, `sequence`, the columns of the tags, `payload_frames`,
    `payload_bytes`, with `payload` the frames themselves, `error` (the kind of what is wrong, null when good) and, in
    PERMISSIVE mode, `_corrupt_record` (a header that is none). `tags` says which columns the tags become:

    - ``"variant"``: one VARIANT `tags`;
    - ``{"run": "bigint", "gain": "double"}``: `tag_run` and `tag_gain`, null where a message has no such tag or one of
      another type; the types are bigint, double, string, boolean, binary and timestamp; ``"*": "variant"`` adds a
      VARIANT of all others;
    - None: none.

    For DCP they are `capture_id, segment, seq, received_at_ns, endpoint, peer, direction`, where `df` has them, then
    `type` (register, ping, pong, request, reply or reconnect), `service` and `client` (binary; null where a message has
    none), `metadata` (the parts that a reply copies of its request), `data_parts`, `data_bytes`, with `payload` the
    parts of the `data` themselves, `error` and, in PERMISSIVE mode, `_corrupt_record` (all frames of what is no
    message).

    It runs on `mapInArrow`: only the header and the few columns named here pass through Python, never a payload that
    is not asked for. It works on batches and on streams, and with Spark Connect.

    Args:
        df: A capture, or any table with a binary column `header`; for DCP also `envelope` and `payload`, arrays of
            binary, for the frames before and after it. Its columns `protocol` (rows of another one are left
            out), `n_frames`, `n_bytes` and `payload` are used where present. Where `n_frames` or `n_bytes` is not, the
            JVM counts it from `payload`, which it has to read for that; without either, the counts are null and a
            missing payload is no error.
        protocol: ``"cdtp"`` or ``"dcp"``.
        tags: Which columns the tags of CDTP become.
        mode: What becomes of what is no message: PERMISSIVE keeps it, with `error` and its bytes; FAILFAST fails
            the query, for a tag of another type than asked for too; DROPMALFORMED leaves it out.
        accept: The CDTP header that is a message, or several.
        strict: Whether bytes after a CDTP header are an error.
        compat_dagbox: Whether DCP types of four bytes are taken as well (DCP-11).
        payload: Whether to add the payload frames of CDTP, or the parts of the data of DCP, which then pass through
            Python.
        columns: Those that are wanted, in whatever order; all of them if None. Spark cannot tell a function which of
            its columns a query uses, so each one costs its way to Python and back unless it is left out here.

    Raises:
        LocalProtocolError: There is no such protocol, mode or type, the protocol has no such option, a column is
            missing or of another type, or the names of two tags are equal but for case, which Spark takes for one.
    """
    from trunkline._decoding import decoding_of

    decoding = decoding_of(
        protocol,
        tags=tags,
        mode=mode,
        accept=accept,
        strict=strict,
        compat_dagbox=compat_dagbox,
        payload=payload,
    )
    return decode_keeping(df, decoding, decoding.kept, columns)


@needs_extra
def from_cdtp(
    header: Column | str,
    n_frames: Column | str | None = None,
    *,
    n_bytes: Column | str | None = None,
    tags: Tags = "variant",
    mode: Mode = "PERMISSIVE",
    accept: str | Sequence[str] = ACCEPT,
    strict: bool = True,
) -> Column:
    """A column of structs of what CDTP headers say, one a header.

    The fields are those of `decode` from `variant` to `_corrupt_record`, and `records`, an array of structs
    ``sequence``, tags, ``payload_frames``, ``payload_bytes``: null but for CDTP2, whose `sequence` and tags are null
    themselves. A null header gives a null struct, a bad one a struct with `error` and `_corrupt_record` only.

    It runs on `arrow_udf` and costs about half as much again as `decode`, since Spark copies whole structs. Spark takes
    it for nondeterministic, so that it is evaluated once however often its fields are used; filter by a column made of
    it, not by the call.

    Args:
        header: The header frames, binary.
        n_frames: The number of frames of each message, its header among them; without it frame counts are null and a
            missing payload is no error.
        n_bytes: The bytes of all frames of each message; without it `payload_bytes` is null but for CDTP2.
        tags: Which fields the tags become, as in `decode`.
        mode: PERMISSIVE or FAILFAST, as in `decode`: a column function drops no rows.
        accept: The header that is a message, or several.
        strict: Whether bytes after a header are an error.

    Raises:
        LocalProtocolError: There is no such mode or type, or the names of two tags are equal but for case.
    """
    from trunkline._decoding import CdtpDecoding

    decoding = CdtpDecoding.of(tags=tags, mode=mode, accept=accept, strict=strict)
    return _structs(decoding, headers(header, n_frames, n_bytes))


@needs_extra
def from_dcp(
    envelope: Column | str,
    header: Column | str,
    payload: Column | str,
    *,
    mode: Mode = "PERMISSIVE",
    compat_dagbox: bool = False,
    data: bool = False,
) -> Column:
    """A column of structs of what DCP messages say, one a message.

    The fields are those of `decode` from `type` to `_corrupt_record`. Where all three columns are null the struct is; of
    what is no message it has `error` and `_corrupt_record` only.

    It runs on `arrow_udf`, and what holds for `from_cdtp` holds for it.

    Args:
        envelope: The frames before the header, an array: one empty frame for what a DEALER sends or gets.
        header: The frames that name the protocol, binary.
        payload: The frames after it, an array: the type and what follows.
        mode: PERMISSIVE or FAILFAST, as in `decode`: a column function drops no rows.
        compat_dagbox: Whether types of four bytes are taken as well (DCP-11).
        data: Whether to add the parts of the data as a field, which then pass through Python.

    Raises:
        LocalProtocolError: There is no such mode.
    """
    from trunkline._decoding import DcpDecoding

    decoding = DcpDecoding.of(mode=mode, compat_dagbox=compat_dagbox, payload=data)
    return _structs(decoding, dcp_frames(decoding, envelope, header, payload))


@needs_extra
def capture_schema() -> StructType:
    """The columns of a capture: with them Spark reads a directory that has no segments yet."""
    from pyspark.sql.pandas.types import from_arrow_schema

    from trunkline import capture

    return from_arrow_schema(capture.schema())


def _structs(decoding: Decoding, named: Mapping[str, Column | str]) -> Column:
    from pyspark.sql.pandas.functions import arrow_udf

    from trunkline._decoding import structs_of

    # Its types know nothing of functions of several columns.
    make: Any = arrow_udf
    function = make(structs_of(decoding, list(named)), decoding.native().struct_ddl())
    # Spark evaluates a deterministic function again for each use of its fields that it moves to another place.
    decoded: Column = function.asNondeterministic()(*named.values())
    return decoded


def headers(
    header: Column | str, n_frames: Column | str | None, n_bytes: Column | str | None
) -> dict[str, Column | str]:
    """The columns a column function was given, by the names the decoder knows."""
    named = {"header": header, "n_frames": n_frames, "n_bytes": n_bytes}
    return {name: column for name, column in named.items() if column is not None}


def dcp_frames(
    decoding: DcpDecoding, envelope: Column | str, header: Column | str, payload: Column | str
) -> dict[str, Column]:
    """The columns that the decoder of DCP takes: unless data is asked for, it stays in the JVM, which counts it."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    given = {"envelope": envelope, "header": header, "payload": payload}
    found = {name: F.col(column) if isinstance(column, str) else column for name, column in given.items()}
    if decoding.payload:
        return found
    before, frame, after = found.values()
    n_frames = F.size(before) + F.size(after) + F.when(frame.isNull(), 0).otherwise(1)
    n_bytes = _bytes(before) + _bytes(after) + F.coalesce(F.octet_length(frame), F.lit(0))
    return found | {"payload": _before_data(decoding, found), "n_frames": n_frames, "n_bytes": n_bytes}


def _bytes(frames: Column) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    return F.aggregate(frames, F.lit(0).cast("bigint"), lambda total, frame: total + F.octet_length(frame))


def _before_data(decoding: DcpDecoding, found: Mapping[str, Column]) -> Column:
    """The payload frames up to the delimiter before the data, of requests and replies; of all others all frames.

    Behind the type and a frame that may be empty come two delimiters: one that ends the client's address, which is the
    next frame or, in a request, the one after, and one that ends the metadata. What is otherwise is no message, and is
    to be kept whole.
    """
    from pyspark.sql import functions as F  # noqa: N812

    envelope, header, payload = found["envelope"], found["header"], found["payload"]
    empty = F.filter(
        F.transform(payload, lambda frame, at: F.when((at > 1) & (F.octet_length(frame) == 0), at)),
        lambda at: at.isNotNull(),
    )
    first, second, kind = F.get(empty, F.lit(0)), F.get(empty, F.lit(1)), F.get(payload, F.lit(0))
    widths = (b"", bytes(3)) if decoding.compat_dagbox else (b"",)

    def is_of(number: bytes) -> Column:
        return kind.isin(*(number + rest for rest in widths))

    is_request = is_of(b"\x04") & first.isin(2, 3)
    is_reply = is_of(b"\x05") & (first == 2) & (F.octet_length(F.get(payload, F.lit(1))) > 0)
    is_good = (
        (F.size(envelope) == 1)
        & (F.octet_length(F.get(envelope, F.lit(0))) == 0)
        & (header == F.lit(b"DGBX\x01"))
        & (is_request | is_reply)
    )
    return F.when(is_good & second.isNotNull(), F.slice(payload, 1, second + 1)).otherwise(payload)


def decode_keeping(
    df: DataFrame, decoding: Decoding, kept: Iterable[str], columns: Iterable[str] | None = None
) -> DataFrame:
    """Decodes, and keeps of each row the columns `kept`, where there; of all these it gives those that are wanted."""
    from pyspark.sql.types import StructType

    from trunkline._decoding import rows_of

    fields = {field.name.lower(): field for field in df.schema}
    _check(fields, decoding)
    if "protocol" in fields:
        df = df.where(df[fields["protocol"].name] == decoding.protocol)
    decoded = StructType.fromDDL(decoding.native().row_ddl())
    assert isinstance(decoded, StructType)
    there = [name for name in kept if name in fields]
    wanted = {*there, *decoded.names} if columns is None else set(columns)
    if isinstance(columns, str) or not wanted:
        message = f"columns={columns!r}: the names of at least one column, in a sequence"
        raise LocalProtocolError(message)
    unknown = wanted.difference(there, decoded.names)
    if unknown:
        message = f"there is no column {min(unknown)}: there will be {', '.join([*there, *decoded.names])}"
        raise LocalProtocolError(message)
    stay = {name: df[fields[name].name] for name in there if name in wanted}
    only = [name for name in decoded.names if name in wanted]
    frames = _frames(df, fields, decoding)
    for name, counted in _COUNTED[decoding.protocol].items():
        if name not in wanted:
            frames.pop(counted, None)
    schema = StructType()
    for name in stay:
        schema.add(name, fields[name].dataType)
    for name in only:
        schema.add(decoded[name])
    sent = [column.alias(name) for name, column in (stay | frames).items()]
    return df.select(sent).mapInArrow(rows_of(decoding, list(stay), list(frames), only), schema)


def need_columns(rows: DataFrame, needed: Iterable[str], what: str) -> None:
    """Raises `LocalProtocolError` where a column of a capture is missing that something takes, as `what` says it."""
    present = {name.lower() for name in rows.columns}
    missing = [name for name in needed if name not in present]
    if missing:
        message = f"{what} the columns of a capture, and there is no {', '.join(missing)}"
        raise LocalProtocolError(message)


def _check(fields: dict[str, StructField], decoding: Decoding) -> None:
    if decoding.protocol == "dcp":
        needed = ["envelope", "header", "payload"]
    else:
        needed = ["header", "payload"] if decoding.payload else ["header"]
    for name in needed:
        if name not in fields:
            message = f"there is no column {name}: the table has {', '.join(field.name for field in fields.values())}"
            raise LocalProtocolError(message)
    for name, types in _TYPES.items():
        if name in fields and fields[name].dataType.simpleString() not in types:
            message = f"the column {name} is {fields[name].dataType.simpleString()}, it must be {types[0]}"
            raise LocalProtocolError(message)


def _frames(df: DataFrame, fields: dict[str, StructField], decoding: Decoding) -> dict[str, Column]:
    """The columns that the decoder needs: sizes are counted here, so that payloads stay in the JVM."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    from trunkline._decoding import DcpDecoding

    if isinstance(decoding, DcpDecoding):
        envelope, header, payload = (df[fields[name].name] for name in ("envelope", "header", "payload"))
        found = dcp_frames(decoding, envelope, header, payload)
        counted = {name: df[fields[name].name] for name in ("n_frames", "n_bytes") if name in found and name in fields}
        return found | counted
    frames = ("header", "payload") if decoding.payload else ("header", "n_frames", "n_bytes")
    found = {name: df[fields[name].name] for name in frames if name in fields}
    if "payload" in fields and not decoding.payload:
        payload = df[fields["payload"].name]
        found.setdefault("n_frames", F.size(payload) + 1)
        found.setdefault("n_bytes", _bytes(payload) + F.octet_length(found["header"]))
    return found
