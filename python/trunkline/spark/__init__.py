"""Recorded messages as Spark tables.

```python
from trunkline import spark

session = spark.session()
rows = session.read.parquet("capture/")
messages = spark.decode(rows, "cdtp", tags={"run": "bigint", "*": "variant"})
messages.where("sender = 'Detector.one'").groupBy("tag_run").count().show()
```

`decode` makes a table of messages and is the fast path. `from_cdtp`, `from_dcp`, `from_mc0`, `from_mtl` and `from_cdt` are column functions, for
frames in a table of your own; `to_cdtp` and the others are the way back; `register` makes them functions of SQL, and `pandas_udfs` has the same for pandas. All give the same
values for the same bytes.
`runs`, `gaps`, `pair_requests`, `topics`, `contents` and `rollout` put messages together: those of a run, a request with its reply, what
passed through a topic, a content with its Confirm or Reject, and a configuration on its way to an endpoint. They take batches and streams.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trunkline.spark import pandas_udfs
from trunkline.spark._paths import capture_schema
from trunkline.spark.columns import decode
from trunkline.spark.contents import contents
from trunkline.spark.keys import keys_of
from trunkline.spark.report import report
from trunkline.spark.requests import pair_requests
from trunkline.spark.rollout import rollout
from trunkline.spark.runs import gaps, runs
from trunkline.spark.session import configure, session
from trunkline.spark.sql import register
from trunkline.spark.topics import topics

__all__ = [
    "capture_schema",
    "configure",
    "contents",
    "decode",
    "gaps",
    "keys_of",
    "pair_requests",
    "pandas_udfs",
    "register",
    "report",
    "rollout",
    "runs",
    "session",
    "topics",
]

# Of all protocols, written by tools/lists.py.
from trunkline.spark.cdt import from_cdt, to_cdt
from trunkline.spark.cdtp import from_cdtp, to_cdtp
from trunkline.spark.dcp import from_dcp, to_dcp
from trunkline.spark.mc0 import from_mc0, to_mc0
from trunkline.spark.mtl import from_mtl, to_mtl

__all__ += [
    "from_cdt",
    "from_cdtp",
    "from_dcp",
    "from_mc0",
    "from_mtl",
    "to_cdt",
    "to_cdtp",
    "to_dcp",
    "to_mc0",
    "to_mtl",
]

if TYPE_CHECKING:
    from trunkline.report import (
        CdtpSection,
        CdtSection,
        DcpSection,
        LaggingEndpoint,
        Mc0Section,
        MtlSection,
        RefusalReport,
        RefusedLogin,
        RefusedPull,
        Report,
        ResourceReport,
        RunReport,
        SenderReport,
        ServiceReport,
        TopicReport,
        VersionReport,
    )

__all__ += [
    "CdtSection",
    "CdtpSection",
    "DcpSection",
    "LaggingEndpoint",
    "Mc0Section",
    "MtlSection",
    "RefusalReport",
    "RefusedLogin",
    "RefusedPull",
    "Report",
    "ResourceReport",
    "RunReport",
    "SenderReport",
    "ServiceReport",
    "TopicReport",
    "VersionReport",
]
# End of what tools/lists.py writes.

__dir__ = __all__.copy


def __getattr__(name: str) -> Any:
    # The classes of reports are available here too. Imported late: they are slow to import, and Spark's processes do not use them.
    if name in __all__:
        from trunkline import report as sections

        return getattr(sections, name)
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
