"""A ZooKeeper server from the jars that come with pyspark (its Administrator's Guide has the settings)."""

from __future__ import annotations

import contextlib
import socket
from typing import ClassVar

from spatialstream.servers.jars import java, pyspark_class_path
from spatialstream.servers.ports import HOST
from spatialstream.servers.process import Server

__all__ = ["ZooKeeperServer"]

_ANSWER_WITHIN = 1.0

# it keeps the last 500 changes in memory, and a stream's statistics, which are changed every few seconds, are megabytes
_MEMORY = ["-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]

# The tick is the grain of session timeouts: a short one lets tests see a session expire soon.
_CONFIGURATION = """\
dataDir={data}
clientPort={port}
clientPortAddress={host}
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


_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1}: %m%n%ex
"""


class ZooKeeperServer(Server):
    """A standalone ZooKeeper with its default limit of 1 MB a request; see :class:`Server` for the arguments."""

    name: ClassVar[str] = "ZooKeeper"

    @property
    def hosts(self) -> str:
        """What a client connects to."""
        return f"{HOST}:{self.port}"

    def _configure(self) -> None:
        text = _CONFIGURATION.format(data=(self.folder / "data").resolve(), port=self.port, host=HOST)
        (self.folder / "zoo.cfg").write_text(text)
        (self.folder / "log4j2.properties").write_text(_LOGGING)

    def _command(self) -> list[str]:
        logging = ["-Dlog4j2.configurationFile=log4j2.properties", "-Dzookeeper.jmx.log4j.disable=true"]
        main = ["org.apache.zookeeper.server.ZooKeeperServerMain", "./zoo.cfg"]
        return [java(), *_MEMORY, *logging, "-cp", pyspark_class_path(), *main]

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((HOST, self.port), _ANSWER_WITHIN) as connection:
            connection.sendall(b"srvr")
            connection.settimeout(_ANSWER_WITHIN)
            answer = b"".join(iter(lambda: connection.recv(4096), b""))
            return b"Mode: " in answer
        return False
