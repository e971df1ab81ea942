"""What to decode and how, and the functions that decode batches, in Spark's workers and here.

Workers import this module for each query: it is to stay cheap.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

import pyarrow as pa

from trunkline._native import columns as _native
from trunkline.errors import LocalProtocolError

__all__ = ["ACCEPT", "CdtpDecoding", "DcpDecoding", "Decoding", "Mode", "Tags", "decoding_of", "rows_of", "structs_of"]

Mode = Literal["PERMISSIVE", "FAILFAST", "DROPMALFORMED"]
Tags = Literal["variant"] | Mapping[str, str] | None

# The CDTP headers there are.
ACCEPT = ("S", "A", "B", "2")


@dataclass(frozen=True, slots=True)
class CdtpDecoding:
    """What to decode of CDTP and how, in a form that travels to workers.

    Attributes:
        tags: The tags with a column of their own, and its type.
        rest: Whether there is a VARIANT of all others.
        mode: What becomes of a header that is none.
        accept: The headers that are messages.
        strict: Whether bytes after a header are an error.
        payload: Whether there is a column of payloads.
    """

    protocol: ClassVar = "cdtp"
    # What a message keeps of the row of a capture it comes from.
    kept: ClassVar = ("capture_id", "segment", "seq", "received_at_ns", "endpoint")

    tags: tuple[tuple[str, str], ...]
    rest: bool
    mode: str
    accept: tuple[str, ...]
    strict: bool
    payload: bool

    @classmethod
    def of(
        cls,
        *,
        tags: Tags = "variant",
        mode: str = "PERMISSIVE",
        accept: str | Sequence[str] = ACCEPT,
        strict: bool = True,
        payload: bool = False,
    ) -> CdtpDecoding:
        """What a user asks for.

        Raises:
            LocalProtocolError: There is no such thing.
        """
        if not (tags is None or tags == "variant" or isinstance(tags, Mapping)):
            message = f'tags={tags!r}: "variant", None or a type for each name, as {{"run": "bigint"}}'
            raise LocalProtocolError(message)
        named = {"*": "variant"} if tags == "variant" else dict(tags or {})
        rest = named.pop("*", None)
        if rest not in {None, "variant"}:
            message = f'tags={{"*": {rest!r}}}: the type of all other tags together is "variant"'
            raise LocalProtocolError(message)
        decoding = cls(tuple(named.items()), rest is not None, mode, _headers(accept), strict, payload)
        decoding.native()
        return decoding

    def native(self) -> _native.Cdtp:
        """The decoder."""
        return _cdtp(self)


@dataclass(frozen=True, slots=True)
class DcpDecoding:
    """What to decode of DCP and how, in a form that travels to workers.

    Attributes:
        mode: What becomes of frames that are no message.
        compat_dagbox: Whether types of four bytes are taken as well (DCP-11).
        payload: Whether there is a column of the parts of the data.
    """

    protocol: ClassVar = "dcp"
    kept: ClassVar = (*CdtpDecoding.kept, "peer", "direction")

    mode: str
    compat_dagbox: bool
    payload: bool

    @classmethod
    def of(cls, *, mode: str = "PERMISSIVE", compat_dagbox: bool = False, payload: bool = False) -> DcpDecoding:
        """What a user asks for.

        Raises:
            LocalProtocolError: There is no such thing.
        """
        decoding = cls(mode, compat_dagbox, payload)
        decoding.native()
        return decoding

    def native(self) -> _native.Dcp:
        """The decoder."""
        return _dcp(self)


Decoding: TypeAlias = CdtpDecoding | DcpDecoding


def decoding_of(
    protocol: str,
    *,
    tags: Tags,
    mode: str,
    accept: str | Sequence[str],
    strict: bool,
    compat_dagbox: bool,
    payload: bool,
) -> Decoding:
    """What a user asks for of any protocol.

    Raises:
        LocalProtocolError: There is no such thing, or the protocol does not have it.
    """
    if protocol == "cdtp":
        if compat_dagbox:
            raise LocalProtocolError(_not_of(protocol, "compat_dagbox"))
        return CdtpDecoding.of(tags=tags, mode=mode, accept=accept, strict=strict, payload=payload)
    if protocol == "dcp":
        asked = {"tags": tags != "variant", "accept": _headers(accept) != ACCEPT, "strict": not strict}
        for name in filter(asked.get, asked):
            raise LocalProtocolError(_not_of(protocol, name))
        return DcpDecoding.of(mode=mode, compat_dagbox=compat_dagbox, payload=payload)
    message = f"protocol={protocol!r}: the protocols that can be decoded are 'cdtp' and 'dcp'"
    raise LocalProtocolError(message)


def _headers(accept: str | Sequence[str]) -> tuple[str, ...]:
    return (accept,) if isinstance(accept, str) else tuple(accept)


def _not_of(protocol: str, name: str) -> str:
    return f"{name} says nothing of {protocol.upper()} messages: leave it out"


@functools.lru_cache
def _cdtp(decoding: CdtpDecoding) -> _native.Cdtp:
    return _native.Cdtp(
        tags=list(decoding.tags),
        rest=decoding.rest,
        mode=decoding.mode,
        accept=list(decoding.accept),
        strict=decoding.strict,
        payload=decoding.payload,
    )


@functools.lru_cache
def _dcp(decoding: DcpDecoding) -> _native.Dcp:
    return _native.Dcp(mode=decoding.mode, compat_dagbox=decoding.compat_dagbox, data=decoding.payload)


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

    def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoder = decoding.native()
        for batch in batches:
            source, decoded = decoder.decode_rows(**{name: batch.column(name) for name in frames})
            stays = batch.select(kept)
            # Mostly each row is one message.
            if len(source) != batch.num_rows or not source.equals(_same(batch.num_rows)):
                stays = stays.take(source)
            wanted = decoded if only is None else decoded.select(only)
            yield pa.RecordBatch.from_arrays([*stays.columns, *wanted.columns], names=[*kept, *wanted.schema.names])

    decode.__name__ = f"decode_{decoding.protocol}"
    return decode


@functools.lru_cache(maxsize=8)
def _same(rows: int) -> pa.UInt32Array:
    return pa.array(range(rows), pa.uint32())


def structs_of(decoding: Decoding, names: Sequence[str]) -> Callable[..., pa.Array]:
    """A function for `arrow_udf`: columns of frames, called `names`, to a column of structs."""

    def decode(*columns: pa.Array) -> pa.Array:
        return decoding.native().decode_structs(**dict(zip(names, columns, strict=True)))

    decode.__name__ = f"from_{decoding.protocol}"
    return decode
