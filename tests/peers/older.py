"""Captures written before there was a column `n_head`, and what a later run adds to one."""

import base64
import json
import shutil
from pathlib import Path

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
    lines.write_text("\n".join(json.dumps(_line(row)) for row in rows))
    assert capture.import_(lines, path) == len(rows)
    return rows


def _line(row):
    frames = [*row["envelope"], *([] if row["header"] is None else [row["header"]]), *row["payload"]]
    line = {name: row[name] for name in ("received_at_ns", "protocol", "endpoint", "direction")}
    line["frames"] = [base64.b64encode(frame).decode() for frame in frames]
    line["peer"] = None if row["peer"] is None else base64.b64encode(row["peer"]).decode()
    return line
