"""Nearest objects with keywords, by best-first search of the implicit quadtree.

The search of Hjaltason and Samet (1999), with the textual pruning of an IR-tree (Cong et al. 2009). Nodes are kept in a
heap, ordered by a lower bound of their distance. A node carries, for each keyword, the range of the keyword's postings
inside the node: if a keyword has none, the node is dropped; if the rarest keyword has few, its objects are checked one
by one; otherwise the node is split. The search ends when the nearest remaining node is farther than the k-th object
found. If a keyword has few postings in total, they are scanned instead.

Ties affect the answer, so a node at the distance of the k-th object is still opened.

Cost: O(log n) nodes and about k candidates if keywords and positions are independent; at worst all postings of the
rarest keyword.
"""

from __future__ import annotations

import numpy as np

from spatialstream.local.arrays import Array, grown, wide
from spatialstream.local.snapshot.addresses import columns_at
from spatialstream.local.snapshot.termlists import has_all
from spatialstream.local.snapshot.zorder import LEVELS, node_box, node_start
from spatialstream.local.snapshot.zranges import bisect, is_reached, lookup, nearest_bound
from spatialstream.local.wordtable import compare
from spatialstream.model.geometry import distance
from spatialstream.model.kernels import kernel

__all__ = ["nearest"]

Best = tuple[Array, Array, Array]
"""A heap of objects: distances float64, rows of the table int32, positions int32."""

_SCANNED = 64
"""Number of postings of the rarest keyword up to which all of them are scanned."""

_LEAF = 24
"""Number of postings of the rarest keyword up to which a node is not split."""

_TRACKED = 4
"""Number of keywords (the rarest ones) whose postings are tracked down the tree; others are only checked."""


@kernel
def _worse(table: Array, d: float, r: int, p: int, e: float, o: int, q: int) -> bool:
    """Whether object p of row r at distance d comes after object q of row o at distance e."""
    if d != e:
        return d > e
    a, b = columns_at(table, r), columns_at(table, o)
    if a.t[p] != b.t[q]:
        return bool(a.t[p] < b.t[q])
    order = compare(a.ids, a.id_offsets[p], a.id_offsets[p + 1], b.ids, b.id_offsets[q], b.id_offsets[q + 1])
    if order != 0:
        return order > 0
    if a.x[p] != b.x[q]:
        return bool(a.x[p] > b.x[q])
    return bool(a.y[p] > b.y[q])


@kernel
def _sink(table: Array, best: Best, m: int) -> None:
    """Restore the heap of m objects (the worst on top) after its top was replaced."""
    distances, rows, positions = best
    d, r, p = distances[0], rows[0], positions[0]
    i = 0
    while 2 * i + 1 < m:
        j = 2 * i + 1
        if j + 1 < m and _worse(
            table, distances[j + 1], rows[j + 1], positions[j + 1], distances[j], rows[j], positions[j]
        ):
            j += 1
        if not _worse(table, distances[j], rows[j], positions[j], d, r, p):
            break
        distances[i], rows[i], positions[i] = distances[j], rows[j], positions[j]
        i = j
    distances[i], rows[i], positions[i] = d, r, p


@kernel
def _offer(table: Array, best: Best, m: int, d: float, r: int, p: int) -> int:
    """Offer an object to the heap of the best; return its size."""
    distances, rows, positions = best
    if m == len(distances):
        if _worse(table, distances[0], rows[0], positions[0], d, r, p):
            distances[0], rows[0], positions[0] = d, r, p
            _sink(table, best, m)
        return m
    i = m
    while i > 0:
        j = (i - 1) >> 1
        if not _worse(table, d, r, p, distances[j], rows[j], positions[j]):
            break
        distances[i], rows[i], positions[i] = distances[j], rows[j], positions[j]
        i = j
    distances[i], rows[i], positions[i] = d, r, p
    return m + 1


@kernel
def _push(keys: Array, nodes: Array, m: int, key: float, node: int) -> None:
    i = m
    while i > 0 and keys[(i - 1) >> 1] > key:
        keys[i], nodes[i] = keys[(i - 1) >> 1], nodes[(i - 1) >> 1]
        i = (i - 1) >> 1
    keys[i], nodes[i] = key, node


@kernel
def _pop(keys: Array, nodes: Array, m: int) -> None:
    """Remove the top of a heap of m + 1 entries, replacing it by the last entry."""
    key, node = keys[m], nodes[m]
    i = 0
    while 2 * i + 1 < m:
        j = 2 * i + 1
        if j + 1 < m and keys[j + 1] < keys[j]:
            j += 1
        if keys[j] >= key:
            break
        keys[i], nodes[i] = keys[j], nodes[j]
        i = j
    keys[i], nodes[i] = key, node


