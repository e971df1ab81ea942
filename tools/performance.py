"""Writes the table of performance of the README from the results of the benches: `python tools/performance.py`."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from tools.marks import between_marks

__all__ = ["PAGE", "table", "written"]

ROOT = Path(__file__).parents[1]
PAGE = "README.md"

_TIMES = "\N{MULTIPLICATION SIGN}"
_MEASURES = {"": "rates", " less CPU": "cpu_us"}
_LOAD = "window 256, workers 1, clients 1, 32 B"
_BUS = "1 → 10, 1 KiB"

# What is compared with what; the file of the results and its part, the two cases in it, and what of them.
_ROWS = [
    ("`spark.decode`, five columns", "msgpack in `mapInArrow`",
     ("spark", "cases"), ("spark.decode, 2 columns to 5", "msgpack in mapInArrow"), " less CPU"),
    ("the same", "a pandas UDF with msgpack",
     ("spark", "cases"), ("spark.decode, 2 columns to 5", "msgpack in a pandas UDF"), " less CPU"),
    ("`cdtp.decode`, one message", "`msgpack.unpackb` of its header alone",
     ("decode", "Decoding"), ("cdtp.decode", "msgpack.unpackb"), ""),
    ("`for message in Receiver`", "a pyzmq `recv_multipart` loop that decodes nothing",
     ("cdtp", "Receiving in Python"), ("for message in Receiver, zmtp", "pyzmq recv_multipart, decodes nothing"), ""),
    ("the same, from the least of senders", "the same loop",
     ("cdtp", "Receiving in Python, from the least of senders"),
     ("for message in Receiver, zmtp, poured at", "pyzmq recv_multipart, poured at"), ""),
    ("`trunkline dcp broker`, 256 requests in flight", "majortomo",
     ("dcp", "loads", _LOAD), ("trunkline dcp broker, zmtp", "majortomo"), ""),
    ("the same", "`zmq.proxy`, which has no notion of services",
     ("dcp", "loads", _LOAD), ("trunkline dcp broker, zmtp", "zmq.proxy"), ""),
    ("`trunkline mc0 middleware`, one publisher, ten subscribers, 1 KiB", "`zmq.proxy` over XPUB and XSUB",
     ("mc0", "loads", _BUS), ("trunkline mc0 middleware, zmtp", "zmq.proxy, XPUB and XSUB"), ""),
    ("CDT pulls, 100 in flight, 512 B", "requests and replies of bare nats-py, decoding nothing",
     ("cdt-pulls", "rounds", "512 B, 100"), ("AsyncSource, AsyncTarget", "a bare pair"), ""),
    ("`trunkline cdtp record`, 1 KiB payloads", "the HDF5 writer of Constellation 0.5.1",
     ("constellation", "Header B"), ("trunkline cdtp record", "H5DataWriter of 0.5.1"), ""),
    ("the same with CDTP2", "that of 1.0.2",
     ("constellation", "Header 2"), ("trunkline cdtp record", "H5DataWriter of 1.0.2"), ""),
]  # fmt: skip


def table() -> str:
    """What is compared with what, and how often faster it is: medians of rounds in one run."""
    rows = [
        f"| {what} | {rival} | {_shown(_ratio(_part(*where), cases, unit))} {_TIMES}{unit} |"
        for what, rival, where, cases, unit in _ROWS
    ]
    recording = _part("cdtp", "Recording")
    ours, loop = recording["Recorder, socket to durable Parquet, zmtp"], recording["native loop, receives only"]
    sentence = (
        f"A recorder uses {statistics.median(ours['cpu_us']):.2f} µs of CPU per message, from the socket to durable Parquet: "
        f"{statistics.median(ours['rates']) / statistics.median(loop['rates']):.1f} {_TIMES} the rate of a native loop "
        "that only receives. `make bench` measures all of it on your machine."
    )
    return "\n".join(["| what | compared with | ratio |", "|---|---|---|", *rows, "", sentence])


def _part(name: str, *keys: str) -> Any:
    found = json.loads((ROOT / "benches" / "results" / f"{name}.json").read_text())
    for key in keys:
        found = found[key]
    return found


def _ratio(cases: dict[str, Any], names: tuple[str, str], unit: str) -> float:
    ours, rival = (_median(cases[name], _MEASURES[unit]) for name in names)
    return rival / ours if unit else ours / rival


def _median(rounds: Any, measure: str) -> float:
    """The median of the rounds of a case: a list of them, or one for each measure."""
    if isinstance(rounds, dict):
        return statistics.median(rounds[measure])
    return statistics.median(each["jvm_us"] + each["python_us"] if isinstance(each, dict) else each for each in rounds)


def _shown(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.1f}" if ratio >= 2 else f"{ratio:.2f}"


def written(text: str) -> str:
    """A page with its table as the results are now."""
    return between_marks(text, "performance", table())


if __name__ == "__main__":
    (ROOT / PAGE).write_text(written((ROOT / PAGE).read_text()))
