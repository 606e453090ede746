"""Queries Prometheus for the stream's metrics at intervals."""

from __future__ import annotations

from pathlib import Path

from spatialstream.model.addresses import url_from_outside
from spatialstream_operator.config import OperatorConfig
from spatialstream_operator.context import ReconcileContext
from spatialstream_operator.load_metrics import LoadMetrics, read_load_metrics
from spatialstream_operator.prometheus import Prometheus, PrometheusAccess

__all__ = ["measure", "server_of"]

_SLOWEST = 15_000


async def measure(context: ReconcileContext) -> None:
    """Query Prometheus, if that is due."""
    url, memory = context.spec.prometheus_url, context.memory
    if not url:
        memory.load_metrics = LoadMetrics(
            problem="no Prometheus is configured, neither for the stream nor for the operator"
        )
    elif context.now - memory.load_metrics.at >= min(context.spec.rebalance.interval, _SLOWEST):
        server = server_of(context.environment.config, url, context.names.namespace)
        executors = "router" in context.crews
        memory.load_metrics = await read_load_metrics(server, context.names, context.now, executors=executors)
    context.load_metrics = memory.load_metrics


def server_of(config: OperatorConfig, url: str, namespace: str) -> Prometheus:
    """A client of a stream's Prometheus.

    The operator's token is sent only to the operator's own server: otherwise an account that may edit a stream could
    direct it to a server that reads the token.

    Args:
        config: settings of the operator.
        url: Prometheus URL of the stream.
        namespace: namespace of the stream.
    """
    if url != config.prometheus_url:
        return Prometheus(url_from_outside(url, namespace))
    return Prometheus(url, PrometheusAccess(Path(config.prometheus_access)) if config.prometheus_access else None)
