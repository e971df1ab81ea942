"""The messages of CDT: against vectors, a naive decoder, and fastavro."""

from __future__ import annotations

import copy
import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interop.naive import cdt as naive
from trunkline import DecodeError, LocalProtocolError, cdt, error_kinds

ROOT = Path(__file__).parents[1]
VECTORS = [vector for file in sorted((ROOT / "vectors/cdt").glob("*.json")) for vector in json.loads(file.read_text())]
SCHEMAS = {
    schema["name"]: fastavro.parse_schema(schema)
    for schema in (json.loads(file.read_text()) for file in (ROOT / "data/cdt").glob("*.avsc"))
}
FIELDS = {
    "correlation_id",
    "timestamp_ms",
    "timeout_ms",
    "endpoint_message_id",
    "app_version_name",
    "endpoint_id",
    "config_id",
    "content_type",
    "status_code",
    "reason_phrase",
    "originator_replica_id",
    "content",
}


def described(message: Any) -> dict[str, Any]:
    """What a message says; what is empty or not there is left out."""
    fields = {name: getattr(message, name) for name in FIELDS if hasattr(message, name)}
    return {name: value for name, value in fields.items() if value not in (None, "")}


def expected(vector: dict[str, Any]) -> dict[str, Any]:
    said = {name: value for name, value in vector["decoded"].items() if value != "" or name == "content"}
    if "content" in said:
        said["content"] = bytes.fromhex(said["content"])
    return said


def example(kind: str, **fields: Any) -> Any:
    settings = {"app_version_name": "a", "endpoint_id": "e"}
    if kind in ("ConfigNewAvailable", "ConfigUpdated"):
        settings["config_id"] = "v"
    return getattr(cdt, kind)(**{**settings, **fields})


@pytest.mark.req("CDT-20", "CDT-29", "CDT-43", "CDT-45")
@pytest.mark.parametrize("vector", [v for v in VECTORS if "decoded" in v], ids=lambda v: v["id"])
def test_good_vectors(vector):
    settings = vector.get("settings", {})
    body = bytes.fromhex(vector["frames"][0])
    message = cdt.decode(body, vector["type"], **settings)
    assert type(message).__name__ == vector["type"]
    assert described(message) == expected(vector)
    written = {name: value for name, value in settings.items() if name != "strict"}
    assert cdt.encode(message, **written) == body
    for same in (copy.copy(message), copy.deepcopy(message), pickle.loads(pickle.dumps(message))):
        assert same == message
        assert cdt.encode(same, **written) == body


@pytest.mark.parametrize("vector", [v for v in VECTORS if "error" in v], ids=lambda v: v["id"])
def test_bad_vectors(vector):
    with pytest.raises(DecodeError) as raised:
        cdt.decode(bytes.fromhex(vector["frames"][0]), vector["type"], **vector.get("settings", {}))
    error = raised.value
    assert {"kind": error.kind, "frame": error.frame, "offset": error.offset} == vector["error"]
    assert error.protocol == "cdt"
    assert error.kind in error_kinds()


def outcome(call: Callable[[], Any], refusal: type[Exception]) -> tuple[Any, Any]:
    """What a call gives, or how it refuses."""
    try:
        return call(), None
    except refusal as error:
        return None, error


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.just("bytes"), inner, max_size=3)
    ),
    max_leaves=5,
)


@st.composite
def bodies(draw, kind):
    good = {
        "correlationId": "c",
        "timestamp": 5,
        "timeout": 3,
        "endpointMessageId": "m",
        "appVersionName": "a",
        "endpointId": "e",
        "configId": "v",
        "contentType": "t",
        "statusCode": 200,
        "content": {"bytes": "aGk="},
    }
    names = st.sampled_from([*naive.KINDS[kind], "eventTimestamp", "other"])
    body = {**good, **draw(st.dictionaries(names, json_values, max_size=2))}
    for name in draw(st.lists(names, max_size=2)):
        body.pop(name, None)
    if kind in ("ConfigNewAvailable", "ConfigUpdated"):
        body.pop("eventTimestamp", None)
    return json.dumps(body, ensure_ascii=draw(st.booleans())).encode(errors="surrogatepass")


@pytest.mark.req("CDT-12", "CDT-13", "CDT-14", "CDT-15", "CDT-16", "CDT-17", "CDT-26", "CDT-46")
@pytest.mark.parametrize("kind", naive.KINDS)
@given(data=st.data())
def test_as_the_naive_decoder_has_it(kind, data):
    body = data.draw(bodies(kind))
    found, faults = outcome(lambda: naive.decode(body, kind), naive.FaultError)
    message, refused = outcome(lambda: cdt.decode(body, kind), DecodeError)
    if refused is not None and refused.kind == "bad_json" and b"\\ud" in body:
        # Python reads lone surrogates, which are no JSON to others.
        return
    assert (refused is None) == (faults is None)
    if refused is not None:
        assert refused.kind in faults.args
    else:
        assert described(message) == {name: value for name, value in found.items() if value is not None}


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


