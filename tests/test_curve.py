"""CURVE: keys in all their forms, and admission, against raw pyzmq sockets."""

import copy
import logging
import pickle
import threading

import pytest
import zmq
import zmq.auth
from zmq.utils import z85
from zmq.utils.monitor import recv_monitor_message

import trunkline
from peers.roles import opened
from peers.waiting import until
from trunkline import Curve, cdtp, dcp
from trunkline.errors import LocalProtocolError

SERVER = zmq.curve_keypair()
CLIENT = zmq.curve_keypair()
MESSAGE = [b"\xa5CDTP\x01\xa1D\xd6\xff\x65\x53\xf1\x00\x80", b"payload"]


@pytest.fixture
def certificates(tmp_path):
    """The files of a pair: public, secret."""
    return [tmp_path / name for name in zmq.auth.create_certificates(tmp_path, "server")]


def as_client(keys, server_key=SERVER[0]):
    public, secret = keys
    return {"curve_publickey": public, "curve_secretkey": secret, "curve_serverkey": server_key}


def test_a_key_is_taken_in_every_form(tmp_path, certificates):
    bare = tmp_path / "bare"
    bare.write_bytes(SERVER[1] + b"\n")
    forms = [SERVER[1], SERVER[1].decode(), z85.decode(SERVER[1]), SERVER, bare, str(bare)]
    assert {Curve(form).public_key for form in forms} == {SERVER[0]}
    public, secret = certificates
    written = zmq.auth.load_certificate(public)[0]
    assert Curve(secret).public_key == Curve(str(secret)).public_key == written
    assert Curve(server_key=public).public_key != Curve(server_key=public).public_key, "a new pair each time"


@pytest.mark.parametrize("key", [b"short", "k" * 39, b"\xff" * 40, "~" * 40, ("a", "b")], ids=repr)
def test_what_is_no_key_is_refused(key):
    with pytest.raises((trunkline.LocalProtocolError, FileNotFoundError)):
        Curve(key)


def test_half_a_certificate_is_no_secret(certificates):
    with pytest.raises(trunkline.LocalProtocolError, match="public half"):
        Curve(certificates[0])


def test_contradictions_are_refused(open_socket):
    with pytest.raises(trunkline.LocalProtocolError, match="secret key"):
        Curve()
    with pytest.raises(trunkline.LocalProtocolError, match="allow-list"):
        Curve(server_key=SERVER[0], allow=[])
    with pytest.raises(trunkline.LocalProtocolError, match="curve="):
        cdtp.Receiver(socket=open_socket(zmq.PULL, bind="tcp://127.0.0.1:*"), curve=Curve(SERVER))


def test_no_key_is_shown():
    assert SERVER[1].decode() not in repr(Curve(SERVER))
    assert SERVER[0].decode() in repr(Curve(SERVER))


def test_a_server_without_a_list_lets_in_who_knows_its_key(open_socket):
    with cdtp.Receiver(bind="tcp://127.0.0.1:*", curve=Curve(SERVER)) as receiver:
        stranger = open_socket(zmq.PUSH, connect=receiver.endpoints[0], immediate=1, sndtimeo=300)
        with pytest.raises(zmq.Again):
            stranger.send_multipart(MESSAGE)
        open_socket(zmq.PUSH, connect=receiver.endpoints[0], **as_client(CLIENT)).send_multipart(MESSAGE)
        assert receiver.receive(timeout_s=10).payload == (b"payload",)


def test_a_client_proves_itself_to_a_raw_server(open_socket):
    pull = open_socket(zmq.PULL, curve_server=1, curve_secretkey=SERVER[1])
    pull.bind("tcp://127.0.0.1:0")
    with cdtp.Sender("D", connect=pull.last_endpoint.decode(), curve=Curve(server_key=SERVER[0])) as sender:
        sender.send(b"payload")
        assert pull.recv_multipart()[1] == b"payload"


