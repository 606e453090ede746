"""The broker: connections to it, and the topics of a stream.

All clients are of confluent-kafka (librdkafka), and configured from one set of properties, in its names
(:mod:`~spatialstream.connectors.kafka_security`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
    TopicMetadata,
)

from spatialstream.connectors.kafka_security import client_settings, renewed
from spatialstream.model.errors import SettingError, Unavailable

__all__ = [
    "CONTINUED",
    "COPIES",
    "INTERNAL",
    "LARGEST_MESSAGE",
    "NAMED",
    "NEAR",
    "Connection",
    "Offsets",
    "Topics",
    "cluster_of",
    "read_topic",
]

LARGEST_MESSAGE = 16 << 20
"""Bytes of the largest message that the topics accept."""

NAMED = ("objects", "queries", "results", "rejected", "areas")
"""The topics that a stream shares with its users, who may name them differently."""

INTERNAL = ("blocks", "epochs")
"""The topics between the jobs."""

CONTINUED = ("objects", "queries", *INTERNAL)
"""The topics from whose offsets a stream continues. Without their messages it cannot."""

COPIES = 3
"""Replicas of a topic that is created, unless another number is requested, or there are fewer brokers."""

_TIMEOUT = 30.0
_SILENCE = 20.0
"""Seconds after which a broker that has not answered a request is considered dead, and another one is asked.

So a broker that hangs, or whose node has lost its power, is replaced by the new leaders of its partitions. An answer,
or a request, may be as long as messages are, and has to get through in that time too.
"""

NEAR = {"socket.timeout.ms": 10_000}
"""For clients that are as close to the brokers as these are to each other: the same, with a shorter timeout."""

_SILENT = 0  # the library's own log; its errors are raised as exceptions
_DAY = 24 * 3_600_000
_KEPT = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""Settings of a topic from which the broker removes nothing by itself."""
_LATEST = {"cleanup.policy": "compact"}
"""Settings of a topic of which the broker keeps the last message of each key."""
_COUNTS_KEPT = 5.0
"""Seconds for which the numbers of partitions are cached."""
_BEGINS_KEPT = 1.0
"""Seconds for which the begin offsets of partitions are cached."""

_BROKERS_DEFAULT = 1_000_000
"""Approximate maximum bytes of a message in a topic with default settings."""

_PASSING = {
    *("REQUEST_TIMED_OUT", "NOT_CONTROLLER", "BROKER_NOT_AVAILABLE", "NETWORK_EXCEPTION"),
    *("_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN"),
}
"""Errors of brokers that elect a new controller, or are not all there: a retry may succeed."""

_NOT_LET_IN = {KafkaError._AUTHENTICATION, KafkaError._SSL}
_REFUSAL_KEPT = 60.0
"""Seconds for which the reason of an authentication failure is remembered."""

_refusals: dict[str, tuple[float, str]] = {}
"""By brokers: time and reason of the last authentication failure of clients of this process."""

_LEGAL = re.compile(r"[A-Za-z0-9._-]{1,249}")


def read_topic(text: str) -> tuple[str, str]:
    """The kind of a topic and its name, from ``KIND=NAME``.

    Raises:
        SettingError: the text does not have this form.
    """
    kind, _, name = text.partition("=")
    if kind not in NAMED or not _LEGAL.fullmatch(name):
        kinds = ", ".join(NAMED)
        raise SettingError("topic", f"{text!r} is not KIND=NAME with a kind of {kinds} and a valid name of a topic")
    return kind, name


