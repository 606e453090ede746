"""The side of a line on which a point lies, exactly.

The sign of a 2x2 determinant of differences is computed in floating point first, with a bound of its rounding error
(Shewchuk, "Adaptive precision floating-point arithmetic and fast robust geometric predicates", 1997, section 4.2). If
the value is within the bound, the sign is computed from integers: every double is an integer times a power of two, so
that the determinant is one, too, in as many digits as the exponents of the coordinates differ. Therefore the result
depends on no rounding, no fused multiplication and no processor; underflow is no special case.

Cost: about ten floating-point operations; a fifth of a microsecond for a point almost on the line.
"""

from __future__ import annotations

import math

from spatialstream.model.kernels import lean_kernel

__all__ = ["TURN", "orientation"]

TURN = 360.0
"""Degrees of longitude after which the same place comes again."""

_RELATIVE = 2.0**-51
"""Error of the determinant, relative to the sum of its two products: Shewchuk's (3 + 16 eps) eps, rounded up."""

_TURNED = 2.0**-43
"""Twice the error of adding a turn to a longitude of at most 180: half a unit in the last place below 1024 is 2^-44."""

_TINY = 1e-300
"""More than products lose by underflow."""

_DIGIT = 24
_MASK = (1 << _DIGIT) - 1
_MANTISSA = 53


@lean_kernel
def _exponent(value: float) -> int:
    """The e of value = m * 2^e with an integer m below 2^53; a large number for 0."""
    if value == 0.0:
        return 1 << 20
    return int(math.frexp(value)[1]) - _MANTISSA


@lean_kernel
def _digit(value: float, least: int, i: int) -> int:
    """The digit of weight 2^(24 i), with the sign of the value, of the integer value / 2^least."""
    fraction, exponent = math.frexp(value)
    mantissa = int(abs(fraction) * 2.0**_MANTISSA)
    shift = _DIGIT * i - (int(exponent) - _MANTISSA - least)
    if shift >= _MANTISSA or shift <= -_DIGIT:
        return 0
    digit = (mantissa >> shift) & _MASK if shift >= 0 else ((mantissa & _MASK) << -shift) & _MASK
    return -digit if fraction < 0.0 else digit


@lean_kernel
def _least(a: float, b: float, p: float, turn: float) -> int:
    """The largest e that makes all these numbers integers times 2^e."""
    return min(min(_exponent(a), _exponent(b)), min(_exponent(p), _exponent(turn)))


@lean_kernel
def _length(a: float, b: float, p: float, turn: float) -> int:
    """How many digits the largest of these numbers has."""
    largest = max(max(abs(a), abs(b)), max(abs(p), abs(turn)))
    return (_exponent(largest) + _MANTISSA - _least(a, b, p, turn)) // _DIGIT + 1


@lean_kernel
def _exact(ax: float, ay: float, bx: float, by: float, px: float, py: float, turn: float) -> int:
    """As :func:`orientation`, in integers: digit by digit of (ax - px - turn)(by - py) - (bx - px - turn)(ay - py).

    A digit of a difference is below 3 * 2^24 in magnitude, so that a sum of 2 * 88 products (doubles span 2098 bits)
    and a carry fits in 64 bits.
    """
    least_x, least_y = _least(ax, bx, px, turn), _least(ay, by, py, 0.0)
    count_x, count_y = _length(ax, bx, px, turn), _length(ay, by, py, 0.0)
    carry = 0
    nonzero = False
    for k in range(count_x + count_y):
        total = carry
        for i in range(max(0, k - count_y + 1), min(k + 1, count_x)):
            moved = _digit(px, least_x, i) + _digit(turn, least_x, i)
            level = _digit(py, least_y, k - i)
            total += (_digit(ax, least_x, i) - moved) * (_digit(by, least_y, k - i) - level)
            total -= (_digit(bx, least_x, i) - moved) * (_digit(ay, least_y, k - i) - level)
        carry = total >> _DIGIT
        nonzero = nonzero or (total & _MASK) != 0
    if carry < 0:
        return -1
    return 1 if nonzero or carry > 0 else 0


@lean_kernel
def orientation(ax: float, ay: float, bx: float, by: float, px: float, py: float, turn: float) -> int:
    """On which side of the line from a to b the point (px + turn, py) lies: 1 left, -1 right, 0 on the line.

    The sum px + turn is meant exactly, not rounded. Coordinates are at most 1e150 in magnitude; ``turn`` is 0, 360 or
    -360, the last two with px in [-180, 180].
    """
    qx = px + turn
    up_a, up_b = ay - py, by - py
    left, right = (ax - qx) * up_b, up_a * (bx - qx)
    determinant = left - right
    error = _RELATIVE * (abs(left) + abs(right)) + _TINY
    if turn != 0.0:
        error += _TURNED * (abs(up_a) + abs(up_b))
    if determinant > error:
        return 1
    if determinant < -error:
        return -1
    return _exact(ax, ay, bx, by, px, py, turn)
