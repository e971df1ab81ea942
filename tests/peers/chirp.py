"""CHIRP by hand: raw UDP sockets and packed bytes, as released peers have them."""

import hashlib
import socket
import struct
import sys
import time
from typing import NamedTuple

REQUEST, OFFER, DEPART = 1, 2, 3
CONTROL, HEARTBEAT, MONITORING, DATA = 1, 2, 3, 4

MULTICAST = "239.192.7.123"
BROADCAST = "127.255.255.255"
PATIENCE_S = 20


class Heard(NamedTuple):
    kind: int
    group: bytes
    host: bytes
    service: int
    port: int


def md5(name):
    return hashlib.md5(name.encode()).digest()


def pack(kind, host, port=0, *, group="lab", service=DATA):
    return struct.pack("!6sB16s16sBH", b"CHIRP\x01", kind, md5(group), md5(host), service, port)


class Peer:
    """Shares a port with the beacons under test, and hears what they hear; at an address, only what is sent to that."""

    def __init__(self, port=0, address="0.0.0.0"):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        if port:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind((address, port))
        # Only now, where the system chooses the port: of those that are shared it may choose one that another test has.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        loopback = socket.inet_aton("127.0.0.1")
        self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(MULTICAST) + loopback)
        self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, loopback)
        self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 0)
        # The time to live of what comes in, by the numbers of Linux: Python has no name for the option.
        self.socket.setsockopt(socket.IPPROTO_IP, 12, 1)
        self.port = self.socket.getsockname()[1]

    def send(self, datagram, to=MULTICAST):
        self.socket.sendto(datagram, (to, self.port))

    def offer(self, host, port, *, kind=OFFER, **more):
        self.send(pack(kind, host, port, **more))

    def depart(self, host, port, **more):
        self.offer(host, port, kind=DEPART, **more)

    def hears(self, kind, *hosts, port=None):
        """The next datagram of this kind from one of these hosts; all others are passed over."""
        end = time.monotonic() + PATIENCE_S
        while True:
            self.socket.settimeout(max(end - time.monotonic(), 0.001))
            datagram, ancillary, _, self.source = self.socket.recvmsg(1 << 16, 64)
            if len(datagram) != 42 or datagram[:6] != b"CHIRP\x01":
                continue
            heard = Heard(*struct.unpack("!B16s16sBH", datagram[6:]))
            known = not hosts or heard.host in {md5(host) for host in hosts}
            if heard.kind == kind and known and port in (None, heard.port):
                self.datagram = datagram
                ((_, _, ttl),) = ancillary
                self.ttl = int.from_bytes(ttl, sys.byteorder)
                return heard

    def close(self):
        self.socket.close()
