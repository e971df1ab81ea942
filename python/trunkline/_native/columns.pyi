"""Columns of wire bytes into columns of what they say."""

from collections.abc import Sequence
from typing import Any, final

import pyarrow as pa

__all__ = ["Cdtp", "Dcp", "column_kinds"]

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

@final
class Dcp:
    """A decoder of DCP messages. Columns in are of anything that speaks Arrow, in one chunk or several."""

    def __new__(cls, *, mode: str = "PERMISSIVE", compat_dagbox: bool = False, data: bool = False) -> Dcp:
        """What is to be decoded, and how.

        Args:
            mode: What becomes of frames that are no message.
            compat_dagbox: Whether types of four bytes are taken as well (DCP-11).
            data: Whether there is a column of the parts of the data.

        Raises:
            LocalProtocolError: There is no such mode.
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
        self, envelope: Any, header: Any, payload: Any, n_frames: Any = None, n_bytes: Any = None
    ) -> tuple[pa.UInt32Array, pa.RecordBatch]:
        """A row a message, and the row it comes from. `payload` may leave out data that the numbers count.

        Raises:
            DecodeError: Frames are no message, and the mode is FAILFAST.
            ValueError: The columns do not fit together, or are of types they cannot be.
        """

    def decode_structs(
        self, envelope: Any, header: Any, payload: Any, n_frames: Any = None, n_bytes: Any = None
    ) -> pa.StructArray:
        """A struct a message, null where its columns are.

        Raises:
            DecodeError: Frames are no message, and the mode is FAILFAST.
            ValueError: The columns do not fit together, or are of types they cannot be.
        """
