"""Queries of areas that have changed: which they are, and how they are registered anew."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Mapping
from typing import Any

import pytest

from spatialstream.client.area_queries import area_queries, refresh
from spatialstream.client.record_writer import Sent
from spatialstream.client.registered import RegisteredQueries
from spatialstream.model.areas import Area, AreaTable, GeometryState, read_areas, with_area
from spatialstream.model.errors import Unavailable
from spatialstream.model.space import WGS84
from spatialstream.model.terms import DEFAULT_RULE

SQUARE = {"type": "Polygon", "coordinates": [[[0, 0], [8, 0], [8, 8], [0, 8], [0, 0]]]}
OTHER = {"type": "Polygon", "coordinates": [[[0, 0], [9, 0], [9, 9], [0, 9], [0, 0]]]}


def table(**shapes: Any) -> AreaTable:
    return AreaTable(read_areas(shape, name=name)[0] for name, shape in shapes.items())


BEFORE, NOW = table(mitte=SQUARE, pankow=SQUARE, gone=SQUARE), table(mitte=OTHER, pankow=SQUARE)


class Stream:
    """Registered queries, and the writer of records that changes them.

    Attributes:
        refuses: ids of queries that the stream does not take, and why.
        deaf: whether it does nothing with what is sent.
        most: queries of a page.
    """

    space, rule = WGS84, DEFAULT_RULE

    def __init__(self, *records: Mapping[str, Any]) -> None:
        self.registered = [dict(each) for each in records]
        self.sent: list[list[Mapping[str, Any]]] = []
        self.refuses: dict[str, str] = {}
        self.deaf, self.most = False, 10**6

    def as_of(self, timeout: float = 10.0) -> dict[str, int] | None:
        return {"round": 7, "clock": 1_000}

    def queries(self, after: int = -1, limit: int = 100, timeout: float = 10.0) -> RegisteredQueries:
        there = list(enumerate(self.registered))[after + 1 :]
        page = there[: min(limit, self.most)]
        cut = self.most < min(limit, len(there))
        return RegisteredQueries([each for _, each in page], page[-1][0] if page else None, {}, [], cut)

    def query(self, id: str, timeout: float = 10.0) -> RegisteredQueries:
        return RegisteredQueries([each for each in self.registered if each["id"] == id], None, {}, [])


class Writer:
    """The records that are sent to a stream, which takes them at once."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def queries(self, *records: Mapping[str, Any]) -> Sent:
        self.stream.sent.append(list(records))
        for record in records if not self.stream.deaf else ():
            if record["id"] in self.stream.refuses:
                continue
            if record["type"] == "CANCEL":
                self.stream.registered = [each for each in self.stream.registered if each["id"] != record["id"]]
            else:
                self.stream.registered.append(dict(record))
        return Sent("queries/0", len(self.stream.sent) - 1, {}, {})

    def poll(self, sent: Sent) -> None:
        for line, record in enumerate(self.stream.sent[sent.offset], 1):
            if record["id"] in self.stream.refuses:
                sent.refused[line] = self.stream.refuses[record["id"]]


def crq(name: str, area: str, t: int = 100, region: Mapping[str, Any] | None = None, **more: Any) -> Any:
    about = {"area": area, **(region or {})}
    return with_area({"id": name, "type": "CRQ", "t": t, "region": about, **more}, lambda: BEFORE)


def refreshed(stream: Stream, area: str = "mitte", **more: Any) -> Any:
    found: Area = NOW.find(area)
    return refresh(stream, found, NOW, Writer(stream), **more)  # type: ignore[arg-type]


def test_queries_of_areas_are_found_on_all_pages() -> None:
    plain = {"id": "plain", "type": "CRQ", "t": 1, "region": {"polygon": SQUARE}}
    many = [crq(f"q{i}", ("mitte", "pankow", "gone")[i % 3]) for i in range(2_500)]
    stream = Stream(plain, *many)
    found = list(area_queries(stream, NOW))
    assert [each.id for each in found] == [each["id"] for each in many]
    stream.most = 7  # because they are large
    assert list(area_queries(stream, NOW)) == found
    wanted = [("mitte", GeometryState.OUTDATED), ("pankow", GeometryState.CURRENT), ("gone", GeometryState.DELETED)]
    assert [(each.area, each.geometry) for each in found[:3]] == wanted


