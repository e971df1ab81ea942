"""Selections of messages of a capture."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from trunkline import _native as _codec
from trunkline._arguments import need_bytes, need_number, need_text, refuse
from trunkline._frames import of_row
from trunkline._protocols import RECORDED
from trunkline._text import did_you_mean, moment, readable, text_or_digits
from trunkline.capture import pruning
from trunkline.columns import EVERY, protocols
from trunkline.errors import DecodeError, LocalProtocolError
from trunkline.options import hinting

if TYPE_CHECKING:
    import pyarrow as pa

    from trunkline.capture.described import Run
    from trunkline.capture.where import Condition, Where
    from trunkline.columns import Payload

__all__ = [
    "Selected",
    "Selection",
    "Source",
    "need_selection",
    "of_records",
    "of_rows",
    "ordinals",
    "protocols_of",
    "said",
    "wanted",
]


class Source(Protocol):
    """The methods of a capture that selections use."""

    def runs(self) -> list[Run]:
        """The runs of all senders."""

    def decode(self, protocol: str, *, selection: Selection | None = ..., **options: Any) -> pa.RecordBatchReader:
        """The selected messages of a protocol."""


# The column of the message type, by protocol.
_KINDS = {protocol.name: protocol.kind for protocol in RECORDED}

# The criteria of the topic of a row, and the protocols of each.
_SUBJECTS = {
    subject: [protocol.name for protocol in RECORDED if protocol.subject == subject]
    for subject in dict.fromkeys(protocol.subject for protocol in RECORDED)
    if subject is not None
}

# The criteria that only the messages of one protocol have, and that protocol.
_OF_ONE = {
    **{criterion: protocol.name for protocol in RECORDED for criterion in protocol.criteria},
    **{subject: names[0] for subject, names in _SUBJECTS.items() if len(names) == 1},
}

_LAST = (1 << 63) - 1


@functools.lru_cache(maxsize=8)
def _where(text: str, protocol: str | None) -> Where:
    """A condition, parsed once per text and protocol."""
    from trunkline.capture.where import Where

    return Where(text, protocol)


@hinting
@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A selection of messages of a capture: those that match all criteria; None matches anything.

    Segments that cannot contain any, by their statistics, are not read.

    Args:
        protocol: The protocol, e.g. ``"cdtp"``.
        sender: The sender's name; selects CDTP.
        run: A run, by its ordinal or its id; selects CDTP. It extends from its BOR to the next one of that sender.
        type: The message type, as in the decoded table: ``"BOR"``, ``"REQUEST"``, ``"PUT"``, ``"Content"`` …
        service: The service; selects DCP.
        topic: The topic of mc0, or the subject of CDT.
        resource: The resource; selects MTL.
        peer: The routing id of the sender or recipient.
        direction: ``"in"`` or ``"out"``.
        since_ns: Received at this time or later, in nanoseconds since 1970.
        until_ns: Received before this time.
        where: A condition on the columns of messages and rows, e.g. ``"type = 'DAT' and tags.run = 3"``; selects
            messages of protocols that have all of these columns. Requires the extra ``capture``.

    Raises:
        LocalProtocolError: Criteria exclude each other, such as a sender and a service; no message has such a type; or the
            condition is invalid, or names an unknown column.

    ```pycon
    >>> import tempfile
    >>> from trunkline import capture
    >>> from trunkline.demo import DATA
    >>> with tempfile.TemporaryDirectory() as runs:
    ...     imported = capture.import_(DATA / "cdtp2-release-1.0.2.jsonl.gz", runs)
    ...     first = capture.Selection(run="run_1", where="type = 'DAT' and sequence <= 2")
    ...     capture.open(runs).decode("cdtp", selection=first, columns=["sequence"]).read_all()["sequence"].to_pylist()
    [1, 2, 1, 2]

    ```
    """

    protocol: str | None = None
    sender: str | None = None
    run: int | str | None = None
    type: str | None = None
    service: str | None = None
    topic: str | None = None
    resource: str | None = None
    peer: bytes | None = None
    direction: str | None = None
    since_ns: int | None = None
    until_ns: int | None = None
    where: str | None = None

    def __post_init__(self) -> None:
        self._need_types()
        subjects = [name for name in _SUBJECTS if getattr(self, name) is not None]
        if len(subjects) > 1:
            message = f"no message has both a {subjects[0]} and a {subjects[1]}"
            raise LocalProtocolError(message)
        if self.protocol is not None and self.protocol not in _KINDS:
            message = f"protocol must be one of {', '.join(_KINDS)}, not {self.protocol!r}"
            raise LocalProtocolError(message)
        if self.direction not in (None, "in", "out"):
            message = f"direction must be 'in' or 'out', not {self.direction!r}"
            raise LocalProtocolError(message)
        spoken = self._spoken()
        if len(spoken) > 1:
            message = f"no message is of both {' and '.join(sorted(spoken))}"
            raise LocalProtocolError(message)
        self._need_type()
        self.condition()

    def _need_types(self) -> None:
        """Refuses criteria of other types, which would match nothing."""
        for name in ("sender", "type", "service", "topic", "resource", "where"):
            need_text(name, getattr(self, name), may_be_none=True)
        if not isinstance(self.run, str | None) and not hasattr(self.run, "__index__"):
            refuse("run", "a whole number, a str or None", self.run)
        if self.peer is not None:
            need_bytes("peer", self.peer)
        for name in ("since_ns", "until_ns"):
            need_number(name, getattr(self, name), least=-_LAST - 1, may_be_none=True)

    def _need_type(self) -> None:
        """Refuses a type that no message of the selected protocols has."""
        if self.type is None:
            return
        spoken = self._spoken()
        known = {each.name: each.message_types for each in protocols() if each.name in spoken or not spoken}
        if not any(_has_type(types, self.type) for types in known.values()):
            what = " of ".join(("message", *spoken))
            lists = (
                ", ".join(types) if name in spoken else f"{name}: {', '.join(types)}" for name, types in known.items()
            )
            every = itertools.chain.from_iterable(known.values())
            hint = did_you_mean(self.type, every, ", ") or f" (choose from {'; '.join(lists)})"
            message = f"type: no {what} is {self.type!r}{hint}"
            raise LocalProtocolError(message)

    @property
    def spoken(self) -> str | None:
        """The only protocol of selected messages; None if there may be several."""
        spoken = next(iter(self._spoken()), None)
        condition = None if spoken is not None else self.condition()
        return condition.protocols[0] if condition is not None and len(condition.protocols) == 1 else spoken

    def condition(self) -> Where | None:
        """The condition of `where` for the selected protocols; None without one."""
        if self.where is None:
            return None
        return _where(self.where, next(iter(self._spoken()), None))

    def _spoken(self) -> set[str]:
        """The protocols of messages that can match all criteria."""
        return self._subjects() if self.protocol is None else {*self._subjects(), self.protocol}

    def _subjects(self) -> set[str]:
        """The protocols that have the given criteria."""
        return {protocol for name, protocol in _OF_ONE.items() if getattr(self, name) is not None}

    def of(self, capture: Source, rows: pruning.Wanted | None = None) -> Selected:
        """The selection in a capture, of these rows; looks up the runs if one is wanted."""
        topics = (getattr(self, name) for name in _SUBJECTS)
        native: dict[str, Any] = {
            "protocol": self.spoken,
            "direction": self.direction,
            "peer": self.peer,
            "topic": next((topic for topic in topics if topic is not None), None),
            "since_ns": self.since_ns,
            "until_ns": self.until_ns,
        }
        spans = None if self.run is None else _spans(capture, self.sender, self.run)
        rows = rows or pruning.Wanted()
        if spans is not None:
            rows &= pruning.Wanted(sorted(span for of_sender in spans.values() for span in of_sender))
        if (condition := self.condition()) is not None:
            rows &= condition.wanted
        for column in pruning.NOTED:
            if (name := native.get(column, getattr(self, column, None))) is not None:
                rows &= pruning.named(column, name)
        if rows.times_ns != pruning.EVERY:
            native |= self._within(rows.times_ns)
        numbers = pruning.both(rows.numbers, pruning.ROWS)
        if numbers != pruning.ROWS:
            native["numbers"] = numbers
        if rows.names:
            native["names"] = [(noted, (list(names.names), names.is_others)) for noted, names in rows.names]
        return Selected(self, {name: value for name, value in native.items() if value is not None}, spans)

    def _within(self, times_ns: pruning.Spans) -> dict[str, int | None]:
        """The times of receipt, where none but these are wanted."""
        first, last = (times_ns[0][0], times_ns[-1][1]) if times_ns else (0, -1)
        since_ns = first if self.since_ns is None else max(self.since_ns, first)
        until_ns = self.until_ns
        if last < _LAST:
            until_ns = last + 1 if until_ns is None else min(until_ns, last + 1)
        return {"since_ns": since_ns, "until_ns": until_ns}


