"""MERGE: partials of all slots become result rows, one file an epoch.

In embedded mode all slots answer within the epoch, so a snapshot query is complete when the epoch's partials are in. The
only state is the answers of the live CKQs.

Rows of an epoch are written in one fixed order: by t, then CKQ window expiries, CRQ matches, CKQ arrivals, snapshot
queries, CTQ steps; and within these by object or by order of registration. It depends on the input alone, so the results of a run, read in the order
of their files, are the same bytes for any number of slots, leaves, and any cut into epochs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.local.ckq import NearestMerger
from spatialstream.local.ctq import StepPartials, merge_steps
from spatialstream.model.queries import TYPES, QueryBatch, QueryType
from spatialstream.model.space import Space
from spatialstream.pipeline import messages
from spatialstream.pipeline.files import StateFolder, write_whole
from spatialstream.pipeline.messages import numbers
from spatialstream.pipeline.results import object_texts, quoted, row_line
from spatialstream.pipeline.route import Row

__all__ = ["EpochResults", "counts_after", "forget", "merge", "publish"]

_EXPIRY, _MATCH, _ARRIVAL, _SNAPSHOT, _STEP = range(5)
"""Classes of rows at one timestamp, in the order in which they are written."""


@dataclass(slots=True)
class EpochResults:
    """What one epoch gives: result lines in order, dead letters, and the stream's counts of rows up to and with it."""

    epoch: int
    lines: pa.StringArray
    rejected: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)


_Kept = tuple[int, NearestMerger, dict[str, int]]
_kept: dict[str, _Kept] = {}
"""What this process has in memory: checkpoint -> (epoch that it is the state after, CKQ answers, counts of rows)."""


def merge(rows: Sequence[Row], space: Space, checkpoint: Path) -> EpochResults:
    """Merge one epoch's partials; the merger's state is then that of the epoch."""
    by_kind: dict[str, list[pa.RecordBatch]] = {}
    for _, kind, content in rows:
        by_kind.setdefault(kind, []).append(content)
    marker = by_kind[messages.MARKER][0]
    epoch, upto = marker.column("epoch")[0].as_py(), marker.column("upto")[0].as_py()
    state = StateFolder(checkpoint, "merger", epoch)
    nearest, counts = _restore(space, state, _kept.pop(str(checkpoint), None), epoch)

    sorter = _Sorter()
    for content in by_kind.get(messages.LINES, []):
        sorter.add(QueryType.CRQ, numbers(content, "t"), _MATCH, numbers(content, "seq"), content.column("line"))
    _merge_nearest(by_kind, nearest, upto, space, sorter)
    _merge_snapshots(by_kind, space, sorter)
    _merge_steps(by_kind, sorter)

    rejected = [line for content in by_kind.get(messages.REJECTED, []) for line in content.column("line").to_pylist()]
    for kind, rows_of_kind in (sorter.counts | {"rejected": len(rejected)}).items():
        counts[kind] = counts.get(kind, 0) + rows_of_kind
    state.commit({"nearest": nearest.checkpoint(state.write), "counts": counts})
    _kept[str(checkpoint)] = epoch, nearest, dict(counts)
    return EpochResults(epoch, sorter.lines(), rejected, counts)


def _restore(space: Space, state: StateFolder, kept: _Kept | None, epoch: int) -> tuple[NearestMerger, dict[str, int]]:
    if kept is not None and kept[0] == epoch - 1:
        return kept[1], kept[2]
    manifest = state.previous()
    if manifest is None:
        return NearestMerger(space), {}
    return NearestMerger.restore(space, manifest["nearest"], state.read), manifest["counts"]


def counts_after(checkpoint: Path, epoch: int) -> dict[str, int]:
    """Rows written up to and with an epoch, by query type, and ``rejected`` for queries that were not admitted."""
    manifest = StateFolder(checkpoint, "merger", epoch + 1).previous()
    return {} if manifest is None else dict(manifest["counts"])


def forget() -> None:
    """Drop what this process has in memory, as if it had died: the next epoch restores from disk."""
    _kept.clear()


