"""What the jobs tell Prometheus, and the load statistics that the rebalancer reads.

Everything is there from the first scrape on, and bounded: series by slot, by type of query, and by leaf of the active
version (numbers of leaves begin anew with each version).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import numpy as np
import numpy.typing as npt
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, make_wsgi_app

from spatialstream.balance.loads import LeafCounts, imbalance, leaf_loads, model_error, slot_loads
from spatialstream.index.version import RoutingVersion
from spatialstream.model.errors import SettingError, StateError, Unavailable
from spatialstream.model.queries import QueryType
from spatialstream.pipeline.clocks import NEVER
from spatialstream.pipeline.live import EpochRecord, StreamSettings
from spatialstream.pipeline.rounds import RoundRecord, Summary
from spatialstream.pipeline.work import load_version, version_path
from spatialstream.store.base import RoutingStore
from spatialstream.store.reports import LoadReport, read_statistics, save_load

__all__ = ["LoadWindow", "RouterMetrics", "WorkerMetrics", "serve"]

_SECONDS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0)
_STANDING = (QueryType.CRQ, QueryType.CKQ, QueryType.CTQ)


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """A scrape is no news."""


class _Threads(ThreadingMixIn, WSGIServer):
    daemon_threads = True


def serve(registry: CollectorRegistry, address: str, port: int) -> None:
    """Serve a registry's metrics over HTTP, at every path but ``/ready``; port 0 serves nothing.

    ``/ready`` answers with 200 while the job's streaming query is running (``spatialstream_running``), else with 503.

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
    return Gauge("spatialstream_running", "Whether the job's streaming query is running.", registry=registry)


class RouterMetrics:
    """The router's metrics.

    Args:
        settings: of the stream.
        counts: partitions of each topic.
    """

    def __init__(self, settings: StreamSettings, counts: Mapping[str, int]) -> None:
        self.registry = registry = CollectorRegistry()
        name = "spatialstream_router_"
        self._epochs = Histogram(
            f"{name}epoch_seconds", "Time that an epoch takes.", buckets=_SECONDS, registry=registry
        )
        self._epoch = Gauge(f"{name}epoch", "Number of the last epoch.", registry=registry)
        self._records = Counter(f"{name}records", "Records accepted.", ["kind"], registry=registry)
        self._rejected = Counter(f"{name}rejected", "Records rejected.", ["kind"], registry=registry)
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
            self._rejected.labels(kind)
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
            self._rejected.labels(kind).inc(intake.refused)
        if record.upto > NEVER:
            self._clock.set(record.upto / 1000)
            latest = max((clock.t for clock in record.clocks.partitions.values()), default=record.upto)
            self._held.set(max(0, latest - record.upto) / 1000)
        self._active.set(record.adoption.active)
        self._pending.set(-1 if record.adoption.pending is None else record.adoption.pending)
        self._last.set_to_current_time()


@dataclass(slots=True)
class _Sample:
    upto: int
    objects: npt.NDArray[np.float64]
    checked: npt.NDArray[np.float64]


