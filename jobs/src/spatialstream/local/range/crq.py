"""ContinuousRangeIndex: the continuous range-keyword queries (CRQ) of one slot, which start and end at any time.

A log-structured merge tree (O'Neil et al., "The log-structured merge-tree", 1996) of immutable grids
(:class:`~spatialstream.local.grid.keyword_grid.KeywordGrid`): new registrations are collected in a tail; the tail
becomes a tier; a tier is merged with the next older one if that is at most 4 times as large, up to a size of 524,288
queries. Only the ends of lifetimes change in a tier. An expired query is skipped at once and removed when its tier is
merged; a tier of which more than half has expired is rebuilt.

Cost: a query is rewritten O(log n) times, about 1 us each. The longest pause of one call is the rebuild of one full
tier, about half a second, because a call starts at most one merge of more than 65,536 queries (except when more than a
full tier is registered at once). Matching visits n / 524,288 full tiers and about five smaller ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from spatialstream.local.arrays import Codes, Flags, Ints
from spatialstream.local.base import MovableIndex
from spatialstream.local.grid.expression_grid import ExpressionGrid, Grid, build_grid, grid_from_arrays
from spatialstream.local.grid.matching import BLOCK
from spatialstream.local.grid.probing import UNLIMITED, ProbeBatch, posted_in
from spatialstream.local.range.frequencies import TermFrequencies
from spatialstream.local.state import Manifest, ReadFile, WriteFile
from spatialstream.local.wordtable import from_arrow, to_arrow
from spatialstream.model.arrays import string_view
from spatialstream.model.batches import Batch
from spatialstream.model.expressions import fields_of
from spatialstream.model.kernels import kernel
from spatialstream.model.kinds import CODE, QueryType
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.properties.condition import Test, all_of
from spatialstream.model.properties.declared import PropertyType
from spatialstream.model.queries import Everything, Lifetime, Predicate, Query, QueryBatch, nobody
from spatialstream.model.regions import Box
from spatialstream.model.space import Space
from spatialstream.model.terms import TermLists

__all__ = ["DEFAULT_TIERING", "MOST_TESTED", "ContinuousRangeIndex", "Matches", "Tiering", "prepare"]

MOST_TESTED = 32
"""Queries of which it is known with how many objects they are compared."""
_LONGEST_NAME = 200
_SAMPLE_WORK = 4_000_000
"""Candidates after which some objects are looked at again, to know how many there are of each query."""
_OBJECT_WORK = 8
"""Candidates that cost as much as what an object costs besides them, about."""
_STRIDE = 7_919
"""Between the places in a batch that are looked at: a prime, so that all come to be."""
_OVERLAYS = 8
_MATCHES = 1 << 20
"""Maximum number of matches found at a time, except that one object may have more: bounds memory."""

_FAN = 64  # pieces that are concatenated at once: Arrow unifies k dictionaries in O(k^2)
_NEVER = -(2**63)
"""A time before all others; as the end of a query, it means that the query has been dropped."""

_CRQ = CODE[QueryType.CRQ]


@dataclass(frozen=True, slots=True)
class Tiering:
    """Parameters of building and merging tiers.

    Attributes:
        tail: number of registrations that are collected before they become a tier; two tiers that are both smaller are
            merged.
        ratio: a tier is merged with the next older one if that is at most this many times as large.
        full: maximum size of a merged tier; bounds the longest pause.
        large: a merge of more queries than this is the last of a call.
    """

    tail: int = 4096
    ratio: int = 4
    full: int = 1 << 19
    large: int = 1 << 16


DEFAULT_TIERING = Tiering()


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """Which fields the rows of n queries show, of those that the stream keeps.

    Attributes:
        of: int32[n], the choice of each query; -1: all fields.
        choices: the distinct ones.
    """

    of: Codes
    choices: tuple[tuple[str, ...], ...]

    @classmethod
    def among(cls, grid: Grid) -> Choices | None:
        """Those of the queries of a grid; None if none of them chooses."""
        if not isinstance(grid, ExpressionGrid):
            return None
        keywords = grid.keywords
        chosen = [fields_of([literal]) for literal in keywords.vocabulary.to_pylist()]
        choices = tuple(sorted({each for each in chosen if each is not None}))
        if not choices:
            return None
        code = np.array([-1 if each is None else choices.index(each) for each in chosen], np.int32)[keywords.codes]
        of = np.full(len(keywords), -1, np.int32)
        owner = np.repeat(np.arange(len(keywords)), np.diff(keywords.offsets))
        of[owner[code >= 0]] = code[code >= 0]
        return cls(of, choices)


@dataclass(frozen=True, slots=True, eq=False)
class Matches:
    """Pairs of object and query, ordered by object, then number of the query.

    Attributes:
        object: int32[m], position in the batch.
        number: int64[m], number of the query.
        tier, position: int32[m], location of the query.
        ids: the ids of each tier, so that matches stay readable when the index changes.
        shown: which fields rows show, of each tier; None: no query of it chooses.
        grids: the queries of each tier.
        checked: int32[objects], number of postings read for each object of the batch, the measure of the work done.
    """

    object: Codes
    number: Ints
    tier: Codes
    position: Codes
    ids: tuple[pa.StringArray, ...]
    shown: tuple[Choices | None, ...]
    grids: tuple[Grid, ...]
    checked: Codes

    def __len__(self) -> int:
        return len(self.number)

    def slice(self, first: int, last: int) -> Matches:
        """The pairs from ``first`` up to ``last`` (exclusive), as views."""
        part = slice(first, last)
        pairs = self.object[part], self.number[part], self.tier[part], self.position[part]
        return Matches(*pairs, self.ids, self.shown, self.grids, self.checked)

    def take(self, pairs: Ints) -> Matches:
        """Select pairs; ``checked`` is unchanged."""
        taken = self.object[pairs], self.number[pairs], self.tier[pairs], self.position[pairs]
        return Matches(*taken, self.ids, self.shown, self.grids, self.checked)


@dataclass(frozen=True, slots=True, eq=False)
class _Rows(Batch):
    """Numbered queries: the input of a tier, which can be recovered from the tier."""

    numbers: Ints
    queries: QueryBatch


def _dead(life: Ints, horizon: int) -> Flags:
    dead: Flags = life[:, 1] <= np.maximum(life[:, 0], horizon)
    return dead


def _half_dead_at(life: Ints) -> int:
    """The time at which more than half have ended."""
    deaths = np.where(life[:, 1] <= life[:, 0], _NEVER, life[:, 1])
    middle = len(deaths) // 2
    return int(np.partition(deaths, middle)[middle])


@dataclass(slots=True, eq=False)
class _Tier:
    """An immutable grid and the columns of its queries, in ascending order of their numbers.

    Attributes:
        grid: the queries' regions and keywords.
        numbers: int64[n], ascending.
        life: int64[n, 2], start and end of each lifetime; the only data that changes.
        ids: Arrow utf8[n].
        half: the time at which more than half of the tier has ended, as last computed.
        stale: number of ends that changed since ``half`` was computed.
        shown: which fields the rows of queries show; None: none of them chooses.
        file: name of the tier's file, once written.
        changed: positions whose end differs from the one in the file, in the order of the changes.
        noted: how many of ``changed`` are in overlays.
    """

    grid: Grid
    numbers: Ints
    life: Ints
    ids: pa.StringArray
    half: int
    stale: int = 0
    shown: Choices | None = None
    file: str | None = None
    changed: list[Ints] = field(default_factory=list)
    noted: int = 0

    def __len__(self) -> int:
        return len(self.numbers)

    @classmethod
    def build(cls, space: Space, rows: _Rows, frequencies: TermFrequencies) -> _Tier:
        queries = rows.queries
        life = np.column_stack([queries.t, queries.t + queries.duration])
        grid = build_grid(space, queries.regions, queries.keywords, frequencies.of)
        return cls(grid, rows.numbers, life, queries.ids, _half_dead_at(life), shown=Choices.among(grid))

    def rows(self, horizon: int) -> _Rows:
        """The queries that have not ended by ``horizon``, with lifetimes shortened by cancellations."""
        n, dead = len(self), _dead(self.life, horizon)
        start, duration = self.life[:, 0].copy(), self.life[:, 1] - self.life[:, 0]
        code, absent, k = np.full(n, _CRQ, np.int8), np.full(n, -1), np.zeros(n, np.int32)
        place, grid = np.zeros((n, 2)), self.grid
        times = start, duration, absent, absent
        queries = QueryBatch(self.ids, code, *times, k, place, grid.regions, grid.keywords, nobody(n), nobody(n))
        rows = _Rows(self.numbers, queries)
        return rows.take(np.flatnonzero(~dead)) if dead.any() else rows

    def find(self, numbers: Ints) -> tuple[Ints, Flags]:
        """Position of each number, and whether it is in the tier; dropped queries are not."""
        positions = np.minimum(np.searchsorted(self.numbers, numbers), len(self) - 1)
        here: Flags = (self.numbers[positions] == numbers) & (self.life[positions, 1] != _NEVER)
        return positions, here

    def end_at(self, numbers: Ints, ends: Ints) -> None:
        """Advance the ends of the queries that are in the tier."""
        positions, here = self.find(numbers)
        positions, ends = positions[here], ends[here]
        earlier = ends < self.life[positions, 1]
        if earlier.any():
            np.minimum.at(self.life[:, 1], positions[earlier], ends[earlier])
            self.changed.append(positions[earlier])
            self.stale += int(earlier.sum())
            if self.stale > len(self) // 16:
                self.half, self.stale = _half_dead_at(self.life), 0

    def note(self) -> Ints:
        """Positions whose end has changed since the last call, ascending."""
        new, self.noted = self.changed[self.noted :], len(self.changed)
        return np.unique(np.concatenate(new)) if new else np.empty(0, np.int64)

    def save(self, write: WriteFile) -> str:
        if self.file is None:
            arrays, meta = self.grid.to_arrays()
            offsets, data = from_arrow(self.ids)
            arrays |= {"numbers": self.numbers, "life": self.life, "id_offsets": offsets, "id_data": data}
            self.file, self.changed, self.noted = write("crq", arrays, meta), [], 0
        return self.file

    @classmethod
    def load(cls, space: Space, entry: Manifest, read: ReadFile) -> _Tier:
        arrays, meta = read(entry["file"])
        grid = grid_from_arrays(space, arrays, meta)
        ids = to_arrow(arrays["id_offsets"], arrays["id_data"])
        own = grid, arrays["numbers"], arrays["life"], ids, entry["half"], entry["stale"]
        return cls(*own, Choices.among(grid), entry["file"])


@kernel
def _gather(
    starts: Ints,
    queries: Codes,
    numbers: Ints,
    tier: int,
    cursor: Ints,
    object_: Codes,
    number: Ints,
    tiers: Codes,
    position: Codes,
) -> bool:
    """Append one tier's matches to those of each object; return whether the numbers still ascend."""
    ascending = True
    for o in range(len(starts) - 1):
        at = cursor[o]
        for i in range(starts[o], starts[o + 1]):
            value = numbers[queries[i]]
            object_[at], number[at], tiers[at], position[at] = o, value, tier, queries[i]
            if at > 0 and object_[at - 1] == o and number[at - 1] > value:
                ascending = False
            at += 1
        cursor[o] = at
    return ascending


