"""The cost model, by hand and against plain Python."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.index.cost import CellStatistics, keyword_coverage, workloads
from spatialstream.model.kinds import CODE, KINDS, TYPES
from tests.unit.index.samples import workload as plain_workload

chances = st.floats(0.0, 1.0)
lists = st.lists(chances, min_size=1, max_size=6)
by_type = st.lists(chances, min_size=len(KINDS), max_size=len(KINDS)).map(np.array)


def columns(**values):
    """A value of each type of query, which is 0 for those that are not given."""
    return np.array([values.get(kind, 0.0) for kind in TYPES])


def test_equation_1_by_hand():
    lengths = np.array([0.0, 0.5, 0.3, 0.2])

    assert keyword_coverage(lengths, 0.5) == pytest.approx(0.5 * 0.5 + 0.3 * 0.25 + 0.2 * 0.125)
    assert keyword_coverage(lengths, 1.0) == pytest.approx(1.0)
    assert keyword_coverage(lengths, 0.0) == 0.0
    assert keyword_coverage(np.array([0.25, 0.75]), 0.0) == 0.25  # queries without keywords concern every object


def asked(cell):
    """What :meth:`Statistics.asked` makes of it."""
    lasts = np.where([kind.continuous for kind in KINDS], cell.lifetime, 1.0)
    return cell.arrival * cell.reach * lasts


def workload(cell, objects, rate, h_srq, h_skq):
    """That of one partition."""
    coverage = [[keyword_coverage(cell.lengths[0], h_srq)], [keyword_coverage(cell.lengths[1], h_skq)]]
    return float(workloads(asked(cell)[:, np.newaxis], np.array([objects]), np.array([rate]), np.array(coverage))[0])


@pytest.mark.parametrize(
    ("kind", "reach", "expected"),
    [
        ("SRQ", 0.5, 17.5),
        ("SKQ", 0.1, 3.5),
        ("STQ", 0.2, 20.0),
        ("CRQ", 0.5, 300.0),
        ("CKQ", 0.1, 60.0),
        ("CTQ", 0.2, 120.0),
        ("SBQ", 0.2, 20.0),
        ("CBQ", 0.2, 120.0),
    ],
)
def test_the_workload_of_each_type_by_hand(kind, reach, expected):
    only = np.eye(len(KINDS))[CODE[kind]]
    cell = CellStatistics(only, reach * only, np.array([[0.0, 1.0], [0.0, 1.0]]), np.full(len(KINDS), 60_000.0))

    assert workload(cell, 100.0, rate=0.01, h_srq=0.35, h_skq=0.35) == pytest.approx(expected)


def test_equation_2_by_hand():
    cell = CellStatistics(
        arrival=columns(SRQ=0.3, SKQ=0.1, STQ=0.1, CRQ=0.3, CKQ=0.1, CTQ=0.1),
        reach=columns(SRQ=0.5, SKQ=0.1, STQ=0.2, CRQ=0.5, CKQ=0.1, CTQ=0.2),
        lengths=np.array([[0.0, 1.0], [0.0, 0.5]]),
        lifetime=columns(CRQ=1000.0, CKQ=2000.0, CTQ=3000.0),
    )

    total = workload(cell, objects=100.0, rate=0.1, h_srq=0.4, h_skq=0.6)

    snapshot = 0.3 * (0.5 * 0.4 * 100) + 0.1 * (0.1 * 0.3 * 100) + 0.1 * (0.2 * 100)
    continuous = 0.3 * (0.5 * 100) + 0.1 * (0.1 * 200) + 0.1 * (0.2 * 300)
    assert total == pytest.approx(snapshot + continuous)


@given(
    by_type, st.lists(chances, min_size=1, max_size=6), by_type, st.integers(1, 5), st.randoms(use_true_random=False)
)
def test_workloads_are_those_of_plain_python(arrival, lengths, lifetime, n, random):
    both = np.array([lengths, lengths[::-1]])
    reach, h = np.array([[random.random() for _ in range(n)] for _ in KINDS]), np.empty((n, 2))
    h[:] = [[random.random(), random.random()] for _ in range(n)]
    objects, rate = np.array([random.randrange(1000) for _ in range(n)], float), np.array([random.random()] * n)
    cells = [CellStatistics(arrival, reach[:, i], both, lifetime) for i in range(n)]
    coverage = np.array([[keyword_coverage(both[row], h[i, row]) for i in range(n)] for row in range(2)])

    found = workloads(np.array(list(map(asked, cells))).T, objects, rate, coverage)

    for i, cell in enumerate(cells):
        assert found[i] == pytest.approx(plain_workload(cell, objects[i], rate[i], *h[i].tolist()))
