"""`trunkline spark stream`: a decoded table that grows with its captures."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trunkline._locations import Location, location_of, need_local
from trunkline._metrics.counters import Count, Level
from trunkline._text import counted
from trunkline.cli.options.selection import Selecting
from trunkline.cli.options.shared import (
    DECODABLE,
    CapturePath,
    DecodingCodec,
    Json,
    Metrics,
    Payload,
    PayloadFile,
    Tags,
    decoding_options,
    encodable,
    example,
    location,
    need_decodable,
    spoken,
)
from trunkline.cli.process.running import serving
from trunkline.cli.process.signals import Stopping
from trunkline.cli.process.spark import source_options, spark_session
from trunkline.cli.terminal.output import Output, Reason
from trunkline.errors import CaptureError, TrunklineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["STREAM", "StreamProgress", "Streamed", "stream"]

STREAM = example(
    "trunkline spark stream runs runs-messages --protocol cdtp --tags run=bigint",
    "trunkline spark stream runs runs-messages --protocol cdtp --trigger available-now --json",
)

_AVAILABLE_NOW = "available-now"

# How often to check the progress of the stream.
_LOOK_S = 0.1

# The name of the observed counters in Spark.
_METRICS = "trunkline"


def _trigger(given: str) -> str:
    if given != _AVAILABLE_NOW:
        try:
            is_one = float(given) > 0
        except ValueError:
            is_one = False
        if not is_one:
            message = f"takes {_AVAILABLE_NOW}, or the seconds from one batch to the next, not {given!r}."
            raise typer.BadParameter(message)
    return given


def stream(
    capture: Annotated[
        CapturePath,
        typer.Argument(
            metavar="CAPTURE",
            help="The capture directory, or a folder of captures, also of those to come; or the URL of one.",
            parser=location,
        ),
    ],
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="The directory of the Parquet table; what is in it stays.")
    ],
    *,
    protocol: Annotated[str, typer.Option("--protocol", help=f"What to decode: {DECODABLE}.", callback=spoken)],
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            "--checkpoint", metavar="DIR", help="Where to note how far it has come. [default: _checkpoint in OUT]"
        ),
    ] = None,
    trigger: Annotated[
        str,
        typer.Option(
            "--trigger",
            metavar="available-now|S",
            help="Decode what is there and end, or go on every S seconds.",
            callback=_trigger,
        ),
    ] = "1",
    starting_offsets: Annotated[
        str | None,
        typer.Option(
            "--starting-offsets",
            metavar="OFFSETS",
            help="Where a new table begins: earliest, the first segment; latest, what is published from now on; or the segments of an offset, in JSON.",
            show_default="earliest",
            callback=encodable,
        ),
    ] = None,
    max_bytes: Annotated[
        int | None,
        typer.Option(
            "--max-bytes-per-trigger",
            metavar="N",
            min=1,
            help="The most bytes of frames of a batch. [default: 256 MiB]",
        ),
    ] = None,
    go_on: Annotated[
        bool,
        typer.Option(
            "--no-fail-on-data-loss",
            help="Warn and go on without them if segments were deleted before they were read. [default: end with an error]",
        ),
    ] = False,
    selecting: Selecting,
    tags: Tags = None,
    codec: DecodingCodec = None,
    payload: Payload = None,
    payload_file: PayloadFile = None,
    metrics: Metrics = None,
    as_json: Json = False,
) -> None:
    """Decodes captures into a Parquet table as they grow, each message once.

    A signal ends it; started again, it goes on where it was.
    """
    options = decoding_options(tags, codec, payload=payload, payload_file=payload_file)
    need_decodable(protocol, options)
    # What is wrong with it is said before Spark starts.
    if selecting != Selecting():
        selecting.selection(protocol)
    from trunkline._native.capture import is_capture
    from trunkline.capture.stores import is_folder

    there = location_of(capture)
    if not is_folder(there):
        from trunkline.spark.source.patterns import is_pattern, matching

        if not is_pattern(there) or not any(matching(there)):
            message = f"{there}: {'matches no folder' if is_pattern(there) else 'does not exist'}"
            raise CaptureError(message)
    for written in (out, checkpoint or out):
        need_local(written)
    if out.exists() and not out.is_dir():
        message = f"{out}: is a file: choose another name"
        raise CaptureError(message)
    given = source_options(protocol, options) | {"recursive": str(not is_capture(capture)).lower()}
    # An age stays one, as an option that must be the same when the stream is started again.
    given |= selecting.source_options(None) | {"failOnDataLoss": str(not go_on).lower()}
    given |= {"startingOffsets": starting_offsets} if starting_offsets is not None else {}
    given |= {"maxBytesPerTrigger": str(max_bytes)} if max_bytes is not None else {}
    progress = StreamProgress(Output(json=as_json))
    # Replaces Spark's own signal handler.
    with (
        _in_words_of_the_command(checkpoint),
        serving(progress, lambda: progress.state, metrics) as metrics_url,
        spark_session("trunkline spark stream", process_group=0) as session,
        Stopping() as stopping,
    ):
        query = _started(session, given, there, out, checkpoint or out / "_checkpoint", trigger)
        progress.begins(there, out, metrics_url)
        while query.isActive and not stopping.stopped:
            time.sleep(_LOOK_S)
            progress.report(query)
        if query.isActive:
            query.stop()
        query.awaitTermination()
        progress.report(query)
    progress.ends("signal" if stopping.stopped else "eof", out)


@contextmanager
def _in_words_of_the_command(checkpoint: Path | None) -> Iterator[None]:
    """Rewords errors with the arguments of the command in place of Spark's options."""
    try:
        yield
    except TrunklineError as error:
        instead = "another OUT" if checkpoint is None else "another OUT and another --checkpoint"
        text = str(error).replace("another checkpointLocation", instead)
        text = text.replace("set the option failOnDataLoss to false", "give --no-fail-on-data-loss")
        raise TrunklineError(text) from error


