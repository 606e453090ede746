"""Decoding in bulk equals parsing each record."""

import csv
import io
import json
import math
from collections import Counter
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyarrow import parquet as pq

from spatialstream.model.errors import RecordError
from spatialstream.model.lifetimes import MOST_STEPS
from spatialstream.model.objects import parse_object
from spatialstream.model.queries import parse_query
from spatialstream.model.space import WGS84, Space
from spatialstream.model.terms import DEFAULT_RULE, TermRule
from spatialstream.model.times import TIME_LIMIT
from spatialstream.oracle.files import read_objects
from spatialstream.records import decode, decode_queries, decode_tables, files, reference, rejected

PLANE = Space.planar(-10, 0, 10, 5)


def by_record(data, parse, space, first_line=1, rule=DEFAULT_RULE, columns=None):
    """What decoding must give: {line: value or reason}, each line through json and the parser alone."""
    expected = {}
    for line, raw in enumerate(data.split(b"\n"), first_line):
        if raw.strip(b" \t\r"):
            try:
                value = json.loads(raw.decode())
                if columns and isinstance(value, dict):
                    value = {k: v for k, v in value.items() if k not in columns} | {
                        field: value.get(name) for field, name in columns.items()
                    }
                result = parse(value, space, rule)
                result.id.encode()
                expected[line] = result
            except RecordError as error:
                expected[line] = str(error)
            except UnicodeEncodeError:
                expected[line] = "id: "
            except (ValueError, RecursionError):
                expected[line] = "record: "
    return expected


def outcome(decoded):
    """Decoded as {line: value or reason}."""
    assert decoded.line.tolist() == sorted(decoded.line.tolist())
    assert len(decoded.line) == len(decoded.batch)
    found = {int(line): decoded.batch[i] for i, line in enumerate(decoded.line)}
    for row in decoded.rejected.to_pylist():
        json.loads(row["record"])
        found[row["line"]] = row["reason"]
    return dict(sorted(found.items()))


def same(found, expected):
    assert list(found) == list(expected)
    for line, wanted in expected.items():
        if isinstance(wanted, str):
            assert isinstance(found[line], str), (line, found[line])
            assert found[line].startswith(wanted), (line, found[line], wanted)
        else:
            assert repr(found[line]) == repr(wanted), line  # repr tells -0.0 from 0.0


# ------------------------------------------------------------------------------------------------------------- records

SPACES = st.sampled_from(["", "", "", " ", "\t", "  \r"])
ODD_LITERALS = st.one_of(
    st.sampled_from(
        ["null", "true", "false", "NaN", "Infinity", "-Infinity", "nul", "tru", "falsy", "[]", "{}", '""', '"']
    ),
    st.sampled_from(["0", "-0", "-0.0", "01", "1.", ".5", "+1", "-", "1e", "1e2", "1E+2", "1e-2", "1e400", "1e-400"]),
    st.sampled_from(["9" * 30, "9" * 700, "9" * 5000, "0." + "3" * 400, "1" + "0" * 310, "0." + "0" * 330 + "1"]),
    st.sampled_from(
        ['"\\ud800"', '"\\udc00\\ud800"', '"\\ud83d\\ude00"', '"\\u00e9"', '"\\x"', '"\\u12g4"', '"tab\there"', '"\\']
    ),
    st.sampled_from(['"\\u00', '"\x00"', '"\x7f"', '"\\/\\b\\f\\n\\r\\t\\"\\\\"']),
    st.sampled_from(["[" * 61 + "]" * 61, "[" * 3000 + "]" * 3000, '{"a":' * 70 + "1" + "}" * 70, "[" * 60 + "]" * 60]),
    st.sampled_from(
        ["[1,2", '{"a":1', '[[], [{}], {"a": [1, {}]}]', "[1,]", '{"a",}', '{"a":1,}', "[}", '{"a":]', "[1 2]"]
    ),
)
NUMBERS = st.one_of(
    st.floats(-90, 90).map(repr),
    st.floats(-200, 200).map(repr),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-200, 200).map(str),
    st.tuples(st.integers(-(10**20), 10**20), st.integers(-30, 5)).map(lambda p: f"{p[0]}e{p[1]}"),
    st.decimals(-90, 90, places=6).map(str),
    st.decimals(-90, 90, places=25).map(lambda d: format(d, "f")),
)
MOMENTS = st.one_of(
    st.datetimes(),
    st.datetimes(timezones=st.just(UTC)),
    st.datetimes(timezones=st.builds(lambda m: timezone(timedelta(minutes=m)), st.integers(-1439, 1439))),
)
TIME_TEXTS = st.one_of(
    MOMENTS.map(datetime.isoformat),
    MOMENTS.map(lambda m: m.isoformat(timespec="milliseconds")),
    MOMENTS.map(lambda m: m.isoformat(sep=" ", timespec="minutes")),
    MOMENTS.map(lambda m: m.isoformat(timespec="seconds").replace("+00:00", "Z")),
    MOMENTS.map(lambda m: m.strftime("%Y-%m-%dT%H:%M:%S%z")),
    st.dates().map(date.isoformat),
    st.from_regex(
        r"\A(19|20)\d\d-[012]\d-[0123]\d([T ][012]\d:[0-6]\d(:[0-6]\d([.,]\d{1,7})?)?(Z|[+-]\d\d(:?[0-6]\d)?)?)?\Z"
    ),
    st.sampled_from(
        ["2018-02-07T24:00", "0000-01-01", "2000-02-29", "1900-02-29", "2018-W06-3", "20180207", "now", "1517966773840"]
    ),
    st.integers(-(10**18), 10**18).map(str),
    st.builds(
        lambda text, at, mark: text[:at] + mark + text[at + 1 :],
        MOMENTS.map(datetime.isoformat),
        st.integers(0, 32),
        st.sampled_from([*"tT /_zZ09-+:.,é３\n", "", "  "]),
    ),
)
TIMES = st.one_of(
    st.integers(-(10**12), 2 * 10**12).map(str),
    st.sampled_from([8_640_000_000_000_000, -8_640_000_000_000_000, 8_640_000_000_000_001, -8_640_000_000_000_001]).map(
        str
    ),
    TIME_TEXTS.map(json.dumps),
)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(["", "Flood risk", 'a"b\\', "e\u0301"])
STRINGS = st.one_of(TEXTS.map(json.dumps), TEXTS.map(lambda text: json.dumps(text, ensure_ascii=False)))
LISTS = st.lists(STRINGS | ODD_LITERALS, max_size=3).map(lambda items: "[" + ",".join(items) + "]")


