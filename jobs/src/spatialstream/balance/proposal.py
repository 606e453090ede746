"""A proposal: a routing version that restores load balance, and the effects of adopting it (SSTD, section 5.1).

Of PM, FM, FG, SM, SH, CM and a rebuild, those that the index's kind has (:mod:`spatialstream.index.kinds`) are tried in
this order, each only if the previous one would not restore balance. If none would, the one that comes closest is
proposed, with a note that says so. A strategy can also be requested by name. If each CKQ is on one slot, PM and FM move
subsets of these too, a rebuild cuts them anew, and the other strategies leave them where they are. A proposal is bound
to the version that it was computed from; its id depends on that version's number, the strategy and the contents of the
new version.

Cost: that of the strategies tried: about 0.1 s each for 1,000 leaves and 16 slots.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from spatialstream.balance.adjusting import adjust
from spatialstream.balance.fm import full_mapping, moved_queries
from spatialstream.balance.loads import LeafCounts, imbalance, leaf_loads, slot_loads
from spatialstream.balance.planner import ENOUGH, MEASURED, Plan, check_sample, plan
from spatialstream.balance.pm import partial_mapping
from spatialstream.balance.query_partition import partition_anew, rebalanced
from spatialstream.balance.rebuild import rebuild
from spatialstream.balance.settings import DKM, SETTLE, BalanceSettings
from spatialstream.index.base import Changes, GlobalIndex
from spatialstream.index.kinds import AUTO, DEFAULT, KINDS, STRATEGIES, kind_named
from spatialstream.index.origins import Origins
from spatialstream.index.query_partition import QueryPartition
from spatialstream.index.sample import Sample
from spatialstream.index.statistics import Statistics
from spatialstream.index.version import RoutingVersion
from spatialstream.model.arrays import Codes, Floats
from spatialstream.model.errors import SettingError

__all__ = ["STRATEGIES", "BalanceSettings", "Moves", "Proposal", "propose", "usable"]

_UNCHANGED = Changes()

_WORTHWHILE = 0.99
"""A version that does not restore balance is proposed only if it lowers Lmax/Lmin (or Lmax) by at least this factor."""


@dataclass(frozen=True, slots=True, eq=False)
class Moves:
    """Leaves whose continuous queries move to another slot; m rows, ascending by (leaf, source).

    Attributes:
        leaf: int32[m], leaf of the new version.
        source: int32[m], the leaf of the previous version that it originates from; the same leaf if the index is
            unchanged.
        old_slot: int32[m], the slot of ``source`` in the previous version.
        new_slot: int32[m], the slot of ``leaf`` in the new version.
        queries: float64[m], estimated number of continuous queries that move.
    """

    leaf: Codes
    source: Codes
    old_slot: Codes
    new_slot: Codes
    queries: Floats

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.leaf)


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """A new routing version and what it changes.

    Attributes:
        id: id of the proposal; equal decisions have equal ids.
        strategy: one of :data:`STRATEGIES`.
        threshold: λ.
        previous: the version that the proposal was computed from.
        version: the proposed version.
        loads_before: float64[leaves of ``previous``], load of each leaf by Eqn 2.
        loads_after: float64[leaves of ``version``], expected load of each leaf.
        origins: the old leaves that the leaves of ``version`` originate from.
        moves: the leaves that change slot.
        changes: what was changed in the index; of a rebuilt index, what it consists of.
        note: a note on the outcome of the strategy; "" if there is none.
        reason: why the planner chose this kind of index, a sentence; "" if it did not choose.
    """

    id: str
    strategy: str
    threshold: float
    previous: RoutingVersion
    version: RoutingVersion
    loads_before: Floats
    loads_after: Floats
    origins: Origins
    moves: Moves
    changes: Changes
    note: str
    reason: str = ""

    @property
    def base(self) -> int:
        """Number of the version that it was computed from; it may be adopted only while that version is active."""
        return self.previous.number

    @property
    def before(self) -> Floats:
        """Current load of each slot, float64[slots]."""
        return slot_loads(self.loads_before, self.previous.mapping, self.previous.slots)

    @property
    def after(self) -> Floats:
        """Expected load of each slot, float64[slots]."""
        return slot_loads(self.loads_after, self.version.mapping, self.version.slots)

    @property
    def imbalance_before(self) -> float:
        """Current Lmax/Lmin."""
        return imbalance(self.before)

    @property
    def imbalance_after(self) -> float:
        """Expected Lmax/Lmin."""
        return imbalance(self.after)

    @property
    def balanced(self) -> bool:
        """Whether the load balance constraint would be satisfied."""
        return self.imbalance_after <= self.threshold

    @property
    def changes_index(self) -> bool:
        """Whether the new version has a different index, not only a different mapping."""
        return self.strategy not in ("PM", "FM")

    @property
    def queries_moved(self) -> float:
        """Continuous queries that move, summed over leaves as in the paper: a query in several counts in each."""
        return float(self.moves.queries.sum())

    def to_record(self) -> dict[str, Any]:
        """The proposal without its arrays of leaves, JSON-serializable; an infinite Lmax/Lmin is None."""
        return {
            "id": self.id,
            "strategy": self.strategy,
            "base": self.base,
            "version": self.version.number,
            "threshold": self.threshold,
            "balanced": self.balanced,
            "imbalance_before": None if math.isinf(self.imbalance_before) else self.imbalance_before,
            "imbalance_after": None if math.isinf(self.imbalance_after) else self.imbalance_after,
            "slot_loads_before": self.before.tolist(),
            "slot_loads_after": self.after.tolist(),
            "leaves_before": len(self.loads_before),
            "leaves_after": len(self.loads_after),
            "leaves_moved": len(np.unique(self.moves.leaf)),
            "queries_moved": self.queries_moved,
            "changes": dict(self.changes.counts),
            "note": self.note,
            "kind": self.version.index.kind,
            "reason": self.reason,
        }


# ----------------------------------------------------------------------------------------------------------- proposing


def propose(
    version: RoutingVersion,
    counts: LeafCounts,
    statistics: Statistics,
    settings: BalanceSettings,
    strategy: str = "auto",
    number: int | None = None,
    sample: Sample | None = None,
    kind: str | None = None,
) -> Proposal | None:
    """Propose a version that restores load balance.

    Args:
        version: the active version.
        counts: the counts of its leaves.
        statistics: J.
        settings: λ, ε and the maximum number of leaves.
        strategy: "auto", or one of the index's strategies, which is then proposed whether or not it is needed or helps.
        number: number of the new version; by default the next one.
        sample: the sample that J was computed from. Without a large enough one, no index is rebuilt; SM, SH and
            CM need some object in it.
        kind: the kind of index that a rebuild makes, or :data:`~spatialstream.index.kinds.AUTO`: the planner chooses
            it; None: the version's.

    Returns:
        The proposal. None if ``strategy`` is "auto" and load is balanced or no strategy improves the balance.

    Raises:
        SettingError: the index does not have the strategy, one is requested that needs a larger sample, or no index of
            the kind can be rebuilt.
        StateError: the counts are not those of the version's leaves.
    """
    if kind is not None and kind != AUTO and not kind_named(kind).adapts:
        adapting = ", ".join(each.name for each in KINDS.values() if each.adapts)
        raise SettingError("index", f"a rebuild makes no index of kind {kind}: {adapting}, or {AUTO}")
    known = _strategies(version, kind)
    if strategy not in ("auto", *known):
        raise SettingError(
            "strategy", f"{strategy!r} is not one of kind {version.index.kind}: auto, {', '.join(known)}"
        )
    number = version.number + 1 if number is None else number
    work = _Attempts(version, counts, statistics, settings, number, sample, kind)
    if strategy != "auto":
        return work.attempt(strategy)
    return work.best()


def _strategies(version: RoutingVersion, kind: str | None) -> list[str]:
    """The strategies of a version's index, and a rebuild into another kind."""
    own = kind_named(version.index.kind).strategies
    return [each for each in STRATEGIES if each in own or (each == "rebuild" and kind is not None)]


