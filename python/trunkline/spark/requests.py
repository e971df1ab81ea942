"""The requests of DCP, each with what came of it, from the rows of a capture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline.columns import Decoder
from trunkline.spark._engine import F, Window
from trunkline.spark._missing import needs_extra
from trunkline.spark.columns import decode_keeping, need_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["pair_requests"]

_NEEDED = ("capture_id", "seq", "received_at_ns", "peer", "direction", "envelope", "header", "payload")

# What a message is known by, in the order in which it was recorded.
_WHERE = ("capture_id", "seq", "received_at_ns")

_COLUMNS = (
    "capture_id",
    "seen_by",
    "service",
    "client",
    "worker",
    "forwarded_by",
    "metadata",
    "outcome",
    "latency_ns",
    "queued_ns",
    "worked_ns",
    "request_seq",
    "dispatch_seq",
    "response_seq",
    "reply_seq",
    "requested_at_ns",
)


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
      ``"undelivered"`` (the broker had a reply, and could not send it), ``"no_reply"`` (none so far), and at a broker
      ``"not_dispatched"`` (no worker was sent it, and the broker did not answer);
    - `latency_ns`: from the request to its reply, both as the role that recorded saw them first and last: at a client
      sent and received, at a worker received and sent, at a broker received from the client and sent to it;
    - `queued_ns`, `worked_ns`: at a broker, from the request to its dispatch, and from there to the worker's response;
      at a worker `worked_ns` is until it responds, with a forward too;
    - `request_seq`, `dispatch_seq`, `response_seq`, `reply_seq`: the rows they are taken from;
    - `requested_at_ns`: when the request was recorded, in nanoseconds since 1970.

    Malformed messages, and replies to requests that are not among `rows`, are left out.

    Args:
        rows: A capture, or rows of one or several; a batch, not a stream.
        compat_dagbox: Whether to accept types of four bytes too (DCP-11).

    Raises:
        LocalProtocolError: A column of a capture is missing.
    """
    need_columns(rows, _NEEDED, "requests need")
    decoder = Decoder("dcp", compat_dagbox=compat_dagbox)
    kept = (*_WHERE, "peer", "direction")

    def messages(of: Column) -> DataFrame:
        decoded = decode_keeping(rows.where(of), decoder, kept, (*kept, "type", "service", "client", "metadata"))
        return decoded.where("type IN ('request', 'reply')").select(
            *_WHERE,
            "peer",
            (F.col("direction") == "in").alias("comes"),
            (F.col("type") == "request").alias("asks"),
            "service",
            "client",
            "metadata",
        )

    # Only a ROUTER tells its peers apart, and only a broker has one.
    at_broker = _at_broker(messages(F.col("peer").isNotNull()))
    at_peers = _at_peers(messages(F.col("peer").isNull()))
    return at_broker.unionByName(at_peers).select(*_COLUMNS)


