"""The units start what there is, listen to signals as they say, and the container file takes what there is."""

import functools
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNITS = ROOT / "packaging" / "systemd"
SERVICES = sorted(UNITS.glob("*.service"))
PROGRAM = "/opt/trunkline/bin/trunkline"


def settings(unit):
    return dict(re.findall(r"^([A-Z]\w+)=(.*)$", unit.read_text(), re.MULTILINE))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def start(tmp_path):
    """Starts what a unit does, with its state in a folder of the test; a port of its own takes the place of the unit's."""
    running = []

    def start(name, **environment):
        unit = settings(UNITS / f"{name}.service")
        options = unit["Environment"].strip('"').removeprefix("OPTIONS=").replace("%i", "packaging")
        options = re.sub(r"(tcp://127\.0\.0\.1:)\d+", rf"\g<1>{free_port()}", options)
        line = unit["ExecStart"].replace("$OPTIONS", options).replace("${STATE_DIRECTORY}", str(tmp_path))
        words = shlex.split(line.replace("/etc/trunkline", str(tmp_path)))
        assert words[0] == PROGRAM
        process = subprocess.Popen(
            [sys.executable, "-m", "trunkline", *words[1:]],
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env={**os.environ, **environment},
        )
        running.append(process)
        assert "Ctrl-C stops" in process.stderr.readline()
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd")
def test_systemd_takes_the_units(tmp_path):
    units = tmp_path / "units"
    shutil.copytree(UNITS, units)
    for unit in list(units.glob("*.service")):
        text = unit.read_text().replace(PROGRAM, "/bin/true")  # verify looks whether it is there
        for name in {unit.name, unit.name.replace("@", "@lab")}:
            unit.with_name(name).write_text(text)
    names = sorted(map(str, units.glob("*.service")))
    assert len(names) == len(SERVICES) + 1
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *names],
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{units}:"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (verified.returncode, verified.stderr) == (0, "")


@pytest.mark.parametrize("name", ["trunkline-cdtp-record@", "trunkline-dcp-broker"])
def test_a_role_of_a_unit_ends_in_order(start, name):
    process = start(name)
    process.terminate()
    assert process.wait(timeout=30) == 0


@pytest.mark.parametrize("is_abstract", [False, True])
def test_a_role_of_a_unit_says_when_it_is_ready_and_when_it_stops(start, tmp_path, is_abstract):
    """As `Type=notify` wants it: systemd starts what comes after it then, and not before."""
    where = f"@trunkline-test-{os.getpid()}" if is_abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.settimeout(30)
        supervisor.bind(where.replace("@", "\0"))
        process = start("trunkline-dcp-broker", NOTIFY_SOCKET=where)
        assert supervisor.recv(100) == b"READY=1"
        process.terminate()
        assert supervisor.recv(100) == b"STOPPING=1"
        assert process.wait(timeout=30) == 0


def test_a_unit_names_a_manual_page_that_is_installed():
    pages = {page.name for page in (UNITS.parent / "wheel").rglob("*.1")}
    for unit in SERVICES:
        name, section = re.fullmatch(r"man:([\w-]+)\((\d)\)", settings(unit)["Documentation"]).groups()
        assert f"{name}.{section}" in pages, unit


def test_units_that_are_told_of_are_started_so():
    assert {settings(unit)["Type"] for unit in SERVICES} == {"notify"}


@pytest.mark.parametrize(
    ("name", "file", "text", "what"),
    [
        ("trunkline-mc0-middleware", "policy.toml", '[[allow]]\nclient = "*"\n', "rule"),
        ("trunkline-mtl-server", "users.toml", "[users.daq1]\n", "user"),
    ],
)
def test_what_a_unit_reloads_is_read_again(start, tmp_path, name, file, text, what):
    assert settings(UNITS / f"{name}.service")["ExecReload"] == "/bin/kill -HUP $MAINPID"
    (tmp_path / file).write_text(text)
    process = start(name)
    (tmp_path / file).write_text("no TOML")
    process.send_signal(signal.SIGHUP)
    assert "stay in effect" in process.stderr.readline()
    (tmp_path / file).write_text(text)
    process.send_signal(signal.SIGHUP)
    reloaded = process.stderr.readline()
    assert "reloaded" in reloaded
    assert f"{file}: 1 {what}, unchanged" in reloaded
    assert process.poll() is None
    process.terminate()
    assert process.wait(timeout=30) == 0


