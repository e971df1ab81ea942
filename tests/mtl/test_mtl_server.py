"""The server, between raw sockets that speak packed bytes: over every transport, and encrypted."""

import json
import logging
import threading
import time
from contextlib import ExitStack

import pyarrow.parquet as pq
import pytest
import zmq

from peers.mtl import ANY, OPEN, PING, PONG, Control, Peers, confirm, content, lease, reject, response
from peers.waiting import until
from trunkline import Curve, capture, mtl
from trunkline.errors import LocalProtocolError
from trunkline.mtl.users import Users

SERVER, ADA, EVE = (zmq.curve_keypair() for _ in range(3))


def as_client(keys):
    return {"curve_serverkey": SERVER[0], "curve_publickey": keys[0], "curve_secretkey": keys[1]}


@pytest.fixture
def start(context):  # noqa: ARG001 - servers end before it does
    """Starts servers; they are closed with the test."""
    with ExitStack() as stack:

        def start(**options):
            server = mtl.Server(**{"bind": ANY, "anonymous": True, "resources": ["jobs"], **options})
            stack.callback(lambda: server.close(drain_s=0))
            return server

        yield start


@pytest.fixture
def server(start):
    return start()


@pytest.fixture
def peers(open_socket, server):
    return Peers(open_socket, server)


@pytest.mark.req("MTL-03", "MTL-04", "MTL-13", "MTL-30", "MTL-40")
@pytest.mark.parametrize("transport", ["tcp", "ipc", "inproc", "curve"])
def test_contents_go_through_on_every_transport(start, open_socket, context, tmp_path, transport):
    where = {"ipc": f"ipc://{tmp_path}/queue", "inproc": "inproc://queue"}.get(transport, ANY)
    ours = {"context": context} if transport == "inproc" else {}
    theirs = {}
    if transport == "curve":
        ours, theirs = {"curve": Curve(SERVER)}, as_client(ADA)
    peers = Peers(open_socket, start(bind=where, **ours), **theirs)
    writer, reader = peers.writer(), peers.reader()
    for sequence in (1, 2):
        writer.send_multipart(content(sequence, "", b"%d" % sequence))
    assert [reader.recv_multipart() for _ in range(2)] == [content(1, "jobs", b"1"), content(2, "jobs", b"2")]


@pytest.mark.req("MTL-05")
@pytest.mark.parametrize("options", [{}, {"req_correlate": 1, "req_relaxed": 1}])
def test_any_req_is_answered(open_socket, server, options):
    control = Peers(open_socket, server, **options).control()
    assert control.ask("Connection.Open", OPEN)[0] == 201


@pytest.mark.req("MTL-31")
def test_data_has_a_socket_of_its_own_where_that_is_said(start, open_socket):
    server = start(data_bind=ANY)
    assert set(server.endpoints).isdisjoint(server.data_endpoints)
    peers = Peers(open_socket, server)
    writer, reader = peers.writer(confirm="full"), peers.reader()
    writer.send_multipart(content(1, "jobs", b"x"))
    assert reader.recv_multipart() == content(1, "jobs", b"x")
    assert writer.recv_multipart() == confirm(1)


@pytest.mark.req("MTL-26", "MTL-35")
def test_leases_are_long_random_and_good_once(peers):
    control = peers.control("queue")
    said = [control.lease("Writer", ["jobs"]) for _ in range(50)]
    assert len({one["lease"] for one in said}) == 50
    assert all(len(bytes.fromhex(one["lease"])) == 16 for one in said)
    peers.data(said[0])
    other = peers.data()
    other.send_multipart(lease(2**64 - 1, said[0]["lease"]))
    assert other.recv_multipart() == response(2**64 - 1, 403)


