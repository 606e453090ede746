"""PM, FM and FG: the paper's example, the least movement by brute force, and trees that stay whole."""

from dataclasses import dataclass
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spatialstream.balance.adjusting import adjust
from spatialstream.balance.fm import assign, full_mapping, moved_queries
from spatialstream.balance.loads import leaf_loads, slot_loads
from spatialstream.balance.pm import partial_mapping
from spatialstream.balance.settings import BalanceSettings
from spatialstream.index.origins import Origins
from spatialstream.index.partition import imbalance, karmarkar_karp
from spatialstream.index.qt.adjuster import adjust_tree
from spatialstream.index.qt.construction import DEEPEST, build_tree
from spatialstream.index.qt.tree import LEAF, SPATIAL, QTTree
from spatialstream.index.statistics import Statistics
from spatialstream.index.version import RoutingVersion
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.regions import Box
from tests.unit.balance.cases import cases, count_of
from tests.unit.index.samples import PLANE, carry_queries, leaf_nodes, obj, objects, queries, query, spaces, split

# Section 5.2: workers W1 to W3 and leaves P1 to P7. W1 has P1, P2 and P4, W2 has P3 and P5, W3 has P6 and P7.
OLD = np.array([0, 0, 1, 0, 1, 2, 2], np.int32)
# Karmarkar-Karp makes the paper's subsets X1 = {P1, P3, P6}, X2 = {P2, P5}, X3 = {P4, P7} of these.
LOADS = np.array([7.0, 13.0, 3.0, 11.0, 3.0, 5.0, 4.0])
EVERYWHERE = Box(0.0, 0.0, 4.0, 4.0)


def least_transfer(subsets, slots, old, continuous):
    """The transfer cost of the best of all assignments of subsets to slots."""
    costs = []
    for given_slots in permutations(range(slots)):
        mapping = np.array(given_slots)[subsets]
        costs.append(float(continuous[mapping != old].sum()))
    return min(costs)


# -------------------------------------------------------------------------------------------------------------- FM


def test_the_papers_example():
    continuous = np.array([1.0, 9.0, 9.0, 1.0, 1.0, 1.0, 9.0])

    mapping = full_mapping(LOADS, 3, Origins.same(7), OLD, continuous)

    # X2 to W1, X1 to W2, X3 to W3: P5 goes to W1, P1 and P6 to W2, P4 to W3
    assert mapping.tolist() == [1, 0, 1, 2, 0, 1, 2]
    moved = moved_queries(mapping, Origins.same(7), OLD, continuous)
    assert np.flatnonzero(moved).tolist() == [0, 3, 4, 5]
    assert moved.sum() == continuous[[0, 3, 4, 5]].sum()


def test_the_papers_example_with_the_queries_of_the_documentation():
    queries = np.array([100.0, 10, 10, 10, 10, 10, 10])
    subsets = np.array([0, 1, 0, 2, 1, 0, 2], np.int32)

    after = assign(subsets, np.arange(3, dtype=np.int32), Origins.same(7), OLD, queries)

    assert after.tolist() == [0, 1, 0, 2, 1, 0, 2]  # X1 stays where P1 is
    assert moved_queries(after, Origins.same(7), OLD, queries).tolist() == [0, 10, 10, 10, 0, 10, 0]


def test_between_equal_transfers_fewer_leaves_move():
    mapping = full_mapping(np.ones(6), 3, Origins.same(6), np.array([2, 2, 0, 0, 1, 1], np.int32), np.zeros(6))
    subsets = karmarkar_karp(np.ones(6), 3)

    stay = (mapping == [2, 2, 0, 0, 1, 1]).sum()

    best = max((np.array(p)[subsets] == [2, 2, 0, 0, 1, 1]).sum() for p in permutations(range(3)))
    assert stay == best


@given(st.data(), st.integers(1, 5), st.integers(1, 12))
def test_transfer_is_the_least_of_all_assignments(data, slots, n):
    numbers = st.lists(st.integers(0, 20), min_size=n, max_size=n).map(lambda each: np.array(each, np.float64))
    loads, continuous = data.draw(numbers), data.draw(numbers)
    old = np.array(data.draw(st.lists(st.integers(0, slots - 1), min_size=n, max_size=n)), np.int32)

    mapping = full_mapping(loads, slots, Origins.same(n), old, continuous)

    assert mapping.shape == (n,)
    assert ((mapping >= 0) & (mapping < slots)).all()
    subsets = karmarkar_karp(loads, slots)
    assert sorted(slot_loads(loads, mapping, slots)) == sorted(slot_loads(loads, subsets, slots))
    moved = moved_queries(mapping, Origins.same(n), old, continuous).sum()
    assert moved == least_transfer(subsets, slots, old, continuous)


