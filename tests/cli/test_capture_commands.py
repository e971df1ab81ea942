"""`trunkline capture`."""

from __future__ import annotations

import base64
import gzip
import json
import re
import signal
import subprocess
import sys
import time

import h5py
import msgpack
import pytest
import zmq

from peers.commands import batch, besides_progress, release, spec

MESSAGES = [
    spec("D.one", b"a", b"\x00\xff", tags={"run": 7}),
    [b"nonsense", b"x"],
    release("D.two", 0, 3, b"abc"),
    batch("D.three", [1, {}, [b"12"]], [2, {}, []]),
]


def lines(messages, step_ns=1_000_000):
    for at, frames in enumerate(messages):
        yield json.dumps(
            {
                "received_at_ns": 1_700_000_000_000_000_000 + at * step_ns,
                "endpoint": "tcp://127.0.0.1:1",
                "frames": [base64.b64encode(frame).decode() for frame in frames],
            }
        )


@pytest.fixture
def recorded(run, tmp_path):
    """A capture of four messages, one of them none."""
    (tmp_path / "recorded.jsonl").write_text("\n".join(lines(MESSAGES)))
    run("capture", "import", "recorded.jsonl", "--capture", "capture")
    return tmp_path / "capture"


def test_import_brings_files_in(run, tmp_path):
    (tmp_path / "one.jsonl").write_text("\n".join(lines(MESSAGES[:1])))
    with gzip.open(tmp_path / "two.jsonl.gz", "wt") as file:
        file.write("\n".join(lines(MESSAGES[1:])))
    out, err = run("capture", "import", "one.jsonl", "two.jsonl.gz", "--capture", "c", "--json")
    assert (json.loads(out), err) == ({"event": "imported", "messages": 4, "capture": "c"}, "")


def test_import_is_all_or_nothing(run, tmp_path):
    (tmp_path / "bad.jsonl").write_text("\n".join([*lines(MESSAGES), '{"frames": []}']))
    out, err = run("capture", "import", "bad.jsonl", "--capture", "c", returncode=1)
    assert out == ""
    assert "bad.jsonl, line 5" in err
    assert list(tmp_path.glob("c/*.parquet")) == []


def test_info_counts_rows(run, recorded):
    out, _ = run("capture", "info", recorded, "--json")
    info = json.loads(out)
    assert info.pop("capture_id")
    assert info == {
        "event": "info",
        "segments": 1,
        "messages": 4,
        "bytes": sum(len(frame) for message in MESSAGES for frame in message),
        "first_received_at_ns": 1_700_000_000_000_000_000,
        "last_received_at_ns": 1_700_000_000_003_000_000,
        "protocols": {"cdtp": 4},
        "errors": {"bad_header": 1},
        "directions": {"in": 4},
    }


def test_info_for_people(run, recorded):
    out, _ = run("capture", "info", recorded)
    assert "messages  4 (4 cdtp)" in out
    assert "errors    1 (1 bad_header)" in out
    assert "2023-11-14 22:13:20.000000 to 2023-11-14 22:13:20.003000, 0.003 s" in out


