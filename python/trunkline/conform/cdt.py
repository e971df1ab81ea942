"""CDT: a target behind a NATS server, tested by a raw source; its encoding is JSON."""

from __future__ import annotations

import base64
import json
import random
import secrets
import time
from typing import Any

from trunkline._text import readable_bytes
from trunkline.conform.checks import Failed, Limits, Skipped, Subject, Suite, Transcript
from trunkline.conform.nats import Heard, Nats, need_url
from trunkline.conform.reading import json_object
from trunkline.errors import TrunklineError

__all__ = ["SUITE"]

_NO_RESPONDERS = "503"
_NONSENSE = 100

# The configurations of checks: always the same ones, so that a store does not grow.
_APP = "trunkline.conform"
_CONTENTS = (b'{"version": 1}', b'{"version": 2}', b'{"version": 3}')

Fields = dict[str, Any]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _request(**other: Any) -> Fields:
    """The members of a request, with others in their place; those that are ... are left out."""
    fields = {
        "correlationId": secrets.token_hex(8),
        "timestamp": _now_ms(),
        "timeout": 30_000,
        "endpointMessageId": secrets.token_hex(8),
        "appVersionName": _APP,
        "endpointId": "nobody's",
        **other,
    }
    return {name: value for name, value in fields.items() if value is not ...}


class _Bench:
    """Sources of a target."""

    def __init__(self, subject: Subject, limits: Limits) -> None:
        self.limits = limits
        self.transcript = Transcript()
        self._subject = subject
        self._peers: list[Nats] = []
        self._replica = f"conform-{secrets.token_hex(4)}"

    def subject(self, kind: str, *, replica: str | None = None) -> str:
        """The subject of requests to the target, or to one of its replicas."""
        where = f"service.{self._subject.target}" if replica is None else f"replica.{replica}"
        return f"kaa.v1.{where}.cmx2cdp.{kind}"

    @property
    def events(self) -> str:
        """The subject of all events of the target."""
        return f"kaa.v1.events.{self._subject.target}.endpoint.config.*"

    def reply(self, kind: str = "ConfigResponse") -> str:
        """A subject for answers, of our own."""
        return f"kaa.v1.replica.{self._replica}-{secrets.token_hex(4)}.cmx2cdp.{kind}"

    def source(self) -> _Source:
        """A source."""
        nats = Nats("source", self._subject, self.limits, self.transcript)
        self._peers.append(nats)
        return _Source(self, nats)

    def speaks(self) -> None:
        """Makes sure that a target answers."""
        source = self.source()
        reply = source.listen()
        source.send(json.dumps(_request()).encode(), reply)
        heard = source.next(reply)
        where, name = self._subject.endpoint.rpartition("@")[2].removeprefix("nats://"), self._subject.target
        if heard is None:
            message = f"no target {name} at {where} answers a request"
            raise TrunklineError(message)
        if heard.status == _NO_RESPONDERS:
            message = f"there is no target {name} at {where}: nobody listens to {self.subject('ConfigRequest')}"
            raise TrunklineError(message)

    def clear(self) -> None:
        """Closes the peers of a check."""
        for peer in self._peers:
            peer.close()
        self._peers.clear()

    def close(self) -> None:
        """Closes everything."""
        self.clear()


