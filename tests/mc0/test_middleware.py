"""The middleware, between raw DEALER sockets that speak packed bytes: over every transport, and encrypted."""

import itertools
import logging
import random
import re
import socket
import time
from contextlib import ExitStack

import pytest
import zmq

from peers.mc0 import ANY, connect, error, message, noop, ok, pack, put, sub, unsub
from peers.waiting import until
from trunkline import Curve, mc0
from trunkline.errors import ClosedError, LocalProtocolError, TimeoutError

SERVER, CLIENT, OTHER = (zmq.curve_keypair() for _ in range(3))


def as_client(keys):
    return {"curve_serverkey": SERVER[0], "curve_publickey": keys[0], "curve_secretkey": keys[1]}


@pytest.fixture(params=["tcp", "ipc", "inproc", "curve"])
def place(request, context, tmp_path):
    """The options of a middleware and of a raw peer, on each transport."""
    where = {"ipc": f"ipc://{tmp_path}/bus", "inproc": "inproc://bus"}.get(request.param, ANY)
    ours = {"context": context} if request.param == "inproc" else {}
    theirs = {}
    if request.param == "curve":
        ours, theirs = {"curve": Curve(SERVER)}, as_client(CLIENT)
    return {"bind": where, **ours}, theirs


@pytest.fixture
def start(place):
    """Starts middlewares; they are closed with the test."""
    with ExitStack() as stack:

        def start(**options):
            bus = mc0.Middleware(**{**place[0], **options})
            stack.callback(lambda: bus.close(drain_s=0))
            return bus

        yield start


@pytest.fixture
def dial(open_socket, place):
    """A DEALER at a middleware."""

    def dial(bus, **options):
        return open_socket(zmq.DEALER, connect=bus.endpoints[0], **{**place[1], **options})

    return dial


@pytest.fixture
def bus(start):
    return start()


def ask(peer, frames):
    peer.send_multipart(frames)
    return peer.recv_multipart()


def subscribed(peer, *topics):
    assert ask(peer, sub(*topics, id_=b"sub")) == ok(b"sub")
    return peer


def is_silent(peer, ms=200):
    return not peer.poll(ms)


@pytest.mark.req("MC0-01", "MC0-03", "MC0-05", "MC0-30", "MC0-31")
def test_what_is_put_reaches_every_subscriber_once(bus, dial):
    subscribers = [subscribed(dial(bus), b"t") for _ in range(100)]
    publisher = dial(bus)
    body = [b"\xff\xfe", b"", bytes(range(256)) * 300]
    assert ask(publisher, put(b"t", *body, id_=b"1", headers=[(b"X-A", b"\xff")])) == ok(b"1")
    for subscriber in subscribers:
        assert subscriber.recv_multipart() == message(b"t", *body, headers=[(b"X-A", b"\xff")])
    assert ask(publisher, put(b"u", b"x", id_=b"2")) == ok(b"2")
    assert all(is_silent(subscriber, 0) for subscriber in subscribers)
    assert bus.stats.messages == 100


@pytest.mark.req("MC0-30")
def test_a_publisher_that_is_subscribed_has_its_own(bus, dial):
    peer = subscribed(dial(bus), b"t")
    assert ask(peer, put(b"t", b"x")) == message(b"t", b"x")


@pytest.mark.req("MC0-07")
def test_both_styles_meet(bus, dial):
    with_it, without = subscribed(dial(bus), b"t"), dial(bus)
    assert ask(without, sub(b"t", id_=b"1")[1:]) == ok(b"1")[1:]
    with_it.send_multipart(put(b"t", b"x"))
    assert with_it.recv_multipart() == message(b"t", b"x")
    assert without.recv_multipart() == message(b"t", b"x")[1:]


