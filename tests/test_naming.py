"""Who is behind a routing id: services name the user and the address of their clients, in drops and in the log."""

import asyncio
import logging
import os
import socket
import threading

import pytest
import zmq

from peers.dcp import register, request
from peers.mtl import OPEN, Peers
from peers.roles import ANY, opened
from peers.waiting import until
from trunkline import Curve, dcp, mc0, mtl

SERVER = zmq.curve_keypair()
OPS = zmq.curve_keypair()
AS_OPS = {"curve_publickey": OPS[0], "curve_secretkey": OPS[1], "curve_serverkey": SERVER[0]}


@pytest.fixture
def curve(tmp_path):
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "ops.key").write_bytes(OPS[0])
    return Curve(SERVER, allow=tmp_path / "keys")


@pytest.fixture
def dial(open_socket):
    """Connects a socket; gives it with the address it connected from."""

    def dial(kind, endpoint, **options):
        peer = open_socket(kind, **options)
        monitor = peer.get_monitor_socket(zmq.EVENT_CONNECTED)
        peer.connect(endpoint)
        event, _ = monitor.recv_multipart()
        with socket.socket(fileno=os.dup(int.from_bytes(event[2:6], "little"))) as connection:
            host, port = connection.getsockname()
        peer.disable_monitor()
        monitor.close()
        return peer, f"tcp://{host}:{port}"

    return dial


LISTENING = ["cdtp.Receiver", "cdtp.Recorder", "dcp.Broker", "mc0.Middleware", "mtl.Server"]


@pytest.mark.parametrize("name", LISTENING)
@pytest.mark.parametrize("twin", ["", "Async"])
def test_a_drop_names_its_sender(name, twin, curve, dial, tmp_path, caplog):
    drops, came = [], threading.Event()

    def on_drop(dropped):
        drops.append(dropped)
        came.set()

    def send(role):
        kind = zmq.PUSH if name.startswith("cdtp") else zmq.DEALER
        peer, address = dial(kind, role.endpoints[0], **AS_OPS)
        peer.send_multipart([b"no", b"such", b"message", b"anywhere"])
        return address

    role = opened(name, tmp_path, twin, curve=curve, on_drop=on_drop)
    if twin:
        address = asyncio.run(_dropping(role, send, came))
    else:
        with role:
            address = send(role)
            if name == "cdtp.Receiver":
                with pytest.raises(TimeoutError):
                    role.receive(timeout_s=0.5)
            assert came.wait(20)
    assert (drops[0].user, drops[0].address) == ("ops", address)
    assert (drops[0].peer is None) == name.startswith("cdtp")
    record = next(record for record in caplog.records if getattr(record, "fields", {}).get("user"))
    assert (record.fields["user"], record.fields["address"]) == ("ops", address)
    digits = "" if drops[0].peer is None else f"{drops[0].peer.hex()}, "
    assert f", from ops ({digits}{address.removeprefix('tcp://')})" in record.getMessage()


async def _dropping(role, send, came):
    async with role:
        address = await asyncio.to_thread(send, role)
        if hasattr(role, "receive"):
            with pytest.raises(TimeoutError):
                await role.receive(timeout_s=0.5)
        assert await asyncio.to_thread(came.wait, 20)
    return address


def test_what_is_not_known_is_left_out(dial, tmp_path, caplog, open_socket):
    drops = []
    with mc0.Middleware(bind=[ANY, f"ipc://{tmp_path}/bus"], on_drop=drops.append) as bus:
        peer, address = dial(zmq.DEALER, bus.endpoints[0])
        peer.send(b"garbage")
        until(lambda: len(drops) == 1)
        open_socket(zmq.DEALER, connect=bus.endpoints[1]).send(b"garbage")
        until(lambda: len(drops) == 2)
    assert [(drop.user, drop.address) for drop in drops] == [(None, address), (None, None)]
    assert f", from {drops[0].peer.hex()} ({address.removeprefix('tcp://')})" in caplog.text


