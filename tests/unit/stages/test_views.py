"""Which views of its slots a process keeps, and what it says when it has none."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spatialstream.actors.wire import BLOCKS
from spatialstream.local.snapshot.segments import SegmentStore
from spatialstream.model.errors import Gone, Missing
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import QueryBatch, parse_query
from spatialstream.model.space import Space
from spatialstream.stages import messages, views
from spatialstream.stages.route import queries_with_numbers
from spatialstream.stages.turns import Round
from spatialstream.stages.two_phase import requests
from spatialstream.stages.views import FEWEST, YOUNG, View
from tests.unit.memory_files import MemoryFiles

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
    return [each.round[0] for each in views._views.get((place, slot), ())]


def ask(*slots: int) -> pa.RecordBatch:
    record = {"id": "q", "type": "SRQ", "t": 99, "region": {"box": [0, 0, 9, 9]}, "duration": 99}
    batch = QueryBatch.of([parse_query(record, PLANE)])
    row, slot = np.zeros(len(slots), np.int64), np.array(slots, np.int32)
    return requests(queries_with_numbers(batch, np.arange(1)), row, slot)


def found(slots: list[int], round_id: tuple[int, int], query_block: pa.RecordBatch) -> list[tuple[int, list[str]]]:
    rows = views.answer_at("here", slots, round_id, query_block)
    return [(slot, part.column("id").to_pylist()) for slot, kind, part in rows if kind == messages.SNAPSHOT_LISTS]


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


def test_a_slot_answers_what_is_for_it_as_of_the_round() -> None:
    stores = [store_of(1), store_of(2)]
    for number in range(2):
        for slot, store in enumerate(stores):
            views.keep("here", slot, view(number, store=store))
            store.append(ObjectBatch.of([SpatialObject(f"late{slot}", 50, 1.0, 1.0, ())]))
    assert found([0, 1], (0, 0), ask(0, 1)) == [(0, ["o1"]), (1, ["o2"])]
    assert found([0, 1], (1, 0), ask(1)) == [(1, ["o2", "late1"])]
    assert found([0, 1], (1, 0), ask()) == []


def test_a_view_that_is_read_stays_to_the_end() -> None:
    for slot in range(2):
        views.keep("here", slot, view(0))
    rows = views.answer_at("here", [0, 1], (0, 0), ask(0, 1))
    assert next(rows)[0] == 0
    views.forget()
    assert {slot for slot, _, _ in rows} == {0, 1}
    with pytest.raises(Gone):
        next(views.answer_at("here", [0], (0, 0), ask(0)))


def test_no_partial_is_given_where_one_of_the_slots_is_elsewhere() -> None:
    views.keep("here", 0, view(0))
    with pytest.raises(Gone, match=r"slot 1 has no view of round 0"):
        next(views.answer_at("here", [0, 1], (0, 0), ask(0, 1)))


def test_a_segment_that_was_never_read_and_is_deleted_is_gone() -> None:
    files = MemoryFiles()
    manifest = store_of(1).checkpoint(files.write)

    def read(name: str) -> Any:
        raise Missing(f"{name} is not there")

    views.keep("here", 0, view(0, store=SegmentStore.restore(PLANE, manifest, read)))
    with pytest.raises(Gone, match=r"segment.* is not there: try again"):
        found([0], (0, 0), ask(0))


def test_an_only_slot_gives_no_terms_that_cannot_be_among_the_first() -> None:
    store = SegmentStore(PLANE)
    terms = [("a", "b", "x"), ("a", "b"), ("a", "y"), ("c", "z"), ("c",)]
    store.append(ObjectBatch.of([SpatialObject(f"o{i}", 1, 1.0, 1.0, each) for i, each in enumerate(terms)]))
    for slot in range(2):
        views.keep("here", slot, view(0, store=store))
    record = {"id": "q", "type": "STQ", "t": 99, "region": {"box": [0, 0, 9, 9]}, "k": 2, "duration": 99}
    query_block = queries_with_numbers(QueryBatch.of([parse_query(record, PLANE)] * 2), np.arange(2))
    asked = requests(query_block, np.array([0, 0, 1]), np.array([0, 1, 1], np.int32))
    found: dict[tuple[int, int], set[str]] = {}
    for slot, kind, part in views.answer_at("here", [0, 1], (0, 0), asked):
        for number, term in (
            zip(*(part.column(name).to_pylist() for name in ("number", "term")), strict=True)
            if (kind == messages.SNAPSHOT_TERMS)
            else ()
        ):
            found.setdefault((slot, number), set()).add(term)
    everything = set("abcxyz")
    assert found == {(0, 0): everything, (1, 0): everything, (1, 1): {"a", "b", "c"}}, "b and c are as many"


def test_answers_travel_as_batches_of_one_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spatialstream.stages.snapshots.BLOCK_BYTES", 400)
    views.keep("here", 0, view(0, store=store_of(*range(1, 100))))
    assert len(list(views.respond("here", [0], (0, 0), ask(0)))) == 1, "a batch costs more than a small block"
    monkeypatch.setattr(messages, "_TOGETHER", 3_000)
    sent = list(views.respond("here", [0], (0, 0), ask(0)))
    assert len(sent) > 5
    assert {str(each.schema) for each in sent} == {str(BLOCKS)}
    rows = [row for each in sent for row in messages.blocks(each)]
    lists = [part for _, kind, part in rows if kind == messages.SNAPSHOT_LISTS]
    assert [name for part in lists for name in part.column("id").to_pylist()] == [f"o{t}" for t in range(1, 100)]


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
