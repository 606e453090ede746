"""The A-Grid: Algorithm 1 finds what a scan finds, in the time of what it finds; borders; files."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spatialstream.index.a_grid.a_grid import SIDE, AGrid, cells_of, lines, neighbour_search
from spatialstream.index.statistics import Statistics
from spatialstream.index.version import RoutingVersion
from spatialstream.model.errors import StateError
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.regions import Box, Circle, Regions
from spatialstream.model.space import WGS84, Space
from tests.unit.index.samples import PLANE, divisions, obj, query, spaces

# Figure 2(c), numbered row by row here: a pinwheel, which no sequence of cuts across the whole grid makes
PINWHEEL = [[0, 0, 2, 1], [2, 0, 3, 2], [1, 2, 3, 3], [0, 1, 1, 3], [1, 1, 2, 2]]


def a_grid(rectangles, side: int, space: Space = PLANE) -> AGrid:
    n = len(rectangles)
    return AGrid(space, np.array(rectangles, np.int32), np.zeros(n), np.zeros(n), side)


def search(index: AGrid, west: int, south: int, east: int, north: int) -> list[int]:
    """The leaves in the order in which they are found."""
    n = len(index.rectangles)
    seen, stack = np.full(n, -1, np.int64), np.empty(3 * n + 1, np.int64)
    found = neighbour_search(index.table, index.rectangles, west, south, east, north, seen, 7, stack)
    assert sorted(np.flatnonzero(seen == 7)) == sorted(stack[:found])
    return stack[:found].tolist()


# -------------------------------------------------------------------------------------------------------- Algorithm 1


def test_the_pinwheel_is_walked_from_neighbour_to_neighbour():
    index = a_grid(PINWHEEL, 3)

    assert search(index, 0, 0, 2, 2) == [0, 1, 2, 3, 4]
    assert search(index, 1, 1, 2, 2) == [4, 1, 2]
    assert search(index, 0, 2, 0, 2) == [3]


@given(data=st.data(), side=st.integers(1, 12))
@settings(max_examples=300)
def test_neighbours_lead_to_every_leaf_of_a_range_and_to_no_other(data, side):
    index = a_grid(data.draw(divisions(side)), side)
    west, east = sorted(data.draw(st.tuples(*[st.integers(0, side - 1)] * 2)))
    south, north = sorted(data.draw(st.tuples(*[st.integers(0, side - 1)] * 2)))

    found = search(index, west, south, east, north)

    assert sorted(found) == np.unique(index.table[south : north + 1, west : east + 1]).tolist()
    assert len(found) == len(set(found))


class Counting:
    """Rectangles that count how often a leaf's one is looked at."""

    def __init__(self, rectangles) -> None:
        self.rectangles, self.looked = rectangles, set()

    def __getitem__(self, at):
        self.looked.add(int(at[0]))
        return self.rectangles[at]


def test_the_search_looks_at_no_leaf_that_it_does_not_find():
    index = a_grid([[i, j, i + 1, j + 1] for j in range(16) for i in range(16)], 16)
    rectangles, n = Counting(index.rectangles), 256

    search_of = neighbour_search.py_func  # the same code, without compilation
    found = search_of(index.table, rectangles, 3, 4, 5, 8, np.full(n, -1), 0, np.empty(3 * n + 1, np.int64))

    assert found == len(rectangles.looked) == 15


# ------------------------------------------------------------------------------------------------------------ routing


def scan(index: AGrid, box: Box) -> list[int]:
    """The leaves of the cells of a box, or of the two of a box across the antimeridian, by looking at every cell."""
    across = box.west > box.east
    met = set()
    for west, east in ((box.west, 180.0), (-180.0, box.east)) if across else ((box.west, box.east),):
        ends = np.array([west, east]), np.array([box.south, box.north])
        (left, right), (low, high) = cells_of(index.space, index.side, *ends)
        met |= set(index.table[low : high + 1, left : right + 1].reshape(-1).tolist())
    return sorted(met)


@given(data=st.data(), space=spaces, side=st.integers(1, 9), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=100)
def test_boxes_go_to_the_leaves_of_their_cells(data, space, side, seed):
    index = a_grid(data.draw(divisions(side)), side, space)
    rng = np.random.default_rng(seed)
    west, south, east, north = space.bounds
    x, y = west + (east - west) * rng.integers(0, 4 * side + 1, 2) / (4 * side), rng.uniform(south, north, 2)
    if not space.geographic:
        x.sort()
    region = Box(float(x[0]), float(y.min()), float(x[1]), float(y.max()))

    row, leaf = index.route_regions(Regions.of([region, None]))

    assert leaf[row == 0].tolist() == scan(index, region)
    assert leaf[row == 1].tolist() == list(range(len(index.leaves)))


def test_a_box_across_the_antimeridian_meets_both_sides_once():
    halves = a_grid([[0, 0, 1, 2], [1, 0, 2, 2]], 2, WGS84)
    rows = a_grid([[0, 0, 2, 1], [0, 1, 2, 2]], 2, WGS84)

    for index in (halves, rows):
        assert index.route_regions(Regions.of([Box(170, -10, -170, 10)]))[1].tolist() == [0, 1]
    assert halves.route_regions(Regions.of([Box(170, -10, 175, 10)]))[1].tolist() == [1]


def test_a_circle_meets_the_leaves_within_its_radius_only():
    index = a_grid([[i, j, i + 1, j + 1] for j in range(4) for i in range(4)], 4)
    asked = Regions.of([Circle(2.5, 2.5, 0.4), Circle(2.0, 2.0, 0.5), Circle(1.9, 1.9, 0.12), Circle(1.9, 1.9, 0.15)])

    row, leaf = index.route_regions(asked)

    assert leaf[row == 0].tolist() == [10]
    assert leaf[row == 1].tolist() == [5, 6, 9, 10]
    assert leaf[row == 2].tolist() == [5, 6, 9]  # the corner of 10 is 0.141 away
    assert leaf[row == 3].tolist() == [5, 6, 9, 10]


