"""Live Constellations of every kind of header: their senders recorded by us, our sender written down by them."""

import json
import subprocess
import time
import uuid
from pathlib import Path

import pytest
from satellite import PATIENCE_S, PEERS, RELEASES, SENDER_CLASS, SENDERS, Satellite

from peers import chirp
from peers.waiting import until
from trunkline import capture, cdtp

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("constellation")]

# Milliseconds, though they are called seconds there.
_TIMEOUTS = {"_bor_timeout": 5000, "_data_timeout": 5000, "_eor_timeout": 5000}
CONFIG = {"0.3": _TIMEOUTS, "0.5.1": _TIMEOUTS, "1.0.2": {}}
VARIANT = {"0.3": "A", "0.5.1": "B", "1.0.2": "2"}
# What a receiver of each logs once it has our sender; that of 1.0.2 connects only as it starts.
FOUND = {"0.3": "Connecting to tcp:", "0.5.1": "Connecting to tcp:", "1.0.2": "Received new OFFER for service: DATA"}


@pytest.fixture
def group():
    """A Constellation of the test's own: the port of CHIRP is shared."""
    return f"trunkline-{uuid.uuid4().hex}"


@pytest.fixture
def ask_again(group):
    """Asks for senders every two seconds, as a satellite does but once: a datagram may be lost."""
    peer, asked = chirp.Peer(7123), [time.monotonic()]

    def ask():
        if time.monotonic() >= asked[-1] + 2:
            asked.append(time.monotonic())
            peer.send(chirp.pack(chirp.REQUEST, "Test.asks", group=group))

    yield ask
    peer.close()


@pytest.fixture
def satellite(group, tmp_path):
    """Starts satellites; they end with the test."""
    running = []

    def start(release, command, name="s1"):
        assert (PEERS / release).is_dir(), "the released peers are missing: run `make peers`"
        running.append(Satellite(release, command, name, group, tmp_path / f"{name}.log"))
        return running[-1]

    yield start
    for each in running:
        each.close()
        # Shown with a test that fails.
        print(each.log.read_text())


def ended(recorder, path):
    """Whether the latest run has its EOR in the capture."""
    # After a count nothing more is read until the next wait.
    recorder.wait(idle_s=0.1, timeout_s=PATIENCE_S)
    recorder.publish()
    runs = capture.open(path).runs()
    return bool(runs) and runs[-1].eor_seq is not None


def recorded(path, run):
    """The messages of a run, as they lie in the capture."""
    messages = [message for message in capture.open(path) if message.type is not None]
    begins = [at for at, message in enumerate(messages) if message.type == "BOR" and message.sequence == 0]
    return messages[begins[run] : begins[run + 1] if run + 1 < len(begins) else None]


@pytest.mark.req("CDTP-16", "CDTP-21", "CHIRP-04")
@pytest.mark.parametrize("release", RELEASES)
def test_a_run_is_found_recorded_and_accounted_for(release, satellite, group, tmp_path):
    name = f"{SENDER_CLASS[release]}.s1"
    with cdtp.Recorder(tmp_path / "capture", group=group, senders=[name]) as recorder:
        sender = satellite(release, SENDERS[release])
        sender.launch(CONFIG[release])
        until(lambda: recorder.endpoints)
        sender.do("start", "run_1", state="RUN")
        recorder.wait(count=4, timeout_s=PATIENCE_S)
        sender.do("stop", state="ORBIT")
        until(lambda: ended(recorder, tmp_path / "capture"))
        assert recorder.stats.dropped == {}
    [run] = capture.open(tmp_path / "capture").runs()
    messages = recorded(tmp_path / "capture", 0)
    assert {message.variant for message in messages} == {VARIANT[release]}
    data = [message for message in messages if message.type == "DAT"]
    assert [message.sequence for message in data] == list(range(1, len(data) + 1))
    assert len(data) >= 2
    assert run.sender == name
    assert (run.missed, run.duplicates, run.out_of_order) == (0, 0, 0)
    assert run.condition == "GOOD"
    if release == "1.0.2":
        assert run.run_id == "run_1"
        assert run.metadata["data_records"] == len(data)


