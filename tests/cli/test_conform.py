"""`trunkline conform`: what it prints, what it takes, and how it ends."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from peers.commands import besides_progress
from peers.faulty.dcp import Broker
from trunkline import Curve, dcp, mtl
from trunkline.cli.app import app

ANY = "tcp://127.0.0.1:*"


@pytest.fixture
def broker():
    with dcp.Broker(bind=ANY, heartbeat_interval_s=1) as broker:
        yield broker.endpoints[0]


@pytest.fixture
def faulty():
    with Broker("drops empty data") as broker:
        yield broker.endpoint


def test_a_broker_of_ours_passes(run, broker):
    out, err = run("conform", "dcp", broker, "--seconds", "40")
    skipped, head, *rows = out.splitlines()
    assert skipped == "DCP-43 skipped: the broker is not encrypted: --curve-server-key says that it is"
    assert head.split() == ["requirement", "result", "about"]
    assert rows == sorted(rows)
    assert {row.split()[1] for row in rows} == {"pass", "skip"}
    assert re.search(r"trunkline: \d+ checks passed, 0 failed, 1 skipped\n", err)


def test_lines_of_json(run, broker):
    only = ("--only", "DCP-14,DCP-26,DCP-43")
    *checks, last = map(json.loads, run("conform", "dcp", broker, *only, "--json")[0].splitlines())
    assert {check["event"] for check in checks} == {"check"}
    assert last == {"event": "conformed", "passed": len(checks) - 1, "failed": 0, "skipped": 1}
    by_id = {check["id"]: check for check in checks}
    assert by_id["DCP-14"]["result"] == "pass"
    assert by_id["DCP-14"]["title"] == "A registration is confirmed with the same message; a refused one with nothing"
    (sent,) = by_id["DCP-14"]["sent"]
    assert sent["peer"] == "worker"
    assert sent["frames"][:3] == ["", {"base64": "REdCWAE="}, {"base64": "AQ=="}]
    assert by_id["DCP-14"]["received"] == by_id["DCP-14"]["sent"]
    assert by_id["DCP-43"]["result"] == "skip"
    assert "--curve-server-key" in by_id["DCP-43"]["reason"]


def test_a_fault_is_printed_and_exits_with_1(run, faulty):
    out, err = run("conform", "dcp", faulty, "--only", "DCP-25,DCP-26,DCP-43", returncode=1)
    assert "DCP-25 failed: Data has any number of parts, empty ones included\n" in out
    failed = out[out.index("DCP-25 failed") : out.index("requirement ")]
    assert re.search(r"^  sent      worker: ∅ · DGBX\\x01 · \\x01 · trunkline.conform", failed, re.MULTILINE)
    assert re.search(r"^  received  worker: ", failed, re.MULTILINE)
    assert re.search(r"^  wanted    data of no, one and several frames", failed, re.MULTILINE)
    assert re.search(r"^  reason    .* came to the worker as ", failed, re.MULTILINE)
    assert err.endswith("1 failed, 1 skipped\n")


def test_a_fault_in_json_exits_with_1(run, faulty):
    out, err = run("conform", "dcp", faulty, "--only", "DCP-25, dcp-14", "--seconds", "40", "--json", returncode=1)
    checks = [json.loads(line) for line in out.splitlines()]
    assert [(check.get("id"), check.get("result")) for check in checks] == [
        ("DCP-14", "pass"),
        ("DCP-25", "fail"),
        (None, None),
    ]
    assert besides_progress(err) == "trunkline: 1 check passed, 1 failed, 0 skipped\n"


def test_a_list_of_what_can_be_judged(run):
    out = CliRunner().invoke(app, ["conform", "dcp", "--list"]).stdout
    assert re.search(r"^DCP-05 +no +clients and workers do this$", out, re.MULTILINE)
    assert re.search(r"^DCP-14 +yes +A registration is confirmed", out, re.MULTILINE)
    listed = [json.loads(line) for line in run("conform", "mtl", "--list", "--json")[0].splitlines()]
    assert len(listed) == 62
    assert {line["judged"] for line in listed} == {True, False}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["conform"], "PROTOCOL"),
        (["conform", "dcp"], "ENDPOINT"),
        (["conform", "dpc", "tcp://127.0.0.1:1"], "did you mean 'dcp'?"),
        (["conform", "dcp", "nowhere"], "does not name its transport"),
        (["conform", "dcp", "inproc://here"], "neither tcp:// nor ipc://"),
        (["conform", "dcp", "tcp://127.0.0.1:99999"], "'99999'"),
        (["conform", "dcp", "tcp://127.0.0.1:1", "--only", "DCP-05"], "cannot be judged from outside"),
        (["conform", "dcp", "tcp://127.0.0.1:1", "--only", "DCP-99"], "no requirement 'DCP-99'"),
        (["conform", "dcp", "tcp://127.0.0.1:1", "--seconds", "0"], "--seconds"),
        (["conform", "dcp", "tcp://127.0.0.1:1", "--target", "t"], "--target is for cdt"),
        (["conform", "dcp", "tcp://127.0.0.1:1", "--curve-secret", "f"], "--curve-server-key"),
        (["conform", "dcp", "tcp://127.0.0.1:1", "--password-file", "f"], "--password-file needs --user"),
        (["conform", "cdt", "nats://127.0.0.1:1"], "give --target"),
        (["conform", "cdt", "nats://127.0.0.1:1", "--target", "a.b"], "not one token"),
        (["conform", "cdt", "tcp://127.0.0.1:1", "--target", "t"], "no URL of a NATS server"),
        (["conform", "chirp", "udp://lab"], "neither the name of a group"),
        (["conform", "chirp", ""], "is empty"),
        (["conform", "chirp", "lab", "--user", "ada"], "CHIRP has no keys"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_exits_with_2(arguments, says):
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert says in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("protocol", "endpoint", "more", "says"),
    [
        ("dcp", "tcp://127.0.0.1:1", (), "tcp://127.0.0.1:1: nothing listens there"),
        ("cdt", "nats://127.0.0.1:1", ("--target", "t"), "tcp://127.0.0.1:1: nothing listens there"),
        ("dcp", "tcp://127.0.0.1:1", ("--user", "ada", "--password-file", "missing"), "missing: No such file"),
    ],
)
def test_an_error_is_a_line(run, protocol, endpoint, more, says):
    out, err = run("conform", protocol, endpoint, *more, returncode=1)
    assert out == ""
    assert err.startswith(f"trunkline: error: {says}")
    assert err.count("\n") == 1


def test_a_login_from_a_file_or_a_variable(run, tmp_path):
    (tmp_path / "password").write_text("lovelace\n")
    only = ("--only", "MTL-17,MTL-20", "--seconds", "40", "--json")
    with mtl.Server(bind=ANY, users={"ada": "lovelace"}) as server:
        given = ("conform", "mtl", server.endpoints[0], "--user", "ada")
        outputs = [
            run(*given, "--password-file", "password", *only)[0],
            run(*given, *only, env={"TRUNKLINE_PASSWORD": "lovelace"})[0],
            run(*given, *only, env={"TRUNKLINE_PASSWORD": "wrong"}, returncode=1)[0],
        ]
    lasts = [json.loads(out.splitlines()[-1]) for out in outputs]
    assert [last["passed"] for last in lasts] == [2, 2, 0]
    # The password is in no line, and nothing to guess it from.
    assert "lovelace" not in "".join(outputs)
    assert {*re.findall(r'(?:response|challenge)\\": \\"([^"\\]*)', "".join(outputs))} == {"...", ""}


def test_keys_of_curve(run, tmp_path):
    run("keygen", "server")
    run("keygen", "client")
    with dcp.Broker(bind=ANY, curve=Curve(tmp_path / "server.key_secret", allow=[tmp_path / "client.key"])) as broker:
        given = ("conform", "dcp", broker.endpoints[0], "--only", "DCP-14,DCP-43", "--seconds", "40")
        keys = ("--curve-server-key", "server.key", "--curve-secret", "client.key_secret")
        last = json.loads(run(*given, *keys, "--json")[0].splitlines()[-1])
        assert (last["passed"], last["failed"], last["skipped"]) == (2, 0, 0)
        _, err = run(*given, returncode=1)
        assert "wants CURVE" in err or "another mechanism" in err
        assert "--curve-server-key" in err
        _, err = run(*given, *keys[:2], returncode=1)
        assert "it may refuse our key or login" in err


def test_a_signal_cuts_it_off_between_lines(start, faulty):
    command = start("conform", "dcp", faulty, "--json")
    for _ in range(3):
        command.event("check")
    command.signal(signal.SIGINT)
    out, err = command.end(130)
    assert out == "" or out.endswith("\n")
    assert besides_progress(err) == ""


def test_a_reader_that_leaves_ends_it_quietly(tmp_path, broker):
    line = f"{sys.executable} -m trunkline conform dcp {broker} --json | head -n 1"
    ran = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert json.loads(ran.stdout)["event"] == "check"
    assert besides_progress(ran.stderr) == ""
