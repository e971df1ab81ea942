"""`trunkline cdtp record`."""

from __future__ import annotations

import json
import signal
import stat
import time

import pyarrow.parquet
import pytest

from peers.cdtp import BOR, EOR, header_b
from peers.commands import batch, spec


def rows(folder):
    return pyarrow.parquet.read_table(folder).to_pylist()


def test_everything_is_recorded_bit_for_bit(start, push, tmp_path):
    command = start("cdtp", "record", "--capture", "capture", "--connect", push.endpoint, "--count", "3", "--json")
    assert command.ready() == {
        "event": "ready",
        "role": "cdtp.recorder",
        "endpoints": [push.endpoint],
        "pid": command.process.pid,
    }
    messages = [spec("D", b"a", b"b"), [b"nonsense", b"x"], spec("D", b"c")]
    push.send(*messages)
    size = sum(len(frame) for message in messages for frame in message)
    stopped = command.event("stopped")
    assert stopped["stats"].pop("free_bytes") > 0
    assert stopped == {
        "event": "stopped",
        "reason": "count",
        "missing": [],
        "stats": {
            "received": 3,
            "accepted": 2,
            "dropped": {"bad_header": 1},
            "bytes": size,
            "recorded": 3,
            "durable": 3,
            "segments": 1,
            "deleted": 0,
            "deleted_unshipped": 0,
            "duplicate_keys": 0,
            "chirp_dropped": 0,
            "senders": {"D": {"messages": 2, "bytes": size - len(b"nonsensex"), "missed": 0}},
            "runs": {},
            "refused": 0,
            "turned_away": 0,
            "connection_failures": {},
            "transport": "zmtp",
        },
    }
    command.end()
    recorded = rows(tmp_path / "capture")
    assert [[row["header"], *row["payload"]] for row in recorded] == messages
    assert [row["error"] for row in recorded] == [None, "bad_header", None]


def test_count_is_exact(run, push, tmp_path):
    out, _ = run(
        "cdtp",
        "record",
        "--capture",
        "capture",
        "--connect",
        push.endpoint,
        "--count",
        "7",
        "--json",
        feed=(push, [spec("D")] * 50),
    )
    assert json.loads(out.splitlines()[-1])["stats"]["recorded"] == 7
    assert len(rows(tmp_path / "capture")) == 7


def test_idle_runs_from_the_start(run):
    out, _ = run("cdtp", "record", "--capture", "c", "--bind", "tcp://127.0.0.1:*", "--idle", "0.2", "--json")
    assert json.loads(out.splitlines()[-1])["reason"] == "idle"


def test_segments_are_cut_by_size(run, push, tmp_path):
    out, _ = run(
        *("cdtp", "record", "--capture", "c", "--connect", push.endpoint),
        *("--count", "10", "--segment-bytes", "3000", "--json"),
        feed=(push, [spec("D", bytes(1000))] * 10),
    )
    assert json.loads(out.splitlines()[-1])["stats"]["segments"] == 5
    assert len(list((tmp_path / "c").glob("*.parquet"))) == 5


def test_the_oldest_segments_are_deleted(run, push, tmp_path):
    options = ["--count", "10", "--segment-bytes", "1500", "--keep-bytes", "1", "--keep-days", "1"]
    run(
        "cdtp",
        "record",
        "--capture",
        "c",
        "--connect",
        push.endpoint,
        *options,
        feed=(push, [spec("D", bytes(1000))] * 10),
    )
    assert [row["seq"] for row in rows(tmp_path / "c")] == [9]


def test_what_is_private_is_for_its_user_alone(run, push, tmp_path):
    arguments = ("cdtp", "record", "--capture", "c", "--connect", push.endpoint, "--count", "1", "--private")
    run(*arguments, feed=(push, [spec("D", b"a")]))
    made = [tmp_path / "c", *(tmp_path / "c").rglob("*")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in made if path.is_dir()} == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in made if not path.is_dir()} == {0o600}


def test_little_space_is_told(run):
    options = ["--idle", "0.3", "--warn-free-bytes", str(1 << 60)]
    _, err = run("cdtp", "record", "--capture", "c", "--bind", "tcp://127.0.0.1:*", *options)
    (warning,) = [line for line in err.splitlines() if "GiB left" in line]
    assert warning.startswith("trunkline: WARNING: ")


def test_segments_are_published_by_age(start, push, tmp_path):
    command = start(
        *("cdtp", "record", "--capture", "c", "--connect", push.endpoint, "--json"),
        *("--segment-seconds", "0.2", "--stats-interval", "0.1"),
    )
    command.ready()
    push.send(spec("D"))
    while command.event("stats")["stats"]["segments"] == 0:
        pass
    assert len(rows(tmp_path / "c")) == 1