def test_a_merged_leaf_goes_where_most_of_its_queries_are():
    origins = Origins(np.zeros(3, np.int32), np.arange(3, dtype=np.int32), np.ones(3), np.array([1.0, 0.5, 1.0]), 1)

    mapping = assign(
        np.zeros(1, np.int32),
        np.arange(3, dtype=np.int32),
        origins,
        np.array([0, 2, 2], np.int32),
        np.array([9.0, 6, 7]),
    )

    assert mapping.tolist() == [2]


# -------------------------------------------------------------------------------------------------------------- PM


@given(st.data(), st.integers(1, 5), st.integers(1, 12))
def test_pm_touches_two_slots_and_makes_them_no_less_equal(data, slots, n):
    numbers = st.lists(st.integers(0, 20), min_size=n, max_size=n).map(lambda each: np.array(each, np.float64))
    loads, continuous = data.draw(numbers), data.draw(numbers)
    old = np.array(data.draw(st.lists(st.integers(0, slots - 1), min_size=n, max_size=n)), np.int32)
    before = slot_loads(loads, old, slots)

    mapping = partial_mapping(loads, slots, old, continuous)

    moved = mapping != old
    assert {*mapping[moved].tolist(), *old[moved].tolist()} <= {int(before.argmax()), int(before.argmin())}
    after = slot_loads(loads, mapping, slots)
    assert after.sum() == before.sum()
    assert after.max() <= before.max()
    assert imbalance(after) <= imbalance(before)


def test_pm_by_hand():
    # slot 0 has 10, slot 1 has 4, slot 2 has 1: 0 and 2 share 6, 4, 1 as 6 and 5, the 6 stays
    mapping = partial_mapping(
        np.array([6.0, 4.0, 4.0, 1.0]), 3, np.array([0, 0, 1, 2], np.int32), np.array([9.0, 1, 1, 1])
    )

    assert mapping.tolist() == [0, 2, 1, 2]


# -------------------------------------------------------------------------------------------------------------- FG


def hot_corner(side, hot, slots=4, asked=()):
    """A grid of leaves with equal counts, but for the south-west one."""
    places = (np.arange(4 * side) + 0.5) / side
    sample = ObjectBatch.of([obj(f"{x},{y}", x, y) for x in places for y in places])
    even, today = (
        Statistics.of(PLANE, sample, QueryBatch.of([query("STQ", EVERYWHERE), *more]), 1000.0, levels=5)
        for more in ((), asked)
    )
    tree = build_tree(sample, side * side, even, {"spatial"})
    counts = np.full(len(tree.leaves), 10.0)
    counts[0] = hot
    mapping = karmarkar_karp(tree.leaves.load, slots)
    return RoutingVersion(0, tree, mapping, slots), count_of(counts.tolist()), today


@dataclass
class Done:
    """FG's outcome."""

    tree: QTTree
    mapping: np.ndarray
    origins: Origins
    spatial: int
    textual: int
    merges: int
    ended: str

    @classmethod
    def of(cls, version, counts, statistics, settings):
        loads = leaf_loads(version, counts, statistics)
        done, mapping = adjust(version, adjust_tree, counts, loads, statistics, settings)
        counted = (done.changes.counts[name] for name in ("spatial_splits", "textual_splits", "merges"))
        return cls(done.index, mapping, done.origins, *counted, done.ended)


def run(version, counts, statistics, **chosen):
    return Done.of(version, counts, statistics, BalanceSettings(**chosen))


def test_a_hot_leaf_is_split_by_space_and_cold_ones_are_merged():
    local = [
        query("STQ", Box(x, y, x + 0.01, y + 0.01)) for x in np.arange(0.05, 1, 0.1) for y in np.arange(0.05, 1, 0.1)
    ]
    version, counts, statistics = hot_corner(4, 10_000.0, asked=local)

    done = run(version, counts, statistics)

    assert (done.spatial, done.textual, done.merges) == (1, 0, 1)
    assert len(done.tree.leaves) == 16
    assert np.ptp(done.tree.leaves.box[:4, 2] - done.tree.leaves.box[:4, 0]) == 0.0
    assert done.tree.leaves.box[0].tolist() == [0.0, 0.0, 0.5, 0.5]
    assert not done.tree.leaves.textual.any()
    assert imbalance(slot_loads(done.tree.leaves.load, done.mapping, 4)) <= 6.0


def test_a_hot_leaf_with_wide_queries_is_split_by_text():
    version, counts, statistics = hot_corner(4, 10_000.0, asked=[query("SRQ", EVERYWHERE, word) for word in "abcd"] * 9)

    done = run(version, counts, statistics)

    assert (done.spatial, done.textual) == (0, 1)
    assert done.tree.leaves.textual.sum() == 4
    assert imbalance(slot_loads(done.tree.leaves.load, done.mapping, 4)) <= 6.0


def test_epsilon_decides_between_space_and_text():
    version, counts, statistics = hot_corner(4, 10_000.0)  # one query, everywhere: the similarity is 1

    assert run(version, counts, statistics, similarity=1.0).textual == 0
    assert run(version, counts, statistics, similarity=0.99).spatial == 0


