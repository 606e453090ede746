"""What the jobs tell Prometheus.

Everything is there from the first scrape on, and bounded: series by slot, by type of query, by part of a turn, by
actor, and by leaf of the active version (numbers of leaves begin anew with each version).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from socketserver import ThreadingMixIn
from typing import Any, Generic, TypeVar
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from spatialstream.actors.query_metrics import ASKED, LIMITS, OUTCOMES, Counts, none_asked
from spatialstream.balance.loads import LeafCounts, imbalance, model_error
from spatialstream.connectors.process_memory import resident_bytes
from spatialstream.connectors.requests import REQUESTS, Requests, no_requests
from spatialstream.model.arrays import Floats
from spatialstream.model.errors import SettingError
from spatialstream.model.kinds import QueryType
from spatialstream.records.reasons import REASONS
from spatialstream.stages.tasks import Summary
from spatialstream.stages.turns import NEVER
from spatialstream.stream.load_report import LoadObserver
from spatialstream.stream.load_window import SNAPSHOT, STANDING, WindowView
from spatialstream.stream.parts import ROUTER_PARTS, WORKER_PARTS
from spatialstream.stream.router import EpochRecord
from spatialstream.stream.worker import RoundRecord

__all__ = ["RouterMetrics", "WorkerMetrics", "serve"]

T = TypeVar("T")

_SECONDS = (
    0.005,
    0.01,
    0.02,
    0.03,
    0.05,
    0.075,
    0.1,
    0.15,
    0.2,
    0.3,
    0.5,
    0.75,
    1.0,
    1.5,
    2.0,
    3.0,
    5.0,
    10.0,
    30.0,
    60.0,
)
_PART_SECONDS = (0.001, 0.002, *_SECONDS)


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


class _Series:
    """Makes the series of a registry whose names begin alike, and which have some labels in common."""

    def __init__(self, registry: CollectorRegistry, prefix: str, *labels: str) -> None:
        self._registry, self._prefix, self._labels = registry, f"spatialstream_{prefix}", labels

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(self._prefix + name, text, [*self._labels, *labels], registry=self._registry)

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(self._prefix + name, text, [*self._labels, *labels], registry=self._registry)

    def times(self, name: str, text: str) -> Histogram:
        return Histogram(self._prefix + name, text, buckets=_SECONDS, registry=self._registry)

    def times_of_parts(self, name: str, text: str, parts: Iterable[str]) -> Histogram:
        times = Histogram(self._prefix + name, text, ["part"], buckets=_PART_SECONDS, registry=self._registry)
        for part in parts:
            times.labels(part)
        return times


class _Told(Collector, Generic[T]):
    """What somebody else keeps, and is asked for when Prometheus asks; ``told`` until it is known who that is."""

    def __init__(self, registry: CollectorRegistry, told: Callable[[], T]) -> None:
        self._told = told
        registry.register(self)

    def are(self, told: Callable[[], T]) -> None:
        """What is to be asked from now on."""
        self._told = told


class _Actors(_Told[Mapping[int, int]]):
    """The actors that there are, and how many slots, or partitions, each of them has."""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """As Prometheus' client calls it."""
        slots = self._told()
        yield GaugeMetricFamily("spatialstream_actors", "Processes that do the turns' tasks.", len(slots))
        text = "Slots, or partitions of the router, that an actor has."
        family = GaugeMetricFamily("spatialstream_actor_slots", text, labels=["actor"])
        for actor, count in sorted(slots.items()):
            family.add_metric([str(actor)], count)
        yield family


class _Requests(_Told[Requests]):
    """What has been asked of the object store."""

    def collect(self) -> Iterator[CounterMetricFamily]:
        """As Prometheus' client calls it."""
        text = "Requests to the object store of the state."
        made = CounterMetricFamily("spatialstream_storage_requests", text, labels=["method"])
        text = "Bytes of files that they have sent or brought."
        size = CounterMetricFamily("spatialstream_storage_bytes", text, labels=["method"])
        for method, (count, carried) in zip(REQUESTS, self._told().tolist(), strict=True):
            made.add_metric([method], count)
            size.add_metric([method], carried)
        yield made
        yield size


class _Memory(_Told[Mapping[str, int]]):
    """The processes of the job, and the memory that each of them has."""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """As Prometheus' client calls it."""
        text = "Memory that a process of the job has (resident set)."
        family = GaugeMetricFamily("spatialstream_process_memory_bytes", text, labels=["process"])
        for process, size in self._told().items():
            family.add_metric([process], size)
        yield family


