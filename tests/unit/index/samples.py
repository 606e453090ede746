"""Objects, queries and indexes for the tests of the global index."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from zlib import crc32

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from spatialstream.balance.settings import BalanceSettings
from spatialstream.index import kinds
from spatialstream.index.a_grid.a_grid import AGrid
from spatialstream.index.a_grid.adjuster import shift, split_and_merge
from spatialstream.index.a_grid.construction import build_a_grid
from spatialstream.index.adjustment import Adjustment, Implementation, LeafLoads
from spatialstream.index.base import GlobalIndex, LeafWords
from spatialstream.index.cost import CellStatistics
from spatialstream.index.grid.grid import Grid, build_grid
from spatialstream.index.kd_t.adjuster import migrate_cells
from spatialstream.index.kd_t.construction import place_kd_t
from spatialstream.index.kd_t.frequencies import Frequencies
from spatialstream.index.kd_t.kd_t import KdT
from spatialstream.index.origins import Origins
from spatialstream.index.qt.construction import build_tree
from spatialstream.index.qt.editor import Adjusted, TreeEditor
from spatialstream.index.qt.tree import SPATIAL, TEXTUAL, QTTree
from spatialstream.index.sample import Sample
from spatialstream.index.statistics import Statistics
from spatialstream.model.arrays import Codes
from spatialstream.model.expressions import Expression, absorbed
from spatialstream.model.hashing import hash_strings
from spatialstream.model.kinds import CODE, KINDS, TYPES
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import Everything, Lifetime, Nearest, Predicate, Query, QueryBatch, TopTerms
from spatialstream.model.ranking.asked import Ranking
from spatialstream.model.regions import Box, Circle, Region
from spatialstream.model.selections import Best
from spatialstream.model.space import WGS84, Space
from spatialstream.model.terms import TermLists
from tests.streams import polygon, polygons

PLANE = Space.planar(0.0, 0.0, 4.0, 4.0)
WORDS = "abcdefgh"
HASHES = hash_strings(pa.array(list(WORDS)))

words = st.lists(st.sampled_from(WORDS), max_size=4, unique=True)
spaces = st.sampled_from([PLANE, WGS84])


def obj(name: str, x: float, y: float, terms: str = "", t: int = 0) -> SpatialObject:
    """An object; each letter of ``terms`` is one."""
    return SpatialObject(name, t, x, y, tuple(terms))


def query(kind: str, region=None, keywords: str = "", *, at=(0.0, 0.0), k: int = 1, duration: int = 1000) -> Query:
    """A query of a type; each letter of ``keywords`` is one. The region of what ranks is a circle around its point."""
    if kind[1] == "B":
        assert isinstance(region, Circle)
        words, continuous = tuple(sorted(keywords or WORDS[:1])), kind[0] == "C"
        by = Ranking(words, region.radius, expansions=1, half_life=1000, static=continuous)
        best = Best(region.x, region.y, k, by)
        return Query("q", 0, Predicate(region), best, Lifetime(duration, continuous))
    selection = {"R": Everything(), "K": Nearest(*at, k), "T": TopTerms(k)}[kind[1]]
    return Query("q", 0, Predicate(region, tuple(keywords)), selection, Lifetime(duration, kind[0] == "C"))


def coordinates(low: float, high: float) -> st.SearchStrategy[float]:
    """Coordinates anywhere, and often on the borders that halving makes, or right beside them."""
    grid = st.integers(0, 16).map(lambda i: low + (high - low) * i / 16)
    beside = grid.map(lambda value: min(high, max(low, value + 1e-12)))
    return st.one_of(grid, beside, st.floats(low, high))


def points(space: Space) -> st.SearchStrategy[tuple[float, float]]:
    """Places in a space."""
    return st.tuples(coordinates(space.west, space.east), coordinates(space.south, space.north))


@st.composite
def circles(draw: st.DrawFn, space: Space, centres: st.SearchStrategy[tuple[float, float]] | None = None) -> Circle:
    """Circles of any size, some of them without area or over a pole."""
    x, y = draw(points(space) if centres is None else centres)
    reach = 2.1e7 if space.geographic else 8.0
    scale = draw(st.sampled_from([0.0, 1e-6, 1e-3, 0.1, 1.0]))
    return Circle(x, y, reach * scale * draw(st.floats(0.0, 1.0)))


@st.composite
def regions(draw: st.DrawFn, space: Space) -> Region:
    """Boxes, some of them across the antimeridian or without area, circles, some of them over a pole, and polygons."""
    x, y = draw(points(space))
    if draw(st.integers(0, 2)) == 0:
        return draw(polygons(space, [(x, y), draw(points(space))]))
    if draw(st.booleans()):
        return draw(circles(space, st.just((x, y))))
    other_x, other_y = draw(st.one_of(st.just((x, y)), points(space)))
    south, north = sorted((y, other_y))
    if space.geographic:
        return Box(x, south, other_x, north)
    return Box(min(x, other_x), south, max(x, other_x), north)


@st.composite
def objects(draw: st.DrawFn, space: Space, max_size: int = 8) -> ObjectBatch:
    """A few objects, anywhere, with or without terms."""
    rows = draw(st.lists(st.tuples(points(space), words), max_size=max_size))
    return ObjectBatch.of([obj(f"o{i}", x, y, "".join(terms), t=i) for i, ((x, y), terms) in enumerate(rows)])


@st.composite
def queries(draw: st.DrawFn, space: Space, max_size: int = 6) -> QueryBatch:
    """A few queries of any types."""
    result = []
    for kind in draw(st.lists(st.sampled_from(TYPES), max_size=max_size)):
        region = None if kind[1] == "K" else draw(circles(space) if kind[1] == "B" else regions(space))
        keywords = "".join(draw(words)) if kind[1] != "T" else ""
        result.append(query(kind, region, keywords, at=draw(points(space)), k=draw(st.integers(1, 5))))
    return QueryBatch.of(result)


@st.composite
def samples(draw: st.DrawFn, space: Space, kinds: str = " ".join(TYPES)) -> tuple[ObjectBatch, QueryBatch]:
    """Up to 60 objects and 20 queries, from a seed: on and between the lines of a grid, some in one place."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    grid = rng.choice([8, 1000])

    def place() -> tuple[float, float]:
        x, y = (rng.integers(0, grid + 1, 2) / grid).tolist()
        return space.west + (space.east - space.west) * x, space.south + (space.north - space.south) * y

    def letters(most: int) -> str:
        return "".join(rng.choice(list(WORDS), rng.integers(0, most), replace=False))

    def region(kind: str) -> Region | None:
        (west, south), (east, north) = place(), place()
        if kind[1] == "K":
            return None
        if kind[1] == "B":
            return Circle(west, south, rng.random() ** 3 * (1e7 if space.geographic else 4.0))
        if rng.random() < 0.2 and west != east and south != north:
            return polygon(space, [[[[west, south], [east, south], [east, north], [west, south]]]])
        if rng.random() < 0.5:
            return Circle(west, south, rng.random() ** 3 * (1e7 if space.geographic else 4.0))
        if not space.geographic:
            west, east = sorted((west, east))
        return Box(west, min(south, north), east, max(south, north))

    found = ObjectBatch.of([obj(f"o{i}", *place(), letters(5), t=i) for i in range(rng.integers(0, 60))])
    asked = []
    for kind in rng.choice(kinds.split(), rng.integers(0, 20)).tolist():
        at, k, duration = place(), int(rng.integers(1, 5)), int(rng.integers(0, 5000))
        keywords = letters(4) if kind[1] != "T" else ""
        asked.append(query(kind, region(kind), keywords, at=at, k=k, duration=duration))
    return found, QueryBatch.of(asked)


