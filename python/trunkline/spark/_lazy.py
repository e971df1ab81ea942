"""`pyspark.sql.functions` as `F`, imported at the first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["F"]


class _Functions:
    """Stands in for `pyspark.sql.functions`."""

    def __getattr__(self, name: str) -> Any:
        from pyspark.sql import functions

        return getattr(functions, name)


if TYPE_CHECKING:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
else:
    F = _Functions()
