"""The section of the made-up protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trunkline.report.model import Section

__all__ = ["SixthSection"]


@dataclass(frozen=True, slots=True)
class SixthSection(Section):
    """What was recorded of it."""

    protocol: ClassVar[str] = "sixth"
    title: ClassVar[str] = "Sixth"
