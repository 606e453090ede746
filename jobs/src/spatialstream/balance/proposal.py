"""A proposal: the routing version that would restore load balance, and what adopting it does (SSTD, section 5.1).

PM is tried first, then FM, then FG, then a rebuild, each only if the one before would not restore balance. If none
would, the one that comes closest is proposed, and says so. A strategy can also be asked for by name. A proposal is
bound to the version that it was computed from; its id depends on that version's number, the strategy and what the new
version looks like.

Cost: that of the strategies that are tried: about 0.1 s for each on 1,000 leaves and 16 slots.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from spatialstream.balance.explanation import explanation
from spatialstream.balance.fg import adjust
from spatialstream.balance.fm import full_mapping, moved_queries
from spatialstream.balance.loads import LeafCounts, imbalance, leaf_loads, slot_loads
from spatialstream.balance.pm import partial_mapping
from spatialstream.balance.rebuild import ENOUGH, rebuild
from spatialstream.balance.settings import BalanceSettings
from spatialstream.index.adjustment import Origins
from spatialstream.index.base import GlobalIndex
from spatialstream.index.qttree import SPATIAL, TEXTUAL, QTTree
from spatialstream.index.sample import Sample
from spatialstream.index.statistics import Statistics
from spatialstream.index.version import RoutingVersion
from spatialstream.model.arrays import Codes, Floats
from spatialstream.model.errors import SettingError

__all__ = ["STRATEGIES", "BalanceSettings", "Moves", "Proposal", "propose", "usable"]

STRATEGIES = ("PM", "FM", "FG", "rebuild")
"""The paper's three and a tree built anew, in the order in which they are tried."""

_WORTHWHILE = 0.99
"""A version that does not restore balance is proposed only if it lowers Lmax/Lmin (or Lmax) at least to this share."""


