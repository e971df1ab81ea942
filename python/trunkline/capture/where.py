"""Conditions on messages, as `Selection.where` takes them: `type = 'DAT' and sequence > 100 and tags.run = 3`.

A condition is computed over whole Arrow columns, with SQL's three-valued logic: a comparison with null is neither true nor
false, and selects nothing.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from trunkline import columns
from trunkline.capture.conditions import Binder, has_fields, parse
from trunkline.capture.pruning import Wanted, within
from trunkline.errors import LocalProtocolError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Condition", "Where"]

# The size of batches when rows come one by one: rows, and bytes of frames.
_ROWS = 1024
_BYTES = 16 << 20


class Where:
    """A condition on messages.

    Args:
        text: The condition.
        protocol: The protocol of the messages; any that has all of its columns if None.

    Attributes:
        protocols: The protocols that have all of its columns, or may have them by a layout of payloads.

    Raises:
        LocalProtocolError: It cannot be read, no protocol has all of its columns, or a package is missing.
    """

    def __init__(self, text: str, protocol: str | None = None) -> None:
        self._tree = parse(text)
        found: list[str] = []
        faults: list[LocalProtocolError] = []
        for known in columns.protocols():
            if protocol in (None, known.name):
                try:
                    Binder(known.name).condition(self._tree)
                except LocalProtocolError as error:
                    faults.append(error)
                    if not has_fields(self._tree):
                        continue
                found.append(known.name)
        if not found:
            # Report the error of the protocol that knows most of the names, the first if several do.
            raise max(faults, key=lambda fault: tuple(map(int, fault.args[0].split(":")[1:3])))
        self.protocols = tuple(found)

    @functools.cached_property
    def wanted(self) -> Wanted:
        """The rows that may match."""
        return within(self._tree)

    def of(self, protocol: str, **options: Any) -> Condition:
        """The condition over the columns of one of its protocols, decoded with these options.

        Raises:
            LocalProtocolError: It has a field of payloads that no layout has.
        """
        payload, mode = options.pop("payload", False), options.pop("mode", "PERMISSIVE").upper()
        # PERMISSIVE: values of another type than compared are null, and no error.
        mode = "PERMISSIVE" if mode == "FAILFAST" else mode
        layout = columns.layout_of(payload)
        binder = Binder(protocol, layout, mode)
        evaluate = binder.condition(self._tree)
        fixed = {name: value for name, value in options.items() if name not in binder.maps} | {"mode": mode}
        if layout is not None:
            # Whether or not the condition is about payloads: what is wrong with them is an error of their message.
            fixed["payload"] = layout
        nothing = dict.fromkeys(binder.maps)
        decoders = [columns.Decoder(protocol, **(fixed | nothing | layer)) for layer in binder.layers]
        used = frozenset(binder.of_rows), frozenset(binder.decoded)
        return Condition(decoders, binder.layers, *used, evaluate, binder.casts)


@dataclass(frozen=True)
class Condition:
    """A condition, resolved for the messages of a protocol.

    Attributes:
        decoders: The decoders of its columns: several if a value is read as several types.
        layers: What each makes columns of, beside those that all have.
        of_rows: The columns of the capture's rows that it uses.
        decoded: The columns of messages that it uses.
        evaluate: Computes it.
        casts: Whether it compares numbers of different types, which Arrow's readers of files refuse of some.
    """

    decoders: list[columns.Decoder]
    layers: list[dict[str, dict[str, str]]]
    of_rows: frozenset[str]
    decoded: frozenset[str]
    evaluate: Callable[[Mapping[str, Any]], Any]
    casts: bool

    @property
    def needs(self) -> set[str]:
        """The columns of a capture that it needs."""
        return {*self.of_rows, *columns.needed(self.decoders[0], self.decoded)}

    @property
    def fields(self) -> list[pa.Field]:
        """The columns of messages that it uses; only of a condition that has one decoder."""
        [decoder] = self.decoders
        schema = decoder.row_schema()
        return [schema.field(name) for name in self.decoded]

    @property
    def is_for_rows(self) -> bool:
        """Whether it must be computed of rows: readers of files go by statistics, which leave NaN out, and refuse integers
        that no double equals; only of one that has one decoder.
        """
        from pyarrow import types

        return self.casts or any(types.is_floating(field.type) for field in self.fields)

    def filter(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The messages of a batch for which it holds, by the columns of a file of decoded messages."""
        import pyarrow as pa
        from pyarrow import compute

        names = {f"{name}/0": name for name in self.decoded} | {name: name for name in self.of_rows}
        found = self.evaluate({column: batch.column(name) for column, name in names.items()})
        if isinstance(found, pa.Scalar):
            return batch if found.as_py() else batch.slice(0, 0)
        return batch.filter(compute.fill_null(found, fill_value=False))

    def expression(self) -> Any:
        """The condition over columns of these names, for readers of Parquet; only of one that has one decoder."""
        from pyarrow import dataset

        names = {f"{name}/0": name for name in self.decoded} | {name: name for name in self.of_rows}
        found = self.evaluate({column: dataset.field(name) for column, name in names.items()})
        return dataset.scalar(found.as_py()) if not isinstance(found, dataset.Expression) else found

    def holds(self, batch: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
        """For each message of a batch, the index of its row and whether the condition holds."""
        import pyarrow as pa
        from pyarrow import compute

        frames = {name: batch.column(name) for name in columns.needed(self.decoders[0], self.decoded)}
        table: dict[str, Any] = {}
        rows: list[pa.Array] = []
        for at, decoder in enumerate(self.decoders):
            rows, decoded = [], []
            for source, messages in decoder.decode_rows(**frames):
                rows.append(source)
                decoded.append(messages.select([name for name in messages.schema.names if name in self.decoded]))
            if decoded:
                found = pa.Table.from_batches(decoded)
                table |= {f"{name}/{at}": found[name].combine_chunks() for name in found.schema.names}
        row = pa.concat_arrays([pa.array([], pa.uint32()), *rows])
        if not rows:
            return row, pa.array([], pa.bool_())
        table |= {name: batch.column(name).take(row) for name in self.of_rows}
        is_so = self.evaluate(table)
        is_so = pa.repeat(is_so, len(row)) if isinstance(is_so, pa.Scalar) else is_so
        return row, compute.fill_null(is_so, fill_value=False)

    def filtering(
        self, decode: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    ) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        """Wraps `decode`, which gives a row per message, to keep only messages for which the condition holds."""

        def decode_some(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                _, is_so = self.holds(batch)
                at = 0
                # One batch of few columns may be several batches of many columns.
                for decoded in decode(iter([batch])):
                    yield decoded.filter(is_so.slice(at, decoded.num_rows))
                    at += decoded.num_rows

        return decode_some


def wanted_messages(
    conditions: Mapping[str, Condition], rows: Iterator[dict[str, Any]]
) -> Iterator[tuple[dict[str, Any], frozenset[int]]]:
    """The rows with a message for which its protocol's condition holds, each with the positions of such messages."""
    import pyarrow as pa

    from trunkline._native import capture as _native

    for some in _batched(rows):
        wanted: dict[int, set[int]] = {}
        for protocol, condition in conditions.items():
            places = [at for at, row in enumerate(some) if row["protocol"] == protocol]
            schema = pa.schema([column for column in _native.schema() if column.name in condition.needs])
            batch = pa.RecordBatch.from_pylist([some[at] for at in places], schema)
            row, is_so = condition.holds(batch)
            for at, messages in itertools.groupby(
                zip(row.to_pylist(), is_so.to_pylist(), strict=True), key=itemgetter(0)
            ):
                chosen = {number for number, (_, is_chosen) in enumerate(messages) if is_chosen}
                if chosen:
                    wanted[places[at]] = chosen
        yield from ((some[at], frozenset(wanted[at])) for at in sorted(wanted))


def _weight(row: Mapping[str, Any]) -> int:
    """The actual bytes of a row's values, not those it claims."""
    frames = [*row["envelope"], *row["payload"]]
    return sum(len(value) for value in (*row.values(), *frames) if isinstance(value, bytes | str))


def _batched(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    some: list[dict[str, Any]] = []
    n_bytes = 0
    for row in rows:
        some.append(row)
        n_bytes += _weight(row)
        if len(some) == _ROWS or n_bytes >= _BYTES:
            yield some
            some, n_bytes = [], 0
    if some:
        yield some
