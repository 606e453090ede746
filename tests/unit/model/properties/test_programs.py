"""Whether objects satisfy conditions: pairs by the hundred thousand against three-valued logic in plain Python."""

from random import Random

import numpy as np
import pytest

from spatialstream.model.properties.columns import PropertyColumns
from spatialstream.model.properties.condition import cql2_of
from spatialstream.model.properties.cql2 import parse_where
from spatialstream.model.properties.programs import Programs
from spatialstream.model.properties.table import PropertyTable
from spatialstream.oracle.conditions import satisfies, truth
from tests.lengths import examples
from tests.unit.model.properties.conditions import DECLARED, condition, values


def table_of(given):
    return PropertyTable.of(PropertyColumns.of([tuple(each.items()) for each in given]))


def holds(where, given):
    """Whether objects with these values satisfy a condition, by the kernel."""
    programs = Programs.of([parse_where(where, DECLARED)])
    return programs.hold(table_of(given), np.zeros(len(given)), np.arange(len(given))).tolist()


@pytest.mark.parametrize(
    ("where", "country", "priority", "expected"),
    [
        ({"op": "=", "args": [{"property": "country"}, "de"]}, "de", 3, True),
        ({"op": "=", "args": [{"property": "country"}, "de"]}, "DE", 3, False),
        ({"op": "=", "args": [{"property": "country"}, "de"]}, None, 3, None),
        ({"op": "<>", "args": [{"property": "country"}, "de"]}, None, 3, None),
        ({"op": "not", "args": [{"op": "=", "args": [{"property": "country"}, "de"]}]}, None, 3, None),
        ({"op": "not", "args": [{"op": "in", "args": [{"property": "country"}, ["de", "fr"]]}]}, None, 3, None),
        ({"op": "not", "args": [{"op": "in", "args": [{"property": "country"}, ["de", "fr"]]}]}, "it", 3, True),
        ({"op": "isNull", "args": [{"property": "country"}]}, None, 3, True),
        ({"op": "not", "args": [{"op": "isNull", "args": [{"property": "country"}]}]}, None, 3, False),
        ({"op": "between", "args": [{"property": "priority"}, 3, 4]}, "de", 3, True),
        ({"op": "between", "args": [{"property": "priority"}, 3, 4]}, "de", None, None),
        ({"op": "between", "args": [{"property": "priority"}, 4, 3]}, "de", 3, False),
        ({"op": "<", "args": [2, {"property": "priority"}]}, "de", 3, True),
        ({"op": "like", "args": [{"property": "country"}, "d%"]}, "de", 3, True),
        ({"op": "like", "args": [{"property": "country"}, "d"]}, "de", 3, False),
        ({"op": "like", "args": [{"property": "country"}, "%"]}, None, 3, None),
        (
            # unknown or true is true; unknown and false is false
            {
                "op": "or",
                "args": [
                    {"op": "=", "args": [{"property": "country"}, "de"]},
                    {"op": ">", "args": [{"property": "priority"}, 2]},
                ],
            },
            None,
            3,
            True,
        ),
        (
            {
                "op": "not",
                "args": [
                    {
                        "op": "and",
                        "args": [
                            {"op": "=", "args": [{"property": "country"}, "de"]},
                            {"op": ">", "args": [{"property": "priority"}, 5]},
                        ],
                    }
                ],
            },
            None,
            3,
            True,
        ),
    ],
)
def test_a_missing_value_is_unknown_and_only_what_is_true_is_found(where, country, priority, expected):
    given = {"country": country, "priority": None if priority is None else float(priority)}
    given = {name: value for name, value in given.items() if value is not None}
    assert truth(where, given) is expected
    assert holds(where, [given]) == [expected is True]


def test_strings_are_compared_by_code_points_and_negative_numbers_as_numbers():
    given = [{"country": each} for each in ("", "a", "aa", "b", "z", "é", "日", "\U0001f600")]
    for at, each in enumerate(given):
        where = {"op": ">=", "args": [{"property": "country"}, each["country"]]}
        assert holds(where, given) == [False] * at + [True] * (len(given) - at)
    numbers = [-1e300, -2.5, -5e-324, 0.0, 5e-324, 0.1, 1.0, 1e300]
    for at, number in enumerate(numbers):
        where = {"op": "<", "args": [{"property": "priority"}, number]}
        assert holds(where, [{"priority": each} for each in numbers]) == [True] * at + [False] * (len(numbers) - at)
    assert holds({"op": "=", "args": [{"property": "priority"}, -0.0]}, [{"priority": 0.0}]) == [True]


def test_pairs_of_random_objects_and_conditions_are_as_in_three_valued_logic():
    random = Random(33)
    found = 0
    for _ in range(examples(10, 100)):
        objects = [values(random) for _ in range(100)]
        asked = [condition(random) for _ in range(100)]
        conditions = [parse_where(each, DECLARED) for each in asked]
        programs, rows = np.divmod(np.arange(len(asked) * len(objects)), len(objects))
        result = Programs.of(conditions).hold(table_of(objects), programs, rows)
        expected = [satisfies(each, one) for each in asked for one in objects]
        assert result.tolist() == expected
        for normal, each in zip(conditions, asked, strict=True):
            assert [satisfies(cql2_of(normal), one) for one in objects[:5]] == [
                satisfies(each, one) for one in objects[:5]
            ]
        found += sum(expected)
    assert 0.2 < found / (examples(10, 100) * 10_000) < 0.8


def test_objects_without_properties_have_missing_values_alone():
    programs = Programs.of([parse_where({"op": "isNull", "args": [{"property": "open"}]}, DECLARED)])
    assert programs.hold(None, np.zeros(2), np.arange(2)).tolist() == [True, True]
    others = PropertyTable.of(PropertyColumns.of([(("depth", 1.0),)]))
    assert programs.hold(others, np.zeros(1), np.zeros(1)).tolist() == [True]
