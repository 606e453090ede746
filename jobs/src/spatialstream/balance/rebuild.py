"""Rebuild: an index built from a sample of the live stream, and a mapping that moves few queries (SSTD, 4.1.2 and 5.3).

FG changes the existing tree where necessary. A tree that was built without knowledge of the stream, or for a different
one, is better rebuilt: QTtreeConstruction gets the sampled objects, and J of the sampled queries, among which active
continuous queries do not decay. The new tree has as many leaves as the old one; more, up to the stream's limit, if that
number does not allow an even distribution. Or else its kind and number of leaves are those of a plan
(:mod:`~spatialstream.balance.planner`): kinds of index may follow each other in a stream, because objects stay where
they are, and queries go by the versions of the objects that they look for.

Counts of the old leaves are carried over by routing the sampled objects with both trees: the objects and arrivals of an
old leaf are distributed over new leaves like its sampled objects. Its continuous queries are distributed likewise, by
the sampled queries that concern both leaves. The numbers of queries of the new leaves are those of J, corrected by the
counts of the old leaves.

Leaves are assigned as by FM: Karmarkar and Karp's subsets, assigned to slots so that the fewest queries move. Then
leaves are moved back, one by one, to the slot that already has most of their queries, those that save most first, as
long as no slot's load deviates from the mean by more than :data:`SLACK`. Where the kind of index says itself which
leaves share a slot, as the kd^t-tree does, its subsets are assigned so, and stay together.

Cost: that of Algorithm 1, and O(sampled queries x leaves) for the queries.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spatialstream.balance.fm import assign, full_mapping
from spatialstream.balance.loads import LeafCounts, asked_of, expected, imbalance, slot_loads
from spatialstream.balance.planner import ENOUGH, Plan
from spatialstream.balance.settings import BalanceSettings
from spatialstream.index.base import GlobalIndex
from spatialstream.index.kinds import kind_named
from spatialstream.index.origins import Origins
from spatialstream.index.sample import Sample
from spatialstream.index.statistics import Statistics
from spatialstream.index.version import RoutingVersion
from spatialstream.model.arrays import Codes, Flags, Floats
from spatialstream.model.queries import QueryBatch

__all__ = ["ENOUGH", "SLACK", "Rebuilt", "rebuild", "settle"]

SLACK = 0.1
"""Maximum deviation of a slot's load from the mean, as a fraction of it, when leaves are moved back."""

_EVEN = 1.25
"""Lmax/Lmin that the new leaves should allow, even if λ is larger."""

_CONTINUOUS = 2_000
"""Maximum number of sampled queries for estimating which queries new leaves have in common with old ones."""


@dataclass(frozen=True, slots=True, eq=False)
class Rebuilt:
    """The outcome of a rebuild.

    Attributes:
        index: the new index, with the expected counts and loads of its leaves.
        mapping: int32[n], the slot of each of its leaves.
        origins: the old leaves that they originate from.
    """

    index: GlobalIndex
    mapping: Codes
    origins: Origins


def rebuild(
    version: RoutingVersion,
    counts: LeafCounts,
    sample: Sample,
    statistics: Statistics,
    settings: BalanceSettings,
    plan: Plan | None = None,
) -> Rebuilt:
    """Build an index for the current stream.

    Args:
        version: the active version.
        counts: the counts of its leaves.
        sample: a sample of the stream with at least :data:`ENOUGH` objects.
        statistics: J of the sample.
        settings: λ and the maximum number of leaves.
        plan: the kind of the index, and how many leaves it is to have, exactly if the planner chose it; None: the same
            kind, see the module.
    """
    implementation = kind_named(version.index.kind if plan is None else plan.kind).implementation
    slots, leaves = version.slots, len(version.index.leaves) if plan is None else plan.leaves
    query_rates = asked_of(version.index, counts, statistics)
    before = expected(version.index, statistics)
    while True:
        index, placed = implementation.place(sample.objects, leaves, statistics, slots)
        origins = _origins(version.index, index, sample)
        objects, rate = (origins.carry_objects(each) for each in (counts.objects, counts.rate))
        cells = statistics.cells_of(index.leaves.box)
        now = expected(index, statistics) if statistics.queries.any() else None
        if query_rates is not None:
            now = origins.carry_asked(query_rates, before, expected(index, statistics))
        loads = statistics.workloads(cells, objects, rate, index.coverage(statistics, cells), now)
        if implementation.placed is None:
            mapping = full_mapping(loads, slots, origins, version.mapping, counts.continuous)
        else:
            mapping = assign(placed, np.arange(slots, dtype=np.int32), origins, version.mapping, counts.continuous)
        even = imbalance(slot_loads(loads, mapping, slots)) <= min(_EVEN, settings.imbalance)
        if even or (plan is not None and plan.table) or 4 * leaves > settings.leaves or len(index.leaves) < leaves:
            break
        leaves *= 4
    if implementation.placed is None:
        mapping = settle(mapping, loads, _kept(origins, version, counts.continuous))
    return Rebuilt(index.weighed(objects, loads), mapping, origins)


