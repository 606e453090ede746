"""Keyword expressions: their canonical form, as literals, and as columns."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.local.contents import content_digests
from spatialstream.model.errors import RecordError
from spatialstream.model.expressions import Expression, absorbed, expanded, has_marks, posted, searched
from spatialstream.model.keyword_terms import as_terms
from spatialstream.model.properties.cql2 import parse_where
from spatialstream.model.queries import QueryBatch, parse_query
from spatialstream.model.space import WGS84
from spatialstream.model.terms import ANY_WORDS, TermLists, TermRule
from spatialstream.records.decode_queries import decode_queries
from spatialstream.records.encode import query_lines
from tests.streams import CONDITIONS, PROPERTIES, RULE, TERMS, expressions

TYPES = {
    "SRQ": {"region": {"box": [0, 0, 1, 1]}, "duration": 1},
    "SKQ": {"at": [0, 0], "k": 1, "duration": 1},
    "STQ": {"region": {"box": [0, 0, 1, 1]}, "k": 1, "duration": 1},
    "CRQ": {"region": {"box": [0, 0, 1, 1]}},
    "CKQ": {"at": [0, 0], "k": 1},
    "CTQ": {"region": {"box": [0, 0, 1, 1]}, "k": 1, "window": 1, "step": 1},
}
MARKED = parse_where({"op": "=", "args": [{"property": "country"}, "a b|c!d?"]}, PROPERTIES)
WHERE = st.sampled_from([None, None, MARKED, *CONDITIONS])
EXPRESSIONS = st.builds(lambda parts, where: Expression(*parts, where), expressions(), WHERE)


def asked(kind="CRQ", **text):
    return {"id": "q", "type": kind, "t": 0} | TYPES[kind] | text


def parsed(**text):
    return parse_query(asked(**text), WGS84).predicate.expression


@pytest.mark.parametrize("kind", TYPES)
def test_every_type_takes_expressions(kind):
    text = {"any": [["flood", "river"], ["fire"]], "none": ["drill"]}
    query = parse_query(asked(kind, **text), WGS84)
    assert query.predicate.expression == Expression((), (("fire",), ("flood", "river")), ("drill",))
    assert parse_query(query.to_record(), WGS84) == query
    assert QueryBatch.of([query])[0] == query
    line = json.dumps(asked(kind, **text)).encode()
    decoded = decode_queries(line).batch
    assert decoded[0] == query
    assert decode_queries(bytes(query_lines(decoded))).batch[0] == query


@pytest.mark.parametrize(
    "groups",
    [
        [["a", "b"], ["c"]],
        [["c"], ["B a"]],
        [["c"], ["a", "b"], ["b", "a", "x"], ["c", "c"]],
        [["c", "x"], ["c"], ["a", "b"]],
    ],
)
def test_spellings_of_one_expression_are_one(groups):
    assert parsed(any=groups) == Expression((), (("a", "b"), ("c",)))


def test_groups_that_another_absorbs_do_not_count():
    most = [[f"t{i}"] for i in range(64)]
    assert parsed(any=[*most, ["t1", "t2"], ["t3"]]) == parsed(any=most)


def test_a_single_group_is_all_keywords():
    assert parsed(any=[["b", "a"], ["a", "b", "c"]]) == Expression(("a", "b"))


def some(count, mark="w"):
    return [f"{mark}{i}" for i in range(count)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            {"keywords": some(257)},
            "keywords: has 257 words; a query may have 256 (setting query-words)",
        ),
        ({"keywords": [" ".join(some(257))]}, "keywords: has 257 words; "),
        ({"none": some(300)}, "none: has 300 words; "),
        ({"keywords": some(200), "none": some(57)}, "keywords: has 200 words of 257 in all; a query may have 256 ("),
        ({"any": [some(4, f"g{i}x") for i in range(64)], "none": ["a"]}, "any: has 256 words of 257 in all; "),
    ],
)
def test_the_words_of_a_query_are_bounded(text, reason):
    record = asked(**text)
    with pytest.raises(RecordError) as refused:
        parse_query(record, WGS84)
    assert str(refused.value).startswith(reason)
    line = json.dumps(record).encode()
    assert decode_queries(line).rejected["reason"].to_pylist() == [str(refused.value)]
    for rule in (TermRule(query_words=300), ANY_WORDS):
        assert decode_queries(line, rule=rule).batch[0] == parse_query(record, WGS84, rule)


@pytest.mark.parametrize(
    "text",
    [
        {"keywords": some(200) * 2, "none": some(56)},
        {"any": [some(4, f"g{i}x") for i in range(64)]},
        {"any": [["a"], *(["a", *some(100, f"g{i}x")] for i in range(64))], "none": some(255)},  # all but one absorbed
    ],
)
def test_words_count_once_and_those_of_absorbed_groups_not_at_all(text):
    decoded = decode_queries(json.dumps(asked(**text)).encode())
    assert not decoded.rejected.num_rows
    assert decoded.batch[0].predicate.expression == parsed(**text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ({"any": []}, "any: has 0 groups; give 1 to 64, or remove it"),
        ({"any": [["a"]] * 257}, "any: has 257 groups; give 1 to 64, or remove it"),
        (
            {"any": [[f"t{i}"] for i in range(65)]},
            "any: has 65 groups after removing redundant ones; give at most 64",
        ),
        ({"any": [["a"], []]}, "any: has an empty group, which would match every text; remove the group"),
        ({"any": ["a"]}, r"any: \['a'\] is not a list of groups, each a list of strings"),
        ({"any": [["a"]], "keywords": ["b"]}, "any: cannot be combined with keywords; give one of the two"),
        ({"any": [[5]]}, r"any: \[5\] is not a list of strings"),
        ({"none": "a"}, "none: 'a' is not a list of strings"),
        ({"any": [["a"], ["!"]]}, "any: '!' has no term: no word character is left after term extraction"),
    ],
)
def test_what_is_no_expression_is_told(text, reason):
    with pytest.raises(RecordError, match=f"^{reason}$"):
        parsed(**text)


def test_what_says_nothing_is_no_condition():
    assert parsed(any=[["a"]] * 64, keywords=[]) == Expression(("a",))
    assert parsed(none=[], any=None, keywords=None) == Expression()


@given(st.lists(st.lists(st.sampled_from(TERMS), min_size=1), min_size=1, max_size=6))
def test_absorbed_groups_hold_for_the_same_texts(groups):
    kept = absorbed(groups)
    assert not any(set(one) < set(other) for one, other in itertools.permutations(kept, 2))
    for size in range(len(TERMS) + 1):
        for terms in itertools.combinations(TERMS, size):
            assert any(set(g) <= set(terms) for g in groups) == any(set(g) <= set(terms) for g in kept)


@given(st.lists(EXPRESSIONS, max_size=8))
def test_columns_of_literals_are_the_expressions(drawn):
    lists = TermLists.of([each.literals for each in drawn])
    assert [Expression.of(lists[i]) for i in range(len(drawn))] == drawn
    assert has_marks(lists) == any(each.any or each.none or each.where for each in drawn)
    for columns in (lists, TermLists.concat([lists, lists]).take(np.arange(len(drawn)))):
        parts = expanded(columns)
        found = [[] for _ in drawn]
        for row, owner in enumerate(parts.owner.tolist()):
            found[owner].append(set(parts.groups[row]))
        assert [sorted(map(sorted, groups)) for groups in found] == [sorted(map(sorted, each.groups)) for each in drawn]
        assert [set(parts.none[i]) for i in range(len(drawn))] == [set(each.none) for each in drawn]
        assert [None if i < 0 else parts.conditions[i] for i in parts.where.tolist()] == [each.where for each in drawn]
        assert len({*parts.conditions}) == len(parts.conditions)
        assert [set(searched(columns)[i]) for i in range(len(drawn))] == [
            {term for group in each.groups for term in group} for each in drawn
        ]


@given(st.lists(EXPRESSIONS, max_size=8))
def test_posted_columns_have_a_conjunction_for_each_group_and_set_of_terms(drawn):
    lists = TermLists.of([each.literals for each in drawn])
    for columns in (lists, TermLists.concat([lists, lists]).take(np.arange(len(drawn)))):
        parts, names = posted(expanded(columns))
        terms = [None if each.where is None else as_terms(each.where) for each in drawn]
        assert names == tuple(sorted({name for each in terms if each for name in each.names}))
        found = [[] for _ in drawn]
        assert parts.owner.tolist() == sorted(parts.owner.tolist())
        for row, owner in enumerate(parts.owner.tolist()):
            found[owner].append(sorted(parts.groups[row]))
        sets = [((),) if each is None else each.alternatives for each in terms]
        assert list(map(sorted, found)) == [
            sorted(sorted({*group, *more}) for group in each.groups for more in alternatives)
            for each, alternatives in zip(drawn, sets, strict=True)
        ]
        assert [set(parts.none[i]) for i in range(len(drawn))] == [set(each.none) for each in drawn]
        assert [None if i < 0 else parts.conditions[i] for i in parts.where.tolist()] == [
            None if each is None else each.rest for each in terms
        ]


@pytest.mark.parametrize("kind", TYPES)
def test_every_type_takes_conditions_on_properties(kind):
    given = {"where": "country = 'a b|c!d?'", "keywords": ["fire"]}
    query = parse_query(asked(kind, **given), WGS84, RULE)
    assert query.predicate.expression == Expression(("fire",), where=MARKED)
    assert query.to_record()["where"] == "country = 'a b|c!d?'"
    assert parse_query(query.to_record(), WGS84, RULE) == query
    assert parse_query(asked(kind, **given | {"where": "'a b|c!d?' = country"}), WGS84, RULE) == query
    line = json.dumps(asked(kind, **given)).encode()
    decoded = decode_queries(line, rule=RULE).batch
    assert decoded[0] == query
    assert decode_queries(bytes(query_lines(decoded)), rule=RULE).batch[0] == query
    other = parse_query(asked(kind, **given | {"where": "country = 'a b|c!d'"}), WGS84, RULE)
    assert (
        content_digests(QueryBatch.of([query, other]))[0] != content_digests(QueryBatch.of([query, other]))[1]
    ).any()
    (reason,) = decode_queries(line).rejected.column("reason").to_pylist()
    assert reason.startswith("where: the stream declares no properties")
