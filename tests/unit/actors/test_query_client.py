"""Queries to real endpoints: of any size, many at once, to silent endpoints, and to a stream that was replaced."""

from __future__ import annotations

import argparse
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
import pytest

from spatialstream.actors.actor import Actor, ActorSpec
from spatialstream.actors.query_endpoint import QueryEndpoint
from spatialstream.actors.query_metrics import ASKED, OUTCOMES
from spatialstream.actors.read_point import ReadPoint
from spatialstream.actors.registry import ActorRegistry
from spatialstream.cli import router
from spatialstream.client import Stream
from spatialstream.client import stream as client_stream
from spatialstream.connectors.memory import MemoryChannel, MemoryLog, MemorySink
from spatialstream.connectors.memory_storage import MemoryStorage
from spatialstream.index.version import build
from spatialstream.local.catalogue import MOST_VERTICES, Catalogue
from spatialstream.model.answer_bounds import AnswerBounds
from spatialstream.model.errors import SettingError, StateError, Suspended, TooLarge, Unavailable
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.polygons.polygon import Polygon
from spatialstream.model.queries import Everything, Lifetime, Nearest, Predicate, Query, QueryBatch
from spatialstream.model.space import WGS84, Space
from spatialstream.model.terms import DEFAULT_RULE
from spatialstream.stages import views
from spatialstream.stages.rows import RowLimits
from spatialstream.stages.versions import save_version
from spatialstream.stages.views import ListingView
from spatialstream.store.memory import MemoryStore
from spatialstream.store.reports import TimeLimits, read_limits, save_limits, save_named, save_suspended
from spatialstream.stream.settings import StreamSettings
from tests.contracts.engines import until
from tests.unit.client.test_snapshot_client import MANY, PLACE, PLANE, SKQ, SLOTS, SRQ, STQ, objects
from tests.unit.client.test_snapshot_client import Stream as Slots

OWN, ASKING = "own", "asking"
CONTINUOUS = Query("q", 900, Predicate(), Nearest(1.0, 2.0, 3), Lifetime(5_000, True))


class Store:
    """A routing store, which is replaced by another one when its stream is created again."""

    def __init__(self) -> None:
        self.now = MemoryStore()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.now, name)


class Endpoints:
    """A registry and two actors in this process, of which the first has two slots, and a store with their endpoint."""

    def __init__(self) -> None:
        self.slots = Slots()
        settings = StreamSettings("s", slots=SLOTS, space=PLANE)
        channel = MemoryChannel([MemoryLog() for _ in range(SLOTS)], MemoryLog())
        world = settings.world(MemoryStorage(), channel, MemorySink([MemoryLog()], MemoryLog()))
        world.storage.place = PLACE  # where the views are
        save_version(world.storage, self.slots.version)
        self.newest: Callable[[], Any] = self.read_point
        self.registry = ActorRegistry("127.0.0.1", OWN, 10.0, None, ASKING, lambda: self.newest())
        registry = f"127.0.0.1:{self.registry.port}"
        self.actors = [Actor(ActorSpec(registry, OWN, world, ASKING), "127.0.0.1") for _ in range(2)]
        self.addresses = [self.actors[0].address, self.actors[0].address, self.actors[1].address]
        self.parts: list[str | None] = [each.address for each in self.actors]
        self.store: Any = Store()
        self.store.create(self.slots.version)
        self.query_endpoint = QueryEndpoint.of(
            {"address": registry, "secret": ASKING, "certificate": None}, PLANE, DEFAULT_RULE
        )
        self.query_endpoint.save(self.store)

    def read_point(self) -> Any:
        if self.slots.turn is None:
            return None
        actors, parts = ({str(i): each for i, each in enumerate(some)} for some in (self.addresses, self.parts))
        return {**ReadPoint.record(self.slots.turn), "actors": actors, "parts": parts}

    def register(self, part: int, *queries: tuple[int, Query]) -> None:
        """Register queries with these numbers in a part of MERGE, as of the newest round."""
        assert self.slots.turn is not None
        catalogue = Catalogue()
        numbers = np.array([number for number, _ in queries], np.int64)
        catalogue.register(numbers, QueryBatch.of([query for _, query in queries]))
        views.keep(PLACE, ~part, ListingView.of(catalogue, self.slots.turn))

    def answered(self) -> list[int]:
        """SRQs, SKQs and STQs that actors have answered."""
        column = OUTCOMES.index("answered")
        counts = np.sum([each.metrics.counts[:, column] for each in self.actors], axis=0)
        return [int(counts[ASKED.index(kind)]) for kind in ("SRQ", "SKQ", "STQ")]

    def outcome(self, name: str) -> int:
        """Attempts of an outcome that actors have counted."""
        return int(sum(each.metrics.counts[:, OUTCOMES.index(name)].sum() for each in self.actors))

    def shutdown(self) -> None:
        for actor in self.actors:
            actor.let_go()
        for each in (self.registry, *self.actors):
            each.shutdown()


