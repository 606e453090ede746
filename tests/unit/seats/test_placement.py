"""Which seat has which item."""

from __future__ import annotations

import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from spatialstream.seats.placement import placed

SEATS = st.integers(1, 8).map(lambda count: [f"seat-{number}" for number in range(count)])
WORK = st.dictionaries(st.integers(-1, 30), st.floats(0.0, 100.0), min_size=1, max_size=25)
BEFORE = st.dictionaries(st.integers(-1, 30), st.integers(0, 10).map("seat-{}".format))


def loads(found: dict[int, str], seats: list[str], work: dict[int, float]) -> list[float]:
    return [sum(work[item] for item, seat in found.items() if seat == each) for each in seats]


@given(WORK, SEATS, BEFORE, st.sets(st.integers(0, 7).map("seat-{}".format)), st.booleans())
def test_every_item_has_a_seat_that_exists(
    work: dict[int, float], seats: list[str], before: dict[int, str], leaving: set[str], even: bool
) -> None:
    found = placed(work, seats, before, work, even=even, leaving=leaving)
    assert found.keys() == work.keys()
    assert set(found.values()) <= set(seats)
    staying = set(seats) - leaving
    for item, seat in found.items():
        if before.get(item) in seats and not even:
            assert seat == before[item]
        elif staying:
            assert seat in staying


@given(WORK, SEATS, BEFORE, st.randoms(use_true_random=False))
def test_it_is_the_same_each_time_in_whatever_order_items_are_given(
    work: dict[int, float], seats: list[str], before: dict[int, str], draw: random.Random
) -> None:
    mixed = list(work)
    draw.shuffle(mixed)
    assert placed(work, seats, before, work, even=True) == placed(mixed, seats, before, work, even=True)


@given(WORK, SEATS, BEFORE)
def test_what_is_even_stays(work: dict[int, float], seats: list[str], before: dict[int, str]) -> None:
    found = placed(work, seats, before, work, even=True)
    assert placed(work, seats, found, work, even=True) == found
    assert placed(work, seats, found, work, even=False) == found


@given(st.dictionaries(st.integers(0, 30), st.floats(0.01, 100.0), min_size=1, max_size=25), SEATS, BEFORE)
def test_no_seat_has_much_more_than_its_share_and_one_item(
    work: dict[int, float], seats: list[str], before: dict[int, str]
) -> None:
    found = placed(work, seats, before, work, even=True)
    mean, most = sum(work.values()) / len(seats), max(work.values())
    assert max(loads(found, seats, work)) <= mean * 1.151 + most


@given(st.dictionaries(st.integers(0, 30), st.floats(0.01, 1.0), min_size=1, max_size=20), SEATS, BEFORE)
def test_an_item_with_more_work_than_all_others_has_a_seat_of_its_own(
    work: dict[int, float], seats: list[str], before: dict[int, str]
) -> None:
    assume(len(seats) > 1)
    heavy = 31
    work[heavy] = 10 * sum(work.values())
    before[heavy] = "seat-0"
    found = placed(work, seats, before, work, even=True)
    with_it = sum(work[item] for item, seat in found.items() if seat == found[heavy]) - work[heavy]
    assert with_it <= 0.151 * sum(work.values()) / len(seats) * len(work)


def test_of_two_moves_that_do_as_well_the_lighter_item_is_moved() -> None:
    assert placed([0, 1], ["a", "b"], {0: "a", 1: "a"}, {0: 1.0, 1: 20.0}, even=False) == {0: "a", 1: "a"}
    assert placed([0, 1], ["a", "b"], {0: "a", 1: "a"}, {0: 5.0, 1: 20.0}, even=True) == {0: "b", 1: "a"}


@given(WORK, SEATS, BEFORE)
def test_what_moves_makes_the_largest_load_less(
    work: dict[int, float], seats: list[str], before: dict[int, str]
) -> None:
    settled = placed(work, seats, before, work, even=False)
    found = placed(work, seats, settled, work, even=True)
    cost = {
        item: seconds or sum(work.values()) / max(1, sum(map(bool, work.values()))) or 1.0
        for item, seconds in work.items()
    }
    if found != settled:
        assert max(loads(found, seats, cost)) < max(loads(settled, seats, cost)) + 1e-9


@pytest.mark.parametrize(
    ("seats", "wanted"), [(1, [8]), (2, [4, 4]), (3, [2, 3, 3]), (8, [1] * 8), (10, [0, 0] + [1] * 8)]
)
def test_what_has_not_been_measured_is_taken_for_usual(seats: int, wanted: list[int]) -> None:
    names = [f"seat-{number}" for number in range(seats)]
    found = list(placed(range(8), names, {}, {}, even=False).values())
    assert sorted(found.count(name) for name in names) == wanted


def test_a_new_seat_gets_items_only_when_they_may_move() -> None:
    before = dict.fromkeys(range(4), "a")
    assert placed(range(4), ["a", "b"], before, {}, even=False) == before
    assert sorted(placed(range(4), ["a", "b"], before, {}, even=True).values()) == ["a", "a", "b", "b"]