@dataclass(frozen=True, slots=True)
class Connection:
    """A connection to the broker.

    Attributes:
        bootstrap: ``host:port,...``.
        security: properties in librdkafka's names; never shown.
        names: names of topics that do not begin with their stream's name, by kind; see :data:`NAMED`.
        file: from which the properties were read, and may be renewed; None: they never change.
    """

    bootstrap: str
    security: Mapping[str, str] = field(default_factory=dict, repr=False)
    names: Mapping[str, str] = field(default_factory=dict)
    file: Path | None = None

    @property
    def shown(self) -> Mapping[str, str]:
        """The current credentials: another object than before if they have changed."""
        return self.security if self.file is None else renewed(self.file, self.security, self.bootstrap)

    def topics(self, stream: str) -> Topics:
        """The topics of a stream, with their names on this broker."""
        return Topics(stream, self.names)

    def client(self, **more: Any) -> dict[str, Any]:
        """The configuration of a librdkafka client."""
        default = {
            "bootstrap.servers": self.bootstrap,
            "log_level": _SILENT,
            "reconnect.backoff.max.ms": 1000,
            "socket.timeout.ms": int(_SILENCE * 1000),
        }
        security = client_settings(self.shown, partial(_note, self.bootstrap))
        return {**default, "error_cb": partial(_noted, self.bootstrap), **security, **more}

    def why(self, problem: str, client: Consumer | AdminClient | None = None) -> str:
        """A problem, together with the reason of a recent authentication failure, if there was one.

        Args:
            problem: a description.
            client: a client that may know, and that nobody polls.
        """
        if client is not None:
            with suppress(KafkaException, RuntimeError):
                client.poll(0.0)
        at, reason = _refusals.get(self.bootstrap, (0.0, ""))
        return f"{problem}; {reason}" if reason and time.monotonic() < at + _REFUSAL_KEPT else problem

    def admin(self) -> AdminClient:
        """A client for administration."""
        return AdminClient(self.client())

    def producer(self, **more: Any) -> Producer:
        """A producer that waits for all replicas and does not repeat messages."""
        return Producer(
            self.client(**({"enable.idempotence": True, "message.max.bytes": LARGEST_MESSAGE, "linger.ms": 5} | more))
        )

    def consumer(self, group: str, **more: Any) -> Consumer:
        """A consumer that commits only on request."""
        defaults = {
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "fetch.message.max.bytes": LARGEST_MESSAGE,
            "fetch.wait.max.ms": 50,
        }
        return Consumer(self.client(**(defaults | more)))


