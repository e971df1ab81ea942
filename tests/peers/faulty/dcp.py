"""A broker of DCP with one fault."""

import collections
import time
from typing import ClassVar

from peers.faulty import Router

HEAD = [b"", b"DGBX\x01"]
REGISTER, PING, PONG, REQUEST, REPLY, RECONNECT = (bytes([kind]) for kind in range(1, 7))
LIVENESS_S = 3.0


class Broker(Router):
    """A broker that queues requests, and forgets workers that are silent."""

    FAULTS: ClassVar = {
        "confirms with the type alone": {"DCP-14"},
        "takes any version": {"DCP-10"},
        "takes types of two bytes": {"DCP-11"},
        "takes registrations of two services": {"DCP-16"},
        "cuts services at NUL": {"DCP-13", "DCP-19"},
        "confirms a second service and keeps the first": {"DCP-15"},
        "takes requests without a delimiter": {"DCP-18"},
        "compares services without case": {"DCP-19"},
        "puts the sender in every client part": {"DCP-20", "DCP-34"},
        "puts something else in the client part": {"DCP-20", "DCP-26"},
        "keeps the first frame of metadata": {"DCP-22"},
        "drops empty data": {"DCP-25"},
        "ends at a reply without a client": {"DCP-27"},
        "drops requests that no worker waits for": {"DCP-29", "DCP-33", "DCP-35"},
        "serves the last request first": {"DCP-29"},
        "sends busy workers more": {"DCP-32"},
        "takes a forward for no answer": {"DCP-33"},
        "takes a worker's own request for an answer": {"DCP-35"},
        "answers one ping of two": {"DCP-38"},
        "answers pings with more frames": {"DCP-39"},
        "ignores strangers": {"DCP-40"},
        "ends at a message of one frame": {"DCP-44"},
    }

    def __init__(self, fault=None, **more):
        super().__init__(fault, **more)
        self._services = {}
        self._busy = {}
        self._heard = {}
        self._queues = collections.defaultdict(collections.deque)
        self._pings = 0

    def tick(self):
        for peer in [peer for peer in self._services if self._heard[peer] < time.monotonic() - LIVENESS_S]:
            del self._services[peer]
            self._busy.pop(peer, None)

    def take(self, _socket, peer, *frames):
        self._heard[peer] = time.monotonic()
        if self.has("ends at a message of one frame") and len(frames) == 1:
            self._stops.set()
        if len(frames) < 3 or frames[0]:
            return
        if frames[1] != HEAD[1] and not (self.has("takes any version") and frames[1][:4] == b"DGBX"):
            return
        kind, rest = frames[2], list(frames[3:])
        if self.has("takes types of two bytes") and len(kind) == 2:
            kind = kind[:1]
        known = {REGISTER: self._register, PING: self._ping, PONG: self._pong, REQUEST: self._request}
        known[REPLY] = self._reply
        if kind in known:
            known[kind](peer, rest)

    def _named(self, service):
        if self.has("cuts services at NUL"):
            return service.partition(b"\0")[0]
        return service.lower() if self.has("compares services without case") else service

    def _register(self, peer, rest):
        if len(rest) != 1 and not (self.has("takes registrations of two services") and rest):
            return
        is_second = peer in self._services and self._services[peer] != self._named(rest[0])
        if not (is_second and self.has("confirms a second service and keeps the first")):
            self._services[peer] = self._named(rest[0])
        self._busy[peer] = False
        self.send(peer, *HEAD, REGISTER, *([] if self.has("confirms with the type alone") else rest[:1]))
        self._serve()

    def _ping(self, peer, rest):
        if rest and not (self.has("answers pings with more frames") and peer in self._services):
            return
        if peer not in self._services:
            self._stranger(peer)
            return
        self._pings += 1
        if not (self.has("answers one ping of two") and self._pings % 2):
            self.send(peer, *HEAD, PONG)

    def _pong(self, peer, rest):
        if not rest and peer not in self._services:
            self._stranger(peer)

    def _stranger(self, peer):
        if not self.has("ignores strangers"):
            self.send(peer, *HEAD, RECONNECT)

    def _request(self, peer, rest):
        if not rest:
            return
        service, rest = self._named(rest[0]), rest[1:]
        is_forward = rest[:1] not in ([], [b""])
        client = rest[0] if is_forward else peer
        if self.has("puts the sender in every client part"):
            client = peer
        if self.has("puts something else in the client part") and not is_forward:
            client = b"-"
        rest = rest[1:] if is_forward else rest
        if rest[:1] != [b""] or b"" not in rest[1:]:
            if not (self.has("takes requests without a delimiter") and rest):
                return
            rest = [b"", b"", *rest]
        at = rest.index(b"", 1)
        metadata, data = rest[1:at], rest[at + 1 :]
        if self.has("keeps the first frame of metadata"):
            metadata = metadata[:1]
        if self.has("drops empty data"):
            data = [frame for frame in data if frame]
        if is_forward and not self.has("takes a forward for no answer"):
            self._busy[peer] = False
        if not is_forward and self.has("takes a worker's own request for an answer"):
            self._busy[peer] = False
        if self.has("drops requests that no worker waits for") and self._free(service) is None:
            return
        self._queues[service].append([client, b"", *metadata, b"", *data])
        self._serve()

    def _reply(self, peer, rest):
        if len(rest) < 2 or rest[1] or b"" not in rest[2:]:
            if self.has("ends at a reply without a client") and len(rest) == 1:
                self._stops.set()
            return
        self._busy[peer] = False
        self.send(rest[0], *HEAD, REPLY, *rest)
        self._serve()

    def _free(self, service):
        more = self.has("sends busy workers more")
        workers = (peer for peer, name in self._services.items() if name == service)
        return next((peer for peer in workers if more or not self._busy.get(peer)), None)

    def _serve(self):
        for service, queue in self._queues.items():
            while queue and (worker := self._free(service)) is not None:
                self._busy[worker] = True
                asked = queue.pop() if self.has("serves the last request first") else queue.popleft()
                self.send(worker, *HEAD, REQUEST, service, *asked)
