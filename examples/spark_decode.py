"""Decode a capture in Spark: messages, runs, and what did not decode.

pip install '.[spark]'
python examples/spark_decode.py
"""

import tempfile
from pathlib import Path

from trunkline import capture, spark
from trunkline.demo import DATA


def main() -> None:
    """Counts the messages of each sender and type in traffic of a released Constellation."""
    session = spark.session()
    with tempfile.TemporaryDirectory() as directory:
        runs = Path(directory, "runs")
        capture.import_([DATA / "cdtp2-release-1.0.2.jsonl.gz"], runs)

        rows = session.read.parquet(str(runs))
        messages = spark.decode(rows, "cdtp", tags={"trigger_number": "bigint", "*": "variant"})
        messages.where("type = 'DAT'").groupBy("sender").count().orderBy("sender").show()
        spark.runs(rows).select("sender", "run_id", "condition", "messages", "missed").orderBy("sender").show()
        print(messages.where("error IS NOT NULL").count(), "messages did not decode")
    session.stop()


if __name__ == "__main__":
    main()
