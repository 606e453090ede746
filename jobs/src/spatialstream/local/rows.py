"""Answers of object indexes: rows of objects as columns, in a total order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spatialstream.local.wordtable import compare, gather, to_arrow
from spatialstream.model.kernels import kernel

__all__ = ["ObjectRows", "RawRows", "arrange"]

_RUN = 8
"""Rows that are sorted by insertion before the runs are merged."""


@dataclass(frozen=True, slots=True, eq=False)
class ObjectRows:
    """n objects of an answer, in the answer's order.

    Attributes:
        ids: Arrow utf8[n].
        t: int64[n], ms.
        x, y: float64[n].
        distance: float64[n] in a search for the nearest, otherwise None.
    """

    ids: pa.StringArray
    t: npt.NDArray[np.int64]
    x: npt.NDArray[np.float64]
    y: npt.NDArray[np.float64]
    distance: npt.NDArray[np.float64] | None = None

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.t)


RawRows = tuple[
    npt.NDArray[np.float64],
    npt.NDArray[np.int64],
    npt.NDArray[np.int32],
    npt.NDArray[np.uint8],
    npt.NDArray[np.float64],
    npt.NDArray[np.float64],
]
"""Rows in any order: distance, t, id offsets, id bytes, x, y."""


@kernel
def _before(
    a: int,
    b: int,
    latest: bool,
    distance: npt.NDArray[Any],
    t: npt.NDArray[Any],
    offsets: npt.NDArray[Any],
    ids: npt.NDArray[Any],
    x: npt.NDArray[Any],
    y: npt.NDArray[Any],
) -> bool:
    if distance[a] != distance[b]:
        return bool(distance[a] < distance[b])
    if t[a] != t[b]:
        return bool((t[a] > t[b]) == latest)
    order = compare(ids, offsets[a], offsets[a + 1], offsets[b], offsets[b + 1])
    if order != 0:
        return bool(order < 0)
    if x[a] != x[b]:
        return bool(x[a] < x[b])
    return bool(y[a] < y[b])


@kernel
def _sorted(
    latest: bool,
    distance: npt.NDArray[Any],
    t: npt.NDArray[Any],
    offsets: npt.NDArray[Any],
    ids: npt.NDArray[Any],
    x: npt.NDArray[Any],
    y: npt.NDArray[Any],
) -> npt.NDArray[Any]:
    n = len(t)
    order = np.arange(n)
    for start in range(0, n, _RUN):
        for i in range(start + 1, min(start + _RUN, n)):
            row = order[i]
            j = i - 1
            while j >= start and _before(row, order[j], latest, distance, t, offsets, ids, x, y):
                order[j + 1] = order[j]
                j -= 1
            order[j + 1] = row
    other = np.empty(n, np.int64)
    width = _RUN
    while width < n:
        for start in range(0, n, 2 * width):
            i, middle = start, min(start + width, n)
            j, end = middle, min(start + 2 * width, n)
            for at in range(start, end):
                if j < end and (i == middle or _before(order[j], order[i], latest, distance, t, offsets, ids, x, y)):
                    other[at] = order[j]
                    j += 1
                else:
                    other[at] = order[i]
                    i += 1
        order, other = other, order
        width *= 2
    return order


@kernel
def _arranged(
    latest: bool,
    limit: int,
    distance: npt.NDArray[Any],
    t: npt.NDArray[Any],
    offsets: npt.NDArray[Any],
    ids: npt.NDArray[Any],
    x: npt.NDArray[Any],
    y: npt.NDArray[Any],
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    order = _sorted(latest, distance, t, offsets, ids, x, y)[:limit]
    taken, copied = gather(offsets, ids, order)
    return distance[order], t[order], taken, copied, x[order], y[order]


def arrange(parts: Sequence[RawRows], nearest: bool, limit: int | None = None) -> ObjectRows:
    """Rows of several segments in one order.

    Args:
        parts: rows in any order.
        nearest: order by (distance, t descending, id, x, y); otherwise by (t, id, x, y), where distances must be equal.
        limit: keep the first rows only.
    """
    if not parts:
        nothing = np.empty(0)
        return ObjectRows(
            pa.array([], pa.string()), np.empty(0, np.int64), nothing, nothing, nothing if nearest else None
        )
    distance, t, offsets, ids, x, y = parts[0] if len(parts) == 1 else _joined(parts)
    kept = len(t) if limit is None else min(limit, len(t))
    distance, t, offsets, ids, x, y = _arranged(nearest, kept, distance, t, offsets, ids, x, y)
    return ObjectRows(to_arrow(offsets, ids), t, x, y, distance if nearest else None)


def _joined(parts: Sequence[RawRows]) -> RawRows:
    base = 0
    offsets = [np.zeros(1, np.int32)]
    for part in parts:
        offsets.append(part[2][1:] + np.int32(base))
        base += int(part[2][-1])
    distance, t, _, ids, x, y = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return distance, t, np.concatenate(offsets), ids, x, y