def test_a_signal_drains_what_has_arrived(start, push, tmp_path):
    command = start(
        "cdtp", "record", "--capture", "c", "--connect", push.endpoint, "--json", "--stats-interval", "0.05"
    )
    command.ready()
    push.send(*[spec("D")] * 500)
    # Once its context has ended, all of it is with the system, and so has arrived.
    push.socket.close(linger=-1)
    push.socket.context.term()
    while not command.event("stats")["stats"]["received"]:
        pass
    command.signal(signal.SIGTERM)
    rest, _ = command.end()
    stopped = json.loads(rest.splitlines()[-1])
    assert stopped["reason"] == "signal"
    assert stopped["stats"]["durable"] == stopped["stats"]["received"] == 500
    assert len(rows(tmp_path / "c")) == 500


def test_a_second_recorder_is_refused(start, run):
    command = start("cdtp", "record", "--capture", "c", "--bind", "tcp://127.0.0.1:*", "--json")
    command.ready()
    out, err = run("cdtp", "record", "--capture", "c", "--bind", "tcp://127.0.0.1:*", "--json", returncode=1)
    assert out == ""
    assert err.startswith("trunkline: error: ")
    assert len(err.splitlines()) == 1


def test_a_later_run_goes_on(run, push, tmp_path):
    for _ in range(2):
        run("cdtp", "record", "--capture", "c", "--connect", push.endpoint, "--count", "1", feed=(push, [spec("D")]))
    assert [row["seq"] for row in rows(tmp_path / "c")] == [0, 1]


def test_idle_runs_from_the_last_message(start, push):
    command = start("cdtp", "record", "--capture", "c", "--connect", push.endpoint, "--idle", "4", "--json")
    command.ready()
    # In the middle of the time, so that a look at its end comes long after it.
    time.sleep(1.5)
    push.send(spec("D"))
    sent = time.monotonic()
    while command.event()["event"] != "stopped":
        pass
    assert 3.9 < time.monotonic() - sent < 5.5


def test_it_says_what_it_has_counted(run, push):
    many = batch("D", *([number, {}, []] for number in range(50)))
    _, err = run(
        "cdtp", "record", "--capture", "c", "--connect", push.endpoint, "--count", "2", feed=(push, [many] * 2)
    )
    last = err.splitlines()[-1]
    assert last.startswith("trunkline: stopped (count): records 100; received 2; ")
    assert last.endswith("; 100 records in 2 wire messages recorded")
    _, err = run(
        "cdtp", "record", "--capture", "d", "--connect", push.endpoint, "--count", "1", feed=(push, [spec("D")])
    )
    assert err.splitlines()[-1].startswith("trunkline: stopped (count): received 1; ")
    assert err.splitlines()[-1].endswith("; 1 message recorded")


def test_sender_recorder_and_receiver_count_the_same_records(run, start, tmp_path):
    (tmp_path / "lines").write_bytes(b"x\n" * 100)
    recorder = start("cdtp", "record", "--capture", "c", "--bind", "tcp://127.0.0.1:*", "--count", "3", "--json")
    (endpoint,) = recorder.ready()["endpoints"]
    with (tmp_path / "lines").open() as file:
        _, err = run("cdtp", "send", "--name", "D", "--header", "2", "--connect", endpoint, "-", stdin=file.read())
    assert err.splitlines()[-1].endswith("; 104 records sent")
    (sender,) = recorder.event("stopped")["stats"]["senders"].values()
    assert sender["messages"] == 104


@pytest.mark.parametrize(
    "dialling",
    [["cdtp", "record", "--capture", "none"], ["mc0", "subscribe", "topic"], ["dcp", "worker", "echo", "--echo"]],
)
def test_what_nobody_answers_is_said(start, dialling):
    command = start(*dialling, "--connect", "tcp://no-such-host.invalid:9")
    said = command.logged("WARNING")
    assert (
        "no connection to tcp://no-such-host.invalid:9 yet: still trying (no-such-host.invalid does not resolve)"
        in said
    )
    command.signal(signal.SIGINT)
    command.end()


def test_what_a_run_misses_is_in_the_last_line(run, push):
    """Also what was sent while nothing was recorded: a later recorder continues the runs of the first."""

    def record(*headers, more=()):
        frames = [[header] for header in headers]
        where = ("--capture", "c", "--connect", push.endpoint, "--count", str(len(frames)))
        return run("cdtp", "record", *where, *more, feed=(push, frames))

    _, err = record(header_b(0, BOR), header_b(1), header_b(2))
    assert "missing" not in err.splitlines()[-1]
    out, _ = record(header_b(10), more=["--json"])
    (missing,) = json.loads(out.splitlines()[-1])["missing"]
    assert (missing["sender"], missing["missed"], missing["condition"]) == ("Det", 7, "INCOMPLETE|ABORTED")
    _, err = record(header_b(12), header_b(12, EOR))
    assert err.splitlines()[-1].endswith("; a run of Det: 8 missing (INCOMPLETE|ABORTED)")
