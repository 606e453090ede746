"""Steps of continuous top-k terms queries over all slots: sum the slots' counts, select the top terms (SSTD, 6.3).

Cost: O(terms in all partials) to add, O(log k) for each term that is among the k best so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from spatialstream.local.arrays import Bytes, Codes, Ints, grown, wide
from spatialstream.local.columns import Strings, rank_strings, writable
from spatialstream.local.wordtable import compare_words
from spatialstream.model.kernels import kernel, lean_kernel
from spatialstream.model.terms import TermLists

__all__ = ["StepPartials", "StepRows", "merge_steps"]


@dataclass(frozen=True, slots=True, eq=False)
class StepPartials:
    """The counts of a slot at steps: m rows ordered by time.

    Attributes:
        number: int64[m], number of the query.
        query: Arrow utf8[m], its id.
        now: int64[m], ms, time of the step.
        k: int32[m], k of the query.
        terms: m sets of terms, in no particular order; empty if the slot has no objects in the window.
        counts: int32, the count of each term of ``terms.codes``.
    """

    number: Ints
    query: pa.StringArray
    now: Ints
    k: Codes
    terms: TermLists
    counts: Codes

    def __len__(self) -> int:
        return len(self.number)

    @staticmethod
    def concat(parts: Sequence[StepPartials]) -> StepPartials:
        """Concatenate the rows of ``parts`` in order."""
        if len(parts) == 1:
            return parts[0]
        dtypes = {"number": np.int64, "now": np.int64, "k": np.int32, "counts": np.int32}
        number, now, k, counts = (
            np.concatenate([np.empty(0, dtype), *(getattr(part, name) for part in parts)])
            for name, dtype in dtypes.items()
        )
        names = pa.concat_arrays([pa.array([], pa.string()), *(part.query for part in parts)])
        terms = TermLists.concat([part.terms.compact() for part in parts])
        return StepPartials(number, names, now, k, terms, counts)


@dataclass(frozen=True, slots=True, eq=False)
class StepRows:
    """Rows of results: m steps ordered by (time, query id).

    Attributes:
        number: int64[m], number of the query.
        query: Arrow utf8[m], its id.
        t: int64[m], ms, time of the step.
        offsets: int32[m + 1]; the answer of row i is ``offsets[i]:offsets[i + 1]`` of the columns below.
        terms: Arrow utf8, most frequent first, ties by term.
        counts: int64.
    """

    number: Ints
    query: pa.StringArray
    t: Ints
    offsets: Codes
    terms: pa.StringArray
    counts: Ints

    def __len__(self) -> int:
        return len(self.number)


class _Terms(NamedTuple):
    """The terms, and the count of each in the current step."""

    offsets: Ints
    data: Bytes
    found: Ints


@lean_kernel
def _better(terms: _Terms, a: int, b: int) -> bool:
    """Whether term a comes before term b: higher count first, ties by term."""
    if terms.found[a] != terms.found[b]:
        return bool(terms.found[a] > terms.found[b])
    return compare_words(terms.offsets, terms.data, a, b) < 0


@lean_kernel
def _rise(terms: _Terms, heap: Codes, size: int, code: int) -> None:
    """Insert a term at the end of a heap of ``size`` with the worst term at its root; there must be room."""
    at = size
    while at > 0 and _better(terms, wide(heap[(at - 1) // 2]), code):
        heap[at] = heap[(at - 1) // 2]
        at = (at - 1) // 2
    heap[at] = code


@lean_kernel
def _sink(terms: _Terms, heap: Codes, size: int, code: int) -> None:
    """Insert a term into a heap of ``size`` whose root is free."""
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and _better(terms, wide(heap[child]), wide(heap[child + 1])):
            child += 1
        if not _better(terms, code, wide(heap[child])):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = code


@lean_kernel
def _best(terms: _Terms, codes: Codes, size: int, k: int) -> int:
    """Move the k best of the first ``size`` codes to the front, best first; return their number."""
    found, wanted = terms.found, min(k, size)
    for j in range(size):
        code = wide(codes[j])
        if j < wanted:
            _rise(terms, codes, j, code)
        elif found[code] >= found[codes[0]] and _better(terms, code, wide(codes[0])):
            codes[j] = codes[0]
            _sink(terms, codes, wanted, code)
    for last in range(wanted - 1, 0, -1):
        code = wide(codes[last])
        codes[last] = codes[0]
        _sink(terms, codes, last, code)
    return wanted


@kernel
def _select(
    rows: Ints, firsts: Ints, k: Codes, offsets: Codes, codes: Codes, counts: Codes, terms: _Terms
) -> tuple[Codes, Codes, Ints]:
    """Add up the partials ``rows[firsts[i]:firsts[i + 1]]`` for each i, and select the k[i] best terms.

    Returns offsets, terms and counts of the answers.
    """
    ends = np.zeros(len(firsts), np.int32)
    out_codes, out_counts = np.empty(1024, np.int32), np.empty(1024, np.int64)
    found = terms.found
    size = 0
    for i in range(len(firsts) - 1):
        bound = 0
        for row in rows[firsts[i] : firsts[i + 1]]:
            bound += offsets[row + 1] - offsets[row]
        seen, distinct = np.empty(bound, np.int32), 0
        for row in rows[firsts[i] : firsts[i + 1]]:
            for at in range(offsets[row], offsets[row + 1]):
                code = codes[at]
                if found[code] == 0:
                    seen[distinct] = code
                    distinct += 1
                found[code] += counts[at]
        wanted = _best(terms, seen, distinct, wide(k[i]))
        if size + wanted > len(out_codes):
            room = 2 * size + wanted
            out_codes, out_counts = grown(out_codes, size, room), grown(out_counts, size, room)
        for j in range(wanted):
            out_codes[size + j] = seen[j]
            out_counts[size + j] = found[seen[j]]
        size += wanted
        ends[i + 1] = size
        for j in range(distinct):
            found[seen[j]] = 0
    return ends, out_codes[:size], out_counts[:size]


def merge_steps(partials: Sequence[StepPartials]) -> StepRows:
    """Sum the partials of all slots, and select the k terms that occur in most objects at each step; ties by term.

    Steps at which no slot has any term give a row without terms.
    """
    merged = StepPartials.concat(partials)
    number, names, now, k, terms, counts = (
        merged.number,
        merged.query,
        merged.now,
        merged.k,
        merged.terms,
        merged.counts,
    )
    rows = np.lexsort((number, rank_strings(names), now))
    new = np.ones(len(rows), np.bool_)
    new[1:] = (np.diff(now[rows]) != 0) | (np.diff(number[rows]) != 0)
    firsts = np.append(np.flatnonzero(new), len(rows))
    heads = rows[firsts[:-1]]
    words = Strings()
    words.append(terms.vocabulary)
    found = _Terms(words.offsets, words.data, np.zeros(len(words), np.int64))
    offsets, codes, best = _select(
        rows, firsts, k[heads], writable(terms.offsets), writable(terms.codes), counts, found
    )
    return StepRows(
        number[heads], names.take(pa.array(heads)), now[heads], offsets, words.arrow(codes.astype(np.int64)), best
    )
