"""Servers that decide by majority: ZooKeeper as an ensemble, Kafka as a cluster whose brokers are its controllers.

Those that are left go on as long as they are more than half. Each can be killed, and started again, by itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Generic, Self, TypeVar

from spatialstream.servers.kafka import KafkaServer, metadata_of, new_cluster
from spatialstream.servers.ports import free_port
from spatialstream.servers.process import Server
from spatialstream.servers.zookeeper import ZooKeeperServer
from spatialstream.store.tls import TlsFiles

__all__ = ["KafkaQuorum", "Quorum", "ZooKeeperQuorum"]

SERVERS = 3
"""The fewest that can lose one."""

_ANSWER_WITHIN = 5.0
"""Seconds; the broker that is asked first may not be there."""

S = TypeVar("S", bound=Server)


class Quorum(Generic[S]):
    """Servers of one kind.

    Attributes:
        servers: all of them, whether they run or not.
    """

    def __init__(self, servers: Sequence[S]) -> None:
        self.servers = tuple(servers)

    @property
    def minority(self) -> int:
        """How many it can do without."""
        return (len(self.servers) - 1) // 2

    def start(self, timeout: float = 120.0) -> Self:
        """Start those that do not run, and wait until all answer; see :meth:`Server.start` for arguments and errors."""
        self.launch()
        self._each(lambda server: server.await_answer(timeout))
        return self

    def launch(self) -> Self:
        """Start those that do not run, and do not wait."""
        self._each(lambda server: server.launch())
        return self

    def kill(self, servers: Iterable[S] | None = None) -> None:
        """End some of them, or all, at once, as crashes would (SIGKILL)."""
        for server in self.servers if servers is None else servers:
            server.kill()

    def stop(self, timeout: float = 15.0) -> None:
        """End all in order, and by force those that take more than ``timeout`` seconds."""
        self._each(lambda server: server.stop(timeout))

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _each(self, do: Callable[[S], object]) -> None:
        """Do something with each, at the same time."""
        with ThreadPoolExecutor(len(self.servers)) as threads:
            deque(threads.map(do, self.servers), 0)


class ZooKeeperQuorum(Quorum[ZooKeeperServer]):
    """A ZooKeeper ensemble.

    Args:
        folder: where it keeps everything.
        count: of servers.
        tls: of all of them; see :class:`ZooKeeperServer`.
    """

    def __init__(self, folder: Path, count: int = SERVERS, tls: TlsFiles | None = None) -> None:
        peers = [(free_port(), free_port()) for _ in range(count)]
        numbers = range(1, count + 1)
        super().__init__([ZooKeeperServer(folder / str(i), tls=tls, ensemble=peers, number=i) for i in numbers])
        self.tls = tls

    @property
    def hosts(self) -> str:
        """What a client connects to."""
        return ",".join(server.hosts for server in self.servers)

    @property
    def leader(self) -> ZooKeeperServer | None:
        """The one that leads; None: there is none now."""
        return next((server for server in self.servers if server.running and server.mode == "leader"), None)

    def is_whole(self) -> bool:
        """Whether all servers serve."""
        return all(server.running and server.mode for server in self.servers)


class KafkaQuorum(Quorum[KafkaServer]):
    """A Kafka cluster, all of whose brokers are controllers too.

    Args:
        folder: where it keeps everything.
        count: of brokers.
    """

    def __init__(self, folder: Path, count: int = SERVERS) -> None:
        controllers, cluster = [free_port() for _ in range(count)], new_cluster()
        numbers = range(1, count + 1)
        super().__init__(
            [KafkaServer(folder / str(i), controllers=controllers, number=i, cluster=cluster) for i in numbers]
        )

    @property
    def bootstrap(self) -> str:
        """What a client connects to (``bootstrap.servers``)."""
        return ",".join(server.bootstrap for server in self.servers)

    @property
    def security(self) -> dict[str, str]:
        """What a client needs besides, in librdkafka's names."""
        return self.servers[0].security

    @property
    def controller(self) -> KafkaServer | None:
        """The broker that is the active controller, as far as those that run know; None: there is none."""
        _, number = max((server.elected for server in self.servers if server.running), default=(-1, -1))
        return self._of(number)

    def leader(self, topic: str, partition: int = 0) -> KafkaServer | None:
        """The broker that leads a partition; None: there is none now, or nobody says."""
        metadata = metadata_of(self.bootstrap, self.security, _ANSWER_WITHIN)
        if metadata is None or topic not in metadata.topics:
            return None
        return self._of(metadata.topics[topic].partitions[partition].leader)

    def is_whole(self) -> bool:
        """Whether all brokers are there, and all copies of all partitions have what was written."""
        metadata = metadata_of(self.bootstrap, self.security, _ANSWER_WITHIN)
        return (
            metadata is not None
            and len(metadata.brokers) == len(self.servers)
            and all(
                set(partition.isrs) == set(partition.replicas)
                for topic in metadata.topics.values()
                for partition in topic.partitions.values()
            )
        )

    def _of(self, number: int) -> KafkaServer | None:
        return next((server for server in self.servers if server.number == number), None)
