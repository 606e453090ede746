"""A segment: an immutable block of objects with an index that answers without scanning them.

Objects are columns in Z-order, so that each quadtree node is a range of positions (:mod:`.zorder`). Terms are coded
in the segment's own vocabulary (:mod:`.wordtable`), and each term has its postings: the ascending positions of its
objects. How many objects of a node have a term is then two binary searches: an IR-tree (Cong et al. 2009) of which
only the leaves are stored. On top: range-keyword search (:mod:`.zranges`), nearest neighbours (:mod:`.nearest`), and
term counts from tables of large nodes (:mod:`.termtables`).

Cost: building is a radix sort and a few passes, linear in objects and terms; about 105 bytes an object with 8 terms
and an id of 11 characters. Costs of the searches are in their modules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from spatialstream.local import nearest as nearest_search
from spatialstream.local import termlists, termtables, wordtable, zorder, zranges
from spatialstream.local.addresses import ARRAYS, Columns, row_of
from spatialstream.local.wordtable import Strings
from spatialstream.model.arrays import string_view
from spatialstream.model.geometry import BOX, CIRCLE, EVERYWHERE
from spatialstream.model.hashing import distinct_words, seed_of
from spatialstream.model.kernels import kernel
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.regions import Box, Region, cover
from spatialstream.model.space import Space

__all__ = ["Ask", "Segment"]


class Ask(NamedTuple):
    """A predicate and a time range as kernels take them: made once a query, used for every segment."""

    geographic: bool
    kind: int
    shape: npt.NDArray[np.float64]
    boxes: npt.NDArray[np.float64]
    word_offsets: npt.NDArray[np.int32]
    words: npt.NDArray[np.uint8]
    t_after: int
    t_last: int

    @classmethod
    def of(cls, space: Space, region: Region | None, keywords: Sequence[str], t_after: int, t_last: int) -> Ask:
        """From a region (None: anywhere), keywords and the time range (t_after, t_last]."""
        word_offsets, words = wordtable.pack(keywords)
        shape = np.zeros(4)
        kind = EVERYWHERE
        if isinstance(region, Box):
            kind = BOX
            shape[0], shape[1], shape[2], shape[3] = region.west, region.south, region.east, region.north
        elif region is not None:
            kind = CIRCLE
            shape[0], shape[1], shape[2] = region.x, region.y, region.radius
        boxes = np.array(cover(space, region))
        return cls(space.geographic, kind, shape, boxes, word_offsets, words, t_after, t_last)


class Segment:
    """An immutable block of objects and its index. Make one with :meth:`build`, :meth:`merge` or :meth:`from_arrays`.

    *Positions* are those of the objects in the segment.

    Args:
        space: of the objects.
        columns: the data.

    Attributes:
        table: the segment as a table of one row, see :mod:`spatialstream.local.addresses`.
    """

    def __init__(self, space: Space, columns: Columns) -> None:
        self.space = space
        self.columns = columns
        self.table = row_of(columns).reshape(1, -1)

    @classmethod
    def build(cls, space: Space, objects: ObjectBatch) -> Segment:
        """Index a batch of objects, in any order."""
        return cls(
            space,
            _columns(
                string_view(objects.ids),
                (objects.t, objects.x, objects.y),
                (objects.terms.offsets, objects.terms.codes),
                string_view(objects.terms.vocabulary),
            ),
        )

    @classmethod
    def merge(cls, parts: Sequence[Segment], floor: int) -> Segment:
        """One segment of the objects of several (at least one) that have t >= floor.

        Raises:
            OverflowError: ids or terms together need offsets of more than 31 bits.
        """
        columns = [part.columns for part in parts]
        kept = [np.flatnonzero(part.t >= floor) for part in columns]
        word_offsets, words = wordtable.concatenate([(part.word_offsets, part.words) for part in columns])
        codes, firsts = distinct_words(word_offsets, words)
        ends = np.cumsum([part.terms for part in parts]).tolist()
        sets = [
            termlists.decode_sets(part.unit_offsets, part.units, taken, codes[end - len(part.word_offsets) + 1 : end])
            for part, taken, end in zip(columns, kept, ends, strict=True)
        ]
        ids = [wordtable.gather(part.id_offsets, part.ids, taken) for part, taken in zip(columns, kept, strict=True)]
        places = (
            np.concatenate([part.t[taken] for part, taken in zip(columns, kept, strict=True)]),
            np.concatenate([part.x[taken] for part, taken in zip(columns, kept, strict=True)]),
            np.concatenate([part.y[taken] for part, taken in zip(columns, kept, strict=True)]),
        )
        vocabulary = wordtable.gather(word_offsets, words, firsts)
        return cls(
            parts[0].space, _columns(wordtable.concatenate(ids), places, wordtable.concatenate(sets), vocabulary)
        )

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The segment as named flat arrays."""
        arrays = {name: getattr(self.columns, name) for name in ARRAYS}
        return arrays | {"span": np.array([self.columns.t_min, self.columns.t_max], np.int64)}

    @classmethod
    def from_arrays(cls, space: Space, arrays: Mapping[str, npt.NDArray[Any]]) -> Segment:
        """The segment of :meth:`to_arrays`, without a copy."""
        columns: dict[str, Any] = {name: arrays[name] for name in ARRAYS}
        columns["numbers"] = np.empty(0, np.int32)
        columns["depth"] = (len(arrays["directory"]).bit_length() - 1) // 2
        columns["t_min"], columns["t_max"] = arrays["span"].tolist()
        return cls(space, Columns(**columns))

    def __len__(self) -> int:
        """Number of objects."""
        return len(self.columns.t)

    @property
    def t_min(self) -> int:
        """Least timestamp, ms."""
        return self.columns.t_min

    @property
    def t_max(self) -> int:
        """Greatest timestamp, ms; less than ``t_min`` if there are no objects."""
        return self.columns.t_max

    @property
    def terms(self) -> int:
        """Number of distinct terms."""
        return len(self.columns.word_offsets) - 1

    @cached_property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(getattr(self.columns, name).nbytes for name in ARRAYS)

    def words(self, codes: npt.NDArray[np.int32]) -> Strings:
        """The terms of codes, as (offsets, utf8 bytes)."""
        words: Strings = wordtable.gather(self.columns.word_offsets, self.columns.words, codes.astype(np.int64))
        return words

    def range_query(
        self, region: Region | None, keywords: Sequence[str], t_after: int, t_last: int
    ) -> npt.NDArray[np.int32]:
        """Ascending positions of the objects in the region with all keywords and t in (t_after, t_last]."""
        ask = Ask.of(self.space, region, keywords, t_after, t_last)
        positions: npt.NDArray[np.int32] = zranges.search(self.table, *ask)[1]
        return positions

    def nearest(
        self,
        x: float,
        y: float,
        k: int,
        keywords: Sequence[str],
        t_after: int,
        t_last: int,
        bound: float = np.inf,
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64]]:
        """The k nearest objects with all keywords, t in (t_after, t_last] and a distance of at most ``bound``.

        Returns:
            positions and distances, in order of (distance, t descending, id, x, y).
        """
        _, positions, distances, _ = nearest_search.nearest(
            self.table, self.space.geographic, x, y, k, *wordtable.pack(keywords), t_after, t_last, bound
        )
        return positions, distances

    def term_counts(
        self, region: Region | None, keywords: Sequence[str], t_after: int, t_last: int
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """How many of the objects of :meth:`range_query` have each term: (codes, counts), only counts above 0."""
        ask = Ask.of(self.space, region, keywords, t_after, t_last)
        codes, counts, _ = termtables.count_codes(self.table, *ask)
        return codes, counts


def _columns(
    ids: Strings,
    places: tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.float64]],
    sets: Strings,
    vocabulary: Strings,
) -> Columns:
    """Sort and index objects given as ids, (t, x, y), term sets and the vocabulary these are coded in."""
    t, x, y = places
    grid = zorder.grid_of(x, y)
    order = zorder.z_sort(grid, x, y)
    t, x, y = t[order], x[order], y[order]
    directory = zorder.directory_of(grid, x, y)

    frequencies = _tally(sets[1], len(vocabulary[0]) - 1)
    used = np.flatnonzero(frequencies)
    used = used[np.argsort(-frequencies[used], kind="stable")]
    ranks = np.full(len(frequencies), -1, np.int32)
    ranks[used] = np.arange(len(used), dtype=np.int32)
    posting_offsets = np.zeros(len(used) + 1, np.int32)
    np.cumsum(frequencies[used], out=posting_offsets[1:])
    unit_offsets, units, postings = termlists.encode_sets(*sets, order, ranks, posting_offsets)
    word_offsets, words = wordtable.gather(*vocabulary, used)
    columns = Columns(
        t,
        x,
        y,
        *wordtable.gather(*ids, order),
        unit_offsets,
        units,
        word_offsets,
        words,
        wordtable.slots_with(seed_of(word_offsets, words), word_offsets, words, len(used), len(used)),
        posting_offsets,
        postings,
        grid,
        directory,
        np.empty(0, np.int64),
        np.zeros(1, np.int64),
        np.empty(0, np.uint16),
        np.empty(0, np.int32),
        (len(directory).bit_length() - 1) // 2,
        int(t.min()) if len(t) else 0,
        int(t.max()) if len(t) else -1,
    )
    keys, offsets, tables = termtables.term_tables(row_of(columns).reshape(1, -1))
    return columns._replace(table_keys=keys, table_offsets=offsets, tables=tables)


@kernel
def _tally(codes: npt.NDArray[Any], n: int) -> npt.NDArray[Any]:
    frequencies = np.zeros(n, np.int64)
    for i in range(len(codes)):
        frequencies[codes[i]] += 1
    return frequencies
