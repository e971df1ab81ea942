"""The client: against raw ROUTERs that play the server, and against a server of ours that comes and goes."""

import asyncio
import builtins
import datetime as dt
import decimal
import gc
import threading
import time

import pytest
import zmq

from peers.mtl import ANY, EMPTY, PING, PONG, Playing, answer, confirm, content, lease, reject, response, summon
from peers.waiting import until
from trunkline import Curve, mtl
from trunkline.errors import (
    AuthenticationError,
    ClosedError,
    DecodeError,
    LeaseRefusedError,
    LocalProtocolError,
    RemoteProtocolError,
    TimeoutError,
)

READY = (201, {"profiles": ["queue"]})
OK = (200, {})


@pytest.fixture
def play(context):
    """Starts raw servers of commands, each with its replies; they end with the test."""
    playing = []

    def play(*replies):
        playing.append(Playing(context, *replies))
        return playing[-1]

    yield play
    for one in playing:
        one.stop()


@pytest.fixture
def server():
    with mtl.Server(bind=ANY, users={"ada": "sesame"}, resources=["jobs", "logs"]) as server:
        yield server


@pytest.fixture
def client(server):
    with mtl.Client(connect=server.endpoints, user="ada", password="sesame") as client:
        yield client


@pytest.mark.req("MTL-11", "MTL-12", "MTL-20")
def test_a_session_comes_about_before_the_constructor_returns(play):
    playing = play(READY, OK, (200, {"x": [1, None]}))
    with mtl.Client(connect=playing.endpoint, virtual_host="lab") as client:
        assert client.command("My.Command", {"a": 1}) == mtl.Reply(200, {"status": "so", "x": [1, None]})
        assert playing.names == ["Connection.Open", "Connection.Profile", "My.Command"]
        assert playing.asked[0][1] == {"protocol": {"name": "MTL", "version": 1}, "virtual-host": "lab"}
        assert playing.asked[1][1] == {"profile": "queue"}
        assert (client.stats.sent, client.stats.received) == (3, 3)


@pytest.mark.req("MTL-29")
def test_what_the_server_refuses_is_raised(play):
    playing = play(READY, OK, (404, {"status": "none"}), (500, {"status": "oh"}), (200, {}))
    with mtl.Client(connect=playing.endpoint) as client:
        for status in (404, 500):
            with pytest.raises(RemoteProtocolError, match=str(status)) as caught:
                client.command("A.B")
            assert (caught.value.status, caught.value.body["status"]) == (status, {404: "none", 500: "oh"}[status])
        assert client.command("A.B").status == 200
        with pytest.raises(LocalProtocolError, match=r"Class\.Method"):
            client.command("nodot")
        with pytest.raises(LocalProtocolError, match="body must be at most 1048576 bytes"):
            client.command("A.B", {"a": "x" * (1 << 20)})


@pytest.mark.req("MTL-02")
def test_a_reply_that_is_late_or_lost_leaves_the_client_usable(play):
    late = []

    def next_one(router, peer):
        # A late reply to the first connection is not taken for one on the second.
        answer(router, late[0], 200, {"n": 1})
        answer(router, peer, 200, {"n": 2})

    playing = play(READY, OK, lambda _, peer: late.append(peer), READY, OK, next_one)
    with mtl.Client(connect=playing.endpoint) as client:
        with pytest.raises(TimeoutError):
            client.command("A.Late", timeout_s=0.2)
        assert client.command("A.Next").body["n"] == 2
        assert client.stats.reconnects == 1
    assert playing.names[2:] == ["A.Late", "Connection.Open", "Connection.Profile", "A.Next"]


@pytest.mark.req("MTL-02")
def test_a_server_that_is_not_there_is_told_in_time(play):
    playing = play()
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=f"^no session with a server at {playing.endpoint} within 0.2 s$"):
        mtl.Client(connect=playing.endpoint, timeout_s=0.2)
    assert time.monotonic() - began < 5


def test_a_reply_that_is_none_is_an_error_and_the_next_is_not(play):
    playing = play(READY, OK, lambda router, peer: router.send_multipart([peer, b"", b"20", b"{}"]), OK)
    with mtl.Client(connect=playing.endpoint) as client:
        with pytest.raises(DecodeError, match="bad_status"):
            client.command("A.B")
        assert client.command("A.B").status == 200
        assert client.stats.dropped == {"bad_status": 1}


@pytest.mark.req("MTL-15")
def test_a_401_at_any_time_is_answered_by_a_login(server, client):
    server._authenticator.users = server._authenticator.users  # the same users: nothing changes
    server._server.revoke(["ada"], leases=False)
    assert client.command("Queue.List").body["queues"] == ["jobs", "logs"]
    assert server.stats.sessions == 1


