"""The requests of DCP with their outcomes, from the rows of a capture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline._native.analysis import Fold
from trunkline.columns import Decoder
from trunkline.spark._missing import needs_extra
from trunkline.spark.columns import decode_keeping, need_columns
from trunkline.spark.related.batch import folded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["pair_requests"]

_NEEDED = ("capture_id", "seq", "received_at_ns", "peer", "direction", "envelope", "header", "payload")

# The columns of rows that messages keep.
_KEPT = ("capture_id", "seq", "received_at_ns", "peer", "direction")


@needs_extra
def pair_requests(rows: DataFrame, *, compat_dagbox: bool = False) -> DataFrame:
    """The DCP requests in rows of a capture, one row per request, with worker, latency and outcome.

    A request and what belongs to it have the client's address and the metadata in common; of several that have both,
    the oldest that is open is meant, as a broker takes it. The order of `rows` does not matter. The columns are:

    - `capture_id`, and `seen_by`: who recorded it, ``"broker"``, ``"client"`` or ``"worker"``;
    - `service`, `client`, `worker`, `metadata`: binary, `metadata` an array. A worker does not know its own address, a
      client neither a worker's nor, before a reply, its own: null;
    - `forwarded_by`: the address of the worker that forwarded the request, null for one of a client;
    - `outcome`: ``"reply"`` (at a broker also one of its own, without a worker), ``"forward"`` (the worker sent it on: at a broker that is a request of its own),
      ``"undelivered"`` (the broker had a reply, and could not send it), ``"no_reply"`` (none so far), ``"evicted"`` (it made way for others before it had one), and at a broker
      ``"not_dispatched"`` (no worker was sent it, and the broker did not answer);
    - `latency_ns`: from the request to its reply, both as the role that recorded saw them first and last: at a client
      sent and received, at a worker received and sent, at a broker received from the client and sent to it;
    - `queued_ns`, `worked_ns`: at a broker, from the request to its dispatch, and from there to the worker's response;
      at a worker `worked_ns` is until it responds, with a forward too;
    - `request_seq`, `dispatch_seq`, `response_seq`, `reply_seq`: the rows they are taken from;
    - `requested_at_ns`: when the request was recorded, in nanoseconds since 1970.

    At most a million requests and 256 MiB of them are open at a time in a task: the oldest of more are ``"evicted"``, and a warning says so.
    Malformed messages, and replies to requests that are not among `rows`, are left out.

    Of a stream a request is given when it comes and again when something becomes of it, by `capture_id` and `request_seq`: the last
    row is that of the batch. It is kept until it is answered or sent on; one that is not, until there are more than a bucket keeps,
    and then it is evicted, or until it is older than the watermark: then it stays as it stood. Rows that come late are taken as they come.

    Args:
        rows: A capture, or rows of one or several; a batch or a stream.
        compat_dagbox: Whether to accept types of four bytes too (DCP-11).

    Raises:
        LocalProtocolError: A column of a capture is missing, or a stream has no RocksDB to keep its state in.

    ```python
    from trunkline import spark

    requests = spark.pair_requests(spark.session().read.parquet("broker/"))
    requests.where("outcome = 'reply'").groupBy("service").agg({"latency_ns": "max"}).show()
    ```
    """
    need_columns(rows, _NEEDED, "requests need")
    decoder = Decoder("dcp", compat_dagbox=compat_dagbox)
    needs = Fold("requests").needs
    return folded(decode_keeping(rows, decoder, _KEPT, needs), "requests")
