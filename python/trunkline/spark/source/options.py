"""The options of the data source."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

from trunkline._criteria import moment_ns, routing_id
from trunkline._locations import Location, Url, location_of
from trunkline._text import did_you_mean
from trunkline.capture.selecting import Selection, of_rows
from trunkline.columns import EVERY, Decoder, Layout, protocols
from trunkline.errors import LocalProtocolError
from trunkline.spark.related.bundling import BUNDLING, Bundling
from trunkline.spark.source.ddl import columns_of
from trunkline.spark.source.division import Division

__all__ = ["MAX_BYTES", "QUERY", "Settings", "Start", "location_at", "options_of_reading", "path_of"]

# The start of a stream: a segment for each named capture, the first one for others.
Start = Literal["earliest", "latest"] | Mapping[str, int]

# The key of the query in an offset, beside the ids of captures, which have no spaces.
QUERY = "what is read"

# The options that select messages.
_PLAIN = ("sender", "run", "type", "service", "topic", "resource", "direction", "where")
_CRITERIA = (*_PLAIN, "peer", "since", "until")

# The prefix of options of a file system, in lower case as Spark hands it over; credentials of a store are part of its URL.
_FILE_SYSTEM = "filesystem."
_CREDENTIALS = ("access_key", "secret_key")

# The option that Spark adds at `CREATE TABLE`; it would pass no options when the table is read.
_OF_TABLES = "provider"
_VIEW = "in SQL CREATE TEMPORARY VIEW name USING trunkline OPTIONS (path '/data/runs')"

# The most characters of an invalid value in an error.
_SHOWN = 200

# The most bytes of frames of a micro-batch whose limits are not chosen: some seconds of work for a core, however much waits.
MAX_BYTES = 256 << 20

# Spark's largest limit.
_MOST = (1 << 63) - 1

# Options of Spark's own readers, and what they are here.
_OF_SPARK = {
    "maxfilespertrigger": "maxSegmentsPerTrigger",
    "recursivefilelookup": "recursive",
    "ignoremissingfiles": "failOnDataLoss",
}

# All options but those of decoding.
_OPTIONS = (
    *("path", "paths", "protocol", "decode", "mode", "columns", "recursive"),
    *("startingOffsets", "maxSegmentsPerTrigger", "maxBytesPerTrigger", "maxRowsPerTrigger", "failOnDataLoss"),
    *("minPartitions", "maxPartitionBytes"),
    *_CRITERIA,
)

_MODES = ("PERMISSIVE", "FAILFAST", "DROPMALFORMED")

# A Connect server runs the source in its own directory, where relative paths are meaningless.
_SERVER = re.compile(r"/(userFiles-[0-9a-f-]+|artifacts)(/|$)")


@dataclass(frozen=True, slots=True)
class Settings:
    """The parsed options of a data source.

    Attributes:
        paths: The captures, or folders of captures.
        protocol: The protocol of the messages to read; None for all.
        is_decoded: Whether to decode.
        mode: What to do with malformed messages.
        decoding: The options of decoding.
        columns: The columns to give; None for all.
        selection: Which messages.
        is_recursive: Whether the paths are folders that are searched for captures.
        start: Where a stream begins.
        max_segments: The most segments of a micro-batch.
        max_bytes: The most bytes of frames of a micro-batch; by default `MAX_BYTES` unless another limit is set.
        max_rows: The most rows of a micro-batch.
        division: How much a task reads.
        fails_on_loss: Whether segments that were deleted before they were read are an error.
        bundling: How to bundle the messages, if they are wanted in bundles.
        reads: The options that are set and determine rows and columns, which must not change between restarts of a stream. The
            `mode` may change, so that a stream that a malformed message ended can continue.
    """

    paths: tuple[Location, ...]
    protocol: str | None = None
    is_decoded: bool = False
    mode: str = "PERMISSIVE"
    decoding: Mapping[str, Any] = field(default_factory=dict)
    columns: tuple[str, ...] | None = None
    selection: Selection | None = None
    is_recursive: bool = False
    start: Start = "earliest"
    max_segments: int | None = None
    max_bytes: int | None = None
    max_rows: int | None = None
    division: Division = field(default_factory=Division)
    fails_on_loss: bool = True
    bundling: Bundling | None = None
    reads: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Settings:
        """Reads the options; Spark converts their names to lower case.

        Raises:
            LocalProtocolError: An option is unknown, or has no such value.
        """
        given = {name.lower(): text for name, text in options.items()}
        if _OF_TABLES in given:
            message = f"Spark hands none of the options of a table to a source in Python when it reads it: {_VIEW}"
            raise LocalProtocolError(message)
        # Before the values: what is wrong with another one may be that an option is misspelt.
        _refuse_unknown(given)
        read = _Reading(given)
        protocol = read.choice("protocol", [*(known.name for known in protocols()), EVERY])
        is_decoded = read.flag("decode", default=False)
        if is_decoded and protocol is None:
            message = f"option decode: name the protocol as well: {', '.join(known.name for known in protocols())}, or {EVERY}"
            raise LocalProtocolError(message)
        mode = read.choice("mode", _MODES, upper=True) or "PERMISSIVE"
        decoding = _decoding(read, protocol, is_decoded=is_decoded)
        columns = read.names("columns")
        settings = cls(
            paths=read.paths(),
            protocol=protocol,
            is_decoded=is_decoded,
            mode=mode,
            decoding=decoding,
            columns=columns,
            selection=_selection(read, protocol, is_decoded=is_decoded),
            is_recursive=read.flag("recursive", default=False),
            start=read.value("startingOffsets", _start) or "earliest",
            **read.limits(),
            division=Division(read.number("maxPartitionBytes") or Division().most_bytes, read.number("minPartitions")),
            fails_on_loss=read.flag("failOnDataLoss", default=True),
            bundling=read.value(BUNDLING, Bundling.of),
            reads=_reads(given, protocol, decoding, columns, is_decoded=is_decoded),
        )
        read.refuse_others(protocol, is_decoded=is_decoded)
        if is_decoded and settings.selection is not None and (where := settings.selection.condition()) is not None:
            # Before any task does.
            where.of(protocol or "", mode=mode, **decoding)
        return settings if settings.bundling is None else settings.bundling.applied(settings)


class _Reading:
    """Parses options one by one, and keeps the rest."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = dict(given)

    def text(self, name: str) -> str | None:
        return self._given.pop(name.lower(), None)

    def value(self, name: str, read: Callable[[str], Any]) -> Any:
        text = self.text(name)
        try:
            return None if text is None else read(text)
        except LocalProtocolError as error:
            message = f"option {name}: {error}"
            raise LocalProtocolError(message) from None

    def flag(self, name: str, *, default: bool) -> bool:
        chosen = self.choice(name, ("true", "false"))
        return default if chosen is None else chosen == "true"

    def number(self, name: str) -> int | None:
        def read(text: str) -> int:
            if not re.fullmatch(r"[0-9]{1,19}", text) or not 1 <= int(text) <= _MOST:
                message = f"expected a whole number from 1 to {_MOST}, not {text!r}"
                raise LocalProtocolError(message)
            return int(text)

        number: int | None = self.value(name, read)
        return number

    def limits(self) -> dict[str, int | None]:
        """The limits of a micro-batch: without any, and unless all is wanted, the default of bytes."""
        is_boundless = self._given.get("maxbytespertrigger", "").lower() == "none"
        if is_boundless:
            self.text("maxBytesPerTrigger")
        limits = {f"max_{what.lower()}": self.number(f"max{what}PerTrigger") for what in ("Segments", "Bytes", "Rows")}
        is_chosen = is_boundless or any(limits.values())
        return limits if is_chosen else limits | {"max_bytes": MAX_BYTES}

    def choice(self, name: str, known: list[str] | tuple[str, ...], *, upper: bool = False) -> str | None:
        def read(text: str) -> str:
            word = text.upper() if upper else text.lower()
            if word not in known:
                hint = did_you_mean(text, known) or f": expected one of {', '.join(known)}"
                message = f"there is no {text!r}{hint}"
                raise LocalProtocolError(message)
            return word

        chosen: str | None = self.value(name, read)
        return chosen

    def names(self, name: str) -> tuple[str, ...] | None:
        def read(text: str) -> tuple[str, ...]:
            names = tuple(part.strip().strip("`") for part in text.split(","))
            if not all(names):
                message = f"a name is missing in {text!r}"
                raise LocalProtocolError(message)
            twice = next((one for at, one in enumerate(names) if one in names[:at]), None)
            if twice is not None:
                message = f"{twice!r} is named twice"
                raise LocalProtocolError(message)
            return names

        chosen: tuple[str, ...] | None = self.value(name, read)
        return chosen

    def paths(self) -> tuple[Location, ...]:
        """The locations of the captures, from the argument of `load`."""
        of_files = {name: self._given.pop(name) for name in [*self._given] if name.startswith(_FILE_SYSTEM)}
        one, several = self.text("path"), self.text("paths")
        if several is not None:
            given = [*json.loads(several)]
        elif one is not None:
            given = [one]
        else:
            message = f"name the capture: .load('runs/'), or {_VIEW}"
            raise LocalProtocolError(message)
        return tuple(location_at(one, of_files) for one in given)

    def refuse_others(self, protocol: str | None, *, is_decoded: bool) -> None:
        """Raises an error for options of other protocols, or of decoding."""
        for name in self._given:
            owners = [known.name for known in protocols() if name in known.options]
            if is_decoded:
                message = f"option {name}: is for {' and '.join(owners)}, not for {protocol}"
            else:
                message = (
                    f"option {name}: is for decoding {' and '.join(owners)}: set decode to true, and name the protocol"
                )
            raise LocalProtocolError(message)


