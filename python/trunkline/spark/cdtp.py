"""What Spark has of cdtp: the functions of columns, and what the columns of its tables say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from trunkline.columns import Decoder
from trunkline.spark._faces import structs, structs_by_pandas, written
from trunkline.spark._missing import needs_extra

if TYPE_CHECKING:
    from pyspark.sql import Column

    from trunkline.columns import Mode, Payload, Tags

__all__ = ["from_cdtp", "to_cdtp"]

# The arguments of the function of SQL, and how many are required.
ARGUMENTS, REQUIRED = ("header", "n_frames", "n_bytes", "payload"), 1

# The comments of columns, by table.
COMMENTS = {
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
    "runs": {
        "sender": "The sender's name",
        "ordinal": "The number of the BOR that the run begins with among its sender's, from 1; 0: before the first",
        "run_id": "The string of that name in the metadata, or else in the configuration",
        "condition": "GOOD, IN_PROGRESS, EVICTED if it made way for others before it ended, or what is wrong, as INCOMPLETE|ABORTED",
        "condition_code": "The same as a number: 0, or the sum of TAINTED 1, INCOMPLETE 2, INTERRUPTED 4, ABORTED 8, DEGRADED 16; null while it is in progress",
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
}


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
    payload: Payload = False,
    frames: Column | str | None = None,
) -> Column:
    """Decodes a column of CDTP headers into a column of structs.

    The fields are those of `decode` from `variant` to `_corrupt_record`, and `records`, an array of structs
    ``sequence``, tags, ``payload_frames``, ``payload_bytes`` and, with `payload`, ``payload``: null but for CDTP2, whose
    `sequence`, tags and `payload` are null themselves. A null header gives a null struct, an invalid one a struct with only `error` and `_corrupt_record`.

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
        payload: Whether to add the payloads of CDTP2, which are in its header, as a field. Those of the other headers are
            frames of their own, the column `payload` of a capture; without `frames` the field is null for them. Or their layout,
            as for `trunkline.columns.CdtpOptions.payload`.
        frames: The frames after the header, an array, as the column `payload` of a capture has them.

    Raises:
        LocalProtocolError: There is no such mode or type, or the names of two tags differ only in case.

    ```python
    from trunkline import spark

    rows = spark.session().read.parquet("runs/")
    decoded = rows.select("seq", spark.from_cdtp("header", "n_frames", tags={"run": "bigint"}).alias("cdtp"))
    decoded.where("cdtp.type = 'DAT'").select("seq", "cdtp.sequence", "cdtp.tag_run").show()
    ```
    """
    decoder = Decoder("cdtp", tags=tags, mode=mode, accept=accept, strict=strict, payload=payload, types="spark")
    return structs(decoder, _given(header, n_frames, n_bytes, frames))


def _given(
    header: Column | str, n_frames: Column | str | None, n_bytes: Column | str | None, frames: Column | str | None
) -> dict[str, Column | str | None]:
    given = {"header": header, "n_frames": n_frames, "n_bytes": n_bytes}
    return given if frames is None else given | {"payload": frames}


@needs_extra
def to_cdtp(message: Column | str) -> Column:
    """Encodes a column of structs as `from_cdtp` gives them into a column of CDTP frames.

    It gives a struct of `envelope` (no frame), `header` and `payload`, as a capture has them. Headers are in the fewest bytes, as
    senders write them. `payload` is the field `payload` of the struct, an array of binary, where it has one, and else null: a header
    does not say it. The blocks of a CDTP2 message are the field `payload` of its records: decode with ``payload=True``.

    Tags are written in their order. Those that have only a field of their own come last, in the order of the fields, as values of the
    field's type: a field of JSON text as text, one of another type than the tag had, which is null, not at all. A moment among the tags in
    a VARIANT is the number of its nanoseconds, and is written as such.

    What was no message becomes what it was, by its `_corrupt_record`; a struct that has an `error` and no such record becomes null, and so
    does null. It runs on `arrow_udf`.

    Args:
        message: Structs with the fields of `from_cdtp`: with `tags` as a VARIANT, also where some have a field of their own,
            `tag_<name>`, so that none is left out; it may be null. With `payload` where a CDTP2 message has any.

    Raises:
        LocalProtocolError: An extra is not installed. A field that is missing or wrong ends the query, with its row and name.

    ```python
    from trunkline import spark

    rows = spark.session().read.parquet("runs/").where("error is null")
    decoded = rows.select(spark.from_cdtp("header", payload=True, frames="payload").alias("message"))
    decoded.select(spark.to_cdtp("message").alias("frames")).select("frames.header", "frames.payload").show()
    ```
    """
    return written(Decoder("cdtp"), message)


@needs_extra
def cdtp(
    header: Column | str,
    n_frames: Column | str | None = None,
    *,
    n_bytes: Column | str | None = None,
    tags: Literal["json"] | Mapping[str, str] | None = None,
    mode: Mode = "PERMISSIVE",
    accept: str | Sequence[str] = ("S", "A", "B", "2"),
    strict: bool = True,
    payload: Payload = False,
    frames: Column | str | None = None,
) -> Column:
    """The column of structs that `from_cdtp` gives, by way of pandas.

    Values go as Arrow's own types, so integers stay exact beside a null. `from_cdtp` and `decode` cost less.

    Args:
        header: The header frames, binary.
        n_frames: The number of frames of each message, its header among them.
        n_bytes: The bytes of all frames of each message.
        tags: The fields of the tags, by name, or ``"json"``: a VARIANT would cost a Python object per value here, so it
            is not supported.
        mode: PERMISSIVE or FAILFAST.
        accept: The header that is a message, or several.
        strict: Whether bytes after a header are an error.
        payload: Whether to add the payloads as a field, or their layout, as for `from_cdtp`.
        frames: The frames after the header, an array.

    Raises:
        LocalProtocolError: There is no such mode, type or layout, or the names of two tags differ only in case.
    """
    decoder = Decoder("cdtp", tags=tags, mode=mode, accept=accept, strict=strict, payload=payload, types="spark")
    return structs_by_pandas(decoder, _given(header, n_frames, n_bytes, frames))
