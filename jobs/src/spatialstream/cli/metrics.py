"""What the jobs tell Prometheus.

Everything is there from the first scrape on, and bounded: series by slot, by type of query, and by leaf of the active
version (numbers of leaves begin anew with each version).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import numpy as np
import numpy.typing as npt
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, make_wsgi_app

from spatialstream.balance.loads import LeafCounts, imbalance, model_error
from spatialstream.model.errors import SettingError
from spatialstream.model.queries import QueryType
from spatialstream.records.reasons import REASONS
from spatialstream.stream.clocks import NEVER
from spatialstream.stream.load_report import LoadObserver
from spatialstream.stream.load_window import SNAPSHOT, STANDING, WindowView
from spatialstream.stream.router import EpochRecord
from spatialstream.stream.worker import RoundRecord, Summary

__all__ = ["RouterMetrics", "WorkerMetrics", "serve"]

_SECONDS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0)


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """A scrape is no news."""


class _Threads(ThreadingMixIn, WSGIServer):
    daemon_threads = True


def serve(registry: CollectorRegistry, address: str, port: int) -> None:
    """Serve a registry's metrics over HTTP, at every path but ``/ready``; port 0 serves nothing.

    ``/ready`` answers with 200 while the job is warm and its turns succeed (``spatialstream_running``), else with 503.

    Raises:
        SettingError: the port cannot be used.
    """
    if not port:
        return
    metrics = make_wsgi_app(registry)

    def application(request: Any, respond: Any) -> Any:
        if request["PATH_INFO"] != "/ready":
            return metrics(request, respond)
        ready = registry.get_sample_value("spatialstream_running") == 1.0
        respond("200 OK" if ready else "503 Service Unavailable", [("Content-Type", "text/plain")])
        return [b"running\n" if ready else b"not running\n"]

    try:
        server = make_server(address, port, application, _Threads, _Quiet)
    except OSError as error:
        raise SettingError("metrics-port", f"{address}:{port} cannot be used: {error.strerror}") from None
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()


def _running(registry: CollectorRegistry) -> Gauge:
    return Gauge("spatialstream_running", "Whether the job is warm and its turns succeed.", registry=registry)


class RouterMetrics:
    """The router's metrics."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        name = "spatialstream_router_"
        self._epochs = Histogram(
            f"{name}epoch_seconds", "Time that an epoch takes.", buckets=_SECONDS, registry=registry
        )
        self._epoch = Gauge(f"{name}epoch", "Number of the last epoch.", registry=registry)
        self._records = Counter(f"{name}records", "Records accepted.", ["kind"], registry=registry)
        self._rejected = Counter(f"{name}rejected", "Records rejected.", ["kind", "reason"], registry=registry)
        self._left = Counter(f"{name}left_out", "Records left out of a failing epoch.", registry=registry)
        self._clock = Gauge(
            f"{name}clock_seconds", "Timestamp up to which the stream has been routed.", registry=registry
        )
        self._held = Gauge(
            f"{name}held_seconds", "How far the latest timestamp is ahead of what has been routed.", registry=registry
        )
        self._active = Gauge(
            f"{name}active_version", "Number of the routing version of the last epoch.", registry=registry
        )
        self._pending = Gauge(
            f"{name}pending_version", "Number of the version that is being prepared; -1 if none is.", registry=registry
        )
        self._last = Gauge(f"{name}last_epoch_timestamp_seconds", "When the last epoch ended.", registry=registry)
        self._lag = Gauge(f"{name}lag_messages", "Messages that no epoch has read.", ["kind"], registry=registry)
        for kind in ("objects", "queries"):
            self._lag.labels(kind)
            self._records.labels(kind)
            for reason in REASONS:
                self._rejected.labels(kind, reason)
        self._pending.set(-1)
        self.running = _running(registry)

    def lag(self, kind: str, messages: int) -> None:
        """So many messages are left to read."""
        self._lag.labels(kind).set(max(0, messages))

    def observe(self, record: EpochRecord, _: object, seconds: float) -> None:
        """An epoch has been done."""
        self._epochs.observe(seconds)
        self._epoch.set(record.epoch)
        for intake in record.intakes:
            kind = intake.partition.split("/")[0]
            self._records.labels(kind).inc(intake.records)
            for reason, count in intake.reasons.items():
                self._rejected.labels(kind, reason).inc(count)
            self._left.inc(intake.left)
        self._left.inc(len(record.left))
        if record.upto > NEVER:
            self._clock.set(record.upto / 1000)
            latest = max((clock.t for clock in record.clocks.partitions.values()), default=record.upto)
            self._held.set(max(0, latest - record.upto) / 1000)
        self._active.set(record.adoption.active)
        self._pending.set(-1 if record.adoption.pending is None else record.adoption.pending)
        self._last.set_to_current_time()