@pytest.mark.req("MC0-14", "MC0-18")
def test_what_has_no_id_is_taken_in_silence(bus, dial):
    peer = dial(bus)
    for frames in [
        connect(),
        sub(b"t"),
        unsub(b"t"),
        put(b"t", b"x"),
        noop(),
        pack(b"NOOP", (b"FOO", b"1")),
        pack(b"DISCONNECT"),
    ]:
        peer.send_multipart(frames)
    assert is_silent(peer)
    assert ask(peer, noop(b"1")) == ok(b"1")
    assert bus.stats.dropped == {}


@pytest.mark.req("MC0-12", "MC0-15", "MC0-16", "MC0-34")
@pytest.mark.parametrize(
    ("frames", "kind"),
    [
        ([b""], "missing_verb"),
        ([b"", b"", b"x"], "missing_verb"),
        (pack(b"PING"), "unknown_verb"),
        (pack(b"put", (b"ID", b"7")), "unknown_verb"),
        ([b"", b"NOOP", b"ID", b"7", b"X"], "odd_headers"),
        ([b"NOOP", b"X"], "odd_headers"),
        (pack(b"PUT", (b"ID", b"7"), body=[b"x"]), "missing_topic"),
        (pack(b"CONNECT", (b"TTL", b"-1")), "bad_ttl"),
        (pack(b"CONNECT", (b"VERSION", b"1.0")), "unsupported_version"),
        (pack(b"MESSAGE", (b"TOPIC", b"t"), body=[b"x"]), "unexpected_verb"),
        (sub(b"t" * 65537, id_=b"7"), "bad_topic"),
        ([b"", b"PUT", b"ID", b"7", b"TOPIC", b"t"] + [b""] * 10_000, "too_many_frames"),
    ],
    ids=str,
)
def test_what_cannot_be_used_is_answered_and_counted(start, dial, frames, kind):
    dropped = []
    # Our own transport hangs up on who sends too many frames.
    bus = start(on_drop=dropped.append, **({"transport": "libzmq"} if kind == "too_many_frames" else {}))
    peer = dial(bus)
    answer = ask(peer, frames)
    style = [b""] if frames[0] == b"" else []
    assert answer[: len(style) + 2] == [*style, b"ERROR", b"MESSAGE"]
    asked = {pair for pair in itertools.pairwise(frames) if pair[0] == b"ID"}
    assert answer[len(style) + 3 :] == [part for pair in asked for part in pair]
    assert answer[len(style) + 2].decode().isprintable()
    until(lambda: dropped)
    assert bus.stats.dropped == {kind: 1}
    assert (dropped[0].kind, list(dropped[0].frames)) == (kind, frames[:10_001])
    assert ask(peer, noop(b"8")) == ok(b"8")


@pytest.mark.req("MC0-12")
def test_two_middlewares_at_each_other_keep_quiet(bus, dial):
    peer = dial(bus)
    for frames in [ok(b"1"), error(b"no"), pack(b"OK"), [b"", b"ERROR", b"X"]]:
        peer.send_multipart(frames)
    assert is_silent(peer)
    assert bus.stats.dropped == {"unexpected_verb": 2, "missing_id": 1, "odd_headers": 1}


@pytest.mark.req("MC0-21", "MC0-22")
def test_a_client_is_greeted_and_then_forgotten(bus, dial):
    client, publisher = dial(bus), dial(bus)
    began = time.monotonic()
    client.send_multipart(connect(300))
    subscribed(client, b"t")
    assert client.recv_multipart() == noop()
    assert time.monotonic() - began > 0.28
    until(lambda: bus.stats.clients == 0)
    assert time.monotonic() - began > 0.31
    assert ask(publisher, put(b"t", b"x", id_=b"1")) == ok(b"1")
    assert is_silent(client)
    # A sleeper comes back as a stranger.
    assert ask(client, noop(b"2")) == ok(b"2")
    subscribed(client, b"t")
    publisher.send_multipart(put(b"t", b"y"))
    assert client.recv_multipart() == message(b"t", b"y")


