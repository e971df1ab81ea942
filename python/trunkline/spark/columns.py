"""Decodes columns of recorded frames."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, Unpack, overload

from trunkline import columns as _columns
from trunkline._arguments import refuse
from trunkline.columns import BESIDE, COUNTS, RECEIVED_AT, Decoder
from trunkline.errors import LocalProtocolError
from trunkline.spark._comments import comment, commented
from trunkline.spark._lazy import F
from trunkline.spark._missing import needs_extra
from trunkline.spark._paths import warn_unless_recorded
from trunkline.spark._plans import files_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField, StructType

    from trunkline.columns import Mode

__all__ = [
    "Origin",
    "as_columns",
    "decode",
    "decode_keeping",
    "need_columns",
    "sent",
]

# Of all protocols, written by tools/lists.py.
if TYPE_CHECKING:
    from trunkline.columns import CdtOptions, CdtpOptions, DcpOptions, Mc0Options, MtlOptions
# End of what tools/lists.py writes.

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

# A function for `mapInArrow`.
Batches: TypeAlias = "Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]"

# The attribute of a table with its origin.
_ORIGIN = "_trunkline_origin"


# Of all protocols, written by tools/lists.py.
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


# End of what tools/lists.py writes.


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

    Where `df` is a capture that Spark reads as Parquet, and `trunkline capture compact --decode` has decoded some of its segments
    with these options, their files are read instead of frames.

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
            of the data, of mc0 and MTL the body, of CDT the content, which then pass through Python; or their layout, such as ``"adc u16[]"``, which adds a column
            `payload_<field>` for each field. See `trunkline.columns.CdtpOptions` and those of the others.
        columns: The columns to return, in any order; all of them if None. Spark cannot tell a function which of its
            columns a query uses, so each one is moved to Python and back unless it is left out here.

    Raises:
        LocalProtocolError: There is no such protocol, mode or type, the protocol has no such option, a column is
            missing or of another type, a column of your own has the name of one that is made, or the names of two tags differ only in case, which Spark ignores.

    ```python
    from trunkline import spark

    rows = spark.session().read.parquet("runs/")
    messages = spark.decode(rows, "cdtp", tags={"run": "bigint", "*": "variant"})
    messages.where("type = 'DAT'").groupBy("sender", "tag_run").count().show()
    ```
    """
    decoder = Decoder(protocol, types="spark", mode=mode, **options)
    if not hasattr(df, "mapInArrow"):
        refuse("df", "a Spark DataFrame", df)
    decoded = decode_keeping(df, decoder, (*decoder.protocol.kept, *_own(df, decoder)), columns)
    files = files_of(df)
    if files is None:
        warn_unless_recorded([] if df.isStreaming else df.inputFiles(), protocol)
        return decoded
    warn_unless_recorded(files.uris, protocol)
    # Imported late: it decodes what no file has.
    from trunkline.spark.beside import with_files

    return with_files(decoded, files)


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


@dataclass(frozen=True, slots=True)
class Origin:
    """What messages were decoded from, and how, where nothing else was done to their table.

    Attributes:
        rows: The rows of captures.
        decoder: The decoder.
        kept: The columns that messages keep of their rows.
    """

    rows: DataFrame
    decoder: Decoder
    kept: Sequence[str]

    @classmethod
    def of(cls, decoded: DataFrame) -> Self | None:
        """The origin of a table; None unless it is as it was decoded."""
        origin: Self | None = vars(decoded).get(_ORIGIN)
        return origin

    @property
    def options(self) -> dict[str, Any]:
        """The options of the decoder, and its mode."""
        _, options = self.decoder.__getnewargs_ex__()
        return {"mode": "PERMISSIVE", **options}

    def attached(self, messages: DataFrame) -> DataFrame:
        """A table of these messages, with this origin."""
        setattr(messages, _ORIGIN, self)
        return messages


def decode_keeping(
    df: DataFrame,
    decoder: Decoder,
    kept: Sequence[str],
    columns: Iterable[str] | None = None,
    *,
    then: tuple[Batches, str] | None = None,
) -> DataFrame:
    """Decodes, and keeps the existing columns of `kept` in each row; returns the wanted ones of all these, or what a
    function makes of their batches, with its columns.
    """
    origin = Origin(df, decoder, kept)
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
    decode = _columns.rows_of(decoder, list(stay), list(frames), only)
    if then is not None:
        function, made = then
        return df.select(named).mapInArrow(functools.partial(_piped, decode, function), made)
    decoded = df.select(named).mapInArrow(decode, schema())
    if places:
        decoded = decoded.toDF(*staying, *only)
    if is_timed:
        decoded = _timed(decoded, decoder, is_kept="received_at_ns" in wanted)
    # A table that is made of this one is another object, without an origin.
    return origin.attached(decoded)


def _piped(one: Batches, other: Batches, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return other(one(batches))


def _timed(decoded: DataFrame, decoder: Decoder, *, is_kept: bool) -> DataFrame:
    """With the moment of receipt as a timestamp, and its nanoseconds if they are wanted too."""
    moment = F.expr("timestamp_micros((received_at_ns - pmod(received_at_ns, 1000)) div 1000)")
    # Not by a list of names, which Spark would parse as paths: tags may have any name.
    said = comment(RECEIVED_AT, decoder.protocol.name)
    with_moment = decoded.withColumn(RECEIVED_AT, moment.alias(RECEIVED_AT, metadata={"comment": said}))
    return with_moment if is_kept else with_moment.drop("received_at_ns")


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
            kind = field.dataType.simpleString()
            # As Hive and Impala wrote them.
            is_text = kind == types[0].replace("binary", "string")
            hint = ": set spark.sql.parquet.binaryAsString to false where it is read" if is_text else ""
            message = f"the column {name} is {kind}, but must be {types[0]}{hint}"
            raise LocalProtocolError(message)
    return fields
