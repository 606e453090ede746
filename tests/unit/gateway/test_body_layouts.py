"""Bodies with columns: properties are fields of them, and what is no field is refused."""

from __future__ import annotations

import json

import pytest

from spatialstream.gateway.body_layouts import BodyLayout
from spatialstream.gateway.problems import Problem
from spatialstream.model.properties.declared import Properties
from spatialstream.model.space import WGS84
from spatialstream.model.terms import TermRule
from spatialstream.records.layout import InputLayout

RULE = TermRule(properties=Properties.parse(["priority:number", "open:boolean", "seen:time"]))


def test_properties_are_sent_with_the_objects() -> None:
    body = b"id,t,lon,lat,text,prio,open,seen\n1,5,1,2,x,3.5,TRUE,2026-01-31T12:00\n2,5,1,2,x,,,\n"
    layout = InputLayout(time_zone="America/New_York")
    ((decoded, lines),) = BodyLayout("text", {"priority": "prio"}, layout).blocks(body, WGS84, RULE)
    said = {"priority": 3.5, "open": True, "seen": "2026-01-31T17:00:00+00:00"}
    first, second = (json.loads(line) for line in lines.splitlines())
    assert {name: first[name] for name in said} == said
    assert all(second.get(name) is None for name in said)
    assert [dict(decoded.batch.properties[i]) for i in range(2)] == [said | {"seen": 1_769_878_800_000}, {}]


def test_a_column_of_what_is_no_field_is_refused_with_those_that_are() -> None:
    with pytest.raises(Problem) as caught:
        list(BodyLayout("text", {"prority": "prio"}, InputLayout()).blocks(b"", WGS84, RULE))
    assert caught.value.errors[0]["parameter"] == "columns"
    assert "'prority' is not a field of objects; they are id, t, lon, lat" in caught.value.errors[0]["detail"]
