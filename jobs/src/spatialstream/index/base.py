"""The interface of global indexes: which leaves an object goes to, and which leaves a query concerns (SSTD, 4.2).

An index is immutable. Every router holds a copy, so it is small, consists of flat arrays, and is transferred as such.
:mod:`spatialstream.index.kinds` names the kinds of index.

**Home and copies.** Each object has one *home* leaf, which stores it and serves snapshot queries, CKQs and CTQs. An
index that registers a CRQ in fewer leaves than it concerns by space, for example by the query's least frequent keyword
(PS2Stream, section IV-C), delivers *copies* of an object to further leaves, where it is matched with the CRQs there and
not stored. :attr:`GlobalIndex.replicates` says whether an index does so.

An object and a CRQ that it matches may meet at several leaves, and so in several slots. The slot of one of them reports
the match, the pair's *reporter*: a function of the object, the query's words and the index, which every slot computes
alike. So nothing has to be removed later, as PS2Stream's merger does (section III-B).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from spatialstream.index.statistics import Statistics
from spatialstream.model.arrays import Array, Codes, Flags, Floats, Ints, Words
from spatialstream.model.kinds import CODE, QueryType
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.regions import Regions
from spatialstream.model.space import Space
from spatialstream.model.terms import TermLists

__all__ = ["Changes", "GlobalIndex", "LeafWords", "Leaves"]

LeafWords = tuple[Ints, Words]
"""Hashes of the words under which CRQs are registered at each leaf: (offsets int64[leaves + 1], hashes uint64[m])."""


@dataclass(frozen=True, slots=True, eq=False)
class Leaves:
    """The n leaves of an index as columns.

    Attributes:
        box: float64[n, 4] (west, south, east, north), closed: the objects of a leaf lie in its box.
        textual: bool[n]; whether the leaf is a textual share: other leaves hold objects of the same cell.
        objects: float64[n], number of objects of the sample that the index was built from.
        load: float64[n], the workload (Eqn 2) estimated when the index was built.
    """

    box: Floats
    textual: Flags
    objects: Floats
    load: Floats

    def __len__(self) -> int:
        """Number of leaves."""
        return len(self.load)


@dataclass(frozen=True, slots=True)
class Changes:
    """What an adjustment changed in an index, or what a new index consists of, in the terms of its kind.

    Attributes:
        counts: what -> how often; the names are those of the kind of index.
        text: the same for people, as a part of a sentence; "" if there is nothing to say.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    text: str = ""


class GlobalIndex(ABC):
    """The contract of a global index.

    Each object has exactly one home leaf. The leaf's box contains the object, and it depends only on the object and the
    index. Each query goes to every leaf that may be the home of an object of its region; a CRQ of an index that
    replicates goes to leaves of which each matching object reaches at least one, as its home or as a copy: that of
    :meth:`reporter`.
    """

    kind: ClassVar[str]
    """Name of the kind of index, in files and settings; see :mod:`spatialstream.index.kinds`."""

    replicates: ClassVar[bool] = False
    """Whether :meth:`copies` may return leaves, and CRQs are routed by :meth:`route_continuous`."""

    space: Space
    """The space that it covers."""

    leaves: Leaves
    """The leaves."""

    @abstractmethod
    def route_objects(self, objects: ObjectBatch) -> Codes:
        """The home leaf of each of n objects, int32[n]."""

    def copies(self, objects: ObjectBatch, words: LeafWords | None = None) -> tuple[Codes, Codes]:
        """Further leaves in which objects may match a CRQ, in the format of :meth:`route_queries`; by default none.

        Args:
            objects: the objects.
            words: at least the words under which CRQs are registered at each leaf (:meth:`registered`); None: they may
                be any.
        """
        return np.empty(0, np.int32), np.empty(0, np.int32)

    def registered(self, queries: QueryBatch) -> LeafWords:
        """The words under which :meth:`route_continuous` registers CRQs at each leaf, without duplicates.

        By default none, because :meth:`copies` asks for none.
        """
        return np.zeros(len(self.leaves) + 1, np.int64), np.empty(0, np.uint64)

    def reporter(self, objects: ObjectBatch, row: Codes, keywords: TermLists, query: Codes) -> Codes:
        """The leaf whose slot reports each of m matches of an object and a CRQ, int32[m]; by default the object's home.

        Both are at this leaf: the query by :meth:`route_continuous`, the object as its home or one of :meth:`copies`.

        Args:
            objects: the objects.
            row: int32[m], the object of each match.
            keywords: the keyword expressions of queries.
            query: int32[m], the expression of each match, which the object satisfies.
        """
        return self.route_objects(objects)[row]

    def route_queries(self, queries: QueryBatch) -> tuple[Codes, Codes]:
        """The leaves of each query: (row int32[m], leaf int32[m]), ascending by (row, leaf) and without duplicates.

        Queries without a region (such as SKQs and CKQs) and cancellations concern all leaves. Every query concerns at
        least one leaf, provided that the centre of its circle lies in the space.
        """
        if not self.replicates:
            return self.route_regions(queries.regions)
        crq = queries.code == CODE[QueryType.CRQ]
        parts = []
        for rows, route in ((np.flatnonzero(~crq), self._route_by_space), (np.flatnonzero(crq), self.route_continuous)):
            row, leaf = route(queries.take(rows))
            parts.append((rows[row].astype(np.int32), leaf))
        row, leaf = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        order = np.lexsort((leaf, row))
        return row[order], leaf[order]

    def route_continuous(self, queries: QueryBatch) -> tuple[Codes, Codes]:
        """The leaves at which CRQs are registered, in the format of :meth:`route_queries`; it may use their keywords.

        By default the leaves that their regions intersect.
        """
        return self.route_regions(queries.regions)

    def _route_by_space(self, queries: QueryBatch) -> tuple[Codes, Codes]:
        return self.route_regions(queries.regions)

    @abstractmethod
    def route_regions(self, regions: Regions) -> tuple[Codes, Codes]:
        """The leaves that each region intersects, in the format of :meth:`route_queries`."""

    @abstractmethod
    def nearest_leaves(self, at: Floats) -> Codes:
        """The leaf nearest to each of n points float64[n, 2], which receives an SKQ first (section 6.2): int32[n]."""

    def coverage(self, statistics: Statistics, cells: Ints) -> Floats:
        """H, the fraction of query keywords that each leaf may hold (Eqn 1), by current statistics: float64[n, 2].

        By default 1: a leaf may hold every word.

        Args:
            statistics: J.
            cells: int64[n], the cell of J of each leaf.

        Returns:
            H_srq and H_skq of each leaf.
        """
        return np.ones((len(cells), 2))

    def by_leaf(self, statistics: Statistics, figures: Floats) -> Floats:
        """Figures of queries by cell of J, as figures by leaf: float64[types, n].

        By default those of the smallest cell that covers the leaf.

        Args:
            statistics: J.
            figures: float64[types, cells], such as :meth:`Statistics.asked` of all cells.
        """
        result: Floats = figures[:, statistics.cells_of(self.leaves.box)]
        return result

    def composition(self) -> Changes:
        """What the index consists of; by default nothing that is worth a word."""
        return Changes()

    @abstractmethod
    def weighed(self, objects: Floats, load: Floats) -> Self:
        """The same index with new figures of its leaves: abs(O) and the workload, float64[n] each."""

    @abstractmethod
    def to_arrays(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Serialize the index as flat arrays and a JSON-serializable ``meta``."""

    @classmethod
    @abstractmethod
    def from_arrays(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Self:
        """Deserialize the result of :meth:`to_arrays`; uses the arrays without a copy, e.g. memory-mapped ones."""
