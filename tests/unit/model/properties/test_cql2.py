"""Conditions are read from CQL2 text and JSON, checked against the declared properties, and have a normal form."""

from random import Random

import pytest

from spatialstream.model.errors import RecordError
from spatialstream.model.properties.condition import cql2_of, decoded, encoded, text_of
from spatialstream.model.properties.cql2 import LONGEST_TEXT, parse_where
from spatialstream.model.properties.declared import ANY_PROPERTIES, NO_PROPERTIES
from tests.unit.model.properties.conditions import DECLARED, condition


def normal(where, declared=DECLARED):
    return text_of(parse_where(where, declared))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("country = 'de' AND priority >= 3", "country = 'de' AND priority >= 3"),
        ("3 <= priority and 'de' = country", "country = 'de' AND priority >= 3"),
        ("country='de' and (priority >= 3 and country = 'de')", "country = 'de' AND priority >= 3"),
        ("not (country <> 'de' or priority < 3)", "country = 'de' AND priority >= 3"),
        ("priority between 1 and 2.5", "priority <= 2.5 AND priority >= 1"),
        ("priority not between 1 and 2", "priority < 1 OR priority > 2"),
        ("country in ('fr', 'de', 'fr')", "country IN ('de', 'fr')"),
        ("country in ('de')", "country = 'de'"),
        ("country not in ('de', 'fr')", "country NOT IN ('de', 'fr')"),
        ('"the place" is not null', '"the place" IS NOT NULL'),
        ("not open = true", "open <> true"),
        ("at > TIMESTAMP('2026-01-01T00:00:00+01:00')", "at > TIMESTAMP('2025-12-31T23:00:00.000Z')"),
        ("at > DATE('2026-01-01')", "at > TIMESTAMP('2026-01-01T00:00:00.000Z')"),
        ("country like 'd%'", "country LIKE 'd%'"),
        ("country not like 'd%'", "country NOT LIKE 'd%'"),
        ("country like 'de'", "country = 'de'"),
        (r"country like '100\%%'", r"country LIKE '100\%%'"),
        ("country = 'it''s'", "country = 'it''s'"),
        (
            "(priority = 1 or country = 'de') and open = false",
            "open = false AND (country = 'de' OR priority = 1)",
        ),
    ],
)
def test_text_is_read_into_a_normal_form(text, expected):
    assert normal(text) == expected
    assert normal(expected) == expected


def test_all_forms_of_a_condition_are_the_same_condition():
    random = Random(7)
    for _ in range(500):
        read = parse_where(condition(random), DECLARED)
        assert decoded(encoded(read)) == read
        assert " " not in encoded(read)
        assert parse_where(cql2_of(read), DECLARED) == read
        if '"' not in str(cql2_of(read)):  # the text of names has no quotes in quotes; that of values may
            assert parse_where(text_of(read), DECLARED) == read


