"""Decodes columns of recorded frames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from trunkline import columns as _columns
from trunkline._arguments import refuse
from trunkline._text import counted
from trunkline.columns import BESIDE, COUNTS, RECEIVED_AT, Decoder
from trunkline.errors import LocalProtocolError
from trunkline.spark._comments import comment, commented
from trunkline.spark._lazy import F
from trunkline.spark._missing import needs_extra
from trunkline.spark._paths import warn_unless_recorded

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField, StructType

    from trunkline.columns import CdtOptions, CdtpOptions, DcpOptions, Mc0Options, Mode, MtlOptions, Tags

__all__ = [
    "as_columns",
    "capture_schema",
    "cdt_columns",
    "decode",
    "decode_keeping",
    "from_cdt",
    "from_cdtp",
    "from_dcp",
    "from_mc0",
    "from_mtl",
    "mc0_columns",
    "need_columns",
    "sent",
]

_TYPES = {
    "envelope": ("array<binary>",),
    "header": ("binary",),
    "n_frames": ("int", "bigint", "smallint", "tinyint"),
    "n_bytes": ("int", "bigint", "smallint", "tinyint"),
    "n_head": ("int", "bigint", "smallint", "tinyint"),
    "payload": ("array<binary>",),
    "protocol": ("string",),
}
_TEXTS = {"topic": ("string",)}


@overload
def decode(
    df: DataFrame,
    protocol: Literal["cdtp"] = "cdtp",
    *,
    mode: Mode = ...,
    columns: Sequence[str] | None = ...,
    **options: Unpack[CdtpOptions],
) -> DataFrame: ...


@overload
def decode(
    df: DataFrame,
    protocol: Literal["dcp"],
    *,
    mode: Mode = ...,
    columns: Sequence[str] | None = ...,
    **options: Unpack[DcpOptions],
) -> DataFrame: ...


@overload
def decode(
    df: DataFrame,
    protocol: Literal["mc0"],
    *,
    mode: Mode = ...,
    columns: Sequence[str] | None = ...,
    **options: Unpack[Mc0Options],
) -> DataFrame: ...


@overload
def decode(
    df: DataFrame,
    protocol: Literal["mtl"],
    *,
    mode: Mode = ...,
    columns: Sequence[str] | None = ...,
    **options: Unpack[MtlOptions],
) -> DataFrame: ...


@overload
def decode(
    df: DataFrame,
    protocol: Literal["cdt"],
    *,
    mode: Mode = ...,
    columns: Sequence[str] | None = ...,
    **options: Unpack[CdtOptions],
) -> DataFrame: ...


@overload
def decode(
    df: DataFrame, protocol: Literal["*"], *, mode: Mode = ..., columns: Sequence[str] | None = ...
) -> DataFrame: ...


@overload
def decode(
    df: DataFrame, protocol: str, *, mode: Mode = ..., columns: Sequence[str] | None = ..., **options: Any
) -> DataFrame: ...


@needs_extra
def decode(
    df: DataFrame,
    protocol: str = "cdtp",
    *,
    mode: Mode = "PERMISSIVE",
    columns: Sequence[str] | None = None,
    **options: Any,
) -> DataFrame:
    """Decodes a table of frames into a table of messages with one row per message, or per record of a CDTP2 message.

    For CDTP the columns are `capture_id, segment, seq, received_at_ns, endpoint`, where `df` has them, then `record` (the
    position in a CDTP2 message, else 0), `variant`, `sender`, `timestamp_ns` (nanoseconds since 1970), `timestamp`
    (the same, rounded down to microseconds), `type`, `sequence`, the columns of the tags, `payload_frames`,
    `payload_bytes`, with `payload` the frames themselves, `error` (the kind of what is wrong, null when good) and, in
    PERMISSIVE mode, `_corrupt_record` (an invalid header). Last of all, for every protocol, is `received_at`, where `df`
    has `received_at_ns`: the same as a timestamp, rounded down to microseconds, for windows and watermarks. `tags` says which columns the tags become:

    - ``"variant"``: one VARIANT `tags`;
    - ``"json"``: one `tags` of JSON text, as `to_json` makes it of the VARIANT;
    - ``{"run": "bigint", "gain": "double"}``: `tag_run` and `tag_gain`, null where a message has no such tag or one of
      another type; the types are bigint, double, string, boolean, binary, timestamp and json; ``"*": "variant"`` or
      ``"*": "json"`` adds one of all others;
    - None: none.

    For DCP they are `capture_id, segment, seq, received_at_ns, endpoint, peer, direction`, where `df` has them, then
    `type` (register, ping, pong, request, reply or reconnect), `service` and `client` (binary; null where a message has
    none), `metadata` (the parts that a reply copies of its request), `data_parts`, `data_bytes`, with `payload` the
    parts of the `data` themselves, `error` and, in PERMISSIVE mode, `_corrupt_record` (all frames of an invalid message).

    For mc0 they are `capture_id, segment, seq, received_at_ns, endpoint, direction, peer`, where `df` has them, then
    `verb`, `topic` (of a PUT or MESSAGE), `topics` (of a SUB or UNSUB), `id`, `version` and `ttl_ms` (of a CONNECT),
    `headers` (a map of those that begin with ``X-``; of equal ones the last), `text` (of an ERROR), `body_frames`,
    `body_bytes`, with `payload` the frames of the `body` themselves, `error` and, in PERMISSIVE mode,
    `_corrupt_record` (all frames of an invalid message). Invalid UTF-8 in text becomes U+FFFD there.

    For MTL they are `capture_id, segment, seq, received_at_ns, endpoint, direction, peer`, where `df` has them, then `flow`
    (``"control"`` or ``"data"``), `name` (of a command), `status` (of a reply or response), `type` (command, reply, or that
    of a message of data), `sequence` (decimal(20,0)), `resource` (of a summon, dismiss or content; where a content leaves it
    out, because its lease has one, the `topic` of its row), `lease_hash` (16 hexadecimal digits of the SHA-256 of a lease,
    of a lease command and of the reply that gives it), `multiple`, `recycle`, the columns of the properties of a content,
    those of the JSON of a command or reply, `body_bytes` (of a content), with `payload` its `body` itself, `error` and, in
    PERMISSIVE mode, `_corrupt_record` (all frames of an invalid message). `properties` says as `tags` does which columns the
    properties become, `property_<name>` and `properties`; `json` does for JSON, `json_<name>` and `json`. In a VARIANT a time
    is a timestamp, after the year 9999 the number of its seconds; a decimal is a decimal, of more than 38 places the nearest
    double; text that is not UTF-8 is binary. The columns have what a recording has in place of secrets.

    For CDT they are `capture_id, segment, seq, received_at_ns, direction, topic, reply_to`, where `df` has them, then `type` (the kind of
    message, from its subject; null for foreign subjects), `instance`, `replica` and `originator` (from the
    subject), `correlation_id`, `timestamp_ms` (Unix time in milliseconds), `timestamp` (the same), `timeout_ms`, `endpoint_message_id`,
    `app_version_name`, `endpoint_id`, `config_id`, `content_type`, `status_code`, `reason_phrase`, `originator_replica_id`,
    `content_bytes`, with `payload` the `content` itself, `error` and, in PERMISSIVE mode, `_corrupt_record` (the body of an invalid
    message). Missing values are null. `codec` and `bytes_encoding` set how bodies are encoded.

    For ``"*"``, all protocols together, they are `capture_id, segment, seq, received_at_ns, protocol, endpoint, peer, direction, topic,
    reply_to`, where `df` has them, then `record`, `type` (of mc0 the verb), `rest` (a VARIANT of all else that is decoded of a
    message and is not null, by the names of the columns) and `error`. Rows of other protocols are left out.

    It runs on `mapInArrow`: only the header and the few columns named here pass through Python, never a payload that
    was not requested. It works on batches and on streams, and with Spark Connect.

    Columns of your own in `df`, whose names no capture has, are kept as they are, before those that are made; a capture's other
    columns are left out.

    Args:
        df: A capture, or any table with a binary column `header`; for the other protocols also `envelope` and `payload`, arrays
            of binary, for the frames before and after it. Its columns `protocol` (rows of another one are left
            out), `n_frames`, `n_bytes`, `payload` and `n_head` (how many frames of it stand before the body, which is
            left where it is) are used where present, for MTL and CDT `topic` too: of CDT it says what a body is. Where `n_frames` or `n_bytes` is not, the JVM counts it from
            `payload`, which it has to read for that; without either, the counts are null and a missing payload is no
            error.
        protocol: The protocol whose messages to decode, one of `trunkline.columns.protocols()`; ``"*"`` for all together, which
            takes no option.
        mode: What to do with malformed messages: PERMISSIVE keeps them, with `error` and their bytes; FAILFAST fails the query,
            also for tags of another type than requested; DROPMALFORMED drops them.
        options: The options of the protocol. CDTP: `tags`, which columns the tags become; `accept`, the header that is
            a message, or several; `strict`, whether bytes after a header are an error. DCP: `compat_dagbox`, whether types
            of four bytes are taken as well (DCP-11). MTL: `properties` and `json`. CDT: `codec`, `bytes_encoding` and `strict`. All: `payload`, whether to add the payload frames, of DCP the parts
            of the data, of mc0 and MTL the body, of CDT the content, which then pass through Python. See `trunkline.columns.CdtpOptions` and those of the others.
        columns: The columns to return, in any order; all of them if None. Spark cannot tell a function which of its
            columns a query uses, so each one is moved to Python and back unless it is left out here.

    Raises:
        LocalProtocolError: There is no such protocol, mode or type, the protocol has no such option, a column is
            missing or of another type, a column of your own has the name of one that is made, or the names of two tags differ only in case, which Spark ignores.
    """
    decoder = Decoder(protocol, mode=mode, **options)
    if not hasattr(df, "mapInArrow"):
        refuse("df", "a Spark DataFrame", df)
    decoded = decode_keeping(df, decoder, (*decoder.protocol.kept, *_own(df, decoder)), columns)
    warn_unless_recorded(df, protocol)
    return decoded


def _own(df: DataFrame, decoder: Decoder) -> list[str]:
    """The columns that are not those of a capture.

    Raises:
        LocalProtocolError: One has the name of a decoded column.
    """
    made = {name.lower() for name in (*decoder.row_schema().names, RECEIVED_AT)}
    from trunkline import capture

    captured = {*_TYPES, *_TEXTS, *capture.schema().names}
    own = [name for name in df.columns if name.lower() not in captured]
    taken = [name for name in own if name.lower() in made]
    if taken:
        message = f"decode makes a column {taken[0].lower()} itself: rename or drop that of the table"
        raise LocalProtocolError(message)
    return own


@needs_extra
def from_cdtp(
    header: Column | str,
    n_frames: Column | str | None = None,
    *,
    n_bytes: Column | str | None = None,
    tags: Tags = "variant",
    mode: Mode = "PERMISSIVE",
    accept: str | Sequence[str] = ("S", "A", "B", "2"),
    strict: bool = True,
) -> Column:
    """Decodes a column of CDTP headers into a column of structs.

    The fields are those of `decode` from `variant` to `_corrupt_record`, and `records`, an array of structs
    ``sequence``, tags, ``payload_frames``, ``payload_bytes``: null but for CDTP2, whose `sequence` and tags are null
    themselves. A null header gives a null struct, an invalid one a struct with only `error` and `_corrupt_record`.

    It runs on `arrow_udf` and takes about one and a half times as long as `decode`, since Spark copies whole structs.
    It is marked nondeterministic, so that Spark evaluates it once however often its fields are used; filter by a column
    made of it, not by the call.

    Args:
        header: The header frames, binary.
        n_frames: The number of frames of each message, its header among them; without it frame counts are null and a
            missing payload is no error.
        n_bytes: The bytes of all frames of each message; without it `payload_bytes` is null but for CDTP2.
        tags: Which fields the tags become, as in `decode`.
        mode: PERMISSIVE or FAILFAST, as in `decode`: a column function cannot drop rows.
        accept: One or more headers to accept.
        strict: Whether bytes after a header are an error.

    Raises:
        LocalProtocolError: There is no such mode or type, or the names of two tags differ only in case.
    """
    decoder = Decoder("cdtp", tags=tags, mode=mode, accept=accept, strict=strict)
    return _structs(decoder, {"header": header, "n_frames": n_frames, "n_bytes": n_bytes})


@needs_extra
def from_dcp(
    envelope: Column | str,
    header: Column | str,
    payload: Column | str,
    *,
    n_head: Column | str | None = None,
    mode: Mode = "PERMISSIVE",
    compat_dagbox: bool = False,
    data: bool = False,
) -> Column:
    """Decodes columns of DCP frames into a column of structs.

    The fields are those of `decode` from `type` to `_corrupt_record`. Where all three columns are null the struct is; of
    an invalid message it has `error` and `_corrupt_record` only.

    It runs on `arrow_udf`, and the remarks on `from_cdtp` apply.

    Args:
        envelope: The frames before the header, an array: one empty frame for what a DEALER sends or gets.
        header: The frames that name the protocol, binary.
        payload: The frames after it, an array: the type and what follows.
        n_head: How many of these stand before the data, as a capture has it: unless data is asked for, it then stays in
            the JVM, which counts it. Without, all of it passes through Python.
        mode: PERMISSIVE or FAILFAST, as in `decode`: a column function cannot drop rows.
        compat_dagbox: Whether to accept types of four bytes too (DCP-11).
        data: Whether to add the parts of the data as a field.

    Raises:
        LocalProtocolError: There is no such mode.
    """
    decoder = Decoder("dcp", mode=mode, compat_dagbox=compat_dagbox, payload=data)
    return _structs(decoder, {"envelope": envelope, "header": header, "payload": payload, "n_head": n_head})


@overload
def from_mc0(
    header: Column | str,
    payload: Column | str,
    /,
    *,
    n_head: Column | str | None = ...,
    mode: Mode = ...,
    body: bool = ...,
) -> Column: ...


@overload
def from_mc0(
    envelope: Column | str,
    header: Column | str,
    payload: Column | str,
    /,
    *,
    n_head: Column | str | None = ...,
    mode: Mode = ...,
    body: bool = ...,
) -> Column: ...


@needs_extra
def from_mc0(
    *frames: Column | str, n_head: Column | str | None = None, mode: Mode = "PERMISSIVE", body: bool = False
) -> Column:
    """Decodes columns of mc0 frames into a column of structs.

    The fields are those of `decode` from `verb` to `_corrupt_record`. Where all columns are null the struct is; of
    an invalid message it has `error` and `_corrupt_record` only.

    It runs on `arrow_udf`, and the remarks on `from_cdtp` apply.

    Args:
        frames: Three columns, or the last two of them: the frames before the verb, an array with the empty frame that
            leads or nothing (MC0-07); the frames of the verb, binary; the frames after it, an array.
        n_head: How many of these stand before the body, as a capture has it: unless the body is asked for, it then
            stays in the JVM, which counts it. Without, all of it passes through Python.
        mode: PERMISSIVE or FAILFAST, as in `decode`: a column function cannot drop rows.
        body: Whether to add the frames of the body as a field.

    Raises:
        LocalProtocolError: There is no such mode, or there are not two columns or three.
    """
    return _structs(Decoder("mc0", mode=mode, payload=body), mc0_columns(frames, n_head))


def mc0_columns(frames: Sequence[Column | str], n_head: Column | str | None) -> dict[str, Column | str | None]:
    """The columns of mc0 messages; by default no frame comes before the verb.

    Raises:
        LocalProtocolError: There are not two columns or three.
    """
    if len(frames) not in {2, 3}:
        message = f"{counted(len(frames), 'column')}: expected the header and the payload, and before them the envelope if any"
        raise LocalProtocolError(message)
    named = as_columns(dict(zip(("envelope", "header", "payload")[-len(frames) :], frames, strict=True)))
    nothing = F.when(named["header"].isNotNull() | named["payload"].isNotNull(), F.array().cast("array<binary>"))
    return {"envelope": nothing, **named, "n_head": n_head}


@needs_extra
def from_mtl(
    envelope: Column | str,
    header: Column | str,
    payload: Column | str,
    *,
    n_head: Column | str | None = None,
    topic: Column | str | None = None,
    properties: Tags = "variant",
    json: Tags = "variant",
    mode: Mode = "PERMISSIVE",
    body: bool = False,
) -> Column:
    """Decodes columns of MTL frames into a column of structs.

    The fields are those of `decode` from `flow` to `_corrupt_record`. Where the columns of frames are all null the struct
    is; of an invalid message it has `error` and `_corrupt_record` only.

    It runs on `arrow_udf`, and the remarks on `from_cdtp` apply.

    Args:
        envelope: The frames before the header, an array: for the data flow none.
        header: The names of commands, the statuses of replies, or the headers of data, binary.
        payload: The frames after it, an array.
        n_head: How many of these stand before the body of a content, as a capture has it: unless that is asked for, it
            then stays in the JVM, which counts it. Without, all of it passes through Python.
        topic: The resource of contents that do not name it, as a capture has it.
        properties: Which fields the properties become, as in `decode`.
        json: Which fields the JSON becomes, as in `decode`.
        mode: PERMISSIVE or FAILFAST, as in `decode`: a column function cannot drop rows.
        body: Whether to add the bodies of contents as a field.

    Raises:
        LocalProtocolError: There is no such mode or type, or two names differ only in case.
    """
    decoder = Decoder("mtl", properties=properties, json=json, mode=mode, payload=body)
    frames = {"envelope": envelope, "header": header, "payload": payload}
    return _structs(decoder, {**frames, "n_head": n_head, "topic": topic})


@needs_extra
def from_cdt(
    body: Column | str,
    topic: Column | str,
    *,
    codec: Literal["json", "avro"] = "json",
    bytes_encoding: Literal["base64", "latin1"] = "base64",
    strict: bool = True,
    mode: Mode = "PERMISSIVE",
    content: bool = False,
) -> Column:
    """Decodes columns of CDT bodies into a column of structs.

    The fields are those of `decode` from `type` to `_corrupt_record`. Where the body is null the struct is; of an invalid message
    it has `error` and `_corrupt_record` only.

    It runs on `arrow_udf`, and the remarks on `from_cdtp` apply.

    Args:
        body: The bodies, binary.
        topic: The subjects they were sent to, which determine their kinds.
        codec: Their encoding.
        bytes_encoding: The encoding of bytes in JSON.
        strict: Whether a timeout is required, and content has to be declared as bytes.
        mode: PERMISSIVE or FAILFAST, as in `decode`: a column function cannot drop rows.
        content: Whether to add the contents as a field.

    Raises:
        LocalProtocolError: There is no such mode.
        ValueError: There is no such codec or encoding.
    """
    decoder = Decoder("cdt", codec=codec, bytes_encoding=bytes_encoding, strict=strict, mode=mode, payload=content)
    return _structs(decoder, cdt_columns(body, topic))


def cdt_columns(body: Column | str, topic: Column | str) -> dict[str, Column | str | None]:
    """The columns of CDT messages, which are one frame each."""
    given = as_columns({"body": body, "topic": topic})
    is_there = given["body"].isNotNull()
    return {
        "envelope": F.when(is_there, F.array().cast("array<binary>")),
        "header": F.lit(None).cast("binary"),
        "payload": F.when(is_there, F.array(given["body"])),
        "topic": given["topic"],
    }


@needs_extra
def capture_schema() -> StructType:
    """The columns of a capture: with them Spark reads a directory that has no segments yet."""
    from pyspark.sql.pandas.types import from_arrow_schema

    from trunkline import capture

    # As in Parquet, without comments.
    return from_arrow_schema(capture.schema())


def _structs(decoder: Decoder, given: Mapping[str, Column | str | None]) -> Column:
    from pyspark.sql.pandas.functions import arrow_udf

    named = sent(decoder, as_columns(given), set(decoder.struct_schema().names))
    # pyspark's types lack functions of several columns.
    make: Any = arrow_udf
    function = make(_columns.structs_of(decoder, list(named)), decoder.struct_ddl())
    # Spark may evaluate a deterministic function again for each use of its fields.
    decoded: Column = function.asNondeterministic()(*named.values())
    return decoded


def as_columns(given: Mapping[str, Column | str | None]) -> dict[str, Column]:
    """The arguments of a column function as columns."""
    there = ((name, column) for name, column in given.items() if column is not None)
    return {name: F.col(column) if isinstance(column, str) else column for name, column in there}


def sent(
    decoder: Decoder, found: Mapping[str, Column], wanted: AbstractSet[str], present: Iterable[str] | None = None
) -> dict[str, Column]:
    """The columns that go to Python for the decoded columns `wanted`, from the `found` columns of a capture, in a table with
    the columns `present`.

    Bodies stay in the JVM, which computes missing counts.

    Raises:
        LocalProtocolError: A column is missing.
    """
    needed = _columns.needed(decoder, wanted)
    columns = {}
    for name, head in needed.items():
        if name in found:
            columns[name] = _head(found) if head else found[name]
        elif name not in BESIDE:
            message = f"no column {name}: the table has {', '.join(present or found)}"
            raise LocalProtocolError(message)
        elif name in COUNTS and "payload" in found and not _is_whole(found, needed):
            columns[name] = _counted(decoder, found)[name]
    return columns


def _head(found: Mapping[str, Column]) -> Column:
    """The payload up to its body, or all of it if `n_head` is missing."""
    if "n_head" not in found:
        return found["payload"]
    payload, head = found["payload"], found["n_head"]
    return F.when(head.isNull(), payload).otherwise(F.slice(payload, F.lit(1), head.cast("int")))


def _is_whole(found: Mapping[str, Column], needed: Mapping[str, bool]) -> bool:
    """Whether all frames of the payload are sent, so that the JVM need not count them."""
    return "payload" in needed and not (needed["payload"] and "n_head" in found)


def _counted(decoder: Decoder, found: Mapping[str, Column]) -> dict[str, Column]:
    """The numbers of frames and bytes, over the columns of frames of this protocol."""
    frames, total = F.lit(0), F.lit(0).cast("bigint")
    for name, _, _ in decoder.protocol.inputs:
        if name in BESIDE or name not in found:
            continue
        column = found[name]
        if name == "header":
            frames += F.when(column.isNull(), 0).otherwise(1)
            total += F.coalesce(F.octet_length(column), F.lit(0))
        else:
            frames += F.size(column)
            total += _bytes(column)
    return dict(zip(COUNTS, (frames, total), strict=True))


def _bytes(frames: Column) -> Column:
    return F.aggregate(frames, F.lit(0).cast("bigint"), lambda total, frame: total + F.octet_length(frame))


def decode_keeping(
    df: DataFrame, decoder: Decoder, kept: Sequence[str], columns: Iterable[str] | None = None
) -> DataFrame:
    """Decodes, and keeps the existing columns of `kept` in each row; returns the wanted ones of all these."""
    # Without pyarrow there is neither a schema nor the function.
    names = decoder.row_schema().names
    inputs = {name for name, _, _ in decoder.protocol.inputs}
    fields = _known(df.schema, {*_TYPES, *inputs, *(name.lower() for name in kept)})
    if "protocol" in fields:
        df = df.where(df[fields["protocol"].name].isin(_columns.names_of(decoder.protocol.name)))
    there = [name for name in kept if name.lower() in fields]
    # The user's columns are renamed on the way: `mapInArrow` does not support dots and backticks in names.
    places = {name: f"kept_{at}" for at, name in enumerate(there) if not name.isidentifier()}
    df = df.toDF(*(places.get(name, name) for name in df.columns)) if places else df
    timed = [RECEIVED_AT] if "received_at_ns" in there else []
    wanted = {*there, *names, *timed} if columns is None else set(columns)
    if isinstance(columns, str) or not wanted:
        message = f"columns={columns!r}: must be a sequence of at least one column name"
        raise LocalProtocolError(message)
    unknown = wanted.difference(there, names, timed)
    if unknown:
        message = f"no column {min(unknown)}: the columns will be {', '.join([*there, *names, *timed])}"
        raise LocalProtocolError(message)
    is_timed = RECEIVED_AT in wanted
    stays = wanted | {"received_at_ns"} if is_timed else wanted
    staying = [name for name in there if name in stays]
    stay = {places.get(name, name): df[places.get(name, fields[name.lower()].name)] for name in staying}
    only = [name for name in names if name in wanted]
    found = {name: df[fields[name].name] for name in (inputs | _TYPES.keys()).intersection(fields)}
    if "protocol" in inputs and {"protocol", "payload"} <= found.keys():
        # The payload stays in the JVM for protocols that do not need it to find their messages.
        found["payload"] = F.when(~found["protocol"].isin(_without_payload()), found["payload"])
    frames = sent(decoder, found, wanted.intersection(only), df.columns)

    def schema() -> StructType:
        from pyspark.sql.types import StructField, StructType

        decoded = StructType.fromDDL(decoder.row_ddl())
        assert isinstance(decoded, StructType)
        kept = [
            StructField(place, fields[name.lower()].dataType, metadata=fields[name.lower()].metadata)
            for place, name in zip(stay, staying, strict=True)
        ]
        return commented(StructType(kept + [decoded[name] for name in only]), decoder.protocol.name)

    named = [column.alias(name) for name, column in (stay | frames).items()]
    decoded = df.select(named).mapInArrow(_columns.rows_of(decoder, list(stay), list(frames), only), schema())
    if places:
        decoded = decoded.toDF(*staying, *only)
    if not is_timed:
        return decoded
    moment = F.expr("timestamp_micros((received_at_ns - pmod(received_at_ns, 1000)) div 1000)")
    # Not by a list of names, which Spark would parse as paths: tags may have any name.
    said = comment(RECEIVED_AT, decoder.protocol.name)
    with_moment = decoded.withColumn(RECEIVED_AT, moment.alias(RECEIVED_AT, metadata={"comment": said}))
    return with_moment if "received_at_ns" in wanted else with_moment.drop("received_at_ns")


def _without_payload() -> list[str]:
    return [
        known.name
        for known in _columns.protocols()
        if any(name == "payload" and need == "columns" for name, need, _ in known.inputs)
    ]


def need_columns(rows: DataFrame, needed: Iterable[str], what: str, *, of_streams: bool = True) -> None:
    """Raises `LocalProtocolError` if a column of a capture is missing that `what` needs, or if the table is a stream and `what`
    needs all rows.
    """
    if not of_streams and getattr(rows, "isStreaming", False):
        message = f"{what} a batch, not a stream: read the table with session.read"
        raise LocalProtocolError(message)
    present = {name.lower() for name in rows.columns}
    missing = [name for name in needed if name not in present]
    if missing:
        message = f"{what} the columns of a capture; missing: {', '.join(missing)}"
        raise LocalProtocolError(message)


def _known(schema: Iterable[StructField], names: AbstractSet[str]) -> dict[str, StructField]:
    """The columns of these names, case-insensitive; others may have any name.

    Raises:
        LocalProtocolError: One is there twice, or is of another type than a capture's.
    """
    fields: dict[str, StructField] = {}
    for field in schema:
        name = field.name.lower()
        if name not in names:
            continue
        if name in fields:
            message = f"two columns are named {name}: drop or rename one"
            raise LocalProtocolError(message)
        fields[name] = field
        types = (_TYPES | _TEXTS).get(name)
        if types and field.dataType.simpleString() not in types:
            message = f"the column {name} is {field.dataType.simpleString()}, but must be {types[0]}"
            raise LocalProtocolError(message)
    return fields
