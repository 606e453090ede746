"""The worker's load report: the recent load of the leaves, in the routing store, where the rebalancer reads it.

Each round brings the slots' load records, which are added up over the last minutes of the stream
(:mod:`~spatialstream.stream.load_window`). Every few seconds the sums are written to the routing store by a thread of
their own: the store may be slow or unreachable, and no round waits for it. An observer can watch the loads.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt

from spatialstream.balance.loads import LeafCounts, leaf_loads, slot_loads
from spatialstream.connectors.contracts import Storage
from spatialstream.model.errors import StateError, Unavailable
from spatialstream.stages.tasks import Summary
from spatialstream.stages.versions import load_version
from spatialstream.store.base import RoutingStore
from spatialstream.store.reports import LoadReport, read_statistics, save_load
from spatialstream.stream.background import Background
from spatialstream.stream.load_window import LoadWindow, WindowView
from spatialstream.stream.worker import RoundRecord

__all__ = ["LoadObserver", "LoadReporter", "known_leaves"]

_SECONDS = 5.0
"""Minimum interval of reports."""

_SHARE = 0.05
"""Maximum share of the time that they may take."""

_SPAN = 600_000
"""ms of the stream over which load is counted."""


class LoadObserver:
    """Watches loads, in the reporter's thread. This one does nothing."""

    def counted(self, view: WindowView) -> None:
        """Called with the recent load of the leaves, whether or not the routing store accepts it."""

    def estimated(self, view: WindowView, leaves: npt.NDArray[np.float64], slots: npt.NDArray[np.float64]) -> None:
        """Called with the leaves' loads by the cost model, float64[n], and those of the slots, float64[slots]."""


class LoadReporter:
    """Reports the load of a stream's leaves.

    Args:
        storage: of the stream's state.
        store: the routing store.
        retention: ms for which objects are held; None: for ever.
        observer: watches the loads.
        clock: seconds, from any origin.
    """

    def __init__(
        self,
        storage: Storage,
        store: RoutingStore,
        retention: int | None,
        observer: LoadObserver | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._storage, self._store, self._clock = storage, store, clock
        self._observer = observer or LoadObserver()
        self._window = LoadWindow(_SPAN, retention)
        self._background = Background("load-report")
        self._due = clock()

    def observe(self, record: RoundRecord, summary: Summary) -> None:
        """Add a round that is done.

        Raises:
            StateError: its version, or statistics that were there for an earlier report, cannot be used.
        """
        order = record.round
        version = load_version(self._storage, order.version)
        changed = self._window.version is None or self._window.version.number != version.number
        self._window.use(version, order.watermark)
        self._window.take(order.watermark, summary.loads)
        if changed or self._clock() >= self._due:
            self._due = self._clock() + _SECONDS
            self._background.give(partial(self._report, self._window.view()))

    def reported(self, timeout: float | None = None) -> bool:
        """Wait until what was observed is reported, with a timeout in seconds; returns whether it is."""
        return self._background.wait(timeout)

    def _report(self, view: WindowView) -> None:
        began = self._clock()
        self._observer.counted(view)
        if view.counts is not None:
            with contextlib.suppress(Unavailable):  # other reports follow
                self._publish(view, view.counts)
        # with very many leaves a report takes seconds, in which the job's other threads get less processor time
        self._due = max(self._due, began + (self._clock() - began) / _SHARE)

    def _publish(self, view: WindowView, counts: LeafCounts) -> None:
        version = view.version
        report = LoadReport(version.number, counts, view.checked, view.watermark, view.seconds, view.kept, view.tested)
        save_load(self._store, report)
        known = read_statistics(self._store)
        if known is not None:
            loads = leaf_loads(version, counts, known)
            self._observer.estimated(view, loads, slot_loads(loads, version.mapping, version.slots))


def known_leaves(store: RoutingStore) -> int:
    """The number of leaves of the active version; 0 if it is not available at present."""
    try:
        return len(store.load(store.state().active.number).index.leaves)
    except (StateError, Unavailable):
        return 0
