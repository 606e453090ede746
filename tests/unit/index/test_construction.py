"""Algorithm 1: the paper's figures, costs against plain Python, and trees that cannot be split further."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.index.construction import SPLITS, build_tree
from spatialstream.index.qttree import SPATIAL, TEXTUAL
from spatialstream.index.statistics import SKQ, SRQ, Statistics
from spatialstream.model.hashing import hash_strings
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import QueryBatch
from spatialstream.model.regions import Box
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
J = Statistics.of(PLANE, FIGURE_2, Q, 1000.0, levels=1)


def test_figure_2_one_worker_visits_all_5_objects():
    tree = build_tree(FIGURE_2, 1, J)

    assert tree.leaves.load.tolist() == [5.0]


def test_figure_3a_spatial_partitioning_visits_the_objects_of_p2_and_p4():
    tree = build_tree(FIGURE_2, 4, J, {"spatial"})

    assert tree.leaves.objects.tolist() == [1.0, 2.0, 1.0, 1.0]
    assert tree.leaves.load.tolist() == [0.0, 2.0, 0.0, 1.0]


def test_figure_3b_textual_partitioning_visits_2_objects_of_one_region():
    tree = build_tree(FIGURE_2, 4, J, {"textual"})

    assert sorted(tree.leaves.load.tolist()) == [0.0, 0.0, 0.0, 2.0]
    leaf = tree.route_objects(FIGURE_2)
    assert leaf[3] == leaf[4] == tree.leaves.load.argmax()


def test_algorithm_1_takes_the_cheaper_partitioning():
    tree = build_tree(FIGURE_2, 4, J)

    assert tree.nodes.kind[0] == TEXTUAL
    assert tree.leaves.load.sum() == 2.0


def test_a_tie_goes_to_space():
    asked = QueryBatch.of([query("STQ", Box(0.0, 0.0, 4.0, 4.0))])
    statistics = Statistics.of(PLANE, FIGURE_2, asked, 1000.0, levels=1)

    tree = build_tree(FIGURE_2, 4, statistics)

    assert tree.nodes.kind[0] == SPATIAL
    assert tree.leaves.load.tolist() == [1.0, 2.0, 1.0, 1.0]


def test_the_most_loaded_leaf_is_split_first():
    sample = ObjectBatch.of([obj(f"o{i}", 0.1 + i / 100, 0.1 + i / 90, "") for i in range(20)] + [obj("p", 3.5, 3.5)])
    asked = QueryBatch.of([query("STQ", Box(0.0, 0.0, 4.0, 4.0))])

    tree = build_tree(sample, 7, Statistics.of(PLANE, sample, asked, 1.0), {"spatial"})

    assert tree.leaves.box[0].tolist() == [0.0, 0.0, 1.0, 1.0]
    assert len(tree.leaves) == 7


HASHES = dict(zip(WORDS, hash_strings(pa.array(list(WORDS))).tolist(), strict=True))


@given(st.data(), spaces, st.sampled_from([SPLITS, {"spatial"}, {"textual"}]))
def test_loads_are_those_of_plain_python(data, space, splits):
    sample, asked = data.draw(samples(space))
    statistics = Statistics.of(space, sample, asked, 1000.0, levels=1)
    tree = build_tree(sample, data.draw(st.integers(1, 13)), statistics, splits)

    # a textual node built its lists object by object, so only in a quadtree are objects where routing sends them
    if splits == {"spatial"}:
        place = tree.route_objects(sample)
        for leaf in range(len(tree.leaves)):
            expected = plain_load(space, statistics, sample, np.flatnonzero(place == leaf), tree.leaves.box[leaf])
            assert tree.leaves.load[leaf] == pytest.approx(expected, rel=1e-6, abs=1e-12)
    assert tree.leaves.objects.sum() == len(sample)
    if len(tree.leaves) == 1:
        expected = plain_load(space, statistics, sample, range(len(sample)), tree.leaves.box[0])
        assert tree.leaves.load[0] == pytest.approx(expected, rel=1e-6, abs=1e-12)


def plain_load(space, statistics, sample, members, box):
    """Eqn 2 of the objects ``members`` in a box, in plain Python, from the counts of J with one level."""
    west, south, east, north = space.bounds
    x, y = (west + east) / 2, (south + north) / 2
    cell = 0 if tuple(box) == space.bounds else 1 + (box[0] >= x) + 2 * (box[1] >= y)
    hashes = {HASHES[term] for o in members for term in sample[int(o)].terms}
    total = statistics.queries.sum()
    load = 0.0
    for kind in range(6):
        if not statistics.queries[kind]:
            continue
        visited = float(len(members))
        if kind >= 3:
            mean = statistics.duration_sums[kind].sum() / statistics.queries[kind]
            visited = mean * visited / 1000.0
        elif kind in (SRQ, SKQ):
            chance = statistics.keyword_distribution(cell, kind)
            h = sum(p for term, p in zip(statistics.terms.tolist(), chance, strict=True) if term in hashes)
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
