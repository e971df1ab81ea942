"""Whatever a peer says, the command ends in its time, with little memory, and an error or results."""

import functools
import re
import signal
import socket
import subprocess
import sys
import time

import pytest

from peers.faulty.hostile import NATS, ZMTP, Garbler, Hostile, greeting, slowly
from trunkline import TrunklineError
from trunkline.conform.checks import Subject

# What it takes to import, and to keep 64 MiB twice.
MOST_BYTES = 320 << 20
SECONDS = 8

ENDLESS = ["a frame of 8 EiB", "a frame of 1 GiB", "a message without end", "messages without end", "endless lines"]
ENDLESS_NATS = ["an endless line", "a message of 1 GiB", "messages without end"]


def subject(peer, protocol):
    """A hostile peer as what is tested."""
    if protocol == "cdt":
        return Subject(f"nats://127.0.0.1:{peer.port}", target="cdp")
    return Subject(f"tcp://127.0.0.1:{peer.port}")


# A child counts the memory of the process that starts it, which must be a small one.
MEASURE = """
import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:])
_, status, usage = os.wait4(process.pid, 0)
print("\\n", os.waitstatus_to_exitcode(status), usage.ru_maxrss)
"""


def run(*arguments):
    """The exit code of a command, what it printed, its seconds and the most memory it had."""
    command = [sys.executable, "-m", "trunkline", "conform", *arguments, "--seconds", str(SECONDS)]
    start = time.monotonic()
    process = subprocess.run(
        [sys.executable, "-c", MEASURE, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    text, _, measured = process.stdout.rpartition("\n ")
    assert "Traceback" not in text, text
    code, kib = map(int, measured.split())
    return code, text, time.monotonic() - start, kib << 10


@pytest.mark.parametrize(
    ("protocol", "what"), [*[("mtl", what) for what in ENDLESS], *[("cdt", what) for what in ENDLESS_NATS]]
)
def test_what_has_no_end_costs_little(protocol, what):
    pieces = NATS[what] if protocol == "cdt" else functools.partial(ZMTP[what], b"ROUTER")
    with Hostile(pieces) as peer:
        given = subject(peer, protocol)
        code, text, seconds, size = run(protocol, given.endpoint, *(["--target", "cdp"] if given.target else []))
    assert code == 1, text
    assert re.match(r"trunkline: error: .*127\.0\.0\.1|\w+-\d+ failed", text), text
    assert seconds < SECONDS + 6
    assert size < MOST_BYTES, f"{size:,}"


CASES = [("mtl", what, b"ROUTER") for what in ZMTP] + [("cdtp", what, b"PUSH") for what in ZMTP]
CASES += [("cdt", what, None) for what in NATS]


@pytest.mark.parametrize(("protocol", "what", "kind"), CASES)
def test_it_ends_with_an_error_or_results(conform, ids, protocol, what, kind):
    start = time.monotonic()
    with Hostile(NATS[what] if kind is None else functools.partial(ZMTP[what], kind)) as peer:
        try:
            results = conform(protocol, subject(peer, protocol), seconds=SECONDS)
        except TrunklineError as error:
            assert re.search(r"127\.0\.0\.1:\d+ (\w+ )+", str(error))  # noqa: PT017 - or results
        else:
            assert ids(results, "fail")
            assert all(result.reason for result in results.values() if result.result != "pass")
    assert time.monotonic() - start < SECONDS + 2


@pytest.mark.parametrize("protocol", ["dcp", "mc0", "mtl", "cdtp", "cdt"])
def test_one_that_closes_at_once(conform, protocol):
    says = "closes the connection at once|does not speak NATS"
    with Hostile(closes=True) as peer, pytest.raises(TrunklineError, match=says):
        conform(protocol, subject(peer, protocol))


@pytest.mark.parametrize("protocol", ["dcp", "mc0", "mtl", "cdtp", "cdt"])
def test_one_that_never_answers_costs_one_wait(conform, protocol):
    start = time.monotonic()
    with Hostile() as peer, pytest.raises(TrunklineError, match="says nothing"):
        conform(protocol, subject(peer, protocol))
    assert time.monotonic() - start < 5


@pytest.mark.parametrize("protocol", ["dcp", "mc0", "mtl"])
def test_one_that_answers_with_garbage_fails_or_is_no_peer(conform, ids, protocol):
    with Garbler() as garbler:
        try:
            results = conform(protocol, garbler.endpoint)
        except TrunklineError as error:
            assert "does not answer as" in str(error)  # noqa: PT017 - or results
            return
    assert ids(results, "fail")
    assert all(result.reason for result in results.values() if result.result != "pass")


@pytest.mark.parametrize(
    ("endpoint", "why"),
    [
        ("tcp://127.0.0.1:1", "nothing listens there"),
        ("tcp://nowhere.invalid:1", "the host does not resolve"),
        ("ipc:///nowhere/there", "nothing listens there"),
    ],
)
def test_where_nobody_is(conform, endpoint, why):
    with pytest.raises(TrunklineError, match=f"{endpoint}: {why}"):
        conform("dcp", endpoint)


def test_one_that_is_slow_is_heard(conform):
    with (
        Hostile(lambda: slowly(greeting(), 0.002)) as peer,
        pytest.raises(TrunklineError, match="does not answer as a broker"),
    ):
        conform("dcp", f"tcp://127.0.0.1:{peer.port}")


def test_nobody_in_a_group(conform):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    with pytest.raises(TrunklineError, match=rf"nobody in group lab at 239.192.7.123:{port} answers"):
        conform("chirp", f"udp://239.192.7.123:{port}/lab")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_at_once(number):
    with Hostile(lambda: [greeting()]) as peer:
        command = [sys.executable, "-m", "trunkline", "conform", "dcp", f"tcp://127.0.0.1:{peer.port}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert peer.has_connection.wait(20)
            process.send_signal(number)
            out, err = process.communicate(timeout=10)
    assert (process.returncode, out, err) == (130, b"", b"")
