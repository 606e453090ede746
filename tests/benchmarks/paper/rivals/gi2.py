"""What workers of PS2Stream do: Definition 1, with the pairs that a GI2 checks (ICDE 2017, sections IV-A and IV-D).

A GI2 is a grid of 2^6 times 2^6 cells with an inverted list for each word of a cell. A query is in a list of each cell
that it meets, under the least frequent word of each of its groups. An object is checked against the lists of its words
in its cell. ``KeywordGrid`` is this project's heir of it, which looks at far fewer pairs one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from spatialstream.index.a_grid.a_grid import cells_of
from spatialstream.index.kd_t.frequencies import Frequencies
from spatialstream.model.arrays import Ints, runs
from spatialstream.model.expressions import expanded
from spatialstream.model.hashing import hash_strings
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.space import Space

SIDE = 1 << 6


class Gi2:
    """The lists of all queries, and those that all objects look at.

    Args:
        space: the space.
        objects: the objects.
        queries: CRQs with boxes and words.
        frequencies: which word is the least frequent.
    """

    def __init__(self, space: Space, objects: ObjectBatch, queries: QueryBatch, frequencies: Frequencies) -> None:
        parts = expanded(queries.keywords)
        word = frequencies.rarest(parts.groups)
        words, of = np.unique(word, return_inverse=True)
        cells, rows = met(space, queries)
        start = np.searchsorted(parts.owner, np.arange(len(queries) + 1))
        sizes = np.diff(start)[rows]  # each group in each cell of its query
        entry = runs(start[rows], sizes)
        keys, self.list = np.unique(np.repeat(cells, sizes) * len(words) + of[entry], return_inverse=True)
        self.query: Ints = np.repeat(rows, sizes)
        self.lists, self.n = len(keys), (len(objects), len(queries))

        hashes = hash_strings(objects.terms.vocabulary)
        at = np.minimum(np.searchsorted(words, hashes), len(words) - 1)
        asked = np.where(words[at] == hashes, at, -1)[objects.terms.codes]
        owner = np.repeat(np.arange(len(objects)), np.diff(objects.terms.offsets))[asked >= 0]
        wanted = cells_at(space, objects)[owner] * len(words) + asked[asked >= 0]
        place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        found = keys[place] == wanted
        self.object, self.looked = owner[found], place[found]

    def checks(self, objects_of: Sequence[Ints], queries_of: Sequence[Ints]) -> npt.NDArray[np.float64]:
        """Pairs that each worker checks, float64[workers].

        Args:
            objects_of: the rows of the objects of each.
            queries_of: the rows of its queries.
        """
        return np.array([self._checks(*both) for both in zip(objects_of, queries_of, strict=True)], np.float64)

    def _checks(self, objects: Ints, queries: Ints) -> int:
        here, there = (np.zeros(n, np.bool_) for n in self.n)
        here[objects], there[queries] = True, True
        lengths = np.bincount(self.list[there[self.query]], minlength=self.lists)
        return int(lengths[self.looked[here[self.object]]].sum())


def cells_at(space: Space, objects: ObjectBatch) -> Ints:
    """The cell of each object, int64[n]."""
    column, row = cells_of(space, SIDE, objects.x, objects.y)
    return row.astype(np.int64) * SIDE + column


def middles(space: Space) -> npt.NDArray[np.float64]:
    """The middle of each cell, float64[cells, 2]."""
    steps = (np.arange(SIDE) + 0.5) / SIDE
    x = space.west + (space.east - space.west) * steps
    y = space.south + (space.north - space.south) * steps
    return np.stack([np.tile(x, SIDE), np.repeat(y, SIDE)], axis=1)


def met(space: Space, queries: QueryBatch) -> tuple[Ints, Ints]:
    """The cells that queries meet: (cell int64[m], query int64[m])."""
    west, south, east, north = queries.regions.shape.T
    low, high = cells_of(space, SIDE, west, south), cells_of(space, SIDE, east, north)
    columns, rows = (last.astype(np.int64) - first + 1 for first, last in zip(low, high, strict=True))
    each = np.repeat(np.arange(len(queries)), rows * columns)
    number = runs(np.zeros(len(queries), np.int64), rows * columns)
    column, row = low[0][each] + number % columns[each], low[1][each] + number // columns[each]
    return row * SIDE + column, each
