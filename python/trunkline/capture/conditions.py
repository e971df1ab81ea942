"""Parses conditions and binds them to the columns of a protocol. No text is ever run as code."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from trunkline import columns
from trunkline._extras import needs
from trunkline._native import capture as _native
from trunkline._text import did_you_mean
from trunkline.errors import LocalProtocolError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Binder", "has_fields", "parse"]

_GRAMMAR = r"""
?start: either
?either: both (_OR both)*
?both: negation (_AND negation)*
?negation: _NOT negation -> negation
    | predicate
?predicate: "(" either ")"
    | operand
    | operand COMPARES operand -> compares
    | operand _IS _NULL -> is_null
    | operand _IS _NOT _NULL -> is_not_null
    | operand _IN "(" literal ("," literal)* ")" -> is_in
    | operand _NOT _IN "(" literal ("," literal)* ")" -> is_not_in
    | operand _LIKE TEXT -> is_like
    | operand _NOT _LIKE TEXT -> is_not_like
    | operand _BETWEEN operand _AND operand -> is_between
    | operand _NOT _BETWEEN operand _AND operand -> is_not_between
?operand: column | typed | literal
typed: column "::" NAME
column: _name ("." _name)*
_name: NAME | QUOTED
literal: NUMBER | TEXT | BYTES | TRUE | FALSE

