"""Test streams: hypothesis strategies for edge cases, a seeded generator for large streams, and files of streams.

The strategies draw few distinct positions, times, words and ids, so that ties, duplicates and edge cases are frequent:
poles, both sides of the antimeridian, corners of the space and borders of its cells, regions of area 0, circles and
polygons whose border passes through an object, holes, durations and windows of 0, k larger than the number of matches,
ids in use and reused.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from spatialstream.model.errors import RecordError
from spatialstream.model.expressions import absorbed
from spatialstream.model.kinds import CODE, KINDS, TYPES, Kind, QueryType
from spatialstream.model.lifetimes import ENDLESS_HALF_LIFE, MOST_STEPS, endless
from spatialstream.model.objects import SpatialObject
from spatialstream.model.polygons.geojson import known_polygon
from spatialstream.model.polygons.polygon import Polygon
from spatialstream.model.properties.cql2 import parse_where
from spatialstream.model.properties.declared import Properties, Value
from spatialstream.model.queries import Best, Cancellation, Lifetime, Nearest, Predicate, Query
from spatialstream.model.ranking.asked import Ranking
from spatialstream.model.ranking.scores import LONGEST_LIFE
from spatialstream.model.regions import Box, Circle, Region
from spatialstream.model.space import WGS84, Space
from spatialstream.model.stored_fields import fragment
from spatialstream.model.terms import TermRule
from spatialstream.model.times import TIME_LIMIT

PLANE = Space.planar(-8.0, -8.0, 8.0, 8.0)
"""Its halves, quarters, ... are exact floats, and so are the borders of a quadtree's cells."""

TERMS = ("a", "b", "c", "fire", "strasse", "水")
"""The whole vocabulary of the strategies."""

PROPERTIES = Properties.parse(["country:keyword", "priority:number", "seen:time", "open:boolean"])
"""Those of the objects of streams that have some."""

RULE = TermRule(properties=PROPERTIES)
"""How such streams read records."""

FIELDS = ("text", "priority", "seen", "country", "open")
"""The fields that those streams keep that keep any."""

CHOICES = (None, None, (), ("text",), ("priority", "open"))
"""Which of them rows show."""

_ENDS = ("", "", "!", ' "', "\n", "\\", ' \t{"": [-]}, ')
"""What may follow the words of a text, without a word in it that any text has."""

_VALUES: dict[str, Sequence[Value]] = {
    "country": ("de", "fr", "d", ""),
    "priority": (1.0, 2.0, 2.5, -1.0),
    "seen": (0, 5, -7),
    "open": (True, False),
}
_COUNTRY, _PRIORITY, _SEEN, _OPEN = ({"property": name} for name in PROPERTIES.names)
CONDITIONS = tuple(
    parse_where(each, PROPERTIES)
    for each in (
        {"op": "=", "args": [_COUNTRY, "de"]},
        {"op": "not", "args": [{"op": "=", "args": [_COUNTRY, "de"]}]},
        {"op": "in", "args": [_COUNTRY, ["fr", "", "it"]]},
        {"op": "like", "args": [_COUNTRY, "d%"]},
        {"op": "isNull", "args": [_COUNTRY]},
        {"op": ">=", "args": [_PRIORITY, 2]},
        {"op": "not", "args": [{"op": "between", "args": [_PRIORITY, 0, 2]}]},
        {"op": "<", "args": [_SEEN, {"timestamp": "1970-01-01T00:00:00.005Z"}]},
        {"op": "<>", "args": [_OPEN, True]},
        {"op": "and", "args": [{"op": "=", "args": [_COUNTRY, "de"]}, {"op": ">=", "args": [_PRIORITY, 2]}]},
        {"op": "or", "args": [{"op": "isNull", "args": [_OPEN]}, {"op": "<", "args": [_PRIORITY, 2]}]},
    )
)
"""Conditions on them."""

