"""Which views of its slots a process keeps, and what it says when it has none."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from spatialstream.local.snapshot.segments import SegmentStore
from spatialstream.model.errors import Gone
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.space import Space
from spatialstream.stages import views
from spatialstream.stages.turns import Round
from spatialstream.stages.views import FEWEST, YOUNG, View

PLANE = Space.planar(0.0, 0.0, 10.0, 10.0)


@pytest.fixture(autouse=True)
def no_views() -> Iterator[None]:
    views.forget()
    yield
    views.forget()


def store_of(*times: int) -> SegmentStore:
    store = SegmentStore(PLANE)
    store.append(ObjectBatch.of([SpatialObject(f"o{t}", t, 1.0, 1.0, ("a",)) for t in times]))
    return store


def view(number: int, kept: float = 0.0, revision: int = 0, store: SegmentStore | None = None) -> View:
    return View((number, revision), 10 * number, (store or store_of(number)).view(), None, kept)


def known(slot: int = 0, place: str = "here") -> list[int]:
    return [number for number, _ in views.rounds(place, slot)]


def test_the_last_few_are_kept_and_the_young_ones() -> None:
    for number in range(10):
        views.keep("here", 0, view(number, kept=float(number) * YOUNG))
    assert known() == [6, 7, 8, 9]
    for number in range(10, 20):
        views.keep("here", 0, view(number, kept=9.0 * YOUNG + 0.1 * number))
    assert known() == list(range(9, 20))
    views.keep("here", 0, view(20, kept=90.0 * YOUNG))
    assert known() == [17, 18, 19, 20]
    assert len(known()) == FEWEST


def test_a_round_done_again_takes_the_place_of_its_first_time() -> None:
    for number in range(3):
        views.keep("here", 0, view(number))
    again = view(1, revision=1)
    views.keep("here", 0, again)
    assert known() == [0, 1, 2]
    assert views.view_of("here", 0, (1, 1)) is again
    with pytest.raises(Gone, match=r"slot 0 has no view of round 1 here: try again"):
        views.view_of("here", 0, (1, 0))


def test_slots_and_places_are_apart() -> None:
    for place in ("here", "there"):
        for slot in range(2):
            views.keep(place, slot, view(0))
    views.forget("here", 1)
    assert [known(slot, place) for place in ("here", "there") for slot in range(2)] == [[0], [], [0], [0]]
    views.forget("there")
    assert [known(slot, place) for place in ("here", "there") for slot in range(2)] == [[0], [], [], []]


def test_views_come_and_go_while_others_are_looked_for() -> None:
    over, wrong = threading.Event(), list[Exception]()

    def look() -> None:
        while not over.is_set():
            for number in known():
                try:
                    assert views.view_of("here", 0, (number, 0)).watermark == 10 * number
                except Gone:
                    pass
                except AssertionError as error:
                    wrong.append(error)

    threads = [threading.Thread(target=look) for _ in range(3)]
    for each in threads:
        each.start()
    store = store_of(1)
    for number in range(500):
        views.keep("here", 0, view(number, kept=float(number), store=store))
        views.keep("here", 1, view(number, kept=float(number), store=store))
    over.set()
    for each in threads:
        each.join()
    assert not wrong


def test_a_view_is_of_the_round_that_was_done() -> None:
    turn = Round(7, (7,), (0,), 123, 0)
    taken = View.of(store_of(1), turn, 60)
    assert (taken.round, taken.watermark, taken.retention, len(taken.objects)) == ((7, 0), 123, 60, 1)
