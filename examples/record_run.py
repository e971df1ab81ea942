"""Record a run of two detectors, look at what came of it, and plot the rate: CDTP.

pip install '.[capture]' matplotlib
python examples/record_run.py rate.png
"""

import sys
import tempfile
import threading
import time

from trunkline import capture, cdtp


def detect(name: str, recorder: str, events: int) -> None:
    """A detector: a run of events, each with a number and a payload."""
    with cdtp.Sender(name, header="A", connect=recorder) as sender:
        sender.begin_run({"threshold_mv": 12})
        for event in range(events):
            sender.send(bytes(64), tags={"event": event})
            time.sleep(0.001)
        sender.end_run({"run_id": "run_1"})


def plot(directory: str, picture: str) -> None:
    """Messages a second of each sender."""
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    table = capture.open(directory).decode("cdtp", tags=None).read_all().to_pandas()
    start = table["received_at_ns"].min()
    figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
    for sender, messages in table.groupby("sender"):
        seconds = (messages["received_at_ns"] - start) / 1e9
        axes.hist(seconds, bins=40, histtype="step", label=sender)
    axes.set(xlabel="seconds since the first message", ylabel="messages")
    axes.legend()
    figure.savefig(picture)


def main() -> None:
    """Records both, prints a line for each, and plots if a file is named."""
    with tempfile.TemporaryDirectory() as directory:
        with cdtp.Recorder(directory, bind="tcp://127.0.0.1:*") as recorder:
            endpoint = recorder.endpoints[0]
            detectors = [
                threading.Thread(target=detect, args=(name, endpoint, events))
                for name, events in (("Tracker.one", 500), ("Calorimeter.one", 250))
            ]
            for detector in detectors:
                detector.start()
            recorder.wait(count=754, timeout_s=30)  # a run begins and ends with a message of its own
            for detector in detectors:
                detector.join()

        for run in sorted(capture.open(directory).runs(), key=lambda run: run.sender):
            print(run.sender, run.run_id, run.condition, run.messages, "messages,", run.missed, "missed", run.config)
        if len(sys.argv) > 1:
            plot(directory, sys.argv[1])


if __name__ == "__main__":
    main()
