"""Batches as JSON Lines: what is written is read as it was."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given

from spatialstream.model.objects import ObjectBatch, parse_object
from spatialstream.model.queries import Query, QueryBatch, parse_query
from spatialstream.records.encode import object_lines, query_lines
from tests.streams import RULE, Stream, streams


@given(streams(where=True))
def test_any_queries_and_cancellations_are_read_as_they_were_written(stream: Stream) -> None:
    asked = [replace(each, id=f'{each.id}"\\\n é') for each in stream.queries]
    for i, each in enumerate(asked[::2]):
        if isinstance(each, Query) and each.lifetime.continuous:
            asked[2 * i] = replace(each, by=f'"{i}\\')
    lines = bytes(query_lines(QueryBatch.of(asked))).splitlines()
    found = [parse_query(json.loads(line), stream.space, RULE) for line in lines]
    assert found == asked
    assert [each.to_record() for each in found] == [each.to_record() for each in asked], "with who has registered it"


@given(streams(where=True))
def test_any_objects_are_read_as_they_were_written(stream: Stream) -> None:
    sent = [replace(each, id=f'{each.id}"\\\n é') for each in stream.objects]
    lines = bytes(object_lines(ObjectBatch.of(sent), stream.space)).splitlines()
    found = [parse_object(json.loads(line), stream.space, RULE) for line in lines]
    assert [(each.id, each.t, each.x, each.y, set(each.terms), each.properties) for each in found] == [
        (each.id, each.t, each.x, each.y, set(each.terms), each.properties) for each in sent
    ]
