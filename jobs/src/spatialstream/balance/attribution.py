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
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import numpy.typing as npt

__all__ = ["OBJECT", "Spent", "object_seconds", "spread"]

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
