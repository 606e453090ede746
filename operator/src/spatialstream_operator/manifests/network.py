"""Discovery of the drivers' metrics, and access to a stream's pods.

Metrics: a headless service for each driver, and a PodMonitor for the Prometheus operator. Access: a NetworkPolicy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spatialstream_operator.commands import METRICS_PORT
from spatialstream_operator.manifests.metadata import Manifest, metadata
from spatialstream_operator.names import STREAM_LABEL, StreamNames

__all__ = ["METRICS_PATH", "METRICS_PORT_NAME", "network_policy", "pod_monitor", "service"]

METRICS_PORT_NAME = "metrics"
METRICS_PATH = "/metrics"


def service(names: StreamNames, component: str, uid: str) -> Manifest:
    """The headless service of a driver; it has the name of the pod.

    Args:
        names: of the stream.
        component: ``router`` or ``worker``.
        uid: of the SpatialStream.
    """
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(names, names.driver(component), uid, component),
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
        labels: labels by which the Prometheus operator selects monitors.
    """
    about = metadata(names, names.monitor, uid)
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": {**about, "labels": {**labels, **about["labels"]}},
        "spec": {
            "selector": names.selected_drivers,
            "podMetricsEndpoints": [{"port": METRICS_PORT_NAME, "path": METRICS_PATH}],
        },
    }


def network_policy(
    names: StreamNames,
    uid: str,
    metrics_from: Sequence[Mapping[str, Any]],
    clients_from: Sequence[Mapping[str, Any]] = (),
) -> Manifest:
    """The stream's pods accept connections from each other, from clients, and for metrics; egress is unrestricted.

    Clients connect to the worker's driver and to the actors, which use arbitrary ports. Not every cluster enforces
    policies; all connections are authenticated by a secret in any case.

    Args:
        names: of the stream.
        uid: of the SpatialStream.
        metrics_from: peers that may read metrics, as in a policy's ``from``; empty: any.
        clients_from: peers that may send queries, such as the gateway; empty: none.
    """
    of_the_stream = {"matchLabels": {STREAM_LABEL: names.name}}
    metrics: Manifest = {"ports": [{"port": METRICS_PORT_NAME, "protocol": "TCP"}]}
    if metrics_from:
        metrics["from"] = [dict(each) for each in metrics_from]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(names, names.policy, uid),
        "spec": {
            "podSelector": of_the_stream,
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"podSelector": of_the_stream}, *(dict(each) for each in clients_from)]}, metrics],
        },
    }
