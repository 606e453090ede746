"""The slots of one query by itself are those that it has among others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.index.version import RoutingVersion, build
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import Everything, Lifetime, Nearest, Predicate, Query, QueryBatch, TopTerms
from spatialstream.model.regions import Box, Circle, Region
from spatialstream.model.space import WGS84, Space
from spatialstream.stages.routing import PastVersion, Routing
from spatialstream.stages.two_phase import others_of, others_within

PLANE = Space.planar(-180, -90, 180, 90)
SLOTS = 5


def version_of(space: Space, number: int) -> RoutingVersion:
    rng = np.random.default_rng(number)
    places = zip(rng.uniform(-180, 180, 400).tolist(), rng.uniform(-90, 90, 400).tolist(), strict=True)
    sample = [SpatialObject(f"o{i}", 0, x, y, (f"w{i % 7}",)) for i, (x, y) in enumerate(places)]
    made = build(space, ObjectBatch.of(sample), QueryBatch.of([]), 40, SLOTS)
    return replace(made, number=number, mapping=rng.permutation(made.mapping))


VERSIONS = {space: [version_of(space, number) for number in range(3)] for space in (WGS84, PLANE)}

x, y = st.floats(-180, 180), st.floats(-90, 90)
times = st.integers(0, 10)
circles = st.builds(Circle, x, y, st.sampled_from([0.0, 1.0, 1e5, 3e6, 1e7]))
points = st.builds(lambda at, b: Box(at[0], at[1], at[0], max(at[1], b)), st.tuples(x, y), y)


@st.composite
def boxes(draw: st.DrawFn, space: Space) -> Box:
    """In WGS84 they may cross the antimeridian."""
    west, east, (south, north) = draw(x), draw(x), sorted([draw(y), draw(y)])
    return Box(west, south, east, north) if space.geographic or west <= east else Box(east, south, west, north)


@st.composite
def routings(draw: st.DrawFn, space: Space) -> Routing:
    active, *before = VERSIONS[space]
    past = tuple(PastVersion(each, *sorted([draw(times), draw(times)])) for each in before[: draw(st.integers(0, 2))])
    return Routing(active, past=past, two_phase=draw(st.booleans()))


@st.composite
def queries(draw: st.DrawFn, space: Space) -> Query:
    region: Region | None = draw(st.none() | circles | points | boxes(space))
    selection = draw(st.sampled_from([Everything(), TopTerms(3), Nearest(draw(x), draw(y), 3)]))
    if isinstance(selection, Nearest):
        region = None
    return Query("q", draw(times), Predicate(region), selection, Lifetime(draw(times), False))


@st.composite
def asked(draw: st.DrawFn) -> tuple[Space, Routing, Query]:
    space = draw(st.sampled_from([WGS84, PLANE]))
    return space, draw(routings(space)), draw(queries(space))


@given(st.data(), st.sampled_from([WGS84, PLANE]))
def test_slots_of_queries(data: st.DataObject, space: Space) -> None:
    routing, some = data.draw(routings(space)), data.draw(st.lists(queries(space), max_size=6))
    right = [routing.route_queries(QueryBatch.of([query]))[1].tolist() for query in some]
    assert routing.slots_of(some) == right


@given(asked(), st.sampled_from([0.0, 1.0, 20.0, 1e5, 3e6, np.inf]), st.integers(0, SLOTS - 1))
def test_other_slots_within_a_radius(given_: tuple[Space, Routing, Query], radius: float, first: int) -> None:
    space, routing, query = given_
    at = query.selection if isinstance(query.selection, Nearest) else Nearest(1.0, 2.0, 1)
    since = query.t - query.lifetime.duration
    columns = (np.array([each]) for each in ((at.x, at.y), radius, since, query.t, first))
    _, slots = others_within(*columns, routing, space)
    assert others_of(query, at, radius, since, first, routing, space) == slots.tolist()
