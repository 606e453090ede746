"""The side of a line: the sign of a determinant, equal to that in fractions for all doubles."""

import math
from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spatialstream.model.polygons.orientation import TURN, _exact, orientation
from spatialstream.model.polygons.table import rest_of_sum
from tests.lengths import examples

TINY = [0.0, -0.0, 5e-324, -5e-324, 2.0**-1022, 1e-200, -1e-160]
NUMBERS = st.floats(-180, 180) | st.integers(-9, 9).map(float) | st.sampled_from([*TINY, 0.1, math.pi, 180.0, -180.0])
LARGE = st.floats(-1e150, 1e150) | NUMBERS | st.sampled_from([1e150, -1e150])


def in_fractions(*numbers: float) -> int:
    ax, ay, bx, by, px, py, turn = map(Fraction, numbers)
    determinant = (ax - px - turn) * (by - py) - (ay - py) * (bx - px - turn)
    return (determinant > 0) - (determinant < 0)


def check(*numbers: float) -> None:
    expected = in_fractions(*numbers)
    assert orientation(*numbers) == expected
    assert _exact(*numbers) == expected
    assert orientation.py_func(*numbers) == expected


@settings(max_examples=examples(300, 20_000))
@given(LARGE, LARGE, LARGE, LARGE, LARGE, LARGE)
@example(1e150, 1e150, -1e150, -1e150, 5e-324, 5e-324)
@example(5e-324, 0.0, 0.0, 5e-324, 0.0, 0.0)
@example(0.1, 0.1, 0.3, 0.3, 0.2, 0.2)
def test_the_side_is_that_in_fractions(ax, ay, bx, by, px, py):
    check(ax, ay, bx, by, px, py, 0.0)


@settings(max_examples=examples(300, 20_000))
@given(NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.floats(0, 1), st.integers(-3, 3), st.sampled_from([0.0, TURN, -TURN]))
def test_so_is_that_of_points_hardly_beside_the_line(ax, ay, bx, by, share, off, turn):
    px, py = ax + share * (bx - ax), ay + share * (by - ay) + off * 2.0**-50
    check(ax + turn, ay, bx + turn, by, px, py, turn)


def test_a_turn_is_added_without_rounding():
    # 1e-20 + 360 is 360 when it is rounded, and then the point would be on the line
    check(360.0, 0.0, 360.0, 1.0, 1e-20, 0.5, TURN)
    assert orientation(360.0, 0.0, 360.0, 1.0, 1e-20, 0.5, TURN) == -1
    assert orientation(360.0, 0.0, 360.0, 1.0, 0.0, 0.5, TURN) == 0


@pytest.mark.parametrize("scale", [2.0**-1074, 2.0**-600, 1.0, 2.0**400])
def test_the_side_does_not_depend_on_the_scale(scale):
    a, b, above, on = (0.0, 0.0), (3.0, 9.0), (1.0, 4.0), (2.0, 6.0)
    for point, side in ((above, 1), (on, 0)):
        numbers = [scale * number for number in (*a, *b, *point)]
        assert orientation(*numbers, 0.0) == side
        assert orientation(*numbers[2:4], *numbers[:2], *numbers[4:], 0.0) == -side


@settings(max_examples=examples(300, 20_000))
@given(st.floats(-180, 180), st.sampled_from([0.0, TURN, -TURN]))
def test_what_a_sum_lacks_is_exact(x, turn):
    rest = rest_of_sum(x, turn, x + turn)
    assert Fraction(x + turn) + Fraction(rest) == Fraction(x) + Fraction(turn)
    assert rest == rest_of_sum.py_func(x, turn, x + turn)
