"""Checks of the data flow, in the test profile."""

from __future__ import annotations

import struct

from trunkline.conform.checks import Failed, Skipped
from trunkline.conform.mtl_bench import SUITE, Bench
from trunkline.conform.mtl_wire import (
    CONTENT,
    FIELDS,
    LAST,
    PING,
    PONG,
    RESOURCE,
    RESPONSE,
    SUMMON,
    confirm,
    content_of,
    dismiss,
    lease_of,
    named,
    reject,
    summon,
)
from trunkline.conform.sockets import shown

__all__ = []

# How long a server may take to send a Ping, and how long a client may be silent, each time longer, before it is seen whether its
# lease is gone.
_PING_S = 3.0
_SILENCES_S = (0.5, 1.0, 2.0, 4.0, 8.0, 12.0)


@SUITE.check(
    "MTL-35",
    "A lease is answered under its sequence: accepted or refused",
    "Response 200 to a good lease and 403 to another, with its sequence, up to the largest there is",
    needs=("MTL-23",),
)
def _leases(bench: Bench) -> None:
    control = bench.session()
    for sequence in (1, 258, LAST):
        endpoint, lease = bench.leased(control, "Reader")
        peer = bench.open("reader", endpoint=endpoint)
        peer.send(lease_of(sequence, lease))
        bench.response(peer, sequence, 200)
        stranger = bench.open("stranger", endpoint=endpoint)
        stranger.send(lease_of(sequence, "no lease"))
        bench.response(stranger, sequence, 403)


@SUITE.check(
    "MTL-30",
    "Data goes from a DEALER to the ROUTER that the lease names",
    "a Response at a DEALER that dials the port of the lease",
    needs=("MTL-23",),
)
def _ports(bench: Bench) -> None:
    bench.flow("Writer")


@SUITE.check(
    "MTL-26",
    "A lease is secret, must be used once and soon, and comes with an endpoint",
    "different leases each time, of 128 bits at least, and 403 to one that is used already",
    needs=("MTL-35",),
)
def _secrets(bench: Bench) -> None:
    control = bench.session()
    leases = [bench.leased(control, "Reader") for _ in range(3)]
    if len({lease for _, lease in leases}) < 3 or min(len(lease) for _, lease in leases) < 16:
        message = f"the leases are {', '.join(lease for _, lease in leases)}"
        raise Failed(message)
    endpoint, lease = leases[0]
    for status in (200, 403):
        peer = bench.open("reader" if status < 400 else "second reader", endpoint=endpoint)
        peer.send(lease_of(1, lease))
        bench.response(peer, 1, status)


@SUITE.check(
    "MTL-34",
    "A data connection sends its lease first",
    "Response 403 to a Summon before the lease",
    needs=("MTL-35",),
)
def _lease_first(bench: Bench) -> None:
    endpoint, _ = bench.leased(bench.session(), "Reader")
    peer = bench.open("reader without a lease", endpoint=endpoint)
    peer.send(summon(7, RESOURCE))
    bench.response(peer, 7, 403)


@SUITE.check(
    "MTL-36",
    "Commands need not wait for each other, and are answered in any order",
    "a Response to each of three commands that are sent at once",
    needs=("MTL-35",),
)
def _pipelined(bench: Bench) -> None:
    endpoint, lease = bench.leased(bench.session(), "Reader")
    peer = bench.open("reader", endpoint=endpoint)
    peer.send(lease_of(1, lease), summon(2, RESOURCE), dismiss(3, RESOURCE))
    wanted = [[struct.pack(">BQ", RESPONSE, at), b"200"] for at in (1, 2, 3)]
    came = [bench.receive(peer, "a Response") for _ in wanted]
    if sorted(came) != wanted:
        message = f"the Responses are {', '.join(map(shown, came))}"
        raise Failed(message)


@SUITE.check(
    "MTL-37",
    "A reader summons only resources of its lease",
    "200 for the leased resource, 400 for another, and 400 on the lease of a writer",
    needs=("MTL-35",),
)
def _summons(bench: Bench) -> None:
    reader, writer = bench.flow("Reader"), bench.flow("Writer")
    reader.send(summon(2, bench.name().decode()))
    bench.response(reader, 2, 400)
    reader.send(summon(3, RESOURCE))
    bench.response(reader, 3, 200)
    writer.send(summon(2, RESOURCE))
    bench.response(writer, 2, 400)