@pytest.mark.req("CDT-28")
@given(
    correlation_id=texts,
    app=texts,
    endpoint=texts,
    config_id=texts,
    timestamp_ms=st.integers(0, 2**63 - 1),
    timeout_ms=st.integers(-1, 2**63 - 1),
    status_code=st.integers(-(2**31), 2**31 - 1),
    content=st.none() | st.binary(max_size=300),
)
def test_avro_is_that_of_fastavro(
    correlation_id, app, endpoint, config_id, timestamp_ms, timeout_ms, status_code, content
):
    same = {"correlationId": correlation_id, "timestamp": timestamp_ms, "timeout": timeout_ms}
    ids = {"appVersionName": app, "endpointId": endpoint, "configId": config_id}
    ours = {
        "correlation_id": correlation_id,
        "timestamp_ms": timestamp_ms,
        "timeout_ms": timeout_ms,
        "app_version_name": app,
        "endpoint_id": endpoint,
        "config_id": config_id,
    }
    response = {"endpointMessageId": "m", "contentType": "t", "statusCode": status_code, "reasonPhrase": "why"}
    pairs = [
        ("ConfigRequest", {**same, **ids, "endpointMessageId": "m"}, {**ours, "endpoint_message_id": "m"}),
        (
            "ConfigResponse",
            {**same, **ids, **response, "content": content},
            {
                **ours,
                "endpoint_message_id": "m",
                "content_type": "t",
                "status_code": status_code,
                "reason_phrase": "why",
                "content": content,
            },
        ),
        ("ConfigUpdated", {**same, **ids, "originatorReplicaId": "r"}, {**ours, "originator_replica_id": "r"}),
        ("ConfigNewAvailable", {**same, **ids, "originatorReplicaId": "r"}, {**ours, "originator_replica_id": "r"}),
    ]
    for kind, theirs, mine in pairs:
        written = io.BytesIO()
        fastavro.schemaless_writer(written, SCHEMAS[kind], theirs)
        message = getattr(cdt, kind)(**mine)
        assert cdt.encode(message, codec="avro") == written.getvalue()
        assert cdt.decode(written.getvalue(), kind, codec="avro") == message


@pytest.mark.req("CDT-50")
@given(body=st.binary(max_size=200), kind=st.sampled_from([*naive.KINDS]), codec=st.sampled_from(["json", "avro"]))
def test_no_bytes_do_any_harm(body, kind, codec):
    _, refused = outcome(lambda: cdt.decode(body, kind, codec=codec), DecodeError)
    assert refused is None or refused.offset <= len(body)


@pytest.mark.req("CDT-50")
def test_depth_and_length_do_no_harm():
    deep = b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    for body in (
        deep,
        b'{"timestamp":' + b"9" * 10_000 + b"}",
        b"[" * 100_000,
        b'{"content":' + b'{"bytes":' * 100_000,
    ):
        with pytest.raises(DecodeError):
            cdt.decode(body, "ConfigResponse")


@pytest.mark.req("CDT-13", "CDT-14")
def test_what_is_left_out_is_filled_in():
    first, second = (example("ConfigRequest") for _ in range(2))
    assert first.correlation_id != second.correlation_id
    assert first.endpoint_message_id != second.endpoint_message_id
    assert (first.timeout_ms, first.config_id) == (-1, None)
    assert first.timestamp_ms > 1_700_000_000_000
    assert b'"timeout":-1' in cdt.encode(first)


@pytest.mark.parametrize(
    ("kind", "fields", "named"),
    [
        ("ConfigRequest", {"endpoint_id": ""}, "endpoint_id"),
        ("ConfigRequest", {"timestamp_ms": -1}, "timestamp_ms"),
        ("ConfigRequest", {"timeout_ms": -2}, "timeout_ms"),
        ("ConfigUpdated", {"config_id": ""}, "config_id"),
    ],
)
def test_what_the_other_side_would_refuse_cannot_be_built(kind, fields, named):
    with pytest.raises(LocalProtocolError, match=named):
        example(kind, **fields)


@pytest.mark.parametrize(
    ("kind", "fields", "words"),
    [
        ("ConfigRequest", {"status_code": 200}, 'unexpected keyword argument "status_code"'),
        ("ConfigRequest", {"endpoint_id": 7}, "endpoint_id must be a str, not int"),
        ("ConfigResponse", {"content": "text"}, "content"),
        ("ConfigResponse", {"status_code": "OK"}, "status_code must be an HTTP status, not str"),
    ],
)
def test_arguments_of_another_type_are_named(kind, fields, words):
    with pytest.raises(TypeError, match=words):
        example(kind, **fields)


def test_messages_are_frozen_and_compare_by_what_they_say():
    one = example("ConfigUpdated", correlation_id="c", timestamp_ms=1)
    assert one == example("ConfigUpdated", correlation_id="c", timestamp_ms=1)
    assert one != example("ConfigUpdated", correlation_id="c", timestamp_ms=2)
    assert hash(one) == hash(example("ConfigUpdated", correlation_id="c", timestamp_ms=1))
    assert repr(one) == 'ConfigUpdated(app_version_name="a", endpoint_id="e", config_id="v")'
    with pytest.raises(AttributeError):
        one.config_id = "other"


def test_kept_bytes_are_given_back_as_they_were_read_and_written_anew_otherwise():
    body = b' { "correlationId":"c","timestamp":1,"timeout":-1,"endpointMessageId":"m","appVersionName":"a","endpointId":"e" }'
    message = cdt.decode(body, "ConfigRequest")
    assert cdt.encode(message) == body
    assert cdt.encode(message, bytes_encoding="latin1") == body.replace(b" ", b"")
    assert cdt.decode(cdt.encode(message, codec="avro"), "ConfigRequest", codec="avro") == message


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"message_type": "Other"}, 'message_type must be one of ConfigRequest, .* not "Other"'),
        ({"codec": "xml"}, "codec must be 'json' or 'avro', not \"xml\""),
        ({"bytes_encoding": "hex"}, "bytes_encoding must be 'base64' or 'latin1', not \"hex\""),
    ],
)
def test_options_that_there_are_not(given, words):
    with pytest.raises(ValueError, match=words):
        cdt.decode(b"{}", **{"message_type": "ConfigRequest", **given})