@st.composite
def trees(draw: st.DrawFn, space: Space, splits: frozenset[str]) -> QTTree:
    """A tree of up to 25 leaves."""
    found, asked = draw(samples(space))
    statistics = Statistics.of(space, found, asked, 1000.0, levels=2)
    return build_tree(found, draw(st.integers(1, 25)), statistics, splits)


@st.composite
def grids(draw: st.DrawFn, space: Space, index: type[Grid] = Grid) -> Grid:
    """A grid of up to 30 leaves, or a subclass of it."""
    found, asked = draw(samples(space))
    made = build_grid(found, draw(st.integers(1, 25)), Statistics.of(space, found, asked, 1000.0, levels=2))
    return index(space, made.x, made.y, made.leaves.objects, made.leaves.load)


@st.composite
def a_grids(draw: st.DrawFn, space: Space) -> AGrid:
    """An A-Grid of up to 25 rectangles, of as many cells as usual or of few."""
    found, asked = draw(samples(space))
    side = draw(st.sampled_from([1, 3, 16, 1024]))
    statistics = Statistics.of(space, found, asked, 1000.0, levels=2)
    return build_a_grid(found, draw(st.integers(1, 25)), statistics, side)


@st.composite
def divisions(draw: st.DrawFn, side: int) -> np.ndarray:
    """Any division of a grid into rectangles, from a seed: also ones that no sequence of cuts makes."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    largest = int(rng.integers(1, side + 1))
    free = np.ones((side, side), np.bool_)
    made = []
    while free.any():
        row, column = (int(each) for each in np.argwhere(free)[0])  # nothing south of it is free
        room = int(np.argmin(np.append(free[row, column:], False)))
        width = int(rng.integers(1, min(room, largest) + 1))
        height = int(rng.integers(1, min(side - row, largest) + 1))
        made.append((column, row, column + width, row + height))
        free[row : row + height, column : column + width] = False
    return np.array(made, np.int32)[rng.permutation(len(made))]


@st.composite
def divided_grids(draw: st.DrawFn, space: Space) -> AGrid:
    """An A-Grid of any rectangles."""
    side = draw(st.integers(1, 9))
    rectangles = draw(divisions(side))
    return AGrid(space, rectangles, np.zeros(len(rectangles)), np.ones(len(rectangles)), side)


@st.composite
def adjusted_a_grids(draw: st.DrawFn, space: Space) -> AGrid:
    """An A-Grid after some splits, merges and shifts."""
    index: AGrid = draw(st.one_of(a_grids(space), divided_grids(space)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = len(index.leaves)
    mapping = rng.integers(0, n, n).astype(np.int32)
    for strategy in draw(st.permutations([split_and_merge, shift])):
        sample = Sample.of(space, *draw(samples(space)), 1000.0)
        load = 100.0 * rng.random(n)
        known = LeafLoads(load, load, None, load, load, mapping, 0.0, 0.0, sample)
        index = strategy(index, known, sample.statistics(2), n, BalanceSettings()).index
    return index


@st.composite
def kd_ts(draw: st.DrawFn, space: Space) -> KdT:
    """A kd^t-tree of up to 25 leaves, of as many fine cells as usual or of few."""
    found, asked = draw(samples(space, "SRQ CRQ CRQ CRQ CKQ"))
    side = draw(st.sampled_from([1, 3, 16, 1024]))
    statistics = Statistics.of(space, found, asked, 1000.0, levels=2)
    return place_kd_t(found, draw(st.integers(1, 25)), statistics, draw(st.integers(1, 6)), side, least=4)[0]


@st.composite
def dealt_kd_ts(draw: st.DrawFn, space: Space) -> KdT:
    """A kd^t-tree of any cells, whose words are dealt in any way, from a seed."""
    side = draw(st.integers(1, 9))
    rectangles = draw(divisions(side))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    nothing = np.zeros(len(rectangles))
    sizes = rng.integers(1, 5, len(rectangles))
    known = [np.sort(rng.choice(HASHES, rng.integers(0, len(HASHES) + 1), replace=False)) for _ in sizes]
    shares = [rng.integers(0, size, len(each)) for size, each in zip(sizes, known, strict=True)]
    offsets = np.append(0, np.cumsum([len(each) for each in known])).astype(np.int64)
    first = np.append(0, np.cumsum(sizes)).astype(np.int32)
    frequent = np.sort(rng.choice(HASHES, rng.integers(0, len(HASHES) + 1), replace=False))
    frequencies = Frequencies(frequent, rng.integers(1, 4, len(frequent)))
    table = first, offsets, np.concatenate(known), np.concatenate(shares).astype(np.int32)
    n = int(first[-1])
    return KdT(AGrid(space, rectangles, nothing, nothing, side), *table, frequencies, np.zeros(n), np.ones(n))


@st.composite
def adjusted_kd_ts(draw: st.DrawFn, space: Space) -> KdT:
    """A kd^t-tree of which cells have been divided by text, cut, and moved, twice."""
    index: KdT = draw(st.one_of(kd_ts(space), dealt_kd_ts(space)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spatialstream.index.kd_t.adjuster.LEAST", 2)
        patch.setattr("spatialstream.index.kd_t.workload.MATCH", draw(st.sampled_from([0.074, 1e4])))
        for _ in range(2):
            n = len(index.leaves)
            mapping = rng.integers(0, 4, n).astype(np.int32)
            sample = Sample.of(space, *draw(samples(space, "SRQ CRQ CRQ CRQ CKQ")), 1000.0)
            load = 100.0 * rng.random(n)
            known = LeafLoads(load, load, None, load, load, mapping, 0.0, 0.0, sample)
            limits = BalanceSettings(imbalance=1.01, leaves=50)
            made = migrate_cells(index, known, sample.statistics(2), 4, limits).index
            assert isinstance(made, KdT)
            index = made
    return index


class Replicating(Grid):
    """A grid that registers a CRQ by one word of each of its groups, wherever its region is, as textual routing does.

    It shows what the contract asks of an index that replicates. Without words, a CRQ is where its region is.
    """

    kind = "replicating"
    replicates = True

    def leaf_of(self, word: str) -> int:
        return crc32(word.encode()) % len(self.leaves)

    def copies(self, objects: ObjectBatch, words: LeafWords | None = None) -> tuple[Codes, Codes]:
        pairs = []
        for row, home in enumerate(self.route_objects(objects).tolist()):
            leaves = {self.leaf_of(word) for word in objects.terms[row] if words is None or self._asked(word, words)}
            pairs += [(row, leaf) for leaf in sorted(leaves - {home})]
        row, leaf = np.array(pairs, np.int32).reshape(-1, 2).T
        return np.ascontiguousarray(row), np.ascontiguousarray(leaf)

    def _asked(self, word: str, words: LeafWords) -> bool:
        leaf = self.leaf_of(word)
        return stable(word) in words[1][words[0][leaf] : words[0][leaf + 1]]

    def registered(self, queries: QueryBatch) -> LeafWords:
        by_leaf: list[set[int]] = [set() for _ in range(len(self.leaves))]
        for q in range(len(queries)):
            for group in groups_of(queries.keywords, q):
                if group:
                    by_leaf[self.leaf_of(group[0])].add(stable(group[0]))
        offsets = np.append(0, np.cumsum([len(each) for each in by_leaf])).astype(np.int64)
        return offsets, np.array([word for each in by_leaf for word in sorted(each)], np.uint64)

    def route_continuous(self, queries: QueryBatch) -> tuple[Codes, Codes]:
        pairs: list[tuple[int, int]] = []
        for q in range(len(queries)):
            groups = groups_of(queries.keywords, q)
            leaves = {self.leaf_of(group[0]) for group in groups if group}
            if () in groups:
                leaves = {*self.route_regions(queries.regions.take(np.array([q])))[1].tolist()}
            pairs += [(q, leaf) for leaf in sorted(leaves)]
        row, leaf = np.array(pairs, np.int32).reshape(-1, 2).T
        return np.ascontiguousarray(row), np.ascontiguousarray(leaf)

    def reporter(self, objects: ObjectBatch, row: Codes, keywords: TermLists, query: Codes) -> Codes:
        home, found = self.route_objects(objects), []
        for o, q in zip(row.tolist(), query.tolist(), strict=True):
            group = next(each for each in groups_of(keywords, q) if {*each} <= {*objects.terms[o]})
            found.append(self.leaf_of(group[0]) if group else int(home[o]))
        return np.array(found, np.int32)


def build_replicating(objects: ObjectBatch, leaves: int, statistics: Statistics) -> Replicating:
    """A replicating index with the cells of a grid."""
    made = build_grid(objects, leaves, statistics)
    return Replicating(statistics.space, made.x, made.y, made.leaves.objects, made.leaves.load)


@contextmanager
def replicating_kind() -> Iterator[None]:
    """Meanwhile there is a kind of index "replicating", and beside it only the default one."""
    package = ModuleType("tests.replicating")
    package.__dict__["IMPLEMENTATION"] = Implementation(Replicating, build_replicating)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, package.__name__, package)
        for name in {*kinds.KINDS} - {kinds.DEFAULT}:
            patch.delitem(kinds.KINDS, name)
        row = kinds.Kind(Replicating.kind, package.__name__, ("PM", "FM", "rebuild"), "a grid that replicates")
        patch.setitem(kinds.KINDS, row.name, row)
        yield


def groups_of(keywords: TermLists, q: int) -> list[tuple[str, ...]]:
    """The groups of an expression, each sorted."""
    return [tuple(sorted(group)) for group in Expression.of(keywords[q]).groups]


def stable(word: str) -> int:
    """The hash of a word in :data:`LeafWords`."""
    return int(hash_strings(pa.array([word]))[0])


@st.composite
def crqs(draw: st.DrawFn, space: Space, max_size: int = 6) -> QueryBatch:
    """A few CRQs with any expressions."""
    letters = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3, unique=True).map(
        lambda each: tuple(sorted(each))
    )
    result = []
    for _ in range(draw(st.integers(1, max_size))):
        groups = absorbed(draw(st.lists(letters, max_size=4)))
        keywords, others = (groups[0], ()) if len(groups) == 1 else ((), groups)
        none = tuple(draw(st.lists(st.sampled_from(WORDS), max_size=1)))
        predicate = Predicate(draw(st.none() | regions(space)), keywords, others, none)
        result.append(Query("q", 0, predicate, Everything(), Lifetime(1000, True)))
    return QueryBatch.of(result)


@st.composite
def adjusted_trees(draw: st.DrawFn, space: Space) -> QTTree:
    """A tree after a few splits and merges, in two adjustments."""
    tree = draw(trees(space, frozenset({"spatial", "textual"})))
    for _ in range(2):
        editor = TreeEditor(tree, Statistics.of(space, *draw(samples(space)), 1000.0, levels=2))
        adjust_at_random(draw, editor)
        tree = editor.finish().tree
    return tree


def adjust_at_random(draw: st.DrawFn, editor: TreeEditor) -> None:
    """Up to 8 splits and merges anywhere."""
    for _ in range(draw(st.integers(0, 8))):
        candidates = editor.mergeable()
        if candidates and draw(st.booleans()):
            editor.merge(draw(st.sampled_from(candidates)))
        else:
            leaf = draw(st.sampled_from(editor.leaf_order()))
            if editor.can_split(leaf):
                editor.split(leaf, draw(st.sampled_from([SPATIAL, TEXTUAL])))


def leaf_nodes(tree: QTTree) -> np.ndarray:
    """The node of each leaf."""
    nodes = np.flatnonzero(tree.nodes.leaf >= 0)
    return nodes[np.argsort(tree.nodes.leaf[nodes])]


def split(tree: QTTree, leaf: int, statistics: Statistics, kind: int) -> Adjusted:
    """The tree after one split."""
    editor = TreeEditor(tree, statistics)
    node = int(leaf_nodes(tree)[leaf])
    assert editor.can_split(node)
    editor.split(node, kind)
    return editor.finish()


def merge(tree: QTTree, node: int, statistics: Statistics) -> Adjusted:
    """The tree after one merge."""
    editor = TreeEditor(tree, statistics)
    assert editor.can_merge(node)
    editor.merge(node)
    return editor.finish()


def carry_queries(origins: Origins, old: np.ndarray) -> np.ndarray:
    """A count of continuous queries by old leaf as one by new leaf."""
    return np.bincount(origins.leaf, origins.queries * old[origins.source], origins.leaves)


def workload(cell: CellStatistics, objects: float, rate: float, h_srq: float, h_skq: float) -> float:
    """Eqn 2 in plain Python, of one partition with the statistics of its own cell."""
    total = 0.0
    h = {CODE["SRQ"]: h_srq, CODE["SKQ"]: h_skq}
    for kind in range(len(KINDS)):
        visited = cell.lifetime[kind] * rate if KINDS[kind].continuous else objects
        if kind in h:
            visited *= sum(chance * h[kind] ** size for size, chance in enumerate(cell.lengths[kind]))
        total += cell.arrival[kind] * cell.reach[kind] * visited
    return float(total)


def check_origins(index: GlobalIndex, done: Adjustment, objects: ObjectBatch) -> None:
    """The leaves of an adjusted index originate from all of the old ones, and objects move as they say."""
    origins = done.origins
    np.testing.assert_allclose(np.bincount(origins.source, origins.objects, len(index.leaves)), 1.0)
    assert ((origins.queries >= 0.0) & (origins.queries <= 1.0)).all()
    pairs = list(zip(origins.leaf.tolist(), origins.source.tolist(), strict=True))
    assert pairs == sorted(set(pairs))
    old, new = (each.route_objects(objects).tolist() for each in (index, done.index))
    assert set(zip(new, old, strict=True)) <= set(pairs)