@SUITE.check(
    "MTL-38",
    "A resource is not summoned twice",
    "400 to the second Summon, and 200 to one after a Dismiss",
    needs=("MTL-37",),
)
def _summons_twice(bench: Bench) -> None:
    reader = bench.reader()
    reader.send(summon(3, RESOURCE))
    bench.response(reader, 3, 400)
    reader.send(dismiss(4, RESOURCE))
    bench.response(reader, 4, 200)
    reader.send(summon(5, RESOURCE))
    bench.response(reader, 5, 200)


@SUITE.check("MTL-39", "A summon has one answer", "one Response with the sequence of the Summon", needs=("MTL-37",))
def _summons_once(bench: Bench) -> None:
    reader = bench.flow("Reader")
    reader.send(summon(70_000, RESOURCE))
    bench.response(reader, 70_000, 200)
    bench.quiet(reader, "one Response is the answer")


@SUITE.check(
    "MTL-41",
    "A reader dismisses only resources of its lease",
    "400 to a Dismiss of another resource",
    needs=("MTL-37",),
)
def _dismisses(bench: Bench) -> None:
    reader = bench.reader()
    reader.send(dismiss(3, bench.name().decode()))
    bench.response(reader, 3, 400)


@SUITE.check(
    "MTL-42",
    "Only a summoned resource is dismissed",
    "400 to a Dismiss without a Summon, and to a second one",
    needs=("MTL-37",),
)
def _dismisses_twice(bench: Bench) -> None:
    reader = bench.flow("Reader")
    reader.send(dismiss(2, RESOURCE), summon(3, RESOURCE), dismiss(4, RESOURCE), dismiss(5, RESOURCE))
    for sequence, status in ((2, 400), (3, 200), (4, 200), (5, 400)):
        bench.response(reader, sequence, status)


@SUITE.check("MTL-43", "A dismissal has one answer", "one Response with the sequence of the Dismiss", needs=("MTL-37",))
def _dismisses_once(bench: Bench) -> None:
    reader = bench.reader()
    reader.send(dismiss(70_000, RESOURCE))
    bench.response(reader, 70_000, 200)
    bench.quiet(reader, "one Response is the answer")


@SUITE.check(
    "MTL-61",
    "Malformed data is dropped; wrong data is answered under its sequence",
    "no answer to a header that is cut off, and 400 to a Summon of nobody's resource, with its sequence",
    needs=("MTL-37",),
)
def _wrong_data(bench: Bench) -> None:
    reader = bench.flow("Reader")
    reader.send([summon(2, RESOURCE)[0][:5], b""])
    bench.fence(reader, 77)


@SUITE.check(
    "MTL-33",
    "A header is a type and its fields, with nothing after them",
    "no answer to unknown types, to headers that are cut off, and to bytes behind the last field",
    needs=("MTL-37",),
)
def _headers(bench: Bench) -> None:
    reader = bench.flow("Reader")
    good = summon(2, RESOURCE)[0]
    reader.send(*([header, b""] for header in (b"\0", b"\x0a" + good[1:], good[:-1], good + b"\0", good[:1])))
    bench.fence(reader, 3)


@SUITE.check(
    "MTL-32",
    "A data message is a header and a body; an unused body is ignored",
    "no answer to messages of one and of three frames, and 200 to a Summon with a body",
    needs=("MTL-37",),
)
def _frames(bench: Bench) -> None:
    reader = bench.flow("Reader")
    (one, _), (three, _), (two, _) = (summon(sequence, RESOURCE) for sequence in (2, 3, 4))
    reader.send([one], [three, b"", b""], [two, b"ignored"])
    bench.response(reader, 4, 200)


@SUITE.check(
    "MTL-59",
    "Numbers are big-endian, text is printable and prefixed with its length, booleans are 0 or 1",
    "an answer under the sequence to a name of 255 bytes, and none to a name with control characters",
    needs=("MTL-37",),
)
def _encodings(bench: Bench) -> None:
    reader = bench.flow("Reader")
    reader.send(named(SUMMON, 2, b"\x01\x1f\x7f"), summon(0x0102030405060708, "r" * 255))
    bench.response(reader, 0x0102030405060708, 400, 404)


