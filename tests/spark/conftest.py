import dataclasses
import json
from pathlib import Path

import pytest

from peers import cdtp as wire
from peers import dcp as dcp_wire
from peers import mtl as mtl_wire
from peers.recorded import line
from trunkline import capture, spark

HERE = Path(__file__).parent
DATA = HERE.parent / "data"

REQUESTS = "kaa.v1.service.cdp.cmx2cdp.ConfigRequest"
PULL = {
    "correlationId": "c",
    "timestamp": 1490303342158,
    "timeout": 5,
    "endpointMessageId": "m",
    "appVersionName": "a",
    "endpointId": "e",
}


# Before pytest-xdist looks for groups.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.spark)
        # One session for all tests that use it, and one JVM at a time for those that start their own. A JVM takes its time:
        # of a machine with much else to do, minutes.
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.xdist_group("spark" if "session" in item.fixturenames else "jvm"))
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def session():
    session = spark.session("trunkline tests", master="local[2]")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def recorded(tmp_path_factory):
    """A capture of the traffic that was recorded of released peers."""
    path = tmp_path_factory.mktemp("recorded")
    capture.import_(sorted(DATA.glob("*.jsonl.gz")), path)
    return str(path)


@pytest.fixture
def captured(tmp_path):
    """Makes a capture of messages, each with a time, a protocol, a direction, a peer or none, and frames."""

    def make(*messages, topics=None):
        lines = tmp_path / "messages.jsonl"
        with lines.open("w") as file:
            for number, (at, protocol, direction, peer, frames) in enumerate(messages):
                topic = topics and topics[number]
                file.write(line(frames, at, protocol=protocol, direction=direction, peer=peer, topic=topic))
        capture.import_(lines, tmp_path / "capture")
        return tmp_path / "capture"

    return make


@pytest.fixture
def every_protocol(captured):
    """A capture of good and bad messages of every protocol."""
    messages = [
        (1, "cdtp", "in", None, [wire.header_s(tags=b"\x81\xa3run\x07"), b"x"]),
        (2, "cdtp", "in", None, [b"bad"]),
        (3, "dcp", "in", b"p", dcp_wire.request(b"echo", b"hello", metadata=[b"m"])),
        (4, "dcp", "in", b"p", [b"", b"bad"]),
        (5, "mc0", "in", b"p", [b"", b"PUT", b"TOPIC", b"runs", b"", b"body"]),
        (6, "mc0", "in", b"p", [b"bad"]),
        (7, "mtl", "in", b"p", mtl_wire.content(1, "", b"body")),
        (8, "mtl", "in", b"p", [b"\x05\0", b""]),
        (9, "cdt", "in", None, [json.dumps(PULL).encode()]),
        (10, "cdt", "in", None, [b"bad"]),
    ]
    topics = [None] * 6 + ["jobs", "jobs", REQUESTS, REQUESTS]
    return captured(*messages, topics=topics)


@pytest.fixture
def table(session):
    """Makes a table of headers, numbered by `seq`; of two frames each unless said otherwise."""

    def make(headers, frames=2, partitions=1):
        counts = frames if isinstance(frames, list) else [frames] * len(headers)
        rows = [(at, header, count) for at, (header, count) in enumerate(zip(headers, counts, strict=True))]
        return session.createDataFrame(rows, "seq bigint, header binary, n_frames int").coalesce(partitions)

    return make


@pytest.fixture
def reported(session, tmp_path):  # noqa: ARG001 - reports take the session there is
    """Reports a capture with Spark and in this process, which are to say the same."""

    def make(path):
        by_spark = spark.report(path, tmp_path / "report.html")
        locally = capture.report(path, tmp_path / "local.html")
        same(locally, by_spark)
        return by_spark

    return make


def same(ours, theirs, where="report"):
    """Holds every field of two reports against each other; numbers that are computed may differ in the last places."""
    if isinstance(theirs, float):
        assert ours == pytest.approx(theirs, rel=1e-9), where
    elif dataclasses.is_dataclass(theirs):
        assert type(ours) is type(theirs), where
        for field in dataclasses.fields(theirs):
            if field.name != "path":
                same(getattr(ours, field.name), getattr(theirs, field.name), f"{where}.{field.name}")
    elif isinstance(theirs, dict):
        assert list(ours.keys() - theirs.keys()) == list(theirs.keys() - ours.keys()) == [], where
        for key, value in theirs.items():
            same(ours[key], value, f"{where}[{key!r}]")
    elif isinstance(theirs, list | tuple):
        assert len(ours) == len(theirs), where
        for at, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            same(one, other, f"{where}[{at}]")
    else:
        assert ours == theirs, where
