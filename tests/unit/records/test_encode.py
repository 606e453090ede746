"""Batches as JSON Lines: what is written is read as it was."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given

from spatialstream.model.kinds import TYPES
from spatialstream.model.objects import ObjectBatch, parse_object
from spatialstream.model.queries import Query, QueryBatch, parse_query
from spatialstream.model.space import WGS84
from spatialstream.model.terms import TermRule
from spatialstream.records.encode import object_lines, query_lines
from tests.streams import Stream, streams


@given(streams(types=TYPES, where=True, counts=True))
def test_any_queries_and_cancellations_are_read_as_they_were_written(stream: Stream) -> None:
    asked = [replace(each, id=f'{each.id}"\\\n é') for each in stream.queries]
    for i, each in enumerate(asked[::2]):
        if isinstance(each, Query) and each.lifetime.continuous:
            asked[2 * i] = replace(each, by=f'"{i}\\')
    lines = bytes(query_lines(QueryBatch.of(asked))).splitlines()
    found = [parse_query(json.loads(line), stream.space, stream.rule) for line in lines]
    assert found == asked
    assert [each.to_record() for each in found] == [each.to_record() for each in asked], "with who has registered it"


BOX = {"id": "b", "type": "SRQ", "t": 5, "region": {"box": [0, 0, 1, 1]}, "duration": 7}
RANKED = {"id": "q", "type": "SBQ", "t": 600_000, "at": [0.5, -1.25], "k": 3, "words": ["fire", "Feuer"], "radius": 1e5}


@pytest.mark.parametrize(
    "fields",
    [
        {"halfLife": "1h"},
        {"halfLife": "1h", "words": ["fire fire", "water", "Fire"]},
        {"halfLife": 1, "duration": "1m", "weights": {"space": 0}, "expansions": 7, "weighting": "static"},
        {"between": [1_000, 600_000], "weights": {"space": 0.5, "time": 0.25, "text": 0.25}},
        {"between": [-5, 5], "any": [["a", "b"], ["c"]], "none": ["d"]},
    ],
)
def test_ranked_queries_are_read_as_they_were_written(fields: dict[str, object]) -> None:
    rule = TermRule(ranking=True, counts=True)
    other = parse_query(BOX, WGS84)
    query = parse_query(RANKED | fields, WGS84, rule)
    lines = bytes(query_lines(QueryBatch.of([other, query, other]))).splitlines()
    assert [parse_query(json.loads(line), WGS84, rule) for line in lines] == [other, query, other]


@given(streams(where=True, counts=True))
def test_any_objects_are_read_as_they_were_written(stream: Stream) -> None:
    sent = [replace(each, id=f'{each.id}"\\\n é') for each in stream.objects]
    lines = bytes(object_lines(ObjectBatch.of(sent), stream.space)).splitlines()
    rule = replace(stream.rule, ranking=True, counts=any(each.counts for each in sent))
    found = [parse_object(json.loads(line), stream.space, rule) for line in lines]
    assert [(each.id, each.t, each.x, each.y, sorted(each.said), each.properties) for each in found] == [
        (each.id, each.t, each.x, each.y, sorted(each.said), each.properties) for each in sent
    ]
    spoken = [i for i, each in enumerate(sent) if each.stored is not None and '"text": ' in each.stored]
    assert [found[i].stored for i in spoken] == [sent[i].stored for i in spoken], "the text as it was, not its words"
