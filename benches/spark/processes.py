"""The processes that Spark has started, as Linux shows them."""

from __future__ import annotations

from pathlib import Path

__all__ = ["below", "stat"]


def below(pid: int) -> list[int]:
    """The processes below one: its children, and theirs."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := stat(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = list(children.get(pid, ()))
    for process in found:
        found += children.get(process, ())
    return found


def stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name; none for a process that has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