class _Source:
    """A source."""

    def __init__(self, bench: _Bench, nats: Nats) -> None:
        self._bench = bench
        self._nats = nats
        self._numbers: dict[str, str] = {}

    def listen(self, subject: str | None = None) -> str:
        """Subscribes to a subject; one for answers of our own if it is None."""
        chosen = self._bench.reply() if subject is None else subject
        self._numbers[chosen] = self._nats.subscribe(chosen)
        self._nats.flush()
        return chosen

    def send(self, body: bytes, reply: str = "", *, replica: str | None = None, kind: str = "ConfigRequest") -> None:
        """Sends a request."""
        self._nats.publish(self._bench.subject(kind, replica=replica), body, reply)

    def next(self, subject: str, within_s: float | None = None) -> Heard | None:
        """The next message that came to a subject."""
        return self._nats.next(self._numbers[subject], within_s)

    def answer(self, reply: str) -> Fields:
        """The next answer.

        Raises:
            Failed: None comes in time, or it is no JSON object.
        """
        heard = self.next(reply)
        if heard is None:
            message = f"no answer came within {self._bench.limits.patience_s:g} s"
            raise Failed(message)
        fields = json_object(heard.body)
        if fields is None:
            what = heard.status or readable_bytes(heard.body[:100]) or "empty"
            message = f"the answer is {what}, no JSON object"
            raise Failed(message)
        return fields

    def pull(self, **other: Any) -> tuple[Fields, Fields]:
        """Sends a request, and returns it with its answer."""
        reply, request = self.listen(), _request(**other)
        self.send(json.dumps(request).encode(), reply)
        return request, self.answer(reply)

    def status(self, wanted: int, **other: Any) -> Fields:
        """Sends a request, and makes sure of the status of its answer."""
        _, answer = self.pull(**other)
        if answer.get("statusCode") != wanted:
            message = f"the answer has the statusCode {answer.get('statusCode')!r}, not {wanted}"
            raise Failed(message)
        return answer

    def silent(self, *bodies: bytes) -> None:
        """Makes sure that requests are not answered: the good one behind them is the first to be."""
        reply, last = self.listen(), _request()
        for body in bodies:
            self.send(body, reply)
        self.send(json.dumps(last).encode(), reply)
        answer = self.answer(reply)
        if answer.get("correlationId") != last["correlationId"]:
            message = f"the request {answer.get('correlationId')!r} was answered with {answer.get('statusCode')!r}"
            raise Failed(message)

    def push(self, endpoint: str, content: bytes, content_type: str = "application/json") -> str:
        """Stores a configuration by an extension, and returns its id.

        Raises:
            Skipped: The target has no such extension, or refuses it.
        """
        reply = self.listen(self._bench.reply("ConfigPushResponse"))
        fields = {"contentType": content_type, "content": {"bytes": base64.b64encode(content).decode()}}
        self.send(json.dumps(_request(endpointId=endpoint, **fields)).encode(), reply, kind="ConfigPush")
        heard = self.next(reply)
        answer = None if heard is None or heard.status == _NO_RESPONDERS else json_object(heard.body)
        if answer is None or answer.get("statusCode") not in (200, 201):
            message = "the target takes no configuration from us: ConfigPush is an extension"
            raise Skipped(message)
        return str(answer.get("configId"))


SUITE = Suite(
    "a target of CDT",
    _Bench,
    {
        "CDT-02": "sources do this",
        "CDT-04": "no answer of CDT has another type",
        "CDT-05": "it takes a second replica, which would take requests of others",
        "CDT-08": "what a target does with events cannot be seen",
        "CDT-09": "listeners do this",
        "CDT-10": "it takes a second replica",
        "CDT-11": "it is for those who choose the names",
        "CDT-29": "sources do this",
        "CDT-34": "sources do this",
        "CDT-35": "the NATS server does this, and sources",
        "CDT-36": "sources do this",
        "CDT-40": "sources do this",
        "CDT-43": "what a target does with events cannot be seen",
        "CDT-44": "what a target does with events cannot be seen",
        "CDT-47": "a log cannot be seen",
        "CDT-49": "listeners do this",
    },
    need_url,
)


@SUITE.check(
    "CDT-01",
    "A request goes to the subject of the target's service",
    "an answer to a request at that subject",
)
def _subject(bench: _Bench) -> None:
    bench.source().pull()


@SUITE.check(
    "CDT-03",
    "A target answers to the reply subject as it was given",
    "answers at reply subjects of other forms",
    needs=("CDT-01",),
)
def _reply_subjects(bench: _Bench) -> None:
    source = bench.source()
    for subject in (f"_INBOX.{secrets.token_hex(8)}.1", f"conform.{secrets.token_hex(8)}.odd.Subject"):
        reply = source.listen(subject)
        source.send(json.dumps(_request()).encode(), reply)
        source.answer(reply)


