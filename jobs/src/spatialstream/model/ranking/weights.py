"""Weights of words: the rarer a word is among the objects, the more it says (Pastri, Eqn 4).

A weight is the inverse document frequency ``ln(N / df)`` in units of 2^-14, rounded to an integer: so sums of weights
and of their products are exact, in any order. The factor 1/|p.W| of Eqn 4 cancels in the cosine. The number of
occurrences f is 1, or counted up to 7.
"""

from __future__ import annotations

import math

import numpy as np

from spatialstream.model.arrays import Codes, Ints

__all__ = ["UNIT", "weight", "weights"]

UNIT = 1 << 14
"""The weight of a word that one object in e has. The square of the largest, of one in 10^9, is below 2^37: with 2^20
words, which is more than a record can have, sums of squares stay below 2^57. With occurrences, of which the longest
record has room for 2^22, a sum of squares is at most 7 times that many times 2^37: below 2^62."""


def weight(objects: int, frequency: int) -> int:
    """The weight of a word that ``frequency`` (at least 1) of the objects have; 0 without objects."""
    return round(math.log(objects / frequency) * UNIT) if objects else 0


def weights(objects: int, frequencies: Ints) -> Codes:
    """As :func:`weight`, int32[n], for n frequencies: the logarithm is taken once for each that is different."""
    distinct, places = np.unique(frequencies, return_inverse=True)
    return np.array([weight(objects, each) for each in distinct.tolist()], np.int32)[places]
