"""The conditions of runs."""

from __future__ import annotations

__all__ = ["GOOD", "IN_PROGRESS", "condition_text", "is_bad"]

GOOD = "GOOD"
IN_PROGRESS = "IN_PROGRESS"


def is_bad(condition: str) -> bool:
    """Whether a run of this condition is bad: one in progress is neither good nor bad."""
    return condition not in {GOOD, IN_PROGRESS}


def condition_text(condition: str, between: str) -> str:
    """A condition for people."""
    return "in progress" if condition == IN_PROGRESS else condition.replace("|", between)