class Selected:
    """A selection, resolved for one capture.

    Args:
        selection: The selection.
        native: The part of it that rows decide without decoding.
        spans: The first and the last number of each wanted run, by sender; None without a run.

    Attributes:
        native: The part of it that rows decide without decoding.
        is_decided_by_rows: Whether that is all but `Selection.where`.
        is_decided_by_decoded: Whether decoded messages decide, with the numbers of their rows and the times of receipt.
    """

    def __init__(
        self, selection: Selection, native: dict[str, Any], spans: Mapping[str, list[tuple[int, int]]] | None
    ) -> None:
        self.native = native
        self._selection = selection
        self._spans = spans
        # Protocols differ in the case of their types.
        self._type = selection.type and selection.type.lower()
        self.is_decided_by_rows = selection.sender is None and selection.type is None and spans is None
        self.is_decided_by_decoded = not native.keys() & {"direction", "peer", "topic"}
        self._where = selection.condition()

    def rows(self, rows: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """The rows that have any selected message; the native rows may be shared between threads."""
        if self._where is None:
            return rows if self.is_decided_by_rows else filter(self._has, rows)
        return (row for row, _ in self.messages(rows))

    def messages(
        self, rows: Iterator[dict[str, Any]], *, payload: Payload = False
    ) -> Iterator[tuple[dict[str, Any], frozenset[int] | None]]:
        """The selected rows, each with the positions of its selected messages; None for all of them.

        With a layout of payloads the condition is about their fields too.
        """
        if not self.is_decided_by_rows:
            rows = filter(self._has, rows)
        if self._where is None:
            return ((row, None) for row in rows)
        from trunkline.capture.where import wanted_messages

        of_each: dict[str, Condition] = {}
        faults = []
        for protocol in self._where.protocols:
            try:
                of_each[protocol] = self._where.of(protocol, payload=payload)
            except LocalProtocolError as fault:
                # Payloads of some protocols cannot be of the layout.
                faults.append(fault)
        if not of_each:
            raise faults[0]
        return wanted_messages(of_each, rows)

    def condition(self, protocol: str, **options: Any) -> Condition | None:
        """The condition of `Selection.where` for a protocol decoded with these options; None without one."""
        return None if self._where is None else self._where.of(protocol, **options)

    def _has(self, row: Mapping[str, Any]) -> bool:
        """Whether a row of the native reader is selected. A malformed row has no sender and no type."""
        try:
            messages = _codec.decode(row["protocol"], of_row(row), row["topic"])
        except DecodeError:
            return False
        return any(self._is_wanted(message, row["seq"]) for message in messages or ())

    def _is_wanted(self, message: Any, seq: int) -> bool:
        kind = getattr(message, "verb", None) or getattr(message, "type", None) or type(message).__name__
        sender = getattr(message, "sender", "")
        return (
            self._type in (None, kind.lower())
            and self._selection.sender in (None, sender)
            and (self._spans is None or any(first <= seq <= last for first, last in self._spans.get(sender, ())))
        )

    def columns(self, protocol: str) -> list[str]:
        """The columns of decoded batches that `filter` reads."""
        looked_at = {
            "sender": self._selection.sender is not None or self._spans is not None,
            _kind(protocol): self._type is not None,
            "seq": self._spans is not None,
        }
        return [name for name, is_looked_at in looked_at.items() if is_looked_at]

    def filter(self, protocol: str) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
        """The function that keeps the selected rows of decoded batches."""
        if self.is_decided_by_rows:
            return lambda batch: batch
        from pyarrow import compute

        def keep(batch: pa.RecordBatch) -> pa.RecordBatch:
            if self._selection.sender is not None:
                batch = batch.filter(compute.equal(batch["sender"], self._selection.sender))
            if self._type is not None:
                batch = batch.filter(compute.equal(compute.utf8_lower(batch[_kind(protocol)]), self._type))
            if self._spans is None:
                return batch
            spans = ((sender, span) for sender, of_sender in self._spans.items() for span in of_sender)
            masks = [
                compute.and_(
                    compute.equal(batch["sender"], sender),
                    compute.and_(compute.greater_equal(batch["seq"], first), compute.less_equal(batch["seq"], last)),
                )
                for sender, (first, last) in spans
            ]
            return batch.filter(functools.reduce(compute.or_, masks))

        return keep


def _has_type(types: Iterable[str], wanted: str) -> bool:
    """Whether a type is among those of a protocol, in capitals or not."""
    return wanted.lower() in map(str.lower, types)


def _kind(protocol: str) -> str:
    """The column of the message type."""
    return _KINDS.get(protocol, "type")


def need_selection(selection: object) -> None:
    """Refuses other types than selections."""
    if not isinstance(selection, Selection | None):
        refuse("selection", "a capture.Selection or None", selection, ": a condition is a capture.Selection(where=...)")


def of_rows(selection: Selection, protocol: str) -> Selection:
    """The selection, restricted to the rows of a protocol, or of all together.

    Raises:
        LocalProtocolError: It has criteria of one protocol, and all are wanted.
    """
    if protocol != EVERY:
        return replace(selection, protocol=protocol)
    criteria = (*(name for protocol in RECORDED for name in protocol.criteria), "where")
    looked_into = [name for name in criteria if getattr(selection, name) is not None]
    if looked_into:
        message = f"{looked_into[0]}: looks into messages of one protocol: name it in place of {EVERY!r}"
        raise LocalProtocolError(message)
    return selection


def of_records(selection: Selection) -> Selection | None:
    """The part of a selection about single messages of CDTP, of which a row may hold several; None without such criteria."""
    condition = selection.condition()
    if condition is None or "cdtp" not in condition.protocols or selection.spoken not in (None, "cdtp"):
        return None
    return replace(selection, protocol="cdtp")


def said(selection: Selection) -> str:
    """A selection as text.

    ```pycon
    >>> said(Selection(sender="Det.A", run=2, since_ns=1_795_251_125_874_512_487))
    'sender Det.A · run 2 · since 2026-11-21 08:52:05.874 UTC'

    ```
    """
    criteria: dict[str, Any] = asdict(selection)
    words = {"since_ns": "since", "until_ns": "until"}
    parts = []
    for name, value in criteria.items():
        if value is not None:
            text = (
                f"{moment(value)} UTC"
                if name in words
                else text_or_digits(value)
                if name == "peer"
                else readable(str(value))
            )
            parts.append(f"{words.get(name, name)} {text}")
    return " · ".join(parts)


def wanted(
    capture: Source, selection: Selection, columns: Sequence[str] = ("seq",), **options: Any
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The numbers of the selected rows, once for each selected record.

    With one protocol, `options` are those of its decoding, and `columns` may have `record` if it has records.
    """
    import pyarrow as pa

    spoken = protocols_of(selection)
    decoded = (capture.decode(protocol, selection=selection, **options) for protocol in spoken)
    types = {"seq": pa.int64(), "record": pa.int32()}
    schema = pa.schema([(name, types[name]) for name in columns])
    batches = itertools.chain.from_iterable(decoded)
    return schema, (pa.RecordBatch.from_arrays(batch.select(columns).columns, schema=schema) for batch in batches)


def protocols_of(selection: Selection) -> Sequence[str]:
    """The protocols of which a selection may have messages."""
    if selection.spoken is not None:
        return [selection.spoken]
    condition = selection.condition()
    return [
        known.name
        for known in protocols()
        if (selection.type is None or _has_type(known.message_types, selection.type))
        and (condition is None or known.name in condition.protocols)
    ]


def ordinals(capture: Source, selection: Selection) -> dict[str, list[int]]:
    """The ordinals of the selected runs of each sender, without those that have no BOR."""
    found: dict[str, list[int]] = {}
    for run in capture.runs():
        if run.ordinal and selection.run is not None and _is_wanted(run, selection.run):
            found.setdefault(run.sender, []).append(run.ordinal)
    return found


def _is_wanted(run: Run, wanted: int | str) -> bool:
    return wanted in (run.ordinal, run.run_id) or wanted == str(run.ordinal)


def _spans(capture: Source, sender: str | None, wanted: int | str) -> dict[str, list[tuple[int, int]]]:
    """The numbers of the rows of runs: from a BOR to the next of the same sender."""
    spans: dict[str, list[tuple[int, int]]] = {}
    begins: dict[str, int] = {}
    for run in reversed([run for run in capture.runs() if sender in (None, run.sender)]):
        first = run.bor_seq or 0
        if _is_wanted(run, wanted):
            spans.setdefault(run.sender, []).append((first, begins.get(run.sender, _LAST + 1) - 1))
        begins[run.sender] = first
    if not spans:
        by = "" if sender is None else f" of {sender!r}"
        message = f"no run {wanted!r}{by} in the capture"
        raise LocalProtocolError(message)
    return spans
