"""Timestamps and durations at the border."""

import math
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.model.errors import RecordError, SettingError
from spatialstream.model.times import (
    TIME_LIMIT,
    check_time,
    check_times,
    format_duration,
    in_milliseconds,
    looks_like,
    parse_duration,
    parse_time,
)

ZONES = st.builds(lambda minutes: timezone(timedelta(minutes=minutes)), st.integers(-1439, 1439))


@pytest.mark.parametrize(
    ("value", "milliseconds"),
    [
        (0, 0),
        (-5, -5),
        (TIME_LIMIT, TIME_LIMIT),
        (-TIME_LIMIT, -TIME_LIMIT),
        ("1970-01-01", 0),
        ("2018-02-07T01:26:13.840Z", 1_517_966_773_840),
        ("2018-02-07T01:26:13.840", 1_517_966_773_840),
        ("2018-02-07 02:26:13.840+01:00", 1_517_966_773_840),
        ("2018-02-06T20:26:13.840999-05:00", 1_517_966_773_840),
        ("1969-12-31T23:59:59.999Z", -1),
        ("0001-01-01T00:00:00+23:59", -62_135_596_800_000 - 86_340_000),
        ("2018-02-07t01:26:13.840z", 1_517_966_773_840),
        ("2018-02-07T01:26:13,8409999999+0000", 1_517_966_773_840),
        ("20180207T012613.840Z", 1_517_966_773_840),
        ("2018-02-07T02+01", 1_517_965_200_000),
        ("2018-02-07T01:26:13-00:00", 1_517_966_773_000),
        ("1512111012345", 1_512_111_012_345),
        ("20180207", 20_180_207),
        ("-5", -5),
        ("0" * 5_000 + "7", 7),
    ],
)
def test_times(value, milliseconds):
    assert parse_time(value) == milliseconds


@given(st.datetimes(timezones=ZONES))
def test_a_time_is_the_milliseconds_since_1970_rounded_down(moment):
    expected = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    assert parse_time(moment.isoformat()) == expected


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, "None is not a time; give integer milliseconds or an ISO 8601 string"),
        (True, "True is not a time; give integer milliseconds or an ISO 8601 string"),
        (1.0, "1.0 is not a time; give integer milliseconds or an ISO 8601 string"),
        ([], "[] is not a time; give integer milliseconds or an ISO 8601 string"),
        ("now", "'now' is not a time; give milliseconds or ISO 8601, such as \"2018-02-07T01:26:13.840Z\""),
        ("", "'' is not a time; give milliseconds or ISO 8601, such as \"2018-02-07T01:26:13.840Z\""),
        ("9" * 5_000, f"{'9' * 5_000!r} is out of range; give milliseconds from {-TIME_LIMIT} to {TIME_LIMIT}"),
        (
            str(-TIME_LIMIT - 1),
            f"'{-TIME_LIMIT - 1}' is out of range; give milliseconds from {-TIME_LIMIT} to {TIME_LIMIT}",
        ),
        (TIME_LIMIT + 1, f"{TIME_LIMIT + 1} is out of range; give milliseconds from {-TIME_LIMIT} to {TIME_LIMIT}"),
        (-TIME_LIMIT - 1, f"{-TIME_LIMIT - 1} is out of range; give milliseconds from {-TIME_LIMIT} to {TIME_LIMIT}"),
    ],
)
def test_what_is_no_time_is_told(value, problem):
    with pytest.raises(RecordError) as caught:
        parse_time(value, "field")
    assert str(caught.value) == f"field: {problem}"


NO_TIMES = """
+5| 5|5 |5.0|1e3|1_000|--5|٣|２018-02-07
2020-01-01/2020-12|2020-01-01/00:00|2020-01-01x00:00|2020-01-01_00:00|2020-01-01  00:00|2020-01-01\t00:00
2020-01-01T|2020-01-01T00:00 Z|2020-01-01Z| 2020-01-01|2020-01-01 |20200101 0000|2020-01-01T0000
2020-01|2020-0101|2018-W06-3|2018W063|2018-038|+2018-02-07|0000-01-01|2018-02-30|2018-13-01|20180230T01
2018-02-07T24:00|2018-02-07T01:60|2018-02-07T01:26:60|2018-02-07T01:2613|2018-02-07T01:26.5|2018-02-07T01:26:13.
2018-02-07T01:26+24:00|2018-02-07T01:26+01:60|2018-02-07T01:26+01:00:30|2018-02-07T01:26+1
"""


@pytest.mark.parametrize(
    "text", [*NO_TIMES.strip("\n").replace("\n", "|").split("|"), "2020-01-01\n00:00", "2020-01-01\n"]
)
def test_a_string_that_is_nearly_a_time_is_none(text):
    with pytest.raises(RecordError, match="is not a time; give milliseconds or ISO 8601"):
        parse_time(text)


