"""Some messages of a capture."""

import shutil

import msgpack
import pytest
import zmq

from peers import cdtp as wire
from peers.recorded import line
from trunkline import CaptureError, LocalProtocolError, capture, cdtp
from trunkline.capture import Selection


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A capture of two senders with two runs each, which overlap, and of a service."""
    path = tmp_path_factory.mktemp("selected") / "capture"
    lines = []

    def add(*frames, **fields):
        lines.append(line(frames, len(lines) * 10**9, **fields))

    for run in ("first", "second"):
        for name in ("a", "b"):
            add(wire.header_b(0, wire.BOR, name=name), msgpack.packb({"run_id": run}))
            for sequence in range(1, 4):
                add(wire.header_b(sequence, name=name), b"x")
        for name in ("a", "b"):
            add(wire.header_b(3, wire.EOR, name=name), b"\x80")
    add(b"no header", b"x")
    add(b"", b"DGBX\x01", b"\x01", b"echo", protocol="dcp", peer=b"a")
    (path.parent / "lines.jsonl").write_text("".join(lines))
    capture.import_(path.parent / "lines.jsonl", path, segment_bytes=100)
    return capture.open(path)


def numbers(recorded, **given):
    return [row["seq"] for row in recorded.rows(Selection(**given))]


def test_everything_is_selected_by_nothing(recorded):
    assert numbers(recorded) == list(range(22))
    assert [row["seq"] for row in recorded.rows(first_seq=20)] == [20, 21]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"sender": "a"}, [0, 1, 2, 3, 8, 10, 11, 12, 13, 18]),
        ({"sender": "a", "type": "BOR"}, [0, 10]),
        ({"type": "eor"}, [8, 9, 18, 19]),
        ({"sender": "b", "run": 2}, [14, 15, 16, 17, 19]),
        ({"sender": "b", "run": "first"}, [4, 5, 6, 7, 9]),
        ({"run": "1"}, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ({"run": 1, "type": "BOR"}, [0, 4]),
        ({"since_ns": 5 * 10**9, "until_ns": 7 * 10**9}, [5, 6]),
        ({"protocol": "dcp"}, [21]),
        ({"service": "echo"}, [21]),
        ({"service": "other"}, []),
        ({"peer": b"a"}, [21]),
        ({"direction": "out"}, []),
        ({"sender": "nobody"}, []),
    ],
)
def test_rows_are_those_that_have_all_that_is_said(recorded, given, expected):
    assert numbers(recorded, **given) == expected
    if given.get("service") is None and given.get("protocol") is None and given.get("peer") is None:
        table = recorded.decode("cdtp", selection=Selection(**given)).read_all()
        assert table["seq"].to_pylist() == expected


def test_a_run_that_nobody_had(recorded):
    with pytest.raises(LocalProtocolError, match="no run 3 of 'a'"):
        numbers(recorded, sender="a", run=3)


@pytest.mark.parametrize(
    "given",
    [
        {"sender": "a", "service": "b"},
        {"service": "a", "topic": "b"},
        {"protocol": "udp"},
        {"protocol": "dcp", "run": 1},
        {"direction": "up"},
    ],
)
def test_what_no_message_can_have_is_refused(given):
    with pytest.raises(LocalProtocolError):
        Selection(**given)


def test_another_protocol_than_is_decoded(recorded):
    with pytest.raises(LocalProtocolError, match="cdtp and dcp"):
        recorded.decode("cdtp", selection=Selection(service="echo"))


def test_a_selection_is_replayed(recorded, open_socket):

    pull = open_socket(zmq.PULL, bind="tcp://127.0.0.1:*")
    endpoint = pull.getsockopt_string(zmq.LAST_ENDPOINT)
    assert capture.replay(recorded.path, connect=endpoint, selection=Selection(sender="b", type="BOR")) == 2
    assert [cdtp.decode(pull.recv_multipart()).config["run_id"] for _ in range(2)] == ["first", "second"]


def test_only_segments_that_may_have_it_are_read(recorded, tmp_path):

    spoilt = tmp_path / "spoilt"
    shutil.copytree(recorded.path, spoilt)
    first = capture.open(spoilt).segments[0]
    first.write_bytes(first.read_bytes()[:4] + b"\xff" * 60 + first.read_bytes()[64:])
    with pytest.raises(CaptureError):
        list(capture.open(spoilt).rows())
    late = capture.open(spoilt).rows(Selection(since_ns=20 * 10**9))
    assert [row["seq"] for row in late] == [20, 21]
