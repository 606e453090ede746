"""A memory cgroup that a job of a benchmark runs in, as a container of a pod does.

Version 1 and version 2 of cgroups will do. Making one usually takes the rights of root.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Self

from spatialstream.servers.process import await_condition

_LIMITS = ("memory.max", "memory.limit_in_bytes")
"""The file of the limit, in version 2 and in version 1."""
_KILLS = ("memory.events", "memory.oom_control")
"""The file that counts what was killed, likewise."""
_GONE = 10.0
"""Seconds that processes may take to be gone, before their cgroup is left where it is."""


class MemoryCgroup:
    """A cgroup that can limit memory, without a limit at first; a context that ends when its processes have ended.

    Args:
        folder: the cgroup's, made if missing, such as ``/sys/fs/cgroup/soak``.

    Raises:
        OSError: it cannot be made.
        ValueError: it has no memory controller.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        delegated = folder.parent / "cgroup.subtree_control"
        if delegated.exists() and not self._has(_LIMITS):
            delegated.write_text("+memory")
        if not self._has(_LIMITS):
            raise ValueError(f"{folder} is not a cgroup with the memory controller")

    def entered_by(self, command: list[str]) -> list[str]:
        """The command, begun within the cgroup, as are all processes below it."""
        return ["sh", "-c", f'echo 0 > "{self.folder}/cgroup.procs" && exec "$@"', "sh", *command]

    def limit(self, size: int) -> None:
        """Let its processes have so many bytes together from now on."""
        self._file(_LIMITS).write_text(str(size))

    def kills(self) -> int:
        """How many processes the kernel has killed because of the limit."""
        counts = dict(line.split() for line in self._file(_KILLS).read_text().splitlines())
        return int(counts["oom_kill"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        await_condition(self._removed, _GONE)

    def _removed(self) -> bool:
        with contextlib.suppress(OSError):
            self.folder.rmdir()
        return not self.folder.exists()

    def _has(self, names: tuple[str, ...]) -> bool:
        return any((self.folder / name).exists() for name in names)

    def _file(self, names: tuple[str, ...]) -> Path:
        return next(path for name in names if (path := self.folder / name).exists())