@pytest.mark.req("MTL-62")
def test_the_test_profile_fans_out(peers):
    readers = [peers.reader("resource", profile="test") for _ in range(3)]
    writers = [peers.writer("resource", profile="test") for _ in range(3)]
    for number, writer in enumerate(writers):
        for sequence in (1, 2):
            writer.send_multipart(content(sequence, "resource", b"%d.%d" % (number, sequence)))
    for reader in readers:
        bodies = [reader.recv_multipart()[1] for _ in range(6)]
        assert sorted(bodies) == sorted(b"%d.%d" % (number, sequence) for number in range(3) for sequence in (1, 2))


@pytest.mark.req("MTL-51", "MTL-53", "MTL-54")
def test_what_is_rejected_comes_again_and_what_is_confirmed_does_not(peers):
    writer, reader = peers.writer(), peers.reader(confirm="full", window=2)
    for sequence in (1, 2, 3):
        writer.send_multipart(content(sequence, "", b"%d" % sequence))
    assert [reader.recv_multipart()[1] for _ in range(2)] == [b"1", b"2"]
    reader.send_multipart(reject(1, recycle=True))
    again = reader.recv_multipart()
    table = b"\0\0\0\x0e\x0bredeliveredt\x01"
    assert again == content(3, "jobs", b"1", table)
    reader.send_multipart(confirm(3, multiple=True))
    assert reader.recv_multipart() == content(4, "jobs", b"3")


@pytest.mark.req("MTL-58")
def test_what_a_reader_had_that_is_gone_is_anothers(start, open_socket):
    server = start(ping_interval_s=0.05)
    peers = Peers(open_socket, server)
    first, writer = peers.reader(confirm="full"), peers.writer()
    writer.send_multipart(content(1, "", b"x"))
    assert first.recv_multipart() == content(1, "jobs", b"x")
    first.close(linger=0)
    second = peers.reader(confirm="full")
    while (said := second.recv_multipart()) == PING:
        second.send_multipart(PONG)
    assert said[1] == b"x"


@pytest.mark.req("MTL-56", "MTL-57")
def test_silent_connections_are_asked_for_a_sign_of_life(start, open_socket):
    peers = Peers(open_socket, start(ping_interval_s=0.05, liveness=100))
    reader = peers.reader()
    for _ in range(3):
        assert reader.recv_multipart() == PING
    reader.send_multipart(PING)
    until(lambda: reader.recv_multipart() == PONG)


@pytest.mark.req("MTL-14", "MTL-16", "MTL-17", "MTL-19")
def test_users_log_in_by_scram_as_others_have_it(start, open_socket):
    server = start(users={"ada": "sésame", "bob": "x"}, anonymous=False)
    peers = Peers(open_socket, server)
    control = peers.control()
    status, said = control.ask("Connection.Open", OPEN)
    assert (status, said) == (401, {"status": "Unauthorized", "mechanisms": ["SCRAM-SHA-256"]})
    assert control.log_in("ada", "wrong") == 401
    assert control.log_in("nobody", "sésame") == 401
    assert control.log_in("ada", "sésame") == 201
    peers.control("queue", user="bob", password="x")
    assert server.stats.refused == 2


@pytest.mark.req("MTL-14")
def test_keys_log_in_by_their_names_and_plain_where_nobody_reads(start, open_socket, tmp_path):
    (tmp_path / "ada.key").write_bytes(b'    public-key = "' + ADA[0] + b'"\n')
    server = start(users={"ada": "sesame"}, anonymous=False, curve=Curve(SERVER, allow=tmp_path))
    control = Peers(open_socket, server, **as_client(ADA)).control()
    _, said = control.ask("Connection.Open", OPEN)
    assert said["mechanisms"] == ["SCRAM-SHA-256", "EXTERNAL", "PLAIN"]
    assert control.step(b"", "EXTERNAL")[0] == 201
    other = Peers(open_socket, server, **as_client(ADA)).control()
    other.ask("Connection.Open", OPEN)
    assert other.step(b"\0ada\0sesame", "PLAIN")[0] == 201


