"""DCP: a broker, tested by raw clients and workers."""

from __future__ import annotations

import random
from collections.abc import Sequence

import zmq

from trunkline.conform.checks import Failed, Limits, Skipped, Subject, Suite
from trunkline.conform.sockets import Peer, ZmqBench, need_endpoint, shown

__all__ = ["SUITE"]

_HEAD = (b"", b"DGBX\x01")
_PING, _PONG, _RECONNECT = ([*_HEAD, kind] for kind in (b"\x02", b"\x03", b"\x06"))
_REGISTER, _REQUEST, _REPLY = b"\x01", b"\x04", b"\x05"

# How often a worker may be silent, each time longer, before it is seen whether it was forgotten.
_SILENCES_S = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 12.0)

# How many messages of no sense a broker is sent.
_NONSENSE = 100


def _register(service: bytes) -> list[bytes]:
    return [*_HEAD, _REGISTER, service]


def _request(service: bytes, *data: bytes, client: bytes | None = None, metadata: Sequence[bytes] = ()) -> list[bytes]:
    return [*_HEAD, _REQUEST, service, *([] if client is None else [client]), b"", *metadata, b"", *data]


def _reply(client: bytes, *data: bytes, metadata: Sequence[bytes] = ()) -> list[bytes]:
    return [*_HEAD, _REPLY, client, b"", *metadata, b"", *data]


def _client_of(asked: Sequence[bytes]) -> bytes:
    """The client part of a request that a worker got."""
    if len(asked) < 6 or tuple(asked[:2]) != _HEAD or asked[2] != _REQUEST:
        message = f"a worker got {shown(asked)}, which is no request"
        raise Failed(message)
    return asked[4]


def _answer(asked: Sequence[bytes], *data: bytes) -> list[bytes]:
    """The reply to a request that a worker got."""
    client = _client_of(asked)
    return _reply(client, *data, metadata=asked[6 : asked.index(b"", 6)])


class _Bench(ZmqBench):
    """Clients and workers of a broker."""

    def __init__(self, subject: Subject, limits: Limits) -> None:
        super().__init__(subject, limits, zmq.DEALER, _answers, "a broker of DCP")

    def worker(self, service: bytes, name: str = "worker", identity: bytes | None = None) -> Peer:
        """A worker that is registered."""
        peer = self.open(name, identity=identity)
        peer.send(_register(service))
        peer.expect(_register(service))
        return peer


def _answers(bench: ZmqBench) -> bool:
    """Whether there is any answer to what must be answered: a stranger's ping, and a registration."""
    peer = bench.open("stranger")
    peer.send(_PING, _register(bench.name()))
    frames = peer.next()
    return frames is not None and b"DGBX\x01" in frames[:3]


SUITE = Suite(
    "a broker of DCP",
    _Bench,
    {
        "DCP-04": "the endpoint under test has one transport",
        "DCP-05": "clients and workers do this",
        "DCP-12": "workers do this",
        "DCP-23": "workers do this",
        "DCP-30": "clients do this",
        "DCP-31": "it allows, and asks for nothing",
        "DCP-36": "clients do this",
        "DCP-37": "workers do this",
        "DCP-41": "workers do this",
    },
    need_endpoint,
)


@SUITE.check("DCP-02", "Everything goes over ZeroMQ", "a greeting of ZMTP 3")
def _zeromq(bench: _Bench) -> None:
    bench.need_zmtp_3()


@SUITE.check("DCP-03", "The broker has one ROUTER that listens on many endpoints", "a socket that says it is a ROUTER")
def _router(bench: _Bench) -> None:
    bench.need_router()


@SUITE.check(
    "DCP-14",
    "A registration is confirmed with the same message; a refused one with nothing",
    "the registration again, frame by frame",
)
def _confirms(bench: _Bench) -> None:
    bench.worker(bench.name())


@SUITE.check(
    "DCP-06",
    "A client's first message may be a request",
    "a request of a client that has said nothing before, at the worker of its service",
    needs=("DCP-14",),
)
def _first_message(bench: _Bench) -> None:
    service = bench.name()
    worker = bench.worker(service)
    bench.open("client").send(_request(service, b"data"))
    _client_of(worker.receive("the request"))


