"""The names of everything that belongs to a stream: pods, accounts, topics, labels.

All names are derived from the namespace and the name of the SpatialStream, so names of different streams never collide.
The length of a stream's name is limited so that ``NAME-worker-exec-N`` and ``NAME-router-exec-N`` are valid host names
(at most 63 characters) for every N that Spark uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from spatialstream.model.errors import SettingError

__all__ = [
    "APPROVE_ANNOTATION",
    "AREA_KIND",
    "AREA_PLURAL",
    "COMPONENTS",
    "COMPONENT_LABEL",
    "GROUP",
    "HASH_ANNOTATION",
    "INTERNAL_KINDS",
    "KIND",
    "PLURAL",
    "QUERY_KIND",
    "QUERY_PLURAL",
    "STREAM_LABEL",
    "TOPIC_KINDS",
    "VERSION",
    "StreamNames",
]

GROUP = "spatialstream.dev"
VERSION = "v1alpha1"
KIND = "SpatialStream"
PLURAL = "spatialstreams"
QUERY_KIND = "SpatialQuery"
QUERY_PLURAL = "spatialqueries"
AREA_KIND = "SpatialArea"
AREA_PLURAL = "spatialareas"

STREAM_LABEL = f"{GROUP}/stream"
"""Label with the stream's name, on all its objects."""
COMPONENT_LABEL = "app.kubernetes.io/component"
"""Label with the component that a pod belongs to."""
HASH_ANNOTATION = f"{GROUP}/template-hash"
"""Annotation of a driver's pod with the hash of its template; if the spec yields another hash, the pod is recreated."""
APPROVE_ANNOTATION = f"{GROUP}/approve"
"""Annotation of a SpatialStream in mode ``approve``: the id of the approved proposal."""

COMPONENTS = ("router", "worker", "router-executor", "executor")
TOPIC_KINDS = ("objects", "queries", "results", "rejected", "areas")
"""Topics for producers and consumers; the spec may name them."""
INTERNAL_KINDS = ("blocks", "epochs")
"""Topics between router and worker."""

_LONGEST_NAME = 40


@dataclass(frozen=True, slots=True)
class StreamNames:
    """The names of one stream.

    Attributes:
        namespace: namespace of the SpatialStream, and of all its objects.
        name: name of the SpatialStream; at most 40 characters.

    Raises:
        SettingError: the name is too long.
    """

    namespace: str
    name: str

    def __post_init__(self) -> None:
        """Reject a name that is too long for the derived names."""
        if not 1 <= len(self.name) <= _LONGEST_NAME:
            raise SettingError("metadata.name", f"{self.name!r} must have 1 to {_LONGEST_NAME} characters")

    @property
    def stream(self) -> str:
        """Name of the stream in ZooKeeper and Kafka. It is unique, because a namespace contains no dot."""
        return f"{self.namespace}.{self.name}"

    @property
    def router(self) -> str:
        """Name of the router's driver pod and of its service; its executors, if any, are named ``ROUTER-exec-N``."""
        return f"{self.name}-router"

    @property
    def worker(self) -> str:
        """Name of the worker's driver pod and of its service; its executors are named ``WORKER-exec-N``."""
        return f"{self.name}-worker"

    def driver(self, job: str) -> str:
        """Name of the driver pod of the router or the worker."""
        return {"router": self.router, "worker": self.worker}[job]

    @property
    def remover(self) -> str:
        """Name of the pod that removes the stream's external state."""
        return f"{self.name}-remover"

    @property
    def trial(self) -> str:
        """Name of the pod that tries another image."""
        return f"{self.name}-image"

    @property
    def account(self) -> str:
        """Name of the drivers' service account, of its role, and of the binding of the two."""
        return f"{self.name}-driver"

    @property
    def executor_account(self) -> str:
        """Name of the executors' service account."""
        return f"{self.name}-executor"

    @property
    def config(self) -> str:
        """Name of the ConfigMap."""
        return f"{self.name}-config"

    @property
    def monitor(self) -> str:
        """Name of the PodMonitor."""
        return self.name

    @property
    def policy(self) -> str:
        """Name of the NetworkPolicy."""
        return f"{self.name}-pods"

    @property
    def checkpoint_path(self) -> str:
        """Default directory of the stream in the checkpoint volume."""
        return f"{self.namespace}/{self.name}"

    @property
    def archive_path(self) -> str:
        """Default directory of the stream in the archive volume. It never equals a checkpoint's: names have no dot."""
        return f"{self.namespace}/{self.name}.archive"

    @staticmethod
    def executor(job: str) -> str:
        """The component name of a job's executors."""
        return {"router": "router-executor", "worker": "executor"}[job]

    def labels(self, component: str | None = None) -> dict[str, str]:
        """Labels of the stream's objects, or of those of one of its :data:`COMPONENTS`."""
        labels = {
            "app.kubernetes.io/name": "spatialstream",
            "app.kubernetes.io/managed-by": "spatialstream-operator",
            "app.kubernetes.io/instance": self.name,
            STREAM_LABEL: self.name,
        }
        return labels | ({} if component is None else {COMPONENT_LABEL: component})

    def selected(self, component: str) -> dict[str, str]:
        """The labels that select the pods of a component of this stream."""
        return {STREAM_LABEL: self.name, COMPONENT_LABEL: component}

    @property
    def selected_drivers(self) -> dict[str, Any]:
        """The LabelSelector of the pods of both drivers."""
        either = {"key": COMPONENT_LABEL, "operator": "In", "values": ["router", "worker"]}
        return {"matchLabels": {STREAM_LABEL: self.name}, "matchExpressions": [either]}

    def selector(self, component: str) -> str:
        """The label selector of a component's pods as a string."""
        return ",".join(f"{key}={value}" for key, value in self.selected(component).items())

    def topics(self, overrides: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
        """Names of all topics by kind: :data:`TOPIC_KINDS`, then :data:`INTERNAL_KINDS`.

        Args:
            overrides: names by kind that take the place of ``STREAM.KIND``.

        Raises:
            SettingError: two kinds would share a topic.
        """
        topics = {kind: overrides.get(kind) or f"{self.stream}.{kind}" for kind in TOPIC_KINDS}
        topics |= {kind: f"{self.stream}.{kind}" for kind in INTERNAL_KINDS}
        kinds: dict[str, str] = {}
        for kind, topic in topics.items():
            if topic in kinds:
                raise SettingError(
                    f"kafka.topics.{kind}", f"{topic} is already the {kinds[topic]} topic; name another one"
                )
            kinds[topic] = kind
        return topics
