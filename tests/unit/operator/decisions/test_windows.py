"""Windows of values against all values."""

import json

from hypothesis import given
from hypothesis import strategies as st

from spatialstream_operator.decisions.windows import EMPTY, PIECES, Window

steps = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), min_size=1, max_size=100)


@given(steps, st.integers(1, 500))
def test_it_holds_the_window_and_at_most_a_piece_more(values, length):
    window, now, all_values = EMPTY, 1_000_000, []
    for passed, value in values:
        now += passed
        all_values.append((now, value))
        window = window.add(now, value, length, hole=10**6)
        inside = [each for at, each in all_values if at > now - length]
        wider = [each for at, each in all_values if at > now - length - length // PIECES - 41]
        assert min(wider) <= window.lowest <= min(inside)
        assert max(inside) <= window.highest <= max(wider)
        assert not window.covers(now, length) or all_values[0][0] <= now - length
        assert len(window.pieces) <= PIECES + 2
    assert Window.from_status(json.loads(json.dumps(window.to_status()))) == window


def test_values_that_come_all_the_time_cover_it():
    window, covered = EMPTY, []
    for now in range(0, 2000, 10):
        window = window.add(now, 1, 600, hole=100)
        covered.append(window.covers(now, 600))
    assert covered == [now >= 600 for now in range(0, 2000, 10)]


def test_after_a_hole_it_begins_anew():
    window = EMPTY.add(0, 9, 600, 100).add(100, 8, 600, 100)
    assert window.highest == 9
    assert window.add(201, 1, 600, 100).highest == 1
    assert window.add(50, 1, 600, 100).highest == 1  # time went back


@given(st.none() | st.text() | st.lists(st.none() | st.dictionaries(st.sampled_from(["first", "low"]), st.text())))
def test_what_is_no_window_is_an_empty_one(value):
    read = Window.from_status({"since": "2026-11-21T12:00:00Z", "pieces": value})
    assert read == EMPTY
