"""Contract tests of global indexes, for every implementation."""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spatialstream.index.base import GlobalIndex
from spatialstream.index.qt.construction import SPLITS, build_tree
from spatialstream.index.statistics import Statistics
from spatialstream.model.covers import region_parts
from spatialstream.model.expressions import Expression
from spatialstream.model.geometry import EVERYWHERE, POLYGON, contains, distance_to_box
from spatialstream.model.kernels import kernel
from spatialstream.model.kinds import CODE, QueryType
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.polygons.packing import table_of
from spatialstream.model.polygons.table import contain_points
from spatialstream.model.queries import Cancellation, QueryBatch
from spatialstream.model.regions import Box, Circle, Regions
from spatialstream.model.terms import TermLists
from tests.streams import polygon
from tests.unit.index.samples import (
    PLANE,
    WORDS,
    Replicating,
    a_grids,
    adjusted_a_grids,
    adjusted_kd_ts,
    adjusted_trees,
    coordinates,
    crqs,
    dealt_kd_ts,
    divided_grids,
    grids,
    kd_ts,
    obj,
    objects,
    points,
    queries,
    query,
    regions,
    samples,
    spaces,
    stable,
    trees,
)

INDEXES: Mapping[str, Callable[..., st.SearchStrategy[GlobalIndex]]] = {
    "qt-tree": partial(trees, splits=SPLITS),
    "quadtree": partial(trees, splits=frozenset({"spatial"})),
    "text": partial(trees, splits=frozenset({"textual"})),
    "adjusted qt-tree": adjusted_trees,
    "grid": grids,
    "a-grid": a_grids,
    "a-grid of any rectangles": divided_grids,
    "adjusted a-grid": adjusted_a_grids,
    "kd-t": kd_ts,
    "kd-t of any words": dealt_kd_ts,
    "adjusted kd-t": adjusted_kd_ts,
    "an index that replicates": partial(grids, index=Replicating),
}
few = settings(max_examples=30)
each_index = pytest.mark.parametrize("index_of", INDEXES.values(), ids=INDEXES.keys())


@each_index
@given(data=st.data(), space=spaces)
def test_each_object_goes_to_one_leaf_whose_box_contains_it(data, space, index_of):
    index, batch = data.draw(index_of(space)), data.draw(objects(space))

    leaf = index.route_objects(batch)

    assert leaf.dtype == np.int32
    assert leaf.shape == (len(batch),)
    west, south, east, north = index.leaves.box[leaf].T
    assert ((west <= batch.x) & (batch.x <= east) & (south <= batch.y) & (batch.y <= north)).all()


def holds(asked: QueryBatch, q: int, batch: ObjectBatch, o: int) -> bool:
    """Whether an object has the words that a query asks for."""
    return Expression.of(asked.keywords[q]).holds(batch.terms[o])


def superset(data, words, leaves):
    """The words of each leaf, and some more."""
    offsets, hashes = words
    more = sorted(data.draw(st.lists(st.tuples(st.integers(0, leaves - 1), st.sampled_from(WORDS)), max_size=9)))
    each = [{*hashes[offsets[leaf] : offsets[leaf + 1]].tolist()} for leaf in range(leaves)]
    for leaf, word in more:
        each[leaf].add(stable(word))
    sizes = np.append(0, np.cumsum([len(some) for some in each])).astype(np.int64)
    return sizes, np.array([word for some in each for word in sorted(some)], np.uint64)


@each_index
@given(data=st.data(), space=spaces)
def test_one_leaf_reports_each_match_and_has_both(data, space, index_of):
    """With every filter of words that has at least those of the queries."""
    index, batch, asked = data.draw(index_of(space)), data.draw(objects(space)), data.draw(crqs(space))
    matches = [
        (o, q)
        for q in range(len(asked))
        for o in range(len(batch))
        if asked.regions.contain(space, q, batch.x[o], batch.y[o]) and holds(asked, q, batch, o)
    ]
    o, q = (np.array([pair[i] for pair in matches], np.int32) for i in (0, 1))

    reporter = index.reporter(batch, o, asked.keywords, q)

    assert (reporter.dtype, reporter.shape) == (np.int32, (len(matches),))
    registered = {*zip(*(each.tolist() for each in index.route_queries(asked)), strict=True)}
    home, words = index.route_objects(batch).tolist(), index.registered(asked)
    assert len(words[0]) == len(index.leaves) + 1
    for filter_ in (None, words, superset(data, words, len(index.leaves))):
        copied = {*zip(*(each.tolist() for each in index.copies(batch, filter_)), strict=True)}
        for (row, query_), leaf in zip(matches, reporter.tolist(), strict=True):
            assert (query_, leaf) in registered
            assert leaf == home[row] or (row, leaf) in copied
    order = np.array(data.draw(st.permutations(range(len(matches)))), np.int64)
    assert index.reporter(batch, o[order], asked.keywords, q[order]).tolist() == reporter[order].tolist()
    for i in range(len(matches)):
        only = np.zeros(1, np.int32)
        alone = index.reporter(batch.take(o[i : i + 1]), only, asked.keywords.take(q[i : i + 1]).compact(), only)
        assert alone.tolist() == [reporter[i]]
    again = type(index).from_arrays(*index.to_arrays())
    assert again.reporter(batch, o, asked.keywords, q).tolist() == reporter.tolist()


