"""Which slot has a CKQ, if each is on one: the subsets of DkM-SKS (2020, Algorithm 2) as a function of the query.

The paper knows of each subscription where it is. Here a router, a slot and a replay have to find the same slot without
a table of all queries, so the partition is a tree through which a query falls: an inner node is quartered by place, or
its queries are dealt by bits of the query's *key*, a hash of what every owner of the query knows of it. A leaf is a
subset, and subsets have slots, as leaves of a global index have. It is immutable, and a part of a routing version.

Cost: the depth of the tree for each query. State: 5 bytes a node, 44 bytes a subset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from spatialstream.model.arrays import Array, Codes, Flags, Floats, Ints, Words
from spatialstream.model.queries import QueryBatch
from spatialstream.model.space import Space

__all__ = ["QueryPartition", "keys_at", "keys_of", "share_of"]

_FIRST, _SECOND, _SHIFT = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53), np.uint64(33)
_LEVELS = 32


def keys_of(queries: QueryBatch) -> Words:
    """The key of each query: a hash of its place, its time and its k, which registered queries keep when they move."""
    return keys_at(queries.at, queries.t, queries.k)


def keys_at(at: Floats, t: Ints, k: Codes | Ints) -> Words:
    """The keys of queries at places float64[n, 2], of times and with k."""
    columns = (at[:, 0], at[:, 1], t, k.astype(np.int64))
    key = np.zeros(len(at), np.uint64)
    with np.errstate(over="ignore"):
        for column in columns:
            key = (key ^ (column + np.zeros((), column.dtype)).view(np.uint64)) * _FIRST  # -0.0 is 0.0
            key = (key ^ (key >> _SHIFT)) * _SECOND
            key ^= key >> _SHIFT
    return key


def share_of(key: Words, dealt: int | Ints) -> Codes:
    """Which of four parts each query belongs to where queries are dealt for the ``dealt``-th time on their way."""
    shift = np.asarray(2 * (dealt % _LEVELS)).astype(np.uint64)
    bits: Codes = ((key >> shift) & np.uint64(3)).astype(np.int32)
    return bits


@dataclass(frozen=True, slots=True, eq=False)
class QueryPartition:
    """A tree of n nodes, the root first; its leaves are m subsets.

    Attributes:
        space: of the queries.
        child: int32[n], the first of a node's four children, which follow each other; ``~subset`` of a leaf.
        dealt: bool[n], whether a node's queries are dealt; otherwise its cell is quartered.
        slot: int32[m], of each subset.
        cost: float64[m], of each subset (Eqn 6), by which they are balanced.
        box: float64[m, 4], the rectangle around the balls of each when it was built.
    """

    space: Space
    child: Codes
    dealt: Flags
    slot: Codes
    cost: Floats
    box: Floats

    def subsets_of(self, at: Floats, key: Words) -> Codes:
        """The subset of each of n queries, int32[n].

        Args:
            at: float64[n, 2], their places.
            key: uint64[n], of :func:`keys_of`.
        """
        node, times = np.zeros(len(at), np.int64), np.zeros(len(at), np.int64)
        cell = np.tile(np.array(self.space.bounds, np.float64), (len(at), 1))
        inner = np.flatnonzero(self.child[node] >= 0)
        while len(inner):
            dealt = self.dealt[node[inner]]
            share = np.empty(len(inner), np.int64)
            share[dealt] = share_of(key[inner[dealt]], times[inner[dealt]])
            times[inner[dealt]] += 1
            share[~dealt] = self._quarters(at, cell, inner[~dealt])
            node[inner] = self.child[node[inner]] + share
            inner = inner[self.child[node[inner]] >= 0]
        return ~self.child[node]

    @staticmethod
    def _quarters(at: Floats, cell: Floats, rows: Ints) -> Ints:
        """The quarter of its cell in which each of some queries is; the cell becomes that quarter."""
        share = np.zeros(len(rows), np.int64)
        for axis in (0, 1):
            middle = (cell[rows, axis] + cell[rows, axis + 2]) / 2.0
            above = at[rows, axis] >= middle
            share += above << axis
            cell[rows, axis] = np.where(above, middle, cell[rows, axis])
            cell[rows, axis + 2] = np.where(above, cell[rows, axis + 2], middle)
        return share

    def slots_of(self, queries: QueryBatch) -> Codes:
        """The slot of each query, int32[n]."""
        return self.slot[self.subsets_of(queries.at, keys_of(queries))]

    def moved(self, slot: Codes) -> Self:
        """The same subsets on other slots, int32[m]: what PM and FM change."""
        return replace(self, slot=slot)

    def to_arrays(self) -> dict[str, Array]:
        """As flat arrays."""
        return {name: getattr(self, name) for name in ("child", "dealt", "slot", "cost", "box")}

    @classmethod
    def from_arrays(cls, space: Space, arrays: Mapping[str, Array]) -> Self:
        """The partition that :meth:`to_arrays` has written."""
        return cls(space, **arrays)