@pytest.mark.req("MTL-15")
def test_a_session_that_the_server_has_forgotten_comes_about_again(play):
    forgotten, unselected = (400, {"status": "Open first"}), (400, {"status": "Select a profile first"})
    playing = play(READY, OK, forgotten, READY, OK, unselected, OK, (200, {"n": 1}))
    with mtl.Client(connect=playing.endpoint) as client:
        assert client.command("A.B").body["n"] == 1
    opening = ["Connection.Open", "Connection.Profile", "A.B"]
    assert playing.names == [*opening, *opening, "Connection.Profile", "A.B"]


def test_a_401_that_stays_one_is_raised(play, server):
    with pytest.raises(AuthenticationError) as caught:
        mtl.Client(connect=server.endpoints, user="ada", password="wrong")
    assert caught.value.mechanisms == ("SCRAM-SHA-256",)
    with pytest.raises(AuthenticationError) as caught:
        mtl.Client(connect=server.endpoints)
    assert caught.value.mechanisms == ("SCRAM-SHA-256",)
    playing = play((401, {"mechanisms": ["PLAIN"]}))
    with pytest.raises(AuthenticationError, match="PLAIN"):
        mtl.Client(connect=playing.endpoint, user="ada", password="sesame")


@pytest.mark.req("MTL-17")
def test_a_server_that_does_not_prove_itself_is_not_believed(play):
    playing = play((401, {"mechanisms": ["SCRAM-SHA-256"]}), READY, OK)
    with pytest.raises(AuthenticationError, match="prove"):
        mtl.Client(connect=playing.endpoint, user="ada", password="sesame")


def test_no_such_profile_or_host(server):
    for more, status in (({"profile": "nothing"}, 400), ({"virtual_host": "nowhere"}, 404)):
        with pytest.raises(RemoteProtocolError) as caught:
            mtl.Client(connect=server.endpoints, user="ada", password="sesame", **more)
        assert caught.value.status == status


@pytest.mark.req("MTL-45", "MTL-50")
def test_contents_are_written_and_read(client):
    properties = {
        "priority": 3,
        "name": "ä",
        "ratio": 0.5,
        "raw": b"\xff",
        "none": None,
        "flag": True,
        "at": dt.datetime(2026, 11, 22, tzinfo=dt.UTC),
        "price": decimal.Decimal("12.34"),
        "list": [1, {"deep": "er"}],
    }
    with client.writer(["jobs"], window=10) as writer, client.reader(["jobs"], window=10) as reader:
        reader.summon("jobs")
        for number in range(100):
            writer.send(b"%d" % number, properties=properties)
        for number in range(100):
            said = reader.receive(timeout_s=20)
            assert (said.resource, said.body, said.sequence) == ("jobs", b"%d" % number, number + 1)
            assert (said.properties, said.redelivered) == (properties, False)
            said.confirm()
        writer.flush(timeout_s=20)
        assert (writer.stats.contents, writer.stats.confirmed, writer.stats.unconfirmed) == (100, 100, 0)
        until(lambda: client.command("Queue.Info", {"name": "jobs"}).body["unconfirmed"] == 0)


def test_who_iterates_no_further_may_go_on_reading(client):
    with client.writer("jobs") as writer, client.reader("jobs") as reader:
        reader.summon("jobs")
        writer.send(b"one")
        writer.send(b"two")
        contents = iter(reader)
        assert next(contents).body == b"one"
        contents.close()
        assert reader.receive(timeout_s=20).body == b"two"


def test_a_client_counts_what_its_connections_do(client):
    with client.reader("jobs") as reader:
        with client.writer("jobs") as writer:
            writer.send(b"a")
            writer.flush(timeout_s=20)
            assert (client.stats.contents, client.stats.confirmed) == (1, 1)
        reader.summon("jobs")
        reader.receive(timeout_s=20)
        stats = client.stats
        assert (stats.contents, stats.confirmed, stats.unconfirmed, stats.rejected) == (2, 1, 1, 0)
    assert client.stats.received > reader.stats.received
    assert client.stats.contents == 2


def test_counters_are_there_while_connections_come_and_go(client):
    def write():
        for _ in range(10):
            with client.writer("jobs") as writer:
                writer.send(b"x")

    writing = [threading.Thread(target=write) for _ in range(4)]
    for thread in writing:
        thread.start()
    seen = [0]
    while any(thread.is_alive() for thread in writing):
        seen.append(client.stats.contents)
    assert seen == sorted(seen)
    assert client.stats.contents == 40


@pytest.mark.filterwarnings("ignore:unclosed Writer:ResourceWarning")
def test_a_connection_that_is_collected_has_been_counted(client):
    writer = client.writer("jobs")
    writer.send(b"x")
    writer.flush(timeout_s=20)
    del writer
    gc.collect()
    assert (client.stats.contents, client.stats.confirmed) == (1, 1)
    assert not list(client._connections)


