"""The planner: which kind of global index, of how many leaves, a stream wants, and why.

Kinds differ in how they divide space, and a stream's objects and queries decide which division pays. The planner tries:
it builds each kind that adapts to a sample, with 1, 4, 16 and 64 leaves a slot, from one half of a sample of the stream
and routes the other half with it; and then the other way round, because which leaves share a slot is partly chance. The
halves follow from the records' ids, so an index is judged by records that it was not built from. What comes to each
slot is counted:

- ``objects``; ``copies`` of others, if the index or the placement of CKQs delivers any; and ``entries``: registrations
  of continuous queries, one for each slot that they are registered at; like objects they count less the longer ago they
  were;
- ``matches``: pairs of a continuous query and an object of its region that has the rarest word of one of the query's
  groups, at the object's slot, or in equal parts at the slots that have it; ``found``: the same of snapshot queries;
- ``candidates``: pairs of a CKQ and an object near its circle, that to its k-th object, with the rarest word of one of
  its groups;
- ``asks``: snapshot queries, one for each slot that they are sent to; an SKQ to the nearest leaf's, and to those that
  the circle to its k-th object reaches.

Where CKQs are (:data:`~spatialstream.balance.settings.NEAREST`) decides which slot has a candidate: those of CKQs that
settle are at the object's home, and all slots register them; with ``dkm`` they are at the CKQ's own slot, which alone
registers it, and :mod:`.placed_queries` tells what is copied. Both are tried, if both may be chosen.

Each costs a time (:class:`Costs`). A batch takes as long as its slowest slot: of all that were tried, the one whose
slowest slot needs least time is best. What is within :data:`TIE` of it is as good: of these one whose CKQs settle is
taken first, then a QT-tree before other kinds, and then fewer leaves.

The result depends on the sample alone, not on the order of its records.

Cost: that of building each index, O(sampled records) to route, and that of :mod:`~spatialstream.balance.word_join`; for
``dkm`` also that of two partitions of CKQs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any

import numpy as np

from spatialstream.balance.attribution import UnitTimes
from spatialstream.balance.placed_queries import PlacedQueries
from spatialstream.balance.query_partition import dealt_evenly, sampled_partition
from spatialstream.balance.settings import DKM, NEAREST, SETTLE, BalanceSettings
from spatialstream.balance.word_join import WordJoin
from spatialstream.index.base import GlobalIndex
from spatialstream.index.kinds import AUTO, DEFAULT, KINDS, Kind, kind_named
from spatialstream.index.query_partition import QueryPartition
from spatialstream.index.sample import Sample
from spatialstream.index.statistics import Statistics
from spatialstream.index.version import RoutingVersion
from spatialstream.model.arrays import Codes, Floats, Ints, Words
from spatialstream.model.errors import SettingError
from spatialstream.model.hashing import hash_strings
from spatialstream.model.kinds import IS_CONTINUOUS, Route, having
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import Lifetime, Predicate, Query, QueryBatch, TopTerms
from spatialstream.model.space import Space
from spatialstream.model.terms import TermLists

__all__ = ["ENOUGH", "MEASURED", "TIE", "Costs", "Option", "Plan", "check_sample", "first_plan", "plan", "whole"]

ENOUGH = 1_000
"""Minimum number of sampled objects."""

TIE = 0.1
"""What needs at most this much more time than the best, as a fraction, is as good."""

LEAVES = (1, 4, 16, 64)
"""Leaves by slot that are tried."""

_NEVER = 1e15
"""Decay time of a sample in which nothing decays, in ms."""

_NEAREST_QUERIES = 500
"""Maximum number of sampled SKQs whose circles are routed; those chosen stand for the others."""

_NEAREST = having(lambda kind: kind.route is Route.NEAREST)
_EVERYWHERE = having(lambda kind: kind.route is Route.EVERYWHERE)


@dataclass(frozen=True, slots=True)
class Costs:
    """The time that a slot takes for what comes to it, in microseconds each; see the module.

    Attributes:
        object: of an object: to receive it, store it, and look for continuous queries.
        copy: of a copy of an object, which is not stored.
        entry: of registering a continuous query.
        match: of a pair of a continuous query and an object of its region.
        candidate: of a pair of a CKQ and an object near its circle with its word.
        ask: of a snapshot query, without what it finds.
        found: of an object that a snapshot query finds.
    """

    object: float
    copy: float
    entry: float
    match: float
    candidate: float
    ask: float
    found: float

    def of(self, times: UnitTimes) -> Costs:
        """These costs, but those of a live stream where its slots measured them.

        A snapshot query's time was measured with what it found.
        """
        one, match = 1e6 * times.object or self.object, 1e6 * times.match or self.match
        return replace(
            self,
            object=one,
            copy=self.copy * (one / self.object),
            match=match,
            candidate=self.candidate * (match / self.match),
            ask=1e6 * times.ask or self.ask,
            found=0.0 if times.ask else self.found,
        )


MEASURED = Costs(object=1.83, copy=0.4, entry=0.56, match=0.074, candidate=0.9, ask=55.5, found=0.28)
"""What ``python -m tests.benchmarks.bench_planner --costs`` measured on one core, but for two that were set by hand.

