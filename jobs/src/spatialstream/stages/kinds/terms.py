"""STQ and CTQ: the k terms that occur in most objects, once, or at each step.

Slots send counts of terms, which MERGE sums.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.local.snapshot.totals import added_up, largest
from spatialstream.local.terms.ctq import ContinuousTermsIndex
from spatialstream.local.terms.steps import StepPartials, merge_steps
from spatialstream.model.arrays import numpy_view
from spatialstream.model.hashing import distinct
from spatialstream.model.objects import terms_from_arrow
from spatialstream.model.queries import Query
from spatialstream.model.space import Space
from spatialstream.stages import messages
from spatialstream.stages.kinds.base import (
    Arrived,
    Columns,
    ContinuousStage,
    Lists,
    ListStage,
    Objects,
    Partial,
    first_of_each,
)
from spatialstream.stages.kinds.rows import STEP, RowSink
from spatialstream.stages.messages import columns, numbers
from spatialstream.stages.rows import row_lines, term_texts

__all__ = ["ContinuousTerms", "SnapshotTerms"]

_FEW = 200
"""Up to this many terms of one row are counted one by one: starting a kernel costs as much."""

_quoted = json.JSONEncoder(ensure_ascii=False).encode


class SnapshotTerms(ListStage):
    """STQ: the first k terms by (count descending, term)."""

    type, field = "STQ", "terms"
    partial = messages.SNAPSHOT_TERMS

    def search(self, objects: Objects, query: Query, since: int, *, alone: bool, within: float) -> Columns:
        """See :class:`~spatialstream.stages.kinds.base.SnapshotStage`.

        If no other slot is asked, the terms that cannot be among the first k are omitted.
        """
        predicate = query.predicate
        terms, counts = objects.term_counts(
            predicate.region, predicate.expression.literals, since, query.t, query.k if alone else None
        )
        return {"term": terms, "count": counts}

    def lists(self, asked: pa.RecordBatch, parts: Sequence[pa.RecordBatch], space: Space) -> Lists:
        """See :class:`~spatialstream.stages.kinds.base.ListStage`."""
        return _top_terms(asked, parts)

    def texts(self, query: Query, parts: Sequence[Mapping[str, Any]], space: Space) -> list[str]:
        """See :class:`~spatialstream.stages.kinds.base.ListStage`."""
        return _short_terms(parts, query.k)

    def items(self, query: Query, parts: Sequence[Mapping[str, Any]]) -> int:
        """See :class:`~spatialstream.stages.kinds.base.SnapshotStage`."""
        return min(super().items(query, parts), query.k)


class ContinuousTerms(ContinuousStage):
    """CTQ: the top k at each step."""

    spooled: ClassVar[Mapping[str, str]] = {messages.STEPS: "now"}

    def match(self, index: ContinuousTermsIndex, arrived: Arrived) -> Iterator[Partial]:
        """See :class:`~spatialstream.stages.kinds.base.ContinuousStage`: objects only count, until a step."""
        with arrived.load.spending("objects"):
            index.match(arrived.objects)
        return iter(())

    def steps(self, index: ContinuousTermsIndex, watermark: int) -> Iterator[Partial]:
        """See :class:`~spatialstream.stages.kinds.base.ContinuousStage`."""
        for partials in index.steps(watermark):
            yield messages.STEPS, _packed(partials)

    def merge(self, spools: Mapping[str, Iterable[pa.Table]], merger: None, watermark: int, sink: RowSink) -> None:
        """See :class:`~spatialstream.stages.kinds.base.ContinuousStage`."""
        for table in spools[messages.STEPS]:
            steps = merge_steps([_unpacked(content) for content in table.to_batches()])
            sink.count(steps.number, steps.t)
            if not sink.state_only:
                items = term_texts(steps.terms, steps.counts)
                lines = row_lines("CTQ", steps.query, steps.t, "terms", steps.offsets, items, limits=sink.limits)
                sink.lines.add("CTQ", steps.t, STEP, steps.number, *lines)


def _top_terms(asked: pa.RecordBatch, parts: Sequence[pa.RecordBatch]) -> Lists:
    """Counts of a term summed over slots, then the first k by (count descending, term)."""
    counted = pa.concat_batches(parts)
    # by codes, because Arrow's hash of strings is not keyed
    codes, firsts = distinct(counted.column("term"))
    place = np.searchsorted(numbers(asked, "number"), numbers(counted, "number"))
    keys, inverse = np.unique(place * len(firsts) + codes, return_inverse=True)
    counts = np.zeros(len(keys), np.int64)
    np.add.at(counts, inverse, numbers(counted, "count"))
    place, codes = np.divmod(keys, len(firsts))
    # only terms whose count is among the first k have to be sorted by term
    order = np.lexsort((-counts, place))
    place, codes, counts = place[order], codes[order], counts[order]
    starts = np.searchsorted(place, np.arange(asked.num_rows))
    k = numbers(asked, "k").astype(np.int64)
    last = np.minimum(starts + k, np.append(starts[1:], len(place))) - 1
    kept = np.flatnonzero(counts >= counts[last[place]])
    place, counts = place[kept], counts[kept]
    terms = counted.column("term").take(pa.array(firsts[codes[kept]]))
    ranked = pa.table([pa.array(place), pa.array(-counts), terms], ["place", "rank", "term"])
    order = pc.sort_indices(ranked, [(name, "ascending") for name in ranked.column_names]).to_numpy()
    offsets, rows = first_of_each(asked, numbers(asked, "number")[place[order]], k)
    if not len(rows):
        return offsets, pa.array([], pa.string())
    rows = order[rows]
    return offsets, term_texts(terms.take(pa.array(rows)), counts[rows])


def _short_terms(parts: Sequence[Mapping[str, Any]], k: int) -> list[str]:
    """The k first by (count descending, term)."""
    if sum(len(part["count"]) for part in parts) <= _FEW:
        counts = Counter[str]()
        for part in parts:
            for term, count in zip(part["term"].to_pylist(), part["count"].tolist(), strict=True):
                counts[term] += count
        counted = list(counts.items())
    else:
        terms, totals = largest(*added_up([(part["term"], part["count"]) for part in parts]), k)
        counted = list(zip(terms.to_pylist(), totals.tolist(), strict=True))
    counted.sort(key=lambda each: (-each[1], each[0]))
    return [f'{{"term": {_quoted(term)}, "count": {count}}}' for term, count in counted[:k]]


def _packed(partials: StepPartials) -> pa.RecordBatch:
    """The content of a :data:`~spatialstream.stages.messages.STEPS` block."""
    terms = partials.terms.compact()
    coded = pa.DictionaryArray.from_arrays(pa.array(terms.codes), terms.vocabulary)
    offsets = pa.array(terms.offsets)
    return columns(
        number=partials.number,
        query=partials.query,
        now=partials.now,
        k=partials.k,
        terms=pa.ListArray.from_arrays(offsets, coded),
        counts=pa.ListArray.from_arrays(offsets, pa.array(partials.counts)),
    )


def _unpacked(content: pa.RecordBatch) -> StepPartials:
    """Unpack what :func:`_packed` packed."""
    return StepPartials(
        numbers(content, "number"),
        content.column("query"),
        numbers(content, "now"),
        numbers(content, "k"),
        terms_from_arrow(content.column("terms")),
        numpy_view(content.column("counts").flatten()),
    )