_WGS84_PLACES = [
    (0.0, 0.0),
    (180.0, 0.0),
    (-180.0, 0.0),
    (179.5, -17.25),
    (-179.5, -17.25),
    (0.0, 90.0),
    (123.0, 90.0),
    (0.0, -90.0),
    (-180.0, -90.0),
    (180.0, 90.0),
    (-45.0, 89.5),
    (135.0, 89.5),
    (90.0, 45.0),
    (-90.0, 22.5),
    (-149.9, 61.2),
    (139.7, 35.7),
]
_PLANAR_PLACES = [(x, y) for x in (-8.0, -4.0, 0.0, 2.0, 8.0) for y in (-8.0, 0.0, 1.0, 8.0)]
_BASES = [0, -7, 1_517_966_773_840]
_DURATIONS = [0, 1, 2, 5, 10, 25, 1_000, 1_000_000_000_000]
_WINDOWS = [0, 1, 2, 3, 5, 10, 100]
_STEPS = [1, 2, 3, 5, 7, 100]
_FARTHEST = {True: 2.0e7, False: 22.0}
"""Of the reach of a ranking, by whether the space is geographic."""
_NAMES = ["q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "q8", "q9"]


@dataclass(frozen=True)
class Stream:
    """A space, objects and queries, both in input order, which need not be the order of time."""

    space: Space
    objects: list[SpatialObject]
    queries: list[Query | Cancellation]

    @property
    def rule(self) -> TermRule:
        """How it reads records.

        It keeps fields if an object has some, counts words if a query ranks, and occurrences if an object or a ranking
        has some.
        """
        fields = FIELDS if any(o.stored is not None for o in self.objects) else ()
        rankings = [each.selection.ranking for each in self.queries if isinstance(each, Query) and each.kind.is_ranked]
        counts = bool(rankings) and any(each.counts for each in (*rankings, *self.objects) if each is not None)
        return replace(RULE, fields=fields, ranking=bool(rankings), counts=counts)


def keeping(o: SpatialObject, end: str, text: bool = True) -> SpatialObject:
    """The object in a stream that keeps fields; its text has all of its terms, and an end."""
    return replace(o, stored=fragment(FIELDS, " ".join(o.terms) + end if text else None, o.properties))


def counted(stream: Stream, seed: int) -> Stream:
    """The stream as one that counts occurrences: objects repeat some of their terms, and ranked queries of their words.

    A query that comes again stays the same.
    """
    rng = random.Random(seed)
    ranked = {id(query): repeating(query, rng) for query in stream.queries if isinstance(query, Query)}
    queries = [ranked.get(id(query), query) for query in stream.queries]
    return replace(stream, objects=[repeated(o, rng) for o in stream.objects], queries=queries)


def repeated(o: SpatialObject, rng: random.Random) -> SpatialObject:
    """The object with some of its terms repeated, at the end of its text if its stream keeps that."""
    o = replace(o, counts=tuple(rng.choice((1, 1, 2, 3, 7)) for _ in o.terms))
    text = None if o.stored is None else json.loads(f"{{{o.stored}}}").get("text")
    if text is None:
        return o
    again = [term for term, count in zip(o.terms, o.counts, strict=True) for _ in range(count - 1)]
    return replace(o, stored=fragment(FIELDS, " ".join([text, *again]), o.properties))


def repeating(query: Query, rng: random.Random) -> Query:
    """The query with some of its words repeated, if it ranks."""
    by = query.selection.ranking
    counts = () if by is None else tuple(rng.choice((1, 1, 2, 7)) for _ in by.words)
    if by is None or max(counts) == 1:
        return query
    return replace(query, selection=query.selection.ranked(replace(by, counts=counts)))


def showing(query: Query, fields: tuple[str, ...] | None) -> Query:
    """The query with a choice of fields, if its rows have objects."""
    return replace(query, fields=fields) if "fields" in query.kind.fields else query


# ----------------------------------------------------------------------------------------------------------- strategies


@st.composite
def streams(
    draw: st.DrawFn,
    spaces: Sequence[Space] = (WGS84, PLANE),
    types: Sequence[str] = TYPES,
    max_objects: int = 24,
    max_queries: int = 10,
    cancellations: bool = True,
    where: bool = False,
    counts: bool = False,
) -> Stream:
    """Small streams of objects and of queries of the given types, with cancellations unless disabled.

    With ``where``, objects have properties, and some queries conditions on them. With ``counts``, some streams count
    occurrences.
    """
    space = draw(st.sampled_from(spaces))
    pool = draw(st.lists(places(space), min_size=1, max_size=6))
    base = draw(st.sampled_from(_BASES))
    times = st.integers(0, 20).map(lambda t: base + t)
    where = where and draw(st.booleans())  # a stream without properties has no columns of them
    found = draw(st.lists(objects(pool, times, where), max_size=max_objects))
    fields = where and draw(st.booleans())
    if fields:
        found = [keeping(o, draw(st.sampled_from(_ENDS)), draw(st.integers(0, 4)) > 0) for o in found]
    asked: st.SearchStrategy[Query | Cancellation] = queries(space, pool, times, types, where)
    if fields and found:
        asked = st.builds(showing, asked, st.sampled_from(CHOICES))
    if cancellations:
        ends = st.builds(Cancellation, st.sampled_from(_NAMES[:6]), times)
        asked = st.one_of(asked, asked, asked, ends)
    records = draw(st.lists(asked, max_size=max_queries))
    if records:  # producers that retry
        records += [again for again in draw(st.lists(st.sampled_from(records), max_size=2)) if isinstance(again, Query)]
    stream = Stream(space, found, records)
    return counted(stream, draw(st.integers(0, 10**9))) if counts and draw(st.booleans()) else stream


def places(space: Space) -> st.SearchStrategy[tuple[float, float]]:
    """Points of the space, most of them edge cases."""
    special = _WGS84_PLACES if space.geographic else _PLANAR_PLACES
    inside = [
        point for point in special if space.west <= point[0] <= space.east and space.south <= point[1] <= space.north
    ]
    anywhere = st.tuples(
        st.floats(space.west, space.east, allow_subnormal=False),
        st.floats(space.south, space.north, allow_subnormal=False),
    )
    return st.one_of(st.sampled_from(inside), anywhere) if inside else anywhere


@st.composite
def objects(
    draw: st.DrawFn, pool: Sequence[tuple[float, float]], times: st.SearchStrategy[int], properties: bool = False
) -> SpatialObject:
    """Objects at the places of the pool; ids repeat, and a text may be empty; some properties may be missing."""
    x, y = draw(st.sampled_from(pool))
    terms = draw(st.lists(st.sampled_from(TERMS), max_size=4, unique=True))
    given = ((name, draw(st.sampled_from((None, *_VALUES[name])))) for name in (_VALUES if properties else ()))
    values = tuple((name, value) for name, value in given if value is not None)
    return SpatialObject(f"o{draw(st.integers(0, 9))}", draw(times), x, y, tuple(terms), values)


@st.composite
def regions(draw: st.DrawFn, space: Space, pool: Sequence[tuple[float, float]]) -> Region:
    """Boxes, circles and polygons through and around the places of the pool.

    Some boxes and circles have no area, some regions are over a pole or across the antimeridian, polygons have holes.
    """
    place = st.one_of(st.sampled_from(pool), places(space))
    x, y = draw(place)
    if draw(st.integers(0, 2)) == 0:
        return draw(polygons(space, pool))
    if draw(st.booleans()):
        return Circle(x, y, draw(st.one_of(st.sampled_from(_radii(space)), _radius_to(space, pool, x, y))))
    if draw(st.integers(0, 5)) == 0:
        return Box(*space.bounds)
    other_x, other_y = draw(place)
    if not space.geographic and x > other_x:
        x, other_x = other_x, x
    return Box(x, min(y, other_y), other_x, max(y, other_y))


def _square(west: float, south: float, east: float, north: float) -> list[list[float]]:
    return [[west, south], [east, south], [east, north], [west, north], [west, south]]


_WGS84_POLYGONS: list[list[Any]] = [
    [[_square(-90, -22.5, 90, 45), _square(-45, -11.25, 0, 22.5)]],  # places are on the borders of both
    [[_square(179.5, -20, 180, -10)], [_square(-180, -20, -179.5, -10)]],  # cut at the antimeridian
    [[_square(170, -20, 190, 10), _square(179.5, -17.25, 180.5, 0)]],  # across it, with a hole
    [[_square(-190, -20, -179.5, 0)]],
    [[_square(-180, 80, 180, 90)]],
    [[[[-180, -90], [180, -90], [0, 90], [-180, -90]]]],
    [[_square(0, 0, 1, 1)], [_square(0, 0, 123, 90)], [_square(139, 35, 140, 36)]],  # parts that have points in common
]
_PLANAR_POLYGONS: list[list[Any]] = [
    [[_square(-8, -8, 8, 8), _square(0, 0, 2, 1)]],
    [[[[-8, -8], [8, -8], [8, 8], [-8, -8]]]],
    [[[[-4, 0], [0, -8], [8, 1], [2, 8], [-4, 0]], [[0, 0], [2, 0], [2, 1], [0, 0]]]],
    [[_square(-8, 0, -4, 1)], [_square(2, 0, 8, 1)]],
]


@st.composite
def polygons(draw: st.DrawFn, space: Space, pool: Sequence[tuple[float, float]]) -> Polygon:
    """Triangles of places, some with a hole of half the size; and polygons through the places that are edge cases.

    Some have a margin; some of these are lines or points.
    """
    place = st.one_of(st.sampled_from(pool), places(space))
    a, b, c = (draw(place) for _ in range(3))
    within = draw(st.sampled_from([0.0, 0.0, 0.0, 1.0, 30_000.0, 1e6] if space.geographic else [0.0, 0.0, 0.5, 2.0]))
    if within and draw(st.booleans()):
        return lines(space, draw(st.sampled_from(["LineString", "MultiPoint"])), [a, b, c], within)
    parts = draw(st.sampled_from(_WGS84_POLYGONS if space.geographic else _PLANAR_POLYGONS))
    area = (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])
    if abs(area) > 1e-6 and draw(st.booleans()):
        parts = [[[list(each) for each in (a, b, c, a)]]]
        if abs(area) > 1 and draw(st.booleans()):
            x, y = sum(each[0] for each in (a, b, c)) / 3, sum(each[1] for each in (a, b, c)) / 3
            parts[0].append([[(x + each[0]) / 2, (y + each[1]) / 2] for each in (a, b, c, a)])
    return polygon(space, parts, within)


