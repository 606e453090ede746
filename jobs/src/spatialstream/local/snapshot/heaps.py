"""Binary heaps of kernels: of nodes by a lower bound, and of the best objects found so far.

The heap of the best objects has the worst on top. Objects are ordered by a number that is the better the less it is (a
distance, a score), and ties by what rows show: (number, timestamp descending, id, x, y).
"""

from __future__ import annotations

from spatialstream.local.arrays import Array
from spatialstream.local.snapshot.addresses import columns_at
from spatialstream.local.wordtable import compare
from spatialstream.model.kernels import lean_kernel

__all__ = ["Best", "ascending", "offer", "pop", "push"]

Best = tuple[Array, Array, Array]
"""A heap of objects: distances or scores float64, rows of the table int32, positions int32."""


@lean_kernel
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


@lean_kernel
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


@lean_kernel
def offer(table: Array, best: Best, m: int, d: float, r: int, p: int) -> int:
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


@lean_kernel
def push(keys: Array, nodes: Array, m: int, key: float, node: int) -> None:
    """Add a node to a heap of m entries, the least key on top."""
    i = m
    while i > 0 and keys[(i - 1) >> 1] > key:
        keys[i], nodes[i] = keys[(i - 1) >> 1], nodes[(i - 1) >> 1]
        i = (i - 1) >> 1
    keys[i], nodes[i] = key, node


@lean_kernel
def pop(keys: Array, nodes: Array, m: int) -> None:
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


@lean_kernel
def ascending(table: Array, best: Best, m: int) -> None:
    """Turn the heap of m objects into a list, the best first (the second half of a heap sort)."""
    distances, rows, positions = best
    for left in range(m - 1, 0, -1):
        distances[0], distances[left] = distances[left], distances[0]
        rows[0], rows[left] = rows[left], rows[0]
        positions[0], positions[left] = positions[left], positions[0]
        _sink(table, best, left)