@pytest.fixture
def ends() -> Iterator[Endpoints]:
    views.forget()
    made = Endpoints()
    yield made
    made.shutdown()
    views.forget()


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of an endpoint that accepts connections, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


ONES: list[dict[str, Any]] = [SRQ, SKQ, MANY, STQ]
WORDS: list[dict[str, Any]] = [{"keywords": ["w3"]}, {"any": [["w1", "a"], ["w2"]], "none": ["w5"]}, {}]
KINDS = [
    {**kind, **more, "id": f"q{i}"}
    for i, (kind, more) in enumerate((k, w) for k in (SRQ, SKQ, MANY, STQ) for w in WORDS)
]


def test_queries_with_and_without_times_are_answered_as_of_the_newest_round_and_counted_once(ends: Endpoints) -> None:
    ends.slots.round(1_000, objects(300, 900))
    with Stream(ends.store) as stream:
        expected = [ends.slots.right(each) for each in KINDS]
        assert [stream.ask({**each, "t": 1_000}) for each in KINDS] == expected
        assert ends.answered() == [3, 6, 3]
        assert [stream.ask(each) for each in KINDS] == expected
        assert stream.ask(KINDS[:8]) == expected[:8]
        assert ends.answered() == [3 + 3 + 3, 6 + 6 + 5, 3 + 3]
        ends.slots.round(2_000, objects(300, 1_900))
        assert [stream.ask(each) for each in KINDS] == [ends.slots.right(each) for each in KINDS]
        assert stream.ask(KINDS) == [ends.slots.right(each) for each in KINDS]
        assert stream.ask({**KINDS[0], "t": 1_500})["objects"] == expected[0]["objects"]


def test_a_query_goes_to_the_actor_that_has_most_of_its_answer(ends: Endpoints) -> None:
    ends.slots.round(1_000, objects(300, 900))
    with Stream(ends.store) as stream:
        stream.ask(SRQ)  # now it is known where slots are
        before = [each.metrics.counts.sum() for each in ends.actors]
        for x, y in ((x + 0.5, y + 0.5) for x in range(8) for y in range(8)):
            leaf = ends.slots.version.index.nearest_leaves(np.array([[x, y]]))
            (slot,) = ends.slots.version.mapping[leaf].tolist()
            stream.ask({**SRQ, "region": {"box": [x, y, x, y]}})
            after = [each.metrics.counts.sum() for each in ends.actors]
            assert [now > had for now, had in zip(after, before, strict=True)] == [slot < 2, slot == 2]
            before = after


def test_values_of_other_types_are_taken_or_refused_where_the_query_is_parsed(ends: Endpoints) -> None:
    ends.slots.round(1_000, objects(300, 900))
    with Stream(ends.store) as stream:
        with pytest.raises(SettingError, match="note: is not a query field"):
            stream.ask({**SRQ, "id": "q", "note": object()})
        numbers = {"box": list(map(np.float64, (0, 0, 8, 8)))}
        assert stream.ask({**SRQ, "id": "q", "region": numbers}) == ends.slots.right({**SRQ, "id": "q"})
        ends.newest = lambda: time.sleep(2.5)
        threading.Timer(0.5, setattr, (ends, "newest", ends.read_point)).start()
        assert stream.ask({**SRQ, "id": "q"}, timeout=4.0) == ends.slots.right({**SRQ, "id": "q"})


