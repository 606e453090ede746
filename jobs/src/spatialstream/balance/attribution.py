"""Which leaves a slot's time goes to.

A slot does an epoch's objects in a few calls of compiled code, whatever their leaves, so no clock runs for a leaf. What
is measured are the calls (:class:`Spent`), and what is counted is how much each leaf gives them to do. A leaf's time is
an attribution: each part of the slot's time is spread over the slot's leaves in proportion to what the part grows with.

- ``match``, finding and checking candidates of CRQs: by candidates checked, and :data:`OBJECT` for each object.
- ``results``, writing down what matches: by matches.
- ``objects``, all else that is done for each object (unpacking, CKQs, CTQs, insertion): by objects.
- ``queries``, answering snapshot queries: by snapshot queries that concern the leaf.

So the times of a slot's leaves add up to these parts, except for a part of which no leaf has any: a snapshot query may
come for objects of an earlier version alone. What a slot does besides (registering and ending queries, steps of CTQs,
expiry, writing its state) is no leaf's.

Cost: O(leaves).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import numpy.typing as npt

__all__ = ["OBJECT", "Spent", "object_seconds", "spread"]

OBJECT = 8.0
"""What an object costs before its first candidate is checked (its terms and its cell are looked up), in candidates:
with 1,000 to 600,000 CRQs, 250 ns an object and 30 ns a candidate were measured."""


@dataclass(slots=True)
class Spent:
    """The parts of a slot's time that leaves bring about, in seconds; see above."""

    match: float = 0.0
    results: float = 0.0
    objects: float = 0.0
    queries: float = 0.0

    @classmethod
    def of(cls, record: Mapping[str, float]) -> Self:
        """From a mapping by the parts' names; parts that it has not are 0."""
        return cls(**{part.name: float(record.get(part.name, 0.0)) for part in fields(cls)})


def spread(seconds: float, weight: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Seconds in proportion to n weights of at least 0: float64[n]; 0 everywhere if all weights are 0."""
    total = float(weight.sum())
    return weight * (seconds / total) if total > 0.0 else np.zeros(len(weight))


def object_seconds(
    spent: Spent, objects: npt.NDArray[Any], checked: npt.NDArray[Any], matches: npt.NDArray[Any]
) -> npt.NDArray[np.float64]:
    """The seconds that each of a slot's n leaves takes because of its objects: float64[n].

    Args:
        spent: the slot's time.
        objects: of each leaf, in that time, n values.
        checked: candidates that were checked for them, n values.
        matches: of them, n values.
    """
    return (
        spread(spent.match, checked + OBJECT * objects)
        + spread(spent.results, matches)
        + spread(spent.objects, objects)
    )
