"""What a NATS server sends, read as nats-py reads it, however it is cut."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.protocol.parser import Parser

from trunkline._native import Messages
from trunkline._native.cdt import Inflow, publications

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


others = st.sampled_from([b"PING\r\n", b"PONG\r\n", b"+OK\r\n", b"-ERR 'Slow'\r\n"])


class Heard:
    """A client that records what its parser passes to it."""

    def __init__(self) -> None:
        self.parsed: list[object] = []

    async def _process_msg(self, number, subject, reply_to, body, block) -> None:
        if number in OURS:
            self.parsed.append((OURS[number], None, subject, (reply_to, block or b"", body)))
        else:
            self.parsed.append((number, subject, reply_to, body, block))

    async def _process_ping(self) -> None:
        self.parsed.append("ping")

    async def _process_pong(self) -> None:
        self.parsed.append("pong")

    async def _process_err(self, error) -> None:
        self.parsed.append(error)

    async def _process_info(self, info) -> None:
        self.parsed.append(info)


def inflow() -> Inflow:
    made = Inflow()
    for subscription, number in OURS.items():
        made.take(subscription, number)
    return made


async def all_of(parser: Parser, heard: Heard, *pieces: bytes) -> list[object]:
    for piece in pieces:
        await parser.parse(piece)
    return heard.parsed


@given(st.lists(st.one_of(messages(), messages(), others), max_size=8), st.lists(st.integers(0, 600), max_size=8))
def test_messages_are_read_as_nats_py_reads_them_however_they_are_cut(sent, cuts):
    stream = b"".join(sent)
    places = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    ours, rest, read = [], [], inflow()
    for start, end in itertools.pairwise(places):
        # What lies beyond in the buffer is of an earlier read.
        taken, left = read.feed(bytearray(stream[start:end] + b"PING\r\n"), end - start)
        ours += taken
        rest.append(left)
    theirs, others = Heard(), Heard()
    parsed = asyncio.run(all_of(Parser(theirs), theirs, stream))
    assert ours == [one for one in parsed if isinstance(one, tuple) and len(one) == 4]
    assert asyncio.run(all_of(Parser(others), others, *rest)) == [one for one in parsed if one not in ours]


def test_a_subscription_that_was_left_and_a_message_cut_off_by_another_connection():
    read = inflow()
    stream = b"MSG a 7 0\r\n\r\nMSG a 8 9\r\n123"
    assert [message[0] for message in read.feed(bytearray(stream), len(stream))[0]] == [0]
    read.reset()
    read.leave(7)
    stream = b"MSG a 7 0\r\n\r\nMSG a 8 0\r\n\r\n"
    taken, rest = read.feed(bytearray(stream), len(stream))
    assert [message[0] for message in taken] == [1]
    assert rest == b"MSG a 7 0\r\n\r\n"
    with pytest.raises(ValueError, match="12 bytes"):
        read.feed(bytearray(12), 13)


def test_messages_are_taken_off_by_their_bytes():
    given = [(socket, None, b"a", (b"", b"", bytes(10))) for socket in range(5)]
    messages = Messages(given)
    assert (len(messages), messages.nbytes, messages.numbered) == (5, 50, False)
    assert list(messages.take(0)) == given[:1]
    assert list(messages.take(11)) == given[1:3]
    assert (len(messages), messages.nbytes) == (2, 20)
    assert list(messages.take(100)) == given[3:]
    assert not messages
    assert not messages.take(1)
    assert Messages([(0, 7, b"a", (b"",))]).numbered


@given(st.lists(st.tuples(words, st.one_of(st.just(b""), words), bodies), max_size=8))
def test_what_is_published_is_delivered_as_it_was(sent):
    messages = Messages([(0, None, subject, (reply_to, b"", body)) for subject, reply_to, body in sent])
    left, refused = publications(messages, 5000)
    assert not refused
    # A delivery says besides which subscription it is for.
    for subject, reply_to, body in sent:
        head = b"PUB %b %b%d\r\n" % (subject, reply_to + b" " if reply_to else b"", len(body))
        assert left.startswith(head + body + b"\r\n")
        left = left[len(head) + len(body) + 2 :]
    assert not left


def test_what_cannot_be_published_is_said_by_its_place():
    bad = [b"a b", b"", b"a\r\nPUB b 0", b"good", b"large"]
    messages = [(0, None, subject, (b"", b"", bytes(11 if subject == b"large" else 10))) for subject in bad]
    written, refused = publications(Messages(messages), 10)
    assert refused == [0, 1, 2, 4]
    assert written == b"PUB good 10\r\n" + bytes(10) + b"\r\n"


def test_of_a_flood_of_info_the_last_is_read():
    flood = b"PING\r\n" + b"".join(b'INFO {"max_payload": %d}\r\n' % number for number in range(1000))
    messages, rest = inflow().feed(bytearray(flood), len(flood))
    assert (len(messages), rest) == (0, b'PING\r\nINFO {"max_payload": 999}\r\n')


@pytest.mark.parametrize("sent", [b"MSG a 7 999999999999999\r\n", b"x" * (2 << 20)], ids=["message", "line"])
def test_what_no_server_sends_is_not_gathered(sent):
    with pytest.raises(ValueError, match="longer than any"):
        inflow().feed(bytearray(sent), len(sent))
