"""The runs of senders, counted from the rows of a capture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline.columns import Decoder
from trunkline.spark._missing import needs_extra
from trunkline.spark.columns import decode_keeping, need_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["followed", "runs"]

_NEEDED = ("capture_id", "seq", "received_at_ns", "header", "payload", "n_frames", "n_bytes")

# What a run is known by.
_SENDER = ("capture_id", "sender")
_RUN = (*_SENDER, "ordinal")

# The map of a BOR or EOR is left out where its message is larger, as in what a capture keeps itself.
_MAP_BYTES = 64 << 10

# A header of the specification up to its tags: the map of a BOR or EOR behind it is decoded as tags are.
_BEFORE_TAGS = b"\xa5CDTP\x01\xa0\xd6\xff\0\0\0\0"

_CONDITIONS = ("TAINTED", "INCOMPLETE", "INTERRUPTED", "ABORTED", "DEGRADED")
_INCOMPLETE, _ABORTED = 2, 8


@needs_extra
def runs(rows: DataFrame) -> DataFrame:
    """The runs in rows of a capture, one row a run: a sender from one BOR to the next (CDTP-21).

    The columns are those of `trunkline.capture.Run`, with `config` and `metadata` as VARIANTs, and the values are those
    that `Capture.runs` gives. Two differences: only runs whose rows are in `rows` are here, numbered from the first BOR
    among them; and all senders are, however many and however long their names. The order of `rows` does not matter.

    Args:
        rows: A capture, or rows of one or several; a batch, not a stream.

    Raises:
        LocalProtocolError: A column of a capture is missing.
    """
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
    from pyspark.sql.pandas.types import from_arrow_schema

    from trunkline._native.capture import run_schema

    need_columns(rows, _NEEDED, "runs take")
    decoder = Decoder("cdtp", tags=None)
    kept = ("capture_id", "seq", "received_at_ns", "n_bytes")
    messages = decode_keeping(rows, decoder, kept, (*kept, "record", "sender", "type", "sequence"))
    counted = (
        _with_maps(_counted(messages), _maps(rows, messages))
        .withColumn("config", F.col("bor_map"))
        .withColumn("metadata", F.col("eor_map"))
        .withColumn("run_id", F.coalesce("eor_run_id", "bor_run_id"))
        .withColumn("condition_code", _condition_code())
        .withColumn("condition", _condition_names())
    )
    types = {field.name: field.dataType for field in from_arrow_schema(run_schema())}
    return counted.select(*(F.col(name).cast(type_).alias(name) for name, type_ in types.items()), "config", "metadata")


def followed(messages: DataFrame, source: tuple[str, ...]) -> DataFrame:
    """Messages that know runs, with the run of each and what its number is to those before (CDTP-21).

    `messages` are decoded ones with `seq`, `record`, `type` and `sequence`; `source` tells senders apart. Added are
    `ordinal`, how many BORs there have been; `highest`, the highest number before in the run; `missed`, how many were
    skipped. A BOR or EOR is one message here, whatever its records.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    in_order = Window.partitionBy(*source).orderBy("seq", "record")
    before = Window.partitionBy(*source, "ordinal").orderBy("seq", "record").rowsBetween(Window.unboundedPreceding, -1)
    skipped = F.greatest(F.col("sequence") - F.col("highest") - 1, F.lit(0))
    return (
        messages.where("type = 'DAT' OR type IS NOT NULL AND record = 0")
        .withColumn("ordinal", F.count(F.when(F.col("type") == "BOR", 1)).over(in_order))
        .withColumn("highest", F.max("sequence").over(before))
        .withColumn("missed", F.coalesce(skipped, F.lit(0)))
    )


def _counted(messages: DataFrame) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    in_run = Window.partitionBy(*_RUN).orderBy("seq", "record")
    ends = F.col("type") == "EOR"
    data = F.col("type") == "DAT"
    same = Window.partitionBy(*_RUN, ends, "sequence").orderBy("seq", "record")
    numbered = F.col("sequence").isNotNull() & data
    return (
        followed(messages, _SENDER)
        .withColumn("stray", F.max(ends).over(in_run.rowsBetween(Window.unboundedPreceding, -1)))
        .withColumn("again", numbered & (F.row_number().over(same) > 1))
        .withColumn("late", numbered & ~F.col("again") & (F.col("sequence") <= F.col("highest")))
        .groupBy(*_RUN)
        .agg(
            F.count_if(data).alias("messages"),
            F.coalesce(F.sum(F.when(F.col("record") == 0, F.col("n_bytes"))), F.lit(0)).alias("bytes"),
            F.sum("missed").alias("missed"),
            F.count_if("again").alias("duplicates"),
            F.count_if("late").alias("out_of_order"),
            F.min("received_at_ns").alias("first_received_at_ns"),
            F.max("received_at_ns").alias("last_received_at_ns"),
            F.min(F.when(F.col("type") == "BOR", F.col("seq"))).alias("bor_seq"),
            F.min(F.when(ends, F.col("seq"))).alias("eor_seq"),
            (F.count_if("stray") > 0).alias("goes_on"),
        )
    )


