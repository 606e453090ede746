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
from spatialstream.local import rows, termlists, termtables, wordtable, zorder, zranges
from spatialstream.local.integers import wide
from spatialstream.local.rows import RawRows
from spatialstream.local.wordtable import Strings
from spatialstream.model.arrays import string_view
from spatialstream.model.geometry import BOX, CIRCLE, EVERYWHERE
from spatialstream.model.kernels import kernel
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.regions import Box, Region, cover
from spatialstream.model.space import Space
from spatialstream.model.terms import TermLists

__all__ = ["Ask", "Columns", "Segment", "prepare"]


class Columns(NamedTuple):
    """Everything of a segment, as its kernels see it; n objects, v terms.

    Attributes:
        t: int64[n], ms.
        x: float64[n].
        y: float64[n].
        id_offsets: int32[n + 1].
        ids: uint8, utf8.
        unit_offsets: int32[n + 1], of the objects' term sets.
        units: uint16, see :mod:`spatialstream.local.termlists`.
        word_offsets: int32[v + 1], of the vocabulary; the most frequent term first.
        words: uint8, utf8.
        slots: int32, the vocabulary's table, see :mod:`spatialstream.local.wordtable`.
        posting_offsets: int32[v + 1].
        postings: int32, ascending positions of each term's objects.
        grid: float64[6], see :func:`spatialstream.local.zorder.grid_of`.
        directory: int32[4^depth + 1], first position of each node of a level.
        table_keys: int64[m], see :mod:`spatialstream.local.termtables`.
        table_offsets: int64[m + 1].
        tables: uint16.
        depth: level of the directory's nodes.
        t_min: least t.
        t_max: greatest t; less than ``t_min`` if there are no objects.
    """

    t: npt.NDArray[np.int64]
    x: npt.NDArray[np.float64]
    y: npt.NDArray[np.float64]
    id_offsets: npt.NDArray[np.int32]
    ids: npt.NDArray[np.uint8]
    unit_offsets: npt.NDArray[np.int32]
    units: npt.NDArray[np.uint16]
    word_offsets: npt.NDArray[np.int32]
    words: npt.NDArray[np.uint8]
    slots: npt.NDArray[np.int32]
    posting_offsets: npt.NDArray[np.int32]
    postings: npt.NDArray[np.int32]
    grid: npt.NDArray[np.float64]
    directory: npt.NDArray[np.int32]
    table_keys: npt.NDArray[np.int64]
    table_offsets: npt.NDArray[np.int64]
    tables: npt.NDArray[np.uint16]
    depth: int
    t_min: int
    t_max: int


