"""Counts of the queries that reach a cell of J, compared with a scan of all queries on the path to each cell."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.index.cellcounts import CellCounts, Reaching
from spatialstream.index.cells import Cells, Visits
from spatialstream.model.space import Space

VALUES = 5
CELLS = Cells.complete(Space.planar(0.0, 0.0, 1.0, 1.0), 2)
BLOCKS = 2 * len(CELLS)
KINDS = (4, 1)

QUERIES = st.lists(
    st.tuples(
        st.sets(st.integers(0, BLOCKS - 1), max_size=6),
        st.lists(st.integers(0, VALUES - 1), max_size=4),
        st.integers(1, 64).map(lambda n: n / 8),
        st.sampled_from([*KINDS, 0]),
    ),
    max_size=9,
)


def joined(lists: list[list[int]]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Where each list ends, and all of them."""
    ends = np.append(0, np.cumsum([len(each) for each in lists]))
    return ends.astype(np.int64), np.concatenate([*lists, []]).astype(np.int64)


@given(QUERIES, st.lists(st.integers(0, len(CELLS) - 1), min_size=len(CELLS), max_size=len(CELLS)))
def test_a_cell_has_what_the_queries_that_reach_it_have(
    queries: list[tuple[set[int], list[int], float, int]], basis: list[int]
) -> None:
    offsets, rows = joined([sorted(reached) for reached, *_ in queries])
    ends, values = (column.astype(np.int32) for column in joined([held for _, held, *_ in queries]))
    weights = np.array([weight for *_, weight, _ in queries], np.float64)
    code = np.array([code for *_, code in queries], np.int64)
    visits = Visits(offsets, rows.astype(np.int32))

    for kind, reaching in zip(KINDS, Reaching.of(CELLS, visits, code, KINDS), strict=True):
        found = [reaching.query[first:end].tolist() for first, end in pairwise(reaching.offsets.tolist())]
        mine = [(q, reached) for q, (reached, _, _, its) in enumerate(queries) if its == kind]
        assert found == [[q for q, reached in mine if row in reached] for row in range(BLOCKS)]
        counts = CellCounts(reaching, ends, values, VALUES, weights, np.array(basis, np.int32))
        averages = counts.averages(np.arange(VALUES, dtype=np.float64) ** 2)
        for cell, stands in enumerate(basis):
            way = [2 * stands]
            while stands:
                way.append(2 * stands + 1)
                stands = int(CELLS.parent[stands])
            expected = defaultdict[int, float](float)
            for reached, held, weight, its in queries:
                for _ in reached.intersection([*way, 1]) if its == kind else ():
                    for value in held:
                        expected[value] += weight
            entries = zip(*(column.tolist() for column in counts.entries(cell)), strict=True)
            assert list(entries) == sorted(expected.items())
            assert counts.of_cell(cell).tolist() == [expected[value] for value in range(VALUES)]
            total = sum(expected.values())
            mean = sum(value**2 * weight for value, weight in expected.items()) / total if total else 0.0
            assert averages[cell] == pytest.approx(mean)
