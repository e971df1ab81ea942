"""Tables in DuckDB: pyspark's `DataFrame`, as far as reports use it."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from trunkline.spark._duckdb.batches import filled, with_columns
from trunkline.spark._duckdb.column import Column, column, ordered, quoted

if TYPE_CHECKING:
    import pyarrow as pa

    from trunkline.spark._duckdb.session import Batch, Function, Held, Session

__all__ = ["DataFrame", "Row"]

_TYPES = {"varchar": "string", "blob": "binary", "integer": "int"}


class Row(tuple[Any, ...]):  # noqa: SLOT001 - it has its names beside
    """Values, which have names."""

    _names: tuple[str, ...]

    @classmethod
    def of(cls, names: tuple[str, ...], values: Iterable[Any]) -> Self:
        """A row of these."""
        row = cls(values)
        row._names = names
        return row

    def __getitem__(self, key: Any) -> Any:
        """A value by its name or place."""
        return super().__getitem__(self._names.index(key) if isinstance(key, str) else key)

    def asDict(self) -> dict[str, Any]:  # noqa: N802 - pyspark's names, as all below
        """The values by name."""
        return dict(zip(self._names, self, strict=True))


class _Type(NamedTuple):
    name: str

    def simpleString(self) -> str:  # noqa: N802
        """What Spark calls it."""
        name = self.name.lower()
        element = name.removesuffix("[]")
        found = _TYPES.get(element, element)
        return found if element == name else f"array<{found}>"


class _Field(NamedTuple):
    name: str
    dataType: _Type  # noqa: N815


class DataFrame:
    """A query, which is made when its rows are wanted.

    Args:
        session: Where it is made.
        sql: The query.
        columns: The names of its columns.
        held: What the query reads, and must not be gone before it.
        is_recorded: Whether the rows come as they were recorded, in the order of `seq` and then `record`.
    """

    def __init__(
        self,
        session: Session,
        sql: str,
        columns: Sequence[str],
        held: tuple[Held, ...] = (),
        *,
        is_recorded: bool = False,
    ) -> None:
        self.columns = list(columns)
        self._session = session
        self._sql = sql
        self._held = held
        self._is_recorded = is_recorded

    def _then(
        self, sql: str, columns: Sequence[str] | None = None, *others: DataFrame, in_turn: bool = False
    ) -> DataFrame:
        """What a query makes of this and others; `in_turn` where rows stay in the order they have."""
        held = dict.fromkeys([*self._held, *itertools.chain.from_iterable(other._held for other in others)])  # noqa: SLF001 - of this class
        names = self.columns if columns is None else columns
        return DataFrame(self._session, sql, names, tuple(held), is_recorded=in_turn and self._is_recorded)

    def _from(self) -> str:
        return f"FROM ({self._sql}) AS _"

    def __getitem__(self, name: str) -> Column:
        """A column."""
        return column(name)

    @property
    def schema(self) -> list[_Field]:
        """The columns with their types."""
        described = self._session.rows(f"DESCRIBE {self._sql}", self._held)
        return [_Field(name, _Type(kind)) for name, kind, *_ in described]

    @property
    def dtypes(self) -> list[tuple[str, str]]:
        """The same as Spark writes it."""
        return [(field.name, field.dataType.simpleString()) for field in self.schema]

    def select(self, *columns: str | Column | Sequence[Column]) -> DataFrame:
        """Only these columns."""
        given = columns[0] if len(columns) == 1 and isinstance(columns[0], list) else columns
        chosen: list[str | Column] = []
        for each in given:
            chosen += self.columns if isinstance(each, str) and each == "*" else [each]  # type: ignore[list-item]
        names, sql = _named(chosen)
        # What looks at other rows has its own order.
        return self._then(f"SELECT {sql} {self._from()}", names, in_turn=" OVER (" not in sql)

    def withColumns(self, columns: Mapping[str, Column]) -> DataFrame:  # noqa: N802
        """More columns, or others in their place."""
        old = [columns[name].alias(name) if name in columns else column(name) for name in self.columns]
        new = [each.alias(name) for name, each in columns.items() if name not in self.columns]
        return self.select(*old, *new)

    def withColumn(self, name: str, of: Column) -> DataFrame:  # noqa: N802
        """One more column, or another in its place."""
        return self.withColumns({name: of})

    def withColumnRenamed(self, name: str, other: str) -> DataFrame:  # noqa: N802
        """A column by another name."""
        return self.select(*(column(each).alias(other) if each == name else each for each in self.columns))

    def drop(self, *names: str) -> DataFrame:
        """All columns but these."""
        return self.select(*(name for name in self.columns if name not in names))

    def where(self, condition: str | Column) -> DataFrame:
        """Only rows for which this holds."""
        sql = condition.sql if isinstance(condition, Column) else condition
        return self._then(f"SELECT * {self._from()} WHERE {sql}", in_turn=True)

    def join(self, other: DataFrame, on: Sequence[str], how: str = "inner") -> DataFrame:
        """Rows with those of another table that are equal in these columns; of `left_semi` only the first, of `left_anti`
        those of the first without any.
        """
        by = ", ".join(map(quoted, on))
        kind = {"inner": "JOIN", "left_semi": "SEMI JOIN", "left_anti": "ANTI JOIN"}[how]
        new = [name for name in other.columns if name not in self.columns] if how == "inner" else []
        names = [*self.columns, *new]
        chosen = ", ".join(map(quoted, names))
        return self._then(f"SELECT {chosen} {self._from()} {kind} ({other._sql}) AS o USING ({by})", names, other)

    def unionByName(self, other: DataFrame, *, allowMissingColumns: bool = False) -> DataFrame:  # noqa: N802, N803
        """The rows of both; a column that only one has is nothing in the other."""
        new = [name for name in other.columns if name not in self.columns] if allowMissingColumns else []
        sql = f"SELECT * {self._from()} UNION ALL BY NAME SELECT * {other._from()}"
        return self._then(sql, [*self.columns, *new], other)

    def groupBy(self, *by: str | Column) -> _Groups:  # noqa: N802
        """Rows that are equal in these."""
        keys = [each if isinstance(each, str) else each.alias(each.name or f"_{at}") for at, each in enumerate(by)]
        return _Groups(self, keys, ", ".join(str(at + 1) for at in range(len(by))))

    def groupingSets(self, sets: Sequence[Sequence[str]], *by: str) -> _Groups:  # noqa: N802
        """Rows that are equal in the columns of each set."""
        listed = ", ".join(f"({', '.join(map(quoted, names))})" for names in sets)
        return _Groups(self, list(by), f"GROUPING SETS ({listed})")

    def agg(self, *of: Column) -> DataFrame:
        """One row, of all."""
        return _Groups(self, [], "").agg(*of)

    def distinct(self) -> DataFrame:
        """Rows that are equal once."""
        return self._then(f"SELECT DISTINCT * {self._from()}")

    def orderBy(self, *by: str | Column) -> DataFrame:  # noqa: N802
        """The rows in order."""
        return self._then(f"SELECT * {self._from()} ORDER BY {ordered(by)}")

    sortWithinPartitions = orderBy  # noqa: N815 - there is one

    def repartition(self, *_: str) -> DataFrame:
        """The same: all is in one place."""
        return self

    def coalesce(self, _: int) -> DataFrame:
        """The same, likewise."""
        return self

    def limit(self, rows: int) -> DataFrame:
        """The first rows of an order."""
        return self._then(f"{self._sql} LIMIT {rows}")

    def persist(self) -> DataFrame:
        """The same, computed once."""
        table = self._session.table(self._sql, self._held)
        return DataFrame(self._session, table.sql, self.columns, (table,))

    def unpersist(self) -> None:
        """Lets go of it: nobody has it any more."""

    def mapInArrow(self, function: Function, _schema: object = None) -> DataFrame:  # noqa: N802
        """What a function makes of the rows, each time they are wanted.

        It is given an empty batch at first, so that what it makes of that says what it makes at all.
        """
        return self._session.stream(self._sql, self._held, function, is_recorded=self._is_recorded)

    def as_recorded(self, which: str = "false", more: Callable[[DataFrame], DataFrame] | None = None) -> DataFrame:
        """The rows as they were recorded, and before those for which something holds what a function makes `more` of them.

        What is read of a capture comes so already: to sort it costs more than anything else that is done with it.
        """
        if self._is_recorded:
            if more is None:
                return self
            each = self._session.batch()
            chosen = DataFrame(self._session, each.sql, self.columns, (each,)).where(which)
            insert = functools.partial(_inserted, each=each, chosen=chosen, before=more(chosen))
            return self._session.stream(self._sql, self._held, insert, is_recorded=True)
        rows = self if more is None else self.unionByName(more(self.where(which)), allowMissingColumns=True)
        return rows.orderBy("seq", "record")

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows in batches."""
        return self._session.batches(self._sql, self._held)

    def nothing(self) -> pa.RecordBatch:
        """A batch without a row."""
        return self._session.nothing(self._sql, self._held)

    def collect(self) -> list[Row]:
        """The rows."""
        names = tuple(self.columns)
        return [Row.of(names, values) for values in self._session.rows(self._sql, self._held)]

    def first(self) -> Row | None:
        """One of the rows, if any."""
        return next(iter(self._then(f"SELECT * {self._from()} LIMIT 1").collect()), None)

    def isEmpty(self) -> bool:  # noqa: N802
        """Whether there is no row."""
        return self.first() is None

    def count(self) -> int:
        """How many rows there are."""
        ((number,),) = self._session.rows(f"SELECT count(*) {self._from()}", self._held)
        return int(number)


