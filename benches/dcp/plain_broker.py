"""A broker for DCP as one writes it with pyzmq: no limits, no liveness, one service queue each. A rival, run as a program."""

from __future__ import annotations

import sys
from collections import defaultdict, deque

import zmq

PROTOCOL = b"DGBX\x01"
REGISTER, PING, PONG, REQUEST, REPLY = (bytes([number]) for number in range(1, 6))


def main(endpoint: str) -> None:
    """Listens and passes on, until it is killed."""
    router = zmq.Context().socket(zmq.ROUTER)
    router.bind(endpoint)
    services: dict[bytes, bytes] = {}
    free: defaultdict[bytes, deque[bytes]] = defaultdict(deque)
    waiting: defaultdict[bytes, deque[list[bytes]]] = defaultdict(deque)
    asked: set[bytes] = set()

    def grant(worker: bytes) -> None:
        service = services[worker]
        if waiting[service]:
            router.send_multipart([worker, *waiting[service].popleft()])
        elif worker not in asked:
            asked.add(worker)
            free[service].append(worker)

    while True:
        peer, _, _, kind, *rest = router.recv_multipart()
        if kind == REQUEST:
            service, *parts = rest
            request = [b"", PROTOCOL, REQUEST, service, *([peer] if parts[0] == b"" else []), *parts]
            if free[service]:
                worker = free[service].popleft()
                asked.discard(worker)
                router.send_multipart([worker, *request])
            else:
                waiting[service].append(request)
        elif kind == REPLY:
            router.send_multipart([rest[0], b"", PROTOCOL, REPLY, *rest])
            grant(peer)
        elif kind == PING:
            router.send_multipart([peer, b"", PROTOCOL, PONG])
            grant(peer)
        elif kind == REGISTER:
            services[peer] = rest[0]
            router.send_multipart([peer, b"", PROTOCOL, REGISTER, rest[0]])
            grant(peer)


if __name__ == "__main__":
    main(sys.argv[1])