@SUITE.check("CDT-21", "An answer has the correlation id of its request", "that id", needs=("CDT-01",))
def _correlation(bench: _Bench) -> None:
    source = bench.source()
    for name in ("c-1", "ä \U0001f980", "x" * 300):
        _same(source, {"correlationId": name}, "correlationId")


def _same(source: _Source, other: Fields, *names: str) -> None:
    """Makes sure that an answer repeats members of its request."""
    request, answer = source.pull(**other)
    for name in names:
        if answer.get(name) != request[name]:
            message = f"{name} of the answer is {answer.get(name)!r}, not {request[name]!r}"
            raise Failed(message)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@SUITE.check(
    "CDT-22",
    "An answer has its own time, and the timeout of its request",
    "timestamp, a number of milliseconds of now, and the timeout of the request",
    needs=("CDT-01",),
)
def _times(bench: _Bench) -> None:
    source = bench.source()
    for timeout in (30_000, 12_345):
        before = _now_ms()
        _, answer = source.pull(timeout=timeout)
        # The clocks of two machines may differ, but not by a day: that would be another unit.
        if not _is_number(answer.get("timestamp")) or abs(answer["timestamp"] - before) > 86_400_000:
            message = f"timestamp of the answer is {answer.get('timestamp')!r}, not about {before}"
            raise Failed(message)
        if answer.get("timeout") != timeout:
            message = f"timeout of the answer is {answer.get('timeout')!r}, not {timeout}"
            raise Failed(message)


@SUITE.check(
    "CDT-23",
    "An answer repeats message id, version of the application and endpoint",
    "endpointMessageId, appVersionName and endpointId of the request",
    needs=("CDT-01",),
)
def _repeats(bench: _Bench) -> None:
    _same(bench.source(), {}, "endpointMessageId", "appVersionName", "endpointId")


@SUITE.check(
    "CDT-46",
    "Requests and answers have a time and a correlation id",
    "timestamp, a number, and correlationId, a string",
    needs=("CDT-01",),
)
def _traced(bench: _Bench) -> None:
    _, answer = bench.source().pull()
    if not _is_number(answer.get("timestamp")) or not isinstance(answer.get("correlationId"), str):
        message = f"the answer has {answer.get('timestamp')!r} and {answer.get('correlationId')!r}"
        raise Failed(message)


@SUITE.check("CDT-26", "An answer has an HTTP status", "statusCode, a number from 100 to 599", needs=("CDT-01",))
def _status(bench: _Bench) -> None:
    _, answer = bench.source().pull()
    code = answer.get("statusCode")
    if not isinstance(code, int) or isinstance(code, bool) or not 100 <= code <= 599:
        message = f"statusCode of the answer is {code!r}"
        raise Failed(message)


@SUITE.check(
    "CDT-27", "The reason for a status may be omitted", "reasonPhrase, a string, null or nothing", needs=("CDT-01",)
)
def _reason(bench: _Bench) -> None:
    _, answer = bench.source().pull()
    if not isinstance(answer.get("reasonPhrase"), str | None):
        message = f"reasonPhrase of the answer is {answer['reasonPhrase']!r}"
        raise Failed(message)


@SUITE.check(
    "CDT-30",
    "An unknown configuration is answered with 404",
    "404 for an endpoint, an application and a configuration of nobody's",
    needs=("CDT-26",),
)
def _unknown(bench: _Bench) -> None:
    source, name = bench.source(), secrets.token_hex(8)
    for other in ({"endpointId": name}, {"appVersionName": name}, {"configId": name}):
        source.status(404, **other)


@SUITE.check(
    "CDT-31",
    "Other errors have statuses too: 400, 413, 500",
    "400 for what is no JSON, and for JSON that is no object",
    needs=("CDT-26",),
)
def _errors(bench: _Bench) -> None:
    source = bench.source()
    for body in (b"{", b"[]", b"\xff", b""):
        reply = source.listen()
        source.send(body, reply)
        code = source.answer(reply).get("statusCode")
        if code != 400:
            message = f"{body!r} was answered with {code!r}, not 400"
            raise Failed(message)


