"""What Prometheus says about the stream, asked for now and then."""

from __future__ import annotations

from pathlib import Path

from spatialstream.model.addresses import url_from_outside
from spatialstream_operator.config import OperatorConfig
from spatialstream_operator.context import ReconcileContext
from spatialstream_operator.load_metrics import LoadMetrics, read_figures
from spatialstream_operator.prometheus import Prometheus, PrometheusAccess

__all__ = ["measure", "server_of"]

_SLOWEST = 15_000


async def measure(look: ReconcileContext) -> None:
    """Ask Prometheus, if it is time to."""
    url, memory = look.spec.prometheus_url, look.memory
    if not url:
        memory.figures = LoadMetrics(problem="no Prometheus is known: neither the stream nor the operator names one")
    elif look.now - memory.figures.at >= min(look.spec.rebalance.interval, _SLOWEST):
        server = server_of(look.environment.config, url, look.names.namespace)
        executors = "router" in look.crews
        memory.figures = await read_figures(server, look.names, look.now, executors=executors)
    look.figures = memory.figures


def server_of(config: OperatorConfig, url: str, namespace: str) -> Prometheus:
    """A stream's Prometheus.

    Only the operator's own is shown the operator's token: whoever may name another server could read it there.

    Args:
        config: of the operator.
        url: of the stream.
        namespace: of the stream.
    """
    if url != config.prometheus_url:
        return Prometheus(url_from_outside(url, namespace))
    return Prometheus(url, PrometheusAccess(Path(config.prometheus_access)) if config.prometheus_access else None)