def _inserted(
    batches: Iterator[pa.RecordBatch], *, each: Batch, chosen: DataFrame, before: DataFrame
) -> Iterator[pa.RecordBatch]:
    """Batches, and before each, as long as it has rows that are chosen, what is made of them."""
    schema: pa.Schema | None = None
    for batch in batches:
        each.batch = batch
        schema = schema or with_columns(batch.schema, before.nothing().schema)
        if not chosen.isEmpty():
            yield from (filled(other, schema) for other in before.batches())
        yield filled(batch, schema)


class _Groups:
    def __init__(self, frame: DataFrame, keys: Sequence[str | Column], by: str) -> None:
        self._frame = frame
        self._keys = keys
        self._by = by

    def agg(self, *of: Column) -> DataFrame:
        names, sql = _named([*self._keys, *of])
        group = f" GROUP BY {self._by}" if self._by else ""
        return self._frame._then(f"SELECT {sql} {self._frame._from()}{group}", names)  # noqa: SLF001 - they are one

    def count(self) -> DataFrame:
        return self.agg(Column("count(*)", "count"))


def _named(columns: Iterable[str | Column]) -> tuple[list[str], str]:
    """The names of columns, and their SQL; those without get a name."""
    found = [column(each) for each in columns]
    names = [each.name or f"_{at}" for at, each in enumerate(found)]
    return names, ", ".join(f"{each.sql} AS {quoted(name)}" for each, name in zip(found, names, strict=True))