def _maps(rows: DataFrame, messages: DataFrame) -> DataFrame:
    """The maps of BOR and EOR, which A and B have for a payload, CDTP2 for the tags of its second record."""
    from pyspark.sql import functions as F  # noqa: N812

    boundaries = messages.where("type IN ('BOR', 'EOR') AND record = 0").select("capture_id", "seq")
    single = F.col("n_frames") == 2
    map_header = F.when(single, F.concat(F.lit(_BEFORE_TAGS), F.get("payload", F.lit(0)))).otherwise(F.col("header"))
    headers = (
        rows.where(F.col("n_bytes") <= _MAP_BYTES)
        .join(F.broadcast(boundaries), ["capture_id", "seq"], "left_semi")
        .select("capture_id", "seq", map_header.alias("header"))
    )
    decoder = Decoder("cdtp")
    kept = ("capture_id", "seq")
    maps = decode_keeping(headers, decoder, kept, (*kept, "variant", "record", "tags"))
    return maps.where("variant = 'S' AND record = 0 OR variant = '2' AND record = 1").select(
        "capture_id",
        "seq",
        F.col("tags").alias("map"),
        _member("run_id", "STRING").alias("run_id"),
        _member("condition_code", "BIGINT").alias("condition_code"),
        _member("condition", "STRING").alias("condition"),
    )


def _member(name: str, type_: str) -> Column:
    """A member of the tags, null if it is of another type: a cast would make one of the other."""
    from pyspark.sql import functions as F  # noqa: N812

    kind = F.schema_of_variant(F.try_variant_get("tags", f"$.{name}", "variant"))
    return F.when(kind == type_, F.try_variant_get("tags", f"$.{name}", type_))


def _with_maps(counted: DataFrame, maps: DataFrame) -> DataFrame:
    """Runs with what their BOR and their EOR say, in one join: the maps take a pass over the payloads to find."""
    from pyspark.sql import functions as F  # noqa: N812

    ends = (F.struct(F.lit(name).alias("end"), F.col(f"{name}_seq").alias("seq")) for name in ("bor", "eor"))
    said = [name for name in maps.columns if name not in ("capture_id", "seq")]
    return (
        counted.select("*", F.inline(F.array(*ends)))
        .join(maps, ["capture_id", "seq"], "left")
        .groupBy(*_RUN)
        .agg(
            *(F.any_value(name).alias(name) for name in counted.columns if name not in _RUN),
            *(
                F.first(F.when(F.col("end") == end, F.col(name)), ignorenulls=True).alias(f"{end}_{name}")
                for end in ("bor", "eor")
                for name in said
            ),
        )
    )


def _condition_code() -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    names = F.split(F.trim("eor_condition"), r" *\| *")
    named = sum((F.when(F.array_contains(names, name), 1 << at).otherwise(0) for at, name in _flags()), F.lit(0))
    said = F.coalesce(F.col("eor_condition_code").bitwiseAND(31), named.cast("bigint"), F.lit(0).cast("bigint"))
    incomplete = (F.col("missed") > 0) | F.col("bor_seq").isNull() | F.col("goes_on")
    seen = F.when(incomplete, _INCOMPLETE).otherwise(0) + F.when(F.col("eor_seq").isNull(), _ABORTED).otherwise(0)
    return said.bitwiseOR(seen.cast("bigint"))


def _condition_names() -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    names = [F.when(F.col("condition_code").bitwiseAND(1 << at) != 0, F.lit(name)) for at, name in _flags()]
    return F.when(F.col("condition_code") == 0, F.lit("GOOD")).otherwise(F.concat_ws("|", *names))


def _flags() -> enumerate[str]:
    """The conditions, each with the number of its bit."""
    return enumerate(_CONDITIONS)