@pytest.mark.req("MTL-15")
def test_users_that_change_have_to_log_in_again(start, open_socket, tmp_path, caplog):
    users = tmp_path / "users.toml"

    def write(**passwords):
        Users.read(passwords).write(users)

    write(ada="one", bob="two")
    server = start(users=users, anonymous=False)
    peers = Peers(open_socket, server)
    ada, bob = peers.control("queue", user="ada", password="one"), peers.control("queue", user="bob", password="two")
    data = peers.data(bob.lease("Writer", ["jobs"]))
    write(ada="another")
    caplog.set_level("INFO", "trunkline")
    server.reload()
    until(lambda: server.stats.leases == 0)
    until(lambda: "users.toml: 1 user (removed: bob; changed: ada)" in caplog.text)
    assert ada.ask("Queue.List")[0] == 401
    assert ada.log_in("ada", "one") == 401
    assert ada.log_in("ada", "another") == 201
    assert ada.ask("Queue.List")[0] == 200
    assert bob.ask("Queue.List")[0] == 401
    assert bob.log_in("bob", "two") == 401
    data.send_multipart(PING)
    assert [data.recv_multipart(), data.recv_multipart()] == [PONG, response(0, 403)]
    users.write_text("[users.ada]\nread = 5\n")
    with pytest.raises(LocalProtocolError, match="ada"):
        server.reload()
    assert ada.ask("Queue.List")[0] == 200


@pytest.mark.req("MTL-19")
def test_a_login_that_takes_long_delays_nobody_else(start, open_socket, monkeypatch):
    from trunkline.mtl.sasl import Authenticator

    step, held, go = Authenticator.step, threading.Event(), threading.Event()

    def slow(self, mechanism, response, state, **more):
        if b"eve" in response:
            held.set()
            go.wait(20)
        return step(self, mechanism, response, state, **more)

    monkeypatch.setattr(Authenticator, "step", slow)
    peers = Peers(open_socket, start(users={"ada": "x", "eve": "y"}, anonymous=False))
    eve = peers.control()
    eve.ask("Connection.Open", OPEN)
    thread = threading.Thread(target=eve.log_in, args=("eve", "y"))
    thread.start()
    assert held.wait(20)
    peers.control("queue", user="ada", password="x")
    go.set()
    thread.join()


@pytest.mark.req("MTL-22")
def test_a_profile_of_ones_own_answers_its_commands(start, open_socket, caplog):
    asked = []

    def transfer(session, body):
        asked.append((session, body))
        return {"left": 3}

    def fail(_session, _body):
        msg = "sesame"
        raise RuntimeError(msg)

    own = mtl.Profile(
        "bank",
        commands={"Bank.Transfer": transfer, "Bank.Fail": fail, "Bank.No": lambda *_: mtl.Reply(409, {"status": "no"})},
    )
    control = Peers(open_socket, start(profiles=["queue", own])).control("BANK")
    assert control.ask("bank.transfer", {"amount": 5}) == (200, {"status": "OK", "left": 3})
    assert asked == [(mtl.Session(None, "/", "bank"), {"amount": 5})]
    with caplog.at_level(logging.ERROR):
        status, said = control.ask("Bank.Fail")
    assert (status, "sesame" in json.dumps(said)) == (500, False)
    until(lambda: "sesame" in caplog.text)
    assert control.ask("Bank.No") == (409, {"status": "no"})
    assert control.ask("Queue.List")[0] == 501
    data = control.lease("Writer", ["jobs"], "full")
    assert data["port"]


def test_logins_do_not_wait_for_commands(start, open_socket):
    begun, may_end = threading.Semaphore(0), threading.Event()

    def wait(_session, _body):
        begun.release()
        may_end.wait(20)
        return {}

    own = mtl.Profile("slow", commands={"Slow.Wait": wait})
    peers = Peers(open_socket, start(users={"ada": "sesame"}, anonymous=False, profiles=["queue", own]))
    waiting = [peers.control("slow", user="ada", password="sesame") for _ in range(8)]
    try:
        for control in waiting:
            control.socket.send_multipart([b"Slow.Wait", b"{}"])
        # However many threads there are, they have begun by the time no more do.
        while begun.acquire(timeout=0.2):
            pass
        peers.control("queue", user="ada", password="sesame")
    finally:
        may_end.set()
    assert [control.reply()[0] for control in waiting] == [200] * 8