@kernel
def nearest(
    table: Array,
    geographic: bool,
    x: float,
    y: float,
    k: int,
    word_offsets: Array,
    words: Array,
    t_after: int,
    t_last: int,
    bound: float,
) -> tuple[Array, Array, Array, int]:
    """The k objects nearest to (x, y) with all keywords, t in (t_after, t_last] and a distance of at most ``bound``.

    Returns:
        rows of the table int32[m], positions int32[m] and distances float64[m], in order of (distance, t descending,
        id, x, y); and the number of objects checked.
    """
    keywords = len(word_offsets) - 1
    tracked = min(_TRACKED, keywords)
    # a node: row, level, prefix, positions [lo, hi), then [lo, hi) in the postings of the tracked keywords
    nodes = np.empty((64 + len(table), 5 + 2 * tracked), np.int64)
    keys = np.empty(len(nodes))
    heap = np.empty(len(nodes), np.int64)
    codes = np.empty((len(table), keywords), np.int64)
    used, waiting, m, checked, most = 0, 0, 0, 0, 0
    for row in range(len(table)):
        s = columns_at(table, row)
        if not is_reached(s, t_after, t_last):
            continue
        known, codes[row], _ = lookup(s, word_offsets, words)
        if not known:
            continue
        nodes[used, 0], nodes[used, 1], nodes[used, 2], nodes[used, 3], nodes[used, 4] = row, 0, 0, 0, len(s.x)
        for w in range(tracked):
            code = codes[row, keywords - 1 - w]
            nodes[used, 5 + 2 * w], nodes[used, 6 + 2 * w] = s.posting_offsets[code], s.posting_offsets[code + 1]
        most += nodes[used, 6] - nodes[used, 5] if tracked else nodes[used, 4]
        key = nearest_bound(geographic, x, y, (s.grid[0], s.grid[1], s.grid[2], s.grid[3]))
        _push(keys, heap, waiting, key, used)
        waiting += 1
        used += 1
    k = min(k, most)
    best = (np.empty(k), np.empty(k, np.int32), np.empty(k, np.int32))
    limit = bound
    starts = np.empty(5, np.int64)
    parts = np.empty((5, tracked), np.int64)
    while k > 0 and waiting > 0 and keys[0] <= limit:
        node = heap[0]
        waiting -= 1
        _pop(keys, heap, waiting)
        row, level, prefix = nodes[node, 0], nodes[node, 1], nodes[node, 2]
        s = columns_at(table, row)
        lo, hi = (nodes[node, 5], nodes[node, 6]) if tracked else (nodes[node, 3], nodes[node, 4])
        if hi - lo <= (_SCANNED if level == 0 else _LEAF) or level == LEVELS:
            timed = not (t_after < s.t_min and s.t_max <= t_last)
            for i in range(lo, hi):
                position = wide(s.postings[i]) if tracked else i
                checked += 1
                d = distance(geographic, x, y, s.x[position], s.y[position])
                if not d <= limit:
                    continue
                if timed and not (t_after < s.t[position] and s.t[position] <= t_last):
                    continue
                if keywords > 1 and not has_all(s, position, codes[row]):
                    continue
                m = _offer(table, best, m, d, row, position)
                if m == k:
                    limit = min(bound, best[0][0])
            continue
        starts[0], starts[4] = nodes[node, 3], nodes[node, 4]
        for w in range(tracked):
            parts[0, w], parts[4, w] = nodes[node, 5 + 2 * w], nodes[node, 6 + 2 * w]
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
                nodes = grown(nodes, used, 2 * used)
            if waiting == len(keys):
                keys, heap = grown(keys, waiting, 2 * waiting), grown(heap, waiting, 2 * waiting)
            nodes[used, 0], nodes[used, 1], nodes[used, 2] = row, level + 1, 4 * prefix + child
            nodes[used, 3], nodes[used, 4] = starts[child], starts[child + 1]
            for w in range(tracked):
                nodes[used, 5 + 2 * w], nodes[used, 6 + 2 * w] = parts[child, w], parts[child + 1, w]
            _push(keys, heap, waiting, key, used)
            waiting += 1
            used += 1
    distances, rows, positions = best
    for left in range(m - 1, 0, -1):
        distances[0], distances[left] = distances[left], distances[0]
        rows[0], rows[left] = rows[left], rows[0]
        positions[0], positions[left] = positions[left], positions[0]
        _sink(table, best, left)
    return rows[:m], positions[:m], distances[:m], checked
