"""The spec of a SpatialStream in typed form.

:meth:`StreamSpec.parse` reads what the API server hands out. The schema of the custom resource has checked it and
filled in the defaults; the same defaults stand here, so that a spec which has not been through the API server (a test,
a file) reads the same. Durations are milliseconds, memory is MiB.

The readers are written by hand because the errors of ``msgspec.convert`` show neither the value nor the choices, name
the parent of a missing field, and leave out the keys of mappings; it does not take null as absent either, and would
leave units, quantities and what fields mean for each other to code as long.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spatialstream.balance.settings import FORMS, NEAREST, SETTLE, BalanceSettings
from spatialstream.index.kinds import AUTO, CHOICES, DEFAULT, KINDS, STRATEGIES
from spatialstream.model.errors import SettingError
from spatialstream.model.properties.declared import Properties
from spatialstream.model.space import Space
from spatialstream.model.stored_fields import parse_fields
from spatialstream.model.terms import EVERYTHING, POLYGON_VERTICES, QUERY_WORDS, SERVES, SUBSCRIPTIONS
from spatialstream_operator.fields import Fields
from spatialstream_operator.names import TOPIC_KINDS
from spatialstream_operator.quantity import MEBIBYTE, parse_heap, parse_quantity

__all__ = [
    "Autoscaling",
    "Bucket",
    "Claim",
    "Container",
    "Deletion",
    "Executors",
    "Index",
    "Kafka",
    "ObjectStore",
    "OperatorDefaults",
    "Rebalance",
    "Restart",
    "Router",
    "SecretKey",
    "StreamSpec",
    "Terms",
    "Time",
    "Workers",
    "ZooKeeper",
]

_MEMORY = "2Gi"
_RESOURCES = {"requests": {"cpu": "500m", "memory": _MEMORY}, "limits": {"memory": _MEMORY}}
_LEAST_HEAP, _LARGEST_HEAP = 512, 4096
_LEAST_PYTHON = 256
_URL = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9_=-][A-Za-z0-9_.=-]*)*/?")


@dataclass(frozen=True, slots=True)
class OperatorDefaults:
    """Operator-wide defaults for streams.

    Attributes:
        image: of drivers and executors.
        image_pull_policy: for it.
        prometheus_url: the Prometheus with the load metrics; "": there is none.
    """

    image: str
    image_pull_policy: str = "IfNotPresent"
    prometheus_url: str = ""


@dataclass(frozen=True, slots=True)
class SecretKey:
    """A key of a Secret in the stream's namespace."""

    name: str
    key: str

    @classmethod
    def parse(cls, fields: Fields, name: str, key: str) -> SecretKey | None:
        """The field ``name``, with ``key`` as the default key; None if it is absent."""
        if not fields.has(name):
            return None
        part = fields.part(name)
        return cls(part.text("name"), part.text("key", key))


@dataclass(frozen=True, slots=True)
class Kafka:
    """The broker and the stream's topics.

    Attributes:
        bootstrap: ``host:port,...``.
        security: file of librdkafka's properties; None: no security.
        topics: names by kind, of topics that are not named ``STREAM.KIND``.
        object_partitions: partitions of the topic of objects, when it is created.
        replication: copies of topics that are created; None: three, or as many as there are brokers.
    """

    bootstrap: str
    security: SecretKey | None
    topics: Mapping[str, str]
    object_partitions: int
    replication: int | None

    @classmethod
    def parse(cls, fields: Fields) -> Kafka:
        """``spec.kafka``."""
        topics = fields.part("topics").texts_of(TOPIC_KINDS)
        return cls(
            bootstrap=fields.text("bootstrapServers"),
            security=SecretKey.parse(fields, "securitySecret", "kafka.properties"),
            topics=topics,
            object_partitions=fields.whole("objectPartitions", 2, 1),
            replication=fields.whole("replicationFactor", least=1) if fields.has("replicationFactor") else None,
        )


@dataclass(frozen=True, slots=True)
class TlsSecret:
    """A Secret in the stream's namespace with certificates, under the names that cert-manager gives them.

    Attributes:
        name: of the Secret.
        certified: whether it has a certificate to show (``tls.crt``, ``tls.key``) beside the authority's (``ca.crt``).
    """

    name: str
    certified: bool

    @classmethod
    def parse(cls, fields: Fields, name: str) -> TlsSecret | None:
        """The field ``name``; None if it is absent."""
        if not fields.has(name):
            return None
        part = fields.part(name)
        return cls(part.text("name"), part.flag("clientCertificate", default=True))


