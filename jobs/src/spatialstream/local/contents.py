"""Digests (128 bits) of the contents of queries: queries with the same id and the same digest are the same query.

The digest covers the canonical record without ``id`` and ``by``: the kind by its name, times and durations in ms,
numbers by value (-0 is 0), keywords as a set of terms, polygons by the digests of their normal forms, and what the
query ranks by in its canonical text. So it does not depend on the spelling of a record, nor on the process or release
that reads it.

The digest needs neither a key nor cryptographic strength, because collisions give no advantage: two queries with equal
digests are confused only if they also have the same id, and then the second one is treated as a repetition of the
first, to the disadvantage of its own sender. The probability of an accidental collision is 2^-128.

Cost: O(bytes of the vocabulary + keywords), about 50 ns per query.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spatialstream.local.arrays import Codes, Words
from spatialstream.model.hashing import Seed, hash_strings, keyed_hashes, mix
from spatialstream.model.kernels import kernel, lean_kernel
from spatialstream.model.kinds import NAMES
from spatialstream.model.polygons.column import PolygonColumn
from spatialstream.model.queries import QueryBatch
from spatialstream.model.terms import TermLists

__all__ = ["content_digests"]

_LANES = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], np.uint64)
"""Initial values of the two halves of a digest: bits of the golden ratio and of a prime; the second is odd."""

_SEED: Seed = _LANES.copy()
_NAMES = pa.array(NAMES)


@kernel
def _fold(columns: Words, lanes: Words, out: Words) -> None:
    """Hash each row of ``columns`` to two words; each step is a bijection of the next column for a given state."""
    for row in range(len(columns)):
        for lane in range(2):
            state = lanes[lane]
            for column in range(columns.shape[1]):
                state = mix(state ^ columns[row, column])
            out[row, lane] = state


@lean_kernel
def _add_up(offsets: Codes, codes: Codes, hashes: Words, out: Words) -> None:
    """The sum of the hashes of each set of terms, which is independent of their order."""
    for row in range(len(offsets) - 1):
        for i in range(offsets[row], offsets[row + 1]):
            for lane in range(2):
                out[row, lane] += hashes[codes[i], lane]


def content_digests(queries: QueryBatch) -> Words:
    """The digests of n queries, uint64[n, 2]; undefined for cancellations."""
    numbers = np.stack([queries.t, queries.duration, queries.window, queries.step, queries.k], axis=1)
    floats = np.concatenate([queries.at, queries.regions.shape], axis=1) + 0.0
    columns = np.concatenate(
        [
            hash_strings(_NAMES)[queries.code][:, np.newaxis],
            numbers.view(np.uint64),
            queries.regions.kind.astype(np.uint64)[:, np.newaxis],
            floats.view(np.uint64),
            _of_terms(queries.keywords),
            hash_strings(queries.ranking)[:, np.newaxis],
        ],
        axis=1,
    )
    out = np.empty((len(queries), 2), np.uint64)
    _fold(columns, _LANES, out)
    _fold_polygons(queries.regions.polygons, out)
    return out


def _fold_polygons(polygons: PolygonColumn, out: Words) -> None:
    """Mix the geometries into the digests of the queries that have one; polygons may have the same box."""
    rows = np.flatnonzero(polygons.codes >= 0)
    if not len(rows):
        return
    geometry = np.frombuffer(bytes.fromhex("".join(each.digest for each in polygons.distinct)), "<u8").reshape(-1, 2)
    columns = np.concatenate([out[rows], geometry[polygons.codes[rows]]], axis=1)
    mixed = np.empty((len(rows), 2), np.uint64)
    _fold(columns, _LANES, mixed)
    out[rows] = mixed


def _of_terms(terms: TermLists) -> Words:
    """A hash of 128 bits for each set of terms, uint64[n, 2]."""
    hashes = np.stack([hash_strings(terms.vocabulary), keyed_hashes(terms.vocabulary, _SEED)], axis=1)
    out = np.zeros((len(terms), 2), np.uint64)
    _add_up(terms.offsets, terms.codes, hashes, out)
    return out
