"""A server as a child process: start it and wait until it answers, stop it, kill it, restart it on the same data.

A child has a process group of its own: the terminal's signals reach none of it, and a kill reaches all of it. Asked to
end, the child ends its own children in order. It ends with this process unless it is detached; then
:func:`stop_recorded` ends it, by the note that it left in its folder. After a ``kill -9`` of this process the reaper
does that (:mod:`~spatialstream.servers.reaper`).
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from spatialstream.model.errors import ServerError
from spatialstream.servers.ports import free_port
from spatialstream.store.holder import began

__all__ = ["REAPER", "Server", "recorded", "stop_recorded"]

_POLL = 0.05
_LOG_LINES = 20


class Reaper:
    """Has a reaper process end the servers that this process leaves behind when it dies.

    The reaper is sent the list of running servers, and notices when this process is gone. Threads may start and end
    servers at the same time; a fork of this process has a reaper of its own.

    Attributes:
        process: the reaper; None while it has not been needed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._folders: dict[str, None] = {}
        self.process: subprocess.Popen[str] | None = None
        self._owner = 0

    def watch(self, folder: Path) -> None:
        """Have the server of this folder ended with this process."""
        with self._lock:
            if self._owner != os.getpid():
                self._folders, self.process, self._owner = {}, None, os.getpid()
                atexit.register(self._close)
            self._folders[str(folder.resolve())] = None
            self._tell()

    def release(self, folder: Path) -> None:
        """Stop watching the server of this folder: it has ended, or is to outlive this process."""
        with self._lock:
            if self._owner == os.getpid() and str(folder.resolve()) in self._folders:
                del self._folders[str(folder.resolve())]
                self._tell()

    def _tell(self) -> None:
        """Send the list of folders to the reaper; start a new one if there is none, or it has been killed."""
        line = json.dumps(list(self._folders)) + "\n"
        for _ in range(2):
            if self.process is None:
                self.process = subprocess.Popen(
                    [sys.executable, "-m", "spatialstream.servers.reaper"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                    text=True,
                )
            assert self.process.stdin is not None
            try:
                self.process.stdin.write(line)
                self.process.stdin.flush()
                return
            except BrokenPipeError:
                self._end()

    def _close(self) -> None:
        with self._lock:
            if self._owner == os.getpid():
                self._end()

    def _end(self) -> None:
        if self.process is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.communicate()
            self.process = None


REAPER = Reaper()
"""The reaper of this process."""


class Server(ABC):
    """A server on 127.0.0.1 with a data folder and a port, both of which it keeps over restarts.

    Args:
        folder: folder of its data, configuration, ``log`` and ``pid``; created if missing.
        port: the port for clients; None for a free one.
    """

    name: ClassVar[str]
    """The server's name in messages."""

    def __init__(self, folder: Path, port: int | None = None) -> None:
        self.folder = folder
        self.port = free_port() if port is None else port
        self._child: subprocess.Popen[bytes] | None = None
        self._parent = 0

    @abstractmethod
    def _configure(self) -> None:
        """Write the configuration, and prepare what a first start needs. Called before each start."""

    @abstractmethod
    def _command(self) -> list[str]:
        """The command line."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether it serves clients; polled, so it must be quick."""

    @property
    def log(self) -> Path:
        """The file with the server's output; each start appends to it."""
        return self.folder / "log"

    @property
    def pid(self) -> int | None:
        """The child's process id, None if it does not run."""
        return self._child.pid if self._child is not None and self._child.poll() is None else None

    @property
    def running(self) -> bool:
        """Whether the child runs."""
        return self.pid is not None

    def start(self, timeout: float = 60.0) -> Self:
        """Start the server and wait until it answers; does nothing if it runs already.

        Args:
            timeout: seconds it may take.

        Raises:
            ServerError: it ended, or did not answer in time; it is not running then.
        """
        return self if self.running else self.launch().await_answer(timeout)

    def launch(self) -> Self:
        """Start without waiting, for servers that answer only together. Does nothing if it runs already."""
        if self.running:
            return self
        self.folder.mkdir(parents=True, exist_ok=True)
        self._configure()
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                start_new_session=True,
            )
        self._parent = os.getpid()
        atexit.register(self._stop_at_exit)
        _record(self.folder, self._child.pid)
        REAPER.watch(self.folder)
        return self

    def await_answer(self, timeout: float = 60.0) -> Self:
        """Wait until it answers, after :meth:`launch`; for arguments and errors see :meth:`start`."""
        answered = await_condition(lambda: not self.running or self.answers(), timeout)
        running = self.running
        if not (running and answered):
            self.kill()
            problem = f"did not answer within {timeout:g} s" if running else "ended"
            raise ServerError(f"{self.name} {problem}", self.tail())
        return self

    def stop(self, timeout: float = 15.0) -> bool:
        """End it by SIGTERM, or by force after ``timeout`` seconds; return whether it ended by itself."""
        return self._end(signal.SIGTERM, timeout)

    def kill(self) -> None:
        """End it at once, as a crash would (SIGKILL)."""
        self._end(signal.SIGKILL, 0.0)

    def restart(self, timeout: float = 60.0) -> Self:
        """Stop it if it runs, and start it on the same folder and port; for arguments and errors see :meth:`start`."""
        self.stop()
        return self.start(timeout)

    def detach(self) -> None:
        """Let it outlive this process; from now on :func:`stop_recorded` ends it."""
        atexit.unregister(self._stop_at_exit)
        REAPER.release(self.folder)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _end(self, how: signal.Signals, timeout: float) -> bool:
        if self._child is None:
            return True
        in_order = False
        if how == signal.SIGTERM:
            _send(os.kill, self._child.pid, how)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(timeout)
                in_order = True
        _send(os.killpg, self._child.pid, signal.SIGKILL)  # all of it, or what the child has left behind
        self._child.wait()
        self._child = None
        atexit.unregister(self._stop_at_exit)
        _note(self.folder).unlink(missing_ok=True)
        REAPER.release(self.folder)
        return in_order

    def _stop_at_exit(self) -> None:
        if os.getpid() == self._parent:  # and not in a fork of it
            self.stop()

    def tail(self) -> str:
        """The last lines of its log."""
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-_LOG_LINES:])


