"""How much a task of the source reads."""

from __future__ import annotations

import os
from dataclasses import dataclass

__all__ = ["Division"]

# The fewest bytes of a task, where there is enough for all.
_LEAST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Division:
    """How segments are divided among tasks.

    Attributes:
        most_bytes: The most bytes of a task: of frames, and 64 a row. By default Spark's own `spark.sql.files.maxPartitionBytes`.
        least_parts: The fewest tasks, as far as there are row groups for them; None for two per processor where each has
            a mebibyte.
    """

    most_bytes: int = 128 << 20
    least_parts: int | None = None

    def target(self, total: int) -> int:
        """The bytes of a task."""
        if self.least_parts is not None:
            return max(1, min(self.most_bytes, total // self.least_parts))
        tasks = 2 * (os.cpu_count() or 1)
        return min(self.most_bytes, max(_LEAST_BYTES, total // tasks))
