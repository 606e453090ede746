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