def _at_broker(messages: DataFrame) -> DataFrame:
    """A request comes in, goes out to a worker, whose response comes in and goes out to the client.

    The response is a reply, or a request that the worker sends on for the same client: that one is a new request too.
    """
    comes, asks = F.col("comes"), F.col("asks")
    address = F.when(comes & asks, F.coalesce("client", "peer")).otherwise(F.col("client"))
    # A number stands for what they have in common, which is long.
    call = ("call",)
    common = F.xxhash64("capture_id", "address", "metadata")
    # Each step below looks at parts of such a call, so this is the only time that messages move.
    named = messages.withColumn("address", address).withColumn("call", common).repartition(*call)
    # Broker to worker: the requests of one service leave in the order they came.
    queued = _paired(named, (*call, "service"), opens=asks & comes, closes=asks & ~comes, name="taken")
    # A dispatch of none that waits is a request given to another worker, the last one that there was.
    before = Window.partitionBy(*call, "service").orderBy("seq")
    again = F.last(F.when(asks & comes, F.col("seq")), ignorenulls=True).over(before)
    dispatched = queued.withColumn("request", F.when(asks & ~comes, F.coalesce("taken", again)))
    # Worker to broker: the response to the oldest of these that the worker has.
    sends_on = asks & comes & F.col("client").isNotNull() & (F.col("client") != F.col("peer"))
    answered = _paired(
        dispatched,
        (*call, "peer"),
        opens=asks & ~comes,
        closes=comes & (~asks | sends_on),
        name="ended",
        value=F.col("request"),
        also={"dispatch": F.col("seq"), "dispatched_at": F.col("received_at_ns")},
    )
    # Broker to client.
    delivered = _paired(
        answered,
        call,
        opens=comes & ~asks,
        closes=~comes & ~asks,
        name="delivered",
        value=F.col("ended"),
        also={"relayed": F.col("seq")},
    )
    # What a broker answers itself, as what asks for its status, no worker is sent; and no response comes before the reply.
    request = F.when(asks & comes, F.col("seq")).when(asks, F.col("request"))
    is_sent = F.max(asks & ~comes).over(Window.partitionBy(*call, "request"))
    replied = _paired(
        delivered.withColumn("request", request).withColumn("is_sent", is_sent),
        call,
        opens=asks & comes & ~F.col("is_sent"),
        closes=~comes & ~asks & F.col("relayed").isNull(),
        name="answered",
    )
    moment, seq = F.col("received_at_ns"), F.col("seq")
    ended = F.col("ended").isNotNull()
    roles = F.array(
        F.when(asks & comes, _event("request", seq, worker=None)),
        F.when(asks & ~comes, _event("dispatch", F.col("request"), worker=F.col("peer"))),
        F.when(ended, _event("response", F.col("ended"), worker=F.col("peer"))),
        F.when(~comes & ~asks, _event("reply", F.coalesce("delivered", "answered"), worker=None)),
    )
    forwarded_by = F.when(sends_on & ended, F.col("peer"))
    parts = replied.select(
        "capture_id",
        "service",
        "address",
        "metadata",
        "asks",
        forwarded_by.alias("forwarded_by"),
        "dispatch",
        "dispatched_at",
        seq.alias("at"),
        moment.alias("moment"),
        F.explode(F.filter(roles, lambda role: role["request"].isNotNull())).alias("role"),
    )
    is_request, is_response = (F.col("role.name") == name for name in ("request", "response"))
    is_dispatch, is_reply = (F.col("role.name") == name for name in ("dispatch", "reply"))

    def of(role: Column, value: str) -> Column:
        return F.min(F.when(role, F.col(value)))

    def latest(role: Column, value: str) -> Column:
        return F.max_by(F.when(role, F.col(value)), F.when(role, F.col("at")))

    # A request that two workers were given is the one's that responded, else the last one's.
    found = parts.groupBy("capture_id", F.col("role.request").alias("request_seq")).agg(
        of(is_request, "service").alias("service"),
        of(is_request, "address").alias("client"),
        F.first(F.when(is_request, F.col("metadata")), ignorenulls=True).alias("metadata"),
        of(is_request, "forwarded_by").alias("forwarded_by"),
        of(is_request, "moment").alias("requested_at_ns"),
        F.min_by("role.worker", F.when(is_response, F.col("at"))).alias("responder"),
        latest(is_dispatch, "at").alias("last_dispatch"),
        latest(is_dispatch, "moment").alias("last_dispatched_at"),
        F.max_by("role.worker", F.when(is_dispatch, F.col("at"))).alias("last_worker"),
        F.min_by("dispatch", F.when(is_response, F.col("at"))).alias("answered_dispatch"),
        F.min_by("dispatched_at", F.when(is_response, F.col("at"))).alias("answered_dispatched_at"),
        of(is_response, "at").alias("response_seq"),
        of(is_response, "moment").alias("responded_at"),
        F.min_by("asks", F.when(is_response, F.col("at"))).alias("forwards"),
        of(is_reply, "at").alias("reply_seq"),
        of(is_reply, "moment").alias("replied_at"),
    )
    dispatched_at = F.coalesce("answered_dispatched_at", "last_dispatched_at")
    outcome = (
        F.when(F.col("forwards"), "forward")
        .when(F.col("reply_seq").isNotNull(), "reply")
        .when(F.col("response_seq").isNotNull(), "undelivered")
        .when(F.col("last_dispatch").isNotNull(), "no_reply")
        .otherwise("not_dispatched")
    )
    return found.where("requested_at_ns IS NOT NULL").select(
        "capture_id",
        F.lit("broker").alias("seen_by"),
        "service",
        "client",
        F.coalesce("responder", "last_worker").alias("worker"),
        "forwarded_by",
        "metadata",
        outcome.alias("outcome"),
        (F.col("replied_at") - F.col("requested_at_ns")).alias("latency_ns"),
        (dispatched_at - F.col("requested_at_ns")).alias("queued_ns"),
        (F.col("responded_at") - dispatched_at).alias("worked_ns"),
        "request_seq",
        F.coalesce("answered_dispatch", "last_dispatch").alias("dispatch_seq"),
        "response_seq",
        "reply_seq",
        "requested_at_ns",
    )


