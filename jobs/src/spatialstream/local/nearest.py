"""Nearest objects with keywords, by best-first search of the implicit quadtree.

The search of Hjaltason and Samet (1999), with the textual pruning of an IR-tree (Cong et al. 2009). Nodes wait in a
heap under a lower bound of their distance. A node carries, for each keyword, the part of the keyword's postings that
lies in it: no postings of some keyword, and the node is dropped unseen; few postings of the rarest one, and its
objects are checked one by one; otherwise it is split. The search ends when the nearest waiting node is farther than
the k-th object found. A keyword with few postings is not searched but scanned.

Ties are part of the answer, so a node as far as the k-th object is still opened.

Cost: O(log n) nodes and about k candidates when keywords and places are independent; at worst all postings of the
rarest keyword.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from spatialstream.local.integers import wide
from spatialstream.local.termlists import has_all
from spatialstream.local.wordtable import compare
from spatialstream.local.zorder import LEVELS, node_box, node_start
from spatialstream.local.zranges import bisect, lookup, nearest_bound
from spatialstream.model.geometry import distance
from spatialstream.model.kernels import kernel

__all__ = ["nearest"]

_SCANNED = 192
"""Postings of the rarest keyword up to which all of them are checked."""

_LEAF = 12
"""Postings of the rarest keyword up to which a node is not split."""

_TRACKED = 4
"""Keywords (the rarest) whose postings are followed down the tree; any further ones are only checked."""


@kernel
def _worse(s: Any, d: float, p: int, e: float, q: int) -> bool:
    """Whether object p at distance d comes after object q at distance e."""
    if d != e:
        return bool(d > e)
    if s.t[p] != s.t[q]:
        return bool(s.t[p] < s.t[q])
    order = compare(s.ids, s.id_offsets[p], s.id_offsets[p + 1], s.id_offsets[q], s.id_offsets[q + 1])
    if order != 0:
        return bool(order > 0)
    if s.x[p] != s.x[q]:
        return bool(s.x[p] > s.x[q])
    return bool(s.y[p] > s.y[q])


@kernel
def _sink(s: Any, distances: npt.NDArray[Any], positions: npt.NDArray[Any], m: int) -> None:
    """Restore the heap of m objects (the worst on top) after its top was replaced."""
    d, p = distances[0], positions[0]
    i = 0
    while 2 * i + 1 < m:
        child = 2 * i + 1
        if child + 1 < m and _worse(s, distances[child + 1], positions[child + 1], distances[child], positions[child]):
            child += 1
        if not _worse(s, distances[child], positions[child], d, p):
            break
        distances[i], positions[i] = distances[child], positions[child]
        i = child
    distances[i], positions[i] = d, p


@kernel
def _offer(s: Any, distances: npt.NDArray[Any], positions: npt.NDArray[Any], m: int, d: float, p: int) -> int:
    """Put an object into the heap of the best; returns how many it holds."""
    if m == len(distances):
        if _worse(s, distances[0], positions[0], d, p):
            distances[0], positions[0] = d, p
            _sink(s, distances, positions, m)
        return m
    i = m
    while i > 0:
        parent = (i - 1) >> 1
        if not _worse(s, d, p, distances[parent], positions[parent]):
            break
        distances[i], positions[i] = distances[parent], positions[parent]
        i = parent
    distances[i], positions[i] = d, p
    return m + 1


@kernel
def _push(keys: npt.NDArray[Any], nodes: npt.NDArray[Any], m: int, key: float, node: int) -> None:
    i = m
    while i > 0 and keys[(i - 1) >> 1] > key:
        keys[i], nodes[i] = keys[(i - 1) >> 1], nodes[(i - 1) >> 1]
        i = (i - 1) >> 1
    keys[i], nodes[i] = key, node


@kernel
def _pop(keys: npt.NDArray[Any], nodes: npt.NDArray[Any], m: int) -> None:
    """Remove the top of a heap of m + 1 entries, whose last one takes its place."""
    key, node = keys[m], nodes[m]
    i = 0
    while 2 * i + 1 < m:
        child = 2 * i + 1
        if child + 1 < m and keys[child + 1] < keys[child]:
            child += 1
        if keys[child] >= key:
            break
        keys[i], nodes[i] = keys[child], nodes[child]
        i = child
    keys[i], nodes[i] = key, node


@kernel
def _longer(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    result = np.empty((2 * len(values), *values.shape[1:]), values.dtype)
    result[: len(values)] = values
    return result


@kernel
def nearest(
    s: Any,
    geographic: bool,
    x: float,
    y: float,
    k: int,
    word_offsets: npt.NDArray[Any],
    words: npt.NDArray[Any],
    t_after: int,
    t_last: int,
    bound: float,
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], int]:
    """The k objects nearest to (x, y) with all keywords, t in (t_after, t_last] and a distance of at most ``bound``.

    Returns:
        positions int32 and distances float64 in order of (distance, t descending, id, x, y), and how many objects were
        checked.
    """
    checked = 0
    known, codes, rarest = lookup(s, word_offsets, words)
    first, last = 0, len(s.x)
    if known and rarest >= 0:
        first, last = wide(s.posting_offsets[rarest]), wide(s.posting_offsets[rarest + 1])
    k = min(k, last - first) if known else 0
    distances = np.empty(k)
    positions = np.empty(k, np.int32)
    if k <= 0 or t_after >= s.t_max or t_last < s.t_min:
        return positions[:0], distances[:0], checked
    timed = not (t_after < s.t_min and s.t_max <= t_last)
    tracked = min(_TRACKED, len(codes))
    # a node: level, prefix, positions [lo, hi), then [lo, hi) in the postings of each tracked keyword, rarest first
    nodes = np.empty((64, 4 + 2 * tracked), np.int64)
    keys = np.empty(64)
    heap = np.empty(64, np.int64)
    nodes[0, 0], nodes[0, 1], nodes[0, 2], nodes[0, 3] = 0, 0, 0, len(s.x)
    for w in range(tracked):
        code = codes[len(codes) - 1 - w]
        nodes[0, 4 + 2 * w], nodes[0, 5 + 2 * w] = s.posting_offsets[code], s.posting_offsets[code + 1]
    keys[0], heap[0] = 0.0, 0
    used, waiting, m = 1, 1, 0
    limit = bound
    starts = np.empty(5, np.int64)
    parts = np.empty((5, tracked), np.int64)
    while waiting > 0 and keys[0] <= limit:
        node = heap[0]
        waiting -= 1
        _pop(keys, heap, waiting)
        level, prefix = nodes[node, 0], nodes[node, 1]
        lo, hi = (nodes[node, 4], nodes[node, 5]) if tracked else (nodes[node, 2], nodes[node, 3])
        if hi - lo <= (_SCANNED if node == 0 else _LEAF) or level == LEVELS:
            for i in range(lo, hi):
                position = wide(s.postings[i]) if tracked else i
                checked += 1
                d = distance(geographic, x, y, s.x[position], s.y[position])
                if not d <= limit:
                    continue
                if timed and not (t_after < s.t[position] and s.t[position] <= t_last):
                    continue
                if len(codes) > 1 and not has_all(s, position, codes):
                    continue
                m = _offer(s, distances, positions, m, d, position)
                if m == k:
                    limit = min(bound, distances[0])
            continue
        starts[0], starts[4] = nodes[node, 2], nodes[node, 3]
        for w in range(tracked):
            parts[0, w], parts[4, w] = nodes[node, 4 + 2 * w], nodes[node, 5 + 2 * w]
        for child in range(1, 4):
            starts[child] = node_start(s, level + 1, 4 * prefix + child, starts[child - 1], starts[4])
            for w in range(tracked):
                parts[child, w] = bisect(s.postings, parts[child - 1, w], parts[4, w], starts[child])
        for child in range(4):
            empty = starts[child] == starts[child + 1]
            for w in range(tracked):
                empty = empty or parts[child, w] == parts[child + 1, w]
            if empty:
                continue
            key = nearest_bound(geographic, x, y, node_box(s.grid, level + 1, 4 * prefix + child))
            if key > limit:
                continue
            if used == len(nodes):
                nodes = _longer(nodes)
            if waiting == len(keys):
                keys, heap = _longer(keys), _longer(heap)
            nodes[used, 0], nodes[used, 1] = level + 1, 4 * prefix + child
            nodes[used, 2], nodes[used, 3] = starts[child], starts[child + 1]
            for w in range(tracked):
                nodes[used, 4 + 2 * w], nodes[used, 5 + 2 * w] = parts[child, w], parts[child + 1, w]
            _push(keys, heap, waiting, key, used)
            waiting += 1
            used += 1
    for left in range(m - 1, 0, -1):
        distances[0], distances[left] = distances[left], distances[0]
        positions[0], positions[left] = positions[left], positions[0]
        _sink(s, distances, positions, left)
    return positions[:m], distances[:m], checked
