"""What Spark has of mc0: the functions of columns, and what the columns of its tables say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

from trunkline._text import counted
from trunkline.columns import Decoder
from trunkline.errors import LocalProtocolError
from trunkline.spark._faces import FRAMES, structs, structs_by_pandas, written
from trunkline.spark._lazy import F
from trunkline.spark._missing import needs_extra
from trunkline.spark.columns import as_columns

if TYPE_CHECKING:
    from pyspark.sql import Column

    from trunkline.columns import Mode, Payload

__all__ = ["from_mc0", "to_mc0"]

# The arguments of the function of SQL, and how many are required.
ARGUMENTS, REQUIRED = FRAMES, 3

# The comments of columns, by table.
COMMENTS = {
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
        "evicted": "Whether the window, or peers of it, made way for others: then it counts too few",
    },
}


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
    *frames: Column | str, n_head: Column | str | None = None, mode: Mode = "PERMISSIVE", body: Payload = False
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
        body: Whether to add the frames of the body as a field, or their layout, as for `trunkline.columns.CdtpOptions.payload`.

    Raises:
        LocalProtocolError: There is no such mode, or there are not two columns or three.

    ```python
    from trunkline import spark

    rows = spark.session().read.parquet("bus/")
    decoded = rows.select("seq", spark.from_mc0("envelope", "header", "payload", n_head="n_head").alias("mc0"))
    decoded.where("mc0.verb = 'PUT'").select("seq", "mc0.topic", "mc0.body_bytes").show()
    ```
    """
    return structs(Decoder("mc0", mode=mode, payload=body, types="spark"), mc0_columns(frames, n_head))


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
def to_mc0(message: Column | str) -> Column:
    """Encodes a column of structs as `from_mc0` gives them into a column of mc0 frames.

    It gives a struct of `envelope` (the empty frame), `header` (the verb) and `payload`: the headers ``TOPIC``, ``ID``, ``VERSION``,
    ``TTL`` and ``MESSAGE``, as far as they are said, those that begin with ``X-`` in their order, and the topics or the body. The remarks
    on `to_cdtp` apply.

    Args:
        message: Structs with the fields of `from_mc0`, with `body` where a message has one.

    Raises:
        LocalProtocolError: An extra is not installed.

    ```python
    from trunkline import spark

    rows = spark.session().read.parquet("bus/")
    decoded = rows.select(spark.from_mc0("envelope", "header", "payload", body=True).alias("message"))
    decoded.select(spark.to_mc0("message").alias("frames")).select("frames.header", "frames.payload").show()
    ```
    """
    return written(Decoder("mc0"), message)


@overload
def mc0(
    header: Column | str,
    payload: Column | str,
    /,
    *,
    n_head: Column | str | None = ...,
    mode: Mode = ...,
    body: bool = ...,
) -> Column: ...


@overload
def mc0(
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
def mc0(
    *frames: Column | str, n_head: Column | str | None = None, mode: Mode = "PERMISSIVE", body: Payload = False
) -> Column:
    """The column of structs that `from_mc0` gives, by way of pandas, which costs a Python object a frame.

    Args:
        frames: The columns of the frames before the verb, of the verb, and of the frames after it, or the last two.
        n_head: How many of these stand before the body, as in `from_mc0`.
        mode: PERMISSIVE or FAILFAST.
        body: Whether to add the frames of the body as a field, or their layout, as for `trunkline.columns.CdtpOptions.payload`.

    Raises:
        LocalProtocolError: There is no such mode, or there are not two columns or three.
    """
    return structs_by_pandas(Decoder("mc0", mode=mode, payload=body, types="spark"), mc0_columns(frames, n_head))