def test_only_those_on_the_list_are_let_in(open_socket, tmp_path, caplog):
    caplog.set_level(logging.WARNING, "trunkline.cdtp")
    (tmp_path / "friend.key").write_bytes(CLIENT[0])
    other = zmq.curve_keypair()
    curve = Curve(SERVER, allow=tmp_path)
    with cdtp.Recorder(tmp_path / "capture", bind="tcp://127.0.0.1:*", curve=curve) as recorder:
        friend = open_socket(zmq.PUSH, connect=recorder.endpoints[0], **as_client(CLIENT))
        friend.send_multipart(MESSAGE)
        recorder.wait(count=1, timeout_s=10)
        stranger = open_socket(zmq.PUSH, **as_client(other))
        monitor = stranger.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
        stranger.connect(recorder.endpoints[0])
        assert monitor.poll(10_000)
        stranger.disable_monitor()
        monitor.close()
        until(lambda: recorder.stats.refused == 1)

        (tmp_path / "other.key").write_bytes(other[0])
        curve.reload()
        again = open_socket(zmq.PUSH, connect=recorder.endpoints[0], **as_client(other))
        again.send_multipart(MESSAGE)
        recorder.wait(count=2, timeout_s=10)
    assert recorder.stats.refused == 1
    until(lambda: any(other[0].decode() in record.getMessage() for record in caplog.records))


def test_a_bad_list_leaves_the_old_one(open_socket, tmp_path):
    curve = Curve(SERVER, allow=tmp_path)
    with cdtp.Receiver(bind="tcp://127.0.0.1:*", curve=curve) as receiver:
        (tmp_path / "friend.key").write_bytes(b"no key")
        with pytest.raises(trunkline.LocalProtocolError, match=r"friend\.key"):
            curve.reload()
        (tmp_path / "friend.key").write_bytes(CLIENT[0])
        curve.reload()
        open_socket(zmq.PUSH, connect=receiver.endpoints[0], **as_client(CLIENT)).send_multipart(MESSAGE)
        assert receiver.receive(timeout_s=10).sender == "D"
    curve.reload()


def test_a_list_that_cannot_be_read_leaves_the_old_one(tmp_path):
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "friend.key").write_bytes(CLIENT[0])
    curve = Curve(SERVER, allow=tmp_path / "keys")
    names = curve.names
    (tmp_path / "keys").rename(tmp_path / "other")
    with pytest.raises(trunkline.LocalProtocolError, match=r"/keys cannot be read: No such file or directory"):
        curve.reload()
    assert curve.names == names != {}


def test_a_list_that_is_read_again_while_a_role_opens_is_the_one_that_counts(open_socket, tmp_path):
    class Reread(Curve):
        def _native_options(self):
            given = super()._native_options()
            (tmp_path / "friend.key").write_bytes(CLIENT[0])
            self.reload()
            return given

    with cdtp.Receiver(bind="tcp://127.0.0.1:*", curve=Reread(SERVER, allow=tmp_path)) as receiver:
        open_socket(zmq.PUSH, connect=receiver.endpoints[0], **as_client(CLIENT)).send_multipart(MESSAGE)
        assert receiver.receive(timeout_s=10).sender == "D"


def test_the_list_guards_a_context_of_yours_too(context, open_socket):
    curve = Curve(SERVER, allow=[CLIENT])
    with cdtp.Receiver(bind="tcp://127.0.0.1:*", context=context, curve=curve) as receiver:
        open_socket(zmq.PUSH, connect=receiver.endpoints[0], **as_client(CLIENT)).send_multipart(MESSAGE)
        assert receiver.receive(timeout_s=10).sender == "D"


def test_an_allow_list_has_a_context_to_itself(context):
    def receiver(**options):
        return cdtp.Receiver(bind="tcp://127.0.0.1:*", context=context, **options)

    only = pytest.raises(trunkline.LocalProtocolError, match="a context of its own")
    with receiver(curve=Curve(SERVER, allow=[CLIENT])), receiver():
        for allow in (None, [CLIENT]):
            with only:
                receiver(curve=Curve(SERVER, allow=allow))
    # It may be shared again by servers without a list.
    with receiver(curve=Curve(SERVER)), receiver(curve=Curve(SERVER)):
        with only:
            receiver(curve=Curve(SERVER, allow=[CLIENT]))


