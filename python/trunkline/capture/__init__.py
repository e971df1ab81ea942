"""Captures: recorded messages on disk, bit for bit, as plain Parquet.

```python
from trunkline import capture

capture.import_("recorded.jsonl.gz", "capture/")
recorded = capture.open("capture/")
print(recorded.info().messages, {message.sender for message in recorded})
table = recorded.read_all()
```

A capture is a directory of Parquet segments with one row per message, which Spark and pyarrow read as it is. This package
also reads rows that are on disk but not yet in a segment.
"""

from __future__ import annotations

from trunkline.capture.exporting import export
from trunkline.capture.importing import import_
from trunkline.capture.reading import (
    AnyMessage,
    Capture,
    CaptureInfo,
    Run,
    open,  # noqa: A004 - as `gzip.open`, used with its room
    schema,
)
from trunkline.capture.recovery import Problem, Recovery, Verification, recover, verify
from trunkline.capture.replay import replay
from trunkline.capture.reporting import report
from trunkline.capture.selecting import Selection

__all__ = [
    "AnyMessage",
    "Capture",
    "CaptureInfo",
    "Problem",
    "Recovery",
    "Run",
    "Selection",
    "Verification",
    "export",
    "import_",
    "open",
    "recover",
    "replay",
    "report",
    "schema",
    "verify",
]