class _Attempts:
    """Applies strategies to a version and its counts."""

    def __init__(
        self,
        version: RoutingVersion,
        counts: LeafCounts,
        statistics: Statistics,
        settings: BalanceSettings,
        number: int,
        sample: Sample | None,
        kind: str | None,
    ) -> None:
        self.kind = kind
        self.version, self.counts, self.statistics = version, counts, statistics
        self.settings, self.number, self.sample = settings, number, sample
        self.loads = leaf_loads(version, counts, statistics)

    def best(self) -> Proposal | None:
        """The first proposal that restores balance, else the one that comes closest if it is an improvement."""
        before = slot_loads(self.loads, self.version.mapping, self.version.slots)
        if imbalance(before) <= self.settings.imbalance:
            return None
        tried = []
        for strategy in usable(STRATEGIES, self.version, self.sample, self.kind):
            proposal = self.attempt(strategy)
            if proposal.balanced:
                return proposal
            tried.append(proposal)
        closest = min(tried, key=lambda each: _badness(each.after))
        if not _is_better(closest.after, before):
            return None
        notes = ["no strategy restores balance, and this one comes closest", closest.note]
        return replace(closest, note="; ".join(filter(None, notes)))

    def attempt(self, strategy: str) -> Proposal:
        """The proposal of one strategy."""
        if strategy == "rebuild":
            return self._rebuilt()
        if strategy not in ("PM", "FM"):
            return self._adjusted(strategy)
        old, slots = self.version.mapping, self.version.slots
        same = Origins.same(len(old))
        if strategy == "PM":
            mapping = partial_mapping(self.loads, slots, old, self.counts.continuous)
        else:
            mapping = full_mapping(self.loads, slots, same, old, self.counts.continuous)
        index = self.version.index.weighed(self.counts.objects, self.loads)
        nearest, note = self.version.nearest, ""
        if nearest is not None and self.sample is not None:
            nearest, moved = rebalanced(nearest, self.sample, slots)
            note = _moving(moved)
        return self._proposal(strategy, index, mapping, self.loads, same, note=note, nearest=nearest)

    def _adjusted(self, strategy: str) -> Proposal:
        implementation = kind_named(self.version.index.kind).implementation
        if strategy in implementation.sampled and (self.sample is None or not len(self.sample.objects)):
            raise SettingError("strategy", f"{strategy} needs sampled objects, and there are none; try again later")
        known = self.counts, self.loads, self.statistics, self.settings, self.sample
        done, mapping = adjust(self.version, implementation.adjusters[strategy], *known)
        note = f"the adjustment ended because {done.ended}"
        return self._proposal(strategy, done.index, mapping, done.index.leaves.load, done.origins, done.changes, note)

    def _rebuilt(self) -> Proposal:
        sample = self.sample
        if sample is None or len(sample.objects) < ENOUGH:
            found = 0 if sample is None else len(sample.objects)
            problem = f"a rebuild needs at least {ENOUGH:,} sampled objects, and there are {found:,}"
            raise SettingError("strategy", f"{problem}; try again later")
        planned = self._planned(sample)
        check_sample(_made(self.version, self.kind), sample.objects, sample.queries)
        rebuilt = rebuild(self.version, self.counts, sample, self.statistics, self.settings, planned)
        note = f"from {len(sample.objects):,} objects and {len(sample.queries):,} queries"
        reason = "" if planned is None else planned.reason
        if reason:
            note += f"; {reason}"
        nearest = self.version.nearest
        if nearest is not None:
            nearest, moved = partition_anew(nearest, sample, self.version.slots)
            note += f"; {_moving(moved)}"
        index, changes = rebuilt.index, rebuilt.index.composition()
        given = rebuilt.mapping, index.leaves.load, rebuilt.origins, changes, note, nearest
        return replace(self._proposal("rebuild", index, *given), reason=reason)

    def _planned(self, sample: Sample) -> Plan | None:
        """The kind and number of leaves of a rebuilt index; None: as the version's, see :func:`rebuild`."""
        if self.kind == AUTO:
            placement = SETTLE if self.version.nearest is None else DKM
            costs = MEASURED.of(self.counts.times)
            return plan(sample, self.version.slots, self.settings, costs, nearest=(placement,))
        if self.kind in (None, self.version.index.kind):
            return None
        return Plan(self.kind, len(self.version.index.leaves), "")

    def _proposal(
        self,
        strategy: str,
        index: GlobalIndex,
        mapping: Codes,
        loads: Floats,
        origins: Origins,
        changes: Changes = _UNCHANGED,
        note: str = "",
        nearest: QueryPartition | None = None,
    ) -> Proposal:
        old = self.version.mapping
        version = RoutingVersion(self.number, index, mapping, self.version.slots, nearest or self.version.nearest)
        queries = moved_queries(mapping, origins, old, self.counts.continuous)
        moves = np.flatnonzero(mapping[origins.leaf] != old[origins.source])
        leaf, source = origins.leaf[moves], origins.source[moves]
        return Proposal(
            _identify(self.version.number, strategy, version),
            strategy,
            self.settings.imbalance,
            self.version,
            version,
            self.loads,
            loads,
            origins,
            Moves(leaf, source, old[source], mapping[leaf], queries[moves]),
            changes,
            note,
        )


