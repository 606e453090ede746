"""Expressions of columns: names, paths, and several columns as one text or one time."""

from __future__ import annotations

import pytest

from spatialstream.model.errors import RecordError, SettingError
from spatialstream.model.properties.declared import Properties
from spatialstream.model.terms import DEFAULT_RULE, TermRule
from spatialstream.records.columns import check_fields, lookup, parse_columns, value_of


def test_columns_are_parsed_from_text():
    assert parse_columns("id=code, text = headline") == {"id": "code", "text": "headline"}
    assert parse_columns("") == {}
    rule = TermRule(properties=Properties.parse(["name:keyword"]))
    check_fields(parse_columns("name=x, id=y"), rule)
    with pytest.raises(
        SettingError,
        match="columns: 'name' is not a field of objects; they are id, t, lon, lat, x, y, text, terms; declare it, if",
    ):
        check_fields(parse_columns("name=x"), DEFAULT_RULE)
    for text in ("id", "id=", "=code"):
        with pytest.raises(SettingError, match="columns: "):
            parse_columns(text)


def test_a_path_goes_into_nested_values_and_a_whole_name_comes_first() -> None:
    record = {"a": {"b": [7, {"c": 8}]}, "a.b": 9}
    assert lookup(record, "a.b") == (True, 9)
    assert lookup(record, "a.b[1].c") == (True, 8)
    assert lookup(record, "a.x") == (False, None)
    assert lookup(record, "a.b[5]") == (False, None)


def test_text_joins_what_is_there() -> None:
    record = {"title": "Fire", "body": None, "place": "Mitte"}
    assert value_of(record, "text", "title+body+place") == (True, "Fire Mitte")
    assert value_of({"title": "Fire"}, "text", "title+body") == (False, "Fire")
    assert value_of({"title": "", "body": None}, "text", "title+body") == (True, None)
    assert value_of({"title+body": "as it is"}, "text", "title+body") == (True, "as it is")


def test_a_date_is_made_of_year_month_and_day() -> None:
    assert value_of({"year": "2019", "month": 3, "day": "7"}, "t", "year-month-day") == (True, "2019-03-07")
    assert value_of({"year": "", "month": "", "day": ""}, "t", "year-month-day") == (True, None)
    assert value_of({"created-at": 5}, "t", "created-at") == (True, 5)
    with pytest.raises(RecordError, match="t: has no month"):
        value_of({"year": 2019, "month": None, "day": 7}, "t", "year-month-day")


def test_a_time_is_joined_of_a_date_and_a_time_of_day() -> None:
    assert value_of({"date": "2019-03-07", "time": "08:30"}, "t", "date+time") == (True, "2019-03-07 08:30")
    record = {"y": 2019, "m": 3, "d": 7, "time": "08:30"}
    assert value_of(record, "t", "y-m-d+time") == (True, "2019-03-07 08:30")
    with pytest.raises(RecordError, match="t: has no time"):
        value_of({"date": "2019-03-07", "time": ""}, "t", "date+time")


def test_only_texts_and_times_are_made_of_several_columns() -> None:
    assert value_of({"a": 1, "b": 2}, "id", "a+b") == (False, None)
    assert value_of({"a": 1, "b": 2}, "lon", "a-b") == (False, None)
