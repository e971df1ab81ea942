"""What a client records: its commands and its data connections, in one capture."""

import json
import subprocess
import sys
import threading
from base64 import b64decode
from itertools import pairwise

import pyarrow.parquet as pq
import pytest

from peers.mtl import ANY
from peers.processes import Child
from trunkline import capture, mtl
from trunkline.errors import CaptureError, LeaseRefusedError
from trunkline.mtl.users import Users


@pytest.fixture
def server(tmp_path_factory):
    path = tmp_path_factory.mktemp("users") / "users.toml"
    Users().adding("ada", "sesame").adding("bob", "sesame", write=["nothing"]).write(path)
    with mtl.Server(
        bind=ANY, users=path, resources=["jobs", "logs", *(f"jobs{at}" for at in range(6))], ping_interval_s=60
    ) as server:
        yield server


def dial(server, path, **options):
    options = {"user": "ada", "password": "sesame", "ping_interval_s": 60} | options
    return mtl.Client(connect=server.endpoints, capture=path, **options)


def frames_of(row):
    return [*row["envelope"], row["header"], *row["payload"]]


def said(path):
    """What is recorded in the order it was: direction and what is said, held to have one order and one clock."""
    rows = capture.open(path).decode("mtl", payload=True).read_all().to_pylist()
    assert [row["seq"] for row in rows] == list(range(len(rows)))
    assert all(one["received_at_ns"] <= other["received_at_ns"] for one, other in pairwise(rows))
    assert not [row["error"] for row in rows if row["error"]]
    return rows


def test_commands_and_data_are_one_capture(server, tmp_path):
    with dial(server, tmp_path) as client:
        with client.writer("jobs") as writer, client.reader(["jobs", "logs"]) as reader:
            reader.summon("jobs")
            writer.send(b"one", properties={"run": 5})
            writer.flush(timeout_s=10)
            reader.receive(timeout_s=10).confirm()
        client.command("Queue.Info", {"name": "jobs"})
        assert client.stats.capture_lost == 0
    rows = said(tmp_path)
    messages = [(row["direction"], row["name"] or row["type"], row["status"]) for row in rows]
    assert [name for way, name, _ in messages if way == "out" and "." in name] == [
        "Connection.Open",
        *["Connection.Authorize"] * 3,
        "Connection.Profile",
        "Connection.Writer",
        "Connection.Reader",
        "Queue.Info",
    ]
    statuses = [status for way, name, status in messages if (way, name) == ("in", "reply")]
    assert statuses == [401, 402, 402, 201, 200, 202, 202, 200]
    for expected in [
        ("out", "lease", None),
        ("in", "response", 200),
        ("out", "summon", None),
        ("out", "content", None),
        ("in", "content", None),
        ("in", "confirm", None),
        ("out", "confirm", None),
    ]:
        assert expected in messages
    contents = [row for row in rows if row["type"] == "content"]
    # The reader may have it before the writer has noted that it was taken.
    assert sorted((row["direction"], row["resource"], row["body"]) for row in contents) == [
        ("in", "jobs", b"one"),
        ("out", "jobs", b"one"),
    ]
    assert {row["flow"] for row in rows} == {"control", "data"}
    assert {row["peer"] for row in rows} == {None}
    assert {row["endpoint"] for row in rows} == set(server.endpoints)


def test_nothing_secret_is_recorded(server, tmp_path):
    with dial(server, tmp_path) as client, client.writer("jobs") as writer:
        writer.send(b"one")
        leases = [client._terms("jobs", "none", 1000, reads=reads).leasing().wait()[1] for reads in (True, False)]
    kept = b"".join(path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file())
    rows = pq.read_table(capture.open(tmp_path).segments).to_pylist()
    frames = [frame for row in rows for frame in frames_of(row)]
    for secret in (b"sesame", *map(str.encode, leases)):
        assert secret not in b"\0".join(frames)
        assert secret not in kept
    members = [json.loads(frame) for frame in frames if frame.startswith(b"{")]
    for name in ("response", "challenge"):
        values = [said[name] for said in members if name in said]
        assert values
        assert set(values) == {"…"}
    # A recorded lease can be distinguished from another, and no more.
    hashes = [said["lease"] for said in members if "lease" in said]
    assert len(set(hashes)) == len(hashes) == 3
    assert [frame for frame in frames if frame[:1] == b"\x01" and hashes[0].encode() in frame]
    assert not [text for text in frames if b"n=ada" in text or (text.startswith(b"n,,") and b64decode(text))]


def test_secrets_are_recorded_where_that_is_asked_for(server, tmp_path):
    with dial(server, tmp_path, capture_secrets=True) as client, client.writer("jobs") as writer:
        writer.send(b"one")
        writer.flush(timeout_s=10)
    rows = pq.read_table(capture.open(tmp_path).segments).to_pylist()
    frames = [frame for row in rows for frame in frames_of(row)]
    members = [json.loads(frame) for frame in frames if frame.startswith(b"{")]
    responses = [b64decode(said["response"]) for said in members if "response" in said]
    assert responses[0].startswith(b"n,,n=ada,")
    (lease,) = (said["lease"] for said in members if "lease" in said)
    assert len(lease) == 32
    assert [frame for frame in frames if frame[:1] == b"\x01" and lease.encode() in frame]


