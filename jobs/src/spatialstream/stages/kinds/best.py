"""SBQ: the k best objects by place, text and time, once (Pastri: Ray and Nickerson, JOSIS 24, 2022, section 3).

The search disk has the radius i* r, for the least i* of 1 to c with k candidates of all slots in it. A slot does not
know i*, but that it is at most its own i, by its own candidates. So it sends its k best within i r, and all its
candidates within (i - 1) r, which are fewer than k: whatever i* is, MERGE has what it needs of each slot, in one phase.
A candidate comes with its distance and its T; from these MERGE computes the score by i* r, as the slot has by i r.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from spatialstream.model.errors import StateError
from spatialstream.model.queries import Best, Query
from spatialstream.model.ranking.asked import Ranking
from spatialstream.model.ranking.scores import decayed_score, growth, interval_score, recency, spatial_score
from spatialstream.model.space import Space
from spatialstream.stages import messages
from spatialstream.stages.kinds.base import (
    Columns,
    Objects,
    RowsOf,
    SnapshotStage,
    object_columns,
    one_table,
    stored_texts,
)
from spatialstream.stages.kinds.objects import number_text
from spatialstream.stages.messages import numbers
from spatialstream.stages.rows import RowLimits, row_lines

__all__ = ["SnapshotBest"]

_HEAD = -1.0
"""The distance of the first row of each slot's part: its id is the ranking (as text), its t the corpus table."""

_HEAD_ROW: Columns = {**dict.fromkeys(("x", "y", "textual"), np.zeros(1)), "distance": np.array([_HEAD])}

_COLUMNS = ("distance", "textual", "t", "id", "x", "y")

_quoted = json.JSONEncoder(ensure_ascii=False).encode


@dataclass(frozen=True, slots=True)
class _Answer:
    """An answer: the radius of the disk, the time of the corpus table, and the objects as JSON."""

    radius: float
    corpus: int
    items: list[str]

    @property
    def note(self) -> str:
        """Fields of the row before the list."""
        return f'"radius": {number_text(self.radius)}, "corpus": {self.corpus}'


class SnapshotBest(SnapshotStage):
    """SBQ: the first k by (score, t descending, id, x, y, fields). MERGE holds what is found, about 2 k of a slot."""

    partial, waits = messages.SNAPSHOT_BEST, False
    type: ClassVar[str] = "SBQ"

    def search(self, objects: Objects, query: Query, since: int, *, alone: bool, within: float) -> Columns:
        """See :class:`~spatialstream.stages.kinds.base.SnapshotStage`."""
        best = query.selection
        assert isinstance(best, Best)
        if objects.corpora is None:
            raise StateError(f"no corpus table has been written, by which {query.id} could rank")
        ranking, corpus = best.ranking, objects.corpora.of(query.t)
        times = since, query.t if ranking.between is None else ranking.between[1]
        keywords = query.predicate.expression.literals
        found = objects.best((best.x, best.y), best.k, ranking, keywords, times, query.t, corpus, query.fields)
        of_rows = {**object_columns(found.rows), "textual": found.textual}
        head = {**_HEAD_ROW, "id": pa.array([ranking.text]), "t": np.array([corpus.at])}
        if "stored" in of_rows:
            head["stored"] = pa.array([""], pa.large_string())
        return {
            name: pa.concat_arrays([head[name], column])
            if isinstance(column, pa.Array)
            else np.concatenate([head[name], column])
            for name, column in of_rows.items()
        }

    def lines(
        self,
        asked: pa.RecordBatch,
        parts: Sequence[pa.RecordBatch],
        space: Space,
        after: pa.Int64Array | None,
        limits: RowLimits | None,
    ) -> RowsOf:
        """See :class:`~spatialstream.stages.kinds.base.SnapshotStage`."""
        partials = one_table(parts)
        owners, t, k = numbers(partials, "number"), numbers(asked, "t"), numbers(asked, "k")
        order = np.argsort(owners, kind="stable")
        bounds = [np.searchsorted(owners[order], numbers(asked, "number"), side) for side in ("left", "right")]
        answers = list[_Answer]()
        for i, (first, end) in enumerate(zip(*bounds, strict=True)):
            part = partials.take(pa.array(order[first:end]))
            columns = {name: part.column(name) for name in part.schema.names if name != "number"}
            answers.append(_answer([columns], int(k[i]), int(t[i]), space))
        offsets = np.cumsum([0, *(len(each.items) for each in answers)]).astype(np.int32)
        items = pa.array([item for each in answers for item in each.items], pa.string())
        notes = pa.array([f", {each.note}" for each in answers], pa.string())
        return row_lines(self.type, asked.column("id"), t, "objects", offsets, items, after, limits, notes)

    def answer(self, query: Query, parts: Sequence[Mapping[str, Any]], space: Space) -> str:
        """See :class:`~spatialstream.stages.kinds.base.SnapshotStage`."""
        best = query.selection
        assert isinstance(best, Best)
        made = _answer(parts, query.k, query.t, space, best.ranking)
        return f'{made.note}, "objects": [{", ".join(made.items)}]'


def _answer(
    parts: Sequence[Mapping[str, Any]], k: int, t: int, space: Space, ranking: Ranking | None = None
) -> _Answer:
    """The answer to one query, of the parts of all slots; without its ranking that of a head is parsed."""
    rows = [
        row
        for part in parts
        for row in zip(*map(_listed, itemgetter(*_COLUMNS)(part)), stored_texts(part), strict=True)
    ]
    _, _, corpus, text, *_ = next(row for row in rows if row[0] == _HEAD)
    ranking = ranking or Ranking.of_text(text)
    candidates = [row for row in rows if row[0] != _HEAD]
    near = sorted(row[0] for row in candidates)
    radius = ranking.multiple(near[k - 1] if len(near) >= k else math.inf) * ranking.radius
    scored = sorted(
        (_score(ranking, t, radius, row), -row[2], *row[3:], row[0]) for row in candidates if row[0] <= radius
    )
    return _Answer(radius, corpus, [_item(each, space) for each in scored[:k]])


def _listed(column: Any) -> list[Any]:
    values: list[Any] = column.to_pylist() if isinstance(column, pa.Array) else column.tolist()
    return values


def _score(ranking: Ranking, t: int, radius: float, row: Sequence[Any]) -> float:
    """The score of a candidate, with the operations of :mod:`spatialstream.local.snapshot.best`."""
    distance, textual, at = row[:3]
    spatial = spatial_score(distance, radius)
    if ranking.half_life is not None:
        return float(decayed_score(ranking.shares[0], spatial, textual, growth(t - at, ranking.half_life)))
    assert ranking.between is not None
    return float(interval_score(ranking.shares, spatial, recency(at, *ranking.between), textual))


def _item(each: Sequence[Any], space: Space) -> str:
    """An object of the list as JSON."""
    score, minus_t, name, x, y, stored, distance = each
    first, second = space.axes
    place = f'"{first}": {number_text(x)}, "{second}": {number_text(y)}'
    how = f'"{space.distance_field}": {number_text(distance)}, "score": {number_text(score)}'
    said = f", {stored}" if stored else ""
    return f'{{"id": {_quoted(name)}, "t": {-minus_t}, {place}, {how}{said}}}'