def options_of_reading() -> frozenset[str]:
    """The names of all options but the path, in lower case."""
    names = [*_OPTIONS, *(name for each in protocols() for name in each.options)]
    return frozenset(name.lower() for name in names) - {"path", "paths"}


def _refuse_unknown(given: Mapping[str, str]) -> None:
    """Raises an error for an option that no protocol has."""
    known = dict.fromkeys([*_OPTIONS, *(name for each in protocols() for name in each.options)])
    every = f": the options are {', '.join(known)}"
    known_lower = {name.lower() for name in known}
    for name in given:
        if name not in known_lower and name != BUNDLING and not name.startswith(_FILE_SYSTEM):
            same = _OF_SPARK.get(name)
            hint = f": it is {same} here" if same else did_you_mean(name, known)
            message = f"there is no option {name!r}{hint or every}"
            raise LocalProtocolError(message)


def location_at(given: str, options: Mapping[str, str]) -> Location:
    """The path given to `load`, with the options of a file system under their names in lower case.

    Raises:
        LocalProtocolError: The URL is invalid, or the file system has no such options.
    """
    location = location_of(given)
    if isinstance(location, Path):
        if options:
            message = f"option fileSystem.{min(options).removeprefix(_FILE_SYSTEM)}: is for URLs of stores, and {given!r} is a path"
            raise LocalProtocolError(message)
        return path_of(os.fspath(location))
    parts = urlsplit(location.text)
    who = [_FILE_SYSTEM + name for name in _CREDENTIALS]
    key, secret = map(options.get, who)
    if (key is None) != (secret is None):
        message = f"options fileSystem.{' and fileSystem.'.join(_CREDENTIALS)} go together"
        raise LocalProtocolError(message)
    if key is not None and secret is not None:
        host = parts.netloc.rpartition("@")[2]
        parts = parts._replace(netloc=f"{quote(key, safe='')}:{quote(secret, safe='')}@{host}")
    more = {name.removeprefix(_FILE_SYSTEM): text for name, text in options.items() if name not in who}
    return Url(urlunsplit(parts._replace(query="&".join(filter(None, (parts.query, urlencode(more)))))))


