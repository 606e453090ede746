"""A running stream, for programs: ``with spatialstream.connect("dev") as stream: stream.ask({...})``."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Self

from spatialstream.client.inside import Inside
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
        store = opened.enter_context(ZooKeeperStore(zookeeper, stream, credentials=credentials))
        return Stream(store, opened.pop_all())


class Stream(SnapshotAsker):
    """A running stream; made by :func:`connect`. Several threads may use it.

    Args:
        store: its routing store.
        opened: is closed with it.

    Raises:
        Unavailable: the store cannot be reached, or no worker of the stream has run yet.
    """

    def __init__(self, store: RoutingStore, opened: ExitStack | None = None) -> None:
        with ExitStack() as closing:
            if opened is not None:
                closing.push(opened)
            doorway = closing.enter_context(Doorway(store))
            super().__init__(doorway.newest, doorway.call, Space.parse(doorway.door.space), doorway.door.rule)
            self._inside = Inside(store, lambda: doorway.seats)
            self._opened = closing.pop_all()

    def inside(self) -> dict[str, Any]:
        """What the stream is like inside, for people; see :meth:`spatialstream.client.inside.Inside.look`.

        Raises:
            StateError: there is no such stream any more.
            Unavailable: the store cannot be reached.
        """
        return self._inside.look()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of all connections."""
        self._opened.close()