@SUITE.check(
    "MTL-40", "Contents follow a summon", "a content at the reader that has summoned its resource", needs=("MTL-37",)
)
def _contents(bench: Bench) -> None:
    reader, writer, body = bench.reader(), bench.flow("Writer"), bench.name()
    writer.send(content_of(2, RESOURCE, body))
    bench.content(reader, body)


@SUITE.check(
    "MTL-62",
    "The test profile delivers each content to all readers, and confirms none",
    "each content of two writers once at each of two readers, and nothing at the writers",
    needs=("MTL-40",),
)
def _fan_out(bench: Bench) -> None:
    readers = [bench.reader() for _ in range(2)]
    writers = [bench.flow("Writer") for _ in range(2)]
    for writer in writers:
        body = bench.name()
        writer.send(content_of(2, RESOURCE, body))
        for reader in readers:
            bench.content(reader, body)
    for peer in (*readers, *writers):
        bench.quiet(peer, "each content comes once, and is not confirmed")


@SUITE.check(
    "MTL-03",
    "Data flows both ways without waiting for replies",
    "fifty contents in their order, which are sent at once",
    needs=("MTL-40",),
)
def _asynchronous(bench: Bench) -> None:
    reader, writer = bench.reader(), bench.flow("Writer")
    bodies = [bench.name() for _ in range(50)]
    writer.send(*(content_of(at, RESOURCE, body) for at, body in enumerate(bodies, 2)))
    for body in bodies:
        bench.content(reader, body)


@SUITE.check(
    "MTL-44",
    "No content comes after a dismissal",
    "no content that is written after the Response to a Dismiss",
    needs=("MTL-40",),
)
def _after_dismissal(bench: Bench) -> None:
    reader, other, writer = bench.reader(), bench.reader(), bench.flow("Writer")
    reader.send(dismiss(3, RESOURCE))
    bench.response(reader, 3, 200)
    body = bench.name()
    writer.send(content_of(2, RESOURCE, body))
    bench.content(other, body)
    bench.quiet(reader, "it has dismissed the resource")


@SUITE.check(
    "MTL-45",
    "A content has a rising sequence, a resource, properties and a body",
    "contents at the reader though the sequence leaves some out, and 400 to one that does not rise",
    needs=("MTL-40",),
)
def _sequences(bench: Bench) -> None:
    reader, writer = bench.reader(), bench.flow("Writer")
    for sequence in (2, 3, 1000):
        body = bench.name()
        writer.send(content_of(sequence, RESOURCE, body))
        bench.content(reader, body)
    for sequence in (1000, 5):
        writer.send(content_of(sequence, RESOURCE, bench.name()))
        bench.response(writer, sequence, 400)


@SUITE.check(
    "MTL-47",
    "Contents to readers are like those from writers",
    "a content of type 5 with a sequence from 1, one more each time, the resource or nothing, and a field table",
    needs=("MTL-40",),
)
def _contents_alike(bench: Bench) -> None:
    reader, writer = bench.reader(), bench.flow("Writer")
    for at in range(1, 4):
        body = bench.name()
        writer.send(content_of(at + 1, RESOURCE, body))
        content = bench.content(reader, body)
        if content.sequence != at or content.resource not in ("", RESOURCE):
            message = f"content {at} came as {content}"
            raise Failed(message)


@SUITE.check(
    "MTL-48",
    "The answer to a summon comes before its contents",
    "the Response before any content, each of twenty times, while a writer writes",
    needs=("MTL-40",),
)
def _answer_first(bench: Bench) -> None:
    reader, writer = bench.flow("Reader"), bench.flow("Writer")
    sequence = 1
    for _ in range(20):
        writer.send(*(content_of(sequence + at, RESOURCE, bench.name()) for at in range(1, 4)))
        reader.send(summon(sequence := sequence + 3, RESOURCE))
        bench.response(reader, sequence, 200)
        reader.send(dismiss(sequence + 1, RESOURCE))
        while (frames := bench.receive(reader, "the Response to the Dismiss"))[0][:1] == bytes([CONTENT]):
            pass
        if frames != [struct.pack(">BQ", RESPONSE, sequence + 1), b"200"]:
            message = f"the Dismiss was answered with {shown(frames)}"
            raise Failed(message)


