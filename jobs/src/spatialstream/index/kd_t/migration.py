"""Which cells leave an overloaded slot: *minimum cost migration* (PS2Stream, Definition 4), solved by GR.

Of cells with a load L and a size S each, those are wanted whose loads add up to at least τ and whose sizes add up to as
little as possible. That is NP-hard (Theorem 2). Algorithm GR (section V-A2) takes cells by rising S/L as long as their
loads stay below τ. A cell with which they would reach it is a *candidate* to be the last one: with those taken so far
it is a solution. The cheapest of these solutions is the result.

Cost: O(cells log cells).
"""

from __future__ import annotations

import numpy as np

from spatialstream.model.arrays import Floats, Ints

__all__ = ["greedy"]


def greedy(loads: Floats, sizes: Floats, target: float, most: float = np.inf) -> Ints:
    """Choose cells by algorithm GR.

    Args:
        loads: float64[n], L of each cell, at least 0.
        sizes: float64[n], S of each cell, at least 0.
        target: τ; more than 0.
        most: what the loads of a solution are less than. The paper has no such bound; without one, a slot may give away
            so much that the other one is overloaded.

    Returns:
        The cells, ascending. If no solution is within ``most``, those taken on the way, whose loads are less than
        ``target``.
    """
    relative = np.where(loads > 0.0, sizes / np.maximum(loads, 1e-300), np.inf)
    taken, last = list[int](), list[int]()
    load = size = 0.0
    cheapest = np.inf
    for cell in np.lexsort((-loads, relative)).tolist():
        more = float(loads[cell])
        if more <= 0.0 or load + more >= most:
            continue
        if load + more < target:
            taken.append(cell)
            load, size = load + more, size + float(sizes[cell])
        elif size + sizes[cell] < cheapest:
            cheapest, last = size + float(sizes[cell]), [*taken, cell]
    return np.array(sorted(last or taken), np.int64)
