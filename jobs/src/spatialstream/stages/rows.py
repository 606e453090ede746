"""Result rows as JSON text, encoded column-wise: with many matches, most time goes into writing results.

A row that contains a list may have any length. A broker limits the size of messages, so in a live stream a long list
is published in *parts*: rows that say which part of how many they are, and that a consumer reassembles
(:class:`~spatialstream.connectors.delivery.Assembler`). Files contain complete rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.model.arrays import Codes, Flags, Floats, Ints
from spatialstream.model.json_columns import joined, needs_large, quoted
from spatialstream.model.space import Space
from spatialstream.model.stored_fields import continued

__all__ = ["RowLimits", "match_lines", "object_texts", "row_heads", "row_lines", "term_texts"]


@dataclass(frozen=True, slots=True)
class RowLimits:
    """Maximum length of rows with a list, in bytes.

    Attributes:
        longest: of a complete row; a longer one has an error in place of its list.
        part: of a list; a longer one is cut between its items.
    """

    longest: int = 64 << 20
    part: int = 4 << 20


def _as(kind: pa.DataType, strings: pa.Array) -> pa.Array:
    return strings if strings.type == kind else strings.cast(kind)


def object_texts(
    space: Space,
    ids: pa.StringArray,
    t: Ints,
    x: Floats,
    y: Floats,
    distance: Floats | None = None,
    score: Floats | None = None,
    stored: pa.LargeStringArray | None = None,
) -> pa.StringArray | pa.LargeStringArray:
    """Each object as the JSON object that results contain.

    It has id, t, place, the distance and the score if there are any, and the fields that the stream keeps
    (:mod:`spatialstream.model.stored_fields`).
    """
    first, second = space.axes
    n, numbers = len(t), [each for each in (x, y, distance, score) if each is not None]
    shown = pc.cast(pa.array(np.concatenate(numbers)), pa.string())
    parts = [
        '{"id": ',
        quoted(ids),
        ', "t": ',
        pc.cast(pa.array(t), pa.string()),
        f', "{first}": ',
        shown[:n],
        f', "{second}": ',
        shown[n : 2 * n],
    ]
    if distance is not None:
        parts += [f', "{space.distance_field}": ', shown[2 * n : 3 * n]]
    if score is not None:
        parts += [', "score": ', shown[len(shown) - n :]]
    if stored is not None:
        parts.append(continued(stored))
    return joined(*parts, "}")


def match_lines(
    queries: pa.StringArray, t: Ints, objects: pa.StringArray | pa.LargeStringArray, which: Codes
) -> pa.StringArray | pa.LargeStringArray:
    """CRQ result lines, one per match.

    Args:
        queries: the query id of each match.
        t: the timestamp of each *object*.
        objects: each object's :func:`object_texts`.
        which: the object of each match, a position in the two above.
    """
    used, positions = np.unique(which, return_inverse=True)
    times = pc.cast(pa.array(t[used]), pa.string())
    tails = joined(', "type": "CRQ", "t": ', times, ', "object": ', objects.take(pa.array(used)), "}")
    if needs_large(tails.nbytes // max(1, len(used)) * len(which)):
        tails = tails.cast(pa.large_string())
    return joined('{"query": ', quoted(queries), tails.take(pa.array(positions)))


def row_heads(
    kind: str, queries: pa.StringArray, t: Ints, complete_after: pa.Int64Array | None = None
) -> pa.LargeStringArray:
    """The beginnings of result lines, up to the answer; the arguments are those of :func:`row_lines`."""
    head = ['{"query": ', quoted(queries), f', "type": "{kind}", "t": ', pc.cast(pa.array(t), pa.string())]
    if complete_after is not None and complete_after.null_count < len(complete_after):
        notes = pc.binary_join_element_wise(', "complete_after": ', pc.cast(complete_after, pa.string()), "")
        head.append(pc.fill_null(notes, ""))
    return _as(pa.large_string(), joined(*head))


def row_lines(
    kind: str,
    queries: pa.StringArray,
    t: Ints,
    field: str,
    offsets: Codes,
    items: pa.StringArray | pa.LargeStringArray,
    complete_after: pa.Int64Array | None = None,
    limits: RowLimits | None = None,
    notes: pa.StringArray | None = None,
) -> tuple[pa.LargeStringArray, Ints]:
    """Result lines that contain a list each: of objects (SRQ, SKQ, SBQ, CKQ, CBQ) or of terms (STQ, CTQ).

    Args:
        kind: the type of query.
        queries: the query id of each of n rows.
        t: int64[n].
        field: ``"objects"`` or ``"terms"``.
        offsets: int32[n + 1], from 0 on; the list of row i is ``items[offsets[i]:offsets[i + 1]]``.
        items: already JSON.
        complete_after: if not null, objects with this timestamp or an earlier one are not kept any more, and the row
            says so.
        limits: maximum length of rows; None: all rows are complete.
        notes: more fields of each row, as JSON after a comma; None: there are none.

    Returns:
        m lines, and int64[m], the row of each line. The lines are in the order of the rows, and the parts of a row in
        their order.
    """
    heads = row_heads(kind, queries, t, complete_after)
    if notes is not None:
        heads = _as(pa.large_string(), joined(heads, notes))
    items = _as(pa.large_string(), items)
    before, after = f', "{field}": [', "]}"
    row = np.arange(len(t))
    if limits is not None:
        ends = np.concatenate([[0], np.cumsum(pc.binary_length(items).to_numpy() + len(", "))])
        listed = np.maximum(0, ends[offsets[1:]] - ends[offsets[:-1]] - len(", "))
        row_bytes = pc.binary_length(heads).to_numpy() + len(before) + listed + len(after)
        lost = row_bytes > limits.longest
        if lost.any() or (listed > limits.part).any():
            kept = np.where(lost, 0, np.diff(offsets))
            items = items.filter(pa.array(~np.repeat(lost, np.diff(offsets))))
            offsets = np.concatenate([[0], np.cumsum(kept)]).astype(np.int32)
            offsets, parts = _cut(offsets, items, limits.part)
            row = np.repeat(row, parts)
            heads = heads.take(pa.array(row))
            number = np.arange(len(row)) - np.repeat(np.cumsum(parts) - parts, parts)
            lists = _lists(offsets, items)
            tails = _tails(row_bytes, lost, row, number, parts, before, limits)
            ends_of = pc.if_else(pa.array(lost[row]), "", after)
            return joined(heads, tails, lists, ends_of), row
    return joined(heads, before, _lists(offsets, items), after), row


def _lists(offsets: Codes, items: pa.LargeStringArray) -> pa.LargeStringArray:
    """The items of each list, separated by commas."""
    comma = pa.scalar(", ", pa.large_string())
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), items), comma)


def _cut(offsets: Codes, items: pa.LargeStringArray, most: int) -> tuple[Codes, Ints]:
    """Lists of more than ``most`` bytes cut between their items: (offsets of all parts, number of parts of each list).

    A part has as many items as fit, at least one.
    """
    ends = np.concatenate([[0], np.cumsum(pc.binary_length(items).to_numpy() + len(", "))])
    parts = np.ones(len(offsets) - 1, np.int64)
    pieces = []
    for i in np.flatnonzero(ends[offsets[1:]] - ends[offsets[:-1]] - len(", ") > most).tolist():
        first, last = int(offsets[i]), int(offsets[i + 1])
        bounds = []
        while first < last:
            fitting = int(np.searchsorted(ends, ends[first] + most + len(", "), side="right")) - 1
            first = min(last, max(first + 1, fitting))
            bounds.append(first)
        parts[i] = len(bounds)
        pieces.append((i, bounds))
    stops = np.repeat(offsets[1:], parts)
    starts = np.cumsum(parts) - parts
    for i, bounds in pieces:
        stops[starts[i] : starts[i] + parts[i]] = bounds
    return np.concatenate([offsets[:1], stops]), parts


def _tails(
    whole: Ints, lost: Flags, row: Ints, number: Ints, parts: Ints, before: str, limits: RowLimits
) -> pa.LargeStringArray:
    """The text between a line's head and its list: the number of the part, or an error in place of the list."""
    texts = []
    for i, part in zip(row.tolist(), number.tolist(), strict=True):
        if lost[i]:
            reason = f"the row would have {whole[i]} bytes, and the most is {limits.longest}; ask for less of it"
            texts.append(f', "error": "{reason}"}}')
        elif parts[i] > 1:
            texts.append(f', "part": {part}, "parts": {parts[i]}{before}')
        else:
            texts.append(before)
    return pa.array(texts, pa.large_string())


def term_texts(terms: pa.StringArray, counts: Ints) -> pa.StringArray | pa.LargeStringArray:
    """Each term and its count as the JSON object that results contain."""
    return joined('{"term": ', quoted(terms), ', "count": ', pc.cast(pa.array(counts), pa.string()), "}")
