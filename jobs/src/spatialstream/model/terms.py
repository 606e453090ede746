"""Term extraction (from a text to the set of its terms), and columns of term sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.model.arrays import Array, Bytes, Codes, runs
from spatialstream.model.errors import SettingError
from spatialstream.model.hashing import distinct
from spatialstream.model.properties.declared import ANY_PROPERTIES, NO_PROPERTIES, Properties
from spatialstream.model.words import fold, words

__all__ = [
    *("ANY_WORDS", "EVERYTHING", "MOST_OCCURRENCES", "POLYGON_VERTICES", "QUERY_WORDS", "SERVES", "SUBSCRIPTIONS"),
    *("TermLists", "TermRule", "check_counts", "extract_terms", "occurrences", "term_sequence"),
]

QUERY_WORDS = 256
"""Words that a query may have, unless a stream says otherwise: each of them costs time with each object that has it."""

POLYGON_VERTICES = 10_000
"""Vertices that a polygon may have, unless a stream says otherwise: each of them costs memory in each slot."""

MOST_OCCURRENCES = 7
"""A term that a text has more often counts as if it had it so often. A count takes a byte."""

EVERYTHING, SUBSCRIPTIONS = SERVES = "everything", "subscriptions"
"""What a stream serves: all queries, or continuous ones only; then it stores no objects."""


@dataclass(frozen=True, slots=True)
class TermRule:
    """How a stream reads the fields of records: texts, keywords and properties; and limits of queries.

    Attributes:
        stop_words: terms to drop (compared after folding). None by default.
        minimum_length: terms with fewer characters (combining marks count) are dropped. 1 (off) by default.
        query_words: words that a query may have in all: its terms that must be there or be absent, those of each group.
        polygon_vertices: vertices that a polygon may have in all its rings.
        ranking: whether the stream counts how many objects have each term, so that queries may rank by that.
        properties: those that the stream declares of its objects.
        fields: those of its objects that the stream keeps, so that rows may show them: ``text`` and properties
            (:mod:`~spatialstream.model.stored_fields`); None: it is not known which.
        serves: which queries it takes, one of :data:`SERVES`.
        counts: whether the stream counts how often a text has each of its terms, so that ranked queries weigh them by
            that.
    """

    stop_words: frozenset[str] = field(default=frozenset())
    minimum_length: int = 1
    query_words: int = QUERY_WORDS
    polygon_vertices: int = POLYGON_VERTICES
    ranking: bool = False
    properties: Properties = NO_PROPERTIES
    fields: tuple[str, ...] | None = ()
    serves: str = EVERYTHING
    counts: bool = False


def check_counts(rule: TermRule) -> None:
    """Refuse counts in a stream that does not rank.

    Raises:
        SettingError: they are of no use there.
    """
    if rule.counts and not rule.ranking:
        raise SettingError("term-counts", "are for ranked queries, which need --ranking; give that, too")


DEFAULT_RULE = TermRule()

ANY_WORDS = TermRule(
    query_words=2**31, polygon_vertices=2**31, ranking=True, properties=ANY_PROPERTIES, fields=None, counts=True
)
"""For queries that a stream has taken, or of a stream that is not known: how large they may be is not said, nor whether
they may rank, and by how often a word is given, nor which properties there are, nor which fields it keeps."""


def extract_terms(text: str, rule: TermRule = DEFAULT_RULE) -> list[str]:
    """Extract the distinct terms of a text (its words, see :mod:`.words`) in order of first appearance.

    >>> extract_terms("Flood warning: FLOOD in Straße 5, बाढ़")
    ['flood', 'warning', 'in', 'strasse', '5', 'बाढ़']
    """
    return [*dict.fromkeys(term_sequence(text, rule))]


def term_sequence(text: str, rule: TermRule = DEFAULT_RULE) -> list[str]:
    """The terms of a text in order, each as often as it is there."""
    return [term for term in words(fold(text)) if len(term) >= rule.minimum_length and term not in rule.stop_words]


def occurrences(terms: Iterable[str]) -> dict[str, int]:
    """How often each term is there, at most :data:`MOST_OCCURRENCES`, in order of first appearance.

    >>> occurrences(term_sequence("New York, New York"))
    {'new': 2, 'york': 2}
    """
    return {term: min(count, MOST_OCCURRENCES) for term, count in Counter(terms).items()}


_FEW = 16
"""If a vocabulary is this many times longer than the codes in use, compacting sorts the codes, not scans it all."""


@dataclass(frozen=True, slots=True, eq=False)
class TermLists:
    """n sets of terms as columns, dictionary-encoded with their own vocabulary.

    Attributes:
        offsets: int32[n + 1]; set i is ``codes[offsets[i]:offsets[i + 1]]``.
        codes: int32[m], positions in the vocabulary; distinct within a set.
        vocabulary: distinct terms (Arrow utf8, no nulls). It may contain terms that no set uses.
        counts: uint8[m], how often each is in the text of the set, 1 to :data:`MOST_OCCURRENCES`; None: not counted.
    """

    offsets: Codes
    codes: Codes
    vocabulary: pa.StringArray
    counts: Bytes | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> list[str]:
        """The terms of set ``index``, in stored order."""
        codes = self.codes[self.offsets[index] : self.offsets[index + 1]]
        return [self.vocabulary[int(code)].as_py() for code in codes]

    def counts_of(self, index: int) -> tuple[int, ...]:
        """How often the text of set ``index`` has each of its terms; empty if that is not counted."""
        if self.counts is None:
            return ()
        return tuple(self.counts[self.offsets[index] : self.offsets[index + 1]].tolist())

    @classmethod
    def of(cls, sets: Sequence[Iterable[str]]) -> TermLists:
        """Build the columns of a sequence of term collections; duplicates within a collection are dropped."""
        vocabulary: dict[str, int] = {}
        codes: list[int] = []
        offsets = np.zeros(len(sets) + 1, np.int32)
        for i, terms in enumerate(sets):
            codes.extend(vocabulary.setdefault(term, len(vocabulary)) for term in dict.fromkeys(terms))
            offsets[i + 1] = len(codes)
        return cls(offsets, np.array(codes, np.int32), pa.array(list(vocabulary), pa.string()))

    @classmethod
    def empty(cls, n: int) -> TermLists:
        """N empty sets."""
        return cls(np.zeros(n + 1, np.int32), np.empty(0, np.int32), pa.array([], pa.string()))

    def said(self) -> TermLists:
        """Lists that have each term as often as it is counted; the sets themselves, if it is not."""
        if self.counts is None:
            return self
        ends = np.append(np.int32(0), np.cumsum(self.counts, dtype=np.int32))
        return TermLists(ends[self.offsets], np.repeat(self.codes, self.counts), self.vocabulary)

    def take(self, indices: Array) -> TermLists:
        """Select the sets at ``indices`` (or by a boolean mask), with the same vocabulary."""
        if indices.dtype == np.bool_:
            indices = np.flatnonzero(indices)
        lengths = np.diff(self.offsets)[indices]
        offsets = np.zeros(len(indices) + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        places = runs(self.offsets[:-1][indices], lengths)
        counts = None if self.counts is None else self.counts[places]
        return TermLists(offsets, self.codes[places], self.vocabulary, counts)

    def slice(self, first: int, last: int) -> TermLists:
        """The sets from ``first`` up to ``last`` (exclusive), with the same vocabulary; copies only their offsets."""
        offsets = self.offsets[first : last + 1]
        terms = slice(int(offsets[0]), int(offsets[-1]))
        counts = None if self.counts is None else self.counts[terms]
        return TermLists(offsets - offsets[0], self.codes[terms], self.vocabulary, counts)

    def counted(self, wanted: bool = True) -> TermLists:
        """The same sets with counts, which are 1 where there are none; or, if they are not wanted, without."""
        if wanted == (self.counts is not None):
            return self
        return replace(self, counts=_ones(self) if wanted else None)

    @staticmethod
    def concat(parts: Sequence[TermLists]) -> TermLists:
        """Concatenate the sets of ``parts`` in order, with one merged vocabulary; with counts, if a part has some."""
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return TermLists.empty(0)
        words = pa.concat_arrays([part.vocabulary for part in parts])
        merged, firsts = distinct(words)
        offsets, codes, base, known = [np.zeros(1, np.int32)], [], 0, 0
        for part in parts:
            codes.append(merged[known : known + len(part.vocabulary)][part.codes])
            known += len(part.vocabulary)
            offsets.append(part.offsets[1:] + np.int32(base))
            base += int(part.offsets[-1])
        counts = None
        if any(part.counts is not None for part in parts):
            counts = np.concatenate([_ones(part) if part.counts is None else part.counts for part in parts])
        return TermLists(np.concatenate(offsets), np.concatenate(codes), words.take(pa.array(firsts)), counts)

    def compact(self) -> TermLists:
        """The same sets with a vocabulary without unused terms."""
        if len(self.codes) * _FEW < len(self.vocabulary):  # one slot's part of an epoch, if there are many slots
            places, codes = np.unique(self.codes, return_inverse=True)
            return TermLists(self.offsets, codes.astype(np.int32), self.vocabulary.take(pa.array(places)), self.counts)
        used = np.zeros(len(self.vocabulary), np.bool_)
        used[self.codes] = True
        if used.all():
            return self
        translation = np.cumsum(used, dtype=np.int32) - np.int32(1)
        vocabulary = pc.filter(self.vocabulary, pa.array(used))
        return TermLists(self.offsets, translation[self.codes], vocabulary, self.counts)


def _ones(lists: TermLists) -> Bytes:
    return np.ones(len(lists.codes), np.uint8)
