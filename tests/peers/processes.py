"""What the system says of processes."""

from pathlib import Path


def state(pid: int) -> str:
    """What a process does, as ps has it: R, S, T for stopped, Z where only its number is left; nothing where that is not either."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def is_gone(pid: int) -> bool:
    """Whether it runs no more; nobody need have asked for how it ended."""
    return state(pid) in {"", "Z", "X"}


def descendants(pid: int) -> list[int]:
    """The children of a process, theirs, and so on."""
    found = []
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, tasks.read_text().split()):
            found += [child, *descendants(child)]
    return found
