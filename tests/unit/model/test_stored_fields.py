"""What an object said: which fields a stream keeps, the text that they are, and the ones that a query wants."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.model.errors import RecordError, SettingError
from spatialstream.model.objects import ObjectBatch, parse_object
from spatialstream.model.properties.columns import PropertyColumns
from spatialstream.model.properties.declared import Properties
from spatialstream.model.space import WGS84
from spatialstream.model.stored_fields import (
    LONGEST_TEXT,
    StoredFields,
    chosen,
    continued,
    fragment,
    parse_chosen,
    parse_fields,
    stored_columns,
)
from spatialstream.model.terms import TermRule

DECLARED = Properties.parse(["country:keyword", "priority:number", "seen:time", "open:boolean", "a, b:keyword"])
FIELDS = ("priority", "text", "a, b", "open", "seen", "country")
RULE = TermRule(properties=DECLARED, fields=FIELDS)
TEXTS = st.one_of(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), st.sampled_from(['"', "\\", "\x7f\n"]))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "country": TEXTS,
    "a, b": TEXTS,
    "priority": st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**60), 2**60)),
    "seen": st.integers(-(10**12), 10**12),
    "open": st.booleans(),
}
RECORDS = st.fixed_dictionaries({"text": TEXTS}, optional=VALUES)


def record(said: dict[str, Any]) -> dict[str, Any]:
    return {"id": "a", "t": 0, "lon": 0, "lat": 0, **said}


@given(RECORDS)
def test_the_fields_of_an_object_are_json_with_the_values_that_were_sent(said: dict[str, Any]) -> None:
    stored = parse_object(record(said), WGS84, RULE).stored
    assert stored is not None
    shown = json.loads(f"{{{stored}}}")
    assert [*shown] == [name for name in FIELDS if name in said]
    assert {name: float(value) if name == "priority" else value for name, value in shown.items()} == {
        name: float(value) if name == "priority" else value for name, value in said.items()
    }


@given(st.lists(RECORDS, max_size=6))
def test_columns_make_the_same_text_as_one_record_does(given_: list[dict[str, Any]]) -> None:
    found = [parse_object(record(said), WGS84, RULE) for said in given_]
    texts = pa.array([said["text"] for said in given_], pa.string())
    made = stored_columns(FIELDS, texts, PropertyColumns.of([each.properties for each in found]))
    assert [made[i] for i in range(len(made))] == [each.stored for each in found]


@given(RECORDS, st.lists(st.sampled_from(FIELDS), unique=True))
def test_a_choice_is_what_a_stream_keeps_that_keeps_it_alone(said: dict[str, Any], some: list[str]) -> None:
    whole = parse_object(record(said), WGS84, RULE)
    wanted = parse_chosen(some, FIELDS)
    column = StoredFields.of([whole.stored]).column
    assert column is not None
    assert chosen(column, wanted).to_pylist() == [fragment(wanted, said["text"], whole.properties)]


def test_numbers_are_those_of_a_double_without_a_fraction_that_is_none() -> None:
    def shown(value: float) -> str:
        return fragment(("p",), None, [("p", value)])

    assert [shown(each) for each in (3.0, -0.5, 2.0**53 - 1, 1e300, 5e-324)] == [
        '"p": 3',
        '"p": -0.5',
        '"p": 9007199254740991',
        '"p": 1e+300',
        '"p": 5e-324',
    ]


def test_an_object_of_terms_has_no_text() -> None:
    sent = {"id": "a", "t": 0, "lon": 0, "lat": 0, "terms": ["Fire"], "priority": 2}
    assert parse_object(sent, WGS84, RULE).stored == '"priority": 2'


def test_a_stream_that_keeps_nothing_has_no_column() -> None:
    plain = ObjectBatch.of([parse_object(record({"text": "a"}), WGS84)])
    assert plain.stored.column is None
    assert "stored" not in plain.to_arrow().schema.names
    assert len(ObjectBatch.concat([plain, plain]).stored) == 2


def test_fields_travel_with_the_columns_of_objects() -> None:
    batch = ObjectBatch.of([parse_object(record({"text": text}), WGS84, RULE) for text in "abc"])
    both = ObjectBatch.concat([batch.slice(1, 3), batch])
    again = ObjectBatch.from_arrow(both.to_arrow()).take(np.array([4, 0]))
    assert [again[i].stored for i in range(2)] == ['"text": "c"', '"text": "b"']
    assert continued(pa.array(["", '"a": 1'], pa.large_string())).to_pylist() == ["", ', "a": 1']


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["txt"], "fields: 'txt' is neither 'text' nor a property that is declared; did you mean 'text'?"),
        (["zzz"], "give 'text', or declare it as a property"),
        (["text", "open", "text"], "'text' is there twice"),
    ],
)
def test_a_stream_keeps_its_text_and_its_properties_once(names: list[str], told: str) -> None:
    with pytest.raises(SettingError, match=told.replace("?", r"\?")):
        parse_fields(names, DECLARED)


def test_a_field_of_rows_cannot_be_kept() -> None:
    with pytest.raises(SettingError, match="rows have a 'score' of their own"):
        parse_fields(["score"], Properties.parse(["score:number"]))


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("text", "'text' is not a list of names"),
        ([1], "is not a list of names"),
        (["prio"], "'prio' is not kept by the stream; did you mean 'priority'? a stream with --fields .*prio does"),
        (["zzz"], "it keeps priority, text, a, b, open, seen, country; a stream with --fields .*,zzz does"),
    ],
)
def test_a_query_names_fields_that_the_stream_keeps(value: object, told: str) -> None:
    with pytest.raises(RecordError, match=told.replace("?", r"\?")):
        parse_chosen(value, FIELDS)


def test_a_query_of_a_stream_that_keeps_none_is_told_so() -> None:
    with pytest.raises(RecordError, match="it keeps none; a stream with --fields text does"):
        parse_chosen(["text"], ())
    assert parse_chosen(["b", "a", "b"], None) == ("b", "a"), "of a stream that is not known"


def test_a_text_that_is_too_long_or_no_text_is_refused_where_it_is_kept() -> None:
    most = LONGEST_TEXT - 2
    assert parse_object(record({"text": "x" * most}), WGS84, RULE).stored is not None
    with pytest.raises(RecordError, match=f"text: has {LONGEST_TEXT + 1} bytes as JSON; .* at most {LONGEST_TEXT}"):
        parse_object(record({"text": "x" * (most + 1)}), WGS84, RULE)
    with pytest.raises(RecordError, match="text: holds half of a surrogate pair"):
        parse_object(record({"text": "x\ud800"}), WGS84, RULE)
    assert parse_object(record({"text": "x" * (most + 1)}), WGS84).stored is None
