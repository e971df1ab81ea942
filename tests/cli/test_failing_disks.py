"""Disks that fail below what is durable, one call or all from then on: nothing that was confirmed is lost."""

from __future__ import annotations

import json
import signal
import struct
from pathlib import Path

import pytest

from peers import nats
from peers.mtl import confirm, content, flow, response, session, summon
from peers.preload import build, write_numbers

SOURCE = Path(__file__).parent / "failing_disk.c"
ANY = "tcp://127.0.0.1:*"
FOR_EVER = 1 << 40


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    return build(SOURCE, tmp_path_factory.mktemp("disk"))


class Disk:
    def __init__(self, library: Path, rule: Path, place: str) -> None:
        self._rule = rule
        rule.write_bytes(struct.pack("qq256s", FOR_EVER, 0, place.encode()))
        self.env = {"LD_PRELOAD": str(library), "FAILING_DISK": str(rule)}

    def fail(self, after: int, calls: int) -> None:
        self._calls = calls
        write_numbers(self._rule, struct.pack("qq", after, calls))

    @property
    def failed(self) -> bool:
        """Whether a call has come back with EIO."""
        _, left = struct.unpack("qq", self._rule.read_bytes()[:16])
        return left < self._calls


@pytest.fixture
def disk(library, tmp_path):
    return Disk(library, tmp_path / "rule", "kept-here")


def enter(dial, endpoint, kind):
    return flow(dial, endpoint, session(dial, endpoint), kind)


CONTENTS = range(2, 52)


@pytest.mark.parametrize("calls", [1, FOR_EVER], ids=["one call", "all calls"])
@pytest.mark.parametrize("after", [0, 1, 2, 3, 5, 8])
def test_a_server_confirms_what_is_stored_and_rejects_the_rest(disk, start, dial, after, calls):
    options = ("mtl", "server", "--bind", ANY, "--anonymous", "--resource", "jobs", "--durable", "kept-here", "--json")
    server = start(*options, env=disk.env)
    writer = enter(dial, server.ready()["endpoints"][0], "Writer")
    disk.fail(after, calls)
    confirmed, rejected = set(), set()
    for burst in range(CONTENTS.start, CONTENTS.stop, 5):
        for number in range(burst, burst + 5):
            writer.send_multipart(content(number, "jobs", b"%d" % number))
        while len(confirmed) + len(rejected) < burst + 5 - CONTENTS.start:
            (header, _) = writer.recv_multipart()
            sequence, multiple = struct.unpack_from(">Q?", header, 1)
            about = range(CONTENTS.start, sequence + 1) if multiple else [sequence]
            (confirmed if header[:1] == confirm(1)[0][:1] else rejected).update(set(about) - confirmed - rejected)
    assert disk.failed
    assert confirmed | rejected == set(CONTENTS)
    server.signal(signal.SIGKILL)
    server.process.wait()
    again = start(*options)
    reader = enter(dial, again.ready()["endpoints"][0], "Reader")
    reader.send_multipart(summon(2, "jobs"))
    assert reader.recv_multipart() == response(2, 200)
    found = [int(reader.recv_multipart()[1]) for _ in confirmed]
    while reader.poll(200):
        found.append(int(reader.recv_multipart()[1]))
    assert sorted(found) == sorted(set(found))
    assert confirmed <= set(found)
    # Rows whose sync failed are still there after a restart, as nothing could be written over them.
    assert set(found) - confirmed <= (rejected if calls == FOR_EVER else set())


@pytest.mark.parametrize("calls", [1, FOR_EVER], ids=["one call", "all calls"])
@pytest.mark.parametrize("after", [0, 1, 2, 4])
def test_a_target_confirms_what_is_stored_and_says_so_of_the_rest(disk, start, run, tmp_path, after, calls):
    with nats.server(tmp_path) as server:
        where = ("--target", "fleet", "--nats", server.url)
        options = ("cdt", "target", "fleet", "--store", "kept-here.db", *where[2:], "--json")
        target = start(*options, env=disk.env)
        target.ready()
        disk.fail(after, calls)
        stored = {}
        for number in range(3):
            given = tmp_path / "config.json"
            given.write_text(json.dumps({"number": number}))
            put = start("cdt", "put", "app", f"endpoint-{number}", given, *where, "--timeout", "5")
            _, err = put.process.communicate()
            if put.process.returncode == 0:
                stored[f"endpoint-{number}"] = given.read_text()
            else:
                assert err.startswith("trunkline: error: ")
        assert disk.failed
        target.signal(signal.SIGKILL)
        target.process.wait()
        start(*options).ready()
        for endpoint, config in stored.items():
            assert run("cdt", "pull", "app", endpoint, *where)[0] == config
