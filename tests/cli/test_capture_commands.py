"""`trunkline capture`: what comes in, and what is there."""

from __future__ import annotations

import base64
import gzip
import json
import signal
import subprocess
import sys
from base64 import b64encode
from datetime import UTC, datetime
from decimal import Decimal

import msgpack
import pytest

from peers.commands import RECORDED, release, spec
from peers.recorded import line, write
from peers.waiting import until
from trunkline import capture, mtl

# What no JSON has, and how it is printed.
PROPERTIES = {"due": datetime(2026, 1, 1, tzinfo=UTC), "prices": [Decimal("1.50"), {"least": Decimal(-3)}]}
PRINTED = {"due": "2026-01-01T00:00:00Z", "prices": ["1.50", {"least": "-3"}]}


def test_import_brings_files_in(run, tmp_path):
    write(tmp_path / "one.jsonl", RECORDED[:1])
    with gzip.open(tmp_path / "two.jsonl.gz", "wt") as file:
        file.writelines(map(line, RECORDED[1:]))
    out, err = run("capture", "import", "one.jsonl", "two.jsonl.gz", "--capture", "c", "--json")
    assert (json.loads(out), err) == ({"event": "imported", "messages": 4, "capture": "c"}, "")


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_import_takes_what_comes_in(start, tmp_path, pack):
    (tmp_path / "file.jsonl").write_text(line(RECORDED[0]))
    command = start("capture", "import", "file.jsonl", "-", "--capture", "c", "--json")
    command.process.stdin.buffer.write(pack("".join(map(line, RECORDED[1:])).encode()))
    command.process.stdin.close()
    command.process.stdin = None
    assert json.loads(command.end()[0])["messages"] == 4


def test_import_of_what_comes_in_names_the_line(run, tmp_path):
    _, err = run("capture", "import", "-", "--capture", "c", returncode=1, stdin=line(RECORDED[0]) + "nonsense\n")
    assert "error: standard input, line 2: not a recorded message" in err
    assert list(tmp_path.glob("c/*.parquet")) == []


def test_import_that_waits_for_more_is_cut_off(start, tmp_path):
    command = start("capture", "import", "-", "--capture", "c")
    command.process.stdin.write(line(RECORDED[0]))
    command.process.stdin.flush()
    until((tmp_path / "c").is_dir)
    command.signal(signal.SIGINT)
    assert command.process.wait(20) == 130
    assert list(tmp_path.glob("c/*.parquet")) == []


def test_import_is_all_or_nothing(run, tmp_path):
    (tmp_path / "bad.jsonl").write_text("".join([*map(line, RECORDED), '{"frames": []}']))
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
        "bytes": sum(len(frame) for message in RECORDED for frame in message),
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
    assert "2023-11-14 22:13:20.000000 to 2023-11-14 22:13:20.003000 UTC, 0.003 s" in out


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
        "header": {"base64": base64.b64encode(RECORDED[0][0]).decode()},
        "payload": ["a", {"base64": "AP8="}],
        "n_head": 0,
        "n_frames": 3,
        "n_bytes": sum(map(len, RECORDED[0])),
        "error": None,
        "received_at": "2023-11-14T22:13:20.000000000Z",
    }
    assert (rows[1]["header"], rows[1]["error"]) == ("nonsense", "bad_header")


def test_a_configuration_is_a_payload_too(run, tmp_path):
    """Its sizes are those of the frames, and without the rest it is what they hold; people see it once."""
    config = msgpack.packb({"gain": 2})
    write(tmp_path / "m.jsonl", [release("D.one", 1, 0, config), release("D.one", 2, 0, config)])
    run("capture", "import", "m.jsonl", "--capture", "c")
    out, _ = run("capture", "cat", "c", "--json")
    bor, eor = (json.loads(line)["messages"][0] for line in out.splitlines())
    assert (bor["config"], bor["payload_sizes"]) == ({"gain": 2}, [len(config)])
    assert (eor["metadata"], eor["payload_sizes"]) == ({"gain": 2}, [len(config)])
    assert run("capture", "cat", "c", "--format", "{payload_bytes}")[0] == f"{len(config)}\n" * 2
    assert run("capture", "cat", "c")[0].count("gain") == 2
    assert "0x" not in run("capture", "cat", "c")[0]
    assert run("capture", "cat", "c", "--format", "{payload_hex}")[0] == f"{config.hex()}\n" * 2