_ARRAYS = Columns._fields[:-3]


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

    *Positions* are those of the objects in the segment; :meth:`rows` gives what is at them.

    Args:
        space: of the objects.
        columns: the data.
    """

    def __init__(self, space: Space, columns: Columns) -> None:
        self.space = space
        self.columns = columns

    @classmethod
    def build(cls, space: Space, objects: ObjectBatch) -> Segment:
        """Index a batch of objects, in any order.

        Raises:
            OverflowError: ids or terms need offsets of more than 31 bits.
        """
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
        """One segment of the objects of several (at least one) that have t >= floor."""
        kept = [np.flatnonzero(part.columns.t >= floor) for part in parts]
        word_offsets, words = wordtable.concatenate([(part.columns.word_offsets, part.columns.words) for part in parts])
        codes, firsts = wordtable.union(word_offsets, words)
        translations = np.split(codes, np.cumsum([part.terms for part in parts])[:-1])
        sets = [
            termlists.decode_sets(
                part.columns.unit_offsets, part.columns.units, taken, np.ascontiguousarray(translation)
            )
            for part, taken, translation in zip(parts, kept, translations, strict=True)
        ]
        t, x, y = (
            np.concatenate([getattr(part.columns, name)[taken] for part, taken in zip(parts, kept, strict=True)])
            for name in ("t", "x", "y")
        )
        ids = wordtable.concatenate(
            [
                wordtable.gather(part.columns.id_offsets, part.columns.ids, taken)
                for part, taken in zip(parts, kept, strict=True)
            ]
        )
        return cls(
            parts[0].space,
            _columns(ids, (t, x, y), wordtable.concatenate(sets), wordtable.gather(word_offsets, words, firsts)),
        )

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The segment as named flat arrays."""
        arrays = {name: getattr(self.columns, name) for name in _ARRAYS}
        return arrays | {"span": np.array([self.columns.t_min, self.columns.t_max], np.int64)}

    @classmethod
    def from_arrays(cls, space: Space, arrays: Mapping[str, npt.NDArray[Any]]) -> Segment:
        """The segment of :meth:`to_arrays`, without a copy."""
        columns: dict[str, Any] = {name: arrays[name] for name in _ARRAYS}
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
        return sum(getattr(self.columns, name).nbytes for name in _ARRAYS)

    def vocabulary(self, codes: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
        """The terms of codes, as (offsets, utf8 bytes)."""
        return wordtable.gather(self.columns.word_offsets, self.columns.words, codes.astype(np.int64))

    def rows(self, positions: npt.NDArray[np.int32], distances: npt.NDArray[np.float64] | None = None) -> RawRows:
        """What is at the positions; without distances they are 0."""
        return _rows(self.columns, positions, np.zeros(len(positions)) if distances is None else distances)

    def range_query(
        self, region: Region | None, keywords: Sequence[str], t_after: int, t_last: int
    ) -> npt.NDArray[np.int32]:
        """Ascending positions of the objects in the region with all keywords and t in (t_after, t_last]."""
        return self.search(Ask.of(self.space, region, keywords, t_after, t_last))[0]

    def search(self, ask: Ask) -> tuple[npt.NDArray[np.int32], int]:
        """As :meth:`range_query`; also how many objects were checked."""
        found: tuple[npt.NDArray[np.int32], int] = zranges.search(self.columns, *ask)
        return found

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
        ask = Ask.of(self.space, None, keywords, t_after, t_last)
        return self.search_nearest(x, y, k, ask, bound)[:2]

    def search_nearest(
        self, x: float, y: float, k: int, ask: Ask, bound: float
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64], int]:
        """As :meth:`nearest` (the region of ``ask`` is ignored); also how many objects were checked."""
        found: tuple[npt.NDArray[np.int32], npt.NDArray[np.float64], int] = nearest_search.nearest(
            self.columns, ask.geographic, x, y, k, ask.word_offsets, ask.words, ask.t_after, ask.t_last, bound
        )
        return found

    def term_counts(
        self, region: Region | None, keywords: Sequence[str], t_after: int, t_last: int
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """How many of the objects of :meth:`range_query` have each term: (codes, counts), only counts above 0."""
        ask = Ask.of(self.space, region, keywords, t_after, t_last)
        return self.count(ask, np.zeros(self.terms, np.int32))[:2]

    def count(
        self, ask: Ask, counts: npt.NDArray[np.int32]
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], int]:
        """As :meth:`term_counts`; also how many objects were checked.

        Args:
            ask: the predicate.
            counts: scratch, at least ``terms`` zeros; zeros again afterwards.
        """
        found: tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], int] = termtables.count_terms(
            self.columns, *ask, counts
        )
        return found


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
        wordtable.slots_of(word_offsets, words),
        posting_offsets,
        postings,
        grid,
        directory,
        np.empty(0, np.int64),
        np.zeros(1, np.int64),
        np.empty(0, np.uint16),
        (len(directory).bit_length() - 1) // 2,
        int(t.min()) if len(t) else 0,
        int(t.max()) if len(t) else -1,
    )
    keys, offsets, tables = termtables.term_tables(columns)
    return columns._replace(table_keys=keys, table_offsets=offsets, tables=tables)


@kernel
def _tally(codes: npt.NDArray[Any], n: int) -> npt.NDArray[Any]:
    frequencies = np.zeros(n, np.int64)
    for i in range(len(codes)):
        frequencies[codes[i]] += 1
    return frequencies


@kernel
def _rows(
    s: Any, positions: npt.NDArray[Any], distances: npt.NDArray[Any]
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    n = len(positions)
    taken = np.empty(n, np.int64)
    t, x, y = np.empty(n, np.int64), np.empty(n), np.empty(n)
    for i in range(n):
        p = wide(positions[i])
        taken[i] = p
        t[i], x[i], y[i] = s.t[p], s.x[p], s.y[p]
    offsets, ids = wordtable.gather(s.id_offsets, s.ids, taken)
    return distances, t, offsets, ids, x, y


def prepare() -> None:
    """Compile every kernel of segments."""
    space = Space.planar(0.0, 0.0, 1.0, 1.0)
    objects = ObjectBatch(
        wordtable.to_arrow(*wordtable.pack(["a", "b"])),
        np.array([1, 2], np.int64),
        np.array([0.25, 0.75]),
        np.array([0.25, 0.75]),
        TermLists.of([["u", "v"], ["v"]]),
    )
    segment = Segment.merge([Segment.build(space, objects)] * 2, 0)
    region = Box(0.0, 0.0, 1.0, 1.0)
    positions = segment.range_query(region, ["v"], 0, 2)
    segment.nearest(0.0, 0.0, 1, ["v"], 0, 2)
    codes, _ = segment.term_counts(region, [], 0, 2)
    segment.vocabulary(codes)
    rows.arrange([segment.rows(positions)] * 2, nearest=False)
