"""What the roles of every protocol have in common."""

import pytest
import zmq

from trunkline import cdtp, dcp
from trunkline.errors import LocalProtocolError

ROLES = {
    "Sender": lambda _path, **options: cdtp.Sender("Det", linger_s=0, **options),
    "Receiver": lambda _path, **options: cdtp.Receiver(**options),
    "Recorder": lambda path, **options: cdtp.Recorder(path / "capture", **options),
    "Broker": lambda _path, **options: dcp.Broker(**options),
    "Worker": lambda _path, **options: dcp.Worker(b"echo", **options),
    "Client": lambda _path, **options: dcp.Client(**options),
}

KINDS = {
    "Sender": "PUSH",
    "Receiver": "PULL",
    "Recorder": "PULL",
    "Broker": "ROUTER",
    "Worker": "DEALER",
    "Client": "DEALER",
}


@pytest.mark.parametrize(
    "given", ["PUB", "SUB", "REQ", "REP", "DEALER", "ROUTER", "PULL", "PUSH", "PAIR", "XPUB", "STREAM"]
)
@pytest.mark.parametrize("role", ROLES)
def test_a_socket_of_another_pattern_is_refused(role, given, open_socket, tmp_path):
    socket = open_socket(getattr(zmq, given))
    if given == KINDS[role]:
        ROLES[role](tmp_path, socket=socket).close()
        return
    with pytest.raises(LocalProtocolError, match=f"needs a {KINDS[role]} socket, not a {given} one"):
        ROLES[role](tmp_path, socket=socket)


def test_the_endpoint_of_a_socket_is_that_of_its_role(open_socket):
    socket = open_socket(zmq.PULL, bind="tcp://127.0.0.1:*")
    with cdtp.Receiver(socket=socket) as receiver:
        assert receiver.endpoints == (socket.last_endpoint.decode(),)
    assert receiver.endpoints == (socket.last_endpoint.decode(),)
    with cdtp.Receiver(socket=open_socket(zmq.PULL)) as receiver:
        assert receiver.endpoints == ()


@pytest.mark.parametrize("bound", ["queue_messages", "queue_bytes"])
@pytest.mark.parametrize("role", ROLES)
def test_a_queue_without_room_is_refused(role, bound, tmp_path):
    where = "bind" if role == "Broker" else "connect"
    for size in (0, -1):
        with pytest.raises(LocalProtocolError, match=f"{bound} is at least 1"):
            ROLES[role](tmp_path, **{where: "tcp://127.0.0.1:9", bound: size})
