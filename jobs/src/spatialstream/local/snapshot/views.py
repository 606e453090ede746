"""Consistent views of the objects of a slot at one moment (MVCC).

Segments are immutable, so a view is the list of segments at that moment, and the floor below which objects were no
longer found (multiversion concurrency control, Bernstein and Goodman 1983; a *snapshot* of a log-structured merge
tree). Creating a view costs O(segments). Its answers do not change while the store appends, merges and drops in another
thread: the view keeps its segments alive.

Several threads may query one view, and views of one store, concurrently. Data that is created lazily (segments read on
demand, their addresses, numbers of terms) is published by a single assignment, or protected by a lock. Kernels read
through addresses, so the caller of a kernel holds a reference to the table whose rows it passes, because another thread
may replace the table by a newer one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spatialstream.local.arrays import Codes, Ints
from spatialstream.local.snapshot.addresses import Columns, place_of, row_of
from spatialstream.local.snapshot.best import Found, RankedAsk, RankedSearch, search_best
from spatialstream.local.snapshot.corpora import Corpora, CorpusTable
from spatialstream.local.snapshot.keywords import Decided
from spatialstream.local.snapshot.nearest import nearest as search_nearest
from spatialstream.local.snapshot.rows import ObjectRows, alike, rows_at
from spatialstream.local.snapshot.segment import Segment
from spatialstream.local.snapshot.signatures import SignedSegment
from spatialstream.local.snapshot.termtables import count_words
from spatialstream.local.snapshot.topterms import top_words
from spatialstream.local.snapshot.totals import largest
from spatialstream.local.snapshot.unions import (
    FoundNearest,
    Share,
    count_terms,
    nearest_of_groups,
    satisfying,
    search_groups,
)
from spatialstream.local.snapshot.zranges import Ask, search
from spatialstream.local.wordtable import Strings, pack, slots_with, to_arrow
from spatialstream.model.expressions import Expression, is_marked, keyed
from spatialstream.model.hashing import process_seed
from spatialstream.model.keyword_terms import asked_of
from spatialstream.model.ranking.asked import Ranking
from spatialstream.model.regions import Region
from spatialstream.model.space import Space
from spatialstream.model.stored_fields import chosen

__all__ = ["ObjectsView", "Part", "Shown", "TermNumbers"]

Shown = tuple[str, ...] | None
"""The fields that rows show, of those that the stream keeps; None: all of them."""

_MORE = 4
"""By how much the number of objects grows that are looked for, as long as the last ones are alike."""

_TERMS_PER_OBJECT = 32
"""An object with more terms counts as several objects in comparisons with the capacity."""


@dataclass(eq=False)
class Part:
    """A segment of a store, which may be not loaded yet, or not written yet.

    Attributes:
        objects: number of objects.
        weight: number of objects, higher if they have many terms.
        nbytes: size in bytes.
        t_min, t_max: least and greatest timestamp, ms.
        keyed: of each property of keywords whether it has postings; empty in manifests of an earlier format.
        file: name of its file; None until it is written.
        segment: the segment; None until it is loaded.
        load: reads a file by its name.
    """

    objects: int
    weight: int
    nbytes: int
    t_min: int
    t_max: int
    file: str | None = None
    segment: Segment | None = field(default=None, repr=False)
    keyed: Decided = field(default_factory=dict)
    load: Callable[[str], Segment] | None = field(default=None, repr=False)
    _loading: Lock = field(default_factory=Lock, init=False, repr=False)

    @cached_property
    def times(self) -> npt.NDArray[np.void]:
        """Its row in a table while it is not loaded."""
        return row_of(Columns.times_only(self.t_min, self.t_max))

    @classmethod
    def of(cls, segment: Segment) -> Part:
        """Create a part that is only in memory."""
        weight = max(len(segment), len(segment.columns.postings) // _TERMS_PER_OBJECT)
        return cls(len(segment), weight, segment.nbytes, segment.t_min, segment.t_max, None, segment, segment.keyed)

    def read(self) -> Segment:
        """Read the segment without keeping it in memory."""
        if self.segment is not None:
            return self.segment
        assert self.file is not None
        assert self.load is not None
        return self.load(self.file)

    def loaded(self) -> Segment:
        """Load the segment and keep it in memory; concurrent callers get the same instance."""
        if self.segment is None:
            with self._loading:
                if self.segment is None:
                    self.segment = self.read()
        return self.segment

    @property
    def signed(self) -> SignedSegment:
        """Its signatures, without reading it: of a segment that is not loaded they are not known."""
        segment = self.segment
        return SignedSegment(self.t_min, self.t_max) if segment is None else segment.signed

    def reaches(self, t_after: int, t_last: int) -> bool:
        """Whether it may have objects in (t_after, t_last]."""
        return self.t_max > t_after and self.t_min <= t_last


@lru_cache(4_096)
def _asked_of(literals: tuple[str, ...]) -> frozenset[str]:
    """The properties of which an expression has tests that can be terms."""
    where = Expression.of(literals).where
    return frozenset() if where is None else asked_of(where)


@lru_cache(4_096)
def _keyed(literals: tuple[str, ...], unkeyed: frozenset[str]) -> Expression:
    """An expression with terms in place of tests of keywords, of properties that are not ``unkeyed``."""
    return keyed(Expression.of(literals), unkeyed)


class _Table:
    """Segments as input of kernels. The table keeps them alive, because rows contain only addresses.

    Attributes:
        rows: a row per segment, see :mod:`~spatialstream.local.snapshot.addresses`.
        segments: the segments; None if not loaded: the row has only the times.
        unloaded: positions of segments that are not loaded.
        stores: whether their objects have fields that the stream keeps.
        unkeyed: of each segment, the properties of keywords that have no postings in it; None if not loaded.
        numbered: the state of :class:`TermNumbers` for this table.
        weighed: a corpus table, the rows with the weights of their terms in it, and these weights.
    """

    __slots__ = ("_shares", "numbered", "rows", "segments", "stores", "unkeyed", "unloaded", "weighed")

    def __init__(self, parts: Sequence[Part]) -> None:
        self.segments = [part.segment for part in parts]
        self.unloaded = [i for i, segment in enumerate(self.segments) if segment is None]
        rows = [
            part.times if segment is None else segment.row for part, segment in zip(parts, self.segments, strict=True)
        ]
        self.rows = np.concatenate(rows) if rows else _NO_ROWS
        self.stores = any(segment is not None and segment.stored is not None for segment in self.segments)
        self.unkeyed = [None if segment is None else segment.unkeyed for segment in self.segments]
        self._shares: dict[frozenset[str], list[tuple[frozenset[str], Share]]] = {}
        self.numbered: _Numbered | None = None
        self.weighed: _Weighed | None = None

    def searches(self, literals: Sequence[str]) -> list[tuple[Expression, Share]]:
        """The expression of literals, with terms in place of tests of keywords that have postings.

        Which ones do may differ by segment: there is one expression for each share of the segments, those of the most
        terms first.
        """
        literals = tuple(literals)
        return [(_keyed(literals, unkeyed), share) for unkeyed, share in self._shares_by(_asked_of(literals))]

    def _shares_by(self, names: frozenset[str]) -> list[tuple[frozenset[str], Share]]:
        """The segments by which of these properties have no postings, those of the fewest first."""
        shares = self._shares.get(names)
        if shares is None:
            lacking = [None if unkeyed is None else unkeyed & names for unkeyed in self.unkeyed]
            kinds = sorted({each for each in lacking if each is not None}, key=lambda kind: (len(kind), sorted(kind)))
            shares = [(kind, self._share_of(np.flatnonzero([each == kind for each in lacking]))) for kind in kinds]
            if len(shares) < 2:
                shares = [(kinds[0] if kinds else frozenset(), Share(self.rows, None))]
            self._shares[names] = shares
        return shares

    def _share_of(self, places: Ints) -> Share:
        return Share(self.rows[places], places.astype(np.int32))

    def stored_at(self, owners: Codes, positions: Codes, fields: Shown) -> pa.LargeStringArray:
        """Of the fields that the stream keeps of the objects at positions of rows those that are shown."""
        found, places = list[pa.LargeStringArray](), list[Ints]()
        for row in np.unique(owners).tolist():
            here, segment = np.flatnonzero(owners == row), self.segments[row]
            stored = None if segment is None or fields == () else segment.stored
            column = pa.array([""] * len(here), pa.large_string()) if stored is None else stored.at(positions[here])
            found.append(column)
            places.append(here)
        if not found:
            return pa.array([], pa.large_string())
        order = np.empty(len(owners), np.int64)
        order[np.concatenate(places)] = np.arange(len(owners))
        return chosen(pa.concat_arrays(found).take(pa.array(order)), fields)

    def weighed_by(self, corpus: CorpusTable) -> _Weighed:
        """The rows with the weights that their terms have in a corpus table."""
        weighed = self.weighed
        if weighed is None or weighed[0] is not corpus:
            arrays = [corpus.of_segment(segment) for segment in self.segments]
            weighed = self.weighed = corpus, _with_numbers(self.rows, arrays), arrays
        return weighed


_NO_ROWS = row_of(Columns.times_only(0, -1))[:0]

_Arrays = WeakKeyDictionary[Segment, Codes]

_Numbered = tuple[_Arrays, npt.NDArray[np.void], list[Codes]]
"""The state of all numbers, the rows with their numbers, and the numbers of each row."""

_Weighed = tuple[CorpusTable, npt.NDArray[np.void], list[Codes]]


def _with_numbers(rows: npt.NDArray[np.void], arrays: Sequence[Codes]) -> npt.NDArray[np.void]:
    """The rows of a table with a number for each of their terms."""
    numbered = rows.copy()
    for row, array in zip(numbered, arrays, strict=True):
        row["numbers"] = place_of(array)
    return numbered


class TermNumbers:
    """Sums the term counts of several segments, each of which has its own codes.

    A term is assigned a number when a query first encounters it, and the numbers of each segment's codes are cached
    (``numbers`` of its row: number + 1, or 0). So the words of different segments are compared once, not in every
    query. The cache is not persistent. Several threads may count; they take turns.

    Cost: a hash lookup the first time that a term is encountered in a segment, an addition every further time.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._forget()

    def _forget(self) -> None:
        """Reset the cache, if it has terms of dropped segments or is in an undefined state."""
        offsets, words = np.zeros(1, np.int32), np.empty(0, np.uint8)
        self._state: tuple[Any, ...] = (
            offsets,
            words,
            slots_with(process_seed(), offsets, words, 0, 0),
            0,
            np.empty(0, np.int32),
            np.zeros(1, np.int64),
        )
        self._arrays: _Arrays = WeakKeyDictionary()

    def __len__(self) -> int:
        """Number of terms."""
        size: int = self._state[3]
        return size

    def count(self, table: _Table, asked: tuple[Any, ...]) -> tuple[Strings, Ints, int]:
        """Count the terms of the objects of a range-keyword search.

        Args:
            table: segments.
            asked: see :class:`spatialstream.local.snapshot.zranges.Ask`.

        Returns:
            terms, their counts (at least 1), and the number of objects checked.
        """
        with self._lock:
            rows = self._rows_of(table)
            try:
                self._state, (offsets, words, counts, checked) = count_words(rows, asked, *self._state)
            except BaseException:
                self._forget()
                raise
        return (offsets, words), counts, checked

    def _rows_of(self, table: _Table) -> npt.NDArray[np.void]:
        """The table's rows with numbers."""
        if table.numbered is None or table.numbered[0] is not self._arrays:
            if len(self) > 2 * sum(map(len, self._arrays.values())):
                self._forget()
            arrays = [_NO_NUMBERS if segment is None else self._numbers_of(segment) for segment in table.segments]
            table.numbered = self._arrays, _with_numbers(table.rows, arrays), arrays
        return table.numbered[1]

    def _numbers_of(self, segment: Segment) -> Codes:
        numbers = self._arrays.get(segment)
        if numbers is None:
            numbers = self._arrays[segment] = np.zeros(segment.terms, np.int32)
        return numbers


