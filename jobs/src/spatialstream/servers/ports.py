"""Ports for servers on this machine that must find their port free again after a restart."""

from __future__ import annotations

import random
import socket

from spatialstream.model.errors import SettingError

__all__ = ["HOST", "free_port"]

HOST = "127.0.0.1"
"""The only address on which the servers of this package listen."""

# Below the ports that the system gives to outgoing connections. One of those may be taken while its server is down,
# even by a client that tries to connect to it: on the loopback interface it can get connected to itself.
_LOWEST, _HIGHEST = 12_000, 31_999
_TRIES = 200

_given: set[int] = set()


def free_port() -> int:
    """A port on 127.0.0.1 that nobody listens on, and that this process has not been given before."""
    chance = random.SystemRandom()
    for _ in range(_TRIES):
        port = chance.randint(_LOWEST, _HIGHEST)
        if port not in _given and is_free(port):
            _given.add(port)
            return port
    raise SettingError("port", f"no free port found between {_LOWEST} and {_HIGHEST}")


def is_free(port: int) -> bool:
    """Whether nobody listens on this port of 127.0.0.1."""
    with socket.socket() as trial:
        try:
            trial.bind((HOST, port))
        except OSError:
            return False
    return True