@pytest.mark.req("MTL-06")
def test_sessions_that_are_idle_end(start, open_socket):
    server = start(session_idle_s=0.1)
    control = Peers(open_socket, server).control("queue")
    until(lambda: server.stats.sessions == 0)
    assert control.ask("Queue.List")[1]["status"] == "Open first"


@pytest.mark.req("MTL-28", "MTL-33", "MTL-61")
def test_bad_bytes_are_counted_told_and_cost_nobody_else(start, open_socket):
    dropped = []
    server = start(on_drop=dropped.append)
    peers = Peers(open_socket, server)
    writer, reader = peers.writer(), peers.reader()
    bad = peers.data()
    for frames in (
        [b"\x00", b""],
        [b"\x05\0", b""],
        [b"", b"Connection.Open", b"{"],
        [b"", b"x\x01", b"{}"],
        [b"a", b"b", b"c"],
    ):
        bad.send_multipart(frames)
    until(lambda: sum(server.stats.dropped.values()) == 5)
    assert server.stats.dropped == {
        "unknown_type": 1,
        "truncated": 1,
        "bad_json": 1,
        "bad_command": 1,
        "bad_frame_count": 1,
    }
    until(lambda: len(dropped) == 5)
    assert {one.kind for one in dropped} == set(server.stats.dropped)
    writer.send_multipart(content(1, "", b"x"))
    assert reader.recv_multipart()[1] == b"x"


def test_nothing_secret_is_recorded(start, open_socket, tmp_path):
    server = start(users={"ada": "sesame"}, anonymous=False, capture=tmp_path / "capture", curve=Curve(SERVER))
    control = Peers(open_socket, server, **as_client(ADA)).control()
    control.ask("Connection.Open", OPEN)
    assert control.step(b"\0ada\0sesame", "PLAIN")[0] == 201
    assert control.log_in("ada", "sesame") == 201
    control.ask("Connection.Profile", {"profile": "queue"})
    said = control.lease("Writer", ["jobs"])
    data = Peers(open_socket, server, **as_client(ADA)).data(said)
    data.send_multipart(lease(9, said["lease"]))
    assert data.recv_multipart() == response(9, 403)
    data.send_multipart([b"", b"Connection.Authorize", b'{"response": "c2VzYW1l'])
    data.send_multipart([b"", *lease(7, said["lease"])])
    data.send_multipart(content(1, "jobs", b'{"response": "kept"}'))
    until(lambda: server.stats.resources[1].in_ == 1)
    server.close()
    kept = b"".join(path.read_bytes() for path in sorted((tmp_path / "capture").rglob("*")) if path.is_file())
    assert len(kept) > 1000
    recorded = pq.read_table(capture.open(tmp_path / "capture").segments).to_pylist()
    frames = [frame for row in recorded for frame in (*row["envelope"], row["header"] or b"", *row["payload"])]
    everything = b"\0".join(frames)
    for secret in (said["lease"].encode(), b"sesame", b"AGFkYQBzZXNhbWU", b"c2VzYW1l"):
        assert secret not in everything
    assert b'{"response": "kept"}' in frames
    shown = [json.loads(frame) for frame in frames if b'"lease"' in frame]
    assert len(shown) == 1
    assert shown[0]["lease"].startswith("…")
    assert len([frame for frame in frames if shown[0]["lease"].encode() in frame]) == 4


