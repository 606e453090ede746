"""The origins of an adjusted index's leaves: which old leaves their objects and continuous queries come from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spatialstream.model.arrays import Codes, Floats

__all__ = ["Origins"]


@dataclass(frozen=True, slots=True, eq=False)
class Origins:
    """The old leaves that each new leaf originates from; m pairs, ascending by (leaf, source).

    Attributes:
        leaf: int32[m], the new leaf.
        source: int32[m], an old leaf whose objects or queries it receives.
        objects: float64[m], the share of the old leaf's objects that the new leaf receives; the shares of each old leaf
            add up to 1.
        queries: float64[m], the share of the old leaf's continuous queries that the new leaf receives. One query can
            concern several leaves, so these need not add up to 1.
        leaves: number of new leaves.
    """

    leaf: Codes
    source: Codes
    objects: Floats
    queries: Floats
    leaves: int

    @classmethod
    def same(cls, leaves: int) -> Origins:
        """The identity: every leaf is unchanged."""
        each = np.arange(leaves, dtype=np.int32)
        return cls(each, each, np.ones(leaves), np.ones(leaves), leaves)

    def carry_objects(self, old: Floats) -> Floats:
        """Convert object counts by old leaf to counts by new leaf; the total is unchanged."""
        return np.bincount(self.leaf, self.objects * old[self.source], self.leaves).astype(np.float64)

    def carry_asked(self, asked: Floats, before: Floats, after: Floats) -> Floats:
        """Estimate the queries per type of the new leaves from counts of the old and from J: float64[types, leaves].

        The estimate for a new leaf is that of J, multiplied by the ratio of counts to estimates of J in the leaves it
        originates from: a ratio estimate (Cochran, Sampling Techniques, chapter 6). If J has no queries of a type
        there, the counted queries are distributed like the objects.

        Args:
            asked: float64[types, old leaves], the counts of the old leaves.
            before: float64[types, old leaves], J's estimates for the old leaves.
            after: float64[types, leaves], J's estimates for the new leaves.
        """
        counted, known = (np.stack([self.carry_objects(of_type) for of_type in table]) for table in (asked, before))
        result: Floats = np.where(known > 0.0, after * counted / np.maximum(known, 1e-300), counted)
        return result