class Topics:
    """The topics of a stream.

    Args:
        stream: its name, with which the topics' names begin,
        names: unless this has another name for one of :data:`NAMED`.

    Attributes:
        stream: as above.
        objects: objects, one or many per message.
        queries: queries and cancellations.
        results: result rows; see :mod:`spatialstream.connectors.delivery`.
        rejected: dead letters.
        areas: areas by name, one partition; the last message of each name is kept.
        blocks: blocks for the slots, one partition each.
        epochs: announcements of epochs and records of all turns, one partition; cut by the worker.

    Raises:
        SettingError: two kinds would share a topic: each would read the other's records as its own.
    """

    def __init__(self, stream: str, names: Mapping[str, str] = MappingProxyType({})) -> None:
        self.stream = stream
        self._names = {kind: names.get(kind, f"{stream}.{kind}") for kind in (*NAMED, *INTERNAL)}
        kinds: dict[str, str] = {}
        for kind, topic in self._names.items():
            if topic in kinds:
                raise SettingError("topic", f"{topic} is the topic of {kinds[topic]} and of {kind}; name another one")
            kinds[topic] = kind
        self.objects, self.queries, self.results, self.rejected, self.areas = (self._names[each] for each in NAMED)
        self.blocks, self.epochs = (self._names[each] for each in INTERNAL)

    @property
    def names(self) -> Mapping[str, str]:
        """The names of all topics, by kind."""
        return MappingProxyType(self._names)

    def wanted(self, slots: int, objects: int, replicas: int, mergers: int = 1) -> list[NewTopic]:
        """The specifications with which topics are created.

        With three or more replicas, a majority must have a message before it counts as sent, whatever the brokers'
        default: a single replica, with which brokers are satisfied by default, can be lost with its broker after the
        router has continued from it.

        Args:
            slots: worker slots.
            objects: partitions of the objects.
            replicas: replicas of each partition.
            mergers: parts of MERGE, each of which writes a partition of the results.
        """
        large = {"max.message.bytes": str(LARGEST_MESSAGE)}
        if replicas >= COPIES:
            large["min.insync.replicas"] = str(replicas // 2 + 1)
        passing = large | {"retention.ms": str(_DAY)}
        return [
            NewTopic(self.objects, objects, replicas, config=large),
            NewTopic(self.queries, 1, replicas, config=large),
            NewTopic(self.results, mergers, replicas, config=large),
            NewTopic(self.rejected, 1, replicas, config=large),
            NewTopic(self.areas, 1, replicas, config=large | _LATEST),
            NewTopic(self.blocks, slots, replicas, config=passing),
            NewTopic(self.epochs, 1, replicas, config=large | _KEPT),
        ]

    def ensure(
        self,
        connection: Connection,
        slots: int,
        objects: int = 2,
        replicas: int | None = None,
        mergers: int = 1,
        *,
        create: bool = True,
        made: Callable[[Mapping[str, str]], object] = lambda ids: None,
    ) -> dict[str, int]:
        """Create the topics that are missing, or wait for another job to do so, and check them.

        Args:
            connection: to the broker.
            slots: worker slots.
            objects: partitions of the objects.
            replicas: replicas of each partition; None: :data:`COPIES`, or as many as there are brokers.
            mergers: parts of MERGE.
            create: whether to create them.
            made: called with the ids of topics that this call has created, by name, before anything else is done.

        Returns:
            The number of partitions of each topic.

        Raises:
            Unavailable: the broker cannot be reached.
            SettingError: a topic is not as the stream needs it.
        """
        admin = connection.admin()
        unreachable = f"the broker at {connection.bootstrap} cannot be reached"
        with _reached(unreachable, connection, admin):
            cluster = admin.list_topics(timeout=_TIMEOUT)
            present: Mapping[str, TopicMetadata] = cluster.topics
            copies = min(COPIES, max(1, len(cluster.brokers))) if replicas is None else replicas
            wanted = self.wanted(slots, objects, copies, mergers) if create else []
            missing = [topic for topic in wanted if topic.topic not in present]
            self._create(admin, missing, made)
            present = self._settled(admin)
        counts = {name: len(present[name].partitions) for name in self._names.values()}
        for topic, count in ((self.blocks, slots), (self.epochs, 1), (self.areas, 1)):
            if counts[topic] != count:
                raise SettingError(
                    "topics",
                    f"{topic} has {counts[topic]} partitions and needs {count}; remove it, and it is created again",
                )
        if counts[self.results] < mergers:
            raise SettingError(
                "topics",
                f"{self.results} has {counts[self.results]} partitions, and each of {mergers} mergers writes one: "
                "add partitions, or remove it, and it is created again",
            )
        with _reached(unreachable, connection, admin):
            self.check_sizes(admin)
            if create:
                self.keep(admin)
        return counts

    def _create(
        self, admin: AdminClient, missing: Sequence[NewTopic], made: Callable[[Mapping[str, str]], object]
    ) -> None:
        """Create topics, and report those that this call has created, even if others cannot be created."""
        created = []
        try:
            for topic, done in admin.create_topics(list(missing), request_timeout=_TIMEOUT).items() if missing else ():
                try:
                    done.result(_TIMEOUT)
                    created.append(topic)
                except KafkaException as error:
                    name = error.args[0].name()
                    if name in _PASSING:
                        raise
                    if name != "TOPIC_ALREADY_EXISTS":  # created by the other job
                        raise SettingError("topics", f"{topic} cannot be created: {error.args[0].str()}") from None
        finally:
            if created:
                made(_ids(admin, created, patience=_TIMEOUT))

    def _settled(self, admin: AdminClient) -> Mapping[str, TopicMetadata]:
        """All topics, once the broker reports those that were just created."""
        ends = time.monotonic() + 2 * _TIMEOUT
        while True:
            present = admin.list_topics(timeout=_TIMEOUT).topics
            if all(name in present and present[name].partitions for name in self._names.values()):
                return present
            if time.monotonic() > ends:
                raise Unavailable(f"topics of {self.stream} are missing; the router creates them")
            time.sleep(0.1)

    @staticmethod
    def _settings(admin: AdminClient, topic: str) -> Mapping[str, str | None]:
        """The settings of a topic, once the broker that is asked knows it: one broker knows it before others do."""
        resource, ends = ConfigResource(ResourceType.TOPIC, topic), time.monotonic() + _TIMEOUT
        while True:
            try:
                settings = admin.describe_configs([resource])[resource].result(_TIMEOUT)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART or time.monotonic() > ends:
                    raise
                time.sleep(0.1)
            else:
                return {name: entry.value for name, entry in settings.items()}

    def check_sizes(self, admin: AdminClient) -> None:
        """Make sure that the topics take messages as large as are sent.

        Raises:
            SettingError: one does not; says what to set.
        """
        for topic, least in (
            (self.blocks, LARGEST_MESSAGE),
            (self.results, LARGEST_MESSAGE),
            (self.rejected, _BROKERS_DEFAULT),
            (self.epochs, _BROKERS_DEFAULT),
            (self.areas, _BROKERS_DEFAULT),
        ):
            size = int(self._settings(admin, topic)["max.message.bytes"] or 0)
            if size < least:
                raise SettingError(
                    "topics",
                    f"{topic} accepts messages of at most {size} bytes; set max.message.bytes to {LARGEST_MESSAGE}",
                )

    def keep(self, admin: AdminClient) -> None:
        """Make sure that the broker removes no existing announcement or area, even if others created the topics.

        Raises:
            SettingError: it may, and does not let this client change that; says what to set.
        """
        for topic, kept in ((self.epochs, _KEPT), (self.areas, _LATEST)):
            self._keep(admin, topic, kept)

    def _keep(self, admin: AdminClient, topic: str, kept: Mapping[str, str]) -> None:
        settings = self._settings(admin, topic)
        wrong = {name: value for name, value in kept.items() if settings[name] != value}
        if not wrong:
            return
        resource = ConfigResource(ResourceType.TOPIC, topic)
        for name, value in wrong.items():
            resource.add_incremental_config(ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET))
        try:
            admin.incremental_alter_configs([resource])[resource].result(_TIMEOUT)
        except KafkaException as error:
            if error.args[0].name() in _PASSING:
                raise
            told = " and ".join(f"{name} to {value}" for name, value in wrong.items())
            problem = f"{topic} would lose messages that are still needed: set its {told}"
            raise SettingError("topics", f"{problem} ({error.args[0].str()})") from None

    def ids(self, connection: Connection, kinds: Sequence[str], admin: AdminClient | None = None) -> dict[str, str]:
        """The ids of those topics that exist, by which Kafka distinguishes them from earlier topics of the same names.

        Args:
            connection: to the broker.
            kinds: of the topics.
            admin: a client that is used again and again; by default one for this call.

        Raises:
            Unavailable: the broker cannot be reached.
        """
        admin = admin or connection.admin()
        with _reached(f"the topics of {self.stream} are not known", connection, admin):
            return _ids(admin, [self._names[kind] for kind in kinds])

    def remove(self, connection: Connection, made: Mapping[str, str]) -> list[str]:
        """Delete topics that the stream has created, except those that others have recreated under their names.

        Args:
            connection: to the broker.
            made: their ids, by name.

        Returns:
            The names of those that existed.

        Raises:
            Unavailable: the broker cannot be reached, or does not delete them.
        """
        admin = connection.admin()
        with _reached(f"topics of {self.stream} cannot be removed", connection, admin):
            found = _ids(admin, sorted(made))
            names = [name for name in found if found[name] == made[name]]
            for deleted in admin.delete_topics(names).values() if names else ():
                deleted.result(_TIMEOUT)
        return names


