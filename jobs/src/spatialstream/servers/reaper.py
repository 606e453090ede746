"""Ends servers whose parent process has died without ending them: ``python -m spatialstream.servers.reaper``.

The process that has started servers writes to its reaper the folders of all that run, a line each time they change. The
pipe ends with that process, however it ends; what is in the last line is ended then, in the reverse order of its start.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

from spatialstream.servers.process import stop_recorded

__all__ = ["main"]


def main() -> None:
    """Wait for the end of standard input, and end the servers that are left."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)  # it ends only when there is nothing more to watch
    left: list[str] = []
    for line in sys.stdin:
        if line.endswith("\n"):
            left = json.loads(line)
    for folder in reversed(left):
        stop_recorded(Path(folder))


if __name__ == "__main__":
    main()
