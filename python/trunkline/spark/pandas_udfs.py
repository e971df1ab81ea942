"""Column functions for those who use pandas UDFs: each has the name of its protocol."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trunkline.errors import LocalProtocolError
from trunkline.spark._missing import needs_extra
from trunkline.spark.columns import ACCEPT, dcp_frames, headers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column

    from trunkline._decoding import Decoding, Mode

__all__ = ["cdtp", "dcp"]


@needs_extra
def cdtp(
    header: Column | str,
    n_frames: Column | str | None = None,
    *,
    n_bytes: Column | str | None = None,
    tags: Mapping[str, str] | None = None,
    mode: Mode = "PERMISSIVE",
    accept: str | Sequence[str] = ACCEPT,
    strict: bool = True,
) -> Column:
    """The column of structs that `from_cdtp` gives, by way of pandas.

    Values go as Arrow's own types, so integers stay exact beside a null. `from_cdtp` and `decode` cost less.

    Args:
        header: The header frames, binary.
        n_frames: The number of frames of each message, its header among them.
        n_bytes: The bytes of all frames of each message.
        tags: The fields of the tags, by name: a VARIANT would cost a Python object a value here, so there is none.
        mode: PERMISSIVE or FAILFAST.
        accept: The header that is a message, or several.
        strict: Whether bytes after a header are an error.

    Raises:
        LocalProtocolError: There is no such mode or type, or the names of two tags are equal but for case.
    """
    from trunkline._decoding import CdtpDecoding

    decoding = CdtpDecoding.of(tags=tags, mode=mode, accept=accept, strict=strict)
    if decoding.rest:
        message = 'a pandas UDF has typed tags only, as {"run": "bigint"}: from_cdtp has "variant"'
        raise LocalProtocolError(message)
    return _structs(decoding, headers(header, n_frames, n_bytes), header)


@needs_extra
def dcp(
    envelope: Column | str,
    header: Column | str,
    payload: Column | str,
    *,
    mode: Mode = "PERMISSIVE",
    compat_dagbox: bool = False,
    data: bool = False,
) -> Column:
    """The column of structs that `from_dcp` gives, by way of pandas, which costs a Python object a frame.

    Args:
        envelope: The frames before the header, an array.
        header: The frames that name the protocol, binary.
        payload: The frames after it, an array.
        mode: PERMISSIVE or FAILFAST.
        compat_dagbox: Whether types of four bytes are taken as well (DCP-11).
        data: Whether to add the parts of the data as a field.

    Raises:
        LocalProtocolError: There is no such mode.
    """
    from trunkline._decoding import DcpDecoding

    decoding = DcpDecoding.of(mode=mode, compat_dagbox=compat_dagbox, payload=data)
    return _structs(decoding, dcp_frames(decoding, envelope, header, payload), envelope, header, payload)


def _structs(decoding: Decoding, named: Mapping[str, Column | str], *given: Column | str) -> Column:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
    from pyspark.sql.pandas.functions import pandas_udf

    from trunkline.spark._pandas_workers import frames_of

    # Its types know nothing of functions of several columns.
    make: Any = pandas_udf
    function = make(frames_of(decoding, list(named)), decoding.native().struct_ddl())
    decoded = function.asNondeterministic()(*named.values())
    # A pandas UDF has no way to say that a struct is null.
    is_there = [(F.col(column) if isinstance(column, str) else column).isNotNull() for column in given]
    return F.when(functools.reduce(operator.or_, is_there), decoded)
