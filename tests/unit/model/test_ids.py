"""Ids: strings, or whole numbers as their digits."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.model.errors import RecordError
from spatialstream.model.ids import parse_id


@given(st.integers(-(10**60), 10**60))
def test_a_whole_number_is_its_digits(number):
    assert parse_id(number) == parse_id(str(number)) == parse_id(Decimal(number)) == str(number)


@given(st.integers(-(2**53) + 1, 2**53 - 1))
def test_a_float_is_one_as_long_as_it_is_the_only_one(number):
    assert parse_id(float(number)) == str(number)


@pytest.mark.parametrize("value", [2.0**53, -(2.0**53), 1e300, float("inf"), float("nan")])
def test_a_float_that_may_have_lost_digits_is_refused(value):
    with pytest.raises(
        RecordError, match=r"^id: .* is a float of 2\^53 or more, which may have lost digits; give an int"
    ):
        parse_id(value)


@pytest.mark.parametrize("value", [True, 0.5, Decimal("0.5"), Decimal("1e1000000"), Decimal("inf"), [5], {}])
def test_what_is_no_id_is_refused(value):
    with pytest.raises(RecordError, match=r"^id: .* is neither a string nor a whole number$"):
        parse_id(value)


def test_an_integer_without_end_is_refused():
    with pytest.raises(RecordError, match="too many digits"):
        parse_id(1 << 100_000)
