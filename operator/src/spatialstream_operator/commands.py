"""The command lines of a stream's drivers, ``spatialstream router`` and ``spatialstream worker``.

The worker is a Spark driver in client mode; Spark creates its executors as pods from a template, see
:mod:`spatialstream_operator.manifests`. The operator writes the number of executors to the routing store, so it changes
without a restart. A router with executors works the same way; a router without runs its tasks in its own pod.
"""

from __future__ import annotations

from spatialstream.balance.settings import DKM
from spatialstream.model.terms import EVERYTHING
from spatialstream.model.times import format_duration
from spatialstream_operator.names import StreamNames
from spatialstream_operator.spec import Bucket, Claim, Executors, StreamSpec

__all__ = [
    "ARCHIVE",
    "BLOCK_MANAGER_PORT",
    "CHECKPOINT",
    "CONFIG",
    "DRIVER_PORT",
    "EXECUTOR_CONTAINER",
    "EXECUTOR_TEMPLATES",
    "KAFKA_SECRETS",
    "METRICS_PORT",
    "OBJECT_STORE_AUTHORITY",
    "OBJECT_STORE_SECRETS",
    "STOP_WORDS",
    "WORK",
    "ZOOKEEPER_SECRETS",
    "ZOOKEEPER_TLS",
    "checkpoint_place",
    "driver_command",
    "executor_cores",
    "spark_properties",
    "zookeeper_files",
]

METRICS_PORT = 9090
DRIVER_PORT = 7078
"""Port at which executors reach their driver."""
BLOCK_MANAGER_PORT = 7079
"""Port at which drivers and executors exchange blocks of data."""

CHECKPOINT = "/checkpoint"
ARCHIVE = "/archive"
WORK = "/var/spatialstream"
"""Directory on the node's disk: compiled kernels, Spark's local files."""
CONFIG = "/etc/spatialstream/config"
KAFKA_SECRETS = "/etc/spatialstream/kafka"
ZOOKEEPER_SECRETS = "/etc/spatialstream/zookeeper"
ZOOKEEPER_TLS = "/etc/spatialstream/zookeeper-tls"
OBJECT_STORE_SECRETS = "/etc/spatialstream/object-store"
OBJECT_STORE_AUTHORITY = "/etc/spatialstream/object-store-ca"
EXECUTOR_TEMPLATES = {"router": "router-executor.yaml", "worker": "executor.yaml"}
"""File names of the executor pod templates, by job."""
STOP_WORDS = "stop-words"
EXECUTOR_CONTAINER = "executor"

_SILENCE = {"spark.network.timeout": "60s", "spark.network.timeoutInterval": "10s"}
"""After what time without a heartbeat Spark removes an executor, and how often it checks; Spark's defaults are 120 s
and 60 s.

Actors are already considered dead after 10 s of silence, so the stream continues earlier; but an executor that is cut
off from its driver is replaced only after this time. Executors send a heartbeat every 10 s.
"""

_API_SERVER = "k8s://https://kubernetes.default.svc:443"


def driver_command(spec: StreamSpec, names: StreamNames, job: str, executors: int) -> list[str]:
    """The command line of a job's driver.

    Args:
        spec: of the stream.
        names: of the stream.
        job: ``router`` or ``worker``.
        executors: initial number of executors, if the job has any.
    """
    own = _router(spec) if job == "router" else _worker(spec)
    elsewhere = ["--master", _API_SERVER, "--executors-from-store"] if spec.job(job).executors else []
    properties = spark_properties(spec, names, job, executors)
    return ["spatialstream", job, *_common(spec, names), *own, *elsewhere, *_properties(properties)]


