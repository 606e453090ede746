"""The rectangles of an A-Grid while they are adjusted: neighbours, and what a split, a merge or a shift makes of them.

Tornado, section 4.2 and figures 3 and 4. Two rectangles are *mergeable* if they have a whole side of both in common:
together they are a rectangle. A *shift* gives a strip of A to a neighbour B, so that both stay rectangles:

- **straight**: A and B are mergeable, and the line between them moves into A, to any of A's lines;
- **corner**: a whole side of B is a part of a side of A, at a corner of A. A is cut along B's edge, from side to side.
  Each of A's four corners is on two sides, so there are at most 8.

Cost: O(n) to find the corners of n rectangles, O(1) for the neighbours of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from spatialstream.index.a_grid.costs import Rectangle

__all__ = [
    "Corners",
    "Shift",
    "corner_shifts",
    "corners_of",
    "joined",
    "mergeable",
    "straight_neighbours",
    "straight_shift",
]

Corners = dict[tuple[int, int, int, int], int]
"""A corner's column and row, and whether it is at its rectangle's east and north end -> the rectangle."""


class Shift(NamedTuple):
    """A strip that changes hands."""

    source: int
    """A, which gives it."""
    target: int
    """B, which receives it."""
    strip: Rectangle
    left: Rectangle
    """What A keeps."""
    joined: Rectangle
    """B and the strip."""


class _Neighbour(NamedTuple):
    """A neighbour at a corner."""

    leaf: int
    axis: int
    """0: it is west or east; 1: it is south or north."""
    beyond: int
    """1: it is east or north of it; 0: west or south."""
    corner: int
    """Along the common side, 0: they begin at the same line; 1: they end there."""


def corners_of(rectangles: Sequence[Rectangle]) -> Corners:
    """All corners of all rectangles."""
    return {
        (rectangle[2 * east], rectangle[1 + 2 * north], east, north): leaf
        for leaf, rectangle in enumerate(rectangles)
        for east in (0, 1)
        for north in (0, 1)
    }


def _neighbours(rectangle: Rectangle, corners: Corners) -> Iterator[_Neighbour]:
    """The neighbours that have a corner in common with a rectangle, and a part of a side; each perhaps twice."""
    for axis in (0, 1):
        for beyond in (0, 1):
            line = rectangle[axis + 2 * beyond], 1 - beyond
            for corner in (0, 1):
                end = rectangle[1 - axis + 2 * corner], corner
                (x, east), (y, north) = (line, end) if axis == 0 else (end, line)
                leaf = corners.get((x, y, east, north))
                if leaf is not None:
                    yield _Neighbour(leaf, axis, beyond, corner)


def _changed(rectangle: Rectangle, end: int, line: int) -> Rectangle:
    """A rectangle with another first (0, 1) or last (2, 3) column or row."""
    west, south, east, north = (line if each == end else old for each, old in enumerate(rectangle))
    return west, south, east, north


def joined(one: Rectangle, other: Rectangle) -> Rectangle:
    """The smallest rectangle that contains two."""
    return min(one[0], other[0]), min(one[1], other[1]), max(one[2], other[2]), max(one[3], other[3])


def _same_side(one: Rectangle, other: Rectangle, axis: int) -> bool:
    across = 1 - axis
    return one[across] == other[across] and one[across + 2] == other[across + 2]


def mergeable(rectangles: Sequence[Rectangle], corners: Corners) -> list[tuple[int, int]]:
    """The pairs of mergeable rectangles, the southern or western one first."""
    return [
        (leaf, each.leaf)
        for leaf, rectangle in enumerate(rectangles)
        for each in _neighbours(rectangle, corners)
        if each.beyond and not each.corner and _same_side(rectangle, rectangles[each.leaf], each.axis)
    ]


def straight_neighbours(leaf: int, rectangles: Sequence[Rectangle], corners: Corners) -> Iterator[tuple[int, int, int]]:
    """The mergeable neighbours of a rectangle: (neighbour, 0 if the common side is vertical, 1 if it is beyond)."""
    rectangle = rectangles[leaf]
    for each in _neighbours(rectangle, corners):
        if not each.corner and _same_side(rectangle, rectangles[each.leaf], each.axis):
            yield each.leaf, each.axis, each.beyond


def straight_shift(
    source: int, target: int, axis: int, beyond: int, line: int, rectangles: Sequence[Rectangle]
) -> Shift:
    """The shift that moves the side between A and B, see :func:`straight_neighbours`, to one of A's inner lines."""
    end = axis + 2 * beyond
    strip = _changed(rectangles[source], axis + 2 * (1 - beyond), line)
    left, grown = _changed(rectangles[source], end, line), _changed(rectangles[target], axis + 2 * (1 - beyond), line)
    return Shift(source, target, strip, left, grown)


def corner_shifts(leaf: int, rectangles: Sequence[Rectangle], corners: Corners) -> Iterator[Shift]:
    """The corner shifts out of a rectangle."""
    source = rectangles[leaf]
    for each in _neighbours(source, corners):
        target, across = rectangles[each.leaf], 1 - each.axis
        inner = target[across + 2 * (1 - each.corner)]  # B's other end along the common side
        if not source[across] < inner < source[across + 2]:
            continue  # B's side is as long as A's, or longer
        strip = _changed(source, across + 2 * (1 - each.corner), inner)
        left = _changed(source, across + 2 * each.corner, inner)
        yield Shift(leaf, each.leaf, strip, left, joined(target, strip))
