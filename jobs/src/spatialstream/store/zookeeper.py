"""Routing versions in ZooKeeper.

::

    /spatialstream/<stream>/active          the active version, and what else a change checks: JSON
                            epochs          [version, first epoch] of all bindings: JSON
                            pending         the pending version and its proposal; absent if none: JSON, compressed
                            acks/N-stage-S  slot S has confirmed a stage of version N; empty
                            versions/N/meta    the head of the version's blob (:mod:`~spatialstream.store.blobs`)
                            versions/N/block   its pieces
                            statistics/<name>  the head of a named blob; below it its pieces
                            leases/<job>       see :mod:`~spatialstream.store.lease`

Every change except a confirmation sets ``active``, on condition that it is unchanged since it was read: so changes are
serialized, and a state is consistent if ``active`` did not change while it was read. Confirmations check it without
setting it, and do not conflict with each other. Pieces are written before the transaction that names them, under unique
tokens; pieces of a publisher that died are removed by the next one.

Cost: one round trip to read, two to change, one more for the pieces of a blob.
"""

from __future__ import annotations

import contextlib
import posixpath
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import BadVersionError, NoAuthError, NoNodeError

from spatialstream.index.version import RoutingVersion
from spatialstream.model.arrays import Array, pack_arrays, unpack_arrays
from spatialstream.model.errors import SettingError, SpatialStreamError, StateError, Unavailable
from spatialstream.store import blobs
from spatialstream.store.base import Arrays, RoutingStore
from spatialstream.store.blobs import Blob
from spatialstream.store.codec import checked_name, damage, digest
from spatialstream.store.connection import Connection, Credentials, Wait
from spatialstream.store.lease import Lease, ZooKeeperLease
from spatialstream.store.records import acknowledgement, active_bytes, epochs_bytes, pending_bytes, read_state
from spatialstream.store.state import RoutingState, Stage
from spatialstream.store.tls import Tls

__all__ = ["ZooKeeperStore"]

_LONGEST_TRANSACTION = 1_000_000
_ABANDONED = 3_600_000
"""ms after which a blob that nothing names is considered abandoned."""

_RETRY = 1.0
_TOLD = 10

T = TypeVar("T")

Read = tuple[RoutingState, int]
"""The state, and the version of ``active`` at which it was read."""


