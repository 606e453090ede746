"""Groups of continuous top-k terms queries that share a common table (SSTD, section 6.1, Figure 6).

Queries are grouped if they have the same window, the same keywords and steps at the same instants. A group's *common
region* lies in the regions of all its members: objects in it are counted once for the group, other objects once for
each member. It is the intersection of the regions of the founding members; the region of a later member has to contain
it, so that existing counts stay valid.

The choice of groups is a heuristic (it affects the cost, never an answer): queries whose centres and sizes fall into
the same cell are processed in order; each joins the first group there for which the saving grows. With m members and a
common region of area A, the group saves (m - 1) A updates per unit of density, so another member requires m A' >
(m - 1) A; and at least half of the query's region must be common, or its own table costs less. Regions other than plain
boxes are shared only by queries with equal regions.

Cost: O(n log n) for n queries that are registered together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.local.arrays import Bytes, Codes, Floats, Ints
from spatialstream.local.columns import rank_strings
from spatialstream.local.keywords import Int
from spatialstream.local.wordtable import compare_words, concatenate, from_arrow
from spatialstream.model.arrays import numpy_view
from spatialstream.model.geometry import BOX
from spatialstream.model.hashing import distinct
from spatialstream.model.kernels import kernel, lean_kernel
from spatialstream.model.regions import Regions
from spatialstream.model.terms import TermLists

__all__ = ["Members", "assign", "cells", "join_keywords", "split_keywords"]

_OPEN = 8
"""Maximum number of groups per cell that a query is compared with."""

_MIX = -7046029254386353131  # 2^64 / golden ratio, as a signed 64-bit integer


def join_keywords(keywords: TermLists) -> pa.StringArray:
    """Join each set into one string, equal for equal sets: its sorted terms, separated by a character in no term."""
    rank = rank_strings(keywords.vocabulary)
    owner = np.repeat(np.arange(len(keywords)), np.diff(keywords.offsets))
    codes = keywords.codes[int(keywords.offsets[0]) : int(keywords.offsets[-1])]
    codes = codes[np.lexsort((rank[codes], owner))]
    lists = pa.ListArray.from_arrays(
        pa.array(keywords.offsets - keywords.offsets[0]), keywords.vocabulary.take(pa.array(codes))
    )
    return pc.binary_join(lists, " ")


def split_keywords(keys: pa.StringArray) -> TermLists:
    """Split strings of :func:`join_keywords` into sets."""
    lists = pc.split_pattern(keys, " ")
    words = lists.flatten()
    # the empty string is the empty set, but splits into one empty word
    lengths = np.where(numpy_view(pc.binary_length(keys)) > 0, np.diff(numpy_view(lists.offsets)), 0)
    offsets = np.zeros(len(keys) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    words = words.filter(pc.not_equal(words, ""))
    codes, firsts = distinct(words)
    return TermLists(offsets, codes, words.take(pa.array(firsts)))


class Members(NamedTuple):
    """The properties of n queries, or of existing groups, that matter for grouping.

    Attributes:
        window, step: int64[n], ms.
        phase: int64[n], time of the steps modulo ``step``.
        key_offsets, key_data: keywords of each, see :func:`join_keywords`.
        kind, shape: regions of the queries; of a group, its common region.
        polygon: int32[n], the number of each one's polygon, -1 if it is none; equal numbers are equal polygons.
    """

    window: Ints
    step: Ints
    phase: Ints
    key_offsets: Codes
    key_data: Bytes
    kind: Bytes
    shape: Floats
    polygon: Codes

    @classmethod
    def of(
        cls, window: Ints, step: Ints, phase: Ints, keys: pa.StringArray, regions: Regions, polygon: Codes
    ) -> Members:
        """Build from keys of :func:`join_keywords`, regions, and the numbers of their polygons."""
        return cls(window, step, phase, *from_arrow(keys), regions.kind, regions.shape, polygon)

    def and_then(self, others: Members) -> Members:
        """Concatenate with others."""
        keys = concatenate([(part.key_offsets, part.key_data) for part in (self, others)])
        names = ("window", "step", "phase", "kind", "shape", "polygon")
        columns = {name: np.concatenate([getattr(self, name), getattr(others, name)]) for name in names}
        return Members(key_offsets=keys[0], key_data=keys[1], **columns)


@lean_kernel
def _mixed(h: Int, part: Int) -> Int:
    h = (h ^ part) * _MIX
    return h ^ ((h >> 29) & 0x7FFFFFFFF)


@kernel
def _rounded(value: float) -> Int:
    return np.int64(min(max(value * 4096.0, -9e18), 9e18))


@kernel
def cells(members: Members) -> Ints:
    """Hashes of window, step, phase, keywords and approximate position and size: only equal ones are compared.

    The hash needs no key: queries with equal hashes are sorted next to each other, and each is compared with a few.
    """
    window, step, phase, key_offsets, key_data, kind, shape, _ = members
    n = len(window)
    out = np.empty(n, np.int64)
    for i in range(n):
        h: Int = np.int64(kind[i])
        for part in (window[i], step[i], phase[i]):
            h = _mixed(h, part)
        for j in range(key_offsets[i], key_offsets[i + 1]):
            h = _mixed(h, np.int64(key_data[j]))
        a, b, c, d = shape[i]
        if kind[i] == BOX and a <= c:
            # a power of two between the longer side and twice that
            cell = 2.0 ** np.ceil(np.log2(max(max(c - a, d - b), 1e-300)))
            for value in (cell, np.floor((a + c) * 0.5 / cell), np.floor((b + d) * 0.5 / cell)):
                h = _mixed(h, _rounded(value))
        else:
            for value in (a, b, c, d):
                h = _mixed(h, _rounded(value))
        out[i] = h
    return out


@kernel
def _assign(order: Ints, existing: int, cell: Ints, queries: Members, common: Floats) -> Ints:
    """The founder of the group of each query (itself, if it founds one); shrinks the founders' ``common`` regions."""
    window, step, phase, key_offsets, key_data, kind, shape, polygon = queries
    founder = np.arange(len(order))
    members = np.ones(len(order), np.int64)
    open_, opened = np.empty(_OPEN, np.int64), 0
    for at in range(len(order)):
        i = order[at]
        if at == 0 or cell[order[at - 1]] != cell[i]:
            opened = 0
        joined = False
        if i >= existing:
            for which in range(min(opened, _OPEN)):
                g = open_[which]
                if (
                    window[g] != window[i]
                    or step[g] != step[i]
                    or phase[g] != phase[i]
                    or kind[g] != kind[i]
                    or polygon[g] != polygon[i]
                    or compare_words(key_offsets, key_data, g, i) != 0
                ):
                    continue
                same = True
                for side in range(4):
                    same = same and common[g, side] == shape[i, side]
                if not same:
                    plain = kind[i] == BOX and common[g, 0] <= common[g, 2] and shape[i, 0] <= shape[i, 2]
                    if not plain:
                        continue
                    west, south = max(common[g, 0], shape[i, 0]), max(common[g, 1], shape[i, 1])
                    east, north = min(common[g, 2], shape[i, 2]), min(common[g, 3], shape[i, 3])
                    if west >= east or south >= north:
                        continue
                    before = (common[g, 2] - common[g, 0]) * (common[g, 3] - common[g, 1])
                    own = (shape[i, 2] - shape[i, 0]) * (shape[i, 3] - shape[i, 1])
                    area = (east - west) * (north - south)
                    if 2.0 * area < own or 2.0 * area < before or members[g] * area < (members[g] - 1) * before:
                        continue
                    if g >= existing:
                        common[g, 0], common[g, 1], common[g, 2], common[g, 3] = west, south, east, north
                    elif west > common[g, 0] or south > common[g, 1] or east < common[g, 2] or north < common[g, 3]:
                        continue
                founder[i] = g
                members[g] += 1
                joined = True
                break
        if not joined:
            open_[opened % _OPEN] = i
            opened += 1
    return founder


def assign(existing: Members, queries: Members, cell: Ints, query_cell: Ints) -> tuple[Ints, Floats]:
    """Assign queries to groups.

    Args:
        existing: m groups that may be joined.
        queries: n queries.
        cell: the :func:`cells` of the groups.
        query_cell: the :func:`cells` of the queries.

    Returns:
        int64[n]: below m, the group that the query joins; otherwise m + the position of the query that founds its
        group. And float64[n, 4]: the common region of the group that each query founds (meaningless if it founds none).
    """
    m, everyone = len(existing.window), existing.and_then(queries)
    shape, all_cells = everyone.shape, np.concatenate([cell, query_cell])
    centre = shape[:, 0] + shape[:, 2]
    centre[:m] = -np.inf  # existing groups come first
    order = np.lexsort((np.arange(len(centre)), shape[:, 1] + shape[:, 3], centre, all_cells))
    common = shape.copy()
    founder = _assign(order, m, all_cells, everyone, common)
    return founder[m:], common[m:]
