"""What commands print, whatever comes in between."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

SCRIPT = """if True:
    import signal
    from trunkline.cli.output import Output
    signal.signal(signal.SIGUSR1, lambda *_: None)
    output = Output(json=True)
    for number in range(100):
        output.event("message", number=number, text="x" * 1_000_000)
"""


def test_a_signal_takes_nothing_from_a_long_line():
    with subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True) as process:
        lines = [process.stdout.readline()]

        def disturb():
            while process.poll() is None:
                os.kill(process.pid, signal.SIGUSR1)
                time.sleep(0.001)

        disturbing = threading.Thread(target=disturb)
        disturbing.start()
        lines += process.stdout
        disturbing.join()
    assert [json.loads(line)["number"] for line in lines] == list(range(100))
