"""The jobs' metrics for Prometheus.

All series exist from the first scrape on, and their number is bounded: by slot, by query type, by phase of a turn, by
actor, and by leaf of the active version (each version numbers its leaves from 0).
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
from spatialstream.model.kinds import TYPES
from spatialstream.records.reasons import REASONS
from spatialstream.stages.tasks import Summary
from spatialstream.stages.turns import NEVER
from spatialstream.store.reports import most_expensive
from spatialstream.stream.load_report import LoadObserver
from spatialstream.stream.load_window import CONTINUOUS, SNAPSHOT, WindowView
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
        """Do not log scrapes."""


class _Threads(ThreadingMixIn, WSGIServer):
    daemon_threads = True


def serve(registry: CollectorRegistry, address: str, port: int) -> None:
    """Serve a registry's metrics over HTTP at every path except ``/ready``; port 0 serves nothing.

    ``/ready`` returns 200 while the job is warmed up and its turns succeed (``spatialstream_running``), else 503.

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
    """Creates the metrics of a registry that share a name prefix and some labels."""

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


class _ReadAtScrape(Collector, Generic[T]):
    """A collector that reads its value from a callback at each scrape; ``read`` is the callback until :meth:`are`."""

    def __init__(self, registry: CollectorRegistry, read: Callable[[], T]) -> None:
        self._read = read
        registry.register(self)

    def are(self, read: Callable[[], T]) -> None:
        """Set the callback."""
        self._read = read


class _Actors(_ReadAtScrape[Mapping[int, int]]):
    """The number of actors, and how many slots, or partitions of the router, each owns."""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Implement :class:`Collector`."""
        slots = self._read()
        yield GaugeMetricFamily("spatialstream_actors", "Processes that run the turns' tasks.", len(slots))
        text = "Slots, or partitions of the router, that an actor owns."
        family = GaugeMetricFamily("spatialstream_actor_slots", text, labels=["actor"])
        for actor, count in sorted(slots.items()):
            family.add_metric([str(actor)], count)
        yield family


class _Requests(_ReadAtScrape[Requests]):
    """Requests to the object store, and their bytes."""

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Implement :class:`Collector`."""
        text = "Requests to the object store of the state."
        counter = CounterMetricFamily("spatialstream_storage_requests", text, labels=["method"])
        text = "Bytes of files transferred by requests to the object store."
        size = CounterMetricFamily("spatialstream_storage_bytes", text, labels=["method"])
        for method, (count, carried) in zip(REQUESTS, self._read().tolist(), strict=True):
            counter.add_metric([method], count)
            size.add_metric([method], carried)
        yield counter
        yield size


class _Memory(_ReadAtScrape[Mapping[str, int]]):
    """The memory of each process of the job."""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Implement :class:`Collector`."""
        text = "Resident memory of a process of the job."
        family = GaugeMetricFamily("spatialstream_process_memory_bytes", text, labels=["process"])
        for process, size in self._read().items():
            family.add_metric([process], size)
        yield family


def _driver_memory() -> dict[str, int]:
    return {"driver": resident_bytes()}


class _ExecutorSeries:
    """The executors of a job's actors, and their processor time."""

    def __init__(self, series: _Series) -> None:
        self._executors = series.gauge("executors", "Registered executors.")
        self._cores = series.gauge("cores", "Actors that can run at once.")
        self._tasks = series.counter("task_seconds", "Processor time of actors for tasks.")

    def observe(self, executors: int, cores: int, worked: float = 0.0) -> None:
        """Record the registered executors, their cores in all, and their seconds of work since the last call."""
        self._executors.set(executors)
        self._cores.set(cores)
        self._tasks.inc(worked)


class _SnapshotQueries(_ReadAtScrape[Counts]):
    """The snapshot queries between rounds, as far as actors have reported them."""

    def collect(self) -> Iterator[Metric]:
        """Implement :class:`Collector`."""
        text = "Snapshot queries answered between rounds."
        counter = CounterMetricFamily("spatialstream_snapshot_queries", text, labels=["type", "outcome"])
        text = "Time of an actor for its part of a query's answer."
        times = HistogramMetricFamily("spatialstream_snapshot_query_seconds", text, labels=["type"])
        for kind, counts in zip(ASKED, self._read().tolist(), strict=True):
            for outcome, count in zip(OUTCOMES, counts, strict=False):
                counter.add_metric([kind, outcome], count)
            upto = accumulate(counts[len(OUTCOMES) : -1])
            times.add_metric([kind], list(zip(map(floatToGoString, LIMITS), upto, strict=True)), counts[-1])
        yield counter
        yield times


