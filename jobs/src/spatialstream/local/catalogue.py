"""The catalogue of a stream's active continuous queries, for listing them.

The indexes of slots hold only what matching needs of a query, on every slot that it concerns, in structures that each
turn modifies. The catalogue holds each query once, as it was registered, including who registered it, in the order of
registration, and can be read concurrently with turns. For each query it also holds the number of its result rows
(:mod:`~spatialstream.local.row_counts`).

It is a log-structured set: immutable tiers of queries by number, each four times smaller than the previous one, and a
table of end times set by cancellations. A tier of which more than half has ended is rewritten at a checkpoint. Cost:
O(log n) rewrites of a query over its lifetime and O(log² n) for its cancellation; memory for each active query is about
150 bytes plus its keywords, its id and ``by``. A page costs O(n) comparisons of integers, a lookup by id O(n)
comparisons of strings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.local.arrays import Array, Flags, Ints
from spatialstream.local.registry import last_instant
from spatialstream.local.row_counts import Counts, RowCounts, rows_so_far
from spatialstream.local.state import Manifest, ReadFile, WriteFile
from spatialstream.model.polygons.polygon import Polygon
from spatialstream.model.queries import QueryBatch

__all__ = ["MOST_VERTICES", "Catalogue", "Listed", "Listing", "Page"]

_TIER_RATIO = 4
_ENDED_LIMIT = 4_096
"""Minimum number of cancellations kept beside the tiers: the table is written with every manifest."""
_COUNTS_RATIO = 4
"""Number of entries of the counts per query above which entries of dropped queries are removed."""

MOST_VERTICES = 50_000
"""Vertices of the polygons of a page, about: one takes 40 bytes of JSON, and four times as much when it is parsed."""

Listed = tuple[int, dict[str, Any], int, int | None]
"""An active query: number, record, number of rows so far, and t of the last row in ms (None if there was none)."""


class Page(NamedTuple):
    """A part of a list of queries.

    Attributes:
        queries: the queries, by ascending number.
        cut: whether it ends early because its polygons have many vertices; then there are queries after its last one.
    """

    queries: Sequence[Listed]
    cut: bool


@dataclass(frozen=True, slots=True, eq=False)
class _Tier:
    """Queries by ascending number, and the last instant at which each is active if it is not cancelled."""

    numbers: Ints
    until: Ints
    queries: QueryBatch
    name: str | None = None  # of its file; None while it is only in memory

    @classmethod
    def of(cls, numbers: Ints, queries: QueryBatch) -> _Tier:
        return cls(numbers, last_instant(queries), queries)

    def continuous(self, clock: int, ended: Mapping[int, int]) -> Flags:
        """Whether each query is active at ``clock``, or later."""
        alive: Flags = self.until > clock
        over = np.array([number for number, t in ended.items() if t <= clock], np.int64)
        alive[self.places(over[self.has(over)])] = False
        return alive

    def places(self, numbers: Ints) -> Ints:
        """The position of each number if it is in the tier; otherwise that of the next larger one, or the last."""
        found: Ints = np.minimum(np.searchsorted(self.numbers, numbers), len(self.numbers) - 1)
        return found

    def has(self, numbers: Ints) -> Flags:
        """Whether each number is in the tier; faster than ``np.isin``, which would sort the whole tier again."""
        result: Flags = self.numbers[self.places(numbers)] == numbers
        return result


@dataclass(frozen=True, slots=True)
class Listing:
    """An immutable snapshot of the catalogue.

    Attributes:
        tiers: the queries.
        ended: times of cancellation, by number.
        clock: the watermark.
        counts: row counts of the queries.
    """

    tiers: tuple[_Tier, ...] = ()
    ended: Mapping[int, int] = field(default_factory=dict)
    clock: int = 0
    counts: tuple[Counts, ...] = ()

    def page(self, after: int, limit: int, vertices: int = MOST_VERTICES) -> Page:
        """The first ``limit`` active queries with a number above ``after``, at least one of them if there are any.

        It ends with the query with which its polygons have ``vertices`` vertices or more.
        """
        listed = list[tuple[int, _Tier, int]]()
        for tier in self.tiers:
            first = int(np.searchsorted(tier.numbers, after, "right"))
            rows = first + np.flatnonzero(tier.continuous(self.clock, self.ended)[first:])[:limit]
            listed += [(int(tier.numbers[row]), tier, row) for row in rows.tolist()]
        listed.sort(key=lambda each: each[0])
        whole, size = listed[:limit], 0
        for count, (_, tier, row) in enumerate(whole, 1):
            region = tier.queries.regions[row]
            size += len(region) if isinstance(region, Polygon) else 0
            if size >= vertices and count < len(listed):
                return Page(self._listed(whole[:count]), cut=True)
        return Page(self._listed(whole), cut=False)

    def named(self, name: str) -> Listed | None:
        """The active query with an id; None if there is none."""
        for tier in reversed(self.tiers):
            same = pc.equal(tier.queries.ids, pa.scalar(name)).to_numpy(zero_copy_only=False)
            for row in np.flatnonzero(same & tier.continuous(self.clock, self.ended)).tolist()[-1:]:
                return self._listed([(int(tier.numbers[row]), tier, row)])[0]
        return None

    def _listed(self, found: list[tuple[int, _Tier, int]]) -> list[Listed]:
        had = rows_so_far(self.counts, [number for number, _, _ in found])
        return [
            (number, tier.queries[row].to_record(), rows, last)
            for (number, tier, row), (rows, last) in zip(found, had, strict=True)
        ]


class Catalogue:
    """See the module."""

    def __init__(self) -> None:
        self._tiers = list[_Tier]()
        self._ended, self._shared = dict[int, int](), False
        self._counts = RowCounts()

    def __len__(self) -> int:
        """Number of queries, including ended ones that have not been dropped."""
        return sum(len(tier.numbers) for tier in self._tiers)

    def register(self, numbers: Ints, queries: QueryBatch) -> None:
        """Add continuous queries.

        Args:
            numbers: int64[n], numbers of queries that are not in the catalogue, in any order; duplicates are allowed,
                because a query may come from several slots.
            queries: n queries.
        """
        if not len(numbers):
            return
        numbers, first = np.unique(numbers, return_index=True)
        self._tiers.append(_Tier.of(numbers, queries.take(first)))
        start, size = len(self._tiers) - 1, len(numbers)
        while start and size * _TIER_RATIO >= len(self._tiers[start - 1].numbers):
            start -= 1
            size += len(self._tiers[start].numbers)
        if start < len(self._tiers) - 1:
            self._tiers[start:] = [_joined(self._tiers[start:])]

    def end_at(self, numbers: Ints, t: Ints) -> None:
        """Cancel queries: they are not active at t or later. Unknown numbers are ignored.

        Args:
            numbers: int64[n].
            t: int64[n], ms.
        """
        known = self._has(numbers)
        if known.any():
            self._own()
        for number, end in zip(numbers[known].tolist(), t[known].tolist(), strict=True):
            self._ended[number] = min(end, self._ended.get(number, end))

    def count(self, counts: Counts) -> None:
        """Add the row counts of one turn; the queries may have ended."""
        self._counts.add(counts)

    def listing(self, clock: int) -> Listing:
        """Snapshot of the queries that are active at the watermark ``clock``, O(1)."""
        self._shared = True
        return Listing(tuple(self._tiers), self._ended, clock, self._counts.tiers)

    def _own(self) -> None:
        """Copy the table of ends before a change if a listing shares it (copy on write). O(cancellations)."""
        if self._shared:
            self._ended, self._shared = dict(self._ended), False

    def drop(self, clock: int) -> None:
        """Drop ended queries from tiers in which many have ended; to be called periodically."""
        crowded = len(self._ended) > _ENDED_LIMIT + len(self) // 16
        for i, tier in enumerate(self._tiers):
            continuous = tier.continuous(clock, self._ended)
            if 2 * int(continuous.sum()) < len(continuous) or (crowded and not continuous.all()):
                rows = np.flatnonzero(continuous)
                queries = tier.queries.take(rows)
                kept = replace(queries, keywords=queries.keywords.compact())
                self._tiers[i] = _Tier(tier.numbers[rows], tier.until[rows], kept)
        self._tiers = [tier for tier in self._tiers if len(tier.numbers)]
        ended = np.fromiter(self._ended, np.int64, len(self._ended))
        gone = ended[~self._has(ended)].tolist()
        if gone:
            self._own()
        for number in gone:
            del self._ended[number]
        if len(self._counts) > _COUNTS_RATIO * len(self):
            self._counts.retain(self._has)

    def _has(self, numbers: Ints) -> Flags:
        known = np.zeros(len(numbers), np.bool_)
        for tier in self._tiers:
            known |= tier.has(numbers)
        return known

    def checkpoint(self, write: WriteFile) -> Manifest:
        """See :mod:`spatialstream.local.state`."""
        for i, tier in enumerate(self._tiers):
            if tier.name is None:
                packed = pa.BufferOutputStream()
                with pa.ipc.new_stream(packed, (content := tier.queries.to_arrow()).schema) as writer:
                    writer.write(content)
                arrays: dict[str, Array] = {
                    "numbers": tier.numbers,
                    "queries": np.frombuffer(packed.getvalue(), np.uint8),
                }
                self._tiers[i] = replace(tier, name=write("catalogue", arrays))
        return {
            "tiers": [tier.name for tier in self._tiers],
            "ended": sorted(self._ended.items()),
            "counts": self._counts.checkpoint(write),
        }

    @classmethod
    def restore(cls, manifest: Manifest, read: ReadFile) -> Catalogue:
        """See :mod:`spatialstream.local.state`."""
        self = cls()
        for name in manifest["tiers"]:
            arrays, _ = read(name)
            (content,) = pa.ipc.open_stream(pa.py_buffer(arrays["queries"])).iter_batches_with_custom_metadata()
            queries = QueryBatch.from_arrow(content.batch)
            self._tiers.append(replace(_Tier.of(arrays["numbers"], queries), name=name))
        self._ended = {int(number): int(t) for number, t in manifest["ended"]}
        self._counts = RowCounts.restore(manifest["counts"], read)
        return self


def _joined(tiers: list[_Tier]) -> _Tier:
    """Merge several tiers, whose numbers are ascending except those of late queries."""
    numbers = np.concatenate([tier.numbers for tier in tiers])
    order = np.argsort(numbers)
    return _Tier.of(numbers[order], QueryBatch.concat([tier.queries for tier in tiers]).take(order))