def test_cat_prints_rows(run, recorded):
    out, _ = run("capture", "cat", recorded, "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert len(rows) == 4
    assert rows[0].pop("capture_id")
    (message,) = rows[0].pop("messages")
    assert (message["sender"], message["tags"], message["payload_sizes"]) == ("D.one", {"run": 7}, [1, 2])
    assert message["payload"] == ["a", {"base64": "AP8="}]
    assert rows[1]["messages"] == []
    assert rows[0] == {
        "event": "row",
        "segment": 0,
        "seq": 0,
        "received_at_ns": 1_700_000_000_000_000_000,
        "protocol": "cdtp",
        "endpoint": "tcp://127.0.0.1:1",
        "peer": None,
        "direction": "in",
        "topic": None,
        "reply_to": None,
        "envelope": [],
        "header": {"base64": base64.b64encode(MESSAGES[0][0]).decode()},
        "payload": ["a", {"base64": "AP8="}],
        "n_head": 0,
        "n_frames": 3,
        "n_bytes": sum(map(len, MESSAGES[0])),
        "error": None,
        "received_at": "2023-11-14T22:13:20.000000000Z",
    }
    assert (rows[1]["header"], rows[1]["error"]) == ("nonsense", "bad_header")


def test_cat_for_people(run, recorded):
    out, _ = run("capture", "cat", recorded, "--limit", "3")
    assert [line.split()[4] for line in out.splitlines()] == ["D.one", "error", "D.two"]


def test_cat_into_a_pipe_that_closes(start, run, tmp_path):
    (tmp_path / "many.jsonl").write_text("\n".join(lines(MESSAGES[:1] * 20_000)))
    run("capture", "import", "many.jsonl", "--capture", "capture")
    command = start("capture", "cat", "capture", "--json")
    command.event("row")
    command.process.stdout.close()
    assert command.process.wait() == 0
    assert command.process.stderr.read() == ""
    command.process.stdout = None


def test_import_takes_what_cat_prints(run, recorded, tmp_path):
    rows = [
        {
            "received_at_ns": 1,
            "protocol": "cdt",
            "topic": "a.b",
            "reply_to": "c",
            "direction": "out",
            "frames": ["e30="],
        },
        {"received_at_ns": 2, "protocol": "dcp", "peer": "AGE=", "frames": ["", "REdCWAE=", "AQ==", "/w=="]},
        {"received_at_ns": 3, "protocol": "dcp", "peer": "YQ==", "frames": ["eA=="]},
    ]
    (tmp_path / "more.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run("capture", "import", "more.jsonl", "--capture", recorded)
    printed, _ = run("capture", "cat", recorded, "--json")
    (tmp_path / "printed.jsonl").write_text('{"event": "ready"}\n' + printed)
    run("capture", "import", "printed.jsonl", "--capture", "again")
    again, _ = run("capture", "cat", "again", "--json")

    def said(text):
        return [dict(json.loads(line), capture_id=None, segment=0) for line in text.splitlines()]

    assert said(again) == said(printed)
    assert len(said(again)) == 7


@pytest.mark.parametrize("form", ["csv", "jsonl", "arrow", "parquet"])
def test_export_is_read_by_others(run, recorded, tmp_path, form):
    import pyarrow as pa
    from pyarrow import csv, parquet

    out, _ = run("capture", "export", recorded, f"out.{form}", "--sender", "D.one", "--payload", "--json")
    assert json.loads(out) == {"event": "exported", "rows": 1, "path": f"out.{form}"}
    path = tmp_path / f"out.{form}"
    if form == "csv":
        (row,) = csv.read_csv(path).to_pylist()
        assert row["payload"] == '["a", "0x00ff"]'
    elif form == "jsonl":
        row = json.loads(path.read_text())
        assert row["payload"] == ["a", "0x00ff"]
    else:
        table = parquet.read_table(path) if form == "parquet" else pa.ipc.open_file(path).read_all()
        (row,) = table.to_pylist()
        assert row["payload"] == [b"a", b"\x00\xff"]
    assert (row["sender"], row["tags"]) == ("D.one", '{"run":7}')


def test_an_export_that_does_not_say_what_it_is(run, recorded):
    _, err = run("capture", "export", recorded, "out.xyz", returncode=2)
    assert "'out.xyz' does not say what it is to be" in err


def test_some_rows_are_printed(run, recorded):
    out, _ = run("capture", "cat", recorded, "--tail", "1", "--format", "{seq} {received_at} {sender} {payload}")
    assert out.startswith("3 2023-11-14T22:13:20.003000000Z ")
    _, err = run("capture", "cat", recorded, "--since", "yesterday", returncode=2)
    assert "--since takes a time" in err
    out, _ = run("capture", "cat", recorded, "--since", "2023-11-14T22:13:20.002", "--head", "1", "--json")
    assert json.loads(out)["seq"] == 2


def test_rows_of_which_a_condition_holds(run, recorded):
    out, _ = run("capture", "cat", recorded, "--where", "tags.run = 7 or error is not null", "--json")
    assert [json.loads(line)["seq"] for line in out.splitlines()] == [0, 1]
    out, _ = run("capture", "export", recorded, "out.jsonl", "--where", "sequence >= 2", "--json")
    assert json.loads(out)["rows"] == 2
    _, err = run("capture", "cat", recorded, "--where", "sender = 'D.one' and sequnce > 1", returncode=2)
    assert "--where: 1:22: no column 'sequnce', did you mean 'sequence'?" in " ".join(err.replace("│", " ").split())
    _, err = run("capture", "replay", recorded, "--bind", "tcp://127.0.0.1:*", "--where", "type >", returncode=2)
    assert "something is missing at the end" in " ".join(err.replace("│", " ").split())


def test_rows_to_come_are_followed(start, recorded, tmp_path):
    command = start("capture", "cat", recorded, "--tail", "1", "--follow", "--json")
    assert command.event("row")["seq"] == 3
    (tmp_path / "more.jsonl").write_text("\n".join(lines(MESSAGES[:2])))
    start("capture", "import", "more.jsonl", "--capture", recorded).end()
    assert [command.event("row")["seq"] for _ in range(2)] == [4, 5]
    command.signal(signal.SIGINT)
    command.process.communicate()


def test_replay_is_bit_exact(start, recorded, pull):
    command = start("capture", "replay", recorded, "--connect", pull.endpoint, "--json")
    assert command.ready()["role"] == "capture.replay"
    assert [pull.receive() for _ in MESSAGES] == MESSAGES
    assert command.event("stopped") == {"event": "stopped", "reason": "eof", "stats": {"sent": 4}}
    command.end()


@pytest.mark.parametrize(
    ("rate", "recorded_s", "least_s"), [("real", 0.2, 0.6), ("10", 0, 0.3), ("10", 1000, 0.3), ("max", 1000, 0)]
)
def test_replay_keeps_time(start, run, dial, tmp_path, rate, recorded_s, least_s):
    (tmp_path / "slow.jsonl").write_text("\n".join(lines(MESSAGES, step_ns=int(recorded_s * 1e9))))
    run("capture", "import", "slow.jsonl", "--capture", "slow")
    command = start("capture", "replay", "slow", "--bind", "tcp://127.0.0.1:*", "--rate", rate, "--json")
    endpoint = command.ready()["endpoints"][0]
    began = time.monotonic()
    socket = dial(zmq.PULL, endpoint)
    # In the recorded time, what is a thousand seconds apart does not come.
    socket.rcvtimeo = 20_000
    assert [socket.recv_multipart() for _ in MESSAGES] == MESSAGES
    assert time.monotonic() - began >= least_s * 0.9


def test_replay_refuses_other_protocols(run, tmp_path):
    row = json.loads(next(lines(MESSAGES))) | {"protocol": "dcp"}
    (tmp_path / "dcp.jsonl").write_text(json.dumps(row))
    run("capture", "import", "dcp.jsonl", "--capture", "c")
    _, err = run("capture", "replay", "c", "--bind", "tcp://127.0.0.1:*", returncode=1)
    assert "only CDTP can be replayed" in err


def test_replay_leaves_out_what_was_sent(run, start, pull, tmp_path):
    out, received = (json.loads(line) for line in lines(MESSAGES[:2]))
    (tmp_path / "both.jsonl").write_text(json.dumps(out | {"direction": "out"}) + "\n" + json.dumps(received))
    run("capture", "import", "both.jsonl", "--capture", "c")
    start("capture", "replay", "c", "--connect", pull.endpoint)
    assert pull.receive() == MESSAGES[1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_replay_is_cut_off_with_130(start, recorded, number):
    command = start("capture", "replay", recorded, "--bind", "tcp://127.0.0.1:*", "--json")
    command.ready()
    command.signal(number)
    began = time.monotonic()
    out, err = command.end(130)
    # It does not linger for a receiver that may come: that would be 5 s.
    assert time.monotonic() - began < 4
    assert out == ""
    # Nothing where it had not begun yet.
    assert re.fullmatch(r"(trunkline: WARNING: replay: \d of \d messages were not sent\n)?", besides_progress(err))


@pytest.mark.parametrize("rate", ["0", "-1", "fast", "nan", "inf"])
def test_a_rate_is_a_number_of_messages(run, rate):
    _, err = run("capture", "replay", "c", "--bind", "tcp://127.0.0.1:*", "--rate", rate, returncode=2)
    assert "--rate is real, max or messages a second" in err


def test_recover_mends_what_a_killed_recorder_left(start, run, push):
    command = start(
        "cdtp", "record", "--capture", "c", "--connect", push.endpoint, "--json", "--stats-interval", "0.05"
    )
    command.ready()
    push.send(*MESSAGES)
    while command.event("stats")["stats"]["durable"] < 4:
        pass
    _, err = run("capture", "recover", "c", returncode=1)
    assert "Traceback" not in err
    command.process.kill()
    command.process.wait()
    out, _ = run("capture", "recover", "c", "--json")
    assert json.loads(out) == {
        "event": "recovered",
        "rows": 4,
        "cut_bytes": 0,
        "segment": 0,
        "damaged": [],
    }
    assert run("capture", "recover", "c")[0] == "nothing to recover\n"


def test_decode_makes_a_table_without_spark(run, recorded, tmp_path):
    from pyarrow import parquet

    out, _ = run("capture", "decode", recorded, "out.parquet", "--tags", "run=bigint", "--json")
    assert json.loads(out) == {"event": "decoded", "rows": 5, "path": "out.parquet"}
    table = parquet.read_table(tmp_path / "out.parquet")
    assert table.column("sender").to_pylist() == ["D.one", None, "D.two", "D.three", "D.three"]
    assert table.column("tag_run").to_pylist() == [7, None, None, None, None]
    assert table.column("error").to_pylist() == [None, "bad_header", None, None, None]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["capture", "out.parquet", "recorded.jsonl"]


def test_decode_overwrites_nothing_unless_told_to(run, recorded, tmp_path):
    precious = tmp_path / "precious.txt"
    precious.write_text("words")
    _, err = run("capture", "decode", recorded, "precious.txt", returncode=1)
    assert err == ("trunkline: error: precious.txt is there already: choose another name, or give --overwrite\n")
    assert precious.read_text() == "words"
    run("capture", "decode", recorded, "precious.txt", "--overwrite")
    assert precious.read_bytes().startswith(b"PAR1")


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["capture", "decode"], "t.parquet"),
        (["spark", "decode", "--protocol", "cdtp"], "t"),
        (["spark", "report"], "r.html"),
    ],
)
def test_a_capture_takes_in_nothing_that_is_no_part_of_it(run, recorded, command, name):
    _, err = run(*command, recorded, f"{recorded}/{name}", returncode=1)
    assert "would be a part of the capture" in err