def test_outdated_queries_of_one_area_are_registered_anew_at_one_instant() -> None:
    stream = Stream(crq("a", "mitte", duration=5_000, by="x"), crq("b", "pankow"), crq("c", "mitte"), crq("d", "gone"))
    done = refreshed(stream)
    assert (done.queries, done.refused) == (("a", "c"), {})
    ((first, second, *others),) = stream.sent
    assert first == {"id": "a", "type": "CANCEL", "t": 1_000}
    assert second == {
        **crq("a", "mitte", 1_000, duration=4_100, by="x"),
        "region": NOW.find("mitte").to_region(),
    }
    assert [(each["id"], each["type"], each["t"]) for each in others] == [("c", "CANCEL", 1_000), ("c", "CRQ", 1_000)]
    assert refreshed(stream).queries == ()
    assert len(stream.sent) == 1, "those that are current stay as they are"


def test_a_query_keeps_its_margin() -> None:
    stream = Stream(crq("a", "mitte", region={"within": 500}), crq("b", "mitte"))
    assert refreshed(stream).queries == ("a", "b")
    regions = [each["region"] for each in stream.registered]
    assert regions == [NOW.find("mitte").to_region(500), NOW.find("mitte").to_region()]
    assert regions[0]["within"] == 500


def test_a_query_that_has_not_begun_is_renewed_when_it_begins() -> None:
    stream = Stream(crq("a", "mitte", 500), crq("b", "mitte", 3_000))
    assert refreshed(stream).queries == ("a", "b")
    assert {each["t"] for each in stream.sent[0]} == {3_000}


def test_what_the_stream_does_not_take_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spatialstream.client.area_queries.LOOK_SECONDS", 0.0)
    stream = Stream(crq("a", "mitte"), crq("b", "mitte"))
    stream.refuses = {"b": "id: no continuous query with this id is active"}
    done = refreshed(stream)
    assert (done.queries, dict(done.refused)) == (("a",), stream.refuses)


def test_a_stream_that_does_not_go_on_is_not_waited_for_in_vain() -> None:
    stream = Stream(crq("a", "mitte"))
    stream.deaf = True
    with pytest.raises(Unavailable, match="the stream has not registered 1 queries anew in time"):
        refreshed(stream, timeout=0.1)


def test_messages_have_so_many_queries_as_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spatialstream.client.area_queries.MOST_VERTICES", 8)
    stream = Stream(*(crq(f"q{i}", "mitte") for i in range(5)))
    assert len(refreshed(stream).queries) == 5
    assert [len(each) for each in stream.sent] == [4, 4, 2]


def test_what_is_outdated_is_not_held_with_its_geometry() -> None:
    ring = [[1.0 + i / 1_000, i / 1_000] for i in range(500)] + [[0.0, 1.0]]
    large = {"type": "Polygon", "coordinates": [[*ring, ring[0]]]}
    text = json.dumps({"type": "CRQ", "t": 1, "region": {"polygon": large, "area": "mitte"}})

    class Large(Stream):
        """Makes the records when they are listed."""

        def queries(self, after: int = -1, limit: int = 100, timeout: float = 10.0) -> RegisteredQueries:
            numbers = range(after + 1, min(after + 11, 400))
            records = [json.loads(text) | {"id": f"q{number}"} for number in numbers]
            return RegisteredQueries(records, numbers[-1] if numbers else None, {}, [], numbers.stop < 400)

        def query(self, id: str, timeout: float = 10.0) -> RegisteredQueries:
            now = {"id": id, "type": "CRQ", "t": 1_000, "region": {"area": "mitte"}}
            return RegisteredQueries([with_area(now, lambda: NOW)], None, {}, [])

    tracemalloc.start()
    done = refreshed(Large())
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(done.queries) == 400
    assert most < 400 * 500 * 160 / 4
