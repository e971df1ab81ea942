"""A server of MTL with one fault."""

import json
import secrets
import struct
import time
from typing import ClassVar

from peers.faulty import Router

LEASE, RESPONSE, SUMMON, DISMISS, CONTENT, CONFIRM, REJECT, PING, PONG = range(1, 10)
RESOURCE = "resource"
LIVENESS_S = 3.0


class Server(Router):
    """A server that lets in everyone, with the test profile, and data on the socket of commands."""

    FAULTS: ClassVar = {
        "gives a status of four digits": {"MTL-08"},
        "replies twice to the second Open": {"MTL-01"},
        "wants an envelope of one frame": {"MTL-05"},
        "knows commands in one case": {"MTL-09"},
        "refuses unknown members": {"MTL-10"},
        "needs no Open": {"MTL-11"},
        "takes any version": {"MTL-12"},
        "gives no profiles": {"MTL-13"},
        "takes any profile": {"MTL-20"},
        "knows profiles in one case": {"MTL-21"},
        "does what it does not know": {"MTL-22"},
        "leases resources of nobody's": {"MTL-23"},
        "leases without a profile": {"MTL-24"},
        "takes any confirmation": {"MTL-25"},
        "takes a lease of the test profile that confirms": {"MTL-27"},
        "takes leases again": {"MTL-26"},
        "answers what is malformed": {"MTL-28"},
        "says nothing to what is wrong": {"MTL-29"},
        "takes one frame": {"MTL-32"},
        "takes bytes behind a header": {"MTL-33"},
        "takes commands without a lease": {"MTL-34"},
        "cuts sequences to four bytes": {"MTL-35"},
        "lets a writer summon": {"MTL-37"},
        "summons twice": {"MTL-38"},
        "answers a Summon twice": {"MTL-39"},
        "dismisses what is not leased": {"MTL-41"},
        "dismisses what was not summoned": {"MTL-42"},
        "sends after a Dismiss": {"MTL-44", "MTL-48"},
        "takes sequences that do not rise": {"MTL-45"},
        "sends the sequence of the writer": {"MTL-47"},
        "drops the properties": {"MTL-60"},
        "confirms everything": {"MTL-45", "MTL-50", "MTL-62"},
        "answers a Confirm": {"MTL-52"},
        "delivers to one reader": {"MTL-62"},
        "answers a Ping with a Ping": {"MTL-56"},
        "offers PLAIN in the clear": {"MTL-14"},
        "offers no mechanisms": {"MTL-14"},
    }

    def __init__(self, fault=None, **more):
        super().__init__(fault, **more)
        self._sessions = {}
        self._leases = {}
        self._flows = {}
        self._heard = {}
        self._known = set()

    def tick(self):
        now = time.monotonic()
        for peer in [peer for peer in self._flows if now - self._heard[peer] > LIVENESS_S]:
            del self._flows[peer]
        for peer, flow in self._flows.items():
            if now - max(flow["sent"], self._heard[peer]) > LIVENESS_S / 6:
                self._data(peer, bytes([PING]), b"")

    def take(self, _socket, peer, *frames):
        self._heard[peer] = time.monotonic()
        at = frames.index(b"") if b"" in frames else None
        # An envelope is followed by two frames.
        if frames[0][:1] and (frames[0][0] < 0x20 and not (at and len(frames) > 3)):
            self._take_data(peer, frames)
            return
        if at is None or (at and self.has("wants an envelope of one frame")):
            return
        self._reply_to = [*frames[: at + 1]]
        self._command(peer, frames[at + 1 :])

    # Control.

    def _command(self, peer, frames):
        try:
            name, body = frames
            body = json.loads(body)
            assert isinstance(body, dict)
        except (ValueError, AssertionError):
            if self.has("answers what is malformed"):
                self._reply(peer, 400, "Malformed")
            return
        name = name.decode() if self.has("knows commands in one case") else name.decode().lower()
        session = self._sessions.setdefault(peer, {"profile": None, "opens": 0})
        done = {
            "connection.open": self._open,
            "connection.profile": self._profile,
            "connection.reader": self._lease,
            "connection.writer": self._lease,
        }.get(
            name.lower()
            if name in ("Connection.Open", "Connection.Profile", "Connection.Reader", "Connection.Writer")
            else name
        )
        if not session["opens"] and done != self._open and not self.has("needs no Open"):
            self._reply(peer, 400, "Open first")
        elif done is None:
            self._reply(peer, *((200, "OK") if self.has("does what it does not know") else (501, "Not implemented")))
        else:
            done(peer, session, name.lower(), body)

    def _reply(self, peer, status, words, **more):
        if status == 400 and self.has("says nothing to what is wrong") and words == "Bad member":
            return
        digits = b"%04d" % status if self.has("gives a status of four digits") else b"%d" % status
        self.send(peer, *self._reply_to, digits, json.dumps({"status": words, **more}).encode())

    def _open(self, peer, session, _name, body):
        protocol = body.get("protocol")
        if not isinstance(protocol, dict) or "version" not in protocol or "virtual-host" not in body:
            self._reply(peer, 400, "Bad member")
        elif protocol.get("name") != "MTL" or (protocol["version"] != 1 and not self.has("takes any version")):
            self._reply(peer, 400, "Bad protocol")
        elif body["virtual-host"] != "/":
            self._reply(peer, 404, "No such host")
        elif self.has("refuses unknown members") and "more" in body:
            self._reply(peer, 400, "Unknown member")
        else:
            session.update(profile=None, opens=session["opens"] + 1)
            if self.has("offers PLAIN in the clear") or self.has("offers no mechanisms"):
                self._reply(
                    peer, 401, "Unauthorized", mechanisms=["PLAIN"] if self.has("offers PLAIN in the clear") else []
                )
                return
            more = {} if self.has("gives no profiles") else {"profiles": ["test"]}
            for _ in range(2 if session["opens"] == 2 and self.has("replies twice to the second Open") else 1):
                self._reply(peer, 201, "Ready", **more)

    def _profile(self, peer, session, _name, body):
        profile = body.get("profile")
        if not isinstance(profile, str):
            self._reply(peer, 400, "Bad member")
            return
        same = profile if self.has("knows profiles in one case") else profile.lower()
        if same == "test" or self.has("takes any profile"):
            session["profile"] = "test"
            self._reply(peer, 200, "OK")
        else:
            self._reply(peer, 400, "No such profile")

    def _lease(self, peer, session, name, body):
        resources, confirm = body.get("resources", []), body.get("confirm", "none")
        if session["profile"] is None and not self.has("leases without a profile"):
            self._reply(peer, 400, "Select a profile first")
        elif not isinstance(resources, list):
            self._reply(peer, 400, "Bad resources")
        elif confirm == "full" and not self.has("takes a lease of the test profile that confirms"):
            self._reply(peer, 501, "Not implemented")
        elif confirm not in ("none", "full") and not self.has("takes any confirmation"):
            self._reply(peer, 400, "Bad confirmation")
        elif {*resources} - {RESOURCE} and not self.has("leases resources of nobody's"):
            self._reply(peer, 404, "No such resource")
        else:
            lease = secrets.token_hex(16)
            self._leases[lease] = {
                "reads": name.endswith("reader"),
                "summoned": False,
                "taken": 0,
                "given": 0,
                "sent": 0.0,
            }
            self._reply(peer, 202, "Data Lease", port=int(self.endpoint.rpartition(":")[2]), lease=lease)

    # Data.

    def _data(self, peer, *frames):
        if peer in self._flows:
            self._flows[peer]["sent"] = time.monotonic()
        self.send(peer, *frames)

    def _respond(self, peer, sequence, status):
        if self.has("cuts sequences to four bytes"):
            sequence &= 0xFFFFFFFF
        self._data(peer, struct.pack(">BQ", RESPONSE, sequence), b"%d" % status)

    def _take_data(self, peer, frames):
        header, *body = frames
        kind = header[0]
        if len(body) != 1 and not (self.has("takes one frame") and not body and kind == SUMMON):
            return
        if kind in (PING, PONG):
            if kind == PING and len(header) == 1:
                self._data(peer, bytes([PING if self.has("answers a Ping with a Ping") else PONG]), b"")
            return
        if kind > PONG or len(header) < 9:
            return
        (sequence,) = struct.unpack_from(">Q", header, 1)
        flow = self._flows.get(peer)
        if kind in (CONFIRM, REJECT):
            if self.has("answers a Confirm") and kind == CONFIRM:
                self._respond(peer, sequence, 400)
            return
        if len(header) < 10 or len(header) < 10 + header[9]:
            return
        name, rest = header[10 : 10 + header[9]], header[10 + header[9] :]
        if any(byte < 0x20 or byte == 0x7F for byte in name):
            return
        if kind == CONTENT:
            self._content(peer, flow, sequence, rest, body[0])
            return
        if rest and not self.has("takes bytes behind a header"):
            return
        if kind == LEASE:
            self._redeem(peer, sequence, name.decode())
        elif flow is None and not (self.has("takes commands without a lease") and peer not in self._known):
            self._respond(peer, sequence, 403)
        elif kind == SUMMON:
            self._summon(peer, flow or {"reads": True, "summoned": False}, sequence, name.decode())
        elif kind == DISMISS:
            self._dismiss(peer, flow, sequence, name.decode())

    def _redeem(self, peer, sequence, lease):
        flow = self._leases.get(lease) if self.has("takes leases again") else self._leases.pop(lease, None)
        if flow is not None:
            self._flows[peer] = flow
            self._known.add(peer)
        self._respond(peer, sequence, 403 if flow is None else 200)

    def _summon(self, peer, flow, sequence, name):
        good = name == RESOURCE and (flow["reads"] or self.has("lets a writer summon"))
        good = good and (not flow["summoned"] or self.has("summons twice"))
        for _ in range(2 if good and self.has("answers a Summon twice") and sequence > 1000 else 1):
            self._respond(peer, sequence, 200 if good else 400)
        flow["summoned"] = flow["summoned"] or good

    def _dismiss(self, peer, flow, sequence, name):
        good = name == RESOURCE and (flow["summoned"] or self.has("dismisses what was not summoned"))
        good = good or (name != RESOURCE and self.has("dismisses what is not leased"))
        self._respond(peer, sequence, 200 if good else 400)
        if good:
            flow["summoned"] = False
            flow["leaks"] = self.has("sends after a Dismiss")

    def _content(self, peer, flow, sequence, table, body):
        if flow is None:
            return
        if sequence <= flow["taken"] and not self.has("takes sequences that do not rise"):
            self._respond(peer, sequence, 400)
            return
        flow["taken"] = sequence
        if self.has("confirms everything"):
            self._data(peer, struct.pack(">BQ?", CONFIRM, sequence, False), b"")  # noqa: FBT003
        if self.has("drops the properties"):
            table = b"\0\0\0\0"
        for reader, other in reversed(self._flows.items()):
            if other["summoned"] or other.get("leaks"):
                other["given"] += 1
                given = sequence if self.has("sends the sequence of the writer") else other["given"]
                header = struct.pack(">BQ", CONTENT, given) + bytes([len(RESOURCE)]) + RESOURCE.encode() + table
                self._data(reader, header, body)
                if self.has("delivers to one reader"):
                    break
