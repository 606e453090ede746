"""The recent load of the active version's leaves: sums of the slots' load records over the last minutes.

A window may contain thousands of rounds, and as many leaves. So rounds are added up as they come into samples of a 64th
of the window, which expire as a whole: memory, and the cost of a view, grow with the leaves, not with the rounds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from spatialstream.balance.attribution import Spent, WorkTotals, object_seconds, spread
from spatialstream.balance.loads import TRANSFER, LeafCounts
from spatialstream.index.version import RoutingVersion
from spatialstream.model.kinds import CODE, KINDS, TYPES, Route
from spatialstream.records.commonest import commonest
from spatialstream.stages.turns import NEVER

__all__ = ["CONTINUOUS", "SNAPSHOT", "LoadWindow", "WindowView"]

SNAPSHOT = tuple(kind.type for kind in KINDS if not kind.continuous)
"""Snapshot queries."""

CONTINUOUS = tuple(kind.type for kind in KINDS if kind.continuous and kind.route is Route.REGION)
"""Continuous queries that concern some leaves."""

_EVERYWHERE = tuple(kind.type for kind in KINDS if kind.route is Route.EVERYWHERE)
"""Continuous queries that concern the whole space, such as CKQs: they are on every slot, and no leaf's."""

_STEPS = ("exported", "registered")
"""The steps in which a continuous query moves."""

_SAMPLES = 64
"""Approximate number of samples in a window."""

_Cells = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]


