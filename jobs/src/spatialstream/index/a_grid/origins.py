"""The origins of an adjusted A-Grid's leaves: the old leaves that they overlap.

Cost: O(cells + sampled records).
"""

from __future__ import annotations

import numpy as np

from spatialstream.index.a_grid.a_grid import AGrid
from spatialstream.index.a_grid.continuous import ContinuousQueries
from spatialstream.index.a_grid.costs import Rectangle
from spatialstream.index.origins import Origins
from spatialstream.index.sample import Sample

__all__ = ["origins_of"]


def origins_of(old: AGrid, new: AGrid, sample: Sample, continuous: ContinuousQueries) -> Origins:
    """The origins of the leaves of ``new``, another division of the same cells.

    An old leaf's objects are divided as its sampled ones, or, if it has none, as its cells; its continuous queries by
    those that concern the overlap.
    """
    n = len(old.leaves)
    keys, cells = np.unique(new.table.astype(np.int64) * n + old.table, return_counts=True)
    leaf, source = np.divmod(keys, n)
    both = new.route_objects(sample.objects).astype(np.int64) * n + old.route_objects(sample.objects)
    held = np.bincount(np.searchsorted(keys, both), sample.counts()[0], len(keys)).astype(np.float64)
    seen = np.bincount(source, held, n) > 0.0
    share = np.where(seen[source], held, cells)
    share /= np.bincount(source, share, n)[source]
    queries = np.ones(len(keys))
    for at in np.flatnonzero(share < 1.0).tolist():
        overlap = _overlap(new, int(leaf[at]), old, int(source[at]))
        west, south, east, north = old.rectangles[source[at]].tolist()
        queries[at] = continuous.share(overlap, (west, south, east, north))
    return Origins(leaf.astype(np.int32), source.astype(np.int32), share, queries, len(new.leaves))


def _overlap(new: AGrid, leaf: int, old: AGrid, source: int) -> Rectangle:
    one, other = new.rectangles[leaf], old.rectangles[source]
    west, south = np.maximum(one[:2], other[:2]).tolist()
    east, north = np.minimum(one[2:], other[2:]).tolist()
    return west, south, east, north
