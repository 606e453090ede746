"""Algorithm 1: the paper's figures, costs against plain Python, and trees that cannot be split further."""

from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.index.qt.construction import SPLITS, build_tree
from spatialstream.index.qt.tree import SPATIAL, TEXTUAL
from spatialstream.index.statistics import SKQ, SRQ, Statistics
from spatialstream.model.hashing import hash_strings
from spatialstream.model.kinds import KINDS
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import QueryBatch
from spatialstream.model.regions import Box
from tests.benchmarks import workload
from tests.unit.index.samples import PLANE, WORDS, obj, query, samples, spaces

# Figures 2 and 3: Region P has 5 objects and 1 SRQ q. q.r meets the quarters P2 and P4, which hold 3 of the objects;
# 2 of the 5 have its keyword.
FIGURE_2 = ObjectBatch.of(
    [
        obj("o1", 1.0, 1.0, "xy"),
        obj("o3", 3.5, 0.5, "yz"),
        obj("o5", 0.5, 3.0, "z"),
        obj("o2", 3.0, 1.0, "ax"),
        obj("o4", 3.0, 3.0, "az"),
    ]
)
Q = QueryBatch.of([query("SRQ", Box(2.5, 0.7, 3.2, 3.2), "a")])
COPIES = 20
STREAM = ObjectBatch.of(
    [obj(f"{each.id}-{n}", each.x, each.y, "".join(each.terms)) for n in range(COPIES) for each in FIGURE_2]
)
"""A stream of which the figure shows one in twenty: so that it is known how often words come."""
J = Statistics.of(PLANE, STREAM, Q, 1000.0, levels=1)


def test_figure_2_one_worker_visits_all_5_objects():
    tree = build_tree(STREAM, 1, J)

    assert tree.leaves.load.tolist() == pytest.approx([5.0 * COPIES])


def test_figure_3a_spatial_partitioning_visits_the_objects_of_p2_and_p4():
    tree = build_tree(STREAM, 4, J, {"spatial"})

    assert (tree.leaves.objects / COPIES).tolist() == [1.0, 2.0, 1.0, 1.0]
    assert (tree.leaves.load / COPIES).tolist() == pytest.approx([0.0, 2.0, 0.0, 1.0], abs=1e-3)


def test_figure_3b_textual_partitioning_keeps_objects_with_the_keyword_apart():
    tree = build_tree(STREAM, 4, J, {"textual"})

    leaf = tree.route_objects(STREAM)
    has = np.array(["a" in each.terms for each in STREAM])
    assert set(leaf[has].tolist()).isdisjoint(leaf[~has].tolist())


def topical(n, seed):
    """Objects anywhere, each about one of four topics, which have 50 words each; queries of all the space."""
    rng = np.random.default_rng(seed)

    def about(topic, size):
        return tuple(f"{topic}-{word}" for word in rng.choice(50, size, replace=False))

    sample = [SpatialObject(f"{seed}-{i}", 0, *(4 * rng.random(2)).tolist(), about(i % 4, 5)) for i in range(n)]
    asked = [query("SRQ", Box(0.0, 0.0, 4.0, 4.0), about(i % 4, 1)) for i in range(n)]
    return ObjectBatch.of(sample), QueryBatch.of(asked)


def test_algorithm_1_takes_the_cheaper_partitioning():
    sample, asked = topical(1_000, 0)

    by_text = build_tree(sample, 4, Statistics.of(PLANE, sample, asked, 1.0))
    by_space = build_tree(STREAM, 4, J)

    assert by_text.nodes.kind[0] == TEXTUAL
    assert by_text.leaves.load.sum() < 0.9 * 1_000.0
    assert by_space.nodes.kind[0] == SPATIAL


def visits(tree, objects, asked):
    """Objects of the leaves that SRQs reach and that have all their keywords: Eqn 2, counted."""
    leaf = tree.route_objects(objects)
    words = [set() for _ in range(len(tree.leaves))]
    for each, found in zip(leaf.tolist(), objects, strict=True):
        words[each].update(found.terms)
    held = np.bincount(leaf, minlength=len(words))
    row, reached = tree.route_regions(asked.regions)
    pairs = zip(row.tolist(), reached.tolist(), strict=True)
    return sum(int(held[each]) for i, each in pairs if words[each].issuperset(asked.keywords[i]))


