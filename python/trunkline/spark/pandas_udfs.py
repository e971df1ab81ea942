"""Column functions as pandas UDFs, each with the name of its protocol."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from trunkline.columns import BESIDE, Decoder
from trunkline.errors import LocalProtocolError
from trunkline.spark._missing import needs_extra
from trunkline.spark.columns import as_columns, cdt_columns, mc0_columns, sent

if TYPE_CHECKING:
    from pyspark.sql import Column

    from trunkline.columns import Mode

__all__ = ["cdt", "cdtp", "dcp", "mc0", "mtl"]


@needs_extra
def cdtp(
    header: Column | str,
    n_frames: Column | str | None = None,
    *,
    n_bytes: Column | str | None = None,
    tags: Literal["json"] | Mapping[str, str] | None = None,
    mode: Mode = "PERMISSIVE",
    accept: str | Sequence[str] = ("S", "A", "B", "2"),
    strict: bool = True,
) -> Column:
    """The column of structs that `from_cdtp` gives, by way of pandas.

    Values go as Arrow's own types, so integers stay exact beside a null. `from_cdtp` and `decode` cost less.

    Args:
        header: The header frames, binary.
        n_frames: The number of frames of each message, its header among them.
        n_bytes: The bytes of all frames of each message.
        tags: The fields of the tags, by name, or ``"json"``: a VARIANT would cost a Python object per value here, so it
            is not supported.
        mode: PERMISSIVE or FAILFAST.
        accept: The header that is a message, or several.
        strict: Whether bytes after a header are an error.

    Raises:
        LocalProtocolError: There is no such mode or type, or the names of two tags differ only in case.
    """
    decoder = Decoder("cdtp", tags=tags, mode=mode, accept=accept, strict=strict)
    return _structs(decoder, {"header": header, "n_frames": n_frames, "n_bytes": n_bytes})


@needs_extra
def dcp(
    envelope: Column | str,
    header: Column | str,
    payload: Column | str,
    *,
    n_head: Column | str | None = None,
    mode: Mode = "PERMISSIVE",
    compat_dagbox: bool = False,
    data: bool = False,
) -> Column:
    """The column of structs that `from_dcp` gives, by way of pandas, which costs a Python object a frame.

    Args:
        envelope: The frames before the header, an array.
        header: The frames that name the protocol, binary.
        payload: The frames after it, an array.
        n_head: How many of these stand before the data, as in `from_dcp`.
        mode: PERMISSIVE or FAILFAST.
        compat_dagbox: Whether to accept types of four bytes too (DCP-11).
        data: Whether to add the parts of the data as a field.

    Raises:
        LocalProtocolError: There is no such mode.
    """
    decoder = Decoder("dcp", mode=mode, compat_dagbox=compat_dagbox, payload=data)
    return _structs(decoder, {"envelope": envelope, "header": header, "payload": payload, "n_head": n_head})


@overload
def mc0(
    header: Column | str,
    payload: Column | str,
    /,
    *,
    n_head: Column | str | None = ...,
    mode: Mode = ...,
    body: bool = ...,
) -> Column: ...


@overload
def mc0(
    envelope: Column | str,
    header: Column | str,
    payload: Column | str,
    /,
    *,
    n_head: Column | str | None = ...,
    mode: Mode = ...,
    body: bool = ...,
) -> Column: ...


@needs_extra
def mc0(
    *frames: Column | str, n_head: Column | str | None = None, mode: Mode = "PERMISSIVE", body: bool = False
) -> Column:
    """The column of structs that `from_mc0` gives, by way of pandas, which costs a Python object a frame.

    Args:
        frames: The columns of the frames before the verb, of the verb, and of the frames after it, or the last two.
        n_head: How many of these stand before the body, as in `from_mc0`.
        mode: PERMISSIVE or FAILFAST.
        body: Whether to add the frames of the body as a field.

    Raises:
        LocalProtocolError: There is no such mode, or there are not two columns or three.
    """
    return _structs(Decoder("mc0", mode=mode, payload=body), mc0_columns(frames, n_head))


@needs_extra
def mtl(
    envelope: Column | str,
    header: Column | str,
    payload: Column | str,
    *,
    n_head: Column | str | None = None,
    topic: Column | str | None = None,
    properties: Literal["json"] | Mapping[str, str] | None = None,
    json: Literal["json"] | Mapping[str, str] | None = None,
    mode: Mode = "PERMISSIVE",
    body: bool = False,
) -> Column:
    """The column of structs that `from_mtl` gives, by way of pandas, which costs a Python object a frame.

    Args:
        envelope: The frames before the header, an array.
        header: The names of commands, the statuses of replies, or the headers of data, binary.
        payload: The frames after it, an array.
        n_head: How many of these stand before the body of a content, as in `from_mtl`.
        topic: The resource of contents that do not name it, as in `from_mtl`.
        properties: The fields of the properties, by name, or ``"json"``, as in `cdtp`.
        json: Those of the JSON of commands and replies, likewise.
        mode: PERMISSIVE or FAILFAST.
        body: Whether to add the bodies of contents as a field.

    Raises:
        LocalProtocolError: There is no such mode or type, or two names differ only in case.
    """
    decoder = Decoder("mtl", properties=properties, json=json, mode=mode, payload=body)
    frames = {"envelope": envelope, "header": header, "payload": payload}
    return _structs(decoder, {**frames, "n_head": n_head, "topic": topic})


@needs_extra
def cdt(
    body: Column | str,
    topic: Column | str,
    *,
    codec: Literal["json", "avro"] = "json",
    bytes_encoding: Literal["base64", "latin1"] = "base64",
    strict: bool = True,
    mode: Mode = "PERMISSIVE",
    content: bool = False,
) -> Column:
    """The column of structs that `from_cdt` gives, by way of pandas, which costs a Python object a body.

    Args:
        body: The bodies, binary.
        topic: The subjects they were sent to, which determine their kinds.
        codec: Their encoding.
        bytes_encoding: The encoding of bytes in JSON.
        strict: Whether a timeout is required, and content has to be declared as bytes.
        mode: PERMISSIVE or FAILFAST.
        content: Whether to add the contents as a field.

    Raises:
        LocalProtocolError: There is no such mode.
        ValueError: There is no such codec or encoding.
    """
    decoder = Decoder("cdt", codec=codec, bytes_encoding=bytes_encoding, strict=strict, mode=mode, payload=content)
    return _structs(decoder, cdt_columns(body, topic))


def _structs(decoder: Decoder, given: Mapping[str, Column | str | None]) -> Column:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
    from pyspark.sql.pandas.functions import pandas_udf

    from trunkline.spark._pandas_workers import frames_of

    schema = decoder.struct_schema()
    if "VARIANT" in decoder.struct_ddl():
        message = 'a pandas UDF takes typed tags and properties, e.g. {"run": "bigint"}, or "json": for "variant" use the function of `spark`'
        raise LocalProtocolError(message)
    columns = as_columns(given)
    named = sent(decoder, columns, set(schema.names))
    # pyspark's types lack functions of several columns.
    make: Any = pandas_udf
    function = make(frames_of(decoder, list(named)), decoder.struct_ddl())
    decoded = function.asNondeterministic()(*named.values())
    # A pandas UDF cannot return a null struct.
    is_there = [columns[name].isNotNull() for name in named if name not in BESIDE]
    return F.when(functools.reduce(operator.or_, is_there), decoded)
