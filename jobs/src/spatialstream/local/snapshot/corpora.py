"""The corpus tables that ranked queries read: how rare each word was among the objects up to a time.

A table never changes. It holds the words that at least two objects had; any other word was in one at most, and weighs
as if it had been in one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa

from spatialstream.local.arrays import Array, Bytes, Codes, Ints, wide
from spatialstream.local.snapshot.segment import Segment
from spatialstream.local.wordtable import find_word, from_arrow, pack, slots_with, to_arrow
from spatialstream.model.hashing import seed_of
from spatialstream.model.kernels import kernel
from spatialstream.model.ranking.weights import weight, weights

__all__ = ["Corpora", "CorpusTable"]


@kernel
def _weights(
    slots: Array, offsets: Array, data: Array, weights: Array, unknown: int, asked_offsets: Array, asked: Array
) -> Array:
    found = np.empty(len(asked_offsets) - 1, np.int64)
    for i in range(len(found)):
        at = find_word(slots, offsets, data, asked, asked_offsets[i], asked_offsets[i + 1])
        found[i] = unknown if at < 0 else wide(weights[at])
    return found


class CorpusTable:
    """The weights of words among the objects of a time range.

    Args:
        at: end of the time range, ms; the table's name in rows.
        objects: number of objects.
        words: distinct words, in order.
        weights: int32[n], of each word, see :mod:`spatialstream.model.ranking.weights`.
    """

    def __init__(self, at: int, objects: int, words: pa.StringArray, weights: Codes) -> None:
        self.at, self.objects, self.words, self.weights = at, objects, words, weights
        self.unknown = weight(objects, 1)
        self.offsets, self.data = from_arrow(words)
        seed = seed_of(self.offsets, self.data)
        self.slots = slots_with(seed, self.offsets, self.data, len(words), len(words))
        self._of_segments: WeakKeyDictionary[Segment, Codes] = WeakKeyDictionary()

    @classmethod
    def of(cls, at: int, objects: int, words: pa.StringArray, frequencies: Ints) -> Self:
        """A table of words with the number of objects that have each."""
        kept = np.flatnonzero(frequencies > 1)
        return cls(at, objects, words.take(pa.array(kept)), weights(objects, frequencies[kept]))

    def __len__(self) -> int:
        """Number of words."""
        return len(self.words)

    def weights_of(self, words: Sequence[str]) -> Ints:
        """The weights of words, int64[n]."""
        return self.weights_in(*pack(words))

    def weights_in(self, offsets: Codes, data: Bytes) -> Ints:
        """The weights of packed words, int64[n]."""
        return _weights(self.slots, self.offsets, self.data, self.weights, self.unknown, offsets, data)

    def of_segment(self, segment: Segment | None) -> Codes:
        """The weights of a segment's words as far as they have been needed: weight + 1, or 0; int32[terms].

        Kernels fill it. Several threads may: each writes the same.
        """
        if segment is None:
            return _NONE
        known = self._of_segments.get(segment)
        return self._of_segments.setdefault(segment, np.zeros(segment.terms, np.int32)) if known is None else known

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Serialize as named flat arrays and a JSON value."""
        return {"offsets": self.offsets, "words": self.data, "weights": self.weights}, {
            "at": self.at,
            "objects": self.objects,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], meta: Mapping[str, Any]) -> Self:
        """Deserialize the result of :meth:`to_arrays`."""
        words = to_arrow(arrays["offsets"], arrays["words"])
        return cls(int(meta["at"]), int(meta["objects"]), words, arrays["weights"])


_NONE = np.empty(0, np.int32)


class Corpora(Protocol):
    """The tables that a slot may read after a round."""

    def of(self, t: int) -> CorpusTable:
        """The table for a query of a time, ms."""
