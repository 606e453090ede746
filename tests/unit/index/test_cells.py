"""The cells of J, compared with boxes that are halved one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.index.cells import Cells
from spatialstream.model.covers import NOWHERE
from tests.unit.index.samples import PLANE, points, spaces

DEPTH = 4


def places(space):
    """Places on and between the borders of cells, which halving meets exactly."""
    columns = st.tuples(st.integers(0, 64), st.integers(0, 64))
    size = np.array([space.east - space.west, space.north - space.south])
    return columns.map(lambda at: tuple([space.west, space.south] + size * at / 64))


def boxes_of(cells):
    """The box of each cell, by halving."""
    boxes = [cells.space.bounds] + [None] * (len(cells) - 1)
    for cell, first in enumerate(cells.first.tolist()):
        if first >= 0:
            west, south, east, north = boxes[cell]
            x, y = (west + east) / 2, (south + north) / 2
            boxes[first : first + 4] = [
                (west, south, x, y), (x, south, east, y), (west, y, x, north), (x, y, east, north)
            ]  # fmt: skip
    return np.array(boxes)


def inside(space, boxes, x, y):
    """Which points are in which boxes: their west and south borders are theirs; bool[boxes, points]."""
    west, south, east, north = boxes.T[:, :, np.newaxis]
    in_x = (x >= west) & ((x < east) | (east == space.east))
    return in_x & (y >= south) & ((y < north) | (north == space.north))


@st.composite
def grown(draw, space):
    """Cells for some places, and these."""
    x, y = np.array(draw(st.lists(places(space), max_size=40)), np.float64).reshape(-1, 2).T
    least = draw(st.integers(1, 5))
    return Cells.adaptive(space, x, y, least=least, most=10_000, depth=DEPTH), x, y, least


@given(st.data(), spaces)
def test_cells_with_many_places_are_split_and_no_others(data, space):
    cells, x, y, least = data.draw(grown(space))
    boxes = boxes_of(cells)
    assert cells.boxes().tolist() == boxes.tolist()

    held = inside(space, boxes, x, y).sum(axis=1)

    assert ((cells.first >= 0) == ((held >= least) & (cells.level < DEPTH))).all()
    assert (np.diff(cells.level) >= 0).all()
    for cell, first in enumerate(cells.first.tolist()):
        assert first < 0 or (cells.parent[first : first + 4] == cell).all()
    finest = cells.of_points(x, y)
    assert (cells.first[finest] < 0).all()
    counts = np.bincount(finest, minlength=len(cells)).astype(np.float64)
    cells.add_up(counts)
    assert counts.tolist() == held.tolist()


@given(st.data(), spaces)
def test_the_smallest_cell_that_covers_a_box(data, space):
    cells, *_ = data.draw(grown(space))
    (x, y), (u, v) = data.draw(points(space)), data.draw(points(space))
    box = np.array([min(x, u), min(y, v), max(x, u), max(y, v)])
    boxes = boxes_of(cells)

    cell = int(cells.of_boxes(box[np.newaxis])[0])

    wide, high = space.east - space.west, space.north - space.south
    slack = 1e-6 * np.array([wide, high, wide, high]) * [-1, -1, 1, 1]
    covers = ((boxes + slack)[:, :2] <= box[:2]).all(axis=1) & ((boxes + slack)[:, 2:] >= box[2:]).all(axis=1)
    surely = ((boxes - slack)[:, :2] <= box[:2]).all(axis=1) & ((boxes - slack)[:, 2:] >= box[2:]).all(axis=1)
    assert covers[cell]
    first = int(cells.first[cell])
    assert first < 0 or not surely[first : first + 4].any()


@given(st.data(), spaces)
def test_cells_that_ranges_meet(data, space):
    """Each part is drawn into the space; a cell is covered if every finest cell in it is met by one of the parts."""
    cells, *_ = data.draw(grown(space))
    side = 1 << DEPTH
    corner = st.tuples(st.integers(0, side - 1), st.integers(0, side - 1))
    (w, s), (e, n) = sorted((data.draw(corner), data.draw(corner)))
    ranges = np.array([w, min(s, n), e, max(s, n)])
    west, south, east, north = space.bounds
    size = np.array([east - west, north - south] * 2) / side
    part = (ranges + 0.5) * size + [west, south, west, south]

    visits = cells.visits(np.array([[part, NOWHERE], [NOWHERE, NOWHERE], [NOWHERE, part]]))

    offsets = visits.offsets.tolist()
    assert offsets == [0, offsets[1], offsets[1], 2 * offsets[1]]
    assert len(visits.rows) == offsets[3]
    rows = visits.rows[: offsets[1]]
    assert (visits.rows[offsets[1] :] == rows).all()
    x0, y0, x1, y1 = np.rint((boxes_of(cells) - [west, south, west, south]) / size).T
    w, s, e, n = ranges
    meets = (w < x1) & (e >= x0) & (s < y1) & (n >= y0)
    covered = (w <= x0) & (e >= x1 - 1) & (s <= y0) & (n >= y1 - 1)
    below = np.zeros(len(cells), np.bool_)
    for level in cells.levels()[1:]:
        below[level] = (covered | below)[cells.parent[level]]
    expected = np.flatnonzero(meets & ~below)
    whole = covered | (cells.first < 0)
    assert sorted(rows.tolist()) == (2 * expected + whole[expected]).tolist()


def test_there_are_no_more_cells_than_are_allowed():
    x, y = 4.0 * np.random.default_rng(1).random((2, 5_000))

    cells = Cells.adaptive(PLANE, x, y, least=1, most=500, depth=12)

    assert 100 < len(cells) <= 500


@pytest.mark.parametrize("levels", [0, 1, 3])
def test_a_complete_tree_has_all_cells_of_all_levels(levels):
    cells = Cells.complete(PLANE, levels)

    assert np.bincount(cells.level).tolist() == [4**level for level in range(levels + 1)]
    assert (cells.first[cells.level < levels] == 4 * np.flatnonzero(cells.level < levels) + 1).all()