def test_another_actor_is_asked_where_one_has_gone(ends: Endpoints, silent: str) -> None:
    """The coordinator that is asked has no slot that the query concerns: all of them are at the other one."""
    ends.slots.round(1_000, objects(300, 900))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        closed = f"127.0.0.1:{listening.getsockname()[1]}"
    near = {**SRQ, "region": {"box": [1, 1, 1, 1]}, "id": "q"}
    leaf = ends.slots.version.index.nearest_leaves(np.array([[1.0, 1.0]]))
    (slot,) = ends.slots.version.mapping[leaf].tolist()
    mine, right = ends.addresses[slot], ends.slots.right(near)
    for gone in (closed, silent):
        with Stream(ends.store) as stream:
            stream.ask(near)
            ends.addresses[slot] = gone
            stream.snapshots.read_point()  # now the client knows
            began = time.monotonic()
            with pytest.raises(Unavailable, match="does not answer"):
                stream.ask(near, timeout=0.0)
            ends.addresses[slot] = mine
            assert stream.ask(near, timeout=4.0) == right
            assert time.monotonic() - began < 10.0


def test_a_coordinator_that_is_killed_while_it_answers_is_no_error(
    ends: Endpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends.slots.round(1_000, objects(300, 900))
    asked, killed = list[str](), threading.Event()
    for actor in ends.actors:

        def ask(body: bytes, actor: Actor = actor, answer: Any = actor.coordinator.ask) -> Iterator[bytes]:
            asked.append(actor.address)
            for message in answer(body):
                yield message
                if not killed.is_set():  # after its first message: what is there of the answer is not enough
                    killed.set()
                    raise RuntimeError("the process is killed")

        monkeypatch.setattr(actor.coordinator, "ask", ask)
        actor.coordinator.message_bytes = 1_000
    with Stream(ends.store) as stream:
        assert stream.ask({**SRQ, "id": "q"}) == ends.slots.right({**SRQ, "id": "q"})
    assert len(set(asked)) == len(asked) == 2


def test_an_actor_that_has_gone_is_not_asked_again(ends: Endpoints, silent: str) -> None:
    ends.slots.round(1_000, objects(300, 900))
    ends.addresses[:] = [silent] * SLOTS
    with Stream(ends.store) as stream:
        with pytest.raises(Unavailable, match="does not answer"):
            stream.ask(SRQ, timeout=0.0)
        ends.addresses[:] = [ends.actors[0].address] * SLOTS
        began = time.monotonic()
        assert len(stream.ask(SRQ, timeout=2.0)["objects"]) == 300
        assert len(stream.ask(SRQ, timeout=2.0)["objects"]) == 300
        assert time.monotonic() - began < 10.0  # and not for as long as gRPC waits for a connection


def test_k_may_be_a_million(ends: Endpoints) -> None:
    rng = np.random.default_rng(1)
    places = rng.uniform(0, 8, (100_000, 2)).tolist()
    ends.slots.round(1_000, [SpatialObject(f"o{i}", 900, x, y, ("a",)) for i, (x, y) in enumerate(places)])
    with Stream(ends.store) as stream:
        row, everything = stream.ask([{**SKQ, "k": 10**6}, SRQ], timeout=60.0)
    assert len({each["id"] for each in row["objects"]}) == 100_000
    distances = [each["distance"] for each in row["objects"]]
    assert distances == sorted(distances)
    assert len(everything["objects"]) == 100_000


def test_registered_queries_are_listed_over_all_parts(ends: Endpoints) -> None:
    ends.slots.round(1_000, [])
    queries = {number: replace(CONTINUOUS, id=f"q{number}", by="anna" if number % 3 else "") for number in range(7)}
    for part in range(2):
        ends.register(part, *((number, query) for number, query in queries.items() if number % 2 == part))
    records = [query.to_record() for query in queries.values()]
    with Stream(ends.store) as stream:
        first = stream.queries(limit=3)
        assert (first.queries, first.as_of) == (records[:3], {"round": ends.slots.turn.number, "clock": 1_000})
        assert stream.queries(first.last, 99).queries == records[3:]
        assert stream.queries(6).queries == []
        assert stream.query("q4").queries == records[4:5]
        assert stream.query("q4").queries[0]["by"] == "anna"
        assert stream.query("q4").so_far == [{"rows": 0, "last_row": None}]
        assert stream.query("other").queries == []
        ends.parts[1] = None
        with pytest.raises(Unavailable, match="is moving"):
            stream.queries(timeout=0.0)
        ends.parts[1] = ends.actors[1].address
        ends.slots.round(2_000, [])
        with pytest.raises(Unavailable, match="no view of round"):
            stream.queries(timeout=0.0)


def test_pages_of_registered_queries_are_bounded_by_their_polygons(ends: Endpoints) -> None:
    ends.slots.round(1_000, [])
    angles = np.linspace(0.0, 2.0 * np.pi, MOST_VERTICES * 2 // 5, endpoint=False)
    queries = list[Query]()
    for number in range(9):  # of which the first ones are in the second part
        ring = (number + 1.0) * np.stack([np.cos(angles), np.sin(angles)], axis=1)
        polygon = Polygon.of([[ring]], geographic=False)
        predicate = replace(CONTINUOUS.predicate, region=polygon)
        queries.append(replace(CONTINUOUS, id=f"q{number}", predicate=predicate, selection=Everything()))
    for part in range(2):
        mine = [number for number in range(9) if (number >= 4) == (part == 0)]
        ends.register(part, *((number, queries[number]) for number in mine))
    with Stream(ends.store) as stream:
        first = stream.queries(timeout=60.0)
        assert ([each["id"] for each in first.queries], first.cut) == (["q0", "q1", "q2"], True)
        found, page = list(first.queries), first
        while page.cut:
            page = stream.queries(-1 if page.last is None else page.last, timeout=60.0)
            found += page.queries
        assert found == [query.to_record() for query in queries]
        assert stream.queries(limit=2, timeout=60.0).cut is False


def test_queries_may_be_larger_than_a_message(ends: Endpoints) -> None:
    ends.slots.round(1_000, objects(50, 900))
    words = [f"{'x' * 100}{i}" for i in range(50)]
    asked = [{**SRQ, "keywords": [f"{each}-{i}" for each in words]} for i in range(999)]
    with Stream(ends.store) as stream:
        rows = stream.ask([*asked, SRQ], timeout=60.0)
        assert [len(row["objects"]) for row in rows] == [0] * 999 + [50]
        long = {**SRQ, "id": "i" * 20_000_000}
        assert stream.ask(long)["query"] == long["id"]


def test_a_thousand_queries_at_once_while_rounds_are_done(ends: Endpoints) -> None:
    ends.slots.round(1_000, objects(200, 900))
    over = threading.Event()

    def go_on() -> None:
        t = 1_000
        while not over.wait(0.02):
            t += 10
            ends.slots.round(t, objects(5, t))

    def ask(number: int) -> None:
        for _ in range(5):
            row = stream.ask(SRQ)
            found.append(len(row["objects"]) - 200 - (row["as_of"]["clock"] - 1_000) // 2)

    found: list[int] = []
    threads = [threading.Thread(target=go_on), *(threading.Thread(target=ask, args=(n,)) for n in range(8))]
    with Stream(ends.store) as stream:
        for each in threads:
            each.start()
        rows = stream.ask([SRQ, SKQ, STQ] * 333, timeout=60.0)
        for each in threads[1:]:
            each.join()
        over.set()
        threads[0].join()
    assert found == [0] * 40, "all objects of the round, and no other"
    assert len({str(row["as_of"]) for row in rows}) == 1
    assert ends.answered()[0] >= 40 + 333
    assert min(ends.answered()) >= 333


def test_actors_that_are_trusted_ask_the_driver_once_a_round_and_no_answer_is_older_than_it(ends: Endpoints) -> None:
    ends.slots.round(1_000, objects(200, 900))
    for actor in ends.actors:
        actor.trusted = float("inf")
    asked = list[int]()
    ends.newest = lambda: (asked.append(1), ends.read_point())[1]
    kinds = [SRQ, SKQ, STQ]

    def ask(number: int) -> None:
        for i in range(40):
            assert ends.slots.turn is not None
            before, row = ends.slots.turn.number, stream.ask(kinds[(number + i) % 3])
            found.append(row["as_of"]["round"] - before)

    found: list[int] = []
    with Stream(ends.store) as stream, ThreadPoolExecutor(4) as pool:
        stream.ask(SRQ)
        asks = [pool.submit(ask, number) for number in range(4)]
        for number in range(1, 8):
            until(lambda number=number: len(found) >= 20 * number)  # type: ignore[misc]
            ends.slots.round(1_000 + number, objects(5, 1_000 + number))
        for each in asks:
            each.result(60.0)
    assert len(found) == 160
    assert min(found) >= 0
    # each of two actors once a round, and again for what was asked while one was done; and the client now and then
    assert len(asked) < 120, "not for each of 160 queries"


def test_one_wrong_query_is_named_and_none_of_the_others_asked(ends: Endpoints) -> None:
    ends.slots.round(1_000, objects(5, 900))
    wrong = {**SKQ, "k": "three"}
    with Stream(ends.store) as stream, pytest.raises(SettingError, match=r"^query 2: k: "):
        stream.ask([SRQ, SKQ, wrong, STQ, wrong])
    assert ends.answered() == [0, 0, 0]


@pytest.mark.parametrize("who", ["driver", "actor"])
def test_who_is_silent_is_not_waited_for_longer_than_said(ends: Endpoints, silent: str, who: str) -> None:
    ends.slots.round(1_000, objects(5, 900))
    if who == "driver":
        replace(ends.query_endpoint, address=silent).save(ends.store)
    else:
        addresses, ends.addresses = ends.addresses, [silent] * SLOTS
    with Stream(ends.store) as stream, pytest.raises(Unavailable, match=r"does not answer.*; waited 1.5 s"):
        stream.ask(SRQ, timeout=1.5)
    if who == "actor":
        ends.addresses = addresses
    ends.query_endpoint.save(ends.store)
    with Stream(ends.store) as stream:
        assert len(stream.ask(SRQ)["objects"]) == 5


def test_a_driver_that_is_back_is_asked_though_the_store_is_away(ends: Endpoints) -> None:
    ends.slots.round(1_000, objects(5, 900))
    with Stream(ends.store) as stream:
        assert len(stream.ask(SRQ)["objects"]) == 5
        ends.store.load_statistics = _away
        ends.newest = lambda: time.sleep(3.0)
        with pytest.raises(Unavailable, match="does not answer"):
            stream.ask(SRQ, timeout=0.0)
        ends.newest = ends.read_point
        assert len(stream.ask(SRQ)["objects"]) == 5


def test_a_store_that_is_silent_is_not_waited_for_longer_than_said(ends: Endpoints) -> None:
    ends.slots.round(1_000, objects(5, 900))
    back, load = threading.Event(), ends.store.load_statistics
    looks = []

    def late(name: str) -> Any:
        looks.append(name)
        assert back.wait(60.0)
        return load(name)

    with Stream(ends.store) as stream:
        assert len(stream.ask(SRQ)["objects"]) == 5
        ends.store.load_statistics = late
        right = replace(ends.query_endpoint, secret="changed")
        ends.newest = lambda: time.sleep(3.0)
        began = time.monotonic()
        for _ in range(2):
            with pytest.raises(Unavailable, match="does not answer"):
                stream.ask(SRQ, timeout=0.0)
        assert time.monotonic() - began < 20.0
        assert len(looks) == 1  # however often it is asked
        right.save(ends.store)
        back.set()
        until(lambda: stream._query_client.query_endpoint == right, within=60.0)


def test_a_version_that_is_new_while_the_store_is_away_is_not_waited_for_longer_than_said(ends: Endpoints) -> None:
    ends.slots.round(1_000, objects(5, 900))
    with Stream(ends.store) as stream:
        assert len(stream.ask(SRQ)["objects"]) == 5
    back, load = threading.Event(), ends.store.load

    def late(number: int) -> Any:
        back.wait(60.0)
        return load(number)

    ends.store.load = late
    with Stream(ends.store) as stream:
        assert len(stream.ask(SRQ, timeout=0.0)["objects"]) == 5, "any actor answers"
        with pytest.raises(Unavailable, match=r"objects are being moved, .* not known yet: try again"):
            stream.snapshots.read_point(timeout=1.0)
        back.set()
        assert stream.snapshots.read_point().clock == 1_000


def test_a_version_that_has_been_removed_meanwhile_is_no_error_of_the_stream(ends: Endpoints) -> None:
    ends.slots.round(1_000, objects(5, 900))
    load = ends.store.load

    def removed(number: int) -> Any:
        ends.store.load = load
        raise StateError(f"version {number} is not in the store")

    ends.store.load = removed
    with Stream(ends.store) as stream:
        with pytest.raises(Unavailable, match=r"^the stream has advanced meanwhile: try again"):
            stream.snapshots.read_point(timeout=1.0)
        assert len(stream.ask(SRQ)["objects"]) == 5


def _away(name: str) -> Any:
    raise Unavailable("the store is away")


def test_a_stream_that_has_done_no_round_can_be_asked_with_the_first(ends: Endpoints) -> None:
    with Stream(ends.store) as stream:
        with pytest.raises(Unavailable, match="the stream has just started"):
            stream.ask(SRQ, timeout=0.0)
        threading.Timer(0.3, ends.slots.round, (1_000, objects(5, 900))).start()
        assert len(stream.ask(SRQ)["objects"]) == 5


def test_a_stream_whose_worker_has_been_started_again_has_not_only_begun(ends: Endpoints) -> None:
    save_named(ends.store, 0)  # as the worker did that was there before
    with Stream(ends.store) as stream:
        with pytest.raises(Unavailable, match="worker has just started, and has not read its state yet"):
            stream.ask(SRQ, timeout=0.0)
        threading.Timer(0.3, ends.slots.round, (1_000, objects(5, 900))).start()
        assert len(stream.ask(SRQ)["objects"]) == 5


def test_who_asks_a_suspended_stream_is_told_so_and_at_once_when_it_is_known(ends: Endpoints) -> None:
    ends.slots.round(1_000, objects(5, 900))
    with Stream(ends.store) as stream:
        save_suspended(ends.store, True)
        assert len(stream.ask(SRQ)["objects"]) == 5, "it answers as long as its worker is there"
        ends.shutdown()
        with pytest.raises(Suspended, match="the stream is suspended: it answers no queries until it is resumed"):
            stream.ask(SRQ, timeout=1.0)
        began = time.monotonic()
        with pytest.raises(Suspended):
            stream.ask(SRQ, timeout=60.0)
        with pytest.raises(Suspended):
            stream.queries(timeout=60.0)
        assert time.monotonic() - began < 30.0
        save_suspended(ends.store, False)
        with pytest.raises(Unavailable, match="does not answer"):
            stream.ask(SRQ, timeout=0.0)


def test_a_stream_that_is_removed_while_it_is_asked(ends: Endpoints) -> None:
    ends.slots.round(1_000, objects(5, 900))
    with Stream(ends.store) as stream:
        assert len(stream.ask(SRQ)["objects"]) == 5
        ends.store.now = MemoryStore()
        ends.shutdown()
        for _ in range(2):
            with pytest.raises(Unavailable, match=r"does not answer|no worker of the stream has run yet"):
                stream.ask(SRQ, timeout=0.0)


def test_a_stream_that_is_begun_anew_is_asked_by_its_own_tree(ends: Endpoints) -> None:
    ends.slots.round(1_000, objects(5, 900))
    with Stream(ends.store) as stream:
        assert len(stream.ask(SRQ)["objects"]) == 5
        ends.store.now = MemoryStore()
        ends.shutdown()
        views.forget()
        other = Endpoints()
        try:
            sample = ObjectBatch.of(objects(500, 0))
            other.slots.version = build(PLANE, sample, QueryBatch.of([]), 30, SLOTS)
            save_version(other.actors[0].coordinator.world.storage, other.slots.version)
            other.slots.round(2_000, objects(300, 1_900))
            ends.store.create(other.slots.version, "another life")
            other.query_endpoint.save(ends.store)
            corners = [{**SRQ, "region": {"box": [x, y, x + 1, y + 1]}} for x in range(8) for y in range(8)]
            found = {each["id"] for row in stream.ask(corners) for each in row["objects"]}
            assert len(found) == 300
        finally:
            other.shutdown()


@pytest.mark.parametrize("space", [WGS84, Space.planar(0.0, 0.0, 9.0, 9.0)], ids=str)
def test_a_stream_that_is_begun_anew_in_another_space_is_not_asked(ends: Endpoints, space: Space) -> None:
    ends.slots.round(1_000, objects(5, 900))
    with Stream(ends.store) as stream:
        assert len(stream.ask(SRQ)["objects"]) == 5
        ends.registry.shutdown()
        replace(ends.query_endpoint, space=str(space)).save(ends.store)
        with pytest.raises(Unavailable, match="created again with another space"):
            stream.ask(SRQ, timeout=1.0)


@pytest.mark.parametrize("unicode", ["", "13.0.0", "99.0.0"])
def test_a_stream_whose_words_are_others_is_not_asked(ends: Endpoints, unicode: str) -> None:
    ends.slots.round(1_000, objects(5, 900))
    with Stream(ends.store) as stream:
        assert len(stream.ask(SRQ)["objects"]) == 5
        replace(ends.query_endpoint, unicode=unicode).save(ends.store)
        with pytest.raises(
            Unavailable, match=r"this program with Unicode .*: query it with the release that runs the stream"
        ):
            Stream(ends.store)
        ends.registry.shutdown()  # as when the worker is another one
        with pytest.raises(Unavailable, match="created again"):
            stream.ask(SRQ, timeout=1.0)


def test_an_endpoint_of_an_older_release_and_of_a_newer_one_can_be_read(ends: Endpoints) -> None:
    _, said = ends.store.load_statistics("query-endpoint")
    older = {name: value for name, value in said.items() if name != "unicode"}
    ends.store.save_statistics("query-endpoint", {}, older)
    assert QueryEndpoint.read(ends.store) == replace(ends.query_endpoint, unicode="")
    ends.store.save_statistics("query-endpoint", {}, said | {"more": 1})
    assert QueryEndpoint.read(ends.store) == ends.query_endpoint


def test_who_gives_up_what_is_found_has_no_more_of_it_found(ends: Endpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spatialstream.stages.snapshot_queries.BLOCK_BYTES", 2_000)
    ends.slots.round(1_000, objects(3_000, 900))
    found, held = list[int](), list[int]()
    for actor in ends.actors:
        find = actor.coordinator.find

        def counted(body: bytes, find: Any = find) -> Iterator[bytes]:
            for message in find(body):
                found.append(len(message))
                yield message

        monkeypatch.setattr(actor.coordinator, "find", counted)
        actor.coordinator.message_bytes = 20_000
    asked = [("q", {**SRQ, "id": f"q{i}", "t": 1_000}) for i in range(300)]
    with Stream(ends.store) as stream:
        with pytest.raises(TooLarge, match="the most is 500000"):
            list(stream.snapshots.lines(asked, bounds=AnswerBounds(500_000, held.append)))
        assert sum(held) == 0
        assert sum(found) < 5_000_000, "of some 20,000,000"
        lines = list(stream.snapshots.lines(asked[:2], bounds=AnswerBounds(500_000, held.append)))
        assert [json.loads(line) for line in lines] == [ends.slots.right(record) for _, record in asked[:2]]
        assert sum(held) == sum(len(line.encode()) for line in lines)
        held.clear()
        no_room = AnswerBounds(None, lambda more: held.append(more) or _no_room(sum(held)))
        with pytest.raises(MemoryError):
            list(stream.snapshots.lines(asked, bounds=no_room))
        until(lambda: ends.outcome("abandoned") >= 300)
        assert len(stream.ask(SRQ)["objects"]) == 3_000


def _no_room(held: int) -> None:
    if held > 400_000:
        raise MemoryError


def _limited(ends: Endpoints, longest: int) -> None:
    """Let rows be of so many bytes."""
    for actor in ends.actors:
        actor.coordinator.world = replace(actor.coordinator.world, limits=RowLimits(longest))


@pytest.mark.parametrize("timed", [{}, {"t": 1_000}])
@pytest.mark.parametrize("name", ["x" * 1_000, "é" * 500], ids=["ascii", "other"])
def test_a_row_is_as_long_as_its_bytes(ends: Endpoints, timed: dict[str, int], name: str) -> None:
    ends.slots.round(1_000, [SpatialObject(name, 900, 1.5, 2.5, ("a",))])
    asked = {**SRQ, "id": "q"} | timed
    right = ends.slots.right(asked)
    size = len(json.dumps({each: right[each] for each in right if each != "as_of"}, ensure_ascii=False).encode())
    for longest in (size, size - 1):
        _limited(ends, longest)
        with Stream(ends.store) as stream:
            row = stream.ask(asked)
        assert row == right if longest == size else row["error"].startswith(f"the row would have {size} bytes")


@pytest.mark.parametrize("timed", [{}, {"t": 1_000}])
def test_of_a_row_that_is_too_long_there_is_the_reason(ends: Endpoints, timed: dict[str, int]) -> None:
    ends.slots.round(1_000, objects(3_000, 900))
    _limited(ends, 50_000)
    near = {**SRQ, "region": {"box": [1, 1, 2, 2]}, "id": "near"} | timed
    many = {**SKQ, "k": 2_000, "id": "many"} | timed
    with Stream(ends.store) as stream:
        whole, few, dear = stream.ask([{**SRQ, "id": "q"} | timed, near, many])
        assert few == ends.slots.right(near)
        for row, size in ((whole, len(json.dumps(ends.slots.right({**SRQ, "id": "q"} | timed)))), (dear, 0)):
            assert "objects" not in row
            told = re.fullmatch(
                r"the row would have (\d+) bytes, and the most is 50000; ask for less of it", row["error"]
            )
            assert told is not None
            assert int(told[1]) > 50_000
            assert not size or abs(int(told[1]) - size) < 100


def test_a_stream_takes_the_times_that_its_router_has_told(
    ends: Endpoints, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    limits, quiet = TimeLimits(60_000, 3_600_000), argparse.Namespace(quiet=False)
    with Stream(ends.store) as stream:
        assert stream.limits() == TimeLimits()  # nobody can say
        router.keep_limits(quiet, ends.store, StreamSettings("s", ahead=60_000, retention=3_600_000))
        assert read_limits(ends.store) == limits
        assert stream.limits() == TimeLimits()  # as it was a moment ago
        monkeypatch.setattr(client_stream, "_LIMITS_SECONDS", 0.0)
        assert stream.limits() == limits
        with monkeypatch.context() as away:
            away.setattr(ends.store, "load_statistics", nobody)
            assert stream.limits() == limits
            router.keep_limits(quiet, ends.store, StreamSettings("s"))  # no start fails for it
        assert "gateways cannot know which times the stream accepts" in capsys.readouterr().err
        save_limits(ends.store, TimeLimits(ahead=5))
        assert stream.limits() == TimeLimits(ahead=5)


def nobody(*given: object) -> NoReturn:
    raise Unavailable("nobody answers")


def test_a_stream_of_which_no_broker_is_known_cannot_be_watched(ends: Endpoints) -> None:
    with Stream(ends.store) as stream:
        for needs_broker in (
            lambda: stream.watch("q"),
            lambda: stream.register({"type": "CRQ", "region": {"box": [0, 0, 1, 1]}}),
            lambda: stream.cancel("q"),
            lambda: stream.send({"id": "a", "t": "2018-02-07", "x": 0, "y": 0, "text": ""}),
        ):
            with pytest.raises(SettingError, match="broker: is required"):
                needs_broker()
