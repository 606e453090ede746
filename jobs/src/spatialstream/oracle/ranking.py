"""The ranking of Pastri (Ray and Nickerson, JOSIS 24, 2022) by brute force, from the documentation of query semantics.

Only the table of powers of two is the model's, which is data. Everything else is written again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from spatialstream.model.ranking.powers import POWERS

__all__ = [
    "Corpus",
    "decay",
    "decayed",
    "forward",
    "forward_order",
    "over_interval",
    "reached",
    "space_score",
    "text_score",
]


@dataclass(frozen=True, slots=True)
class Corpus:
    """Number of objects, and of those with each word; a word that is not there is in one."""

    objects: int
    frequency: Counter[str]

    @classmethod
    def of(cls, texts: Iterable[Collection[str]]) -> Corpus:
        """Count the words of texts, each once in a text."""
        each = [frozenset(text) for text in texts]
        return cls(len(each), Counter(word for text in each for word in text))

    def weight(self, word: str) -> int:
        """Eqn 4, as an integer."""
        if self.objects == 0:
            return 0
        return round(math.log(self.objects / max(1, self.frequency[word])) * 2**14)


def space_score(d: float, r: float) -> float:
    """Eqn 2, with its two branches exchanged."""
    if d >= r:
        return 0.0
    if d <= r / 2.0:
        return 1.0 - 2.0 * ((d / r) * (d / r))
    return 2.0 * (((d - r) / r) * ((d - r) / r))


def text_score(text: Sequence[str], asked: Sequence[str], corpus: Corpus, static: bool = False) -> float:
    """Eqn 3, with the norm of the object over all its words; ``static``: its words weigh by their occurrences alone.

    A word that a text has several times weighs as many times as much, up to seven times.
    """
    words, times = frozenset(text), Counter(text)
    weights = {word: min(7, times[word]) * (1 if static else corpus.weight(word)) for word in words}
    query = {word: min(7, [*asked].count(word)) * corpus.weight(word) for word in frozenset(asked)}
    own, whole = (sum(weight * weight for weight in each.values()) for each in (weights, query))
    if own == 0 or whole == 0:
        return 1.0
    dot = sum(weights[word] * query[word] for word in words & query.keys())
    return min(1.0, float(dot) / (math.sqrt(float(own)) * math.sqrt(float(whole))))


def decay(age: int, half_life: int) -> float:
    """1/H of Eqn 5, with at most 64 half-lives."""
    steps = min(4096 * age // half_life, 64 * 4096)
    return math.ldexp(float(POWERS[steps % 4096]), steps // 4096)


def decayed(alpha: float, s: float, t: float, p: float) -> float:
    """Eqn 7."""
    return alpha * (1.0 - s) + p * (1.0 - alpha) * (1.0 - t)


def forward(alpha: float, s: float, t: float) -> float:
    """A of a continuous query, the greater the better."""
    return alpha * s + (1.0 - alpha) * t


def forward_order(a: float, age: int, half_life: int) -> tuple[int, int]:
    """``a 2^(age / half_life)`` to 36 bits after the leading one, as (exponent, mantissa): the greater the better."""
    whole, rest = divmod(4096 * age // half_life, 4096)
    mantissa, exponent = math.frexp(max(a, 2.0**-64) * float(POWERS[rest]))
    return exponent + whole, int(math.ldexp(mantissa, 37))


def over_interval(weights: tuple[float, float, float], s: float, m: float, t: float) -> float:
    """Eqn 9."""
    alpha, eta, zeta = weights
    return alpha * (1.0 - s) + eta * m + zeta * (1.0 - t)


def reached(distances: Iterable[float], k: int, radius: float, expansions: int) -> float:
    """The radius of the search disk: of the least multiple with k candidates within it, or of the last one."""
    near = sorted(distances)
    enough = (i for i in range(1, expansions) if len([d for d in near if d <= i * radius]) >= k)
    return next(enough, expansions) * radius
