"""Construction of an A-Grid from a sample (Tornado, section 4.1).

The least possible cost of the costliest rectangle (Eqn 3) is NP-hard to find. So the costliest one is cut, over and
over, where the costlier part costs least, until there are as many as wanted: a priority queue, as in a k-d tree.

Not specified in the paper: a rectangle whose whole cost is in one cell becomes no cheaper by a cut, and is not cut as
long as another one does. If none does, and there are fewer rectangles than wanted, the largest ones are halved: what
comes may come elsewhere.

Cost: O(sampled objects + cells), and O(columns + rows + log n) for each of n cuts.
"""

from __future__ import annotations

import heapq

import numpy as np

from spatialstream.index.a_grid.a_grid import SIDE, AGrid, cells_of
from spatialstream.index.a_grid.costs import Costs, Cut, Rectangle, object_costs
from spatialstream.index.statistics import Statistics
from spatialstream.model.objects import ObjectBatch

__all__ = ["build_a_grid", "divide"]


def build_a_grid(objects: ObjectBatch, leaves: int, statistics: Statistics, side: int = SIDE) -> AGrid:
    """Build an A-Grid of ``leaves`` rectangles, or of as many as it has cells.

    Args:
        objects: a sample of the stream.
        leaves: how many evaluators' partitions, N_e.
        statistics: J; its space is the grid's.
        side: number of columns and of rows of the fine grid.
    """
    cost = object_costs(objects, statistics)
    costs = Costs(side, *cells_of(statistics.space, side, objects.x, objects.y), cost)
    rectangles = np.array(divide(costs, side, leaves), np.int32)
    n = len(rectangles)
    empty = AGrid(statistics.space, rectangles, np.zeros(n), np.zeros(n), side)
    leaf = empty.route_objects(objects)
    return empty.weighed(*(np.bincount(leaf, each, n).astype(np.float64) for each in (np.ones(len(leaf)), cost)))


def divide(costs: Costs, side: int, leaves: int) -> list[Rectangle]:
    """Divide a grid into rectangles, costliest first, at most one a cell; ordered by south-west cell."""
    queue: list[tuple[int, int, Rectangle, Cut]] = []
    finished: list[Rectangle] = []

    def wait(rectangle: Rectangle) -> None:
        cut = costs.best_cut(rectangle)
        if cut is None:
            finished.append(rectangle)
            return
        west, south, east, north = rectangle
        cost = costs.of(rectangle)
        urgent = cost if cut.larger < cost else 0
        heapq.heappush(queue, (-urgent, -(east - west) * (north - south), rectangle, cut))

    wait((0, 0, side, side))
    while queue and len(queue) + len(finished) < leaves:
        *_, rectangle, cut = heapq.heappop(queue)
        for part in cut.of(rectangle):
            wait(part)
    return sorted([*finished, *(rectangle for *_, rectangle, _ in queue)], key=lambda each: (each[1], each[0]))
