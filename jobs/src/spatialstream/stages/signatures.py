"""Which slots a snapshot query can skip, by the signatures of their views.

Routing says where objects of a region may be, by the routing versions alone. The signatures of a view
(:mod:`spatialstream.local.snapshot.signatures`) say what is not there: so whoever coordinates a query asks only those
of its slots that may have an object with its words, in its region and its time range.

*Invariant*: a slot that is skipped has, as of the round of the query, no object that the query finds. So rows and their
order are the same with and without signatures. It holds because the signatures are those of the very view that the
slot would search: of a slot whose view of the round is not known, everything is assumed.

Cost: some microseconds for a query whose words are in the first blocks of each slot that are looked at; for a rare word
a look at each block of the slots in question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from spatialstream.local.snapshot.signatures import SignedSegment, SlotSignatures, WordGroups
from spatialstream.model.arrays import Floats
from spatialstream.model.covers import region_parts
from spatialstream.model.queries import Best, Query
from spatialstream.model.regions import Region, Regions
from spatialstream.model.space import Space

__all__ = ["ANYTHING", "Signed", "SlotPruning", "has_words"]

Signed = Sequence[SignedSegment]
"""The segments of a view, see :attr:`~spatialstream.local.snapshot.views.ObjectsView.signed`."""

ANYTHING: Signed = (SignedSegment(-(2**62), 2**62),)
"""Of a slot of which nothing is known."""

_FOREVER = 2**62
_ANYWHERE = np.array([[-np.inf, -np.inf, np.inf, np.inf]])


@lru_cache(4_096)
def _words_of(groups: tuple[tuple[str, ...], ...]) -> WordGroups:
    return WordGroups(groups)


def has_words(query: Query) -> bool:
    """Whether an object must have some word of a query to satisfy it."""
    return all(query.predicate.expression.groups)


class SlotPruning:
    """Which slots may have what a query asks for, as of one round.

    Args:
        space: of the stream.
        slots: number of slots.
        known: the segments of slots' views of the round; a slot that is missing may have anything.
        here: a slot that is cheap to ask.
    """

    def __init__(self, space: Space, slots: int, known: Mapping[int, Signed], here: int | None = None) -> None:
        self._space, self._known, self.here = space, known, here
        self._signatures = SlotSignatures([known.get(slot, ANYTHING) for slot in range(slots)]) if known else None

    @property
    def knows(self) -> bool:
        """Whether anything is known of any slot."""
        return self._signatures is not None

    def may_have(self, slots: Sequence[int], query: Query, since: int, region: Region | None) -> list[int]:
        """Those of ``slots`` that may have objects that a query asks for, in their order.

        Args:
            slots: slots of the query.
            query: the query.
            since: it looks at objects of (since, t].
            region: where; None: anywhere.
        """
        if self._signatures is None or self._known.keys().isdisjoint(slots):
            return [*slots]
        return self._signatures.may_have(slots, *self._asked(query, since, region))

    def nearest(self, slots: Sequence[int], query: Query, since: int, at: tuple[float, float]) -> int:
        """That of some slots of :meth:`may_have` which is likely to have the nearest object."""
        if self._signatures is None:
            return slots[0]
        asked = self._asked(query, since, None)
        return self._signatures.nearest(slots, *asked, at, geographic=self._space.geographic)

    def _asked(self, query: Query, since: int, region: Region | None) -> tuple[WordGroups, Floats, tuple[int, int]]:
        parts = _ANYWHERE if region is None else region_parts(self._space, Regions.of([region]))[0]
        last = _FOREVER if isinstance(query.selection, Best) else query.t  # an SBQ may have an interval of its own
        return _words_of(query.predicate.expression.groups), parts, (since, last)
