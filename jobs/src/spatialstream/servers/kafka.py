"""A Kafka broker, run from Maven's jars, that is also a controller (Kafka documentation, section "KRaft")."""

from __future__ import annotations

import base64
import contextlib
import json
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata

from spatialstream.connectors.kafka import COPIES
from spatialstream.model.errors import ServerError
from spatialstream.servers.certificates import write_stores
from spatialstream.servers.jars import java, kafka_class_path
from spatialstream.servers.ports import HOST, free_port
from spatialstream.servers.process import Server
from spatialstream.store.tls import TlsFiles

__all__ = ["MESSAGE_BYTES", "KafkaServer", "Tokens", "metadata_of", "new_cluster"]

MESSAGE_BYTES = 16 * 1024 * 1024
"""The largest batch of records that the broker accepts, in bytes."""

_ANSWER_WITHIN = 1.0
_FORMAT_WITHIN = 60.0

_MEMORY = ["-Xmx512m", "-Xms128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]

# After a crash a broker waits for the end of its previous session, so sessions are short. With several brokers they are
# longer, so that a busy broker is not considered dead by the others.
_SESSION, _SESSION_OF_MANY = 1500, 3000

_CONFIGURATION = """\
process.roles=broker,controller
node.id={number}
controller.quorum.voters={voters}
listeners={protocol}://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners={protocol}://{host}:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:{controllers},\
PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
inter.broker.listener.name={protocol}
log.dirs={data}
auto.create.topics.enable=false
message.max.bytes={message}
replica.fetch.max.bytes={message}
default.replication.factor={copies}
min.insync.replicas={insync}
log.segment.bytes=134217728
log.retention.hours=24
log.cleaner.dedupe.buffer.size=16777216
offsets.topic.num.partitions=4
offsets.topic.replication.factor={copies}
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor={copies}
transaction.state.log.min.isr={insync}
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor={copies}
share.coordinator.state.topic.min.isr={insync}
group.initial.rebalance.delay.ms=0
broker.heartbeat.interval.ms=500
broker.session.timeout.ms={session}
"""


_LOGIN = """\
sasl.enabled.mechanisms={mechanisms}
sasl.mechanism.inter.broker.protocol=PLAIN
listener.name.{listener}.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required \
username="{user}" password="{password}" user_{user}="{password}";
"""

_HASHED = "SCRAM-SHA-512"

# The passwords for this mechanism are in the broker's metadata; brokers authenticate to each other by PLAIN.
_HASHES = """\
listener.name.{listener}.scram-sha-512.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
"""

_ALLOWED_KEYS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"

# With a maximum time between logins, clients must present the next token before theirs expires; otherwise one would be
# valid for as long as a connection lasts. Unless the validator is named, signatures are not checked (Kafka 4.1).
_TOKENS = """\
listener.name.{listener}.oauthbearer.sasl.jaas.config=\
org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;
listener.name.{listener}.oauthbearer.sasl.server.callback.handler.class=\
org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler
listener.name.{listener}.oauthbearer.connections.max.reauth.ms=3600000
sasl.oauthbearer.jwt.validator.class=org.apache.kafka.common.security.oauthbearer.BrokerJwtValidator
sasl.oauthbearer.jwks.endpoint.url={keys}
sasl.oauthbearer.expected.issuer={issuer}
sasl.oauthbearer.expected.audience={audience}
sasl.oauthbearer.clock.skew.seconds=0
"""

# The controller is for brokers alone: they show the certificate of this one.
_ENCRYPTED = """\
ssl.keystore.type=PEM
ssl.keystore.location=server.pem
ssl.truststore.type=PEM
ssl.truststore.location=clients.pem
ssl.client.auth={asked}
listener.name.controller.ssl.client.auth=required
"""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens that a broker accepts (JSON Web Tokens).

    Attributes:
        keys: file with the issuer's public keys (JWKS).
        issuer: the issuer (``iss``).
        audience: the audience (``aud``).
    """

    keys: Path
    issuer: str
    audience: str


class KafkaServer(Server):
    """A broker; see :class:`Server` for the other arguments.

    Topics must be created (none appears by being named). Data are kept for a day.

    Args:
        folder: where it keeps everything.
        port: the port for clients; None for a free one.
        login: user and password that clients must present (SASL, PLAIN); None: no authentication.
        controllers: ports on which the brokers of a cluster talk as controllers;
            none: it is alone.
        number: which of them, from 1 on.
        cluster: id of the cluster, the same for all of it; "" if it is alone.
        tls: the broker's own certificate and key, and the authority that has vouched for it; None: connections are not
            encrypted. Where there is no login, clients have to show a certificate of that authority.

        tokens: which ones clients may show in place of user and password (SASL, OAUTHBEARER); with a login alone, which
            the broker needs for itself.
        hashed: whether clients prove that they know the password and do not send it (SCRAM-SHA-512); with a login.

    Attributes:
        tls: as above.
    """

    name: ClassVar[str] = "Kafka"

    def __init__(
        self,
        folder: Path,
        port: int | None = None,
        login: tuple[str, str] | None = None,
        controllers: Sequence[int] = (),
        number: int = 1,
        cluster: str = "",
        tls: TlsFiles | None = None,
        tokens: Tokens | None = None,
        hashed: bool = False,
    ) -> None:
        super().__init__(folder, port)
        self._controllers, self.number = tuple(controllers) or (free_port(),), number
        self._login, self._hashed, self._cluster = login, hashed, cluster or new_cluster()
        self.tls, self._tokens = tls, tokens

    @property
    def bootstrap(self) -> str:
        """The address for clients (``bootstrap.servers``)."""
        return f"{HOST}:{self.port}"

    def _configure(self) -> None:
        data = (self.folder / "data").resolve()
        controllers, copies = self._controllers, min(COPIES, len(self._controllers))
        text = _CONFIGURATION.format(
            data=data,
            host=HOST,
            port=self.port,
            protocol=self._protocol,
            controllers="PLAINTEXT" if self.tls is None else "SSL",
            number=self.number,
            controller=controllers[self.number - 1],
            voters=",".join(f"{i}@{HOST}:{port}" for i, port in enumerate(controllers, 1)),
            message=MESSAGE_BYTES,
            copies=copies,
            insync=max(1, copies - 1),
            session=_SESSION if len(controllers) == 1 else _SESSION_OF_MANY,
        )
        if self._login is not None:
            user, password = self._login
            also = {_HASHED: self._hashed, "OAUTHBEARER": self._tokens is not None}
            mechanisms = ",".join(["PLAIN", *(name for name, wanted in also.items() if wanted)])
            listener = self._protocol.lower()
            text += _LOGIN.format(mechanisms=mechanisms, listener=listener, user=user, password=password)
            if self._hashed:
                text += _HASHES.format(listener=listener)
            if (tokens := self._tokens) is not None:
                given = {"issuer": tokens.issuer, "audience": tokens.audience}
                text += _TOKENS.format(listener=listener, keys=tokens.keys.resolve().as_uri(), **given)
        if self.tls is not None:
            text += _ENCRYPTED.format(asked="required" if self._login is None else "none")
            write_stores(self.folder, self.tls)
        (self.folder / "server.properties").write_text(text)
        if not (data / "meta.properties").exists():
            self._format()

    def _format(self) -> None:
        command = [
            *self._java(),
            "kafka.tools.StorageTool",
            "format",
            f"--cluster-id={self._cluster}",
            "-c",
            "server.properties",
        ]
        if self._hashed and self._login is not None:
            user, password = self._login
            command += ["--add-scram", f"{_HASHED}=[name={user},password={password}]"]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=_FORMAT_WITHIN)
        if done.returncode:
            raise ServerError("Kafka's data folder could not be formatted", done.stdout + done.stderr)

    def _java(self) -> list[str]:
        logs, allowed = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", list[str]()
        if self._tokens is not None:  # a broker reads keys from nowhere else
            allowed = [f"-D{_ALLOWED_KEYS}={self._tokens.keys.resolve().as_uri()}"]
        return [java(), *_MEMORY, logs, *allowed, "-cp", kafka_class_path()]

    def _command(self) -> list[str]:
        return [*self._java(), "kafka.Kafka", "server.properties"]

    @property
    def _protocol(self) -> str:
        """The security protocol for clients."""
        return ("" if self._login is None else "SASL_") + ("PLAINTEXT" if self.tls is None else "SSL")

    @property
    def security(self) -> dict[str, str]:
        """The security properties for clients, under librdkafka's names."""
        needed = {} if self._protocol == "PLAINTEXT" else {"security.protocol": self._protocol}
        if self._login is not None:
            user, password = self._login
            needed |= {
                "sasl.mechanism": _HASHED if self._hashed else "PLAIN",
                "sasl.username": user,
                "sasl.password": password,
            }
        if self.tls is not None:
            needed["ssl.ca.location"] = str(self.tls.authority)
            if self._login is None:
                needed |= {
                    "ssl.certificate.location": str(self.tls.certificate),
                    "ssl.key.location": str(self.tls.key),
                }
        return needed

    @property
    def elected(self) -> tuple[int, int]:
        """The latest controller election known to it: epoch, and id of the leader; -1: none yet."""
        with contextlib.suppress(OSError, ValueError):  # the file is being written
            state = json.loads((self.folder / "data" / "__cluster_metadata-0" / "quorum-state").read_text())
            return int(state["leaderEpoch"]), int(state["leaderId"])
        return -1, -1

    def answers(self) -> bool:
        """See :class:`~spatialstream.servers.process.Server`."""
        metadata = metadata_of(self.bootstrap, self.security, _ANSWER_WITHIN)
        return metadata is not None and bool(metadata.brokers)


def metadata_of(bootstrap: str, security: Mapping[str, str], timeout: float) -> ClusterMetadata | None:
    """Return a cluster's metadata of brokers and topics; None if no broker answers.

    Args:
        bootstrap: ``host:port,...``.
        security: security properties, under librdkafka's names.
        timeout: seconds to wait.
    """
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 0, "error_cb": _ignore, **security}
    try:
        return AdminClient(settings).list_topics(timeout=timeout)
    except KafkaException:
        return None


def new_cluster() -> str:
    """Generate a cluster id."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _ignore(error: object) -> None:
    """Ignore errors: it is normal that the broker does not answer yet."""