@SUITE.check(
    "DCP-26",
    "A reply is client, delimiter, metadata, delimiter and data",
    "the worker's reply at the client, frame by frame: without a service, with the client's own address",
    needs=("DCP-06",),
)
def _reply_is_whole(bench: _Bench) -> None:
    service = bench.name()
    worker, client = bench.worker(service), bench.open("client")
    client.send(_request(service, b"data", metadata=[b"m"]))
    answer = _answer(worker.receive("the request"), b"one", b"two")
    worker.send(answer)
    client.expect(answer)


@SUITE.check(
    "DCP-01",
    "There is one broker, with any number of clients and workers",
    "every client's reply, with eight clients and eight workers connected",
    needs=("DCP-26",),
)
def _many(bench: _Bench) -> None:
    services = [bench.name() for _ in range(8)]
    workers = [bench.worker(service, f"worker {at}") for at, service in enumerate(services)]
    clients = [bench.open(f"client {at}") for at in range(8)]
    for client, service in zip(clients, services, strict=True):
        client.send(_request(service, service))
    answers = []
    for worker in workers:
        answers.append(_answer(worker.receive("a request"), b"done"))
        worker.send(answers[-1])
    for client, answer in zip(clients, answers, strict=True):
        client.expect(answer)


@SUITE.check(
    "DCP-08",
    "A header is address, delimiter, protocol and type",
    "an empty frame, DGBX and version 1, and one byte of type before everything else, in whatever the broker sends",
    needs=("DCP-26",),
)
def _headers(bench: _Bench) -> None:
    service = bench.name()
    worker, client = bench.worker(service), bench.open("client")
    client.send(_request(service))
    asked = worker.receive("the request")
    worker.send(_answer(asked))
    stranger = bench.open("stranger")
    stranger.send(_PING)
    came = [asked, client.receive("the reply")]
    # Whether it answers a stranger at all is another requirement.
    came += [frames for frames in [stranger.next()] if frames is not None]
    for frames in came:
        if tuple(frames[:2]) != _HEAD or len(frames[2:3] and frames[2]) != 1:
            message = f"{shown(frames)} has another header"
            raise Failed(message)


@SUITE.check(
    "DCP-09",
    "The broker addresses a message by the routing id of the receiver",
    "each reply at the client that it is for, with no address in front of the delimiter",
    needs=("DCP-26",),
)
def _addresses(bench: _Bench) -> None:
    service = bench.name()
    worker = bench.worker(service)
    clients = [bench.open(f"client {at}") for at in range(3)]
    for client in clients:
        client.send(_request(service))
        answer = _answer(worker.receive("the request"), client.name.encode())
        worker.send(answer)
        client.expect(answer)


def _ignores(bench: _Bench, *messages: list[bytes]) -> None:
    """Makes sure that messages of a stranger are dropped: the registration after them is the first to be answered."""
    peers = []
    for given in messages:
        service = bench.name()
        frames = [frame.replace(b"SERVICE", service) for frame in given]
        peer = bench.open("worker")
        peers.append((peer, frames))
        peer.send(frames, _register(service))
        came = peer.receive("the answer to what came after")
        if came != _register(service):
            message = f"{shown(frames)} was answered with {shown(came)}"
            raise Failed(message)
    # The others have time for an answer meanwhile.
    for at, (peer, frames) in enumerate(reversed(peers)):
        peer.expect_silence(f"{shown(frames)} was to be dropped", 0 if at else None)


@SUITE.check(
    "DCP-10",
    "The protocol frame is the name and version 1; anything else is dropped",
    "no answer to another protocol, another version, or none",
    needs=("DCP-14",),
)
def _protocols(bench: _Bench) -> None:
    _ignores(
        bench, *([b"", name, _REGISTER, b"SERVICE"] for name in (b"DGBX\x02", b"DGBX", b"XXXX\x01", b"DGBX\x01\0"))
    )


@SUITE.check(
    "DCP-11",
    "A type is one byte from 1 to 6; the original's four bytes are an option",
    "no answer to types 0 and 7, of two bytes, and of four",
    needs=("DCP-14",),
)
def _types(bench: _Bench) -> None:
    _ignores(bench, *([*_HEAD, kind, b"SERVICE"] for kind in (b"\0", b"\x07", b"\x01\0", b"\x01\0\0\0", b"")))