def _driver_memory() -> dict[str, int]:
    return {"driver": resident_bytes()}


class _ExecutorSeries:
    """The executors that a job's actors are in, and what they have worked."""

    def __init__(self, series: _Series) -> None:
        self._executors = series.gauge("executors", "Executors that are registered.")
        self._cores = series.gauge("cores", "Actors that can work at once.")
        self._tasks = series.counter("task_seconds", "Processor time that actors have worked on tasks.")

    def observe(self, executors: int, cores: int, worked: float = 0.0) -> None:
        """So many executors are registered, with so many cores in all; they worked for so many seconds since."""
        self._executors.set(executors)
        self._cores.set(cores)
        self._tasks.inc(worked)


class _SnapshotQueries(_Told[Counts]):
    """The queries that actors have been asked between rounds, as far as they have told."""

    def collect(self) -> Iterator[Metric]:
        """As Prometheus' client calls it."""
        text = "Queries asked between rounds."
        asked = CounterMetricFamily("spatialstream_snapshot_queries", text, labels=["type", "outcome"])
        text = "Time that an actor takes for its answer to a query."
        times = HistogramMetricFamily("spatialstream_snapshot_query_seconds", text, labels=["type"])
        for kind, counts in zip(ASKED, self._told().tolist(), strict=True):
            for outcome, count in zip(OUTCOMES, counts, strict=False):
                asked.add_metric([kind.value, outcome], count)
            upto = accumulate(counts[len(OUTCOMES) : -1])
            times.add_metric([kind.value], list(zip(map(floatToGoString, LIMITS), upto, strict=True)), counts[-1])
        yield asked
        yield times


def _running(registry: CollectorRegistry) -> Gauge:
    return _Series(registry, "").gauge("running", "Whether the job is warm and its turns succeed.")


def _full(registry: CollectorRegistry) -> Gauge:
    return _Series(registry, "").gauge("storage_full", "Whether turns fail because there is no room for state.")


def _away(registry: CollectorRegistry) -> Gauge:
    told = "Whether turns fail because the storage of the state cannot be reached, or denies."
    return _Series(registry, "").gauge("storage_unavailable", told)


