"""The offsets in checkpoints of streams: the position in each capture, and the query."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from trunkline._text import did_you_mean, readable
from trunkline.errors import CaptureError, LocalProtocolError
from trunkline.spark.source.captures import CapturePosition
from trunkline.spark.source.options import QUERY, Settings

__all__ = ["LATEST", "first_offset", "need_start", "need_these", "offset_of", "positions_in"]

# The initial offset of a stream that starts at the latest segment: its first batch is empty, and fixes the position. Spark reads
# the initial offset more than once, and segments published in between would be skipped.
LATEST = {"startingOffsets": "latest"}

_ANOTHER = "choose another checkpointLocation"


def offset_of(settings: Settings, positions: Mapping[str, Any]) -> dict[str, Any]:
    """An offset: the number of the next segment of each capture, and the query. Equal ones are equal as text."""
    return dict(sorted({QUERY: settings.reads, **positions}.items()))


def first_offset(settings: Settings) -> dict[str, Any]:
    """The initial offset of a stream."""
    if settings.start == "latest":
        return offset_of(settings, LATEST)
    return offset_of(settings, {} if settings.start == "earliest" else settings.start)


def need_start(settings: Settings, captures: Mapping[str, CapturePosition]) -> None:
    """Refuses to start at a segment of a missing capture.

    Raises:
        LocalProtocolError: The capture is missing.
    """
    named = () if isinstance(settings.start, str) else settings.start
    for capture_id in named:
        if capture_id not in captures:
            hint = (
                did_you_mean(capture_id, captures) or ": leave it out, or take an id that trunkline capture info shows"
            )
            message = f"option startingOffsets: there is no capture {capture_id} in {_locations(settings)}{hint}"
            raise LocalProtocolError(message)


def positions_in(given: Any, settings: Settings) -> dict[str, Any]:
    """The number of the next segment of each capture by an offset of a checkpoint; or `LATEST`.

    Raises:
        CaptureError: It is that of another query.
    """
    reads = given.get(QUERY) if isinstance(given, dict) else None
    if not isinstance(reads, dict):
        message = (
            f"the checkpoint is not one of a stream of captures, or of an earlier version of trunkline: {_ANOTHER}"
        )
        raise CaptureError(message)
    if reads != settings.reads:
        message = f"the checkpoint is of another query: {_differing(reads, settings.reads)}; {_ANOTHER}, or set the options as they were"
        raise CaptureError(message)
    positions: dict[str, Any] = {name: position for name, position in given.items() if name != QUERY}
    if positions == LATEST:
        return positions
    if not all(type(number) is int and number >= 0 for number in positions.values()):
        message = f"the checkpoint is damaged, it has the offset {json.dumps(given)}: {_ANOTHER}"
        raise CaptureError(message)
    return positions


def need_these(positions: Mapping[str, int], captures: Mapping[str, CapturePosition], settings: Settings) -> None:
    """Refuses a checkpoint of other captures.

    Raises:
        CaptureError: None of its captures is read.
    """
    if positions and captures and captures.keys().isdisjoint(positions):
        message = (
            f"the checkpoint is about capture {min(positions)}, which is not in {_locations(settings)}: {_ANOTHER}"
        )
        raise CaptureError(message)


def _differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The options in which two queries differ, as text."""
    names = sorted({*before, *now})
    changes = (
        f"{name} was {_value(before.get(name))} and is {_value(now.get(name))}"
        for name in names
        if before.get(name) != now.get(name)
    )
    return readable("; ".join(changes))


def _value(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, dict):
        return ", ".join(f"{name} {kind}" for name, kind in value.items())
    return value if isinstance(value, str) else json.dumps(value)


def _locations(settings: Settings) -> str:
    return ", ".join(map(str, settings.paths))
