"""DuckDB in this process: tables that are gone when nobody has them any more, and what functions make of rows."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import duckdb

from trunkline.spark._duckdb.batches import ahead
from trunkline.spark._duckdb.column import literal
from trunkline.spark._duckdb.frame import DataFrame

if TYPE_CHECKING:
    import pyarrow as pa

    from trunkline.capture import Capture

__all__ = ["Function", "Held", "Session"]

Function: TypeAlias = Callable[[Iterator["pa.RecordBatch"]], Iterable["pa.RecordBatch"]]

# Rows that a function is given at a time.
_BATCH = 100_000


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


class Stream:
    """What a function makes of the rows of a query: made anew each time DuckDB reads it, and never there as a whole."""

    def __init__(self, session: Session, name: str, sql: str, held: Sequence[Held], function: Function) -> None:
        self.name = name
        self.sql = f"SELECT * FROM {name}"  # noqa: S608 - a name of ours
        self.query = (sql, held)
        self.function = function
        self._session = session
        # What it makes of nothing says what it makes at all.
        self._schema = next(iter(function(iter([session.nothing(sql, held)])))).schema

    @property
    def columns(self) -> list[str]:
        """The names of its columns."""
        names: list[str] = self._schema.names
        return names

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows, for DuckDB."""
        made = self.function(self._session.batches(*self.query))
        return self._session.reader(self._schema, made).__arrow_c_stream__(requested_schema)


class Batch:
    """One batch at a time."""

    batch: pa.RecordBatch

    def __init__(self, name: str) -> None:
        self.name = name
        self.sql = f"SELECT * FROM {name}"  # noqa: S608 - a name of ours

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Its rows, for DuckDB."""
        import pyarrow as pa

        return pa.Table.from_batches([self.batch]).__arrow_c_stream__(requested_schema)


# What a query reads, and must not be gone before it.
Held: TypeAlias = Table | Stream | Batch


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
        }
        self._database = duckdb.connect(":memory:", config=config)
        # Segments do not change, and are looked into again and again.
        self._database.execute("SET parquet_metadata_cache = true")
        self._numbers = itertools.count()
        self._on_rows = on_rows
        self._seen = 0
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._failure = None
        self._database.close()
        self._scratch.cleanup()

    def rows(self, sql: str, held: Sequence[Held] = ()) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        with self._reading(held) as connection:
            return connection.execute(sql).fetchall()

    def batches(self, sql: str, held: Sequence[Held] = ()) -> Iterator[pa.RecordBatch]:
        """The same in batches."""
        import pyarrow as pa

        with self._reading(held) as connection:
            try:
                for batch in ahead(connection.sql(sql).to_arrow_reader(_BATCH)):
                    self._seen += batch.num_rows
                    self._on_rows(self._seen)
                    yield batch
            except pa.ArrowException as error:
                # What goes wrong in DuckDB is Arrow's while it passes through Arrow's hands.
                kind = duckdb.OutOfMemoryException if "Out of Memory" in str(error) else duckdb.Error
                raise kind(str(error)) from error

    def nothing(self, sql: str, held: Sequence[Held]) -> pa.RecordBatch:
        """A batch of the columns of a query, without a row."""
        import pyarrow as pa

        with self._reading(held) as connection:
            schema = connection.sql(f"SELECT * FROM ({sql}) LIMIT 0").to_arrow_reader(1).schema  # noqa: S608 - ours
        return pa.RecordBatch.from_pylist([], schema)

    def table(self, sql: str, held: Sequence[Held] = ()) -> Table:
        """What a query gives, as a table."""
        name = f"t{next(self._numbers)}"
        with self._reading(held) as connection:
            connection.execute(f"CREATE TABLE {name} AS {sql}")
        return Table(self._database, name)

    def stream(self, sql: str, held: Sequence[Held], function: Function, *, is_recorded: bool) -> DataFrame:
        """What a function makes of the rows of a query, which come as they were recorded or not."""
        name = f"s{next(self._numbers)}"
        source = next((each for each in held if isinstance(each, Stream) and each.sql == sql), None)
        if source is None:
            made = Stream(self, name, sql, held, function)
        else:
            # What one function makes need not pass through DuckDB to the next one.
            made = Stream(self, name, *source.query, lambda batches: function(iter(source.function(batches))))
        return DataFrame(self, made.sql, made.columns, (made,), is_recorded=is_recorded)

    def batch(self) -> Batch:
        """A batch that is not there yet."""
        return Batch(f"b{next(self._numbers)}")

    def frame_of(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> DataFrame:
        """Batches as a table."""
        table = self._kept(schema, batches)
        return DataFrame(self, table.sql, schema.names, (table,))

    def _kept(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Table:
        name = f"t{next(self._numbers)}"
        with self._reading(()) as connection:
            connection.register("batches", self.reader(schema, batches))
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM batches")  # noqa: S608 - a name of ours
        return Table(self._database, name)

    def reader(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> pa.RecordBatchReader:
        """Batches for DuckDB, which keeps but the words of what is raised on the way."""
        import pyarrow as pa

        def kept() -> Iterator[pa.RecordBatch]:
            try:
                yield from ahead(batches)
            except GeneratorExit:
                raise
            except BaseException as error:
                self._failure = error
                raise

        return pa.RecordBatchReader.from_batches(schema, kept())

    def read(self, capture: Capture) -> DataFrame:
        """The rows of a capture, those too that are in no segment yet."""
        published = None
        following = 0
        if capture.segments:
            files = literal([str(path) for path in capture.segments])
            published = f"SELECT * FROM read_parquet({files}, union_by_name = true)"  # noqa: S608 - quoted
            ((last,),) = self.rows(f"SELECT max(seq) FROM ({published})")  # noqa: S608 - as above
            following = 0 if last is None else last + 1
        reader = capture.reader(first_seq=following)
        rest = self._kept(reader.schema, reader)
        # DuckDB keeps the order of files, and of rows in them, unless it is to have none.
        sql = rest.sql if published is None else f"{published} UNION ALL BY NAME {rest.sql}"
        return DataFrame(self, sql, reader.schema.names, (rest,), is_recorded=True)

    @contextmanager
    def _reading(self, held: Sequence[Held]) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection that knows what a query reads; what is raised by what makes that is raised here."""
        connection = self._database.cursor()
        try:
            for each in held:
                if not isinstance(each, Table):
                    connection.register(each.name, each)
            yield connection
        except (duckdb.Error, RuntimeError) as error:
            if self._failure is not None:
                raise self._failure from None
            # Of a signal DuckDB says no more than that, and nothing else interrupts it.
            if str(error) == "Query interrupted" or isinstance(error, duckdb.InterruptException):
                raise KeyboardInterrupt from error
            raise
        finally:
            connection.close()
