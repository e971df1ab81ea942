"""The contents of MTL, each with what was said of it, from decoded messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline.errors import LocalProtocolError
from trunkline.spark._engine import F, Window
from trunkline.spark._missing import needs_extra
from trunkline.spark.columns import need_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["CONTENT_COLUMNS", "contents", "settled"]

# What contents are paired from, of what `decode` gives, beside their properties.
CONTENT_COLUMNS = (
    "capture_id",
    "seq",
    "received_at_ns",
    "endpoint",
    "direction",
    "peer",
    "type",
    "status",
    "sequence",
    "resource",
    "multiple",
    "recycle",
    "body_bytes",
)

# The property of contents that come again, where it has a column of its own.
_REDELIVERED = "property_redelivered"

# What the name of a resource for dead letters ends in.
_DEAD = ".dead"

# A data connection, as a server tells it from others.
_PEER = ("capture_id", "endpoint", "peer")


@needs_extra
def contents(decoded: DataFrame) -> DataFrame:
    """The MTL contents that a server or a client recorded, one row per content, with the other side's response to each.

    At a server, incoming contents are settled by it, and outgoing ones by the reader they went to. At a client, those that went
    out are settled by the server. The columns are:

    - `capture_id`, `endpoint`, `peer`: the data connection, of a client without a `peer`; `direction`: of a server ``"in"`` of a
      writer and ``"out"`` to a reader, of a client the other way round;
    - `resource`, `sequence`, `body_bytes`;
    - `redelivered`: whether it says that it may have been delivered before (MTL-54);
    - `attempts`: which delivery of the content it is, from 1: how many there were in this direction, of this resource and
      alike, since the last one that was not `redelivered`. Alike are contents of the same properties and size, and of the
      same body where `decoded` has the column `body`;
    - `fate`: ``"confirmed"``; ``"rejected"``, for good, and ``"recycled"``, to be sent again; ``"refused"``, by a Response;
      ``"dead_lettered"``: rejected or recycled, and one alike went out later of the resource named likewise and ``.dead``;
      or ``"open"``, where nothing was said of it, as where nothing is confirmed;
    - `status`: of the Response that refused it;
    - `latency_ns`: from the content to what settled it;
    - `seq` and `settled_seq`: the rows of both; `sent_at_ns` and `settled_at_ns`: when they were recorded, in nanoseconds
      since 1970.

    A Confirm or Reject that is ``multiple`` settles all of its connection up to its sequence that are not settled (MTL-51); a
    connection begins with the lease that is shown on it. A client does not tell its connections to one endpoint apart in what
    it records: its contents are paired as long as it has one writer and one reader there at a time. The order of the rows does
    not matter.

    Args:
        decoded: What `decode` gives for ``"mtl"``, with the columns up to `body_bytes` and with the property
            ``redelivered``, in `properties` or as `property_redelivered`. A batch, not a stream.

    Raises:
        LocalProtocolError: A column is missing.
    """
    need_columns(decoded, CONTENT_COLUMNS, "contents need what `decode` makes of")
    return settled(decoded)


def settled(decoded: DataFrame) -> DataFrame:
    """The contents, of rows that have the columns."""
    redelivered, properties = _properties(decoded)
    body = ["body"] if "body" in decoded.columns else []
    kind, is_content = F.col("type"), F.col("type") == "content"
    said = decoded.where(kind.isin("lease", "response", "content", "confirm", "reject"))
    parts = said.select(
        *CONTENT_COLUMNS,
        F.when(is_content, F.coalesce(redelivered, F.lit(col=False))).alias("redelivered"),
        F.when(is_content, F.xxhash64(*properties, "body_bytes", *body)).alias("alike"),
        # Whoever settles a content goes the other way.
        ((F.col("direction") == "out") == is_content).alias("to_reader"),
    )
    # What follows looks at one peer at a time, so that these messages move once.
    flow = (*_PEER, "connection", "to_reader")
    before = Window.partitionBy(*flow).orderBy("seq").rowsBetween(Window.unboundedPreceding, -1)
    last = F.coalesce(F.max(F.when(is_content, F.col("sequence"))).over(before), F.lit(0))
    settles = kind.isin("confirm", "reject")
    multiple = settles & F.col("multiple")
    # One that names more than was sent is about what was sent.
    number = F.when(multiple, F.least("sequence", "last")).otherwise(F.col("sequence"))
    same = Window.partitionBy(*flow, "number").orderBy("seq")
    numbered = (
        _connected(parts.repartition(*_PEER))
        .withColumn("last", last.cast("decimal(20,0)"))
        .withColumn("number", number)
        .withColumn("which", F.count_if(is_content).over(same.rowsBetween(Window.unboundedPreceding, 0)))
    )
    refuses = (kind == "response") & (F.col("status") >= 400)
    fate = F.when(refuses, "refused").when(kind == "confirm", "confirmed").when(F.col("recycle"), "recycled")
    event = F.struct(
        "seq", F.col("received_at_ns").alias("at"), fate.otherwise("rejected").alias("fate"), F.col("status")
    )
    up_to = Window.partitionBy(*flow).orderBy(F.desc("number")).rangeBetween(Window.unboundedPreceding, 0)
    after = same.rowsBetween(1, Window.unboundedFollowing)
    # A Response is about the latest content of its sequence. One that does not rise is an earlier content's otherwise.
    refused = F.min(F.when(refuses, event)).over(Window.partitionBy(*flow, "number", "which"))
    many = F.min(F.when(multiple, event)).over(up_to)
    one = F.min(F.when(settles & ~F.col("multiple"), event)).over(after)
    rises = F.col("sequence") > F.col("last")
    by = F.least("refused", F.when(rises, F.col("many")), F.when(rises, F.col("one")))
    found = numbered.withColumns({"refused": refused, "many": many, "one": one}).where(is_content).withColumn("by", by)
    return _tried(found).select(
        *_PEER,
        "direction",
        "resource",
        "sequence",
        "body_bytes",
        "redelivered",
        "attempts",
        "fate",
        "by.status",
        (F.col("by.at") - F.col("received_at_ns")).alias("latency_ns"),
        "seq",
        F.col("by.seq").alias("settled_seq"),
        F.col("received_at_ns").alias("sent_at_ns"),
        F.col("by.at").alias("settled_at_ns"),
    )


def _properties(decoded: DataFrame) -> tuple[Column, list[Column]]:
    """Whether a content says that it comes again, and what else it says."""
    types = dict(decoded.dtypes)
    typed = [name for name in types if name.startswith("property_") and name != _REDELIVERED]
    others = [F.to_json(name) if types[name] == "variant" else F.col(name) for name in typed]
    text = None
    if "properties" in types:
        text = F.to_json("properties") if types["properties"] == "variant" else F.col("properties")
        members = F.map_filter(F.from_json(text, "map<string, string>"), lambda name, _: name != "redelivered")
        others.append(F.map_entries(members))
    if _REDELIVERED in types:
        return F.col(_REDELIVERED).cast("boolean"), others
    if text is None:
        message = "contents need the property redelivered: decode properties as a VARIANT, or give it a type"
        raise LocalProtocolError(message)
    return F.get_json_object(text, "$.redelivered") == "true", others


def _connected(parts: DataFrame) -> DataFrame:
    """The same without leases and their answers, numbered by the connections of each peer: each begins with a lease."""
    so_far = (Window.unboundedPreceding, Window.currentRow)
    of_peer = Window.partitionBy(*_PEER).orderBy("seq").rowsBetween(*so_far)
    of_lease = Window.partitionBy(*_PEER, "lease")
    is_lease = F.col("type") == "lease"
    is_named = (F.col("type") == "response") & (F.col("sequence") == F.col("asked"))
    first = F.min(F.when(is_named, F.col("seq"))).over(of_lease)
    # One that shows a second lease keeps the first (MTL-34).
    granted = F.coalesce(F.max(F.when(F.col("is_answer"), F.col("status") == 200)).over(of_lease), F.lit(col=True))
    return (
        parts.withColumns(
            {
                "lease": F.count_if(is_lease).over(of_peer),
                "asked": F.last(F.when(is_lease, F.col("sequence")), ignorenulls=True).over(of_peer),
            }
        )
        .withColumn("is_answer", F.coalesce(is_named & (F.col("seq") == first), F.lit(col=False)))
        .withColumn("granted", granted)
        .withColumn("connection", F.count_if(is_lease & F.col("granted")).over(of_peer))
        .where(~is_lease & ~F.col("is_answer"))
        .drop("lease", "asked", "is_answer", "granted")
    )


def _tried(found: DataFrame) -> DataFrame:
    """The same, with which delivery each is, and with its fate."""
    resource = F.col("resource")
    name = F.when(resource.endswith(_DEAD), F.left(resource, F.length(resource) - len(_DEAD))).otherwise(resource)
    alike = ("capture_id", "direction", "alike")
    of_both = Window.partitionBy(*alike, "name").orderBy("seq")
    of_it = Window.partitionBy(*alike, "name", "resource").orderBy("seq")
    again = Window.partitionBy(*alike, "name", "resource", "fresh").orderBy("seq")
    fresh = F.count_if(~F.col("redelivered")).over(of_it.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    following = F.lead(F.struct("seq", "resource")).over(of_both)
    said = F.coalesce("by.fate", F.lit("open"))
    to_reader = F.when(F.col("peer").isNull(), "in").otherwise("out")
    is_buried = (
        (F.col("direction") == to_reader)
        & said.isin("rejected", "recycled")
        & (F.col("next.resource") == F.concat(resource, F.lit(_DEAD)))
        & (F.col("next.seq") > F.col("by.seq"))
    )
    return (
        found.withColumn("name", name)
        .withColumns({"fresh": fresh, "next": following})
        .withColumn("attempts", F.row_number().over(again))
        .withColumn("fate", F.when(is_buried, "dead_lettered").otherwise(said))
    )
