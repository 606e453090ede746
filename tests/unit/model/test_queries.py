"""Queries: one at a time and as columns."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.model.errors import RecordError, StateError
from spatialstream.model.kinds import CANCEL, CODE, QueryType
from spatialstream.model.queries import (
    Cancellation,
    Everything,
    Lifetime,
    Nearest,
    Predicate,
    Query,
    QueryBatch,
    TopTerms,
    coded,
    nobody,
    parse_query,
)
from spatialstream.model.regions import Box, Circle
from spatialstream.model.schema import BY, LONGEST_BY, QUERIES
from spatialstream.model.space import WGS84

BOX = {"box": [0, 1, 2, 3]}
GOOD = {
    "SRQ": {"region": BOX, "duration": "1h"},
    "SKQ": {"at": [5, 6], "k": 3, "duration": "1h"},
    "STQ": {"region": {"circle": [5, 6, 7]}, "k": 3, "duration": 0},
    "CRQ": {"region": BOX, "duration": "1h"},
    "CKQ": {"at": [5, 6], "k": 3, "duration": "1h"},
    "CTQ": {"region": BOX, "k": 3, "duration": "1h", "window": "5m", "step": "1m"},
}
FIELDS = {"region": BOX, "at": [5, 6], "k": 3, "duration": "1h", "window": "5m", "step": "1m"}
REGIONS = st.none() | st.builds(Box, *[st.floats(-9, 9)] * 4) | st.builds(Circle, *[st.floats(0, 9)] * 3)
PREDICATES = st.builds(Predicate, REGIONS, st.lists(st.sampled_from("abcd"), unique=True, max_size=3).map(tuple))
IDS, TIMES, SPANS = (
    st.text(st.characters(codec="utf-8"), max_size=3),
    st.integers(-(10**9), 10**9),
    st.integers(0, 10**9),
)
COUNTS = st.integers(1, 2**31 - 1)
SELECTIONS = st.one_of(
    st.builds(Everything), st.builds(Nearest, st.floats(-9, 9), st.floats(-9, 9), COUNTS), st.builds(TopTerms, COUNTS)
)
LIFETIMES = st.builds(Lifetime, SPANS, st.booleans(), st.none() | SPANS, st.none() | SPANS)
BYS = st.just("") | st.text(st.characters(codec="utf-8"), max_size=3)
LISTS = st.lists(
    st.builds(Query, IDS, TIMES, PREDICATES, SELECTIONS, LIFETIMES, BYS) | st.builds(Cancellation, IDS, TIMES),
    max_size=6,
)


def record(kind, **changes):
    return {"id": "q", "type": kind, "t": 9} | GOOD.get(kind, {}) | changes


def items(batch):
    return [batch[i] for i in range(len(batch))]


def said(queries):
    """Who has registered each, which two queries need not agree on to be the same."""
    return [getattr(query, "by", "") for query in queries]


@pytest.mark.parametrize(
    ("kind", "predicate", "selection", "lifetime"),
    [
        ("SRQ", Predicate(Box(0, 1, 2, 3)), Everything(), Lifetime(3_600_000)),
        ("SKQ", Predicate(), Nearest(5, 6, 3), Lifetime(3_600_000)),
        ("STQ", Predicate(Circle(5, 6, 7)), TopTerms(3), Lifetime(0)),
        ("CRQ", Predicate(Box(0, 1, 2, 3)), Everything(), Lifetime(3_600_000, True)),
        ("CKQ", Predicate(), Nearest(5, 6, 3), Lifetime(3_600_000, True)),
        ("CTQ", Predicate(Box(0, 1, 2, 3)), TopTerms(3), Lifetime(3_600_000, True, 300_000, 60_000)),
    ],
)
def test_the_six_presets(kind, predicate, selection, lifetime):
    query = parse_query(record(kind), WGS84)
    assert query == Query("q", 9, predicate, selection, lifetime)
    assert query.type == QueryType(kind)
    assert query.k == (0 if kind in ("SRQ", "CRQ") else 3)


def test_a_title_is_a_string():
    with pytest.raises(RecordError, match=r"^title: 5 is not a string$"):
        parse_query(record("CRQ", title=5), WGS84)


def test_options():
    assert parse_query(record("CKQ", window=5), WGS84).lifetime.window == 5
    assert parse_query(record("CKQ", window=None), WGS84).lifetime.window is None
    assert parse_query(record("CRQ", title="Floods", t="1970-01-01"), WGS84).t == 0
    assert parse_query({"id": "q", "type": "CANCEL", "t": 9, "k": "any"}, WGS84) == Cancellation("q", 9)


@pytest.mark.parametrize("kind", GOOD)
@pytest.mark.parametrize("field", FIELDS)
def test_each_type_takes_its_fields_and_no_other(kind, field):
    if field == "duration" and kind.startswith("C"):
        parse_query(record(kind, duration=None), WGS84)
    elif field in GOOD[kind]:
        with pytest.raises(RecordError, match=f"^{field}: {kind} requires {field}$"):
            parse_query(record(kind, **{field: None}), WGS84)
    elif (kind, field) != ("CKQ", "window"):
        with pytest.raises(RecordError, match=f"^{field}: {kind} takes no {field}; remove it$"):
            parse_query(record(kind, **{field: FIELDS[field]}), WGS84)


TYPE = "SRQ, SKQ, STQ, CRQ, CKQ, CTQ, SBQ, CBQ"
SPAN = 'is not a duration; give milliseconds or a string such as "30m", "2h", "7d"'


@pytest.mark.parametrize(
    ("kind", "changes", "reason"),
    [
        ("CRQ", {"id": None}, "id: is required; give a string"),
        ("CRQ", {"id": [5]}, "id: [5] is neither a string nor a whole number"),
        ("CRQ", {"type": None}, f"type: is required; give {TYPE} or CANCEL"),
        ("CRQ", {"type": "crq"}, f"type: 'crq' is not one of {TYPE}, CANCEL"),
        ("CRQ", {"type": ["CRQ"]}, f"type: ['CRQ'] is not one of {TYPE}, CANCEL"),
        ("CRQ", {"t": None}, "t: is required; give milliseconds or ISO 8601"),
        ("CANCEL", {"t": None}, "t: is required; give milliseconds or ISO 8601"),
        ("CANCEL", {"id": None}, "id: is required; give a string"),
        ("CRQ", {"t": True}, "t: True is not a time; give integer milliseconds or an ISO 8601 string"),
        (
            "CRQ",
            {"region": 5},
            'region: must be {"box": [west, south, east, north]}, {"circle": [x, y, radius]}, {"polygon": GeoJSON} or '
            '{"area": name}',
        ),
        ("CRQ", {"region": {"box": [0, 0, 0, 999]}}, "region.box: 999 is out of range; it must lie in [-90, 90]"),
        ("CRQ", {"keywords": "fire"}, "keywords: 'fire' is not a list of strings"),
        ("CRQ", {"keywords": ["a", 5]}, "keywords: ['a', 5] is not a list of strings"),
        ("CRQ", {"keywords": ["a", "!"]}, "keywords: '!' has no term: no word character is left after term extraction"),
        ("CRQ", {"keywords": [""]}, "keywords: '' has no term: no word character is left after term extraction"),
        ("CRQ", {"duration": -5}, "duration: -5 is negative; a duration is at least 0"),
        ("CRQ", {"duration": "x"}, f"duration: 'x' {SPAN}"),
        ("SKQ", {"k": 0}, "k: 0 is out of range; give 1 to 2147483647"),
        ("STQ", {"k": 2**31}, "k: 2147483648 is out of range; give 1 to 2147483647"),
        ("SKQ", {"k": 1.0}, "k: 1.0 is not an integer"),
        ("SKQ", {"k": True}, "k: True is not an integer"),
        ("SKQ", {"at": [1]}, "at: must be a list of 2 numbers, [lon, lat]"),
        ("SKQ", {"at": {"lon": 1}}, "at: must be a list of 2 numbers, [lon, lat]"),
        ("SKQ", {"at": [1, "2"]}, "at: '2' is not a number"),
        ("SKQ", {"at": [1, 95]}, "at: 95 is out of range; it must lie in [-90, 90]"),
        ("CTQ", {"step": 0}, "step: is 0; a step is at least 1 ms"),
        ("CTQ", {"step": -1}, "step: -1 is negative; a duration is at least 0"),
        (
            "CTQ",
            {"step": 1, "duration": 40_000_000},
            "step: 1 is too short for a duration of 40000000: 40000000 steps, and a CTQ has at most 10000000; "
            "give a step of at least 4 ms, or a shorter duration",
        ),
        ("CTQ", {"window": "5"}, f"window: '5' {SPAN}"),
        ("CRQ", {"by": 5}, "by: 5 is not a string"),
        ("CRQ", {"by": ""}, f"by: has 0 bytes; give 1 to {LONGEST_BY} bytes of UTF-8"),
        ("CKQ", {"by": "é" * 257}, f"by: has 514 bytes; give 1 to {LONGEST_BY} bytes of UTF-8"),
        ("CRQ", {"by": "\ud800"}, "by: '\\ud800' holds half of a surrogate pair; give Unicode text"),
        ("SRQ", {"by": "anna"}, "by: SRQ takes no by; remove it"),
    ],
)
def test_bad_records_are_told(kind, changes, reason):
    with pytest.raises(RecordError) as caught:
        parse_query(record(kind, **changes), WGS84)
    assert str(caught.value) == reason


@pytest.mark.parametrize("value", [None, 5, "text", [], True])
def test_what_is_no_record_is_told(value):
    with pytest.raises(RecordError, match="record: is not a JSON object"):
        parse_query(value, WGS84)


@pytest.mark.parametrize("kind", ["CRQ", "CKQ", "CTQ"])
def test_who_has_registered_a_query_is_kept_and_is_no_part_of_what_it_asks(kind):
    alone = parse_query(record(kind, by=None), WGS84)
    query = parse_query(record(kind, by="é" * 256), WGS84)
    assert (query.by, query.to_record()["by"]) == ("é" * 256,) * 2
    assert parse_query(query.to_record(), WGS84).by == query.by
    assert (alone.by, "by" in alone.to_record()) == ("", False)
    assert query == alone
    assert parse_query(record("CANCEL", by=5), WGS84) == Cancellation("q", 9)


@given(LISTS)
def test_columns_hold_the_same_queries(queries):
    batch = QueryBatch.of(queries)
    assert items(batch) == queries
    assert said(items(batch)) == said(queries)
    assert [int(code) for code in batch.code] == [
        CANCEL if isinstance(query, Cancellation) else CODE[query.type] for query in queries
    ]
    wire = batch.to_arrow()
    assert wire.schema == (QUERIES.append(BY) if any(said(queries)) else QUERIES), "none: as it always was"
    wire.validate(full=True)
    for part, right in ((wire, queries), (wire.slice(1), queries[1:])):
        read = QueryBatch.from_arrow(part.append_column("number", pa.array(range(part.num_rows), pa.int64())))
        assert items(read) == right
        assert said(items(read)) == said(right)
        read.by.validate(full=True)


@pytest.mark.parametrize("n", [0, 1, 1000])
def test_nobody_is_n_empty_texts(n):
    nobody(n).validate(full=True)
    assert nobody(n).to_pylist() == [""] * n


def test_what_was_written_with_other_codes_is_read_by_name():
    names = pa.DictionaryArray.from_arrays(pa.array([2, 0, 1, 2], pa.int8()), pa.array(["CTQ", "CANCEL", "SRQ"]))
    assert coded(names).tolist() == [CODE[QueryType.SRQ], CODE[QueryType.CTQ], CANCEL, CODE[QueryType.SRQ]]
    with pytest.raises(StateError, match="'SRX'"):
        coded(pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array(["SRX"])))


@given(LISTS, LISTS)
def test_taking_and_concatenating(first, second):
    both = QueryBatch.concat([QueryBatch.of(first), QueryBatch.of(second)])
    assert items(both) == first + second
    assert said(items(both)) == said(first + second)
    order = np.arange(len(both))[::-1].copy()
    assert items(both.take(order)) == (first + second)[::-1]
    assert said(items(both.take(order))) == said(first + second)[::-1]
    assert items(QueryBatch.from_arrow(both.take(order).to_arrow())) == (first + second)[::-1]


def test_all_errors_of_a_query_that_are_independent_are_told_together():
    record = {
        "id": "q",
        "type": "CKQ",
        "t": "yesterday",
        "windows": 5,
        "at": [0, 95],
        "k": 0,
        "region": {"box": [0, 0, 1, 1]},
        "keywords": ["fire"],
        "duration": "soon",
    }

    with pytest.raises(RecordError) as caught:
        parse_query(record, WGS84)

    told = str(caught.value).split("; ")
    assert caught.value.field == "windows"
    for field in ("windows", "t", "region", "at", "k", "duration"):
        assert sum(each.startswith(f"{field}: ") for each in told) == 1, (field, told)
    good = {**record, "t": 0, "at": [0, 5], "k": 1, "duration": "1h"}
    for name in ("windows", "region"):
        del good[name]
    assert parse_query(good, WGS84)


def test_a_query_without_a_usable_type_tells_what_does_not_depend_on_it():
    with pytest.raises(RecordError) as caught:
        parse_query({"type": "CXQ", "keywrods": ["fire"], "k": 0}, WGS84)

    told = str(caught.value)
    assert told.startswith("id: ")
    assert "keywrods: is not a query field; did you mean keywords?" in told
    assert "t: is required" in told
    assert "type: 'CXQ' is not one of" in told


def test_of_many_errors_the_first_are_told():
    with pytest.raises(RecordError) as caught:
        parse_query({"id": "q", "type": "SRQ", "t": 0, **{f"x{number}": 1 for number in range(100)}}, WGS84)

    assert str(caught.value).count("is not a query field") == 8
    assert str(caught.value).endswith("and 94 more")  # region and duration are missing too
