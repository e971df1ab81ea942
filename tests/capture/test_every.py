"""Messages of all protocols in one table."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest

from peers.cdtp import batch, header_s
from peers.together import ALPHABET, START_NS, STEP_NS
from peers.variant import read
from trunkline import capture, mtl
from trunkline._native.analysis import Fold
from trunkline._native.capture import Import
from trunkline._protocols import RECORDED
from trunkline.columns import protocols
from trunkline.errors import DecodeError, LocalProtocolError

OF = {name: Fold(name).protocol for name in Fold.NAMES}
TYPES = {protocol.name: protocol.kind for protocol in RECORDED}
SHARED = ("record", "type", "verb", "error", "received_at")


@pytest.fixture
def recorded(tmp_path):
    """A capture of these messages: `(protocol, direction, peer, frames)`, of CDT with a subject."""

    def make(messages):
        recording = Import(tmp_path / "capture")
        for number, (protocol, direction, peer, content) in enumerate(messages):
            frames, topic = content if isinstance(content, tuple) else (content, None)
            at_ns = START_NS + number * STEP_NS
            recording.append(at_ns, frames, protocol=protocol, direction=direction, peer=peer, topic=topic)
        recording.commit()
        return capture.open(tmp_path / "capture")

    return make


def shown(name, value):
    """A value of a column as a VARIANT holds it."""
    if isinstance(value, dict) and value.keys() == {"value", "metadata"}:
        return read(value)
    if isinstance(value, datetime):
        return round((value - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1e6)
    # That is a map.
    return dict(value) if name == "headers" else value


def expected(opened):
    """The same, made of what each protocol is decoded to alone."""
    rows = []
    for known in protocols():
        variants = {name: "variant" for name, default in known.options.items() if default == "variant"}
        kept = [name for name in known.kept if name != "topic"]
        for row in opened.decode(known.name, **variants).read_all().to_pylist():
            rest = {
                name: shown(name, value)
                for name, value in row.items()
                if name not in SHARED and name not in kept and value is not None
            }
            if known.name == "cdt":
                rest.pop("topic")
            rows.append(
                {
                    "seq": row["seq"],
                    "protocol": known.name,
                    "record": row.get("record", 0),
                    "type": row[TYPES[known.name]],
                    "rest": rest,
                    "error": row["error"],
                    "received_at": row["received_at"],
                }
            )
    return sorted(rows, key=lambda row: (row["seq"], row["record"]))


def test_each_message_says_what_it_says_alone(recorded):
    chance = random.Random(5)
    messages = [(OF[name], *each) for name, some in ALPHABET.items() for each in some]
    messages += [
        ("cdtp", "in", None, [batch([1, 2, 3])]),
        ("cdtp", "in", None, [header_s(), b"x" * 100, b"y"]),
        ("cdtp", "in", None, [b"\xc1", b"nonsense"]),
        ("dcp", "in", b"c", [b"", b"DGBX\x01", b"\x09"]),
        ("mtl", "in", b"c", [b"", b"User.Login", b'{"deep": {"b": [1, null, {"a": 1.5}], "a": "x"}}']),
        ("mtl", "in", b"c", [b"\x05" + bytes(8) + b"\x04jobs" + bytes(4), mtl.encode_table({"when": True}), b"body"]),
    ]
    chance.shuffle(messages)
    opened = recorded(messages)
    table = opened.decode("*").read_all()
    found = [row | {"rest": read(row["rest"])} for row in table.to_pylist()]
    assert [
        {name: row[name] for name in ("seq", "protocol", "record", "type", "rest", "error", "received_at")}
        for row in found
    ] == (expected(opened))
    assert table.schema.names == [
        *(
            "capture_id",
            "segment",
            "seq",
            "received_at_ns",
            "protocol",
            "endpoint",
            "peer",
            "direction",
            "topic",
            "reply_to",
        ),
        *("record", "type", "rest", "error", "received_at"),
    ]
    assert {row["protocol"] for row in found} == {known.name for known in protocols()}


def test_malformed_messages_are_treated_as_the_mode_says(recorded):
    opened = recorded([("cdtp", "in", None, [b"\xc1"]), ("mc0", "in", b"p", [b"", b"PUT", b"TOPIC", b"t", b"", b"x"])])
    kept = opened.decode("*").read_all()
    assert [kind is not None for kind in kept["error"].to_pylist()] == [True, False]
    assert next(read(rest) for rest in kept["rest"].to_pylist()) == {"_corrupt_record": b"\xc1"}
    assert opened.decode("*", mode="DROPMALFORMED").read_all()["protocol"].to_pylist() == ["mc0"]
    with pytest.raises(DecodeError):
        opened.decode("*", mode="FAILFAST").read_all()


def test_what_is_of_one_protocol_is_refused(recorded):
    opened = recorded([("mc0", "in", b"p", [b"", b"PUT", b"TOPIC", b"t", b"", b"x"])])
    with pytest.raises(LocalProtocolError, match="tags"):
        opened.decode("*", tags="variant")
    for criterion in ({"sender": "D"}, {"run": 1}, {"where": "topic = 't'"}):
        with pytest.raises(LocalProtocolError, match="name it in place"):
            opened.decode("*", selection=capture.Selection(**criterion))
    assert opened.decode("*", selection=capture.Selection(peer=b"p")).read_all().num_rows == 1
    assert opened.decode("*", selection=capture.Selection(type="put"), columns=["seq"]).read_all().num_rows == 1
    assert opened.decode("*", selection=capture.Selection(type="sub")).read_all().num_rows == 0
