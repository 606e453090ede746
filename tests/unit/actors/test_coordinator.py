"""Queries answered by one actor: in several messages, as of one round, and again where something has gone."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from spatialstream.actors import coordinator
from spatialstream.actors.coordinator import QueryCoordinator
from spatialstream.actors.query_endpoint import AskedQuery, QueriesRefusedError, Request, rows_in
from spatialstream.actors.query_metrics import OUTCOMES, QueryMetrics
from spatialstream.actors.read_point import ReadPoint, ReadPoints
from spatialstream.actors.wire import ActorLost
from spatialstream.model.errors import Gone, TooLarge, Unavailable
from spatialstream.model.queries import Query, parse_query
from spatialstream.oracle import answers
from spatialstream.stages import snapshot_queries, views
from spatialstream.stages.turns import NEVER
from spatialstream.stages.views import View
from tests.asking import AskedActors, world_of
from tests.unit.client.test_snapshot_client import PLANE, SKQ, SLOTS, SRQ, STQ, Stream, objects

ACTORS = {0: "a", 1: "b", 2: "c"}
CLOCK = 1_000


class Cluster:
    """A stream with three slots, each in an actor of its own, whose views are at a place of its own."""

    def __init__(self, memory: int | None = None) -> None:
        self.stream = Stream(PLANE)
        self.newest: ReadPoint | None = None
        worlds = {name: world_of(PLANE, SLOTS, name) for name in ACTORS.values()}
        self.actors = AskedActors(lambda seconds: self.newest, dict(ACTORS), worlds, memory)
        self.round(CLOCK, 300)

    def round(self, clock: int, n: int) -> None:
        """Do a round with n objects."""
        self.stream.round(clock, objects(n, clock - 100))
        self.keep()
        self.newest = self.stream.newest(1.0)

    def keep(self, *slots: int) -> None:
        """Keep views of the newest round of slots; default: of all."""
        assert self.stream.turn is not None
        for slot in slots or ACTORS:
            views.keep(ACTORS[slot], slot, View.of(self.stream.stores[slot], self.stream.turn, None))

    def ask(self, records: Sequence[dict[str, Any]], name: str = "a", **more: Any) -> list[dict[str, Any]]:
        """The rows of records, in their order."""
        lines = dict[int, bytes]()
        for numbers, some in self.actors.ask(request(records, **more), name):
            lines |= zip(numbers, some, strict=True)
        return [json.loads(lines[i]) for i in range(len(records))]

    def right(self, records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        return [self.stream.right(record | {"id": f"q{i}"}, record.get("t")) for i, record in enumerate(records)]

    def count(self, outcome: str) -> list[int]:
        """Queries of an outcome, by actor."""
        return [int(each.counts[:, OUTCOMES.index(outcome)].sum()) for each in self.actors.metrics.values()]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    views.forget()
    yield Cluster()
    views.forget()


def request(records: Sequence[dict[str, Any]], seconds: float = 5.0, **more: Any) -> Request:
    asked = []
    for i, record in enumerate(records):
        query = parse_query({"t": 0, **record, "id": f"q{i}"}, PLANE)
        assert isinstance(query, Query)
        asked.append(AskedQuery(query, "t" in record, record.get("t")))
    return Request(asked, seconds, **more)


CORNER = SRQ | {"region": {"box": [1, 1, 1.1, 1.1]}}
RECORDS = [
    *(SRQ, SKQ | {"k": 1_000}, STQ, CORNER, SRQ | {"any": [["w3", "a"], ["w1"]]}, SRQ | {"keywords": ["no"]}),
    *(SKQ, STQ | {"k": 50, "none": ["w2"]}, SRQ | {"t": 900}, SKQ | {"t": 10, "keywords": ["w1"]}),
]


@pytest.mark.parametrize("name", ACTORS.values())
@pytest.mark.parametrize("block", [1_000, 1 << 22])
def test_any_actor_has_the_answer(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, name: str, block: int) -> None:
    monkeypatch.setattr("spatialstream.stages.snapshot_queries.BLOCK_BYTES", block)
    assert cluster.ask(RECORDS, name) == cluster.right(RECORDS)
    for record in RECORDS:
        assert cluster.ask([record], name) == cluster.right([record])
    counted = dict(zip(ACTORS.values(), cluster.count("answered"), strict=True))
    assert counted == dict.fromkeys(ACTORS.values(), 0) | {name: 2 * len(RECORDS)}, "there, and nowhere else"


def test_each_actor_is_asked_once_in_each_phase_for_all_queries(cluster: Cluster) -> None:
    cluster.ask([SRQ, STQ, SKQ, SRQ, STQ, SKQ | {"at": [7, 7], "k": 200}])
    first = cluster.actors.searched[:2]
    assert [name for name, _, _ in first] == ["b", "c"]
    assert len(cluster.actors.searched) <= 4
    for _, _, wanted in cluster.actors.searched[2:]:
        assert {each.query.type for each in wanted} == {"SKQ"}


def test_an_answer_comes_in_messages_of_a_size_and_no_more_is_found_than_is_read(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spatialstream.stages.snapshot_queries.BLOCK_BYTES", 20_000)
    cluster.actors.set_message_bytes(30_000)
    cluster.round(2_000, 3_000)
    asked = request([SRQ] * 40, 60.0)
    sizes = [sum(map(len, lines)) for _, lines in cluster.actors.ask(asked)]
    row = len(json.dumps(cluster.right([SRQ])[0]))
    assert len(sizes) == 40, "a row is more than a message"
    assert all(abs(size - row) < 10 for size in sizes)
    everything, cluster.actors.found = cluster.actors.found, 0
    answer = cluster.actors.ask(asked)
    next(answer)
    answer.close()
    assert cluster.actors.found < everything / 10
    assert cluster.count("abandoned") == [40, 0, 0]
    assert cluster.actors.coordinators["a"].memory.taken == 0
    small = [sum(map(len, lines)) for _, lines in cluster.actors.ask(request([CORNER] * 2_000, 60.0))]
    assert len(small) < 20
    assert max(small) < 40_000


@pytest.mark.parametrize("gone", ["moving", "away", "view", "segment"])
def test_what_has_gone_is_looked_for_again_as_of_the_newest_round(cluster: Cluster, gone: str) -> None:
    pauses = list[float]()

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:  # it is there again, and another round is done
            cluster.actors.actors.update(ACTORS)
            cluster.actors.away.clear()
            cluster.round(2_000, 100)

    cluster.actors.pause = pause
    if gone == "moving":
        del cluster.actors.actors[2]
    elif gone == "away":
        cluster.actors.away.add("c")
    else:
        views.forget("c", 2)
    found = cluster.ask(RECORDS)
    assert found == cluster.right(RECORDS)
    assert {row["as_of"]["clock"] for row in found} == {2_000}
    assert pauses == [0.002, 0.004, 0.008]
    assert (cluster.actors.doubts, cluster.actors.looks) == (3, 4)
    assert cluster.count("again")[0] == 3 * len(RECORDS)
    assert cluster.actors.lost == (["c"] * 3 if gone == "away" else [])


def test_it_is_not_looked_for_longer_than_who_asks_waits(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    del cluster.actors.actors[2]
    with pytest.raises(Gone, match="slot 2 is moving: try again"):
        cluster.ask([SRQ])
    assert cluster.ask([CORNER | {"region": {"box": [x, y, x, y]}} for x, y in _places_of(cluster, 0)])
    views.forget("c", 2)
    cluster.actors.actors[2] = "c"
    monkeypatch.setattr(coordinator, "_AGAIN_SECONDS", 60.0)
    with pytest.raises(Gone, match="slot 2 has no view of round 0"):
        cluster.ask([SRQ], seconds=0.05)
    cluster.actors.away.add("c")
    with pytest.raises(ActorLost, match="nobody is there"):
        cluster.ask([SRQ], seconds=0.05)


def _places_of(cluster: Cluster, slot: int) -> list[tuple[float, float]]:
    """Points of a slot."""
    points = np.random.default_rng(1).uniform(0, 8, (50, 2))
    slots = cluster.stream.version.mapping[cluster.stream.version.index.nearest_leaves(points)]
    return [(x, y) for x, y in points[slots == slot].tolist()]


def test_once_a_row_is_sent_nothing_is_looked_for_again(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of another round would not go together with it: who asks begins again."""
    monkeypatch.setattr("spatialstream.stages.snapshot_queries.BLOCK_BYTES", 1_000)
    cluster.actors.set_message_bytes(1_000)
    asked = request([SRQ] * 10 + [SKQ | {"k": 1_000}] * 10)
    answer = cluster.actors.ask(asked)
    next(answer)
    cluster.actors.away.update("bc")
    with pytest.raises(ActorLost):
        list(answer)
    assert cluster.actors.looks == 1


