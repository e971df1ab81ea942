"""Columns of wire bytes into columns of what they say."""

from collections.abc import Sequence
from typing import Any, Literal, final

import numpy as np
import pyarrow as pa

from trunkline._native import Protocol
from trunkline.columns import Dtype

__all__ = ["Decoder", "Layout", "RowBatches", "Shredding", "column_kinds", "unshredded", "variant_json"]

def variant_json(column: pa.Array) -> pa.StringArray:
    """A column of VARIANTs as JSON text.

    Raises:
        TypeError: It is none.
        ValueError: One cannot be read.
    """

@final
class Shredding:
    """Which fields of a column of VARIANTs become columns of Parquet."""

    @staticmethod
    def of(column: pa.Array | pa.ChunkedArray) -> Shredding | None:
        """Those that the objects of a column often have; None if there are none.

        Raises:
            TypeError: It is no column of VARIANTs.
        """

    def shredded(self, column: pa.Array | pa.ChunkedArray) -> pa.StructArray:
        """A column of VARIANTs as Parquet has them shredded: `metadata`, `value` and `typed_value`."""

def unshredded(column: pa.Array | pa.ChunkedArray) -> pa.StructArray:
    """A shredded column of VARIANTs, put together again: the same bytes. Any other column of VARIANTs as it is.

    Raises:
        TypeError: It is none.
        ValueError: It is damaged.
    """

def column_kinds() -> list[str]:
    """Why a valid message has an empty cell, by slug."""

@final
class Layout:
    """What the bytes of payloads are, so that they become columns: see the guide to payloads.

    Layouts compare equal that are written alike, whatever their spaces; they can be pickled. `str()` of one is its text.

    ```python
    Layout("t u64, adc u16[256]").numpy()             # dtype([('t', '<u8'), ('adc', '<u2', (256,))])
    ```
    """

    def __new__(cls, layout: str | Layout | Dtype) -> Layout:
        """A layout, from its text or a dtype.

        Raises:
            LocalProtocolError: The text is no layout: the error names the line and column, and what was expected there. Or the
                dtype has none: the error names the field.
        """

    @classmethod
    def of(cls, dtype: Any, repeat: bool = False) -> Layout:
        """The layout of a dtype.

        Args:
            dtype: A `numpy.dtype`, or what makes one. The fields of a structured one become columns; any other is one
                column, `payload_value`. Sub-arrays of several dimensions are flattened.
            repeat: Whether a frame has any number of them: one column `payload_records`.

        Raises:
            LocalProtocolError: There is no layout of it, as of objects and times; the error names the field.
        """

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it makes, in order."""

    @property
    def json_columns(self) -> tuple[str, ...]:
        """Those of its columns that hold JSON as text."""

    @property
    def size(self) -> int | None:
        """The bytes of a payload; None where they vary."""

    def numpy(self) -> np.dtype[Any]:
        """The dtype of a frame.

        Raises:
            LocalProtocolError: There is none: the size varies, there are several frames, or it is no packed layout.
        """

    def __eq__(self, value: object, /) -> bool: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __getnewargs__(self) -> tuple[str]:
        """Pickles."""

@final
class Decoder:
    """A decoder of the messages of a protocol. Columns in are of anything that speaks Arrow, in one chunk or several.

    It can be pickled.
    """

    def __new__(cls, protocol: str, *, types: Literal["arrow", "spark"] = "arrow", **options: Any) -> Decoder:
        """What is to be decoded, and how.

        Args:
            protocol: The name of the protocol; see `protocols`. ``"*"`` is for all together, in rows alone: what they share, and
                all else of each in a VARIANT.
            types: Which types the columns of a layout have: exactly those of its fields, or those that Spark has.
            options: Those of the protocol that are not to be as `Protocol.options` has them. All have `mode`, what
                becomes of what is no message: ``"PERMISSIVE"`` keeps it, with `error` and its bytes; ``"FAILFAST"``
                raises; ``"DROPMALFORMED"`` leaves it out.

        Raises:
            LocalProtocolError: There is no such protocol, the protocol has no such option, or the option no such value.
            TypeError: There is no such option.
        """

    @property
    def protocol(self) -> Protocol:
        """What it decodes."""

    @property
    def inputs(self) -> tuple[tuple[str, Literal["always", "columns", "head"], tuple[str, ...]], ...]:
        """The columns that decoding takes, as `Protocol.inputs` has them; with a layout those for its columns too."""

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
        self,
        *,
        envelope: Any = None,
        header: Any = None,
        payload: Any = None,
        n_frames: Any = None,
        n_bytes: Any = None,
        topic: Any = None,
        protocol: Any = None,
        only: Sequence[str] | None = None,
    ) -> RowBatches:
        """Rows, one a message, of a CDTP2 message one a record; and before them the row of the batch that each comes from.

        They come in batches of about 64 MiB, at least one. What is wrong with a message is said when its turn comes.

        Args:
            envelope: The frames before the header, lists of binaries.
            header: The header frames, binary.
            payload: The frames after it. It may leave out some at the end that the numbers count.
            n_frames: The number of frames of each message.
            n_bytes: The bytes of all frames of each message.
            topic: What a recording says each message is about, text.
            protocol: The protocol of each message, where they are of several, text.
            only: The columns to give, in this order; all of them if None.

        Raises:
            DecodeError: What is there is no message, or one that no column can hold, a tag is of another type than
                asked for, or a payload is not of the layout; the mode is FAILFAST.
            ValueError: A column is missing, they do not fit together, or are of types they cannot be; or there is no column
                of a name in `only`.
        """

    def decode_structs(
        self,
        *,
        envelope: Any = None,
        header: Any = None,
        payload: Any = None,
        n_frames: Any = None,
        n_bytes: Any = None,
        topic: Any = None,
    ) -> pa.StructArray:
        """A struct a message, null where the columns that are looked into are.

        Raises:
            DecodeError: What is there is no message, or one that no column can hold, or a tag is of another type than
                asked for; the mode is FAILFAST.
            ValueError: A column is missing, they do not fit together, or are of types they cannot be.
        """

    def encode_structs(self, structs: Any) -> pa.StructArray:
        """The frames of a struct a message, as `decode_structs` gives it: `envelope`, `header` and `payload`, as a capture has them.

        What was no message becomes what it was, by its `_corrupt_record`; what has an `error` and no such record becomes null.

        Raises:
            ValueError: A field is missing, or of a type or a value that no message has.
        """

    @staticmethod
    def frames_ddl() -> str:
        """The fields of `encode_structs`, in the words of Spark."""

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, Any]]:
        """Pickles."""

@final
class RowBatches:
    """The rows that `Decoder.decode_rows` makes: of each batch, which row of the input each comes from, and the rows."""

    def __iter__(self) -> RowBatches: ...
    def __next__(self) -> tuple[pa.UInt32Array, pa.RecordBatch]: ...
    @property
    def mismatches(self) -> dict[str, int]:
        """How many values so far are null because they are of another type than requested, or beyond its range, by the name of
        their tag, property or field.
        """
