"""Values are read as they were written; what is not of their kind is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.model.jsonable import from_json, to_json


@dataclass(frozen=True, slots=True)
class Inner:
    name: str
    pair: tuple[int, str] | None


@dataclass(frozen=True, slots=True)
class Outer:
    number: int
    inner: Inner
    many: tuple[Inner, ...] = ()
    by_number: Mapping[int, tuple[int, ...]] | None = None
    stage: Literal["one", "two"] | None = None


INNER = st.builds(Inner, st.text(max_size=5), st.none() | st.tuples(st.integers(), st.text(max_size=3)))
OUTER = st.builds(
    Outer,
    st.integers(),
    INNER,
    st.lists(INNER, max_size=3).map(tuple),
    st.none() | st.dictionaries(st.integers(), st.lists(st.integers(), max_size=3).map(tuple), max_size=3),
    st.sampled_from([None, "one", "two"]),
)


@given(OUTER)
def test_a_value_is_read_as_it_was_written(value: Outer) -> None:
    assert from_json(Outer, to_json(value)) == value


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "{}", "[]", "null", "7", '{"number": 1}', '{"number": "1", "inner": {"name": "x", "pair": null}}'),
        '{"number": 1, "inner": {"name": "x", "pair": [1]}}',
        '{"number": 1, "inner": {"name": "x", "pair": null}, "other": 1}',
        '{"number": 1, "inner": {"name": "x", "pair": null}, "many": {}}',
        "[" * 100_000,
    ],
)
def test_what_is_of_another_kind_is_refused(text: str) -> None:
    with pytest.raises((ValueError, TypeError, LookupError, AttributeError, RecursionError)):
        from_json(Outer, text)
