"""Strategies that adjust the index: FG (SSTD, section 5.3), SM and SH (Tornado, section 4.2), CM (PS2Stream, V-A).

How an index is adjusted is up to its kind: of a QT-tree see :mod:`spatialstream.index.qt.adjuster`, of an A-Grid
:mod:`spatialstream.index.a_grid.adjuster`, of a kd^t-tree :mod:`spatialstream.index.kd_t.adjuster`. SM and SH keep each
leaf on its slot, CM says where each goes. FG leaves that to FM.
"""

from __future__ import annotations

from spatialstream.balance.fm import full_mapping
from spatialstream.balance.loads import LeafCounts, asked_of
from spatialstream.balance.settings import BalanceSettings
from spatialstream.index.adjustment import Adjuster, Adjustment, LeafLoads
from spatialstream.index.sample import Sample
from spatialstream.index.statistics import Statistics
from spatialstream.index.version import RoutingVersion
from spatialstream.model.arrays import Codes, Floats

__all__ = ["adjust"]


def adjust(
    version: RoutingVersion,
    adjuster: Adjuster,
    counts: LeafCounts,
    loads: Floats,
    statistics: Statistics,
    settings: BalanceSettings,
    sample: Sample | None = None,
) -> tuple[Adjustment, Codes]:
    """Adjust the index: the adjusted one, and the slot of each of its leaves, int32[n].

    Args:
        version: the active version.
        adjuster: of the kind of its index.
        counts: the counts of its leaves.
        loads: float64[leaves], their loads.
        statistics: J.
        settings: λ, ε and the maximum number of leaves.
        sample: the sample that J was computed from.
    """
    index, slots = version.index, version.slots
    asked = asked_of(index, counts, statistics)
    measured = counts.seconds, counts.transfer
    known = LeafLoads(counts.objects, counts.rate, asked, loads, counts.continuous, version.mapping, *measured, sample)
    done = adjuster(index, known, statistics, slots, settings)
    if done.mapping is not None:
        return done, done.mapping
    after = done.index.leaves.load
    return done, full_mapping(after, slots, done.origins, version.mapping, counts.continuous)