def test_connections_come_and_go_while_it_records(server, tmp_path):
    count, size = 6, 40

    def work(client, number):
        for _ in range(3):
            with client.writer(f"jobs{number}") as writer:
                for at in range(size):
                    writer.send(b"%d %d" % (number, at))
            with client.reader(f"jobs{number}") as reader:
                reader.summon(f"jobs{number}")
                for _ in range(size):
                    reader.receive(timeout_s=20).confirm()

    with dial(server, tmp_path, capture_overflow="block") as client:
        threads = [threading.Thread(target=work, args=(client, number)) for number in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert client.stats.capture_lost == 0
    rows = said(tmp_path)
    by_way = {way: [row for row in rows if row["direction"] == way] for way in ("in", "out")}
    sent = [row["body"] for row in by_way["out"] if row["type"] == "content"]
    assert len(sent) == 3 * count * size
    assert sorted(row["body"] for row in by_way["in"] if row["type"] == "content") == sorted(sent)
    assert len([row for row in by_way["out"] if row["type"] == "lease"]) == 6 * count


def test_it_ends_with_the_client(server, tmp_path):
    client = dial(server, tmp_path)
    writer = client.writer("jobs")
    writer.send(b"one")
    writer.flush(timeout_s=10)
    with pytest.raises(CaptureError, match="is being written"):
        dial(server, tmp_path)
    client.close()
    recorded = len(said(tmp_path))
    writer.send(b"two")
    writer.flush(timeout_s=10)
    assert writer.stats.capture_lost == 2
    with dial(server, tmp_path):
        pass
    writer.close()
    assert len(said(tmp_path)) > recorded
    assert [row["body"] for row in said(tmp_path) if row["type"] == "content"] == [b"one"]


def test_a_lease_that_is_refused_leaves_it_as_it_is(server, tmp_path):
    with dial(server, tmp_path, user="bob") as client:
        with pytest.raises(LeaseRefusedError):
            client.writer("jobs")
        client.command("Queue.List")
    assert [row["status"] for row in said(tmp_path)[-3::2]] == [403, 200]


WRITING = """
import sys
from trunkline import mtl
with mtl.Client(connect=sys.argv[1], user="ada", password="sesame", capture=sys.argv[2]) as client:
    writer, reader = client.writer("jobs"), client.reader("jobs")
    reader.summon("jobs")
    while True:
        for _ in range(100):
            writer.send(bytes(100))
        writer.flush()
        for _ in range(100):
            reader.receive(timeout_s=20).confirm()
        native = client._native
        native.wait_flushed(native.ask_flush(publish=False), 20)
        print(reader.stats.contents, flush=True)
"""


def test_a_client_that_is_killed_loses_nothing_durable(server, tmp_path):
    command = [sys.executable, "-W", "ignore", "-c", WRITING, server.endpoints[0], str(tmp_path)]
    with Child(command, stdout=subprocess.PIPE, text=True) as process:
        durable = [int(process.stdout.readline()) for _ in range(3)][-1]
        process.kill()
        durable = max([durable, *map(int, process.stdout.read().split())])
    capture.recover(tmp_path)
    rows = said(tmp_path)
    assert len([row for row in rows if (row["type"], row["direction"]) == ("content", "in")]) >= durable >= 300
    assert len([row for row in rows if (row["type"], row["direction"]) == ("content", "out")]) >= durable


FULL = """
import logging, resource, signal, sys
from trunkline import mtl
logging.basicConfig(format="%(message)s")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
client = mtl.Client(connect=sys.argv[1], user="ada", password="sesame", capture=sys.argv[2], capture_overflow=sys.argv[3])
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
writer, reader = client.writer("jobs"), client.reader("jobs")
reader.summon("jobs")
while not client.stats.capture_lost:
    for _ in range(100):
        writer.send(bytes(10_000))
    for _ in range(100):
        reader.receive(timeout_s=20).confirm()
writer.close()
reader.close()
print(client.command("Queue.Info", {"name": "jobs"}).status, client.stats.contents == client.stats.confirmed)
client.close()
"""


@pytest.mark.parametrize("overflow", ["count", "block"])
def test_a_client_goes_on_without_a_capture_that_failed(server, tmp_path, overflow):
    command = [sys.executable, "-W", "ignore", "-c", FULL, server.endpoints[0], str(tmp_path / "capture"), overflow]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=True)
    assert done.stdout == "200 True\n"
    # It is logged once, whichever connection finds it.
    assert len([line for line in done.stderr.splitlines() if "continuing without the capture" in line]) == 1