@SUITE.check(
    "DCP-13",
    "The name of a service is any bytes, none included",
    "a registration and a request for names with NUL, without UTF-8, and of 64 KiB",
    needs=("DCP-06",),
)
def _names(bench: _Bench) -> None:
    client = bench.open("client")
    for end in (b"\0\0", b"\xff\xfe", b"n" * (64 << 10)):
        service = bench.name() + end
        worker = bench.worker(service)
        client.send(_request(service, b"data"))
        asked = worker.receive("the request")
        if asked[3:4] != [service]:
            message = f"the worker of {shown([service])} got {shown(asked)}"
            raise Failed(message)


@SUITE.check(
    "DCP-15",
    "Registering again refreshes, or replaces the service, and frees the worker",
    "both registrations confirmed, and from then on requests for the second service only",
    needs=("DCP-06",),
)
def _again(bench: _Bench) -> None:
    first, second = bench.name(), bench.name()
    worker, client = bench.worker(first), bench.open("client")
    for service in (first, second):
        worker.send(_register(service))
        worker.expect(_register(service))
    client.send(_request(first, b"first"), _request(second, b"second"))
    asked = worker.receive("the request for its second service")
    if asked[3:4] != [second]:
        message = f"the worker got {shown(asked)}, which is for the service it no longer has"
        raise Failed(message)
    worker.send(_answer(asked))
    worker.expect_silence("it no longer has the first service")


@SUITE.check(
    "DCP-16",
    "A registration has exactly one frame after its header",
    "no answer to a registration without a service, and to one with two",
    needs=("DCP-14",),
)
def _frames_of_registration(bench: _Bench) -> None:
    _ignores(bench, [*_HEAD, _REGISTER], [*_HEAD, _REGISTER, b"SERVICE", b"SERVICE"])


@SUITE.check(
    "DCP-18",
    "A request is service, client, delimiter, metadata, delimiter and data",
    "none of the requests without a delimiter at the worker, and then the good one",
    needs=("DCP-06",),
)
def _shape_of_request(bench: _Bench) -> None:
    service = bench.name()
    worker, client = bench.worker(service), bench.open("client")
    bad = [
        [*_HEAD, _REQUEST],
        [*_HEAD, _REQUEST, service],
        [*_HEAD, _REQUEST, service, b""],
        [*_HEAD, _REQUEST, service, b"client", b"data"],
        [*_HEAD, _REQUEST, service, b"client", b"", b"metadata"],
    ]
    client.send(*bad, _request(service, b"good"))
    asked = worker.receive("the good request")
    if asked[-1:] != [b"good"]:
        message = f"the worker got {shown(asked)}, which lacks a delimiter"
        raise Failed(message)


@SUITE.check(
    "DCP-17",
    "Clients and workers may send requests",
    "a worker's own request at the worker of another service, and its reply",
    needs=("DCP-26",),
)
def _workers_ask(bench: _Bench) -> None:
    service = bench.name()
    other, worker = bench.worker(bench.name(), "asking worker"), bench.worker(service)
    other.send(_request(service, b"data"))
    answer = _answer(worker.receive("the request"), b"done")
    worker.send(answer)
    other.expect(answer)


@SUITE.check(
    "DCP-07",
    "A worker may send requests like a client",
    "requests for the service of a worker that has sent some itself",
    needs=("DCP-17",),
)
def _asks_and_serves(bench: _Bench) -> None:
    mine, service = bench.name(), bench.name()
    both, worker, client = bench.worker(mine, "asking worker"), bench.worker(service), bench.open("client")
    both.send(_request(service, b"data"))
    answer = _answer(worker.receive("the request"))
    worker.send(answer)
    both.expect(answer)
    client.send(_request(mine, b"mine"))
    if both.receive("the request for its own service")[-1:] != [b"mine"]:
        message = "the worker got another request than that for its service"
        raise Failed(message)


