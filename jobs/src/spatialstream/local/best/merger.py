"""Answers of continuous best queries over all slots, and their changes.

The semantics are those of :mod:`spatialstream.local.nearest.skyband`, with another order: by (key descending, timestamp
descending, id, x, y). The key of an object never changes, so it takes the place of the distance, negated.

Unlike a CKQ, of which every slot has every query, a CBQ comes from each slot that its disk meets. And while objects are
stored once for all CKQs, here each entry has an object of its own, with its distance and its score, which are in the
rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spatialstream.local.arrays import Codes, Floats, Ints
from spatialstream.local.nearest.skyband import Arrivals, NearestMerger
from spatialstream.model.batches import joined
from spatialstream.model.queries import QueryBatch

__all__ = ["BestMerger", "ScoredArrivals"]

_NO_INTS = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class ScoredArrivals(Arrivals):
    """The candidates sent by slots: m pairs of a query and an object, in any order.

    Attributes:
        score: float64[m], A.
        key: float64[m], by which objects are ordered, the greatest first.
    """

    score: Floats
    key: Floats

    @property
    def ordered_by(self) -> Floats:
        """See :class:`Arrivals`."""
        return -self.key

    @classmethod
    def concat(cls, parts: Sequence[Arrivals]) -> ScoredArrivals:
        """See :class:`Arrivals`."""
        none = np.empty(0)
        scored = [part for part in parts if isinstance(part, ScoredArrivals)]
        return joined(scored or [cls(_NO_INTS, pa.array([], pa.string()), _NO_INTS, *[none] * 5)])


class BestMerger(NearestMerger):
    """The answers of all CBQs."""

    name = "best"
    columns: ClassVar[Mapping[str, npt.DTypeLike]] = {
        **NearestMerger.columns,
        "distance": np.float64,
        "score": np.float64,
    }

    def register(self, numbers: Ints, queries: QueryBatch) -> None:
        """See :class:`NearestMerger`; several slots may name a query."""
        numbers, first = np.unique(numbers, return_index=True)
        new = np.flatnonzero(~self._has(numbers))
        super().register(numbers[new], queries.take(first[new]))

    def radii(self) -> tuple[Ints, Floats]:
        """CBQs have disks, which do not shrink."""
        return _NO_INTS, np.empty(0)

    def _keep_objects(self, arrivals: Arrivals, order: Ints, new: Ints, rank: Ints, pairs: Ints) -> Codes:
        return (self._keep(arrivals, order[pairs]) + np.arange(len(pairs))).astype(np.int32)

    def _measured(self, ordered_by: Floats, shown: Ints) -> tuple[Floats, Floats | None]:
        return self._objects["distance"][shown], self._objects["score"][shown]
