"""Rectangles and their neighbours: every shift leaves a division, and none of a brute-force search is missed."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.index.a_grid.a_grid import AGrid
from spatialstream.index.a_grid.layout import (
    corner_shifts,
    corners_of,
    joined,
    mergeable,
    straight_neighbours,
    straight_shift,
)
from tests.unit.index.samples import PLANE, divisions


def area(rectangle) -> int:
    return (rectangle[2] - rectangle[0]) * (rectangle[3] - rectangle[1])


def divided(data, side):
    return [tuple(each) for each in data.draw(divisions(side)).tolist()]


def assert_divides(rectangles, side):
    """AGrid refuses what is no division."""
    n = len(rectangles)
    AGrid(PLANE, np.array(rectangles, np.int32), np.zeros(n), np.zeros(n), side)


def after(shift, rectangles):
    changed = list(rectangles)
    changed[shift.source], changed[shift.target] = shift.left, shift.joined
    return changed


@given(st.data(), st.integers(1, 9))
def test_mergeable_are_the_pairs_that_make_a_rectangle(data, side):
    rectangles = divided(data, side)
    n = len(rectangles)

    found = {frozenset(pair) for pair in mergeable(rectangles, corners_of(rectangles))}

    assert found == {
        frozenset((i, j))
        for i in range(n)
        for j in range(i)
        if area(joined(rectangles[i], rectangles[j])) == area(rectangles[i]) + area(rectangles[j])
    }
    assert len(mergeable(rectangles, corners_of(rectangles))) == len(found)


@given(st.data(), st.integers(1, 9))
def test_straight_shifts_move_the_common_side(data, side):
    rectangles = divided(data, side)
    corners = corners_of(rectangles)
    pairs = set()

    for leaf, rectangle in enumerate(rectangles):
        for target, axis, beyond in straight_neighbours(leaf, rectangles, corners):
            pairs.add((leaf, target))
            for line in range(rectangle[axis] + 1, rectangle[axis + 2]):
                made = straight_shift(leaf, target, axis, beyond, line, rectangles)
                assert_divides(after(made, rectangles), side)
                assert area(made.strip) == area(rectangle) - area(made.left) > 0
                assert joined(made.strip, rectangles[target]) == made.joined

    assert pairs == {both for pair in mergeable(rectangles, corners) for both in (pair, pair[::-1])}


def all_corner_shifts(leaf, rectangles):
    """By brute force: A is cut along its whole width or height, and one part makes a rectangle with another one."""
    west, south, east, north = rectangles[leaf]
    cuts = [((west, south, at, north), (at, south, east, north)) for at in range(west + 1, east)]
    cuts += [((west, south, east, at), (west, at, east, north)) for at in range(south + 1, north)]
    for parts in cuts:
        for strip, left in (parts, parts[::-1]):
            for target, other in enumerate(rectangles):
                both = joined(strip, other)
                if target != leaf and area(both) == area(strip) + area(other):
                    yield target, strip, left, both


@given(st.data(), st.integers(1, 9))
def test_corner_shifts_are_all_those_that_are_not_straight(data, side):
    rectangles = divided(data, side)
    corners = corners_of(rectangles)
    for leaf in range(len(rectangles)):
        straight = {target for target, _, _ in straight_neighbours(leaf, rectangles, corners)}

        found = list(corner_shifts(leaf, rectangles, corners))

        assert len(found) <= 8
        assert {(each.target, each.strip, each.left, each.joined) for each in found} == {
            each for each in all_corner_shifts(leaf, rectangles) if each[0] not in straight
        }
        for each in found:
            assert_divides(after(each, rectangles), side)


def test_figure_4c_a_strip_as_wide_as_a_and_as_high_as_b():
    rectangles = [(0, 0, 2, 4), (2, 2, 4, 4), (2, 0, 4, 2)]  # A west, B north-east

    found = [each for each in corner_shifts(0, rectangles, corners_of(rectangles)) if each.target == 1]

    assert [(each.strip, each.left, each.joined) for each in found] == [((0, 2, 2, 4), (0, 0, 2, 2), (0, 2, 4, 4))]
