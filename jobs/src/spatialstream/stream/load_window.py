"""What the leaves of the active version have had lately: the slots' load records of the last minutes, added up.

There may be thousands of rounds in a window, and as many leaves. So rounds are added up as they come, until they are a
64th of the window, and leave it together: what is kept, and what a look at it takes, grows with leaves, and not with
rounds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from spatialstream.balance.attribution import Spent, object_seconds, spread
from spatialstream.balance.loads import LeafCounts
from spatialstream.index.version import RoutingVersion
from spatialstream.model.kinds import CODE, KINDS, TYPES, QueryType, Route
from spatialstream.stages.turns import NEVER

__all__ = ["SNAPSHOT", "STANDING", "LoadWindow", "WindowView"]

SNAPSHOT = tuple(kind.type for kind in KINDS if not kind.continuous)
"""Queries that are answered once."""

STANDING = tuple(kind.type for kind in KINDS if kind.continuous and kind.route is Route.REGION)
"""Continuous queries that concern some leaves. CKQs concern the whole space: they are on every slot, and no leaf's."""

_SAMPLES = 64
"""Of a window, about."""

_Cells = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]


@dataclass(slots=True)
class _Sample:
    """Some rounds, one after the other; the first and the last timestamp that one of them was counted up to."""

    first: int
    watermark: int
    objects: npt.NDArray[np.int64]
    checked: npt.NDArray[np.float64]
    seconds: npt.NDArray[np.float64]
    queries: dict[QueryType, npt.NDArray[np.int64]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class WindowView:
    """What a window holds at one moment, for those who look at it while the next rounds come.

    Attributes:
        version: the active one, with n leaves.
        counts: what :func:`spatialstream.balance.loads.leaf_loads` wants to know; None before anything has come.
        checked: float64[n], see :attr:`LoadWindow.checked`.
        seconds: float64[n], see :attr:`LoadWindow.seconds`.
        standing: float64[n] for each of :data:`STANDING`.
        queries: float64[n] for each of :data:`SNAPSHOT`, see :meth:`LoadWindow.queries`.
        watermark: the latest timestamp that was counted up to, ms.
        kept: int64[2, slots], see :attr:`LoadWindow.kept`; None: some slot has not told.
    """

    version: RoutingVersion
    counts: LeafCounts | None
    checked: npt.NDArray[np.float64]
    seconds: npt.NDArray[np.float64]
    continuous: Mapping[QueryType, npt.NDArray[np.float64]]
    queries: Mapping[QueryType, npt.NDArray[np.float64]]
    watermark: int
    kept: npt.NDArray[np.int64] | None = None


class LoadWindow:
    """Counts by leaf of the active version, over the last minutes of the stream.

    Args:
        span: ms of the stream that are looked at.
        retention: ms for which objects are held; None: for ever.

    Attributes:
        version: the active one; None before :meth:`use`.
        standing: continuous queries that concern each leaf, float64[n] for each of :data:`STANDING`.
        nearest: CKQs that stand; they concern every leaf.
        kept: objects that each slot has told last that it holds, and continuous queries that stand on it.
        first: the first timestamp that was ever counted up to, ms; None before.
        began: the timestamp up to which the leaves had been counted when they began anew, ms; None: not known.
        watermark: the latest timestamp that was counted up to, ms.
    """

    def __init__(self, span: int, retention: int | None) -> None:
        self._span = span
        self._retention = retention
        self._samples: deque[_Sample] = deque()
        self.version: RoutingVersion | None = None
        self.continuous: dict[QueryType, npt.NDArray[np.float64]] = {kind: np.zeros(0) for kind in STANDING}
        self.nearest = 0
        self.kept: dict[int, tuple[int, int]] = {}
        self.first: int | None = None
        self.began: int | None = None
        self.watermark = NEVER

    def use(self, version: RoutingVersion, watermark: int) -> None:
        """Another version is active: its leaves are counted from now on."""
        if self.version is None or self.version.number != version.number:
            self.version = version
            self._samples.clear()
            self.continuous = {kind: np.zeros(self.leaves) for kind in STANDING}
            self.began = watermark if watermark > NEVER else None

    @property
    def leaves(self) -> int:
        """n, how many leaves the active version has; 0 if none is known."""
        return 0 if self.version is None else len(self.version.index.leaves)

    def take(self, watermark: int, loads: Mapping[int, Mapping[str, Any]]) -> None:
        """The slots' load records of a round have come."""
        n, sample = self.leaves, self._samples[-1] if self._samples else None
        if sample is None or watermark - sample.first >= self._span // _SAMPLES:
            sample = _Sample(watermark, watermark, np.zeros(n, np.int64), np.zeros(n), np.zeros(n))
            self._samples.append(sample)
        sample.watermark = watermark
        for slot, load in loads.items():
            self._objects(load, sample)
            self._queries(load, sample)
            self._standing(slot, load)
            if "held" in load:
                self.kept[slot] = load["held"], sum(load["continuous"].values())
        self.nearest = max(
            (load.get("continuous", {}).get(QueryType.CKQ.value, 0) for load in loads.values()), default=0
        )
        while self._samples and self._samples[0].watermark <= watermark - self._span:
            self._samples.popleft()
        if watermark > NEVER:  # an epoch before anything was heard of some partition ends before all time
            self.first = watermark if self.first is None else min(self.first, watermark)
            self.began = watermark if self.began is None else self.began
        self.watermark = max(self.watermark, watermark)

    @staticmethod
    def _objects(load: Mapping[str, Any], sample: _Sample) -> None:
        leaves = np.array(load.get("leaves", ()), np.int64)
        nothing = [0] * len(leaves)  # what records of an earlier release do not have
        columns = (load.get(f"leaf_{name}", nothing) for name in ("objects", "checked", "matches"))
        objects, checked, matches = (np.array(column, np.int64) for column in columns)
        sample.objects[leaves] += objects
        sample.checked[leaves] += checked
        spent = Spent.of(load.get("spent", {}))
        sample.seconds[leaves] += object_seconds(spent, objects, checked, matches)

    def _queries(self, load: Mapping[str, Any], sample: _Sample) -> None:
        found = [(kind, cells) for kind in SNAPSHOT if (cells := _cells(load, "leaf_queries", kind)) is not None]
        for kind, cells in found:
            np.add.at(sample.queries.setdefault(kind, np.zeros(self.leaves, np.int64)), *cells)
        if found:
            leaves, counts = (np.concatenate(columns) for columns in zip(*(cells for _, cells in found), strict=True))
            np.add.at(sample.seconds, leaves, spread(Spent.of(load.get("spent", {})).queries, counts))

    def _standing(self, slot: int, load: Mapping[str, Any]) -> None:
        """Registrations add to what stands; a census says what stands, without what has ended meanwhile."""
        assert self.version is not None
        census = "leaf_continuous" in load
        for kind, continuous in self.continuous.items():
            if census:
                continuous[self.version.mapping == slot] = 0.0
            cells = _cells(load, "leaf_continuous" if census else "leaf_queries", kind)
            if cells is not None:
                continuous[cells[0]] += cells[1]

    @property
    def nbytes(self) -> int:
        """Memory of the counts."""
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

    def queries(self, kind: QueryType) -> npt.NDArray[np.float64]:
        """How many queries of one of the types :data:`SNAPSHOT` came for each leaf in the window."""
        return self._sum(sample.queries[kind] for sample in self._samples if kind in sample.queries)

    def view(self) -> WindowView:
        """What the window holds now; there is a version."""
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
        )

    def _kept(self, slots: int) -> npt.NDArray[np.int64] | None:
        if any(slot not in self.kept for slot in range(slots)):
            return None
        return np.array([self.kept[slot] for slot in range(slots)], np.int64).T

    def counts(self) -> LeafCounts | None:
        """What :func:`spatialstream.balance.loads.leaf_loads` wants to know; None before anything has come."""
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
        for kind in STANDING:
            queries[CODE[kind]] = self.continuous[kind]
        queries[CODE[QueryType.CKQ]] = self.nearest
        return LeafCounts(arrivals * max(1.0, held / span), arrivals, continuous, span, queries)

    def _sum(self, columns: Iterable[npt.NDArray[Any]]) -> npt.NDArray[np.float64]:
        total = np.zeros(self.leaves)
        for column in columns:
            total += column
        return total


def _cells(load: Mapping[str, Any], name: str, kind: QueryType) -> _Cells | None:
    """Leaves and counts of a type in a load record; None if it has none."""
    cells = load.get(name, {}).get(kind.value)
    return None if cells is None else (np.array(cells[0], np.int64), np.array(cells[1], np.int64))
