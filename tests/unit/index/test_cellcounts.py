"""Counts by cell of J: every query, in each row that it reaches, with each value that it has; the rest is added up."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.index.cellcounts import CellCounts
from spatialstream.index.cells import Cells
from spatialstream.model.space import Space

VALUES = 5
CELLS = Cells.complete(Space.planar(0.0, 0.0, 1.0, 1.0), 1)
ROWS = 2 * len(CELLS)

QUERIES = st.lists(
    st.tuples(
        st.sets(st.integers(0, ROWS - 1), max_size=4),
        st.lists(st.integers(0, VALUES - 1), max_size=4),
        st.integers(1, 64).map(lambda n: n / 8),
        st.booleans(),
    ),
    max_size=9,
)


@given(QUERIES)
def test_each_row_has_what_its_queries_have(
    queries: list[tuple[set[int], list[int], float, bool]],
) -> None:
    def joined(lists: list[list[int]]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        return np.append(0, np.cumsum([len(each) for each in lists])).astype(np.int64), np.concatenate(
            [*lists, []]
        ).astype(np.int64)

    ends, rows = joined([sorted(reached) for reached, *_ in queries])
    value_ends, values = joined([held for _, held, *_ in queries])
    chosen = np.array([i for i, (*_, counted) in enumerate(queries) if counted], np.int64)
    weights = np.array([weight for *_, weight, _ in queries], np.float64)
    held = value_ends.astype(np.int32), values.astype(np.int32)
    found = CellCounts.of(chosen, (ends, rows), held, weights, CELLS, VALUES, 0.0)

    expected = [defaultdict[int, float](float) for _ in range(ROWS)]
    for reached, some, weight, counted in queries:
        for row in reached if counted else ():
            for value in some:
                expected[row][value] += weight
    for row, counts in enumerate(expected):
        entries = slice(found.offsets[row], found.offsets[row + 1])
        assert list(zip(found.value[entries].tolist(), found.count[entries].tolist(), strict=True)) == sorted(
            counts.items()
        )
