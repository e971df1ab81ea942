"""A middleware of mc0 with one fault."""

import time
from typing import ClassVar

from peers.faulty import Router


class Refused(Exception):  # noqa: N818 - it is no error of the test
    """What a client is answered with ERROR for."""


class Middleware(Router):
    """A middleware that forgets clients after their TTL, and sends them signs of life."""

    FAULTS: ClassVar = {
        "cuts blanks off an ID": {"MC0-17"},
        "confirms without the ID": {"MC0-17"},
        "gives errors no text": {"MC0-16"},
        "passes bodies on as text": {"MC0-05"},
        "always leads with an empty frame": {"MC0-07"},
        "needs an empty frame": {"MC0-09"},
        "refuses keys that it does not know": {"MC0-10"},
        "sorts headers": {"MC0-11"},
        "passes the ID on": {"MC0-11"},
        "puts the topic last": {"MC0-10", "MC0-31"},
        "confirms a SUB twice": {"MC0-12", "MC0-30"},
        "answers an ID once": {"MC0-13"},
        "confirms what has no ID": {"MC0-08", "MC0-14"},
        "says nothing of errors without an ID": {"MC0-15", "MC0-34"},
        "answers PING": {"MC0-18"},
        "takes VERSION first": {"MC0-19"},
        "takes version 0.3 alone": {"MC0-20"},
        "takes any TTL": {"MC0-24"},
        "keeps subscriptions after DISCONNECT": {"MC0-27"},
        "delivers once a subscription": {"MC0-28"},
        "takes one topic of an UNSUB": {"MC0-29"},
        "leaves the sender out": {"MC0-30"},
        "joins the frames of a body": {"MC0-32"},
        "matches topics by their beginning": {"MC0-33"},
        "takes verbs in lower case": {"MC0-34"},
        "ends at a key without a value": {"MC0-34"},
        "forgets silent clients without a TTL": {"MC0-23"},
    }

    def __init__(self, fault=None, **more):
        super().__init__(fault, **more)
        self._leads = {}
        self._subscriptions = {}
        self._ttl = {}
        self._heard = {}
        self._sent = {}
        self._ids = set()
        # Who has sent CONNECT without a TTL.
        self._without = set()

    def tick(self):
        now = time.monotonic()
        for peer, ttl in [*self._ttl.items()]:
            if now - self._heard[peer] > 1.05 * ttl:
                self._forget(peer)
            elif now - self._sent.get(peer, 0) > 0.9 * ttl:
                self._say(peer, b"NOOP")
        if self.has("forgets silent clients without a TTL"):
            for peer in [peer for peer in self._without if now - self._heard[peer] > 0.9]:
                self._forget(peer)

    def _forget(self, peer):
        self._subscriptions.pop(peer, None)
        self._ttl.pop(peer, None)

    def _say(self, peer, *frames):
        self._sent[peer] = time.monotonic()
        leads = self._leads[peer] or self.has("always leads with an empty frame")
        self.send(peer, *([b""] if leads else []), *frames)

    def take(self, _socket, peer, *frames):
        self._heard[peer] = time.monotonic()
        self._leads[peer] = frames[:1] == (b"",)
        verb, *rest = (frames[1:] if self._leads[peer] else frames) or [b""]
        headers = []
        while len(rest) > 1 and rest[0]:
            headers.append((rest[0], rest[1]))
            rest = rest[2:]
        name = dict(headers).get(b"ID")
        try:
            self._check(verb, headers, rest)
            self._act(peer, verb, headers, rest[1:])
        except Refused:
            if verb not in (b"OK", b"ERROR"):
                self._refuse(peer, name)
        else:
            self._confirm(peer, verb, name)

    def _check(self, verb, headers, rest):
        """Refuses what is no message."""
        known = (b"ID", b"TOPIC", b"TTL", b"VERSION")
        if rest[:1] != [b""] and rest and self.has("ends at a key without a value"):
            self._stops.set()
        is_strange = any(key not in known and not key.startswith(b"X-") for key, _ in headers)
        if (
            not verb
            or (rest and rest[0])
            or (self.has("needs an empty frame") and not rest and verb == b"PUT")
            or (self.has("refuses keys that it does not know") and is_strange)
        ):
            raise Refused

    def _refuse(self, peer, name):
        if name is None and self.has("says nothing of errors without an ID"):
            return
        text = b"" if self.has("gives errors no text") else b"no"
        self._say(peer, b"ERROR", b"MESSAGE", text, *([] if name is None else [b"ID", name]))

    def _confirm(self, peer, verb, name):
        if name is None:
            if self.has("confirms what has no ID") and verb in (b"SUB", b"UNSUB", b"CONNECT"):
                self._say(peer, b"OK")
            return
        if self.has("answers an ID once") and (peer, name) in self._ids and verb == b"NOOP":
            return
        self._ids.add((peer, name))
        if self.has("cuts blanks off an ID"):
            name = name.strip()
        with_it = [] if self.has("confirms without the ID") else [b"ID", name]
        for _ in range(2 if verb == b"SUB" and self.has("confirms a SUB twice") else 1):
            self._say(peer, b"OK", *with_it)

    def _act(self, peer, verb, headers, body):
        named = dict(headers)
        if self.has("takes verbs in lower case"):
            verb = verb.upper()
        if verb == b"NOOP" or (verb == b"PING" and self.has("answers PING")):
            return
        if verb == b"CONNECT":
            self._connect(peer, headers, named)
        elif verb == b"DISCONNECT":
            if not self.has("keeps subscriptions after DISCONNECT"):
                self._forget(peer)
        elif verb == b"SUB":
            mine = self._subscriptions.setdefault(peer, [])
            more = self.has("delivers once a subscription")
            mine += [topic for topic in dict.fromkeys(body) if more or topic not in mine]
        elif verb == b"UNSUB":
            mine = self._subscriptions.get(peer, [])
            gone = body[:1] if self.has("takes one topic of an UNSUB") else body
            self._subscriptions[peer] = [topic for topic in mine if topic not in gone]
        elif verb == b"PUT":
            if b"TOPIC" not in named:
                raise Refused
            self._put(peer, headers, named[b"TOPIC"], body)
        else:
            raise Refused

    def _connect(self, peer, headers, named):
        version, ttl = named.get(b"VERSION", b"0.3"), named.get(b"TTL", b"0")
        if not version.startswith(b"0.") or (self.has("takes version 0.3 alone") and version != b"0.3"):
            raise Refused
        order = [key for key, _ in headers if key in (b"VERSION", b"TTL")]
        if self.has("takes VERSION first") and order[:1] == [b"TTL"]:
            raise Refused
        if not ttl.isdigit() or int(ttl) > 86_400_000:
            if not self.has("takes any TTL"):
                raise Refused
            ttl = b"0"
        if int(ttl):
            self._ttl[peer] = int(ttl) / 1000
        else:
            self._ttl.pop(peer, None)
            self._without.add(peer)

    def _put(self, sender, headers, topic, body):
        rest = [
            pair
            for pair in headers
            if pair[0] not in ((b"TOPIC",) if self.has("passes the ID on") else (b"TOPIC", b"ID"))
        ]
        if self.has("sorts headers"):
            rest.sort()
        pairs = [*rest, (b"TOPIC", topic)] if self.has("puts the topic last") else [(b"TOPIC", topic), *rest]
        if self.has("passes bodies on as text"):
            body = [frame.decode(errors="replace").encode() for frame in body]
        if body and self.has("joins the frames of a body"):
            body = [b"".join(body)]
        for peer, topics in self._subscriptions.items():
            if peer == sender and self.has("leaves the sender out") and len(self._subscriptions) > 2:
                continue
            begins = self.has("matches topics by their beginning")
            for each in topics:
                if each == topic or (begins and topic.startswith(each) and each):
                    self._say(peer, b"MESSAGE", *(frame for pair in pairs for frame in pair), b"", *body)
