"""Probing of grids: prepared batches of objects, matches, and the common interface of grids."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from spatialstream.local.arrays import Array, Bytes, Codes, Ints
from spatialstream.local.columns import writable
from spatialstream.local.grid.layout import frame_of
from spatialstream.local.grid.matching import LOCALITY_BITS, Objects, arrange
from spatialstream.local.keywords import TermKeys
from spatialstream.model.keyword_terms import with_keywords
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.properties.table import LazyTable
from spatialstream.model.space import Space

__all__ = ["ALWAYS", "UNLIMITED", "GridMatches", "ProbeBatch", "ProbedGrid", "posted_in"]

ALWAYS = np.empty((0, 2), np.int64)
"""No condition on the lifetimes of queries."""

UNLIMITED = 2**62
"""A limit larger than any number of matches."""


@dataclass(frozen=True, slots=True, eq=False)
class ProbeBatch:
    """A batch of objects, prepared once for matching against any number of grids of one space.

    Attributes:
        objects: the batch.
        words: number of words of its vocabulary.
        keys: keys of the words that it uses.
        spans: int32[n + 1], bounds of each object's terms in ``objects.codes``: those of its text, then those of its
            keywords (:mod:`~spatialstream.model.keyword_terms`).
        texts: bounds of the terms of each text alone, int32[n + 1], the terms, whose codes are the same, and how often
            the text has each of them, uint8, empty if that is not counted.
        properties: of the objects.
    """

    objects: Objects
    words: int
    keys: TermKeys
    spans: Codes
    texts: tuple[Codes, Codes, Bytes]
    properties: LazyTable

    @classmethod
    def of(cls, space: Space, objects: ObjectBatch, names: Iterable[str] = ()) -> ProbeBatch:
        """Prepare a batch: O(objects + terms).

        Args:
            space: of the objects.
            objects: the batch.
            names: the properties whose keywords are terms, see :func:`posted_in`.
        """
        x, y, t = writable(objects.x), writable(objects.y), writable(objects.t)
        counts = np.empty(0, np.uint8) if objects.terms.counts is None else writable(objects.terms.counts)
        texts = writable(objects.terms.offsets), writable(objects.terms.codes), counts
        terms = with_keywords(objects.terms, objects.properties, names)
        offsets, codes = texts[:2] if terms is objects.terms else (terms.offsets, terms.codes)
        order, visits = arrange(x, y, offsets, frame_of(space), LOCALITY_BITS)
        keys, properties = TermKeys.of(terms), LazyTable(objects.properties)
        return cls(Objects(order, visits, x, y, t, codes), len(terms.vocabulary), keys, offsets, texts, properties)


@dataclass(frozen=True, slots=True, eq=False)
class GridMatches:
    """The queries that match each object of a batch.

    Attributes:
        starts: int64[n + 1]; object i matches ``queries[starts[i]:starts[i + 1]]``.
        queries: int32[m], ascending for each object.
        checked: int32[n], number of postings read for each object, the measure of the work done.
    """

    starts: Ints
    queries: Codes
    checked: Codes

    @property
    def objects(self) -> Codes:
        """int32[m], the object of each match."""
        return np.repeat(np.arange(len(self.starts) - 1, dtype=np.int32), np.diff(self.starts))


class ProbedGrid(ABC):
    """An immutable index over continuous queries that matches batches of objects."""

    __slots__ = ()

    @property
    @abstractmethod
    def posted(self) -> tuple[str, ...]:
        """The properties whose keywords have to be among the terms of objects."""

    @abstractmethod
    def probe_within(
        self, batch: ProbeBatch, limit: int, life: Ints = ALWAYS, horizon: int = -(2**63)
    ) -> GridMatches | None:
        """As :meth:`probe`, but return None as soon as there are more than ``limit`` matches."""

    @abstractmethod
    def candidates(self, batch: ProbeBatch, first: int) -> Codes:
        """How many objects of the block that begins with a visit are compared with each query, int32[queries]."""

    @abstractmethod
    def to_arrays(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Serialize as flat arrays and a JSON-serializable ``meta``, from which ``from_arrays`` restores the grid."""

    @property
    def nbytes(self) -> int:
        """Memory of all arrays."""
        return sum(array.nbytes for array in self.to_arrays()[0].values())

    def probe(self, batch: ProbeBatch, life: Ints = ALWAYS, horizon: int = -(2**63)) -> GridMatches:
        """Match a prepared batch.

        Args:
            batch: the objects.
            life: int64[n, 2], start and end of each query's lifetime: ``first <= o.t < end``; empty for no condition.
            horizon: queries that end at or before this time are not reported.
        """
        found = self.probe_within(batch, UNLIMITED, life, horizon)
        assert found is not None
        return found


def posted_in(grids: Iterable[ProbedGrid]) -> tuple[str, ...]:
    """The properties whose keywords have to be among the terms of a batch for all of some grids, ascending."""
    return tuple(sorted({name for grid in grids for name in grid.posted}))