def polygon(space: Space, parts: Sequence[Any], within: float = 0.0) -> Polygon:
    """A polygon of the coordinates of a MultiPolygon, with a margin."""
    return known_polygon({"type": "MultiPolygon", "coordinates": [*parts]}, space, "polygon", 1000, within=within)


def lines(space: Space, kind: str, places: Sequence[Sequence[float]], within: float) -> Polygon:
    """A LineString or a MultiPoint with a margin."""
    value = {"type": kind, "coordinates": [*map(list, places)]}
    return known_polygon(value, space, "polygon", 1000, within=within)


def _radii(space: Space) -> list[float]:
    return [0.0, 1.0, 30_000.0, 1e6, 1.2e7, 3e7] if space.geographic else [0.0, 0.5, 2.0, 5.0, 30.0]


def _radius_to(space: Space, pool: Sequence[tuple[float, float]], x: float, y: float) -> st.SearchStrategy[float]:
    """The distance from (x, y) to a place of the pool: it lies exactly on the circle's border."""
    return st.sampled_from(pool).map(lambda place: space.distance(x, y, *place))


Text = tuple[tuple[str, ...], tuple[tuple[str, ...], ...], tuple[str, ...]]
"""The text condition of a predicate: keywords; groups; forbidden terms."""


@st.composite
def expressions(draw: st.DrawFn, words: Sequence[str] = TERMS) -> Text:
    """Keywords or groups, and forbidden terms, which may overlap with them."""
    term = st.sampled_from(words)
    keywords = tuple(draw(st.lists(term, max_size=2, unique=True)))
    if draw(st.integers(0, 2)):
        return keywords, (), ()
    groups = absorbed(draw(st.lists(st.lists(term, min_size=1, max_size=3), max_size=4)))
    none = tuple(draw(st.lists(term, max_size=2, unique=True)))
    return (keywords, (), none) if len(groups) < 2 else ((), groups, none)


