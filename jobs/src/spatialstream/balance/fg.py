"""FG: adjust the index until its leaves can be balanced, then FM (SSTD, section 5.3).

How an index is adjusted is up to its kind; of a QT-tree see :mod:`spatialstream.index.qt.adjuster`.
"""

from __future__ import annotations

from spatialstream.balance.fm import full_mapping
from spatialstream.balance.loads import LeafCounts, asked_of
from spatialstream.balance.settings import BalanceSettings
from spatialstream.index.adjustment import Adjuster, Adjustment, LeafLoads
from spatialstream.index.statistics import Statistics
from spatialstream.index.version import RoutingVersion
from spatialstream.model.arrays import Codes

__all__ = ["adjust"]


def adjust(
    version: RoutingVersion,
    adjuster: Adjuster,
    counts: LeafCounts,
    statistics: Statistics,
    settings: BalanceSettings,
) -> tuple[Adjustment, Codes]:
    """FG: the adjusted index, and the slot of each of its leaves, int32[n].

    Args:
        version: the active version.
        adjuster: of the kind of its index.
        counts: the counts of its leaves.
        statistics: J.
        settings: λ, ε and the maximum number of leaves.
    """
    index, slots = version.index, version.slots
    known = LeafLoads(counts.objects, counts.rate, asked_of(index, counts, statistics))
    done = adjuster(index, known, statistics, slots, settings)
    loads = done.index.leaves.load
    return done, full_mapping(loads, slots, done.origins, version.mapping, counts.continuous)