@dataclass(frozen=True, slots=True)
class ZooKeeper:
    """The routing store.

    Attributes:
        servers: ``host:port,...``, with a path at the end if everything is below one.
        credentials: file with ``user:password``; None: open to everybody.
        tls: what encrypted connections need; None: they are not encrypted.
    """

    servers: str
    credentials: SecretKey | None
    tls: TlsSecret | None

    @classmethod
    def parse(cls, fields: Fields) -> ZooKeeper:
        """``spec.zookeeper``."""
        credentials = SecretKey.parse(fields, "credentialsSecret", "credentials")
        return cls(fields.text("servers"), credentials, TlsSecret.parse(fields, "tlsSecret"))


@dataclass(frozen=True, slots=True)
class Terms:
    """How texts become terms, and limits of queries.

    Attributes:
        stop_words: terms that are left out.
        min_length: terms with fewer characters are left out.
        query_words: words that a query may have in all.
        polygon_vertices: vertices that a polygon may have in all its rings.
        ranking: whether words are counted, so that queries may rank by them.
        counts: whether it is counted how often a text has each word, by which ranked queries weigh it.
    """

    stop_words: tuple[str, ...]
    min_length: int
    query_words: int
    polygon_vertices: int
    ranking: bool
    counts: bool

    @classmethod
    def parse(cls, fields: Fields) -> Terms:
        """``spec.terms``."""
        words = fields.items("stopWords")
        for number, word in enumerate(words):
            if not isinstance(word, str):
                raise SettingError(f"{fields.at('stopWords')}[{number}]", f"{word!r} is not a string")
        ranking, counts = fields.flag("ranking", False), fields.flag("counts", False)
        if counts and not ranking:
            raise SettingError(fields.at("counts"), f"needs {fields.at('ranking')}; set that to true, too")
        return cls(
            tuple(words),
            fields.whole("minLength", 1, 1),
            fields.whole("queryWords", QUERY_WORDS, 1),
            fields.whole("polygonVertices", POLYGON_VERTICES, 3),
            ranking,
            counts,
        )


@dataclass(frozen=True, slots=True)
class Index:
    """The global index.

    Attributes:
        kind: its kind, or :data:`~spatialstream.index.kinds.AUTO`.
        leaves: of the first index.
        nearest: where CKQs are, one of :data:`~spatialstream.balance.settings.NEAREST`.
        balance: λ, ε, the most leaves, and the form of ĥ.
    """

    kind: str
    leaves: int
    nearest: str
    balance: BalanceSettings

    @classmethod
    def parse(cls, fields: Fields) -> Index:
        """``spec.index``."""
        try:
            balance = BalanceSettings(
                imbalance=fields.number("imbalance", 6.0),
                similarity=fields.number("similarity", 0.5),
                leaves=fields.whole("maxLeaves", 1024, 1),
                printed=fields.one_of("similarityForm", FORMS, FORMS[0]) == "printed",
            )
        except SettingError as error:
            name = {"leaves": "maxLeaves"}.get(error.setting, error.setting)
            path = name if name.startswith(fields.path) else fields.at(name)
            raise SettingError(path, error.problem) from None
        kind = fields.one_of("kind", CHOICES, DEFAULT)
        nearest = fields.one_of("nearest", NEAREST, SETTLE)
        return cls(kind, fields.whole("leaves", 64, 1), nearest, balance)

    @property
    def rebuilt(self) -> str | None:
        """The kind of index that a rebuild makes, or AUTO; None: the kind that the stream has."""
        return self.kind if self.kind == AUTO or KINDS[self.kind].adapts else None

    def strategies(self, active: str = "") -> tuple[str, ...]:
        """The strategies that balance the stream's load, in the order of trying them.

        Args:
            active: kind of the index that the stream has; "": not known.
        """
        wanted = [each.name for each in KINDS.values() if each.adapts] if self.kind == AUTO else [self.kind]
        known = {each for name in (*wanted, active) if name in KINDS for each in KINDS[name].strategies}
        return tuple(each for each in STRATEGIES if each in known)