@st.composite
def queries(
    draw: st.DrawFn,
    space: Space,
    pool: Sequence[tuple[float, float]],
    times: st.SearchStrategy[int],
    types: Sequence[str] = TYPES,
    conditions: bool = False,
) -> Query:
    """Queries of the given types, with few distinct ids; some with conditions on properties, if wanted."""
    kind = KINDS[CODE[draw(st.sampled_from(types))]]
    keywords, groups, none = draw(expressions())
    k = draw(st.sampled_from([1, 1, 2, 3, 100]))
    window = step = None
    if "window" in kind.required or ("window" in kind.optional and draw(st.booleans())):
        window = draw(st.sampled_from(_WINDOWS))
    if kind.steps:
        step = draw(st.sampled_from(_STEPS))
    x, y, region = 0.0, 0.0, None
    if kind.has_point or kind.is_ranked:
        x, y = draw(st.one_of(st.sampled_from(pool), places(space)))
    else:
        region = draw(regions(space, pool))
    duration, t, selection = draw(st.sampled_from(_DURATIONS)), draw(times), kind.selection.of(k, x, y)
    if kind.is_ranked:
        by = draw(rankings(space, pool, x, y, t, continuous=kind.continuous))
        region, selection = Circle(x, y, by.reach), selection.ranked(by)
        if by.between is not None:
            duration = t - by.between[0] + 1
        elif kind.continuous:
            assert by.half_life is not None
            duration = min(duration, by.half_life * LONGEST_LIFE)
    half_life = by.half_life if kind.continuous and kind.is_ranked else None
    if half_life is not None and half_life < ENDLESS_HALF_LIFE:
        pass  # it has to end
    elif (kind.continuous or (kind.is_ranked and duration == _DURATIONS[-1])) and draw(st.integers(0, 4)) == 0:
        duration = endless(step, half_life)
    elif step is not None:
        duration = min(duration, step * MOST_STEPS)
    where = draw(st.sampled_from((None, *CONDITIONS))) if conditions else None
    return Query(
        draw(st.sampled_from(_NAMES)),
        t,
        Predicate(region, keywords, groups, none, where if "where" in kind.fields else None),
        selection,
        Lifetime(duration, kind.continuous, window, step),
    )