@SUITE.check(
    "MTL-60",
    "Field tables are those of AMQP in RabbitMQ's dialect: all types are read, few are written",
    "a table with a field of each type at the reader, as it was written",
    needs=("MTL-40",),
)
def _tables(bench: Bench) -> None:
    reader, writer, body = bench.reader(), bench.flow("Writer"), bench.name()
    table = struct.pack(">I", len(FIELDS)) + FIELDS
    writer.send(content_of(2, RESOURCE, body, table))
    content = bench.content(reader, body)
    if content.table != table:
        message = f"the table {shown([table])} came as {shown([content.table])}"
        raise Failed(message)


@SUITE.check(
    "MTL-50",
    "If the lease says so, nothing is confirmed",
    "no Confirm for three contents on a lease without confirmation",
    needs=("MTL-40",),
)
def _unconfirmed(bench: Bench) -> None:
    reader, writer = bench.reader(), bench.flow("Writer")
    for at in range(2, 5):
        body = bench.name()
        writer.send(content_of(at, RESOURCE, body))
        bench.content(reader, body)
    bench.quiet(writer, "its lease says that nothing is confirmed")


def _ignored(bench: Bench, *messages: list[bytes]) -> None:
    """Makes sure that confirmations which cover nothing have no answer, and do no harm."""
    reader, writer, body = bench.reader(), bench.flow("Writer"), bench.name()
    writer.send(content_of(2, RESOURCE, body))
    content = bench.content(reader, body)
    covering = [[message[0][:1] + struct.pack(">Q", content.sequence) + message[0][9:], b""] for message in messages]
    reader.send(*messages, *covering, *covering)
    bench.fence(reader, 50)


@SUITE.check(
    "MTL-52",
    "A confirmation has no answer; one that covers no content is ignored",
    "no answer to confirmations of no content, and of one that is not to be confirmed",
    needs=("MTL-40",),
)
def _confirms_nothing(bench: Bench) -> None:
    _ignored(bench, confirm(12345), confirm(0), confirm(12345, multiple=True))


@SUITE.check(
    "MTL-55",
    "A rejection has no answer; one that covers no content is ignored",
    "no answer to rejections of no content, and of one that is not to be confirmed",
    needs=("MTL-40",),
)
def _rejects_nothing(bench: Bench) -> None:
    _ignored(bench, reject(12345), reject(0, recycle=True), reject(12345, multiple=True))


@SUITE.check(
    "MTL-56", "Either side answers a Ping with a Pong", "a Pong for each Ping, on any lease", needs=("MTL-35",)
)
def _pongs(bench: Bench) -> None:
    for kind in ("Reader", "Writer"):
        peer = bench.flow(kind)
        for _ in range(2):
            peer.send(PING)
            frames = bench.receive(peer, "a Pong")
            if frames != PONG:
                message = f"{peer.name} got {shown(frames)}, not a Pong"
                raise Failed(message)


@SUITE.check(
    "MTL-57",
    "A side that has sent nothing for a while sends a Ping",
    f"a Ping within {_PING_S:g} s at a reader that is sent nothing",
    needs=("MTL-35",),
)
def _pings(bench: Bench) -> None:
    frames = bench.flow("Reader").next(_PING_S)
    if frames is None:
        message = f"no Ping came within {_PING_S:g} s: its interval may be longer"
        raise Skipped(message)
    if frames != PING:
        message = f"the reader got {shown(frames)}, not a Ping"
        raise Failed(message)


@SUITE.check(
    "MTL-58",
    "A peer that does not answer is considered gone, and its unconfirmed contents are returned",
    "403 to a Summon of a reader that has answered no Ping for long",
    needs=("MTL-37",),
)
def _gone(bench: Bench) -> None:
    readers = [(silence, bench.flow("Reader")) for silence in _SILENCES_S]
    waited = 0.0
    for silence, reader in readers:
        if bench.limits.left_s < silence - waited + 1:
            break
        for left in bench.limits.wait(silence - waited):
            reader.next(left)
        waited = silence
        reader.send(summon(9, RESOURCE))
        for _ in bench.limits.wait():
            frames = reader.next()
            if frames is None and reader.link.has_ended.is_set():
                return
            if frames == [struct.pack(">BQ", RESPONSE, 9), b"403"]:
                return
            if frames == [struct.pack(">BQ", RESPONSE, 9), b"200"]:
                break
            if frames is None:
                message = f"{reader.name} waited for a Response: nothing came"
                raise Failed(message)
    message = f"a reader is still known after {waited:g} s: its timers are longer than this waits"
    raise Skipped(message)
