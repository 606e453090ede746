"""A ZooKeeper server, run from the jars of pyspark (for the settings see ZooKeeper's Administrator's Guide)."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from spatialstream.servers.certificates import write_stores
from spatialstream.servers.jars import java, pyspark_class_path
from spatialstream.servers.ports import HOST
from spatialstream.servers.process import Server
from spatialstream.store.tls import TlsFiles

__all__ = ["Peer", "ZooKeeperServer"]

Peer = tuple[int, int]
"""The ports for traffic between the servers of an ensemble: leader to followers, and leader election."""

_ANSWER_WITHIN = 1.0

# it keeps the last 500 changes in memory, and a stream's statistics, which are changed every few seconds, are megabytes
_MEMORY = ["-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]

# The tick is the granularity of session timeouts: a short one makes sessions expire soon in tests.
_CONFIGURATION = """\
dataDir={data}
maxClientCnxns=0
tickTime=200
minSessionTimeout=400
maxSessionTimeout=60000
admin.enableServer=false
4lw.commands.whitelist=srvr
autopurge.purgeInterval=1
autopurge.snapRetainCount=3
preAllocSize=4096
"""

_PLAIN = """\
clientPort={port}
clientPortAddress={host}
"""

_ENCRYPTED = """\
secureClientPort={port}
secureClientPortAddress={host}
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
ssl.clientAuth=need
ssl.keyStore.type=PEM
ssl.keyStore.location=server.pem
ssl.trustStore.type=PEM
ssl.trustStore.location=clients.pem
"""


# in ticks: how long a follower may take to join, and to answer
_ENSEMBLE = """\
initLimit=50
syncLimit=15
"""

_MODE = re.compile(rb"^Mode: (\w+)$", re.MULTILINE)

_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1}: %m%n%ex
"""


class ZooKeeperServer(Server):
    """A ZooKeeper with its default limit of 1 MB a request; see :class:`Server` for the other arguments.

    Args:
        folder: folder of all its files.
        port: the port for clients; None for a free one.
        tls: the server's certificate and key, and the authority that signed it and must have signed the certificates of
            clients; None: no encryption. The files may be replaced before a restart.
        ensemble: the servers of its ensemble; empty: it is standalone.
        number: which of them, from 1 on.

    Attributes:
        tls: as above; a client that has it is let in.
    """

    name: ClassVar[str] = "ZooKeeper"

    def __init__(
        self,
        folder: Path,
        port: int | None = None,
        tls: TlsFiles | None = None,
        ensemble: Sequence[Peer] = (),
        number: int = 1,
    ) -> None:
        super().__init__(folder, port)
        self.tls = tls
        self._ensemble, self._number = tuple(ensemble), number

    @property
    def hosts(self) -> str:
        """The address for clients."""
        return f"{HOST}:{self.port}"

    @property
    def mode(self) -> str:
        """Its reported mode: ``standalone``, ``leader`` or ``follower``; empty if it does not serve."""
        with contextlib.suppress(OSError), self._connected() as connection:
            connection.sendall(b"srvr")
            found = _MODE.search(b"".join(iter(lambda: connection.recv(4096), b"")))
            return "" if found is None else found[1].decode()
        return ""

    def _configure(self) -> None:
        data = (self.folder / "data").resolve()
        text = _CONFIGURATION.format(data=data)
        text += (_PLAIN if self.tls is None else _ENCRYPTED).format(port=self.port, host=HOST)
        if self._ensemble:
            peers = enumerate(self._ensemble, 1)
            text += _ENSEMBLE + "".join(f"server.{i}={HOST}:{lead}:{elect}\n" for i, (lead, elect) in peers)
            data.mkdir(exist_ok=True)
            (data / "myid").write_text(f"{self._number}\n")
        (self.folder / "zoo.cfg").write_text(text)
        if self.tls is not None:
            write_stores(self.folder, self.tls)
        (self.folder / "log4j2.properties").write_text(_LOGGING)

    def _command(self) -> list[str]:
        logging = ["-Dlog4j2.configurationFile=log4j2.properties", "-Dzookeeper.jmx.log4j.disable=true"]
        server = "quorum.QuorumPeerMain" if self._ensemble else "ZooKeeperServerMain"
        main = [f"org.apache.zookeeper.server.{server}", "./zoo.cfg"]
        return [java(), *_MEMORY, *logging, "-cp", pyspark_class_path(), *main]

    def answers(self) -> bool:
        """See :class:`~spatialstream.servers.process.Server`."""
        return bool(self.mode)

    def _connected(self) -> socket.socket:
        plain = socket.create_connection((HOST, self.port), _ANSWER_WITHIN)
        if self.tls is None:
            return plain
        with plain:
            return self.tls.context().wrap_socket(plain, server_hostname=HOST)