@dataclass(frozen=True, slots=True)
class Time:
    """How the router follows the time of records; all in ms.

    Attributes:
        idle: after what time an idle partition no longer holds back the watermark.
        disorder: by how much records of a partition may be out of order.
        ahead: by how much a record's time may be ahead of the router's clock.
    """

    idle: int
    disorder: int
    ahead: int

    @classmethod
    def parse(cls, fields: Fields) -> Time:
        """``spec.time``."""
        return cls(fields.duration("idle", "500ms"), fields.duration("disorder", "0s"), fields.duration("ahead", "1h"))


@dataclass(frozen=True, slots=True)
class Container:
    """Resources of the container of a driver or an executor.

    Attributes:
        requests: resource requests, as Kubernetes quantities.
        limits: resource limits, likewise.
        memory: memory of the container, in MiB: its limit, or else its request.
        heap: the part of it that is Java's heap, in MiB; the rest is for Python.
        template: additions to its pod, in the form of a PodTemplateSpec.
    """

    requests: Mapping[str, str]
    limits: Mapping[str, str]
    memory: int
    heap: int
    template: Mapping[str, Any]

    @classmethod
    def parse(cls, fields: Fields) -> Container:
        """The fields ``resources``, ``jvmHeap`` and ``podTemplate``.

        Raises:
            SettingError: Java would leave no memory to Python.
        """
        resources = fields.part("resources") if fields.has("resources") else Fields(_RESOURCES, fields.at("resources"))
        requests, limits = (_amounts(resources.part(name)) for name in ("requests", "limits"))
        if "memory" not in requests | limits:
            limits["memory"] = _MEMORY
        text, place = (limits, "limits") if "memory" in limits else (requests, "requests")
        memory = parse_quantity(text["memory"], f"{resources.at(place)}.memory") // MEBIBYTE
        heap = min(max(memory // 2, _LEAST_HEAP), _LARGEST_HEAP)
        if fields.has("jvmHeap"):
            heap = parse_heap(fields.text("jvmHeap"), fields.at("jvmHeap"))
        if heap + _LEAST_PYTHON > memory:
            problem = f"Java's {heap} MiB leave less than {_LEAST_PYTHON} MiB of the container's {memory} MiB to Python"
            raise SettingError(fields.at("jvmHeap"), problem)
        return cls(requests, limits, memory, heap, fields.mapping("podTemplate"))


def _amounts(fields: Fields) -> dict[str, str]:
    for name, value in fields.content.items():
        parse_quantity(value, fields.at(name))
    return {name: str(value) for name, value in fields.content.items()}


@dataclass(frozen=True, slots=True)
class Executors:
    """The executors of a job.

    Attributes:
        min: executors at least.
        max: executors at most; of the worker, also the number of slots.
        replicas: executors requested by the scale subresource; None: unset.
        cores: tasks at once in an executor.
        container: of an executor.
    """

    min: int
    max: int
    replicas: int | None
    cores: int
    container: Container

    @property
    def wanted(self) -> int:
        """Executors that the spec asks for: ``replicas``, else ``min``, within the bounds."""
        return self.clamp(self.min if self.replicas is None else self.replicas)

    def clamp(self, executors: int) -> int:
        """The number within the bounds that is nearest."""
        return min(max(executors, self.min), self.max)

    @classmethod
    def parse(cls, fields: Fields, container: Container) -> Executors:
        """The fields ``min``, ``max``, ``replicas`` and ``cores``, with the container of an executor.

        Raises:
            SettingError: min is more than max.
        """
        least, most = fields.whole("min", 1, 1), fields.whole("max", 4, 1)
        if least > most:
            raise SettingError(fields.at("min"), f"{least} is more than max, {most}")
        replicas = fields.whole("replicas") if fields.has("replicas") else None
        return cls(least, most, replicas, fields.whole("cores", 1, 1), container)


@dataclass(frozen=True, slots=True)
class Router:
    """The router job.

    Attributes:
        partitions: tasks of an epoch.
        cores: tasks at once, in the driver's pod if there are no executors.
        driver: container of the driver, in which the tasks run if there are no executors.
        executors: in which the tasks run; None: there are none.
        options: properties of Spark.
    """

    partitions: int
    cores: int
    driver: Container
    executors: Executors | None
    options: Mapping[str, str]

    @classmethod
    def parse(cls, fields: Fields) -> Router:
        """``spec.router``.

        Raises:
            SettingError: what makes executors does not fit together.
        """
        partitions, executors = fields.whole("partitions", 2, 1), None
        if fields.has("max"):
            executors = Executors.parse(fields, Container.parse(fields.part("executor")))
            if executors.max > partitions:
                problem = f"{executors.max} is more than partitions, {partitions}: the rest would have nothing to route"
                raise SettingError(fields.at("max"), problem)
        for name in ("min", "executor"):
            if executors is None and fields.has(name):
                raise SettingError(fields.at(name), "requires a router with executors; give max too")
        cores, driver = fields.whole("cores", 1, 1), Container.parse(fields)
        return cls(partitions, cores, driver, executors, fields.texts("options"))


@dataclass(frozen=True, slots=True)
class Workers:
    """The worker job.

    Attributes:
        executors: in which the slots' tasks run.
        driver: container of the driver.
        options: properties of Spark.
    """

    executors: Executors
    driver: Container
    options: Mapping[str, str]

    @classmethod
    def parse(cls, fields: Fields) -> Workers:
        """``spec.workers``."""
        executors = Executors.parse(fields, Container.parse(fields))
        return cls(executors, Container.parse(fields.part("driver")), fields.texts("options"))


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """Access to object stores.

    Attributes:
        endpoint: URL of a store that is not Amazon's; "": it is.
        region: of the bucket; "": the store has none.
        credentials: a file of keys in AWS's form; None: the pods' own identity.
        authority: CA certificates that verify the store; None: those of the system.
    """

    endpoint: str
    region: str
    credentials: SecretKey | None
    authority: SecretKey | None

    @classmethod
    def parse(cls, fields: Fields) -> ObjectStore:
        """``spec.objectStore``."""
        return cls(
            endpoint=fields.text("endpoint", ""),
            region=fields.text("region", ""),
            credentials=SecretKey.parse(fields, "credentialsSecret", "credentials"),
            authority=SecretKey.parse(fields, "caSecret", "ca.crt"),
        )


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket of an object store, or a part of it.

    Attributes:
        url: ``s3://bucket/prefix``.
    """

    url: str

    @classmethod
    def parse(cls, fields: Fields) -> Bucket:
        """``spec.checkpoint`` or ``spec.archive`` with a ``url``."""
        if fields.has("claimName") or fields.has("subPath"):
            raise SettingError(fields.at("url"), "cannot be combined with claimName; give one of the two")
        url = fields.text("url")
        bucket = url.removeprefix("s3://").partition("/")[0]
        if url.startswith("s3://") and not 3 <= len(bucket) <= 63:
            raise SettingError(fields.at("url"), f"{bucket!r} is not a bucket: bucket names have 3 to 63 characters")
        if not _URL.fullmatch(url):
            raise SettingError(fields.at("url"), f"{url!r} is not a URL of an object store; give s3://bucket/prefix")
        return cls(url.rstrip("/"))


@dataclass(frozen=True, slots=True)
class Claim:
    """A folder of a PersistentVolumeClaim.

    Attributes:
        name: of the claim.
        path: of the folder in the volume; None: the stream's own (:class:`~spatialstream_operator.names.StreamNames`).
    """

    name: str
    path: str | None

    @classmethod
    def parse(cls, fields: Fields) -> Claim:
        """``spec.checkpoint`` or ``spec.archive``."""
        return cls(fields.text("claimName"), fields.text("subPath") if fields.has("subPath") else None)


def _place(fields: Fields) -> Claim | Bucket:
    return Bucket.parse(fields) if fields.has("url") else Claim.parse(fields)


@dataclass(frozen=True, slots=True)
class Rebalance:
    """When load is moved; times in ms.

    Attributes:
        mode: ``auto``, ``approve`` or ``off``.
        interval: between two observations of the load.
        stabilisation: how long imbalance must last first.
        cooldown: minimum time between two changes.
        timeout: a version that is not adopted within this time is withdrawn.
        rebuild: number of objects that must be seen before the initial tree is rebuilt, once; at least the number that
            a tree is built from; 0: never.
    """

    mode: str
    interval: int
    stabilisation: int
    cooldown: int
    timeout: int
    rebuild: int

    @classmethod
    def parse(cls, fields: Fields) -> Rebalance:
        """``spec.rebalance``."""
        return cls(
            mode=fields.one_of("mode", ("auto", "approve", "off"), "auto"),
            interval=fields.duration("interval", "30s"),
            stabilisation=fields.duration("stabilisation", "2m"),
            cooldown=fields.duration("cooldown", "10m"),
            timeout=fields.duration("timeout", "5m"),
            rebuild=fields.whole("rebuildAfter", 10_000),
        )


@dataclass(frozen=True, slots=True)
class Autoscaling:
    """How the number of executors follows the load; times in ms.

    Attributes:
        enabled: whether it does.
        utilisation: target utilisation of the cores, in per cent.
        delay: delay of results above which executors are added.
        up: how long there must be a reason to add executors.
        down: how long there must be a reason to remove some.
    """

    enabled: bool
    utilisation: int
    delay: int
    up: int
    down: int

    @classmethod
    def parse(cls, fields: Fields) -> Autoscaling:
        """``spec.autoscaling``."""
        return cls(
            enabled=fields.flag("enabled", False),
            utilisation=fields.whole("targetUtilisation", 60, 1),
            delay=fields.duration("targetDelay", "5s"),
            up=fields.duration("scaleUpStabilisation", "30s"),
            down=fields.duration("scaleDownStabilisation", "10m"),
        )


@dataclass(frozen=True, slots=True)
class Restart:
    """How drivers are restarted after a failure; times in ms.

    Attributes:
        backoff: backoff before the first restart; doubled with every consecutive failure.
        max_backoff: maximum backoff.
        max_failures: number of consecutive failures from which the stream counts as degraded.
        healthy_after: the failures of a driver that has run for so long are forgotten.
    """

    backoff: int
    max_backoff: int
    max_failures: int
    healthy_after: int

    @classmethod
    def parse(cls, fields: Fields) -> Restart:
        """``spec.restart``."""
        return cls(
            backoff=fields.duration("backoff", "5s"),
            max_backoff=fields.duration("maxBackoff", "5m"),
            max_failures=fields.whole("maxFailures", 10, 1),
            healthy_after=fields.duration("healthyAfter", "2m"),
        )


@dataclass(frozen=True, slots=True)
class Deletion:
    """What is deleted with the SpatialStream.

    Attributes:
        topics: whether the topics objects, queries, results, rejected and areas are; internal ones go with the state.
        state: whether the routing state and the checkpoint are.
    """

    topics: bool
    state: bool

    @classmethod
    def parse(cls, fields: Fields) -> Deletion:
        """``spec.deletion``."""
        choices = ("Keep", "Delete")
        return cls(
            topics=fields.one_of("topics", choices, "Keep") == "Delete",
            state=fields.one_of("state", choices, "Delete") == "Delete",
        )


@dataclass(frozen=True, slots=True)
class Accounts:
    """The service accounts of the stream's pods.

    Attributes:
        driver: annotations of the drivers' account.
        executor: annotations of the executors' account.
    """

    driver: Mapping[str, str]
    executor: Mapping[str, str]

    @classmethod
    def parse(cls, fields: Fields) -> Accounts:
        """``spec.serviceAccounts``."""
        return cls(fields.part("driver").texts("annotations"), fields.part("executor").texts("annotations"))


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """The spec of a SpatialStream; times in ms.

    Attributes:
        image: of drivers and executors.
        image_pull_policy: for it.
        image_pull_secrets: names of the Secrets with which it is pulled.
        accounts: of the pods.
        kafka: the broker and the topics.
        zookeeper: the routing store.
        prometheus_url: where the load metrics are; "": nowhere.
        space: WGS84 or planar.
        terms: how texts become terms.
        properties: those that objects have.
        fields: those of objects that are kept, so that rows show them.
        index: the global index.
        time: how the router follows the time of records.
        router: the router job.
        workers: the worker job.
        mergers: parts of MERGE, and partitions of the results.
        interval: Δ.
        retention: how far back snapshot queries see; None: everything is kept.
        serves: which queries the stream takes, one of :data:`~spatialstream.model.terms.SERVES`.
        max_record_bytes: longer records are rejected.
        max_row_bytes: longer result rows are not delivered.
        checkpoint: where the stream's state is.
        archive: where dropped objects are written; None: nowhere.
        object_store: access to the object store, if either is in one.
        rebalance: when load is moved.
        autoscaling: how the number of executors follows the load.
        rejects_share: per cent of objects or queries that may be rejected before the stream is degraded.
        restart: how drivers are started again.
        deletion: what goes with the resource.
        suspend: whether the jobs are to be stopped.
        restart_nonce: a changed value restarts the jobs.
    """

    image: str
    image_pull_policy: str
    image_pull_secrets: tuple[str, ...]
    accounts: Accounts
    kafka: Kafka
    zookeeper: ZooKeeper
    prometheus_url: str
    space: Space
    terms: Terms
    properties: Properties
    fields: tuple[str, ...]
    index: Index
    time: Time
    router: Router
    workers: Workers
    mergers: int
    interval: int
    retention: int | None
    serves: str
    max_record_bytes: int
    max_row_bytes: int
    checkpoint: Claim | Bucket
    archive: Claim | Bucket | None
    object_store: ObjectStore
    rebalance: Rebalance
    autoscaling: Autoscaling
    rejects_share: int
    restart: Restart
    deletion: Deletion
    suspend: bool
    restart_nonce: str

    @property
    def remote(self) -> bool:
        """Whether anything is in an object store."""
        return isinstance(self.checkpoint, Bucket) or isinstance(self.archive, Bucket)

    def job(self, name: str) -> Router | Workers:
        """The router or the worker."""
        return self.router if name == "router" else self.workers

    @classmethod
    def parse(cls, spec: Mapping[str, Any], defaults: OperatorDefaults) -> StreamSpec:
        """Read a spec.

        Args:
            spec: the field ``spec`` of the resource.
            defaults: what holds where it says nothing.

        Raises:
            SettingError: a field is missing or invalid; the error names its path.
        """
        fields = Fields(spec, "spec")
        return cls(
            image=fields.text("image", "") or defaults.image,
            image_pull_policy=fields.text("imagePullPolicy", "") or defaults.image_pull_policy,
            image_pull_secrets=_pull_secrets(fields),
            accounts=Accounts.parse(fields.part("serviceAccounts")),
            kafka=Kafka.parse(fields.required("kafka")),
            zookeeper=ZooKeeper.parse(fields.required("zookeeper")),
            prometheus_url=fields.part("prometheus").text("url", "") or defaults.prometheus_url,
            space=_space(fields),
            terms=Terms.parse(fields.part("terms")),
            properties=_properties(fields),
            fields=parse_fields(map(str, fields.items("fields")), _properties(fields), fields.at("fields")),
            index=Index.parse(fields.part("index")),
            time=Time.parse(fields.part("time")),
            router=Router.parse(fields.part("router")),
            workers=Workers.parse(fields.part("workers")),
            mergers=fields.whole("mergers", 1, 1),
            interval=fields.duration("interval", "5m"),
            retention=_retention(fields),
            serves=_serves(fields),
            max_record_bytes=fields.whole("maxRecordBytes", 1 << 20, 1),
            max_row_bytes=fields.whole("maxRowBytes", 64 << 20, 1),
            checkpoint=_place(fields.required("checkpoint")),
            archive=_place(fields.part("archive")) if fields.has("archive") else None,
            object_store=ObjectStore.parse(fields.part("objectStore")),
            rebalance=Rebalance.parse(fields.part("rebalance")),
            autoscaling=Autoscaling.parse(fields.part("autoscaling")),
            rejects_share=fields.part("rejects").whole("share", 10, 1),
            restart=Restart.parse(fields.part("restart")),
            deletion=Deletion.parse(fields.part("deletion")),
            suspend=fields.flag("suspend", False),
            restart_nonce=fields.text("restartNonce", ""),
        )


def _pull_secrets(fields: Fields) -> tuple[str, ...]:
    path = fields.at("imagePullSecrets")
    parts = [Fields({"item": item}, path).part("item") for item in fields.items("imagePullSecrets")]
    return tuple(part.text("name") for part in parts)


def _properties(fields: Fields) -> Properties:
    """``spec.properties``, by name."""
    declared = sorted(fields.texts("properties").items())
    return Properties.parse((f"{name}:{kind}" for name, kind in declared), fields.at("properties"))


def _space(fields: Fields) -> Space:
    try:
        return Space.parse(fields.text("space", "wgs84"))
    except SettingError as error:
        raise SettingError(fields.at("space"), error.problem) from None


def _serves(fields: Fields) -> str:
    serves = fields.one_of("serves", SERVES, EVERYTHING)
    for name in ("retention", "archive"):
        if serves == SUBSCRIPTIONS and fields.has(name):
            problem = f"a stream that serves {SUBSCRIPTIONS} stores no objects; leave it out, or serve {EVERYTHING}"
            raise SettingError(fields.at(name), problem)
    return serves


def _retention(fields: Fields) -> int | None:
    if not fields.has("retention"):
        return None
    retention, interval = fields.duration("retention", ""), fields.duration("interval", "5m")
    if retention < interval:
        raise SettingError(fields.at("retention"), "is shorter than interval; objects are dropped in units of interval")
    return retention