@st.composite
def rankings(
    draw: st.DrawFn,
    space: Space,
    pool: Sequence[tuple[float, float]],
    x: float,
    y: float,
    t: int,
    *,
    continuous: bool = False,
) -> Ranking:
    """Rankings around a point; objects lie exactly on the border of the disk, or of a multiple of it."""
    expansions = 1 if continuous else draw(st.sampled_from([1, 2, 3, 4]))
    exact = draw(_radius_to(space, pool, x, y)) / draw(st.sampled_from([1, 2, 3]))
    radius = draw(st.sampled_from([each for each in _radii(space)[1:] if each < _FARTHEST[space.geographic]]))
    if exact > 0.0 and draw(st.booleans()):
        radius = exact
    radius = min(radius, _FARTHEST[space.geographic] / expansions)
    words = tuple(sorted(draw(st.lists(st.sampled_from(TERMS), min_size=1, max_size=4, unique=True))))
    static = continuous or draw(st.booleans())
    if continuous or draw(st.integers(0, 2)):
        share = draw(st.sampled_from([0.0, 0.2, 0.5, 1.0]))
        half_life = draw(st.sampled_from([1, 5, 64, 100, 86_400_000]))
        return Ranking(words, radius, expansions, half_life, None, (share, 0.0, 1.0 - share), static)
    last = t - draw(st.integers(0, 5))
    shares = draw(st.sampled_from([(1 / 3, 1 / 3, 1 / 3), (0.0, 1.0, 0.0), (0.5, 0.25, 0.25), (0.0, 0.0, 1.0)]))
    return Ranking(words, radius, expansions, None, (last - draw(st.integers(1, 20)), last), shares, static)


# --------------------------------------------------------------------------------------------------------------- volume


def random_stream(
    seed: int,
    objects: int,
    queries_per_type: int,
    space: Space = WGS84,
    *,
    types: Sequence[str] = tuple(QueryType),
    span: int = 3_600_000,
    start: int = 1_517_966_773_840,
    vocabulary: int = 500,
    cancelled: float = 0.05,
    repeated: float = 0.02,
    expressions: float = 0.3,
    where: float = 0.0,
) -> Stream:
    """A stream of ``objects`` objects over ``span`` ms, and queries that match some of them.

    Two thirds of the objects are clustered around a few centres; words follow Zipf's law; one object in twenty repeats
    the time of the previous one, one in fifty its position. Queries are centred on objects and take keywords from them;
    a share ``cancelled`` of the continuous ones is cancelled, a share ``repeated`` of all queries is sent twice, and in
    a share ``expressions`` of those with several keywords, each keyword becomes a group. If a share ``where`` of the
    queries has conditions on properties, objects have properties.
    """
    rng = random.Random(seed)
    width, height = space.east - space.west, space.north - space.south
    centres = [_anywhere(rng, space) for _ in range(12)]
    words = [f"w{rank}" for rank in range(vocabulary)]
    weights = [1.0 / (rank + 1) for rank in range(vocabulary)]
    found: list[SpatialObject] = []
    for i in range(objects):
        x, y = _anywhere(rng, space)
        if rng.random() < 2 / 3:
            x, y = rng.choice(centres)
            x = min(max(rng.gauss(x, 0.01 * width), space.west), space.east)
            y = min(max(rng.gauss(y, 0.01 * height), space.south), space.north)
        t = start + span * i // objects
        if found and rng.random() < 0.05:
            t = found[-1].t
        if found and rng.random() < 0.02:
            x, y = found[-1].x, found[-1].y
        terms = tuple(dict.fromkeys(rng.choices(words, weights, k=rng.randrange(9))))
        found.append(SpatialObject(f"o{i}", t, x, y, terms))
    asked: list[Query | Cancellation] = []
    for kind in types:
        for i in range(queries_per_type):
            query = _random_query(
                rng, f"{kind.lower()}{i}", KINDS[CODE[kind]], rng.choice(found), space, span, expressions
            )
            asked.append(query)
            if rng.random() < repeated:
                asked.append(query)
            if query.lifetime.continuous and rng.random() < cancelled:
                asked.append(Cancellation(query.id, query.t + rng.randrange(span)))
    rng.shuffle(asked)
    return (
        _with_properties(Stream(space, found, asked), where, random.Random(seed))
        if where
        else Stream(space, found, asked)
    )