Later runs of it, on another machine, had them as parts of an object's time: ``copy`` was 0.17 of it twice (0.31), and
is rounded up, since sending is not in it; ``candidate`` was 0.4 and 0.6 of it (0.7 and 1.1)."""


@dataclass(frozen=True, slots=True)
class Option:
    """An index that was tried, and what comes to its slowest slot, of all that the sample stands for.

    Figures are the mean of two tries, see the module.

    Attributes:
        kind: its kind.
        nearest: where CKQs are.
        wanted: leaves that it was built for.
        leaves: leaves that it has.
        seconds: time of the slowest slot.
        mean: mean time of the slots, in seconds.
        objects, copies, entries, matches, candidates, asks, found: what comes to the slowest slot.
    """

    kind: str
    nearest: str
    wanted: int
    leaves: int
    seconds: float
    mean: float
    objects: float
    copies: float
    entries: float
    matches: float
    candidates: float
    asks: float
    found: float


@dataclass(frozen=True, slots=True)
class Plan:
    """A choice.

    Attributes:
        kind: the kind of index.
        leaves: about how many leaves it is to have.
        reason: why, as a sentence without its full stop.
        table: what was tried, by kind, then by leaves, then by placement of CKQs.
        nearest: where CKQs are to be.
    """

    kind: str
    leaves: int
    reason: str
    table: tuple[Option, ...] = ()
    nearest: str = SETTLE

    def to_record(self) -> dict[str, Any]:
        """The plan, JSON-serializable."""
        return asdict(self)


def plan(
    sample: Sample,
    slots: int,
    settings: BalanceSettings,
    costs: Costs = MEASURED,
    nearest: Sequence[str] = (SETTLE,),
) -> Plan:
    """Choose the kind of index, and how many leaves it is to have.

    Args:
        sample: a sample of the stream with at least :data:`ENOUGH` objects.
        slots: number of slots.
        settings: the maximum number of leaves.
        costs: times of this stream or machine.
        nearest: where CKQs may be: :data:`~spatialstream.balance.settings.SETTLE`,
            :data:`~spatialstream.balance.settings.DKM` or both. Of both, ``dkm`` is tried only if the sample has enough
            CKQs for a partition.

    Raises:
        SettingError: the sample has too few objects.
    """
    if len(sample.objects) < ENOUGH:
        raise SettingError("sample", f"a plan needs at least {ENOUGH:,} objects, and there are {len(sample.objects):,}")
    halves = _halves(sample)
    placements = [_placements(half, slots, nearest) for half in halves]
    tried = [name for name in NEAREST if all(name in each for each in placements)]
    ways = [
        (half, _statistics(half), _Trial(judge, slots, costs, {name: made[name] for name in tried}))
        for half, judge, made in zip(halves, reversed(halves), placements, strict=True)
    ]
    table = []
    for kind in _kinds(sample):
        for leaves in _leaves(slots, settings.leaves):
            place = kind.implementation.place
            found = [trial.counts(*place(half.objects, leaves, statistics, slots)) for half, statistics, trial in ways]
            count = round(sum(each for each, _ in found) / len(found))
            for name in tried:
                figures = np.mean([figures[name] for _, figures in found], axis=0).tolist()
                table.append(Option(kind.name, name, leaves, count, *figures))
    return _decided(tuple(table))


def _placements(half: Sample, slots: int, nearest: Sequence[str]) -> dict[str, QueryPartition | None]:
    """The placements of CKQs that may be chosen, each with its partition, if it has one, by a half of the sample."""
    made: dict[str, QueryPartition | None] = {SETTLE: None} if SETTLE in nearest else {}
    if DKM in nearest:
        found = sampled_partition(half.space, half.objects, half.counts()[0], half.queries, slots)
        if found is not None or not made:
            made[DKM] = dealt_evenly(half.space, slots) if found is None else found
    return made


def _statistics(half: Sample) -> Statistics:
    """J of a half, with one STQ over the whole space, which tells leaves apart that no query concerns.

    That of a new stream's index has one too (:func:`spatialstream.index.version.build`).
    """
    everywhere = QueryBatch.of([Query("", half.now, Predicate(), TopTerms(1), Lifetime(0))])
    weights = half.weights[0], np.append(half.weights[1], 1.0)
    return replace(half, queries=QueryBatch.concat([half.queries, everywhere]), weights=weights).statistics()


def first_plan(
    kind: str,
    leaves: int,
    slots: int,
    space: Space,
    objects: ObjectBatch,
    queries: QueryBatch,
    each: tuple[float, float] = (1.0, 1.0),
    settings: BalanceSettings | None = None,
    nearest: str = SETTLE,
) -> Plan:
    """The index of a new stream or run: the one that is asked for, or the planner's choice.

    Args:
        kind: a kind, or :data:`~spatialstream.index.kinds.AUTO`. Where nothing is known at all, a kind that needs a
            sample waits for a rebuild.
        leaves: number of leaves, unless the planner chooses.
        slots: number of slots.
        space: the stream's space.
        objects: objects like those to come; with fewer than :data:`ENOUGH` of them AUTO is the default kind.
        queries: queries like those to come.
        each: how many objects each object stands for, and how many queries each query.
        settings: the maximum number of leaves.
        nearest: where its CKQs are, of :data:`~spatialstream.balance.settings.NEAREST`.

    Raises:
        SettingError: the objects and queries lack what an index of the kind needs.
    """
    if kind != AUTO:
        lacking = _lacking(kind, objects, queries)
        if lacking and not len(objects) and not len(queries):
            return Plan(DEFAULT, leaves, f"{kind} needs {lacking}: {DEFAULT} until a rebuild")
        check_sample(kind, objects, queries)
        return Plan(kind, leaves, "")
    if len(objects) < ENOUGH:
        return Plan(
            DEFAULT, leaves, f"a plan needs at least {ENOUGH:,} objects, and there are {len(objects):,}: {DEFAULT}"
        )
    placement = DKM if nearest == DKM else SETTLE
    return plan(whole(space, objects, queries, each), slots, settings or BalanceSettings(), nearest=(placement,))


def check_sample(kind: str, objects: ObjectBatch, queries: QueryBatch) -> None:
    """Refuse a sample that lacks what an index of a kind needs.

    Raises:
        SettingError: it does; the message says what is missing.
    """
    if lacking := _lacking(kind, objects, queries):
        raise SettingError("index", f"{kind} needs {lacking}")


def _lacking(kind: str, objects: ObjectBatch, queries: QueryBatch) -> str:
    return kind_named(kind).implementation.lacking(objects, queries)


def whole(space: Space, objects: ObjectBatch, queries: QueryBatch, each: tuple[float, float] = (1.0, 1.0)) -> Sample:
    """A sample of a stream of which all is known, so that what is old counts as much as what is new.

    Args:
        space: its space.
        objects: objects of the stream, or some of them.
        queries: its queries, likewise.
        each: how many objects each object stands for, and how many queries each query.
    """
    weights = np.full(len(objects), each[0]), np.full(len(queries), each[1])
    span = max(float(np.ptp(objects.t)), 1.0) if len(objects) else 1.0
    return Sample.of(space, objects, queries, span, weights, memory=_NEVER)


def _kinds(sample: Sample) -> Iterator[Kind]:
    """The kinds that adapt to a sample which has what they need; a uniform grid is a baseline, never rebuilt into."""
    given = sample.objects, sample.queries
    return (kind for kind in KINDS.values() if kind.adapts and not kind.implementation.lacking(*given))


def _leaves(slots: int, most: int) -> list[int]:
    """The numbers of leaves that are tried."""
    return [slots * each for each in LEAVES if slots * each <= most] or [most]


def _decided(table: tuple[Option, ...]) -> Plan:
    best = min(table, key=_time)
    equal = [each for each in table if each.seconds <= (1.0 + TIE) * best.seconds]
    taken = min(equal, key=lambda each: (*_preferred(each), each.leaves, each.seconds, each.wanted))
    alike = [each for each in table if each.nearest == taken.nearest and each is not taken]
    others = [each for each in alike if each.kind != taken.kind] or alike
    placed = [each for each in table if each.nearest != taken.nearest]
    compared = [min(those, key=_time) for those in (others, placed) if those]
    return Plan(taken.kind, taken.wanted, _reason(taken, compared, best), table, taken.nearest)


def _preferred(option: Option) -> tuple[bool, bool]:
    return option.nearest != SETTLE, option.kind != DEFAULT


def _time(option: Option) -> tuple[float, bool, bool, int]:
    return option.seconds, *_preferred(option), option.leaves


def _reason(taken: Option, compared: Sequence[Option], best: Option) -> str:
    both = any(each.nearest != taken.nearest for each in compared)
    text = f"the slowest slot of {_named(taken, both)} needs {taken.seconds:.3g} s for what the sample stands for"
    for other in compared:
        text += f", that of {_named(other, both)} {other.seconds:.3g} s"
    if taken is not best:
        whom = "that" if best is compared[-1] else f"the least, {best.seconds:.3g} s of {_named(best, both)}"
        first = f"{SETTLE} is taken first, then a QT-tree" if both else "a QT-tree is taken first"
        text += f"; within {TIE:.0%} of {whom}, {first}, then fewer leaves"
    return text


def _named(option: Option, both: bool) -> str:
    leaves = f"{option.leaves:,} leaves" if option.leaves != 1 else "1 leaf"
    return f"{option.kind} with {leaves}{f' and {option.nearest}' if both else ''}"


class _Trial:
    """Routes one half of a sample with indexes that were built from the other.

    What does not depend on an index is found once.
    """

    def __init__(
        self, judge: Sample, slots: int, costs: Costs, placements: Mapping[str, QueryPartition | None]
    ) -> None:
        self._slots, self._costs, self._objects = slots, costs, judge.objects
        self._weights, query_weights = judge.counts()
        code, join = judge.queries.code, WordJoin(judge.space, judge.objects, self._weights)

        def some(chosen: Any) -> tuple[QueryBatch, Floats]:
            rows = np.flatnonzero(chosen)
            return judge.queries.take(rows), query_weights[rows]

        def registered(queries: QueryBatch, weights: Floats) -> Floats:
            ago = np.maximum(np.minimum(queries.duration, judge.now - queries.t), 0)
            return weights * np.exp(-ago / judge.memory)  # counts() do not decay before the end

        regional, weights = some(IS_CONTINUOUS[code] & ~_EVERYWHERE[code])
        self._regional = regional, registered(regional, weights)
        self._matches = join.matches(regional, weights)
        self._ckqs, weights = some(_EVERYWHERE[code])
        self._registered = registered(self._ckqs, weights)
        self._candidates, of_ckq = join.pairs(replace(self._ckqs, regions=join.reach(self._ckqs)), weights)
        self._placed = {
            name: None if partition is None else self._placement(partition, weights, of_ckq)
            for name, partition in placements.items()
        }
        self._asked = some(~IS_CONTINUOUS[code] & ~_NEAREST[code])
        self._found = join.matches(*self._asked)
        nearest, weights = some(_NEAREST[code])
        stride = max(1, -(-len(nearest) // _NEAREST_QUERIES))
        rows = np.arange(0, len(nearest), stride)
        self._nearest, self._nearest_weight = nearest.take(rows), weights[rows] * len(nearest) / max(len(rows), 1)
        self._circles = join.reach(self._nearest)

    def _placement(self, partition: QueryPartition, weights: Floats, of_ckq: Floats) -> tuple[Floats, Floats, Floats]:
        """Of each slot the entries and candidates of CKQs that are on one each; and how likely it gets each object."""
        placed = PlacedQueries.of(partition, self._ckqs, weights, self._objects, self._slots)
        entries, candidates = (
            np.bincount(placed.slot, each, self._slots).astype(np.float64) for each in (self._registered, of_ckq)
        )
        return entries, candidates, placed.copied

    def counts(self, index: GlobalIndex, mapping: Codes) -> tuple[int, dict[str, Floats]]:
        """The leaves of an index, and for each placement of CKQs the figures of an :class:`Option` from ``seconds`` on.

        Args:
            index: the index.
            mapping: int32[n], the slot of each leaf.
        """
        slots, n = self._slots, len(self._objects)
        version = RoutingVersion(0, index, mapping, slots)
        row, _, slot = version.deliver(self._objects)
        objects, at_home, found = (
            np.bincount(slot[:n], each, slots).astype(np.float64)
            for each in (self._weights, self._candidates, self._found)
        )
        copied = np.bincount(slot[n:], self._weights[row[n:]], slots).astype(np.float64)
        matches = np.bincount(slot, (self._matches / np.bincount(row, minlength=n))[row], slots)
        regional = self._sent(version, *self._regional)
        asks = self._sent(version, *self._asked) + self._reached(version)
        result = {}
        for name, placed in self._placed.items():
            if placed is None:
                entries, candidates, copies = self._sent(version, self._ckqs, self._registered), at_home, copied
            else:
                entries, candidates, gets = placed
                others = gets.copy()
                others[row, slot] = 0.0  # what is there anyway
                copies = copied + self._weights @ others
            columns = np.stack([objects, copies, regional + entries, matches, candidates, asks, found])
            seconds = 1e-6 * np.array(astuple(self._costs)) @ columns
            slowest = int(seconds.argmax())
            result[name] = np.array([seconds[slowest], seconds.mean(), *columns[:, slowest]])
        return len(index.leaves), result

    def _sent(self, version: RoutingVersion, queries: QueryBatch, weights: Floats) -> Floats:
        row, slot = version.route_queries(queries)
        return np.bincount(slot, weights[row], self._slots).astype(np.float64)

    def _reached(self, version: RoutingVersion) -> Floats:
        """SKQs by the slots that are asked, in either phase."""
        row, leaf = version.index.route_regions(self._circles)
        row = np.concatenate([row, np.arange(len(self._nearest), dtype=np.int32)])
        leaf = np.concatenate([leaf, version.index.nearest_leaves(self._nearest.at)])
        pairs = np.unique(row.astype(np.int64) * self._slots + version.mapping[leaf])
        row, slot = np.divmod(pairs, self._slots)
        return np.bincount(slot, self._nearest_weight[row], self._slots).astype(np.float64)


# ------------------------------------------------------------------------------------------------------------- halves


def _halves(sample: Sample) -> tuple[Sample, Sample]:
    """The halves of a sample by the ids of its records, in an order that follows from the records.

    Each stands for all of the stream.
    """
    objects, queries = sample.objects, sample.queries
    by_id = hash_strings(objects.ids), hash_strings(queries.ids)
    shape = queries.regions.shape
    orders = (
        np.lexsort((_words(objects.terms), objects.y, objects.x, by_id[0], objects.t)),
        np.lexsort((_words(queries.keywords), *shape.T, queries.k, queries.code, by_id[1], queries.t)),
    )
    one, other = (
        [order[(hashes[order] & np.uint64(1)) == np.uint64(half)] for order, hashes in zip(orders, by_id, strict=True)]
        for half in (0, 1)
    )
    return _part(sample, *one), _part(sample, *other)


def _part(sample: Sample, objects: Ints, queries: Ints) -> Sample:
    """Some of the records, each of which stands for those that are left out too."""
    some, asked = sample.objects.take(objects), sample.queries.take(queries)
    scales = [_scale(count, rows) for count, rows in zip(sample.counts(), (objects, queries), strict=True)]
    return replace(
        sample,
        objects=replace(some, terms=_sorted(some.terms)),
        queries=replace(asked, keywords=_sorted(asked.keywords)),
        weights=(sample.weights[0][objects] * scales[0], sample.weights[1][queries] * scales[1]),
        least=(sample.least[0] + math.log(scales[0]), sample.least[1] + math.log(scales[1])),
    )


def _scale(counts: Floats, rows: Ints) -> float:
    """By how much more than some records stand for all records do; 1 if they stand for nothing."""
    kept = math.fsum(counts[rows].tolist())
    return math.fsum(counts.tolist()) / kept if kept > 0.0 else 1.0


def _sorted(terms: TermLists) -> TermLists:
    """The same sets, with a vocabulary in the order of its words' hashes, so that codes follow from the words."""
    terms = terms.compact()
    order = np.argsort(hash_strings(terms.vocabulary), kind="stable")
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    return TermLists(terms.offsets, place[terms.codes], terms.vocabulary.take(order))


def _words(terms: TermLists) -> Words:
    """A number that follows from the words of each set, uint64[n]."""
    owner = np.repeat(np.arange(len(terms)), np.diff(terms.offsets))
    result = np.zeros(len(terms), np.uint64)
    np.add.at(result, owner, hash_strings(terms.vocabulary)[terms.codes])
    return result
