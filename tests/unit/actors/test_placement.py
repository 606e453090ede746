"""The assignment of items to actors."""

from __future__ import annotations

import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from spatialstream.actors.placement import placed

ACTORS = st.integers(1, 8).map(lambda count: [f"actor-{number}" for number in range(count)])
WORK = st.dictionaries(st.integers(-1, 30), st.floats(0.0, 100.0), min_size=1, max_size=25)
BEFORE = st.dictionaries(st.integers(-1, 30), st.integers(0, 10).map("actor-{}".format))


def loads(found: dict[int, str], actors: list[str], work: dict[int, float]) -> list[float]:
    return [sum(work[item] for item, actor in found.items() if actor == each) for each in actors]


@given(WORK, ACTORS, BEFORE, st.sets(st.integers(0, 7).map("actor-{}".format)), st.booleans())
def test_every_item_has_an_actor_that_exists(
    work: dict[int, float], actors: list[str], before: dict[int, str], leaving: set[str], even: bool
) -> None:
    found = placed(work, actors, before, work, even=even, leaving=leaving)
    assert found.keys() == work.keys()
    assert set(found.values()) <= set(actors)
    staying = set(actors) - leaving
    for item, actor in found.items():
        if before.get(item) in actors and not even:
            assert actor == before[item]
        elif staying:
            assert actor in staying


@given(WORK, ACTORS, BEFORE, st.randoms(use_true_random=False))
def test_it_is_the_same_each_time_in_whatever_order_items_are_given(
    work: dict[int, float], actors: list[str], before: dict[int, str], draw: random.Random
) -> None:
    mixed = list(work)
    draw.shuffle(mixed)
    assert placed(work, actors, before, work, even=True) == placed(mixed, actors, before, work, even=True)


@given(WORK, ACTORS, BEFORE)
def test_what_is_even_stays(work: dict[int, float], actors: list[str], before: dict[int, str]) -> None:
    found = placed(work, actors, before, work, even=True)
    assert placed(work, actors, found, work, even=True) == found
    assert placed(work, actors, found, work, even=False) == found


@given(st.dictionaries(st.integers(0, 30), st.floats(0.01, 100.0), min_size=1, max_size=25), ACTORS, BEFORE)
def test_no_actor_has_much_more_than_its_share_and_one_item(
    work: dict[int, float], actors: list[str], before: dict[int, str]
) -> None:
    found = placed(work, actors, before, work, even=True)
    mean, most = sum(work.values()) / len(actors), max(work.values())
    assert max(loads(found, actors, work)) <= mean * 1.151 + most


@given(st.dictionaries(st.integers(0, 30), st.floats(0.01, 1.0), min_size=1, max_size=20), ACTORS, BEFORE)
def test_an_item_with_more_work_than_all_others_has_an_actor_of_its_own(
    work: dict[int, float], actors: list[str], before: dict[int, str]
) -> None:
    assume(len(actors) > 1)
    heavy = 31
    work[heavy] = 10 * sum(work.values())
    before[heavy] = "actor-0"
    found = placed(work, actors, before, work, even=True)
    with_it = sum(work[item] for item, actor in found.items() if actor == found[heavy]) - work[heavy]
    assert with_it <= 0.151 * sum(work.values()) / len(actors) * len(work)


def test_of_two_moves_that_do_as_well_the_lighter_item_is_moved() -> None:
    assert placed([0, 1], ["a", "b"], {0: "a", 1: "a"}, {0: 1.0, 1: 20.0}, even=False) == {0: "a", 1: "a"}
    assert placed([0, 1], ["a", "b"], {0: "a", 1: "a"}, {0: 5.0, 1: 20.0}, even=True) == {0: "b", 1: "a"}


@given(WORK, ACTORS, BEFORE)
def test_what_moves_makes_the_largest_load_less(
    work: dict[int, float], actors: list[str], before: dict[int, str]
) -> None:
    settled = placed(work, actors, before, work, even=False)
    found = placed(work, actors, settled, work, even=True)
    cost = {
        item: seconds or sum(work.values()) / max(1, sum(map(bool, work.values()))) or 1.0
        for item, seconds in work.items()
    }
    if found != settled:
        assert max(loads(found, actors, cost)) < max(loads(settled, actors, cost)) + 1e-9


@pytest.mark.parametrize(
    ("actors", "wanted"), [(1, [8]), (2, [4, 4]), (3, [2, 3, 3]), (8, [1] * 8), (10, [0, 0] + [1] * 8)]
)
def test_what_has_not_been_measured_is_taken_for_usual(actors: int, wanted: list[int]) -> None:
    names = [f"actor-{number}" for number in range(actors)]
    found = list(placed(range(8), names, {}, {}, even=False).values())
    assert sorted(found.count(name) for name in names) == wanted


def test_a_new_actor_gets_items_only_when_they_may_move() -> None:
    before = dict.fromkeys(range(4), "a")
    assert placed(range(4), ["a", "b"], before, {}, even=False) == before
    assert sorted(placed(range(4), ["a", "b"], before, {}, even=True).values()) == ["a", "a", "b", "b"]