def test_cat_for_people(run, recorded):
    out, _ = run("capture", "cat", recorded, "--limit", "3")
    assert [line.split()[4] for line in out.splitlines()] == ["D.one", "error", "D.two"]


def test_peers_are_shown_as_they_are_asked_for(run, tmp_path):
    ids = {b"worker": "worker", b"\x00k\x8bEg": "0x006b8b4567", b"0x1": "0x307831"}
    text = "".join(line([b"x"], protocol="dcp", peer=peer) for peer in ids)
    (tmp_path / "peers.jsonl").write_text(text)
    run("capture", "import", "peers.jsonl", "--capture", "c")
    assert run("capture", "cat", "c", "--format", "{peer}")[0].split() == list(ids.values())
    for shown in ids.values():
        assert run("capture", "cat", "c", "--peer", shown, "--format", "{peer}")[0] == f"{shown}\n"


@pytest.mark.parametrize("other", ["--tail", "--follow"])
def test_first_rows_are_all_there_is_to_print(run, recorded, other):
    words = {"--tail": ["--tail", "1"], "--follow": ["--follow"]}[other]
    _, err = run("capture", "cat", recorded, "--head", "1", *words, returncode=2)
    assert "exclude each other" in err


def test_cat_into_a_pipe_that_closes(start, run, tmp_path):
    write(tmp_path / "many.jsonl", RECORDED[:1] * 20_000)
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
    # Either flow of MTL, which a name does not distinguish.
    with mtl.Server(
        bind="tcp://127.0.0.1:*", anonymous=True, resources=["jobs"], capture=tmp_path / recorded
    ) as server:
        with mtl.Client(connect=server.endpoints) as client, client.writer("jobs") as writer:
            writer.send(b"build 7", properties=PROPERTIES)
    printed, _ = run("capture", "cat", recorded, "--json")
    (tmp_path / "printed.jsonl").write_text('{"event": "ready"}\n' + printed)
    run("capture", "import", "printed.jsonl", "--capture", "again")
    again, _ = run("capture", "cat", "again", "--json")

    def said(text):
        return [dict(json.loads(line), capture_id=None, segment=0) for line in text.splitlines()]

    assert said(again) == said(printed)
    assert len(said(again)) > 7
    [content] = [row for row in said(again) if row["payload"] == ["build 7"]]
    assert (content["n_head"], content["messages"][0]["properties"]) == (0, PRINTED)


def test_cat_prints_what_mtl_has_and_json_has_not(run, tmp_path):
    with (
        mtl.Server(bind="tcp://127.0.0.1:*", anonymous=True, resources=["jobs"], capture=tmp_path / "c") as server,
        mtl.Client(connect=server.endpoints) as client,
        client.writer("jobs") as writer,
    ):
        writer.send(b"build 7", properties=PROPERTIES)
    words = json.dumps(PRINTED)
    assert f'jobs content 2 {{"properties": {words}}} build 7\n' in run("capture", "cat", "c")[0]
    assert f"content {words}\n" in run("capture", "cat", "c", "--format", "{type} {properties}")[0]


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
    assert "?." not in err
    _, err = run("capture", "replay", recorded, "--bind", "tcp://127.0.0.1:*", "--where", "type >", returncode=2)
    assert "the condition is incomplete" in " ".join(err.replace("│", " ").split())


@pytest.mark.parametrize(
    ("condition", "hint"),
    [
        ('type = "DAT"', "no column '\"DAT\"': text takes single quotes, 'DAT'."),
        ("sender ilike 'x'", "unexpected 'ilike', did you mean 'LIKE'?"),
    ],
)
def test_a_condition_in_other_words_has_a_hint(run, recorded, condition, hint):
    _, err = run("capture", "cat", recorded, "--where", condition, returncode=2)
    assert hint in " ".join(err.split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--type", "BRO"], "--type: no message is 'BRO', did you mean 'BOR'?"),
        (["--type", "nonsense"], "--type: no message is 'nonsense' (choose from cdtp: DAT, BOR, EOR; dcp: register,"),
        (["--service", "echo", "--type", "BOR"], "no message of dcp is 'BOR' (choose from register, ping,"),
        (
            ["--direction", "inn"],
            "Invalid value for '--direction': 'inn' is not one of 'in', 'out': did you mean 'in'?",
        ),
    ],
)
@pytest.mark.parametrize("command", [["cat"], ["replay", "--bind", "tcp://127.0.0.1:*"]], ids=lambda words: words[0])
def test_what_no_message_can_be_is_wrong_usage(run, recorded, command, arguments, said):
    _, err = run("capture", command[0], recorded, *command[1:], *arguments, returncode=2)
    assert said in " ".join(err.split())


