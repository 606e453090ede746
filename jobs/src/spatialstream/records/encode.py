"""Batches to JSON Lines, column by column: no Python object a record."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.model.arrays import Array, Flags, Floats, Ints
from spatialstream.model.expressions import Expression, fields_of, has_marks
from spatialstream.model.geometry import BOX, POLYGON
from spatialstream.model.kinds import CANCEL, IS_CONTINUOUS, KINDS
from spatialstream.model.lifetimes import endless_durations
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch, named
from spatialstream.model.ranking.asked import Ranking
from spatialstream.model.regions import Regions
from spatialstream.model.space import Space
from spatialstream.model.stored_fields import TEXT, chosen, continued
from spatialstream.model.terms import TermLists

__all__ = ["object_lines", "query_lines"]


def object_lines(batch: ObjectBatch, space: Space) -> memoryview:
    """Objects as JSON Lines. Terms are word characters only, so nothing needs to be escaped."""
    x, y = space.axes
    return _bytes(
        _joined(
            '{"id": "',
            _escaped(batch.ids),
            '", "t": ',
            _numbers(batch.t),
            f', "{x}": ',
            _numbers(batch.x),
            f', "{y}": ',
            _numbers(batch.y),
            *_text(batch),
            *(_property(name, column) for name, column in batch.properties.columns.items()),
            "}\n",
        )
    )


def _text(batch: ObjectBatch) -> Sequence[pa.Array | str]:
    """The text: as it was sent where it is kept, or the terms, each as often as it is counted."""
    words = _joined(', "text": "', _words(batch.terms.said(), batch.terms.vocabulary, " "), '"')
    if batch.stored.column is None:
        return (words,)
    stored = chosen(batch.stored.column, (TEXT,)) if batch.properties.columns else batch.stored.column
    return (pc.if_else(pc.equal(stored, ""), words, continued(stored).cast(pa.string())),)


def _property(name: str, column: pa.Array) -> pa.StringArray:
    """A property with its name, or nothing where it is missing."""
    if column.type == pa.string():
        values = _joined('"', _escaped(pc.fill_null(column, "")), '"')
    else:
        plain = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        values = pc.fill_null(plain.cast(pa.string()), "")
    return pc.if_else(column.is_valid(), _joined(f", {json.dumps(name, ensure_ascii=False)}: ", values), "")


def query_lines(batch: QueryBatch) -> memoryview:
    """Queries and cancellations as JSON Lines."""
    asks = batch.code != CANCEL
    ranked = np.asarray(pc.not_equal(batch.ranking, "").to_numpy(zero_copy_only=False))
    rankings, between, half_life = _rankings(batch.ranking, IS_CONTINUOUS[batch.code])
    endless = (IS_CONTINUOUS[batch.code] | ranked) & (batch.duration == endless_durations(batch.step, half_life))
    return _bytes(
        _joined(
            '{"id": "',
            _escaped(batch.ids),
            '", "type": "',
            named(batch.code).dictionary_decode(),
            '", "t": ',
            _numbers(batch.t),
            _where(~ranked, _region(batch.regions)),
            _where(asks & ((batch.regions.kind == 0) | ranked), _joined(', "at": ', _list(batch.at))),
            _keywords(batch.keywords),
            _where(batch.k > 0, _joined(', "k": ', _numbers(batch.k))),
            rankings,
            _where(asks & ~endless & ~between, _joined(', "duration": ', _numbers(batch.duration))),
            _where(asks & (batch.window >= 0), _joined(', "window": ', _numbers(batch.window))),
            _where(asks & (batch.step >= 0), _joined(', "step": ', _numbers(batch.step))),
            pc.if_else(pc.not_equal(batch.by, ""), _joined(', "by": "', _escaped(batch.by), '"'), ""),
            "}\n",
        )
    )


def _keywords(lists: TermLists) -> pa.StringArray:
    if has_marks(lists):
        records = (_record(lists[row]) for row in range(len(lists)))
        texts = [json.dumps(record, ensure_ascii=False)[1:-1] if record else "" for record in records]
        return pa.array([f", {text}" if text else "" for text in texts], pa.string())
    quoted = _joined('"', lists.vocabulary, '"')
    return _where(np.diff(lists.offsets) > 0, _joined(', "keywords": [', _words(lists, quoted, ", "), "]"))


def _record(literals: Sequence[str]) -> dict[str, Any]:
    """The fields of a query that its literals are."""
    fields = fields_of(literals)
    return Expression.of(literals).to_record() | ({} if fields is None else {"fields": [*fields]})


def _rankings(texts: pa.StringArray, continuous: Flags) -> tuple[pa.StringArray, Flags, Ints]:
    """The fields of ranked queries; whether they say between which times, and so have no duration; and the half-lives.

    Half-lives, int64[n], are those of continuous queries; -1 for the others.
    """
    distinct = texts.dictionary_encode()
    rankings = [Ranking.of_text(each) if each else None for each in distinct.dictionary.to_pylist()]
    once, registered = (
        pa.array([_fields(each, continuous=kind) for each in rankings], pa.string()).take(distinct.indices)
        for kind in (False, True)
    )
    between = np.array([each is not None and each.between is not None for each in rankings], np.bool_)
    half_life = np.array([-1 if each is None or each.half_life is None else each.half_life for each in rankings])
    at = distinct.indices.to_numpy(zero_copy_only=False)
    return pc.if_else(pa.array(continuous), registered, once), between[at], np.where(continuous, half_life[at], -1)


def _fields(ranking: Ranking | None, *, continuous: bool) -> str:
    """The fields of a ranking, each after a comma, that a query takes."""
    if ranking is None:
        return ""
    kinds = [kind for kind in KINDS if kind.is_ranked and kind.continuous == continuous]
    record = {name: value for name, value in ranking.to_record().items() if any(name in kind.fields for kind in kinds)}
    return f", {json.dumps(record, ensure_ascii=False)[1:-1]}"


def _region(regions: Regions) -> pa.StringArray:
    box = _joined(', "region": {"box": ', _list(regions.shape), "}")
    circle = _joined(', "region": {"circle": ', _list(regions.shape[:, :3]), "}")
    text = pc.if_else(pa.array(regions.kind == BOX), box, circle)
    if polygons := regions.polygons.distinct:
        forms = pa.array([f', "region": {json.dumps(each.to_region())}' for each in polygons])
        codes = pa.array(regions.polygons.codes, mask=regions.kind != POLYGON)
        text = pc.coalesce(forms.take(codes), text)
    return _where(regions.kind > 0, text)


def _joined(*parts: pa.StringArray | str) -> pa.StringArray:
    return pc.binary_join_element_wise(*parts, "")


def _where(condition: Flags, text: pa.StringArray) -> pa.StringArray:
    return pc.if_else(pa.array(condition), text, "")


def _escaped(texts: pa.StringArray) -> pa.StringArray:
    """Texts with the escapes that JSON requires between quotes."""
    special = pc.match_substring_regex(texts, r'["\\\x00-\x1f]')
    if not pc.any(special).as_py():
        return texts
    return pa.array([json.dumps(each)[1:-1] for each in texts.to_pylist()], pa.string())


def _numbers(values: Array) -> pa.StringArray:
    """Numbers as JSON; a float in the shortest form that is read as the same float."""
    return pa.array(np.ascontiguousarray(values)).cast(pa.string())


def _list(values: Floats) -> pa.StringArray:
    """Rows of a matrix as JSON lists."""
    columns = [_numbers(column) for column in values.T]
    between = [part for column in columns for part in (", ", column)][1:]
    return _joined("[", *between, "]")


def _words(lists: TermLists, vocabulary: pa.StringArray, separator: str) -> pa.StringArray:
    """Each set of terms as one text."""
    words = vocabulary.take(pa.array(lists.codes))
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(lists.offsets), words), separator)


def _bytes(lines: pa.StringArray) -> memoryview:
    """The bytes of all strings, one after the other."""
    if len(lines) == 0:
        return memoryview(b"")
    _, offsets, data = lines.buffers()
    ends = np.frombuffer(offsets, np.int32)[lines.offset : lines.offset + len(lines) + 1]
    return memoryview(data)[int(ends[0]) : int(ends[-1])]
