"""DCP packed by hand: what the tests send to our roles, and what they expect of them."""

import zmq

from peers.waiting import until

HEAD = [b"", b"DGBX\x01"]
PING = [*HEAD, b"\x02"]
PONG = [*HEAD, b"\x03"]
RECONNECT = [*HEAD, b"\x06"]

# Where workers go that leave.
LEAVING = b"trunkline.leaving"

ANY = "tcp://127.0.0.1:*"


def register(service):
    return [*HEAD, b"\x01", service]


def request(service, *data, client=None, metadata=()):
    return [*HEAD, b"\x04", service, *([] if client is None else [client]), b"", *metadata, b"", *data]


def reply(client, *data, metadata=()):
    return [*HEAD, b"\x05", client, b"", *metadata, b"", *data]


def answer(asked, *data):
    """The reply to a request that a worker got."""
    client, metadata = asked[4], asked[6 : asked.index(b"", 6)]
    return reply(client, *data, metadata=metadata)


def data_of(frames):
    """The data of a request with a client part."""
    return frames[frames.index(b"", 6) + 1 :]


def bound_again(open_socket, kind, endpoint):
    """A socket at an endpoint that another one has just left: it is free a moment later."""
    socket = open_socket(kind)

    def bind():
        try:
            socket.bind(endpoint)
        except zmq.ZMQError:
            return False
        return True

    until(bind)
    return socket
