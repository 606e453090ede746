"""Decoding in bulk equals parsing each record."""

import json
import random
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spatialstream.model import decode
from spatialstream.model.errors import RecordError
from spatialstream.model.objects import parse_object
from spatialstream.model.queries import parse_query
from spatialstream.model.space import WGS84, Space
from spatialstream.model.terms import TermRule

PLANE = Space.planar(-10, 0, 10, 5)


def by_record(data, parse, space, first_line=1, rule=TermRule(), columns=None):
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
ODD_LITERALS = st.sampled_from(
    ["null", "true", "false", "NaN", "Infinity", "-Infinity", "nul", "[]", "{}", '""', "0", "-0", "-0.0", "01", "1.", ".5", "+1"]
    + ["1e2", "1E+2", "1e-2", "1e400", "1e-400", "-", '"', "9" * 30, "9" * 700, "9" * 5000, "0." + "3" * 400, "1" + "0" * 310]
    + ["[1,2", '{"a":1', '"\\ud800"', '"\\udc00\\ud800"', '"\\ud83d\\ude00"', '"\\u00e9"', '"\\x"', '"\\u12g4"', '"tab\there"']
    + ["[" * 61 + "]" * 61, "[" * 3000 + "]" * 3000, '{"a":' * 70 + "1" + "}" * 70, "[[], [{}], {\"a\": [1, {}]}]", "[1,]", '{"a",}']
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
    st.datetimes(timezones=st.timezones()),
    st.datetimes(timezones=st.builds(lambda m: timezone(timedelta(minutes=m)), st.integers(-1439, 1439))),
)
TIME_TEXTS = st.one_of(
    MOMENTS.map(datetime.isoformat),
    MOMENTS.map(lambda m: m.isoformat(timespec="milliseconds")),
    MOMENTS.map(lambda m: m.isoformat(sep=" ", timespec="minutes")),
    MOMENTS.map(lambda m: m.isoformat(timespec="seconds").replace("+00:00", "Z")),
    MOMENTS.map(lambda m: m.strftime("%Y-%m-%dT%H:%M:%S%z")),
    st.dates().map(date.isoformat),
    st.from_regex(r"\A(19|20)\d\d-[012]\d-[0123]\d([T ][012]\d:[0-6]\d(:[0-6]\d([.,]\d{1,7})?)?(Z|[+-]\d\d(:?[0-6]\d)?)?)?\Z"),
    st.sampled_from(["2018-02-07T24:00", "0000-01-01", "2000-02-29", "1900-02-29", "2018-W06-3", "20180207", "now", "1517966773840"]),
)
TIMES = st.one_of(
    st.integers(-(10**12), 2 * 10**12).map(str),
    st.sampled_from([8_640_000_000_000_000, -8_640_000_000_000_000, 8_640_000_000_000_001, -8_640_000_000_000_001]).map(str),
    TIME_TEXTS.map(json.dumps),
)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(["", "Flood risk", "a\"b\\", "e\u0301"])
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
LIST = (st.lists(STRINGS, max_size=4).map(lambda items: "[" + ", ".join(items) + "]"), LISTS)
TIME = (st.integers(-(10**12), 2 * 10**12).map(str) | MOMENTS.map(lambda m: json.dumps(m.isoformat())), TIMES)
OBJECTS = st.one_of(
    shaped({"id": STRING, "t": TIME, "lon": NUMBER, "lat": NUMBER, "x": NUMBER, "y": NUMBER, "text": STRING}),
    shaped({"id": STRING, "t": TIME, "lon": NUMBER, "lat": NUMBER, "x": NUMBER, "y": NUMBER, "terms": LIST}),
    shaped({"id": STRING, "t": TIME, "x": NUMBER, "y": NUMBER, "text": STRING, "terms": (st.just("null"), LISTS)}),
    shaped({"id": STRING, "t": TIME, "lon": NUMBER, "lat": NUMBER, "text": STRING}),
)
BOXES = st.tuples(NEAR, NEAR, NEAR, NEAR).map(lambda b: '{"box": [' + ",".join(sorted(b, key=float)) + "]}")
CIRCLES = st.tuples(NEAR, NEAR, NEAR).map(lambda c: '{ "circle" : [ ' + " , ".join(c) + " ] }")
ODD_REGIONS = st.one_of(
    st.tuples(st.sampled_from(["box", "circle"]), st.lists(NUMBERS, min_size=2, max_size=5)).map(
        lambda p: f'{{"{p[0]}" : [{" , ".join(p[1])}]}}'
    ),
    st.tuples(*[st.integers(-9, 9).map(str)] * 4).map(lambda b: '{"box":[' + ",".join(b) + "]}"),
    st.tuples(*[st.integers(-2, 9).map(str)] * 3).map(lambda c: '{"circle":[' + ",".join(c) + "]}"),
    st.sampled_from(['{"box":[0,0,1,1],"box":[0,0,2,2]}', '{"box":[0,0,1,1],"circle":[0,0,1]}', '{"disc":[0,0,1]}', "{}"]),
    st.sampled_from(['{"box":[0,0,1,"1"]}', '{"circle":[0,0,true]}', '{"box":null}', '{"circle":{}}', '{"b\\u006fx":[0,0,1,1]}']),
)
REGION = (BOXES | CIRCLES, ODD_REGIONS)
SPAN = (
    st.integers(1, 10**9).map(str)
    | st.builds('"{}{}"'.format, st.integers(1, 10**6), st.sampled_from(["ms", "s", "m", "h", "d", "w"])),
    st.one_of(
        st.integers(-1, 1).map(str),
        st.builds('"{}{}"'.format, st.integers(0, 9), st.sampled_from(["ms", "x", " m", "m ", "", "M", "mm", "min"])),
        st.sampled_from(['"٣m"', '" 3 h "', '"99999999999999999999d"', '"8640000000000000ms"', '"8640000000001s"']),
        st.sampled_from(["1.5", "1e3", '"1"', '"-1m"', '"m"', '"86400000000000m"', "8640000000000000", "8640000000000001"]),
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
PARTS = {
    "SRQ": {"region": REGION, "duration": SPAN},
    "SKQ": {"at": POINT, "k": COUNT, "duration": SPAN},
    "STQ": {"region": REGION, "k": COUNT, "duration": SPAN},
    "CRQ": {"region": REGION, "duration": SPAN},
    "CKQ": {"at": POINT, "k": COUNT, "duration": SPAN, "window": (SPAN[0] | st.just("null"), SPAN[1])},
    "CTQ": {"region": REGION, "k": COUNT, "duration": SPAN, "window": SPAN, "step": SPAN},
    "CANCEL": {},
}
HEAD = {"id": STRING, "t": TIME}


def typed(kind):
    head = HEAD | {"type": (st.just(f'"{kind}"'), st.sampled_from(['"XYZ"', '"SRQ"', '"crq"', "3", '"C\\u0052Q"', '""']))}
    strange = {"region": REGION, "at": POINT, "k": COUNT, "window": SPAN, "step": SPAN, "keywords": WORDS}
    more = st.dictionaries(st.sampled_from(sorted(strange)), st.none(), min_size=1, max_size=1)
    return st.one_of(
        shaped(head | PARTS[kind] | {"keywords": WORDS}),
        shaped(head | PARTS[kind]),
        more.flatmap(lambda names: shaped(head | PARTS[kind] | {name: strange[name] for name in names})),
    )


QUERIES = st.sampled_from(sorted(PARTS)).flatmap(typed)
RUBBISH = st.sampled_from(["", "   ", "\t\r", "nonsense", "[]", "7", '"text"', "{", "}", '{"id":"a"}}', "\ufeff{}", "null", "{}"])


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
def test_objects_are_those_of_parse_object(data, first_line, space):
    decoded = decode.decode_objects(data, first_line, space)
    same(outcome(decoded), by_record(data, parse_object, space, first_line))


@given(data=blocks(QUERIES), first_line=st.integers(2, 10**12))
@pytest.mark.parametrize("space", [WGS84, PLANE], ids=str)
def test_queries_are_those_of_parse_query(data, first_line, space):
    decoded = decode.decode_queries(data, first_line, space)
    same(outcome(decoded), by_record(data, parse_query, space, first_line))


@given(data=blocks(QUERIES | OBJECTS))
def test_term_rules_hold_in_both(data):
    rule = TermRule(frozenset({"the", "flood"}), 2)
    same(outcome(decode.decode_objects(data, 5, rule=rule)), by_record(data, parse_object, WGS84, 5, rule))
    same(outcome(decode.decode_queries(data, 5, rule=rule)), by_record(data, parse_query, WGS84, 5, rule))


@given(NUMBERS | st.floats(allow_nan=False, allow_infinity=False).map(repr))
@example("-118.66000366210938")
@example("9007199254740993")
@example("0.1e1")
@example("1.7976931348623157e308")
@example("2.2250738585072011e-308")
@example("4.9406564584124654e-324")
@example("0." + "0" * 290 + "123456789012345678901")
def test_a_number_is_rounded_as_python_rounds_it(number):
    wide = Space.planar(-1.7976931348623157e308, -1, 1.7976931348623157e308, 1)
    decoded = decode.decode_objects(f'{{"id":"a","t":0,"x":{number},"y":-0,"text":""}}'.encode(), 1, wide)
    assert repr(decoded.batch[0].x) == repr(float(json.loads(number)))
    assert repr(decoded.batch[0].y) == "0.0"


@given(TIME_TEXTS)
def test_a_time_is_read_as_parse_time_reads_it(text):
    data = json.dumps({"id": "a", "t": text, "lon": 0, "lat": 0, "text": ""}).encode()
    same(outcome(decode.decode_objects(data)), by_record(data, parse_object, WGS84))
