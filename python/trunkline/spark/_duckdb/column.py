"""What is computed of rows, as SQL of DuckDB: pyspark's `Column` and `Window`, as far as reports use them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["Column", "Window", "column", "literal", "quoted"]

# Spark's names of types that DuckDB does not know as the same.
_TYPES = {"string": "varchar", "binary": "blob", "long": "bigint"}

# Text that stands in SQL as it is.
_PLAIN = re.compile(r"[ -~]*")


def _operator(symbol: str) -> Callable[[Column, object], Column]:
    def joined(self: Column, other: object) -> Column:
        return Column(f"({self.sql} {symbol} {_sql(other)})")

    return joined


class Column:
    """An expression of SQL, and what the column it makes is called.

    Args:
        sql: The expression, such that it can stand anywhere.
        name: The name; None if it has none yet.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, sql: str, name: str | None = None) -> None:
        self.sql = sql
        self.name = name

    def alias(self, name: str) -> Column:
        """The same by another name."""
        return Column(self.sql, name)

    def cast(self, to: str) -> Column:
        """As another type, by Spark's name of it."""
        element = re.fullmatch(r"array<(.+)>", to)
        name = f"{_TYPES.get(element[1], element[1])}[]" if element else _TYPES.get(to, to)
        return Column(f"CAST({self.sql} AS {name})", self.name)

    def over(self, window: Window) -> Column:
        """Of the rows of a window."""
        return Column(f"{self.sql} OVER ({window.sql})")

    def between(self, first: object, last: object) -> Column:
        """Whether it is neither less nor more."""
        return Column(f"({self.sql} BETWEEN {_sql(first)} AND {_sql(last)})")

    def endswith(self, end: object) -> Column:
        """Whether it is text that ends so."""
        return Column(f"ends_with({self.sql}, {_sql(end)})")

    def isNull(self) -> Column:  # noqa: N802 - pyspark's names, as all below
        """Whether it is nothing."""
        return Column(f"({self.sql} IS NULL)")

    def isNotNull(self) -> Column:  # noqa: N802
        """Whether it is anything."""
        return Column(f"({self.sql} IS NOT NULL)")

    def isin(self, *values: Any) -> Column:
        """Whether it is one of these, or of those in a list."""
        wanted: Iterable[object] = values[0] if len(values) == 1 and isinstance(values[0], list) else values
        found = ", ".join(map(_sql, wanted))
        return Column(f"({self.sql} IN ({found}))" if found else "false")

    def __getitem__(self, key: object) -> Column:
        """A field of a struct, or the value of a key of a map."""
        if isinstance(key, str):
            return Column(f"struct_extract({self.sql}, {literal(key)})", key)
        return Column(f"{self.sql}[{_sql(key)}]")

    __eq__ = _operator("=")  # type: ignore[assignment]
    __ne__ = _operator("<>")  # type: ignore[assignment]
    __lt__ = _operator("<")
    __le__ = _operator("<=")
    __gt__ = _operator(">")
    __ge__ = _operator(">=")
    __add__ = _operator("+")
    __sub__ = _operator("-")
    __mul__ = _operator("*")
    __truediv__ = _operator("/")
    __and__ = _operator("AND")
    __or__ = _operator("OR")

    def __invert__(self) -> Column:
        return Column(f"(NOT {self.sql})")


class Case(Column):
    """A column that is chosen by conditions: what `when` gives."""

    def __init__(self, cases: str) -> None:
        super().__init__(f"CASE{cases} END")
        self._cases = cases

    def when(self, condition: Column, value: object) -> Case:
        """Another value where only this holds."""
        return Case(f"{self._cases} WHEN {condition.sql} THEN {_sql(value)}")

    def otherwise(self, value: object) -> Column:
        """The value where nothing holds."""
        return Column(f"CASE{self._cases} ELSE {_sql(value)} END")


class Descending(Column):
    """A column to order by, the largest first."""


class Window:
    """The rows that a row is seen with."""

    unboundedPreceding = -(1 << 63)  # noqa: N815
    unboundedFollowing = (1 << 63) - 1  # noqa: N815
    currentRow = 0  # noqa: N815

    def __init__(self, partition: str, order: str = "", frame: str = "") -> None:
        self._partition = partition
        self._order = order
        self.sql = f"{partition} {order} {frame}"

    @classmethod
    def partitionBy(cls, *columns: str | Column) -> Window:  # noqa: N802
        """Rows that are equal in these."""
        return cls(f"PARTITION BY {', '.join(column(each).sql for each in columns)}")

    def orderBy(self, *columns: str | Column) -> Window:  # noqa: N802
        """The same in an order, each with those before it."""
        return Window(self._partition, f"ORDER BY {ordered(columns)}")

    def rowsBetween(self, first: int, last: int) -> Window:  # noqa: N802
        """Only so many rows before and after."""
        return Window(self._partition, self._order, f"ROWS BETWEEN {_bound(first)} AND {_bound(last)}")

    def rangeBetween(self, first: int, last: int) -> Window:  # noqa: N802
        """Only rows whose place in the order is so much before and after."""
        return Window(self._partition, self._order, f"RANGE BETWEEN {_bound(first)} AND {_bound(last)}")


def _bound(rows: int) -> str:
    if rows in {Window.unboundedPreceding, Window.unboundedFollowing}:
        return "UNBOUNDED PRECEDING" if rows < 0 else "UNBOUNDED FOLLOWING"
    return "CURRENT ROW" if not rows else f"{abs(rows)} {'PRECEDING' if rows < 0 else 'FOLLOWING'}"


def ordered(columns: Iterable[str | Column]) -> str:
    """What is said of columns to order by, nothing being less than anything as in Spark."""
    return ", ".join(
        f"{each.sql} {'DESC NULLS LAST' if isinstance(each, Descending) else 'ASC NULLS FIRST'}"
        for each in map(column, columns)
    )


def column(given: str | Column) -> Column:
    """A column, or that of a name; a name with a dot is that of a field."""
    if isinstance(given, Column):
        return given
    parts = given.split(".")
    return Column(".".join(map(quoted, parts)), parts[-1])


def quoted(name: str) -> str:
    """A name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(value: object) -> str:
    """A value in SQL."""
    match value:
        case None:
            return "NULL"
        case bool() | int() | float():
            return str(value).lower()
        case str() if _PLAIN.fullmatch(value):
            return "'" + value.replace("'", "''") + "'"
        case str():
            return f"decode({literal(value.encode())})"
        case bytes():
            return f"unhex('{value.hex()}')"
        case list():
            return f"[{', '.join(map(literal, value))}]"
    raise TypeError(type(value))


def _sql(value: object) -> str:
    return value.sql if isinstance(value, Column) else literal(value)
