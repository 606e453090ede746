"""Attribution of a slot's time to its leaves.

A slot processes the objects of an epoch in a few calls of compiled code, regardless of their leaves, so time cannot be
measured per leaf. The time of the calls is measured (:class:`Spent`), and the work of each leaf is counted. Each part
of the slot's time is distributed over the slot's leaves in proportion to the quantity that determines the part:

- ``match``, finding and checking candidates of CRQs: candidates checked, plus :data:`OBJECT` per object.
- ``results``, writing matches: matches.
- ``objects``, all other work per object (unpacking, CKQs, CTQs, insertion): objects.
- ``queries``, answering snapshot queries: snapshot queries that concern the leaf.

So the times of a slot's leaves add up to these parts, except for a part whose quantity is 0 in all leaves: a snapshot
query may concern only objects of an earlier version. Other work of a slot (registering and ending queries, steps of
CTQs, expiry, writing its state) is not attributed to leaves.

Cost: O(leaves).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

import numpy as np
import numpy.typing as npt

__all__ = ["OBJECT", "Spent", "UnitTimes", "WorkTotals", "object_seconds", "spread"]

OBJECT = 8.0
"""Fixed cost of an object (looking up its terms and its cell), in candidates: 250 ns per object and 30 ns per candidate
were measured with 1,000 to 600,000 CRQs."""


@dataclass(slots=True)
class Spent:
    """The parts of a slot's time that are attributed to leaves, in seconds; see the module."""

    match: float = 0.0
    results: float = 0.0
    objects: float = 0.0
    queries: float = 0.0

    @classmethod
    def of(cls, record: Mapping[str, float]) -> Self:
        """Build from a mapping by the names of the parts; missing parts are 0."""
        return cls(**{part.name: float(record.get(part.name, 0.0)) for part in fields(cls)})


@dataclass(frozen=True, slots=True)
class UnitTimes:
    """What slots took, in seconds each; 0 where none came.

    Attributes:
        object: for an object, without the CRQs that it may match.
        match: for a match of a CRQ, with all candidates that were checked.
        ask: for a snapshot query, with what it found.
    """

    object: float = 0.0
    match: float = 0.0
    ask: float = 0.0


@dataclass(slots=True)
class WorkTotals:
    """The parts of the time of some slots in some rounds, and what it was spent for.

    Attributes:
        spent: the time.
        objects, checked, matches: objects that came, candidates that were checked for them, and their matches.
        asks: snapshot queries that came.
    """

    spent: Spent = field(default_factory=Spent)
    objects: int = 0
    checked: int = 0
    matches: int = 0
    asks: int = 0

    def add(self, other: WorkTotals) -> None:
        """Add those of others."""
        for part in fields(Spent):
            setattr(self.spent, part.name, getattr(self.spent, part.name) + getattr(other.spent, part.name))
        for name in ("objects", "checked", "matches", "asks"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def times(self) -> UnitTimes:
        """The times of each."""
        looked = OBJECT * self.objects
        share = looked / (looked + self.checked) if looked else 0.0
        spent = self.spent
        return UnitTimes(
            _each(spent.objects + share * spent.match, self.objects),
            _each(spent.results + (1.0 - share) * spent.match, self.matches),
            _each(spent.queries, self.asks),
        )


def _each(seconds: float, count: int) -> float:
    return seconds / count if count else 0.0


def spread(seconds: float, weight: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Distribute seconds in proportion to n weights of at least 0: float64[n]; all 0 if all weights are 0."""
    total = float(weight.sum())
    return weight * (seconds / total) if total > 0.0 else np.zeros(len(weight))


def object_seconds(
    spent: Spent, objects: npt.NDArray[Any], checked: npt.NDArray[Any], matches: npt.NDArray[Any]
) -> npt.NDArray[np.float64]:
    """The seconds of a slot's time attributed to the objects of each of its n leaves: float64[n].

    Args:
        spent: the slot's time.
        objects: number of objects of each leaf, n values.
        checked: number of candidates checked for these objects, n values.
        matches: number of matches of these objects, n values.
    """
    return (
        spread(spent.match, checked + OBJECT * objects)
        + spread(spent.results, matches)
        + spread(spent.objects, objects)
    )
