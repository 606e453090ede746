"""Loads of leaves and slots from live counts, by hand and against the cost model in plain Python."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.balance.loads import LeafCounts, asked_of, imbalance, leaf_loads, model_error, slot_loads
from spatialstream.balance.proposal import propose
from spatialstream.balance.settings import BalanceSettings
from spatialstream.index.qt.construction import build_tree
from spatialstream.index.statistics import Statistics
from spatialstream.index.version import RoutingVersion
from spatialstream.model.errors import StateError
from spatialstream.model.kinds import CODE, TYPES
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.regions import Box
from tests.unit.balance.cases import cases, count_of
from tests.unit.index.qt.test_construction import FIGURE_2, J
from tests.unit.index.samples import PLANE, query, spaces, workload

EVERYWHERE = Box(0.0, 0.0, 4.0, 4.0)


def version_of(tree, slots=2):
    return RoutingVersion(0, tree, np.zeros(len(tree.leaves), np.int32), slots)


@pytest.mark.parametrize(("splits", "loads"), [("spatial", [0.0, 2.0, 0.0, 1.0]), ("textual", [0.0, 0.0, 0.0, 2.0])])
def test_figure_3_counted_live(splits, loads):
    tree = build_tree(FIGURE_2, 4, J, {splits})

    counts = count_of(np.bincount(tree.route_objects(FIGURE_2), minlength=4))

    assert sorted(leaf_loads(version_of(tree), counts, J)) == pytest.approx(sorted(loads))


def test_live_loads_follow_todays_objects_and_queries():
    tree = build_tree(FIGURE_2, 4, J, {"spatial"})
    asked = [query("CRQ", Box(0.1, 0.1, 0.2, 0.2), duration=2000), query("STQ", EVERYWHERE)]
    today = Statistics.of(PLANE, FIGURE_2, QueryBatch.of(asked), 1000.0, 1)

    loads = leaf_loads(version_of(tree), count_of([10, 20, 30, 40], arrivals=[1, 2, 3, 4], span=100.0), today)

    # CRQ: half of the queries, its two seconds see 0.01 objects a ms; STQ: the other half, sees what is held
    assert loads == pytest.approx([0.5 * 2000 * 0.01 + 0.5 * 10, 10.0, 15.0, 20.0])


def test_queries_count_where_they_were_counted():
    """Not by the smallest cell of J that covers a leaf: J is as coarse as the space here."""
    tree = build_tree(FIGURE_2, 4, J, {"spatial"})
    asked = [query("CRQ", EVERYWHERE, duration=2000), query("STQ", EVERYWHERE)]
    coarse = Statistics.of(PLANE, FIGURE_2, QueryBatch.of(asked), 1000.0, 0)
    queries = np.zeros((len(TYPES), 4))
    queries[CODE["STQ"]] = [6400.0, 0.0, 0.0, 0.0]
    queries[CODE["CRQ"]] = [0.0, 0.0, 5.0, 1.0]
    counts = replace(count_of([10, 20, 30, 40], arrivals=[1, 2, 3, 4], span=100.0), queries=queries)

    counted = asked_of(tree, counts, coarse)
    loads = leaf_loads(version_of(tree), counts, coarse)

    a_ms = 2 / 1000  # queries that come
    assert counted is not None
    came = dict(zip(TYPES, counted.sum(axis=1) * a_ms, strict=True))
    assert came == pytest.approx(dict.fromkeys(TYPES, 0.0) | {"STQ": 64.0, "CRQ": 6.0})  # as many as were counted
    stq = np.array([6400 + 16, 16, 16, 16]) * 6400 / 6464 / 100 * [10, 20, 30, 40]
    assert loads * a_ms == pytest.approx(stq + np.array([0.0, 0.0, 5 * 0.03, 0.04]))


def test_few_snapshot_queries_say_little_and_registered_queries_all():
    tree = build_tree(FIGURE_2, 4, J, {"spatial"})
    coarse = Statistics.of(PLANE, FIGURE_2, QueryBatch.of([query("STQ", EVERYWHERE)]), 1000.0, 1)
    queries = np.zeros((len(TYPES), 4))
    queries[CODE["STQ"], 0] = 1.0
    counts = replace(count_of([10.0] * 4), queries=queries)

    loads = leaf_loads(version_of(tree), counts, coarse)
    assert imbalance(loads) == pytest.approx(17 / 16)
    queries[CODE["CKQ"]] = 3.0  # of which J knows none: it reaches all
    assert leaf_loads(version_of(tree), counts, coarse) - loads == pytest.approx([3 * 0.01 * 1000] * 4)


def test_until_a_query_is_counted_j_says_where_they_go():
    tree = build_tree(FIGURE_2, 4, J, {"spatial"})
    counts = count_of([1, 2, 3, 4])

    assert asked_of(tree, counts, J) is None
    assert asked_of(tree, replace(counts, queries=np.zeros((len(TYPES), 4))), J) is None


@given(st.data(), spaces)
def test_no_strategy_loses_what_was_counted(data, space):
    """Leaves that stay have the loads that were counted, and those of new trees are finite."""
    case = data.draw(cases(space))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    counts = replace(case.counts, queries=np.floor(9 * rng.random((len(TYPES), len(case.counts)))))
    loads = leaf_loads(case.version, counts, case.statistics)

    for strategy in ("PM", "FM", "FG"):
        proposal = propose(case.version, counts, case.statistics, BalanceSettings(leaves=40), strategy)
        assert proposal is not None
        assert proposal.loads_before.tolist() == loads.tolist()
        assert np.isfinite(proposal.loads_after).all()
        if strategy != "FG":
            assert proposal.after.sum() == pytest.approx(loads.sum())


@given(st.data(), spaces)
def test_loads_are_those_of_the_cost_model(data, space):
    case = data.draw(cases(space))
    statistics, counts = case.statistics, case.counts

    loads = leaf_loads(case.version, counts, statistics)

    cells = statistics.cells_of(case.version.index.leaves.box)
    h = case.version.index.coverage(statistics, cells)
    for leaf in range(len(loads)):
        cell = statistics.cell(int(cells[leaf]))
        expected = workload(cell, counts.objects[leaf], counts.arrivals[leaf] / 1000.0, *h[leaf].tolist())
        if not statistics.queries.any():
            expected = counts.objects[leaf]
        assert loads[leaf] == pytest.approx(expected)


def test_without_queries_leaves_count_by_their_objects():
    nothing = Statistics.of(PLANE, ObjectBatch.of([]), QueryBatch.of([]), 1.0)
    tree = build_tree(FIGURE_2, 4, J, {"spatial"})

    assert leaf_loads(version_of(tree), count_of([1, 2, 3, 4]), nothing).tolist() == [1.0, 2.0, 3.0, 4.0]


def test_slots_without_a_leaf_have_no_load():
    loads = slot_loads(np.array([1.0, 2.0, 4.0]), np.array([2, 0, 2], np.int32), 4)

    assert loads.tolist() == [2.0, 0.0, 5.0, 0.0]
    assert imbalance(loads) == np.inf


def test_counts_of_another_version_are_refused():
    tree = build_tree(FIGURE_2, 4, J, {"spatial"})

    with pytest.raises(StateError, match="counts of 3 leaves are not those of version 0, which has 4"):
        leaf_loads(version_of(tree), count_of([1, 2, 3]), J)


@pytest.mark.parametrize(
    ("columns", "span", "queries"),
    [
        (([1.0], [1.0], [1.0, 2.0]), 1.0, None),
        (([1.0], [-1.0], [1.0]), 1.0, None),
        (([1.0], [np.nan], [1.0]), 1.0, None),
        (([[1.0]], [[1.0]], [[1.0]]), 1.0, None),
        (([1.0], [1.0], [1.0]), 0.0, None),
        (([1.0], [1.0], [1.0]), np.inf, None),
        (([1.0], [1.0], [1.0]), 1.0, [[1.0]]),
        (([1.0], [1.0], [1.0]), 1.0, [[1.0, 1.0]] * len(TYPES)),
        (([1.0], [1.0], [1.0]), 1.0, [[-1.0]] * len(TYPES)),
    ],
)
def test_what_is_no_count_is_refused(columns, span, queries):
    with pytest.raises(StateError):
        LeafCounts(*map(np.array, columns), span, None if queries is None else np.array(queries))


# ---------------------------------------------------------------------------------------------------------- the model


def test_model_error_by_hand():
    error = model_error(np.array([1.0, 1.0, 2.0]), np.array([30.0, 10.0, 40.0]))

    assert error == pytest.approx((0.125 + 0.125 + 0.0) / 3)


@given(st.lists(st.tuples(st.floats(0, 1e9), st.floats(0, 1e9)), min_size=1, max_size=20))
def test_model_error_has_its_bounds(pairs):
    estimated, measured = np.array(pairs).T

    assert 0.0 <= model_error(estimated, measured) <= 2.0 / len(pairs) + 1e-12
    assert model_error(estimated, 7 * estimated) == pytest.approx(0.0, abs=1e-12)


def test_model_error_where_nothing_was_measured():
    assert model_error(np.zeros(2), np.zeros(2)) == 0.0
    assert model_error(np.zeros(0), np.zeros(0)) == 0.0
    assert model_error(np.array([1.0, 3.0]), np.zeros(2)) == 0.5
