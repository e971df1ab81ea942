"""Decodes columns of frames into columns of values, for any protocol; `trunkline.spark.decode` and
`trunkline.capture.Capture.decode` are built on it.

```python
from trunkline import columns

[protocol.name for protocol in columns.protocols()]                 # ['cdtp', 'dcp', 'mc0', 'mtl', 'cdt']
decoder = columns.Decoder("cdtp", tags={"run": "bigint"})
for source, messages in decoder.decode_rows(header=headers, n_frames=counts):   # any Arrow arrays, up to 64 MiB a batch
    ...
```

`protocols()` describes each protocol: its options, the columns it takes and those it gives.
"""

# Spark's workers import this module for each query: keep it cheap, and import pyarrow only where it is used.

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict
from typing import Protocol as Protocol_

from trunkline._native import Protocol, protocols
from trunkline._native.columns import Decoder, Layout

if TYPE_CHECKING:
    from collections import Counter

    import pyarrow as pa

__all__ = [
    "CdtOptions",
    "CdtpOptions",
    "DcpOptions",
    "Decoder",
    "Dtype",
    "Layout",
    "Mc0Options",
    "Mode",
    "MtlOptions",
    "Payload",
    "Protocol",
    "Tags",
    "protocols",
]
__dir__ = __all__.copy

Mode = Literal["PERMISSIVE", "FAILFAST", "DROPMALFORMED"]

# Stands for all protocols together.
EVERY = "*"
Tags = Literal["variant", "json"] | Mapping[str, str] | None


class Dtype(Protocol_):
    """A `numpy.dtype`, by what it has: numpy need not be installed."""

    @property
    def itemsize(self) -> int:
        """The bytes of an item."""

    @property
    def names(self) -> Any:
        """The names of its fields."""


# What becomes of payloads: nothing, a column of their frames, or columns of a layout.
Payload: TypeAlias = bool | str | Layout | Dtype


class CdtpOptions(TypedDict, total=False):
    """Options of decoding CDTP.

    Attributes:
        tags: Which columns the tags become: ``"variant"`` for one VARIANT `tags`, ``"json"`` for one of JSON text; a
            mapping of names to types (bigint, double, string, boolean, binary, timestamp, or json for text of any) for
            columns `tag_<name>`, in which ``"*": "variant"`` or ``"*": "json"`` adds a
            column of all others; None for none. Spark's functions take ``"variant"`` where nothing is said, a capture
            ``"json"``, which any tool reads.
        accept: One or more headers to accept: "S", "A", "B" and "2".
        strict: Whether bytes after a header are an error.
        payload: Whether to add the payload frames, which are not read otherwise; or what their bytes are, which adds a
            column `payload_<field>` for each field: a layout such as ``"adc u16[]"``, a `trunkline.Layout` or a
            `numpy.dtype`. Of a DAT and an S alone.

    ```pycon
    >>> from trunkline import columns
    >>> options: columns.CdtpOptions = {"tags": {"run": "bigint"}, "payload": "adc u16[]"}
    >>> schema = columns.Decoder("cdtp", **options).row_schema()
    >>> schema.field("tag_run").type, schema.field("payload_adc").type
    (DataType(int64), ListType(list<element: uint16>))

    ```
    """

    tags: Tags
    accept: str | Sequence[str]
    strict: bool
    payload: Payload


class DcpOptions(TypedDict, total=False):
    """Options of decoding DCP.

    Attributes:
        compat_dagbox: Whether to accept types of four bytes too (DCP-11).
        payload: Whether to add the parts of the data, or their layout, as for `CdtpOptions.payload`.

    ```pycon
    >>> from trunkline import columns
    >>> options: columns.DcpOptions = {"payload": "temperature f64"}
    >>> columns.Decoder("dcp", **options).row_schema().field("payload_temperature").type
    DataType(double)

    ```
    """

    compat_dagbox: bool
    payload: Payload


class Mc0Options(TypedDict, total=False):
    """Options of decoding mc0.

    Attributes:
        payload: Whether to add the frames of the body, or their layout, as for `CdtpOptions.payload`.

    ```pycon
    >>> from trunkline import columns
    >>> options: columns.Mc0Options = {"payload": "json: temperature double"}
    >>> columns.Decoder("mc0", **options).row_schema().field("payload_temperature").type
    DataType(double)

    ```
    """

    payload: Payload


class MtlOptions(TypedDict, total=False):
    """Options of decoding MTL.

    Attributes:
        properties: Which columns the properties of contents become, as for `CdtpOptions.tags`: those requested by name
            are `property_<name>`, the others `properties`.
        json: Which columns the bodies of commands and replies become, likewise: `json_<name>`, and `json`.
        payload: Whether to add the bodies of contents, or their layout, as for `CdtpOptions.payload`.

    ```pycon
    >>> from trunkline import columns
    >>> options: columns.MtlOptions = {"properties": {"priority": "bigint", "*": "json"}}
    >>> columns.Decoder("mtl", **options).row_schema().field("property_priority").type
    DataType(int64)

    ```
    """

    properties: Tags
    json: Tags
    payload: Payload