def test_a_decode_that_fails_leaves_nothing(run, recorded, tmp_path):
    (segment,) = recorded.glob("*.parquet")
    segment.write_bytes(segment.read_bytes()[:1000])
    _, err = run("capture", "decode", recorded, "out.parquet", returncode=1)
    assert len(err.splitlines()) == 1
    assert not list(tmp_path.glob("*out.parquet*"))


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (["--tags", "run"], "--tags takes K=TYPE"),
        (["--tags", "run=int"], "is no type of a tag"),
        (["--tags", "*=bigint"], '"variant"'),
        (["--protocol", "foo"], "'cdtp', 'dcp', 'mc0', 'mtl', 'cdt'"),
        (["--protocol", "dcp", "--tags", "run=bigint"], "leave it out"),
    ],
)
@pytest.mark.parametrize("command", [["capture", "decode"], ["spark", "decode"]], ids=" ".join)
def test_what_cannot_be_decoded_is_wrong_usage(run, recorded, command, wrong, why):
    given = wrong if "--protocol" in wrong else [*wrong, "--protocol", "cdtp"]
    _, err = run(*command, recorded, "out", *given, returncode=2)
    assert why in " ".join(err.split())


def test_capture_alone_loads_no_pyarrow(recorded):
    code = "import sys; sys.modules['pyarrow'] = None; sys.argv = ['trunkline', 'capture', 'cat', sys.argv[1]]\n"
    code += "from trunkline.__main__ import main; main()"
    subprocess.run([sys.executable, "-c", code, recorded], check=True, capture_output=True)


