"""Interfaces of local indexes: persistence and size, and matching of continuous queries.

To add an index, write a module with a class and add a line to :mod:`spatialstream.local.indexes`; the contract tests
(``tests/unit/local/test_contract.py``) then verify that it satisfies these interfaces.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Self

import numpy as np

from spatialstream.local.arrays import Flags, Floats, Ints
from spatialstream.local.state import Manifest, ReadFile, WriteFile
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.regions import Regions
from spatialstream.model.space import Space
from spatialstream.model.terms import TermLists

__all__ = ["ContinuousIndex", "ContinuousMerger", "LocalIndex", "MovableIndex", "SettlingIndex"]


class LocalIndex(ABC):
    """An index that a slot keeps across epochs."""

    space: Space

    @abstractmethod
    def __init__(self, space: Space) -> None:
        """Create an empty index."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of objects or queries in the index."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Memory in bytes of the contents."""

    @abstractmethod
    def checkpoint(self, write: WriteFile) -> Manifest:
        """Write what has changed since the last checkpoint, see :mod:`spatialstream.local.state`."""

    @classmethod
    @abstractmethod
    def restore(cls, space: Space, manifest: Manifest, read: ReadFile) -> Self:
        """Load the index of a checkpoint, see :mod:`spatialstream.local.state`."""


class ContinuousIndex(LocalIndex):
    """Continuous queries, each matched against the objects that arrive during its lifetime."""

    @abstractmethod
    def register(self, numbers: Ints, queries: QueryBatch) -> None:
        """Add queries, identified by their numbers from now on; each is active from its t until t + τ.

        Args:
            numbers: int64[n], distinct numbers of queries that are not in the index.
            queries: n queries of the index's type.
        """

    @abstractmethod
    def end_at(self, numbers: Ints, t: Ints) -> None:
        """Cancel queries: their lifetimes end at t, if not earlier. Unknown numbers are ignored.

        Args:
            numbers: int64[n].
            t: int64[n], ms.
        """

    @abstractmethod
    def match(self, objects: ObjectBatch) -> Iterable[Any]:
        """Process arriving objects and yield the results of the queries in parts; callers must consume all parts.

        Args:
            objects: objects ordered by (t, id, x, y). They may be earlier than those of previous calls, as long as the
                queries have not been dropped by :meth:`expire`.
        """

    @abstractmethod
    def expire(self, now: int) -> None:
        """Advance the watermark to ``now``: drop the queries that no later object concerns."""

    def conditions(self) -> TermLists:
        """The conditions on the text of its queries, perhaps also of some that have ended.

        By default, if there are queries, one that every object satisfies.
        """
        return TermLists.empty(min(1, len(self)))

    def tested(self) -> dict[str, int]:
        """With how many objects queries were compared since the last call, by id, those with most; by default none."""
        return {}


class MovableIndex(ContinuousIndex):
    """Continuous queries that concern only some slots, and can move between slots."""

    @abstractmethod
    def drop(self, numbers: Ints) -> None:
        """Drop queries as if they had never been registered: they move to another slot, and may return later.

        Args:
            numbers: int64[n]; unknown numbers are ignored.
        """

    @abstractmethod
    def known(self, numbers: Ints) -> Flags:
        """Whether each query is in the index and has not finished, so that :meth:`continuous` returns it.

        Args:
            numbers: int64[n].
        """

    @abstractmethod
    def continuous(self, now: int) -> tuple[Ints, QueryBatch]:
        """The queries that have not finished by ``now``, in a form that can be registered in another slot.

        Args:
            now: ms; a time before the index's own watermark gives the same queries as the watermark.

        Returns:
            int64[n], numbers, ascending; and n queries, whose durations are shortened by their cancellations.
        """


class SettlingIndex(MovableIndex):
    """Continuous queries that concern all slots at first, and settle: later they concern a circle (section 6.3)."""

    @abstractmethod
    def shrink(self, numbers: Ints, radii: Floats, *, await_others: bool) -> None:
        """Take note of circles beyond which nothing concerns queries any more.

        A circle is that of the query's region from then on, see :meth:`MovableIndex.continuous`.

        Args:
            numbers: int64[n], ascending.
            radii: float64[n]; a radius that is not less than the known one is ignored.
            await_others: whether to remember the radii of queries that are not in the index, in case they come to it.
        """

    @abstractmethod
    def circles(self, numbers: Ints) -> tuple[Ints, Regions]:
        """Those of some queries that are in the index and have not finished, int64[m]; and the circle of each.

        Args:
            numbers: int64[n].
        """

    @abstractmethod
    def forget_others(self) -> None:
        """Forget the radii of queries that have not come."""


class ContinuousMerger(LocalIndex):
    """What MERGE keeps of continuous queries of one kind, to make their rows of what all slots find."""

    @abstractmethod
    def register(self, numbers: Ints, queries: QueryBatch) -> None:
        """Add queries; those that it has already are ignored. See :meth:`ContinuousIndex.register`."""

    @abstractmethod
    def end_at(self, numbers: Ints, t: Ints) -> None:
        """Cancel queries, see :meth:`ContinuousIndex.end_at`."""

    def radii(self) -> tuple[Ints, Floats]:
        """The queries that concern a smaller circle than was last returned of them: numbers and radii; by default none.

        The numbers ascend. See :class:`SettlingIndex`.
        """
        return np.empty(0, np.int64), np.empty(0)
