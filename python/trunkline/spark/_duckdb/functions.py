"""pyspark's `functions` as SQL of DuckDB, as far as reports use them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from trunkline.spark._duckdb.column import Case, Column, Descending, column, literal

# Those that both call alike.
_ALIKE = [
    *("array", "bin", "bool_or", "coalesce", "concat", "count_if", "floor", "greatest", "grouping"),
    *("lag", "lead", "least", "left", "length", "log10", "lower", "map_entries", "max", "min", "row_number", "sum"),
]

_Same = TypeVar("_Same")
_Name = str | Column


def __getattr__(name: str) -> Callable[..., Column]:
    if name not in _ALIKE:
        raise AttributeError(name)
    return lambda *of: _call("array_value" if name == "array" else name, *of)


def _call(name: str, *of: _Name | int) -> Column:
    return Column(f"{name}({', '.join(str(each) if isinstance(each, int) else column(each).sql for each in of)})")


def col(name: str) -> Column:
    """The column of a name."""
    return column(name)


def lit(col: object) -> Column:
    """A value."""
    return col if isinstance(col, Column) else Column(literal(col))


def when(condition: Column, value: object) -> Case:
    """A value where a condition holds, else nothing."""
    return Case("").when(condition, value)


def desc(of: _Name) -> Column:
    """To order by, the largest first."""
    return Descending(column(of).sql)


def broadcast(frame: _Same) -> _Same:
    """What is everywhere already."""
    return frame


# Of rows


def count(of: _Name) -> Column:
    """How many rows there are, or how many have something."""
    return Column("count(*)") if of == "*" else _call("count", of)


def count_distinct(of: _Name) -> Column:
    """How many different values there are."""
    return Column(f"count(DISTINCT {column(of).sql})")


# To count exactly costs no more here.
approx_count_distinct = count_distinct


def first(of: _Name, ignorenulls: bool = False) -> Column:  # noqa: FBT001, FBT002 - as pyspark has it
    """Any value, and with `ignorenulls` one that is something."""
    return _call("any_value" if ignorenulls else "first", of)


def last(of: _Name, *, ignorenulls: bool) -> Column:
    """The latest value of a window."""
    return Column(f"last_value({column(of).sql}{' IGNORE NULLS' if ignorenulls else ''})")


def max_by(of: _Name, by: _Name) -> Column:
    """The value where another is largest."""
    return _call("arg_max_null", of, by)


def min_by(of: _Name, by: _Name) -> Column:
    """The value where another is least."""
    return _call("arg_min_null", of, by)


def collect_set(of: _Name) -> Column:
    """All different values, in a list."""
    value = column(of).sql
    return Column(f"coalesce(list(DISTINCT {value}) FILTER ({value} IS NOT NULL), [])")


def percentile_approx(of: _Name, shares: Sequence[float], _accuracy: int) -> Column:
    """The values that these shares of all do not exceed. They are exact."""
    return Column(f"quantile_disc({column(of).sql}, {literal(list(shares))})")


# Of lists, structs and maps


def struct(*of: _Name) -> Column:
    """Columns as one."""
    fields = ", ".join(f"{literal(each.name)}: {each.sql}" for each in map(column, of))
    return Column(f"{{{fields}}}")


def create_map(*pairs: Column) -> Column:
    """A map of keys and values in turn."""
    keys, values = (", ".join(each.sql for each in pairs[at::2]) for at in (0, 1))
    return Column(f"MAP([{keys}], [{values}])")


def explode(of: _Name) -> Column:
    """A row for each element."""
    return _call("unnest", of)


def get(of: _Name, at: Column) -> Column:
    """An element by its place, from 0."""
    return Column(f"{column(of).sql}[{at.sql} + 1]")


def slice(of: _Name, start: Column, length: Column) -> Column:  # noqa: A001 - as pyspark has it
    """So many elements, from one on, by its place from 1."""
    return Column(f"{column(of).sql}[{start.sql} : {start.sql} + {length.sql} - 1]")


def filter(of: _Name, wanted: Callable[[Column], Column]) -> Column:  # noqa: A001 - as pyspark has it
    """The elements for which something holds."""
    return Column(f"list_filter({column(of).sql}, lambda x: {wanted(Column('x')).sql})")


def map_filter(of: _Name, wanted: Callable[[Column, Column], Column]) -> Column:
    """The entries of a map for which something holds."""
    condition = wanted(Column("x.key"), Column("x.value")).sql
    return Column(f"map_from_entries(list_filter(map_entries({column(of).sql}), lambda x: {condition}))")


def array_contains(of: _Name, value: Column) -> Column:
    """Whether a list has a value."""
    return _call("list_contains", of, value)


def sort_array(of: _Name) -> Column:
    """A list in order."""
    return _call("list_sort", of)


def sequence(start: Column, stop: Column) -> Column:
    """A list of all numbers from one to another."""
    return _call("generate_series", start, stop)


# Of text and bytes


def substring(of: _Name, start: int, length: int) -> Column:
    """So many bytes or letters, from one on, by its place from 1."""
    return _call("array_slice", of, start, start + length - 1)


def contains(of: Column, part: Column) -> Column:
    """Whether bytes have others in them, at an even place or, as is seldom, between two."""
    return Column(f"contains(hex({of.sql}), hex({part.sql}))")


def concat_ws(between: str, *of: _Name) -> Column:
    """Texts and numbers as one text, with another between them."""
    return _call("concat_ws", Column(literal(between)), *of)


def from_json(text: Column, _type: str) -> Column:
    """An object in JSON as a map of JSON."""
    return Column(f"CAST(CAST({text.sql} AS JSON) AS MAP(VARCHAR, JSON))")


def xxhash64(*of: _Name) -> Column:
    """A number that is the same for the same values."""
    return _call("hash", *of)