def _running(registry: CollectorRegistry) -> Gauge:
    return _Series(registry, "").gauge("running", "Whether the job is warmed up and its turns succeed.")


def _full(registry: CollectorRegistry) -> Gauge:
    return _Series(registry, "").gauge("storage_full", "Whether turns fail because the storage of the state is full.")


def _away(registry: CollectorRegistry) -> Gauge:
    help_text = "Whether turns fail because the storage of the state is unreachable or denies access."
    return _Series(registry, "").gauge("storage_unavailable", help_text)


class RouterMetrics:
    """The router's metrics."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        series = _Series(self.registry, "router_")
        self._epochs = series.times("epoch_seconds", "Time of an epoch.")
        self._parts = series.times_of_parts("part_seconds", "Time of each phase of an epoch.", ROUTER_PARTS)
        self._epoch = series.gauge("epoch", "Number of the last epoch.")
        self._records = series.counter("records", "Records accepted.", "kind")
        self._messages = series.counter("messages", "Messages read by epochs.", "kind")
        self._rejected = series.counter("rejected", "Records rejected.", "kind", "reason")
        self._quarantined = series.counter("quarantined", "Records quarantined from failing epochs.")
        self._dropped = series.counter("dropped", "Objects dropped, because no continuous query can match them.")
        text = "Objects with an unknown field since the stream began, for the most frequent fields."
        self._unknown = series.gauge("unknown_field_objects", text, "field")
        self._watermark = series.gauge("watermark_seconds", "Watermark of the last epoch.")
        self._held = series.gauge("held_seconds", "How far the latest timestamp read is ahead of the watermark.")
        self._active = series.gauge("active_version", "Number of the routing version of the last epoch.")
        text = "Number of the pending routing version; -1 if there is none."
        self._pending = series.gauge("pending_version", text)
        self._last = series.gauge("last_epoch_timestamp_seconds", "When the last epoch ended.")
        self.checkpointed = _checkpointed(series)
        self._lag = series.gauge("lag_messages", "Messages not yet read by an epoch.", "kind")
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
        """Set the number of messages left to read."""
        self._lag.labels(kind).set(max(0, messages))

    def dropped(self, objects: int) -> None:
        """Count the objects that an epoch has dropped."""
        self._dropped.inc(objects)

    def observe(self, record: EpochRecord, seconds: float, parts: Mapping[str, float]) -> None:
        """Record an epoch that has ended."""
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
            self._quarantined.inc(intake.quarantined)
        self._quarantined.inc(epoch.revision)
        if any(intake.unknown for intake in record.intakes):
            self._unknown.clear()
            self._unknown.labels("").set(0)
            for name, count in record.unknown.items():
                self._unknown.labels(name).set(count)
        if epoch.watermark > NEVER:
            self._watermark.set(epoch.watermark / 1000)
            latest = max((clock.t for clock in record.clocks.partitions.values()), default=epoch.watermark)
            self._held.set(max(0, latest - epoch.watermark) / 1000)
        self._active.set(epoch.version)
        self._pending.set(-1 if epoch.pending is None else epoch.pending)
        self._last.set_to_current_time()


class _RoundSeries:
    """The worker's metrics of rounds."""

    def __init__(self, series: _Series) -> None:
        self._rounds = series.times("round_seconds", "Time of a round.")
        self._parts = series.times_of_parts("part_seconds", "Time of each phase of a round.", WORKER_PARTS)
        text = "Time from the decision about an epoch in the router to its results."
        self._delay = series.times("epoch_delay_seconds", text)
        self._round = series.gauge("round", "Number of the last round.")
        self._epoch = series.gauge("epoch", "Number of the last epoch whose results have been sent.")
        self._watermark = series.gauge("watermark_seconds", "Watermark of the results that have been sent.")
        self._results = series.gauge("results_rows", "Result rows since the stream began.", "type")
        self._rejected = series.counter("rejected", "Queries that were not admitted.")
        self._repeated = series.gauge("repeated_queries", "Repeated registrations since the stream began.")
        self._quarantined = series.counter("quarantined", "Records quarantined from failing rounds.")
        self._version = series.gauge("active_version", "Number of the active routing version.")
        self._last = series.gauge("last_round_timestamp_seconds", "When the last round ended.")
        for kind in TYPES:
            self._results.labels(kind)

    def observe(
        self, record: RoundRecord, summary: Summary, seconds: float, parts: Mapping[str, float], now: float
    ) -> None:
        """Record a round that has ended; ``seconds`` is its duration, ``now`` the time in seconds since 1970 UTC."""
        self._rounds.observe(seconds)
        for part, of_part in parts.items():
            self._parts.labels(part).observe(of_part)
        for born in record.births:
            self._delay.observe(max(0.0, now - born / 1000))
        order = record.round
        self._round.set(order.number)
        self._epoch.set(record.last)
        self._watermark.set(order.watermark / 1000)
        self._version.set(order.version)
        self._rejected.inc(summary.rejected - len(order.quarantined))
        self._repeated.set(summary.counts.get("repeated", 0))
        self._quarantined.inc(len(order.quarantined))
        for kind in TYPES:
            self._results.labels(kind).set(summary.counts.get(kind, 0))
        self._last.set(now)