def test_times_that_cannot_be_answered_are_refused_and_nothing_is_searched(cluster: Cluster) -> None:
    late = SRQ | {"t": CLOCK + 1}
    with pytest.raises(QueriesRefusedError) as refused:
        cluster.ask([SRQ, late, SKQ, late | {"t": 1_795_880_000_000_000}])
    assert refused.value.reasons.keys() == {1, 3}
    assert refused.value.reasons[1].startswith("t: 1001 is later than the stream's clock, which is at 1000; leave t")
    assert "it looks like" in refused.value.reasons[3]
    assert not cluster.actors.searched
    assert cluster.count("answered") == cluster.count("failed") == [0, 0, 0]


def test_before_the_clock_there_is_no_answer(cluster: Cluster) -> None:
    with pytest.raises(Unavailable, match="the stream's clock has not reached 1001: it is at 1000"):
        cluster.ask([SRQ], at_least=CLOCK + 1)
    assert cluster.ask([SRQ], at_least=CLOCK) == cluster.right([SRQ])
    cluster.newest = None
    with pytest.raises(Unavailable, match="the stream has just started"):
        cluster.ask([SRQ])
    other = Stream(PLANE)
    other.round(NEVER)
    cluster.newest = other.newest(1.0)
    with pytest.raises(Unavailable, match="the stream has just started"):
        cluster.ask([SRQ])


