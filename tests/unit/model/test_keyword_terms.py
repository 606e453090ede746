"""Conditions as terms: whatever becomes a term, an object is found if and only if the condition is true."""

from random import Random

import numpy as np
import pyarrow as pa
import pytest

from spatialstream.model.keyword_terms import (
    MOST_ALTERNATIVES,
    as_terms,
    asked_of,
    beside,
    keyword_lists,
    with_few_values,
    with_keywords,
)
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.properties.columns import PropertyColumns
from spatialstream.model.properties.condition import Both, Either, cql2_of, text_of
from spatialstream.model.properties.cql2 import parse_where
from spatialstream.model.terms import TermLists, extract_terms
from spatialstream.oracle.conditions import satisfies
from tests.lengths import examples
from tests.unit.model.properties.conditions import DECLARED, KEYWORDS, condition, values


def terms_of(given):
    """The terms of one object's keywords, from their definition."""
    return {f'"{name}"{given[name]}' for name in ("country", "the place") if name in given}


def leaves_of(where):
    """All tests of a condition."""
    return [test for part in where.parts for test in leaves_of(part)] if isinstance(where, Both | Either) else [where]


def found(where, given):
    """Whether an index finds an object, and what is left of the condition is true."""
    parts = as_terms(where)
    listed = any(terms_of(given).issuperset(terms) for terms in parts.alternatives)
    return listed and (parts.rest is None or satisfies(cql2_of(parts.rest), given))


@pytest.mark.parametrize("seed", range(8))
def test_what_is_found_is_what_satisfies(seed):
    random = Random(seed)
    posted = true = 0
    for _ in range(examples(300, 10_000)):
        where = parse_where(condition(random), DECLARED)
        parts = as_terms(where)
        assert 1 <= len(parts.alternatives) <= MOST_ALTERNATIVES
        assert bool(parts.names) == any(parts.alternatives)
        posted += bool(parts.names)
        for _ in range(20):
            given = values(random)
            if random.random() < 0.7:  # few satisfy by chance
                given |= {test.property: random.choice(test.values) for test in leaves_of(where) if test.op == "in"}
            expected = satisfies(cql2_of(where), given)
            assert found(where, given) == expected, (text_of(where), given)
            true += expected and bool(parts.names)
    assert posted > 15
    assert true > 60


@pytest.mark.parametrize(
    ("where", "alternatives", "rest"),
    [
        ("country = 'de'", ['"country"de'], None),
        ("country = 'de' AND priority >= 3", ['"country"de'], "priority >= 3"),
        ("country IN ('de', 'fr')", ['"country"de', '"country"fr'], None),
        (
            "country IN ('de', 'fr') AND \"the place\" = 'x' AND open = true",
            ['"the place"x "country"de', '"the place"x "country"fr'],
            "open = true",
        ),
        ("country = 'de' AND country = 'fr'", ['"country"de "country"fr'], None),
        ("country = 'de' AND country IN ('de', 'fr')", ['"country"de', '"country"de "country"fr'], None),
        ("country = 'de' OR priority >= 3", [""], "country = 'de' OR priority >= 3"),
        ("country <> 'de'", [""], "country <> 'de'"),
        ("country LIKE 'd%'", [""], "country LIKE 'd%'"),
        ("country IS NULL", [""], "country IS NULL"),
        ("priority = 3", [""], "priority = 3"),
        (
            "country = 'de' AND (country = 'fr' OR \"the place\" = 'x')",
            ['"country"de'],
            "country = 'fr' OR \"the place\" = 'x'",
        ),
    ],
)
def test_equality_of_keywords_becomes_terms_where_all_objects_have_to_satisfy_it(where, alternatives, rest):
    parts = as_terms(parse_where(where, DECLARED))
    assert sorted(" ".join(each) for each in parts.alternatives) == sorted(alternatives)
    assert (None if parts.rest is None else text_of(parts.rest)) == rest


def test_leaves_of_many_values_are_left_those_of_few_come_first():
    def listed(name, n):
        return f"{name} IN ({', '.join(repr(str(i)) for i in range(n))})"

    assert len(as_terms(parse_where(listed("country", 16), DECLARED)).alternatives) == 16
    many = parse_where(listed("country", 17), DECLARED)
    assert as_terms(many).rest == many
    both = as_terms(parse_where(f"{listed('country', 9)} AND {listed(chr(34) + 'the place' + chr(34), 2)}", DECLARED))
    assert both.names == ("the place",)
    assert both.rest is not None
    assert text_of(both.rest) == listed("country", 9)