class _RoundSeries:
    """How the worker's rounds go."""

    def __init__(self, registry: CollectorRegistry) -> None:
        name = "spatialstream_worker_"
        self._rounds = Histogram(
            f"{name}round_seconds", "Time that a round takes.", buckets=_SECONDS, registry=registry
        )
        self._delay = Histogram(
            f"{name}epoch_delay_seconds",
            "Time from the decision about an epoch in the router to its results.",
            buckets=_SECONDS,
            registry=registry,
        )
        self._round = Gauge(f"{name}round", "Number of the last round.", registry=registry)
        self._epoch = Gauge(f"{name}epoch", "Number of the last epoch whose results are out.", registry=registry)
        self._clock = Gauge(f"{name}clock_seconds", "Timestamp up to which results are out.", registry=registry)
        self._results = Gauge(f"{name}results_rows", "Result rows since the stream began.", ["type"], registry=registry)
        self._rejected = Counter(f"{name}rejected", "Queries that were not admitted.", registry=registry)
        self._left = Counter(f"{name}left_out", "Records left out of a failing round.", registry=registry)
        self._version = Gauge(f"{name}active_version", "Number of the routing version.", registry=registry)
        self._last = Gauge(f"{name}last_round_timestamp_seconds", "When the last round ended.", registry=registry)
        for kind in QueryType:
            self._results.labels(kind.value)

    def observe(self, record: RoundRecord, summary: Summary, seconds: float, now: float) -> None:
        """A round has been done; it took so many seconds, and it is now so many seconds since 1970 UTC."""
        self._rounds.observe(seconds)
        for born in record.births:
            self._delay.observe(max(0.0, now - born / 1000))
        order = record.round
        self._round.set(order.number)
        self._epoch.set(order.last)
        self._clock.set(order.upto / 1000)
        self._version.set(order.version)
        self._rejected.inc(summary.rejected - len(order.left))
        self._left.inc(len(order.left))
        for kind in QueryType:
            self._results.labels(kind.value).set(summary.counts.get(kind.value, 0))
        self._last.set(now)


class _SlotSeries:
    """What each slot does and holds."""

    def __init__(self, slots: int, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"spatialstream_slot_{name}", text, ["slot", *labels], registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"spatialstream_slot_{name}", text, ["slot", *labels], registry=registry)

        self._objects = counter("objects", "Objects that have come to a slot.")
        self._queries = counter("queries", "Queries that have come to a slot.", "type")
        self._matches = counter("matches", "Matches of CRQs.")
        self._checked = counter("checked", "Candidates of CRQs that were checked.")
        self._seconds = counter("busy_seconds", "Time that a slot has worked.")
        self._bytes = gauge("state_bytes", "Size of a slot's indexes.")
        self._held = gauge("held_objects", "Objects that a slot keeps.")
        self._load = gauge("load", "Load of a slot by the cost model.")
        self._standing = gauge("standing_queries", "Standing queries of a slot.", "type")
        of_slot = (self._objects, self._matches, self._checked, self._seconds, self._bytes, self._held, self._load)
        for slot in range(slots):
            for metric in of_slot:
                metric.labels(slot)
            for kind in QueryType:
                self._queries.labels(slot, kind.value)
                if kind not in SNAPSHOT:
                    self._standing.labels(slot, kind.value)

    def observe(self, slot: int, load: Mapping[str, Any]) -> None:
        """A slot has done a round, of which this is the load record."""
        self._objects.labels(slot).inc(load["objects"])
        for kind, count in load.get("queries", {}).items():
            self._queries.labels(slot, kind).inc(count)
        self._matches.labels(slot).inc(load["matches"])
        self._checked.labels(slot).inc(sum(load.get("leaf_checked", ())))
        self._seconds.labels(slot).inc(load["seconds"])
        self._bytes.labels(slot).set(load["bytes"])
        self._held.labels(slot).set(load["held"])
        for kind, count in load["standing"].items():
            self._standing.labels(slot, kind).set(count)

    def estimate(self, loads: npt.NDArray[np.float64]) -> None:
        """The load of each slot by the cost model."""
        for slot, load in enumerate(loads.tolist()):
            self._load.labels(slot).set(load)


