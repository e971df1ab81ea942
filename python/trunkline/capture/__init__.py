"""Captures: recorded messages on disk, bit for bit, as plain Parquet.

```python
from trunkline import capture, cdtp

with cdtp.Recorder("capture/", bind="tcp://127.0.0.1:*") as recorder:
    with cdtp.Sender("Detector.one", connect=recorder.endpoints) as sender:
        sender.send(b"payload")
    recorder.wait(count=1)

recorded = capture.open("capture/")
print(len(recorded), {message.sender for message in recorded.messages("cdtp")})
table = recorded.read_all()
```

A capture is a directory of Parquet segments with one row per message, which Spark and pyarrow read as it is. This package
also reads rows that are on disk but not yet in a segment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trunkline._extras import needs
from trunkline.capture.described import CaptureInfo, Run
from trunkline.capture.exporting import export
from trunkline.capture.folders import Folder, open_folder
from trunkline.capture.importing import import_
from trunkline.capture.reading import (
    AnyMessage,
    Capture,
    open,  # noqa: A004 - as `gzip.open`, used with its room
    schema,
)
from trunkline.capture.recovery import (
    Compaction,
    DecodedFiles,
    Problem,
    Recovery,
    Verification,
    compact,
    recover,
    verify,
)
from trunkline.capture.selecting import Selection
from trunkline.capture.shipping import Shipped, ship

if TYPE_CHECKING:
    from trunkline.capture.replaying import replay
    from trunkline.report.local import report

__all__ = [
    "AnyMessage",
    "Capture",
    "CaptureInfo",
    "Compaction",
    "DecodedFiles",
    "Folder",
    "Problem",
    "Recovery",
    "Run",
    "Selection",
    "Shipped",
    "Verification",
    "compact",
    "export",
    "import_",
    "open",
    "open_folder",
    "recover",
    "replay",
    "report",
    "schema",
    "ship",
    "verify",
]
__dir__ = __all__.copy


@needs("capture", "pyarrow")
def _report() -> Any:
    from trunkline.report.local import report

    return report


def __getattr__(name: str) -> Any:
    # Reports depend on captures, not the other way round.
    if name == "report":
        return _report()
    # Imported late: it needs the sending roles and asyncio, half of all imports, which Spark's processes do not use.
    if name == "replay":
        from trunkline.capture.replaying import replay

        return replay
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