@pytest.mark.req("MTL-46")
def test_a_resource_is_said_where_the_lease_has_several(client):
    with client.writer(["jobs", "logs"]) as writer, client.reader() as reader:
        with pytest.raises(LocalProtocolError, match="several"):
            writer.send(b"x")
        with pytest.raises(LocalProtocolError, match=r"others. is not leased"):
            writer.send(b"x", resource="others")
        reader.summon("logs")
        writer.send(b"x", resource="logs")
        assert reader.receive(timeout_s=20).resource == "logs"


@pytest.mark.req("MTL-37", "MTL-38", "MTL-41", "MTL-42")
def test_what_the_spec_forbids_is_refused_before_it_is_sent(client):
    with client.reader(["jobs"]) as reader:
        for refused in (lambda: reader.summon("logs"), lambda: reader.dismiss("jobs")):
            with pytest.raises(LocalProtocolError):
                refused()
        reader.summon("jobs")
        with pytest.raises(LocalProtocolError, match="already"):
            reader.summon("jobs")
        reader.dismiss("jobs")
        with pytest.raises(LocalProtocolError):
            reader.dismiss("jobs")
    with client.reader() as reader, pytest.raises(RemoteProtocolError) as caught:
        reader.summon("nothing")
    assert caught.value.status == 400


def test_leases_are_refused_by_name():
    with mtl.Server(bind=ANY, users={"eve": "x"}, resources=["jobs"], profiles=["queue", "test"]) as other:
        from trunkline.mtl.users import Users

        other._authenticator.users = Users.read({"eve": "x"}).adding("eve", "x", read=["logs"], write=["logs"])
        with mtl.Client(connect=other.endpoints, user="eve", password="x") as client:
            with pytest.raises(LeaseRefusedError, match="jobs") as caught:
                client.writer(["jobs"])
            assert caught.value.status == 403
            with pytest.raises(RemoteProtocolError) as missing:
                client.reader(["nothing"])
            assert missing.value.status == 404
        with mtl.Client(connect=other.endpoints, user="eve", password="x", profile="test") as client:
            with pytest.raises(RemoteProtocolError) as unconfirmed:
                client.writer(confirm="full")
            assert unconfirmed.value.status == 501


@pytest.mark.req("MTL-53", "MTL-54")
def test_rejected_contents_come_again_or_are_gone(client):
    with client.writer("jobs") as writer, client.reader("jobs", window=1) as reader:
        reader.summon("jobs")
        writer.send(b"x")
        reader.receive(timeout_s=20).reject(recycle=True)
        again = reader.receive(timeout_s=20)
        assert (again.body, again.redelivered, again.properties) == (b"x", True, {"redelivered": True})
        again.reject()
        with pytest.raises(TimeoutError):
            reader.receive(timeout_s=0.1)
        writer.flush(timeout_s=20)


@pytest.fixture
def small():
    """A server with a queue for two contents."""
    with mtl.Server(bind=ANY, anonymous=True, resources=["jobs"], max_queue=2) as server:
        yield server


def test_contents_that_the_server_rejects_are_named(small):
    with mtl.Client(connect=small.endpoints) as client, client.writer("jobs") as writer:
        rejected, sent = [], 0
        while sent < 4:
            # What is rejected soon enough is known at the next call.
            try:
                writer.send(b"x")
                sent += 1
            except RemoteProtocolError as error:
                rejected += error.sequences
        with pytest.raises(RemoteProtocolError) as caught:
            writer.flush(timeout_s=20)
        assert [*rejected, *caught.value.sequences] == [3, 4]
        writer.flush(timeout_s=20)
        assert (writer.stats.confirmed, writer.stats.rejected) == (2, 2)


@pytest.mark.parametrize("confirm", ["full", "none"])
def test_a_writer_hears_of_rejected_contents_at_the_next_call(small, confirm):
    with mtl.Client(connect=small.endpoints) as client, client.writer("jobs", confirm=confirm) as writer:
        for _ in range(3):
            writer.send(b"x")
        until(lambda: writer.stats.rejected == 1)
        with pytest.raises(RemoteProtocolError, match="rejected 1 content") as caught:
            writer.send(b"y")
        assert caught.value.sequences == (3,)
        # That one was not sent, and what was said is not said again.
        assert writer.stats.contents == 3
        client.command("Queue.Purge", {"name": "jobs"})
        writer.send(b"y")
        writer.flush(timeout_s=20)


