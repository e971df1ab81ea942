"""What Spark has of mtl: the functions of columns, and what the columns of its tables say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from trunkline.columns import Decoder
from trunkline.spark._faces import FRAMES, structs, structs_by_pandas, written
from trunkline.spark._missing import needs_extra

if TYPE_CHECKING:
    from pyspark.sql import Column

    from trunkline.columns import Mode, Payload, Tags

__all__ = ["from_mtl", "to_mtl"]

# The arguments of the function of SQL, and how many are required.
ARGUMENTS, REQUIRED = (*FRAMES, "topic"), 3

# The comments of columns, by table.
COMMENTS = {
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
    "contents": {
        "resource": "The resource",
        "sequence": "The sequence number of the content",
        "body_bytes": "The bytes of the body",
        "redelivered": "Whether it says that it may have been delivered before",
        "attempts": "Which delivery of the content it is, from 1",
        "fate": "What became of the content, as confirmed; open if nothing has, evicted if it made way for others before",
        "status": "The status of the Response that refused it",
        "latency_ns": "From the content to what settled it, in nanoseconds",
        "seq": "The seq of the row of the content",
        "settled_seq": "The seq of the row that settled it",
        "sent_at_ns": "When the content was recorded, in nanoseconds since 1970",
        "settled_at_ns": "When what settled it was recorded, in nanoseconds since 1970",
    },
}


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
    body: Payload = False,
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
        body: Whether to add the bodies of contents as a field, or their layout, as for `trunkline.columns.CdtpOptions.payload`.

    Raises:
        LocalProtocolError: There is no such mode or type, or two names differ only in case.

    ```python
    from trunkline import spark

    rows = spark.session().read.parquet("queue/")
    decoded = rows.select("seq", spark.from_mtl("envelope", "header", "payload", topic="topic").alias("mtl"))
    decoded.where("mtl.type = 'content'").select("seq", "mtl.resource", "mtl.body_bytes").show()
    ```
    """
    decoder = Decoder("mtl", properties=properties, json=json, mode=mode, payload=body, types="spark")
    frames = {"envelope": envelope, "header": header, "payload": payload}
    return structs(decoder, {**frames, "n_head": n_head, "topic": topic})


@needs_extra
def to_mtl(message: Column | str) -> Column:
    """Encodes a column of structs as `from_mtl` gives them into a column of MTL frames.

    It gives a struct of `envelope` (the empty frame before a command or a reply), `header` and `payload`. JSON is compact, its keys and
    properties in their order. Numbers among properties take four bytes, or eight where they have to. A lease is what a recording has
    in its place. The remarks on `to_cdtp` apply.

    Args:
        message: Structs with the fields of `from_mtl`, with `body` where a content has one; `properties` and `json` as VARIANTs, also where
            some have a field of their own, `property_<name>` and `json_<name>`.

    Raises:
        LocalProtocolError: An extra is not installed.

    ```python
    from trunkline import spark

    rows = spark.session().read.parquet("queue/")
    decoded = rows.select(spark.from_mtl("envelope", "header", "payload", body=True).alias("message"))
    decoded.select(spark.to_mtl("message").alias("frames")).select("frames.header", "frames.payload").show()
    ```
    """
    return written(Decoder("mtl"), message)


@needs_extra
def mtl(
    envelope: Column | str,
    header: Column | str,
    payload: Column | str,
    *,
    n_head: Column | str | None = None,
    topic: Column | str | None = None,
    properties: Literal["json"] | Mapping[str, str] | None = None,
    json: Literal["json"] | Mapping[str, str] | None = None,
    mode: Mode = "PERMISSIVE",
    body: Payload = False,
) -> Column:
    """The column of structs that `from_mtl` gives, by way of pandas, which costs a Python object a frame.

    Args:
        envelope: The frames before the header, an array.
        header: The names of commands, the statuses of replies, or the headers of data, binary.
        payload: The frames after it, an array.
        n_head: How many of these stand before the body of a content, as in `from_mtl`.
        topic: The resource of contents that do not name it, as in `from_mtl`.
        properties: The fields of the properties, by name, or ``"json"``, as in `cdtp`.
        json: Those of the JSON of commands and replies, likewise.
        mode: PERMISSIVE or FAILFAST.
        body: Whether to add the bodies of contents as a field, or their layout, as for `trunkline.columns.CdtpOptions.payload`.

    Raises:
        LocalProtocolError: There is no such mode or type, or two names differ only in case.
    """
    decoder = Decoder("mtl", properties=properties, json=json, mode=mode, payload=body, types="spark")
    frames = {"envelope": envelope, "header": header, "payload": payload}
    return structs_by_pandas(decoder, {**frames, "n_head": n_head, "topic": topic})
