"""The local indexes of a slot, by their names in the slot's manifest."""

from __future__ import annotations

from spatialstream.local.base import LocalIndex
from spatialstream.local.best.cbq import ContinuousBestIndex
from spatialstream.local.nearest.ckq import ContinuousNearestIndex
from spatialstream.local.range.crq import ContinuousRangeIndex
from spatialstream.local.snapshot.segments import SegmentStore
from spatialstream.local.terms.ctq import ContinuousTermsIndex
from spatialstream.model.plugins import plugged

__all__ = ["INDEXES"]

INDEXES: dict[str, type[LocalIndex]] = {
    "objects": SegmentStore,
    "range": ContinuousRangeIndex,
    "nearest": ContinuousNearestIndex,
    "terms": ContinuousTermsIndex,
    "best": ContinuousBestIndex,
    **{name: index for module in plugged("indexes") for name, index in module.INDEXES.items()},
}
