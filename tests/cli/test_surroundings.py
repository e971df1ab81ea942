"""Commands where the system lacks something: a network, a place for programs, room in names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from trunkline import cdtp
from trunkline._locations import begun_name

UNSHARE = pytest.mark.skipif(shutil.which("unshare") is None, reason="namespaces need Linux")


def unshared(*arguments, script, cwd):
    """Runs a script of the shell in namespaces of its own, as root there; None where that is not allowed."""
    command = ["unshare", "--user", "--map-root-user", *arguments, "sh", "-c", script, sys.executable]
    ran = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=120)
    if ran.returncode == 77 or "unshare:" in ran.stderr:
        pytest.skip(f"no namespaces here: {ran.stderr}")
    return ran


@UNSHARE
def test_discovery_waits_for_a_network_and_warns(tmp_path):
    record = 'exec "$0" -m trunkline cdtp record --group lab --capture c --idle 0.5'
    ran = unshared("--net", script=record, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "WARNING: recorder: no network interface is up: peers of the group are found once one is" in ran.stderr


@UNSHARE
def test_peers_are_found_once_a_network_is_up(tmp_path):
    if shutil.which("ip") is None:
        pytest.skip("needs ip of iproute2")
    both = (
        "ip link show lo > /dev/null || exit 77; "
        '"$0" -m trunkline cdtp record --group lab --capture c --count 1 & recorder=$!; '
        'echo x | "$0" -m trunkline cdtp send - --name D --group lab --bind "tcp://127.0.0.1:*" --timeout 60 & sleep 3; '
        "ip link set lo up; wait $recorder"
    )
    ran = unshared("--net", script=both, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "1 message recorded" in ran.stderr


@UNSHARE
def test_the_doctor_names_a_directory_that_java_cannot_load_from(tmp_path):
    (tmp_path / "scratch").mkdir()
    doctor = (
        'mount -t tmpfs -o noexec none scratch || exit 77; export TMPDIR="$PWD/scratch"; exec "$0" -m trunkline doctor'
    )
    ran = unshared("--mount", script=doctor, cwd=tmp_path)
    (line,) = (line for line in ran.stdout.splitlines() if line.startswith("scratch space"))
    assert line.endswith("note: mounted with noexec, and Spark loads native libraries from there: set TMPDIR")


@pytest.mark.parametrize(
    ("command", "suffix"),
    [
        (("capture", "decode", "c"), ".parquet"),
        (("capture", "export", "c"), ".csv"),
        (("capture", "report", "c"), ".html"),
        (("mtl", "users", "add", "bob", "--file"), ".toml"),
        (("mtl", "export", "--users", "users.toml"), ".json"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value[:2]),
)
def test_a_name_may_be_as_long_as_names_can_be(run, tmp_path, command, suffix):
    with cdtp.Recorder(tmp_path / "c", bind="tcp://127.0.0.1:*"):
        pass
    (tmp_path / "users.toml").write_text("[users.ada]\n")
    longest = os.pathconf(tmp_path, "PC_NAME_MAX")
    name = "n" * (longest - len(suffix)) + suffix
    run(*command, name, stdin="sesame\n")
    assert (tmp_path / name).stat().st_size
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_what_a_killed_command_has_begun_is_removed_by_the_next(run, tmp_path):
    with cdtp.Recorder(tmp_path / "c", bind="tcp://127.0.0.1:*"):
        pass
    gone = subprocess.Popen(["true"])
    gone.wait()
    out = tmp_path / "out.csv"
    left, running = (tmp_path / f"{begun_name(out)}{pid}.part" for pid in (gone.pid, os.getpid()))
    for part in (left, running):
        part.touch()
    run("capture", "export", "c", "out.csv")
    assert (left.exists(), running.exists()) == (False, True)


@UNSHARE
def test_a_client_does_not_connect_to_itself(tmp_path):
    if shutil.which("ip") is None:
        pytest.skip("needs ip of iproute2")
    # The system dials from the port that is dialled, as it may do anywhere.
    (tmp_path / "both.py").write_text(
        "import time\n"
        "from trunkline import mc0\n"
        "with mc0.Connector(connect='tcp://127.0.0.1:40000') as client:\n"
        "    time.sleep(2)\n"
        "    assert not any(client.stats.dropped.values()), client.stats\n"
        "    with mc0.Middleware(bind='tcp://127.0.0.1:40000') as bus:\n"
        "        client.ping(timeout_s=60)\n"
        "        assert bus.stats.received > 0\n"
    )
    ports = 'echo "40000 40001" > /proc/sys/net/ipv4/ip_local_port_range || exit 77'
    ran = unshared("--net", script=f'ip link set lo up || exit 77; {ports}; exec "$0" both.py', cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
