"""What listens, and which process it belongs to, from ``/proc``; run in a pod it has nothing but Python.

``python listening.py`` prints what listens in its network namespace, as JSON.
"""

from __future__ import annotations

import ipaddress
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

_LISTENS = "0A"
"""The state of a socket that listens (include/net/tcp_states.h)."""


@dataclass(frozen=True)
class Listener:
    """A TCP socket that listens.

    Attributes:
        address: as text; ``::`` and ``0.0.0.0`` are all of the machine's, or pod's.
        port: of it.
        processes: those that have it, by id; none that can be seen: they are another user's.
        command: the command line of the first one.
    """

    address: str
    port: int
    processes: tuple[int, ...]
    command: tuple[str, ...]

    @property
    def is_loopback(self) -> bool:
        """Whether nobody but this machine, or pod, reaches it."""
        return ipaddress.ip_address(self.address).is_loopback

    @property
    def host(self) -> str:
        """Where it is connected to from this machine, or pod."""
        address = ipaddress.ip_address(self.address)
        return "127.0.0.1" if address.is_unspecified else self.address

    def __str__(self) -> str:
        """As a person would look for it."""
        return f"{self.address}:{self.port} of {role(self.command) or ' '.join(self.command)[:200] or 'nobody known'}"


def sockets(table: str) -> Iterator[tuple[str, str, int]]:
    """Inode, address and port of each socket that listens, of the text of ``/proc/net/tcp`` or ``tcp6``."""
    for line in table.splitlines()[1:]:
        words = line.split()
        if words[3] == _LISTENS:
            digits, _, port = words[1].partition(":")
            yield words[9], _address(bytes.fromhex(digits)), int(port, 16)


def _address(words: bytes) -> str:
    """An address of ``/proc/net``, whose words of 32 bits are the machine's own: of little-endian ones, that is."""
    found = ipaddress.ip_address(b"".join(words[at : at + 4][::-1] for at in range(0, len(words), 4)))
    return str(getattr(found, "ipv4_mapped", None) or found)


def listeners(sessions: Iterable[int] | None = None) -> list[Listener]:
    """What listens here.

    Args:
        sessions: only that of processes of these sessions, by the ids of their leaders; None: everything in this
            network namespace.
    """
    wanted = None if sessions is None else set(sessions)
    held, asked = _held(), list[Listener]()
    for table in ("tcp", "tcp6"):
        path = Path("/proc/net") / table
        for inode, address, port in sockets(path.read_text()) if path.exists() else ():
            processes = held.get(inode, [])
            if wanted is None or wanted & {_session(pid) for pid in processes}:
                command = command_of(processes[0]) if processes else ()
                asked.append(Listener(address, port, tuple(processes), command))
    return asked


def command_of(pid: int) -> tuple[str, ...]:
    """The words of a process' command line; none if it has ended."""
    with suppress(OSError):
        return tuple(Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1])
    return ()


def _session(pid: int) -> int:
    with suppress(OSError):
        return os.getsid(pid)
    return 0


def _held() -> dict[str, list[int]]:
    """The processes that have a socket, by its inode."""
    found = dict[str, list[int]]()
    for folder in sorted(Path("/proc").glob("[0-9]*/fd")):
        with suppress(OSError):  # it has ended, or is another user's
            for link in folder.iterdir():
                with suppress(OSError):
                    target = str(link.readlink())
                    if target.startswith("socket:["):
                        found.setdefault(target[8:-1], []).append(int(folder.parent.name))
    return found


# --------------------------------------------------------------------------------------------------------------- roles

MAINS = {
    "org.apache.spark.deploy.SparkSubmit": "driver's JVM",
    "org.apache.spark.executor.CoarseGrainedExecutorBackend": "executor's JVM",
    "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend": "executor's JVM",
    "spatialstream.spark.daemon": "actors",
    "spatialstream_operator": "operator",
    "kafka.Kafka": "broker",
    "org.apache.zookeeper.server.ZooKeeperServerMain": "ZooKeeper",
}
COMMANDS = {"router": "driver", "worker": "driver", "gateway": "gateway"}


def role(command: Iterable[str]) -> str:
    """Which process of a stream this is, by its command line, as docs/production.md calls it; "" if it is none."""
    words = list(command)
    for word, following in pairwise([*words, ""]):
        if word in MAINS:
            return MAINS[word]
        if word.rpartition("/")[2] == "spatialstream" and following in COMMANDS:
            return COMMANDS[following]
    return ""


if __name__ == "__main__":
    print(json.dumps([asdict(each) for each in listeners()]))