_NO_NUMBERS = np.empty(0, np.int32)


_spare: list[Codes] = []
"""Pool of zeroed arrays for counting, shared by threads: creating one takes longer than counting."""
_MOST_SPARE = 4


def _first(table: _Table, asked: tuple[Any, ...], most: int) -> tuple[Strings, Ints, int] | None:
    """As :meth:`TermNumbers.count`, but only for candidates of the top terms; None if this would take longer."""
    try:
        zeros = _spare.pop()
    except IndexError:
        zeros = np.empty(0, np.int32)
    pays, offsets, words, counts, checked, zeros = top_words(table.rows, asked, most, process_seed(), zeros)
    if len(_spare) < _MOST_SPARE:
        _spare.append(zeros)
    return ((offsets, words), counts, checked) if pays else None


class ObjectsView:
    """All objects of a slot at one moment.

    Args:
        space: the space of the objects.
        parts: the segments.
        floor: objects with t below this are not found.
        numbers: the numbers of terms, shared by the views of a store.
        corpora: the tables of ranked queries; None: of a stream that has none.

    Attributes:
        checked: number of objects that queries have checked one by one; approximate if several threads query.
    """

    def __init__(
        self, space: Space, parts: Iterable[Part], floor: int, numbers: TermNumbers, corpora: Corpora | None = None
    ) -> None:
        self.space, self.floor, self.corpora = space, floor, corpora
        self._parts = tuple(parts)
        self._numbers = numbers
        self._table: _Table | None = None
        self.checked = 0

    def __len__(self) -> int:
        """Number of objects, including those below the floor whose segment had not been dropped yet."""
        return sum(part.objects for part in self._parts)

    @property
    def signed(self) -> tuple[SignedSegment, ...]:
        """The signatures of its segments; segments that are not loaded are not read for that."""
        return tuple(part.signed for part in self._parts)

    def range_query(
        self, region: Region | None, keywords: Sequence[str], t_after: int, t_last: int, fields: Shown = None
    ) -> ObjectRows:
        """The objects in the region (None: anywhere) with the keywords and t in (t_after, t_last], by (t, id, x, y).

        Here and below keywords are literals (:mod:`spatialstream.model.expressions`), and ties of objects that are
        alike in all of this are broken by the fields that are shown.
        """
        table, owners, positions = self._found(region, keywords, t_after, t_last)
        if not table.stores:
            return rows_at(table.rows, owners, positions)
        rows = rows_at(table.rows, owners, positions, ordered=True)
        rows = replace(rows, stored=table.stored_at(owners, positions, fields))
        return rows.take(rows.order())

    def _found(
        self, region: Region | None, keywords: Sequence[str], t_after: int, t_last: int
    ) -> tuple[_Table, Codes, Codes]:
        """Table, rows of it, and positions of the objects of a range query."""
        ask = self._ask(region, keywords, t_after, t_last)
        table = self._reaching(ask.t_after, t_last)
        if not is_marked(keywords):
            owners, positions, checked = search(table.rows, tuple(ask))
            self.checked += checked
            return table, owners, positions

        def of_group(share: Share, group: Sequence[str]) -> tuple[Codes, Codes, int]:
            offsets, words = pack(group)
            owners, positions, checked = search(share.rows, tuple(ask._replace(word_offsets=offsets, words=words)))
            return share.owners(owners), positions, checked

        found = list[tuple[Codes, Codes]]()
        for expression, share in table.searches(keywords):
            satisfied = satisfying(table.rows, table.segments, expression)
            owners, positions, checked = search_groups(expression, satisfied, partial(of_group, share))
            self.checked += checked
            found.append((owners, positions))
        if len(found) > 1:
            owners, positions = (np.concatenate(each) for each in zip(*found, strict=True))
        return table, owners, positions

    def nearest(
        self,
        x: float,
        y: float,
        k: int,
        keywords: Sequence[str],
        t_after: int,
        t_last: int,
        bound: float = np.inf,
        fields: Shown = None,
    ) -> ObjectRows:
        """The k nearest objects with the keywords, t in (t_after, t_last] and a distance of at most ``bound``.

        In order of (distance, t descending, id, x, y), with distances.
        """
        after = max(t_after, self.floor - 1)
        table = self._reaching(after, t_last)

        def of_rows(rows: npt.NDArray[np.void], group: Sequence[str], wanted: int, within: float) -> FoundNearest:
            found: FoundNearest = search_nearest(
                rows, self.space.geographic, x, y, wanted, *pack(group), after, t_last, within
            )
            return found

        def of_group(share: Share, group: Sequence[str], wanted: int, within: float) -> FoundNearest:
            owners, positions, distances, checked = of_rows(share.rows, group, wanted, within)
            return share.owners(owners), positions, distances, checked

        searches = []
        for expression, share in table.searches(keywords) if is_marked(keywords) else ():
            satisfied = satisfying(table.rows, table.segments, expression)
            searches += [(partial(of_group, share, group), satisfied) for group in expression.groups]

        def found(wanted: int) -> FoundNearest:
            if not searches:
                return of_rows(table.rows, keywords, wanted, bound)
            return nearest_of_groups(table.rows, wanted, bound, searches)

        wanted = k + 1 if table.stores and fields != () else k  # one more, to see whether others are like the last one
        while True:
            owners, positions, distances, checked = found(wanted)
            self.checked += checked
            rows = rows_at(table.rows, owners, positions, distances)
            if wanted == k or len(rows) < wanted or not alike(rows, k - 1, wanted - 1):
                break
            wanted *= _MORE
        if not table.stores:
            return rows
        rows = replace(rows, stored=table.stored_at(owners, positions, fields))
        return rows.take(rows.order()[:k])

    def best(
        self,
        at: tuple[float, float],
        k: int,
        ranking: Ranking,
        keywords: Sequence[str],
        times: tuple[int, int],
        t: int,
        corpus: CorpusTable,
        fields: Shown = None,
    ) -> Found:
        """What is needed of these objects to find the k best by place, text and time.

        Args:
            at: the point.
            k: number of objects.
            ranking: by what is scored.
            keywords: the filter, with a condition on properties.
            times: (after, last], ms: objects of this range are candidates.
            t: of the query.
            corpus: the table of its time, see :attr:`corpora`.
            fields: those that the rows show.
        """
        after, last = max(times[0], self.floor - 1), times[1]
        table = self._reaching(after, last)
        _, rows, _ = table.weighed_by(corpus)
        searches = list[RankedSearch]()
        for expression, share in table.searches(keywords):
            ask = RankedAsk.of(self.space, at, ranking, expression, (after, last), t, corpus)
            where = None
            if expression.where is not None:
                where = satisfying(rows, table.segments, Expression(where=expression.where))
            weighed = Share(rows if share.places is None else rows[share.places], share.places)
            searches.append(RankedSearch(weighed, tuple(ask), where))
        found = search_best(rows, searches, k, ranking, ties=table.stores and fields != ())
        self.checked += found.checked
        if not table.stores:
            return found
        return replace(found, rows=replace(found.rows, stored=table.stored_at(found.owners, found.positions, fields)))

    def term_counts(
        self, region: Region | None, keywords: Sequence[str], t_after: int, t_last: int, most: int | None = None
    ) -> tuple[pa.StringArray, Ints]:
        """Count the terms of the objects of :meth:`range_query`: (terms, counts), in no particular order.

        Only counts above 0; with ``most`` (at least 1), only counts not below the ``most``-th largest. An object counts
        a term once.
        """
        if is_marked(keywords):
            table, owners, positions = self._found(region, keywords, t_after, t_last)
            return largest(*count_terms(table.rows, owners, positions), most)
        ask = self._ask(region, keywords, t_after, t_last)
        table, asked = self._reaching(ask.t_after, t_last), tuple(ask)
        found = None if most is None else _first(table, asked, most)
        (offsets, words), counts, checked = found or self._numbers.count(table, asked)
        self.checked += checked
        return largest(to_arrow(offsets, words), counts, most)

    def _ask(self, region: Region | None, keywords: Sequence[str], t_after: int, t_last: int) -> Ask:
        return Ask.of(self.space, region, keywords, max(t_after, self.floor - 1), t_last)

    def _reaching(self, t_after: int, t_last: int) -> _Table:
        """The table of all segments; those with objects in (t_after, t_last] are loaded, kernels skip the others."""
        table = self._table
        if table is None:
            table = self._table = _Table(self._parts)
        missing = [self._parts[i] for i in table.unloaded if self._parts[i].reaches(t_after, t_last)]
        if missing:
            for part in missing:
                part.loaded()
            table = self._table = _Table(self._parts)
        return table
