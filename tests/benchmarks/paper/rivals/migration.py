"""Which cells an overloaded worker gives away, by other algorithms than GR (PS2Stream, ICDE 2017, section V-A).

- *DP*: of all solutions the one with the least size, by dynamic programming (section V-A1). A(i, j) is the highest
  load of cells among the first i whose sizes add up to j at most. (As printed a cell of size j itself is left out; that
  would miss solutions.) It keeps which cell was taken for each i and j: O(cells x size) time and memory.
- *SI*: the largest cells first.
- *RA*: any cells.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from spatialstream.index.kd_t.migration import greedy
from spatialstream.model.arrays import Floats, Ints
from spatialstream.model.kernels import kernel

MEMORY = 1 << 30
"""Bytes that DP may have."""

Bits = npt.NDArray[np.uint8]


@kernel
def _filled(loads: Floats, sizes: Ints, target: float, best: Floats, taken: Bits) -> int:
    """Fill A, row by row in ``best``, and which cells were taken; the least size with which the target is reached."""
    n, most = taken.shape
    for i in range(n):
        size = sizes[i]
        for j in range(most - 1, size - 1, -1):
            value = best[j - size] + loads[i]
            if value > best[j]:
                best[j] = value
                taken[i, j] = 1
    for j in range(most):
        if best[j] >= target:
            return j
    return -1


def dynamic(loads: Floats, sizes: Floats, target: float) -> Ints:
    """DP: whole sizes.

    Raises:
        MemoryError: it would need more than :data:`MEMORY`.
    """
    whole = np.rint(sizes).astype(np.int64)
    bound = int(whole[greedy(loads, sizes, target)].sum())  # P: what GR finds
    if len(loads) * (bound + 1) > MEMORY:
        raise MemoryError(f"{len(loads):,} cells of {bound:,} together")
    taken = np.zeros((len(loads), bound + 1), np.uint8)
    at = _filled(loads, whole, target * (1.0 - 1e-12), np.zeros(bound + 1), taken)
    found = []
    for i in range(len(loads) - 1, -1, -1):
        if taken[i, at]:
            found.append(i)
            at -= int(whole[i])
    return np.array(found[::-1], np.int64)


def largest_first(loads: Floats, sizes: Floats, target: float) -> Ints:
    """SI."""
    return _first(np.argsort(-sizes, kind="stable"), loads, target)


def at_random(loads: Floats, sizes: Floats, target: float, seed: int = 0) -> Ints:
    """RA."""
    return _first(np.random.default_rng((12, seed)).permutation(len(loads)), loads, target)


def _first(order: Ints, loads: Floats, target: float) -> Ints:
    """As many cells in an order as reach a load."""
    enough = int(np.searchsorted(np.cumsum(loads[order]), target * (1.0 - 1e-12))) + 1
    return np.sort(order[:enough])


ALGORITHMS: dict[str, Callable[[Floats, Floats, float], Ints]] = {
    "DP": dynamic, "GR": greedy, "SI": largest_first, "RA": at_random,
}  # fmt: skip
"""By the names of the paper."""
