"""Approximate term frequencies of a stream in bounded memory, to find the rarest keyword of a query in objects.

A row of counters addressed by a hash of the word: a count-min sketch (Cormode, Muthukrishnan, J. Algorithms 2005) of
depth 1. Frequent words, which matter most, are distinguished; two rare words may share a counter, which is harmless.
Keywords of objects count as their terms (:mod:`~spatialstream.model.keyword_terms`), but not those of a property most
of whose values are different ones: all of them are rare, and they would fill the counters. The hash is the same in
every process and needs no key: an attacker who makes two words share a counter could as well send the word itself more
often. The stream is sampled: the first 65,536 objects of every 1,048,576 are counted, and before each such window the
counts are halved, so old counts decay and checkpoints seldom have changes to write. The result is deterministic: a
function of the batches.

Cost: nothing outside the windows, O(terms) inside them; 64 KB.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spatialstream.local.arrays import Array, Floats
from spatialstream.local.keywords import TermKeys
from spatialstream.local.state import Manifest, ReadFile, WriteFile
from spatialstream.model.keyword_terms import keyword_lists
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.terms import TermLists

__all__ = ["TermFrequencies"]

_COUNTERS_LOG2 = 14
_PERIOD = 1 << 20
_WINDOW = 1 << 16
_MIX = np.uint64(0x9E3779B97F4A7C15)


class TermFrequencies:
    """Counts of the words of a stream; see the module."""

    def __init__(self) -> None:
        self._counters = np.zeros(1 << _COUNTERS_LOG2, np.uint32)
        self._seen = 0
        self._windows = 0
        self._file: str | None = None

    def observe(self, objects: ObjectBatch) -> None:
        """Process the next objects of the stream. A batch is counted completely or not at all."""
        period, phase = divmod(self._seen, _PERIOD)
        self._seen += len(objects)
        if phase >= _WINDOW or len(objects) == 0:
            return
        if period >= self._windows:
            self._windows = period + 1
            self._counters >>= np.uint32(1)
        self._count(objects.terms)
        for name in objects.properties.columns:
            terms = keyword_lists(objects.properties, name)
            if 0 < 2 * len(terms.vocabulary) <= len(terms.codes):
                self._count(terms)
        self._file = None

    def _count(self, terms: TermLists) -> None:
        counts, keys = np.bincount(terms.codes, minlength=len(terms.vocabulary)), TermKeys.of(terms)
        np.add.at(self._counters, _counter(keys), counts[keys.used].astype(np.uint32))

    def of(self, vocabulary: pa.StringArray) -> Floats:
        """The count of each word of a vocabulary; never below the true (decayed) count of the sampled objects."""
        counts: npt.NDArray[np.uint32] = self._counters[_counter(TermKeys.of_vocabulary(vocabulary))]
        return counts.astype(np.float64)

    def checkpoint(self, write: WriteFile) -> Manifest:
        """See :mod:`spatialstream.local.state`."""
        if self._file is None and self._counters.any():
            self._file = write("frequencies", {"counters": self._counters})
        return {"file": self._file, "seen": self._seen, "windows": self._windows}

    @classmethod
    def restore(cls, manifest: Manifest, read: ReadFile) -> TermFrequencies:
        """See :mod:`spatialstream.local.state`."""
        result = cls()
        result._seen, result._windows, result._file = manifest["seen"], manifest["windows"], manifest["file"]
        if result._file is not None:
            result._counters = read(result._file)[0]["counters"]
        return result


def _counter(keys: TermKeys) -> Array:
    lengths = np.diff(keys.offsets)[keys.used].astype(np.uint64)
    mixed = keys.keys.view(np.uint64) ^ (lengths << np.uint64(56))
    mixed ^= mixed >> np.uint64(32)
    counter: Array = (mixed * _MIX) >> np.uint64(64 - _COUNTERS_LOG2)
    return counter
