"""Texts of objects as sets of distinct words: words drawn by Zipf's law, or sentences whose gaps are filled by it.

Cost: O(terms x log vocabulary) an object.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from spatialstream.generate.events import EVENTS
from spatialstream.generate.phrases import CORES, FILLERS, OPENERS, PLACES, TIMES, place_name
from spatialstream.generate.places import cities
from spatialstream.generate.settings import GenerateSettings
from spatialstream.model.arrays import Codes, Floats, Ints
from spatialstream.model.terms import TermLists, extract_terms

__all__ = ["Sentences", "plain_terms"]

_NAMING = 0.3
"""Share of posts that name their city, among those from a well-known city."""

_ABSENT = -1
_GAP = -2
"""A gap is written as this minus its number; the gaps for the terms of a city's name have the highest."""
_NAME, _CITY = "{name}", "{city}"

Filler = tuple[Codes, Floats]
"""Codes of the words that may fill a gap, and the probability that it is this one or one before it."""
Words = Sequence[str]


def plain_terms(settings: GenerateSettings, random: np.random.Generator, n: int) -> TermLists:
    """The terms of n objects: some of ``w0``, ``w1``, ..., in order of frequency."""
    words = pa.array([f"w{rank}" for rank in range(settings.vocabulary)], pa.string())
    filler = _filler(np.arange(settings.vocabulary, dtype=np.int32), settings.zipf)
    cells = np.full((settings.terms, n), _GAP, np.int32)
    return _lists(_filled(random, cells, [filler]), words)


