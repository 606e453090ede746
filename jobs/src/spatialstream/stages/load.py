"""What a slot has done in a round, as it goes: counts by object, and the time of each part of the work."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

from spatialstream.balance.attribution import Spent
from spatialstream.model.queries import QueryBatch

__all__ = ["Load"]

T = TypeVar("T")


@dataclass(slots=True)
class Load:
    """The work of a slot in an epoch.

    Attributes:
        objects: the number of objects whose home is here.
        copies: the number of objects that came as copies; None: there can be none.
        leaf: int32[n], the leaf of each of n objects, which are those that CRQs are matched with; None if there are
            none, or if not all leaves are of one version.
        home: bool[n], whether its home is here, otherwise it is a copy; None: all are at home.
        checked: int32[n], candidates of CRQs that are checked for each.
        matched: int64[n], matches of CRQs of each.
        queries: the queries that come, of all types.
        spent: the time that this takes.
        moved: continuous queries that were ``exported`` for other slots, or ``registered`` from theirs, and the seconds
            that this took.
    """

    objects: int = 0
    copies: int | None = None
    leaf: npt.NDArray[np.int32] | None = None
    home: npt.NDArray[np.bool_] | None = None
    checked: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    matched: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    queries: list[QueryBatch] = field(default_factory=list)
    spent: Spent = field(default_factory=Spent)
    moved: dict[str, tuple[int, float]] = field(default_factory=dict)

    @contextmanager
    def moving(self, what: Literal["exported", "registered"]) -> Iterator[list[int]]:
        """Measure a step of a move; the numbers of queries are appended to the list."""
        began, queries = time.perf_counter(), list[int]()
        yield queries
        self.moved[what] = sum(queries), time.perf_counter() - began

    @contextmanager
    def spending(self, part: Literal["match", "results", "objects", "queries"]) -> Iterator[None]:
        """Add the time spent within to a part of ``spent``."""
        began = time.perf_counter()
        yield
        setattr(self.spent, part, getattr(self.spent, part) + time.perf_counter() - began)

    def each(self, part: Literal["match", "results", "objects", "queries"], items: Iterator[T]) -> Iterator[T]:
        """Yield the items, and add the time that generating them takes to a part of ``spent``."""
        while True:
            with self.spending(part):
                item = next(items, None)
            if item is None:
                return
            yield item
