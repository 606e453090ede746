"""What every local index can do: outlive its process, and say how much it holds; and one over continuous queries.

An index is a module with a class, and a line in :mod:`spatialstream.local.indexes`; the suite of contracts
(``tests/unit/local/test_contract.py``) then holds it to what is said here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Self

from spatialstream.local.arrays import Flags, Ints
from spatialstream.local.state import Manifest, ReadFile, WriteFile
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.space import Space

__all__ = ["ContinuousIndex", "LocalIndex", "MovableIndex"]


class LocalIndex(ABC):
    """Something that a slot keeps from epoch to epoch, made empty from its space alone."""

    space: Space

    @abstractmethod
    def __len__(self) -> int:
        """How many objects or queries it holds."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of all that it holds."""

    @abstractmethod
    def checkpoint(self, write: WriteFile) -> Manifest:
        """Write what is new, see :mod:`spatialstream.local.state`."""

    @classmethod
    @abstractmethod
    def restore(cls, space: Space, manifest: Manifest, read: ReadFile) -> Self:
        """The index of a checkpoint, see :mod:`spatialstream.local.state`."""


class ContinuousIndex(LocalIndex):
    """Queries that stand, and meet each object that comes while they live."""

    @abstractmethod
    def register(self, numbers: Ints, queries: QueryBatch) -> None:
        """Add queries, from now on known by their numbers; each lives from its t until t + τ.

        Args:
            numbers: int64[n], distinct, of queries that are not here.
            queries: n queries of the index's type.
        """

    @abstractmethod
    def end_at(self, numbers: Ints, t: Ints) -> None:
        """Cancel queries: their lives end at t, if not before. Unknown numbers are ignored.

        Args:
            numbers: int64[n].
            t: int64[n], ms.
        """

    @abstractmethod
    def match(self, objects: ObjectBatch) -> Iterable[Any]:
        """Take arrivals, and give what they mean to the queries, part by part; all parts have to be taken.

        Args:
            objects: ordered by (t, id, x, y). They may be earlier than those of earlier calls, as long as the queries
                have not been dropped by :meth:`expire`.
        """

    @abstractmethod
    def expire(self, now: int) -> None:
        """Everything up to ``now`` has come: forget the queries that nothing later concerns."""


class MovableIndex(ContinuousIndex):
    """Continuous queries that concern some slots only, and move between them."""

    @abstractmethod
    def drop(self, numbers: Ints) -> None:
        """Forget queries as if they had never been registered: they move to another slot, and may come back.

        Args:
            numbers: int64[n]; unknown ones are ignored.
        """

    @abstractmethod
    def known(self, numbers: Ints) -> Flags:
        """Which queries are here and have not finished: those that :meth:`continuous` gives.

        Args:
            numbers: int64[n].
        """

    @abstractmethod
    def continuous(self, now: int) -> tuple[Ints, QueryBatch]:
        """The queries that have not finished by ``now``, as they may be registered in another slot.

        Args:
            now: ms; earlier than the last time that the index knows of gives no more than that time.

        Returns:
            int64[n], numbers, ascending; and n queries, whose durations say what a cancellation has left of them.
        """
