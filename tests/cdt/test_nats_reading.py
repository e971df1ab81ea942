"""What a NATS server sends, read as nats-py reads it, however it is cut."""

from __future__ import annotations

import asyncio
import itertools

from hypothesis import given
from hypothesis import strategies as st
from nats.protocol.parser import Parser

from trunkline._native.cdt import deliveries, publications
from trunkline.cdt._client import _Reading

OURS = {7: 0, 8: 1}

words = st.binary(min_size=1, max_size=12).map(lambda word: bytes(33 + byte % 94 for byte in word))
bodies = st.one_of(st.binary(max_size=40), st.just(b"\r\n"), st.just(b"MSG a 7 2\r\nxx\r\n"), st.just(bytes(5000)))


@st.composite
def messages(draw) -> bytes:
    subject, number, body = draw(words), draw(st.sampled_from([7, 8, 9])), draw(bodies)
    reply_to = draw(st.one_of(st.just(b""), words.map(lambda word: word + b" ")))
    # None is empty: no server sends such, and nats-py takes the line that follows for a part of this one.
    block = draw(st.sampled_from([None, b"NATS/1.0\r\nA: b\r\n\r\n", b"x"]))
    if block is None:
        return b"MSG %b %d %b%d\r\n%b\r\n" % (subject, number, reply_to, len(body), body)
    sizes = (len(block), len(block) + len(body))
    return b"HMSG %b %d %b%d %d\r\n%b%b\r\n" % (subject, number, reply_to, *sizes, block, body)


others = st.sampled_from([b"PING\r\n", b"PONG\r\n", b"+OK\r\n", b"-ERR 'Slow'\r\n", b'INFO {"max_payload": 1}\r\n'])


class Heard:
    """A client that notes what its parser tells it."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.taken = OURS
        self.may_read = asyncio.Event()
        self.may_read.set()

    def deliver(self, heard) -> None:
        self.told += heard

    async def _process_msg(self, number, subject, reply_to, body, block) -> None:
        if number in OURS:
            self.told.append((OURS[number], subject, (reply_to, block or b"", body)))
        else:
            self.told.append((number, subject, reply_to, body, block))

    async def _process_ping(self) -> None:
        self.told.append("ping")

    async def _process_pong(self) -> None:
        self.told.append("pong")

    async def _process_err(self, error) -> None:
        self.told.append(error)

    async def _process_info(self, info) -> None:
        self.told.append(info)


@given(st.lists(st.one_of(messages(), messages(), others), max_size=8), st.lists(st.integers(0, 600), max_size=8))
def test_messages_are_read_as_nats_py_reads_them_however_they_are_cut(sent, cuts):
    stream = b"".join(sent)
    places = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})

    async def read(parser, heard):
        for start, end in itertools.pairwise(places):
            await parser.parse(stream[start:end])
        return heard.told

    ours, theirs = Heard(), Heard()
    assert asyncio.run(read(_Reading(ours), ours)) == asyncio.run(read(Parser(theirs), theirs))


def test_a_large_message_is_gathered_before_it_is_looked_at_again(monkeypatch):
    heard, looks = Heard(), []
    monkeypatch.setattr("trunkline.cdt._client.deliveries", lambda *given: looks.append(0) or deliveries(*given))
    stream = b"MSG a 7 1000000\r\n" + bytes(1_000_000) + b"\r\n"

    async def read():
        parser = _Reading(heard)
        for start in range(0, len(stream), 1000):
            await parser.parse(stream[start : start + 1000])

    asyncio.run(read())
    assert heard.told == [(0, b"a", (b"", b"", bytes(1_000_000)))]
    assert len(looks) == 2


def test_nothing_is_read_while_reading_is_paused():
    heard = Heard()

    async def read():
        heard.may_read.clear()
        parsing = asyncio.create_task(_Reading(heard).parse(b"MSG a 7 0\r\n\r\n"))
        await asyncio.sleep(0)
        assert not heard.told
        heard.may_read.set()
        await parsing

    asyncio.run(read())
    assert heard.told == [(0, b"a", (b"", b"", b""))]


@given(st.lists(st.tuples(words, st.one_of(st.just(b""), words), bodies), max_size=8))
def test_what_is_published_is_delivered_as_it_was(sent):
    pieces, refused = publications(
        [(0, None, subject, (reply_to, b"", body)) for subject, reply_to, body in sent], 5000
    )
    assert not refused
    # A delivery says besides which subscription it is for.
    left = b"".join(pieces)
    for subject, reply_to, body in sent:
        head = b"PUB %b %b%d\r\n" % (subject, reply_to + b" " if reply_to else b"", len(body))
        assert left.startswith(head + body + b"\r\n")
        left = left[len(head) + len(body) + 2 :]
    assert not left


def test_what_cannot_be_published_is_said_by_its_place():
    bad = [b"a b", b"", b"a\r\nPUB b 0", b"good", b"large"]
    messages = [(0, None, subject, (b"", b"", bytes(11 if subject == b"large" else 10))) for subject in bad]
    pieces, refused = publications(messages, 10)
    assert refused == [0, 1, 2, 4]
    assert b"".join(pieces) == b"PUB good 10\r\n" + bytes(10) + b"\r\n"
