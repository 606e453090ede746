"""A Kafka broker from Maven's jars: one node that is its own controller (Kafka documentation, section "KRaft")."""

from __future__ import annotations

import base64
import subprocess
import uuid
from pathlib import Path
from typing import Any, ClassVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from spatialstream.model.errors import ServerError
from spatialstream.servers.jars import java, kafka_class_path
from spatialstream.servers.ports import HOST, free_port
from spatialstream.servers.process import Server

__all__ = ["MESSAGE_BYTES", "KafkaServer"]

MESSAGE_BYTES = 16 * 1024 * 1024
"""The largest batch of records that the broker takes, in bytes."""

_ANSWER_WITHIN = 1.0
_FORMAT_WITHIN = 60.0

_MEMORY = ["-Xmx512m", "-Xms128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]

# After a crash a broker waits for the end of the session that it had before, so sessions are short.
_CONFIGURATION = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
listeners={protocol}://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners={protocol}://{host}:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT
inter.broker.listener.name={protocol}
log.dirs={data}
auto.create.topics.enable=false
message.max.bytes={message}
replica.fetch.max.bytes={message}
log.segment.bytes=134217728
log.retention.hours=24
log.cleaner.dedupe.buffer.size=16777216
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=1500
"""


_LOGIN = """\
sasl.enabled.mechanisms=PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required \
username="{user}" password="{password}" user_{user}="{password}";
"""


class KafkaServer(Server):
    """A single broker without encryption; see :class:`Server` for the other arguments.

    Topics must be created (none appears by being named), with a replication factor of 1. Data are kept for a day.

    Args:
        folder: where it keeps everything.
        port: the port for clients; None for a free one.
        login: user and password that clients have to give (SASL, PLAIN); None lets everyone in.
    """

    name: ClassVar[str] = "Kafka"

    def __init__(self, folder: Path, port: int | None = None, login: tuple[str, str] | None = None) -> None:
        super().__init__(folder, port)
        self._controller = free_port()
        self._login = login

    @property
    def bootstrap(self) -> str:
        """What a client connects to (``bootstrap.servers``)."""
        return f"{HOST}:{self.port}"

    def _configure(self) -> None:
        data = (self.folder / "data").resolve()
        settings = {"host": HOST, "port": self.port, "controller": self._controller, "message": MESSAGE_BYTES}
        protocol = "PLAINTEXT" if self._login is None else "SASL_PLAINTEXT"
        text = _CONFIGURATION.format(data=data, protocol=protocol, **settings)
        if self._login is not None:
            text += _LOGIN.format(user=self._login[0], password=self._login[1])
        (self.folder / "server.properties").write_text(text)
        if not (data / "meta.properties").exists():
            self._format()

    def _format(self) -> None:
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        command = [
            *self._java(),
            "kafka.tools.StorageTool",
            "format",
            f"--cluster-id={cluster}",
            "-c",
            "server.properties",
        ]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=_FORMAT_WITHIN)
        if done.returncode:
            raise ServerError("Kafka's data folder could not be formatted", done.stdout + done.stderr)

    def _java(self) -> list[str]:
        return [java(), *_MEMORY, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", kafka_class_path()]

    def _command(self) -> list[str]:
        return [*self._java(), "kafka.Kafka", "server.properties"]

    @property
    def security(self) -> dict[str, str]:
        """What a client needs besides the address, in librdkafka's names."""
        if self._login is None:
            return {}
        user, password = self._login
        login = {"sasl.mechanism": "PLAIN", "sasl.username": user, "sasl.password": password}
        return {"security.protocol": "SASL_PLAINTEXT", **login}

    def _answers(self) -> bool:
        settings: dict[str, Any] = {"bootstrap.servers": self.bootstrap, "log_level": 0, "error_cb": _ignore}
        settings |= self.security
        client = AdminClient(settings)
        try:
            return bool(client.list_topics(timeout=_ANSWER_WITHIN).brokers)
        except KafkaException:
            return False


def _ignore(error: object) -> None:
    """That the broker does not answer yet is no news."""
