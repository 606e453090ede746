"""Declarations of properties, and the values of one record."""

import pytest

from spatialstream.model.errors import RecordError, SettingError
from spatialstream.model.properties.declared import LONGEST_KEYWORD, NO_PROPERTIES, Properties
from tests.unit.model.properties.conditions import DECLARED


def test_declarations_are_read_and_written():
    assert Properties.parse(DECLARED.declarations) == DECLARED
    assert Properties.parse(["a:b:number"]).names == ("a:b",)
    assert not NO_PROPERTIES
    assert Properties.parse([]) == NO_PROPERTIES


@pytest.mark.parametrize(
    ("declarations", "problem"),
    [
        (["country"], "'country' has no type; give name:type, such as country:keyword"),
        (
            ["country:text"],
            "'text' of 'country' is not a type of properties; give one of keyword, number,",
        ),
        (["a:number", "a:keyword"], "'a' is declared twice"),
        (["text:keyword"], "'text' is a field of every object"),
        ([" a:keyword"], "' a' is not the name of a property"),
        (['a"b:keyword'], "is not the name of a property"),
        (["a\n:keyword"], "is not the name of a property"),
        (["a" * 129 + ":keyword"], "is not the name of a property"),
        ([f"p{i}:number" for i in range(65)], "65 properties are too many; declare at most 64"),
    ],
)
def test_what_is_wrong_with_a_declaration_is_told(declarations, problem):
    with pytest.raises(SettingError) as error:
        Properties.parse(declarations)
    assert problem in error.value.problem


def test_values_are_of_the_declared_types_and_null_is_missing():
    record = {"country": "de", "priority": 3, "depth": None, "at": "2026-01-01", "open": False, "other": [1]}
    assert dict(DECLARED.read(record)) == {"country": "de", "priority": 3.0, "at": 1_767_225_600_000, "open": False}
    assert [type(value) for _, value in DECLARED.read(record)] == [str, float, int, bool]


@pytest.mark.parametrize(
    ("record", "field", "problem"),
    [
        ({"country": 5}, "country", "5 is a number, and country is declared as keyword; give a string"),
        ({"country": True}, "country", "True is a boolean, and country is declared as keyword"),
        ({"country": ["de"]}, "country", "is a list, and country is declared as keyword"),
        ({"country": "x" * (LONGEST_KEYWORD + 1)}, "country", "a keyword has at most 4096 bytes"),
        ({"country": "\ud800"}, "country", "holds half of a surrogate pair"),
        ({"priority": "3"}, "priority", "'3' is a string, and priority is declared as number; give a number"),
        ({"priority": True}, "priority", "True is a boolean, and priority is declared as number"),
        ({"priority": float("nan")}, "priority", "is not a finite number"),
        ({"priority": 10**400}, "priority", "is not a finite number"),
        ({"open": 1}, "open", "1 is a number, and open is declared as boolean; give true or false"),
        ({"open": "true"}, "open", "'true' is a string, and open is declared as boolean"),
        ({"at": 1.5}, "at", "1.5 is a number, and at is declared as time; give a time"),
        ({"at": "noon"}, "at", "'noon' is not a time"),
    ],
)
def test_a_value_of_another_type_is_told_with_both(record, field, problem):
    with pytest.raises(RecordError) as error:
        DECLARED.read(record)
    assert error.value.field == field
    assert problem in error.value.problem