def test_lines_of_servers_show_the_peer_and_no_correlation(run, tmp_path):
    head = [b"", b"DGBX\x01", b"\x04", b"echo", b""]
    ours = b"\xa3\xe4\x5c\xb4\x01\x70\xe0\x87" + bytes(8)
    messages = [
        line([*head, ours, b"", b"hi"], protocol="dcp", peer=b"\x00k\x8bEg"),
        line([*head, ours, b"note", b"", b"hi"], protocol="dcp", peer=b"client"),
    ]
    (tmp_path / "dcp.jsonl").write_text("".join(messages))
    run("capture", "import", "dcp.jsonl", "--capture", "c")
    first, second = run("capture", "cat", "c")[0].splitlines()
    assert first.endswith(" in  0x006b8b4567 echo request hi")
    assert second.endswith(' in  client echo request {"metadata": ["note"]} hi')
    # Programs have all of it.
    (said, _) = map(json.loads, run("capture", "cat", "c", "--json")[0].splitlines())
    assert said["messages"][0]["metadata"] == [{"base64": b64encode(ours).decode()}]


NOTHING = "trunkline: no message in capture matches the selection"


@pytest.mark.parametrize(
    "arguments",
    [
        ("cat", "capture", "--sender", "nobody"),
        ("cat", "capture", "--where", "sequence > 99", "--json"),
        ("decode", "capture", "out.parquet", "--sender", "nobody"),
        ("export", "capture", "out.csv", "--since", "2030-01-01"),
        ("replay", "capture", "--bind", "tcp://127.0.0.1:*", "--sender", "nobody"),
        ("report", "capture", "out.html", "--type", "BOR"),
    ],
    ids=" ".join,
)
def test_that_nothing_matches_is_said_and_is_no_error(run, recorded, arguments):
    assert recorded.name == "capture"
    _, err = run("capture", *arguments)
    assert [line for line in err.splitlines() if "matches" in line] == [NOTHING]


def test_what_matches_is_not_said(run, recorded):
    assert run("capture", "cat", recorded, "--sender", "D.one")[1] == ""
    assert run("capture", "cat", recorded, "--sender", "D.one", "--head", "0")[1] == ""


def test_json_within_a_table_of_json_lines_is_no_text(run, recorded, tmp_path):
    run("capture", "export", recorded, "one.jsonl", "--sender", "D.one")
    run("capture", "export", recorded, "two.jsonl", "--sender", "D.one", "--tags", "run=json,other=string,*=json")
    (row,), (typed,) = (
        [json.loads(line) for line in (tmp_path / name).read_text().splitlines()] for name in ("one.jsonl", "two.jsonl")
    )
    assert row["tags"] == {"run": 7}
    assert (typed["tag_run"], typed["tag_other"], typed["tags"]) == (7, None, {})
    run("capture", "export", recorded, "bad.jsonl", "--where", "error is not null")
    assert json.loads((tmp_path / "bad.jsonl").read_text())["tags"] is None


def test_rows_to_come_are_followed(start, recorded, tmp_path):
    command = start("capture", "cat", recorded, "--tail", "1", "--follow", "--json")
    assert command.event("row")["seq"] == 3
    write(tmp_path / "more.jsonl", RECORDED[:2])
    start("capture", "import", "more.jsonl", "--capture", recorded).end()
    assert [command.event("row")["seq"] for _ in range(2)] == [4, 5]
    command.signal(signal.SIGINT)
    command.process.communicate()


