"""Continuous queries in a slot that keep their k best objects: find the arrivals that may be in an answer.

Each query keeps the k best objects *of this slot*, as heaps (:mod:`spatialstream.local.nearest.heaps`). An arrival that
is not among them is in no answer, so only the others are sent to MERGE, which maintains the answer over all slots
(:mod:`spatialstream.local.nearest.skyband`). A slot keeps two numbers of an object: an arrival that ties with the k-th
in both is sent too, and MERGE, which has the ids, decides.

A query with a ``window`` keeps nothing: objects leave its answer, so every match may be in the answer later. Each match
is sent (none if the window is 0 ms).

Candidates come from tiers of grids over the queries' regions, whose conditions on the text are those of the grid.

Cost: per object a grid lookup per tier; per candidate O(log k). State: 16 bytes per kept object.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from spatialstream.local.arrays import Codes, Flags, Floats, Ints
from spatialstream.local.base import MovableIndex
from spatialstream.local.columns import Table, earliest, join
from spatialstream.local.grid.probing import ProbeBatch
from spatialstream.local.journal import Arrays, Journal
from spatialstream.local.nearest.heaps import Heaps
from spatialstream.local.state import Manifest, ReadFile, WriteFile
from spatialstream.local.tiers import Tiers
from spatialstream.model.arrays import runs
from spatialstream.model.batches import Batch
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.regions import Regions
from spatialstream.model.space import Space
from spatialstream.model.terms import TermLists

__all__ = ["Candidates", "HeapIndex"]

_WASTE = 16
_NEVER = np.iinfo(np.int64).min
_PAIRS = 1 << 21
"""Approximate number of (object, query) pairs looked up at a time: bounds memory, and lets radii shrink early."""

_LEAST_CHUNK = 16

_FIXED = {"number": np.int64, "start": np.int64, "k": np.int64, "window": np.int64, "x": np.float64, "y": np.float64}
_CHANGING = {"end": np.int64, "offset": np.int64, "capacity": np.int64, "size": np.int64, "touched": np.bool_}


@dataclass(frozen=True, slots=True, eq=False)
class Candidates(Batch):
    """Arrivals that may be in answers, ordered by (position, number).

    Attributes:
        number: int64[m], number of the query.
        position: int32[m], position of the object in its batch.
    """

    number: Ints
    position: Codes


class HeapIndex(MovableIndex):
    """The queries of one slot, of one kind.

    Args:
        space: the stream's space.

    Attributes:
        name: prefix of the names of its files.
        found: the class of what it yields.
        shrinks: whether the regions of its queries shrink, so that a grid is worth rebuilding.
        derived: further columns of its queries, which are not in its files.
    """

    name: ClassVar[str]
    found: ClassVar[type[Candidates]]
    shrinks: ClassVar[bool] = True
    derived: ClassVar[Mapping[str, npt.DTypeLike]] = {}

    def __init__(self, space: Space) -> None:
        self.space = space
        self._now = np.iinfo(np.int64).min
        self._queries = Table({**_FIXED, **_CHANGING, **self.derived})
        self._heaps = Heaps(np.empty(0), np.empty(0, np.int64), np.zeros(1, np.int64))
        self._tiers = Tiers(space, self._regions, self._alive)
        self._journal = Journal(self.name)
        self._saved = 0  # rows of which the journal knows
        self._moved = False  # since the last checkpoint rows have been dropped

    def __len__(self) -> int:
        """Number of queries, including those that have ended since the last :meth:`expire`."""
        return len(self._queries)

    @property
    def nbytes(self) -> int:
        """Memory of queries, heaps and grids, O(grids)."""
        heaps = (self._heaps.distances.itemsize + self._heaps.times.itemsize) * int(self._heaps.top[0])
        return self._queries.nbytes + heaps + sum(tier.grid.nbytes for tier in self._tiers.tiers)

    def register(self, numbers: Ints, queries: QueryBatch) -> None:
        """See :class:`ContinuousIndex`: objects with ``t <= o.t < t + τ`` count."""
        n = len(numbers)
        if n == 0:
            return
        first = self._queries.append(
            {
                "number": numbers,
                "start": queries.t,
                "k": queries.k,
                "window": queries.window,
                "x": queries.at[:, 0],
                "y": queries.at[:, 1],
                "end": queries.t + queries.duration,
                "touched": True,
            }
        )
        self._tiers.add(np.arange(first, first + n, dtype=np.int32), self._add(queries))

    @abstractmethod
    def _add(self, queries: QueryBatch) -> TermLists:
        """Add what else it keeps of queries, whose rows are there; returns the conditions on the text, for grids."""

    @abstractmethod
    def _regions(self, rows: Codes) -> Regions:
        """The regions of objects that may be in the rows' answers."""

    @abstractmethod
    def _offer(self, batch: ProbeBatch, objects: Codes, rows: Codes) -> tuple[Ints, tuple[Floats, ...]]:
        """Offer objects to the heaps, pair by pair: positions of the accepted pairs, and what else is told of them."""

    def end_at(self, numbers: Ints, t: Ints) -> None:
        """See :class:`ContinuousIndex`."""
        rows, which = earliest(self._queries["number"], numbers, t)
        self._queries["end"][rows] = np.minimum(self._queries["end"][rows], t[which])
        self._queries["touched"][rows] = True

    def drop(self, numbers: Ints) -> None:
        """See :class:`MovableIndex`; what the query has kept stays behind."""
        self.end_at(numbers, np.full(len(numbers), _NEVER))

    def known(self, numbers: Ints) -> Flags:
        """See :class:`MovableIndex`."""
        return np.isin(numbers, self._queries["number"][self._queries["end"] > self._now])

    def match(self, objects: ObjectBatch) -> Iterator[Candidates]:
        """See :class:`ContinuousIndex`: the arrivals that may be in answers of this slot."""
        first, chunk, names = 0, max(_LEAST_CHUNK, _PAIRS // max(1, len(self._queries))), self._tiers.posted
        while first < len(objects) and self._tiers.tiers:
            last = min(len(objects), first + chunk)
            batch = ProbeBatch.of(self.space, objects.slice(first, last), names)
            matches = 0
            found: list[tuple[Ints, Codes, *tuple[Floats, ...]]] = []
            for position in reversed(range(len(self._tiers.tiers))):
                looked_up, number, at, values = self._accepted(batch, position)
                matches += looked_up
                found.append((number, at + np.int32(first), *values))
            chunk = max(_LEAST_CHUNK, min(8 * chunk, _PAIRS * (last - first) // max(1, matches)))
            first = last
            number, at, *more = (np.concatenate(column) for column in zip(*found, strict=True))
            yield self.found(number, at, *more).take(np.lexsort((number, at)))

    def _accepted(self, batch: ProbeBatch, position: int) -> tuple[int, Ints, Codes, tuple[Floats, ...]]:
        """Offer objects to one tier: number of matches; number of the query, object, and more, of accepted pairs."""
        tier = self._tiers.tiers[position]
        matches = tier.grid.probe(batch)
        objects, rows = matches.objects, tier.rows[matches.queries]
        pairs, values = self._offer(batch, objects, rows)
        if self.shrinks:
            tier.wasted += len(rows) - len(pairs)
            if tier.wasted > _WASTE * len(tier.rows):
                self._tiers.rebuild(position)
        return len(rows), self._queries["number"][rows[pairs]], objects[pairs], values

    def expire(self, now: int) -> None:
        """Drop the queries that no object with ``o.t >= now`` can match."""
        self._now = max(self._now, now)
        kept = self._queries["end"] > self._now
        if 2 * int(kept.sum()) < len(kept):
            self._compact(kept)

    def _compact(self, kept: Flags) -> None:
        rows = np.flatnonzero(kept)
        position = np.full(len(kept), -1, np.int32)
        position[rows] = np.arange(len(rows))
        self._heaps = self._packed(rows)
        self._queries.take(rows)
        self._place()
        self._tiers.compact(position)
        self._moved = True

    def _packed(self, rows: Ints) -> Heaps:
        """The heaps of rows, concatenated."""
        at = runs(self._queries["offset"][rows], self._queries["size"][rows])
        return Heaps(self._heaps.distances[at], self._heaps.times[at], np.full(1, len(at)))

    def _place(self) -> None:
        """Set the offsets of all rows, whose heaps are packed."""
        count = self._queries["size"]
        self._queries["offset"][:] = np.cumsum(count) - count
        self._queries["capacity"][:] = count

    def _alive(self, rows: Codes) -> Flags:
        alive: Flags = self._queries["end"][rows] > self._now
        return alive

    def checkpoint(self, write: WriteFile) -> Manifest:
        """See :mod:`spatialstream.local.state`."""
        touched = np.flatnonzero(self._queries["touched"])
        delta = self._rows(touched, self._saved) if len(touched) else None
        self._journal.save(write, delta, lambda: self._rows(np.arange(len(self._queries)), 0), anew=self._moved)
        self._queries["touched"][:] = False
        self._saved, self._moved = len(self._queries), False
        return {
            "journal": self._journal.manifest,
            "tiers": self._tiers.checkpoint(write, f"{self.name}-grid"),
            "now": int(self._now),
        }

    def _rows(self, rows: Ints, known: int) -> Arrays:
        """The mutable columns of the rows, and the immutable columns of rows from position ``known`` on."""
        queries, heaps = self._queries, self._packed(rows)
        return {
            "rows": rows,
            "end": queries["end"][rows],
            "size": queries["size"][rows],
            "distances": heaps.distances,
            "times": heaps.times,
            **{name: queries[name][known:] for name in _FIXED},
        }

    @classmethod
    def restore(cls, space: Space, manifest: Manifest, read: ReadFile) -> Self:
        """See :mod:`spatialstream.local.state`."""
        self = cls(space)
        self._now = manifest["now"]
        self._journal, saved = Journal.open(cls.name, manifest["journal"], read)
        for arrays in saved:
            self._apply(arrays)
        distances, times = (join([arrays[name] for arrays in saved]) for name in ("distances", "times"))
        self._heaps = Heaps(distances, times, np.full(1, len(distances)))
        self._saved = len(self._queries)
        self._tiers.restore(manifest["tiers"], read)
        return self

    def _apply(self, saved: Arrays) -> None:
        """Apply the rows of a base or delta, whose heaps are appended."""
        rows, count = saved["rows"], saved["size"]
        self._queries.append({name: saved[name] for name in _FIXED})
        queries, top = self._queries, self._heaps.top
        queries["end"][rows], queries["size"][rows], queries["capacity"][rows] = saved["end"], count, count
        queries["offset"][rows] = top[0] + np.cumsum(count) - count
        top[0] += int(count.sum())