def test_a_run_is_exported_as_hdf5(run, with_runs, tmp_path):
    out, err = run("capture", "export", with_runs, "run.h5", "--run", "run 1", "--sender", "D.two")
    assert (out, besides_progress(err)) == ("3 rows in run.h5\n", "")
    with h5py.File(tmp_path / "run.h5") as file:
        assert file["D.two/BOR/configuration"].attrs["gain"] == 2
        assert file["D.two/data"][:].tobytes() == b"abc"
    _, err = run("capture", "export", with_runs, "run.h5", "--tags", "run=bigint", "--overwrite", returncode=1)
    assert "leave out tags" in err
    assert "run.h5" in {path.name for path in tmp_path.iterdir()}
    assert not list(tmp_path.glob(".run.h5*"))


@pytest.fixture
def with_runs(run, tmp_path):
    """A capture of two runs, one with a gap and without an end."""
    empty = msgpack.packb({})
    messages = [
        release("D.two", 1, 0, msgpack.packb({"gain": 2, "mask": b"\xff"})),
        release("D.two", 0, 1, b"abc"),
        release("D.two", 2, 1, msgpack.packb({"run_id": "run 1"})),
        release("D.two", 1, 0, empty),
        release("D.two", 0, 3, b"abc"),
    ]
    (tmp_path / "recorded.jsonl").write_text("\n".join(lines(messages, step_ns=500_000_000)))
    run("capture", "import", "recorded.jsonl", "--capture", "capture")
    return tmp_path / "capture"