async def test_asyncio_hears_of_rejected_contents_as_blocking_does(small):
    async with mtl.AsyncClient(connect=small.endpoints) as client, client.writer("jobs") as writer:
        for _ in range(3):
            await writer.send(b"x")
        await asyncio.to_thread(until, lambda: writer.stats.rejected)
        with pytest.raises(RemoteProtocolError, match="rejected 1 content"):
            await writer.send(b"y")
        await writer.flush(timeout_s=20)


@pytest.fixture
def data(open_socket, play):
    """Plays a server that leases at a socket of its own, and gives it, and the client."""
    at = open_socket(zmq.ROUTER, router_handover=1)
    at.bind(ANY)
    port = int(at.last_endpoint.rpartition(b":")[2])
    leases = [(202, {"port": port, "lease": name}) for name in ("one", "two", "three")]
    playing = play(READY, OK, *leases)
    with mtl.Client(connect=playing.endpoint, ping_interval_s=0.2, liveness=3) as client:
        yield client, at


def shows(at, name):
    """The peer that shows this lease, which is good."""
    peer, *said = at.recv_multipart()
    while said == PING:
        # Of the connection before: it is not answered.
        peer, *said = at.recv_multipart()
    sequence = int.from_bytes(said[0][1:9], "big")
    assert said == lease(sequence, name)
    at.send_multipart([peer, *response(sequence, 200)])
    return peer


def opening(open_, at):
    """What `open_` opens, and the peer it shows its lease as."""
    opened = []
    thread = threading.Thread(target=lambda: opened.append(open_()))
    thread.start()
    peer = shows(at, "one")
    thread.join(20)
    return opened[0], peer


def said(at, peer):
    """The next message that is no ping, which is answered."""
    while True:
        who, *frames = at.recv_multipart()
        if frames == PING:
            at.send_multipart([who, *PONG])
        elif who == peer:
            return frames


@pytest.mark.req("MTL-34", "MTL-36", "MTL-58")
def test_a_writer_that_lost_its_server_sends_again_what_nobody_confirmed(data):
    client, at = data
    writer, peer = opening(lambda: client.writer("jobs"), at)
    with writer:
        for body in (b"a", b"b", b"c"):
            writer.send(body)
        sequences = []
        for body in (b"a", b"b", b"c"):
            header, got = said(at, peer)
            assert got == body
            sequences.append(int.from_bytes(header[1:9], "big"))
        assert sequences == sorted(set(sequences))
        at.send_multipart([peer, *confirm(sequences[0])])
        # It answers no ping any more.
        peer = shows(at, "two")
        table = b"\0\0\0\x0e\x0bredeliveredt\x01"
        for body in (b"b", b"c"):
            frames = said(at, peer)
            assert frames == content(int.from_bytes(frames[0][1:9], "big"), "", body, table)
        at.send_multipart([peer, *confirm(2**63, multiple=True)])
        writer.flush(timeout_s=20)
        assert (writer.stats.confirmed, writer.stats.reconnects) == (3, 1)


def loses_for_good(at, peer):
    """Takes two contents, and has the lease be gone; there is no other."""
    for body in (b"a", b"b"):
        assert said(at, peer)[1] == body
    at.send_multipart([peer, *response(0, 403)])


@pytest.fixture
def once(open_socket, play):
    """Plays a server that leases once and never again, and gives its endpoint, and where it takes data."""
    at = open_socket(zmq.ROUTER, bind=ANY)
    port = int(at.last_endpoint.rpartition(b":")[2])
    return play(READY, OK, (202, {"port": port, "lease": "one"}), (403, {})).endpoint, at


@pytest.mark.req("MTL-50", "MTL-58")
def test_a_writer_that_ended_by_itself_says_what_it_leaves_when_it_is_closed(once):
    endpoint, at = once
    with mtl.Client(connect=endpoint) as client:
        writer, peer = opening(lambda: client.writer("jobs"), at)
        for body in (b"a", b"b"):
            writer.send(body)
        loses_for_good(at, peer)
        until(lambda: writer.closed)
        with pytest.raises(TimeoutError, match=r"2 contents not settled, .*403") as caught:
            writer.close()
        assert caught.value.unsent == 2
        assert isinstance(caught.value.__cause__, LeaseRefusedError)
        # It has been said.
        writer.close()


@pytest.mark.req("MTL-50", "MTL-58")
async def test_an_asyncio_writer_that_ended_by_itself_does_too(once):
    endpoint, at = once
    async with mtl.AsyncClient(connect=endpoint) as client:
        writer = client.writer("jobs")
        entering = asyncio.ensure_future(writer.__aenter__())
        peer = await asyncio.to_thread(shows, at, "one")
        await entering
        for body in (b"a", b"b"):
            await writer.send(body)
        await asyncio.to_thread(loses_for_good, at, peer)
        with pytest.raises(LeaseRefusedError):
            await writer.flush(timeout_s=20)
        with pytest.raises(TimeoutError) as caught:
            await writer.close()
        assert (caught.value.unsent, type(caught.value.__cause__)) == (2, LeaseRefusedError)
        await writer.close()


