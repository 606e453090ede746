"""What queries ask, as digests of 128 bits: two of one id are the same query if their digests are equal.

The digest is that of the canonical record: everything but the id and who has registered it, the kind by its name, times
and durations in ms, numbers by their values (-0 is 0), keywords as a set of terms. So it does not depend on how a
record is spelled, nor on the process or release that has read it.

Nobody gains by two queries with equal digests: they would have to have the same id too, and then the second is taken
for a repetition of the first, by the one who has made it. So the digest needs no key, and no cryptographic strength;
that it happens by chance has a probability of 2^-128.

Cost: O(bytes of the vocabulary + keywords), some 50 ns a query.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spatialstream.local.arrays import Codes, Words
from spatialstream.model.hashing import Seed, hash_strings, keyed_hashes, mix
from spatialstream.model.kernels import kernel
from spatialstream.model.kinds import NAMES
from spatialstream.model.queries import QueryBatch
from spatialstream.model.terms import TermLists

__all__ = ["content_digests"]

_LANES = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], np.uint64)
"""What the two halves of a digest begin with: bits of the golden ratio and of a prime; the second is odd."""

_SEED: Seed = _LANES.copy()
_NAMES = pa.array(NAMES)


@kernel
def _fold(columns: Words, lanes: Words, out: Words) -> None:
    """Each row of ``columns`` as two words: for a given beginning, what follows is told apart by each step."""
    for row in range(len(columns)):
        for lane in range(2):
            state = lanes[lane]
            for column in range(columns.shape[1]):
                state = mix(state ^ columns[row, column])
            out[row, lane] = state


@kernel
def _add_up(offsets: Codes, codes: Codes, hashes: Words, out: Words) -> None:
    """The sum of the hashes of each set of terms, whatever its order."""
    for row in range(len(offsets) - 1):
        for i in range(offsets[row], offsets[row + 1]):
            for lane in range(2):
                out[row, lane] += hashes[codes[i], lane]


def content_digests(queries: QueryBatch) -> Words:
    """The digests of n queries, uint64[n, 2]; of a cancellation, any number."""
    numbers = np.stack([queries.t, queries.duration, queries.window, queries.step, queries.k], axis=1)
    floats = np.concatenate([queries.at, queries.regions.shape], axis=1) + 0.0
    columns = np.concatenate(
        [
            hash_strings(_NAMES)[queries.code][:, np.newaxis],
            numbers.view(np.uint64),
            queries.regions.kind.astype(np.uint64)[:, np.newaxis],
            floats.view(np.uint64),
            _of_terms(queries.keywords),
        ],
        axis=1,
    )
    out = np.empty((len(queries), 2), np.uint64)
    _fold(columns, _LANES, out)
    return out


def _of_terms(terms: TermLists) -> Words:
    """A number of 128 bits for each set of terms, uint64[n, 2]."""
    hashes = np.stack([hash_strings(terms.vocabulary), keyed_hashes(terms.vocabulary, _SEED)], axis=1)
    out = np.zeros((len(terms), 2), np.uint64)
    _add_up(terms.offsets, terms.codes, hashes, out)
    return out