def _refuses(bench: _Bench, name: str, *values: object) -> None:
    """Makes sure that a request is answered with 400 for each of these values of a member; ... is none."""
    source = bench.source()
    for value in values:
        source.status(400, **{name: value})


@SUITE.check(
    "CDT-12",
    "A request has a correlation id",
    "400 for a request without correlationId, and with one that is no string",
    needs=("CDT-30",),
)
def _needs_correlation(bench: _Bench) -> None:
    _refuses(bench, "correlationId", ..., 5, None)


@SUITE.check(
    "CDT-13",
    "A request has the time at which it was made, in milliseconds since 1970",
    "400 for a request without timestamp, and with one that is no number, or below 0",
    needs=("CDT-30",),
)
def _needs_time(bench: _Bench) -> None:
    _refuses(bench, "timestamp", ..., "now", [], -5)


@SUITE.check(
    "CDT-14",
    "A request has a timeout in milliseconds",
    "400 for a timeout that is no number",
    needs=("CDT-30",),
)
def _needs_timeout(bench: _Bench) -> None:
    _refuses(bench, "timeout", "long", [])


@SUITE.check(
    "CDT-15",
    "A request has the id of the endpoint's message",
    "400 for a request without endpointMessageId, and with one that is no string",
    needs=("CDT-30",),
)
def _needs_message(bench: _Bench) -> None:
    _refuses(bench, "endpointMessageId", ..., 5)


@SUITE.check(
    "CDT-16",
    "A request names the version of the application",
    "400 for a request without appVersionName, with an empty one, and with one that is no string",
    needs=("CDT-30",),
)
def _needs_application(bench: _Bench) -> None:
    _refuses(bench, "appVersionName", ..., "", 5)


@SUITE.check(
    "CDT-17",
    "A request names the endpoint",
    "400 for a request without endpointId, with an empty one, and with one that is no string",
    needs=("CDT-30",),
)
def _needs_endpoint(bench: _Bench) -> None:
    _refuses(bench, "endpointId", ..., "", 5)


@SUITE.check(
    "CDT-20",
    "The example of a request is decoded, and encoded as an equal object",
    "404 for the specification's request, with a time of now",
    needs=("CDT-30",),
)
def _example(bench: _Bench) -> None:
    bench.source().status(
        404,
        correlationId="07d78e95-2c4d-4899-957c-b9e5a3701fbb",
        timeout=30_000,
        endpointMessageId="6b73cd7c-1de5-4c4e-bbad-b7eda079ccbd",
        appVersionName="39774993-a426-4092-9e38-02ec213272d0",
        endpointId="b197e391-1d13-403b-83f5-87bdd44888cf",
        configId="76d34f8b-c038-413f-b122-318dce49edd1",
    )


@SUITE.check("CDT-48", "Unknown fields are ignored", "404 for a request with other members", needs=("CDT-30",))
def _unknown_fields(bench: _Bench) -> None:
    bench.source().status(404, more={"a": [1]}, another=None)


@SUITE.check(
    "CDT-32",
    "An expired message is ignored",
    "no answer to a request whose time is over, and one to the request behind it",
    needs=("CDT-01",),
)
def _expired(bench: _Bench) -> None:
    # An hour ago, as clocks may differ a little.
    old = _request(timestamp=_now_ms() - 3_600_000, timeout=1000, correlationId="expired")
    bench.source().silent(json.dumps(old).encode())


@SUITE.check(
    "CDT-33",
    "A timeout of null, -1 or 0 means no expiry",
    "answers to requests of an hour ago with these",
    needs=("CDT-30",),
)
def _lasting(bench: _Bench) -> None:
    source = bench.source()
    for timeout in (None, -1, 0):
        source.status(404, timestamp=_now_ms() - 3_600_000, timeout=timeout)


@SUITE.check(
    "CDT-37",
    "A request without a reply subject is dropped and counted",
    "an answer to the request after it",
    needs=("CDT-01",),
)
def _without_reply(bench: _Bench) -> None:
    source = bench.source()
    source.send(json.dumps(_request()).encode())
    source.pull()


