"""How the drivers' metrics are found: a headless service for each, and a PodMonitor for the Prometheus operator."""

from __future__ import annotations

from collections.abc import Mapping

from spatialstream_operator.commands import METRICS_PORT
from spatialstream_operator.manifests.metadata import Manifest, metadata
from spatialstream_operator.names import STREAM_LABEL, StreamNames

__all__ = ["METRICS_PATH", "METRICS_PORT_NAME", "pod_monitor", "service"]

METRICS_PORT_NAME = "metrics"
METRICS_PATH = "/metrics"


def service(names: StreamNames, component: str, uid: str) -> Manifest:
    """The headless service of a driver; it is called as the pod.

    Args:
        names: of the stream.
        component: ``router`` or ``worker``.
        uid: of the SpatialStream.
    """
    name = {"router": names.router, "worker": names.worker}[component]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(names, name, uid, component),
        "spec": {
            "clusterIP": "None",
            "selector": names.selected(component),
            "ports": [{"name": METRICS_PORT_NAME, "port": METRICS_PORT, "targetPort": METRICS_PORT_NAME}],
        },
    }


def pod_monitor(names: StreamNames, uid: str, labels: Mapping[str, str]) -> Manifest:
    """The PodMonitor of both drivers. Prometheus then labels their series with ``namespace`` and ``pod``.

    Args:
        names: of the stream.
        uid: of the SpatialStream.
        labels: by which the Prometheus operator selects monitors.
    """
    about = metadata(names, names.monitor, uid)
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": {**about, "labels": {**labels, **about["labels"]}},
        "spec": {
            "selector": {
                "matchLabels": {STREAM_LABEL: names.name},
                "matchExpressions": [
                    {"key": "app.kubernetes.io/component", "operator": "In", "values": ["router", "worker"]}
                ],
            },
            "podMetricsEndpoints": [{"port": METRICS_PORT_NAME, "path": METRICS_PATH}],
        },
    }
