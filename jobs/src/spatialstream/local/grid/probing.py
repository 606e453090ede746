"""Probing: what objects are made into to be matched against grids, what comes of it, and what all grids do alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from spatialstream.local.arrays import Array, Codes, Ints
from spatialstream.local.columns import writable
from spatialstream.local.grid.layout import frame_of
from spatialstream.local.grid.matching import LOCALITY_BITS, Objects, arrange
from spatialstream.local.keywords import TermKeys
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.space import Space

__all__ = ["ALWAYS", "UNLIMITED", "GridMatches", "ProbeBatch", "ProbedGrid"]

ALWAYS = np.empty((0, 2), np.int64)
"""No condition on when queries live."""

UNLIMITED = 2**62
"""More matches than there can be."""


@dataclass(frozen=True, slots=True, eq=False)
class ProbeBatch:
    """A batch of objects, made ready once to be matched against any number of grids of one space.

    Attributes:
        objects: the batch.
        words: number of words of its vocabulary.
        keys: those that it uses.
        spans: int32[n + 1], where in ``objects.codes`` the terms of each object are.
    """

    objects: Objects
    words: int
    keys: TermKeys
    spans: Codes

    @classmethod
    def of(cls, space: Space, objects: ObjectBatch) -> ProbeBatch:
        """Make a batch ready: O(objects + terms)."""
        x, y, t = writable(objects.x), writable(objects.y), writable(objects.t)
        offsets, codes = writable(objects.terms.offsets), writable(objects.terms.codes)
        order, visits = arrange(x, y, offsets, frame_of(space), LOCALITY_BITS)
        words = len(objects.terms.vocabulary)
        return cls(Objects(order, visits, x, y, t, codes), words, TermKeys.of(objects.terms), offsets)


@dataclass(frozen=True, slots=True, eq=False)
class GridMatches:
    """What matches each object of a batch.

    Attributes:
        starts: int64[n + 1]; object i matches ``queries[starts[i]:starts[i + 1]]``.
        queries: int32[m], ascending for each object.
        checked: int32[n], how many postings were looked at for each object, the measure of the work done.
    """

    starts: Ints
    queries: Codes
    checked: Codes

    @property
    def objects(self) -> Codes:
        """int32[m], the object of each match."""
        return np.repeat(np.arange(len(self.starts) - 1, dtype=np.int32), np.diff(self.starts))


class ProbedGrid(ABC):
    """An immutable index over continuous queries, against which batches of objects are matched."""

    __slots__ = ()

    @abstractmethod
    def probe_within(
        self, batch: ProbeBatch, limit: int, life: Ints = ALWAYS, horizon: int = -(2**63)
    ) -> GridMatches | None:
        """As :meth:`probe`, if there are at most ``limit`` matches; else None, as soon as there are more."""

    @abstractmethod
    def to_arrays(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Everything as flat arrays and a JSON-able rest, of which ``from_arrays`` makes the same grid."""

    @property
    def nbytes(self) -> int:
        """Memory of all arrays."""
        return sum(array.nbytes for array in self.to_arrays()[0].values())

    def probe(self, batch: ProbeBatch, life: Ints = ALWAYS, horizon: int = -(2**63)) -> GridMatches:
        """Match a batch that was made ready before.

        Args:
            batch: the objects.
            life: int64[n, 2], first and end of each query's life: ``first <= o.t < end``; empty for no condition.
            horizon: queries whose end is not later are not reported.
        """
        found = self.probe_within(batch, UNLIMITED, life, horizon)
        assert found is not None
        return found