@pytest.mark.parametrize(
    ("where", "problem"),
    [
        ("contry = 'de'", "'contry' is not a property of the stream; did you mean 'country'?"),
        ("zzz = 1", "'zzz' is not a property of the stream; the properties are country, the place, priority"),
        ("priority = 'high'", "priority = 'high' is a string, and priority is declared as number; give a number"),
        ("country = 5", "country = 5.0 is a number, and country is declared as keyword; give a string"),
        ("at > '2026-01-01'", "is a string, and at is declared as time; give a time, such as TIMESTAMP("),
        ("open = 1", "is a number, and open is declared as boolean; give true or false"),
        ("priority = true", "true is a boolean, and priority is declared as number"),
        ("open < true", "< does not apply to open, which is a boolean; give = or <>"),
        ("open", "'open' alone is not a condition; give a comparison, such as open = true"),
        ("true", "true alone is not a condition"),
        ("priority like '3%'", "like does not apply to priority, which is a number"),
        ("country like '%e'", "like '%e' is not supported: a pattern is a prefix and one % at its end"),
        ("country like 'd_'", "is not supported: a pattern is a prefix"),
        ("country like depth", "like needs a pattern"),
        ("priority = depth", "= compares the properties priority and depth; compare a property with a value"),
        ("priority + 1 = 3", "+ is not supported; compare a property with a value"),
        ("priority = 1 + 2", "+ is not supported as a value"),
        ("casei(country) = 'de'", "casei is not supported; compare a property with a value"),
        ("s_intersects(geom, POINT(1 2))", "s_intersects is not supported; the operators are and or not"),
        ("t_after(at, DATE('2026-01-01'))", "t_after is not supported; the operators are"),
        ("country = null", "= null is never true; give country IS NULL (isNull)"),
        ("1 = 2", "= has no property; compare a property with a value"),
        ("at = INTERVAL('2026-01-01', '..')", "interval is not supported as a value"),
        ("at = TIMESTAMP('noon')", "'noon' is not a time"),
        ("at = TIMESTAMP('1795880000')", "'1795880000' is not a timestamp; give RFC 3339, such as"),
        ({"op": "=", "args": [{"property": "at"}, {"timestamp": "20180207"}]}, "'20180207' is not a timestamp"),
        (
            {"op": "isNull", "args": [{"property": "at"}], "not": True},
            "'not' has no meaning beside op and args; remove",
        ),
        ({"op": "isNull", "args": [{"property": "at", "op": "x"}]}, "'op' has no meaning beside property; remove it"),
        ("country in ('de', 5)", "5.0 is a number, and country is declared as keyword"),
        ("country = ", "is not CQL2 text: at character 11, expected"),
        ("country == 'de'", "is not CQL2 text: at character 10, expected"),
        ("priority = 1e999", "is not a finite number"),
        ("", "is not CQL2 text"),
        ("country = '" + "x" * 5_000 + "'", "has 5000 bytes; a keyword has at most 4096"),
        ("country = '" + "x" * LONGEST_TEXT + "'", f"give at most {LONGEST_TEXT}"),
        ({"op": "like", "args": [{"property": "country"}]}, "like has 1 arguments; it takes 2"),
        ({"op": "in", "args": [{"property": "country"}, []]}, "in needs a list of one value or more"),
        ({"op": "and", "args": []}, "and has no arguments"),
        ({"op": "=", "args": [{"property": "priority"}, 10**400]}, "is not a finite number"),
        ({"op": "=", "args": [{"property": "country"}, "\ud800"]}, "holds half of a surrogate pair"),
        ({"op": "in", "args": [{"property": "priority"}, list(range(1_001))]}, "more than 1000 values"),
        (5, "must be CQL2: text such as"),
        ({"property": "open"}, "'open' alone is not a condition"),
        ({"op": "=", "args": [{"property": "at"}, {"date": "2026-1-1"}]}, "'2026-1-1' is not a date; give YYYY-MM-DD"),
    ],
)
def test_what_is_wrong_is_told(where, problem):
    with pytest.raises(RecordError) as error:
        parse_where(where, DECLARED)
    assert error.value.field == "where"
    assert problem in error.value.problem


@pytest.mark.parametrize(
    "text",
    [
        "(" * 65 + "open = true" + ")" * 65,
        "not " * 65 + "open = true",
        "priority = " + "-" * 129 + "1",
        "priority = " + "+".join(["1"] * 130),
        "f(" * 1_000 + "open" + ")" * 1_000,
        "country = '" + "(" * 1_001 + "'",
    ],
)
def test_what_could_overflow_the_stack_of_the_parser_is_refused_before(text):
    with pytest.raises(RecordError, match="is nested too deeply"):
        parse_where(text, DECLARED)


def test_json_that_is_nested_too_deeply_is_refused():
    where = {"op": "=", "args": [{"property": "open"}, True]}
    for _ in range(66):
        where = {"op": "not", "args": [where]}
    with pytest.raises(RecordError, match="is nested too deeply"):
        parse_where(where, DECLARED)


def test_a_stream_without_properties_says_so_and_an_unknown_one_takes_any():
    with pytest.raises(RecordError, match="the stream declares no properties"):
        parse_where("priority >= 3", NO_PROPERTIES)
    assert normal("priority >= 3 and x = 'a'", ANY_PROPERTIES) == "priority >= 3 AND x = 'a'"
    with pytest.raises(RecordError, match="s_intersects is not supported"):
        parse_where("s_intersects(geom, POINT(1 2))", ANY_PROPERTIES)
    with pytest.raises(RecordError, match="values of several types: keyword, number"):
        parse_where("x in (1, 'a')", ANY_PROPERTIES)
