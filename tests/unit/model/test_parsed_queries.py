"""A parsed query is the same on the other side, whatever it is."""

from __future__ import annotations

import json
from itertools import islice

import pytest

from spatialstream.model.kinds import KINDS
from spatialstream.model.parsed_queries import packed, unpacked
from spatialstream.model.queries import Lifetime, Predicate, Query, TopTerms, parse_query
from spatialstream.model.regions import Circle
from spatialstream.model.space import WGS84, Space
from tests.streams import random_stream
from tests.unit.model.polygons.shapes import polygons

SNAPSHOTS = tuple(kind.type for kind in KINDS if not kind.continuous)


@pytest.mark.parametrize("space", [WGS84, Space.planar(0.0, 0.0, 8.0, 8.0)], ids=str)
def test_any_snapshot_query_comes_back(space: Space) -> None:
    queries = [
        each for seed in range(5) for each in random_stream(seed, 50, 60, space, types=SNAPSHOTS, where=0.4).queries
    ]
    asked = [each for each in queries if isinstance(each, Query)]
    assert {each.type for each in asked} == set(SNAPSHOTS)
    assert {type(each.predicate.region).__name__ for each in asked} == {"Box", "Circle", "NoneType", "Polygon"}
    assert any(each.predicate.any for each in asked)
    assert any(each.predicate.where for each in asked)
    assert [unpacked(json.loads(json.dumps(packed(each)))) for each in asked] == asked


def test_numbers_and_texts_are_kept_to_the_bit() -> None:
    query = Query(
        'é\n"', -5, Predicate(Circle(1 / 3, -0.0, 1e-300), ("ß",), (), ("x",)), TopTerms(2**31 - 1), Lifetime(1)
    )
    back = unpacked(json.loads(json.dumps(packed(query))))
    assert (back, repr(back)) == (query, repr(query))
    whole = parse_query({"id": "q", "type": "SKQ", "t": 0, "at": [1, 2], "k": 3, "duration": 5}, WGS84)
    assert isinstance(whole, Query)
    assert repr(unpacked(json.loads(json.dumps(packed(whole))))) == repr(whole), "floats, as they are parsed"


def test_a_polygon_comes_back_and_what_is_no_region_is_refused() -> None:
    for _, polygon in islice(polygons(WGS84, 1), 10):
        query = Query("q", 0, Predicate(polygon), TopTerms(3), Lifetime(1))
        assert unpacked(json.loads(json.dumps(packed(query)))) == query
    with pytest.raises(TypeError, match="is not a region"):
        packed(Query("q", 0, Predicate("anywhere"), TopTerms(3), Lifetime(1)))  # type: ignore[arg-type]
    with pytest.raises(ValueError):  # noqa: PT011 - whichever the decoder has
        unpacked(["q", 0, 5, "no base64!", [], [], [], "STQ", [1, 0, 0]])


@pytest.mark.parametrize(
    "form", [[], ["q"], ["q", "t", 5, [], [], [], [], []], ["q", 0, 5, [1, 2], [], [], [], []], "abc"]
)
def test_what_is_no_query_is_an_error(form: object) -> None:
    with pytest.raises((ValueError, TypeError, LookupError)):
        unpacked(form)  # type: ignore[arg-type]
