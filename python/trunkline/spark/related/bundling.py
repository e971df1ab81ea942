"""Bundles of messages that no other step has passed as rows: to move them into the JVM and out again costs more than to decode
and to fold them.

The data source reads bundles where a table is nothing but what it reads, or that as it was decoded. Of other tables that are as
they were decoded, the pass that decodes makes bundles as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from trunkline.columns import EVERY
from trunkline.errors import LocalProtocolError
from trunkline.spark._plans import SOURCE, is_cached, read_of
from trunkline.spark.columns import Origin, decode_keeping
from trunkline.spark.related.bounds import Bounds
from trunkline.spark.related.bundles import BUNDLE, Step, bundle_schema, bundled

if TYPE_CHECKING:
    from datetime import datetime

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from trunkline.spark.source.options import Settings

__all__ = ["BUNDLING", "Bundling", "in_bundles"]

# The option of the source. Only this module sets it.
BUNDLING = "trunkline.bundling"

# The column of bundles with a watermark.
_LATEST = "latest"

# The options that choose no rows.
_CHOOSES_NOTHING = {"protocol", "columns"}


@dataclass(frozen=True, slots=True)
class Bundling:
    """How the data source bundles what it reads, as text for one of its options.

    Attributes:
        step: The fold that the bundles are for.
        columns: The decoded columns that they have.
        protocol: The protocol of the messages.
        decoding: The mode and the options of decoding; None for those that the source has.
        event_time: The column of a watermark, if there is one.
    """

    step: Step
    columns: tuple[str, ...]
    protocol: str
    decoding: Mapping[str, Any] | None = None
    event_time: str | None = None

    def text(self) -> str:
        """The value of the option."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> Self:
        """The bundling of such a value.

        Raises:
            LocalProtocolError: It is none.
        """
        try:
            said = json.loads(text)
            step = said.pop("step")
            bounds = Bounds(**step.pop("bounds"))
            return cls(Step(**step, bounds=bounds), tuple(said.pop("columns")), **said)
        except (ValueError, TypeError, KeyError, AttributeError):
            message = "only functions of trunkline.spark set it"
            raise LocalProtocolError(message) from None

    def applied(self, settings: Settings) -> Settings:
        """The settings to read the messages of bundles with."""
        more = () if self.event_time in {None, *self.columns} else (self.event_time,)
        settings = replace(settings, columns=(*self.columns, *more))
        if self.decoding is None:
            return settings
        decoding = dict(self.decoding)
        mode = decoding.pop("mode")
        return replace(settings, protocol=self.protocol, is_decoded=True, decoding=decoding, mode=mode)

    def schema(self) -> pa.Schema:
        """The columns of the bundles, and with a watermark the latest moment of the messages so far."""
        schema = bundle_schema()
        return schema if self.event_time is None else schema.append(_latest())

    def bundles(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The messages in bundles."""
        if self.event_time is None:
            yield from bundled(self.step, batches)
            return
        passed = _Passed(batches, self.event_time, is_read=self.event_time in self.columns)
        held = []
        for bundles in bundled(self.step, passed):
            held.append(bundles)
            # A bundle without a moment would be one of 1970.
            if passed.latest is not None:
                yield from (passed.timed(each) for each in held)
                held = []
        yield from map(passed.timed, held)

    def fits(self, settings: Settings) -> bool:
        """Whether the source reads these messages with these settings, all of them."""
        if self.decoding is None:
            return settings.is_decoded and settings.protocol == self.protocol
        if not _CHOOSES_NOTHING.issuperset(settings.reads):
            return False
        # Without the column all rows are decoded, of whatever protocol.
        has_protocol = settings.columns is None or "protocol" in settings.columns
        return settings.protocol == self.protocol or (settings.protocol in {None, EVERY} and has_protocol)


class _Passed:
    """The batches that are bundled, without a column of times of which the latest is kept."""

    def __init__(self, batches: Iterable[pa.RecordBatch], event_time: str, *, is_read: bool) -> None:
        self._batches, self._event_time, self._is_read = batches, event_time, is_read
        self.latest: datetime | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        from pyarrow import compute

        for batch in self._batches:
            there = compute.max(batch[self._event_time]).as_py()
            self.latest = max(filter(None, (self.latest, there)), default=None)
            yield batch if self._is_read else batch.drop_columns([self._event_time])

    def timed(self, bundles: pa.RecordBatch) -> pa.RecordBatch:
        """Bundles with the latest moment so far."""
        import pyarrow as pa

        return bundles.append_column(_latest(), pa.array([self.latest] * bundles.num_rows, _latest().type))


def _latest() -> pa.Field:
    import pyarrow as pa

    return pa.field(_LATEST, pa.timestamp("us", "UTC"))


def in_bundles(decoded: DataFrame, bundling: Bundling) -> DataFrame | None:
    """The bundles of messages; None unless their table is as it was read or decoded, but for a watermark."""
    origin = Origin.of(decoded)
    if origin is None:
        return _read_in_bundles(decoded, bundling)
    if is_cached(decoded):
        return None
    from trunkline.capture.decoded import all_options

    options = origin.options
    decoding = {"mode": options["mode"]} | all_options(bundling.protocol, options)
    read = _read_in_bundles(origin.rows, replace(bundling, decoding=decoding))
    if read is not None:
        return read
    then = (bundling.bundles, BUNDLE)
    return decode_keeping(origin.rows, origin.decoder, origin.kept, bundling.columns, then=then)


def _read_in_bundles(rows: DataFrame, bundling: Bundling) -> DataFrame | None:
    """The bundles of what the data source reads with settings that fit, where the table is nothing else."""
    from trunkline.spark.source.options import Settings

    read = read_of(rows)
    if read is None or not bundling.fits(Settings.of(read.options)):
        return None
    session, watermark = rows.sparkSession, read.watermark
    if watermark is not None:
        # Spark finds it whatever its case.
        column = watermark[0].strip("`").lower()
        event_time = next((name for name in rows.columns if name.lower() == column), None)
        if event_time is None:
            return None
        bundling = replace(bundling, event_time=event_time)
    reader = session.readStream if rows.isStreaming else session.read
    bundles: DataFrame = reader.format(SOURCE).options(**read.options, **{BUNDLING: bundling.text()}).load()
    if watermark is None:
        return bundles
    # Without the column: Spark would drop bundles that come late.
    return bundles.withWatermark(_LATEST, watermark[1]).drop(_LATEST)
