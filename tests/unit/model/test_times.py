"""Timestamps and durations at the border."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.model.errors import RecordError
from spatialstream.model.times import TIME_LIMIT, format_duration, parse_duration, parse_time

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
        ("5", "'5' is not a time; give milliseconds or ISO 8601, such as \"2018-02-07T01:26:13.840Z\""),
        (TIME_LIMIT + 1, f"{TIME_LIMIT + 1} is out of range; give milliseconds from {-TIME_LIMIT} to {TIME_LIMIT}"),
        (-TIME_LIMIT - 1, f"{-TIME_LIMIT - 1} is out of range; give milliseconds from {-TIME_LIMIT} to {TIME_LIMIT}"),
    ],
)
def test_what_is_no_time_is_told(value, problem):
    with pytest.raises(RecordError) as caught:
        parse_time(value, "field")
    assert str(caught.value) == f"field: {problem}"


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