class CdtOptions(TypedDict, total=False):
    """Options of decoding CDT.

    Attributes:
        codec: The encoding of bodies: JSON or binary Avro.
        bytes_encoding: The encoding of bytes in JSON.
        strict: Whether a timeout is required, and content has to be declared as bytes.
        payload: Whether to add the contents, or their layout, as for `CdtpOptions.payload`.

    ```pycon
    >>> from trunkline import columns
    >>> options: columns.CdtOptions = {"codec": "avro", "payload": "json: interval bigint"}
    >>> columns.Decoder("cdt", **options).row_schema().field("payload_interval").type
    DataType(int64)

    ```
    """

    codec: Literal["json", "avro"]
    bytes_encoding: Literal["base64", "latin1"]
    strict: bool
    payload: Payload


# The columns that count frames: they may always be missing, and do not decide whether there is a message.
COUNTS = ("n_frames", "n_bytes")

# The column of a decoded table beside `received_at_ns`: the same as a timestamp in UTC.
RECEIVED_AT = "received_at"

# Before the name of a field of payloads.
FIELD = "payload_"

# Other columns than frames that may be missing.
BESIDE = (*COUNTS, "topic")


def options_of(protocol: str) -> Mapping[str, Any]:
    """The options of decoding a protocol, with their defaults."""
    return next(known.options for known in protocols() if known.name == protocol)


def layout_of(payload: Payload | None) -> Layout | None:
    """The layout that payloads are decoded by; None where their frames are asked for, or nothing.

    Raises:
        LocalProtocolError: It is none.
    """
    return None if payload is None or isinstance(payload, bool) else Layout(payload)


def maps_of(protocol: str) -> list[str]:
    """The options that make columns of the values of maps."""
    return [name for name, default in options_of(protocol).items() if default == "variant"]


def names_of(protocol: str) -> list[str]:
    """The protocols to decode, for one name or all together."""
    return [known.name for known in protocols()] if protocol == EVERY else [protocol]


def needed(decoder: Decoder, wanted: AbstractSet[str]) -> dict[str, bool]:
    """The columns that decoding takes for the columns `wanted` of what it gives, each with whether that is just the head
    of it: the frames before the body.
    """
    found = {}
    for name, need, columns in decoder.inputs:
        of_body = not wanted.isdisjoint(columns)
        if need != "columns" or of_body:
            found[name] = need == "head" and not of_body
    return found


def reading(
    decoder: Decoder, wanted: Sequence[str]
) -> tuple[list[str], Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]]:
    """The columns of a capture to read for the columns `wanted`, decoded or kept of rows; and what makes these of them."""
    decoded = set(decoder.row_schema().names)
    only, kept = [name for name in wanted if name in decoded], [name for name in wanted if name not in decoded]
    frames = list(needed(decoder, set(only)))
    return list(dict.fromkeys([*kept, *frames])), rows_of(decoder, kept, frames, only)


def rows_of(
    decoder: Decoder,
    kept: Sequence[str],
    frames: Sequence[str],
    only: Sequence[str] | None,
    mismatches: Counter[str] | None = None,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow`: batches of frames to batches with a row a message.

    Args:
        decoder: What to decode and how.
        kept: The columns that stay as they are.
        frames: The columns that the decoder takes.
        only: The columns of what is decoded that are wanted; all of them if None.
        mismatches: Counts the values that are null because they are of another type than requested, by name.
    """

    def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            rows = decoder.decode_rows(**{name: batch.column(name) for name in frames}, only=only)
            for source, decoded in rows:
                if not kept:
                    yield decoded
                    continue
                stays = batch.select(kept)
                # Mostly each row is one message.
                if len(source) != batch.num_rows or not source.equals(_same(batch.num_rows)):
                    stays = stays.take(source)
                yield pa.RecordBatch.from_arrays(
                    [*stays.columns, *decoded.columns], names=[*kept, *decoded.schema.names]
                )
            if mismatches is not None:
                mismatches.update(rows.mismatches)

    decode.__name__ = f"decode_{decoder.protocol.name.replace(EVERY, 'every')}"
    return decode


def moments(nanoseconds: pa.Array) -> pa.Array:
    """Nanoseconds since 1970 as timestamps in UTC, floored to microseconds."""
    import pyarrow as pa
    from pyarrow import compute

    # Arrow's kernels that round times support calendars, and take five times as long.
    toward_zero = compute.divide(nanoseconds, 1000)
    is_above = compute.greater(compute.multiply(toward_zero, 1000), nanoseconds)
    return compute.subtract(toward_zero, is_above.cast(pa.int64())).cast(pa.timestamp("us", "UTC"))


@functools.lru_cache(maxsize=8)
def _same(rows: int) -> pa.UInt32Array:
    import pyarrow as pa

    return pa.array(range(rows), pa.uint32())


def structs_of(decoder: Decoder, names: Sequence[str]) -> Callable[..., pa.Array]:
    """A function for `arrow_udf`: columns of frames, called `names`, to a column of structs."""
    import pyarrow as pa

    def decode(*columns: pa.Array) -> pa.Array:
        return decoder.decode_structs(**dict(zip(names, columns, strict=True)))

    # Spark inspects the annotations as objects, so they must not be strings.
    decode.__annotations__ = {"columns": pa.Array, "return": pa.Array}
    decode.__name__ = f"from_{decoder.protocol.name}"
    return decode