@pytest.mark.req("MTL-58")
def test_a_reader_that_lost_its_server_summons_again(data):
    client, at = data
    reader, peer = opening(lambda: client.reader("jobs"), at)
    with reader:
        thread = threading.Thread(target=reader.summon, args=("jobs",))
        thread.start()
        frames = said(at, peer)
        sequence = int.from_bytes(frames[0][1:9], "big")
        assert frames == summon(sequence, "jobs")
        at.send_multipart([peer, *response(sequence, 200)])
        thread.join(20)
        at.send_multipart([peer, *content(1, "jobs", b"x")])
        first = reader.receive(timeout_s=20)
        # The server says that the lease is gone (settled: with the pong of the next ping).
        at.send_multipart([peer, *response(0, 403)])
        peer = shows(at, "two")
        frames = said(at, peer)
        sequence = int.from_bytes(frames[0][1:9], "big")
        assert frames == summon(sequence, "jobs")
        at.send_multipart([peer, *response(sequence, 200)])
        # The earlier content belongs to another reader by now: it is not confirmed.
        first.confirm()
        at.send_multipart([peer, *content(1, "jobs", b"x", b"\0\0\0\x0e\x0bredeliveredt\x01")])
        again = reader.receive(timeout_s=20)
        assert again.redelivered
        again.confirm()
        assert said(at, peer) == confirm(1)


def test_a_reader_gives_back_what_it_has_when_it_closes(client):
    with client.writer("jobs") as writer:
        for body in (b"a", b"b"):
            writer.send(body)
        reader = client.reader("jobs")
        reader.summon("jobs")
        assert reader.receive(timeout_s=20).body == b"a"
        reader.close()
        with client.reader("jobs") as other:
            other.summon("jobs")
            assert [other.receive(timeout_s=20).body for _ in range(2)] == [b"a", b"b"]


def test_a_server_that_starts_again_is_found(tmp_path):
    # No port that another could have in the meantime.
    where = f"ipc://{tmp_path}/queues"
    options = {"users": {"ada": "sesame"}, "resources": ["jobs"], "durable": tmp_path / "store"}
    server = mtl.Server(bind=where, **options)
    with (
        mtl.Client(connect=where, user="ada", password="sesame", ping_interval_s=0.2) as client,
        client.writer("jobs") as writer,
        client.reader("jobs") as reader,
    ):
        reader.summon("jobs")
        writer.send(b"a")
        reader.receive(timeout_s=20).confirm()
        until(lambda: server.stats.resources[1].confirmed == 1)
        server.close()
        for number in range(5):
            writer.send(b"%d" % number)
        with mtl.Server(bind=where, **options):
            writer.flush(timeout_s=20)
            assert {reader.receive(timeout_s=20).body for _ in range(5)} == {b"%d" % number for number in range(5)}


def test_a_reader_whose_resource_is_gone_for_good_says_why(tmp_path):
    where = f"ipc://{tmp_path}/queues"
    server = mtl.Server(bind=where, anonymous=True, resources=["jobs"])
    with mtl.Client(connect=where, ping_interval_s=0.1) as client:
        reader = client.reader("jobs")
        reader.summon("jobs")
        server.close()
        with mtl.Server(bind=where, anonymous=True):
            with pytest.raises(RemoteProtocolError, match="404"):
                reader.receive(timeout_s=20)
            with pytest.raises(RemoteProtocolError, match="404"):
                list(reader)


def test_waits_end_with_their_role(client):
    reader = client.reader("jobs")
    failed = []

    def wait():
        try:
            reader.receive()
        except ClosedError as error:
            failed.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    reader.close()
    thread.join(20)
    assert failed
    assert list(reader) == []


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"bind": ANY}, LocalProtocolError, "connects"),
        ({"user": 5}, TypeError, "user"),
        ({"timeout_s": -1}, ValueError, "timeout_s"),
        ({"mechanism": b"PLAIN"}, TypeError, "mechanism"),
        ({"connect": ()}, LocalProtocolError, "endpoint"),
        ({"user": "ada", "password": "sesame\n"}, LocalProtocolError, r"^password: U\+000A is not allowed$"),
        ({"user": "a\x00da", "password": "sesame"}, LocalProtocolError, r"^user: U\+0000 is not allowed$"),
    ],
)
def test_what_cannot_be_is_refused_by_name(options, error, words, caplog):
    with pytest.raises(error, match=words):
        mtl.Client(**{"connect": "tcp://127.0.0.1:1", **options})
    assert caplog.records == []


