"""Grids of queries with expressions, on top of :class:`~spatialstream.local.grid.keyword_grid.KeywordGrid`.

A KeywordGrid supports only conjunctions. A query is entered once for each of its groups and each set of terms that
stands for its condition (:mod:`~spatialstream.model.keyword_terms`). An object that matches several entries is one
match: those of a query are consecutive, so duplicates are adjacent. Forbidden terms, and what is left of conditions on
properties, are checked on the matches. Queries without any of these use a plain grid, without this overhead.

Cost: that of a plain grid with an entry per group and set; a few ns for each pair found, O(terms of the object) if the
query has forbidden terms, O(tests) if something is left of its condition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from spatialstream.local.arrays import Array, Codes, Flags, Ints
from spatialstream.local.grid.building import Frequency
from spatialstream.local.grid.keyword_grid import KeywordGrid
from spatialstream.local.grid.probing import ALWAYS, GridMatches, ProbeBatch, ProbedGrid
from spatialstream.local.keywords import KeywordTable
from spatialstream.local.wordtable import from_arrow, to_arrow
from spatialstream.model.expressions import Expanded, expanded, has_marks, posted
from spatialstream.model.kernels import kernel
from spatialstream.model.properties.programs import Programs
from spatialstream.model.regions import Regions
from spatialstream.model.space import Space
from spatialstream.model.terms import TermLists

__all__ = ["ExpressionGrid", "Grid", "build_grid", "grid_from_arrays"]


@kernel
def _lacking(
    objects: Codes, queries: Codes, spans: Codes, codes: Codes, tags: Ints, offsets: Codes, none: Codes
) -> Flags:
    """Whether the object of each pair has none of the terms that the query forbids.

    ``spans`` and ``codes`` are the objects' terms, ``offsets`` and ``none`` the numbers of the queries' forbidden
    terms; the tag of a term is its number among the forbidden terms plus 1, or 0.
    """
    lacking = np.ones(len(objects), np.bool_)
    for i in range(len(objects)):
        first, last = offsets[queries[i]], offsets[queries[i] + 1]
        if first == last:
            continue
        for j in range(spans[objects[i]], spans[objects[i] + 1]):
            tag = tags[codes[j]]
            if tag > 0:
                for k in range(first, last):
                    if none[k] == tag - 1:
                        lacking[i] = False
    return lacking


@dataclass(frozen=True, slots=True, eq=False)
class ExpressionGrid(ProbedGrid):
    """An immutable index over n continuous queries with a region and an expression; see KeywordGrid.

    Attributes:
        grid: the conjunctions of the queries.
        keywords: the n expressions.
        owner: int32, the query of each conjunction, ascending.
        none: the forbidden terms of each query.
        forbidden: the table of all forbidden terms.
        where: int32, what is left of the condition of each query, among the programs, or -1.
        programs: the distinct ones.
        names: the properties whose keywords are terms of conjunctions.
    """

    grid: KeywordGrid
    keywords: TermLists
    owner: Codes
    none: TermLists
    forbidden: KeywordTable
    where: Codes
    programs: Programs
    names: tuple[str, ...]

    @classmethod
    def build(
        cls, space: Space, regions: Regions, keywords: TermLists, frequency: Frequency | None = None
    ) -> ExpressionGrid:
        """See :meth:`KeywordGrid.build`."""
        parts, names = posted(expanded(keywords))
        grid = KeywordGrid.build(space, regions.take(parts.owner), parts.groups, frequency)
        return cls._of(grid, keywords, parts, names)

    @classmethod
    def _of(cls, grid: KeywordGrid, keywords: TermLists, parts: Expanded, names: tuple[str, ...]) -> ExpressionGrid:
        forbidden, programs = KeywordTable.build(parts.none.vocabulary), Programs.of(parts.conditions)
        return cls(grid, keywords, parts.owner, parts.none, forbidden, parts.where, programs, names)

    def __len__(self) -> int:
        return len(self.keywords)

    @property
    def posted(self) -> tuple[str, ...]:
        """See :class:`ProbedGrid`."""
        return self.names

    @property
    def regions(self) -> Regions:
        """The queries' regions."""
        return self.grid.regions.take(np.searchsorted(self.owner, np.arange(len(self))))

    def probe_within(
        self, batch: ProbeBatch, limit: int, life: Ints = ALWAYS, horizon: int = -(2**63)
    ) -> GridMatches | None:
        """See :meth:`KeywordGrid.probe_within`; the limit applies to conjunctions.

        It does so whether or not they are active, if there are more than queries.
        """
        alone = len(self.owner) == len(self)
        matches = self.grid.probe_within(batch, limit, life if alone else ALWAYS, horizon)
        if matches is None:
            return None
        objects, queries = matches.objects, matches.queries
        if not alone:
            queries = self.owner[queries]
            kept = np.ones(len(queries), np.bool_)
            kept[1:] = (objects[1:] != objects[:-1]) | (queries[1:] != queries[:-1])
            if len(life):
                t, first, end = batch.objects.t[objects], life[queries, 0], life[queries, 1]
                kept &= (first <= t) & (t < end) & (horizon < end)
            objects, queries = objects[kept], queries[kept]
        if len(self.forbidden):
            tags = np.zeros(batch.words, np.int64)
            tags[batch.keys.used] = self.forbidden.translate(batch.keys, np.arange(1, len(self.forbidden) + 1))
            lacking = _lacking(
                objects, queries, batch.spans, batch.objects.codes, tags, self.none.offsets, self.none.codes
            )
            objects, queries = objects[lacking], queries[lacking]
        if len(self.programs):
            asked = np.flatnonzero(self.where[queries] >= 0)
            holds, properties = np.ones(len(queries), np.bool_), batch.properties.of(self.programs.names)
            holds[asked] = self.programs.hold(properties, self.where[queries[asked]], objects[asked])
            objects, queries = objects[holds], queries[holds]
        starts = np.zeros(len(matches.starts), np.int64)
        np.cumsum(np.bincount(objects, minlength=len(starts) - 1), out=starts[1:])
        return GridMatches(starts, queries, matches.checked)

    def candidates(self, batch: ProbeBatch, first: int) -> Codes:
        """See :class:`ProbedGrid`; an object counts for each conjunction that it is compared with."""
        counts: Codes = np.bincount(self.owner, self.grid.candidates(batch, first), len(self)).astype(np.int32)
        return counts

    def to_arrays(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """See :meth:`KeywordGrid.to_arrays`."""
        arrays, meta = self.grid.to_arrays()
        offsets, data = from_arrow(self.keywords.vocabulary)
        arrays |= {"literal_offsets": offsets, "literal_data": data}
        arrays |= {"expression_offsets": self.keywords.offsets, "expression_codes": self.keywords.codes}
        return arrays, meta

    @classmethod
    def from_arrays(cls, space: Space, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> ExpressionGrid:
        """Deserialize the result of :meth:`to_arrays`."""
        literals = to_arrow(arrays["literal_offsets"], arrays["literal_data"])
        keywords = TermLists(arrays["expression_offsets"], arrays["expression_codes"], literals)
        return cls._of(KeywordGrid.from_arrays(space, arrays, meta), keywords, *posted(expanded(keywords)))


Grid = KeywordGrid | ExpressionGrid


def build_grid(space: Space, regions: Regions, keywords: TermLists, frequency: Frequency | None = None) -> Grid:
    """Build the grid of n queries with regions and expressions; see :meth:`KeywordGrid.build`."""
    keywords = keywords.compact()
    kind = ExpressionGrid if has_marks(keywords) else KeywordGrid
    return kind.build(space, regions, keywords, frequency)


def grid_from_arrays(space: Space, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Grid:
    """Deserialize a grid from its arrays."""
    kind = ExpressionGrid if "literal_data" in arrays else KeywordGrid
    return kind.from_arrays(space, arrays, meta)
