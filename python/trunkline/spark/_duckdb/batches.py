"""Batches on their way from one to another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ahead", "filled", "with_columns"]


def ahead(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same, each made while whoever takes them works on the one before."""
    made = iter(batches)
    with ThreadPoolExecutor(1) as maker:
        following = maker.submit(next, made, None)
        while (batch := following.result()) is not None:
            following = maker.submit(next, made, None)
            yield batch


def with_columns(schema: pa.Schema, other: pa.Schema) -> pa.Schema:
    """A schema with those columns of another that it has not."""
    import pyarrow as pa

    return pa.schema([*schema, *(column for column in other if column.name not in schema.names)])


def filled(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch as a schema has it; a column that it has not is null."""
    import pyarrow as pa

    there = batch.schema.names
    columns = [
        batch[column.name].cast(column.type) if column.name in there else pa.nulls(batch.num_rows, column.type)
        for column in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