@SUITE.check(
    "DCP-19",
    "A request reaches workers of exactly that service",
    "each request at the worker whose service is equal byte by byte, and at no other",
    needs=("DCP-06",),
)
def _exactly(bench: _Bench) -> None:
    service = bench.name()
    services = [service, service + b"\0", service.upper(), service + b" "]
    workers = [bench.worker(each, f"worker {at}") for at, each in enumerate(services)]
    client = bench.open("client")
    # A worker of a similar name is free each time, and is asked first where names are not compared as they are.
    for worker, each in reversed([*zip(workers, services, strict=True)]):
        client.send(_request(each, each))
        asked = worker.receive(f"the request for {shown([each])}")
        if asked[-1:] != [each]:
            message = f"the worker of {shown([each])} got {shown(asked)}"
            raise Failed(message)


@SUITE.check(
    "DCP-20",
    "The sender's address is put in where the client part is missing, and only there",
    "at the worker the client's routing id where the request had no client, and the client of the request where it had one",
    needs=("DCP-06",),
)
def _client_part(bench: _Bench) -> None:
    service, identity, foreign = bench.name(), bench.name(), bench.name()
    worker = bench.worker(service)
    bench.open("client", identity=identity).send(_request(service))
    asked = worker.receive("the request without a client")
    if _client_of(asked) != identity:
        message = f"the client {shown([identity])} became {shown([_client_of(asked)])}"
        raise Failed(message)
    worker.send(_answer(asked))
    # A broker may not believe a client here, but it has to believe a worker.
    bench.worker(bench.name(), "forwarding worker").send(_request(service, client=foreign))
    asked = worker.receive("the request with a client")
    if _client_of(asked) != foreign:
        message = f"the client {shown([foreign])} became {shown([_client_of(asked)])}"
        raise Failed(message)


@SUITE.check(
    "DCP-21",
    "An empty frame ends the client's address",
    "an empty frame behind the client at the worker",
    needs=("DCP-06",),
)
def _delimiter(bench: _Bench) -> None:
    service = bench.name()
    worker = bench.worker(service)
    bench.open("client").send(_request(service, b"data", metadata=[b"m"]))
    asked = worker.receive("the request")
    if asked[5:6] != [b""]:
        message = f"the worker got {shown(asked)}"
        raise Failed(message)


def _travels(bench: _Bench, requests: Sequence[tuple[Sequence[bytes], Sequence[bytes]]]) -> None:
    """Makes sure that metadata and data pass the broker both ways as they are."""
    service = bench.name()
    worker, client = bench.worker(service), bench.open("client")
    for metadata, data in requests:
        client.send(_request(service, *data, metadata=metadata))
        asked = worker.receive("the request")
        if asked[6:] != [*metadata, b"", *data]:
            message = f"{shown([*metadata, b'', *data])} came to the worker as {shown(asked[6:])}"
            raise Failed(message)
        answer = _reply(_client_of(asked), *data, metadata=metadata)
        worker.send(answer)
        client.expect(answer)


@SUITE.check(
    "DCP-22",
    "Metadata passes the broker untouched",
    "none, one, five and a hundred frames of metadata as they were sent, both ways",
    needs=("DCP-26",),
)
def _metadata(bench: _Bench) -> None:
    _travels(bench, [([bytes([at, 0, 255]) for at in range(count)], [b"data"]) for count in (0, 1, 5, 100)])


@SUITE.check(
    "DCP-24",
    "The metadata delimiter is there also without metadata",
    "a request with neither metadata nor data at the worker, with both delimiters",
    needs=("DCP-06",),
)
def _bare(bench: _Bench) -> None:
    service = bench.name()
    worker = bench.worker(service)
    bench.open("client").send(_request(service))
    asked = worker.receive("the request")
    if asked[5:] != [b"", b""]:
        message = f"the worker got {shown(asked)}"
        raise Failed(message)


@SUITE.check(
    "DCP-25",
    "Data has any number of parts, empty ones included",
    "data of no, one and several frames as it was sent, empty ones included, both ways",
    needs=("DCP-26",),
)
def _data(bench: _Bench) -> None:
    _travels(bench, [([b"m"], data) for data in ([], [b""], [b"a", b"", b"b"], [b"", b""], [b"x" * (256 << 10)])])


