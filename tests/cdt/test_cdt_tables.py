"""Recorded CDT as columns."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interop.naive import cdt as naive
from trunkline import DecodeError, LocalProtocolError, capture, cdt, columns

ROOT = Path(__file__).parents[1]
VECTORS = [vector for file in sorted((ROOT / "vectors/cdt").glob("*.json")) for vector in json.loads(file.read_text())]
SUBJECTS = {
    "ConfigRequest": "kaa.v1.service.cdp.cmx2cdp.ConfigRequest",
    "ConfigPush": "kaa.v1.service.cdp.cmx2cdp.ConfigPush",
    "ConfigResponse": "kaa.v1.replica.r1.cmx2cdp.ConfigResponse",
    "ConfigPushResponse": "kaa.v1.replica.r1.cmx2cdp.ConfigPushResponse",
    "ConfigNewAvailable": "kaa.v1.events.cdp.endpoint.config.ConfigNewAvailable",
    "ConfigUpdated": "kaa.v1.events.cmx.endpoint.config.ConfigUpdated",
}


def decoded(messages, **options):
    """Bodies and their subjects, as the rows they make."""
    decoder = columns.Decoder("cdt", **options)
    found = decoder.decode_rows(
        envelope=pa.array([[] for _ in messages], pa.list_(pa.binary())),
        header=pa.array([None for _ in messages], pa.binary()),
        payload=pa.array([[body] for _, body in messages], pa.list_(pa.binary())),
        topic=pa.array([subject for subject, _ in messages], pa.string()),
    )
    return [row for _, batch in found for row in batch.to_pylist()]


def settings(vector):
    return vector.get("settings", {})


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_every_vector_is_a_row(vector):
    subject, body = SUBJECTS[vector["type"]], bytes.fromhex(vector["frames"][0])
    (row,) = decoded([(subject, body)], payload=True, **settings(vector))
    if "error" in vector:
        # With an empty message NATS reports a request without a subscriber; a request is not valid without a body.
        assert row["error"] == vector["error"]["kind"]
        assert row["_corrupt_record"] == body
        assert {value for name, value in row.items() if name not in ("error", "_corrupt_record")} == {None}
        return
    said = vector["decoded"]
    # Spark's timestamps end before the numbers of milliseconds do.
    too_late = "timestamp_exceeds_bigint" if said["timestamp_ms"] > 2**63 // 1000 else None
    assert (row["type"], row["error"], row["_corrupt_record"]) == (vector["type"], too_late, None)
    for name in ("correlation_id", "endpoint_message_id", "app_version_name", "endpoint_id", "config_id"):
        assert row[name] == (said.get(name) or None)
    for name in ("content_type", "reason_phrase", "originator_replica_id"):
        assert row[name] == (said.get(name) or None)
    for name in ("timestamp_ms", "timeout_ms", "status_code"):
        assert row[name] == said.get(name)
    content = said.get("content")
    assert row["content"] == (None if content is None else bytes.fromhex(content))
    assert row["content_bytes"] == (None if content is None else len(content) // 2)


def test_subjects_say_whom_a_message_is_for():
    good = {"correlationId": "c", "timestamp": 1490303342158, "timeout": 1, "appVersionName": "a", "endpointId": "e"}
    request = json.dumps({**good, "endpointMessageId": "m"}).encode()
    event = json.dumps({**good, "configId": "v"}).encode()
    rows = decoded(
        [
            ("kaa.v1.service.cdp.cmx2cdp.ConfigRequest", request),
            ("own.v2.replica.r1.cdtp.ConfigRequest", request),
            ("kaa.v1.events.cmx.endpoint.config.ConfigUpdated", event),
            ("kaa.v1.something.else", b"no json"),
            (None, b"no json"),
            ("kaa.v1.replica.r1.cmx2cdp.ConfigResponse", b""),
        ]
    )
    places = [(row["type"], row["instance"], row["replica"], row["originator"]) for row in rows]
    assert places == [
        ("ConfigRequest", "cdp", None, None),
        ("ConfigRequest", None, "r1", None),
        ("ConfigUpdated", None, None, "cmx"),
        *[(None, None, None, None)] * 3,
    ]
    assert rows[0]["timestamp"] == datetime(2017, 3, 23, 21, 9, 2, 158_000, tzinfo=UTC)
    assert {row["error"] for row in rows} == {None}


def test_what_a_column_cannot_hold_is_null_and_said():
    body = {
        "correlationId": "c",
        "timestamp": 2**63 - 1,
        "timeout": -1,
        "endpointMessageId": "m",
        "appVersionName": "a",
        "endpointId": "e",
    }
    (row,) = decoded([(SUBJECTS["ConfigRequest"], json.dumps(body).encode())], mode="FAILFAST")
    assert (row["timestamp_ms"], row["timestamp"], row["error"]) == (2**63 - 1, None, "timestamp_exceeds_bigint")


def test_each_mode_does_what_it_says():
    subject = SUBJECTS["ConfigRequest"]
    messages = [(subject, b"bad"), ("kaa.v1.other", b"x")]
    assert [row["error"] for row in decoded(messages)] == ["bad_json", None]
    assert len(decoded(messages, mode="DROPMALFORMED")) == 1
    assert "_corrupt_record" not in decoded(messages[1:], mode="DROPMALFORMED")[0]
    with pytest.raises(DecodeError):
        decoded(messages, mode="FAILFAST")


@pytest.mark.parametrize("option", [{"codec": "xml"}, {"bytes_encoding": "hex"}])
def test_options_that_there_are_not_are_refused(option):
    with pytest.raises(ValueError, match=next(iter(option))):
        columns.Decoder("cdt", **option)
    with pytest.raises(LocalProtocolError):
        columns.Decoder("mtl", **option)


@given(
    kind=st.sampled_from([*naive.KINDS]),
    body=st.dictionaries(
        st.sampled_from(sorted({name for kind in naive.KINDS.values() for name in kind})),
        st.none() | st.integers(-2, 5) | st.sampled_from(["", "x", "é"]) | st.just({"bytes": "aGk="}),
    ),
)
def test_rows_are_as_the_naive_decoder_has_them(kind, body):
    written = json.dumps(body).encode()
    (row,) = decoded([(SUBJECTS[kind], written)], payload=True)
    try:
        found = naive.decode(written, kind)
    except naive.FaultError as fault:
        assert row["error"] in fault.args  # noqa: PT017 - either may be
        return
    assert row["error"] is None
    assert {name: row[name] for name in found} == found


async def test_what_roles_record_is_decoded(tmp_path):
    url = "memory://tables"
    async with (
        cdt.AsyncTarget("cdp", servers=url, capture=tmp_path / "runs", codec="avro") as target,
        cdt.AsyncSource("cmx", target="cdp", servers=url, codec="avro") as source,
    ):
        config_id = await target.put("app-1", "e-1", b"{}")
        await source.pull("app-1", "e-1")
        await source.report_applied("app-1", "e-1", config_id)
        await target.receive(timeout_s=10)
    opened = capture.open(tmp_path / "runs")
    table = opened.decode("cdt", codec="avro", payload=True).read_all().to_pylist()
    assert [row["seq"] for row in table] == [0, 1, 2, 3, 4]
    # Its own event comes back at any moment.
    rows = [row for row in table if (row["direction"], row["type"]) != ("in", "ConfigNewAvailable")]
    assert [(row["direction"], row["type"]) for row in rows] == [
        ("out", "ConfigNewAvailable"),
        ("in", "ConfigRequest"),
        ("out", "ConfigResponse"),
        ("in", "ConfigUpdated"),
    ]
    request, response = rows[1:3]
    assert (response["content"], response["config_id"], response["status_code"]) == (b"{}", config_id, 200)
    assert request["reply_to"] == response["topic"]
    assert [type(message).__name__ for message in opened] == [row["type"] for row in table]
    assert opened.skipped == 0
