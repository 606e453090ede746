"""The Prometheus metrics of the operator and the streams that it manages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

__all__ = ["CONDITIONS", "OUTCOMES", "OperatorMetrics"]

CONDITIONS = ("Ready", "Progressing", "Balanced", "Degraded")
OUTCOMES = ("done", "waiting", "failed")
JOBS = ("router", "worker")

_STREAM = ("namespace", "stream")
_QUERY = ("namespace", "query")
_AREA = ("namespace", "area")
_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


def _gauge(name: str, text: str, *labels: str) -> Gauge:
    return Gauge(f"spatialstream_operator_{name}", text, labels, registry=None)


def _counter(name: str, text: str, *labels: str) -> Counter:
    return Counter(f"spatialstream_operator_{name}", text, labels, registry=None)


@dataclass(slots=True)
class OperatorMetrics:
    """The operator's metrics. The series of a stream exist as long as the stream."""

    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    reconciles: Counter = field(
        default_factory=lambda: _counter("reconciles", "Reconciliations of a stream, by outcome.", *_STREAM, "outcome")
    )
    seconds: Histogram = field(
        default_factory=lambda: Histogram(
            "spatialstream_operator_reconcile_seconds",
            "Duration of a reconciliation of a stream.",
            buckets=_SECONDS,
            registry=None,
        )
    )
    restarts: Counter = field(
        default_factory=lambda: _counter("driver_restarts", "Driver restarts after a failure.", *_STREAM, "job")
    )
    failures: Gauge = field(
        default_factory=lambda: _gauge(
            "driver_consecutive_failures", "Consecutive failures of a driver.", *_STREAM, "job"
        )
    )
    condition: Gauge = field(
        default_factory=lambda: _gauge(
            "stream_condition", "Whether a condition of a stream is True.", *_STREAM, "condition"
        )
    )
    rebalances: Counter = field(
        default_factory=lambda: _counter(
            "rebalances", "Rebalances, by strategy and outcome.", *_STREAM, "strategy", "outcome"
        )
    )
    phase: Gauge = field(
        default_factory=lambda: _gauge("rebalance_phase", "1 for the current phase of rebalancing.", *_STREAM, "phase")
    )
    phase_since: Gauge = field(
        default_factory=lambda: _gauge(
            "rebalance_phase_since_timestamp_seconds", "When the phase of rebalancing began.", *_STREAM
        )
    )
    desired: dict[str, Gauge] = field(
        default_factory=lambda: {
            "worker": _gauge("desired_workers", "Desired executors of a stream's worker.", *_STREAM),
            "router": _gauge("desired_routers", "Desired executors of a stream's router; 0: none.", *_STREAM),
        }
    )
    imbalance_limit: Gauge = field(
        default_factory=lambda: _gauge(
            "imbalance_limit", "Lmax / Lmin above which a stream is out of balance: its lambda.", *_STREAM
        )
    )
    query_reconciles: Counter = field(
        default_factory=lambda: _counter(
            "query_reconciles", "Reconciliations of a SpatialQuery, by outcome.", *_QUERY, "outcome"
        )
    )
    query_registered: Gauge = field(
        default_factory=lambda: _gauge("query_registered", "Whether a SpatialQuery is registered.", *_QUERY)
    )
    area_loaded: Gauge = field(
        default_factory=lambda: _gauge("area_loaded", "Whether a stream knows the area of a SpatialArea.", *_AREA)
    )
    watch_lag: Gauge = field(
        default_factory=lambda: _gauge("watch_lag_seconds", "For how long the watch has been missing a listed change.")
    )

    served: Gauge = field(
        default_factory=lambda: _gauge(
            "namespace_served",
            "Whether resources of a namespace (*: all namespaces) can be managed; 0 if listing them is refused.",
            "namespace",
            "kind",
        )
    )

    def __post_init__(self) -> None:
        """Register all metrics."""
        for each in self._all():
            self.registry.register(each)

    def _all(self) -> list[Counter | Gauge | Histogram]:
        return [
            self.reconciles,
            self.seconds,
            self.restarts,
            self.failures,
            self.condition,
            self.rebalances,
            self.phase,
            self.phase_since,
            *self.desired.values(),
            self.imbalance_limit,
            *self._of_queries(),
            self.area_loaded,
            self.watch_lag,
            self.served,
        ]

    def begin(self, namespace: str, stream: str, phases: Iterable[str]) -> None:
        """Initialise the series of a stream, so that they exist from the first scrape.

        The imbalance limit is set by the first reconciliation, because 0 would be a wrong limit.
        """
        for outcome in OUTCOMES:
            self.reconciles.labels(namespace, stream, outcome)
        for job in JOBS:
            self.restarts.labels(namespace, stream, job)
            self.failures.labels(namespace, stream, job)
        for condition in CONDITIONS:
            self.condition.labels(namespace, stream, condition)
        for phase in phases:
            self.phase.labels(namespace, stream, phase)
        self.phase_since.labels(namespace, stream)
        for desired in self.desired.values():
            desired.labels(namespace, stream)

    def end(self, namespace: str, stream: str) -> None:
        """Remove the series of a stream that is gone."""
        for each in self._of_streams():
            each.remove_by_labels({"namespace": namespace, "stream": stream})

    def begin_query(self, namespace: str, query: str) -> None:
        """Initialise the series of a SpatialQuery."""
        for outcome in ("done", "failed"):
            self.query_reconciles.labels(namespace, query, outcome)
        self.query_registered.labels(namespace, query)

    def end_query(self, namespace: str, query: str) -> None:
        """Remove the series of a SpatialQuery that is gone."""
        for each in self._of_queries():
            each.remove_by_labels({"namespace": namespace, "query": query})

    def leave(self, namespace: str | None) -> None:
        """Remove the series of all streams of a namespace (None: of all), because they can no longer be managed."""
        _leave(self._of_streams(), namespace)

    def leave_queries(self, namespace: str | None) -> None:
        """The same for SpatialQueries."""
        _leave(self._of_queries(), namespace)

    def end_area(self, namespace: str, area: str) -> None:
        """Remove the series of a SpatialArea that is gone."""
        self.area_loaded.remove_by_labels({"namespace": namespace, "area": area})

    def leave_areas(self, namespace: str | None) -> None:
        """The same for SpatialAreas."""
        _leave([self.area_loaded], namespace)

    def _of_queries(self) -> list[Counter | Gauge]:
        return [self.query_reconciles, self.query_registered]

    def _of_streams(self) -> list[Counter | Gauge | Histogram]:
        others = (self.seconds, self.watch_lag, self.served, self.area_loaded, *self._of_queries())
        return [each for each in self._all() if not any(each is other for other in others)]


def _leave(metrics: Iterable[Counter | Gauge | Histogram], namespace: str | None) -> None:
    for each in metrics:
        if namespace is None:
            each.clear()
        else:
            each.remove_by_labels({"namespace": namespace})
