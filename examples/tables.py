"""One recording as a table of pandas, Polars and DuckDB, without Spark.

pip install '.[capture]' pandas polars duckdb
python examples/tables.py
"""

import tempfile
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl

from trunkline import capture
from trunkline.demo import DATA


def main() -> None:
    """Imports traffic of a released Constellation and counts its messages three times."""
    with tempfile.TemporaryDirectory() as directory:
        runs = Path(directory, "runs")
        capture.import_([DATA / "cdtp1-release-0.5.1.jsonl.gz"], runs)
        messages = capture.open(runs).decode("cdtp", tags={"trigger_number": "bigint", "*": "json"}).read_all()

    polars = pl.from_arrow(messages)
    print("Polars:", polars.filter(pl.col("type") == "DAT").height, "data messages")

    (counted,) = duckdb.sql("select count(*) from messages where type = 'DAT'").fetchall()
    print("DuckDB:", *counted, "data messages")

    # Arrow's types keep nanoseconds exact where some are missing; NumPy's would make doubles of them.
    pandas = messages.to_pandas(types_mapper=pd.ArrowDtype)
    print("pandas:", int((pandas["type"] == "DAT").sum()), "data messages, timestamps:", pandas["timestamp_ns"].dtype)


if __name__ == "__main__":
    main()