@pytest.mark.parametrize(("unit", "factor"), [("s", 1000), ("ms", 1), ("us", Fraction(1, 1000))])
@given(st.integers(-(10**18), 10**18))
def test_a_number_of_a_unit_is_rounded_down_to_ms(unit, factor, number):
    assert in_milliseconds(number, unit) == in_milliseconds(str(number), unit) == math.floor(number * factor)
    for other in (True, None, 1.5, "2018-02-07", "x", "5 "):
        assert in_milliseconds(other, unit) is other


@pytest.mark.parametrize(
    ("times", "unit"),
    [
        ([], None),
        ([0, 0], None),
        ([1_795_880_000, 1_795_880_001], "s"),
        ([-1_795_880_000], "s"),
        ([1, 2, 3, 0], "s"),
        ([1_795_880_000_000], None),
        ([1_795_880_000_000_000], "us"),
        ([5] * 19 + [1_795_880_000_000], "s"),
        ([5] * 9 + [1_795_880_000_000], None),
        ([5, 1_795_880_000_000_000], None),
    ],
)
def test_times_of_another_unit_are_seen(times, unit):
    assert looks_like(np.array(times, np.int64)) == unit


@pytest.mark.parametrize(
    ("value", "clock", "unit"),
    [
        (1_795_880_000, 1_795_880_000_000, "seconds"),
        ("1795880000", 1_795_880_000_000, "seconds"),
        (1_795_880_000_000_000, 1_795_880_000_000, "microseconds"),
        ("1970-01-21", 1_795_880_000_000, None),
        (0, 1_795_880_000_000, None),
        (5, 0, None),
        (5, 900, None),
        (1_795_880_000_000, 5, None),
        (1_795_880_000_000_000, 1_795_880_000_000_001, None),
    ],
)
def test_a_time_of_another_unit_than_the_streams_is_seen(value, clock, unit):
    if unit is None:
        check_time(value, clock)
        return
    with pytest.raises(RecordError, match=f"t: .* and the stream's clock at {clock}: it looks like {unit}; give ms or"):
        check_time(value, clock)


@pytest.mark.parametrize(
    ("t", "told"),
    [
        (1_795_880_000, "lie in January 1970; they look like seconds: give --time-unit s"),
        (1_795_880_000_000_000, "lie beyond the year 2100; they look like microseconds: give --time-unit us"),
        (253_402_300_799_999, None),
        (1_795_880_000_000, None),
        (0, None),
    ],
)
def test_times_of_a_property_may_say_that_something_never_ends(t, told):
    times = np.full(3, t)
    if told is None:
        check_times(times, "objects", " in a.csv", "until")
        return
    with pytest.raises(SettingError) as caught:
        check_times(times, "objects", " in a.csv", "until")
    assert f"nearly all times of 'until' in a.csv {told}" in str(caught.value)
    assert ", which is then that of every time in a.csv that is a number, or ms if" in str(caught.value)


@pytest.mark.parametrize(
    ("value", "milliseconds"),
    [
        (0, 0),
        (7, 7),
        ("0s", 0),
        ("30m", 1_800_000),
        (" 2 h ", 7_200_000),
        ("7d", 604_800_000),
        ("1w", 604_800_000),
        ("9ms", 9),
    ],
)
def test_durations(value, milliseconds):
    assert parse_duration(value) == milliseconds


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, 'None is not a duration; give milliseconds or a string such as "30m", "2h", "7d"'),
        (True, 'True is not a duration; give milliseconds or a string such as "30m", "2h", "7d"'),
        (1.5, '1.5 is not a duration; give milliseconds or a string such as "30m", "2h", "7d"'),
        ("5", '\'5\' is not a duration; give milliseconds or a string such as "30m", "2h", "7d"'),
        ("-5m", '\'-5m\' is not a duration; give milliseconds or a string such as "30m", "2h", "7d"'),
        ("5M", '\'5M\' is not a duration; give milliseconds or a string such as "30m", "2h", "7d"'),
        (-1, "-1 is negative; a duration is at least 0"),
        (TIME_LIMIT + 1, f"{TIME_LIMIT + 1} is out of range; give at most {TIME_LIMIT} ms"),
        ("99999999999w", f"'99999999999w' is out of range; give at most {TIME_LIMIT} ms"),
    ],
)
def test_what_is_no_duration_is_told(value, problem):
    with pytest.raises(RecordError) as caught:
        parse_duration(value, "window")
    assert str(caught.value) == f"window: {problem}"


@given(st.integers(0, TIME_LIMIT) | st.integers(0, 10**6).map(lambda n: n * 60_000))
def test_a_formatted_duration_is_read_back(milliseconds):
    assert parse_duration(format_duration(milliseconds)) == milliseconds


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(5_400_000, "90m"), (0, "0ms"), (1_001, "1001ms"), (1_209_600_000, "2w"), (86_400_000, "1d")],
)
def test_durations_are_formatted_in_their_largest_exact_unit(milliseconds, text):
    assert format_duration(milliseconds) == text
