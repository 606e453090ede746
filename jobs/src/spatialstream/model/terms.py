"""Term extraction (from a text to the set of its terms), and columns of term sets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.model.arrays import Array, Codes, runs
from spatialstream.model.hashing import distinct
from spatialstream.model.properties.declared import ANY_PROPERTIES, NO_PROPERTIES, Properties
from spatialstream.model.words import fold, words

__all__ = [
    *("ANY_WORDS", "EVERYTHING", "POLYGON_VERTICES", "QUERY_WORDS", "SERVES", "SUBSCRIPTIONS"),
    *("TermLists", "TermRule", "extract_terms"),
]

QUERY_WORDS = 256
"""Words that a query may have, unless a stream says otherwise: each of them costs time with each object that has it."""

POLYGON_VERTICES = 10_000
"""Vertices that a polygon may have, unless a stream says otherwise: each of them costs memory in each slot."""

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
    """

    stop_words: frozenset[str] = field(default=frozenset())
    minimum_length: int = 1
    query_words: int = QUERY_WORDS
    polygon_vertices: int = POLYGON_VERTICES
    ranking: bool = False
    properties: Properties = NO_PROPERTIES
    fields: tuple[str, ...] | None = ()
    serves: str = EVERYTHING


DEFAULT_RULE = TermRule()

ANY_WORDS = TermRule(query_words=2**31, polygon_vertices=2**31, ranking=True, properties=ANY_PROPERTIES, fields=None)
"""For queries that a stream has taken, or of a stream that is not known: how large they may be is not said, nor whether
they may rank, nor which properties there are, nor which fields it keeps."""


def extract_terms(text: str, rule: TermRule = DEFAULT_RULE) -> list[str]:
    """Extract the distinct terms of a text (its words, see :mod:`.words`) in order of first appearance.

    >>> extract_terms("Flood warning: FLOOD in Straße 5, बाढ़")
    ['flood', 'warning', 'in', 'strasse', '5', 'बाढ़']
    """
    return [
        term
        for term in dict.fromkeys(words(fold(text)))
        if len(term) >= rule.minimum_length and term not in rule.stop_words
    ]


_FEW = 16
"""If a vocabulary is this many times longer than the codes in use, compacting sorts the codes, not scans it all."""


@dataclass(frozen=True, slots=True, eq=False)
class TermLists:
    """n sets of terms as columns, dictionary-encoded with their own vocabulary.

    Attributes:
        offsets: int32[n + 1]; set i is ``codes[offsets[i]:offsets[i + 1]]``.
        codes: int32[m], positions in the vocabulary; distinct within a set.
        vocabulary: distinct terms (Arrow utf8, no nulls). It may contain terms that no set uses.
    """

    offsets: Codes
    codes: Codes
    vocabulary: pa.StringArray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> list[str]:
        """The terms of set ``index``, in stored order."""
        codes = self.codes[self.offsets[index] : self.offsets[index + 1]]
        return [self.vocabulary[int(code)].as_py() for code in codes]

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

    def take(self, indices: Array) -> TermLists:
        """Select the sets at ``indices`` (or by a boolean mask), with the same vocabulary."""
        if indices.dtype == np.bool_:
            indices = np.flatnonzero(indices)
        lengths = np.diff(self.offsets)[indices]
        offsets = np.zeros(len(indices) + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        return TermLists(offsets, self.codes[runs(self.offsets[:-1][indices], lengths)], self.vocabulary)

    @staticmethod
    def concat(parts: Sequence[TermLists]) -> TermLists:
        """Concatenate the sets of ``parts`` in order, with one merged vocabulary."""
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
        return TermLists(np.concatenate(offsets), np.concatenate(codes), words.take(pa.array(firsts)))

    def compact(self) -> TermLists:
        """The same sets with a vocabulary without unused terms."""
        if len(self.codes) * _FEW < len(self.vocabulary):  # one slot's part of an epoch, if there are many slots
            places, codes = np.unique(self.codes, return_inverse=True)
            return TermLists(self.offsets, codes.astype(np.int32), self.vocabulary.take(pa.array(places)))
        used = np.zeros(len(self.vocabulary), np.bool_)
        used[self.codes] = True
        if used.all():
            return self
        translation = np.cumsum(used, dtype=np.int32) - np.int32(1)
        return TermLists(self.offsets, translation[self.codes], pc.filter(self.vocabulary, pa.array(used)))