class _SlotSeries:
    """The work and the content of each slot."""

    def __init__(self, slots: int, series: _Series) -> None:
        self._objects = series.counter("objects", "Objects routed to a slot.")
        self._queries = series.counter("queries", "Queries routed to a slot.", "type")
        self._matches = series.counter("matches", "Matches of CRQs.")
        self._checked = series.counter("checked", "Candidates of CRQs that were checked.")
        self._seconds = series.counter("busy_seconds", "Busy time of a slot.")
        self._bytes = series.gauge("state_bytes", "Size of a slot's indexes.")
        self._held = series.gauge("held_objects", "Objects kept in a slot.")
        self._load = series.gauge("load", "Load of a slot by the cost model.")
        self._continuous = series.gauge("continuous_queries", "Continuous queries of a slot.", "type")
        of_slot = (self._objects, self._matches, self._checked, self._seconds, self._bytes, self._held, self._load)
        for slot in range(slots):
            for metric in of_slot:
                metric.labels(slot)
            for kind in TYPES:
                self._queries.labels(slot, kind)
                if kind not in SNAPSHOT:
                    self._continuous.labels(slot, kind)

    def observe(self, slot: int, load: Mapping[str, Any]) -> None:
        """Record a slot's load in a round."""
        self._objects.labels(slot).inc(load["objects"])
        for kind, count in load.get("queries", {}).items():
            self._queries.labels(slot, kind).inc(count)
        self._matches.labels(slot).inc(load["matches"])
        self._checked.labels(slot).inc(sum(load.get("leaf_checked", ())))
        self._seconds.labels(slot).inc(load["seconds"])
        self._bytes.labels(slot).set(load["bytes"])
        self._held.labels(slot).set(load["held"])
        for kind, count in load["continuous"].items():
            self._continuous.labels(slot, kind).set(count)

    def estimate(self, loads: Floats) -> None:
        """Set the load of each slot by the cost model."""
        for slot, load in enumerate(loads.tolist()):
            self._load.labels(slot).set(load)


class _LeafSeries:
    """Recent load of each leaf of the active version. The leaves are known only once a version is."""

    def __init__(self, series: _Series) -> None:
        self._objects = series.gauge("objects", "Objects of a leaf in the last minutes.")
        self._checked = series.gauge("checked", "Candidates checked in a leaf in the last minutes.")
        text = "Busy time of the slot attributed to a leaf in the last minutes, by the leaf's work."
        self._seconds = series.gauge("busy_seconds", text)
        text = "Objects kept in a leaf, estimated from its arrivals and the retention."
        self._held = series.gauge("held_objects", text)
        self._continuous = series.gauge("continuous_queries", "Continuous queries that concern a leaf.", "type")
        self._queries = series.gauge("queries", "Snapshot queries that concerned a leaf in the last minutes.", "type")
        self._series: dict[tuple[Gauge, str | None], list[Gauge]] = {}

    def begin(self, leaves: int) -> None:
        """Replace all series by those of this number of leaves."""
        plain = (self._objects, self._checked, self._seconds, self._held)
        typed = [(self._continuous, kind) for kind in CONTINUOUS] + [(self._queries, kind) for kind in SNAPSHOT]
        for metric in (*plain, self._continuous, self._queries):
            metric.clear()
        # looked up once: there may be thousands of leaves, and they are written every few seconds
        self._series = {(metric, None): [metric.labels(leaf) for leaf in range(leaves)] for metric in plain}
        for metric, kind in typed:
            self._series[metric, kind] = [metric.labels(leaf, kind) for leaf in range(leaves)]

    def observe(self, view: WindowView, counts: LeafCounts) -> None:
        """Set the metrics to a window's measurements and counts."""
        self._set(self._objects, counts.arrivals)
        self._set(self._checked, view.checked)
        self._set(self._seconds, view.seconds)
        self._set(self._held, counts.objects)
        for kind, continuous in view.continuous.items():
            self._set(self._continuous, continuous, kind)
        for kind, queries in view.queries.items():
            self._set(self._queries, queries, kind)

    def _set(self, metric: Gauge, values: Floats, kind: str | None = None) -> None:
        for series, value in zip(self._series[metric, kind], values.tolist(), strict=True):
            series.set(value)


