"""Objects, queries and indexes for the tests of the global index."""

from __future__ import annotations

from hypothesis import strategies as st

from spatialstream.index.construction import build_tree
from spatialstream.index.statistics import Statistics
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import Everything, Lifetime, Nearest, Predicate, Query, QueryBatch, TopTerms
from spatialstream.model.regions import Box, Circle
from spatialstream.model.space import WGS84, Space

PLANE = Space.planar(0.0, 0.0, 4.0, 4.0)
WORDS = "abcdefgh"

words = st.lists(st.sampled_from(WORDS), max_size=4, unique=True)
spaces = st.sampled_from([PLANE, WGS84])


def obj(name: str, x: float, y: float, terms: str = "", t: int = 0) -> SpatialObject:
    """An object; each letter of ``terms`` is one."""
    return SpatialObject(name, t, x, y, tuple(terms))


def query(kind: str, region=None, keywords: str = "", *, at=(0.0, 0.0), k: int = 1, duration: int = 1000) -> Query:
    """A query of a type; each letter of ``keywords`` is one."""
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
def regions(draw: st.DrawFn, space: Space) -> Box | Circle:
    """Boxes, some of them across the antimeridian or without area, and circles, some of them over a pole."""
    x, y = draw(points(space))
    if draw(st.booleans()):
        reach = 2.1e7 if space.geographic else 8.0
        scale = draw(st.sampled_from([0.0, 1e-6, 1e-3, 0.1, 1.0]))
        return Circle(x, y, reach * scale * draw(st.floats(0.0, 1.0)))
    other_x, other_y = draw(st.one_of(st.just((x, y)), points(space)))
    south, north = sorted((y, other_y))
    if space.geographic:
        return Box(x, south, other_x, north)
    return Box(min(x, other_x), south, max(x, other_x), north)


@st.composite
def objects(draw: st.DrawFn, space: Space, max_size: int = 40) -> ObjectBatch:
    """Objects, some of them in the same place and some without terms."""
    rows = draw(st.lists(st.tuples(points(space), words), max_size=max_size))
    return ObjectBatch.of([SpatialObject(f"o{i}", i, x, y, tuple(terms)) for i, ((x, y), terms) in enumerate(rows)])


@st.composite
def queries(draw: st.DrawFn, space: Space, kinds: str = "SRQ SKQ STQ CRQ CKQ CTQ", max_size: int = 12) -> QueryBatch:
    """Queries of several types."""
    result = []
    for kind in draw(st.lists(st.sampled_from(kinds.split()), max_size=max_size)):
        region = None if kind[1] == "K" else draw(regions(space))
        at, k, duration = draw(points(space)), draw(st.integers(1, 5)), draw(st.integers(0, 5000))
        keywords = "".join(draw(words)) if kind[1] != "T" else ""
        result.append(query(kind, region, keywords, at=at, k=k, duration=duration))
    return QueryBatch.of(result)


@st.composite
def trees(draw: st.DrawFn, space: Space, splits: frozenset[str]):
    """A tree of up to 25 leaves."""
    sample, asked = draw(objects(space)), draw(queries(space))
    statistics = Statistics.of(space, sample, asked, 1000.0, levels=2)
    return build_tree(sample, draw(st.integers(1, 25)), statistics, splits)