def settle(mapping: Codes, loads: Floats, kept: Floats) -> Codes:
    """Move leaves to the slots that have most of their continuous queries, as far as balance allows.

    Args:
        mapping: int32[n], the slot of each leaf in a balanced mapping.
        loads: float64[n], the load of each leaf.
        kept: float64[n, slots], the continuous queries of each leaf that each slot already has.

    Returns:
        The slot of each leaf, int32[n]. The load of each slot stays within :data:`SLACK` of the mean, or within the
        range of the loads in ``mapping`` if that is wider.
    """
    slots = kept.shape[1]
    result = mapping.copy()
    totals = slot_loads(loads, result, slots)
    low = min(float(totals.min()), (1.0 - SLACK) * float(totals.mean()))
    high = max(float(totals.max()), (1.0 + SLACK) * float(totals.mean()))
    each = np.arange(len(loads))
    home = kept.argmax(axis=1)
    saved = kept[each, home] - kept[each, mapping]
    order = np.lexsort((each, -saved / np.maximum(loads, 1e-300)))
    waiting, before = order[saved[order] > 0.0].tolist(), -1
    while len(waiting) != before:  # a leaf that moves may make room for another
        before, deferred = len(waiting), []
        for leaf in waiting:
            source, target, load = result[leaf], home[leaf], loads[leaf]
            if totals[source] - load >= low and totals[target] + load <= high:
                totals[source] -= load
                totals[target] += load
                result[leaf] = target
            else:
                deferred.append(leaf)
        waiting = deferred
    return result


def _kept(origins: Origins, version: RoutingVersion, continuous: Floats) -> Floats:
    """Continuous queries of each new leaf (at most all of them) that each slot already has, float64[n, slots]."""
    kept = np.zeros((origins.leaves, version.slots))
    np.add.at(kept, (origins.leaf, version.mapping[origins.source]), origins.queries * continuous[origins.source])
    return kept


def _origins(old: GlobalIndex, new: GlobalIndex, sample: Sample) -> Origins:
    """The origins of new leaves, from sampled objects; for old leaves without any, from the overlap of boxes."""
    shape = len(new.leaves), len(old.leaves)
    weight = sample.counts()[0]
    shared = np.zeros(shape)
    np.add.at(shared, (new.route_objects(sample.objects), old.route_objects(sample.objects)), weight)
    unseen = ~shared.any(axis=0)
    shared[:, unseen] = _overlap(new.leaves.box, old.leaves.box[unseen])
    shared /= shared.sum(axis=0)
    leaf, source = np.nonzero(shared)
    queries = _common(old, new, sample)[leaf, source]
    return Origins(leaf.astype(np.int32), source.astype(np.int32), shared[leaf, source], queries, shape[0])


def _overlap(one: Floats, other: Floats) -> Floats:
    """The areas of overlap of boxes float64[n, 4] and float64[m, 4]: float64[n, m]."""
    low = np.maximum(one[:, np.newaxis, :2], other[np.newaxis, :, :2])
    high = np.minimum(one[:, np.newaxis, 2:], other[np.newaxis, :, 2:])
    result: Floats = np.maximum(high - low, 0.0).prod(axis=2)
    return result


def _common(old: GlobalIndex, new: GlobalIndex, sample: Sample) -> Floats:
    """The fraction of each old leaf's continuous queries that concerns each new leaf, float64[new, old]; 1 if none."""
    queries = sample.continuous()
    queries = queries.take(np.arange(0, len(queries), max(1, -(-len(queries) // _CONTINUOUS))))
    one, other = (_concerned(index, queries) for index in (new, old))
    both: npt.NDArray[np.float32] = one.T.astype(np.float32) @ other.astype(np.float32)
    total = other.sum(axis=0)
    return np.where(total > 0, both / np.maximum(total, 1), 1.0)


def _concerned(index: GlobalIndex, queries: QueryBatch) -> Flags:
    """Whether each query concerns each leaf, bool[queries, leaves]."""
    result = np.zeros((len(queries), len(index.leaves)), np.bool_)
    row, leaf = index.route_queries(queries)
    result[row, leaf] = True
    return result
