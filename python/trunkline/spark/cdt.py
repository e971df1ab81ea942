"""What Spark has of cdt: the functions of columns, and what the columns of its tables say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from trunkline.columns import Decoder
from trunkline.spark._faces import structs, structs_by_pandas, written
from trunkline.spark._lazy import F
from trunkline.spark._missing import needs_extra
from trunkline.spark.columns import as_columns

if TYPE_CHECKING:
    from pyspark.sql import Column

    from trunkline.columns import Mode, Payload

__all__ = ["from_cdt", "to_cdt"]

# The arguments of the function of SQL, and how many are required.
ARGUMENTS, REQUIRED = ("body", "topic"), 2

# The comments of columns, by table.
COMMENTS = {
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


@needs_extra
def from_cdt(
    body: Column | str,
    topic: Column | str,
    *,
    codec: Literal["json", "avro"] = "json",
    bytes_encoding: Literal["base64", "latin1"] = "base64",
    strict: bool = True,
    mode: Mode = "PERMISSIVE",
    content: Payload = False,
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
        content: Whether to add the contents as a field, or their layout, as for `trunkline.columns.CdtpOptions.payload`.

    Raises:
        LocalProtocolError: There is no such mode.
        ValueError: There is no such codec or encoding.

    ```python
    from pyspark.sql import functions as F
    from trunkline import spark

    rows = spark.session().read.parquet("fleet/")
    decoded = rows.select("seq", spark.from_cdt(F.col("payload")[0], "topic").alias("cdt"))
    decoded.where("cdt.type = 'ConfigUpdated'").select("seq", "cdt.endpoint_id", "cdt.config_id").show()
    ```
    """
    decoder = Decoder(
        "cdt", codec=codec, bytes_encoding=bytes_encoding, strict=strict, mode=mode, payload=content, types="spark"
    )
    return structs(decoder, cdt_columns(body, topic))


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
def to_cdt(
    message: Column | str,
    *,
    codec: Literal["json", "avro"] = "json",
    bytes_encoding: Literal["base64", "latin1"] = "base64",
) -> Column:
    """Encodes a column of structs as `from_cdt` gives them into a column of CDT bodies.

    It gives a struct of `envelope` and `header`, which CDT does not have, and `payload`, the body alone. JSON is compact, its members in the
    order of the schema; the time of an event is its `timestamp_ms`. What is of no kind becomes null. The remarks on `to_cdtp` apply.

    Args:
        message: Structs with the fields of `from_cdt`, with `content` where a message has one.
        codec: The encoding of bodies.
        bytes_encoding: The encoding of bytes in JSON.

    Raises:
        LocalProtocolError: An extra is not installed.
        ValueError: There is no such codec or encoding.

    ```python
    from pyspark.sql import functions as F
    from trunkline import spark

    rows = spark.session().read.parquet("fleet/")
    decoded = rows.select(spark.from_cdt(F.col("payload")[0], "topic", content=True).alias("message"))
    decoded.select(spark.to_cdt("message").alias("frames")).select("frames.payload").show()
    ```
    """
    return written(Decoder("cdt", codec=codec, bytes_encoding=bytes_encoding), message)


@needs_extra
def cdt(
    body: Column | str,
    topic: Column | str,
    *,
    codec: Literal["json", "avro"] = "json",
    bytes_encoding: Literal["base64", "latin1"] = "base64",
    strict: bool = True,
    mode: Mode = "PERMISSIVE",
    content: Payload = False,
) -> Column:
    """The column of structs that `from_cdt` gives, by way of pandas, which costs a Python object a body.

    Args:
        body: The bodies, binary.
        topic: The subjects they were sent to, which determine their kinds.
        codec: Their encoding.
        bytes_encoding: The encoding of bytes in JSON.
        strict: Whether a timeout is required, and content has to be declared as bytes.
        mode: PERMISSIVE or FAILFAST.
        content: Whether to add the contents as a field, or their layout, as for `trunkline.columns.CdtpOptions.payload`.

    Raises:
        LocalProtocolError: There is no such mode.
        ValueError: There is no such codec or encoding.
    """
    decoder = Decoder(
        "cdt", codec=codec, bytes_encoding=bytes_encoding, strict=strict, mode=mode, payload=content, types="spark"
    )
    return structs_by_pandas(decoder, cdt_columns(body, topic))
