"""A target of CDT with one fault, and its NATS server."""

import base64
import hashlib
import json
import time
from typing import ClassVar

from peers.faulty.nats import Server
from trunkline.conform.checks import Subject

NAME = "cdp"
REQUIRED = ("correlationId", "endpointMessageId", "appVersionName", "endpointId")


class Target:
    """A target that keeps configurations in memory, and takes ConfigPush."""

    FAULTS: ClassVar = {
        "answers to inboxes of its own": {"CDT-03"},
        "answers with a correlation id of its own": {"CDT-21", "CDT-32"},
        "answers with seconds": {"CDT-22"},
        "answers without a timeout": {"CDT-22"},
        "forgets the message id": {"CDT-23"},
        "answers with a time in words": {"CDT-22", "CDT-46"},
        "answers with a status in words": {"CDT-26"},
        "answers with a number for a reason": {"CDT-27"},
        "says 200 to what is unknown": {"CDT-30"},
        "says nothing to what is no JSON": {"CDT-31"},
        "takes any correlation id": {"CDT-12"},
        "takes any time": {"CDT-13"},
        "takes any timeout": {"CDT-14"},
        "needs no message id": {"CDT-15"},
        "takes an empty application": {"CDT-16"},
        "takes an empty endpoint": {"CDT-17"},
        "refuses unknown members": {"CDT-48"},
        "serves what has expired": {"CDT-32"},
        "takes 0 for expired": {"CDT-33"},
        "gives the first configuration": {"CDT-18"},
        "ignores the id of a configuration": {"CDT-19"},
        "gives every configuration one type": {"CDT-24"},
        "forgets the id of a configuration": {"CDT-25"},
        "passes content on as text": {"CDT-28"},
        "announces twice": {"CDT-38"},
        "announces at the subject of its replica": {"CDT-38"},
        "announces in lower case": {"CDT-07"},
        "announces without the application": {"CDT-41"},
        "announces without a time": {"CDT-42"},
        "announces other content": {"CDT-45"},
        "ignores requests to its replica": {"CDT-06"},
        "ends at a request without a reply subject": {"CDT-37"},
    }

    def __init__(self, fault=None):
        assert fault is None or fault in self.FAULTS
        self._fault = fault
        self._contents = {}
        self._has_ended = False
        self._server = Server(self._take)
        self.subject = Subject(self._server.url, target=NAME)

    def has(self, fault):
        assert fault in self.FAULTS, fault
        return self._fault == fault

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.close()

    def _take(self, subject, reply, body):
        start, end = f"kaa.v1.service.{NAME}.cmx2cdp.", "kaa.v1.replica.r-1.cmx2cdp.ConfigRequest"
        if subject == end and not self.has("ignores requests to its replica"):
            self._answer(reply, self._request(body))
        elif subject == f"{start}ConfigRequest":
            if not reply and self.has("ends at a request without a reply subject"):
                self._has_ended = True
            if reply and not self._has_ended:
                self._answer(reply, self._request(body))
        elif subject == f"{start}ConfigPush":
            self._answer(reply, self._push(json.loads(body)))
        else:
            return False
        return True

    def _answer(self, reply, fields):
        if fields is not None:
            if reply.startswith("_INBOX.") and self.has("answers to inboxes of its own"):
                reply += ".own"
            self._server.publish(reply, json.dumps(fields).encode())

    def _request(self, body):
        try:
            fields = json.loads(body)
            assert isinstance(fields, dict)
        except (ValueError, AssertionError):
            return None if self.has("says nothing to what is no JSON") else self._fields({}, 400)
        timeout = fields.get("timeout", -1)
        limits = {
            "correlationId": self.has("takes any correlation id"),
            "endpointMessageId": self.has("needs no message id"),
            "appVersionName": self.has("takes an empty application") and fields.get("appVersionName") == "",
            "endpointId": self.has("takes an empty endpoint") and fields.get("endpointId") == "",
        }
        good = all(limits[name] or (isinstance(fields.get(name), str) and fields[name]) for name in REQUIRED)
        stamp = fields.get("timestamp")
        good = good and (self.has("takes any time") or (isinstance(stamp, int) and stamp >= 0))
        good = good and (timeout is None or isinstance(timeout, int) or self.has("takes any timeout"))
        if not good or ("more" in fields and self.has("refuses unknown members")):
            return self._fields(fields, 400)
        least = -1 if self.has("takes 0 for expired") else 0
        expires = isinstance(timeout, int) and timeout > least and isinstance(stamp, int)
        if expires and stamp + timeout < time.time() * 1000 and not self.has("serves what has expired"):
            return None
        return self._found(fields)

    def _found(self, fields):
        versions = self._contents.get((fields["appVersionName"], fields["endpointId"]), {})
        wanted = fields.get("configId")
        latest = [*versions][0 if self.has("gives the first configuration") else -1] if versions else None
        chosen = wanted if wanted and not (versions and self.has("ignores the id of a configuration")) else latest
        if chosen not in versions:
            return self._fields(fields, 200 if self.has("says 200 to what is unknown") else 404)
        content, kind = versions[chosen]
        if self.has("passes content on as text"):
            content = content.decode(errors="replace").encode()
        if self.has("gives every configuration one type"):
            kind = "json"
        more = {"configId": "" if self.has("forgets the id of a configuration") else chosen, "contentType": kind}
        return self._fields(fields, 200) | more | {"content": {"bytes": base64.b64encode(content).decode()}}

    def _fields(self, request, status):
        now = time.time_ns() // 1_000_000
        fields = {name: str(request.get(name) or "") for name in REQUIRED}
        fields |= {"timestamp": now, "timeout": request.get("timeout", -1), "contentType": "", "statusCode": status}
        fields |= {"configId": request.get("configId") or "", "reasonPhrase": "so", "content": None}
        if self.has("answers with a correlation id of its own"):
            fields["correlationId"] = "own"
        if self.has("answers with seconds"):
            fields["timestamp"] = now // 1000
        if self.has("answers without a timeout"):
            del fields["timeout"]
        if self.has("forgets the message id"):
            fields["endpointMessageId"] = ""
        if self.has("answers with a time in words"):
            fields["timestamp"] = "now"
        if self.has("answers with a status in words"):
            fields["statusCode"] = "OK"
        if self.has("answers with a number for a reason"):
            fields["reasonPhrase"] = status
        return fields

    def _push(self, fields):
        content = base64.b64decode(fields["content"]["bytes"])
        config_id = hashlib.sha256(fields["contentType"].encode() + b"\0" + content).hexdigest()[:32]
        versions = self._contents.setdefault((fields["appVersionName"], fields["endpointId"]), {})
        versions.pop(config_id, None)
        versions[config_id] = (content, fields["contentType"])
        self._announce(fields, config_id)
        pushed = self._fields(fields, 201)
        # Only what a pull is answered with is at fault.
        return pushed | {"configId": config_id, "statusCode": 201}

    def _announce(self, fields, config_id):
        names = {"appVersionName": fields["appVersionName"], "endpointId": fields["endpointId"], "configId": config_id}
        event = {
            "correlationId": "e-1",
            "timestamp": time.time_ns() // 1_000_000,
            "originatorReplicaId": "r-1",
            **names,
        }
        if self.has("announces without the application"):
            del event["appVersionName"]
        if self.has("announces without a time"):
            del event["timestamp"]
        if self.has("announces other content"):
            event["content"] = {"bytes": "AAAA"}
        who = "r-1" if self.has("announces at the subject of its replica") else NAME
        kind = "confignewavailable" if self.has("announces in lower case") else "ConfigNewAvailable"
        for _ in range(2 if self.has("announces twice") else 1):
            self._server.publish(f"kaa.v1.events.{who}.endpoint.config.{kind}", json.dumps(event).encode())