class _Sorter:
    """Collects lines with their keys (t, class, rank) and puts them in order."""

    def __init__(self) -> None:
        self._keys: list[tuple[npt.NDArray[np.int64], int, npt.NDArray[np.int64]]] = []
        self._lines: list[pa.StringArray] = []
        self.counts: dict[str, int] = {}

    def add(
        self, kind: QueryType, t: npt.NDArray[np.int64], row_class: int, rank: npt.NDArray[np.int64], lines: pa.StringArray
    ) -> None:
        """Lines of one class; equal (t, rank) keep the order in which they are given."""
        if len(lines):
            self._keys.append((t, row_class, rank))
            self._lines.append(lines)
            self.counts[kind.value] = self.counts.get(kind.value, 0) + len(lines)

    def lines(self) -> pa.StringArray:
        """All lines in order."""
        if not self._lines:
            return pa.array([], pa.string())
        lines = pa.concat_arrays(self._lines)
        # t of an epoch spans far less than 2**60, so one integer holds (t, class)
        start = min(int(t.min()) for t, _, _ in self._keys)
        major = np.concatenate([(t - start) * 8 + row_class for t, row_class, _ in self._keys])
        rank = np.concatenate([rank for _, _, rank in self._keys])
        order = np.lexsort((rank, major))
        return lines if np.all(order[1:] > order[:-1]) else lines.take(pa.array(order))


def _merge_nearest(
    by_kind: dict[str, list[pa.RecordBatch]], nearest: NearestMerger, upto: int, space: Space, sorter: _Sorter
) -> None:
    for content in by_kind.get(messages.REGISTERED, []):
        queries = QueryBatch.from_arrow(content.drop_columns(["number"]))
        nearest.register(numbers(content, "number"), queries.ids, queries, queries.t, queries.t + queries.duration)
    for content in by_kind.get(messages.ENDED, []):
        nearest.end_at(numbers(content, "number"), numbers(content, "t"))
    arrivals = by_kind.get(messages.ARRIVALS, [])
    table = pa.Table.from_batches(arrivals).combine_chunks().to_batches()[0] if arrivals else None
    for row_class, changes in nearest.apply(table, upto):
        sorter.add(QueryType.CKQ, changes.t, row_class, np.arange(len(changes.t)), changes.lines)


def _merge_snapshots(by_kind: dict[str, list[pa.RecordBatch]], space: Space, sorter: _Sorter) -> None:
    heads = by_kind.get(messages.SNAPSHOT_QUERIES, [])
    if not heads:
        return
    head = pa.Table.from_batches(heads).combine_chunks().to_batches()[0]
    number, first = np.unique(numbers(head, "number"), return_index=True)
    objects = _Groups(by_kind.get(messages.SNAPSHOT_OBJECTS, []), number, _order_objects)
    terms = _Groups(by_kind.get(messages.SNAPSHOT_TERMS, []), number, _order_terms)
    code, t, k = (numbers(head, name)[first] for name in ("code", "t", "k"))
    ids = head.column("id").take(pa.array(first)).to_pylist()
    texts = _object_items(objects.rows, space)
    counts = _term_items(terms.rows)
    for kind in (QueryType.SRQ, QueryType.SKQ, QueryType.STQ):
        mine = np.flatnonzero(code == TYPES.index(kind)).tolist()
        lines = []
        for i in mine:
            if kind is QueryType.STQ:
                items = terms.items(i, counts, int(k[i]))
            else:
                items = objects.items(i, texts[kind], int(k[i]) if kind is QueryType.SKQ else None)
            lines.append(row_line(ids[i], kind.value, int(t[i]), "terms" if kind is QueryType.STQ else "objects", items))
        sorter.add(kind, t[mine], _SNAPSHOT, number[mine], pa.array(lines, pa.string()))