def path_of(given: str) -> Path:
    """The path given to `save`.

    Raises:
        LocalProtocolError: It is not on a file system of this machine.
    """
    location = location_of(given)
    if isinstance(location, Url):
        message = f"{location}: captures are written to file systems of this machine; trunkline capture ship copies them to stores"
        raise LocalProtocolError(message)
    text = os.fspath(location)
    if not os.path.isabs(text) and _SERVER.search(os.getcwd()):  # noqa: PTH109, PTH117 - text, perhaps not a path
        message = f"{given!r}: a relative path means nothing to a Connect server: give an absolute one"
        raise LocalProtocolError(message)
    return Path(os.path.abspath(text))  # noqa: PTH100 - a link is not followed


def _decoding(read: _Reading, protocol: str | None, *, is_decoded: bool) -> dict[str, Any]:
    """The options of decoding, as `Decoder` takes them.

    Raises:
        LocalProtocolError: One has no such value, or names two columns alike.
    """
    known = next((known.options for known in protocols() if known.name == protocol), {}) if is_decoded else {}
    given: dict[str, Any] = {}
    for name, default in known.items():
        if name == "payload":
            given[name] = _payload(read, name)
        elif isinstance(default, bool):
            given[name] = read.flag(name, default=default)
        elif default == "variant":
            text = read.text(name)
            given[name] = default if text is None else columns_of(name, text)
        else:
            text = read.text(name)
            if text is not None:
                parts = [part.strip() for part in text.split(",")]
                given[name] = parts if isinstance(default, list | tuple) else text.strip()
    # Of all protocols together there are none; what is wrong with a layout is the same everywhere.
    if is_decoded and not known and (payload := _payload(read, "payload")):
        given["payload"] = payload
    if is_decoded:
        # Checks the options before any read.
        Decoder(protocol or "", **given)
    return given