def test_curve_and_external(tmp_path):
    keys, ada = zmq.curve_keypair(), zmq.curve_keypair()
    (tmp_path / "ada.key").write_bytes(b'    public-key = "' + ada[0] + b'"\n')
    server_curve = Curve(keys, allow=tmp_path)
    with (
        mtl.Server(bind=ANY, curve=server_curve, resources=["jobs"]) as server,
        mtl.Client(connect=server.endpoints, curve=Curve(ada, server_key=keys[0])) as client,
        client.writer("jobs") as writer,
    ):
        writer.send(b"x")
        writer.flush(timeout_s=20)


def test_asyncio(server):
    async def main():
        options = {"connect": server.endpoints, "user": "ada", "password": "sesame"}
        async with mtl.AsyncClient(**options) as client:
            assert (await client.command("Queue.Info", {"name": "jobs"})).body["messages"] == 0
            with pytest.raises(RemoteProtocolError):
                await client.command("Queue.Info", {"name": "nothing"})
            async with client.writer("jobs", window=3) as writer, client.reader("jobs") as reader:
                await reader.summon("jobs")
                with pytest.raises(LocalProtocolError):
                    await reader.summon("jobs")
                for number in range(20):
                    await writer.send(b"%d" % number)
                await writer.flush(timeout_s=20)
                got = []
                async for one in reader:
                    one.confirm()
                    got.append(one.body)
                    if len(got) == 20:
                        break
                assert got == [b"%d" % number for number in range(20)]
                with pytest.raises(TimeoutError):
                    await reader.receive(timeout_s=0.01)
                await reader.dismiss("jobs")

    asyncio.run(main())


def test_an_asyncio_server():
    async def main():
        async with mtl.AsyncServer(bind=ANY, anonymous=True, resources=["jobs"]) as server:
            async with mtl.AsyncClient(connect=server.endpoints) as client:
                reply = await client.command("Queue.List")
            assert reply.body["queues"] == ["jobs"]

    asyncio.run(main())


def test_unconfirmed_contents_that_may_be_lost_are_counted(open_socket, play):
    at = open_socket(zmq.ROUTER)
    at.bind(ANY)
    port = int(at.last_endpoint.rpartition(b":")[2])
    playing = play(READY, OK, *[(202, {"port": port, "lease": name}) for name in ("one", "two")])
    with mtl.Client(connect=playing.endpoint, ping_interval_s=0.1, liveness=2) as client:
        writer, peer = opening(lambda: client.writer("jobs", confirm="none"), at)
        with writer:
            for body in (b"a", b"b"):
                writer.send(body)
            assert [said(at, peer)[1] for _ in range(2)] == [b"a", b"b"]
            shows(at, "two")
            until(lambda: writer.stats.at_risk == 2)


def test_a_content_that_is_rejected_on_a_raw_server(data):
    client, at = data
    writer, peer = opening(lambda: client.writer("jobs"), at)
    writer.send(b"a")
    header, _ = said(at, peer)
    sequence = int.from_bytes(header[1:9], "big")
    assert header == content(sequence, "", b"a", EMPTY)[0]
    at.send_multipart([peer, *reject(sequence)])
    with pytest.raises(RemoteProtocolError, match="1 content"):
        writer.flush(timeout_s=20)
    writer.close()


@pytest.mark.req("MTL-54")
def test_a_worker_that_takes_one_content_at_a_time_loses_none(server):
    at = server.endpoints
    with mtl.Client(connect=at, user="ada", password="sesame") as client, client.writer("jobs") as writer:
        for number in range(30):
            writer.send(b"%d" % number)
        writer.flush(timeout_s=20)
    taken = []
    for _ in range(30):
        with mtl.Client(connect=at, user="ada", password="sesame") as client, client.reader("jobs") as reader:
            reader.summon("jobs")
            content = reader.receive(timeout_s=20)
            taken.append(int(content.body))
            content.confirm()
    # What was on its way to one that had left came back before the next one asked.
    assert taken == list(range(30))
    [jobs] = [one for one in server.stats.resources if one.resource == "jobs"]
    assert (jobs.dead_lettered, jobs.queued) == (0, 0)


@pytest.mark.req("MTL-54")
def test_what_its_readers_fail_at_is_given_up_and_said_so(server, caplog):
    at = server.endpoints
    with mtl.Client(connect=at, user="ada", password="sesame") as client, client.writer("jobs") as writer:
        for body in (b"bad", b"good"):
            writer.send(body)
    for _ in range(6):
        with (
            mtl.Client(connect=at, user="ada", password="sesame") as client,
            client.reader("jobs") as reader,
        ):
            reader.summon("jobs")
            assert reader.receive(timeout_s=20).body == b"bad"
    until(lambda: "dropped a content of jobs: it was recycled too often" in caplog.text)
    with mtl.Client(connect=at, user="ada", password="sesame") as client, client.reader("jobs") as reader:
        reader.summon("jobs")
        assert reader.receive(timeout_s=20).body == b"good"


