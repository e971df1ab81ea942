"""Captures written before there was a column `n_head`, and what a later run adds to one."""

import shutil
from pathlib import Path

from peers.recorded import line
from trunkline import capture

DATA = Path(__file__).parents[1] / "data"


def copied(name, to):
    """A capture of `tests/data` that may be written to."""
    shutil.copytree(DATA / name, to)
    return to


def again(path):
    """Records what a capture holds once more, behind it, and gives its rows."""
    rows = list(capture.open(path).rows())
    lines = path.with_name("again.jsonl")
    lines.write_text("".join(map(_line, rows)))
    assert capture.import_(lines, path) == len(rows)
    return rows


def _line(row):
    frames = [*row["envelope"], *([] if row["header"] is None else [row["header"]]), *row["payload"]]
    return line(frames, **{name: row[name] for name in ("received_at_ns", "protocol", "endpoint", "direction", "peer")})
