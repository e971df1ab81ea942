"""The parts of pages that tools write, between two comments."""

from __future__ import annotations

__all__ = ["between_marks"]


def between_marks(text: str, name: str, content: str) -> str:
    """A page with what the tool of this name writes."""
    begin, end = f"<!-- {name}: written by tools/{name}.py -->", f"<!-- end of {name} -->"
    before, begin_found, rest = text.partition(begin)
    _, end_found, after = rest.partition(end)
    assert begin_found
    assert end_found
    return f"{before}{begin}\n\n{content}\n\n{end}{after}"