@pytest.mark.req("MC0-23", "MC0-24")
def test_without_a_ttl_nobody_is_forgotten_or_greeted(bus, dial):
    clients = [dial(bus) for _ in range(2)]
    for client, frames in zip(clients, [connect(), connect(0)], strict=True):
        client.send_multipart(frames)
        subscribed(client, b"t")
    assert all(is_silent(client, 700) for client in clients)
    clients[0].send_multipart(put(b"t", b"x"))
    assert [client.recv_multipart() for client in clients] == [message(b"t", b"x")] * 2


@pytest.mark.req("MC0-27", "MC0-29")
def test_who_leaves_hears_no_more(bus, dial):
    leaver, stayer = dial(bus), subscribed(dial(bus), b"t")
    subscribed(leaver, b"t", b"u")
    assert ask(leaver, unsub(b"t", b"v", id_=b"1")) == ok(b"1")
    stayer.send_multipart(put(b"t", b"x"))
    assert stayer.recv_multipart() == message(b"t", b"x")
    stayer.send_multipart(put(b"u", b"y"))
    assert leaver.recv_multipart() == message(b"u", b"y")
    assert ask(leaver, pack(b"DISCONNECT", (b"ID", b"2"))) == ok(b"2")
    assert ask(stayer, put(b"u", b"z", id_=b"3")) == ok(b"3")
    assert is_silent(leaver)
    assert bus.stats.clients == 1


def test_one_that_is_gone_is_forgotten_with_what_it_cannot_be_sent(bus, dial):
    gone, publisher = subscribed(dial(bus), b"t"), dial(bus)
    gone.close(linger=0)

    def forgotten():
        assert ask(publisher, put(b"t", b"x", id_=b"1")) == ok(b"1")
        return bus.stats.clients == 0

    until(forgotten)
    assert (bus.stats.subscriptions, bus.stats.topics) == (0, ())


@pytest.mark.req("MC0-33")
def test_the_order_of_a_publisher_holds(bus, dial):
    subscriber, publisher = subscribed(dial(bus, rcvhwm=0), b"t"), dial(bus, sndhwm=0)
    for number in range(10_000):
        publisher.send_multipart(put(b"t", b"%d" % number))
    for number in range(10_000):
        assert subscriber.recv_multipart() == message(b"t", b"%d" % number)


@pytest.mark.parametrize("overflow", ["drop-newest", "drop-oldest", "disconnect"])
def test_one_that_does_not_read_loses_its_own_alone(start, dial, overflow):
    dropped = []
    bus = start(overflow=overflow, client_queue_messages=100, options={zmq.SNDHWM: 10}, on_drop=dropped.append)
    deaf = subscribed(dial(bus, rcvhwm=1), b"t")
    reader, publisher = subscribed(dial(bus), b"t"), dial(bus)
    body = b"x" * 100_000
    for number in range(600):
        publisher.send_multipart(put(b"t", b"%d" % number, body))
        assert reader.recv_multipart() == message(b"t", b"%d" % number, body)
    full = bus.stats.dropped["peer_full"]
    assert full >= 100
    until(lambda: dropped)
    assert dropped[0].kind == "peer_full"
    assert ask(publisher, noop(b"1")) == ok(b"1")
    heard = []
    while not heard or heard[-1] != b"last":
        # What is put now may find the queue full still.
        publisher.send_multipart(put(b"t", b"last", b""))
        while deaf.poll(200 if overflow == "disconnect" else 20):
            frames = deaf.recv_multipart()
            heard.append(frames[5] if frames[1] == b"MESSAGE" else frames[3])
        if overflow == "disconnect":
            break
    numbers = [int(number) for number in heard if number.isdigit()]
    assert numbers == sorted(set(numbers))
    if overflow == "disconnect":
        assert heard[-1].startswith(b"disconnected:")
        assert bus.stats.clients == 1
    elif overflow == "drop-oldest":
        assert numbers[-1] == 599
    else:
        assert numbers[:100] == list(range(100))


