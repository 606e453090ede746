"""Row counts of queries: for each query number, the number of result rows so far and the time of the last one.

It is a log-structured set: immutable tiers, each at least twice as large as the next, and the unmerged additions of the
last turns; the count of a query is the sum over all. So the cost of a turn depends only on its own queries, and
concurrent readers have a consistent snapshot of the tiers.

Cost: 24 bytes for each query with a row, at most three times that; each addition of a turn to a query is rewritten
O(log n) times, about ten nanoseconds each. Looking up a query takes O(log² n).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from spatialstream.local.arrays import Flags, Ints
from spatialstream.local.state import ReadFile, WriteFile

__all__ = ["Counts", "RowCounts", "rows_so_far"]

_TIER_RATIO = 2
_RECENT, _RECENT_ENTRIES = 16, 1 << 16
"""Limits of unmerged additions: their number, and their total number of entries (or that of the tiers, if larger)."""

_NEVER = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """Row counts of n queries.

    Attributes:
        numbers: int64[n], numbers of the queries, ascending.
        rows: int64[n], number of rows of each.
        last: int64[n], ms, the largest t of these rows.
        name: name of the file with these counts; None while they are only in memory.
    """

    numbers: Ints
    rows: Ints
    last: Ints
    name: str | None = None

    def __len__(self) -> int:
        return len(self.numbers)

    @classmethod
    def of(cls, numbers: Ints, t: Ints, rows: Ints | None = None) -> Counts:
        """Sum entries given in any order.

        Args:
            numbers: int64[m], numbers of queries, possibly repeated.
            t: int64[m], ms, the t of a row, or of the last of several rows.
            rows: int64[m], number of rows of each entry; None: one each.
        """
        order = np.argsort(numbers)
        known = numbers[order]
        new = np.ones(len(known), np.bool_)
        np.not_equal(known[1:], known[:-1], out=new[1:])
        first = np.flatnonzero(new)
        if not len(first):
            return cls(numbers, numbers, numbers)
        count = np.diff(np.append(first, len(known))) if rows is None else np.add.reduceat(rows[order], first)
        return cls(known[first], count, np.maximum.reduceat(t[order], first))

    def places(self, numbers: Ints) -> tuple[Ints, Flags]:
        """The position of each number, and whether it is present; there must be at least one entry."""
        at: Ints = np.minimum(np.searchsorted(self.numbers, numbers), len(self) - 1)
        here: Flags = self.numbers[at] == numbers
        return at, here

    def plus(self, other: Counts) -> Counts:
        """The sum of two, of which ``other`` should be the smaller; faster than sorting, because both are sorted."""
        if not (len(self) and len(other)):
            return self if len(self) else other
        at, here = self.places(other.numbers)
        rows, last = self.rows.copy(), self.last.copy()
        rows[at[here]] += other.rows[here]
        last[at[here]] = np.maximum(last[at[here]], other.last[here])
        if here.all():
            return Counts(self.numbers, rows, last)
        before, new = np.searchsorted(self.numbers, other.numbers[~here]), ~here
        place = before + np.arange(len(before))
        mine = np.ones(len(self) + len(place), np.bool_)
        mine[place] = False

        def joined(old: Ints, added: Ints) -> Ints:
            column = np.empty(len(mine), np.int64)
            column[mine], column[place] = old, added[new]
            return column

        return Counts(joined(self.numbers, other.numbers), joined(rows, other.rows), joined(last, other.last))


class RowCounts:
    """See the module."""

    def __init__(self) -> None:
        self._tiers, self._recent = list[Counts](), list[Counts]()

    def __len__(self) -> int:
        """Number of entries of all tiers; a query may have several."""
        return sum(map(len, self.tiers))

    @property
    def tiers(self) -> tuple[Counts, ...]:
        """Everything that has been added, as immutable tiers."""
        return (*self._tiers, *self._recent)

    def add(self, counts: Counts) -> None:
        """Add row counts."""
        if len(counts):
            self._recent.append(counts)
            most = max(_RECENT_ENTRIES, sum(map(len, self._tiers)))
            if len(self._recent) == _RECENT or sum(map(len, self._recent)) > most:
                self._fold()

    def total(self) -> Counts:
        """The sums of all tiers, independent of the order in which counts were added."""
        return _sum([*self._tiers, _together(self._recent)])

    def retain(self, known: Callable[[Ints], Flags]) -> None:
        """Drop the queries that are no longer known."""
        total = self.total()
        kept = known(total.numbers)
        self._tiers, self._recent = [], []
        self.add(Counts(total.numbers[kept], total.rows[kept], total.last[kept]))

    def _fold(self) -> None:
        """Turn recent additions into a tier, and merge last tiers until each is at least twice as large as the next."""
        self._tiers, self._recent = [*self._tiers, _together(self._recent)], []
        tiers = self._tiers
        while len(tiers) > 1 and len(tiers[-1]) * _TIER_RATIO > len(tiers[-2]):
            tiers[-2:] = [_sum(tiers[-2:])]

    def checkpoint(self, write: WriteFile) -> list[str]:
        """Write new counts as one file; return the names of all files. See :mod:`spatialstream.local.state`."""
        old = [tier for tier in self._tiers if tier.name is not None]  # they come first
        new = [*self._tiers[len(old) :], _together(self._recent)]
        if any(map(len, new)):
            self._tiers, self._recent = old, [_sum(new)]
            self._fold()
            last = self._tiers[-1]
            arrays = {"numbers": last.numbers, "rows": last.rows, "last": last.last}
            self._tiers[-1] = replace(last, name=write("rows", arrays))
        return [str(tier.name) for tier in self._tiers]

    @classmethod
    def restore(cls, names: Sequence[str], read: ReadFile) -> RowCounts:
        """See :mod:`spatialstream.local.state`."""
        self = cls()
        for name in names:
            arrays, _ = read(name)
            self._tiers.append(Counts(arrays["numbers"], arrays["rows"], arrays["last"], name))
        return self


def rows_so_far(tiers: Iterable[Counts], numbers: Sequence[int]) -> list[tuple[int, int | None]]:
    """For each query, the number of its rows and the largest t of them in ms (None if there are none)."""
    asked = np.array(numbers, np.int64)
    rows, last = np.zeros(len(asked), np.int64), np.full(len(asked), _NEVER)
    for tier in tiers:
        at, here = tier.places(asked)
        rows += np.where(here, tier.rows[at], 0)
        last = np.maximum(last, np.where(here, tier.last[at], _NEVER))
    return [(n, t if n else None) for n, t in zip(rows.tolist(), last.tolist(), strict=True)]


def _together(parts: Sequence[Counts]) -> Counts:
    """The sum of several counts of similar size, by sorting."""
    if len(parts) == 1:
        return parts[0]
    numbers, rows, last = (
        np.concatenate([np.empty(0, np.int64), *(getattr(part, name) for part in parts)])
        for name in ("numbers", "rows", "last")
    )
    return Counts.of(numbers, last, rows)


def _sum(tiers: Sequence[Counts]) -> Counts:
    """The sum of several tiers, adding smaller ones first."""
    first, *others = sorted(tiers, key=len)
    for tier in others:
        first = tier.plus(first)
    return first