def test_contents_of_a_closed_reader_are_not_to_be_settled(client):
    with client.writer("jobs") as writer:
        writer.send(b"x")
    with client.reader("jobs") as reader:
        reader.summon("jobs")
        content = reader.receive(timeout_s=20)
    for settle in (content.confirm, content.reject, lambda: reader.confirm(content), lambda: reader.reject(content)):
        with pytest.raises(ClosedError, match="returned to the server"):
            settle()


async def test_a_client_that_is_cancelled_while_it_opens_ends_at_once(open_socket):
    silent = open_socket(zmq.ROUTER, bind="tcp://127.0.0.1:*").last_endpoint.decode()

    async def enter():
        async with mtl.AsyncClient(connect=silent, timeout_s=1000):
            pytest.fail("nobody let it in")

    with pytest.raises(builtins.TimeoutError):
        async with asyncio.timeout(0.2):
            await enter()


@pytest.mark.parametrize("kind", ["reader", "writer"])
async def test_a_connection_that_is_cancelled_while_it_asks_for_its_lease_ends_at_once(play, kind):
    asked = threading.Event()
    playing = play(READY, OK, lambda *_: asked.set(), READY, OK, (200, {"n": 1}))
    async with mtl.AsyncClient(connect=playing.endpoint, timeout_s=1000) as client:
        opening = asyncio.ensure_future(getattr(client, kind)("jobs").__aenter__())
        await asyncio.to_thread(asked.wait, 20)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(opening, 20)
        # The wait for the lease is over: the client is free for another request.
        assert (await asyncio.wait_for(client.command("A.B"), 20)).body["n"] == 1


async def test_a_client_that_is_closed_while_it_opens_ends_at_once(open_socket):
    silent = open_socket(zmq.ROUTER, bind=ANY)
    client = mtl.AsyncClient(connect=silent.last_endpoint.decode(), timeout_s=1000)
    opening = asyncio.ensure_future(client.__aenter__())
    await asyncio.to_thread(silent.recv_multipart)
    async with asyncio.timeout(20):
        await client.close()
        with pytest.raises(ClosedError):
            await opening


async def test_a_client_that_is_closed_before_it_has_begun_to_open_is_not_entered(server):
    client = mtl.AsyncClient(connect=server.endpoints, user="ada", password="sesame")
    opening = asyncio.ensure_future(client.__aenter__())
    await asyncio.sleep(0)
    await client.close()
    with pytest.raises(ClosedError):
        await opening
    until(lambda: not server.stats.peers)


@pytest.mark.req("MTL-02")
def test_each_endpoint_has_its_share_of_the_time(play):
    playing = play(READY, OK)
    with mtl.Client(connect=["tcp://127.0.0.1:1", playing.endpoint], timeout_s=1.0) as client:
        assert client.stats.reconnects == 1
    with pytest.raises(
        TimeoutError, match=r"^no session with a server at tcp://127.0.0.1:1, tcp://127.0.0.1:2 within 0.2 s$"
    ):
        mtl.Client(connect=["tcp://127.0.0.1:1", "tcp://127.0.0.1:2"], timeout_s=0.2)


@pytest.mark.req("MTL-19")
def test_a_login_that_has_no_answer_is_told_apart(play):
    playing = play((401, {"mechanisms": ["SCRAM-SHA-256"]}))
    with pytest.raises(
        TimeoutError, match=r"within 0.2 s: the login was not answered; .* a wrong password is answered late"
    ):
        mtl.Client(connect=playing.endpoint, user="ada", password="wrong", timeout_s=0.2)


@pytest.mark.req("MTL-26", "MTL-31")
@pytest.mark.parametrize("scheme", ["ipc", "inproc"])
def test_data_is_found_where_commands_have_no_port(context, tmp_path, scheme):
    at = {"ipc": f"ipc://{tmp_path}/commands", "inproc": "inproc://commands"}[scheme]
    options = {"context": context} if scheme == "inproc" else {}
    with (
        mtl.Server(bind=at, data_bind="tcp://0.0.0.0:*", anonymous=True, resources=["jobs"], **options) as server,
        mtl.Client(connect=server.endpoints, **options) as client,
        client.writer("jobs") as writer,
    ):
        writer.send(b"x")
        writer.flush(timeout_s=20)


