"""The worker's load report: what the leaves have had lately, in the routing store, where the rebalancer reads it.

Each round brings the slots' load records, which are added up over the last minutes of the stream
(:mod:`~spatialstream.stream.load_window`). Every few seconds the sums go to the routing store, from a thread of their
own: it may be slow or away, and no round waits for it. Whoever shows loads looks on.
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
"""Time between two reports, at least."""

_SHARE = 0.05
"""Which part of the time they may take."""

_SPAN = 600_000
"""ms of the stream over which load is counted."""


class LoadObserver:
    """Looks on, in the reporter's thread. This one does nothing."""

    def counted(self, view: WindowView) -> None:
        """What the leaves have had lately, whether or not the routing store takes it."""

    def estimated(self, view: WindowView, leaves: npt.NDArray[np.float64], slots: npt.NDArray[np.float64]) -> None:
        """Their loads by the cost model, float64[n], and those of the slots, float64[slots]."""


class LoadReporter:
    """Reports the load of a stream's leaves.

    Args:
        storage: of the stream's state.
        store: the routing store.
        retention: ms for which objects are held; None: for ever.
        observer: looks on.
        clock: seconds, from any moment on.
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
        """A round has been done.

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
        """Wait until what was observed is reported, so many seconds at most; whether it is."""
        return self._background.wait(timeout)

    def _report(self, view: WindowView) -> None:
        began = self._clock()
        self._observer.counted(view)
        if view.counts is not None:
            with contextlib.suppress(Unavailable):  # there will be other reports
                self._publish(view, view.counts)
        # with very many leaves it takes seconds, in which the job's other threads get less of the processor
        self._due = max(self._due, began + (self._clock() - began) / _SHARE)

    def _publish(self, view: WindowView, counts: LeafCounts) -> None:
        version = view.version
        save_load(
            self._store, LoadReport(version.number, counts, view.checked, view.watermark, view.seconds, view.kept)
        )
        known = read_statistics(self._store)
        if known is not None:
            loads = leaf_loads(version, counts, known)
            self._observer.estimated(view, loads, slot_loads(loads, version.mapping, version.slots))


def known_leaves(store: RoutingStore) -> int:
    """How many leaves the active version has; 0 if it is not to be had now."""
    try:
        return len(store.load(store.state().active.number).index.leaves)
    except (StateError, Unavailable):
        return 0