def _started(
    session: SparkSession, options: Mapping[str, str], capture: Location, out: Path, checkpoint: Path, trigger: str
) -> StreamingQuery:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    from trunkline.spark._paths import spark_path

    _forget_unwritten_offset(checkpoint)
    rows = session.readStream.format("trunkline").options(**options).load(os.fspath(capture.absolute()))
    watched = rows.observe(_METRICS, F.count_if(F.col("error").isNotNull()).alias("errors"))
    writer = watched.writeStream.format("parquet").option("checkpointLocation", spark_path(checkpoint))
    if trigger == _AVAILABLE_NOW:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{round(float(trigger) * 1000)} milliseconds")
    return writer.start(spark_path(out))


def _forget_unwritten_offset(checkpoint: Path) -> None:
    """Removes the first offset of a stream that was killed while it wrote that: Spark would refuse the checkpoint for good."""
    offsets = checkpoint / "offsets"
    names = [path.name for path in offsets.iterdir()] if offsets.is_dir() else []
    if all(name.startswith(".") for name in names):
        for name in names:
            (offsets / name).unlink(missing_ok=True)


@dataclass
class Streamed:
    """Counters of a stream.

    Attributes:
        batches: How many batches had rows.
        rows: How many rows there were.
        rows_with_error: How many of them are of malformed messages.
        segments_behind: How many published segments were left, as of the latest batch.
    """

    batches: Count = 0
    rows: Count = 0
    rows_with_error: Count = 0
    segments_behind: Level = 0


class StreamProgress:
    """Reports the progress of a stream, batch by batch."""

    metrics_name = "spark.stream"

    def __init__(self, output: Output) -> None:
        self._output = output
        self._last = -1
        self._streamed = Streamed()
        self.state = "opening"

    @property
    def stats(self) -> Streamed:
        """The counters so far."""
        return self._streamed

    def begins(self, capture: Location, out: Path, metrics_url: str | None) -> None:
        """Reports the start."""
        self.state = "serving"
        if metrics_url is not None or not self._output.json:
            self._output.ready("spark.stream", [], f"decoding {capture} into {out}", metrics_url=metrics_url)

    def report(self, query: StreamingQuery) -> None:
        """Reports the batches that have completed since the last call."""
        for progress in query.recentProgress:
            if progress["batchId"] <= self._last or not progress["numInputRows"]:
                continue
            self._last = progress["batchId"]
            errors = (progress["observedMetrics"].get(_METRICS) or {"errors": 0})["errors"]
            behind = _behind(progress["sources"][0]["latestOffset"])
            rows = progress["numInputRows"]
            self._streamed.batches += 1
            self._streamed.rows += rows
            self._streamed.rows_with_error += errors
            self._streamed.segments_behind = behind
            text = f"batch {self._last}: {counted(rows, 'row')}"
            text += f", {errors:,} with an error" if errors else ""
            text += f"; {counted(behind, 'segment')} behind" if behind else ""
            self._output.remark("batch", text, id=self._last, rows=rows, rows_with_error=errors, segments_behind=behind)

    def ends(self, reason: Reason, out: Path) -> None:
        """Reports the end, with the counters."""
        done = self._streamed
        text = f"{counted(done.rows, 'row')} into {out}"
        text += f"; {done.rows_with_error:,} with an error" if done.rows_with_error else ""
        self._output.remark("stopped", text, reason=reason, stats=done)


def _behind(offset: Any) -> int:
    """The segments that are left, from an offset of the source, which is text behind Connect."""
    fields = json.loads(offset) if isinstance(offset, str) else offset
    return fields.get("segmentsBehind", 0) if isinstance(fields, Mapping) else 0
