"""Sums of term counts from several sources, and the largest of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from spatialstream.local.arrays import Ints
from spatialstream.model.hashing import distinct

__all__ = ["Counts", "added_up", "largest"]

Counts = tuple[pa.StringArray, Ints]
"""Terms, and int64 counts of them."""


def added_up(parts: Sequence[Counts]) -> Counts:
    """Sum the counts of each term, in no particular order, over at least one part; sums must be below 2^53."""
    terms = pa.concat_arrays([each for each, _ in parts])
    codes, firsts = distinct(terms)
    totals = np.bincount(codes, np.concatenate([counts for _, counts in parts]), len(firsts)).astype(np.int64)
    return terms.take(pa.array(firsts)), totals


def largest(terms: pa.StringArray, counts: Ints, most: int | None) -> Counts:
    """The terms whose counts are not below the ``most``-th largest count (at least 1); None: all terms."""
    if most is None or most >= len(counts):
        return terms, counts
    kept = np.flatnonzero(counts >= np.partition(counts, -most)[-most])
    return terms.take(pa.array(kept)), counts[kept]