@st.composite
def shaped(draw, fields):
    """A line that is mostly a good record: now and then a field is odd, missing, twice, or written unusually.

    ``fields`` gives for each field its good values, or those and odd ones.
    """
    pairs = []
    for name, values in fields.items():
        good, odd = values if isinstance(values, tuple) else (values, values)
        fate = draw(st.integers(0, 45))
        key = json.dumps(name)
        if fate == 0:
            continue
        if fate == 1:
            good = ODD_LITERALS
        if fate in (2, 3):
            good = odd
        if fate == 4:
            key = '"' + "".join(f"\\u{ord(c):04x}" for c in name) + '"'
        if fate == 5:
            pairs.append(f"{key}:{draw(odd | ODD_LITERALS)}")
        pairs.append(f"{key}{draw(SPACES)}:{draw(SPACES)}{draw(good)}{draw(SPACES)}")
    if draw(st.integers(0, 12)) == 0:
        pairs.append(f'"other": {draw(ODD_LITERALS | LISTS)}')
    if draw(st.booleans()):
        pairs = draw(st.permutations(pairs))
    return draw(SPACES) + "{" + draw(SPACES) + ("," + draw(SPACES)).join(pairs) + "}" + draw(SPACES)


NEAR = st.floats(0, 5).map(repr) | st.integers(0, 5).map(str) | st.decimals(0, 5, places=5).map(str)
NUMBER = (NEAR, NUMBERS)
STRING = (STRINGS, STRINGS | ODD_LITERALS)
ID = (STRINGS | st.integers(-(10**20), 10**20).map(str), STRINGS | ODD_LITERALS | NUMBERS)
LIST = (st.lists(STRINGS, max_size=4).map(lambda items: "[" + ", ".join(items) + "]"), LISTS)
TIME = (st.integers(-(10**12), 2 * 10**12).map(str) | MOMENTS.map(lambda m: json.dumps(m.isoformat())), TIMES)
OBJECTS = st.one_of(
    shaped({"id": STRING, "t": TIME, "lon": NUMBER, "lat": NUMBER, "x": NUMBER, "y": NUMBER, "text": STRING}),
    shaped({"id": STRING, "t": TIME, "lon": NUMBER, "lat": NUMBER, "x": NUMBER, "y": NUMBER, "terms": LIST}),
    shaped({"id": STRING, "t": TIME, "x": NUMBER, "y": NUMBER, "text": STRING, "terms": (st.just("null"), LISTS)}),
    shaped({"id": ID, "t": TIME, "lon": NUMBER, "lat": NUMBER, "text": STRING}),
)
BOXES = st.tuples(NEAR, NEAR, NEAR, NEAR).map(lambda b: '{"box": [' + ",".join(sorted(b, key=float)) + "]}")
CIRCLES = st.tuples(NEAR, NEAR, NEAR).map(lambda c: '{ "circle" : [ ' + " , ".join(c) + " ] }")
ODD_REGIONS = st.one_of(
    st.tuples(st.sampled_from(["box", "circle"]), st.lists(NUMBERS, min_size=2, max_size=5)).map(
        lambda p: f'{{"{p[0]}" : [{" , ".join(p[1])}]}}'
    ),
    st.tuples(*[st.integers(-9, 9).map(str)] * 4).map(lambda b: '{"box":[' + ",".join(b) + "]}"),
    st.tuples(*[st.integers(-2, 9).map(str)] * 3).map(lambda c: '{"circle":[' + ",".join(c) + "]}"),
    st.sampled_from(
        ['{"box":[0,0,1,1],"box":[0,0,2,2]}', '{"box":[0,0,1,1],"circle":[0,0,1]}', '{"disc":[0,0,1]}', "{}"]
    ),
    st.sampled_from(
        ['{"box":[0,0,1,"1"]}', '{"circle":[0,0,true]}', '{"box":null}', '{"circle":{}}', '{"b\\u006fx":[0,0,1,1]}']
    ),
)
REGION = (BOXES | CIRCLES, ODD_REGIONS)
SPAN = (
    st.integers(1, 10**9).map(str)
    | st.builds('"{}{}"'.format, st.integers(1, 10**6), st.sampled_from(["ms", "s", "m", "h", "d", "w"])),
    st.one_of(
        st.integers(-1, 1).map(str),
        st.builds('"{}{}"'.format, st.integers(0, 9), st.sampled_from(["ms", "x", " m", "m ", "", "M", "mm", "min"])),
        st.sampled_from(['"٣m"', '" 3 h "', '"99999999999999999999d"', '"8640000000000000ms"', '"8640000000001s"']),
        st.sampled_from(
            ["1.5", "1e3", '"1"', '"-1m"', '"m"', '"86400000000000m"', "8640000000000000", "8640000000000001"]
        ),
    ),
)
POINT = (
    st.tuples(NEAR, NEAR).map(lambda p: f"[{p[0]} ,{p[1]}]"),
    st.lists(NUMBERS | ODD_LITERALS, min_size=1, max_size=3).map(lambda p: "[" + ",".join(p) + "]"),
)
COUNT = (
    st.integers(1, 20).map(str),
    st.integers(-1, 1).map(str) | st.sampled_from(["2147483647", "2147483648", "1.0", '"3"', "1" * 20, "true"]),
)
WORDS = (
    st.lists(st.sampled_from(["Flood", "fire risk", "é", "e\u0301", "a\nb", "the"]), max_size=3).map(json.dumps),
    st.lists(st.sampled_from(["Flood", "!", "", "x", "\u0301"]), max_size=3).map(json.dumps) | LISTS,
)
MAYBE_SPAN = SPAN[0] | st.just("null"), SPAN[1]
BY = (
    STRINGS | st.integers(510, 514).map(lambda n: json.dumps("a" * n)) | st.just("null"),
    ODD_LITERALS
    | st.sampled_from([json.dumps("é" * 257, ensure_ascii=False), json.dumps("é" * 256), '"\\ud800"', '""']),
)
PARTS = {
    "SRQ": {"region": REGION, "duration": SPAN},
    "SKQ": {"at": POINT, "k": COUNT, "duration": SPAN},
    "STQ": {"region": REGION, "k": COUNT, "duration": SPAN},
    "CRQ": {"region": REGION, "duration": MAYBE_SPAN, "by": BY},
    "CKQ": {"at": POINT, "k": COUNT, "duration": MAYBE_SPAN, "window": MAYBE_SPAN, "by": BY},
    "CTQ": {"region": REGION, "k": COUNT, "duration": MAYBE_SPAN, "window": SPAN, "step": SPAN, "by": BY},
    "CANCEL": {},
}
HEAD = {"id": ID, "t": TIME}