def _at_peers(messages: DataFrame) -> DataFrame:
    """A worker is sent requests and responds; it asks as a client does, whose own requests go out and replies come in."""
    comes, asks = F.col("comes"), F.col("asks")
    responds = ~comes & (~asks | F.col("client").isNotNull())
    together = messages.withColumn("call", F.xxhash64("capture_id", "metadata")).repartition("call")
    worked = _paired(together, ("call", "client"), opens=comes & asks, closes=responds, name="job")
    sends_on = ~comes & asks & F.col("job").isNotNull()
    # A DEALER is told of no address but in the replies to its requests, all of which are to itself.
    own = ~comes & asks & ~sends_on
    asked = _paired(worked, ("call",), opens=own, closes=comes & ~asks, name="call")
    of = F.coalesce("job", "call", F.when(asks, F.col("seq")))
    begins = asks & ~sends_on
    ends = ~begins

    def end(value: str | Column) -> Column:
        return F.min_by(value, F.when(ends, F.col("seq")))

    found = (
        asked.withColumn("request_seq", of)
        .where("request_seq IS NOT NULL")
        .groupBy("capture_id", "request_seq")
        .agg(
            F.min(F.when(begins, F.col("service"))).alias("service"),
            F.max("client").alias("client"),
            F.first("metadata").alias("metadata"),
            F.min(F.when(begins, F.col("received_at_ns"))).alias("requested_at_ns"),
            F.bool_or(begins & comes).alias("works"),
            end("seq").alias("end_seq"),
            end("received_at_ns").alias("ended_at"),
            end("asks").alias("forwards"),
        )
    )
    took = F.col("ended_at") - F.col("requested_at_ns")
    replied = F.col("end_seq").isNotNull() & ~F.col("forwards")
    outcome = F.when(F.col("forwards"), "forward").when(replied, "reply").otherwise("no_reply")
    unknown = F.lit(None)
    return found.select(
        "capture_id",
        F.when(F.col("works"), "worker").otherwise("client").alias("seen_by"),
        "service",
        "client",
        unknown.cast("binary").alias("worker"),
        unknown.cast("binary").alias("forwarded_by"),
        "metadata",
        outcome.alias("outcome"),
        F.when(replied, took).alias("latency_ns"),
        unknown.cast("bigint").alias("queued_ns"),
        F.when(F.col("works"), took).alias("worked_ns"),
        "request_seq",
        unknown.cast("bigint").alias("dispatch_seq"),
        F.when(F.col("works"), F.col("end_seq")).alias("response_seq"),
        F.when(replied, F.col("end_seq")).alias("reply_seq"),
        "requested_at_ns",
    )


def _event(name: str, request: Column, *, worker: Column | None) -> Column:
    address = F.lit(None).cast("binary") if worker is None else worker
    return F.struct(F.lit(name).alias("name"), request.alias("request"), address.alias("worker"))


def _paired(
    messages: DataFrame,
    by: tuple[str, ...],
    *,
    opens: Column,
    closes: Column,
    name: str,
    value: Column | None = None,
    also: dict[str, Column] | None = None,
) -> DataFrame:
    """Messages that close something, each with the oldest one before that is open and equal in `by`.

    Added is `name`, for each that closes one: that one's `value`, which is its `seq` unless given, and of `also` the
    columns likewise. For one that closes none they are null.
    """
    in_order = Window.partitionBy(*by).orderBy("seq")
    before = in_order.rowsBetween(Window.unboundedPreceding, -1)
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    step = F.when(opens, 1).when(closes, -1).otherwise(0)
    # What closes nothing takes the balance below all it has ever been: from there on it is nothing.
    counted = messages.withColumn("_balance", F.sum(step).over(so_far)).withColumn(
        "_closes",
        closes & (F.col("_balance") >= F.least(F.lit(0), F.coalesce(F.min("_balance").over(before), F.lit(0)))),
    )
    number = F.when(opens, F.count_if(opens).over(so_far)).when(
        F.col("_closes"), F.count_if(F.col("_closes")).over(so_far)
    )
    numbered = counted.withColumn("_number", number)
    pair = Window.partitionBy(*by, "_number")
    wanted = {name: F.col("seq") if value is None else value, **(also or {})}
    added = {
        column: F.when(F.col("_closes"), F.max(F.when(opens, taken)).over(pair)) for column, taken in wanted.items()
    }
    return numbered.withColumns(added).drop("_balance", "_closes", "_number")