def test_a_file_that_goes_while_the_list_is_read_is_not_on_it(tmp_path, monkeypatch):
    (tmp_path / "ada.key").write_bytes(CLIENT[0])
    curve = Curve(SERVER, allow=tmp_path)
    there = [tmp_path / "gone.key", tmp_path / "ada.key"]
    monkeypatch.setattr("trunkline.curve._files", lambda _: there)
    curve.reload()
    assert list(curve.names.values()) == ["ada"]


def handshakes(open_socket, endpoint, keys):
    """Connects a raw client for each pair of keys; gives the sockets."""
    return [open_socket(zmq.PUSH, connect=endpoint, **as_client(pair)) for pair in keys]


def test_a_function_decides_who_is_let_in(open_socket, caplog):
    asked = []

    def allow(key, address):
        asked.append((key, address))
        if key == friends[2][0]:
            raise RuntimeError(key)
        return key == friends[0][0] and "ada"

    friends = [zmq.curve_keypair() for _ in range(3)]
    with cdtp.Receiver(bind="tcp://127.0.0.1:*", curve=Curve(SERVER, allow=allow)) as receiver:
        sockets = handshakes(open_socket, receiver.endpoints[0], friends)
        for number, push in enumerate(sockets):
            push.send_multipart([*MESSAGE[:1], b"%d" % number])
        assert receiver.receive(timeout_s=20).payload == (b"0",)
        until(lambda: receiver.stats.refused >= 2)
        assert receiver.stats.received == 1
    assert {key for key, _ in asked} == {public for public, _ in friends}
    assert {address for _, address in asked} == {"127.0.0.1"}
    until(lambda: "allow= raised" in caplog.text)


def test_who_is_thought_about_for_long_delays_nobody_else(open_socket):
    slow, *quick = [zmq.curve_keypair() for _ in range(10)]
    decide = threading.Event()

    def allow(key, _address):
        return key != slow[0] or decide.wait(20)

    with cdtp.Receiver(bind="tcp://127.0.0.1:*", curve=Curve(SERVER, allow=allow)) as receiver:
        (waiting,) = handshakes(open_socket, receiver.endpoints[0], [slow])
        waiting.send_multipart([MESSAGE[0], b"slow"])
        for push in handshakes(open_socket, receiver.endpoints[0], quick):
            push.send_multipart([MESSAGE[0], b"quick"])
        assert [receiver.receive(timeout_s=20).payload[0] for _ in quick] == [b"quick"] * len(quick)
        decide.set()
        # In time, or at the next attempt.
        assert receiver.receive(timeout_s=20).payload == (b"slow",)


def test_whom_nobody_decides_about_is_turned_away(open_socket):
    never = threading.Event()
    with cdtp.Receiver(bind="tcp://127.0.0.1:*", curve=Curve(SERVER, allow=lambda *_: never.wait(60))) as receiver:
        handshakes(open_socket, receiver.endpoints[0], [CLIENT])
        until(lambda: receiver.stats.refused >= 1)
    never.set()


async def test_a_function_decides_in_asyncio_too(open_socket):
    curve = Curve(SERVER, allow=lambda key, _address: key == CLIENT[0])
    async with cdtp.AsyncReceiver(bind="tcp://127.0.0.1:*", curve=curve) as receiver:
        (push,) = handshakes(open_socket, receiver.endpoints[0], [CLIENT])
        push.send_multipart(MESSAGE)
        assert (await receiver.receive(timeout_s=20)).payload == (b"payload",)
        curve.reload()


def test_cannot_be_pickled_and_says_why():
    for copied in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="holds a secret key and cannot be copied or pickled"):
            copied(Curve(SERVER))


# The largest message of a handshake, when the client's routing id is as long as one can be.
HANDSHAKE = 547


def test_a_role_that_could_never_take_a_handshake_is_refused(tmp_path):
    roles = [
        lambda **given: cdtp.Receiver(bind="tcp://127.0.0.1:*", **given),
        lambda **given: cdtp.Recorder(tmp_path / "capture", bind="tcp://127.0.0.1:*", **given),
        lambda **given: dcp.Broker(bind="tcp://127.0.0.1:*", **given),
    ]
    for role in roles:
        role(max_message_bytes=10).close()
        with pytest.raises(
            trunkline.LocalProtocolError, match="max_message_bytes must be at least 547 with curve=, not 546"
        ):
            role(max_message_bytes=HANDSHAKE - 1, curve=Curve(SERVER))