def typed(kind):
    head = HEAD | {
        "type": (st.just(f'"{kind}"'), st.sampled_from(['"XYZ"', '"SRQ"', '"crq"', "3", '"C\\u0052Q"', '""']))
    }
    strange = {"region": REGION, "at": POINT, "k": COUNT, "window": SPAN, "step": SPAN, "keywords": WORDS, "by": BY}
    more = st.dictionaries(st.sampled_from(sorted(strange)), st.none(), min_size=1, max_size=1)
    return st.one_of(
        shaped(head | PARTS[kind] | {"keywords": WORDS}),
        shaped(head | PARTS[kind]),
        more.flatmap(lambda names: shaped(head | PARTS[kind] | {name: strange[name] for name in names})),
    )


QUERIES = st.sampled_from(sorted(PARTS)).flatmap(typed)
RUBBISH = st.sampled_from(
    ["", "   ", "\t\r", "nonsense", "[]", "7", '"text"', "{", "}", '{"id":"a"}}', "\ufeff{}", "null", "{}"]
)


@st.composite
def blocks(draw, records):
    """Lines of records, some of them spoilt, as bytes."""
    lines = []
    for record in draw(st.lists(st.one_of(*[records] * 8, RUBBISH), max_size=8)):
        raw = record.encode()
        fate = draw(st.integers(0, 40))
        if fate == 0:
            raw = raw[: draw(st.integers(0, len(raw)))]
        if fate == 1 and raw:
            at = draw(st.integers(0, len(raw) - 1))
            raw = raw[:at] + bytes([draw(st.integers(0, 255).filter(lambda b: b != 10))]) + raw[at + 1 :]
        lines.append(raw)
    return b"\n".join(lines) + draw(st.sampled_from([b"", b"\n", b"\n\n", b"\r\n"]))


# ------------------------------------------------------------------------------------------------------------- objects


@pytest.mark.parametrize("space", [WGS84, PLANE], ids=str)
@given(data=blocks(OBJECTS), first_line=st.integers(2, 10**12))
def test_the_unknown_fields_of_accepted_objects_are_counted(data, first_line, space):
    decoded = decode.decode_objects(data, first_line, space)
    expected = Counter()
    accepted = set(decoded.line.tolist())
    for line, raw in enumerate(data.split(b"\n"), first_line):
        if line in accepted:
            expected.update(set(json.loads(raw)) - set(reference.object_fields(space)))
    assert decoded.unknown == expected


def test_of_many_unknown_fields_the_commonest_are_named_and_the_others_counted():
    lines = [GOOD | {"size": 1, "colour": None, f"f{i}": i} for i in range(500)] + [GOOD | {"size": 2}] * 5
    decoded = decode.decode_objects(b"\n".join(json.dumps(each).encode() for each in lines))
    assert (decoded.unknown["size"], decoded.unknown["colour"]) == (505, 500)
    assert sum(decoded.unknown.values()) == 1_505
    assert len(decoded.unknown) <= 33
    odd = [json.dumps(each).replace('"id"', '"\\u0069d"').encode() for each in lines]  # all by the reference
    again = decode.decode_objects(b"\n".join(odd)).unknown
    assert (again["size"], again["colour"], sum(again.values()), len(again)) == (505, 500, 1_505, 33)


IDS = [
    (pa.int64(), [7, -(2**53) - 1, None], ["7", "-9007199254740993", None]),
    (pa.uint64(), [2**64 - 1, 0, 5], ["18446744073709551615", "0", "5"]),
    (pa.float64(), [7.0, -0.0, 2.0**53 - 1], ["7", "0", "9007199254740991"]),
    (pa.float64(), [2.0**53, 0.5, float("nan")], [None, None, None]),
    (pa.float32(), [2.0**24 - 1, 2.0**24, 0.5], ["16777215", None, None]),
    (pa.decimal128(20, 0), [Decimal(10**19 + 1), Decimal(-3), None], ["10000000000000000001", "-3", None]),
    (pa.decimal128(20, 2), [Decimal("7.00"), Decimal("7.50"), None], ["7", None, None]),
    (pa.timestamp("ms"), [5, 6, None], [None, None, None]),
    (pa.bool_(), [True, False, None], [None, None, None]),
    (pa.dictionary(pa.int32(), pa.string()), ["a", "7", None], ["a", "7", None]),
]


