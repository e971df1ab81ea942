"""Column functions as pandas UDFs, each with the name of its protocol."""

# Of all protocols, written by tools/lists.py.
from trunkline.spark.cdt import cdt
from trunkline.spark.cdtp import cdtp
from trunkline.spark.dcp import dcp
from trunkline.spark.mc0 import mc0
from trunkline.spark.mtl import mtl

__all__ = ["cdt", "cdtp", "dcp", "mc0", "mtl"]
# End of what tools/lists.py writes.
