"""Result rows as JSON text, encoded column-wise: with many matches, most time goes into writing results.

A row that contains a list may have any length. A broker limits the size of messages, so in a live stream a long list
is published in *parts*: rows that say which part of how many they are, and that a consumer reassembles
(:class:`~spatialstream.connectors.delivery.Assembler`). Files contain complete rows.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.model.arrays import Codes, Flags, Floats, Ints, string_view
from spatialstream.model.space import Space

__all__ = ["RowLimits", "joined", "match_lines", "object_texts", "quoted", "row_heads", "row_lines", "term_texts"]

_ESCAPED = r'["\\\x00-\x1f\x7f]'
_IS_ESCAPED = np.array([bool(re.search(_ESCAPED, chr(byte))) for byte in range(256)])
_MOST_ESCAPED = 6
"""Maximum bytes that a byte of a string takes in JSON."""

_ROOM = 2**31 - 1
"""Maximum bytes of an array of strings with 32-bit offsets."""

_FEW = 32
"""Up to so many rows are joined one by one: starting an Arrow kernel costs as much."""


@dataclass(frozen=True, slots=True)
class RowLimits:
    """Maximum length of rows with a list, in bytes.

    Attributes:
        longest: of a complete row; a longer one has an error in place of its list.
        part: of a list; a longer one is cut between its items.
    """

    longest: int = 64 << 20
    part: int = 4 << 20


def joined(*parts: Any) -> pa.StringArray | pa.LargeStringArray:
    """Arrays and texts concatenated row by row; with 64-bit offsets if 32 bits may not suffice."""
    arrays = [part for part in parts if isinstance(part, pa.Array)]
    size = sum(each.nbytes for each in arrays) + len(arrays[0]) * sum(len(p) for p in parts if isinstance(p, str))
    large = size > _ROOM or any(pa.types.is_large_string(each.type) for each in arrays)
    kind = pa.large_string() if large else pa.string()
    if len(arrays[0]) <= _FEW:
        texts = zip(*(part.to_pylist() if isinstance(part, pa.Array) else repeat(part) for part in parts), strict=False)
        return pa.array(map("".join, texts), kind)
    typed = [_as(kind, part) if isinstance(part, pa.Array) else pa.scalar(part, kind) for part in parts]
    return pc.binary_join_element_wise(*typed, pa.scalar("", kind))


def _as(kind: pa.DataType, strings: pa.Array) -> pa.Array:
    return strings if strings.type == kind else strings.cast(kind)


def quoted(strings: pa.StringArray | pa.LargeStringArray) -> pa.StringArray | pa.LargeStringArray:
    """Each string as a JSON string."""
    if not _has_escaped(strings):
        return joined('"', strings, '"')
    special = pc.match_substring_regex(strings, _ESCAPED)
    if strings.nbytes * _MOST_ESCAPED > _ROOM:
        strings = strings.cast(pa.large_string())
    result = joined('"', strings, '"')
    escaped = [json.dumps(text, ensure_ascii=False) for text in pc.filter(strings, special).to_pylist()]
    return pc.replace_with_mask(result, special, pa.array(escaped, result.type))


def _has_escaped(strings: pa.StringArray | pa.LargeStringArray) -> bool:
    """Whether a string has a byte that JSON escapes: a look-up of each byte, a third of the time of a regex."""
    if not isinstance(strings, pa.StringArray):
        return bool(pc.any(pc.match_substring_regex(strings, _ESCAPED)).as_py())
    offsets, data = string_view(strings)
    return bool(_IS_ESCAPED[data[offsets[0] : offsets[-1]]].any())


def object_texts(
    space: Space,
    ids: pa.StringArray,
    t: Ints,
    x: Floats,
    y: Floats,
    distance: Floats | None = None,
    score: Floats | None = None,
) -> pa.StringArray | pa.LargeStringArray:
    """Each object as the JSON object that results contain: id, t, place, and distance and score if there are any."""
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
    if tails.nbytes // max(1, len(used)) * len(which) > _ROOM:
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
        whole = pc.binary_length(heads).to_numpy() + len(before) + listed + len(after)
        lost = whole > limits.longest
        if lost.any() or (listed > limits.part).any():
            kept = np.where(lost, 0, np.diff(offsets))
            items = items.filter(pa.array(~np.repeat(lost, np.diff(offsets))))
            offsets = np.concatenate([[0], np.cumsum(kept)]).astype(np.int32)
            offsets, parts = _cut(offsets, items, limits.part)
            row = np.repeat(row, parts)
            heads = heads.take(pa.array(row))
            number = np.arange(len(row)) - np.repeat(np.cumsum(parts) - parts, parts)
            lists = _lists(offsets, items)
            tails = _tails(whole, lost, row, number, parts, before, limits)
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
    for each, part in zip(row.tolist(), number.tolist(), strict=True):
        if lost[each]:
            reason = f"the row would have {whole[each]} bytes, and the most is {limits.longest}; ask for less of it"
            texts.append(f', "error": "{reason}"}}')
        elif parts[each] > 1:
            texts.append(f', "part": {part}, "parts": {parts[each]}{before}')
        else:
            texts.append(before)
    return pa.array(texts, pa.large_string())


def term_texts(terms: pa.StringArray, counts: Ints) -> pa.StringArray | pa.LargeStringArray:
    """Each term and its count as the JSON object that results contain."""
    return joined('{"term": ', quoted(terms), ', "count": ', pc.cast(pa.array(counts), pa.string()), "}")