@pytest.mark.parametrize(("kind", "given_", "expected"), IDS)
def test_whole_numbers_of_any_column_are_ids(kind, given_, expected, tmp_path):
    columns = {"t": [1, 2, 3], "lon": [0.0] * 3, "lat": [0.0] * 3, "text": ["x"] * 3}
    table = pa.table({"id": pa.array(given_, kind)} | columns)
    decoded = decode_tables.decode_object_table(table)
    assert decoded.batch.ids.to_pylist() == [name for name in expected if name is not None]
    assert decoded.line.tolist() == [line for line, name in enumerate(expected, 1) if name is not None]
    assert all(reason.startswith("id: ") for reason in decoded.rejected.column("reason").to_pylist())
    pq.write_table(table, tmp_path / "o.parquet")
    oracle = [each for (_, _), each in read_objects([tmp_path / "o.parquet"], WGS84)]
    assert [each.id for each in oracle] == decoded.batch.ids.to_pylist()


def test_a_table_has_its_unknown_columns_in_each_record(tmp_path):
    (tmp_path / "o.csv").write_text("id,t,lon,lat,text,size\na,1,2,3,x,\nb,1,2,3,y,5\nc,wrong,2,3,z,5\n")
    pq.write_table(
        pa.table({"id": ["a"], "t": [1], "lon": [2], "lat": [3], "text": ["x"], "size": [1]}), tmp_path / "o.parquet"
    )
    for name, expected in (("o.csv", {"size": 2}), ("o.parquet", {"size": 1})):
        (chunk,) = files.plan([tmp_path / name])
        (decoded,) = files.decode_chunk(chunk, "objects")
        assert decoded.unknown == expected


@pytest.mark.parametrize("space", [WGS84, PLANE], ids=str)
@given(data=blocks(OBJECTS), first_line=st.integers(2, 10**12))
def test_objects_are_those_of_parse_object(data, first_line, space):
    decoded = decode.decode_objects(data, first_line, space)
    same(outcome(decoded), by_record(data, parse_object, space, first_line))


@given(data=blocks(QUERIES), first_line=st.integers(2, 10**12))
@pytest.mark.parametrize("space", [WGS84, PLANE], ids=str)
def test_queries_are_those_of_parse_query(data, first_line, space):
    decoded = decode_queries.decode_queries(data, first_line, space)
    same(outcome(decoded), by_record(data, parse_query, space, first_line))


@given(data=blocks(QUERIES | OBJECTS))
def test_term_rules_hold_in_both(data):
    rule = TermRule(frozenset({"the", "flood"}), 2, ranking=True, counts=True)
    same(outcome(decode.decode_objects(data, 5, rule=rule)), by_record(data, parse_object, WGS84, 5, rule))
    same(outcome(decode_queries.decode_queries(data, 5, rule=rule)), by_record(data, parse_query, WGS84, 5, rule))


@given(NUMBERS | st.floats(allow_nan=False, allow_infinity=False).map(repr))
@example("-118.66000366210938")
@example("9007199254740993")
@example("0.1e1")
@example("1.7976931348623157e308")
@example("2.2250738585072011e-308")
@example("4.9406564584124654e-324")
@example("0." + "0" * 290 + "123456789012345678901")
def test_a_number_is_rounded_as_python_rounds_it(number):
    wide = Space(False, -1.7976931348623157e308, -1, 1.7976931348623157e308, 1)
    decoded = decode.decode_objects(f'{{"id":"a","t":0,"x":{number},"y":-0,"text":""}}'.encode(), 1, wide)
    assert repr(decoded.batch[0].x) == repr(float(json.loads(number)))
    assert repr(decoded.batch[0].y) == "0.0"


def unquoted(outcomes):
    return {line: each.replace("'", "") if isinstance(each, str) else each for line, each in outcomes.items()}


@given(TIME_TEXTS)
@example("-999999999999999999")
@example("1512111012345")
@example("2020-01-01/2020-12")
@example("20180207")
def test_a_time_is_the_same_wherever_it_stands(text):
    record = {"id": "a", "t": text, "lon": 0, "lat": 0, "text": ""}
    data = json.dumps(record).encode()
    expected = by_record(data, parse_object, WGS84)
    same(outcome(decode.decode_objects(data)), expected)
    bare = unquoted(expected)  # cells and columns have no types: digits are a number there
    rows = pa.Table.from_pylist([record])
    same(unquoted(outcome(decode_tables.decode_object_table(rows))), bare)
    if text == text.strip():  # spaces around a cell are no part of it
        cell = f'a,"{text}",0,0,""\n'.encode()
        same(unquoted(outcome(decode.decode_csv(cell, list(record), 1))), bare)
    asked = json.dumps({"id": "a", "t": text, "type": "CANCEL"}).encode()
    same(outcome(decode_queries.decode_queries(asked)), by_record(asked, parse_query, WGS84))


NEAR_THE_LIMIT = st.builds(
    lambda sign, unit, by: sign * TIME_LIMIT * 1_000 // unit + by,
    st.sampled_from([1, -1]),
    st.sampled_from([1, 1_000, 1_000_000]),
    st.integers(-2, 2),
)


@pytest.mark.parametrize(("unit", "factor"), [("s", 1_000), ("ms", 1), ("us", Fraction(1, 1_000))])
@given(st.integers(-(10**11), 10**11) | st.integers(-(10**20), 10**20) | NEAR_THE_LIMIT)
def test_a_number_is_of_the_unit_that_is_given_wherever_it_stands(unit, factor, number):
    t = math.floor(number * factor)
    right = [t] if abs(t) <= TIME_LIMIT else []
    record = {"id": "a", "t": number, "lon": 0, "lat": 0, "text": ""}
    for spelt in (number, str(number)):
        data = json.dumps(record | {"t": spelt}).encode()
        assert decode.decode_objects(data, unit=unit).batch.t.tolist() == right
        asked = json.dumps({"id": "a", "t": spelt, "type": "CANCEL"}).encode()
        assert decode_queries.decode_queries(asked, unit=unit).batch.t.tolist() == right
    for cell in (f"a,{number},0,0,x\n", f"a, {number} ,0,0,x\n"):
        assert decode.decode_csv(cell.encode(), list(record), unit=unit).batch.t.tolist() == right
    assert decode_tables.decode_object_table(table(t=[str(number)]), unit=unit).batch.t.tolist() == right
    if abs(number) < 2**63:
        assert (
            decode_tables.decode_object_table(table(t=pa.array([number], pa.int64())), unit=unit).batch.t.tolist()
            == right
        )


