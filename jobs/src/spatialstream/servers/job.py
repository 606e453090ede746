"""A command of a live stream as a child process: ``spatialstream router``, ``worker`` or ``gateway``."""

from __future__ import annotations

import os
import signal
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from spatialstream.servers.process import Server

__all__ = ["GatewayServer", "JobServer"]


class JobServer(Server):
    """A job; its port is that of its metrics.

    Args:
        folder: folder of its log.
        job: ``router`` or ``worker``.
        arguments: further arguments of the command.
        port: port of its metrics; None for a free one.
        environment: variables to add to the environment of this process.
    """

    _port_option = "--metrics-port"

    def __init__(
        self,
        folder: Path,
        job: str,
        arguments: Sequence[str],
        port: int | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        super().__init__(folder, port)
        self.name = job  # type: ignore[misc] # one class for both
        self._arguments = list(arguments)
        self._environment = environment or {}

    def _configure(self) -> None:
        """Do nothing: there is no configuration file."""

    def _command(self) -> list[str]:
        command = [
            sys.executable,
            "-m",
            "spatialstream",
            self.name,
            *self._arguments,
            self._port_option,
            str(self.port),
        ]
        return ["env", *(f"{name}={value}" for name, value in self._environment.items()), *command]

    def answers(self) -> bool:
        """See :class:`~spatialstream.servers.process.Server`."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=1.0) as answer:
                return b"spatialstream_running 1.0" in answer.read()
        except OSError:
            return False

    def interrupt(self) -> None:
        """Ask it to finish its turn and end (SIGTERM), without waiting."""
        if self.pid is not None:
            os.kill(self.pid, signal.SIGTERM)


class GatewayServer(JobServer):
    """A gateway; its port is the HTTP port.

    Args:
        folder: folder of its log.
        arguments: further arguments of the command.
        port: the port; None for a free one.
    """

    _port_option = "--port"

    def __init__(self, folder: Path, arguments: Sequence[str], port: int | None = None) -> None:
        super().__init__(folder, "gateway", arguments, port)

    def answers(self) -> bool:
        """See :class:`~spatialstream.servers.process.Server`."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/ready", timeout=3.0):
                return True
        except OSError:
            return False