@SUITE.check(
    "CDT-39",
    "A push of a configuration is confirmed",
    "201 or 200, where a target takes ConfigPush",
    needs=("CDT-01",),
)
def _pushed(bench: _Bench) -> None:
    bench.source().push("pushed", _CONTENTS[0])


@SUITE.check(
    "CDT-19",
    "A request with an id is answered with exactly that configuration",
    "the content of each version, by its id",
    needs=("CDT-26",),
)
def _by_id(bench: _Bench) -> None:
    source = bench.source()
    ids = [source.push("versions", content) for content in _CONTENTS]
    for config_id, content in zip(ids, _CONTENTS, strict=True):
        _holds(source.status(200, endpointId="versions", configId=config_id), content)


def _holds(answer: Fields, content: bytes) -> None:
    came = answer.get("content")
    if came != {"bytes": base64.b64encode(content).decode()}:
        message = f"content of the answer is {came!r:.200}, not that of {content[:60]!r}"
        raise Failed(message)


@SUITE.check(
    "CDT-18",
    "A request without the id of a configuration is answered with the latest one",
    "the content that was pushed last, without configId, with null and with an empty one",
    needs=("CDT-26",),
)
def _latest(bench: _Bench) -> None:
    source = bench.source()
    for content in _CONTENTS:
        source.push("latest", content)
    for config_id in (..., None, ""):
        _holds(source.status(200, endpointId="latest", configId=config_id), _CONTENTS[-1])


@SUITE.check(
    "CDT-24",
    "An answer has the type of the content as it was stored",
    "the contentType of the push, whatever it is, and a string in an error",
    needs=("CDT-30",),
)
def _types(bench: _Bench) -> None:
    source = bench.source()
    if not isinstance(source.status(404).get("contentType"), str):
        message = "contentType of a 404 is no string"
        raise Failed(message)
    for content_type in ("json", "application/json", "Protocol Buffer"):
        config_id = source.push("types", _CONTENTS[0], content_type)
        came = source.status(200, endpointId="types", configId=config_id).get("contentType")
        if came != content_type:
            message = f"contentType of the answer is {came!r}, not {content_type!r}"
            raise Failed(message)


@SUITE.check(
    "CDT-25",
    "An answer has the id of its configuration; an error has that of the request, or none",
    "configId: the id of what was pushed, of the request in a 404, and empty in a 404 without one",
    needs=("CDT-30",),
)
def _ids(bench: _Bench) -> None:
    source, name = bench.source(), secrets.token_hex(8)
    for wanted, answer in (
        (name, source.status(404, configId=name)),
        ("", source.status(404)),
    ):
        if answer.get("configId") != wanted:
            message = f"configId of a 404 is {answer.get('configId')!r}, not {wanted!r}"
            raise Failed(message)
    config_id = source.push("ids", _CONTENTS[0])
    came = source.status(200, endpointId="ids").get("configId")
    if came != config_id:
        message = f"configId of the answer is {came!r}, not {config_id!r}"
        raise Failed(message)


@SUITE.check(
    "CDT-28",
    "Content is any bytes, and may be omitted",
    "content of every byte as it was pushed, and none in a 404",
    needs=("CDT-30",),
)
def _bytes(bench: _Bench) -> None:
    source = bench.source()
    if source.status(404).get("content") is not None:
        message = "a 404 has content"
        raise Failed(message)
    every = bytes(range(256))
    config_id = source.push("bytes", every, "application/octet-stream")
    _holds(source.status(200, endpointId="bytes", configId=config_id), every)


def _event(bench: _Bench, endpoint: str) -> tuple[_Source, str, Heard, Fields]:
    """What a target says to all after a push: the source, its events, and the first of them with its members."""
    source = bench.source()
    events = source.listen(bench.events)
    # What is stored already may not be news.
    source.push(endpoint, _CONTENTS[0])
    config_id = source.push(endpoint, _CONTENTS[1])
    for _ in bench.limits.wait():
        heard = source.next(events)
        if heard is None:
            break
        fields = json_object(heard.body)
        if fields is None:
            message = f"the event is {readable_bytes(heard.body[:100])}, no JSON object"
            raise Failed(message)
        if fields.get("configId") == config_id and fields.get("endpointId") == endpoint:
            return source, events, heard, fields
    message = f"no ConfigNewAvailable of {config_id} came after its push"
    raise Failed(message)