@SUITE.check(
    "DCP-27",
    "A reply goes to the client in it; where that is gone it is dropped and counted",
    "the next request served after a reply without a client, and after one to a client that is gone",
    needs=("DCP-26",),
)
def _to_the_client(bench: _Bench) -> None:
    service = bench.name()
    worker = bench.worker(service)
    gone, client = bench.open("client that leaves"), bench.open("client")
    gone.send(_request(service, b"1"))
    asked = worker.receive("the request of the client that leaves")
    gone.close()
    worker.send([*_HEAD, _REPLY, _client_of(asked)], _answer(asked))
    # Time for the broker to have both before a request of another connection overtakes them.
    client.expect_silence("it has asked for nothing yet")
    client.send(_request(service, b"2"))
    answer = _answer(worker.receive("the request of another client"), b"done")
    worker.send(answer)
    client.expect(answer)


@SUITE.check(
    "DCP-28",
    "Many requests in flight, replies in any order, matched by metadata",
    "three replies at the client in the order in which the workers gave them",
    needs=("DCP-26",),
)
def _any_order(bench: _Bench) -> None:
    services = [bench.name() for _ in range(3)]
    workers = [bench.worker(service, f"worker {at}") for at, service in enumerate(services)]
    client = bench.open("client")
    client.send(*(_request(service, b"data", metadata=[bytes([at])]) for at, service in enumerate(services)))
    answers = [_answer(worker.receive("the request")) for worker in workers]
    for worker, answer in reversed([*zip(workers, answers, strict=True)]):
        worker.send(answer)
        client.expect(answer)


@SUITE.check(
    "DCP-29",
    "Requests wait in a bounded queue for each service, first come first served",
    "requests at the worker in their order, though it registers after them",
    needs=("DCP-26",),
)
def _queues(bench: _Bench) -> None:
    service = bench.name()
    client = bench.open("client")
    client.send(*(_request(service, bytes([at])) for at in range(3)))
    # Once this is answered those before it have been read.
    _fence(bench, client)
    worker = bench.worker(service)
    for at in range(3):
        asked = worker.receive("a request that waits")
        if asked[-1:] != [bytes([at])]:
            message = f"request {at} was to come, not {shown(asked)}"
            raise Failed(message)
        worker.send(_answer(asked))


def _fence(bench: _Bench, client: Peer) -> None:
    """Waits until the broker has read what the client has sent before."""
    service = bench.name()
    worker = bench.worker(service, "other worker")
    client.send(_request(service, b"fence"))
    _client_of(worker.receive("the request for another service"))


@SUITE.check(
    "DCP-32",
    "A worker gets no second request before it has answered",
    "one request at the worker, until it replies",
    needs=("DCP-26",),
)
def _one_at_a_time(bench: _Bench) -> None:
    service = bench.name()
    worker, client = bench.worker(service), bench.open("client")
    client.send(*(_request(service, bytes([at])) for at in range(3)))
    asked = worker.receive("the first request")
    _fence(bench, client)
    worker.expect_silence("it has not answered yet")
    worker.send(_answer(asked))


@SUITE.check(
    "DCP-33",
    "Replies, forwards and pings ask for work; a ping of a busy worker once",
    "the next request at a worker that has replied, and at one that has forwarded",
    needs=("DCP-26",),
)
def _asks_for_work(bench: _Bench) -> None:
    service, elsewhere = bench.name(), bench.name()
    worker, client = bench.worker(service), bench.open("client")
    client.send(*(_request(service, bytes([at])) for at in range(3)))
    worker.send(_answer(worker.receive("the first request")))
    asked = worker.receive("the second request, as it has replied")
    worker.send(_request(elsewhere, b"forwarded", client=_client_of(asked)))
    _client_of(worker.receive("the third request, as it has forwarded"))


@SUITE.check(
    "DCP-34",
    "A worker hands a request on, and the last worker's reply goes to the first client",
    "the last worker's reply at the client, with the metadata of the client",
    needs=("DCP-26",),
)
def _forwards(bench: _Bench) -> None:
    first, second = bench.name(), bench.name()
    one, two, client = bench.worker(first, "first worker"), bench.worker(second, "last worker"), bench.open("client")
    client.send(_request(first, b"data", metadata=[b"m"]))
    asked = one.receive("the request")
    one.send([*_HEAD, _REQUEST, second, *asked[4:]])
    handed = two.receive("the request that was handed on")
    if handed[4:] != asked[4:]:
        message = f"{shown(asked[4:])} was handed on as {shown(handed[4:])}"
        raise Failed(message)
    answer = _answer(handed, b"done")
    two.send(answer)
    client.expect(answer)


