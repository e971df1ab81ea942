"""CURVE: keys in all their forms, and who is let in, against raw pyzmq sockets."""

import copy
import logging
import pickle

import pytest
import zmq
import zmq.auth
from zmq.utils import z85

import trunkline
from trunkline import Curve, cdtp
from waiting import until

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
    assert Curve(server_key=public).options() != Curve(server_key=public).options(), "a new pair each time"


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


def test_the_list_guards_a_context_of_yours_too(context, open_socket):
    curve = Curve(SERVER, allow=[CLIENT])
    with cdtp.Receiver(bind="tcp://127.0.0.1:*", context=context, curve=curve) as receiver:
        open_socket(zmq.PUSH, connect=receiver.endpoints[0], **as_client(CLIENT)).send_multipart(MESSAGE)
        assert receiver.receive(timeout_s=10).sender == "D"


def test_cannot_be_pickled_and_says_why():
    for copied in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="holds a secret key: it can be neither copied nor pickled"):
            copied(Curve(SERVER))