def usable(
    strategies: Sequence[str], version: RoutingVersion, sample: Sample | None, kind: str | None = None
) -> list[str]:
    """The strategies that can be applied to a version with this sample; ``kind`` as in :func:`propose`."""
    objects = 0 if sample is None else len(sample.objects)
    unavailable = set(STRATEGIES) - set(_strategies(version, kind))
    if objects < ENOUGH:
        unavailable.add("rebuild")
    elif sample is not None:
        made = kind_named(_made(version, kind)).implementation
        if made.lacking(sample.objects, sample.queries):
            unavailable.add("rebuild")
    if not objects:
        unavailable |= kind_named(version.index.kind).implementation.sampled
    return [each for each in strategies if each not in unavailable]


def _moving(part: float) -> str:
    return f"{part:.0%} of the CKQs move"


def _made(version: RoutingVersion, kind: str | None) -> str:
    """The kind of index that a rebuild makes for sure; the default if the planner chooses it."""
    if kind == AUTO:
        return DEFAULT
    return version.index.kind if kind is None else kind


def _badness(slots: Floats) -> tuple[float, float]:
    return imbalance(slots), float(slots.max(initial=0.0))


def _is_better(after: Floats, before: Floats) -> bool:
    """Whether Lmax/Lmin is clearly smaller; if both are infinite, whether Lmax is."""
    one, other = _badness(after), _badness(before)
    if math.isinf(one[0]) and math.isinf(other[0]):
        return one[1] <= _WORTHWHILE * other[1]
    return one[0] <= _WORTHWHILE * other[0]


def _identify(base: int, strategy: str, version: RoutingVersion) -> str:
    """A short hash of the base version's number, the strategy, and the routing of the new version."""
    digest = hashlib.blake2b(f"{base} {strategy} {version.index.kind}".encode(), digest_size=6)
    arrays, _ = version.index.to_arrays()
    for name in sorted(arrays):
        if not name.startswith("leaves."):  # current figures, which do not affect routing
            digest.update(name.encode() + np.ascontiguousarray(arrays[name]).tobytes())
    digest.update(version.mapping.tobytes())
    if version.nearest is not None:
        for array in version.nearest.to_arrays().values():
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
