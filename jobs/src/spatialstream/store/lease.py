"""A job's lease: at most one of all processes that could do a stream's job does it, as far as that can be ensured.

Interface
    :class:`Lease`: :meth:`~Lease.acquire` it, check :attr:`~Lease.held`, release it. Two implementations with one
    suite of tests: in ZooKeeper (live streams), by a folder's lock file (embedded mode, on one machine).

Invariant
    Each new holder gets a new *fencing number*, larger than all before it. As long as no other process has become the
    holder, a holder that was cut off may become it again, under its own number.

What a lease cannot do
    A process that is paused learns of nothing. It resumes as the holder that it was, and continues for a moment, while
    a successor has been working; so does a process that is cut off from ZooKeeper, and from nothing else, for as long
    as that lasts. So no answer may depend on there being only one holder. That two do no harm is ensured by what they
    write, and by the number in it (:mod:`spatialstream.stream.leadership`); the lease keeps them from working in vain.
    A lock file is stronger: the kernel of the one machine holds it as long as the process lives, paused or not.

In ZooKeeper::

    /spatialstream/<stream>/leases/<job>          its version is the fencing number of the last holder; empty
    /spatialstream/<stream>/leases/<job>/holder   ephemeral; the holder, see :mod:`~spatialstream.store.holder`

One transaction creates the holder and sets the node above it, atomically, so the number grows with each holder. It is a
version, and not the transaction's own number (``czxid``), because it stays small enough to be readable in names, and
because a transaction can check the condition "no holder since".
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Self

from kazoo.client import TransactionRequest
from kazoo.exceptions import NoAuthError, NoNodeError

from spatialstream.model.errors import SettingError, SpatialStreamError, Unavailable
from spatialstream.store.codec import damage
from spatialstream.store.connection import Connection, Wait
from spatialstream.store.holder import in_words, is_dead, this_process

__all__ = ["FolderLease", "Lease", "ZooKeeperLease"]

_DIGITS = 20
_LOOK = 0.05
"""Interval, s, of attempts to get a lock that another process holds."""

_RETRY = 1.0


class Lease(ABC):
    """The lease of one job, as seen by one process.

    Attributes:
        number: the fencing number; 0 before this process was ever the holder. It is kept when the lease is lost.
        held: whether this process is the holder, as far as it knows: False at once when the connection is lost.
        superseded: whether another process is known to have become the holder since: this one has to exit.
    """

    number: int = 0
    held: bool = False
    superseded: bool = False

    @abstractmethod
    def acquire(self, patience: float) -> None:
        """Become the holder.

        Args:
            patience: seconds to wait for another holder to release it or to expire, and for the servers.

        Raises:
            SettingError: another process is the holder, and remains it.
            Unavailable: the holder is not known. This process becomes the holder as soon as it can; if another one
                turns out to be the holder, this one is superseded.
            OSError: the folder of a lock file cannot be written.
        """

    @abstractmethod
    def release(self) -> None:
        """Release it; others can acquire it at once."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


# --------------------------------------------------------------------------------------------------------- by a folder


class FolderLease(Lease):
    """A lock file, on a file system of one machine: a process holds it until it exits.

    Args:
        folder: of the file.
        job: its name.
    """

    def __init__(self, folder: Path, job: str) -> None:
        self._folder, self._job = folder, job
        self._file: int | None = None

    def acquire(self, patience: float) -> None:
        """See :class:`Lease`."""
        if self._file is not None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        path, ends = self._folder / f"{self._job}.lock", time.monotonic() + patience
        with contextlib.ExitStack() as opened:
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            opened.callback(os.close, file)
            while not _locked(file):
                if time.monotonic() >= ends:
                    raise SettingError("checkpoint", f"another {self._job} is running on {self._folder}")
                time.sleep(_LOOK)
            with damage(str(path)):
                self.number = 1 + int(os.pread(file, _DIGITS, 0) or b"0")
            os.pwrite(file, b"%0*d" % (_DIGITS, self.number), 0)  # of constant length: it is never half written
            opened.pop_all()
            self._file, self.held = file, True

    def release(self) -> None:
        """See :class:`Lease`."""
        if self._file is not None:
            os.close(self._file)
            self._file, self.held = None, False


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


# -------------------------------------------------------------------------------------------------------- in ZooKeeper


