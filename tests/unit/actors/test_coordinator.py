"""Queries answered completely by one actor: waiting ones together, and none at the expense of others."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from spatialstream.actors import coordinator
from spatialstream.actors.coordinator import CoordinatedAnswer, QueryCoordinator
from spatialstream.actors.read_point import LocatedReadPoint, ReadPoints
from spatialstream.connectors.memory import MemoryChannel, MemoryLog, MemorySink
from spatialstream.connectors.memory_storage import MemoryStorage
from spatialstream.model.errors import Unavailable
from spatialstream.model.queries import Query, QueryBatch, parse_query
from spatialstream.stages import views
from spatialstream.stages.snapshot_queries import ReadPoint, lines_here
from spatialstream.stages.versions import save_version
from spatialstream.stream.settings import StreamSettings
from tests.contracts.engines import until
from tests.unit.client.test_snapshot_client import PLACE, PLANE, SKQ, SLOTS, SRQ, STQ, Stream, objects

ASKED = [SRQ, SKQ, STQ, SRQ | {"keywords": ["w3"]}]


class SlotSearch:
    """A stream's slots, and their answers.

    Attributes:
        looks: how often the newest read point was requested.
        doubts: how often something was not where the read point said.
        heavy: while it is not set, no query for ``heavy`` is answered.
    """

    def __init__(self) -> None:
        self.stream = Stream(PLANE)
        settings = StreamSettings("s", slots=SLOTS, space=PLANE)
        channel = MemoryChannel([MemoryLog() for _ in range(SLOTS)], MemoryLog())
        self.world = settings.world(MemoryStorage(), channel, MemorySink([MemoryLog()], MemoryLog()))
        save_version(self.world.storage, self.stream.version)
        self.looks, self.doubts, self.reached, self.heavy = 0, 0, threading.Event(), threading.Event()
        self.actors: dict[str, str | None] = {"0": "a", "1": "a", "2": "b"}
        self.wholes = QueryCoordinator(self.world, self, self)

    def __call__(self, seconds: float) -> LocatedReadPoint | None:
        self.looks += 1
        if self.stream.turn is None:
            return None
        return LocatedReadPoint.of({**ReadPoint.record(self.stream.turn), "actors": self.actors}, self.world)

    def doubt(self) -> None:
        self.doubts += 1

    def lines(
        self, queries: Sequence[Query], read_point: ReadPoint, actors: Mapping[int, str], seconds: float
    ) -> dict[int, str]:
        words = {
            word for query in queries for group in query.predicate.expression.to_record().values() for word in group
        }
        if "heavy" in words:
            self.reached.set()
            assert self.heavy.wait(60.0)
        if "wrong" in words:
            raise RuntimeError("wrong")
        assert actors == {int(slot): address for slot, address in self.actors.items() if address}
        return lines_here(queries, read_point, PLANE, None, PLACE, coordinator.LARGEST)


@pytest.fixture
def slots() -> Iterator[SlotSearch]:
    views.forget()
    made = SlotSearch()
    made.stream.round(1_000, objects(300, 900))
    yield made
    views.forget()


def named(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [record | {"id": f"q{i}"} for i, record in enumerate(records)]


def parsed(record: dict[str, Any]) -> Query:
    query = parse_query(record | {"id": "q", "t": 1_000}, PLANE)
    assert isinstance(query, Query)
    return query


def lines_of(found: CoordinatedAnswer | None) -> list[str]:
    assert found is not None
    return found[1]


@pytest.mark.parametrize("patience", [60.0, 0.0])
def test_those_that_wait_are_answered_together_or_beside_who_takes_long(
    slots: SlotSearch, monkeypatch: pytest.MonkeyPatch, patience: float
) -> None:
    monkeypatch.setattr(coordinator, "_PATIENCE", patience)
    by_itself = [lines_of(slots.wholes.ask([record], 10.0)) for record in named(ASKED)]
    looks = slots.looks
    with ThreadPoolExecutor(len(ASKED) + 1) as pool:
        heavy = pool.submit(slots.wholes.ask, named([SRQ | {"keywords": ["heavy"]}]), 60.0)
        assert slots.reached.wait(60.0)
        others = [pool.submit(slots.wholes.ask, [record], 60.0) for record in named(ASKED)]
        if patience:
            until(lambda: len(slots.wholes._waiting) == len(ASKED))
        else:
            assert [lines_of(other.result(60.0)) for other in others] == by_itself
        slots.heavy.set()
        assert [lines_of(other.result(60.0)) for other in others] == by_itself
        assert heavy.result(60.0) is not None
    if patience:
        assert slots.looks == looks + 2, "one look for all that have waited"


def test_what_is_not_found_is_left_to_who_asks_and_nothing_else(
    slots: SlotSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator, "_PATIENCE", 60.0)
    corner = SRQ | {"region": {"box": [1, 1, 1.1, 1.1]}}
    everything, near = lines_of(slots.wholes.ask(named([SRQ, corner]), 10.0))
    (there,) = slots.stream.version.route_queries(QueryBatch.of([parsed(corner)]))[1].tolist()
    views.forget(PLACE, (there + 1) % SLOTS)
    slots.heavy.clear()
    with ThreadPoolExecutor(3) as pool:  # the two others wait, and so are answered together
        pool.submit(slots.wholes.ask, named([SRQ | {"keywords": ["heavy"]}]), 60.0)
        assert slots.reached.wait(60.0)
        lost, found = (pool.submit(slots.wholes.ask, named([SRQ, corner])[i : i + 1], 60.0) for i in range(2))
        until(lambda: len(slots.wholes._waiting) == 2)
        looks = slots.looks
        slots.heavy.set()
        assert lost.result(60.0) is None
        assert lines_of(found.result(60.0)) == [near]
        assert slots.looks == looks + 1
    assert slots.wholes.ask(named([SRQ, corner]), 10.0) is None, "not a part of what was asked together"
    assert slots.doubts == 3, "with the first query, which concerns that slot too"
    assert everything != near


def test_what_fails_fails_alone(slots: SlotSearch) -> None:
    slots.heavy.clear()
    with ThreadPoolExecutor(9) as pool:
        first = pool.submit(slots.wholes.ask, named([SRQ | {"keywords": ["heavy"]}]), 60.0)
        assert slots.reached.wait(60.0)
        wrong = pool.submit(slots.wholes.ask, named([SRQ | {"keywords": ["wrong"]}]), 60.0)
        right = [pool.submit(slots.wholes.ask, [record], 60.0) for record in named(ASKED)]
        slots.heavy.set()
        assert first.result(60.0) is not None
        with pytest.raises(RuntimeError, match="wrong"):
            wrong.result(60.0)
        found = [lines_of(each.result(60.0)) for each in right]
    assert found == [lines_of(slots.wholes.ask([record], 10.0)) for record in named(ASKED)]


def test_what_is_large_is_left_to_who_asks(slots: SlotSearch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "LARGEST", 3_000)
    small = {**SRQ, "region": {"box": [1, 1, 1.1, 1.1]}}
    assert slots.wholes.ask(named([SRQ]), 10.0) is None
    assert slots.wholes.ask(named([small]), 10.0) is not None


def test_what_is_more_than_who_asks_takes_at_once_is_left_to_them(slots: SlotSearch) -> None:
    small = named([{**SRQ, "region": {"box": [1, 1, 1.1, 1.1]}}])
    (row,) = lines_of(slots.wholes.ask(named([SRQ]), 10.0))
    size = len(row.encode())
    assert slots.wholes.ask(named([SRQ]), 10.0, size) is not None
    assert slots.wholes.ask(named([SRQ]), 10.0, size - 1) is None
    assert slots.wholes.ask(small, 10.0, size - 1) is not None
    assert slots.wholes.ask(named([SRQ]) + small, 10.0, size) is None, "together they are more"


def test_a_slot_that_moves_and_a_stream_that_has_only_begun(slots: SlotSearch) -> None:
    slots.actors["2"] = None
    assert slots.wholes.ask(named([SRQ]), 10.0) is not None, "its view is still here"
    slots.stream.turn = None
    assert slots.wholes.ask(named([SRQ]), 10.0) is None


def test_what_is_no_query_is_refused(slots: SlotSearch) -> None:
    with pytest.raises(ValueError, match="valid snapshot query"):
        slots.wholes.ask([{"id": "q", "type": "CKQ", "at": [1, 1], "k": 1, "duration": "1h"}], 10.0)
    with pytest.raises(ValueError, match="valid snapshot query"):
        slots.wholes.ask([{"id": "q", "type": "CANCEL"}], 10.0)


def test_a_driver_that_does_not_answer_is_told_to_all(slots: SlotSearch) -> None:
    def away(seconds: float) -> None:
        raise Unavailable("away")

    newest = ReadPoints(slots.world, "a", away, lambda: 0.0)
    with pytest.raises(Unavailable, match="away"):
        QueryCoordinator(slots.world, newest, slots).ask(named([SRQ]), 10.0)


def test_many_threads_are_all_answered_and_nobody_leads_for_ever(
    slots: SlotSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator, "_PATIENCE", 0.001)  # so that those who wait go on by themselves again and again
    slots.heavy.set()
    kinds = [SRQ | {"keywords": ["heavy"]}, SRQ]
    heavy, light = (lines_of(slots.wholes.ask([each | {"id": "q"}], 60.0)) for each in kinds)

    def ask(number: int) -> None:
        for i in range(20):
            record, right = (kinds[0], heavy) if (number + i) % 5 == 0 else (kinds[1], light)
            row = lines_of(slots.wholes.ask([record | {"id": f"q{number}-{i}"}], 60.0))
            assert [each.replace(f"q{number}-{i}", "q") for each in row] == right

    with ThreadPoolExecutor(16) as pool:
        for each in [pool.submit(ask, number) for number in range(16)]:
            each.result(120.0)
    assert not slots.wholes._busy
    assert not slots.wholes._waiting