@each_index
@few
@given(data=st.data(), space=spaces)
def test_copies_come_in_order_and_are_not_where_the_home_is(data, space, index_of):
    index, batch, asked = data.draw(index_of(space)), data.draw(objects(space)), data.draw(crqs(space))
    home = index.route_objects(batch)

    for words in (None, index.registered(asked)):
        row, leaf = index.copies(batch, words)

        pairs = list(zip(row.tolist(), leaf.tolist(), strict=True))
        assert pairs == sorted(set(pairs))
        assert (row.dtype, leaf.dtype) == (np.int32, np.int32)
        assert (leaf != home[row]).all()
        for i in range(len(batch)):
            alone = index.copies(batch.take(np.array([i])), words)[1]
            assert alone.tolist() == leaf[row == i].tolist()


@each_index
@given(data=st.data(), space=spaces)
def test_a_query_goes_to_the_leaf_of_every_object_of_its_region(data, space, index_of):
    index, batch = data.draw(index_of(space)), data.draw(objects(space))
    asked = data.draw(queries(space))

    rows, leaves = index.route_queries(asked)

    routed = set(zip(rows.tolist(), leaves.tolist(), strict=True))
    homes, copied = index.route_objects(batch).tolist(), [set() for _ in range(len(batch))]
    for o, leaf in zip(*(each.tolist() for each in index.copies(batch)), strict=True):
        copied[o].add(leaf)
    for q in range(len(asked)):
        for o in range(len(batch)):
            if asked.regions.contain(space, q, batch.x[o], batch.y[o]):
                continuous = asked.code[q] == CODE[QueryType.CRQ]
                if continuous and index.replicates and not holds(asked, q, batch, o):
                    continue
                assert any((q, leaf) in routed for leaf in {homes[o], *(copied[o] if continuous else ())})


@each_index
@given(data=st.data(), space=spaces)
def test_no_query_misses_an_object_on_the_border_of_its_region(data, space, index_of):
    index, region = data.draw(index_of(space)), data.draw(regions(space))
    columns = Regions.of([region])
    a, b, c, d = columns.shape[0]
    edges = [(a, b), (c, d), (a, d), (c, b), (a, data.draw(coordinates(space.south, space.north)))]
    x = data.draw(coordinates(space.west, space.east))
    batch = ObjectBatch.of(
        [
            obj(f"{i}", px, py)
            for i, (px, py) in enumerate([*edges, (x, b), (x, d)])
            if space.west <= px <= space.east and space.south <= py <= space.north
        ]
    )

    leaves = index.route_queries(QueryBatch.of([query("SRQ", region)]))[1]

    for o, leaf in enumerate(index.route_objects(batch).tolist()):
        if columns.contain(space, 0, batch.x[o], batch.y[o]):
            assert leaf in leaves


@each_index
@few
@given(data=st.data(), space=spaces)
def test_rows_come_in_order_and_no_query_is_without_a_leaf(data, space, index_of):
    index, asked = data.draw(index_of(space)), data.draw(queries(space))

    rows, leaves = index.route_queries(asked)

    pairs = list(zip(rows.tolist(), leaves.tolist(), strict=True))
    assert pairs == sorted(set(pairs))
    assert set(rows.tolist()) == set(range(len(asked)))
    assert (rows.dtype, leaves.dtype) == (np.int32, np.int32)


@each_index
@few
@given(data=st.data(), space=spaces)
def test_a_query_spares_the_leaves_that_its_region_does_not_meet(data, space, index_of):
    index, region = data.draw(index_of(space)), data.draw(regions(space))
    parts = region_parts(space, Regions.of([region]))[0]

    leaves = index.route_queries(QueryBatch.of([query("SRQ", region)]))[1]

    for west, south, east, north in index.leaves.box[leaves]:
        assert any(w <= east and e >= west and s <= north and n >= south for w, s, e, n in parts)
        if isinstance(region, Circle):
            gap = distance_to_box(space.geographic, region.x, region.y, west, south, east, north)
            assert gap <= region.radius


