"""A running stream, for programs: ``with spatialstream.connect("dev") as stream: stream.ask({...})``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any, Self, overload

from spatialstream.client.snapshots import SnapshotAsker
from spatialstream.model.space import Space
from spatialstream.seats.door import Doorway
from spatialstream.store.base import RoutingStore
from spatialstream.store.zookeeper import ZooKeeperStore

__all__ = ["Stream", "connect"]


def connect(stream: str, zookeeper: str = "127.0.0.1:2181", *, credentials: tuple[str, str] | None = None) -> Stream:
    """Reach a running stream, to ask it.

    Args:
        stream: its name.
        zookeeper: ``host:port,...``.
        credentials: user and password of ZooKeeper.

    Raises:
        SettingError: a name or an address cannot be used.
        Unavailable: ZooKeeper cannot be reached, or no worker of such a stream has run yet.
    """
    with ExitStack() as opened:
        found = Stream.of(opened.enter_context(ZooKeeperStore(zookeeper, stream, credentials=credentials)))
        opened.push(found)
        return Stream(found._asker, opened.pop_all())


class Stream:
    """A running stream; made by :func:`connect`. Several threads may use it."""

    def __init__(self, asker: SnapshotAsker, opened: ExitStack) -> None:
        self._asker, self._opened = asker, opened

    @classmethod
    def of(cls, store: RoutingStore) -> Self:
        """A stream whose routing store is given, and stays open.

        Raises:
            Unavailable: the store cannot be reached, or no worker of the stream has run yet.
        """
        with ExitStack() as opened:
            doorway = opened.enter_context(Doorway(store))
            space, rule = Space.parse(doorway.door.space), doorway.door.rule
            return cls(SnapshotAsker(doorway.newest, doorway.call, space, rule), opened.pop_all())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of all connections."""
        self._opened.close()

    @overload
    def ask(
        self, question: Mapping[str, Any], *, at_least: int | str | None = None, timeout: float = 10.0
    ) -> dict[str, Any]: ...

    @overload
    def ask(
        self, question: Iterable[Mapping[str, Any]], *, at_least: int | str | None = None, timeout: float = 10.0
    ) -> list[dict[str, Any]]: ...

    def ask(
        self,
        question: Mapping[str, Any] | Iterable[Mapping[str, Any]],
        *,
        at_least: int | str | None = None,
        timeout: float = 10.0,
    ) -> dict[str, Any] | list[dict[str, Any]]:
        """The answer to a snapshot query, or the answers to several; see :meth:`SnapshotAsker.ask`."""
        return self._asker.ask(question, at_least=at_least, timeout=timeout)

    def lines(
        self, records: Iterable[tuple[str, object]], at_least: int | str | None = None, timeout: float = 10.0
    ) -> Iterator[str]:
        """The answers as lines of JSON; see :meth:`SnapshotAsker.lines`."""
        return self._asker.lines(records, at_least, timeout)