@pytest.mark.parametrize("unit", ["s", "us"])
def test_a_time_that_is_no_number_has_no_unit(unit):
    moment = datetime(2018, 2, 7, 1, 26, 13, 840_000, UTC)
    for text in (moment.isoformat(), "2018-02-07T01:26:13.84Z"):
        assert decode.decode_objects(line(t=text), unit=unit).batch.t.tolist() == [1_517_966_773_840]
    for column in (pa.array([moment], pa.timestamp("us", "UTC")), pa.array([moment], pa.timestamp("ms"))):
        assert decode_tables.decode_object_table(table(t=column), unit=unit).batch.t.tolist() == [1_517_966_773_840]


# ------------------------------------------------------------------------------------------------- one record at a time

GOOD = {"id": "a", "t": 5, "lon": 1.5, "lat": -2, "text": "Flood é"}


def line(**changes):
    return json.dumps({k: v for k, v in (GOOD | changes).items() if v is not ...}).encode()


def test_ordinary_records_never_meet_the_parser(monkeypatch):
    monkeypatch.setattr(decode, "parse_object", None)
    monkeypatch.setattr(decode_queries, "parse_query", None)
    lines = [
        line(),
        line(t="2018-02-07T01:26:13.840Z", lon=-118.66000366210938),
        line(text=..., terms=["Flood", "fire \u00e9"]),
        line(text='quote " backslash \\ newline \n emoji \U0001f600', id="\u00e9"),
        json.dumps(GOOD | {"text": "日本語 straße", "more": {"a": [1, {"b": None}]}}, ensure_ascii=False).encode(),
        json.dumps(GOOD, separators=(",", ":")).encode() + b"\r",
        json.dumps(GOOD | {"lon": 1e-5, "lat": 12345678901234567e-16}).encode(),
    ]
    decoded = decode.decode_objects(b"\n".join(lines))
    assert decoded.line.tolist() == list(range(1, len(lines) + 1))
    asked = [
        b'{"id":"q","type":"CRQ","t":0,"region":{"box":[0,0,1.25,1]},"keywords":["Fire risk","x"],"duration":"2h"}',
        b'{"id":"q","type":"SKQ","t":"2018-02-07","at":[0.1,2],"k":10,"duration":5}',
        b'{"id":"q","type":"CTQ","t":0,"region":{"circle":[1,2,3]},"k":1,"duration":"1d","window":"5m","step":"1m"}',
        b'{"id":"q","type":"CANCEL","t":0}',
        b'{"by":"sq/geo/fl\\u00f6\\"ods","id":"q","type":"CKQ","t":0,"at":[0,1],"k":1}',
        b'{"id":"q","type":"CKQ","t":0,"at":[0,1],"k":1,"by":null}',
    ]
    found = decode_queries.decode_queries(b"\n".join(asked)).batch
    assert found.by.to_pylist() == ["", "", "", "", 'sq/geo/flö"ods', ""]


@given(st.integers(1, 30), st.integers(-2, 2), st.sampled_from([1, 1_000]))
def test_ctqs_of_too_many_steps_are_refused_as_parse_query_does(step, more, unit):
    duration = step * MOST_STEPS + more
    record = '{"id":"q","type":"CTQ","t":0,"region":{"box":[0,0,1,1]},"k":1,"window":5,"duration":%d,"step":%d}'
    data = (record % (duration * unit, step * unit)).encode()
    same(outcome(decode_queries.decode_queries(data)), by_record(data, parse_query, WGS84, 1))


def test_one_bad_record_sends_no_other_to_the_parser(monkeypatch):
    seen = []
    monkeypatch.setattr(decode, "parse_object", lambda record, *_: seen.append(record) or parse_object(record, *_))
    lines = [line(id=str(i), lon=1.5 if i % 100 else 200) for i in range(2_000)]
    decoded = decode.decode_objects(b"\n".join(lines))
    assert decoded.rejected.column("line").to_pylist() == list(range(1, 2_001, 100))
    assert len(seen) == 20


def test_a_rejected_record_is_told_with_its_line_reason_and_value():
    data = b"\n".join(
        [line(), b"", line(lon=200), b"{oops", line(id=7.5), b'{"id": "a", "t": NaN}', b"\xff\xfe", b"[1]"]
    )
    decoded = decode.decode_objects(data, 11)
    assert decoded.rejected.schema == rejected.REJECTED
    assert decoded.line.tolist() == [11]
    letters = [json.loads(rejected.rejected_line("in.jsonl", *row.values())) for row in decoded.rejected.to_pylist()]
    assert [list(letter) for letter in letters] == [["source", "line", "reason", "record"]] * 6
    assert [letter["line"] for letter in letters] == [13, 14, 15, 16, 17, 18]
    assert [letter["reason"] for letter in letters] == [
        "lon: 200 is out of range; it must lie in [-180, 180]",
        "record: is not JSON: Expecting property name enclosed in double quotes at character 2",
        "id: 7.5 is neither a string nor a whole number",
        "t: nan is not a time; give integer milliseconds or an ISO 8601 string",
        "record: is not UTF-8 text",
        "record: is not a JSON object",
    ]
    assert [letter["record"] for letter in letters] == [
        GOOD | {"lon": 200},
        "{oops",
        GOOD | {"id": 7.5},
        '{"id": "a", "t": NaN}',
        "\ufffd\ufffd",
        [1],
    ]
    assert {letter["source"] for letter in letters} == {"in.jsonl"}


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (line(id="\ud800"), "id: '\\ud800' holds half of a surrogate pair; give Unicode text"),
        (line(text=..., other="[" * 10), "text: is required; give a string, or a list of strings as terms"),
        (b"[" * 100_000, "record: is nested too deeply"),
        (b'{"id":"a","t":' + b"9" * 5_000 + b"}", "record: holds an integer of too many digits"),
        (line(id=[[]]), "id: [[]] is neither a string nor a whole number"),
    ],
)
def test_strange_records_are_rejected_and_do_no_harm(raw, reason):
    decoded = decode.decode_objects(raw + b"\n" + line())
    assert decoded.rejected.column("reason").to_pylist() == [reason]
    assert decoded.line.tolist() == [2]


