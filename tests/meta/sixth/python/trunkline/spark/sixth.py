"""What Spark has of the made-up protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline.columns import Decoder
from trunkline.spark._faces import structs, structs_by_pandas, written

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["from_sixth", "to_sixth"]

# The arguments of the function of SQL, and how many are required.
ARGUMENTS, REQUIRED = ("header",), 1

# The comments of columns, by table.
COMMENTS = {"sixth": {"letter": "What it says"}}


def from_sixth(header: Column | str) -> Column:
    """Decodes a column of letters."""
    return structs(Decoder("sixth"), {"header": header})


def to_sixth(message: Column | str) -> Column:
    """Encodes a column of letters."""
    return written(Decoder("sixth"), message)


def sixth(header: Column | str) -> Column:
    """The same by way of pandas."""
    return structs_by_pandas(Decoder("sixth"), {"header": header})