def stop_recorded(folder: Path, timeout: float = 15.0) -> bool:
    """Stop the server that was started in a folder, by whichever process; False if none runs.

    Args:
        folder: the folder of the :class:`Server`.
        timeout: seconds to wait for an end in order, before it is ended by force.
    """
    pid = recorded(folder)
    if pid is not None:
        for send, how in ((os.kill, signal.SIGTERM), (os.killpg, signal.SIGKILL)):
            _send(send, pid, how)
            await_condition(lambda: recorded(folder) is None, timeout)
    _note(folder).unlink(missing_ok=True)
    return pid is not None


def await_condition(condition: Callable[[], bool], timeout: float) -> bool:
    """Poll until a condition holds, for at most ``timeout`` seconds; return whether it did."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL)
    return True


def recorded(folder: Path) -> int | None:
    """Process id of the server that was started in a folder, by whichever process; None if none runs."""
    note = _note(folder)
    if not note.is_file():
        return None
    pid, since = (int(each) for each in note.read_text().split())
    return pid if began(pid) == since else None  # process ids are reused


def _send(send: Callable[[int, int], None], pid: int, how: signal.Signals) -> None:
    """Send a signal to a process (``os.kill``) or to its group (``os.killpg``), if it is still there."""
    with contextlib.suppress(ProcessLookupError):
        send(pid, how)


def _note(folder: Path) -> Path:
    return folder / "pid"


def _record(folder: Path, pid: int) -> None:
    _note(folder).write_text(f"{pid} {began(pid)}\n")
