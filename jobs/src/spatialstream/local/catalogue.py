"""What stands: the continuous queries of a stream whole, to be listed and shown to people.

The indexes of slots keep of a query what matching needs, on every slot that it concerns, and in structures that a turn
changes. The catalogue has each query once and as it was registered, with who has registered it, in the order of
registration, and can be looked at beside the turns. With each it has how many rows the query has had
(:mod:`~spatialstream.local.row_counts`).

It is a log-structured set: immutable tiers of queries by number, each four times smaller than the one before, and a
table of the ends that cancellations have brought. A tier of which half has ended is written anew at a checkpoint.
Cost: O(log n) rewrites of a query over its life and O(log² n) for its cancellation; some 150 bytes, its words, its id
and who has registered it for each that stands. A page costs O(n) comparisons of integers, a query by its id O(n) of
strings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.local.arrays import Array, Flags, Ints
from spatialstream.local.registry import last_instant
from spatialstream.local.row_counts import Counts, RowCounts, rows_so_far
from spatialstream.local.state import Manifest, ReadFile, WriteFile
from spatialstream.model.queries import QueryBatch

__all__ = ["Catalogue", "Listed", "Listing"]

_TIER_RATIO = 4
_ENDED_LIMIT = 4_096
"""Cancellations that are kept beside the tiers, at least: the table is written with every manifest."""
_COUNTS_RATIO = 4
"""Entries of the counts for each query, from which on those of queries that are forgotten are looked for."""

Listed = tuple[int, dict[str, Any], int, int | None]
"""A query that stands: number, record, rows so far, and the t of the last one in ms; None if there was none."""


@dataclass(frozen=True, slots=True, eq=False)
class _Tier:
    """Queries by number, ascending, and the last instant at which each stands if it is not cancelled."""

    numbers: Ints
    until: Ints
    queries: QueryBatch
    name: str | None = None  # of its file; None while it is only in memory

    @classmethod
    def of(cls, numbers: Ints, queries: QueryBatch) -> _Tier:
        return cls(numbers, last_instant(queries), queries)

    def continuous(self, clock: int, ended: Mapping[int, int]) -> Flags:
        """Which of them stand, or will."""
        alive: Flags = self.until > clock
        over = np.array([number for number, t in ended.items() if t <= clock], np.int64)
        alive[self.places(over[self.has(over)])] = False
        return alive

    def places(self, numbers: Ints) -> Ints:
        """Where numbers are, or would be next to larger ones, if there are any."""
        found: Ints = np.minimum(np.searchsorted(self.numbers, numbers), len(self.numbers) - 1)
        return found

    def has(self, numbers: Ints) -> Flags:
        """Which of them are here; faster than ``np.isin``, which sorts all of a tier anew."""
        result: Flags = self.numbers[self.places(numbers)] == numbers
        return result


@dataclass(frozen=True, slots=True)
class Listing:
    """The catalogue as it was at some time; it does not change.

    Attributes:
        tiers: the queries.
        ended: of those that are cancelled the time, by number.
        clock: everything up to this time had come.
        counts: rows of the queries.
    """

    tiers: tuple[_Tier, ...] = ()
    ended: Mapping[int, int] = field(default_factory=dict)
    clock: int = 0
    counts: tuple[Counts, ...] = ()

    def page(self, after: int, limit: int) -> list[Listed]:
        """The first queries of a number above ``after`` that stand, ascending."""
        found = list[tuple[int, _Tier, int]]()
        for tier in self.tiers:
            first = int(np.searchsorted(tier.numbers, after, "right"))
            rows = first + np.flatnonzero(tier.continuous(self.clock, self.ended)[first:])[:limit]
            found += [(int(tier.numbers[row]), tier, row) for row in rows.tolist()]
        found.sort(key=lambda each: each[0])
        return self._listed(found[:limit])

    def named(self, name: str) -> Listed | None:
        """The query of an id that stands; None if none does."""
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
        """Number of queries, those included that have ended and have not been dropped."""
        return sum(len(tier.numbers) for tier in self._tiers)

    def register(self, numbers: Ints, queries: QueryBatch) -> None:
        """Add continuous queries.

        Args:
            numbers: int64[n], of queries that are not here, in any order; one may be there several times, as it comes
                from several slots.
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
        """Cancel queries: they do not stand at t and later. Unknown numbers are ignored.

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
        """Queries have had rows, of one turn; they may have ended."""
        self._counts.add(counts)

    def listing(self, clock: int) -> Listing:
        """What stands when everything up to ``clock`` has come, O(1)."""
        self._shared = True
        return Listing(tuple(self._tiers), self._ended, clock, self._counts.tiers)

    def _own(self) -> None:
        """Have ends of one's own, to be changed: those that a listing has do not change. O(cancellations)."""
        if self._shared:
            self._ended, self._shared = dict(self._ended), False

    def drop(self, clock: int) -> None:
        """Forget queries that do not stand any more, where many have ended; to be called now and then."""
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
    """One tier of several, which are in the order of their numbers but for late ones."""
    numbers = np.concatenate([tier.numbers for tier in tiers])
    order = np.argsort(numbers)
    return _Tier.of(numbers[order], QueryBatch.concat([tier.queries for tier in tiers]).take(order))