def test_durable_contents_are_there_after_a_restart(start, open_socket, tmp_path):
    server = start(durable=tmp_path / "store")
    peers = Peers(open_socket, server)
    writer, reader = peers.writer(confirm="full"), peers.reader(confirm="full", window=3)
    for sequence in range(1, 11):
        writer.send_multipart(content(sequence, "", b"%d" % sequence))
    assert [reader.recv_multipart()[1] for _ in range(3)] == [b"1", b"2", b"3"]
    reader.send_multipart(confirm(2, multiple=True))
    assert [reader.recv_multipart()[1] for _ in range(2)] == [b"4", b"5"]
    last = 0
    while last < 10:
        header, _ = writer.recv_multipart()
        assert header[0] == 6
        last = int.from_bytes(header[1:9], "big")
    server.close()
    again = Peers(open_socket, start(durable=tmp_path / "store")).reader()
    assert [again.recv_multipart()[1] for _ in range(8)] == [b"%d" % number for number in range(3, 11)]


def test_stored_queues_of_another_virtual_host_are_logged(start, tmp_path, caplog):
    for hosts in ["/", "lab"], ["/"], ["/", "lab"]:
        caplog.clear()
        start(durable=tmp_path / "store", virtual_hosts=hosts).close()
        logged = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert len(logged) == (hosts == ["/"])
        assert all("1 stored queue was not restored, with 0 contents: " in line for line in logged)


def test_a_server_that_is_collected_ends(tmp_path):
    server = mtl.Server(bind=ANY, anonymous=True, resources=["jobs"], durable=tmp_path)
    with pytest.warns(ResourceWarning, match="unclosed Server"):
        del server

    def is_free():
        try:
            mtl.Server(bind=ANY, anonymous=True, resources=["jobs"], durable=tmp_path).close()
        except OSError:
            return False
        return True

    until(is_free)
    until(lambda: not [one for one in threading.enumerate() if one.name.startswith("trunkline-mtl-server")])


def test_a_folder_is_one_servers(start, tmp_path):
    start(durable=tmp_path / "store")
    with pytest.raises(OSError, match="store"):
        mtl.Server(bind=ANY, anonymous=True, durable=tmp_path / "store")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"anonymous": False}, "users=, a curve= with allow=, or anonymous=True"),
        ({"connect": "tcp://127.0.0.1:1"}, "listens"),
        ({"profiles": ["nothing"]}, "unknown profile"),
        ({"profiles": []}, "profiles is empty"),
        ({"profiles": ["queue", mtl.Profile("QUEUE")]}, "two profiles"),
        ({"data_bind": "127.0.0.1"}, "data_bind='127.0.0.1'"),
        ({"users": {"ada": ""}}, "ada"),
        ({"resources": ["jobs", ""]}, "'' is not a resource name"),
        ({"resources": ["x" * 256]}, "of 1 to 255 bytes"),
        ({"resources": ["ä" * 128]}, "of 1 to 255 bytes"),
        ({"resources": ["a\nb"]}, "printable text"),
    ],
)
def test_what_cannot_be_is_refused_by_name(options, words):
    with pytest.raises(LocalProtocolError, match=words):
        mtl.Server(**{"bind": ANY, "anonymous": True, **options})


@pytest.mark.parametrize("name", ["max_recycle", "liveness"])
def test_numbers_beyond_what_is_counted_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be at most 4294967295, not 4294967296"):
        mtl.Server(bind=ANY, anonymous=True, **{name: 2**32})


def test_a_profile_has_a_name():
    with pytest.raises(TypeError, match="name takes a str, not int"):
        mtl.Profile(5)


@pytest.mark.req("MTL-14", "MTL-15")
def test_users_who_come_while_it_runs_log_in(start, open_socket, tmp_path):
    Users().write(tmp_path / "users.toml")
    server = start(users=tmp_path / "users.toml", anonymous=False)
    peers = Peers(open_socket, server)
    assert peers.control().ask("Connection.Open", OPEN)[1]["mechanisms"] == ["SCRAM-SHA-256"]
    Users.read({"ada": "sesame"}).write(tmp_path / "users.toml")
    server.reload()
    peers.control("queue", user="ada", password="sesame")


