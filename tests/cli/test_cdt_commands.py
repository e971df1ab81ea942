"""`trunkline nats` and `trunkline cdt`, as processes."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from peers import nats
from peers.forked import started
from trunkline import ConfigError, capture, cdt


def command(*arguments: object, **environment: str) -> subprocess.Popen[str]:
    return started(list(map(str, arguments)), **environment)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with nats.server(tmp_path_factory.mktemp("nats")) as running:
        yield running


@pytest.fixture
def run(server):
    """Runs a command to its end: its exit code, what it prints, and what it says."""
    started = []

    def run(*arguments: object, given: str | None = None) -> tuple[int, str, str]:
        process = command(*arguments, NATS_URL=server.url)
        started.append(process)
        out, err = process.communicate(given, timeout=60)
        return process.returncode, out, err

    yield run
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def begin(server):
    """Starts a command that runs on, once it is ready."""
    started = []

    def begin(*arguments: object, **environment: str) -> subprocess.Popen[str]:
        process = command(*arguments, "--json", **{"NATS_URL": server.url, **environment})
        started.append(process)
        ready = json.loads(process.stdout.readline())
        assert ready["event"] == "ready", ready
        process.ready = ready
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str], how: int = signal.SIGTERM) -> dict[str, object]:
    process.send_signal(how)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_server_runs_until_a_signal(begin, tmp_path, how):
    process = begin("nats", "--port", 0, "--store", tmp_path / "store")
    (url,) = process.ready["endpoints"]
    assert process.ready["role"] == "nats"
    with cdt.Target("cdp", servers=url) as target:
        assert target.put("a", "e", b"x")
    stopped = ended(process, how)
    assert (stopped["event"], stopped["reason"]) == ("stopped", "signal")
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), 1)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends it there")
def test_a_server_ends_with_its_command_however_that_ends(begin):
    process = begin("nats", "--port", 0)
    port = int(process.ready["endpoints"][0].rpartition(":")[2])
    process.kill()
    process.wait()
    end = time.monotonic() + 20
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return
        time.sleep(0.01)
    pytest.fail("nats-server outlives its command")


def test_a_port_that_is_taken_is_one_line(run, server):
    code, out, err = run("nats", "--port", server.port)
    assert (code, out) == (1, "")
    assert "address already in use" in err
    assert len(err.splitlines()) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="files are locked otherwise there")
def test_a_store_has_one_server(run, begin, tmp_path):
    store = tmp_path / "store"
    first = begin("nats", "--port", 0, "--store", store)
    code, out, err = run("nats", "--port", 0, "--store", store)
    assert (code, out) == (1, "")
    assert err == f"trunkline: error: {store} is in use by another server\n"
    ended(first)
    ended(begin("nats", "--port", 0, "--store", store))


@pytest.mark.skipif(sys.platform == "win32", reason="names of files are others there")
def test_a_store_has_the_name_that_was_given(begin, tmp_path):
    # In the configuration of nats-server a backslash begins an escape, and a quote ends the name.
    scratch = tmp_path / 'tmp\\Up"'
    scratch.mkdir()
    for name in ('a"x', "a\\nb", "a\\Ub", "a\\", "a\nb\x01é", "$HOME #{;}"):
        store = tmp_path / name
        ended(begin("nats", "--port", 0, "--store", store, TMPDIR=str(scratch)))
        assert (store / "jetstream").is_dir()
    ended(begin("nats", "--port", 0, TMPDIR=str(scratch)))


@pytest.mark.skipif(sys.platform == "win32", reason="the server is a script of the shell")
def test_the_last_line_of_nats_server_is_shown_if_it_marks_no_error(tmp_path):
    script = tmp_path / "bin" / "nats-server"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\necho 'nats-server: line 2: invalid escape'\nexit 1\n")
    script.chmod(0o755)
    program = "import sys; sys.executable = sys.argv.pop(1); from trunkline.__main__ import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", program, script.with_name("python"), "nats", "--port", "0"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = "trunkline: error: nats-server is not running: nats-server: line 2: invalid escape\n"
    assert (ended.returncode, ended.stderr) == (1, said)


@pytest.mark.parametrize("login", ["", "ada:sesame@"])
def test_nats_url_names_the_servers_of_a_cluster(server, login):
    with socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))
        host = server.url.removeprefix("nats://")
        urls = f"nats://{login}127.0.0.1:{dead.getsockname()[1]}, nats://{login}{host},"
        process = command("cdt", "pull", "a", "e", "--target", "none", "--timeout", "0.5", NATS_URL=urls)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (1, "trunkline: error: no target named none is running\n")


@pytest.mark.req("CDT-38", "CDT-39", "CDT-40")
def test_a_configuration_from_its_file_to_its_endpoint(run, begin, tmp_path):
    store = tmp_path / "configs.db"
    target = begin("cdt", "target", "cdp", "--store", store, "--replica-id", "r1")
    assert target.ready["role"] == "cdt.target"
    watching = begin("cdt", "watch", "app-1", "--count", 3)
    given = tmp_path / "config.json"
    given.write_bytes(b"\x00\xff\n")
    to = ("--target", "cdp", "--json")
    code, out, err = run("cdt", "put", "app-1", "e-1", given, "--content-type", "raw", *to)
    stored = json.loads(out)
    assert (code, stored["event"], err) == (0, "stored", "")
    code, out, _ = run("cdt", "pull", "app-1", "e-1", *to)
    assert json.loads(out) == {
        "event": "config",
        "config_id": stored["config_id"],
        "content_type": "raw",
        "status_code": 200,
        "reason_phrase": "OK",
        "content": {"base64": "AP8K"},
    }
    code, _, _ = run("cdt", "pull", "app-1", "e-1", "--target", "cdp", "--output", tmp_path / "got")
    assert (code, (tmp_path / "got").read_bytes()) == (0, b"\x00\xff\n")
    code, out, _ = run("cdt", "put", "app-1", "e-1", "-", *to, "--config-id", "v2", given="second")
    assert json.loads(out) == {"event": "stored", "config_id": "v2"}
    applying = command("cdt", "put", "app-1", "e-9", given, *to, "--confirm", "applied", "--timeout", 30)
    applying.kill()
    applying.communicate()
    assert run("cdt", "applied", "app-1", "e-1", stored["config_id"], "--json")[1] == (
        json.dumps({"event": "sent", "config_id": stored["config_id"]}) + "\n"
    )
    out, _ = watching.communicate(timeout=60)
    events = [json.loads(line) for line in out.splitlines()]
    kinds = [event["event"] for event in events]
    assert kinds[-1] == "stopped"
    assert sorted(kinds[:3]) == ["new_available", "new_available", "updated"]
    assert events[0] == {
        "event": "new_available",
        "app_version_name": "app-1",
        "endpoint_id": "e-1",
        "config_id": stored["config_id"],
        "originator": "cdp",
        "originator_replica_id": "r1",
        "timestamp_ms": events[0]["timestamp_ms"],
    }
    code, out, _ = run("cdt", "rollback", "app-1", "e-1", stored["config_id"], *to)
    assert json.loads(out) == {"event": "stored", "config_id": stored["config_id"]}
    _, out, _ = run("cdt", "history", "app-1", "e-1", "--store", store, "--json")
    assert [json.loads(line)["config_id"] for line in out.splitlines()] == [
        stored["config_id"],
        "v2",
        stored["config_id"],
    ]
    _, out, _ = run("cdt", "status", "app-1", "--store", store, "--json")
    row = json.loads(out)
    assert (row["endpoint_id"], row["current"]) == ("e-1", stored["config_id"])
    _, out, _ = run("cdt", "status", "app-1", "--store", store)
    assert out.splitlines()[0].split() == ["endpoint_id", "current", "applied", "since"]
    stats = ended(target)["stats"]
    assert (stats["pushes"], stats["pulls"], stats["configs"]) == (3, 2, 2)


@pytest.mark.req("CDT-30", "CDT-35")
def test_what_goes_wrong_is_one_line_and_an_exit_code(run, begin, tmp_path):
    code, out, err = run("cdt", "pull", "app-1", "e-1", "--target", "nobody")
    assert (code, out) == (1, "")
    assert "no target named nobody is running" in err
    begin("cdt", "target", "cdp", "--store", tmp_path / "configs.db")
    for arguments, code, words in [
        (("pull", "app-1", "e-1", "--target", "cdp"), 1, "404 Not Found: the configuration of e-1 (app-1)"),
        (
            ("rollback", "app-1", "e-1", "unknown", "--target", "cdp"),
            1,
            "404 this endpoint never had unknown: configuration unknown of e-1 (app-1)",
        ),
        (
            ("applied", "app-1", "e-1", "unknown", "--target", "cdp"),
            1,
            "404 Not Found: configuration unknown of e-1 (app-1)",
        ),
        (("pull", "", "e-1", "--target", "cdp"), 1, "app_version_name must not be empty"),
        (("pull", "app-1", "e-1", "--target", "a.b"), 1, "target must be one token"),
        (("put", "app-1", "e-1", tmp_path / "none", "--target", "cdp"), 1, "none"),
        (("status", "app-1", "--store", tmp_path / "none.db"), 1, "none.db"),
        (
            ("pull", "app-1", "e-1", "--target", "cdp", "--nats", "nats://127.0.0.1:1"),
            1,
            "no NATS server answers there",
        ),
        (
            ("put", "app-1", "e-1", __file__, "--target", "cdp", "--confirm", "applied", "--timeout", 1),
            1,
            ", but nobody reported it applied within 1.0 s",
        ),
        (("pull", "app-1", "e-1", "--target", "cdp", "--nats", "http://127.0.0.1:1"), 1, "not a URL of a NATS server"),
        (("pull", "app-1", "e-1", "--target", "cdp", "--creds", tmp_path / "no.creds"), 1, "no.creds"),
        (("pull", "app-1", "e-1", "--target", "cdp", "--creds", __file__), 1, "is not a NATS credentials file"),
        (("pull", "app-1", "e-1", "--target", "cdp", "--tls-ca", tmp_path / "no.pem"), 1, "no.pem"),
        (("record", "--capture", tmp_path / "runs", "--nats", "nats://127.0.0.1:1"), 1, "no NATS server answers there"),
        (("pull", "app-1"), 2, "Missing argument"),
    ]:
        seen, out, err = run("cdt", *arguments)
        assert (seen, out) == (code, ""), (arguments, err)
        assert words in err, arguments
        assert code == 2 or len(err.splitlines()) == 1, err
    assert not (tmp_path / "none.db").exists()


def test_what_others_say_moves_no_cursor(run, server, tmp_path):
    clear, shown = "\x1b[2J", r"\x1b[2J"

    class Store(cdt.MemoryStore):
        def get(self, app_version_name, endpoint_id, config_id=None):
            if endpoint_id == "e-1":
                raise ConfigError(409, f"no{clear}")
            return super().get(app_version_name, endpoint_id, config_id)

        def rollback(self, _app_version_name, _endpoint_id, config_id):
            return cdt.Config(f"{config_id}{clear}", "t", b"")

    watching = command("cdt", "watch", "--count", 1, NATS_URL=server.url)
    try:
        assert "Ctrl-C stops" in watching.stderr.readline()
        with (
            cdt.Target("odd", servers=server.url, store=Store()) as target,
            cdt.Source("cmx", target="odd", servers=server.url) as source,
        ):
            source.report_applied(f"a{clear}", f"e{clear}", f"c{clear}")
            assert watching.communicate(timeout=60)[0] == f"updated a{shown} e{shown} c{shown} by cmx\n"
            assert (
                run("cdt", "pull", "a", "e-1", "--target", "odd")[2]
                == f"trunkline: error: 409 no{shown}: the configuration of e-1 (a)\n"
            )
            target.put("a", "e-2", b"{}", config_id=f"v{clear}")
            _, _, err = run("cdt", "pull", "a", "e-2", "--target", "odd", "--output", tmp_path / "got")
            assert err == f"trunkline: v{shown}: 2 bytes in {tmp_path / 'got'}\n"
            code, out, _ = run("cdt", "rollback", "a", "e-2", "v", "--target", "odd")
            assert (code, out) == (0, f"v{shown}\n")
    finally:
        watching.kill()
        watching.wait()


def test_records_a_whole_deployment(begin, server, tmp_path):
    recording = begin("cdt", "record", "--capture", tmp_path / "runs", "--count", 5)
    with (
        cdt.Target("cdp", servers=server.url) as target,
        cdt.Source("cmx", target="cdp", servers=server.url, replica_id="r7") as source,
    ):
        config_id = target.put("app-1", "e-1", b"{}")
        source.pull("app-1", "e-1")
        source.report_applied("app-1", "e-1", config_id)
        source.pull("app-1", "e-1")
    out, err = recording.communicate(timeout=60)
    assert recording.returncode == 0, err
    stopped = json.loads(out.splitlines()[-1])
    assert (stopped["reason"], stopped["stats"]["recorded"], stopped["stats"]["errors"]) == ("count", 5, {})
    assert (stopped["stats"]["accepted"], stopped["stats"]["dropped"]) == (5, {})
    rows = [*capture.open(tmp_path / "runs").rows()]
    # The event is on a connection of its own: it may be passed on after what was asked at once.
    kinds = [row["topic"].rpartition(".")[2] for row in rows]
    kinds.remove("ConfigNewAvailable")
    assert kinds == [
        "ConfigRequest",
        "ConfigResponse",
        "ConfigUpdated",
        "ConfigRequest",
    ]
    of_kind = {row["topic"].rpartition(".")[2]: row for row in rows}
    assert of_kind["ConfigRequest"]["reply_to"] == "kaa.v1.replica.r7.cmx2cdp.ConfigResponse"
    assert all(row["protocol"] == "cdt" and row["direction"] == "in" and row["envelope"] == [] for row in rows)
    assert json.loads(of_kind["ConfigNewAvailable"]["payload"][0])["configId"] == config_id


@pytest.mark.parametrize(
    ("who", "words"),
    [("recorder", ("record", "--capture", "runs")), ("target", ("target", "cdp", "--store", "c.db"))],
    ids=["record", "target"],
)
def test_each_connection_is_a_line_of_the_log(tmp_path, who, words):
    with nats.server(tmp_path / "nats") as server:
        where = [tmp_path / word if word in ("runs", "c.db") else word for word in words]
        process = command("cdt", *where, NATS_URL=server.url)
        try:
            assert "Ctrl-C stops" in process.stderr.readline()
            line = f"trunkline: {who}: {server.url} connected\n"
            assert process.stderr.readline() == line
            server.restart()
            assert f"trunkline: {who}: {server.url} disconnected\n" in iter(process.stderr.readline, "")
            assert line in iter(process.stderr.readline, "")
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "words",
    [("watch",), ("record", "--capture", "runs"), ("target", "cdp", "--store", "c.db", "--capture", "runs")],
    ids=["watch", "record", "target"],
)
def test_a_signal_ends_who_still_connects(tmp_path, words, how):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = [tmp_path / word if word in ("runs", "c.db") else word for word in words]
        url = f"nats://127.0.0.1:{silent.getsockname()[1]}"
        process = command("cdt", *where, "--nats", url)
        try:
            silent.settimeout(60)
            with silent.accept()[0]:
                begun = time.monotonic()
                process.send_signal(how)
                out, err = process.communicate(timeout=60)
        finally:
            process.kill()
            process.wait()
    # The peer is silent there, and a role gives up after 5 s.
    assert time.monotonic() - begun < 4
    assert (process.returncode, out, err) == (0, "", "trunkline: stopped (signal)\n")


def test_what_is_said_to_be_json_is(run, tmp_path):
    broken = tmp_path / "broken.json"
    broken.write_text("{broken")
    to = ("--target", "none", "--timeout", "0.5")
    for arguments, given in (((broken,), None), (("-", "--content-type", "application/json"), "{broken")):
        code, _, err = run("cdt", "put", "app", "e", *arguments, *to, given=given)
        assert (code, len(err.splitlines())) == (1, 1)
        assert "is not valid JSON: Expecting property name" in err
    for arguments, given in (((broken, "--content-type", "text/plain"), None), (("-",), "{broken")):
        _, _, err = run("cdt", "put", "app", "e", *arguments, *to, given=given)
        assert "no target named none" in err


@pytest.mark.parametrize("words", [("pull", "a", "e"), ("put", "a", "e", "-"), ("rollback", "a", "e", "v")])
def test_the_time_for_an_answer_is_that_for_a_server_too(run, words):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"nats://127.0.0.1:{silent.getsockname()[1]}"
        began = time.monotonic()
        code, out, err = run("cdt", *words, "--target", "cdp", "--timeout", "0.1", "--nats", url)
    # A role gives up after 5 s.
    assert time.monotonic() - began < 4
    assert (code, out) == (1, "")
    assert "no NATS server answers there" in err


def test_no_secret_is_printed_or_kept(run, begin, tmp_path):
    with nats.server(tmp_path / "nats", 'authorization { user: "ada", password: "very-secret" }') as locked:
        url = f"nats://ada:very-secret@127.0.0.1:{locked.port}"
        recording = begin("cdt", "record", "--capture", tmp_path / "runs", "--nats", url)
        assert "very-secret" not in json.dumps(recording.ready)
        with cdt.Target("cdp", servers=url) as target:
            target.put("app-1", "e-1", b"{}")
            assert "very-secret" not in repr(target)
        ended(recording)
        for file in Path(tmp_path / "runs").rglob("*"):
            assert not file.is_file() or b"very-secret" not in file.read_bytes()
        wrong = url.replace("very-secret", "other-secret")
        code, out, err = run("cdt", "record", "--capture", tmp_path / "more", "--nats", wrong)
        assert (code, out) == (1, "")
        assert "uthorization" in err
        assert "secret" not in err