def _with_properties(stream: Stream, share: float, rng: random.Random) -> Stream:
    """The stream with properties of its objects, and with conditions in a share of its queries."""

    def values() -> Iterator[tuple[str, Value]]:
        for name, known in _VALUES.items():
            if rng.random() < 0.8:
                yield name, rng.choice(known)

    asked: dict[str, Query | Cancellation] = {}  # of one id, so that a repeated query stays the same
    for query in stream.queries:
        if isinstance(query, Query) and "where" in query.kind.fields and rng.random() < share:
            predicate = replace(query.predicate, where=rng.choice(CONDITIONS))
            asked.setdefault(query.id, replace(query, predicate=predicate))
        elif isinstance(query, Query):
            asked.setdefault(query.id, query)
    queries = [asked[each.id] if isinstance(each, Query) else each for each in stream.queries]
    found = [replace(o, properties=tuple(values())) for o in stream.objects]
    if rng.random() < 0.5:
        return Stream(stream.space, found, queries)
    chosen = {name: showing(query, rng.choice(CHOICES)) for name, query in asked.items() if isinstance(query, Query)}
    queries = [chosen[each.id] if isinstance(each, Query) else each for each in queries]
    return Stream(stream.space, [keeping(o, rng.choice(_ENDS), rng.random() < 0.8) for o in found], queries)


def _anywhere(rng: random.Random, space: Space) -> tuple[float, float]:
    return rng.uniform(space.west, space.east), rng.uniform(space.south, space.north)


