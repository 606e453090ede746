"""Classes of reasons: a few, whatever a record holds, and the ones that a person would name."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.model.space import WGS84
from spatialstream.model.terms import TermRule
from spatialstream.records.decode import decode_objects
from spatialstream.records.decode_queries import decode_queries
from spatialstream.records.reasons import REASONS, all_rejected, common_reasons, reason_class, told_reasons

OBJECT = {"id": "a", "t": 1, "lon": 1.0, "lat": 2.0, "text": "word"}
QUERY = {"id": "q", "type": "SKQ", "t": 1, "at": [1, 2], "k": 3, "keywords": ["a"], "duration": "1h"}


def classes(decode: Any, *records: Any) -> list[str]:
    lines = b"".join((each if isinstance(each, bytes) else json.dumps(each).encode()) + b"\n" for each in records)
    rejected = decode(pa.py_buffer(lines), 1, WGS84, TermRule()).rejected
    return [reason_class(reason) for reason in rejected.column("reason").to_pylist()]


def test_what_is_wrong_with_records() -> None:
    assert classes(decode_objects, OBJECT) == []
    wrong = [
        b"no json",
        [1],
        OBJECT | {"id": 7.5},
        OBJECT | {"t": "soon"},
        OBJECT | {"lon": 200},
        OBJECT | {"lat": None},
    ]
    assert classes(decode_objects, *wrong) == ["json", "json", "id", "t", "place", "place"]
    assert classes(decode_queries, QUERY) == []
    changes: list[dict[str, Any]] = [
        {"type": "X"},
        {"k": 0},
        {"keywords": ["!"]},
        {"duration": "x"},
        {"at": [1]},
        {"window": "1s"},
    ]
    assert classes(decode_queries, *(QUERY | each for each in changes)) == [next(iter(each)) for each in changes]


def test_objects_in_the_topic_of_queries_have_no_type() -> None:
    assert classes(decode_queries, *[OBJECT] * 3) == ["type"] * 3


@pytest.mark.parametrize(
    ("reason", "name"),
    [
        ("t: 7 is too old; retention has passed everything up to 9", "late"),
        ("t: 7 is in the future; the latest that is taken now is 5", "future"),
        ("type: 'is too old;' is not one of SRQ", "type"),
        ("record: 2000000 bytes are too many; the most is 1048576", "size"),
        ("region.box: must be a list of 4 numbers", "region"),
        ("clock: a watermark of 2000 bytes; the most is 1000", "clock"),
        ("whatever", "other"),
    ],
)
def test_names_of_classes(reason: str, name: str) -> None:
    assert reason_class(reason) == name


@given(st.text(max_size=40))
def test_there_are_no_others(reason: str) -> None:
    assert reason_class(reason) in REASONS


def test_reasons_that_differ_in_values_are_one() -> None:
    reasons = [
        "t: 'x' is not a time",
        *(f"lat: {i / 7} is out of range" for i in range(20_000)),
        "t: 'y' is not a time",
    ]
    found = common_reasons(reasons)
    assert found == {"lat: 0.0 is out of range": 20_000, "t: 'x' is not a time": 2}
    assert told_reasons(found) == ["20,000 such as: lat: 0.0 is out of range", "2 such as: t: 'x' is not a time"]
    assert told_reasons(found, 1) == told_reasons(found)[:1]
    assert common_reasons([]) == {}


def test_what_is_said_of_everything() -> None:
    assert all_rejected(["objects", "queries"]) == "every object and every query was rejected"