@pytest.mark.parametrize(("n", "leaves", "part"), [(3_000, 64, 0.5), (12_000, 1_024, 0.75)])
def test_a_qt_tree_visits_fewer_objects_for_queries_not_seen_before_where_text_matters(n, leaves, part):
    sample, asked = topical(n, 0)
    statistics = Statistics.of(PLANE, sample, asked, 1.0)
    quadtree, tree = (build_tree(sample, leaves, statistics, splits) for splits in ({"spatial"}, SPLITS))
    fresh, later = topical(n, 1)
    later = later.take(np.arange(300))

    assert visits(tree, fresh, later) < part * visits(quadtree, fresh, later)


def asked_of(objects):
    """Small SRQs with words of objects."""
    columns = workload.queries(objects, len(objects), 1, side=0.02)
    rows = zip(columns.regions.shape.tolist(), range(len(columns)), strict=True)
    return QueryBatch.of([query("SRQ", Box(*shape), columns.keywords[i]) for shape, i in rows])


@cache
def trees(n, leaves):
    """J of n objects and as many SRQs, and a quadtree and a QT-tree of them."""
    sample = workload.objects(n, 0)
    statistics = Statistics.of(workload.SPACE, sample, asked_of(sample), float(n))
    return statistics, *(build_tree(sample, leaves, statistics, splits) for splits in ({"spatial"}, SPLITS))


@pytest.mark.parametrize(("n", "leaves"), [(8_000, 256), (8_000, 1_024), (24_000, 1_024)])
def test_a_qt_tree_visits_no_more_than_a_quadtree_for_queries_not_seen_before(n, leaves):
    """Words come independently, and a leaf has 8 to 30 sampled objects: text tells apart only what was sampled."""
    _, quadtree, tree = trees(n, leaves)
    fresh = workload.objects(n, 1)
    later = asked_of(fresh).take(np.arange(1_000))

    assert visits(tree, fresh, later) <= 1.05 * visits(quadtree, fresh, later)


@pytest.mark.parametrize(("n", "leaves"), [(8_000, 256), (24_000, 1_024)])
def test_j_is_deeper_than_nearly_all_leaves(n, leaves):
    """It is so where a leaf has several times the records with which J splits a cell; 1,024 leaves of 8,000 do not."""
    statistics, _, tree = trees(n, leaves)

    unknown = statistics.cells.first[statistics.cells_of(tree.leaves.box)] < 0
    assert unknown.mean() < 0.05


HASHES = dict(zip(WORDS, hash_strings(pa.array(list(WORDS))).tolist(), strict=True))


@given(st.data(), spaces, st.sampled_from([SPLITS, {"spatial"}, {"textual"}]))
def test_loads_are_those_of_plain_python(data, space, splits):
    sample, asked = data.draw(samples(space))
    statistics = Statistics.of(space, sample, asked, 1000.0, levels=1)
    tree = build_tree(sample, data.draw(st.integers(1, 4)), statistics, splits)

    assert tree.leaves.objects.sum() == len(sample)
    everything = list(range(len(sample)))
    if len(tree.leaves) == 1:
        expected = plain_load(space, statistics, sample, everything, tree.leaves.box[0], everything)
        assert tree.leaves.load[0] == pytest.approx(expected, rel=1e-4, abs=1e-9)
    elif splits == {"spatial"}:
        place = tree.route_objects(sample)
        for leaf in range(len(tree.leaves)):
            members = np.flatnonzero(place == leaf).tolist()
            expected = plain_load(space, statistics, sample, members, tree.leaves.box[leaf], everything)
            assert tree.leaves.load[leaf] == pytest.approx(expected, rel=1e-4, abs=1e-9)