def test_what_is_taken_in_is_passed_on_before_the_end(start, dial):
    bus = start()
    subscriber, publisher = subscribed(dial(bus, rcvhwm=0), b"t"), dial(bus)
    for number in range(1000):
        publisher.send_multipart(put(b"t", b"%d" % number))
    assert ask(publisher, noop(b"1")) == ok(b"1")
    bus.close(drain_s=10)
    assert [subscriber.recv_multipart()[5] for _ in range(1000)] == [b"%d" % number for number in range(1000)]
    assert bus.stats.queued == 0
    with pytest.raises(ClosedError):
        bus.reload()


def test_random_messages_change_nothing_for_others(bus, dial):
    rng = random.Random(7)
    peers = [dial(bus, sndhwm=0) for _ in range(20)]
    words = [
        b"",
        b"PUT",
        b"SUB",
        b"UNSUB",
        b"CONNECT",
        b"DISCONNECT",
        b"OK",
        b"ERROR",
        b"MESSAGE",
        b"NOOP",
        b"ID",
        b"TOPIC",
    ]
    words += [b"TTL", b"VERSION", b"X-A", b"t", b"u", b"0", b"0.3", b"1000", b"\xff" * 300]
    for number in range(20_000):
        peer = rng.choice(peers)
        peer.send_multipart([rng.choice(words) for _ in range(rng.randrange(1, 9))])
        if number % 100 == 0:
            while peer.poll(0):
                peer.recv_multipart()
    good = subscribed(dial(bus), b"good")
    good.send_multipart(put(b"good", b"x"))
    assert good.recv_multipart() == message(b"good", b"x")
    stats = bus.stats
    good.send_multipart(noop())
    assert stats.received >= 2
    until(lambda: bus.stats.received == 20_003)
    received = bus.stats
    assert sum(received.dropped.values()) > 5000


def test_figures_of_topics(bus, dial):
    peers = [subscribed(dial(bus), b"t", b"\xff") for _ in range(2)]
    assert ask(dial(bus), put(b"t", b"four", id_=b"1")) == ok(b"1")
    for peer in peers:
        peer.recv_multipart()
    topics = {topic.topic: topic for topic in bus.stats.topics}
    assert topics["t"] == mc0.TopicStats(topic="t", subscribers=2, puts=1, messages=2, bytes=4)
    assert topics["\udcff"].puts == 0
    assert (bus.stats.clients, bus.stats.subscriptions) == (2, 4)


def test_topics_are_limited(start, dial):
    bus = start(max_topics=2)
    peer = subscribed(dial(bus), b"1", b"2")
    assert ask(peer, sub(b"2", b"3", id_=b"x"))[1] == b"ERROR"
    assert bus.stats.dropped == {"too_many_topics": 1}
    subscribed(peer, b"1", b"2")


def test_waiting_takes_as_long_as_it_is_told(bus):
    with pytest.raises(TimeoutError, match=r"is still running after 0\.05 s"):
        bus.wait(timeout_s=0.05)


@pytest.fixture
def keys(tmp_path):
    """An allow-list: daq1 and ops."""
    folder = tmp_path / "keys"
    folder.mkdir()
    (folder / "daq1.key").write_bytes(CLIENT[0])
    (folder / "ops").write_bytes(OTHER[0])
    return folder


@pytest.fixture
def policy(tmp_path):
    """Writes a policy; gives its file."""
    file = tmp_path / "policy.toml"

    def policy(text):
        file.write_text(text)
        return file

    return policy


@pytest.fixture
def guarded(open_socket, keys):
    """Starts middlewares that know their clients, and dials them by key."""
    with ExitStack() as stack:

        def start(policy, allow=keys):
            bus = mc0.Middleware(bind=ANY, curve=Curve(SERVER, allow=allow), policy=policy)
            stack.callback(lambda: bus.close(drain_s=0))
            return bus, lambda key: open_socket(zmq.DEALER, connect=bus.endpoints[0], **as_client(key))

        yield start


