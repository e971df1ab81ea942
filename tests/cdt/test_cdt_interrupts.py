"""Blocking roles of CDT that are interrupted, or with callbacks that exit: each in a process of its own, where it may hang."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from trunkline import cdt

EXITS = """
from trunkline import cdt

def leave(*_, **__):
    raise {error}

class Leaving(cdt.MemoryStore):
    get = put = rollback = leave

url = "memory://exits"
with (
    cdt.Target("cdp", servers=url, store=Leaving()) as target,
    cdt.Source("cmx", target="cdp", servers=url, on_drop=leave) as source,
    cdt.Target("other", servers=url) as other,
):
    for ask in (
        lambda: source.pull("app-1", "e-1"),
        lambda: source.push("app-1", "e-1", b"x"),
        lambda: source.rollback("app-1", "e-1", "v-1"),
        lambda: target.put("app-1", "e-1", b"x"),
        lambda: target.get("app-1", "e-1"),
        lambda: target.rollback("app-1", "e-1", "v-1"),
    ):
        try:
            ask()
        except Exception as error:
            print(type(error).__name__, end=" ")
    # It hears itself, which it drops.
    source.report_applied("app-1", "e-1", "v-1")
    config_id = other.put("app-1", "e-1", b"x")
    print(source.receive(timeout_s=10).config_id == config_id, source.stats.dropped)
"""


@pytest.mark.parametrize("error", ["SystemExit(1)", "KeyboardInterrupt"])
def test_what_a_store_or_a_callback_raises_ends_no_other_role(error):
    ended = subprocess.run(
        [sys.executable, "-c", EXITS.format(error=error)], capture_output=True, text=True, check=False, timeout=40
    )
    asked = "ConfigError ConfigError ConfigError RuntimeError RuntimeError RuntimeError"
    assert (ended.stdout, ended.returncode) == (f"{asked} True {{'own_event': 1}}\n", 0), ended.stderr
    assert "source: on_drop raised" in ended.stderr
    assert f"the store raised {error.removesuffix('(1)')}" in ended.stderr


CLOSES = """
import signal, threading
from trunkline import ClosedError, cdt

begun, is_free = threading.Event(), threading.Event()

class Slow(cdt.MemoryStore):
    def get(self, _, endpoint_id, config_id=None):
        if endpoint_id == "e-1":
            begun.set()
            is_free.wait()

target = cdt.Target("cdp", servers="memory://closes", store=Slow())
source = cdt.Source("cmx", target="cdp", servers="memory://closes")
watch = source.watch("app-1", "e-2")
ended = []

def wait(ask):
    try:
        ask()
    except ClosedError:
        ended.append(ask)

asked = [watch.receive, source.receive, lambda: source.pull("app-1", "e-1", timeout_s=None)]
threads = [threading.Thread(target=wait, args=(ask,), daemon=True) for ask in asked]
for thread in threads:
    thread.start()
begun.wait()

def interrupt(_, frame):
    # Not before it waits.
    if frame.f_code.co_name == "_ended":
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
try:
    source.close(drain_s=1000)
except KeyboardInterrupt:
    print("interrupted", end=" ")
source.close(drain_s=1000)
for thread in threads:
    thread.join(20)
print(source.closed, len(ended))
is_free.set()
target.close()
"""


def test_one_who_is_interrupted_while_he_closes_leaves_nobody_waiting():
    ended = subprocess.run([sys.executable, "-c", CLOSES], capture_output=True, text=True, check=False, timeout=100)
    assert (ended.stdout, ended.returncode) == ("interrupted True 3\n", 0), ended.stderr


@pytest.mark.parametrize("who", ["source", "watch"])
def test_one_who_is_interrupted_while_he_waits_loses_nothing(who):
    def interrupt(*_):
        raise KeyboardInterrupt

    url = "memory://interrupted"
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with (
            cdt.Target("cdp", servers=url) as target,
            cdt.Source("cmx", target="cdp", servers=url) as source,
            source.watch("app-1", "e-1") as watch,
        ):
            receive = source.receive if who == "source" else watch.receive
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(KeyboardInterrupt):
                receive(timeout_s=20)
            target.put("app-1", "e-1", b"x")
            assert receive(timeout_s=20).app_version_name == "app-1"
    finally:
        signal.signal(signal.SIGALRM, before)
