"""The messages that a report is about, chosen by a selection and a layout of payloads."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from trunkline.capture.folding import Selected
from trunkline.capture.reading import Capture
from trunkline.capture.selecting import Selection, protocols_of
from trunkline.columns import Decoder, Layout
from trunkline.errors import LocalProtocolError
from trunkline.report.sections import SECTIONS

__all__ = ["deciding", "is_possible", "selected", "spoken"]


def spoken(capture: Capture, selection: Selection | None, layout: Layout | None) -> list[str]:
    """The protocols of a capture of which a selection may have messages.

    Raises:
        LocalProtocolError: None has the columns of its condition.
    """
    there = capture.info().protocols
    names = [name for name in protocols_of(selection or Selection()) if name in there]
    condition = None if selection is None else selection.condition()
    if condition is None:
        return names
    having, faults = [], []
    for name in names:
        try:
            condition.of(name, **_options(name, layout))
        except LocalProtocolError as fault:
            faults.append(fault)
        else:
            having.append(name)
    if faults and not having:
        raise faults[0]
    return having


def deciding(captures: Sequence[Capture], selection: Selection | None, layout: Layout | None) -> Sequence[Capture]:
    """The captures of which a selection can be decided: those with a protocol that has the columns of its condition.

    Raises:
        LocalProtocolError: There is none.
    """
    having, faults = [], []
    for each in captures:
        try:
            spoken(each, selection, layout)
        except LocalProtocolError as fault:
            faults.append(fault)
        else:
            having.append(each)
    if faults and not having:
        raise faults[0]
    return having


def _options(protocol: str, layout: Layout | None) -> dict[str, Any]:
    """How messages of a protocol are decoded to be selected."""
    more = {"payload": layout} if layout is not None and is_possible(layout, protocol) else {}
    return {**SECTIONS[protocol].options, **more}


def selected(
    capture: Capture,
    selection: Selection,
    protocol: str,
    layout: Layout | None,
    columns: Sequence[str] | None = None,
) -> Selected:
    """The selected messages of a protocol, which a condition may choose by the fields of a layout."""
    of_protocol = dataclasses.replace(selection, protocol=protocol)
    return Selected(capture, of_protocol, _options(protocol, layout), columns)


def is_possible(layout: Layout, protocol: str) -> bool:
    """Whether payloads of a protocol can be of a layout: its messages may lack the tag that says what they are."""
    try:
        Decoder(protocol, payload=layout)
    except LocalProtocolError:
        return False
    return True