def test_dead_letters_stay_small():
    lines = [
        line(lon="x" * 10_000_000),
        line(text="x" * 10_000_000, t=None),
        b"x" * 10_000_000,
        line(id=[1] * 1_000_000),
    ]
    decoded = decode.decode_objects(b"\n".join(lines))
    for row in decoded.rejected.to_pylist():
        assert len(row["reason"]) <= rejected.LONGEST_ECHO + 1
        echo = json.loads(row["record"])
        assert len(echo) == rejected.LONGEST_ECHO + 1
        assert echo.endswith("…")
    assert decoded.rejected.num_rows == 4


def test_a_line_of_ten_megabytes_is_a_record_as_any():
    words = [f"word{i}" for i in range(1_000_000)]
    decoded = decode.decode_objects(line() + b"\n" + line(text=" ".join(words)) + b"\n" + line(id="z"))
    assert decoded.batch.ids.to_pylist() == ["a", "a", "z"]
    assert np.diff(decoded.batch.terms.offsets).tolist() == [2, 1_000_000, 2]


def test_a_byte_order_mark_is_skipped_where_a_file_begins():
    assert len(decode.decode_objects(b"\xef\xbb\xbf" + line(), 1).batch) == 1
    assert decode.decode_objects(b"\xef\xbb\xbf" + line(), 2).rejected.num_rows == 1


@pytest.mark.parametrize("data", [b"", b"\n", b" \r\n\t\n"])
def test_nothing_decodes_to_nothing(data):
    csv = decode.decode_csv(data.replace(b" ", b"").replace(b"\t", b""), ["id"])
    for decoded in (decode.decode_objects(data), decode_queries.decode_queries(data), csv):
        assert len(decoded.batch) == len(decoded.line) == decoded.rejected.num_rows == 0


def test_arrow_buffers_are_taken_too():
    assert decode.decode_objects(pa.py_buffer(line())).batch[0] == parse_object(GOOD, WGS84)


# ------------------------------------------------------------------------------------------------------------- renaming


def test_columns_rename_the_input():
    record = {"code": "a", "id": 5, "t": 5, "long": 1, "lat": 2, "headline": "Flood"}
    columns = {"id": "code", "lon": "long", "text": "headline"}
    assert decode.decode_objects(json.dumps(record).encode(), columns=columns).batch[0].terms == ("flood",)
    record["long"] = 500
    (reason,) = (
        decode.decode_objects(json.dumps(record).encode(), columns=columns).rejected.column("reason").to_pylist()
    )
    assert reason == "long: 500 is out of range; it must lie in [-180, 180]"


def test_a_name_that_is_given_to_another_field_is_not_read_twice():
    record = {"id": "a", "t": 5, "lon": 1, "lat": 2, "terms": "Flood risk"}
    decoded = decode.decode_objects(json.dumps(record).encode(), columns={"text": "terms"})
    assert decoded.batch[0].terms == ("flood", "risk")
    swapped = decode.decode_objects(line(), columns={"lon": "lat", "lat": "lon"})
    assert (swapped.batch[0].x, swapped.batch[0].y) == (-2.0, 1.5)


@pytest.mark.parametrize("name", ["plain \u00e9", 'quo"te', "back\\slash"])
def test_two_fields_may_share_a_column_of_any_name(name):
    record = {name: "Flood \u00e9 \n", "t": 5, "lon": 1, "lat": 2}
    for text in (json.dumps(record), json.dumps(record, ensure_ascii=False)):
        decoded = decode.decode_objects(text.encode(), columns={"id": name, "text": name})
        assert decoded.batch[0].id == record[name]
        assert decoded.batch[0].terms == ("flood", "é")


@given(data=blocks(OBJECTS))
def test_renamed_objects_are_those_of_parse_object(data):
    columns = {"lon": "x", "lat": "other"}
    found = outcome(decode.decode_objects(data, 2, columns=columns))
    expected = by_record(data, parse_object, WGS84, 2, columns=columns)
    same(found, {line: "" if isinstance(wanted, str) else wanted for line, wanted in expected.items()})


# ------------------------------------------------------------------------------------------------------------------ CSV

CELLS = st.one_of(
    st.text(st.sampled_from('ab,"\n é'), max_size=6),
    NEAR,
    NUMBERS,
    TIMES.map(lambda text: text.strip('"')),
    st.sampled_from(["", " 5 ", "1_0", "nan", "inf", "+3", ".5", "5.", "0x1", "1e3", "-0", "20180207", "٣", "x"]),
)


def csv_number(text):
    """The number that a cell spells; the cell itself if none."""
    text = (text or "").strip()
    if not set(text) <= set("+-.eE0123456789"):
        return text
    try:
        return int(text) if text.lstrip("-").isdigit() and text[0] != "+" else float(text)
    except ValueError:
        return text


