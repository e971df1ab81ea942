"""MTL: a server, tested by raw clients."""

# In the order in which they are run.
from trunkline.conform import mtl_control, mtl_data, mtl_queues  # noqa: F401
from trunkline.conform.mtl_bench import SUITE

__all__ = ["SUITE"]
