"""The fields of a query, one by one."""

import re

import pytest

from spatialstream.model.errors import RecordError
from spatialstream.model.queries import parse_query
from spatialstream.model.query_fields import Faults, FieldReader, check_fields, parse_count, parse_step
from spatialstream.model.space import WGS84, Space
from spatialstream.model.terms import TermRule
from tests.unit.model.test_queries import record


def test_what_is_wrong_is_collected_and_the_default_is_read_in_its_place():
    faults = Faults()
    read = FieldReader({"k": 0, "step": "1s", "window": "x"}, {"k", "step"}, faults)

    assert (read("k", 1, parse_count), read("step", None, parse_step), read("window", 7, parse_step)) == (1, 1000, 7)
    assert read.among(("step", "window")) == {"step": "1s"}
    with pytest.raises(RecordError, match="k: 0 is out of range"):
        faults.check()


def test_names_that_are_no_fields_are_refused():
    check_fields(["id", "region"])
    with pytest.raises(RecordError, match="keyword: is not a query field; did you mean keywords"):
        check_fields(["id", "keyword"])


@pytest.mark.parametrize("kind", ["SRQ", "SKQ", "STQ", "CRQ", "CKQ", "CTQ", "CANCEL"])
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("keyword", "did you mean keywords?"),
        ("keywrods", "did you mean keywords?"),
        ("windows", "did you mean window?"),
        ("Duration", "did you mean duration?"),
        (
            "price",
            "the fields are id, type, t, region, at, keywords, any, none, where, fields, k, duration, window, step, "
            "words, radius, halfLife, between, weights, expansions, weighting, by, title",
        ),
    ],
)
@pytest.mark.parametrize("value", [["fire"], None])
def test_a_field_that_is_none_is_refused_with_the_one_that_was_meant(kind, name, told, value):
    asked = {"id": "q", "type": "CANCEL", "t": 9} if kind == "CANCEL" else record(kind)
    with pytest.raises(RecordError, match=f"^{name}: is not a query field; {re.escape(told)}$"):
        parse_query(asked | {name: value}, WGS84)


def test_a_long_name_is_told_by_its_beginning():
    with pytest.raises(RecordError) as told:
        parse_query(record("CRQ") | {"x" * 100_000: 1}, WGS84)
    assert len(str(told.value)) < 250


@pytest.mark.parametrize(
    ("keywords", "terms"),
    [(None, ()), ([], ()), (["Fire"], ("fire",)), (["Fire risk", "RISK", "e\u0301"], ("fire", "risk", "é"))],
)
def test_keywords_become_terms(keywords, terms):
    assert parse_query(record("CRQ", keywords=keywords), WGS84).predicate.keywords == terms


def test_k_has_an_upper_end():
    assert parse_query(record("SKQ", k=2**31 - 1), WGS84).k == 2**31 - 1
    with pytest.raises(RecordError, match="k: 2147483648 is out of range"):
        parse_query(record("SKQ", k=2**31), WGS84)


def test_a_keyword_that_the_rule_leaves_nothing_of_is_told():
    with pytest.raises(RecordError, match="keywords: 'the' has no term"):
        parse_query(record("CRQ", keywords=["fire", "the"]), WGS84, TermRule(frozenset({"the"})))


def test_planes_name_their_axes():
    with pytest.raises(RecordError, match=r"at: must be a list of 2 numbers, \[x, y\]"):
        parse_query(record("SKQ", at=5), Space.planar(0, 0, 1, 1))
