"""Columns of wire bytes into columns of what they say."""

from collections.abc import Sequence
from typing import Any, final

import pyarrow as pa

__all__ = ["Cdtp", "column_kinds"]

def column_kinds() -> list[str]:
    """Why a good message has an empty cell, by slug."""

@final
class Cdtp:
    """A decoder of CDTP headers. Columns in are of anything that speaks Arrow, in one chunk or several."""

    def __new__(
        cls,
        *,
        tags: Sequence[tuple[str, str]] = ...,
        rest: bool = True,
        mode: str = "PERMISSIVE",
        accept: Sequence[str] = ...,
        strict: bool = True,
        payload: bool = False,
    ) -> Cdtp:
        """What is to be decoded, and how.

        Args:
            tags: The tags with a column of their own, and its type.
            rest: Whether there is a VARIANT of all others.
            mode: What becomes of a header that is none.
            accept: The headers that are messages.
            strict: Whether bytes after a header are an error.
            payload: Whether there is a column of payloads.

        Raises:
            LocalProtocolError: There is no such thing.
        """

    def row_schema(self) -> pa.Schema:
        """The columns of `decode_rows`."""

    def row_ddl(self) -> str:
        """The same in the words of Spark."""

    def struct_schema(self) -> pa.Schema:
        """The fields of `decode_structs`.

        Raises:
            LocalProtocolError: The mode is DROPMALFORMED: a column function drops no rows.
        """

    def struct_ddl(self) -> str:
        """The same in the words of Spark.

        Raises:
            LocalProtocolError: The mode is DROPMALFORMED: a column function drops no rows.
        """

    def decode_rows(
        self, header: Any, n_frames: Any = None, n_bytes: Any = None, payload: Any = None
    ) -> tuple[pa.UInt32Array, pa.RecordBatch]:
        """A row a message, a CDTP2 message one a record; and the row of the header that each comes from.

        Raises:
            DecodeError: A header is none, or a tag is of another type than asked for, and the mode is FAILFAST.
            ValueError: The columns do not fit together, or are of types they cannot be.
        """

    def decode_structs(
        self, header: Any, n_frames: Any = None, n_bytes: Any = None, payload: Any = None
    ) -> pa.StructArray:
        """A struct a header.

        Raises:
            DecodeError: A header is none, or a tag is of another type than asked for, and the mode is FAILFAST.
            ValueError: The columns do not fit together, or are of types they cannot be.
        """
