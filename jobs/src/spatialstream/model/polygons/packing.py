"""Polygons in one array of numbers: how a table of them is passed to kernels, and kept in files and mapped from them.

A table has nine columns. As nine arguments they would cost each call of a kernel several microseconds, whether it has
polygons or not; as one array they cost what one does, and :func:`table_of` makes the columns, which are views of it,
once for a call. No polygons are an empty array.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from spatialstream.model.arrays import Floats
from spatialstream.model.kernels import kernel
from spatialstream.model.polygons.polygon import Polygon
from spatialstream.model.polygons.table import PolygonTable

__all__ = ["packed_polygons", "table_of", "unpacked_polygons"]

_COLUMNS = 9
"""Columns of a :class:`PolygonTable`."""


def packed_polygons(polygons: Sequence[Polygon]) -> Floats:
    """A table of polygons as float64[...]: the lengths of its columns, then their bytes, each in whole words."""
    if not polygons:
        return np.empty(0)
    columns = [np.ascontiguousarray(column).reshape(-1) for column in PolygonTable.of(polygons)]
    words = [np.array([len(column) for column in columns], np.int64).view(np.float64)]
    for column in columns:
        whole = np.zeros(-(-column.nbytes // 8))
        whole.view(column.dtype)[: len(column)] = column
        words.append(whole)
    return np.concatenate(words)


@kernel
def table_of(packed: Floats) -> PolygonTable:
    """The table of :func:`packed_polygons`, as views; of an empty array a table of none, which must not be asked."""
    if len(packed) == 0:
        codes = packed.view(np.int32)
        none = packed.reshape(0, 4)
        return PolygonTable(packed, packed, codes, codes, none, packed, codes, packed.view(np.int64), codes)
    size = packed[:_COLUMNS].view(np.int64)
    start = np.zeros(_COLUMNS + 1, np.int64)
    start[0] = _COLUMNS
    for i in range(_COLUMNS):
        narrow = i in (2, 3, 6, 8)  # ring, part, first_band and edges are int32
        start[i + 1] = start[i] + ((size[i] + 1) // 2 if narrow else size[i])
    return PolygonTable(
        packed[start[0] : start[1]],
        packed[start[1] : start[2]],
        packed[start[2] : start[3]].view(np.int32)[: size[2]],
        packed[start[3] : start[4]].view(np.int32)[: size[3]],
        packed[start[4] : start[5]].reshape(size[4] // 4, 4),
        packed[start[5] : start[6]],
        packed[start[6] : start[7]].view(np.int32)[: size[6]],
        packed[start[7] : start[8]].view(np.int64),
        packed[start[8] : start[9]].view(np.int32)[: size[8]],
    )


def unpacked_polygons(packed: Floats, geographic: bool) -> tuple[Polygon, ...]:
    """The polygons of :func:`packed_polygons`."""
    if not len(packed):
        return ()
    table = table_of(packed)
    points = np.stack([table.x, table.y], axis=1)
    closes = np.append(table.ring[1:] != table.ring[:-1], True)
    # each vertex but the last of a ring begins an edge, and each edge is in a band of its polygon
    bands = table.band[table.first_band]
    firsts = [int(table.edges[a:b].min()) for a, b in pairwise(bands.tolist())]
    polygons = []
    for first, end in pairwise([*firsts, len(points)]):
        ring, closing = table.ring[first:end], closes[first:end]
        ends = np.flatnonzero(closing) + 1 - np.arange(1, closing.sum() + 1)
        part = table.part[ring[0] : ring[-1] + 1]
        begins = np.flatnonzero(np.append(True, part[1:] != part[:-1]))
        polygons.append(
            Polygon(
                np.ascontiguousarray(points[first:end][~closing]),
                np.append(0, ends).astype(np.int32),
                np.append(begins, len(part)).astype(np.int32),
                geographic,
            )
        )
    return tuple(polygons)