@pytest.mark.req("MTL-26")
@pytest.mark.parametrize(
    "said", [{"endpoint": "nowhere"}, {"endpoint": "tcp://127.0.0.1:99999"}, {"port": 0}, {"port": True}]
)
def test_a_lease_for_nowhere_is_the_servers_fault(play, said):
    playing = play(READY, OK, (202, {"lease": "one", **said}))
    with mtl.Client(connect=playing.endpoint) as client, pytest.raises(RemoteProtocolError) as caught:
        client.writer("jobs")
    assert (caught.value.clause, caught.value.status) == ("MTL-26", 202)
    assert "connect=" not in str(caught.value)


@pytest.mark.req("MTL-21", "MTL-50")
def test_the_case_of_a_profile_changes_no_default(server):
    with (
        mtl.Client(connect=server.endpoints, user="ada", password="sesame", profile="QUEUE") as client,
        client.writer("jobs") as writer,
        client.reader("jobs") as reader,
    ):
        assert writer.is_confirmed
        assert reader.is_confirmed


@pytest.mark.req("MTL-10", "MTL-50")
def test_a_window_is_said_where_it_is_given_or_contents_are_confirmed(play):
    refused = (403, {})
    playing = play(READY, OK, *[refused] * 4)
    with mtl.Client(connect=playing.endpoint) as client:
        for confirm_, window in (("full", None), ("full", 5), ("none", None), ("none", 5)):
            with pytest.raises(LeaseRefusedError):
                client.reader("jobs", confirm=confirm_, window=window)
    assert [body.get("window") for _, body in playing.asked[2:]] == [1000, 5, None, 5]


@pytest.mark.req("MTL-50")
def test_where_nothing_is_confirmed_no_more_comes_than_the_window(client):
    with client.writer("jobs") as writer, client.reader("jobs", confirm="none", window=2) as reader:
        for number in range(5):
            writer.send(b"%d" % number)
        writer.flush(timeout_s=20)
        reader.summon("jobs")
        assert [reader.receive(timeout_s=20).body for _ in range(2)] == [b"0", b"1"]
        assert client.command("Queue.Info", {"name": "jobs"}).body["messages"] == 3
        reader.dismiss("jobs")
        reader.summon("jobs")
        assert [reader.receive(timeout_s=20).body for _ in range(2)] == [b"2", b"3"]
        assert client.command("Queue.Info", {"name": "jobs"}).body["messages"] == 1


@pytest.mark.req("MTL-51")
def test_as_many_rejected_contents_are_named_as_a_window_has():
    with (
        mtl.Server(bind=ANY, anonymous=True, resources=["jobs"], max_queue=1) as server,
        mtl.Client(connect=server.endpoints) as client,
        client.writer("jobs", window=5000) as writer,
    ):
        rejected, sent = [], 0
        while sent < 3000:
            try:
                writer.send(b"x")
                sent += 1
            except RemoteProtocolError as error:
                rejected += error.sequences
        with pytest.raises(RemoteProtocolError) as caught:
            writer.flush(timeout_s=20)
        assert [*rejected, *caught.value.sequences] == [*range(2, 3001)]


@pytest.mark.req("MTL-42")
def test_a_queue_that_was_made_anew_can_be_summoned_again(client):
    client.command("Queue.Create", {"name": "new"})
    with client.reader("new") as reader:
        reader.summon("new")
        client.command("Queue.Delete", {"name": "new"})
        client.command("Queue.Create", {"name": "new"})
        with pytest.raises(RemoteProtocolError, match="400"):
            reader.dismiss("new")
        reader.summon("new")
        with client.writer("new") as writer:
            writer.send(b"x")
        assert reader.receive(timeout_s=20).body == b"x"


@pytest.mark.req("MTL-54")
@pytest.mark.parametrize(
    ("value", "is_redelivered"), [(True, True), (False, False), (1, False), ("true", False), (None, False)]
)
def test_only_true_says_that_a_content_was_delivered_before(client, value, is_redelivered):
    with client.writer("jobs") as writer, client.reader("jobs") as reader:
        reader.summon("jobs")
        writer.send(b"x", properties={"redelivered": value})
        content = reader.receive(timeout_s=20)
        assert content.redelivered is is_redelivered
        content.confirm()


def test_a_content_that_the_server_would_not_take_is_refused_before_it_is_sent():
    with (
        mtl.Server(bind=ANY, anonymous=True, resources=["jobs"], max_message_bytes=1000) as server,
        mtl.Client(connect=server.endpoints) as client,
        client.writer("jobs") as writer,
    ):
        with pytest.raises(LocalProtocolError, match="5000 bytes is larger than max_message_bytes, 1000"):
            writer.send(bytes(5000))
        writer.send(bytes(1000))
        writer.flush(timeout_s=20)
        assert (writer.stats.confirmed, writer.stats.reconnects) == (1, 0)