def _random_query(
    rng: random.Random, name: str, kind: Kind, focus: SpatialObject, space: Space, span: int, expressions: float
) -> Query:
    keywords = tuple(rng.sample(focus.terms, min(len(focus.terms), rng.randrange(4))))
    groups: tuple[tuple[str, ...], ...] = ()
    none: tuple[str, ...] = ()
    if len(keywords) > 1 and rng.random() < expressions:
        groups, keywords, none = absorbed([[term] for term in keywords]), (), (rng.choice(focus.terms),)
    width, height = space.east - space.west, space.north - space.south
    side = rng.choice([0.01, 0.05, 0.3])
    region: Region | None = None
    k = 0
    if kind.is_ranked:
        k = rng.choice([1, 5, 10])
        words = keywords or focus.terms[:1] or ("w0",)
        keywords, groups, none = (), (), none if rng.random() < 0.5 else ()
        radius = min(side * width / 8, 40.0) * (100_000.0 if space.geographic else 1.0)
        expansions = 1 if kind.continuous else rng.choice([1, 4])
        half_life = rng.choice([span // 20, span])
        by = Ranking(tuple(sorted(words)), radius, expansions, half_life, static=kind.continuous)
        region = Circle(focus.x, focus.y, by.reach)
    elif kind.has_point:
        k = rng.choice([1, 5, 10])
    else:
        region = _random_region(rng, focus, space, side * width / 2, side * height / 2)
    if kind.rows == "terms":
        k = rng.choice([1, 5, 10])
        keywords = keywords[:1]
    window = step = None
    if kind.steps:
        window, step = rng.choice([span // 60, span // 6]), span // 40
    elif "window" in kind.optional and rng.random() < 0.5:
        window = span // rng.choice([200, 10])
    distance = rng.randrange(span // 4)
    selection = kind.selection.of(k, focus.x, focus.y)
    return Query(
        name,
        focus.t - distance if kind.continuous else focus.t + distance,
        Predicate(region, keywords, groups, none),
        selection.ranked(by) if kind.is_ranked else selection,
        Lifetime(rng.randrange(span), kind.continuous, window, step),
    )


def _random_region(rng: random.Random, focus: SpatialObject, space: Space, dx: float, dy: float) -> Region:
    round_ = rng.random() < 0.5
    own = random.Random(f"{focus.id} {dx}")  # so that all else of a seed's stream stays what it is
    if own.random() < 0.3 and abs(focus.y) + 1.2 * dy < space.north:
        with suppress(RecordError):  # in the largest planes it is beyond all coordinates, in flat ones too flat
            return _random_polygon(own, focus, space, dx, dy)
    if round_:
        return Circle(focus.x, focus.y, 111_000.0 * dy if space.geographic else dy)
    west, east = focus.x - dx, focus.x + dx
    south, north = max(focus.y - dy, space.south), min(focus.y + dy, space.north)
    if not space.geographic:
        return Box(west, south, east, north)
    return Box(west + 360.0 if west < -180.0 else west, south, east - 360.0 if east > 180.0 else east, north)


def _random_polygon(rng: random.Random, focus: SpatialObject, space: Space, dx: float, dy: float) -> Polygon:
    """A star around an object with a hole beside it, or without one; the border goes through the object at times.

    Some have a margin; some of these are the line of the star without its last edge.
    """
    angles = [math.tau * (i + 0.9 * rng.random()) / 12 for i in range(12)]
    reach = [(rng.uniform(0.6, 1.2), angle) for angle in angles]
    ring = [[focus.x + r * dx * math.cos(angle), focus.y + r * dy * math.sin(angle)] for r, angle in reach]
    rings = [[*ring, ring[0]]]
    if rng.random() < 0.5:
        hole = [[focus.x + 0.3 * dx * math.cos(angle), focus.y + 0.3 * dy * math.sin(angle)] for angle in angles[::3]]
        if rng.random() < 0.3:
            hole[0] = [focus.x, focus.y]
        rings.append([*hole, hole[0]])
    within = rng.choice([0.0, 0.0, 0.1, 0.7]) * dy * (111_000.0 if space.geographic else 1.0)
    if space.geographic and within < 1.0:  # for margins of millimetres, more than one answer is right
        within = 0.0
    if within and rng.random() < 0.3:
        return lines(space, "LineString", ring, within)
    return polygon(space, [rings], within)


# ---------------------------------------------------------------------------------------------------------------- files


def object_record(o: SpatialObject, space: Space) -> dict[str, Any]:
    """The JSON form of an object, with its terms as a text, or with what it said."""
    x, y = space.axes
    record = {"id": o.id, "t": o.t, x: o.x, y: o.y} | dict(o.properties)
    if o.stored is None:
        return record | {"text": " ".join(o.said)}
    text = json.loads(f"{{{o.stored}}}").get("text")
    return record | ({"terms": [*o.said]} if text is None else {"text": text})


def query_record(query: Query | Cancellation) -> dict[str, Any]:
    """The JSON form of a query or cancellation."""
    if isinstance(query, Cancellation):
        return {"id": query.id, "type": "CANCEL", "t": query.t}
    record: dict[str, Any] = {"id": query.id, "type": query.type, "t": query.t}
    match query.predicate.region:
        case Box(west, south, east, north):
            record["region"] = {"box": [west, south, east, north]}
        case Circle(x, y, radius) if query.selection.ranking is None:
            record["region"] = {"circle": [x, y, radius]}
        case Polygon() as region:
            record["region"] = region.to_region()
    if isinstance(query.selection, Nearest | Best):
        record["at"] = [query.selection.x, query.selection.y]
    if query.k:
        record["k"] = query.k
    record |= query.predicate.expression.to_record()
    lifetime, ranking = query.lifetime, query.selection.ranking
    if ranking is not None:
        record |= {name: value for name, value in ranking.to_record().items() if name in query.kind.fields}
    if query.fields is not None:
        record["fields"] = [*query.fields]
    if lifetime.duration <= TIME_LIMIT and (ranking is None or ranking.between is None):
        record["duration"] = lifetime.duration
    return record | {
        name: value for name, value in (("window", lifetime.window), ("step", lifetime.step)) if value is not None
    }


def write_lines(path: Path, records: Iterable[object]) -> Path:
    """Write records as JSON Lines and return the path; a ``str`` is written unchanged, and need not be JSON."""
    lines = (record if isinstance(record, str) else json.dumps(record, ensure_ascii=False) for record in records)
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def write_stream(folder: Path, stream: Stream) -> tuple[Path, Path]:
    """Write ``objects.jsonl`` and ``queries.jsonl`` into the folder, in input order; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    return (
        write_lines(folder / "objects.jsonl", [object_record(o, stream.space) for o in stream.objects]),
        write_lines(folder / "queries.jsonl", [query_record(query) for query in stream.queries]),
    )


UNUSABLE_OBJECTS = [
    "not json",
    "[1, 2]",
    '{"id": "x", "t": 5, "lon": 0, "lat": 0, "text": "cut off',
    '{"t": 5, "lon": 0, "lat": 0, "text": "a"}',
    '{"id": 7.5, "t": 5, "lon": 0, "lat": 0, "text": "a"}',
    '{"id": "x", "lon": 0, "lat": 0, "text": "a"}',
    '{"id": "x", "t": "yesterday", "lon": 0, "lat": 0, "text": "a"}',
    '{"id": "x", "t": 5.5, "lon": 0, "lat": 0, "text": "a"}',
    '{"id": "x", "t": true, "lon": 0, "lat": 0, "text": "a"}',
    '{"id": "x", "t": 5, "lat": 0, "text": "a"}',
    '{"id": "x", "t": 5, "lon": 180.5, "lat": 0, "text": "a"}',
    '{"id": "x", "t": 5, "lon": 0, "lat": -90.01, "text": "a"}',
    '{"id": "x", "t": 5, "lon": "0", "lat": 0, "text": "a"}',
    '{"id": "x", "t": 5, "lon": 1e999, "lat": 0, "text": "a"}',
    '{"id": "x", "t": 5, "lon": 0, "lat": 0}',
    '{"id": "x", "t": 5, "lon": 0, "lat": 0, "text": 3}',
    '{"id": "x", "t": 5, "lon": 0, "lat": 0, "text": "a", "terms": ["a"]}',
    '{"id": "x", "t": 5, "lon": 0, "lat": 0, "terms": "a"}',
]
"""Lines of a file of WGS84 objects, each to be rejected."""

UNUSABLE_QUERIES = [
    "not json",
    "17",
    '{"type": "SRQ", "t": 5, "region": {"box": [0, 0, 1, 1]}, "duration": 5}',
    '{"id": "x", "t": 5, "region": {"box": [0, 0, 1, 1]}, "duration": 5}',
    '{"id": "x", "type": "XYZ", "t": 5, "region": {"box": [0, 0, 1, 1]}, "duration": 5}',
    '{"id": "x", "type": "SRQ", "region": {"box": [0, 0, 1, 1]}, "duration": 5}',
    '{"id": "x", "type": "SRQ", "t": 5, "duration": 5}',
    '{"id": "x", "type": "SRQ", "t": 5, "region": {"box": [0, 0, 1]}, "duration": 5}',
    '{"id": "x", "type": "SRQ", "t": 5, "region": {"box": [0, 1, 1, 0]}, "duration": 5}',
    '{"id": "x", "type": "SRQ", "t": 5, "region": {"box": [0, 0, 1, 91]}, "duration": 5}',
    '{"id": "x", "type": "SRQ", "t": 5, "region": {"circle": [0, 0, -1]}, "duration": 5}',
    '{"id": "x", "type": "SRQ", "t": 5, "region": {"box": [0, 0, 1, 1]}, "duration": -1}',
    '{"id": "x", "type": "SRQ", "t": 5, "region": {"box": [0, 0, 1, 1]}, "duration": "soon"}',
    '{"id": "x", "type": "SRQ", "t": 5, "region": {"box": [0, 0, 1, 1]}, "duration": 5, "keywords": ["a", "?!"]}',
    '{"id": "x", "type": "SRQ", "t": 5, "region": {"box": [0, 0, 1, 1]}, "duration": 5, "keywords": "a"}',
    '{"id": "x", "type": "SRQ", "t": 5, "region": {"box": [0, 0, 1, 1]}, "duration": 5, "k": 3}',
    '{"id": "x", "type": "STQ", "t": 5, "region": {"box": [0, 0, 1, 1]}, "duration": 5, "k": 0}',
    '{"id": "x", "type": "SKQ", "t": 5, "at": [0], "k": 3, "duration": 5}',
    '{"id": "x", "type": "SKQ", "t": 5, "at": [0, 0], "duration": 5}',
    '{"id": "x", "type": "CTQ", "t": 5, "region": {"box": [0, 0, 1, 1]}, "k": 3, "duration": 5, "window": 5}',
    '{"id": "x", "type": "CTQ", "t": 5, "region": {"box": [0, 0, 1, 1]}, "k": 3, "duration": 5, "window": 5, "step":0}',
    '{"id": "x", "type": "SRQ", "t": 5, "region": {"box": [0, 0, 1, 1]}, "duration": 5, "keyword": ["a"]}',
    '{"id": "x", "type": "CANCEL", "t": 5, "whence": null}',
]
"""Lines of a file of WGS84 queries, each to be rejected by the parser."""