class LoadWindow:
    """Counts by leaf of the active version, over the last minutes of the stream.

    Args:
        span: ms of the stream that are looked at.
        retention: ms for which objects are held; None: for ever.
    """

    def __init__(self, span: int, retention: int | None) -> None:
        self._span = span
        self._retention = retention
        self._samples: deque[_Sample] = deque()
        self.version: RoutingVersion | None = None
        self.standing: npt.NDArray[np.float64] = np.zeros(0)
        self.first: int | None = None
        self.began: int | None = None
        self.upto = NEVER

    def use(self, version: RoutingVersion, upto: int) -> None:
        """Another version is active: its leaves are counted from now on."""
        if self.version is None or self.version.number != version.number:
            self.version = version
            self._samples.clear()
            self.standing = np.zeros(len(version.index.leaves))
            self.began = upto if upto > NEVER else None

    def take(self, upto: int, loads: Mapping[int, Mapping[str, Any]]) -> None:
        """The loads of a round have come."""
        assert self.version is not None
        leaves = len(self.version.index.leaves)
        sample = _Sample(upto, np.zeros(leaves), np.zeros(leaves))
        for slot, load in loads.items():
            which = np.array(load.get("leaves", []), np.int64)
            np.add.at(sample.objects, which, np.array(load.get("leaf_objects", []), np.float64))
            np.add.at(sample.checked, which, np.array(load.get("leaf_checked", []), np.float64))
            mine = self.version.mapping == slot
            if "registered" in load and "census" not in load:
                leaves_, counts = (np.array(column, np.int64) for column in load["registered"])
                here = mine[leaves_]
                self.standing[leaves_[here]] += counts[here]
            if "census" in load:
                self.standing[mine] = np.array(load["census"], np.float64)[mine]
        self._samples.append(sample)
        while self._samples and self._samples[0].upto <= upto - self._span:
            self._samples.popleft()
        if upto > NEVER:  # an epoch before anything was heard of some partition ends before all time
            self.first = upto if self.first is None else min(self.first, upto)
            self.began = upto if self.began is None else self.began
        self.upto = max(self.upto, upto)

    @property
    def checked(self) -> npt.NDArray[np.float64]:
        """Candidates checked in each leaf in the window."""
        assert self.version is not None
        return sum((sample.checked for sample in self._samples), np.zeros(len(self.version.index.leaves)))

    def counts(self) -> LeafCounts | None:
        """What :func:`spatialstream.balance.loads.leaf_loads` wants to know; None before anything has come."""
        if self.version is None or not self._samples or self.began is None or self.first is None:
            return None
        arrivals = sum((sample.objects for sample in self._samples), np.zeros(len(self.version.index.leaves)))
        began = max(self.began, self.upto - self._span)
        span = float(max(1, self.upto - began))
        # objects stay where they came: what a leaf holds is estimated from its rate
        held = float(self.upto - self.first) if self._retention is None else float(self._retention)
        return LeafCounts(arrivals * max(1.0, held / span), arrivals, self.standing, span)


