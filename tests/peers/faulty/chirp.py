"""A beacon of CHIRP with one fault, at a port of its own."""

import hashlib
import select
import socket
import struct
import threading
import time
from typing import ClassVar

from trunkline.conform.checks import Subject

ADDRESS = "239.192.7.123"
GROUP = "Faulty"
REQUEST, OFFER = 1, 2
DATA = 4


def md5(name):
    return hashlib.md5(name.encode()).digest()


class Beacon:
    """A beacon that offers data, and answers to either hash of its group."""

    FAULTS: ClassVar = {
        "sends a byte more": {"CHIRP-01"},
        "sends another version": {"CHIRP-01"},
        "offers service 9": {"CHIRP-02"},
        "sends type 7": {"CHIRP-02"},
        "answers once": {"CHIRP-05"},
        "answers after a minute": {"CHIRP-05"},
        "answers requests of other groups": {"CHIRP-06"},
    }

    def __init__(self, fault=None):
        assert fault is None or fault in self.FAULTS
        self._fault = fault
        self._stops = threading.Event()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("0.0.0.0", 0))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        loopback = socket.inet_aton("127.0.0.1")
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(ADDRESS) + loopback)
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, loopback)
        self._port = self._socket.getsockname()[1]
        self.subject = Subject(f"udp://{ADDRESS}:{self._port}/{GROUP}")
        self._answers = []
        self._count = 0

    def has(self, fault):
        assert fault in self.FAULTS, fault
        return self._fault == fault

    def __enter__(self):
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stops.set()
        self._thread.join(20)
        self._socket.close()

    def _run(self):
        while not self._stops.is_set():
            if select.select([self._socket], [], [], 0.02)[0]:
                self._take(self._socket.recv(1 << 16))
            while self._answers and self._answers[0] <= time.monotonic():
                self._answers.pop(0)
                self._offer()

    def _take(self, data):
        if len(data) != 42 or data[6] != REQUEST or data[39] != DATA:
            return
        if data[7:23] not in (md5(GROUP), md5(GROUP.lower())) and not self.has("answers requests of other groups"):
            return
        self._count += 1
        if self._count > 2 and self.has("answers once"):
            return
        late = self._count > 2 and self.has("answers after a minute")
        self._answers.append(time.monotonic() + (60 if late else 0))

    def _offer(self):
        self._send(b"CHIRP\x01", OFFER, DATA)
        if self.has("sends a byte more"):
            self._send(b"CHIRP\x01", OFFER, DATA, b"\0")
        if self.has("sends another version"):
            self._send(b"CHIRP\x02", OFFER, DATA)
        if self.has("offers service 9"):
            self._send(b"CHIRP\x01", OFFER, 9)
        if self.has("sends type 7"):
            self._send(b"CHIRP\x01", 7, DATA)

    def _send(self, start, kind, service, more=b""):
        datagram = struct.pack("!6sB16s16sBH", start, kind, md5(GROUP.lower()), md5("D.one"), service, 9) + more
        self._socket.sendto(datagram, (ADDRESS, self._port))