class RouterMetrics:
    """The router's metrics."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        series = _Series(self.registry, "router_")
        self._epochs = series.times("epoch_seconds", "Time that an epoch takes.")
        self._parts = series.times_of_parts("part_seconds", "Time that a part of an epoch takes.", ROUTER_PARTS)
        self._epoch = series.gauge("epoch", "Number of the last epoch.")
        self._records = series.counter("records", "Records accepted.", "kind")
        self._messages = series.counter("messages", "Messages that epochs have read.", "kind")
        self._rejected = series.counter("rejected", "Records rejected.", "kind", "reason")
        self._left = series.counter("left_out", "Records left out of a failing epoch.")
        text = "Objects with a field that is not known, since the stream began: the commonest fields."
        self._unknown = series.gauge("unknown_field_objects", text, "field")
        self._clock = series.gauge("clock_seconds", "Timestamp up to which the stream has been routed.")
        self._held = series.gauge("held_seconds", "How far the latest timestamp is ahead of what has been routed.")
        self._active = series.gauge("active_version", "Number of the routing version of the last epoch.")
        text = "Number of the version that is being prepared; -1 if none is."
        self._pending = series.gauge("pending_version", text)
        self._last = series.gauge("last_epoch_timestamp_seconds", "When the last epoch ended.")
        self.checkpointed = _checkpointed(series)
        self._lag = series.gauge("lag_messages", "Messages that no epoch has read.", "kind")
        for kind in ("objects", "queries"):
            self._lag.labels(kind)
            self._records.labels(kind)
            self._messages.labels(kind)
            for reason in REASONS:
                self._rejected.labels(kind, reason)
        self._pending.set(-1)
        self._unknown.labels("").set(0)
        self.executors = _ExecutorSeries(series).observe
        self.running, self.full, self.away = _running(self.registry), _full(self.registry), _away(self.registry)
        self.actors, self.requests = _Actors(self.registry, dict).are, _Requests(self.registry, no_requests).are
        self.memory = _Memory(self.registry, _driver_memory).are
        self._read: dict[str, int] = {}

    def lag(self, kind: str, messages: int) -> None:
        """So many messages are left to read."""
        self._lag.labels(kind).set(max(0, messages))

    def observe(self, record: EpochRecord, seconds: float, parts: Mapping[str, float]) -> None:
        """An epoch has been done."""
        epoch = record.epoch
        self._epochs.observe(seconds)
        for part, of_part in parts.items():
            self._parts.labels(part).observe(of_part)
        self._epoch.set(epoch.number)
        for intake in record.intakes:
            kind = intake.partition.split("/")[0]
            self._records.labels(kind).inc(intake.records)
            self._messages.labels(kind).inc(max(0, intake.last - self._read.get(intake.partition, intake.last)))
            self._read[intake.partition] = intake.last
            for reason, count in intake.reasons.items():
                self._rejected.labels(kind, reason).inc(count)
            self._left.inc(intake.left)
        self._left.inc(epoch.revision)
        if any(intake.unknown for intake in record.intakes):
            self._unknown.clear()
            self._unknown.labels("").set(0)
            for name, count in record.unknown.items():
                self._unknown.labels(name).set(count)
        if epoch.watermark > NEVER:
            self._clock.set(epoch.watermark / 1000)
            latest = max((clock.t for clock in record.clocks.partitions.values()), default=epoch.watermark)
            self._held.set(max(0, latest - epoch.watermark) / 1000)
        self._active.set(epoch.version)
        self._pending.set(-1 if epoch.pending is None else epoch.pending)
        self._last.set_to_current_time()


class _RoundSeries:
    """How the worker's rounds go."""

    def __init__(self, series: _Series) -> None:
        self._rounds = series.times("round_seconds", "Time that a round takes.")
        self._parts = series.times_of_parts("part_seconds", "Time that a part of a round takes.", WORKER_PARTS)
        text = "Time from the decision about an epoch in the router to its results."
        self._delay = series.times("epoch_delay_seconds", text)
        self._round = series.gauge("round", "Number of the last round.")
        self._epoch = series.gauge("epoch", "Number of the last epoch whose results are out.")
        self._clock = series.gauge("clock_seconds", "Timestamp up to which results are out.")
        self._results = series.gauge("results_rows", "Result rows since the stream began.", "type")
        self._rejected = series.counter("rejected", "Queries that were not admitted.")
        self._repeated = series.gauge("repeated_queries", "Queries that came again, since the stream began.")
        self._left = series.counter("left_out", "Records left out of a failing round.")
        self._version = series.gauge("active_version", "Number of the routing version.")
        self._last = series.gauge("last_round_timestamp_seconds", "When the last round ended.")
        for kind in QueryType:
            self._results.labels(kind.value)

    def observe(
        self, record: RoundRecord, summary: Summary, seconds: float, parts: Mapping[str, float], now: float
    ) -> None:
        """A round has been done; it took so many seconds, and it is now so many seconds since 1970 UTC."""
        self._rounds.observe(seconds)
        for part, of_part in parts.items():
            self._parts.labels(part).observe(of_part)
        for born in record.births:
            self._delay.observe(max(0.0, now - born / 1000))
        order = record.round
        self._round.set(order.number)
        self._epoch.set(record.last)
        self._clock.set(order.watermark / 1000)
        self._version.set(order.version)
        self._rejected.inc(summary.rejected - len(order.left))
        self._repeated.set(summary.counts.get("repeated", 0))
        self._left.inc(len(order.left))
        for kind in QueryType:
            self._results.labels(kind.value).set(summary.counts.get(kind.value, 0))
        self._last.set(now)


class _SlotSeries:
    """What each slot does and holds."""

    def __init__(self, slots: int, series: _Series) -> None:
        self._objects = series.counter("objects", "Objects that have come to a slot.")
        self._queries = series.counter("queries", "Queries that have come to a slot.", "type")
        self._matches = series.counter("matches", "Matches of CRQs.")
        self._checked = series.counter("checked", "Candidates of CRQs that were checked.")
        self._seconds = series.counter("busy_seconds", "Time that a slot has worked.")
        self._bytes = series.gauge("state_bytes", "Size of a slot's indexes.")
        self._held = series.gauge("held_objects", "Objects that a slot keeps.")
        self._load = series.gauge("load", "Load of a slot by the cost model.")
        self._standing = series.gauge("continuous_queries", "Continuous queries of a slot.", "type")
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
        for kind, count in load["continuous"].items():
            self._standing.labels(slot, kind).set(count)

    def estimate(self, loads: Floats) -> None:
        """The load of each slot by the cost model."""
        for slot, load in enumerate(loads.tolist()):
            self._load.labels(slot).set(load)