class WorkerMetrics:
    """The worker's metrics; also puts load statistics into the routing store now and then.

    Args:
        settings: of the stream.
        checkpoint: folder of the stream's state.
        store: the routing store.
        window: ms of the stream over which load is measured.
    """

    def __init__(self, settings: StreamSettings, checkpoint: Path, store: RoutingStore, window: int = 600_000) -> None:
        self.registry = registry = CollectorRegistry()
        self._checkpoint, self._store, self._slots = checkpoint, store, settings.slots
        self._window = LoadWindow(window, settings.retention)
        self._saved_at = 0.0
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
        self._version = Gauge(f"{name}active_version", "Number of the routing version.", registry=registry)
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
        slot = ["slot"]
        self._objects = Counter(
            "spatialstream_slot_objects", "Objects that have come to a slot.", slot, registry=registry
        )
        self._matches = Counter("spatialstream_slot_matches", "Matches of CRQs.", slot, registry=registry)
        self._checked = Counter(
            "spatialstream_slot_checked", "Candidates of CRQs that were checked.", slot, registry=registry
        )
        self._seconds = Counter(
            "spatialstream_slot_busy_seconds", "Time that a slot has worked.", slot, registry=registry
        )
        self._bytes = Gauge("spatialstream_slot_state_bytes", "Size of a slot's indexes.", slot, registry=registry)
        self._held = Gauge("spatialstream_slot_held_objects", "Objects that a slot keeps.", slot, registry=registry)
        self._load = Gauge("spatialstream_slot_load", "Load of a slot by the cost model.", slot, registry=registry)
        self._standing = Gauge(
            "spatialstream_slot_standing_queries", "Standing queries of a slot.", ["slot", "type"], registry=registry
        )
        self._leaf_objects = Gauge(
            "spatialstream_leaf_objects", "Objects of a leaf in the last minutes.", ["leaf"], registry=registry
        )
        self._leaf_checked = Gauge(
            "spatialstream_leaf_checked",
            "Candidates checked in a leaf in the last minutes.",
            ["leaf"],
            registry=registry,
        )
        self._leaf_standing = Gauge(
            "spatialstream_leaf_standing_queries", "CRQs and CTQs that concern a leaf.", ["leaf"], registry=registry
        )
        self._last = Gauge(f"{name}last_round_timestamp_seconds", "When the last round ended.", registry=registry)
        self._executors = Gauge(f"{name}executors", "Executors that are registered.", registry=registry)
        self._cores = Gauge(f"{name}cores", "Slots that can work at once.", registry=registry)
        for each in range(settings.slots):
            for metric in (
                self._objects,
                self._matches,
                self._checked,
                self._seconds,
                self._bytes,
                self._held,
                self._load,
            ):
                metric.labels(each)
            for kind in _STANDING:
                self._standing.labels(each, kind.value)
        for kind in QueryType:
            self._results.labels(kind.value)
        self._imbalance.set(1.0)
        self._leaves_of(self._version_known())
        self.running = _running(registry)

    def executors(self, executors: int, cores: int) -> None:
        """So many executors are registered, with so many cores in all."""
        self._executors.set(executors)
        self._cores.set(cores)

    def _version_known(self) -> RoutingVersion | None:
        """The active version, if it is to be had now."""
        try:
            number = self._store.state().active.number
            return self._store.load(number)
        except (StateError, Unavailable):
            return None

    def _leaves_of(self, version: RoutingVersion | None) -> None:
        """Begin the series of leaves anew, for those of a version."""
        for metric in (self._leaf_objects, self._leaf_checked, self._leaf_standing):
            metric.clear()
            for leaf in range(0 if version is None else len(version.index.leaves)):
                metric.labels(leaf)

    def observe(self, record: RoundRecord, summary: Summary, seconds: float) -> None:
        """A round has been done."""
        now = time.time()
        self._rounds.observe(seconds)
        for born in record.births:
            self._delay.observe(max(0.0, now - born / 1000))
        order = record.round
        self._round.set(order.number)
        self._epoch.set(order.last)
        self._clock.set(order.upto / 1000)
        self._version.set(order.version)
        self._rejected.inc(summary.rejected)
        for kind in QueryType:
            self._results.labels(kind.value).set(summary.counts.get(kind.value, 0))
        for slot, load in summary.loads.items():
            self._observe_slot(slot, load)
        self._last.set(now)
        version = load_version(version_path(self._checkpoint, order.version))
        changed = self._window.version is None or self._window.version.number != version.number
        if changed:
            self._leaves_of(version)
        self._window.use(version, order.upto)
        self._window.take(order.upto, summary.loads)
        if changed or now - self._saved_at > 5.0:
            self._saved_at = now
            self._publish()

    def _observe_slot(self, slot: int, load: Mapping[str, Any]) -> None:
        self._objects.labels(slot).inc(load["objects"])
        self._matches.labels(slot).inc(load["matches"])
        self._checked.labels(slot).inc(sum(load.get("leaf_checked", ())))
        self._seconds.labels(slot).inc(load["seconds"])
        self._bytes.labels(slot).set(load["bytes"])
        self._held.labels(slot).set(load["held"])
        for kind, count in load["standing"].items():
            self._standing.labels(slot, kind).set(count)

    def _publish(self) -> None:
        """Compute the load by the cost model, and put the counts where the rebalancer finds them."""
        counts, version = self._window.counts(), self._window.version
        if counts is None or version is None:
            return
        arrivals, checked = counts.arrivals, self._window.checked
        for leaf in range(len(arrivals)):
            self._leaf_objects.labels(leaf).set(arrivals[leaf])
            self._leaf_checked.labels(leaf).set(checked[leaf])
            self._leaf_standing.labels(leaf).set(counts.standing[leaf])
        try:
            save_load(self._store, LoadReport(version.number, counts, checked, self._window.upto))
            known = read_statistics(self._store)
        except Unavailable:
            return
        if known is not None:
            loads = leaf_loads(version, counts, known)
            slots = slot_loads(loads, version.mapping, self._slots)
            for slot, load in enumerate(slots.tolist()):
                self._load.labels(slot).set(load)
            self._imbalance.set(imbalance(slots))
            self._error.set(model_error(loads, checked).share_error)
