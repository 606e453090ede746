"""The gateway's metrics for Prometheus. The number of series is bounded: by route, by status, by stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

__all__ = ["GatewayMetrics"]

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class GatewayMetrics:
    """The gateway's metrics."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        text = "Answered requests; streaming ones count when they end."
        labels = ["route", "status"]
        self._requests = Counter("spatialstream_gateway_requests", text, labels, registry=self.registry)
        text = "Time until the first byte of a request's answer."
        name = "spatialstream_gateway_request_seconds"
        self._seconds = Histogram(name, text, ["route"], buckets=_SECONDS, registry=self.registry)
        text, labels = "Connections that follow results as events.", ["stream"]
        self._listening = Gauge("spatialstream_gateway_listeners", text, labels, registry=self.registry)
        text = "Result rows sent to clients that follow results."
        self._rows = Counter("spatialstream_gateway_rows", text, labels, registry=self.registry)
        text = "Objects acknowledged by the broker."
        self._objects = Counter("spatialstream_gateway_objects", text, labels, registry=self.registry)
        text = "Requests refused because an answer would be too large (size), or there is no memory for it (memory)."
        name = "spatialstream_gateway_refused_answers"
        self._refused = Counter(name, text, ["reason"], registry=self.registry)
        for reason in ("size", "memory"):
            self._refused.labels(reason)
        text = "Memory that requests and their answers hold."
        self._memory = Gauge("spatialstream_gateway_answer_bytes", text, registry=self.registry)
        self.running = Gauge("spatialstream_running", "Whether all streams answer.", registry=self.registry)

    def observe(self, route: str, status: int, seconds: float) -> None:
        """Record an answered request; ``seconds`` is the time until its first byte."""
        self._requests.labels(route, status).inc()
        self._seconds.labels(route).observe(seconds)

    def refused(self, reason: str) -> None:
        """An answer has been refused."""
        self._refused.labels(reason).inc()

    def memory(self, held: Callable[[], float]) -> None:
        """What tells how many bytes requests and their answers hold."""
        self._memory.set_function(held)

    @contextmanager
    def listening(self, stream: str) -> Iterator[None]:
        """Count a connection that follows results."""
        with self._listening.labels(stream).track_inprogress():
            yield

    def rows(self, stream: str, count: int) -> None:
        """Count rows sent to a client."""
        self._rows.labels(stream).inc(count)

    def objects(self, stream: str, count: int) -> None:
        """Count objects sent to the broker."""
        self._objects.labels(stream).inc(count)
