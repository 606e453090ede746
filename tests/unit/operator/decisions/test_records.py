"""Values of a status."""

import math

from hypothesis import given
from hypothesis import strategies as st

from spatialstream_operator.decisions import records


@given(st.integers(0, 253_402_300_799_999))
def test_times_survive(at):
    assert records.moment({"t": records.moment_text(at)}, "t") == at


def test_times_as_kubernetes_writes_them():
    assert records.moment_text(1_795_262_400_000) == "2026-11-21T12:00:00Z"
    assert records.moment_text(1_795_262_400_250) == "2026-11-21T12:00:00.250Z"
    assert records.moment_text(None) is None
    assert records.moment({"t": "2026-11-21T12:00:00.123456Z"}, "t") == 1_795_262_400_123
    assert records.moment({"t": "yesterday"}, "t") is None


@given(st.floats(0.0, 1e6) | st.just(math.inf))
def test_ratios_survive(value):
    read = records.ratio({"r": records.ratio_text(value)}, "r")
    assert read is not None
    assert math.isclose(read, value, abs_tol=0.00501) or read == value


def test_what_is_no_ratio():
    assert records.ratio_text(math.nan) is None
    assert [records.ratio({"r": value}, "r") for value in ("NaN", "-1", "x", True, None, [])] == [None] * 6


@given(st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers()))
def test_what_is_of_another_type_is_absent(value):
    record = {"x": value}
    assert records.text(record, "x") == (value if isinstance(value, str) else "")
    assert records.flag(record, "x") == (value if isinstance(value, bool) else None)
    assert records.whole(record, "x") == (value if type(value) is int and value >= 0 else None)
    assert records.texts(record, "x") == ()
    assert records.part(record, "x") == {}
