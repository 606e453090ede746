"""What a query selects from the objects that match its predicate: one class for each way to select.

A kind of query (:mod:`spatialstream.model.kind`) names its class. In the columns of a
:class:`~spatialstream.model.queries.QueryBatch` a selection is its ``k``, a point, and for the best a ranking.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Self

from spatialstream.model.ranking.asked import Ranking

__all__ = ["Best", "Everything", "Nearest", "Selection", "TopTerms"]


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

    @property
    def ranking(self) -> Ranking | None:
        """By what it ranks, besides the distance; None: by nothing."""
        return None

    def ranked(self, by: Ranking) -> Selection:
        """The selection with a ranking, if its class has one."""
        return self


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


@dataclass(frozen=True, slots=True)
class Best(Selection):
    """Select the k best objects by place, text and time; ties by (timestamp descending, id)."""

    x: float
    y: float
    k: int
    by: Ranking | None = None

    @classmethod
    def of(cls, k: int, x: float, y: float) -> Self:
        """See :class:`Selection`."""
        return cls(x, y, k)

    @property
    def columns(self) -> tuple[int, float, float]:
        """See :class:`Selection`."""
        return self.k, self.x, self.y

    @property
    def ranking(self) -> Ranking:
        """See :class:`Selection`."""
        assert self.by is not None
        return self.by

    def ranked(self, by: Ranking) -> Selection:
        """See :class:`Selection`."""
        return Best(self.x, self.y, self.k, by)
