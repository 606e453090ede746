"""The local indexes of a slot, by their names in its manifest."""

from __future__ import annotations

from spatialstream.local.base import LocalIndex
from spatialstream.local.ckq import ContinuousNearestIndex
from spatialstream.local.crq import ContinuousRangeIndex
from spatialstream.local.ctq import ContinuousTermsIndex
from spatialstream.local.segments import SegmentStore

__all__ = ["INDEXES"]

INDEXES: dict[str, type[LocalIndex]] = {
    "objects": SegmentStore,
    "range": ContinuousRangeIndex,
    "nearest": ContinuousNearestIndex,
    "terms": ContinuousTermsIndex,
}
