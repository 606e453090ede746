"""Volumes of a stream's pods, and their mounts.

The root file system is read-only. Pods write to the stream's own volume claims, or to the node's disk (the work
directory and ``/tmp``), which is lost with the pod; nothing there is needed again.
"""

from __future__ import annotations

from dataclasses import dataclass

from spatialstream_operator.commands import (
    ARCHIVE,
    CHECKPOINT,
    CONFIG,
    KAFKA_SECRETS,
    OBJECT_STORE_AUTHORITY,
    OBJECT_STORE_SECRETS,
    WORK,
    ZOOKEEPER_SECRETS,
    ZOOKEEPER_TLS,
)
from spatialstream_operator.manifests.metadata import Manifest
from spatialstream_operator.names import StreamNames
from spatialstream_operator.spec import Bucket, Claim, SecretKey, StreamSpec, TlsSecret

__all__ = [
    "DRIVER_WORK",
    "EXECUTOR_WORK",
    "REPLACEABLE",
    "Storage",
    "archive",
    "checkpoint",
    "config",
    "local",
    "secrets",
]

DRIVER_WORK = "scratch"
EXECUTOR_WORK = "spark-local-dir-1"
"""Name of the executors' work volume: by this name Spark uses it as its local directory, and adds none of its own."""
REPLACEABLE = frozenset({DRIVER_WORK, EXECUTOR_WORK, "tmp"})
"""Volumes that a pod template may replace by others of the same name."""

_READABLE_BY_GROUP = 0o440


@dataclass(frozen=True, slots=True)
class Storage:
    """Volumes, and their mounts in the pod's container."""

    volumes: tuple[Manifest, ...]
    mounts: tuple[Manifest, ...]

    def __add__(self, other: Storage) -> Storage:
        """Concatenate both."""
        return Storage(self.volumes + other.volumes, self.mounts + other.mounts)


def local(work: str) -> Storage:
    """Volumes on the node's disk: the work directory, in a volume named ``work``, and ``/tmp``."""
    return _volume(work, {"emptyDir": {}}, WORK) + _volume("tmp", {"emptyDir": {}}, "/tmp")


def config(names: StreamNames) -> Storage:
    """The ConfigMap."""
    return _volume("config", {"configMap": {"name": names.config}}, CONFIG, readOnly=True)


def checkpoint(spec: StreamSpec, names: StreamNames) -> Storage:
    """The stream's state, if it is in a volume."""
    return _claim("checkpoint", spec.checkpoint, names.checkpoint_path, CHECKPOINT)


def archive(spec: StreamSpec, names: StreamNames) -> Storage:
    """The archive of dropped objects, if it is in a volume."""
    return _claim("archive", spec.archive, names.archive_path, ARCHIVE)


def secrets(spec: StreamSpec, *, zookeeper: bool) -> Storage:
    """Credentials for Kafka, for the object store if there is one and, if requested, for ZooKeeper."""
    storage = _secret("kafka", spec.kafka.security, KAFKA_SECRETS)
    if spec.remote:
        storage += _secret("object-store", spec.object_store.credentials, OBJECT_STORE_SECRETS)
        storage += _secret("object-store-ca", spec.object_store.authority, OBJECT_STORE_AUTHORITY)
    if zookeeper:
        storage += _secret("zookeeper", spec.zookeeper.credentials, ZOOKEEPER_SECRETS)
        storage += _secret("zookeeper-tls", spec.zookeeper.tls, ZOOKEEPER_TLS)
    return storage


def _secret(name: str, secret: SecretKey | TlsSecret | None, path: str) -> Storage:
    if secret is None:
        return Storage((), ())
    source = {"secret": {"secretName": secret.name, "defaultMode": _READABLE_BY_GROUP}}
    return _volume(name, source, path, readOnly=True)


def _claim(name: str, claim: Claim | Bucket | None, default: str, path: str) -> Storage:
    if not isinstance(claim, Claim):
        return Storage((), ())
    source = {"persistentVolumeClaim": {"claimName": claim.name}}
    return _volume(name, source, path, subPath=claim.path or default)


def _volume(name: str, source: Manifest, path: str, **mount: object) -> Storage:
    return Storage(({"name": name, **source},), ({"name": name, "mountPath": path, **mount},))
