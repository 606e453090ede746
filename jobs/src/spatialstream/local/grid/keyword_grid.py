"""KeywordGrid: continuous range-keyword queries, pruned by space and by rarest keyword together.

The idea of FAST (Mahmood, Aref, Aly: "FAST: Frequency-Aware Indexing for Spatio-Textual Data Streams", ICDE 2018), as
immutable flat arrays: a pyramid of grids; a query is stored at the deepest level at which its cover intersects only a
few cells, and there only under its rarest keyword. Differences from FAST:

- A query is in every cell that its cover intersects, and a point lies in one cell per level, so each match is found
  once.
- All data of a cell is contiguous: a directory (hash table) leads to the cell, which has a filter (one bit per
  keyword), a hash table from keywords to posting lists, and the lists. The objects of a batch are visited in Z-order,
  so that the cells of neighbours are in the first-level cache.
- A posting contains the data that decides most candidates: the part of the cover inside the cell, in 15-bit
  coordinates, and one signature bit for each of two more keywords. Rounding is monotone, so strictly inside is inside
  and strictly outside is outside: only a point on the border of the rounded rectangle, a circle, a polygon in a cell
  that it does not contain, or a second keyword requires access to the query itself. A posting also contains the
  remaining length of its list, so that all candidates of a block are processed in one loop.
- Objects pass through stages (terms, cells, filters, tables, postings, exact checks) in blocks. Each stage is a loop
  that selects without branches, because a processor mispredicts tests that pass half of the time, and that prefetches
  the memory that the next stage will read (:mod:`spatialstream.local.cachelines`).
- An attacker who chooses queries cannot cause hash collisions: cells have keyed hashes, and words are numbered in
  random order, both with a seed (:func:`~spatialstream.model.hashing.seed_of`) derived from all queries of the grid.
- Words are looked up once per batch (:mod:`spatialstream.local.keywords`), with a mask of the levels at which each is
  the index keyword of a query.

Cost: an object takes one directory lookup per level at which one of its terms is used, one filter bit per such term,
and one comparison per posting found. A query takes at most 5 postings of 16 bytes, averaged over its possible
positions; a square takes 2.6 to 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from spatialstream.local.arrays import Array, Codes, Ints
from spatialstream.local.grid.building import Frequency, build_index
from spatialstream.local.grid.layout import Index
from spatialstream.local.grid.matching import count_candidates, match, unpack
from spatialstream.local.grid.probing import ALWAYS, GridMatches, ProbeBatch, ProbedGrid
from spatialstream.local.keywords import Int, KeywordTable
from spatialstream.model.polygons.column import PolygonColumn
from spatialstream.model.polygons.packing import unpacked_polygons
from spatialstream.model.progress import made
from spatialstream.model.regions import Regions
from spatialstream.model.space import Space
from spatialstream.model.terms import TermLists

__all__ = ["KeywordGrid"]

_EFFORT = 1 << 30
"""Approximate number of comparisons per call of compiled code: about a second of work."""


@dataclass(frozen=True, slots=True, eq=False)
class KeywordGrid(ProbedGrid):
    """An immutable index over n continuous range-keyword queries; see the module.

    Attributes:
        space: the space of the regions.
        table: the table of the queries' words.
        words: int32, the word of each number. Numbers are in random order; the table's words are in their original
            order, so that looking up many words reads memory almost sequentially.
        tags: int64 by word: levels at which it is an index keyword << 32 | number + 1.
        unconditional: levels of the queries without keywords, as a mask.
        index: the queries, and the cells.
    """

    space: Space
    table: KeywordTable
    words: Codes
    tags: Ints
    unconditional: int
    index: Index

    @classmethod
    def build(
        cls, space: Space, regions: Regions, keywords: TermLists, frequency: Frequency | None = None
    ) -> KeywordGrid:
        """Index n queries.

        Args:
            space: the space of the regions.
            regions: n < 2^29 regions.
            keywords: n sets of keywords.
            frequency: returns the frequency of each word in objects; by default, the frequency in the queries is used.
                It determines the rarest keyword, so it affects the speed and never the matches.
        """
        keywords = keywords.compact()
        index, words, tags, unconditional = build_index(space, regions, keywords, frequency)
        return cls(space, KeywordTable.build(keywords.vocabulary), words, tags, unconditional, index)

    def __len__(self) -> int:
        return len(self.index.kind)

    @property
    def posted(self) -> tuple[str, ...]:
        """See :class:`ProbedGrid`: it has no conditions."""
        return ()

    @property
    def regions(self) -> Regions:
        """The queries' regions."""
        polygons = unpacked_polygons(self.index.polygons, self.space.geographic)
        return Regions(self.index.kind, self.index.shape, PolygonColumn(self.index.geometry, polygons))

    @property
    def keywords(self) -> TermLists:
        """The queries' keywords."""
        return TermLists(self.index.keyword_lists, self.words[self.index.keyword_codes], self.table.vocabulary)

    def probe_within(
        self, batch: ProbeBatch, limit: int, life: Ints = ALWAYS, horizon: int = -(2**63)
    ) -> GridMatches | None:
        """As :meth:`probe`, but return None as soon as there are more than ``limit`` matches."""
        given = self.space.geographic, batch.objects, self.index, *self._read(batch), life, horizon
        n = len(batch.objects.visits)
        at: Int = np.int64(0)
        visited, pieces = np.zeros(n, np.int32), [np.empty(0, np.int64)]
        while at < n:
            some, at = match(*given, limit, at, _EFFORT, visited)
            limit -= len(some)
            pieces.append(some)
            if limit < 0:
                return None
            made()
        found = pieces[1] if len(pieces) == 2 else np.concatenate(pieces)
        found.sort()
        return GridMatches(*unpack(found, batch.objects.order, visited))

    def candidates(self, batch: ProbeBatch, first: int) -> Codes:
        """See :class:`ProbedGrid`."""
        counts = np.zeros(len(self), np.int32)
        count_candidates(batch.objects, self.index, *self._read(batch), np.int64(first), counts)
        return counts

    def _read(self, batch: ProbeBatch) -> tuple[Ints, int, int]:
        """The tag of each word of a batch, how many levels are in use, and what stands for a word that all have."""
        known = self.table.translate(batch.keys, self.tags)
        tags = np.empty(batch.words, np.int64)
        tags[batch.keys.used] = known
        levels = self.unconditional | int(np.bitwise_or.reduce(known, initial=0)) >> 32
        everyone = self.unconditional << 32 | (len(self.table) + 1) if self.unconditional else 0
        return tags, levels.bit_count(), everyone

    def to_arrays(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Serialize as flat arrays and a JSON-serializable ``meta``, see :meth:`from_arrays`."""
        arrays = {"words": self.words, "tags": self.tags, **self.index._asdict(), **self.table.to_arrays()}
        return arrays, {"unconditional": self.unconditional}

    @classmethod
    def from_arrays(cls, space: Space, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> KeywordGrid:
        """Deserialize the result of :meth:`to_arrays`. Nothing is rebuilt or copied; arrays may be memory-mapped."""
        index = Index(*(arrays[name] for name in Index._fields))
        table, unconditional = KeywordTable.from_arrays(arrays), int(meta["unconditional"])
        return cls(space, table, arrays["words"], arrays["tags"], unconditional, index)
