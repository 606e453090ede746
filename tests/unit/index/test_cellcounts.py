"""Counts by cell of J: every query, in each row that it reaches, with each value that it has; the rest is added up."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

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


def joined(lists: list[list[int]]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Where each list ends, and all of them."""
    ends = np.append(0, np.cumsum([len(each) for each in lists]))
    return ends.astype(np.int64), np.concatenate([*lists, []]).astype(np.int64)


@given(QUERIES)
def test_each_row_has_what_its_queries_have(queries: list[tuple[set[int], list[int], float, bool]]) -> None:
    visits = joined([sorted(reached) for reached, *_ in queries])
    ends, values = (column.astype(np.int32) for column in joined([held for _, held, *_ in queries]))
    weights = np.array([weight for *_, weight, _ in queries], np.float64)
    counted = np.array([counts for *_, counts in queries], bool)
    found = CellCounts.of(counted, visits, (ends, values), weights, CELLS, 0.0)

    expected = [defaultdict[int, float](float) for _ in range(ROWS)]
    for reached, held, weight, counts in queries:
        for row in reached if counts else ():
            for value in held:
                expected[row][value] += weight
    entries = [slice(first, end) for first, end in pairwise(found.offsets)]
    assert [list(zip(found.value[row], found.count[row], strict=True)) for row in entries] == [
        sorted(row.items()) for row in expected
    ]