def plain_load(space, statistics, sample, members, box, above):
    """Eqn 2 of the objects ``members`` in a box, in plain Python, from the counts of J with one level.

    The box is all the space, or a quarter of it; it gets four objects for each of its members, which have a word as
    often as they, and 64 that have it as often as those of all the space.
    """
    west, south, east, north = space.bounds
    x, y = (west + east) / 2, (south + north) / 2
    whole = tuple(box) == space.bounds
    cell = 0 if whole else 1 + (box[0] >= x) + 2 * (box[1] >= y)
    n, total = len(members), statistics.queries.sum()

    def part(name):
        there = [name in sample[i].terms for i in above]
        usual = sum(there) / len(there) if there else 0.0
        return usual if whole else (sum(there[i] for i in members) + 64.0 * usual) / (n + 64.0)

    names = {hashed: word for word, hashed in HASHES.items()}
    load = 0.0
    for kind in range(len(KINDS)):
        if not statistics.queries[kind]:
            continue
        visited = float(n)
        if KINDS[kind].continuous:
            visited *= statistics.duration_sums[kind].sum() / statistics.queries[kind] / 1000.0
        elif kind in (SRQ, SKQ):
            chances = zip(statistics.terms.tolist(), statistics.keyword_distribution(cell, kind), strict=True)
            h = sum(p * (1.0 - np.exp(-4.0 * n * part(names[term]))) for term, p in chances)
            lengths = statistics.lengths[kind] / statistics.queries[kind]
            visited *= sum(share * h**size for size, share in enumerate(lengths))
        load += statistics.queries[kind] / total * statistics.reached[kind, cell] / statistics.queries[kind] * visited
    return load


@pytest.mark.parametrize("splits", [SPLITS, {"spatial"}, {"textual"}], ids=["both", "spatial", "textual"])
@pytest.mark.parametrize(
    "sample",
    [
        [],
        [obj("o", 1.0, 1.0, "a")],
        [obj(f"o{i}", 1.0, 1.0, "a") for i in range(30)],
        [obj("o", 1.0, 1.0), obj("p", 1.0, np.nextafter(1.0, 2.0))],
        [obj(f"{x}{y}", x, y) for x in (0.0, 2.0, 4.0) for y in (0.0, 2.0, 4.0)],
    ],
    ids=["none", "one", "one place", "nearly one place", "on borders"],
)
@pytest.mark.parametrize("leaves", [1, 2, 64])
def test_it_ends_and_every_object_keeps_a_leaf(sample, splits, leaves):
    batch = ObjectBatch.of(sample)
    statistics = Statistics.of(PLANE, batch, Q, 1.0)

    tree = build_tree(batch, leaves, statistics, splits)

    assert (len(tree.leaves) - 1) % 3 == 0
    assert len(tree.leaves) <= leaves + 2
    assert tree.leaves.objects.sum() == len(sample)


def test_leaves_reach_the_number_asked_for():
    rng = np.random.default_rng(3)
    sample = ObjectBatch.of([obj(f"o{i}", *(rng.random(2) * 4), "abcdefgh"[i % 7 :]) for i in range(500)])
    statistics = Statistics.of(PLANE, sample, Q, 1.0)

    for leaves, expected in ((2, 4), (4, 4), (5, 7), (64, 64), (100, 100), (101, 103)):
        for splits in (SPLITS, {"spatial"}, {"textual"}):
            assert len(build_tree(sample, leaves, statistics, splits).leaves) == expected


def test_frozen_lists_keep_the_balance_they_were_built_for():
    rng = np.random.default_rng(4)

    def zipf_words(n):
        return [f"w{int(rank)}" for rank in set(np.exp(rng.random(n) * np.log(500)).astype(int))]

    def make(first):
        names = [f"o{first + i}" for i in range(4000)]
        return ObjectBatch.of([SpatialObject(name, 0, *rng.random(2).tolist(), tuple(zipf_words(6))) for name in names])

    sample, fresh = make(0), make(4000)
    asked = QueryBatch.of([query("SRQ", Box(0.0, 0.0, 4.0, 4.0), zipf_words(2)) for _ in range(500)])
    tree = build_tree(sample, 16, Statistics.of(PLANE, sample, asked, 1.0), {"textual"})

    counts = np.bincount(tree.route_objects(fresh), minlength=16)

    assert counts.max() < 3 * counts.mean()
    assert counts.min() > 0.1 * counts.mean()


def test_rounding_does_not_break_ties():
    rng = np.random.default_rng(6)
    sample = ObjectBatch.of([obj(f"o{i}", *rng.random(2).tolist(), "ab"[i % 3 :]) for i in range(997)])
    asked = QueryBatch.of([query(kind, Box(0.0, 0.0, 1 / 3, 4.0)) for kind in ("CRQ", "STQ", "STQ")])

    tree = build_tree(sample, 256, Statistics.of(PLANE, sample, asked, 7.0, levels=1))

    assert len(tree.texts.cell) == 0