class _LeafSeries:
    """What each leaf of the active version has had view. Which leaves there are is known only with a version."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"spatialstream_leaf_{name}", text, ["leaf", *labels], registry=registry)

        self._objects = gauge("objects", "Objects of a leaf in the last minutes.")
        self._checked = gauge("checked", "Candidates checked in a leaf in the last minutes.")
        self._seconds = gauge(
            "busy_seconds", "Time of the slot for a leaf in the last minutes, attributed by what the leaf had done."
        )
        self._held = gauge("held_objects", "Objects that a leaf keeps, estimated from how many come and the retention.")
        self._standing = gauge("standing_queries", "Continuous queries that concern a leaf.", "type")
        self._queries = gauge("queries", "Snapshot queries that concerned a leaf in the last minutes.", "type")

        self._series: dict[tuple[Gauge, QueryType | None], list[Gauge]] = {}

    def begin(self, leaves: int) -> None:
        """Begin the series anew, for so many leaves."""
        plain = (self._objects, self._checked, self._seconds, self._held)
        typed = [(self._standing, kind) for kind in STANDING] + [(self._queries, kind) for kind in SNAPSHOT]
        for metric in (*plain, self._standing, self._queries):
            metric.clear()
        # looked up once: there may be thousands of leaves, and they are written every few seconds
        self._series = {(metric, None): [metric.labels(leaf) for leaf in range(leaves)] for metric in plain}
        for metric, kind in typed:
            self._series[metric, kind] = [metric.labels(leaf, kind.value) for leaf in range(leaves)]

    def observe(self, view: WindowView, counts: LeafCounts) -> None:
        """What a window held, and its counts."""
        self._set(self._objects, counts.arrivals)
        self._set(self._checked, view.checked)
        self._set(self._seconds, view.seconds)
        self._set(self._held, counts.objects)
        for kind, standing in view.standing.items():
            self._set(self._standing, standing, kind)
        for kind, queries in view.queries.items():
            self._set(self._queries, queries, kind)

    def _set(self, metric: Gauge, values: npt.NDArray[np.float64], kind: QueryType | None = None) -> None:
        for series, value in zip(self._series[metric, kind], values.tolist(), strict=True):
            series.set(value)


class _ModelSeries:
    """What the cost model says, and how far it is from what was measured."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._imbalance = Gauge(
            "spatialstream_imbalance_ratio",
            "Lmax / Lmin over slots, by the cost model from live counts.",
            registry=registry,
        )
        self._error = Gauge(
            "spatialstream_model_error_ratio",
            "Mean absolute difference between a leaf's share of estimated load and of candidates checked.",
            registry=registry,
        )
        self._time_error = Gauge(
            "spatialstream_model_time_error_ratio",
            "Mean absolute difference between a leaf's share of estimated load and of the time attributed to leaves.",
            registry=registry,
        )
        self._imbalance.set(1.0)

    def observe(
        self,
        loads: npt.NDArray[np.float64],
        slots: npt.NDArray[np.float64],
        checked: npt.NDArray[np.float64],
        seconds: npt.NDArray[np.float64],
    ) -> None:
        """The loads of leaves and of slots by the model; the candidates and the time of leaves as measured."""
        self._imbalance.set(imbalance(slots))
        self._error.set(model_error(loads, checked).share_error)
        self._time_error.set(model_error(loads, seconds).share_error)


class WorkerMetrics(LoadObserver):
    """The worker's metrics.

    Args:
        slots: how many there are.
        leaves: how many the active version has; 0 if that is not known yet.
    """

    def __init__(self, slots: int, leaves: int = 0) -> None:
        self.registry = registry = CollectorRegistry()
        self._shown: int | None = None
        self._of_rounds = _RoundSeries(registry)
        self._of_slots = _SlotSeries(slots, registry)
        self._of_leaves = _LeafSeries(registry)
        self._of_model = _ModelSeries(registry)
        name = "spatialstream_worker_"
        self._foreign = Counter(
            f"{name}foreign_messages", "Messages in the internal topics that are not the router's.", registry=registry
        )
        self._executors = Gauge(f"{name}executors", "Executors that are registered.", registry=registry)
        self._cores = Gauge(f"{name}cores", "Slots that can work at once.", registry=registry)
        self._tasks = Counter(
            f"{name}task_seconds", "Time that executors have worked on tasks, with Spark's own part.", registry=registry
        )
        self._of_leaves.begin(leaves)
        self.running = _running(registry)

    def foreign(self, messages: int) -> None:
        """So many more messages in the internal topics are not the router's."""
        self._foreign.inc(messages)

    def executors(self, executors: int, cores: int, worked: float = 0.0) -> None:
        """So many executors are registered, with so many cores in all; they worked for so many seconds since."""
        self._executors.set(executors)
        self._cores.set(cores)
        self._tasks.inc(worked)

    def observe(self, record: RoundRecord, summary: Summary, seconds: float) -> None:
        """A round has been done."""
        self._of_rounds.observe(record, summary, seconds, time.time())
        for slot, load in summary.loads.items():
            self._of_slots.observe(slot, load)

    def counted(self, view: WindowView) -> None:
        """See :class:`~spatialstream.stream.load_report.LoadObserver`."""
        if self._shown != view.version.number:
            self._of_leaves.begin(len(view.version.index.leaves))
            self._shown = view.version.number
        if view.counts is not None:
            self._of_leaves.observe(view, view.counts)

    def estimated(self, view: WindowView, leaves: npt.NDArray[np.float64], slots: npt.NDArray[np.float64]) -> None:
        """See :class:`~spatialstream.stream.load_report.LoadObserver`."""
        self._of_slots.estimate(slots)
        self._of_model.observe(leaves, slots, view.checked, view.seconds)
