"""A simulation that is looked at in one thread while another moves its clock."""

from __future__ import annotations

import subprocess
import sys

# What is made of a bad message is an error of Python's, and making it lets other threads go on in the middle of it.
SCRIPT = """
import logging, sys, threading
from trunkline import cdtp, testing

logging.disable()
sys.setswitchinterval(1e-6)
sim = testing.Simulation()
receiver = sim.add(cdtp.Receiver)
peer = sim.peer(kind="PUSH", connect=receiver.endpoints)
is_over = threading.Event()

def work():
    for _ in range(10_000):
        peer.send([b"bad"])
        sim.advance(0)
    is_over.set()

working = threading.Thread(target=work)
working.start()
while not is_over.is_set():
    receiver.stats
working.join()
print(sum(receiver.stats.dropped.values()))
"""


def test_the_clock_moves_on_whoever_looks_at_counters():
    # Threads that wait for each other would keep this one too: it has to be another process.
    ended = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, timeout=30)
    assert (ended.stdout, ended.returncode) == ("10000\n", 0), ended.stderr