@pytest.mark.req("CDTP-16", "CDTP-21")
@pytest.mark.parametrize("release", RELEASES)
def test_a_satellite_that_is_killed_comes_back_on_another_port(release, satellite, group, tmp_path):
    with cdtp.Recorder(tmp_path / "capture", group=group) as recorder:
        first = satellite(release, SENDERS[release])
        first.launch(CONFIG[release])
        until(lambda: recorder.endpoints)
        before = recorder.endpoints
        first.do("start", "run_1", state="RUN")
        recorder.wait(count=3, timeout_s=PATIENCE_S)
        first.kill()
        recorder.wait(idle_s=0.3, timeout_s=PATIENCE_S)
        count = recorder.stats.recorded

        second = satellite(release, SENDERS[release])
        second.launch(CONFIG[release])
        until(lambda: recorder.endpoints and before[0] not in recorder.endpoints)
        second.do("start", "run_2", state="RUN")
        recorder.wait(count=count + 3, timeout_s=PATIENCE_S)
        second.do("stop", state="ORBIT")
        until(lambda: ended(recorder, tmp_path / "capture"))
    killed, whole = capture.open(tmp_path / "capture").runs()
    assert killed.condition == "ABORTED"
    assert whole.condition == "GOOD"
    assert killed.missed == whole.missed == 0
    assert [message.type for message in recorded(tmp_path / "capture", 1)].count("EOR") >= 1


def written(release, tmp_path):
    """What an H5DataWriter has in its only file."""
    [path] = tmp_path.glob("h5/*.h5")
    reader = Path(__file__).with_name("read_h5.py")
    python = PEERS / release / "bin/python"
    return json.loads(subprocess.run([python, reader, path], check=True, capture_output=True, text=True).stdout)


@pytest.mark.req("CDTP-15", "CHIRP-03")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("release", RELEASES)
def test_our_sender_is_written_down_by_theirs(release, satellite, group, ask_again, tmp_path):
    payloads = [bytes(range(at, at + 8)) for at in range(40)]
    writer = satellite(release, ["SatelliteH5DataWriter"], "writer")
    directory = str(tmp_path / "h5")
    config = {"_output_path": directory, "_file_name_pattern": "run.h5", "_eor_timeout": 10}
    writer.launch(config if release != "1.0.2" else {"output_directory": directory})
    with cdtp.Sender(
        "Trunk.one",
        header=VARIANT[release],
        bind="tcp://*:*",
        group=group,
        chirp="broadcast" if release == "0.3" else "multicast",
        chirp_lower_case=release == "1.0.2",
    ) as sender:
        # One that hears of a sender while it starts never connects (0.x), or does so twice and takes turns (1.0.2).
        until(lambda: writer.says(FOUND[release]) or ask_again())
        writer.do("start", "run_1", state="RUN")
        sender.begin_run({"voltage": 1.5, "mode": "fast"}, timeout_s=PATIENCE_S)
        for payload in payloads:
            sender.send(payload, tags={"trigger_number": payload[0]}, timeout_s=PATIENCE_S)
        sender.end_run({"events": 40}, timeout_s=PATIENCE_S)
        until(lambda: sender.stats.queued == 0)
        writer.do("stop", state="ORBIT")
    ours = written(release, tmp_path)["items"]["Trunk.one"]["items"]
    names = [name for name in sorted(ours) if name.startswith("data_")]
    assert len(names) == 40
    if release == "1.0.2":
        blocks = [ours[name]["items"]["block_00"]["data"] for name in names]
        begin = ours["BOR"]["items"]["configuration"]["attributes"]
    else:
        blocks = [ours[name]["data"] for name in names]
        begin = {name: item["data"] for name, item in ours["BOR"]["items"].items()}
    assert [bytes.fromhex(block) for block in blocks] == payloads
    assert [ours[name]["attributes"]["trigger_number"] for name in names] == list(range(40))
    assert (begin["voltage"], begin["mode"]) == (1.5, "fast")
    assert "EOR" in ours