@SUITE.check(
    "CDT-38",
    "A new configuration is announced to all once it is stored",
    "one ConfigNewAvailable after a push, whose configuration can be pulled",
    needs=("CDT-26",),
)
def _announced(bench: _Bench) -> None:
    source, events, _, fields = _event(bench, "announced")
    _holds(source.status(200, endpointId="announced", configId=fields["configId"]), _CONTENTS[1])
    for _ in bench.limits.wait(bench.limits.silence_s):
        heard = source.next(events, bench.limits.silence_s)
        if heard is not None and (json_object(heard.body) or {}).get("configId") == fields["configId"]:
            message = "a second event announces the same configuration"
            raise Failed(message)


@SUITE.check(
    "CDT-07",
    "The subject of an event has its originator and its type",
    "the event at kaa.v1.events, the target, endpoint.config and ConfigNewAvailable",
    needs=("CDT-38",),
)
def _event_subject(bench: _Bench) -> None:
    _, _, heard, _ = _event(bench, "subject")
    wanted = bench.events.replace("*", "ConfigNewAvailable")
    if heard.subject != wanted:
        message = f"the event came at {heard.subject}, not at {wanted}"
        raise Failed(message)


@SUITE.check(
    "CDT-41",
    "Events name the version of the application, the endpoint and the configuration",
    "appVersionName, endpointId and configId of the push",
    needs=("CDT-38",),
)
def _event_names(bench: _Bench) -> None:
    _, _, _, fields = _event(bench, "names")
    if fields.get("appVersionName") != _APP:
        message = f"appVersionName of the event is {fields.get('appVersionName')!r}, not {_APP!r}"
        raise Failed(message)


@SUITE.check(
    "CDT-42",
    "Events have a time and a correlation id",
    "timestamp or eventTimestamp, a number, and correlationId, a string",
    needs=("CDT-38",),
)
def _event_times(bench: _Bench) -> None:
    _, _, _, fields = _event(bench, "times")
    times = [fields.get("timestamp"), fields.get("eventTimestamp")]
    if not any(map(_is_number, times)) or not isinstance(fields.get("correlationId"), str):
        message = f"the event has the times {times} and the correlationId {fields.get('correlationId')!r}"
        raise Failed(message)


@SUITE.check(
    "CDT-45",
    "An announcement may include the content",
    "the content of the push, or none",
    needs=("CDT-38",),
)
def _event_content(bench: _Bench) -> None:
    _, _, _, fields = _event(bench, "content")
    if fields.get("content") is not None:
        _holds(fields, _CONTENTS[1])


@SUITE.check(
    "CDT-06",
    "A replica answers requests to itself",
    "an answer to a request to the replica that the event names",
    needs=("CDT-38",),
)
def _replica(bench: _Bench) -> None:
    source, _, _, fields = _event(bench, "replica")
    replica = fields.get("originatorReplicaId")
    if not isinstance(replica, str) or not replica:
        message = "the event does not name its replica"
        raise Skipped(message)
    reply = source.listen()
    source.send(json.dumps(_request()).encode(), reply, replica=replica)
    source.answer(reply)


@SUITE.check("CDT-50", "No bytes end a role", "an answer after 100 messages of no sense", needs=("CDT-01",))
def _nonsense(bench: _Bench) -> None:
    # The same ones each time.
    chance = random.Random(50)  # noqa: S311 - it keeps no secret
    source = bench.source()
    good = json.dumps(_request()).encode()
    for _ in range(_NONSENSE):
        body = bytearray(good[: chance.randrange(1, len(good))] + chance.randbytes(chance.randrange(0, 40)))
        body[chance.randrange(len(body))] = chance.randrange(256)
        source.send(bytes(body))
    source.pull()
