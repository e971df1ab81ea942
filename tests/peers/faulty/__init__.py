"""Small implementations of each protocol, written by hand on raw sockets, which do all but what their one fault says."""

import threading
from typing import ClassVar

import zmq
from zmq.auth.thread import ThreadAuthenticator

from trunkline.conform.checks import Subject

__all__ = ["Router"]

TICK_MS = 20


class Router:
    """A ROUTER in a thread, whose subclass answers what comes.

    A context manager; `endpoint` is where it listens, `subject` what is tested then.
    """

    # What its faults may be, each with the ids of the requirements that it breaks.
    FAULTS: ClassVar = {}

    def __init__(self, fault=None, passwords=None):
        assert fault is None or fault in self.FAULTS
        self._fault = fault
        self._stops = threading.Event()
        self._context = zmq.Context()
        self._socket = self._context.socket(self.KIND)
        self._socket.linger = 0
        self._socket.router_mandatory = False
        self._authenticator = None
        if passwords is not None:
            self._authenticator = ThreadAuthenticator(self._context)
            self._authenticator.start()
            self._authenticator.configure_plain(domain="*", passwords=passwords)
            self._socket.plain_server = True
        self._socket.bind("tcp://127.0.0.1:*")
        self.endpoint = self._socket.last_endpoint.decode()
        self.subject = Subject(self.endpoint)

    KIND = zmq.ROUTER

    def has(self, fault):
        """Whether this is its fault."""
        assert fault in self.FAULTS, fault
        return self._fault == fault

    def run(self):
        while not self._stops.is_set():
            for socket in self.sockets():
                if socket.poll(TICK_MS if socket is self._socket else 0):
                    self.take(socket, *socket.recv_multipart())
            self.tick()
        for socket in self.sockets():
            socket.close(linger=0)
        if self._authenticator is not None:
            self._authenticator.stop()
        self._context.term()

    def sockets(self):
        return [self._socket]

    def take(self, socket, peer, *frames):
        """Answers a message."""
        raise NotImplementedError

    def tick(self):
        """Does what is due by the clock."""

    def send(self, peer, *frames):
        self._socket.send_multipart([peer, *frames])

    def __enter__(self):
        self._thread = threading.Thread(target=self.run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stops.set()
        self._thread.join(20)