def test_what_is_deleted_before_it_is_followed_is_said(start, recorded, tmp_path):
    followed = [
        start("capture", "cat", recorded, "--tail", "1", "--follow", "--json"),
        start("capture", "cat", recorded, "--sender", "D.one", "--tail", "1", "--follow", "--json"),
        start("capture", "report", recorded, "page.html", "--follow", "0.2", "--json"),
    ]
    first = [command.event("report" if "report" in command.process.args else "row") for command in followed]
    assert first[0]["seq"] == 3
    for command in followed:
        command.signal(signal.SIGSTOP)
    write(tmp_path / "more.jsonl", RECORDED[:2])
    for _ in range(3):
        start("capture", "import", "more.jsonl", "--capture", recorded).end()
    for number in (1, 2):
        (recorded / f"{number:010}.parquet").unlink()
    for command in followed:
        command.signal(signal.SIGCONT)
    assert followed[0].event("row")["seq"] == 8
    followed[1].event("row")
    followed[2].event("report")
    for command, more in zip(followed, ("; 4 messages", "", ""), strict=True):
        command.signal(signal.SIGINT)
        _, err = command.process.communicate()
        assert f"{recorded}: 2 segments were deleted before being read: 1, 2{more}\n" in err


def test_recover_mends_what_a_killed_recorder_left(start, run, push):
    command = start(
        "cdtp", "record", "--capture", "c", "--connect", push.endpoint, "--json", "--stats-interval", "0.05"
    )
    command.ready()
    push.send(*RECORDED)
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


def test_capture_alone_loads_no_pyarrow(recorded):
    code = "import sys; sys.modules['pyarrow'] = None; sys.argv = ['trunkline', 'capture', 'cat', sys.argv[1]]\n"
    code += "from trunkline.__main__ import main; main()"
    subprocess.run([sys.executable, "-c", code, recorded], check=True, capture_output=True)


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
    assert line.startswith("trunkline: error: other: is not a capture: it contains a.txt")
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["a.txt"]
    assert not list(tmp_path.glob("out*"))


def test_what_the_system_says_has_no_number_beside_it(run):
    assert "os error" not in run("capture", "info", "nowhere", returncode=1)[1]


def test_a_capture_without_runs_says_so(run, tmp_path):
    write(tmp_path / "no-runs.jsonl", [spec("D")], step_ns=1)
    run("capture", "import", "no-runs.jsonl", "--capture", "c")
    assert run("capture", "runs", "c") == ("", "trunkline: no runs in c\n")
    for table in ("gaps", "requests", "topics", "contents", "rollout"):
        assert run("capture", table, "c") == ("", f"trunkline: no {table} in c\n")
    assert " UTC, 0.000 s" in run("capture", "info", "c")[0]


def test_names_of_files_need_not_be_text(run, tmp_path):
    here = tmp_path / "b\udcff"
    capture.import_(write(tmp_path / "m.jsonl", RECORDED), here)
    for suffix in ("csv", "arrow", "parquet", "jsonl"):
        out, _ = run("capture", "export", here, f"c\udcff.{suffix}", "--json")
        assert json.loads(out)["path"] == {"base64": base64.b64encode(b"c\xff." + suffix.encode()).decode()}
        assert (tmp_path / f"c\udcff.{suffix}").stat().st_size > 0
    run("capture", "decode", here, "d\udcff.parquet")
    run("capture", "report", here, "d\udcff.html")
    assert "b\\udcff" in (tmp_path / "d\udcff.html").read_text()


def test_all_protocols_go_to_one_table(run, tmp_path):
    head = [b"", b"DGBX\x01", b"\x05"]
    messages = [line([*head, b"client", b"", b"", b"hi"], protocol="dcp", peer=b"client"), line(RECORDED[0])]
    (tmp_path / "both.jsonl").write_text("".join(messages))
    run("capture", "import", "both.jsonl", "--capture", "c")
    out, _ = run("capture", "export", "c", "-", "--format", "jsonl", "--protocol", "*")
    assert {json.loads(row)["protocol"] for row in out.splitlines()} == {"cdtp", "dcp"}
    out, _ = run("capture", "decode", "c", "out.parquet", "--protocol", "*", "--json")
    assert json.loads(out)["rows"] == 2
    _, err = run("capture", "decode", "c", "other.parquet", "--protocol", "*", "--sender", "D", returncode=1)
    assert "sender: looks into messages of one protocol" in err
