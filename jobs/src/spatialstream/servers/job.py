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
        folder: for its log.
        job: ``router`` or ``worker``.
        arguments: more arguments for the command.
        port: of its metrics; None for a free one.
        environment: variables that it gets besides ours.
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
        """There is nothing to write."""

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

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=1.0) as answer:
                return b"spatialstream_running 1.0" in answer.read()
        except OSError:
            return False

    def interrupt(self) -> None:
        """Ask it to finish what is under way (SIGTERM), and do not wait."""
        if self.pid is not None:
            os.kill(self.pid, signal.SIGTERM)


class GatewayServer(JobServer):
    """A gateway; its port is where it serves.

    Args:
        folder: for its log.
        arguments: more arguments for the command.
        port: None for a free one.
    """

    _port_option = "--port"

    def __init__(self, folder: Path, arguments: Sequence[str], port: int | None = None) -> None:
        super().__init__(folder, "gateway", arguments, port)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/ready", timeout=3.0):
                return True
        except OSError:
            return False