class _LeafSeries:
    """What each leaf of the active version has had lately. Which leaves there are is known only with a version."""

    def __init__(self, series: _Series) -> None:
        self._objects = series.gauge("objects", "Objects of a leaf in the last minutes.")
        self._checked = series.gauge("checked", "Candidates checked in a leaf in the last minutes.")
        text = "Time of the slot for a leaf in the last minutes, attributed by what the leaf had done."
        self._seconds = series.gauge("busy_seconds", text)
        text = "Objects that a leaf keeps, estimated from how many come and the retention."
        self._held = series.gauge("held_objects", text)
        self._standing = series.gauge("continuous_queries", "Continuous queries that concern a leaf.", "type")
        self._queries = series.gauge("queries", "Snapshot queries that concerned a leaf in the last minutes.", "type")
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
        for kind, standing in view.continuous.items():
            self._set(self._standing, standing, kind)
        for kind, queries in view.queries.items():
            self._set(self._queries, queries, kind)

    def _set(self, metric: Gauge, values: Floats, kind: QueryType | None = None) -> None:
        for series, value in zip(self._series[metric, kind], values.tolist(), strict=True):
            series.set(value)


class _ModelSeries:
    """What the cost model says, and how far it is from what was measured."""

    def __init__(self, series: _Series) -> None:
        text = "Lmax / Lmin over slots, by the cost model from live counts."
        self._imbalance = series.gauge("imbalance_ratio", text)
        text = "Mean absolute difference between a leaf's share of estimated load and of"
        self._error = series.gauge("model_error_ratio", f"{text} candidates checked.")
        self._time_error = series.gauge("model_time_error_ratio", f"{text} the time attributed to leaves.")
        self._imbalance.set(1.0)

    def observe(self, view: WindowView, leaves: Floats, slots: Floats) -> None:
        """What was measured, and the loads of leaves and of slots by the model."""
        self._imbalance.set(imbalance(slots))
        self._error.set(model_error(leaves, view.checked))
        self._time_error.set(model_error(leaves, view.seconds))


def _checkpointed(series: _Series) -> Callable[[], None]:
    """What to call when a checkpoint is there."""
    text = "When the last checkpoint was known to be there."
    return series.gauge("last_checkpoint_timestamp_seconds", text).set_to_current_time


class WorkerMetrics(LoadObserver):
    """The worker's metrics.

    Args:
        slots: how many there are.
        leaves: how many the active version has; 0 if that is not known yet.
    """

    def __init__(self, slots: int, leaves: int = 0) -> None:
        self.registry = CollectorRegistry()
        self._shown: int | None = None
        series = _Series(self.registry, "worker_")
        self._of_rounds = _RoundSeries(series)
        self._of_slots = _SlotSeries(slots, _Series(self.registry, "slot_", "slot"))
        self._of_leaves = _LeafSeries(_Series(self.registry, "leaf_", "leaf"))
        self._of_model = _ModelSeries(_Series(self.registry, ""))
        text = "Messages in the internal topics that are not the router's."
        self._foreign = series.counter("foreign_messages", text)
        self.executors, self.checkpointed = _ExecutorSeries(series).observe, _checkpointed(series)
        self._of_leaves.begin(leaves)
        self.running, self.full, self.away = _running(self.registry), _full(self.registry), _away(self.registry)
        self.actors, self.requests = _Actors(self.registry, dict).are, _Requests(self.registry, no_requests).are
        self.memory = _Memory(self.registry, _driver_memory).are
        self.queries = _SnapshotQueries(self.registry, none_asked).are

    def foreign(self, messages: int) -> None:
        """So many more messages in the internal topics are not the router's."""
        self._foreign.inc(messages)

    def observe(self, record: RoundRecord, summary: Summary, seconds: float, parts: Mapping[str, float]) -> None:
        """A round has been done."""
        self._of_rounds.observe(record, summary, seconds, parts, time.time())
        for slot, load in summary.loads.items():
            self._of_slots.observe(slot, load)

    def counted(self, view: WindowView) -> None:
        """See :class:`~spatialstream.stream.load_report.LoadObserver`."""
        if self._shown != view.version.number:
            self._of_leaves.begin(len(view.version.index.leaves))
            self._shown = view.version.number
        if view.counts is not None:
            self._of_leaves.observe(view, view.counts)

    def estimated(self, view: WindowView, leaves: Floats, slots: Floats) -> None:
        """See :class:`~spatialstream.stream.load_report.LoadObserver`."""
        self._of_slots.estimate(slots)
        self._of_model.observe(view, leaves, slots)
