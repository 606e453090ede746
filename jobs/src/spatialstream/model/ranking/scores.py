"""The scores of an object for a ranked query, as kernels of scalars (Pastri, section 3.1 and Eqns 9 and 10).

The score of the object is R, or C for a query about an interval of time: the least is the best. For a continuous query
it is A, of which the greatest is the best, and by which objects are ordered with their age. Each is evaluated in
exactly the order that is written here; the oracle writes the same again.

*Forward decay* (Cormode, Shkapenyuk, Srivastava, Xu: "Forward decay: a practical time decay model for streaming
systems", ICDE 2009). With R two objects may change places without an arrival, as time goes on: the text of each loses
its weight, at a speed of its own. A continuous query orders by ``A 2^((o.t - q.t) / h)``: later objects have more,
instead of earlier ones less, so the order of two objects never changes.
"""

from __future__ import annotations

import math

import numpy as np

from spatialstream.model.kernels import kernel
from spatialstream.model.ranking.powers import POWERS, STEPS

__all__ = [
    "LONGEST_HALF_LIFE",
    "LONGEST_LIFE",
    "MOST_HALF_LIVES",
    "continuous_key",
    "continuous_score",
    "decayed_score",
    "growth",
    "interval_score",
    "recency",
    "spatial_score",
    "textual_score",
]

MOST_HALF_LIVES = 64
"""Half-lives after which an object does not get any older."""

LONGEST_LIFE = 1 << 16
"""Most half-lives of a continuous query: that many, and those of the least score, fit into 17 bits."""

LONGEST_HALF_LIFE = 1 << 51
"""Longest half-life in ms (about 71,000 years): that many steps of it fit into an int64."""


_LEAST_SCORE = 2.0**-64
"""A score below it counts as it."""

_LOWEST = 63
"""Minus the exponent of that score, as ``frexp`` has it."""

_MANTISSA = 1 << 36


@kernel
def spatial_score(distance: float, radius: float) -> float:
    """S: 1 at the point, falling along a curve of two parabolas to 0 at the radius and beyond (Eqn 2).

    As printed, the two branches are exchanged, and S is -1 close to the point and 2 close to the radius.

    Args:
        distance: of the object, not negative.
        radius: greater than 0, in the same unit.
    """
    if distance >= radius:
        return 0.0
    if distance <= radius / 2.0:
        part = distance / radius
        return 1.0 - 2.0 * (part * part)
    part = (distance - radius) / radius
    return 2.0 * (part * part)


@kernel
def textual_score(dot: int, own: int, asked: int) -> float:
    """T: the cosine of the words of the object and those of the query (Eqn 3); 1 if either has no weight.

    As printed, the norm of the object is over the words of the query alone, which would give each object 1 for a query
    of one word.

    Args:
        dot: sum of the products of the weights of common words.
        own: sum of the squares of the weights of all words of the object.
        asked: sum of the squares of the weights of all words of the query.
    """
    if own == 0 or asked == 0:
        return 1.0
    return min(1.0, float(dot) / (math.sqrt(float(own)) * math.sqrt(float(asked))))


@kernel
def growth(age: int, half_life: int) -> float:
    """P = 1/H: 2 to the power of the number of half-lives in an age, both in ms, in steps of 1/4096 (Eqns 5 and 6).

    Args:
        age: at least 0.
        half_life: 1 to :data:`LONGEST_HALF_LIFE`.
    """
    whole = age // half_life
    if whole >= MOST_HALF_LIVES:
        return math.ldexp(1.0, MOST_HALF_LIVES)
    step = (age - whole * half_life) * STEPS // half_life
    return math.ldexp(POWERS[step], whole)


@kernel
def decayed_score(space: float, spatial: float, textual: float, grown: float) -> float:
    """R: the score of a query with a half-life (Eqn 7).

    Args:
        space: the weight of space, α of 0 to 1; that of the text is the rest.
        spatial: see :func:`spatial_score`.
        textual: see :func:`textual_score`.
        grown: see :func:`growth`.
    """
    return space * (1.0 - spatial) + grown * (1.0 - space) * (1.0 - textual)


@kernel
def recency(t: int, first: int, last: int) -> float:
    """M: 0 for an object at the end of an interval, 1 at its beginning (Eqn 10).

    Args:
        t: time of the object, in the interval.
        first: beginning of the interval.
        last: end of the interval, later than that.
    """
    return 1.0 - float(t - first) / float(last - first)


@kernel
def interval_score(weights: tuple[float, float, float], spatial: float, recent: float, textual: float) -> float:
    """C: the score of a query about an interval of time (Eqn 9).

    Args:
        weights: of space, time and text (α, η, ζ), not negative, with the sum 1.
        spatial: see :func:`spatial_score`.
        recent: see :func:`recency`.
        textual: see :func:`textual_score`.
    """
    return weights[0] * (1.0 - spatial) + weights[1] * recent + weights[2] * (1.0 - textual)


@kernel
def continuous_score(space: float, spatial: float, textual: float) -> float:
    """A: the score of an object for a continuous query, 0 to 1, the greater the better.

    Args:
        space: the weight of space, α of 0 to 1; that of the text is the rest.
        spatial: see :func:`spatial_score`.
        textual: see :func:`textual_score`.
    """
    return space * spatial + (1.0 - space) * textual


@kernel
def continuous_key(score: float, age: int, half_life: int) -> float:
    """The order of objects of a continuous query: ``score 2^(age / half_life)`` as an integer, which a float64 holds.

    It has 17 bits of the exponent and, below them, the 36 leading bits of the mantissa. Two products that agree in
    these are equal in rank.

    Args:
        score: see :func:`continuous_score`; less than 2^-64 counts as that.
        age: ms from the query's time to the object's, 0 to less than :data:`LONGEST_LIFE` half-lives.
        half_life: ms, 1 to :data:`LONGEST_HALF_LIFE`.
    """
    whole = age // half_life
    step = (age - whole * half_life) * STEPS // half_life
    mantissa, exponent = math.frexp(max(score, _LEAST_SCORE) * POWERS[step])
    bits = np.int64((2.0 * mantissa - 1.0) * _MANTISSA)
    return float((np.int64(exponent) + _LOWEST + whole) * _MANTISSA + bits)