_OR.2: /or\b/i
_AND.2: /and\b/i
_NOT.2: /not\b/i
_IS.2: /is\b/i
_IN.2: /in\b/i
_NULL.2: /null\b/i
_LIKE.2: /like\b/i
_BETWEEN.2: /between\b/i
TRUE.2: /true\b/i
FALSE.2: /false\b/i
COMPARES: /<=|>=|<>|!=|==?|<|>/
NAME: /[^\W\d]\w*/
QUOTED: /"([^"]|"")+"/
TEXT: /'([^']|'')*'/
BYTES.2: /0x([0-9a-f]{2})+\b/i
NUMBER: /[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?/i
%ignore /\s+/
"""

_COMPARES = {
    "=": "equal",
    "==": "equal",
    "!=": "not_equal",
    "<>": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}

# The type that a value of a map is read as, by what it is compared with.
_READ_AS = {"number": "double", "text": "string", "boolean": "boolean", "bytes": "binary", "time": "timestamp"}

# Beyond this a double cannot hold every integer.
_EXACT = 1 << 53


@needs("capture", "lark", "pyarrow")
def parse(text: str) -> Any:
    """Parses a condition into a tree.

    Raises:
        LocalProtocolError: It cannot be read, or a package is missing.
    """
    import lark
    import pyarrow as pa  # noqa: F401 - evaluating the tree needs it

    try:
        return _parser().parse(text)
    except lark.UnexpectedInput as error:
        if isinstance(error, lark.UnexpectedToken) and error.token.type == "$END":
            what = "the condition is incomplete" if text.strip() else "the condition is empty"
        else:
            word = text[error.pos_in_stream :].split(maxsplit=1)[0]
            what = f"unexpected {word!r}{did_you_mean(word, _words_of_grammar(), ', ')}"
        message = f"where: {error.line}:{error.column}: {what}"
    raise LocalProtocolError(message)


def has_fields(tree: Any) -> bool:
    """Whether a condition has columns that may be fields of payloads, which only a layout knows."""
    names = {_unquoted(column.children[0]) for column in tree.find_data("column")}
    return any(name.startswith(columns.FIELD) for name in names - _own())


@functools.cache
def _own() -> frozenset[str]:
    """The columns of messages that no layout makes."""
    decoders = (columns.Decoder(known.name, payload=True) for known in columns.protocols())
    return frozenset(name for decoder in decoders for name in decoder.row_schema().names)


@functools.cache
def _parser() -> Any:
    import lark

    return lark.Lark(_GRAMMAR, parser="lalr", propagate_positions=True)


def _words_of_grammar() -> list[str]:
    """The keywords of the grammar, as `like`."""
    return [terminal.name[1:] for terminal in _parser().terminals if terminal.name.startswith("_")]


@dataclass
class _Term:
    """A part of a condition.

    Attributes:
        at: Its position in the text.
        kind: The kind of values it can be compared with; None if it can only be tested for null.
        evaluate: Computes its value from the columns.
        read_as: For a value of any type: the term that reads it as a given type.
        literal: Its value, if it is a constant.
        number: Of numbers, the type of Arrow.
    """

    at: Any
    kind: str | None
    evaluate: Callable[[Mapping[str, Any]], Any]
    read_as: Callable[[str], _Term] | None = None
    literal: Any = None
    number: pa.DataType | None = None


class Binder:
    """Binds a condition to the columns of a protocol.

    Args:
        protocol: The protocol.
        payload: The layout of payloads, whose fields are columns too; None for none.
        mode: What happens to malformed messages.

    Attributes:
        maps: The options that turn values of maps into columns.
        layers: The values of those options, for each decoder that is needed.
        of_rows: The columns of the capture's rows that the condition uses.
        decoded: The columns of messages that it uses.
    """

    def __init__(self, protocol: str, payload: columns.Layout | None = None, mode: str = "PERMISSIVE") -> None:
        self._protocol = protocol
        self._payload = payload
        self._mode = mode
        self.maps = columns.maps_of(protocol)
        self.layers: list[dict[str, dict[str, str]]] = [{}]
        self.of_rows: set[str] = set()
        self.decoded: set[str] = set()
        self.casts = False
        self._messages = {column.name: column.type for column in self._schema({})}
        # Frames cannot be compared.
        self._rows = {
            column.name: column.type
            for column in _native.schema()
            if column.name not in ("envelope", "header", "payload")
        }

    def condition(self, tree: Any) -> Callable[[Mapping[str, Any]], Any]:
        """The function that computes a condition from columns; names of message columns end with a slash and their decoder's number.

        Raises:
            LocalProtocolError: There is no such column, or two values cannot be compared.
        """
        try:
            return self._boolean(tree).evaluate
        except RecursionError:
            raise _fault(tree, "nested too deeply") from None

    def _boolean(self, tree: Any) -> _Term:
        term = self._term(tree)
        term = term.read_as("boolean") if term.read_as is not None else term
        if term.kind != "boolean":
            raise _fault(tree, "a comparison is missing")
        return term

    def _term(self, tree: Any) -> _Term:
        form = tree.data.replace("is_not_", "is_")
        term: _Term = getattr(self, f"_{form}")(tree)
        return _applied(tree, "invert", term) if form != tree.data else term

    def _either(self, tree: Any) -> _Term:
        return _joined(tree, "or_kleene", map(self._boolean, tree.children))

    def _both(self, tree: Any) -> _Term:
        return _joined(tree, "and_kleene", map(self._boolean, tree.children))

    def _negation(self, tree: Any) -> _Term:
        return _applied(tree, "invert", self._boolean(tree.children[0]))

    def _is_null(self, tree: Any) -> _Term:
        term = self._term(tree.children[0])
        return _applied(tree, "is_null", term if term.read_as is None else term.read_as("json"))

    def _is_in(self, tree: Any) -> _Term:
        left, *values = tree.children
        return _joined(tree, "or_kleene", [self._compared(tree, "=", left, value) for value in values])

    def _is_between(self, tree: Any) -> _Term:
        one, first, last = tree.children
        return _joined(
            tree, "and_kleene", [self._compared(tree, ">=", one, first), self._compared(tree, "<=", one, last)]
        )

    def _is_like(self, tree: Any) -> _Term:
        from pyarrow import compute

        term, pattern = self._term(tree.children[0]), _unquoted(tree.children[1])
        term = term if term.read_as is None else term.read_as("string")
        if term.kind != "text":
            raise _fault(tree, "LIKE takes text only")
        return _Term(tree, "boolean", lambda given: compute.match_like(term.evaluate(given), pattern))

    def _compares(self, tree: Any) -> _Term:
        left, how, right = tree.children
        return self._compared(tree, how, left, right)

    def _compared(self, tree: Any, how: str, one: Any, other: Any) -> _Term:
        left, right = self._term(one), self._term(other)
        for value, number in ((left, right), (right, left)):
            if value.read_as is not None and _is_large(number):
                return _with_large(tree, _COMPARES[how], left, right, value.read_as, number.literal)
        left, right = _like(right, left), _like(left, right)
        for term in (left, right):
            if term.read_as is not None:
                raise _fault(term.at, f"give the type to compare as: {_words(term.at)}::bigint, ::string …")
            if term.kind is None:
                raise _fault(term.at, f"{_words(term.at)} supports only IS NULL and IS NOT NULL")
        if left.kind != right.kind:
            raise _fault(tree, f"{left.kind} cannot be compared with {right.kind}")
        if left.kind == "boolean" and _COMPARES[how] not in ("equal", "not_equal"):
            raise _fault(tree, "booleans can only be compared with = and !=")
        alike = _alike(left, right)
        self.casts = self.casts or alike != (left, right)
        return _applied(tree, _COMPARES[how], *alike)

    def _literal(self, tree: Any) -> _Term:
        [token] = tree.children
        text = str(token)
        if token.type == "NUMBER":
            try:
                number = int(text) if text.lstrip("+-").isdigit() else float(text)
            except ValueError:
                # Python refuses integers of thousands of digits.
                number = 1 << 64
            if isinstance(number, int) and not -(1 << 63) <= number < 1 << 64:
                raise _fault(tree, "this number has more than 64 bits")
            return _literal(tree, "number", number)
        if token.type == "TEXT":
            return _literal(tree, "text", _unquoted(token))
        if token.type == "BYTES":
            return _literal(tree, "bytes", bytes.fromhex(text[2:]))
        return _literal(tree, "boolean", token.type == "TRUE")

    def _typed(self, tree: Any) -> _Term:
        column, name = tree.children
        term = self._term(column)
        if term.read_as is None:
            raise _fault(tree, f"{_words(column)} already has a type: leave out ::{name}")
        return term.read_as(name)

    def _column(self, tree: Any) -> _Term:
        name, *rest = map(_unquoted, tree.children)
        inner = ".".join(rest)
        if name in self.maps:
            if not rest:
                raise _fault(tree, f"name one of the {name}: {name}.NAME")
            return self._value(tree, name, inner)
        if name in self._messages and bool(rest) == _is_map(self._messages[name]):
            self.decoded.add(name)
            return _in_map(tree, f"{name}/0", inner) if rest else _term_of(tree, f"{name}/0", self._messages[name])
        if name in self._rows and not rest:
            self.of_rows.add(name)
            return _term_of(tree, name, self._rows[name])
        if name == "received_at" and not rest:
            self.of_rows.add("received_at_ns")
            return _Term(tree, "time", lambda given: columns.moments(given["received_at_ns"]))
        known = [*self._messages, *self._rows, "received_at", *(f"{one}.{inner or 'NAME'}" for one in self.maps)]
        is_quoted = any(token.type == "QUOTED" for token in tree.children)
        hint = f": text takes single quotes, {_in_quotes(name)}" if is_quoted else ""
        hint = hint or did_you_mean(".".join((name, *rest)), known, ", ")
        if name.startswith(columns.FIELD) and self._payload is None:
            hint += "; fields of payloads are columns of what is decoded or exported by a layout (payload)"
        raise _fault(tree, f"no column {_words(tree)!r}{hint}")

    def _value(self, tree: Any, option: str, name: str) -> _Term:
        """A value of a map, read into a column of the type that it is compared as."""

        def read_as(kind: str) -> _Term:
            try:
                schema = self._schema({option: {name: kind}})
            except LocalProtocolError as error:
                raise _fault(tree, str(error)) from None
            at = self._layer(option, name, kind)
            column = next(column for column in schema if column.name not in self._messages)
            self.decoded.add(column.name)
            return _term_of(tree, f"{column.name}/{at}", column.type)

        return _Term(tree, None, operator.itemgetter(name), read_as)

    def _layer(self, option: str, name: str, kind: str) -> int:
        """The number of its decoder: within one table a name has one type, and no two names differ only in case."""
        for at, layer in enumerate(self.layers):
            there = [(n, k) for n, k in layer.setdefault(option, {}).items() if n.lower() == name.lower()]
            if there in ([], [(name, kind)]):
                layer[option][name] = kind
                return at
        self.layers.append({option: {name: kind}})
        return len(self.layers) - 1

    def _schema(self, options: dict[str, Any]) -> pa.Schema:
        given: dict[str, Any] = (
            dict.fromkeys(self.maps) | options | {"payload": self._payload or False, "mode": self._mode}
        )
        return columns.Decoder(self._protocol, **given).row_schema()


def _joined(tree: Any, function: str, terms: Iterable[_Term]) -> _Term:
    from pyarrow import compute

    join = getattr(compute, function)
    parts = [term.evaluate for term in terms]
    return _Term(tree, "boolean", lambda given: functools.reduce(join, (part(given) for part in parts)))


def _applied(tree: Any, function: str, *terms: _Term) -> _Term:
    from pyarrow import compute

    apply = getattr(compute, function)
    return _Term(tree, "boolean", lambda given: apply(*(term.evaluate(given) for term in terms)))


def _literal(tree: Any, kind: str, value: Any) -> _Term:
    import pyarrow as pa

    is_unsigned = isinstance(value, int) and value >= 1 << 63
    scalar = pa.scalar(Decimal(value), _whole()) if is_unsigned else pa.scalar(value)
    return _Term(tree, kind, lambda _: scalar, literal=value, number=scalar.type if kind == "number" else None)


def _whole() -> pa.DataType:
    """Any integer of 64 bits, signed or not."""
    import pyarrow as pa

    return pa.decimal128(20, 0)


def _double() -> pa.DataType:
    import pyarrow as pa

    return pa.float64()


def _alike(left: _Term, right: _Term) -> tuple[_Term, _Term]:
    """Numbers of two types as one that holds both: as in Spark doubles where one is a double, rounded to the nearest."""
    from pyarrow import types

    if left.number is None or right.number is None or left.number == right.number:
        return left, right
    numbers = (left.number, right.number)
    if any(map(types.is_floating, numbers)):
        return _cast(left, _double()), _cast(right, _double())
    # Arrow takes a signed number for what an unsigned one is compared with.
    if any(types.is_uint64(number) or types.is_decimal(number) for number in numbers):
        return _cast(left, _whole()), _cast(right, _whole())
    return left, right


def _cast(term: _Term, to: pa.DataType) -> _Term:
    if term.number == to:
        return term
    # Not by `compute.cast`, which takes no expression of a dataset.
    return _Term(term.at, term.kind, lambda given: term.evaluate(given).cast(to, safe=False), number=to)


def _like(other: _Term, term: _Term) -> _Term:
    """A term, read as the kind of the other one."""
    if term.read_as is not None and other.kind is not None:
        return term.read_as(_READ_AS[other.kind])
    if isinstance(term.literal, str) and other.kind == "bytes":
        return _literal(term.at, "bytes", term.literal.encode("utf-8", "surrogateescape"))
    if isinstance(term.literal, str) and other.kind == "time":
        try:
            moment = datetime.fromisoformat(term.literal)
        except ValueError:
            raise _fault(term.at, "write a time as '2026-11-23T14:00:00', in UTC unless it gives a zone") from None
        return _literal(term.at, "time", moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))
    return term


def _is_large(term: _Term) -> bool:
    return isinstance(term.literal, int) and abs(term.literal) > _EXACT


def _with_large(tree: Any, how: str, left: _Term, right: _Term, read_as: Callable[[str], _Term], number: int) -> _Term:
    """A value of a map compared with an integer that a double may not hold; the value may not fit a BIGINT."""
    from pyarrow import compute

    def compared(value: _Term, literal: _Term) -> _Term:
        return _applied(tree, how, *(literal if term.read_as is None else value for term in (left, right)))

    if how in ("equal", "not_equal"):
        return compared(read_as("json"), _literal(tree, "text", str(number)))
    exact = read_as("bigint")
    exactly = compared(exact, _literal(tree, "number", number))
    roughly = compared(read_as("double"), _literal(tree, "number", float(number)))
    return _Term(
        tree,
        "boolean",
        lambda given: compute.if_else(
            compute.is_valid(exact.evaluate(given)), exactly.evaluate(given), roughly.evaluate(given)
        ),
    )


def _term_of(tree: Any, name: str, kind: pa.DataType) -> _Term:
    import pyarrow as pa
    from pyarrow import types

    kinds: dict[str, Callable[[pa.DataType], bool]] = {
        "boolean": types.is_boolean,
        "text": types.is_string,
        "bytes": lambda kind: types.is_binary(kind) or types.is_fixed_size_binary(kind),
        "time": types.is_timestamp,
        "number": lambda kind: types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind),
    }
    found = next((known for known, is_one in kinds.items() if is_one(kind)), None)
    term = _Term(tree, found, operator.itemgetter(name), number=kind if found == "number" else None)
    # Arrow compares neither of these.
    if types.is_float16(kind):
        return _cast(term, pa.float32())
    return _cast(term, pa.binary()) if types.is_fixed_size_binary(kind) else term


def _in_map(tree: Any, name: str, key: str) -> _Term:
    """The value of a key in a map of text; the last one if keys repeat."""
    from pyarrow import compute

    return _Term(tree, "text", lambda given: compute.map_lookup(given[name], query_key=key, occurrence="last"))


def _is_map(kind: pa.DataType) -> bool:
    from pyarrow import types

    return bool(types.is_map(kind))


def _unquoted(token: str) -> str:
    """A name or text without its quotes."""
    quote = token[0]
    return token[1:-1].replace(quote * 2, quote) if quote in "'\"" else str(token)


def _in_quotes(text: str) -> str:
    """Text as a quoted literal of a condition."""
    return "'" + text.replace("'", "''") + "'"


def _words(tree: Any) -> str:
    return ".".join(tree.children)


def _fault(tree: Any, what: str) -> LocalProtocolError:
    return LocalProtocolError(f"where: {tree.meta.line}:{tree.meta.column}: {what}")
