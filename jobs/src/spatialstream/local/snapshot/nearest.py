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
from spatialstream.local.snapshot.heaps import ascending, offer, pop, push
from spatialstream.local.snapshot.termlists import has_all
from spatialstream.local.snapshot.zorder import LEVELS, node_box, node_start
from spatialstream.local.snapshot.zranges import bisect, has_keywords, is_keyword, is_reached, lookup, nearest_bound
from spatialstream.model.geometry import distance
from spatialstream.model.kernels import kernel

__all__ = ["nearest"]

_SCANNED = 64
"""Number of postings of the rarest keyword up to which all of them are scanned."""

_LEAF = 24
"""Number of postings of the rarest keyword up to which a node is not split."""

_TRACKED = 4
"""Number of keywords (the rarest ones) whose postings are tracked down the tree; others are only checked."""


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
    keywords, texts = len(word_offsets) - 1, 0
    for i in range(keywords):
        texts += not is_keyword(word_offsets, words, i)
    tracked = min(_TRACKED, keywords)
    # a node: row, level, prefix, positions [lo, hi), then [lo, hi) in the postings of the tracked keywords
    nodes = np.empty((64 + len(table), 5 + 2 * tracked), np.int64)
    keys = np.empty(len(nodes))
    heap = np.empty(len(nodes), np.int64)
    codes = np.empty((len(table), keywords), np.int64)  # those of words, then those of keywords of properties
    ranked = np.empty(keywords, np.int64)
    used, waiting, m, checked, most = 0, 0, 0, 0, 0
    for row in range(len(table)):
        s = columns_at(table, row)
        if not is_reached(s, t_after, t_last):
            continue
        known, codes[row], _, _ = lookup(s, word_offsets, words)
        if not known:
            continue
        ranked[:] = codes[row]
        ranked.sort()
        nodes[used, 0], nodes[used, 1], nodes[used, 2], nodes[used, 3], nodes[used, 4] = row, 0, 0, 0, len(s.x)
        for w in range(tracked):
            code = ranked[keywords - 1 - w]
            nodes[used, 5 + 2 * w], nodes[used, 6 + 2 * w] = s.posting_offsets[code], s.posting_offsets[code + 1]
        most += nodes[used, 6] - nodes[used, 5] if tracked else nodes[used, 4]
        key = nearest_bound(geographic, x, y, (s.grid[0], s.grid[1], s.grid[2], s.grid[3]))
        push(keys, heap, waiting, key, used)
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
        pop(keys, heap, waiting)
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
                if keywords > 1 and not has_all(s, position, codes[row, :texts]):
                    continue
                if texts < keywords and keywords > 1 and not has_keywords(s, position, codes[row, texts:]):
                    continue
                m = offer(table, best, m, d, row, position)
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
            push(keys, heap, waiting, key, used)
            waiting += 1
            used += 1
    ascending(table, best, m)
    distances, rows, positions = best
    return rows[:m], positions[:m], distances[:m], checked
