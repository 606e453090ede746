"""Result rows as JSON text, encoded column-wise: a stream of matches is mostly the writing of its results."""

from __future__ import annotations

import json

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.model.space import Space

__all__ = ["match_lines", "object_texts", "quoted", "row_lines", "term_texts"]

_ESCAPED = r'["\\\x00-\x1f\x7f]'


def quoted(strings: pa.StringArray) -> pa.StringArray:
    """Each string as a JSON string."""
    special = pc.match_substring_regex(strings, _ESCAPED)
    result = pc.binary_join_element_wise('"', strings, '"', "")
    if not pc.any(special).as_py():
        return result
    escaped = [json.dumps(text, ensure_ascii=False) for text in pc.filter(strings, special).to_pylist()]
    return pc.replace_with_mask(result, special, pa.array(escaped, pa.string()))


def object_texts(
    space: Space,
    ids: pa.StringArray,
    t: npt.NDArray[np.int64],
    x: npt.NDArray[np.float64],
    y: npt.NDArray[np.float64],
    distance: npt.NDArray[np.float64] | None = None,
) -> pa.StringArray:
    """Each object as the JSON object that results show: id, t, place, and the distance where one is given."""
    first, second = space.axes
    parts = [
        '{"id": ',
        quoted(ids),
        ', "t": ',
        pc.cast(pa.array(t), pa.string()),
        f', "{first}": ',
        pc.cast(pa.array(x), pa.string()),
        f', "{second}": ',
        pc.cast(pa.array(y), pa.string()),
    ]
    if distance is not None:
        parts += [f', "{space.distance_field}": ', pc.cast(pa.array(distance), pa.string())]
    return pc.binary_join_element_wise(*parts, "}", "")


def match_lines(
    queries: pa.StringArray, t: npt.NDArray[np.int64], objects: pa.StringArray, which: npt.NDArray[np.int32]
) -> pa.StringArray:
    """CRQ result lines, one a match.

    Args:
        queries: the query id of each match.
        t: the timestamp of each *object*.
        objects: each object's :func:`object_texts`.
        which: the object of each match, a position in the two above.
    """
    used, positions = np.unique(which, return_inverse=True)
    tails = pc.binary_join_element_wise(
        ', "type": "CRQ", "t": ',
        pc.cast(pa.array(t[used]), pa.string()),
        ', "object": ',
        objects.take(pa.array(used)),
        "}",
        "",
    )
    return pc.binary_join_element_wise('{"query": ', quoted(queries), tails.take(pa.array(positions)), "")


def row_lines(
    kind: str,
    queries: pa.StringArray,
    t: npt.NDArray[np.int64],
    field: str,
    offsets: npt.NDArray[np.int32],
    items: pa.StringArray,
    complete_after: pa.Int64Array | None = None,
) -> pa.StringArray:
    """Result lines that hold a list each: of objects (SRQ, SKQ, CKQ) or of terms (STQ, CTQ).

    Args:
        kind: the type of query.
        queries: the query id of each of n rows.
        t: int64[n].
        field: ``"objects"`` or ``"terms"``.
        offsets: int32[n + 1]; the list of row i is ``items[offsets[i]:offsets[i + 1]]``.
        items: JSON already.
        complete_after: where it is not null, objects of that time and before are not kept any more, and the row says
            so.
    """
    lists = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), items), ", ")
    times = pc.cast(pa.array(t), pa.string())
    head = f', "type": "{kind}", "t": '
    parts = ['{"query": ', quoted(queries), head, times]
    if complete_after is not None and complete_after.null_count < len(complete_after):
        notes = pc.binary_join_element_wise(', "complete_after": ', pc.cast(complete_after, pa.string()), "")
        parts.append(pc.fill_null(notes, ""))
    return pc.binary_join_element_wise(*parts, f', "{field}": [', lists, "]}", "")


def term_texts(terms: pa.StringArray, counts: npt.NDArray[np.int64]) -> pa.StringArray:
    """Each term and its count as the JSON object that results show."""
    count = pc.cast(pa.array(counts), pa.string())
    return pc.binary_join_element_wise('{"term": ', quoted(terms), ', "count": ', count, "}", "")
