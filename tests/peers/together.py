"""Messages that belong together: requests and replies, contents and what settles them, puts and deliveries."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from peers.mtl import confirm, content, lease, reject, response
from peers.recorded import line
from trunkline import capture, cdtp, mtl

STEP_NS = 10**6
START_NS = 1_795_251_120 * 10**9  # a whole minute
H = b"DGBX\x01"
EMPTY = mtl.encode_table({})


def request(service, client, *metadata):
    return [b"", H, b"\x04", service, *([] if client is None else [client]), b"", *metadata, b"", b"x"]


def reply(client, *metadata):
    return [b"", H, b"\x05", client, b"", *metadata, b"", b"y"]


def put(topic, *body):
    return [b"", b"PUT", b"TOPIC", topic, b"ID", b"1", b"", *body]


def message(topic, *body):
    return [b"", b"MESSAGE", b"TOPIC", topic, b"", *body]


def event(kind, config="c", correlation="x"):
    fields = {
        "correlationId": correlation,
        "timestamp": 1,
        "appVersionName": "a",
        "endpointId": "e",
        "configId": config,
    }
    return [json.dumps(fields).encode()], f"kaa.v1.events.cdp.endpoint.config.{kind}"


def dat(sender, sequence, kind="DAT"):
    decoded = cdtp.Message(sender, [b"\x80"], variant="A", type=kind, sequence=sequence, timestamp_ns=1)
    return list(cdtp.encode(decoded))


# Messages of each table, of which any sequence is one.
ALPHABET = {
    "requests": [
        *(
            ("in", b"c", request(b"s", None)),
            ("in", b"c", request(b"t", None)),
            ("in", b"d", request(b"s", None, b"m")),
        ),
        *(
            ("out", b"w", request(b"s", b"c")),
            ("out", b"v", request(b"s", b"c")),
            ("out", b"w", request(b"s", b"d", b"m")),
        ),
        *(
            ("in", b"w", reply(b"c")),
            ("in", b"v", reply(b"c")),
            ("out", b"c", reply(b"c")),
            ("out", b"d", reply(b"d", b"m")),
        ),
        *(("in", b"w", request(b"t", b"c")), ("out", None, request(b"s", None)), ("in", None, reply(b"c"))),
        *(("in", None, request(b"s", b"c")), ("out", None, reply(b"c")), ("out", None, request(b"s", b"c"))),
    ],
    "topics": [
        *(("in", b"p", put(b"t", b"x")), ("in", b"p", put(b"u", b"x")), ("in", b"q", put(b"t", b"xy"))),
        *(("out", b"s", message(b"t", b"x")), ("out", b"r", message(b"t", b"x")), ("out", b"s", message(b"u", b"x"))),
        *(("out", None, put(b"t", b"x")), ("in", None, message(b"t", b"x"))),
    ],
    "contents": [
        *(("in", b"w", lease(1, "one")), ("out", b"w", response(1, 200)), ("out", b"w", response(1, 409))),
        *(("out", b"w", content(n, r, b"x")) for n in (1, 2, 3) for r in ("jobs", "jobs.dead")),
        *(("in", b"w", content(n, "jobs", b"x")) for n in (1, 2, 9)),
        *(("in", b"w", confirm(2)), ("in", b"w", confirm(9, multiple=True)), ("out", b"w", confirm(1, multiple=True))),
        *(("in", b"w", reject(1)), ("in", b"w", reject(2, recycle=True)), ("out", b"w", response(2, 404))),
        *(("out", peer, content(3, "jobs", b"x", mtl.encode_table({"redelivered": True}))) for peer in (b"w", b"r")),
        # Another connection takes what comes back.
        *(("out", b"r", content(n, r, b"x")) for n in (1, 2) for r in ("jobs", "jobs.dead")),
        *(("in", b"r", confirm(9, multiple=True)), ("in", b"r", reject(2)), ("in", b"r", lease(1, "two"))),
    ],
    "rollout": [
        (way, None, event(kind, config))
        for way in ("in", "out")
        for kind in ("ConfigUpdated", "ConfigNewAvailable")
        for config in "cd"
    ],
    "gaps": [("in", None, dat("a", number, kind)) for kind in ("BOR", "DAT", "EOR") for number in (0, 1, 5)],
    "runs": [
        ("in", None, dat(name, number, kind))
        for name in ("a", "b")
        for kind in ("BOR", "DAT", "EOR")
        for number in (0, 1, 5)
    ],
}


def record(directory, protocol, messages, first=0):
    """Adds messages to a capture, a step apart and in segments of ten: each a direction, a peer, and frames or these with a topic."""
    with tempfile.TemporaryDirectory() as scratch:
        lines = Path(scratch, "lines.jsonl")
        for begin in range(0, len(messages), 10):
            with lines.open("w") as file:
                for number, (direction, peer, content) in enumerate(messages[begin : begin + 10], first + begin):
                    frames, topic = content if isinstance(content, tuple) else (content, None)
                    file.write(line(frames, START_NS + number * STEP_NS, direction=direction, peer=peer, topic=topic))
            capture.import_(lines, directory, protocol=protocol)
    return directory