@dataclass(frozen=True, slots=True)
class Sentences:
    """The sentences of a social stream, and the words that fill their gaps.

    Attributes:
        terms: words of a sentence in the middle: it has from half to one and a half times as many.
        vocabulary: the words, about in order of frequency, and after them those of the names of cities.
        patterns: int32[width, m], all sentences as codes of words and gaps, -1 after their end.
        plain, naming: int64[lengths + 1]: the sentences of length l are those from ``plain[l]`` up to ``plain[l + 1]``
            (exclusive), and those that name a city likewise.
        about: int64[events + 1], those about each event likewise.
        fillers: what fills each kind of gap.
        names: int32[parts, cities], the terms of each city's name; -1 where it has fewer, or few people know it.
    """

    terms: int
    vocabulary: pa.StringArray
    patterns: Codes
    plain: Ints
    naming: Ints
    about: Ints
    fillers: Sequence[Filler]
    names: Codes

    @classmethod
    @lru_cache(maxsize=2)
    def of(cls, terms: int, vocabulary: int, zipf: float) -> Sentences:
        """Those of a stream with these settings."""
        groups = _sentences(terms + terms // 2)
        filling, words = _words(vocabulary, zipf)
        codes = {word: code for code, word in enumerate(words)}
        fillers = [_filler(np.array([codes[word] for word in each], np.int32), zipf) for each in filling.values()]
        names = _coded_names(codes)
        parts = [f"{_CITY}{part}" for part in range(len(names))]
        written = codes | {gap: _GAP - number for number, gap in enumerate((*filling, *parts))}
        patterns = list[list[int]]()
        bounds = list[Ints]()
        for group in groups:
            bounds.append(len(patterns) + np.cumsum(np.array([0, *map(len, group)], np.int64)))
            for sentence in itertools.chain.from_iterable(group):
                each = itertools.chain.from_iterable(parts if word == _CITY else (word,) for word in sentence)
                patterns.append([written[word] for word in each])
        matrix = np.full((max(map(len, patterns)), len(patterns)), _ABSENT, np.int32)
        for number, pattern in enumerate(patterns):
            matrix[: len(pattern), number] = pattern
        plain, naming, about = bounds
        return cls(terms, pa.array(list(codes), pa.string()), matrix, plain, naming, about, fillers, names)

    def draw(self, random: np.random.Generator, where: Ints, event: Ints | None) -> TermLists:
        """The terms of n objects.

        Args:
            random: what they follow from.
            where: int64[n], the city of each.
            event: int64[n], the event that it is about, -1: none; None: there are no events.
        """
        n, terms = len(where), self.terms
        lengths = random.integers(terms - terms // 2, terms + terms // 2, n, endpoint=True)
        names = (self.names[0, where] != _ABSENT) & (random.random(n) < _NAMING)
        low, high = (np.where(names, self.naming[lengths + up], self.plain[lengths + up]) for up in (0, 1))
        if event is not None:
            low, high = (np.where(event < 0, each, self.about[event + up]) for up, each in enumerate((low, high)))
        cells = self.patterns[:, low + (random.random(n) * (high - low)).astype(np.int64)]
        for part, codes in enumerate(self.names):
            there = cells == _GAP - len(self.fillers) - part
            code = np.where(there.any(axis=0), codes[where], _ABSENT)
            said = (cells == code).any(axis=0)  # a city may be called as the sentence says already
            cells = np.where(there, np.where(said, _ABSENT, code), cells)
        return _lists(_filled(random, cells, self.fillers), self.vocabulary)


def _filler(codes: Codes, zipf: float) -> Filler:
    """Codes, of which the one of rank r comes in proportion to ``1 / r ** zipf``."""
    cumulated = np.cumsum(np.arange(1, len(codes) + 1, dtype=np.float64) ** -zipf)
    return codes, cumulated / cumulated[-1]


def _filled(random: np.random.Generator, cells: Codes, fillers: Sequence[Filler]) -> Codes:
    """Fill all gaps of the cells (a column for each object), so that no code occurs twice in a column."""
    for row in range(len(cells)):
        for number, (codes, cumulated) in enumerate(fillers):
            pending = np.flatnonzero(cells[row] == _GAP - number)
            while len(pending):  # those that repeat a term of their object are drawn again
                drawn = codes[np.searchsorted(cumulated, random.random(len(pending)), side="right")]
                repeated = (cells[:, pending] == drawn).any(axis=0)
                cells[row, pending[~repeated]] = drawn[~repeated]
                pending = pending[repeated]
    return cells


def _lists(cells: Codes, vocabulary: pa.StringArray) -> TermLists:
    there = (cells != _ABSENT).T
    offsets = np.zeros(len(there) + 1, np.int32)
    np.cumsum(there.sum(axis=1), out=offsets[1:])
    return TermLists(offsets, np.ascontiguousarray(cells.T)[there], vocabulary)


Groups = tuple[Sequence[Sequence[Words]], Sequence[Sequence[Words]], Sequence[Sequence[Words]]]


def _sentences(longest: int) -> Groups:
    """Sentences without a city by length, those that name one, and those about each event."""
    plain: list[list[Words]] = [[] for _ in range(longest + 1)]
    naming: list[list[Words]] = [[] for _ in range(longest + 1)]
    plain[1], naming[1] = [[_NAME]], [[_CITY]]
    for parts in itertools.chain(
        ((opener,) for opener in OPENERS),
        itertools.product(("", *OPENERS), CORES, ("", *PLACES)),
        itertools.product(CORES, ("", *PLACES), TIMES),
    ):
        sentence = " ".join(parts).split()
        fixed = [word for word in sentence if not _is_gap(word)]
        if len(sentence) <= longest and len(set(fixed)) == len(fixed):
            (naming if _CITY in sentence else plain)[len(sentence)].append(sentence)
    for group in (plain, naming):
        for length in range(2, longest + 1):  # longer than any sentence: places are counted up at its end
            group[length] = group[length] or [[*sentence, _NAME] for sentence in group[length - 1]]
    return plain, naming, [[sentence.split() for sentence in event.says] for event in EVENTS]


def _is_gap(word: str) -> bool:
    return word.startswith("{")


def _words(vocabulary: int, zipf: float) -> tuple[Mapping[str, Words], Words]:
    """The words for each gap, and all words, those first that are likely to be said most often."""
    parts = [
        part.split() for part in (*OPENERS, *CORES, *PLACES, *TIMES, *(says for each in EVENTS for says in each.says))
    ]
    counts = Counter(itertools.chain.from_iterable(parts))
    own = {word for word in counts if not _is_gap(word)}.union(*FILLERS.values())
    names = filter(lambda name: name not in own, map(place_name, itertools.count()))
    filling = {f"{{{gap}}}": words for gap, words in FILLERS.items()}
    filling[_NAME] = tuple(itertools.islice(names, vocabulary - len(own)))
    weights = {word: float(count) for word, count in counts.items() if not _is_gap(word)}
    for gap, words in filling.items():
        shares = np.diff(_filler(np.arange(len(words), dtype=np.int32), zipf)[1], prepend=0.0)
        for word, share in zip(words, shares.tolist(), strict=True):
            weights[word] = weights.get(word, 0.0) + counts[gap] * share
    return filling, sorted(weights, key=lambda word: -weights[word])


@lru_cache(maxsize=1)
def _known_names() -> Sequence[Words]:
    """The terms of each city's name; none for cities that are not well known."""
    world = cities()
    return [extract_terms(name) if known else [] for name, known in zip(world.names, world.known, strict=True)]


def _coded_names(codes: dict[str, int]) -> Codes:
    """The names of cities as codes; those of terms that are new are added."""
    names = _known_names()
    coded = np.full((max(map(len, names)), len(names)), _ABSENT, np.int32)
    for city, terms in enumerate(names):
        for part, term in enumerate(terms):
            coded[part, city] = codes.setdefault(term, len(codes))
    return coded