@pytest.mark.req("MTL-14", "MTL-15")
@pytest.mark.parametrize("users", [None, {"ada": "sesame", "eve": "sesame"}])
def test_a_key_that_is_taken_away_takes_all_it_opened(start, open_socket, tmp_path, users):
    for name, keys in (("ada", ADA), ("eve", EVE)):
        (tmp_path / name).write_bytes(keys[0])
    server = start(users=users, anonymous=False, curve=Curve(SERVER, allow=tmp_path))
    controls = [Peers(open_socket, server, **as_client(keys)).control() for keys in (ADA, EVE)]
    for control in controls:
        assert control.ask("Connection.Open", OPEN)[0] == 401
        assert control.step(b"", "EXTERNAL")[0] == 201
        assert control.ask("Connection.Profile", {"profile": "queue"})[0] == 200
    ada, eve = controls
    data = Peers(open_socket, server, **as_client(ADA)).data(ada.lease("Writer", ["jobs"]))
    (tmp_path / "ada").unlink()
    server.reload()
    until(lambda: server.stats.leases == 0)
    assert eve.ask("Queue.List")[0] == 200
    if server.transport == "zmtp":
        # Its connections are cut off.
        until(lambda: server.stats.connection_failures.get("revoked") == 2)
        assert not data.poll(0)
    else:
        assert ada.ask("Queue.List") == (401, {"status": "Unauthorized", "mechanisms": []})
        data.send_multipart(PING)
        assert [data.recv_multipart(), data.recv_multipart()] == [PONG, response(0, 403)]
    (tmp_path / "ada").write_bytes(ADA[0])
    server.reload()
    ada = Peers(open_socket, server, **as_client(ADA)).control()
    assert ada.ask("Connection.Open", OPEN)[0] == 401
    assert ada.step(b"", "EXTERNAL")[0] == 201


def test_what_readers_had_at_a_clean_stop_comes_again_as_such(start, open_socket, tmp_path):
    server = start(durable=tmp_path / "store", max_recycle=2)
    peers = Peers(open_socket, server)
    writer, reader = peers.writer(confirm="full"), peers.reader(confirm="full", window=1)
    for sequence in (1, 2):
        writer.send_multipart(content(sequence, "", b"%d" % sequence))
    while int.from_bytes(writer.recv_multipart()[0][1:9], "big") < 2:
        pass
    assert reader.recv_multipart() == content(1, "jobs", b"1")
    server.close()
    marked = b"\0\0\0\x0e\x0bredeliveredt\x01"
    reader = Peers(open_socket, start(durable=tmp_path / "store", max_recycle=2)).reader(confirm="full", window=1)
    # The first delivery counts: of three there are two left.
    for sequence in (1, 2):
        assert reader.recv_multipart() == content(sequence, "jobs", b"1", marked)
        reader.send_multipart(reject(sequence, recycle=True))
    assert reader.recv_multipart() == content(3, "jobs", b"2")


@pytest.mark.req("MTL-28")
def test_a_command_that_is_too_large_is_answered(server, open_socket):
    control = Peers(open_socket, server).control("queue")
    status, said = control.ask("Queue.Info", {"name": "x" * (1 << 20)})
    assert (status, said["status"]) == (400, "a command has up to 1048576 bytes of JSON")
    assert control.ask("Queue.List")[0] == 200


def test_replies_are_counted(server, open_socket):
    Peers(open_socket, server).control("queue")
    until(lambda: server.stats.sent == 2)