def test_what_befalls_others_has_not_their_address(curve, dial):
    drops = []
    options = {"max_queue": 1, "overflow": "drop-oldest", "on_drop": drops.append}
    with dcp.Broker(bind=ANY, curve=curve, **options) as broker:
        for _ in range(2):
            peer, _ = dial(zmq.DEALER, broker.endpoints[0], **AS_OPS)
            peer.send_multipart(request(b"nothing", b"x"))
        until(lambda: drops)
    assert [(drop.kind, drop.user, drop.address) for drop in drops] == [("queue_full", "ops", None)]


def test_a_middleware_names_who_comes_and_goes(curve, dial, caplog):
    caplog.set_level(logging.INFO, "trunkline.mc0")
    with mc0.Middleware(bind=ANY, curve=curve) as bus:
        peer, address = dial(zmq.DEALER, bus.endpoints[0], **AS_OPS)
        peer.send_multipart([b"CONNECT", b"ID", b"1"])
        peer.recv_multipart()
        peer.send_multipart([b"DISCONNECT", b"ID", b"2"])
        peer.recv_multipart()
    place = address.removeprefix("tcp://")
    lines = [
        record for record in caplog.records if getattr(record, "fields", {}).get("kind") in ("joined", "forgotten")
    ]
    digits = lines[0].fields["peer"]
    assert [line.getMessage() for line in lines] == [
        f"middleware: client ops ({digits}, {place}) connected",
        f"middleware: client ops ({digits}, {place}) left",
    ]


def test_a_broker_names_its_workers(curve, dial, caplog):
    caplog.set_level(logging.INFO, "trunkline.dcp")
    with dcp.Broker(bind=ANY, curve=curve, allowed_services=[b"echo"], heartbeat_interval_s=0.2, liveness=1) as broker:
        peer, address = dial(zmq.DEALER, broker.endpoints[0], **AS_OPS)
        peer.send_multipart(register(b"other"))
        peer.send_multipart(register(b"echo"))
        until(lambda: "is gone" in caplog.text)
    place = address.removeprefix("tcp://")
    lines = {record.fields["kind"]: record for record in caplog.records if "worker" in getattr(record, "fields", {})}
    assert {kind: (line.fields["user"], line.fields["address"]) for kind, line in lines.items()} == {
        "refused": ("ops", address),
        "registered": ("ops", address),
        "gone": ("ops", None),
    }
    digits = lines["gone"].fields["worker"]
    assert f"worker ops ({digits}, {place}) may not offer other" in caplog.text
    assert f"worker ops ({digits}, {place}) offers echo" in caplog.text
    assert f"worker ops ({digits}) of echo is gone" in caplog.text


def test_a_server_names_who_has_logged_in(open_socket, caplog):
    caplog.set_level(logging.INFO, "trunkline.mtl")
    drops = []
    with mtl.Server(bind=ANY, users={"ada": "sesame"}, on_drop=drops.append) as server:
        peers = Peers(open_socket, server)
        control = peers.control()
        control.ask("Connection.Open", OPEN)
        assert control.log_in("ada", "wrong") == 401
        assert control.log_in("ada", "sesame") == 201
        until(lambda: "logged in" in caplog.text)
        control.socket.send(b"nonsense")
        until(lambda: drops)
    by_kind = {record.fields["kind"]: record for record in caplog.records if getattr(record, "fields", {}).get("peer")}
    digits = drops[0].peer.hex()
    assert (by_kind["login_refused"].fields["tried"], by_kind["login_refused"].fields["user"]) == ("ada", None)
    assert f"refused the login of client {digits} (127.0.0.1) as ada" in caplog.text
    assert f"client ada ({digits}, 127.0.0.1) logged in" in caplog.text
    assert drops[0].user == "ada"
    assert drops[0].address.startswith("tcp://127.0.0.1:")
    assert f", from ada ({digits}, {drops[0].address.removeprefix('tcp://')})" in caplog.text
