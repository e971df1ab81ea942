"""What messages are together, folded from decoded rows."""

from typing import Any, ClassVar, Self, final

import pyarrow as pa

__all__ = ["Fold", "Summary", "divide"]

@final
class Fold:
    """A table of things that several rows make up, such as requests with their replies.

    It is given the decoded rows of one protocol in the order of `capture_id`, `seq` and `record`; a column `chosen` says
    which rows are selected, and a thing is if the row that begins it is. Of runs all are counted; for the map of a BOR or
    EOR, its row has its `header` and the first frame of its `payload`, or a row before it has, of record `FRAMES`.

    Args:
        name: One of `NAMES`.
        window_us: How long the windows of topics are, in microseconds.
        json: Whether maps are JSON text, as `to_json` makes it of the VARIANTs they are otherwise.
        buckets: It is of one of so many buckets of a stream: it keeps so large a share of what a whole table may keep, and gives
            what is settled in any order.

    Raises:
        ValueError: There is no such table, or no bucket.
    """

    NAMES: ClassVar[list[str]]
    FRAMES: ClassVar[int]
    MAP_BYTES: ClassVar[int]

    def __new__(
        cls, name: str, *, window_us: int = 60_000_000, json: bool = False, buckets: int | None = None
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
    def let_go(self) -> int:
        """How much was let go unsettled, to make way for others."""

    def schema(self) -> pa.Schema:
        """The columns of its table."""

    def ddl(self) -> str:
        """The same in the words of Spark."""

    def record(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Takes the next rows in, and gives the things that are settled, but for those that `standing` gave as they are now.

        Raises:
            ValueError: A column is missing, or of another type.
        """

    def standing(self) -> list[pa.RecordBatch]:
        """Gives what is open, as it would be given if nothing more came; of that only what it did not give the last time."""

    def forget(self, before_ns: int) -> None:
        """Nothing more is to come of what is older than this moment, and was given as it stood."""

    def finish(self) -> list[pa.RecordBatch]:
        """Gives what is left."""

    def state(self) -> bytes:
        """What it has kept."""

    def restore(self, state: bytes) -> None:
        """Goes on from what `state` gave.

        Raises:
            ValueError: These bytes are no state of this fold, or of an unknown version.
        """

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
        """Goes on from what `state` gave.

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
