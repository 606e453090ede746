"""Multi-way number partitioning by the differencing method of Karmarkar and Karp, which assigns leaves to slots.

N. Karmarkar, R. M. Karp: The differencing method of set partitioning, 1982; SSTD, end of section 4.1.2. Cost:
O(n (k log k + log n)) for n numbers and k subsets.
"""

from __future__ import annotations

import heapq

import numpy as np
import numpy.typing as npt

__all__ = ["imbalance", "karmarkar_karp"]

_Subset = tuple[float, int, list[int]]
"""Sum, number of items, items."""

_EMPTY: _Subset = (0.0, 0, [])


def imbalance(loads: npt.NDArray[np.float64]) -> float:
    """Lmax / Lmin of the loads of slots (definition 4): infinite if some slot has no load, 1 if no slot has any."""
    highest, lowest = float(loads.max(initial=0.0)), float(loads.min(initial=np.inf))
    if highest == 0.0:
        return 1.0
    return highest / lowest if lowest > 0.0 else float("inf")


def karmarkar_karp(loads: npt.NDArray[np.float64], k: int) -> npt.NDArray[np.int32]:
    """Split n non-negative loads into k subsets with sums as equal as the heuristic achieves.

    Each load starts as a solution of its own, with k subsets of which one holds the load; empty subsets are not stored.
    The two solutions whose largest and smallest sums differ most are merged, the largest subset of one with the
    smallest of the other, until one solution is left. Of subsets with equal sums, the one with fewer items counts as
    smaller, so loads of 0 are spread out too.

    Returns:
        The subset of each load, int32[n]. Subsets are numbered by their first load, so the result depends only on the
        loads.
    """
    heap = [_entry([(load, 1, [item])], item, k) for item, load in enumerate(loads.tolist())]
    heapq.heapify(heap)
    for number in range(len(loads), 2 * len(loads) - 1):
        one, other = heapq.heappop(heap)[-1], heapq.heappop(heap)[-1]
        heapq.heappush(heap, _entry(_merged(one, other, k), number, k))
    result = np.zeros(len(loads), np.int32)
    if heap:
        subsets = sorted(sorted(subset[2]) for subset in heap[0][-1] if subset[2])
        for i, items in enumerate(subsets):
            result[items] = i
    return result


def _merged(one: list[_Subset], other: list[_Subset], k: int) -> list[_Subset]:
    """Merge the largest subset of one solution with the smallest of the other, and so on; the result is unordered."""
    smallest, meet = other[::-1], max(0, len(one) + len(other) - k)  # the rest meets a subset that is empty
    alone = len(one) - meet
    both = [(a[0] + b[0], a[1] + b[1], a[2] + b[2]) for a, b in zip(one[alone:], smallest[:meet], strict=True)]
    return one[:alone] + both + smallest[meet:]


def _entry(solution: list[_Subset], number: int, k: int) -> tuple[float, int, int, list[_Subset]]:
    """Heap entry of a solution with its subsets from largest to smallest: largest difference first, then oldest."""
    solution.sort(key=lambda subset: (-subset[0], -subset[1]))
    largest, smallest = solution[0], solution[-1] if len(solution) == k else _EMPTY
    return smallest[0] - largest[0], smallest[1] - largest[1], number, solution
