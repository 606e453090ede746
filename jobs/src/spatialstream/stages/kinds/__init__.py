"""What the stages do for each kind of query: a row for each kind in one of two tables.

To add a kind, see ``docs/query-types.md``.
"""

from __future__ import annotations

from collections.abc import Mapping

from spatialstream.model.plugins import plugged
from spatialstream.stages.kinds.base import ContinuousStage, SnapshotStage
from spatialstream.stages.kinds.best import SnapshotBest
from spatialstream.stages.kinds.continuous_best import ContinuousBest
from spatialstream.stages.kinds.nearest import ContinuousNearest, SnapshotNearest
from spatialstream.stages.kinds.ranges import ContinuousRange, SnapshotRange
from spatialstream.stages.kinds.terms import ContinuousTerms, SnapshotTerms

__all__ = ["CONTINUOUS", "SNAPSHOT"]

_PLUGGED = [*plugged("stages")]

SNAPSHOT: Mapping[str, SnapshotStage] = {
    "SRQ": SnapshotRange(),
    "SKQ": SnapshotNearest(),
    "STQ": SnapshotTerms(),
    "SBQ": SnapshotBest(),
} | {kind: stage for module in _PLUGGED for kind, stage in module.SNAPSHOT.items()}
"""The snapshot kinds, by name."""

CONTINUOUS: Mapping[str, ContinuousStage] = {
    "CRQ": ContinuousRange(),
    "CKQ": ContinuousNearest(),
    "CTQ": ContinuousTerms(),
    "CBQ": ContinuousBest(),
} | {kind: stage for module in _PLUGGED for kind, stage in module.CONTINUOUS.items()}
"""The continuous kinds, by name, in the order in which a slot matches an object with them."""