class ZooKeeperStore(RoutingStore):
    """A client of its own, with threads that keep :meth:`latest` up to date.

    It begins to connect at once, but does not wait for the connection.

    Args:
        hosts: ``host:port,host:port``, with a path at the end if everything is below one.
        stream: the stream's name: letters, digits, ``-``, ``_`` and ``.``.
        credentials: user and password (ZooKeeper's scheme *digest*). Nodes that are created then give access only to
            that user, ``/spatialstream`` included, so the streams below it have to share the user.
        tls: settings of encrypted connections (:mod:`~spatialstream.store.tls`); None: not encrypted.
        session: seconds without contact after which ZooKeeper expires the session.
        timeout: timeout of a call, seconds.

    Attributes:
        root: path of the node below which everything of the stream is.
        connection: to the servers.

    Raises:
        SettingError: one of them is invalid.
    """

    def __init__(
        self,
        hosts: str,
        stream: str,
        *,
        credentials: Credentials | None = None,
        tls: Tls | None = None,
        session: float = 10.0,
        timeout: float = 10.0,
    ) -> None:
        try:
            self._stream = checked_name(stream)
        except ValueError as error:
            raise SettingError("stream", str(error)) from error
        self.root = f"/spatialstream/{stream}"
        self._name = f"{type(self).__name__}({hosts!r}, {stream!r})"
        self._latest: RoutingState | None = None
        self._lock = threading.Lock()
        self._interruptions = 0
        self._stale = threading.Event()
        self._closing = threading.Event()
        self.connection = Connection(hosts, credentials, session, timeout, self._reachable, tls)
        self._follower = threading.Thread(target=self._follow, name=f"routing-{stream}", daemon=True)
        self._follower.start()

    def __repr__(self) -> str:
        return self._name

    # ------------------------------------------------------------------------------------------------------- versions

    def create(self, version: RoutingVersion, incarnation: str = "", reason: str = "") -> None:
        """See :class:`RoutingStore`."""
        origin, blob = digest(version), self._blob(version)

        def operation(wait: Wait) -> None:
            while True:
                if read := self._read(wait):
                    read[0].recreated(origin, incarnation)
                    return
                new = version.number, version.slots
                state = RoutingState.created(*new, origin, incarnation, version.index.kind, reason)
                for name in ("acks", "statistics"):
                    wait(self._client.ensure_path_async(self._path(name)))
                blob.write(wait)
                transaction = self._client.transaction()
                transaction.create(self._path("active"), active_bytes(state))
                transaction.create(self._path("epochs"), epochs_bytes(state))
                transaction.create(self._path("versions", version.number, "meta"), blob.head)
                if _committed(wait, transaction):
                    return

        self._with_blob(blob, operation)

    def publish(self, version: RoutingVersion, base: int, proposal: str, record: Mapping[str, Any]) -> None:
        """See :class:`RoutingStore`."""
        blob, meta = self._blob(version), self._path("versions", version.number, "meta")

        def operation(wait: Wait) -> None:
            while True:
                before, lock = self._existing(wait)
                after = before.published(version.number, version.slots, base, proposal, record)
                if after is before:
                    return
                with contextlib.suppress(NoNodeError):  # another client has tidied up below an obsolete number
                    blob.write(wait)
                    if self._replace(wait, before, after, lock, lambda each: each.create(meta, blob.head)):
                        return

        self._with_blob(blob, operation)

    def versions(self) -> tuple[int, ...]:
        """See :class:`RoutingStore`."""
        return self._attempt(lambda wait: tuple(sorted(n for n, there in self._numbers(wait).items() if there)))

    def load(self, number: int) -> RoutingVersion:
        """See :class:`RoutingStore`."""
        folder, name = self._path("versions", number), f"version {number}"

        def operation(wait: Wait) -> RoutingVersion:
            try:
                head, _ = wait(self._client.get_async(f"{folder}/meta"))
                with damage(name):
                    content = blobs.read_blob(self._client, wait, f"{folder}/block", head)
                    return RoutingVersion.unpack(content, name)
            except NoNodeError as error:
                raise StateError(f"{name} is not in the store") from error

        return self._attempt(operation)

    def remove(self, numbers: Iterable[int]) -> None:
        """See :class:`RoutingStore`."""
        numbers = frozenset(numbers)

        def operation(wait: Wait) -> None:
            while not self._removed(wait, numbers):
                pass

        self._attempt(operation)
        self._tidy()

    def erase(self) -> None:
        """See :class:`RoutingStore`."""
        self._attempt(lambda wait: blobs.delete(self._client, wait, self.root))

    # ---------------------------------------------------------------------------------------------------------- state

    def state(self) -> RoutingState:
        """See :class:`RoutingStore`."""
        return self._attempt(lambda wait: self._existing(wait)[0])

    def latest(self) -> RoutingState | None:
        """See :class:`RoutingStore`."""
        return self._latest

    def acknowledge(self, number: int, stage: Stage, slots: Iterable[int]) -> None:
        """See :class:`RoutingStore`."""
        slots = frozenset(slots)

        def operation(wait: Wait) -> None:
            while True:
                before, lock = self._existing(wait)
                after = before.acknowledged(number, stage, slots)
                if after is before:
                    return
                transaction = self._client.transaction()
                transaction.check(self._path("active"), lock)
                for slot in sorted(slots - before.acknowledgements(stage)):
                    transaction.create(self._path("acks", acknowledgement(number, stage, slot)))
                if _committed(wait, transaction):
                    return

        self._attempt(operation)

    def activate(self, number: int, epoch: int) -> None:
        """See :class:`RoutingStore`."""
        self._change(lambda state: state.activated(number, epoch))
        self._tidy()

    def withdraw(self, number: int, proposal: str) -> None:
        """See :class:`RoutingStore`."""
        self._change(lambda state: state.withdrawn(number, proposal), lambda each: self._unname(each, [number]))
        self._tidy()

    # ---------------------------------------------------------------------------------------------------------- leases

    def lease(self, job: str) -> Lease:
        """The lease of a job of the stream, which this client can hold until it is closed."""
        return ZooKeeperLease(self.connection, self._path("leases", checked_name(job)), f"{job} of {self._stream}")

    # ----------------------------------------------------------------------------------------------------- statistics

    def save_statistics(self, name: str, arrays: Arrays, meta: Mapping[str, Any]) -> None:
        """See :class:`RoutingStore`."""
        folder = self._path("statistics", checked_name(name))
        blob = Blob(self._client, folder, pack_arrays(arrays, meta))
        replaced: set[str] = set()

        def operation(wait: Wait) -> None:
            blob.write(wait)
            while True:  # until no other client has replaced it at the same moment
                before, stat = wait(self._client.get_async(folder))
                if before == blob.head:
                    break
                with contextlib.suppress(BadVersionError):
                    wait(self._client.set_async(folder, blob.head, stat.version))
                    with damage(f"the previous blob of statistics {name}"):
                        replaced.update({blobs.token_of(before)} if before else ())
                    break
            blobs.delete_pieces(self._client, wait, folder, replaced | self._abandoned(wait, folder, blob.token))

        self._attempt(operation)

    def load_statistics(self, name: str) -> tuple[dict[str, Array], dict[str, Any]] | None:
        """See :class:`RoutingStore`."""
        folder = self._path("statistics", checked_name(name))
        return self._attempt(lambda wait: self._statistics(wait, folder, name))

    def of_others(self, name: str) -> dict[str, dict[str, Any]]:
        """The meta that the other streams in this ZooKeeper have saved under a name, by stream.

        Omits streams of other users, which these credentials cannot read.
        """
        home = posixpath.dirname(self.root)

        def operation(wait: Wait) -> dict[str, dict[str, Any]]:
            operations = {}
            try:
                streams = wait(self._client.get_children_async(home))
            except (NoNodeError, NoAuthError):
                return {}
            for stream in sorted(set(streams) - {self._stream}):
                with contextlib.suppress(NoAuthError, StateError):
                    known = self._statistics(wait, f"{home}/{stream}/statistics/{checked_name(name)}", name)
                    if known is not None:
                        operations[stream] = known[1]
            return operations

        return self._attempt(operation)

    def _statistics(self, wait: Wait, folder: str, name: str) -> tuple[dict[str, Array], dict[str, Any]] | None:
        last = -1
        while True:
            try:
                data, stat = wait(self._client.get_async(folder))
            except NoNodeError:
                return None
            if not data:
                return None
            if stat.version == last:
                raise StateError(f"the statistics {name} are damaged: a piece is missing")
            last = stat.version
            with damage(f"the blob of statistics {name}"), contextlib.suppress(NoNodeError):
                return unpack_arrays(blobs.read_blob(self._client, wait, folder, data), f"statistics {name}")

    def close(self) -> None:
        """See :class:`RoutingStore`."""
        self._closing.set()
        self._stale.set()
        self._latest = None
        self.connection.close()
        self._follower.join()

    # -------------------------------------------------------------------------------------------------------- reading

    @property
    def _client(self) -> KazooClient:
        return self.connection.client

    def _attempt(self, operation: Callable[[Wait], T]) -> T:
        """As :meth:`Connection.attempt`; sees all changes of any client before the call, through whichever server."""

        def synchronised(wait: Wait) -> T:
            self._client.sync_async(self.root)  # not awaited: a session's requests are answered in order
            return operation(wait)

        return self.connection.attempt(synchronised)

    def _path(self, *names: object) -> str:
        return "/".join((self.root, *map(str, names)))

    def _blob(self, version: RoutingVersion) -> Blob:
        """The blob of a version to be written; the version exists once a transaction has written the blob's head."""
        return Blob(self._client, self._path("versions", version.number, "block"), version.pack())

    def _read(self, wait: Wait, watch: Callable[[Any], None] | None = None) -> Read | None:
        """The state at one moment, None if there is none; ``watch`` is called once when it has changed."""
        client, active = self._client, self._path("active")
        while True:
            results = [
                client.get_async(active, watch),
                client.get_async(self._path("epochs")),
                client.get_async(self._path("pending")),
                client.get_children_async(self._path("acks"), watch),
                client.exists_async(active),
            ]
            try:
                data, stat = wait(results[0])
                epochs = wait(results[1])[0]
            except NoNodeError:
                if wait(client.exists_async(active, watch)) is None:
                    return None
                continue
            try:
                pending = wait(results[2])[0]
            except NoNodeError:
                pending = None
            names, again = wait(results[3]), wait(results[4])
            if again is not None and again.version == stat.version:
                return read_state(data, epochs, pending, names), stat.version

    def _existing(self, wait: Wait) -> Read:
        read = self._read(wait)
        if read is None:
            raise StateError(f"there is no stream {self._stream!r} in the routing store; there is {self._others(wait)}")
        return read

    def _others(self, wait: Wait) -> str:
        """The existing streams, for a message."""
        try:
            names = sorted(wait(self._client.get_children_async(posixpath.dirname(self.root))))
        except (NoNodeError, NoAuthError):
            names = []
        return f"{', '.join(names[:_TOLD])}{', ...' if len(names) > _TOLD else ''}" or "none"

    def _numbers(self, wait: Wait) -> dict[int, bool]:
        """The numbers below ``versions``, and whether they are versions, or blobs that nothing names."""
        try:
            names = wait(self._client.get_children_async(self._path("versions")))
        except NoNodeError:
            return {}
        numbers = [int(name) for name in names if name.isdecimal()]
        results = [self._client.exists_async(self._path("versions", number, "meta")) for number in numbers]
        return {number: wait(result) is not None for number, result in zip(numbers, results, strict=True)}

    # ------------------------------------------------------------------------------------------------------- changing

    def _change(
        self,
        change: Callable[[RoutingState], RoutingState],
        besides: Callable[[TransactionRequest], None] = lambda transaction: None,
    ) -> None:
        def operation(wait: Wait) -> None:
            while True:
                before, lock = self._existing(wait)
                after = change(before)
                if after is before or self._replace(wait, before, after, lock, besides):
                    return

        self._attempt(operation)

    def _replace(
        self,
        wait: Wait,
        before: RoutingState,
        after: RoutingState,
        lock: int,
        besides: Callable[[TransactionRequest], None],
    ) -> bool:
        """Replace a state by another, and do something in the same transaction; False if the state has changed."""
        transaction = self._client.transaction()
        transaction.set_data(self._path("active"), active_bytes(after), lock)
        if after.bindings != before.bindings:
            transaction.set_data(self._path("epochs"), epochs_bytes(after))
        if before.pending is not None and after.pending is None:
            transaction.delete(self._path("pending"))
        elif after.pending is not None and before.pending is None:
            transaction.create(self._path("pending"), pending_bytes(after.pending))
        besides(transaction)
        return _committed(wait, transaction)

    def _removed(self, wait: Wait, numbers: frozenset[int]) -> bool:
        before, lock = self._existing(wait)
        versions = {number for number, there in self._numbers(wait).items() if there}
        after, present = before.without(numbers, versions), sorted(versions & numbers)
        if after is before and not present:
            return True
        return self._replace(wait, before, after, lock, lambda transaction: self._unname(transaction, present))

    def _unname(self, transaction: TransactionRequest, numbers: Iterable[int]) -> None:
        for number in numbers:
            transaction.delete(self._path("versions", number, "meta"))

    def _with_blob(self, blob: Blob, operation: Callable[[Wait], None]) -> None:
        try:
            self._attempt(operation)
        except StateError:
            with contextlib.suppress(Unavailable):
                self._attempt(blob.discard)
            raise
        self._tidy()

    def _tidy(self) -> None:
        """Remove what nothing can name any more, and old confirmations; failures are left to the next time."""
        with contextlib.suppress(Unavailable):
            self._attempt(self._sweep)

    def _sweep(self, wait: Wait) -> None:
        read = self._read(wait)
        if read is None:
            return
        state = read[0]
        for number, there in self._numbers(wait).items():
            if not there and number <= state.last:
                blobs.delete(self._client, wait, self._path("versions", number))
        current = state.active.number if state.pending is None else state.pending.number
        self._discard_others(wait, self._path("versions", current))
        names = wait(self._client.get_children_async(self._path("acks")))
        for name in names:
            if state.pending is None or not name.startswith(f"{current}-"):
                blobs.delete(self._client, wait, self._path("acks", name))

    def _discard_others(self, wait: Wait, folder: str) -> None:
        """Delete the blobs beside that of a version, whose publishers came too late or died before."""
        with contextlib.suppress(NoNodeError):
            mine = blobs.token_of(wait(self._client.get_async(f"{folder}/meta"))[0])
            others = blobs.tokens(self._client, wait, f"{folder}/block").keys() - {mine}
            if others:
                blobs.delete_pieces(self._client, wait, f"{folder}/block", others)

    def _abandoned(self, wait: Wait, folder: str, token: str) -> set[str]:
        """Blobs below a node that are much older than one of them: their writers will not name them any more."""
        found = blobs.tokens(self._client, wait, folder)
        ages = {}
        for each, (path, *_) in found.items():
            stat = wait(self._client.exists_async(path))
            ages[each] = None if stat is None else stat.ctime
        now = ages.get(token) or 0
        return {each for each, made in ages.items() if made is not None and made < now - _ABANDONED}

    # ------------------------------------------------------------------------------------------------------ following

    def _reachable(self, connected: bool) -> None:
        with self._lock:
            self._interruptions += 1
            self._latest = None
        self._stale.set()

    def _follow(self) -> None:
        """Keep ``_latest`` up to date: on each event of a watch, and each new connection, read and watch again."""
        while self._stale.wait() and not self._closing.is_set():
            self._stale.clear()
            interruptions = self._interruptions
            if not self.connection.connected:
                continue
            try:
                read = self.connection.attempt(lambda wait: self._read(wait, self._notice))
            except SpatialStreamError:
                self._latest = None
                self._closing.wait(_RETRY)
                self._stale.set()
                continue
            with self._lock:
                if interruptions == self._interruptions and not self._closing.is_set():
                    state = None if read is None else read[0]
                    self._latest = self._latest if state == self._latest else state

    def _notice(self, event: object) -> None:
        self._stale.set()


def _committed(wait: Wait, transaction: TransactionRequest) -> bool:
    """Commit a transaction; returns False if one of its conditions did not hold.

    Raises:
        StateError: it is too large.
    """
    size = sum(len(getattr(each, "data", b"") or b"") + len(each.path) + 100 for each in transaction.operations)
    if size > _LONGEST_TRANSACTION:
        raise StateError(f"a change of {size} bytes is too large for ZooKeeper")
    failures = [each for each in wait(transaction.commit_async()) if isinstance(each, Exception)]
    for failure in failures:
        if isinstance(failure, NoAuthError):
            raise failure
    return not failures