@each_index
@few
@given(data=st.data(), space=spaces)
def test_queries_without_a_region_go_everywhere(data, space, index_of):
    index = data.draw(index_of(space))
    asked = QueryBatch.of([query("SKQ"), query("CKQ"), Cancellation("q", 0)])

    rows, leaves = index.route_queries(asked)

    n = len(index.leaves)
    assert rows.tolist() == [0] * n + [1] * n + [2] * n
    assert leaves.tolist() == list(range(n)) * 3


@each_index
@given(data=st.data(), space=spaces)
def test_an_object_goes_to_the_same_leaf_alone_and_in_any_company(data, space, index_of):
    index, batch = data.draw(index_of(space)), data.draw(objects(space))
    together = index.route_objects(batch).tolist()

    alone = [index.route_objects(ObjectBatch.of([batch[i]])).tolist()[0] for i in range(len(batch))]
    order = data.draw(st.permutations(range(len(batch))))
    shuffled = index.route_objects(batch.take(np.array(order, np.int64)))
    turned = TermLists.of([batch.terms[i][::-1] for i in range(len(batch))])
    reordered = index.route_objects(ObjectBatch(batch.ids, batch.t, batch.x, batch.y, turned))
    sliced = index.route_objects(ObjectBatch.from_arrow(batch.to_arrow().slice(1)))

    assert alone == together
    assert shuffled.tolist() == [together[i] for i in order]
    assert reordered.tolist() == together
    assert sliced.tolist() == together[1:]


@each_index
@few
@given(data=st.data(), space=spaces)
def test_the_leaf_nearest_to_a_place_contains_it(data, space, index_of):
    index = data.draw(index_of(space))
    at = np.array(data.draw(st.lists(points(space), min_size=1)))

    leaf = index.nearest_leaves(at)

    west, south, east, north = index.leaves.box[leaf].T
    assert ((west <= at[:, 0]) & (at[:, 0] <= east) & (south <= at[:, 1]) & (at[:, 1] <= north)).all()


@each_index
@few
@given(data=st.data(), space=spaces)
def test_the_arrays_are_the_whole_index(data, space, index_of):
    index, batch, asked = data.draw(index_of(space)), data.draw(objects(space)), data.draw(queries(space))

    again = type(index).from_arrays(*index.to_arrays())

    assert again.route_objects(batch).tolist() == index.route_objects(batch).tolist()
    for one, other in zip(again.route_queries(asked), index.route_queries(asked), strict=True):
        assert one.tolist() == other.tolist()
    for name in ("box", "textual", "objects", "load"):
        np.testing.assert_array_equal(getattr(again.leaves, name), getattr(index.leaves, name))


@kernel
def _contained(geographic, kind, shape, x, y, out):
    """Which of the points each region contains, bool[regions, points]: the exact check, pair by pair."""
    for q in range(len(kind)):
        a, b, c, d = shape[q, 0], shape[q, 1], shape[q, 2], shape[q, 3]
        for o in range(len(x)):
            out[q, o] = kind[q] == EVERYWHERE or contains(geographic, kind[q], a, b, c, d, x[o], y[o])


def many(space, seed, index):
    """2,500 objects and 40 regions: anywhere, on the borders of leaves, and on those of the regions."""
    rng = np.random.default_rng(seed)
    low, high = np.array([space.west, space.south]), np.array([space.east, space.north])
    corners = index.leaves.box[rng.integers(0, len(index.leaves), 1000)].reshape(-1, 2, 2)
    mixed = np.stack([corners[:, rng.integers(0, 2), 0], corners[:, rng.integers(0, 2), 1]], axis=1)
    places = np.concatenate([low + (high - low) * rng.random((1500, 2)), mixed])
    chosen = []
    for _ in range(40):
        (x, y), (other_x, other_y) = places[rng.integers(0, len(places), 2)].tolist()
        corner = places[rng.integers(0, len(places))].tolist()
        sides = [[other_x - x, other_y - y], [corner[0] - x, corner[1] - y]]
        if rng.random() < 0.3 and abs(np.linalg.det(sides)) > 1e-3:
            chosen.append(polygon(space, [[[[x, y], [other_x, other_y], corner, [x, y]]]]))
        elif rng.random() < 0.5:
            chosen.append(Circle(x, y, rng.random() ** 4 * (2.1e7 if space.geographic else 8.0)))
        else:
            west, east = (x, other_x) if space.geographic else sorted((x, other_x))
            chosen.append(Box(west, min(y, other_y), east, max(y, other_y)))
    boxes = np.array([(each.west, each.south) for each in chosen if isinstance(each, Box)]).reshape(-1, 2)
    places[: len(boxes)] = boxes
    terms = rng.choice(list(WORDS), (len(places), 3))
    batch = ObjectBatch.of([obj(f"o{i}", x, y, "".join({*terms[i]})) for i, (x, y) in enumerate(places.tolist())])
    return batch, Regions.of(chosen)


