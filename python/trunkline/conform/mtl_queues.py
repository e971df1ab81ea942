"""Checks of what is confirmed, which takes queues."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from trunkline.conform.checks import Failed
from trunkline.conform.mtl_bench import SUITE, Bench, Control
from trunkline.conform.mtl_wire import CONFIRM, confirm, content_of, reject
from trunkline.conform.sockets import shown

__all__ = []


def _queued(bench: Bench, count: int) -> tuple[Control, str, list[bytes]]:
    """A queue with contents, which are confirmed."""
    control, name = bench.queue()
    writer = bench.flow("Writer", [name], "full", control=control)
    bodies = [bench.name() for _ in range(count)]
    writer.send(*(content_of(at, name, body) for at, body in enumerate(bodies, 2)))
    covered: set[int] = set()
    while len(covered) < count:
        frames = bench.receive(writer, "a Confirm of what it has written")
        if len(frames[0]) != 10 or frames[0][0] != CONFIRM or frames[1]:
            message = f"{writer.name} got {shown(frames)}, not a Confirm"
            raise Failed(message)
        sequence, multiple = struct.unpack(">Q?", frames[0][1:])
        covered |= {*range(2, sequence + 1)} if multiple else {sequence}
        if sequence >= count + 2:
            message = f"{writer.name} got a Confirm of {sequence}, which was not written"
            raise Failed(message)
    return control, name, bodies


def _kept(bench: Bench, leave: Callable[[int], list[list[bytes]]], wanted: Sequence[int], again: Sequence[int]) -> None:
    """Makes sure which of three contents come again, to the reader that settles them, and to one after it."""
    control, name, bodies = _queued(bench, 3)
    reader = bench.reader([name], "full", control=control)
    for body in bodies:
        bench.content(reader, body)
    reader.send(*leave(1))
    for at in again:
        bench.content(reader, bodies[at])
    bench.quiet(reader, "nothing else was to come again")
    reader.close()
    reader = bench.reader([name], "full", control=control)
    for at in wanted:
        bench.content(reader, bodies[at])
    bench.quiet(reader, "the others are settled")


@SUITE.check(
    "MTL-51",
    "A confirmation covers one content, or all up to it",
    "contents that were not confirmed at the next reader, and no others",
    needs=("MTL-20",),
)
def _confirms(bench: Bench) -> None:
    _kept(bench, lambda first: [confirm(first + 1, multiple=True)], [2], [])
    _kept(bench, lambda first: [confirm(first + 1)], [0, 2], [])


@SUITE.check(
    "MTL-53",
    "A rejection covers one content, or all up to it",
    "contents that were not rejected at the next reader, and no others",
    needs=("MTL-20",),
)
def _rejects(bench: Bench) -> None:
    _kept(bench, lambda first: [reject(first + 1, multiple=True)], [2], [])
    _kept(bench, lambda first: [reject(first + 1)], [0, 2], [])


@SUITE.check(
    "MTL-54",
    "A recycled content returns to its place, marked, for another reader first, and a limited number of times",
    "a content that was rejected to be recycled once more",
    needs=("MTL-20",),
)
def _recycles(bench: Bench) -> None:
    _kept(bench, lambda first: [reject(first + 1, recycle=True)], [0, 1, 2], [1])


@SUITE.check(
    "MTL-46",
    "If a lease has several resources, each content names its own",
    "a content without a name at the reader where the lease has one resource; a refusal where it has two",
    needs=("MTL-40",),
)
def _names(bench: Bench) -> None:
    reader, writer, body = bench.reader(), bench.flow("Writer"), bench.name()
    writer.send(content_of(2, "", body))
    bench.content(reader, body)
    control, one = bench.queue()
    _, two = bench.queue()
    writer = bench.flow("Writer", [one, two], control=control)
    writer.send(content_of(2, "", bench.name()))
    bench.response(writer, 2, 400)


@SUITE.check(
    "MTL-49",
    "Contents to readers name their resource",
    "the name of the queue in each content of a lease for two",
    needs=("MTL-20",),
)
def _named(bench: Bench) -> None:
    control, one, bodies = _queued(bench, 1)
    _, two = bench.queue()
    content = bench.content(bench.reader([two, one], control=control), bodies[0])
    if content.resource != one:
        message = f"the content of {one} names {content.resource!r}"
        raise Failed(message)