def test_no_two_properties_and_no_word_have_the_same_term():
    pairs = [(name, value) for name in ("a", "ab", "a'", "country") for value in [*KEYWORDS, "b", '"a"', "'"]]
    terms = {f'"{name}"{value}' for name, value in pairs}
    assert len(terms) == len({*pairs})
    assert not any(term.startswith('"') for each in terms for term in extract_terms(each))


def test_objects_have_the_terms_of_their_keywords_after_those_of_their_texts():
    random = Random(1)
    given = [values(random) for _ in range(200)]
    words = [tuple(random.sample(("a", "b", "c", "de"), random.randrange(4))) for _ in given]
    batch = ObjectBatch.of(
        [SpatialObject("o", 0, 0.0, 0.0, terms, (*said.items(),)) for terms, said in zip(words, given, strict=True)]
    )
    for part, first in ((batch, 0), (batch.slice(7, 90), 7), (batch.take(np.arange(50, 60)), 50)):
        names = ["country", "the place", "priority", "nothing"]
        joined = with_keywords(part.terms, part.properties, names)
        assert joined.vocabulary[: len(part.terms.vocabulary)].equals(part.terms.vocabulary)
        assert len({*joined.vocabulary.to_pylist()}) == len(joined.vocabulary)
        for i in range(len(part)):
            own, n = joined[i], len(words[first + i])
            assert tuple(own[:n]) == words[first + i]
            assert {*own[n:]} == terms_of(given[first + i])
            assert len(own) == n + len(terms_of(given[first + i]))
        assert with_keywords(part.terms, part.properties, []) is part.terms
        assert with_keywords(part.terms, part.properties, ["priority", "nothing"]) is part.terms


def test_columns_without_values_have_no_terms():
    for column in (pa.nulls(3, pa.string()), pa.array([], pa.string())):
        found = keyword_lists(PropertyColumns(len(column), {"p": column}), "p")
        assert found.offsets.tolist() == [0] * (len(column) + 1)
        assert len(found.codes) == 0
    empty = keyword_lists(PropertyColumns(2, {"p": pa.array(["", None])}), "p")
    assert [empty[0], empty[1]] == [['"p"'], []]


def test_many_values_have_a_term_each():
    random = Random(2)
    values = [f"{'x' * random.randrange(20)}{random.randrange(3_000)}" for _ in range(10_000)]
    lists = keyword_lists(PropertyColumns(len(values), {"p": pa.array(["", *values], pa.string()).slice(1)}), "p")
    assert [lists.vocabulary[int(code)].as_py() for code in lists.codes] == [f'"p"{value}' for value in values]
    assert len(lists.vocabulary) == len({*values})


def test_there_are_terms_up_to_a_number_of_values():
    terms = TermLists.of([("a",), (), ("a", "b"), ()] * 100)
    values = pa.array([None, "x", "y", "z"] * 100, pa.string())
    assert with_few_values(terms, values, "p", 2) is None
    for most in (3, 400):
        found = with_few_values(terms, values, "p", most)
        assert found is not None
        assert [found[i] for i in range(4)] == [["a"], ['"p"x'], ["a", "b", '"p"y'], ['"p"z']]
        assert len(found.vocabulary) == 5
    assert with_few_values(terms, values, "p", 0) is None
    assert with_few_values(terms, pa.nulls(400, pa.string()), "p", 0) is terms


def test_sets_are_joined_one_by_one():
    one, other = TermLists.of([("a", "b"), (), ("b",)]), TermLists.of([(), ("x",), ("y", "x")])
    joined = beside(one, other)
    assert [joined[i] for i in range(3)] == [["a", "b"], ["x"], ["b", "y", "x"]]


def test_tests_of_properties_without_terms_are_left():
    where = parse_where("country = 'de' AND \"the place\" IN ('x', 'y') AND open = true", DECLARED)
    parts = as_terms(where, frozenset(["country"]))
    assert parts.alternatives == (('"the place"x',), ('"the place"y',))
    assert parts.names == ("the place",)
    assert parts.rest is not None
    assert text_of(parts.rest) == "country = 'de' AND open = true"
    assert as_terms(where, frozenset(["country", "the place"])).rest == where
    assert as_terms(where, frozenset(["open"])) == as_terms(where)
    assert asked_of(where) == {"country", "the place"}
    assert asked_of(parse_where("NOT country = 'de' AND open = true", DECLARED)) == frozenset()