def reached(pairs, shape):
    """Pairs as a table."""
    table = np.zeros(shape, np.bool_)
    table[pairs] = True
    return table


@each_index
@settings(max_examples=40, deadline=None)
@given(data=st.data(), space=spaces, seed=st.integers(0, 2**32 - 1))
def test_a_hundred_thousand_objects_meet_the_queries_of_their_regions(data, space, seed, index_of):
    index = data.draw(index_of(space))
    batch, chosen = many(space, seed, index)
    inside = np.zeros((len(chosen), len(batch)), np.bool_)
    _contained(space.geographic, chosen.kind, chosen.shape, batch.x, batch.y, inside)
    for q in np.flatnonzero(chosen.kind == POLYGON):
        polygons = np.full(len(batch), chosen.polygons.codes[q])
        inside[q] &= contain_points(table_of(chosen.polygons.packed), space.geographic, polygons, batch.x, batch.y)
    queries_of = {
        kind: QueryBatch.of([query(kind, chosen[q], "a") for q in range(len(chosen))]) for kind in ("SRQ", "CRQ")
    }

    home = index.route_objects(batch)
    asked, registered = (
        reached(index.route_queries(queries_of[kind]), (len(chosen), len(index.leaves))) for kind in ("SRQ", "CRQ")
    )

    west, south, east, north = index.leaves.box[home].T
    assert ((west <= batch.x) & (batch.x <= east) & (south <= batch.y) & (batch.y <= north)).all()
    assert not (inside & ~asked[:, home]).any()
    there = reached((np.arange(len(batch)), home), (len(batch), len(index.leaves)))
    row, leaf = index.copies(batch)
    assert index.replicates or not len(row)
    assert not there[row, leaf].any()
    there[row, leaf] = True
    has = np.array(["a" in batch.terms[o] for o in range(len(batch))])
    assert not (inside & has & ~(registered.astype(np.float32) @ there.T.astype(np.float32) > 0)).any()
    q, o = np.nonzero(inside & has)
    reporter = index.reporter(batch, o.astype(np.int32), queries_of["CRQ"].keywords, q.astype(np.int32))
    assert registered[q, reporter].all()
    assert there[o, reporter].all()
    again = type(index).from_arrays(*index.to_arrays())
    assert np.array_equal(again.route_objects(batch), home)


@each_index
@few
@given(data=st.data(), space=spaces)
def test_new_figures_change_no_route(data, space, index_of):
    index, batch, chosen = data.draw(index_of(space)), data.draw(objects(space)), data.draw(regions(space))
    n = len(index.leaves)

    other = index.weighed(np.arange(n, dtype=np.float64), np.full(n, 7.0))

    assert (other.leaves.objects.tolist(), other.leaves.load.tolist()) == (list(range(n)), [7.0] * n)
    assert other.route_objects(batch).tolist() == index.route_objects(batch).tolist()
    columns = Regions.of([chosen])
    for one, two in zip(other.route_regions(columns), index.route_regions(columns), strict=True):
        assert one.tolist() == two.tolist()


@each_index
@few
@given(data=st.data(), space=spaces)
def test_coverage_is_a_share_of_the_keywords(data, space, index_of):
    index = data.draw(index_of(space))
    statistics = Statistics.of(space, *data.draw(samples(space)), 1000.0, levels=2)

    h = index.coverage(statistics, statistics.cells_of(index.leaves.box))

    assert h.shape == (len(index.leaves), 2)
    assert ((h >= 0.0) & (h <= 1.0 + 1e-12)).all()
    assert (h[~index.leaves.textual] == 1.0).all()


@each_index
@few
@given(data=st.data(), space=spaces)
def test_leaves_describe_themselves(data, space, index_of):
    leaves = data.draw(index_of(space)).leaves

    n = len(leaves)
    assert n >= 1
    assert leaves.box.shape == (n, 4)
    assert leaves.textual.shape == leaves.objects.shape == leaves.load.shape == (n,)
    assert np.isfinite(leaves.load).all()
    assert (leaves.load >= 0).all()


def test_the_border_between_leaves_belongs_to_the_north_and_east():
    sample = ObjectBatch.of([obj(f"{x}{y}", x, y) for x in (1.0, 3.0) for y in (1.0, 3.0)])
    tree = build_tree(sample, 4, Statistics.of(PLANE, sample, QueryBatch.of([]), 1.0))

    places = [(2.0, 1.0), (1.0, 2.0), (2.0, 2.0), (0.0, 0.0), (4.0, 4.0), (4.0, 0.0)]
    batch = ObjectBatch.of([obj(f"{place}", *place) for place in places])

    assert tree.route_objects(batch).tolist() == [1, 2, 3, 0, 3, 1]
