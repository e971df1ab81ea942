"""What to decode and how, and the functions that decode batches, in Spark's workers and here.

Workers import this module for each query: it is to stay cheap.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from trunkline._native import columns as _native
from trunkline.errors import LocalProtocolError

__all__ = ["Decoding", "Mode", "Tags", "rows_of", "structs_of"]

Mode = Literal["PERMISSIVE", "FAILFAST", "DROPMALFORMED"]
Tags = Literal["variant"] | Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class Decoding:
    """What to decode and how, in a form that travels to workers.

    Attributes:
        tags: The tags with a column of their own, and its type.
        rest: Whether there is a VARIANT of all others.
        mode: What becomes of a header that is none.
        accept: The headers that are messages.
        strict: Whether bytes after a header are an error.
        payload: Whether there is a column of payloads.
    """

    tags: tuple[tuple[str, str], ...]
    rest: bool
    mode: str
    accept: tuple[str, ...]
    strict: bool
    payload: bool

    @classmethod
    def of(cls, *, tags: Tags, mode: str, accept: Sequence[str], strict: bool, payload: bool = False) -> Decoding:
        """What a user asks for.

        Raises:
            LocalProtocolError: There is no such thing.
        """
        if isinstance(tags, str) and tags != "variant":
            message = f'tags={tags!r}: "variant", None or a type for each name, as {{"run": "bigint"}}'
            raise LocalProtocolError(message)
        named = {"*": "variant"} if tags == "variant" else dict(tags or {})
        rest = named.pop("*", None)
        if rest not in {None, "variant"}:
            message = f'tags={{"*": {rest!r}}}: the type of all other tags together is "variant"'
            raise LocalProtocolError(message)
        decoding = cls(tuple(named.items()), rest is not None, mode, tuple(accept), strict, payload)
        decoding.native()
        return decoding

    def native(self) -> _native.Cdtp:
        """The decoder."""
        return _decoder(self)


@functools.lru_cache
def _decoder(decoding: Decoding) -> _native.Cdtp:
    return _native.Cdtp(
        tags=list(decoding.tags),
        rest=decoding.rest,
        mode=decoding.mode,
        accept=list(decoding.accept),
        strict=decoding.strict,
        payload=decoding.payload,
    )


def rows_of(
    decoding: Decoding, kept: Sequence[str], frames: Sequence[str], only: Sequence[str] | None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow`: batches of frames to batches with a row a message.

    Args:
        decoding: What to decode and how.
        kept: The columns that stay as they are.
        frames: The columns that the decoder takes.
        only: The columns of what is decoded that are wanted; all of them if None.
    """

    def decode_cdtp(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoder = decoding.native()
        for batch in batches:
            source, decoded = decoder.decode_rows(**{name: batch.column(name) for name in frames})
            stays = batch.select(kept)
            # Mostly each row is one message.
            if len(source) != batch.num_rows or not source.equals(_same(batch.num_rows)):
                stays = stays.take(source)
            wanted = decoded if only is None else decoded.select(only)
            yield pa.RecordBatch.from_arrays([*stays.columns, *wanted.columns], names=[*kept, *wanted.schema.names])

    return decode_cdtp


@functools.lru_cache(maxsize=8)
def _same(rows: int) -> pa.UInt32Array:
    return pa.array(range(rows), pa.uint32())


def structs_of(decoding: Decoding, names: Sequence[str]) -> Callable[..., pa.Array]:
    """A function for `arrow_udf`: columns of frames, called `names`, to a column of structs."""

    def from_cdtp(*columns: pa.Array) -> pa.Array:
        return decoding.native().decode_structs(**dict(zip(names, columns, strict=True)))

    return from_cdtp