POLICY = """
[[allow]]
client = "daq*"
publish = ["runs.*"]
subscribe = ["*"]

[[allow]]
client = "*"
subscribe = ["runs.?"]
"""


@pytest.mark.req("MC0-04")
def test_the_policy_knows_clients_by_their_key_files(guarded, policy):
    bus, dial = guarded(policy(POLICY))
    daq, ops = dial(CLIENT), dial(OTHER)
    assert ask(daq, put(b"runs.1", b"x", id_=b"1")) == ok(b"1")
    refused = ask(daq, put(b"other", b"x", id_=b"2"))
    assert (refused[1], refused[4:]) == (b"ERROR", [b"ID", b"2"])
    subscribed(ops, b"runs.1")
    assert b'"runs.10"' in ask(ops, sub(b"runs.1", b"runs.10", b"other"))[3]
    assert ask(ops, put(b"runs.1", b"x"))[1] == b"ERROR"
    assert bus.stats.dropped == {"forbidden": 3}
    daq.send_multipart(put(b"runs.1", b"x"))
    assert ops.recv_multipart() == message(b"runs.1", b"x")


@pytest.mark.req("MC0-04")
@pytest.mark.parametrize("listed", [True, False])
def test_the_policy_knows_clients_by_their_keys_literally(guarded, policy, keys, listed):
    text = f'[[allow]]\nclient = {CLIENT[0].decode()!r}\npublish = ["t"]\n'
    _, dial = guarded(policy(text), allow=keys if listed else None)
    assert ask(dial(CLIENT), put(b"t", b"x", id_=b"1")) == ok(b"1")
    assert ask(dial(OTHER), put(b"t", b"x", id_=b"1"))[1] == b"ERROR"


def test_forty_letters_that_are_no_key_are_a_pattern(guarded, policy):
    # As many as a key has, and all of them letters of Z85; but no 32 bytes are written so.
    _, dial = guarded(policy(f'[[allow]]\nclient = "{"#" * 40}"\n\n[[allow]]\nclient = "daq1"\npublish = ["t"]\n'))
    assert ask(dial(CLIENT), put(b"t", b"x", id_=b"1")) == ok(b"1")


def test_a_peer_without_a_key_is_everybody(start, dial, policy, place):
    if "curve" in place[0]:
        pytest.skip("it has a key")
    bus = start(policy=policy('[[allow]]\nclient = "?*"\npublish = ["*"]\n[[allow]]\nclient = "*"\nsubscribe = ["t"]'))
    peer = subscribed(dial(bus), b"t")
    assert ask(peer, put(b"t", b"x"))[1] == b"ERROR"


@pytest.mark.req("MC0-04")
def test_a_reload_ends_what_is_not_allowed_any_more(guarded, policy, keys, caplog):
    bus, dial = guarded(policy(POLICY))
    daq, ops = subscribed(dial(CLIENT), b"a", b"runs.1"), subscribed(dial(OTHER), b"runs.1")
    policy('[[allow]]\nclient = "daq?"\nsubscribe = ["a"]\npublish = ["*"]')
    third = zmq.curve_keypair()
    (keys / "daq2.key").write_bytes(third[0])
    caplog.set_level("INFO", "trunkline")
    bus.reload()
    for peer in (daq, ops):
        notice = peer.recv_multipart()
        assert (notice[1], len(notice)) == (b"ERROR", 4)
        assert b'"runs.1"' in notice[3]
    daq.send_multipart(put(b"a", b"x"))
    assert daq.recv_multipart() == message(b"a", b"x")
    assert ask(dial(third), put(b"a", b"x", id_=b"1")) == ok(b"1")
    assert bus.stats.clients == 1
    until(lambda: "lost 1 subscription because" in caplog.text)
    (reloaded,) = (record.getMessage() for record in caplog.records if record.getMessage().startswith("reloaded"))
    assert re.search(r"/keys: 3 keys \(added: daq2\)", reloaded), reloaded
    assert re.search(r"/policy\.toml: 1 rule \(added: daq\?; removed: \*, daq\*\)", reloaded), reloaded


