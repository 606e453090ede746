"""What a query selects from the objects that match its predicate: one class for each way to select.

A kind of query (:mod:`spatialstream.model.kind`) names its class. In the columns of a
:class:`~spatialstream.model.queries.QueryBatch` a selection is its ``k`` and a point.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Self

__all__ = ["Everything", "Nearest", "Selection", "TopTerms"]


class Selection(ABC):
    """What a query selects."""

    __slots__ = ()

    @classmethod
    @abstractmethod
    def of(cls, k: int, x: float, y: float) -> Self:
        """The selection with these values of the fields ``k`` and ``at``; those that it does not have are ignored."""

    @property
    @abstractmethod
    def columns(self) -> tuple[int, float, float]:
        """The values (k, x, y) for :meth:`of`; 0 for those that it does not have."""


@dataclass(frozen=True, slots=True)
class Everything(Selection):
    """Select all matching objects."""

    @classmethod
    def of(cls, k: int, x: float, y: float) -> Self:
        """See :class:`Selection`."""
        return cls()

    @property
    def columns(self) -> tuple[int, float, float]:
        """See :class:`Selection`."""
        return 0, 0.0, 0.0


@dataclass(frozen=True, slots=True)
class Nearest(Selection):
    """Select the k objects nearest to (x, y); ties by (distance, timestamp descending, id)."""

    x: float
    y: float
    k: int

    @classmethod
    def of(cls, k: int, x: float, y: float) -> Self:
        """See :class:`Selection`."""
        return cls(x, y, k)

    @property
    def columns(self) -> tuple[int, float, float]:
        """See :class:`Selection`."""
        return self.k, self.x, self.y


@dataclass(frozen=True, slots=True)
class TopTerms(Selection):
    """Select the k terms that occur in most objects; ties by term."""

    k: int

    @classmethod
    def of(cls, k: int, x: float, y: float) -> Self:
        """See :class:`Selection`."""
        return cls(k)

    @property
    def columns(self) -> tuple[int, float, float]:
        """See :class:`Selection`."""
        return self.k, 0.0, 0.0