def test_the_smallest_limit_beside_curve_takes_any_handshake(open_socket):
    with dcp.Broker(bind="tcp://127.0.0.1:*", max_message_bytes=HANDSHAKE, curve=Curve(SERVER)) as broker:
        options = {"routing_id": b"r" * 255, **as_client(CLIENT)}
        worker = open_socket(zmq.DEALER, connect=broker.endpoints[0], **options)
        registration = [b"", b"DGBX\x01", b"\x01", b"echo"]
        worker.send_multipart(registration)
        assert worker.recv_multipart() == registration
    # What libzmq itself does with one byte less.
    server = open_socket(zmq.ROUTER, curve_server=True, curve_secretkey=SERVER[1], maxmsgsize=HANDSHAKE - 1)
    port = server.bind_to_random_port("tcp://127.0.0.1")
    client = open_socket(zmq.DEALER, connect=f"tcp://127.0.0.1:{port}", **options)
    with client.get_monitor_socket(zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED) as monitor:
        event = recv_monitor_message(monitor)
        client.disable_monitor()
    assert event["event"] == zmq.EVENT_DISCONNECTED


@pytest.mark.parametrize("role", ["dcp.Client", "dcp.Worker", "mc0.Connector", "mtl.Client"])
def test_a_client_needs_the_key_of_its_server(role, tmp_path):
    with pytest.raises(LocalProtocolError, match="server_key="):
        opened(role, tmp_path, curve=Curve(zmq.curve_keypair()))


@pytest.fixture
def listed(tmp_path):
    """A folder with the keys of two clients."""
    folder = tmp_path / "allowed"
    folder.mkdir()
    for name, (public, _) in {"one": CLIENT, "other": OTHER}.items():
        (folder / name).write_bytes(public)
    return folder


OTHER = zmq.curve_keypair()
KINDS = {"cdtp.Receiver": zmq.PUSH, "cdtp.Sender": zmq.PULL, "dcp.Broker": zmq.DEALER, "mc0.Middleware": zmq.DEALER}


def connected(open_socket, kind, endpoint, keys):
    """A client that is connected, and its monitor."""
    client = open_socket(kind, reconnect_ivl=-1, **as_client(keys))
    monitor = client.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
    client.connect(endpoint)
    assert monitor.poll(10_000)
    assert recv_monitor_message(monitor)["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED
    return client, monitor


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_client_whose_key_is_removed_is_cut_off(tmp_path, open_socket, listed, caplog, name):
    curve = Curve(SERVER, allow=listed)
    with opened(name, tmp_path, curve=curve, transport="zmtp") as role:
        monitors = [connected(open_socket, KINDS[name], role.endpoints[0], keys)[1] for keys in (CLIENT, OTHER)]
        (listed / "one").unlink()
        curve.reload()
        assert monitors[0].poll(10_000)
        assert recv_monitor_message(monitors[0])["event"] == zmq.EVENT_DISCONNECTED
        until(lambda: role.stats.connection_failures == {"revoked": 1})
        if name != "cdtp.Receiver":  # It logs where it is read.
            until(lambda: "no longer allowed" in caplog.text)
        assert not monitors[1].poll(100)
        for monitor in monitors:
            monitor.close()


def test_a_callable_is_asked_again_about_those_that_are_connected(open_socket):
    allowed = {CLIENT[0], OTHER[0]}
    curve = Curve(SERVER, allow=lambda key, _address: key in allowed)
    with dcp.Broker(bind="tcp://127.0.0.1:*", curve=curve, transport="zmtp") as broker:
        monitors = [connected(open_socket, zmq.DEALER, broker.endpoints[0], keys)[1] for keys in (CLIENT, OTHER)]
        curve.reload()
        assert not any(monitor.poll(300) for monitor in monitors)
        allowed.remove(OTHER[0])
        curve.reload()
        assert monitors[1].poll(10_000)
        until(lambda: broker.stats.connection_failures == {"revoked": 1})
        assert not monitors[0].poll(100)
        for monitor in monitors:
            monitor.close()
