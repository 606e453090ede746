"""What objects say: words by Zipf's law, distinct within an object.

Cost: O(terms x log vocabulary) an object.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from spatialstream.generate.events import said_words
from spatialstream.generate.settings import GenerateSettings
from spatialstream.model.arrays import Codes, Floats, Ints
from spatialstream.model.terms import TermLists, extract_terms

__all__ = ["Words", "english_words"]

_MENTIONS = 0.3
"""Share of the posts of a social stream that name their city."""

_BESIDES = 3
"""Words that a post about an event has besides those of the event, at most."""

_ABSENT = -1


def english_words(count: int) -> list[str]:
    """The ``count`` most frequent English words that are terms as they stand; ``w<rank>`` once they are used up."""
    from wordfreq import top_n_list  # reads its lists on import

    words = [word for word in top_n_list("en", 2 * count) if extract_terms(word) == [word]][:count]
    return words + [f"w{rank}" for rank in range(len(words), count)]


@dataclass(frozen=True, slots=True)
class Words:
    """A vocabulary, in order of frequency, and how terms are drawn from it.

    Attributes:
        vocabulary: the words; those after the first ``settings.vocabulary`` are the names of cities.
        cumulated: probability that a word has this rank or a lower one.
        names: int32[parts, cities]: the terms of each city's name, -1 where it has fewer. After the cities come the
            words of events, if there are any.
    """

    settings: GenerateSettings
    vocabulary: pa.StringArray
    cumulated: Floats
    names: Codes

    @classmethod
    def of(cls, settings: GenerateSettings, names: tuple[str, ...]) -> Words:
        """The words of a stream in whose cities, if it has any, are called ``names``."""
        words = english_words(settings.vocabulary) if names else [f"w{rank}" for rank in range(settings.vocabulary)]
        weights = np.arange(1, settings.vocabulary + 1, dtype=np.float64) ** -settings.zipf
        cumulated = np.cumsum(weights)
        coded, vocabulary = _code_names(names, words)
        return cls(settings, vocabulary, cumulated / cumulated[-1], coded)

    def draw(self, chunk: int, n: int, cities: Ints | None, said: Ints | None = None) -> TermLists:
        """The terms of the n objects of a chunk.

        Args:
            chunk: its number.
            n: how many.
            cities: int64[n]: where they are; None: nowhere.
            said: int64[k, n]: numbers of words of events, -1 where none; None: there are no events.
        """
        random = self.settings.random("words", chunk)
        lengths = np.full(n, self.settings.terms)
        if cities is not None:
            half = self.settings.terms // 2
            lengths = random.integers(self.settings.terms - half, self.settings.terms + half, n, endpoint=True)
        parts = len(self.names)
        mentions = np.full((parts, n), _ABSENT, np.int32)
        if cities is not None:
            mentions[:] = np.where(random.random(n) < _MENTIONS, self.names[:, cities], _ABSENT)
        if said is not None:
            about = said[0] >= 0
            lengths = np.where(about, np.minimum(lengths, _BESIDES), lengths)
            codes_of = self.names[0, -len(said_words()) :]
            mentions = np.vstack([np.where(about, _ABSENT, mentions), np.where(about, codes_of[said], _ABSENT)])
            parts += len(said)
        width = int(lengths.max(initial=0))
        codes = np.vstack([mentions, np.full((width, n), _ABSENT, np.int32)])
        for rank in range(width):
            present = np.flatnonzero(lengths > rank)
            while len(present):  # those that repeat a term of their object are drawn again
                codes[parts + rank, present] = self._zipf(random, len(present))
                said = codes[: parts + rank, present] == codes[parts + rank, present]
                present = present[said.any(axis=0)]
        there = (codes != _ABSENT).T
        offsets = np.zeros(n + 1, np.int32)
        np.cumsum(there.sum(axis=1), out=offsets[1:])
        return TermLists(offsets, np.ascontiguousarray(codes.T)[there], self.vocabulary)

    def _zipf(self, random: np.random.Generator, n: int) -> Codes:
        return np.searchsorted(self.cumulated, random.random(n), side="right").astype(np.int32)


@lru_cache(maxsize=2)
def _terms_of(names: tuple[str, ...]) -> list[list[str]]:
    return [extract_terms(name) for name in names]


def _code_names(names: tuple[str, ...], words: list[str]) -> tuple[Codes, pa.StringArray]:
    """The names as codes, and the vocabulary with their terms at its end."""
    codes = {word: code for code, word in enumerate(words)}
    sets = _terms_of(names)
    coded = np.full((max(map(len, sets), default=0), len(names)), _ABSENT, np.int32)
    for city, terms in enumerate(sets):
        for part, term in enumerate(terms):
            coded[part, city] = codes.setdefault(term, len(codes))
    return coded, pa.array(list(codes), pa.string())
