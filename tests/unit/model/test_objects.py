"""Objects: one at a time and as columns."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.model.errors import RecordError
from spatialstream.model.objects import ObjectBatch, SpatialObject, parse_object
from spatialstream.model.schema import OBJECTS
from spatialstream.model.space import WGS84, Space
from spatialstream.model.terms import TermRule

GOOD = {"id": "a", "t": 5, "lon": 1.5, "lat": -2, "text": "Flood in Rome, flood!"}
PLANE = Space.planar(0, 0, 9, 9)
OBJECT_LISTS = st.lists(
    st.builds(
        SpatialObject,
        st.text(st.characters(codec="utf-8"), max_size=4),
        st.integers(-(2**52), 2**52),
        st.floats(-180, 180),
        st.floats(-90, 90),
        st.lists(st.sampled_from(["a", "b", "é", "fire"]), unique=True, max_size=4).map(tuple),
    ),
    max_size=6,
)


def items(batch):
    return [batch[i] for i in range(len(batch))]


@pytest.mark.parametrize(
    ("changes", "space", "expected"),
    [
        ({}, WGS84, SpatialObject("a", 5, 1.5, -2.0, ("flood", "in", "rome"))),
        ({"more": [1]}, WGS84, SpatialObject("a", 5, 1.5, -2.0, ("flood", "in", "rome"))),
        ({"text": ""}, WGS84, SpatialObject("a", 5, 1.5, -2.0, ())),
        ({"id": ""}, WGS84, SpatialObject("", 5, 1.5, -2.0, ("flood", "in", "rome"))),
        ({"terms": None}, WGS84, SpatialObject("a", 5, 1.5, -2.0, ("flood", "in", "rome"))),
        ({"text": None, "terms": ["Fire risk", "FIRE"]}, WGS84, SpatialObject("a", 5, 1.5, -2.0, ("fire", "risk"))),
        ({"text": None, "terms": []}, WGS84, SpatialObject("a", 5, 1.5, -2.0, ())),
        ({"t": "1970-01-01T00:00:01Z"}, WGS84, SpatialObject("a", 1000, 1.5, -2.0, ("flood", "in", "rome"))),
        ({"x": 3, "y": 4, "lon": "?"}, PLANE, SpatialObject("a", 5, 3.0, 4.0, ("flood", "in", "rome"))),
    ],
)
def test_good_records(changes, space, expected):
    assert parse_object(GOOD | changes, space) == expected


def test_the_rule_of_terms_holds():
    assert parse_object(GOOD, WGS84, TermRule(frozenset({"rome"}), 3)).terms == ("flood",)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"id": None}, "id: is required; give a string"),
        ({"id": True}, "id: True is neither a string nor a whole number"),
        ({"id": 0.5}, "id: 0.5 is neither a string nor a whole number"),
        ({"t": None}, "t: is required; give milliseconds or ISO 8601"),
        ({"t": 1.5}, "t: 1.5 is not a time; give integer milliseconds or an ISO 8601 string"),
        ({"lon": None}, "lon: is required; give a number"),
        ({"lon": -180.5}, "lon: -180.5 is out of range; it must lie in [-180, 180]"),
        ({"lat": "1"}, "lat: '1' is not a number"),
        ({"text": None}, "text: is required; give a string, or a list of strings as terms"),
        ({"text": 5}, "text: 5 is not a string"),
        ({"text": ["a"]}, "text: ['a'] is not a string"),
        ({"terms": []}, "terms: give either text or terms, not both"),
        ({"text": None, "terms": "a"}, "terms: 'a' is not a list of strings"),
        ({"text": None, "terms": ["a", 1]}, "terms: ['a', 1] is not a list of strings"),
    ],
)
def test_bad_records_are_told(changes, reason):
    with pytest.raises(RecordError) as caught:
        parse_object(GOOD | changes, WGS84)
    assert str(caught.value) == reason


@pytest.mark.parametrize("value", [None, 5, "text", [GOOD], True])
def test_what_is_no_record_is_told(value):
    with pytest.raises(RecordError, match="record: is not a JSON object"):
        parse_object(value, WGS84)


def test_coordinates_are_named_by_the_space():
    with pytest.raises(RecordError, match="x: is required; give a number"):
        parse_object(GOOD, PLANE)


@given(OBJECT_LISTS)
def test_columns_hold_the_same_objects(objects):
    batch = ObjectBatch.of(objects)
    assert items(batch) == objects
    wire = batch.to_arrow()
    assert wire.schema == OBJECTS
    wire.validate(full=True)
    assert items(ObjectBatch.from_arrow(wire)) == objects
    assert items(ObjectBatch.from_arrow(wire.slice(1))) == objects[1:]


def test_occurrences_are_counted_where_the_stream_does():
    rule = TermRule(frozenset({"rome"}), counts=True)
    found = parse_object(GOOD, WGS84, rule)
    assert (found.terms, found.counts) == (("flood", "in"), (2, 1))
    assert found.said == ("flood", "flood", "in")
    listed = parse_object(GOOD | {"text": None, "terms": ["Fire risk", "FIRE " * 9]}, WGS84, rule)
    assert (listed.terms, listed.counts) == (("fire", "risk"), (7, 1))
    assert parse_object(GOOD | {"text": "!"}, WGS84, rule).counts == ()
    plain = parse_object(GOOD, WGS84)
    assert (plain.counts, plain.said) == ((), plain.terms)


@given(OBJECT_LISTS, st.data())
def test_columns_hold_occurrences(objects, data):
    counts = [tuple(data.draw(st.integers(1, 7)) for _ in o.terms) for o in objects]
    objects = [replace(o, counts=each) for o, each in zip(objects, counts, strict=True)]
    batch = ObjectBatch.of(objects)
    assert items(batch) == objects
    wire = batch.to_arrow()
    wire.validate(full=True)
    assert wire.schema.names == [*OBJECTS.names, *(["counts"] if any(counts) else [])]
    assert items(ObjectBatch.from_arrow(wire)) == objects
    assert items(ObjectBatch.from_arrow(wire.slice(1))) == objects[1:]
    assert items(batch.slice(1, len(batch))) == objects[1:] if objects else True
    assert items(ObjectBatch.concat([batch, ObjectBatch.of([]), batch])) == objects + objects


@given(OBJECT_LISTS, OBJECT_LISTS)
def test_taking_and_concatenating(first, second):
    both = ObjectBatch.concat([ObjectBatch.of(first), ObjectBatch.of(second)])
    assert items(both) == first + second
    order = np.arange(len(both))[::-1].copy()
    assert items(both.take(order)) == (first + second)[::-1]
    assert items(ObjectBatch.from_arrow(both.take(order).to_arrow())) == (first + second)[::-1]
    assert items(ObjectBatch.concat([])) == []