class _Groups:
    """Rows of all slots' partials, grouped by query and in the order of the answer."""

    def __init__(self, parts: list[pa.RecordBatch], number: npt.NDArray[np.int64], order: Any) -> None:
        self.rows: pa.Table | None = order(pa.Table.from_batches(parts)) if parts else None
        if self.rows is None:
            self._bounds = np.zeros(len(number) + 1, np.int64)
        else:
            owners = self.rows.column("number").to_numpy()
            self._bounds = np.append(np.searchsorted(owners, number), len(owners))

    def items(self, i: int, texts: list[str], limit: int | None) -> list[str]:
        low, high = int(self._bounds[i]), int(self._bounds[i + 1])
        return texts[low : high if limit is None else min(high, low + limit)]


def _order_objects(rows: pa.Table) -> pa.Table:
    """By query, then (distance, t descending, id, x, y); range queries have distance 0 and are put by t ascending."""
    near = pc.greater_equal(rows.column("distance"), 0.0)
    rank = pc.if_else(near, pc.negate(rows.column("t")), rows.column("t"))
    keys = [(name, "ascending") for name in ("number", "distance", "rank", "id", "x", "y")]
    return rows.append_column("rank", rank).sort_by(keys)


def _order_terms(rows: pa.Table) -> pa.Table:
    """Counts of one term summed over slots; by query, then (count descending, term)."""
    summed = rows.group_by(["number", "term"]).aggregate([("count", "sum")])
    return summed.sort_by([("number", "ascending"), ("count_sum", "descending"), ("term", "ascending")])


def _object_items(rows: pa.Table | None, space: Space) -> dict[QueryType, list[str]]:
    if rows is None:
        return {QueryType.SRQ: [], QueryType.SKQ: []}
    batch = rows.combine_chunks().to_batches()[0] if rows.num_rows else None
    if batch is None:
        return {QueryType.SRQ: [], QueryType.SKQ: []}
    ids, t, x, y = batch.column("id"), *(numbers(batch, name) for name in ("t", "x", "y"))
    return {
        QueryType.SRQ: object_texts(space, ids, t, x, y).to_pylist(),
        QueryType.SKQ: object_texts(space, ids, t, x, y, numbers(batch, "distance")).to_pylist(),
    }


def _term_items(rows: pa.Table | None) -> list[str]:
    if rows is None or rows.num_rows == 0:
        return []
    batch = rows.combine_chunks().to_batches()[0]
    counts = pc.cast(batch.column("count_sum"), pa.string())
    items: list[str] = pc.binary_join_element_wise(
        '{"term": ', quoted(batch.column("term")), ', "count": ', counts, "}", ""
    ).to_pylist()
    return items


def _merge_steps(by_kind: dict[str, list[pa.RecordBatch]], sorter: _Sorter) -> None:
    parts = [StepPartials.from_arrow(content) for content in by_kind.get(messages.STEPS, [])]
    if not parts:
        return
    t, number, lines = [], [], []
    for step in merge_steps(parts):
        items = [
            f'{{"term": {json.dumps(term, ensure_ascii=False)}, "count": {count}}}' for term, count in step.terms
        ]
        t.append(step.t)
        number.append(step.number)
        lines.append(row_line(step.query, "CTQ", step.t, "terms", items))
    sorter.add(
        QueryType.CTQ, np.array(t, np.int64), _STEP, np.array(number, np.int64), pa.array(lines, pa.string())
    )


def publish(results: EpochResults, results_folder: Path, rejected_folder: Path) -> None:
    """Make an epoch's results and dead letters visible: each a whole file, under a name that a replay overwrites."""
    name = f"epoch-{results.epoch:09d}.jsonl"
    if results.rejected:
        write_whole(rejected_folder / name, "".join(line + "\n" for line in results.rejected).encode())
    if len(results.lines):
        lines = pc.binary_join_element_wise(results.lines, "\n", "")
        write_whole(results_folder / name, _text(lines))


def _text(lines: pa.StringArray) -> bytes:
    """The bytes of all strings of an array, one after the other."""
    _, offsets, data = lines.buffers()
    bounds = np.frombuffer(offsets, np.int32, len(lines) + 1, lines.offset * 4)
    return memoryview(data)[int(bounds[0]) : int(bounds[-1])].tobytes()

