"""What Prometheus says about the stream, asked for now and then."""

from __future__ import annotations

from spatialstream.model.addresses import url_from_outside
from spatialstream_operator.figures import Figures, read_figures
from spatialstream_operator.look import Look
from spatialstream_operator.prometheus import Prometheus

__all__ = ["measure"]

_SLOWEST = 15_000


async def measure(look: Look) -> None:
    """Ask Prometheus, if it is time to."""
    url, memory = look.spec.prometheus_url, look.memory
    if not url:
        memory.figures = Figures(problem="no Prometheus is known: neither the stream nor the operator names one")
    elif look.now - memory.figures.at >= min(look.spec.rebalance.interval, _SLOWEST):
        if url != look.environment.config.prometheus_url:
            url = url_from_outside(url, look.names.namespace)
        executors = "router" in look.crews
        memory.figures = await read_figures(Prometheus(url), look.names, look.now, executors=executors)
    look.figures = memory.figures
