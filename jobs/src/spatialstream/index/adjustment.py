"""What an implementation of a kind of global index provides: how it is built, and how it adapts to the load.

An index is built from a sample. A kind may also have strategies that *adjust* an index (FG of SSTD, section 5.3; SM and
SH of Tornado, section 4.2; CM of PS2Stream, V-A): they change it where the load is, without access to the stored
objects, which do not move.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from spatialstream.index.base import Changes, GlobalIndex
from spatialstream.index.origins import Origins
from spatialstream.index.partition import karmarkar_karp
from spatialstream.index.sample import Sample
from spatialstream.index.statistics import Statistics
from spatialstream.model.arrays import Codes, Floats
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch

__all__ = ["Adjuster", "Adjustment", "Builder", "Implementation", "LeafLoads", "Limits", "Placer"]


class Limits(Protocol):
    """The settings of an adjustment; see :class:`spatialstream.balance.settings.BalanceSettings`."""

    @property
    def imbalance(self) -> float:
        """λ."""

    @property
    def similarity(self) -> float:
        """ε."""

    @property
    def leaves(self) -> int:
        """Maximum number of leaves."""

    @property
    def printed(self) -> bool:
        """Form of ĥ."""


@dataclass(frozen=True, slots=True, eq=False)
class LeafLoads:
    """What is known of the load of the n leaves of an index.

    Attributes:
        objects: float64[n], abs(O).
        rate: float64[n], E_P, arrivals per ms.
        asked: float64[types, n], queries of each type, see :meth:`Statistics.asked`; None: J's estimates.
        load: float64[n], the workload (Eqn 2 of SSTD).
        continuous: float64[n], continuous queries that concern the leaf.
        mapping: int32[n], the slot of the leaf.
        seconds: time of the slots that the load took when it was counted; 0: not known.
        transfer: time of moving a continuous query to another slot, in seconds.
        sample: a sample of the stream; None: there is none.
    """

    objects: Floats
    rate: Floats
    asked: Floats | None
    load: Floats
    continuous: Floats
    mapping: Codes
    seconds: float
    transfer: float
    sample: Sample | None


@dataclass(frozen=True, slots=True, eq=False)
class Adjustment:
    """The outcome of an adjustment.

    Attributes:
        index: the new index, with the expected counts and loads of its leaves.
        origins: the old leaves that its leaves originate from.
        changes: what was changed.
        ended: why the adjustment ended, as a clause.
        mapping: int32[n], the slot of each of its leaves; None: FM decides.
    """

    index: GlobalIndex
    origins: Origins
    changes: Changes
    ended: str
    mapping: Codes | None = None


Builder = Callable[[ObjectBatch, int, Statistics], GlobalIndex]
"""Builds an index of about this many leaves from sampled objects and J, whose space it covers."""

Adjuster = Callable[[Any, LeafLoads, Statistics, int, Limits], Adjustment]
"""Adjusts an index of its kind for a number of slots; the index is not modified."""


Placer = Callable[[ObjectBatch, int, Statistics, int], tuple[GlobalIndex, Codes]]
"""As a :data:`Builder`, for this number of slots; returns the slot of each leaf, int32[n], too."""


def _nothing(objects: ObjectBatch, queries: QueryBatch) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Implementation:
    """What the package of a kind provides.

    Attributes:
        index: the class of its indexes.
        build: builds one.
        adjusters: the strategies that adjust one, by name.
        sampled: those of them that need a sample.
        placed: builds one and assigns its leaves to slots, if it matters which of them share one; None: loads decide.
        lacking: what a sample of objects and queries lacks for one, as the rest of "needs ..."; "" if nothing. By
            default none lacks anything.
    """

    index: type[GlobalIndex]
    build: Builder
    adjusters: Mapping[str, Adjuster] = field(default_factory=dict)
    sampled: frozenset[str] = frozenset()
    placed: Placer | None = None
    lacking: Callable[[ObjectBatch, QueryBatch], str] = _nothing

    def place(self, objects: ObjectBatch, leaves: int, statistics: Statistics, slots: int) -> tuple[GlobalIndex, Codes]:
        """Build an index and assign its leaves to slots, as the kind does it, or else by Karmarkar and Karp's method.

        Args:
            objects: a sample of the stream.
            leaves: about how many leaves.
            statistics: J.
            slots: number of slots.
        """
        if self.placed is not None:
            return self.placed(objects, leaves, statistics, slots)
        index = self.build(objects, leaves, statistics)
        return index, karmarkar_karp(index.leaves.load, slots)