FAULTS = {
    "[[allow]]\nclient = 'a'\npublish = 'runs'": ("line 3", "publish must be a list"),
    "[[allow]]\nclient = 'a'\n\n[[allow]]\npublish = []": ("line 4", "client is missing"),
    "[[allow]]\nclient = 'a'\nread = []": ("line 3", "unknown key 'read'"),
    "[allow]\nclient = 'a'": ("line 1", "[[allow]]"),
    "\ndeny = 1": ("line 2", "unknown key 'deny'"),
    "[[allow]\n": ("line 1", "policy"),
    "# cut off\n": ("line 1", "empty"),
    "[[allow]]\nclient = 7": ("line 2", "client"),
}


@pytest.mark.parametrize(("text", "said"), FAULTS.items())
def test_a_faulty_policy_says_where(guarded, policy, text, said, keys):
    with pytest.raises(LocalProtocolError) as refused:
        mc0.Middleware(bind=ANY, policy=policy(text))
    assert all(part in str(refused.value) for part in said), refused.value
    bus, dial = guarded(policy(POLICY))
    policy(text)
    (keys / "daq1.key").write_bytes(zmq.curve_keypair()[0])
    with pytest.raises(LocalProtocolError, match=r"policy\.toml"):
        bus.reload()
    # Neither of the two has changed.
    assert ask(dial(CLIENT), put(b"runs.1", b"x", id_=b"1")) == ok(b"1")


def test_a_faulty_allow_list_changes_nothing(guarded, policy, keys):
    bus, dial = guarded(policy(POLICY))
    policy("allow = []")
    (keys / "new.key").write_bytes(b"no key")
    with pytest.raises(LocalProtocolError):
        bus.reload()
    assert ask(dial(CLIENT), put(b"runs.1", b"x", id_=b"1")) == ok(b"1")
    (keys / "new.key").unlink()
    bus.reload()
    assert ask(dial(CLIENT), put(b"runs.1", b"x", id_=b"1"))[1] == b"ERROR"


def test_a_middleware_that_is_closed_reads_nothing_again(guarded, policy):
    bus, _ = guarded(policy(POLICY))
    bus.close()
    policy("faulty")
    with pytest.raises(ClosedError):
        bus.reload()


def test_a_policy_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        mc0.Middleware(bind=ANY, policy=tmp_path / "none")


@pytest.mark.req("MC0-03", "MC0-04")
def test_only_those_on_the_list_are_let_in(guarded, open_socket, caplog):
    caplog.set_level(logging.WARNING, "trunkline.mc0")
    bus, dial = guarded(None)
    assert ask(dial(CLIENT), noop(b"1")) == ok(b"1")
    stranger = dial(zmq.curve_keypair())
    stranger.send_multipart(noop(b"1"))
    until(lambda: bus.stats.refused)
    assert is_silent(stranger)
    wrong = open_socket(zmq.DEALER, **{**as_client(CLIENT), "curve_serverkey": OTHER[0]})
    wrong.connect(bus.endpoints[0])
    wrong.send_multipart(noop(b"1"))
    assert is_silent(wrong)


@pytest.mark.req("MC0-02")
def test_it_greets_in_zmtp_3(bus):
    if not bus.endpoints[0].startswith("tcp"):
        pytest.skip("the greeting is looked at on a socket of the system's")
    host, port = bus.endpoints[0].removeprefix("tcp://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as raw:
        raw.sendall(b"\xff" + b"\0" * 8 + b"\x7f\x03")
        greeting = b""
        while len(greeting) < 11:
            greeting += raw.recv(64)
    assert greeting[:1] == b"\xff"
    assert greeting[10] >= 3