def test_runs_are_listed(run, with_runs):
    out, err = run("capture", "runs", with_runs)
    head, first, second = out.splitlines()
    # What there is none of in any run, as numbers that came again, has no column.
    assert head.split() == [
        *("sender", "run", "id", "condition", "messages", "bytes", "missed", "first", "(UTC)", "took")
    ]
    assert first.split() == [
        *("D.two", "1", "run", "1", "GOOD", "1", "77", "B", "0", "2023-11-14", "22:13:20", "1.0", "s")
    ]
    assert second.split()[:6] == ["D.two", "2", "INCOMPLETE|ABORTED", "1", "34", "B"]
    assert err == ""


def test_runs_are_json_too(run, with_runs):
    first, second = map(json.loads, run("capture", "runs", with_runs, "--json")[0].splitlines())
    assert (first["event"], first["sender"], first["ordinal"], first["run_id"]) == ("run", "D.two", 1, "run 1")
    assert (first["config"], first["metadata"]) == ({"gain": 2, "mask": {"base64": "/w=="}}, {"run_id": "run 1"})
    assert (second["missed"], second["condition"], second["condition_code"]) == (2, "INCOMPLETE|ABORTED", 10)
    assert (second["eor_seq"], second["metadata"]) == (None, None)


def test_names_do_not_reach_the_terminal_as_they_are(run, tmp_path):
    name = "D\x1b[2J\n"
    run_id = msgpack.packb({"run_id": name})
    messages = [release(name, 1, 0, run_id), release(name, 2, 0, run_id)]
    (tmp_path / "recorded.jsonl").write_text("\n".join(lines(messages)))
    run("capture", "import", "recorded.jsonl", "--capture", "capture")
    for command in ("cat", "runs"):
        out, _ = run("capture", command, "capture")
        # Two messages, or a head and a run.
        assert len(out.splitlines()) == 2
        assert "D\\x1b[2J\\n" in out


DCP = [[b"", b"DGBX\x01", b"\x04", b"echo", b"", b"m", b"", b"x"], [b"", b"DGBX\x01", b"\x02"]]


def import_dcp(run, tmp_path):
    rows = [json.loads(line) | {"protocol": "dcp"} for line in lines(DCP)]
    (tmp_path / "dcp.jsonl").write_text("\n".join(map(json.dumps, rows)))
    run("capture", "import", "dcp.jsonl", "--capture", "capture")


def test_decode_takes_the_only_protocol_there_is(run, tmp_path):
    import_dcp(run, tmp_path)
    out, err = run("capture", "decode", "capture", "out.parquet")
    assert (out, err) == ("2 rows in out.parquet\n", "")
    _, err = run("capture", "decode", "capture", "out.parquet", "--tags", "run=bigint", returncode=2)
    assert "tags says nothing of DCP" in " ".join(err.split())


@pytest.mark.usefixtures("recorded")
def test_decode_says_what_else_there_is(run, tmp_path):
    import_dcp(run, tmp_path)
    out, err = run("capture", "decode", "capture", "out.parquet")
    assert out == "5 rows in out.parquet\n"
    assert err == "trunkline: decodes cdtp; --protocol decodes others (2 dcp)\n"
    assert run("capture", "decode", "capture", "dcp.parquet", "--protocol", "dcp") == ("2 rows in dcp.parquet\n", "")


def test_decode_says_where_it_cannot_write(run, recorded):
    _, err = run("capture", "decode", recorded, "/proc/nowhere/out.parquet", returncode=1)
    (line,) = err.splitlines()
    assert "/proc/nowhere: No such file or directory: check the name" in line


@pytest.mark.parametrize(
    "command",
    [
        ["cdtp", "record", "--bind", "tcp://127.0.0.1:*", "--capture", "other"],
        ["capture", "import", "none.jsonl", "--capture", "other"],
        ["capture", "info", "other"],
        ["spark", "decode", "other", "out", "--protocol", "cdtp"],
        ["spark", "report", "other", "out.html"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_what_is_not_a_capture_is_told_before_anything_begins(run, tmp_path, command):
    (tmp_path / "none.jsonl").write_text("")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.txt").write_text("words")
    _, err = run(*command, returncode=1)
    (line,) = err.splitlines()
    assert line.startswith("trunkline: error: other: is not a capture: it holds a.txt")
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["a.txt"]
    assert not list(tmp_path.glob("out*"))