def test_clients_make_queues_within_the_limits_of_the_server(start, open_socket):
    server = start(max_queues=3, max_user_queues=2, max_queue=10, users={"ada": "sesame"}, anonymous=False)
    ada = Peers(open_socket, server).control("queue", user="ada", password="sesame")
    assert ada.ask("Queue.Create", {"name": "a", "max-messages": 11})[0] == 400
    answers = [ada.ask("Queue.Create", {"name": name, "max-messages": 10}) for name in "abc"]
    assert [status for status, _ in answers] == [200, 200, 429]
    assert answers[-1][1] == {"status": "a user may have 2 queues, and you have"}
    assert server.stats.dropped == {"too_many_queues": 1}


def test_who_made_a_queue_is_known_after_a_restart(start, open_socket, tmp_path):
    for name, status in (("a", 200), ("b", 429)):
        server = start(max_queues=1, durable=tmp_path / "store")
        assert Peers(open_socket, server).control("queue").ask("Queue.Create", {"name": name})[0] == status
        server.close()


@pytest.mark.parametrize("text", ["", "# cut off"])
def test_a_users_file_that_is_cut_off_changes_nothing(start, open_socket, tmp_path, text):
    path = tmp_path / "users.toml"
    Users.read({"ada": "sesame"}).write(path)
    server = start(users=path, anonymous=False)
    ada = Peers(open_socket, server).control("queue", user="ada", password="sesame")
    whole = path.read_text()
    path.write_text(text)
    with pytest.raises(LocalProtocolError, match="it is empty"):
        server.reload()
    assert ada.ask("Queue.List")[0] == 200
    # A file without users still has a line.
    path.write_text(whole.partition("[")[0])
    server.reload()
    until(lambda: ada.ask("Queue.List")[0] == 401)


def test_a_full_queue_rejects(start, open_socket):
    server = start(max_queue=2)
    writer = Peers(open_socket, server).writer(confirm="full")
    for sequence in (1, 2, 3):
        writer.send_multipart(content(sequence, "", b"x"))
    said = [writer.recv_multipart() for _ in range(2)]
    if said == [confirm(1), confirm(2)]:
        said.append(writer.recv_multipart())
    assert said[-1] == reject(3)
    assert server.stats.dropped == {"queue_full": 1}


def test_contents_wait_no_longer_than_they_may(start, open_socket):
    server = start(queue_ttl_s=0.05)
    peers = Peers(open_socket, server)
    writer = peers.writer()
    writer.send_multipart(content(1, "", b"x"))
    until(lambda: server.stats.dropped == {"queue_expired": 1})


def test_large_contents_go_through(peers):
    writer, reader = peers.writer(confirm="full"), peers.reader(confirm="full")
    body = bytes(range(256)) * (1 << 18)
    writer.send_multipart(content(1, "", body))
    assert reader.recv_multipart()[1] == body
    assert writer.recv_multipart() == confirm(1)


def test_the_end_waits_for_what_is_under_way(start, open_socket):
    server = start()
    began = time.monotonic()
    Peers(open_socket, server).writer()
    server.close()
    assert time.monotonic() - began < 5
    assert server.closed


@pytest.mark.req("MTL-06")
@pytest.mark.needs("hosts")
def test_a_session_is_of_the_host_that_opened_it(start, open_socket):
    server = start(users={"ada": "sesame"}, anonymous=False)
    host, _, port = server.endpoints[0].rpartition(":")
    mine = Control(open_socket(zmq.REQ, connect=server.endpoints[0], routing_id=b"ada"))
    mine.enter(user="ada", password="sesame")
    mine.socket.close()
    until(lambda: not server.stats.peers)
    # A peer with the same routing id from another address is another peer.
    other = Control(
        open_socket(zmq.REQ, connect=f"tcp://127.0.0.2:0;{host.removeprefix('tcp://')}:{port}", routing_id=b"ada")
    )
    assert other.ask("Queue.List") == (400, {"status": "Open first"})
    other.socket.close()
    until(lambda: not server.stats.peers)
    again = Control(open_socket(zmq.REQ, connect=server.endpoints[0], routing_id=b"ada"))
    assert again.ask("Queue.List")[0] == 200