def _router(spec: StreamSpec) -> list[str]:
    return [
        *(() if spec.router.executors else ("--cores", str(spec.router.cores))),
        *("--index", spec.index.kind),
        *("--leaves", str(spec.index.leaves)),
        *("--object-partitions", str(spec.kafka.object_partitions)),
        *(() if spec.kafka.replication is None else ("--replicas", str(spec.kafka.replication))),
        *("--idle", format_duration(spec.time.idle)),
        *("--disorder", format_duration(spec.time.disorder)),
        *("--ahead", format_duration(spec.time.ahead)),
        *("--longest", str(spec.max_record_bytes)),
    ]


def _worker(spec: StreamSpec) -> list[str]:
    archive = () if spec.archive is None else ("--archive", _place(spec.archive, ARCHIVE))
    nearest = () if spec.index.nearest == DKM else ("--nearest", spec.index.nearest)
    return [*archive, *nearest, "--longest-row", str(spec.max_row_bytes)]


def checkpoint_place(spec: StreamSpec) -> str:
    """The checkpoint location that is passed to the stream's pods."""
    return _place(spec.checkpoint, CHECKPOINT)


def _place(place: Claim | Bucket, path: str) -> str:
    return place.url if isinstance(place, Bucket) else path


def spark_properties(spec: StreamSpec, names: StreamNames, job: str, executors: int) -> dict[str, str]:
    """Spark's properties for a job: defaults, overridden by the spec, overridden by those that the operator sets.

    Spark adds ``spark.executor.memory`` and ``memoryOverhead``, and uses the sum as memory request and limit. The
    arguments are those of :func:`driver_command`.
    """
    job_spec = spec.job(job)
    properties = {} if job_spec.executors is None else dict(_SILENCE)
    properties |= job_spec.options
    properties |= {"spark.driver.memory": f"{job_spec.driver.heap}m", "spark.local.dir": WORK}
    if job_spec.executors is not None:
        properties |= _driver_address(names, job) | _executors(spec, job, job_spec.executors, executors)
        properties |= _executor_pods(spec, names, job, job_spec.executors)
    return properties


def _common(spec: StreamSpec, names: StreamNames) -> list[str]:
    security = spec.kafka.security
    command = ["--stream", names.stream, "--bootstrap", spec.kafka.bootstrap]
    if security is not None:
        command += ["--kafka-security", f"{KAFKA_SECRETS}/{security.key}"]
    for kind, topic in spec.kafka.topics.items():
        command += ["--topic", f"{kind}={topic}"]
    command += ["--zookeeper", spec.zookeeper.servers]
    for name, file in zookeeper_files(spec).items():
        command += [f"--zookeeper-{name}", file]
    command += ["--checkpoint", checkpoint_place(spec), *_identity(spec)]
    return [*command, "--metrics-address", "0.0.0.0", "--metrics-port", str(METRICS_PORT)]


def zookeeper_files(spec: StreamSpec) -> dict[str, str]:
    """Mounted files with ZooKeeper's credentials and certificates, by the suffix of the option that names them."""
    credentials, tls, files = spec.zookeeper.credentials, spec.zookeeper.tls, dict[str, str]()
    if credentials is not None:
        files["credentials"] = f"{ZOOKEEPER_SECRETS}/{credentials.key}"
    if tls is not None:
        files["ca"] = f"{ZOOKEEPER_TLS}/ca.crt"
        if tls.certified:
            files |= {"certificate": f"{ZOOKEEPER_TLS}/tls.crt", "key": f"{ZOOKEEPER_TLS}/tls.key"}
    return files