def csv_record(cells, space):
    """The object of a CSV record, or where it is wrong."""
    t = csv_number(cells["t"])
    try:
        return parse_object(
            cells
            | {"t": t if isinstance(t, int) else (cells["t"] or "").strip()}
            | {axis: csv_number(cells[axis]) for axis in space.axes},
            space,
        )
    except RecordError:
        return ""


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", 'b"', "c,\n\nd"]) | CELLS, MOMENTS.map(str) | CELLS, NEAR | CELLS, NEAR | CELLS, CELLS
        )
    ),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
)
def test_csv_written_by_the_standard_library_is_read_back(rows, newline, quoting):
    header = ["id", "t", "lon", "lat", "text"]
    file = io.StringIO(newline="")
    csv.writer(file, lineterminator=newline, quoting=quoting).writerows(rows)
    expected, at = {}, 2
    for row in rows:
        # what the writer leaves unquoted and empty is absent
        cells = [cell if cell or quoting == csv.QUOTE_ALL else None for cell in row]
        expected[at] = csv_record(dict(zip(header, cells, strict=True)), WGS84)
        one = io.StringIO(newline="")
        csv.writer(one, lineterminator=newline, quoting=quoting).writerow(row)
        at += one.getvalue().count("\n")
    same(outcome(decode.decode_csv(file.getvalue().encode(), header)), expected)


def test_csv_that_is_not_well_formed_is_rejected_record_by_record():
    data = b"\n".join(
        [
            b'a,5,1,2,"Flood, ""fire"""',
            b"b,5,1,2",
            b"",
            b'c,5,1,2,"x"y',
            b'd,5,1,2,in "quotes" inside',
            b"e,5,1,2,\xff",
            b'"f\ng",5,1,2,""',
            b"h,5,1,2,",
            b'i,5,1,2,"never closed',
            b"j,5,1,2,x",
        ]
    )
    decoded = decode.decode_csv(data, ["id", "t", "lon", "lat", "text"])
    assert list(zip(decoded.line.tolist(), decoded.batch.ids.to_pylist(), strict=True)) == [
        (2, "a"),
        (6, "d"),
        (8, "f\ng"),
    ]
    assert [(row["line"], row["reason"]) for row in decoded.rejected.to_pylist()] == [
        (3, "record: has 4 cells; the header has 5"),
        (5, "record: is not CSV: a quoted cell must end before the next comma"),
        (7, "record: is not UTF-8 text"),
        (10, "text: is required; give a string, or a list of strings as terms"),
        (11, "record: is not CSV: a quoted cell must end before the next comma"),
    ]
    assert json.loads(decoded.rejected.column("record")[3].as_py()) == {
        "id": "h",
        "t": "5",
        "lon": "1",
        "lat": "2",
        "text": None,
    }


def test_csv_columns_may_stand_in_any_order_under_any_name_among_others():
    data = b"x,2,zzz,Flood,1,5,a\n,2,,Flood,1,5,b\n"
    header = ["u", "lat", "v", "headline", "lon", "t", "id"]
    decoded = decode.decode_csv(data, header, 7, columns={"text": "headline"})
    assert [decoded.batch[i] for i in range(2)] == [
        parse_object({"id": name, "t": 5, "lon": 1, "lat": 2, "text": "Flood"}, WGS84) for name in "ab"
    ]
    assert decoded.line.tolist() == [7, 8]


def test_csv_has_no_terms():
    decoded = decode.decode_csv(b"a,5,1,2,x\n", ["id", "t", "lon", "lat", "terms"])
    assert decoded.rejected.column("reason").to_pylist() == ["terms: cannot be given in CSV; give text"]


# --------------------------------------------------------------------------------------------------------------- tables

TABLE = {
    "id": st.text(st.characters(codec="utf-8"), max_size=3) | st.none(),
    "t": st.integers(-(10**16), 10**16) | st.none(),
    "lon": st.floats(-200, 200) | st.none() | st.just(float("nan")),
    "lat": st.floats(-90, 90),
    "text": st.text(st.characters(codec="utf-8"), max_size=9) | st.none(),
    "terms": st.lists(st.sampled_from(["Flood", "fire é", "e\u0301", ""]) | st.none(), max_size=3) | st.none(),
}


@given(
    st.lists(st.fixed_dictionaries(TABLE), max_size=8), st.sets(st.sampled_from(["text", "terms", "lon"]), max_size=2)
)
def test_tables_are_read_as_parse_object_reads_their_rows(rows, dropped):
    types = {"id": pa.string(), "t": pa.int64(), "lon": pa.float64(), "lat": pa.float64(), "text": pa.string()}
    types["terms"] = pa.list_(pa.string())
    schema = pa.schema([(name, kind) for name, kind in types.items() if name not in dropped])
    table = pa.Table.from_pylist(rows, schema=schema)
    expected = {}
    for number, row in enumerate(rows, 3):
        try:
            expected[number] = parse_object({name: row[name] for name in schema.names}, WGS84)
        except RecordError as error:
            expected[number] = str(error)
    same(outcome(decode_tables.decode_object_table(table, 3)), expected)


def table(**columns):
    n = len(next(iter(columns.values())))
    plain = {"id": [str(i) for i in range(n)], "t": [5] * n, "lon": [1.0] * n, "lat": [2.0] * n, "text": ["Flood"] * n}
    return pa.table({name: columns.get(name, plain.get(name)) for name in plain | columns})


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "America/New_York"])
def test_timestamps_of_any_unit_and_zone(unit, zone):
    moments = [datetime(2018, 2, 7, 1, 26, 13, 0, UTC), datetime(1969, 12, 31, 23, 59, 59, 0, UTC), None]
    column = pa.array(moments, pa.timestamp(unit, zone))
    decoded = decode_tables.decode_object_table(table(t=column))
    assert decoded.batch.t.tolist() == [1_517_966_773_000, -1_000]
    assert decoded.rejected.to_pylist()[0]["reason"] == "t: is required; give milliseconds or ISO 8601"


