"""What a ranked query asks for besides its point and its k: words, disk, time and weights.

Fields are checked here, so that the errors of all that reads records are the same. In a batch of queries a ranking is
one text (:attr:`Ranking.text`), "" for queries that have none.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np

from spatialstream.model.arrays import Ints
from spatialstream.model.errors import RecordError
from spatialstream.model.geometry import EARTH_RADIUS_M
from spatialstream.model.ranking.scores import LONGEST_HALF_LIFE
from spatialstream.model.space import Space, check_number
from spatialstream.model.terms import TermRule, occurrences, term_sequence
from spatialstream.model.times import parse_duration, parse_time

__all__ = ["EXPANSIONS", "FIELDS", "MOST_EXPANSIONS", "MOST_WORDS", "SPACE", "WEIGHTINGS", "Ranking", "parse_ranking"]

MOST_WORDS = 16
"""Most words of a ranked query, after term extraction."""

MOST_EXPANSIONS = 64
"""Most multiples of the radius up to which the search disk may grow."""

EXPANSIONS = 4
"""Multiples of the radius, if the query does not say."""

SPACE = 0.2
"""Weight of space, if the query does not say: that of the example in the paper."""

WEIGHTINGS = ("full", "static")
"""How the words of an object weigh: by their rarity, or all alike (SMART's ltc and lnc)."""

FIELDS = ("words", "radius", "halfLife", "between", "weights", "expansions", "weighting")
"""The fields of a record."""

_SHARES = ("space", "time", "text")
_ONE = 1e-9
"""By how much the sum of three weights may differ from 1."""

_encoded = json.JSONEncoder(ensure_ascii=False).encode


@dataclass(frozen=True, slots=True)
class Ranking:
    """How objects are scored; see :mod:`spatialstream.model.ranking.scores`.

    Attributes:
        words: distinct terms, sorted: an object has to have one of them.
        radius: r of the search disk, metres or planar units.
        expansions: c: the disk has the radius i r for the least i of 1 to c with k candidates in it, or c r.
        half_life: ms; None for a query about an interval.
        between: first and last ms of the interval; None for a query with a half-life.
        shares: weights of space, time and text; with a half-life that of space alone counts.
        static: whether all words of an object weigh alike.
        weights: of the words, each as :meth:`weighed`, where they are known: a continuous query gets them when a slot
            registers it, for its whole life.
        counts: how often each word is given, if the stream counts that and one is given more than once.
    """

    words: tuple[str, ...]
    radius: float
    expansions: int = EXPANSIONS
    half_life: int | None = None
    between: tuple[int, int] | None = None
    shares: tuple[float, float, float] = (SPACE, 0.0, 1.0 - SPACE)
    static: bool = False
    weights: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()

    @property
    def reach(self) -> float:
        """The largest radius of the search disk."""
        return self.expansions * self.radius

    @property
    def asked(self) -> list[str]:
        """The words, each as often as it is given, if that matters."""
        return [word for word, count in zip(self.words, self.counts or repeat(1), strict=False) for _ in range(count)]

    def multiple(self, kth: float) -> int:
        """I: the least multiple of the radius up to which the disk has to grow to have an object at this distance."""
        return next((i for i in range(1, self.expansions) if kth <= i * self.radius), self.expansions)

    def check_interval(self, t: int) -> None:
        """Check that the query's time is not before the end of its interval.

        Raises:
            RecordError: it is.
        """
        if self.between is not None and self.between[1] > t:
            raise RecordError("between", f"{self.between[1]} is after the query's t; give at most {t}")

    def weighed(self, weights: Ints) -> Ints:
        """The weights of the words (:mod:`spatialstream.model.ranking.weights`), each times its occurrences."""
        return weights * np.array(self.counts, np.int64) if self.counts else weights

    @property
    def text(self) -> str:
        """The form in a batch, for :meth:`of_text`. Equal rankings have equal texts."""
        between = None if self.between is None else list(self.between)
        values = [self.words, self.radius, self.expansions, self.half_life, between, self.shares, self.static]
        if self.weights or self.counts:
            values += [self.weights, self.counts] if self.counts else [self.weights]
        return _encoded(values)

    @classmethod
    def of_text(cls, text: str) -> Ranking:
        """From :attr:`text`."""
        words, radius, expansions, half_life, between, shares, static, *known = json.loads(text)
        space, time, words_share = shares
        given = None if between is None else (between[0], between[1])
        weights, counts = (tuple(known[i]) if len(known) > i else () for i in (0, 1))
        shares = (space, time, words_share)
        return cls(tuple(words), radius, expansions, half_life, given, shares, static, weights, counts)

    def to_record(self) -> dict[str, Any]:
        """The JSON form that :func:`parse_ranking` reads, with all fields; a type takes some of them."""
        record: dict[str, Any] = {"words": self.asked, "radius": self.radius, "expansions": self.expansions}
        if self.between is None:
            record |= {"halfLife": self.half_life, "weights": {"space": self.shares[0]}}
        else:
            record |= {"between": [*self.between], "weights": dict(zip(_SHARES, self.shares, strict=True))}
        return record | ({"weighting": "static"} if self.static else {})


def parse_ranking(
    record: Mapping[str, Any], t: int | None, space: Space, rule: TermRule, *, continuous: bool = False
) -> Ranking:
    """Parse and validate the fields of a ranking in a query's record.

    Args:
        record: has ``words`` and ``radius``, and no field that the type does not take.
        t: of the query, ms; None: it is not known yet, and :meth:`Ranking.check_interval` is left.
        space: of the stream.
        rule: term extraction.
        continuous: whether it is that of a continuous query: its disk does not grow, and its weights are static.

    Raises:
        RecordError: a field is unusable; the message names it and says what would be right.
    """
    half_life, between = record.get("halfLife"), record.get("between")
    if (half_life is None) == (between is None):
        given = "neither is there" if half_life is None else "both are there"
        raise RecordError("halfLife", f"give either halfLife or between; {given}")
    expansions = 1 if continuous else _expansions(record.get("expansions"))
    weighting = record.get("weighting", WEIGHTINGS[0])
    if weighting is not None and weighting not in WEIGHTINGS:
        raise RecordError("weighting", f"{weighting!r} is not one of {', '.join(WEIGHTINGS)}")
    words, counts = _words(record["words"], rule)
    ranking = Ranking(
        words,
        _radius(record["radius"], expansions, space),
        expansions,
        None if half_life is None else _half_life(half_life),
        None if between is None else _between(between),
        _shares(record.get("weights"), _SHARES if half_life is None else _SHARES[:1]),
        continuous or weighting == "static",
        counts=counts,
    )
    if t is not None:
        ranking.check_interval(t)
    return ranking


def _words(value: object, rule: TermRule) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The words, and how often each is given if that matters."""
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise RecordError("words", f"{value!r} is not a list of strings")
    given = occurrences(term for word in value for term in term_sequence(word, rule))
    found = sorted(given)
    if not found:
        raise RecordError("words", "has no term: no word character is left after term extraction")
    if len(found) > MOST_WORDS:
        raise RecordError("words", f"has {len(found)} words; give 1 to {MOST_WORDS}")
    counts = tuple(given[word] for word in found) if rule.counts else ()
    return tuple(found), counts if any(count > 1 for count in counts) else ()


def _radius(value: object, expansions: int, space: Space) -> float:
    radius = check_number(value, "radius")
    if radius <= 0.0:
        raise RecordError("radius", f"{radius:g} is out of range; it must be greater than 0")
    whole = (
        math.pi * EARTH_RADIUS_M if space.geographic else math.hypot(space.east - space.west, space.north - space.south)
    )
    if radius > whole and expansions == 1:
        raise RecordError("radius", f"{radius:g} is beyond the space of {whole:g}; give at most that")
    if expansions * radius > whole:
        most = f"give at most {whole / expansions:g}, or fewer expansions"
        raise RecordError("radius", f"{expansions} times {radius:g} is beyond the space of {whole:g}; {most}")
    return radius


def _expansions(value: object) -> int:
    if value is None:
        return EXPANSIONS
    if isinstance(value, bool) or not isinstance(value, int):
        raise RecordError("expansions", f"{value!r} is not an integer")
    if not 1 <= value <= MOST_EXPANSIONS:
        raise RecordError("expansions", f"{value} is out of range; give 1 to {MOST_EXPANSIONS}")
    return value


def _half_life(value: object) -> int:
    half_life = parse_duration(value, "halfLife")
    if not 1 <= half_life <= LONGEST_HALF_LIFE:
        raise RecordError("halfLife", f"{value!r} is out of range; give 1 ms to {LONGEST_HALF_LIFE} ms")
    return half_life


def _between(value: object) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise RecordError("between", "must be a list of 2 times, [first, last]")
    first, last = parse_time(value[0], "between"), parse_time(value[1], "between")
    if first >= last:
        raise RecordError("between", f"{value[0]!r} is not before {value[1]!r}; give the earlier time first")
    return first, last


def _shares(value: object, names: tuple[str, ...]) -> tuple[float, float, float]:
    """The weights of space, time and text, of which ``names`` are given."""
    if value is None:
        return (1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0) if len(names) > 1 else (SPACE, 0.0, 1.0 - SPACE)
    form = ", ".join(f'"{name}"' for name in names)
    if not isinstance(value, dict) or value.keys() != {*names}:
        raise RecordError("weights", f"must be an object with {form}")
    shares = [check_number(value[name], f"weights.{name}") for name in names]
    for name, share in zip(names, shares, strict=True):
        if not 0.0 <= share <= 1.0:
            raise RecordError(f"weights.{name}", f"{share:g} is out of range; give 0 to 1")
    if len(shares) == 1:
        return shares[0], 0.0, 1.0 - shares[0]
    if abs(sum(shares) - 1.0) > _ONE:
        raise RecordError("weights", f"have the sum {sum(shares):g}; it must be 1")
    return shares[0], shares[1], shares[2]
