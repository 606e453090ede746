"""The holder of a lease: a text for a person, and data by which a process of the same machine detects its death.

A process id alone is not enough: it is reused, and another container or another boot of the machine has others. So the
start time of the process, the namespace of its id and the boot id are stored with it.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

__all__ = ["began", "in_words", "is_dead", "this_process"]


def this_process() -> str:
    """This process: a line for a person, and one for :func:`is_dead`."""
    pid = os.getpid()
    return f"{socket.gethostname()} (process {pid})\n{_world()} {pid} {began(pid)}"


def in_words(holder: str) -> str:
    """The part of :func:`this_process` for a person."""
    return holder.partition("\n")[0]


def is_dead(holder: str) -> bool:
    """Whether the process of :func:`this_process` has certainly ended; False if that cannot be determined here."""
    world, _, process = holder.partition("\n")[2].partition(" ")
    pid, _, since = process.partition(" ")
    return bool(world) and world == _world() and pid.isdigit() and str(began(int(pid))) != since


def began(pid: int) -> int:
    """When a process started, in clock ticks since boot; -1 if there is none, or it is a zombie."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return -1
    return -1 if state == "Z" else int(fields[18])


def _world() -> str:
    """The scope of process ids; "" if it is not known."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""
