"""DuckDB in this process, with tables that are gone when nobody has them any more."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import duckdb

from trunkline.spark._duckdb.column import literal
from trunkline.spark._duckdb.frame import DataFrame

if TYPE_CHECKING:
    import pyarrow as pa

    from trunkline.capture import Capture

__all__ = ["Session"]


class Table:
    """A table, which is dropped with this."""

    def __init__(self, database: duckdb.DuckDBPyConnection, name: str) -> None:
        self.sql = f"SELECT * FROM {name}"  # noqa: S608 - a name of ours
        self._database = database
        self._name = name

    def __del__(self) -> None:
        # With the session all tables are gone.
        with suppress(duckdb.ConnectionException):
            self._database.execute(f"DROP TABLE {self._name}")


class Session:
    """Computes in memory, and on disk where that does not do.

    Args:
        memory: How much of it, as ``"2GB"``.
        on_rows: Called with the number of rows that functions have been given so far.
    """

    def __init__(self, memory: str, on_rows: Callable[[int], object]) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="trunkline-report-", ignore_cleanup_errors=True)
        config: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": memory,
            "temp_directory": self._scratch.name,
            "preserve_insertion_order": False,
        }
        self._database = duckdb.connect(":memory:", config=config)
        self._numbers = itertools.count()
        self._on_rows = on_rows
        self._seen = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._database.close()
        self._scratch.cleanup()

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        return self._database.execute(sql).fetchall()

    def batches(self, sql: str, rows: int) -> Iterator[pa.RecordBatch]:
        """The same in batches of so many at most, the first of which is empty."""
        for batch in begun(self._database.cursor().sql(sql).to_arrow_reader(rows)):
            self._seen += batch.num_rows
            self._on_rows(self._seen)
            yield batch

    def table(self, sql: str) -> Table:
        """What a query gives, as a table."""
        name = f"t{next(self._numbers)}"
        self._database.execute(f"CREATE TABLE {name} AS {sql}")
        return Table(self._database, name)

    def table_of(self, batches: Iterable[pa.RecordBatch]) -> tuple[Table, list[str]]:
        """Batches, at least one, as a table, and the names of its columns."""
        import pyarrow as pa

        found = iter(batches)
        first = next(found)
        name = f"t{next(self._numbers)}"
        begin = f"CREATE TABLE {name} AS"
        for batch in itertools.chain([first], found):
            self._database.register("batch", pa.Table.from_batches([batch]))
            self._database.execute(f"{begin} SELECT * FROM batch")  # noqa: S608 - a name of ours
            begin = f"INSERT INTO {name}"
        return Table(self._database, name), first.schema.names

    def frame_of(self, batches: Iterable[pa.RecordBatch]) -> DataFrame:
        """Batches, at least one, as a table."""
        table, names = self.table_of(batches)
        return DataFrame(self, table.sql, names, (table,))

    def read(self, capture: Capture) -> DataFrame:
        """The rows of a capture, those too that are in no segment yet."""
        published = None
        following = 0
        if capture.segments:
            files = literal([str(path) for path in capture.segments])
            published = f"SELECT * FROM read_parquet({files}, union_by_name = true)"  # noqa: S608 - quoted
            ((last,),) = self.rows(f"SELECT max(seq) FROM ({published})")  # noqa: S608 - as above
            following = 0 if last is None else last + 1
        rest = self.frame_of(begun(capture.reader(first_seq=following)))
        if published is None:
            return rest
        return DataFrame(self, published, rest.columns).unionByName(rest)


def begun(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """An empty batch, which has the types, and then those of a reader."""
    import pyarrow as pa

    yield pa.RecordBatch.from_pylist([], reader.schema)
    yield from reader