@dataclass(frozen=True, slots=True, eq=False)
class Moves:
    """Leaves whose continuous queries move to another slot; m rows, ascending by (leaf, source).

    Attributes:
        leaf: int32[m], leaf of the new version.
        source: int32[m], the leaf of the version before that it comes from: itself, unless the tree was adjusted.
        old_slot: int32[m], the slot of ``source`` before.
        new_slot: int32[m], the slot of ``leaf``.
        queries: float64[m], continuous queries that move, as estimated from the counts.
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
        id: names the proposal; the same decision has the same id.
        strategy: PM, FM, FG or rebuild.
        threshold: λ.
        previous: the version that it was computed from.
        version: the proposed version.
        loads_before: float64[leaves of ``previous``], load of each leaf by Eqn 2.
        loads_after: float64[leaves of ``version``], what is expected of each.
        origins: from which leaves those of ``version`` come.
        moves: what moves.
        spatial, textual: leaves that were split by space and by text, or of a tree built anew its nodes.
        merges: nodes whose four leaves were merged into one.
        note: what there is to say about how the strategy ended; "" if nothing.
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
    spatial: int
    textual: int
    merges: int
    note: str

    @property
    def base(self) -> int:
        """Number of the version that it was computed from; it may be adopted only while that is the active one."""
        return self.previous.number

    @property
    def before(self) -> Floats:
        """Load of each slot before, float64[slots]."""
        return slot_loads(self.loads_before, self.previous.mapping, self.previous.slots)

    @property
    def after(self) -> Floats:
        """Load of each slot that is expected, float64[slots]."""
        return slot_loads(self.loads_after, self.version.mapping, self.version.slots)

    @property
    def imbalance_before(self) -> float:
        """Lmax/Lmin before."""
        return imbalance(self.before)

    @property
    def imbalance_after(self) -> float:
        """Lmax/Lmin that is expected."""
        return imbalance(self.after)

    @property
    def balanced(self) -> bool:
        """Whether the load balance constraint would be satisfied."""
        return self.imbalance_after <= self.threshold

    @property
    def changes_tree(self) -> bool:
        """Whether the new version has another tree."""
        return self.strategy in ("FG", "rebuild")

    @property
    def queries_moved(self) -> float:
        """Continuous queries that move, added up over leaves as in the paper; one that is in several counts in each."""
        return float(self.moves.queries.sum())

    def explain(self) -> str:
        """What would be done and what it would bring, as text for a terminal."""
        return explanation(self)

    def to_record(self) -> dict[str, Any]:
        """The proposal without its arrays of leaves, JSON-able; an infinite Lmax/Lmin is None."""
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
            "spatial_splits": self.spatial,
            "textual_splits": self.textual,
            "merges": self.merges,
            "note": self.note,
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
) -> Proposal | None:
    """The version that should follow, if one should.

    Args:
        version: the active version.
        counts: what was counted in its leaves.
        statistics: J.
        settings: λ, ε and the largest number of leaves.
        strategy: "auto", or one of :data:`STRATEGIES`, which is then proposed whether or not it is needed or helps.
        number: number of the new version; by default the next one.
        sample: what J was made from; without it, or with too small a one, no tree is built anew.

    Returns:
        The proposal. None if ``strategy`` is "auto" and there is no load imbalance, or nothing that lowers it.

    Raises:
        SettingError: the strategy is unknown, FG is asked for and the index is no QT-tree, or a rebuild, and there is
            no large enough sample.
        StateError: the counts are not those of the version's leaves.
    """
    if strategy not in ("auto", *STRATEGIES):
        raise SettingError("strategy", f"{strategy!r} is not one of auto, {', '.join(STRATEGIES)}")
    number = version.number + 1 if number is None else number
    work = _Attempts(version, counts, statistics, settings, number, sample)
    if strategy != "auto":
        return work.attempt(strategy)
    return work.best()


class _Attempts:
    """The strategies, tried on one version and its counts."""

    def __init__(
        self,
        version: RoutingVersion,
        counts: LeafCounts,
        statistics: Statistics,
        settings: BalanceSettings,
        number: int,
        sample: Sample | None,
    ) -> None:
        self.version, self.counts, self.statistics = version, counts, statistics
        self.settings, self.number, self.sample = settings, number, sample
        self.loads = leaf_loads(version, counts, statistics)

    def best(self) -> Proposal | None:
        """The first that restores balance, or else the one that comes closest, if it is better than nothing."""
        before = slot_loads(self.loads, self.version.mapping, self.version.slots)
        if imbalance(before) <= self.settings.imbalance:
            return None
        tried = []
        for strategy in usable(STRATEGIES, self.version, self.sample):
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
        """What a strategy makes of the version."""
        if strategy == "FG":
            return self._adjusted()
        if strategy == "rebuild":
            return self._rebuilt()
        old, slots = self.version.mapping, self.version.slots
        same = Origins.same(len(old))
        if strategy == "PM":
            mapping = partial_mapping(self.loads, slots, old, self.counts.continuous)
        else:
            mapping = full_mapping(self.loads, slots, same, old, self.counts.continuous)
        index = self.version.index
        if isinstance(index, QTTree):
            index = index.weighed(self.counts.objects, self.loads)
        return self._proposal(strategy, index, mapping, self.loads, same)

    def _adjusted(self) -> Proposal:
        tree = self.version.index
        if not isinstance(tree, QTTree):
            raise SettingError("strategy", f"FG adjusts QT-trees, and the index is a {tree.kind}")
        found = adjust(tree, self.version.mapping, self.version.slots, self.counts, self.statistics, self.settings)
        changes = found.spatial, found.textual, found.merges
        note = f"adjusting the tree ended because {found.ended}"
        loads = found.tree.leaves.load
        return self._proposal("FG", found.tree, found.mapping, loads, found.origins, changes, note)

    def _rebuilt(self) -> Proposal:
        sample = self.sample
        if sample is None or len(sample.objects) < ENOUGH:
            found = 0 if sample is None else len(sample.objects)
            problem = f"a tree is built anew from a sample of {ENOUGH:,} objects, and {found:,} have come"
            raise SettingError("strategy", f"{problem}; try again later")
        made = rebuild(self.version, self.counts, sample, self.statistics, self.settings)
        kinds = np.bincount(made.tree.nodes.kind, minlength=3)
        note = f"from {len(sample.objects):,} objects and {len(sample.queries):,} queries"
        changes = int(kinds[SPATIAL]), int(kinds[TEXTUAL]), 0
        return self._proposal("rebuild", made.tree, made.mapping, made.tree.leaves.load, made.origins, changes, note)

    def _proposal(
        self,
        strategy: str,
        index: GlobalIndex,
        mapping: Codes,
        loads: Floats,
        origins: Origins,
        changes: tuple[int, int, int] = (0, 0, 0),
        note: str = "",
    ) -> Proposal:
        old = self.version.mapping
        version = RoutingVersion(self.number, index, mapping, self.version.slots)
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
            *changes,
            note,
        )


def usable(strategies: Sequence[str], version: RoutingVersion, sample: Sample | None) -> list[str]:
    """Those of the strategies that a version allows, and what has been sampled."""
    adjusts = isinstance(version.index, QTTree)
    builds = sample is not None and len(sample.objects) >= ENOUGH
    return [each for each in strategies if {"FG": adjusts, "rebuild": builds}.get(each, True)]


def _badness(slots: Floats) -> tuple[float, float]:
    return imbalance(slots), float(slots.max(initial=0.0))


def _is_better(after: Floats, before: Floats) -> bool:
    """Whether Lmax/Lmin is clearly smaller, or, if it is infinite both times, Lmax is."""
    one, other = _badness(after), _badness(before)
    if math.isinf(one[0]) and math.isinf(other[0]):
        return one[1] <= _WORTHWHILE * other[1]
    return one[0] <= _WORTHWHILE * other[0]


def _identify(base: int, strategy: str, version: RoutingVersion) -> str:
    """A short hash of the base version's number, the strategy, the new mapping and how the new index routes."""
    digest = hashlib.blake2b(f"{base} {strategy} {version.index.kind}".encode(), digest_size=6)
    arrays, _ = version.index.to_arrays()
    for name in sorted(arrays):
        if not name.startswith("leaves."):  # figures of today, by which nothing is routed
            digest.update(name.encode() + np.ascontiguousarray(arrays[name]).tobytes())
    digest.update(version.mapping.tobytes())
    return digest.hexdigest()