class ZooKeeperLease(Lease):
    """An ephemeral node of a session, and a thread that checks it after each change of the session or the node.

    Args:
        connection: whose session it is; closed after the lease is released.
        path: of the lease.
        job: its name, for messages.

    Attributes:
        connection: as passed in.
    """

    def __init__(self, connection: Connection, path: str, job: str) -> None:
        self.connection, self._client = connection, connection.client
        self._path, self._holder, self._job = path, f"{path}/holder", job
        self._session = 0
        self._overdue = False
        self._other = ""
        self._problem: SpatialStreamError | None = None
        self._interruptions = 0
        self._changed = threading.Condition()
        self._stale = threading.Event()
        self._closing = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name=f"lease-{job}", daemon=True)
        connection.listen(self._reachable)

    def acquire(self, patience: float) -> None:
        """See :class:`Lease`."""
        if self._keeper.ident is None:
            self._keeper.start()
        with self._changed:
            self._changed.wait_for(lambda: self.held or self.superseded or self._problem is not None, patience)
            if self.held:
                return
            if self._problem is not None:
                raise self._problem
            if self._other:
                raise SettingError("stream", f"another {self._job} is running, on {self._other}")
            self._overdue = True
        raise Unavailable(f"ZooKeeper did not report within {patience:g} s whether another {self._job} is running")

    def abandon(self) -> None:
        """Look after it no more, without releasing it: others can acquire it when the session has ended."""
        self._closing.set()
        self._stale.set()
        if self._keeper.is_alive():
            self._keeper.join()

    def release(self) -> None:
        """See :class:`Lease`."""
        self.abandon()
        if self.held:
            self.held = False
            with contextlib.suppress(SpatialStreamError):  # then it ends with the session
                self.connection.attempt(self._delete)

    def _delete(self, wait: Wait) -> None:
        with contextlib.suppress(NoNodeError):
            wait(self._client.delete_async(self._holder))

    def _reachable(self, connected: bool) -> None:
        with self._changed:
            self._interruptions += 1
            self.held = False
        self._stale.set()

    def _notice(self, event: object) -> None:
        self._stale.set()

    def _keep(self) -> None:
        """Check the lease after each possible change; periodically while it is not held."""
        while not self.superseded:
            self._stale.wait(None if self.held else _RETRY)
            self._stale.clear()
            if self._closing.is_set():
                return
            if self.connection.connected:
                self._look()

    def _look(self) -> None:
        interruptions = self._interruptions
        problem: SpatialStreamError | None = None
        number, session, other = 0, 0, ""
        try:
            number, session, other = self.connection.attempt(self._take)
        except Unavailable:
            return
        except SpatialStreamError as error:
            problem = error
        with self._changed:
            self._problem, self._other = problem, other
            if number and interruptions == self._interruptions:
                self.number, self._session, self.held = number, session, True
            elif problem is None and not number:
                self.held = False
                self.superseded = self._overdue or self.number > 0
            self._changed.notify_all()

    def _take(self, wait: Wait) -> tuple[int, int, str]:
        """Become or stay the holder, if that is possible now.

        Returns:
            The fencing number, 0 if another process is the holder or has been since; the session; the other holder.
        """
        client = self._client
        while True:
            session = 0 if client.client_id is None else client.client_id[0]
            owner = None
            with contextlib.suppress(NoNodeError):
                given, stat = wait(client.get_async(self._holder, self._notice))
                owner, who = stat.ephemeralOwner, given.decode(errors="replace")
            if owner not in (None, session):
                if self.number or not is_dead(who):
                    return 0, session, in_words(who)
                self._evict(wait, stat.czxid)
                continue
            above = wait(client.exists_async(self._path))
            if owner is not None and above is not None:
                return above.version, session, ""  # it is set only with a new holder
            # a process that has removed the holder of a live session wants it to end
            if self.number and (above is None or above.version != self.number or session == self._session):
                return 0, session, "nobody any more"
            if above is None:
                wait(client.ensure_path_async(self._path))
                continue
            transaction = client.transaction()
            if self.number:
                transaction.check(self._path, self.number)
            else:
                transaction.set_data(self._path, b"", above.version)
            transaction.create(self._holder, this_process().encode(), ephemeral=True)
            _commit(wait, transaction)

    def _evict(self, wait: Wait, czxid: int) -> None:
        """Remove the holder of that transaction, which is dead, unless there is another one by now.

        Its session would expire by itself, but only some seconds after the servers have last heard of it.
        """
        above = wait(self._client.exists_async(self._path))
        with contextlib.suppress(NoNodeError):
            _, stat = wait(self._client.get_async(self._holder))
            if above is not None and stat.czxid == czxid:
                transaction = self._client.transaction()
                transaction.check(self._path, above.version)
                transaction.delete(self._holder)
                _commit(wait, transaction)


def _commit(wait: Wait, transaction: TransactionRequest) -> None:
    """Commit, or do nothing if a condition does not hold."""
    for each in wait(transaction.commit_async()):
        if isinstance(each, NoAuthError):
            raise each
