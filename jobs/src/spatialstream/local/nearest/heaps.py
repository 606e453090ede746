"""The k best objects of each query in a slot, as heaps of two numbers in arrays that all queries share.

Objects are ordered by a number that is the better the less it is (a distance, or the negative of a key), and at the
same number by timestamp, later first.
"""

from __future__ import annotations

from typing import NamedTuple

from spatialstream.local.arrays import Flags, Floats, Ints, grown
from spatialstream.model.kernels import kernel, lean_kernel

__all__ = ["Heaps", "Kept", "enlarge", "farther", "rise", "sink"]

_LEAST = 4


class Kept(NamedTuple):
    """Columns of the queries; the k best of query r are ``size[r]`` entries from ``offset[r]`` on."""

    k: Ints
    offset: Ints
    capacity: Ints
    size: Ints
    touched: Flags


class Heaps(NamedTuple):
    """The k nearest of all queries: binary heaps, the farthest at the root. Free space begins at ``top[0]``."""

    distances: Floats
    times: Ints
    top: Ints


@kernel
def farther(d: float, t: int, other_d: float, other_t: int) -> bool:
    """Whether (d, t) comes after the other one in the order of answers by distance and timestamp."""
    return d > other_d or (d == other_d and t < other_t)


@lean_kernel
def sink(heaps: Heaps, base: int, count: int, d: float, t: int) -> None:
    """Put (d, t) into a heap of ``count`` whose root is free."""
    distances, times = heaps.distances, heaps.times
    at = 0
    while True:
        child = 2 * at + 1
        if child >= count:
            break
        if child + 1 < count and farther(
            distances[base + child + 1], times[base + child + 1], distances[base + child], times[base + child]
        ):
            child += 1
        if not farther(distances[base + child], times[base + child], d, t):
            break
        distances[base + at] = distances[base + child]
        times[base + at] = times[base + child]
        at = child
    distances[base + at] = d
    times[base + at] = t


@lean_kernel
def rise(heaps: Heaps, base: int, count: int, d: float, t: int) -> None:
    """Put (d, t) into a heap of ``count`` that has room for it at its end."""
    distances, times = heaps.distances, heaps.times
    at = count
    while at > 0:
        parent = (at - 1) // 2
        if not farther(d, t, distances[base + parent], times[base + parent]):
            break
        distances[base + at] = distances[base + parent]
        times[base + at] = times[base + parent]
        at = parent
    distances[base + at] = d
    times[base + at] = t


@kernel
def enlarge(kept: Kept, heaps: Heaps, r: int) -> Heaps:
    """Move the full heap of query r to twice as much room; return the storage, which may have grown."""
    wanted = min(kept.k[r], max(_LEAST, 2 * kept.capacity[r]))
    top, base = heaps.top[0], kept.offset[r]
    if top + wanted > len(heaps.distances):
        room = max(top + wanted, 2 * len(heaps.distances))
        heaps = Heaps(grown(heaps.distances, top, room), grown(heaps.times, top, room), heaps.top)
    for j in range(kept.size[r]):
        heaps.distances[top + j] = heaps.distances[base + j]
        heaps.times[top + j] = heaps.times[base + j]
    kept.offset[r], kept.capacity[r] = top, wanted
    heaps.top[0] = top + wanted
    return heaps
