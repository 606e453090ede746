"""Which processes there are."""

from __future__ import annotations

from pathlib import Path


def python_of(setting: str) -> list[int]:
    """The processes with a setting in their environment, and so all that they have started, that have not ended."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if setting.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, directly or not."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(folder.name))
    found, left = [], [pid]
    while left:
        left += children.get(left[0], [])
        found.append(left.pop(0))
    return found[1:]