@SUITE.check(
    "DCP-35",
    "A request of a worker's own does not make it free",
    "the reply to its own request at a worker that has a request in hand, and no second request before that",
    needs=("DCP-32", "DCP-17"),
)
def _own_request(bench: _Bench) -> None:
    service, helping = bench.name(), bench.name()
    worker, helper, client = bench.worker(service), bench.worker(helping, "other worker"), bench.open("client")
    client.send(_request(service, b"1"), _request(service, b"2"))
    asked = worker.receive("the first request")
    _fence(bench, client)
    worker.send(_request(helping, b"help"))
    answer = _answer(helper.receive("the worker's own request"), b"helped")
    helper.send(answer)
    worker.expect(answer)
    worker.expect_silence("it has not answered yet")
    worker.send(_answer(asked))
    if worker.receive("the second request")[-1:] != [b"2"]:
        message = "the worker got another request than the second"
        raise Failed(message)


@SUITE.check("DCP-38", "Every ping of a worker is answered by a pong", "three pongs for three pings", needs=("DCP-14",))
def _pongs(bench: _Bench) -> None:
    worker = bench.worker(bench.name())
    worker.send(_PING, _PING, _PING)
    worker.expect(_PONG, _PONG, _PONG)


@SUITE.check(
    "DCP-39",
    "Heartbeats are nothing but a header",
    "no answer to a ping with another frame, and a pong for the one after it",
    needs=("DCP-38",),
)
def _bare_heartbeats(bench: _Bench) -> None:
    worker = bench.worker(bench.name())
    worker.send([*_PING, b"more"], [*_PING, b""], _PING)
    worker.expect(_PONG)
    worker.expect_silence("only the last ping was one")


@SUITE.check(
    "DCP-40",
    "A heartbeat from a stranger is answered by a reconnect",
    "a reconnect, which is a header and nothing else, for a ping and for a pong of a peer that has not registered",
)
def _strangers(bench: _Bench) -> None:
    for beat in (_PING, _PONG):
        stranger = bench.open("stranger")
        stranger.send(beat)
        stranger.expect(_RECONNECT)
        stranger.expect_silence("one reconnect is the answer")


@SUITE.check(
    "DCP-43",
    "Security is a layer of its own",
    "no answer to a peer without encryption, where the broker has CURVE",
)
def _encrypted(bench: _Bench) -> None:
    bench.need_curve("broker")
    bench.need_refusal("stranger without a key", _PING)


@SUITE.check(
    "DCP-44",
    "Nothing that comes in ends the broker or makes it grow",
    "a request served after 100 messages of no sense",
    needs=("DCP-26",),
)
def _nonsense(bench: _Bench) -> None:
    # The same ones each time.
    chance = random.Random(44)  # noqa: S311 - it keeps no secret
    stranger = bench.open("stranger")
    pieces = (b"", b"DGBX\x01", b"DGBX", b"\x02", b"\x05", b"\x06", b"\xff" * 9, b"x" * 1000)
    for _ in range(_NONSENSE):
        stranger.send([chance.choice(pieces) for _ in range(chance.randrange(1, 9))])
    service = bench.name()
    worker, client = bench.worker(service), bench.open("client")
    client.send(_request(service))
    answer = _answer(worker.receive("a request"), b"alive")
    worker.send(answer)
    client.expect(answer)


@SUITE.check(
    "DCP-42",
    "Silence of several intervals is a lost peer, on both sides",
    "a reconnect for the ping of a worker that was silent for long",
    needs=("DCP-40", "DCP-38"),
)
def _silent_workers(bench: _Bench) -> None:
    waited = 0.0
    workers = [(silence, bench.worker(bench.name(), f"worker silent for {silence:g} s")) for silence in _SILENCES_S]
    for silence, worker in workers:
        if bench.limits.left_s < silence - waited + 1:
            break
        for _ in bench.limits.wait(silence - waited):
            worker.next(0.05)
        waited = silence
        worker.send(_PING)
        # A broker may also close the connection.
        if worker.link.has_ended.is_set() or worker.receive("an answer to its ping") == _RECONNECT:
            return
    message = f"a worker is still known after {waited:g} s: its timers are longer than this waits"
    raise Skipped(message)