def test_a_target_waits_for_its_server(tmp_path):
    unit = settings(UNITS / "trunkline-cdt-target.service")
    options = unit["Environment"].strip('"').removeprefix("OPTIONS=").replace("4222", str(port := free_port()))
    line = unit["ExecStart"].replace("$OPTIONS", options).replace("${STATE_DIRECTORY}", str(tmp_path))
    nats, target = (
        subprocess.Popen(
            [sys.executable, "-m", "trunkline", *words], stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        for words in (["nats", "--port", str(port)], shlex.split(line)[1:])
    )
    try:
        while "Ctrl-C stops" not in (said := target.stderr.readline()):
            assert said
        assert (tmp_path / "configs.db").exists()
        target.terminate()
        assert target.wait(timeout=30) == 0
    finally:
        for process in (nats, target):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def test_units_have_more_time_to_end_than_they_take():
    shared = settings(UNITS / "trunkline-.service.d" / "10-hardening.conf")
    for unit in SERVICES:
        (drain,) = re.findall(r"--drain-seconds (\d+)", unit.read_text())
        assert int(drain) < int(shared["TimeoutStopSec"].removesuffix("s"))


@pytest.fixture
def context(tmp_path):
    """What the container file copies out of a checkout, and nothing else."""
    text = (ROOT / "packaging" / "Containerfile").read_text()
    copied = [word for line in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE) for word in line.split()]
    assert len(copied) > 5
    for name in copied:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        else:
            shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_the_container_takes_what_a_build_reads(context):
    found = subprocess.run(
        ["cargo", "metadata", "--locked", "--format-version", "1", "--no-deps"],
        cwd=context,
        stdout=subprocess.PIPE,
        check=True,
    )
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["members"]
    assert len(json.loads(found.stdout)["packages"]) == len(workspace)
    for file in context.rglob("*.rs"):
        for name in re.findall(r'include_(?:str|bytes)!\("([^"]+)"', file.read_text()):
            assert (file.parent / name).exists(), (file, name)
    settings = tomllib.loads((context / "pyproject.toml").read_text())
    project, build = settings["project"], settings["tool"]["maturin"]
    read = [project["readme"], *project["license-files"], build["manifest-path"], build["python-source"], build["data"]]
    assert all((context / name).exists() for name in read)


def test_the_container_has_extras_that_there_are():
    text = (ROOT / "packaging" / "Containerfile").read_text()
    (extras,) = re.findall(r"^ARG EXTRAS=(\S+)$", text, re.MULTILINE)
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras.split(",")) <= set(known)


def _builder():
    """What builds containers here, if the images that the file begins with are here as well."""
    images = re.findall(r"^FROM (\S+)", (ROOT / "packaging" / "Containerfile").read_text(), re.MULTILINE)
    found = next(filter(None, map(shutil.which, ("podman", "buildah"))), None)
    if found is None:
        return None
    looks = [
        subprocess.run([found, "inspect", "--type", "image", image], capture_output=True, check=False)
        for image in images
    ]
    return found if all(look.returncode == 0 for look in looks) else None


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.skipif(_builder() is None, reason="needs podman or buildah, and the images that the container begins with")
def test_the_container_is_built_and_runs():
    builder = _builder()
    run = functools.partial(subprocess.run, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    run([builder, "build", "--file", "packaging/Containerfile", "--tag", "localhost/trunkline-test", "."])
    if builder.endswith("podman"):
        start = [builder, "run", "--rm", "--network", "host", "localhost/trunkline-test"]
    else:
        container = run([builder, "from", "localhost/trunkline-test"]).stdout.strip()
        start = [builder, "run", "--user", "trunkline", container, "--", "trunkline"]
    try:
        assert "release build" in run([*start, "--version"]).stdout
        run([*start, "cdtp", "record", "--bind", "tcp://127.0.0.1:*", "--capture", "/data/run", "--idle", "0.1"])
        found = run([*start, "capture", "info", "/data/run", "--json"]).stdout
        assert json.loads(found)["messages"] == 0
    finally:
        if not builder.endswith("podman"):
            run([builder, "rm", container])
        run([builder, "rmi", "localhost/trunkline-test"])
