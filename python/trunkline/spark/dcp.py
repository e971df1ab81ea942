"""What Spark has of dcp: the functions of columns, and what the columns of its tables say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline.columns import Decoder
from trunkline.spark._faces import FRAMES, structs, structs_by_pandas, written
from trunkline.spark._missing import needs_extra

if TYPE_CHECKING:
    from pyspark.sql import Column

    from trunkline.columns import Mode, Payload

__all__ = ["from_dcp", "to_dcp"]

# The arguments of the function of SQL, and how many are required.
ARGUMENTS, REQUIRED = FRAMES, 3

# The comments of columns, by table.
COMMENTS = {
    "dcp": {
        "type": "register, ping, pong, request, reply or reconnect",
        "service": "The service of a register or request",
        "client": "The client's address, of a request or reply",
        "metadata": "The parts that a reply copies of its request",
        "data_parts": "The parts of the data",
        "data_bytes": "The bytes of these",
        "data": "The parts of the data themselves",
    },
    "requests": {
        "seen_by": "Who recorded it: broker, client or worker",
        "service": "The service that was asked",
        "client": "The address of the client",
        "worker": "The address of the worker",
        "forwarded_by": "The address of the worker that forwarded the request; null for one of a client",
        "metadata": "The parts that the reply copies of its request",
        "outcome": "What became of the request, as reply; no_reply if nothing has, evicted if it made way for others before",
        "latency_ns": "From the request to its reply, in nanoseconds",
        "queued_ns": "At a broker, from the request to its dispatch, in nanoseconds",
        "worked_ns": "At a broker, from the dispatch to the worker's response, in nanoseconds",
        "request_seq": "The seq of the row of the request",
        "dispatch_seq": "The seq of the row of its dispatch",
        "response_seq": "The seq of the row of the worker's response",
        "reply_seq": "The seq of the row of the reply",
        "requested_at_ns": "When the request was recorded, in nanoseconds since 1970",
    },
}


@needs_extra
def from_dcp(
    envelope: Column | str,
    header: Column | str,
    payload: Column | str,
    *,
    n_head: Column | str | None = None,
    mode: Mode = "PERMISSIVE",
    compat_dagbox: bool = False,
    data: Payload = False,
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
        data: Whether to add the parts of the data as a field, or their layout, as for `trunkline.columns.CdtpOptions.payload`.

    Raises:
        LocalProtocolError: There is no such mode.

    ```python
    from trunkline import spark

    rows = spark.session().read.parquet("broker/")
    decoded = rows.select("seq", spark.from_dcp("envelope", "header", "payload", n_head="n_head").alias("dcp"))
    decoded.where("dcp.type = 'request'").select("seq", "dcp.service", "dcp.data_bytes").show()
    ```
    """
    decoder = Decoder("dcp", mode=mode, compat_dagbox=compat_dagbox, payload=data, types="spark")
    return structs(decoder, {"envelope": envelope, "header": header, "payload": payload, "n_head": n_head})


@needs_extra
def to_dcp(message: Column | str) -> Column:
    """Encodes a column of structs as `from_dcp` gives them into a column of DCP frames.

    It gives a struct of `envelope` (the empty frame), `header` and `payload`; the remarks on `to_cdtp` apply.

    Args:
        message: Structs with the fields of `from_dcp`, with `data` where a message has any.

    Raises:
        LocalProtocolError: An extra is not installed.

    ```python
    from trunkline import spark

    rows = spark.session().read.parquet("broker/")
    decoded = rows.select(spark.from_dcp("envelope", "header", "payload", data=True).alias("message"))
    decoded.select(spark.to_dcp("message").alias("frames")).select("frames.payload").show()
    ```
    """
    return written(Decoder("dcp"), message)


@needs_extra
def dcp(
    envelope: Column | str,
    header: Column | str,
    payload: Column | str,
    *,
    n_head: Column | str | None = None,
    mode: Mode = "PERMISSIVE",
    compat_dagbox: bool = False,
    data: Payload = False,
) -> Column:
    """The column of structs that `from_dcp` gives, by way of pandas, which costs a Python object a frame.

    Args:
        envelope: The frames before the header, an array.
        header: The frames that name the protocol, binary.
        payload: The frames after it, an array.
        n_head: How many of these stand before the data, as in `from_dcp`.
        mode: PERMISSIVE or FAILFAST.
        compat_dagbox: Whether to accept types of four bytes too (DCP-11).
        data: Whether to add the parts of the data as a field, or their layout, as for `trunkline.columns.CdtpOptions.payload`.

    Raises:
        LocalProtocolError: There is no such mode.
    """
    decoder = Decoder("dcp", mode=mode, compat_dagbox=compat_dagbox, payload=data, types="spark")
    return structs_by_pandas(decoder, {"envelope": envelope, "header": header, "payload": payload, "n_head": n_head})