def _identity(spec: StreamSpec) -> list[str]:
    """Options that must be the same for both jobs for the whole lifetime of the stream."""
    command = ["--slots", str(spec.workers.executors.max), "--router-partitions", str(spec.router.partitions)]
    command += ["--mergers", str(spec.mergers), "--interval", format_duration(spec.interval)]
    if spec.retention is not None:
        command += ["--retention", format_duration(spec.retention)]
    if spec.serves != EVERYTHING:
        command += ["--serves", spec.serves]
    if spec.index.nearest == DKM:  # for life, and for both jobs; otherwise it is the worker's alone
        command += ["--nearest", DKM]
    command += [f"--space={spec.space}", "--min-term-length", str(spec.terms.min_length)]
    command += ["--query-words", str(spec.terms.query_words)]
    command += ["--polygon-vertices", str(spec.terms.polygon_vertices)]
    if spec.terms.ranking:
        command += ["--ranking"]
    if spec.terms.counts:
        command += ["--term-counts"]
    command += [f"--property={declaration}" for declaration in spec.properties.declarations]
    command += [f"--fields={','.join(spec.fields)}"] if spec.fields else []
    if spec.terms.stop_words:
        command += ["--stop-words", f"{CONFIG}/{STOP_WORDS}"]
    return command


def _properties(properties: dict[str, str]) -> list[str]:
    return [part for key, value in sorted(properties.items()) for part in ("--conf", f"{key}={value}")]


def _driver_address(names: StreamNames, job: str) -> dict[str, str]:
    return {
        "spark.kubernetes.namespace": names.namespace,
        "spark.kubernetes.driver.pod.name": names.driver(job),
        # the kubelet substitutes the environment variable
        "spark.driver.host": "$(POD_IP)",
        "spark.driver.bindAddress": "0.0.0.0",
        "spark.driver.port": str(DRIVER_PORT),
        "spark.driver.blockManager.port": str(BLOCK_MANAGER_PORT),
    }


def _executors(spec: StreamSpec, job: str, executor_spec: Executors, executors: int) -> dict[str, str]:
    container = executor_spec.container
    most = spec.router.partitions if job == "router" else executor_spec.max  # both are fixed for a stream
    return {
        "spark.executor.instances": str(executors),
        "spark.executor.cores": str(executor_spec.cores),
        "spark.executor.memory": f"{container.heap}m",
        "spark.executor.memoryOverhead": f"{container.memory - container.heap}m",
        # by default Spark stops a driver after too many executor failures over its whole lifetime; for an unbounded
        # stream only recent failures are relevant
        "spark.executor.failuresValidityInterval": "10m",
        "spark.executor.maxNumFailures": str(max(10, 4 * most)),
    }


def executor_cores(given: Executors) -> str:
    """CPU request of an executor, as a quantity."""
    container = given.container
    return container.requests.get("cpu") or container.limits.get("cpu") or str(given.cores)


def _executor_pods(spec: StreamSpec, names: StreamNames, job: str, executor_spec: Executors) -> dict[str, str]:
    limits = executor_spec.container.limits
    properties = {
        "spark.kubernetes.container.image": spec.image,
        "spark.kubernetes.container.image.pullPolicy": spec.image_pull_policy,
        "spark.kubernetes.executor.podNamePrefix": names.driver(job),
        "spark.kubernetes.authenticate.executor.serviceAccountName": names.executor_account,
        "spark.kubernetes.executor.podTemplateFile": f"{CONFIG}/{EXECUTOR_TEMPLATES[job]}",
        "spark.kubernetes.executor.podTemplateContainerName": EXECUTOR_CONTAINER,
        "spark.kubernetes.executor.request.cores": executor_cores(executor_spec),
        "spark.kubernetes.executor.deleteOnTermination": "true",
        # Spark gets no usable event when a pod is force-deleted while its status says Running (its node is lost); it
        # notices the missing pod only by polling
        "spark.kubernetes.executor.apiPollingInterval": "10s",
        # the following settings keep the driver's permissions minimal: it needs pods and nothing else
        "spark.kubernetes.executor.disableConfigMap": "true",
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
        # in recovery mode an executor runs one task at a time, and so serves fewer slots than it has cores
        "spark.kubernetes.allocation.recoveryMode.enabled": "false",
    }
    if "cpu" in limits:
        properties["spark.kubernetes.executor.limit.cores"] = limits["cpu"]
    return properties