def test_what_would_be_too_large_is_given_up_while_it_is_found(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    (row,) = cluster.right([SRQ])
    size = len(json.dumps(row, ensure_ascii=False).encode())
    assert cluster.ask([SRQ], largest=size) == [row]
    with pytest.raises(TooLarge, match=f"the answer would have {size} bytes, and the most is {size - 1}"):
        cluster.ask([SRQ], largest=size - 1)
    monkeypatch.setattr("spatialstream.stages.snapshot_queries.BLOCK_BYTES", 20_000)
    cluster.actors.found = 0
    with pytest.raises(TooLarge, match=r"the answer would have (more than )?\d+ bytes, and the most is 50000"):
        cluster.ask([SRQ] * 1_000, largest=50_000)
    assert cluster.actors.found < 200_000
    assert cluster.actors.coordinators["a"].memory.taken == 0


def test_the_memory_of_an_actor_is_that_of_all_its_answers() -> None:
    views.forget()
    cluster = Cluster(memory=60_000)
    (row,) = cluster.right([SRQ])
    assert cluster.ask([SRQ]) == [row]
    assert cluster.ask([SRQ]) == [row], "what was held is given back"
    waiting = cluster.actors.ask(request([SRQ] * 2))
    memory = cluster.actors.coordinators["a"].memory
    assert memory.taken == 0
    next(waiting)
    held = memory.taken
    assert 0 < held <= 60_000
    memory.taken += 60_000 - held  # as if others held the rest
    with pytest.raises(Unavailable, match="no memory left for answers at present: try again"):
        cluster.ask([SRQ])
    memory.taken -= 60_000 - held
    waiting.close()
    assert memory.taken == 0
    with pytest.raises(
        TooLarge, match="the answer needs more than the 60000 bytes of memory that an actor has for answers"
    ):
        cluster.ask([SRQ] * 100)
    assert memory.taken == 0
    views.forget()


def test_no_answer_waits_for_another_one(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    reached, go = threading.Event(), threading.Event()
    real = snapshot_queries.search

    def slow(objects: Any, query: Query, *given: Any, **more: Any) -> Any:
        if query.predicate.keywords == ("heavy",):
            reached.set()
            assert go.wait(60.0)
        return real(objects, query, *given, **more)

    monkeypatch.setattr(snapshot_queries, "search", slow)
    with ThreadPoolExecutor(9) as pool:
        heavy = pool.submit(cluster.ask, [SRQ | {"keywords": ["heavy"]}], seconds=60.0)
        assert reached.wait(60.0)
        others = [pool.submit(cluster.ask, [record]) for record in RECORDS[:8]]
        assert [each.result(60.0) for each in others] == [cluster.right([record]) for record in RECORDS[:8]]
        assert not heavy.done()
        go.set()
        assert heavy.result(60.0)[0]["objects"] == []


def test_a_driver_that_does_not_answer_is_told(cluster: Cluster) -> None:
    def away(seconds: float) -> None:
        raise Unavailable("away")

    world = world_of(PLANE, SLOTS, "a")
    newest = ReadPoints(world, "a", away, lambda: 0.0)
    made = QueryCoordinator(world, "", newest, None, lambda address: None, QueryMetrics())  # type: ignore[arg-type]
    with pytest.raises(Unavailable, match="away"):
        list(rows_in(made.ask(request([SRQ]).to_json())))


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff", b'{"asked": [[[1], false, null]]}', b'{"round": [0, 0]}'])
def test_what_is_no_request_is_answered_with_an_error(cluster: Cluster, body: bytes) -> None:
    made = cluster.actors.coordinators["a"]
    for messages in (list(made.ask(body)), list(made.find(body))):
        assert [json.loads(message).keys() for message in messages] == [{"failed"}]


def test_rows_are_the_oracles_whatever_is_asked_together(cluster: Cluster) -> None:
    records = [record | {"duration": duration} for record in RECORDS[:8] for duration in (1, 50, 150, 10_000)]
    queries = [parse_query(record | {"id": f"q{i}", "t": CLOCK}, PLANE) for i, record in enumerate(records)]
    right = {row["query"]: row for row in answers(cluster.stream.seen, queries, PLANE)[0]}
    for row in cluster.ask(records):
        assert row.pop("as_of") == {"round": 0, "clock": CLOCK}
        assert row == right[row["query"]]
