"""What CKQs bring to slots if each is on one slot, estimated from a sample: for the planner.

An object then goes, beside its home, to each slot with a CKQ that has one of the object's words under which it is
looked up (:mod:`~spatialstream.index.query_partition`), wherever their circles are. A sample has only some of the CKQs,
and the others have words at slots where no sampled one has them: how many copies an object has would be underestimated.
So those CKQs that a sampled one stands for beside itself are taken to be on slots as all sampled ones are, whatever
their words: with more copies than where like words are on like slots.

Cost: that of building the partition (:mod:`.query_partition`), and O(words x slots) for the objects of the sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from spatialstream.balance.subscriptions import ObjectSample, entry_words
from spatialstream.index.query_partition import QueryPartition
from spatialstream.model.arrays import Codes, Floats
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch

__all__ = ["PlacedQueries"]


@dataclass(frozen=True, slots=True, eq=False)
class PlacedQueries:
    """CKQs that are each on one slot.

    Attributes:
        slot: int32[m], of each.
        copied: float64[n, slots], the probability that a slot gets each of n objects because of its CKQs.
    """

    slot: Codes
    copied: Floats

    @classmethod
    def of(
        cls, partition: QueryPartition, queries: QueryBatch, weights: Floats, objects: ObjectBatch, slots: int
    ) -> Self:
        """The CKQs of a sample by a partition.

        Args:
            partition: of the CKQs.
            queries: m CKQs.
            weights: float64[m], how many CKQs each stands for.
            objects: n objects like those to come.
            slots: number of slots.
        """
        slot, sample = partition.slots_of(queries), ObjectSample(objects)
        words = entry_words(queries.keywords, sample)
        owner = np.repeat(np.arange(len(queries)), np.diff(words.offsets))
        used, place = np.unique(words.codes, return_inverse=True)
        share = np.bincount(slot, minlength=slots) / max(len(queries), 1)
        unseen = np.bincount(place, np.maximum(weights - 1.0, 0.0)[owner], len(used))
        # the logarithm of the probability that a slot has no CKQ with a word
        lacks = -np.outer(unseen, share)
        lacks[place, slot[owner]] = -np.inf
        terms = objects.terms
        known = np.full(sample.any + 1, -1, np.int64)
        known[used] = np.arange(len(used))
        at = known[terms.codes]
        having = np.flatnonzero(at >= 0)
        of_object = np.repeat(np.arange(len(objects)), np.diff(terms.offsets))[having]
        always = lacks[known[sample.any]] if known[sample.any] >= 0 else np.zeros(slots)
        copied = np.empty((len(objects), slots))
        for each in range(slots):
            sums = np.bincount(of_object, lacks[at[having], each], len(objects))
            copied[:, each] = -np.expm1(sums + always[each])
        return cls(slot, copied)