class _QuerySeries:
    """Recent cost of the most expensive queries; the others have no series, since their number is not bounded."""

    def __init__(self, series: _Series) -> None:
        text = "Objects that one of the ten most expensive CRQs was compared with in the last minutes, estimated."
        self._candidates = series.gauge("candidates", text)

    def observe(self, most_expensive: Iterable[tuple[str, int]]) -> None:
        """The most expensive queries, and their candidates."""
        self._candidates.clear()
        for name, count in most_expensive:
            self._candidates.labels(name).set(count)


class _ModelSeries:
    """The cost model's estimates, and their errors against measurements."""

    def __init__(self, series: _Series) -> None:
        text = "Lmax / Lmin over slots, by the cost model from live counts."
        self._imbalance = series.gauge("imbalance_ratio", text)
        text = "Mean absolute difference between a leaf's share of the estimated load and its share of"
        self._error = series.gauge("model_error_ratio", f"{text} candidates checked.")
        self._time_error = series.gauge("model_time_error_ratio", f"{text} the time attributed to leaves.")
        self._imbalance.set(1.0)

    def observe(self, view: WindowView, leaves: Floats, slots: Floats) -> None:
        """Set the estimated loads of leaves and slots, and the errors against a window's measurements."""
        self._imbalance.set(imbalance(slots))
        self._error.set(model_error(leaves, view.checked))
        self._time_error.set(model_error(leaves, view.seconds))


def _checkpointed(series: _Series) -> Callable[[], None]:
    """Return the function to call when a checkpoint is complete."""
    text = "Time when the last checkpoint was found complete."
    return series.gauge("last_checkpoint_timestamp_seconds", text).set_to_current_time


class WorkerMetrics(LoadObserver):
    """The worker's metrics.

    Args:
        slots: number of slots.
        leaves: number of leaves of the active version; 0 if not known yet.
    """

    def __init__(self, slots: int, leaves: int = 0) -> None:
        self.registry = CollectorRegistry()
        self._shown: int | None = None
        series = _Series(self.registry, "worker_")
        self._of_rounds = _RoundSeries(series)
        self._of_slots = _SlotSeries(slots, _Series(self.registry, "slot_", "slot"))
        self._of_leaves = _LeafSeries(_Series(self.registry, "leaf_", "leaf"))
        self._of_model = _ModelSeries(_Series(self.registry, ""))
        self._of_queries = _QuerySeries(_Series(self.registry, "query_", "query"))
        text = "Messages in the internal topics that were not sent by the stream's router."
        self._foreign = series.counter("foreign_messages", text)
        self.executors, self.checkpointed = _ExecutorSeries(series).observe, _checkpointed(series)
        self._of_leaves.begin(leaves)
        self.running, self.full, self.away = _running(self.registry), _full(self.registry), _away(self.registry)
        self.actors, self.requests = _Actors(self.registry, dict).are, _Requests(self.registry, no_requests).are
        self.memory = _Memory(self.registry, _driver_memory).are
        self.queries = _SnapshotQueries(self.registry, none_asked).are

    def foreign(self, messages: int) -> None:
        """Count further messages in the internal topics that were not sent by the stream's router."""
        self._foreign.inc(messages)

    def observe(self, record: RoundRecord, summary: Summary, seconds: float, parts: Mapping[str, float]) -> None:
        """Record a round that has ended."""
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
        self._of_queries.observe(most_expensive(view.tested))

    def estimated(self, view: WindowView, leaves: Floats, slots: Floats) -> None:
        """See :class:`~spatialstream.stream.load_report.LoadObserver`."""
        self._of_slots.estimate(slots)
        self._of_model.observe(view, leaves, slots)
