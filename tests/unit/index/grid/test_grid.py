"""The uniform grid: its shape, its borders, and the loads of its cells."""

import numpy as np
import pytest

from spatialstream.index.grid.grid import Grid, build_grid
from spatialstream.index.statistics import Statistics
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.regions import Box, Circle, Regions
from spatialstream.model.space import WGS84, Space
from tests.unit.index.samples import PLANE, obj, query

NOTHING = ObjectBatch.of([])


def grid(space: Space, leaves: int, objects: ObjectBatch = NOTHING, queries: QueryBatch | None = None) -> Grid:
    asked = QueryBatch.of([]) if queries is None else queries
    return build_grid(objects, leaves, Statistics.of(space, objects, asked, 1000.0, levels=2))


@pytest.mark.parametrize(
    ("space", "leaves", "shape"),
    [
        (PLANE, 1, (1, 1)),
        (PLANE, 16, (4, 4)),
        (PLANE, 17, (4, 5)),
        (WGS84, 64, (6, 11)),
        (WGS84, 128, (8, 16)),
        (Space.planar(0, 0, 1000, 1), 10, (1, 10)),
        (Space.planar(0, 0, 1, 1000), 10, (10, 1)),
    ],
)
def test_its_cells_are_about_square_and_at_least_as_many_as_asked_for(space, leaves, shape):
    made = grid(space, leaves)

    assert (len(made.y) - 1, len(made.x) - 1) == shape
    assert len(made.leaves) == shape[0] * shape[1] >= leaves
    assert (made.x[0], made.y[0], made.x[-1], made.y[-1]) == space.bounds
    assert not made.leaves.textual.any()
    width, height = made.leaves.box[:, 2] - made.leaves.box[:, 0], made.leaves.box[:, 3] - made.leaves.box[:, 1]
    assert np.ptp(width) == pytest.approx(0.0, abs=1e-9)
    assert np.ptp(height) == pytest.approx(0.0, abs=1e-9)


def test_a_cell_includes_its_west_and_south_borders():
    made = grid(PLANE, 16)
    places = [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (np.nextafter(1.0, 0.0), 0.5), (4.0, 4.0), (3.0, 2.0)]

    leaf = made.route_objects(ObjectBatch.of([obj(f"o{i}", x, y) for i, (x, y) in enumerate(places)]))

    assert leaf.tolist() == [0, 1, 4, 0, 15, 11]
    assert made.leaves.box[11].tolist() == [3.0, 2.0, 4.0, 3.0]
    assert made.nearest_leaves(np.array(places)).tolist() == leaf.tolist()


def test_regions_meet_the_cells_that_they_touch():
    made = grid(PLANE, 16)
    asked = Regions.of([Box(0.5, 0.5, 1.0, 0.9), Circle(2.5, 2.5, 0.4), Circle(2.0, 2.0, 0.5), None])

    row, leaf = made.route_regions(asked)

    assert leaf[row == 0].tolist() == [0, 1]
    assert leaf[row == 1].tolist() == [10]
    assert leaf[row == 2].tolist() == [5, 6, 9, 10]
    assert leaf[row == 3].tolist() == list(range(16))


def test_a_box_across_the_antimeridian_meets_both_sides_once():
    assert grid(WGS84, 8).route_regions(Regions.of([Box(170, -10, -170, 10)]))[1].tolist() == [0, 3, 4, 7]
    assert grid(WGS84, 1).route_regions(Regions.of([Box(170, -10, -170, 10)]))[1].tolist() == [0]


def test_loads_are_those_of_the_sample():
    sample = ObjectBatch.of([obj(f"o{i}", x, 0.5, t=i) for i, x in enumerate([0.5, 0.6, 0.7, 1.5])])
    made = grid(PLANE, 16, sample)

    assert made.leaves.objects.tolist() == [3.0, 1.0] + [0.0] * 14
    assert made.leaves.load.tolist() == made.leaves.objects.tolist()

    asked = grid(PLANE, 16, sample, QueryBatch.of([query("STQ", Box(1.1, 0.1, 1.9, 0.9))]))
    assert asked.leaves.load[1] > 0.0
    assert asked.leaves.load[15] == 0.0
