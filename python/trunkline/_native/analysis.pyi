"""What messages are together, folded from decoded rows."""

from collections.abc import Sequence
from typing import Any, ClassVar, Self, final

import pyarrow as pa

__all__ = ["Fold", "Payloads", "Summary", "divide", "key"]

@final
class Fold:
    """A table of things that several rows make up, such as requests with their replies.

    It is given the decoded rows of one protocol in the order of `capture_id`, `seq` and `record`; a column `chosen` says
    which rows are selected, and a thing is if the row that begins it is. Of runs all are counted; for the map of a BOR or
    EOR, its row has its `header` and the first frame of its `payload`, or a row before it has, of record `FRAMES`.

    Args:
        name: One of `NAMES`, or a step of one.
        window_us: How long the windows of topics are, in microseconds.
        json: Whether maps are JSON text, as `to_json` makes it of the VARIANTs they are otherwise.
        buckets: It is of one of so many buckets of a stream: it keeps so large a share of what a whole table may keep, and gives
            what is settled in any order.
        is_spread: Whether these are numbered by the partitions of the stream: a state is restored only where that is as it was.
        max_bytes: How many bytes it may keep, with as large a share of the numbers of a whole table; 256 MiB, or a bucket's share
            of them, if None.

    Raises:
        ValueError: There is no such table, or no bucket, or no byte.
    """

    NAMES: ClassVar[list[str]]
    FRAMES: ClassVar[int]
    MAP_BYTES: ClassVar[int]

    def __new__(
        cls,
        name: str,
        *,
        window_us: int = 60_000_000,
        json: bool = False,
        buckets: int | None = None,
        is_spread: bool = False,
        max_bytes: int | None = None,
    ) -> Self: ...
    @property
    def protocol(self) -> str:
        """The protocol of its rows."""

    @property
    def needs(self) -> tuple[str, ...]:
        """The columns it reads."""

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns of its rows; none if a row is never updated."""

    @property
    def steps(self) -> tuple[str, ...]:
        """The folds that make its table one after the other, each of the rows of the one before: itself, or those of `contents`."""

    def divide(self, batch: Any, parts: int) -> list[tuple[int, pa.RecordBatch]]:
        """Divides rows into so many parts, with related rows in one; gives those that are not empty, each with its number.

        Of `contents` they have the properties as bytes that are equal for equal ones, and `property_redelivered`.

        Raises:
            ValueError: A column is missing, or of another type.
        """

    @property
    def evicted(self) -> int:
        """How many rows, or senders, were let go before they were complete, to keep within the bound."""

    @property
    def left_out(self) -> int:
        """How many messages are in no row, as they came for what had been let go, or there was no room for them."""

    def schema(self) -> pa.Schema:
        """The columns of its table."""

    def ddl(self) -> str:
        """The same in the words of Spark."""

    def record(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Adds the next rows of messages, and emits complete rows, except those that `emit_open` has emitted as they are now.

        Raises:
            ValueError: A column is missing, or of another type.
        """

    def emit_open(self) -> list[pa.RecordBatch]:
        """Emits open rows as the end would, except those that the last call has emitted as they are now."""

    def forget(self, before_ns: int) -> None:
        """Completes rows that are older than this moment, and were emitted as they stood."""

    def at(self, now_ns: int) -> None:
        """It is this moment, in nanoseconds since 1970, and runs without an EOR may go on; without a moment they are over."""

    def finish(self) -> list[pa.RecordBatch]:
        """Emits the rest."""

    def state(self) -> bytes:
        """Its state, as bytes that later releases read."""

    def restore(self, state: bytes) -> None:
        """Restores such a state.

        Raises:
            ValueError: These bytes are no state of this fold, or of an unknown version, or of another number of buckets.
        """

@final
class Payloads:
    """What a report counts of the payloads of one protocol, of rows decoded by a layout in any order.

    Args:
        name: The column by which they are counted.
    """

    def __new__(cls, name: str) -> Self: ...
    def record(self, batch: Any) -> None:
        """Counts more rows: with the columns `seq`, `error`, that of the name, and those of the layout.

        Raises:
            ValueError: A column is missing.
        """

    def merge(self, state: bytes) -> None:
        """Adds the counts of another, as the bytes of its state.

        Raises:
            ValueError: They are no such state.
        """

    def state(self) -> bytes:
        """Its state, as bytes."""

    def evaluate(self) -> list[dict[str, Any]]:
        """The counts of each name and field."""

@final
class Summary:
    """What a report counts of one protocol, of decoded rows in recorded order.

    Attributes:
        NAMES: How many names are counted separately; further ones are counted together.
        COLOURS: How many of what is plotted have a colour of their own.
        OTHERS: The index of all others together.
        DECADE: How many classes of times a decade has.
    """

    NAMES: ClassVar[int]
    COLOURS: ClassVar[int]
    OTHERS: ClassVar[int]
    DECADE: ClassVar[int]

    def __new__(
        cls,
        protocol: str,
        *,
        first_ns: int,
        bucket_ns: int,
        has_own: bool = False,
        is_cut: bool = False,
        has_records: bool = False,
        has_sequences: bool = True,
    ) -> Self:
        """With time divided into buckets of so many nanoseconds, from a moment on.

        Raises:
            ValueError: There is no such protocol.
        """

    @property
    def needs(self) -> list[str]:
        """The columns it reads; one more, `chosen`, may say which rows are selected."""

    def record(self, batch: pa.RecordBatch) -> None:
        """Counts more rows.

        Raises:
            ValueError: A column is missing, or of another type.
        """

    def finish(self) -> None:
        """Counts what is open: nothing more comes."""

    def merge(self, state: bytes) -> None:
        """Takes in what another has counted and finished, as the bytes of its state.

        Raises:
            ValueError: These bytes are no such state, or of another selection.
        """

    def widen(self, last_ns: int, buckets: int) -> None:
        """Makes buckets of time wider, until no more than so many lead up to a moment."""

    def state(self) -> bytes:
        """What it has counted so far."""

    def restore(self, state: bytes) -> None:
        """Restores such a state.

        Raises:
            ValueError: These bytes are no such state.
        """

    def evaluate(self, buckets: int) -> dict[str, Any]:
        """What was counted, in so many buckets of time."""

def divide(protocol: str, batch: Any, parts: int) -> list[tuple[int, pa.RecordBatch]]:
    """Decoded rows in so many parts, those that there are, each with its number.

    Rows of a protocol that a fold or a summary takes together are of one part, and keep their order.

    Raises:
        ValueError: A column is missing that is needed for this, or there is no such protocol.
    """

def key(protocol: str) -> list[list[tuple[str, Sequence[tuple[str, str | None]]]]]:
    """The values that related rows of a protocol have in common: each is that of the first of some columns that has one.

    A column is of the rows in which others have these values, or any for None.

    Raises:
        ValueError: There is no such protocol.
    """
