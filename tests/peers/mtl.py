"""MTL packed by hand: what the tests send to our roles, and what they expect of them."""

import base64
import json
import struct
import threading

import scramp
import zmq

ANY = "tcp://127.0.0.1:*"

EMPTY = b"\0\0\0\0"

PING = [b"\x08", b""]
PONG = [b"\x09", b""]


def lease(sequence, lease):
    return [b"\x01" + struct.pack(">Q", sequence) + _short(lease), b""]


def response(sequence, status):
    return [b"\x02" + struct.pack(">Q", sequence), b"%d" % status]


def summon(sequence, resource):
    return [b"\x03" + struct.pack(">Q", sequence) + _short(resource), b""]


def dismiss(sequence, resource):
    return [b"\x04" + struct.pack(">Q", sequence) + _short(resource), b""]


def content(sequence, resource, body, table=EMPTY):
    return [b"\x05" + struct.pack(">Q", sequence) + _short(resource) + table, body]


def confirm(sequence, *, multiple=False):
    return [b"\x06" + struct.pack(">Q?", sequence, multiple), b""]


def reject(sequence, *, multiple=False, recycle=False):
    return [b"\x07" + struct.pack(">Q??", sequence, multiple, recycle), b""]


def _short(text):
    data = text.encode()
    return bytes([len(data)]) + data


OPEN = {"protocol": {"name": "MTL", "version": 1}, "virtual-host": "/"}


class Control:
    """A raw REQ at a server."""

    def __init__(self, socket):
        self.socket = socket

    def ask(self, name, body=None):
        """The status and the body of the reply."""
        self.socket.send_multipart([name.encode(), json.dumps(body or {}).encode()])
        return self.reply()

    def reply(self):
        status, body = self.socket.recv_multipart()
        said = json.loads(body)
        assert isinstance(said["status"], str)
        return int(status), said

    def enter(self, profile="queue", user=None, password=None, host="/"):
        """Opens, logs in by SCRAM as an independent implementation has it, and selects a profile."""
        status, _ = self.ask("Connection.Open", {**OPEN, "virtual-host": host})
        if user is not None:
            assert status == 401
            status = self.log_in(user, password)
        assert status == 201
        assert self.ask("Connection.Profile", {"profile": profile})[0] == 200

    def log_in(self, user, password):
        """The status that a login by SCRAM-SHA-256 comes to."""
        client = scramp.ScramClient(["SCRAM-SHA-256"], user, password)
        status, said = self.step(client.get_client_first().encode())
        if status != 402:
            return status
        client.set_server_first(base64.b64decode(said["challenge"]).decode())
        status, said = self.step(client.get_client_final().encode())
        if status != 402:
            return status
        client.set_server_final(base64.b64decode(said["challenge"]).decode())
        return self.step(b"")[0]

    def step(self, response, mechanism="SCRAM-SHA-256"):
        encoded = base64.b64encode(response).decode()
        return self.ask("Connection.Authorize", {"mechanism": mechanism, "response": encoded})

    def lease(self, kind, resources=(), confirm="none", **more):
        status, said = self.ask(f"Connection.{kind}", {"resources": list(resources), "confirm": confirm, **more})
        assert status == 202, said
        return said


def session(dial, endpoint):
    """An anonymous session at a server, on a socket that `dial` opens."""
    requester = dial(zmq.REQ, endpoint)
    requester.rcvtimeo = 20_000
    control = Control(requester)
    control.enter()
    return control


def flow(dial, endpoint, control, kind):
    """A data connection of a session, a `Writer` or `Reader` of jobs that confirms."""
    data = dial(zmq.DEALER, endpoint)
    data.rcvtimeo = 20_000
    data.send_multipart(lease(1, control.lease(kind, ["jobs"], "full")["lease"]))
    assert data.recv_multipart() == response(1, 200)
    return data


class Peers:
    """Raw peers of one server."""

    def __init__(self, open_socket, server, **options):
        self._open = open_socket
        self._server = server
        self._options = options

    def control(self, *profile, **login):
        control = Control(self._open(zmq.REQ, connect=self._server.endpoints[0], **self._options))
        if profile:
            control.enter(*profile, **login)
        return control

    def data(self, said=None):
        """A DEALER at the port of a lease, which it shows."""
        endpoint = self._server.data_endpoints[0]
        if said is not None and said["port"]:
            assert endpoint.endswith(f":{said['port']}")
        dealer = self._open(zmq.DEALER, connect=endpoint, **self._options)
        if said is not None:
            dealer.send_multipart(lease(1, said["lease"]))
            assert dealer.recv_multipart() == response(1, 200)
        return dealer

    def writer(self, resource="jobs", confirm="none", profile="queue"):
        return self.data(self.control(profile).lease("Writer", [resource], confirm))

    def reader(self, resource="jobs", confirm="none", profile="queue", window=None):
        more = {} if window is None else {"window": window}
        dealer = self.data(self.control(profile).lease("Reader", [resource], confirm, **more))
        dealer.send_multipart(summon(2, resource))
        assert dealer.recv_multipart() == response(2, 200)
        return dealer


class Playing(threading.Thread):
    """Plays a server's control flow: answers each command with the next reply, a status and a body, and keeps what it was asked.

    A reply that is none of a status and a body is what a function of the router makes of the command's frames.
    """

    def __init__(self, context, *replies):
        super().__init__(daemon=True)
        self.asked = []
        self._router = context.socket(zmq.ROUTER)
        self._router.linger = 0
        self._router.bind(ANY)
        self.endpoint = self._router.last_endpoint.decode()
        self._replies = iter(replies)
        self._stops = threading.Event()
        self.start()

    def run(self):
        while not self._stops.is_set():
            if not self._router.poll(20):
                continue
            peer, empty, name, said = self._router.recv_multipart()
            assert empty == b""
            self.asked.append((name.decode(), json.loads(said)))
            reply = next(self._replies, None)
            if callable(reply):
                reply(self._router, peer)
            elif reply is not None:
                answer(self._router, peer, *reply)
        self._router.close(linger=0)

    def stop(self):
        self._stops.set()
        self.join(20)

    @property
    def names(self):
        return [name for name, _ in self.asked]


def answer(router, peer, status, body):
    router.send_multipart([peer, b"", b"%d" % status, json.dumps({"status": "so", **body}).encode()])