@pytest.mark.parametrize(
    ("kind", "given_", "right"),
    [
        (pa.float64(), [1512111012345.0, None, -2.0], [1512111012345, None, -2]),
        (pa.float64(), [1.5, 2.0**53, math.inf], [None, None, None]),
        (pa.float64(), [7.0, 1.5, math.nan], [7, None, None]),
        (pa.float32(), [2.0**24 - 1, 2.0**24, 1512111012345.0], [2**24 - 1, None, None]),
        (pa.decimal128(16, 2), [Decimal("7.00"), Decimal("7.50"), Decimal(-3)], [7, None, -3]),
    ],
)
def test_whole_numbers_that_a_table_has_as_floats_are_times(kind, given_, right, tmp_path):
    made = table(t=pa.array(given_, kind))
    decoded = decode_tables.decode_object_table(made)
    assert decoded.batch.t.tolist() == [t for t in right if t is not None]
    assert decoded.line.tolist() == [line for line, t in enumerate(right, 1) if t is not None]
    assert all(reason.startswith("t: ") for reason in decoded.rejected.column("reason").to_pylist())
    pq.write_table(made, tmp_path / "o.parquet")
    oracle = [each for (_, _), each in read_objects([tmp_path / "o.parquet"], WGS84)]
    assert [each.t for each in oracle] == decoded.batch.t.tolist()
    placeless = made.set_column(2, "lon", pa.array([500.0] * 3))
    reasons = decode_tables.decode_object_table(placeless).rejected.column("reason").to_pylist()
    assert [reason[:3] for reason in reasons] == ["t: " if t is None else "lon" for t in right]


def test_parts_of_a_millisecond_are_rounded_down():
    decoded = decode_tables.decode_object_table(table(t=pa.array([1_999, -1, -1_001], pa.timestamp("us"))))
    assert decoded.batch.t.tolist() == [1, -1, -2]


def test_timestamps_out_of_range_are_rejected():
    decoded = decode_tables.decode_object_table(table(t=pa.array([2**62, -(2**62), 0], pa.timestamp("s"))))
    assert decoded.batch.t.tolist() == [0]
    assert decoded.rejected.num_rows == 2


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("t", pa.array([date(1970, 1, 1)] * 2, pa.date32())),
        ("t", pa.array([0, 0], pa.uint8())),
        ("t", pa.array([0, 0], pa.uint64())),
        ("t", pa.array(["1970-01-01T00:00:00.000", "1970-01-01T00:00Z"])),
        ("t", pa.array(["1970-01-01T00:00:00.000", "1970-01-01T00:00:00.000"]).dictionary_encode()),
        ("lon", pa.array([1, 1], pa.int8())),
        ("lon", pa.array([1, 1], pa.uint64())),
        ("lon", pa.array([1, 1], pa.float32())),
        ("lon", pa.array([Decimal("1.0")] * 2)),
        ("id", pa.array(["0", "1"], pa.large_string())),
        ("id", pa.array(["0", "1"]).dictionary_encode()),
        ("text", pa.array(["Flood"] * 2).dictionary_encode()),
        ("text", pa.array(["Flood"] * 2, pa.string_view())),
        ("text", pa.chunked_array([["Flood"], ["FLOOD"]])),
    ],
)
def test_columns_of_other_types_hold_the_same_objects(name, column):
    decoded = decode_tables.decode_object_table(table(**{name: column}))
    t = 0 if name == "t" else 5
    assert [decoded.batch[i] for i in range(2)] == [
        parse_object({"id": str(i), "t": t, "lon": 1, "lat": 2, "text": "Flood"}, WGS84) for i in range(2)
    ]


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.string()), pa.large_list(pa.large_string()), pa.list_(pa.dictionary(pa.int32(), pa.string()))]
)
def test_lists_of_terms_in_tables(kind):
    values = [["Flood", "fire risk"], [], None, ["x", None]]
    plain = {"id": list("abcd"), "t": [5] * 4, "lon": [1.0] * 4, "lat": [2.0] * 4}
    whole = pa.table(plain | {"terms": pa.array(values, pa.list_(pa.string())).cast(kind)})
    for part in (whole, pa.concat_tables([whole.slice(0, 1), whole.slice(1)])):
        decoded = decode_tables.decode_object_table(part)
        assert [decoded.batch[i].terms for i in range(2)] == [("flood", "fire", "risk"), ()]
        assert decoded.rejected.column("reason").to_pylist() == [
            "text: is required; give a string, or a list of strings as terms",
            "terms: ['x', None] is not a list of strings",
        ]


@pytest.mark.parametrize(
    ("name", "column", "reason"),
    [
        ("t", [1.5], "t: 1.5 is not a time; give integer milliseconds or an ISO 8601 string"),
        ("lon", ["1"], "lon: '1' is not a number"),
        ("lon", [True], "lon: True is not a number"),
        ("lon", [float("inf")], "lon: inf is not a finite number"),
        ("id", [7.5], "id: 7.5 is neither a string nor a whole number"),
        ("text", [7], "text: 7 is not a string"),
        ("text", pa.nulls(1), "text: is required; give a string, or a list of strings as terms"),
        ("id", pa.array([b"\xff"]).view(pa.string()), "record: is not UTF-8 text"),
    ],
)
def test_tables_of_wrong_types_are_rejected_row_by_row(name, column, reason):
    decoded = decode_tables.decode_object_table(table(**{name: column}), 9)
    assert decoded.rejected.column("reason").to_pylist() == [reason]
    assert decoded.rejected.column("line").to_pylist() == [9]
    json.loads(decoded.rejected.column("record")[0].as_py())


def test_a_table_without_a_column_is_rejected_row_by_row():
    decoded = decode_tables.decode_object_table(table(t=[1, 2]).drop_columns(["id"]))
    assert decoded.rejected.column("reason").to_pylist() == ["id: is required; give a string"] * 2


def test_columns_rename_those_of_a_table():
    renamed = table(t=[1, 2]).rename_columns(["code", "t", "lon", "lat", "headline"])
    decoded = decode_tables.decode_object_table(renamed, columns={"id": "code", "text": "headline"})
    assert decoded.batch.ids.to_pylist() == ["0", "1"]
