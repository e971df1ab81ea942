"""Policies: TOML files of who may publish and subscribe to what."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from trunkline.curve import key_of
from trunkline.errors import LocalProtocolError

__all__ = ["Entry", "read_policy"]

# The client, whether that is a literal name, the topics it may publish and those it may subscribe to.
Entry: TypeAlias = tuple[bytes, bool, list[bytes], list[bytes]]

_LISTS = ("publish", "subscribe")


def read_policy(path: str | os.PathLike[str], names: Mapping[bytes, str]) -> list[Entry]:
    """The entries of a policy, in their order.

    Args:
        path: The file.
        names: The names of the admitted clients, by their keys in 32 bytes; empty if all are admitted.

    Raises:
        LocalProtocolError: It is invalid; the message names the line.
        OSError: It cannot be read.
    """
    text = Path(path).read_bytes()
    try:
        parsed = tomllib.loads(text.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        _refuse(path, 1 + text[: error.start].count(b"\n"), "it is not UTF-8")
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        message = f"{os.fspath(path)} is not a valid policy: {error}"
        raise LocalProtocolError(message) from None
    lines = text.decode("utf-8-sig").splitlines()
    if not parsed:
        _refuse(path, 1, "it is empty, as a file that was cut off is: write `allow = []` to allow nothing")
    for key in parsed:
        if key != "allow":
            _refuse(
                path,
                _line(lines, rf"\[*\s*[\"']?{re.escape(key)}\b"),
                f"unknown key {key!r}: entries are [[allow]]",
            )
    entries = parsed.get("allow", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        _refuse(path, _line(lines, r"\[?\s*allow\b"), "an entry begins with [[allow]]")
    starts = [number for number, line in enumerate(lines) if re.match(r"\s*\[\[\s*[\"']?allow", line)]
    places = [*starts, *[len(lines)] * (len(entries) + 1 - len(starts))]
    return [
        _Reader(path, lines[start:end], start).entry(entry, names)
        for entry, start, end in zip(entries, places, places[1:], strict=False)
    ]


class _Reader:
    """Reads one entry, from its lines."""

    def __init__(self, path: str | os.PathLike[str], lines: list[str], before: int) -> None:
        self._path = path
        self._lines = lines
        self._before = before

    def entry(self, given: Mapping[str, Any], names: Mapping[bytes, str]) -> Entry:
        for key in given:
            if key not in ("client", *_LISTS):
                self._refuse(key, f"unknown key {key!r}: an entry has client, publish and subscribe")
        client = given.get("client")
        if not isinstance(client, str):
            self._refuse("client", 'client is missing: a name, a pattern, a key in Z85 or "*", as text')
        name, is_name = _named(client, names)
        publish, subscribe = (self._topics(key, given.get(key, [])) for key in _LISTS)
        return name.encode(errors="surrogateescape"), is_name, publish, subscribe

    def _topics(self, key: str, topics: object) -> list[bytes]:
        if not isinstance(topics, list) or not all(isinstance(topic, str) for topic in topics):
            self._refuse(key, f'{key} must be a list of topics or patterns, e.g. ["runs.*"]')
        return [topic.encode() for topic in topics]

    def _refuse(self, key: str, why: str) -> NoReturn:
        _refuse(self._path, self._before + _line(self._lines, rf"[\"']?{re.escape(key)}\b"), why)


def _named(client: str, names: Mapping[bytes, str]) -> tuple[str, bool]:
    """The client of an entry, and whether that is a key: a key is never a pattern, although Z85 has `*` and `?`."""
    key = key_of(client.encode())
    return (client, False) if key is None else (names.get(key, client), True)


def _line(lines: list[str], pattern: str) -> int:
    """The number of the first line that begins so, or 1."""
    return next((number for number, line in enumerate(lines, 1) if re.match(rf"\s*{pattern}", line)), 1)


def _refuse(path: str | os.PathLike[str], line: int, why: str) -> NoReturn:
    message = f"{os.fspath(path)}, line {line}: {why}"
    raise LocalProtocolError(message)
