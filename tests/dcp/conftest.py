"""Every test with a raw socket runs twice: as it is, and over CURVE (DCP-43)."""

import pytest
import zmq

from trunkline import Curve
from trunkline.dcp import broker, client, worker

SERVER, CLIENT = zmq.curve_keypair(), zmq.curve_keypair()

# The roles that listen, and those that dial.
OURS = {
    broker: Curve(SERVER),
    client: Curve(CLIENT, server_key=SERVER[0]),
    worker: Curve(CLIENT, server_key=SERVER[0]),
}
RAW = {
    zmq.ROUTER: {"curve_server": 1, "curve_secretkey": SERVER[1]},
    zmq.DEALER: {"curve_serverkey": SERVER[0], "curve_publickey": CLIENT[0], "curve_secretkey": CLIENT[1]},
}


def encrypted(native_options, curve):
    """The options of a role with `curve`, unless it has other security, or brings a socket."""

    def options(given, **more):
        is_given = given.get("curve") is not None or given.get("socket") is not None
        return native_options(given if is_given else {**given, "curve": curve}, **more)

    return options


@pytest.fixture(params=["plain", "curve"])
def security(request, monkeypatch):
    """The options of raw sockets by their kind; our roles get theirs by themselves."""
    if request.param == "plain":
        return {}
    for module, curve in OURS.items():
        monkeypatch.setattr(module, "native_options", encrypted(module.native_options, curve))
    return RAW


@pytest.fixture
def open_socket(open_socket, security):
    """Makes raw sockets with the security of our roles, unless their options set another."""

    def open_(kind, **options):
        is_given = any(name.startswith("curve") for name in options)
        return open_socket(kind, **({} if is_given else security.get(kind, {})), **options)

    return open_