def test_a_circle_over_a_pole_meets_all_longitudes_around_it():
    index = a_grid([[i, j, i + 1, j + 1] for j in range(4) for i in range(4)], 4, WGS84)

    assert index.route_regions(Regions.of([Circle(10.0, 89.0, 300_000.0)]))[1].tolist() == [12, 13, 14, 15]


def test_a_cell_includes_its_west_and_south_borders():
    index = a_grid([[i, j, i + 1, j + 1] for j in range(4) for i in range(4)], 4)
    places = [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (np.nextafter(1.0, 0.0), 0.5), (4.0, 4.0), (3.0, 2.0)]

    leaf = index.route_objects(ObjectBatch.of([obj(f"o{i}", x, y) for i, (x, y) in enumerate(places)]))

    assert leaf.tolist() == [0, 1, 4, 0, 15, 11]
    assert index.leaves.box[11].tolist() == [3.0, 2.0, 4.0, 3.0]
    assert index.nearest_leaves(np.array(places)).tolist() == leaf.tolist()


@given(st.floats(-180.0, 180.0), st.integers(0, SIDE))
def test_a_point_is_between_the_lines_of_its_cell(x, line):
    of_x, _ = lines(WGS84, SIDE)
    at = np.array([x, of_x[line], np.nextafter(of_x[line], -np.inf), np.nextafter(of_x[line], np.inf)])
    at = at[(at >= -180.0) & (at <= 180.0)]

    column, _ = cells_of(WGS84, SIDE, at, np.zeros(len(at)))

    assert (of_x[column] <= at).all()
    assert ((at < of_x[column + 1]) | (column == SIDE - 1)).all()


# ------------------------------------------------------------------------------------------------------ what J expects


def test_a_rectangle_astride_the_middle_is_not_reached_by_all_queries():
    index = a_grid([[0, 0, 7, 16], [7, 0, 9, 16], [9, 0, 16, 16]], 16)  # leaf 1: the quarter's width around the middle
    asked = QueryBatch.of([query("CRQ", Box(0.1, 0.1, 0.2, 0.2))] * 6 + [query("CRQ", Box(1.9, 1.1, 2.1, 1.2))] * 2)
    j = Statistics.of(PLANE, ObjectBatch.of([]), asked, 1000.0, levels=4)

    reached = index.by_leaf(j, j.shares)

    crq = reached[3].tolist()
    assert j.shares[3, j.cells_of(index.leaves.box)].tolist() == [1.0, 1.0, 1.0]  # the smallest cells that cover them
    assert crq[0] == pytest.approx(0.75)
    assert 0.25 <= crq[1] <= 0.5  # a query in two cells of J counts in each
    assert crq[2] == 0.0


# -------------------------------------------------------------------------------------------------------------- files


def test_a_file_has_the_rectangles_and_not_the_cells():
    version = RoutingVersion(3, a_grid([[0, 0, SIDE, SIDE]], SIDE), np.zeros(1, np.int32), 1)

    data = b"".join(bytes(part) for part in version.pack())

    assert len(data) < 1_000
    again = RoutingVersion.unpack(pa.py_buffer(bytearray(data)), "3.arrays").index
    assert (again.side, again.rectangles.tolist()) == (SIDE, [[0, 0, SIDE, SIDE]])
    assert again.table.shape == (SIDE, SIDE)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"rectangles": np.array([[0, 0, 2, 2]], np.int32)}, "one number of objects and one load"),
        ({"rectangles": np.array([[0, 0, 1, 2], [0, 0, 1, 2]], np.int32)}, "overlap, or do not cover"),
        ({"rectangles": np.array([[0, 0, 1, 2], [1, 0, 2, 1]], np.int32)}, "overlap, or do not cover"),
        ({"rectangles": np.array([[0, 0, 1, 2], [0, 0, 2, 2]], np.int32)}, "overlap, or do not cover"),
        ({"rectangles": np.array([[0, 0, 1, 2], [1, 0, 3, 2]], np.int32)}, "rectangle 1 .* is not one of its cells"),
        ({"rectangles": np.array([[-1, 0, 1, 2], [1, 0, 2, 2]], np.int32)}, "rectangle 0 .* is not one of its cells"),
        ({"rectangles": np.array([[0, 0, 1, 2], [1, 2, 2, 0]], np.int32)}, "rectangle 1 .* is not one of its cells"),
        ({"rectangles": np.empty((0, 4), np.int32)}, "not an array of shape"),
        ({"rectangles": np.zeros(4, np.int32)}, "not an array of shape"),
        ({"leaves.load": np.zeros(3)}, "one number of objects and one load"),
        ({"side": 0}, "1 to 4,096 columns and rows, not 0"),
        ({"side": 1 << 20}, "1 to 4,096 columns and rows"),
        ({"side": "2"}, "1 to 4,096 columns and rows, not '2'"),
    ],
)
def test_a_damaged_file_is_refused(change, problem):
    arrays, meta = a_grid([[0, 0, 1, 2], [1, 0, 2, 2]], 2).to_arrays()
    assert len(AGrid.from_arrays(arrays, meta).leaves) == 2

    with pytest.raises(StateError, match=problem):
        AGrid.from_arrays(
            arrays | {name: each for name, each in change.items() if name != "side"},
            meta | {name: each for name, each in change.items() if name == "side"},
        )
