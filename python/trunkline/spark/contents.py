"""The contents of MTL, each with its Confirm or Reject, from decoded messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline._native.analysis import Fold
from trunkline.errors import LocalProtocolError
from trunkline.spark._lazy import F
from trunkline.spark._missing import needs_extra
from trunkline.spark.columns import need_columns
from trunkline.spark.related.batch import folded

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["contents"]

# The property of redelivered contents, if it has a column of its own.
_REDELIVERED = "property_redelivered"

# The decoded columns that contents are paired from, beside their properties.
_NEEDED = tuple(name for name in Fold("contents").needs if name not in (_REDELIVERED, "properties"))

# The column with a hash of the properties.
_ALIKE = "property_alike"


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
      same body where `decoded` has the column `body`, a property with a column of its own as that has it: null if it is of another
      type; null where those before made way in a stream;
    - `fate`: ``"confirmed"``; ``"rejected"``, for good, and ``"recycled"``, to be sent again; ``"refused"``, by a Response;
      ``"dead_lettered"``: rejected or recycled, and one alike went out later of the resource named likewise and ``.dead``;
      ``"open"``, without any of these, as where nothing is confirmed; or ``"evicted"``: it made way for others before it had any;
    - `status`: of the Response that refused it;
    - `latency_ns`: from the content to what settled it;
    - `seq` and `settled_seq`: the rows of both; `sent_at_ns` and `settled_at_ns`: when they were recorded, in nanoseconds
      since 1970.

    A Confirm or Reject that is ``multiple`` settles all of its connection up to its sequence that are not settled (MTL-51); a
    connection begins with the lease that is shown on it. A client's capture does not distinguish its connections to one
    endpoint: its contents are paired as long as it has one writer and one reader there at a time. The order of the rows does
    not matter. Of those that are open at a time a task keeps a million, and 256 MiB: the oldest of more are evicted, and a
    warning says so. Tasks divide contents by connection, and then by what is alike.

    Of a stream a content is given when it comes and again when something becomes of it, by `capture_id` and `seq`: the last row is that
    of the batch. It is kept until it and those before it are settled, and one that was rejected until a dead letter is; at most until
    there are more than a bucket keeps, and then it is evicted, or until it is older than the watermark: then it stays as it stood. Rows that come
    late are taken as they come.

    Args:
        decoded: What `decode` gives for ``"mtl"``, with the columns up to `body_bytes` and with the property
            ``redelivered``, in `properties` or as `property_redelivered`. A batch or a stream.

    Raises:
        LocalProtocolError: A column is missing, or a stream has no RocksDB to keep its state in.

    ```python
    from trunkline import spark

    messages = spark.decode(spark.session().read.parquet("queue/"), "mtl")
    spark.contents(messages).groupBy("resource", "direction", "fate").count().show()
    ```
    """
    need_columns(decoded, _NEEDED, "contents need what `decode` makes of")
    return folded(decoded, "contents", _properties(decoded), body="body")


def _properties(decoded: DataFrame) -> dict[str, Column]:
    """Whether a content is redelivered, and a hash of its properties that have columns of their own."""
    types = dict(decoded.dtypes)
    if _REDELIVERED not in types and "properties" not in types:
        message = "contents need the property redelivered: decode properties as a VARIANT, or give it a type"
        raise LocalProtocolError(message)
    redelivered = {_REDELIVERED: F.col(_REDELIVERED).cast("boolean")} if _REDELIVERED in types else {}
    names = [name for name in types if name.startswith("property_") and name != _REDELIVERED]
    texts = [F.to_json(name) if types[name] == "variant" else F.col(name) for name in names]
    return redelivered | ({_ALIKE: _number(texts)} if texts else {})


def _number(values: list[Column]) -> Column:
    """A hash of values and of which are null, as Spark's hashes skip nulls."""
    return F.xxhash64(*values, *(value.isNull() for value in values))