class ContinuousRangeIndex(MovableIndex):
    """Continuous range-keyword queries with lifetimes; see the module.

    Args:
        space: the space of objects and regions.
        tiering: sizes of the internal tiers; they affect speed and pauses, never matches.
    """

    def __init__(self, space: Space, tiering: Tiering = DEFAULT_TIERING) -> None:
        self.space = space
        self._tiering = tiering
        self._tiers: list[_Tier] = []
        self._tail: list[_Rows] = []
        self._tail_size = 0
        self._tail_blocks = 0
        self._tail_ends: list[tuple[Ints, Ints]] = []
        self._horizon = _NEVER
        self._frequencies = TermFrequencies()
        self._overlays: list[str] = []
        self._sampled, self._since, self._work = 0, 0, _SAMPLE_WORK  # the first batch is one of the sample
        self._tested = dict[str, int]()

    def __len__(self) -> int:
        """Number of present and future queries: end later than start and than the last :meth:`expire`. O(n)."""
        self._flush()
        return sum(int((~_dead(tier.life, self._horizon)).sum()) for tier in self._tiers)

    @property
    def tiers(self) -> list[int]:
        """Sizes of the tiers, oldest first, including ended queries."""
        return [len(tier) for tier in self._tiers]

    @property
    def nbytes(self) -> int:
        """Memory of the tiers."""
        return sum(tier.grid.nbytes + tier.numbers.nbytes + tier.life.nbytes + tier.ids.nbytes for tier in self._tiers)

    def register(self, numbers: Ints, queries: QueryBatch) -> None:
        """See :class:`MovableIndex`: objects with ``t <= o.t < t + τ`` match. O(log n) per query.

        Fastest when numbers increase over time.
        """
        rows = _Rows(numbers, replace(queries, keywords=queries.keywords.compact()))
        full = self._tiering.full
        if len(rows) > full:
            for first in range(0, len(rows), full):
                self._add(rows.take(np.arange(first, min(first + full, len(rows)))))
        else:
            self._add(rows)

    def end_at(self, numbers: Ints, t: Ints) -> None:
        """See :class:`MovableIndex`."""
        for tier in self._tiers:
            tier.end_at(numbers, t)
        if self._tail:
            # not future re-registrations: the cancellation may belong to an earlier stay in this slot
            waiting = np.isin(numbers, np.concatenate([rows.numbers for rows in self._tail]))
            self._tail_ends.append((numbers[waiting], t[waiting]))

    def drop(self, numbers: Ints) -> None:
        """See :class:`MovableIndex`."""
        self._flush()  # so that a new registration of the same query in the tail is a separate entry
        for tier in self._tiers:
            tier.end_at(numbers, np.full(len(numbers), _NEVER))

    def known(self, numbers: Ints) -> Flags:
        """See :class:`MovableIndex`."""
        self._flush()
        known = np.zeros(len(numbers), np.bool_)
        for tier in self._tiers:
            positions, here = tier.find(numbers)
            known |= here & ~_dead(tier.life[positions], self._horizon)
        return known

    def continuous(self, now: int) -> tuple[Ints, QueryBatch]:
        """See :class:`MovableIndex`."""
        self._flush()
        parts = [tier.rows(max(now, self._horizon)) for tier in self._tiers]
        if not sum(map(len, parts)):
            return np.empty(0, np.int64), QueryBatch.of([])
        rows = _Rows.concat(parts)
        rows = rows.take(np.argsort(rows.numbers))
        return rows.numbers, replace(rows.queries, keywords=rows.queries.keywords.compact())

    def expire(self, now: int) -> None:
        """Drop queries with ``end <= now``: from now on they match no object, not even an older one."""
        self._horizon = max(self._horizon, now)
        self._flush()
        self._tidy()

    def observe(self, objects: ObjectBatch) -> None:
        """Update term frequencies, by which later tiers are built. This never changes matches."""
        self._frequencies.observe(objects)

    def match(self, objects: ObjectBatch, limit: int = _MATCHES) -> Iterator[tuple[int, Matches]]:
        """All pairs of object and query: o in the region, with all keywords, ``t <= o.t < t + τ``.

        Args:
            objects: see :class:`MovableIndex`.
            limit: maximum number of pairs of a part, unless it consists of one object.

        Yields:
            The position of the part's first object, and the matches of the part, in which objects are numbered from
            that position. The parts cover all objects, in order.
        """
        first, size = 0, len(objects)
        while first < len(objects):
            part = objects.slice(first, min(len(objects), first + size))
            matches = self._match(part, limit if len(part) > 1 else UNLIMITED)
            if matches is None:
                size = max(1, len(part) // 4)
                continue
            self._sample(part, int(matches.checked.sum()))
            yield first, matches
            first += len(part)
            size = max(1, min(4 * len(part), 3 * len(part) * limit // (4 * max(1, len(matches)))))

    def tested(self) -> dict[str, int]:
        """With how many objects queries were compared since this was last asked, estimated.

        Of the :data:`MOST_TESTED` queries with most, by id; under ``""`` the others. Some objects are looked at again
        after so much work that this is little beside it, and stand for those that have come since.
        """
        found, self._tested = self._tested, {}
        return found

    def _sample(self, objects: ObjectBatch, checked: int) -> None:
        """Count the candidates of each query for some of a batch's objects, if it is time for it."""
        n = len(objects)
        self._since, self._work = self._since + n, self._work + checked + _OBJECT_WORK * n
        if self._work < _SAMPLE_WORK:
            return
        size = min(BLOCK, n)
        first = self._sampled * _STRIDE % (n - size + 1)
        some = objects.take(np.arange(first, first + size))
        batch = ProbeBatch.of(self.space, replace(some, terms=some.terms.compact()), self._posted)
        for tier in self._tiers:
            counts = tier.grid.candidates(batch, 0)
            rows = np.flatnonzero(counts)
            total = int(counts[rows].sum())
            if len(rows) > MOST_TESTED:
                rows = rows[np.argpartition(counts[rows], -MOST_TESTED)[-MOST_TESTED:]]
            found = Counter({"": total - int(counts[rows].sum())})
            for name, count in zip(tier.ids.take(pa.array(rows)).to_pylist(), counts[rows].tolist(), strict=True):
                found[name[:_LONGEST_NAME]] += count
            self._add_tested({name: count * self._since // size for name, count in found.items()})
        self._sampled, self._since, self._work = self._sampled + 1, 0, 0

    @property
    def _posted(self) -> tuple[str, ...]:
        return posted_in(tier.grid for tier in self._tiers)

    def _add_tested(self, found: Mapping[str, int]) -> None:
        total = Counter(self._tested)
        total.update(found)
        rest = total.pop("", 0)
        kept = dict(total.most_common(MOST_TESTED))
        rest += total.total() - sum(kept.values())
        self._tested = kept | ({"": rest} if rest else {})

    def _match(self, objects: ObjectBatch, limit: int) -> Matches | None:
        """All matches if there are at most ``limit``; otherwise None."""
        self._flush()
        if not self._tiers or len(objects) == 0:
            none = np.empty(0, np.int32)
            return Matches(none, np.empty(0, np.int64), none, none, (), (), (), np.zeros(len(objects), np.int32))
        batch = ProbeBatch.of(self.space, objects, self._posted)
        of_tiers = []
        for tier in self._tiers:
            matches = tier.grid.probe_within(batch, limit, tier.life, self._horizon)
            if matches is None:
                return None
            limit -= len(matches.queries)
            of_tiers.append(matches)
        if len(of_tiers) == 1:  # already in order
            only, tier = of_tiers[0], self._tiers[0]
            zeros = np.zeros(len(only.queries), np.int32)
            numbers = tier.numbers[only.queries]
            of_tier = (tier.ids,), (tier.shown,), (tier.grid,)
            return Matches(only.objects, numbers, zeros, only.queries, *of_tier, only.checked)
        cursor = np.sum([each.starts[:-1] for each in of_tiers], axis=0)
        m = sum(len(each.queries) for each in of_tiers)
        object_, tiers, position = (np.empty(m, np.int32) for _ in range(3))
        number = np.empty(m, np.int64)
        ascending = True
        for i, (tier, each) in enumerate(zip(self._tiers, of_tiers, strict=True)):
            ascending &= _gather(each.starts, each.queries, tier.numbers, i, cursor, object_, number, tiers, position)
        if not ascending:
            order = np.lexsort((number, object_))
            object_, number = object_[order], number[order]
            tiers, position = tiers[order], position[order]
        ids, shown = (tuple(getattr(tier, name) for tier in self._tiers) for name in ("ids", "shown"))
        checked: Codes = np.add.reduce([each.checked for each in of_tiers], dtype=np.int32)
        grids = tuple(tier.grid for tier in self._tiers)
        return Matches(object_, number, tiers, position, ids, shown, grids, checked)

    def ids_of(self, matches: Matches) -> pa.StringArray:
        """The id of the query of each match."""
        parts, places = [], []
        for tier, ids in enumerate(matches.ids):
            place = np.flatnonzero(matches.tier == tier)
            parts.append(ids.take(pa.array(matches.position[place])))
            places.append(place)
        if len(parts) <= 1:
            return parts[0] if parts else pa.array([], pa.string())
        order = np.empty(len(matches), np.int64)
        order[np.concatenate(places)] = np.arange(len(matches))
        return pa.concat_arrays(parts).take(pa.array(order))

    def keywords_of(self, matches: Matches) -> tuple[TermLists, Codes]:
        """The keyword expressions of the queries of matches, and the one of each match, int32[m]."""
        of, parts, known = np.empty(len(matches), np.int32), [TermLists.empty(0)], 0
        for tier, grid in enumerate(matches.grids):
            place = np.flatnonzero(matches.tier == tier)
            positions, which = np.unique(matches.position[place], return_inverse=True)
            of[place] = known + which
            parts.append(grid.keywords.take(positions).compact())
            known += len(positions)
        return TermLists.concat(parts), of

    def shown_of(self, matches: Matches) -> tuple[Codes, list[tuple[str, ...]]] | None:
        """Which fields the row of each match shows: int32[m], its choice or -1 (all), and the choices; None: all do."""
        if all(each is None for each in matches.shown):
            return None
        choices = list[tuple[str, ...]]()
        of = np.full(len(matches), -1, np.int32)
        for tier, each in enumerate(matches.shown):
            if each is not None:
                place = np.flatnonzero(matches.tier == tier)
                code = each.of[matches.position[place]]
                of[place] = np.where(code < 0, -1, code + len(choices))
                choices += each.choices
        return of, choices

    def id_sizes(self, matches: Matches) -> Codes:
        """Length in bytes of the id of the query of each match, int32[m]."""
        sizes = np.empty(len(matches), np.int32)
        for tier, ids in enumerate(matches.ids):
            place = np.flatnonzero(matches.tier == tier)
            sizes[place] = np.diff(string_view(ids)[0])[matches.position[place]]
        return sizes

    def checkpoint(self, write: WriteFile) -> Manifest:
        """See :mod:`spatialstream.local.state`."""
        self._flush()
        tiers = [{"file": tier.save(write), "half": tier.half, "stale": tier.stale} for tier in self._tiers]
        self._save_ends(write)
        return {
            "tiers": tiers,
            "overlays": list(self._overlays),
            "horizon": self._horizon,
            "frequencies": self._frequencies.checkpoint(write),
        }

    def _save_ends(self, write: WriteFile) -> None:
        """Write an overlay with the changed ends in written tiers; if there are many overlays, one replaces all."""
        if all(tier.noted == len(tier.changed) for tier in self._tiers):
            return
        if len(self._overlays) >= _OVERLAYS:
            self._overlays.clear()
            for tier in self._tiers:
                tier.noted = 0
        changes = [(tier, at) for tier in self._tiers if len(at := tier.note())]
        overlay = {
            "tier": np.repeat(np.arange(len(changes)), [len(at) for _, at in changes]),
            "position": np.concatenate([at for _, at in changes]),
            "end": np.concatenate([tier.life[at, 1] for tier, at in changes]),
        }
        # by tier: a number may be dropped in one tier and registered again in another
        self._overlays.append(write("crq-ends", overlay, {"tiers": [tier.file for tier, _ in changes]}))

    @classmethod
    def restore(
        cls, space: Space, manifest: Manifest, read: ReadFile, tiering: Tiering = DEFAULT_TIERING
    ) -> ContinuousRangeIndex:
        """See :mod:`spatialstream.local.state`."""
        result = cls(space, tiering)
        result._horizon = manifest["horizon"]
        result._frequencies = TermFrequencies.restore(manifest["frequencies"], read)
        result._overlays = list(manifest["overlays"])
        result._tiers = [_Tier.load(space, entry, read) for entry in manifest["tiers"]]
        tiers = {tier.file: tier for tier in result._tiers}
        for name in result._overlays:
            overlay, meta = read(name)
            for i, file in enumerate(meta["tiers"]):
                if (tier := tiers.get(file)) is not None:
                    at, end = (overlay[column][overlay["tier"] == i] for column in ("position", "end"))
                    tier.life[at, 1] = end
                    tier.changed.append(at)
                    tier.noted += 1
        return result

    # ------------------------------------------------------------------------------------------------- tail and tiers

    def _add(self, rows: _Rows) -> None:
        if len(rows) == 0:
            return
        self._tail.append(rows)
        self._tail_size += len(rows)
        if len(self._tail) - self._tail_blocks == _FAN:
            self._tail[self._tail_blocks :] = [_Rows.concat(self._tail[self._tail_blocks :])]
            self._tail_blocks += 1
        if self._tail_size >= self._tiering.tail:
            self._flush()

    def _flush(self) -> None:
        """Turn the tail into a tier."""
        if not self._tail:
            return
        rows = _Rows.concat(self._tail)
        if (np.diff(rows.numbers) < 0).any():
            rows = rows.take(np.argsort(rows.numbers, kind="stable"))
        tier = _Tier.build(self.space, rows, self._frequencies)
        for numbers, ends in self._tail_ends:
            tier.end_at(numbers, ends)
        self._tail, self._tail_size, self._tail_blocks, self._tail_ends = [], 0, 0, []
        self._tiers.append(tier)
        self._tidy()

    def _tidy(self) -> None:
        """Merge and rebuild tiers according to the rules, with at most one large merge."""
        self._tiers = [tier for tier in self._tiers if len(tier)]
        at = len(self._tiers) - 1
        while at >= 0:
            merged = self._group_to_merge(at)
            at -= 1
            if merged is None:
                continue
            first, last = merged
            size = self._rebuild(first, last)
            if size > self._tiering.large:
                return
            at = min(first, len(self._tiers) - 1)

    def _group_to_merge(self, at: int) -> tuple[int, int] | None:
        """The range of tiers [first, last] around ``at`` to merge; None if tier ``at`` needs no merge."""
        size = len(self._tiers[at])
        if at > 0:
            older = len(self._tiers[at - 1])
            rules = self._tiering
            if older + size <= rules.full and older <= max(rules.ratio * size, rules.tail):
                return at - 1, at
        if self._tiers[at].half <= self._horizon:
            return at, at
        return None

    def _rebuild(self, first: int, last: int) -> int:
        rows = _Rows.concat([tier.rows(self._horizon) for tier in self._tiers[first : last + 1]])
        if (np.diff(rows.numbers) < 0).any():
            rows = rows.take(np.argsort(rows.numbers, kind="stable"))
        built = [_Tier.build(self.space, rows, self._frequencies)] if len(rows) else []
        self._tiers[first : last + 1] = built
        return len(rows)


def prepare() -> None:
    """Compile the kernels of this module and of those it uses."""
    index = ContinuousRangeIndex(Space.planar(0.0, 0.0, 1.0, 1.0), Tiering(tail=1, ratio=0))
    said = (("p", 1.0), ("k", "v"))
    objects = ObjectBatch.of([SpatialObject("o", 0, 0.5, 0.5, ("a", "b", "a long word"), said)])
    index.observe(objects)
    for i, keywords in enumerate([(), ("a", "a long word")]):  # two tiers
        query = Query("q", 0, Predicate(Box(0.0, 0.0, 1.0, 1.0), keywords), Everything(), Lifetime(9, True))
        index.register(np.array([i]), QueryBatch.of([query]))
    where = all_of([Test("p", PropertyType.NUMBER, "in", (1.0,)), Test("k", PropertyType.KEYWORD, "in", ("v",))])
    query = Query("q", 0, Predicate(any=(("a",), ("b",)), none=("c",), where=where), Everything(), Lifetime(9, True))
    index.register(np.array([2]), QueryBatch.of([query]))
    list(index.match(objects))  # the first block is one of the sample
