"""Powers of two with fractional exponents, from integers alone: the same on every machine.

``2 ** x`` of a platform's library may differ from that of another in the last bit, and so may the order of two objects.
"""

from __future__ import annotations

from itertools import accumulate, repeat
from math import isqrt

import numpy as np

from spatialstream.model.arrays import Floats

__all__ = ["POWERS", "STEPS"]

STEPS = 4096
"""Steps of an exponent between two whole numbers: with 2^(1/4096) two neighbours differ by 0.017 %."""

_BITS = 256
"""Bits after the point in the computation: its errors are below 2^-240."""


def _powers() -> Floats:
    """See :data:`POWERS`."""
    step = 2 << _BITS
    for _ in range(STEPS.bit_length() - 1):
        step = isqrt(step << _BITS)
    exact = accumulate(repeat(step, STEPS - 1), lambda power, by: power * by >> _BITS, initial=1 << _BITS)
    return np.array([power / (1 << _BITS) for power in exact])


POWERS = _powers()
"""2^(j/4096) for j of 0 to 4095, correctly rounded, float64[4096]."""
