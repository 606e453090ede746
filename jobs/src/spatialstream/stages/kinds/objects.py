"""Lists of objects, in the orders in which rows have them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.model.space import Space
from spatialstream.stages.kinds.base import Lists, first_of_each, one_table, stored_texts
from spatialstream.stages.messages import numbers
from spatialstream.stages.rows import object_texts

__all__ = ["number_text", "object_lists", "short_objects"]

_quoted = json.JSONEncoder(ensure_ascii=False).encode


def object_lists(asked: pa.RecordBatch, parts: Sequence[pa.RecordBatch], space: Space, *, nearest: bool) -> Lists:
    """Objects of all slots: of an SRQ by (t, id, x, y), of an SKQ the first k by (distance, t descending, id, x, y)."""
    objects = one_table(parts)
    number, t = numbers(objects, "number"), numbers(objects, "t")
    order = _sorted_by(number, numbers(objects, "distance") if nearest else t)
    if order is None:
        rank = pa.array(-t if nearest else t)
        names = ["number", "distance", "rank", "id", "x", "y"] if nearest else ["number", "rank", "id", "x", "y"]
        names += ["stored"] if "stored" in objects.schema.names else []
        keys = pa.table(objects.append_column("rank", rank)).select(names)
        order = pc.sort_indices(keys, [(name, "ascending") for name in names]).to_numpy()
    offsets, rows = first_of_each(asked, number[order], numbers(asked, "k").astype(np.int64) if nearest else None)
    if not len(rows):
        return offsets, pa.array([], pa.string())
    rows = order[rows]
    x, y = numbers(objects, "x")[rows], numbers(objects, "y")[rows]
    distance = numbers(objects, "distance")[rows] if nearest else None
    ids = objects.column("id").take(pa.array(rows))
    stored = objects.column("stored").take(pa.array(rows)) if "stored" in objects.schema.names else None
    return offsets, object_texts(space, ids, t[rows], x, y, distance, stored=stored)


def _sorted_by(major: npt.NDArray[np.int64], minor: npt.NDArray[Any]) -> npt.NDArray[np.int64] | None:
    """The order by two keys; None if rows are equal in both, and more keys are needed."""
    order = np.lexsort((minor, major))
    major, minor = major[order], minor[order]
    return None if ((major[1:] == major[:-1]) & (minor[1:] == minor[:-1])).any() else order


def short_objects(parts: Sequence[Mapping[str, Any]], k: int | None, space: Space) -> list[str]:
    """By (t, id, x, y); with k, the first ones by (distance, t descending, id, x, y); ties by the fields shown."""
    objects = [
        each
        for part in parts
        for each in zip(
            part["distance"].tolist(),
            part["t"].tolist(),
            part["id"].to_pylist(),
            part["x"].tolist(),
            part["y"].tolist(),
            stored_texts(part),
            strict=True,
        )
    ]
    if k is None:
        objects.sort(key=lambda each: each[1:])
    else:
        objects.sort(key=lambda each: (each[0], -each[1], *each[2:]))
        del objects[k:]
    if not objects:
        return []
    distance, _, _, x, y, stored = zip(*objects, strict=True)
    texts, n, (first, second) = [*map(number_text, (*x, *y, *distance))], len(objects), space.axes
    items = [
        f'{{"id": {_quoted(each[2])}, "t": {each[1]}, "{first}": {texts[i]}, "{second}": {texts[n + i]}'
        for i, each in enumerate(objects)
    ]
    if k is not None:
        items = [f'{item}, "{space.distance_field}": {far}' for item, far in zip(items, texts[2 * n :], strict=True)]
    return [f"{item}, {said}}}" if said else f"{item}}}" for item, said in zip(items, stored, strict=True)]


def number_text(value: float) -> str:
    """The text that Arrow writes, as in rows built column by column; Python formats other numbers differently."""
    if 1e-4 <= abs(value) < 1e10 or value == 0.0:
        return repr(value).removesuffix(".0")
    text: str = pa.scalar(value).cast(pa.string()).as_py()
    return text
