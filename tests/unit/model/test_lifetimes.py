"""Lifetimes: how long queries last, and how many steps they may have."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.model.errors import RecordError
from spatialstream.model.lifetimes import MOST_STEPS
from spatialstream.model.queries import QueryBatch, parse_query
from spatialstream.model.space import WGS84
from spatialstream.model.times import FOREVER, TIME_LIMIT
from spatialstream.records.encode import query_lines
from tests.unit.model.test_queries import record


@pytest.mark.parametrize(("duration", "step"), [(10_000_000, 1), (10_000_001, 2), (39_999_999, 4), ("1d", "1s")])
def test_a_ctq_may_have_ten_million_steps(duration, step):
    assert parse_query(record("CTQ", duration=duration, step=step), WGS84).lifetime.step


@pytest.mark.parametrize("step", [1, 60_000, TIME_LIMIT // MOST_STEPS, FOREVER // MOST_STEPS + 1, TIME_LIMIT])
@pytest.mark.parametrize("kind", ["CRQ", "CKQ", "CTQ"])
def test_without_a_duration_it_lives_until_it_is_cancelled(kind, step):
    steps = {"step": step} if kind == "CTQ" else {}
    query = parse_query(record(kind, duration=None, **steps), WGS84)
    most = MOST_STEPS * step if kind == "CTQ" else FOREVER
    assert query.lifetime.duration == min(most, FOREVER)
    assert parse_query(query.to_record(), WGS84) == query
    assert "duration" not in query.to_record()
    (line,) = bytes(query_lines(QueryBatch.of([query]))).splitlines()
    assert json.loads(line) == query.to_record()
    assert -TIME_LIMIT + FOREVER > TIME_LIMIT


@given(st.integers(0, 2**53), st.integers(1, 2**53))
def test_the_step_that_would_be_right_is_right(duration, step):
    try:
        parse_query(record("CTQ", duration=min(duration, TIME_LIMIT), step=min(step, TIME_LIMIT)), WGS84)
    except RecordError as error:
        least = int(str(error).split("at least ")[1].split(" ")[0])
        parse_query(record("CTQ", duration=min(duration, TIME_LIMIT), step=least), WGS84)
        with pytest.raises(RecordError):
            parse_query(record("CTQ", duration=min(duration, TIME_LIMIT), step=least - 1), WGS84)
