"""The codecs of CDT beside those of others: `python -m benches.cdt.codec [--fast]`."""

from __future__ import annotations

import argparse
import base64
import io
import json
from collections.abc import Callable
from typing import Any

import fastavro
import orjson
import pybase64

from benches.measure import ROOT, Case, calls, machine, write
from trunkline import cdt

SIZES = {"512 B": 512, "64 KiB": 65_536}


def response(content: bytes) -> dict[str, Any]:
    """The fields of a ConfigResponse, by the names on the wire."""
    return {
        "correlationId": "07d78e95-2c4d-4899-957c-b9e5a3701fbb",
        "timestamp": 1490303342158,
        "timeout": 3000,
        "endpointMessageId": "6b73cd7c-1de5-4c4e-bbad-b7eda079ccbd",
        "appVersionName": "39774993-a426-4092-9e38-02ec213272d0",
        "endpointId": "b197e391-1d13-403b-83f5-87bdd44888cf",
        "contentType": "json",
        "configId": "76d34f8b-c038-413f-b122-318dce49edd1",
        "statusCode": 200,
        "reasonPhrase": "OK",
        "content": content,
    }


def all_fields(message: Any) -> tuple[object, ...]:
    """Each field of a ConfigResponse as an object of Python, which the others make of all of them, wanted or not."""
    return (
        message.correlation_id,
        message.timestamp_ms,
        message.timeout_ms,
        message.endpoint_message_id,
        message.app_version_name,
        message.endpoint_id,
        message.content_type,
        message.config_id,
        message.status_code,
        message.reason_phrase,
        message.content,
    )


def building(content: bytes) -> Callable[[], cdt.ConfigResponse]:
    """Builds the message, as every user does who encodes one: a message that was decoded keeps its bytes."""
    read: Any = cdt.decode(json.dumps({**response(content), "content": None}).encode(), "ConfigResponse")
    names = ("correlation_id", "timestamp_ms", "timeout_ms", "endpoint_message_id", "app_version_name", "endpoint_id")
    fields = {
        name: getattr(read, name) for name in (*names, "content_type", "config_id", "status_code", "reason_phrase")
    }
    return lambda: cdt.ConfigResponse(**fields, content=content)


def json_cases(content: bytes) -> tuple[dict[str, Callable[[], object]], dict[str, Callable[[], object]]]:
    """Writing and reading as JSON."""
    fields = response(content)
    text = base64.b64encode(content).decode()
    body = json.dumps({**fields, "content": {"bytes": text}}, separators=(",", ":")).encode()
    built = building(content)
    assert cdt.encode(built()) == body

    def read_stdlib() -> object:
        read = json.loads(body)
        read["content"] = base64.b64decode(read["content"]["bytes"], validate=True)
        return read

    def read_orjson() -> object:
        read = orjson.loads(body)
        read["content"] = pybase64.b64decode(read["content"]["bytes"], validate=True)
        return read

    def ours() -> object:
        message: Any = cdt.decode(body, "ConfigResponse")
        return message.content

    writing: dict[str, Callable[[], object]] = {
        "json, base64": lambda: json.dumps({**fields, "content": {"bytes": base64.b64encode(content).decode()}}),
        "orjson, pybase64": lambda: orjson.dumps(
            {**fields, "content": {"bytes": pybase64.b64encode(content).decode()}}
        ),
        "cdt.encode": lambda: cdt.encode(built()),
    }
    reading: dict[str, Callable[[], object]] = {
        "json, base64": read_stdlib,
        "orjson, pybase64": read_orjson,
        "cdt.decode": ours,
        "cdt.decode, every field": lambda: all_fields(cdt.decode(body, "ConfigResponse")),
    }
    return writing, reading


def avro_cases(content: bytes) -> tuple[dict[str, Callable[[], object]], dict[str, Callable[[], object]]]:
    """Writing and reading as binary Avro."""
    schema = fastavro.parse_schema(json.loads((ROOT / "tests/data/cdt/config-response.avsc").read_text()))
    fields = response(content)

    def write_fastavro() -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, fields)
        return out.getvalue()

    body = write_fastavro()
    built = building(content)
    assert cdt.encode(built(), codec="avro") == body

    def ours() -> object:
        message: Any = cdt.decode(body, "ConfigResponse", codec="avro")
        return message.content

    writing: dict[str, Callable[[], object]] = {
        "fastavro": write_fastavro,
        "cdt.encode": lambda: cdt.encode(built(), codec="avro"),
    }
    reading: dict[str, Callable[[], object]] = {
        "fastavro": lambda: fastavro.schemaless_reader(io.BytesIO(body), schema, None),
        "cdt.decode": ours,
        "cdt.decode, every field": lambda: all_fields(cdt.decode(body, "ConfigResponse", codec="avro")),
    }
    return writing, reading


def main(*, fast: bool) -> None:
    """Runs the cases in turn, several rounds, and writes what came out."""
    rounds = 1 if fast else 7
    head = machine()
    parts: list[tuple[str, list[Case], str]] = []
    for name, size in SIZES.items():
        content = bytes(range(256)) * (size // 256)
        count = 100 if fast else 20_000 if size < 10_000 else 2_000
        for codec, cases, first in (("JSON", json_cases, "json, base64"), ("Avro", avro_cases, "fastavro")):
            writing, reading = cases(content)
            parts.append((f"{codec}, {name}: writing", calls(writing, count=count, rounds=rounds), first))
            parts.append((f"{codec}, {name}: reading", calls(reading, count=count, rounds=rounds), first))
    if not fast:
        method = (
            "A ConfigResponse with so much content. The others make a dict of objects of every field; a message makes them when "
            f"they are asked for: the content alone, or every field. One core, {rounds} rounds; medians (min-max)."
        )
        write("cdt-codec", "CDT: codecs", method, parts, head)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fast", action="store_true", help="a short run that writes nothing: does it still work?")
    main(fast=parser.parse_args().fast)
