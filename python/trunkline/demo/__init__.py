"""The whole workflow with bundled data: senders, recorder, capture, Spark, table and report.

`DATA` has the traffic of released Constellations as it was recorded, for `trunkline.capture.import_`. `traffic` says who sends what, `player` is the process of one sender, `run` puts them all together.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["DATA"]

DATA = Path(__file__).with_name("data")
