"""Counters that are read in one thread while another works."""

from __future__ import annotations

import subprocess
import sys

# Events of a machine are Python objects, and making them lets other threads run in the middle of it.
SCRIPT = """
import sys, threading
from trunkline import cdt
from trunkline.driver import Driver

sys.setswitchinterval(1e-6)
driver = Driver(cdt.Target, "cdp")
while driver.poll_output(0) is not None:
    pass
is_over = threading.Event()

def work():
    for number in range(100_000):
        driver.handle_message(number, 2, [b"", b"", b"{"], peer=b"kaa.v1.service.cdp.cmx2cdp.ConfigRequest")
        while driver.poll_event(number) is not None:
            pass
    is_over.set()

working = threading.Thread(target=work)
working.start()
while not is_over.is_set():
    driver.stats
working.join()
print(driver.stats["dropped"])
"""


def test_a_role_goes_on_whoever_looks_at_its_counters():
    # Threads that wait for each other would keep this one too: it has to be another process.
    ended = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, timeout=30)
    assert (ended.stdout, ended.returncode) == ("{'bad_json': 100000}\n", 0), ended.stderr