def cluster_of(connection: Connection) -> str:
    """The id of the Kafka cluster of a connection, whatever its address; "" if it has none.

    Raises:
        Unavailable: the broker cannot be reached.
    """
    admin = connection.admin()
    with _reached(f"the broker at {connection.bootstrap} cannot be reached", connection, admin):
        return str(admin.describe_cluster(request_timeout=_TIMEOUT).result(_TIMEOUT).cluster_id or "")


def _ids(admin: AdminClient, names: Sequence[str], patience: float = 0.0) -> dict[str, str]:
    """Ids of the topics that exist; waits for those that were just created."""
    ids: dict[str, str] = {}
    ends = time.monotonic() + patience
    while True:
        left = [name for name in names if name not in ids]
        asked = admin.describe_topics(TopicCollection(left), request_timeout=_TIMEOUT) if left else {}
        for name, answer in asked.items():
            try:
                ids[name] = str(answer.result(_TIMEOUT).topic_id)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
        if len(ids) == len(names) or time.monotonic() > ends:
            return ids
        time.sleep(0.1)


class Offsets:
    """Gets the bounds of partitions.

    Uses a consumer, not an admin client, which asks for the leaders of the partitions before each request, and takes
    twice the time.

    Args:
        connection: to the broker.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._client = self._connected()
        self._counts: tuple[float, dict[str, int]] = 0.0, {}
        self._begins: tuple[float, dict[str, list[int]]] = 0.0, {}

    def _connected(self) -> Consumer:
        return self._connection.consumer("spatialstream", **NEAR, **{"isolation.level": "read_committed"})

    def latest(self, partitions: Mapping[str, int]) -> dict[str, list[int]]:
        """The offset after the last message of each partition; with an open transaction, before its first message.

        Args:
            partitions: the topics, and the number of partitions of each.

        Raises:
            Unavailable: the broker did not answer.
        """
        return self._ask(partitions, OFFSET_END)

    def earliest(self, partitions: Mapping[str, int]) -> dict[str, list[int]]:
        """The offset of the first message of each partition; as :meth:`latest`."""
        return self._ask(partitions, OFFSET_BEGINNING)

    def bounds(self, partitions: Mapping[str, int]) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
        """:meth:`earliest`, at most a second old, and :meth:`latest`."""
        asked, begins = self._begins
        known = {topic: len(offsets) for topic, offsets in begins.items()}
        if time.monotonic() > asked + _BEGINS_KEPT or known != partitions:
            begins = self.earliest(partitions)
            self._begins = time.monotonic(), begins
        return begins, self.latest(partitions)

    def at(self, partitions: Mapping[str, int], t: int) -> dict[str, list[int]]:
        """The offset of the first message of each partition with a time, in ms, or later; -1: there is none.

        Raises:
            Unavailable: the broker did not answer.
        """
        return self._ask(partitions, t, -1)

    def _ask(self, partitions: Mapping[str, int], which: int, least: int = 0) -> dict[str, list[int]]:
        until = time.monotonic() + _TIMEOUT
        while True:
            places = [TopicPartition(topic, i, which) for topic, count in partitions.items() for i in range(count)]
            try:
                answers = self._client.offsets_for_times(places, timeout=5.0)
            except KafkaException as error:
                problem = _words(error)
            else:
                found = {(at.topic, at.partition): at.offset for at in answers if at.error is None}
                if len(found) == len(places) and all(offset >= least for offset in found.values()):
                    return {topic: [found[topic, i] for i in range(count)] for topic, count in partitions.items()}
                problem = next((at.error.str() for at in answers if at.error is not None), "it went away")
            if time.monotonic() > until:
                told = f"the broker does not return the offsets of {', '.join(partitions)}: {problem}"
                raise Unavailable(self._connection.why(told, self._client))
            time.sleep(0.2)
            # a client may keep stale metadata of a broker that has restarted
            self._client = self._connected()

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        """The number of partitions of each existing topic, at most some seconds old.

        Raises:
            Unavailable: the broker did not answer.
        """
        asked, counts = self._counts
        if time.monotonic() > asked + _COUNTS_KEPT or not counts.keys() >= set(topics):
            try:
                present = self._client.list_topics(timeout=_TIMEOUT).topics
            except KafkaException as error:
                told = f"the broker does not list its topics: {_words(error)}"
                raise Unavailable(self._connection.why(told, self._client)) from None
            counts = {topic: len(present[topic].partitions) for topic in present}
            self._counts = time.monotonic(), counts
        return {topic: counts[topic] for topic in topics if topic in counts}


def _note(bootstrap: str, reason: str) -> None:
    _refusals[bootstrap] = time.monotonic(), reason


def _noted(bootstrap: str, error: KafkaError) -> None:
    """Called by a client with its errors."""
    if error.code() in _NOT_LET_IN:
        _note(bootstrap, error.str())


@contextmanager
def _reached(problem: str, connection: Connection, client: AdminClient) -> Iterator[None]:
    """Turns a broker's missing or late answer into Unavailable, with this problem."""
    try:
        yield
    except KafkaException as error:
        raise Unavailable(connection.why(f"{problem}: {_words(error)}", client)) from None
    except TimeoutError:
        raise Unavailable(connection.why(f"{problem}: no answer within {_TIMEOUT:.0f} s", client)) from None


def _words(error: KafkaException) -> str:
    return str(error.args[0].str()) if error.args and hasattr(error.args[0], "str") else str(error)