@dataclass(slots=True)
class _Sample:
    """Consecutive rounds; the first and the last watermark of one of them."""

    first: int
    watermark: int
    objects: npt.NDArray[np.int64]
    checked: npt.NDArray[np.float64]
    seconds: npt.NDArray[np.float64]
    queries: dict[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    tested: Mapping[str, int] = field(default_factory=dict)
    totals: WorkTotals = field(default_factory=WorkTotals)


@dataclass(frozen=True, slots=True, eq=False)
class WindowView:
    """The content of a window at one moment, for readers that run while the next rounds come.

    Attributes:
        version: the active version, with n leaves.
        counts: the input of :func:`spatialstream.balance.loads.leaf_loads`; None before anything has come.
        checked: float64[n], see :attr:`LoadWindow.checked`.
        seconds: float64[n], see :attr:`LoadWindow.seconds`.
        continuous: float64[n] for each of :data:`CONTINUOUS`, see :attr:`LoadWindow.continuous`.
        queries: float64[n] for each of :data:`SNAPSHOT`, see :meth:`LoadWindow.queries`.
        watermark: the latest watermark of a round, ms.
        kept: int64[2, slots], see :attr:`LoadWindow.kept`; None: some slot has not reported.
        tested: see :attr:`LoadWindow.tested`.
    """

    version: RoutingVersion
    counts: LeafCounts | None
    checked: npt.NDArray[np.float64]
    seconds: npt.NDArray[np.float64]
    continuous: Mapping[str, npt.NDArray[np.float64]]
    queries: Mapping[str, npt.NDArray[np.float64]]
    watermark: int
    kept: npt.NDArray[np.int64] | None = None
    tested: Mapping[str, int] = field(default_factory=dict)


class LoadWindow:
    """Counts by leaf of the active version, over the last minutes of the stream.

    Args:
        span: length of the window, ms of the stream.
        retention: ms for which objects are held; None: for ever.

    Attributes:
        version: the active version; None before :meth:`use`.
        continuous: registered continuous queries that concern each leaf, float64[n] for each of :data:`CONTINUOUS`.
        everywhere: registered queries of the types that concern every leaf.
        kept: numbers of objects and of continuous queries that each slot has last reported.
        first: the first watermark of any round, ms; None before.
        began: the watermark at which the counts of this version began, ms; None: not known.
        watermark: the latest watermark of a round, ms.
        moves: seconds per continuous query of each step of the last change of version, see
            :class:`~spatialstream.stages.load.Load`.
    """

    def __init__(self, span: int, retention: int | None) -> None:
        self._span = span
        self._retention = retention
        self._samples: deque[_Sample] = deque()
        self.version: RoutingVersion | None = None
        self.continuous: dict[str, npt.NDArray[np.float64]] = {kind: np.zeros(0) for kind in CONTINUOUS}
        self.everywhere = dict.fromkeys(_EVERYWHERE, 0)
        self.kept: dict[int, tuple[int, int]] = {}
        self.first: int | None = None
        self.began: int | None = None
        self.watermark = NEVER
        self.moves: dict[str, float] = {}

    def use(self, version: RoutingVersion, watermark: int) -> None:
        """Start to count the leaves of another active version."""
        if self.version is None or self.version.number != version.number:
            self.version = version
            self._samples.clear()
            self.continuous = {kind: np.zeros(self.leaves) for kind in CONTINUOUS}
            self.began = watermark if watermark > NEVER else None

    @property
    def leaves(self) -> int:
        """n, the number of leaves of the active version; 0 if none is known."""
        return 0 if self.version is None else len(self.version.index.leaves)

    @property
    def _placed(self) -> bool:
        """Whether each CKQ is on one slot."""
        return self.version is not None and self.version.nearest is not None

    def take(self, watermark: int, loads: Mapping[int, Mapping[str, Any]]) -> None:
        """Add the slots' load records of a round."""
        n, sample = self.leaves, self._samples[-1] if self._samples else None
        if sample is None or watermark - sample.first >= self._span // _SAMPLES:
            sample = _Sample(watermark, watermark, np.zeros(n, np.int64), np.zeros(n), np.zeros(n))
            self._samples.append(sample)
        sample.watermark = watermark
        for slot, load in loads.items():
            self._objects(load, sample)
            self._queries(load, sample)
            self._continuous(slot, load)
            if "held" in load:
                self.kept[slot] = load["held"], sum(load["continuous"].values())
        self._moved(loads)
        sample.tested = commonest([sample.tested, *(load.get("tested", {}) for load in loads.values())])
        census = [load["everywhere"] for load in loads.values() if "everywhere" in load]
        for kind in self.everywhere:
            if census:
                self.everywhere[kind] = sum(each[kind] for each in census)
            else:  # registrations come to every slot, or each to one
                came = [load.get("queries", {}).get(kind, 0) for load in loads.values()]
                self.everywhere[kind] += sum(came) if self._placed else max(came, default=0)
        while self._samples and self._samples[0].watermark <= watermark - self._span:
            self._samples.popleft()
        if watermark > NEVER:  # an epoch before any partition has delivered anything ends before all time
            self.first = watermark if self.first is None else min(self.first, watermark)
            self.began = watermark if self.began is None else self.began
        self.watermark = max(self.watermark, watermark)

    @staticmethod
    def _objects(load: Mapping[str, Any], sample: _Sample) -> None:
        leaves = np.array(load.get("leaves", ()), np.int64)
        nothing = [0] * len(leaves)  # records of an earlier release lack some columns
        columns = (load.get(f"leaf_{name}", nothing) for name in ("objects", "checked", "matches"))
        objects, checked, matches = (np.array(column, np.int64) for column in columns)
        sample.objects[leaves] += objects
        sample.checked[leaves] += checked
        spent = Spent.of(load.get("spent", {}))
        sample.seconds[leaves] += object_seconds(spent, objects, checked, matches)
        asks = sum(count for kind, count in load.get("queries", {}).items() if kind in SNAPSHOT)
        if "leaves" not in load:  # objects of several versions came, which are not counted
            spent = Spent(queries=spent.queries)
        sample.totals.add(WorkTotals(spent, int(objects.sum()), int(checked.sum()), int(matches.sum()), asks))

    def _queries(self, load: Mapping[str, Any], sample: _Sample) -> None:
        found = [(kind, cells) for kind in SNAPSHOT if (cells := _cells(load, "leaf_queries", kind)) is not None]
        for kind, cells in found:
            np.add.at(sample.queries.setdefault(kind, np.zeros(self.leaves, np.int64)), *cells)
        if found:
            leaves, counts = (np.concatenate(columns) for columns in zip(*(cells for _, cells in found), strict=True))
            np.add.at(sample.seconds, leaves, spread(Spent.of(load.get("spent", {})).queries, counts))

    def _continuous(self, slot: int, load: Mapping[str, Any]) -> None:
        """Registrations add to the registered queries; a census counts them anew, without those that have ended."""
        assert self.version is not None
        census = "leaf_continuous" in load
        for kind, continuous in self.continuous.items():
            if census:
                continuous[self.version.mapping == slot] = 0.0
            cells = _cells(load, "leaf_continuous" if census else "leaf_queries", kind)
            if cells is not None:
                continuous[cells[0]] += cells[1]

    def _moved(self, loads: Mapping[int, Mapping[str, Any]]) -> None:
        for step in _STEPS:
            found = [load["moved"][step] for load in loads.values() if step in load.get("moved", {})]
            queries, seconds = (sum(column) for column in zip(*found, strict=True)) if found else (0, 0.0)
            if queries:
                self.moves[step] = seconds / queries

    @property
    def transfer(self) -> float:
        """The time of moving a continuous query to another slot, in seconds, as the last change of version took it."""
        return sum(self.moves.values()) if len(self.moves) == len(_STEPS) else TRANSFER

    @property
    def nbytes(self) -> int:
        """Bytes of memory of the counts."""
        columns = ((each.objects, each.checked, each.seconds, *each.queries.values()) for each in self._samples)
        return sum(column.nbytes for sample in columns for column in sample)

    @property
    def checked(self) -> npt.NDArray[np.float64]:
        """Candidates checked in each leaf in the window."""
        return self._sum(sample.checked for sample in self._samples)

    @property
    def seconds(self) -> npt.NDArray[np.float64]:
        """The slots' time for each leaf in the window, see :mod:`spatialstream.balance.attribution`."""
        return self._sum(sample.seconds for sample in self._samples)

    @property
    def tested(self) -> dict[str, int]:
        """With how many objects CRQs were compared in the window, by id, those with most, estimated; and ``""``."""
        return commonest(sample.tested for sample in self._samples)

    def queries(self, kind: str) -> npt.NDArray[np.float64]:
        """Number of queries of one of the types :data:`SNAPSHOT` for each leaf in the window."""
        return self._sum(sample.queries[kind] for sample in self._samples if kind in sample.queries)

    def view(self) -> WindowView:
        """The content of the window; requires a version."""
        assert self.version is not None
        return WindowView(
            self.version,
            self.counts(),
            self.checked,
            self.seconds,
            {kind: continuous.copy() for kind, continuous in self.continuous.items()},
            {kind: self.queries(kind) for kind in SNAPSHOT},
            self.watermark,
            self._kept(self.version.slots),
            self.tested,
        )

    def _kept(self, slots: int) -> npt.NDArray[np.int64] | None:
        if any(slot not in self.kept for slot in range(slots)):
            return None
        return np.array([self.kept[slot] for slot in range(slots)], np.int64).T

    def counts(self) -> LeafCounts | None:
        """The input of :func:`spatialstream.balance.loads.leaf_loads`; None before anything has come."""
        if self.version is None or not self._samples or self.began is None or self.first is None:
            return None
        arrivals = self._sum(sample.objects for sample in self._samples)
        began = max(self.began, self.watermark - self._span)
        span = float(max(1, self.watermark - began))
        # objects stay where they came: what a leaf holds is estimated from its rate
        held = float(self.watermark - self.first) if self._retention is None else float(self._retention)
        continuous = self._sum(self.continuous.values())
        queries = np.zeros((len(TYPES), self.leaves))
        for kind in SNAPSHOT:
            queries[CODE[kind]] = self.queries(kind)
        for kind in CONTINUOUS:
            queries[CODE[kind]] = self.continuous[kind]
        for kind, count in self.everywhere.items():
            queries[CODE[kind]] = count
        seconds = float(self.seconds.sum())
        held_now, totals = arrivals * max(1.0, held / span), WorkTotals()
        for sample in self._samples:
            totals.add(sample.totals)
        return LeafCounts(held_now, arrivals, continuous, span, queries, seconds, self.transfer, totals.times)

    def _sum(self, columns: Iterable[npt.NDArray[Any]]) -> npt.NDArray[np.float64]:
        total = np.zeros(self.leaves)
        for column in columns:
            total += column
        return total


def _cells(load: Mapping[str, Any], name: str, kind: str) -> _Cells | None:
    """Leaves and counts of a type in a load record; None if it has none."""
    cells = load.get(name, {}).get(kind)
    return None if cells is None else (np.array(cells[0], np.int64), np.array(cells[1], np.int64))
