"""Recorded messages as Spark tables.

```python
from trunkline import spark

session = spark.session()
rows = session.read.parquet("capture/")
messages = spark.decode(rows, "cdtp", tags={"run": "bigint", "*": "variant"})
messages.where("sender = 'Detector.one'").groupBy("tag_run").count().show()
```

`decode` makes a table of messages and is the fast path. `from_cdtp` is a column function, for a column of headers in a
table of your own; `pandas_udfs` has the same for pandas. All three give the same values for the same bytes.
"""

from __future__ import annotations

from trunkline.spark import pandas_udfs
from trunkline.spark.columns import capture_schema, decode, from_cdtp
from trunkline.spark.report import Report, RunReport, SenderReport, report
from trunkline.spark.runs import runs
from trunkline.spark.session import session

__all__ = [
    "Report",
    "RunReport",
    "SenderReport",
    "capture_schema",
    "decode",
    "from_cdtp",
    "pandas_udfs",
    "report",
    "runs",
    "session",
]