def _payload(read: _Reading, name: str) -> bool | str:
    """Whether to add the payloads, or their layout in the one way of writing it."""

    def parse(text: str) -> bool | str:
        word = text.strip().lower()
        return word == "true" if word in {"true", "false"} else str(Layout(text))

    return read.value(name, parse) or False


def _reads(
    given: Mapping[str, str],
    protocol: str | None,
    decoding: Mapping[str, Any],
    columns: tuple[str, ...] | None,
    *,
    is_decoded: bool,
) -> dict[str, Any]:
    """The options that determine what is read, for JSON."""
    defaults = next((known.options for known in protocols() if known.name == protocol), {})
    # An age such as 2h stays the same option at each restart.
    reads: dict[str, Any] = {name: given[name] for name in _CRITERIA if name in given}
    reads |= {name: "none" if value is None else value for name, value in decoding.items() if value != defaults[name]}
    if protocol is not None:
        reads["protocol"] = protocol
    if is_decoded:
        reads["decode"] = True
    if columns is not None:
        reads["columns"] = ",".join(columns)
    return dict(sorted(reads.items()))


def _selection(read: _Reading, protocol: str | None, *, is_decoded: bool) -> Selection | None:
    criteria: dict[str, Any] = {name: read.text(name) for name in _PLAIN}
    criteria["peer"] = read.value("peer", routing_id)
    criteria["since_ns"], criteria["until_ns"] = read.value("since", moment_ns), read.value("until", moment_ns)
    is_one = protocol not in {None, EVERY}
    if not is_one and all(value is None for value in criteria.values()):
        return None
    selection = Selection(protocol=protocol if is_one else None, **criteria)
    return of_rows(selection, protocol or EVERY) if is_decoded else selection


def _start(text: str) -> Start:
    """Parses the start of a stream.

    Raises:
        LocalProtocolError: It is invalid.
    """
    word = text.strip().lower()
    if word == "earliest":
        return "earliest"
    if word == "latest":
        return "latest"
    try:
        given = json.loads(text)
        # Skip the query in an offset of a checkpoint.
        return {name: _segment(position) for name, position in given.items() if name != QUERY}
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError):
        message = f'expected earliest, latest or JSON such as {{"CAPTURE_ID": {{"segment": 3}}}}, not {text[:_SHOWN]!r}'
        raise LocalProtocolError(message) from None


def _segment(position: Any) -> int:
    number = position["segment"] if isinstance(position, dict) else position
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise ValueError
    return number