def test_the_printed_form_lets_one_query_that_goes_everywhere_decide():
    local = [query("STQ", Box(x, x, x + 0.01, x + 0.01), "a") for x in np.arange(0.02, 1, 0.01)]
    rare = query("SKQ", keywords="a", at=(0.5, 0.5), k=5)
    version, counts, statistics = hot_corner(4, 10_000.0, asked=[*local, rare])

    weighted, printed = (run(version, counts, statistics, printed=form) for form in (False, True))

    assert weighted.spatial >= 1
    assert weighted.textual == 0
    assert printed.spatial == 0
    assert printed.textual >= 1


def test_balanced_leaves_are_split_once_if_asked_for():
    version, counts, statistics = hot_corner(4, 10.0)

    done = run(version, counts, statistics)

    assert done.spatial + done.textual == 1
    assert done.ended == "its leaves can be balanced"


def test_there_are_no_more_leaves_than_is_set():
    version, counts, statistics = hot_corner(2, 10.0, slots=100)

    done = run(version, counts, statistics, leaves=30)

    assert len(done.tree.leaves) <= 30
    assert done.ended == "the tree would exceed 30 leaves"
    assert len(run(version, counts, statistics, leaves=4).tree.leaves) == 4


def test_a_tree_at_its_limit_merges_for_every_split():
    version, counts, statistics = hot_corner(8, 100_000.0, slots=16)

    done = run(version, counts, statistics, leaves=64)

    assert len(done.tree.leaves) <= 64
    assert done.merges == done.spatial + done.textual > 1


def test_more_slots_than_leaves_get_leaves():
    version, counts, statistics = hot_corner(2, 10.0, slots=9)

    done = run(version, counts, statistics)

    assert len(done.tree.leaves) >= 9
    assert slot_loads(done.tree.leaves.load, done.mapping, 9).min() > 0.0


def test_a_leaf_as_deep_as_leaves_get_ends_it():
    version, _, statistics = hot_corner(1, 1.0, slots=2)
    tree = version.index
    for _ in range(DEEPEST):
        tree = split(tree, 0, statistics, SPATIAL).tree
    deep = RoutingVersion(0, tree, np.zeros(len(tree.leaves), np.int32), 2)

    done = run(deep, count_of([1e9] + [1.0] * (len(tree.leaves) - 1)), statistics)

    assert done.ended == "the most loaded leaf cannot be split further"
    assert len(done.tree.leaves) == len(tree.leaves)


def test_without_any_load_all_is_well():
    version, _, statistics = hot_corner(1, 1.0, slots=2)

    done = run(version, count_of([0.0]), statistics)

    assert done.ended == "its leaves can be balanced"


@settings(max_examples=60)
@given(st.data(), spaces, st.sampled_from([1.01, 2.0, 6.0]), st.sampled_from([0.0, 0.5, 1.0]))
def test_the_tree_stays_whole(data, space, most, similarity):
    case = data.draw(cases(space))
    tree, counts = case.version.index, case.counts
    batch, asked = data.draw(objects(space, 20)), data.draw(queries(space))

    chosen = BalanceSettings(imbalance=most, similarity=similarity, leaves=40)
    done = Done.of(case.version, counts, case.statistics, chosen)

    n = len(done.tree.leaves)
    assert n <= max(40, len(tree.leaves))
    assert n == len(tree.leaves) + 3 * (done.spatial + done.textual - done.merges)
    leaf = done.tree.route_objects(batch)
    west, south, east, north = done.tree.leaves.box[leaf].T
    assert ((west <= batch.x) & (batch.x <= east) & (south <= batch.y) & (batch.y <= north)).all()
    routed = set(zip(*(each.tolist() for each in done.tree.route_queries(asked)), strict=True))
    for q in range(len(asked)):
        for o in range(len(batch)):
            if asked.regions.contain(space, q, batch.x[o], batch.y[o]):
                assert (q, int(leaf[o])) in routed
    assert sorted(done.tree.nodes.leaf[done.tree.nodes.leaf >= 0].tolist()) == list(range(n))
    assert (done.tree.nodes.kind[leaf_nodes(done.tree)] == LEAF).all()


@settings(max_examples=60)
@given(st.data(), spaces)
def test_totals_and_loads_are_carried_over(data, space):
    case = data.draw(cases(space))
    counts = case.counts

    done = Done.of(case.version, counts, case.statistics, BalanceSettings(leaves=40))

    origins = done.origins
    carried = type(counts)(
        origins.carry_objects(counts.objects),
        origins.carry_objects(counts.arrivals),
        carry_queries(origins, counts.continuous),
        counts.span,
    )
    assert carried.objects.sum() == pytest.approx(counts.objects.sum())
    assert carried.arrivals.sum() == pytest.approx(counts.arrivals.sum())
    assert done.tree.leaves.objects == pytest.approx(carried.objects)
    version = RoutingVersion(1, done.tree, done.mapping, case.version.slots)
    assert leaf_loads(version, carried, case.statistics) == pytest.approx(done.tree.leaves.load)
