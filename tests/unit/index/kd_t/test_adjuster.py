"""CM: both phases by hand; adjusted indexes stay whole, the highest load never rises, and Origins add up."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spatialstream.balance.settings import BalanceSettings
from spatialstream.index.a_grid.a_grid import AGrid
from spatialstream.index.adjustment import Adjustment, LeafLoads
from spatialstream.index.kd_t import workload
from spatialstream.index.kd_t.adjuster import migrate_cells
from spatialstream.index.kd_t.frequencies import Frequencies
from spatialstream.index.kd_t.kd_t import KdT
from spatialstream.index.sample import Sample
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import Everything, Lifetime, Predicate, Query, QueryBatch
from spatialstream.model.regions import Box
from tests.unit.index.samples import HASHES, PLANE, WORDS, check_origins, dealt_kd_ts, kd_ts, obj, samples, spaces

SIDE = 8
EVERYWHERE = Box(0.0, 0.0, 4.0, 4.0)


def crq(i: int, region: Box, words: str) -> Query:
    return Query(f"q{i}", 0, Predicate(region, tuple(words)), Everything(), Lifetime(10**6, True))


def tree(rectangles, dealt, objects, sizes) -> KdT:
    """A tree whose cell i has ``sizes[i]`` shares, and words dealt to these: a mapping."""
    known = [sorted((int(HASHES[WORDS.index(word)]), share) for word, share in each.items()) for each in dealt]
    offsets = np.append(0, np.cumsum([len(each) for each in known])).astype(np.int64)
    pairs = [pair for each in known for pair in each]
    words, shares = np.array([p[0] for p in pairs], np.uint64), np.array([p[1] for p in pairs], np.int32)
    first = np.append(0, np.cumsum(sizes)).astype(np.int32)
    cells = AGrid(PLANE, np.array(rectangles, np.int32), np.zeros(len(sizes)), np.zeros(len(sizes)), SIDE)
    n = int(first[-1])
    return KdT(cells, first, offsets, words, shares, Frequencies.of(objects.terms), np.zeros(n), np.ones(n))


def adjusted(index, sample, load, mapping, *, continuous=None, threshold=1.5, leaves=1024) -> Adjustment:
    load = np.array(load, np.float64)
    mapping = np.array(mapping, np.int32)
    queries = load if continuous is None else np.array(continuous, np.float64)
    known = LeafLoads(load, load, None, load, queries, mapping, 0.0, 1.0, sample)
    limits = BalanceSettings(imbalance=threshold, leaves=leaves)
    return migrate_cells(index, known, sample.statistics(2), int(mapping.max()) + 1, limits)


HALVES = [[0, 0, 4, SIDE], [4, 0, SIDE, SIDE]]


def narrow(places, words="a", each=40) -> Sample:
    """Objects around places, all with the same word, and a CRQ at each place, which asks for it."""
    rng = np.random.default_rng(3)
    found = [
        obj(f"o{i}-{j}", *(np.array(place) + 0.02 * rng.random(2)).tolist(), words, t=j)
        for i, place in enumerate(places)
        for j in range(each)
    ]
    asked = [crq(i, Box(x, y, x + 0.1, y + 0.1), words) for i, (x, y) in enumerate(places)]
    return Sample.of(PLANE, ObjectBatch.of(found), QueryBatch.of(asked), 1000.0)


def test_phase_2_cuts_a_leaf_and_moves_half_of_the_gap():
    """Eight places with as much in the west half, nothing in the east."""
    sample = narrow([(0.1 + 0.5 * (i % 4), 0.1 + 2.0 * (i // 4)) for i in range(8)])
    index = tree(HALVES, [{}, {}], sample.objects, [1, 1])

    done = adjusted(index, sample, [80.0, 0.0], [0, 1])

    loads = np.bincount(done.mapping, done.index.leaves.load, 2)
    assert loads.tolist() == pytest.approx([40.0, 40.0])
    assert done.changes.counts["cuts"] >= 1
    assert done.changes.counts["moved"] >= 1
    assert len(done.index.leaves) < 8  # no cut is left between what moves together
    assert done.ended == "loads are balanced"
    moved = done.mapping[done.index.route_objects(sample.objects)]
    assert np.bincount(moved).tolist() == [160, 160]


def test_cells_with_few_queries_for_their_load_move():
    """Four places with as much load each; in the north one query stands, in the south nine."""
    north, south = (0.6, 2.6), (0.6, 0.6)
    sample = narrow([north, south])
    more = [crq(i + 2, Box(0.1, 0.1, 0.3, 0.3), "b") for i in range(8)]
    sample = Sample.of(PLANE, sample.objects, QueryBatch.concat([sample.queries, QueryBatch.of(more)]), 1000.0)
    stripes = [[0, 0, 4, 4], [0, 4, 4, SIDE], [4, 0, SIDE, SIDE]]
    index = tree(stripes, [{}, {}, {}], sample.objects, [1, 1, 1])

    done = adjusted(index, sample, [40.0, 40.0, 0.0], [0, 0, 1], continuous=[9.0, 1.0, 0.0])

    assert done.mapping.tolist() == [0, 1, 1]
    assert (done.changes.counts["cuts"], done.changes.counts["moved"]) == (0, 1)


def test_a_leaf_without_a_sample_moves_whole():
    sample = narrow([(3.0, 1.0)])
    index = tree([*HALVES[:1], [4, 0, SIDE, 4], [4, 4, SIDE, SIDE]], [{}, {}, {}], sample.objects, [1, 1, 1])

    done = adjusted(index, sample, [30.0, 1.0, 31.0], [0, 1, 0])

    assert done.mapping.tolist() == [1, 1, 0]
    assert len(done.index.leaves) == 3


@pytest.fixture
def checking_is_dear(monkeypatch):
    """c1 is so much that dividing words always pays."""
    monkeypatch.setattr(workload, "MATCH", 1e4)


def wide() -> Sample:
    """Objects with one of two words, and CRQs everywhere that ask for one."""
    found = [obj(f"o{i}", 0.3 + 0.01 * (i % 100), 1.0 + 0.02 * (i % 90), "ab"[i % 2], t=i) for i in range(400)]
    asked = [crq(i, EVERYWHERE, "ab"[i % 4 == 0]) for i in range(100)]
    return Sample.of(PLANE, ObjectBatch.of(found), QueryBatch.of(asked), 1000.0)


@pytest.mark.usefixtures("checking_is_dear")
def test_phase_1_divides_a_cell_by_text_and_moves_the_share_with_fewer_queries():
    sample = wide()
    index = tree(HALVES, [{}, {}], sample.objects, [1, 1])

    done = adjusted(index, sample, [80.0, 0.0], [0, 1], threshold=1e6)

    assert done.changes.counts == {"textual_splits": 1, "reunited": 0, "cuts": 0, "moved": 0}
    assert done.index.sizes.tolist() == [2, 1]
    row, leaf = done.index.route_queries(sample.queries)
    asked = {"ab"[i % 4 == 0]: {*leaf[row == i].tolist()} - {2} for i in range(100)}
    assert done.mapping[[*asked["a"]]].tolist() == [0]
    assert done.mapping[[*asked["b"]]].tolist() == [1]
    assert done.index.leaves.load.sum() < 80.0  # the work is less
    assert done.origins.objects.tolist() == [0.5, 0.5, 1.0]
    assert sorted(done.origins.queries.tolist()) == [0.25, 0.75, 1.0]


def test_where_checking_costs_little_a_cell_is_not_divided_by_text(monkeypatch):
    monkeypatch.setattr(workload, "MATCH", 1e-6)
    sample = wide()
    index = tree(HALVES, [{}, {}], sample.objects, [1, 1])

    done = adjusted(index, sample, [80.0, 0.0], [0, 1])

    assert done.changes.counts["textual_splits"] == 0
    assert done.changes.counts["cuts"] == 1


@pytest.mark.usefixtures("checking_is_dear")
def test_fewer_than_64_sampled_objects_say_nothing_of_words():
    sample = wide()
    few = Sample.of(PLANE, sample.objects.take(np.arange(60)), sample.queries, 1000.0)

    done = adjusted(tree(HALVES, [{}, {}], few.objects, [1, 1]), few, [80.0, 0.0], [0, 1])

    assert done.changes.counts["textual_splits"] == 0


def test_phase_1_reunites_shares_that_the_same_objects_come_to():
    """Every object has both words, of which one is asked for at each share; apart, each comes twice."""
    found = ObjectBatch.of([obj(f"o{i}", 0.5, 0.02 * (i % 150), "ab", t=i) for i in range(300)])
    asked = QueryBatch.of([crq(i, EVERYWHERE, "ab"[i % 2]) for i in range(20)])
    sample = Sample.of(PLANE, found, asked, 1000.0)
    index = tree(HALVES, [{"a": 0, "b": 1}, {}], found, [2, 1])

    done = adjusted(index, sample, [20.0, 5.0, 40.0], [0, 1, 0], threshold=3.0)

    assert done.changes.counts == {"textual_splits": 0, "reunited": 1, "cuts": 0, "moved": 0}
    assert done.mapping.tolist() == [1, 1, 0]
    assert "1 share reunited with another of their cell" in done.changes.text


def test_there_are_no_more_leaves_than_the_limit():
    sample = narrow([(0.1 + 0.5 * (i % 4), 0.1 + 2.0 * (i // 4)) for i in range(8)])
    index = tree(HALVES, [{}, {}], sample.objects, [1, 1])

    for most in (1, 2, 3, 4):
        done = adjusted(index, sample, [80.0, 0.0], [0, 1], leaves=most)

        assert len(done.index.leaves) <= max(2, most)
    assert np.bincount(done.mapping, done.index.leaves.load, 2)[0] < 80.0


def test_equal_loads_stay_as_they_are():
    sample = narrow([(0.5, 0.5)])

    done = adjusted(tree(HALVES, [{}, {}], sample.objects, [1, 1]), sample, [7.0, 7.0], [0, 1])

    assert done.mapping.tolist() == [0, 1]
    assert done.ended == "all slots have the same load"
    assert not sum(done.changes.counts.values())


def test_one_hot_cell_that_cannot_be_cut_stays():
    sample = narrow([(0.5, 0.5)])
    single = tree([[0, 0, SIDE, SIDE]], [{"a": 0}], sample.objects, [3])

    done = adjusted(single, sample, [50.0, 0.0, 0.0], [0, 1, 1])

    assert done.mapping.tolist() == [0, 1, 1]
    assert done.ended == "no cell of the most loaded slot lowers the load by moving"


@settings(max_examples=80, deadline=None)
@given(data=st.data(), space=spaces, seed=st.integers(0, 2**32 - 1), dear=st.booleans())
def test_an_adjusted_index_is_whole_and_its_highest_load_no_higher(data, space, seed, dear):
    found, asked = data.draw(samples(space, "SRQ CRQ CRQ CRQ CKQ"))
    index = data.draw(st.one_of(kd_ts(space), dealt_kd_ts(space)))
    n, rng = len(index.leaves), np.random.default_rng(seed)
    slots = int(rng.integers(1, n + 1))
    mapping = rng.integers(0, slots, n).astype(np.int32)
    load, continuous = np.floor(100 * rng.random((2, n)) * (rng.random((2, n)) < 0.8))
    sample = Sample.of(space, found, asked, 1000.0)
    known = LeafLoads(load + 1, load, None, load, continuous, mapping, 0.0, 0.0, sample)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workload, "MATCH", 1e4 if dear else workload.MATCH)
        patch.setattr("spatialstream.index.kd_t.adjuster.LEAST", 2)
        done = migrate_cells(index, known, sample.statistics(2), slots, BalanceSettings(imbalance=1.2, leaves=40))

    before, after = (
        np.bincount(which, each, slots) for which, each in ((mapping, load), (done.mapping, done.index.leaves.load))
    )
    assert after.max() <= before.max() + 1e-6
    assert after.sum() <= before.sum() * (1.0 + 1e-9)
    assert len(done.index.leaves) <= max(40, n)
    assert done.index.leaves.objects.sum() == pytest.approx((load + 1).sum())
    check_origins(index, done, found)
    if not sum(done.changes.counts.values()):
        assert done.mapping.tolist() == mapping.tolist()
        assert done.index.cells.rectangles.tolist() == index.cells.rectangles.tolist()
