"""Queries between rounds, from the side of who asks: what is refused, what is waited for, and what is tried again."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from spatialstream.actors.query_endpoint import Request
from spatialstream.actors.read_point import ReadPoint
from spatialstream.actors.wire import ActorLost
from spatialstream.client import SnapshotClient
from spatialstream.index.version import RoutingVersion, build
from spatialstream.local.snapshot.segments import SegmentStore
from spatialstream.model.answer_bounds import AnswerBounds
from spatialstream.model.errors import Gone, NotServed, SettingError, Unavailable
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import QueryBatch, parse_query
from spatialstream.model.space import Space
from spatialstream.model.terms import SUBSCRIPTIONS, TermRule
from spatialstream.oracle import answers
from spatialstream.stages import views
from spatialstream.stages.turns import NEVER, Round
from spatialstream.stages.views import View
from tests.asking import AskedActors, Rows, world_of

PLANE = Space.planar(0.0, 0.0, 8.0, 8.0)
SLOTS, PLACE = 3, "asked"
SRQ = {"type": "SRQ", "region": {"box": [0, 0, 8, 8]}, "duration": "1h"}
SKQ = {"type": "SKQ", "at": [1, 1], "k": 3, "duration": "1h"}
MANY = {**SKQ, "k": 40}
STQ = {"type": "STQ", "region": {"circle": [4, 4, 4]}, "k": 2, "duration": "1h"}


def objects(n: int, t: int) -> list[SpatialObject]:
    rng = np.random.default_rng((n, t))
    places = rng.uniform(0, 8, (n, 2)).tolist()
    return [SpatialObject(f"{t}-{i}", t, x, y, ("a", "b", f"w{i % 7}")) for i, (x, y) in enumerate(places)]


class Stream:
    """Slots in this process, rounds of which are done at will, and a coordinator without slots that is asked.

    Attributes:
        actors: the coordinator, and another actor that has all slots.
    """

    def __init__(self, space: Space = PLANE) -> None:
        sample = ObjectBatch.of(objects(200, 0))
        self.version = build(space, sample, QueryBatch.of([]), 9, SLOTS)
        self.stores = [SegmentStore(space) for _ in range(SLOTS)]
        self.turn: Round | None = None
        self.seen: list[SpatialObject] = []
        self.pauses: list[float] = []
        worlds = {name: world_of(space, SLOTS, place) for name, place in (("coordinator", "none"), ("a", PLACE))}
        self.actors = AskedActors(lambda seconds: self.newest(seconds), dict.fromkeys(range(SLOTS), "a"), worlds)

    def round(self, watermark: int, found: Sequence[SpatialObject] = ()) -> None:
        number = 0 if self.turn is None else self.turn.number + 1
        turn = Round(number, (number,), (0,), watermark, 0)
        batch = ObjectBatch.of(list(found))
        slots = self.version.route_objects(batch)
        for slot, store in enumerate(self.stores):
            store.append(batch.take(np.flatnonzero(slots == slot)))
            views.keep(PLACE, slot, View.of(store, turn, None))
        self.turn = turn  # it is told when all slots have done it
        self.seen += found

    def newest(self, seconds: float) -> ReadPoint | None:
        def load(number: int) -> RoutingVersion:
            assert number == 0
            return self.version

        return None if self.turn is None else ReadPoint.of(json.loads(json.dumps(ReadPoint.record(self.turn))), load)

    def ask(self, request: Request) -> Rows:
        return self.actors.ask(request)

    @property
    def slots_searched(self) -> list[list[int]]:
        """Slots that have been searched, of each call."""
        searched = [{slot for each in wanted for slot in each.slots} for _, _, wanted in self.actors.searched]
        return list(map(sorted, searched))

    def session(self, ask: Any = None, **more: Any) -> SnapshotClient:
        return SnapshotClient(self.newest, ask or self.ask, PLANE, pause=self.pauses.append, **more)

    def right(self, record: dict[str, Any], t: int | None = None) -> dict[str, Any]:
        """The oracle's row, as of the round that is newest."""
        assert self.turn is not None
        given = {"t": self.turn.watermark if t is None else t, **record}
        rows, _ = answers(self.seen, [parse_query(given, PLANE)], PLANE)
        return rows[0] | {"as_of": {"round": self.turn.number, "clock": self.turn.watermark}}


@pytest.fixture
def stream() -> Iterator[Stream]:
    views.forget()
    yield Stream()
    views.forget()


def test_an_interval_that_ends_after_the_clock_is_refused(stream: Stream) -> None:
    best = {"type": "SBQ", "at": [1, 1], "k": 3, "words": ["a"], "radius": 1}
    session = stream.session(rule=TermRule(ranking=True))
    stream.round(1_000, objects(40, 900))
    with pytest.raises(SettingError, match=r"query 1: between: 1001 is after the query's t; give at most 1000$"):
        session.ask([SRQ, best | {"between": [500, 1_001]}])
    with pytest.raises(SettingError, match=r"between: 801 is after the query's t; give at most 800$"):
        session.ask(best | {"between": [500, 801], "t": 800})


def test_answers_are_as_of_the_newest_round_at_its_clock(stream: Stream) -> None:
    session = stream.session()
    stream.round(1_000, objects(40, 900))
    assert session.ask(SRQ | {"id": "q"}) == stream.right(SRQ | {"id": "q"})
    stream.round(2_000, objects(40, 1_500))
    for record in (SRQ, SKQ, STQ, SKQ | {"keywords": ["w3"]}, SRQ | {"t": 1_200}, SRQ | {"t": "1970-01-01T00:00:02Z"}):
        assert session.ask(record | {"id": "q"}) == stream.right(record | {"id": "q"})
    assert session.ask(SRQ)["t"] == 2_000
    assert len(session.ask(SRQ)["objects"]) == 80
    assert len(session.ask(SRQ | {"t": 1_000})["objects"]) == 40


def test_answers_to_several_come_in_their_order_all_as_of_one_round(stream: Stream) -> None:
    stream.round(1_000, objects(100, 900))
    asked = [kind | {"id": f"q{i}"} for i, kind in enumerate([STQ, SRQ, SKQ, SRQ | {"keywords": ["w1"]}, MANY] * 4)]
    assert stream.session().ask(asked) == [stream.right(each) for each in asked]
    assert stream.slots_searched[0] == [0, 1, 2]
    assert len(stream.slots_searched) == 2, "all second phases are one call"
    assert {each.query.type for each in stream.actors.searched[1][2]} == {"SKQ"}
    assert stream.session().ask([]) == []
    assert len(stream.session().ask([SRQ, SRQ])) == 2
    assert [row["query"] for row in stream.session().ask([SRQ | {"id": "same"}] * 2)] == ["same", "same"]


def test_only_the_slots_that_a_query_concerns_are_asked(stream: Stream) -> None:
    stream.round(1_000, objects(300, 900))
    leaf = stream.version.index.nearest_leaves(np.array([[1.0, 1.0]]))
    stream.session().ask({**SRQ, "region": {"box": [1, 1, 1, 1]}})
    assert stream.slots_searched == [stream.version.mapping[leaf].tolist()]
    stream.session().ask({**SKQ, "k": 1})
    assert stream.slots_searched[1] == stream.version.mapping[leaf].tolist()
    assert all(len(slots) < SLOTS for slots in stream.slots_searched)


def test_an_answer_may_be_of_any_size(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spatialstream.stages.snapshot_queries.BLOCK_BYTES", 2_000)
    stream.round(1_000, objects(5_000, 900))
    everything = {**SRQ, "id": "q"}
    k = {**SKQ, "id": "q", "k": 10**6}
    assert stream.session().ask([everything, k]) == [stream.right(everything), stream.right(k)]
    (line,) = stream.session().lines([("here", k)])
    assert json.loads(line) == stream.right(k)


def test_more_queries_than_are_answered_together(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spatialstream.client.snapshot_client.MOST", 3)
    stream.round(1_000, objects(10, 900))
    assert [row["query"] for row in stream.session().ask(SKQ | {"id": str(i)} for i in range(8))] == list("01234567")


def test_what_is_wrong_with_one_of_several_who_ask_is_nothing_to_the_others(stream: Stream) -> None:
    stream.round(1_000, objects(40, 900))
    right, unread, early = [("a", {**SRQ, "id": "q"}), ("b", {**MANY, "id": "r"})], ("c", "SRQ"), {**SKQ, "t": 1_001}
    requests = [(right, 5.0), ([unread], 5.0), ([], 5.0), ([*right, ("d", early)], 5.0), (right[1:], 0.0)]
    found = stream.session().together(requests)
    rows = [stream.right(record) for _, record in right]
    assert [[json.loads(line) for line in each] for each in (found[0], found[2], found[4])] == [rows, [], rows[1:]]  # type: ignore[union-attr]
    assert str(found[1]) == "c: is not a JSON object"
    assert str(found[3]).startswith("d: t: 1001 is later than the stream's clock")
    assert len({round_id for _, round_id, _ in stream.actors.searched}) == 1
    assert len(stream.actors.searched) == 2, "two phases of all that can be answered"
    assert stream.session().together([]) == []


def test_what_several_ask_is_tried_once_and_waits_for_nothing(stream: Stream) -> None:
    stream.round(NEVER)
    session = stream.session()
    (found,) = session.together([([("a", SRQ)], 60.0)])
    assert isinstance(found, Unavailable)
    assert str(found).startswith("the stream has just started")
    stream.round(1_000)
    (early,) = session.together([([("a", SRQ)], 60.0)], 1_001)
    assert str(early) == "the stream's clock has not reached 1001: it is at 1000"
    (row,) = session.together([([("a", SRQ)], 60.0)], 1_000)
    assert json.loads(row[0])["objects"] == []  # type: ignore[index]
    assert stream.pauses == []


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ("SRQ", "query 0: is not a JSON object"),
        ({**SRQ, "region": {"box": [0, 9, 1, 1]}}, "query 0: region.box: south 9 is greater than north 1"),
        ({**SKQ, "k": 0}, "query 0: k: 0 is out of range"),
        (
            {**SKQ, "type": "CKQ"},
            "query 0: type: CKQ is not a snapshot query (SRQ, SKQ, STQ or SBQ); send it through",
        ),
        ({"type": "CANCEL", "id": "x"}, "query 0: type: CANCEL is not a snapshot query"),
        ({**SRQ, "keywords": ["!"]}, "query 0: keywords: '!' has no term"),
        ({**SRQ, "id": "\ud800"}, "query 0: id: holds half of a surrogate pair"),
        (
            {**SRQ, "t": 1_795_880_000_000_000},
            "query 0: t: 1795880000000000 lies beyond the year 2100, and the stream's clock at 1000: it looks like",
        ),
        ({**SRQ, "t": 1_001}, "query 0: t: 1001 is later than the stream's clock, which is at 1000; leave t out"),
    ],
)
def test_what_is_no_query_of_the_stream_is_refused_with_its_place(stream: Stream, record: Any, reason: str) -> None:
    stream.round(1_000)
    with pytest.raises(SettingError) as refused:
        stream.session().ask([record])
    assert str(refused.value).startswith(reason)
    assert not stream.actors.searched


def test_a_time_that_looks_like_another_unit_may_be_said_to_be_right(stream: Stream) -> None:
    clock = 1_795_880_000_000
    stream.round(clock, objects(5, clock - 100))
    with pytest.raises(SettingError, match=r"query: t: 900 lies in January 1970, .* it looks like seconds"):
        stream.session().ask({**SRQ, "t": 900})
    assert stream.session().ask({**SRQ, "t": 900}, sure=True)["objects"] == []
    assert stream.session().ask({**SRQ, "t": "1970-01-01T00:00:00.9Z"})["objects"] == []
    for at_least in (clock // 1_000, str(clock // 1_000), clock * 1_000):
        with pytest.raises(
            SettingError, match=r"at_least: .* and the stream's clock at .*: it looks like (micro)?seconds"
        ):
            stream.session().ask(SRQ, at_least=at_least)
    assert len(stream.session().ask(SRQ, at_least="1970-01-21T00:00:00Z")["objects"]) == 5
    assert len(stream.session().ask(SRQ, at_least=clock // 1_000, sure=True)["objects"]) == 5


def test_terms_are_those_of_the_streams_rule(stream: Stream) -> None:
    stream.round(1_000, objects(5, 900))
    with pytest.raises(SettingError, match="keywords: 'a' has no term"):
        stream.session(rule=TermRule(frozenset({"a"}))).ask({**SRQ, "keywords": ["a"]})


def test_a_stream_of_subscriptions_is_asked_nothing(stream: Stream) -> None:
    stream.round(1_000, objects(10, 900))
    client = SnapshotClient(stream.newest, stream.ask, PLANE, TermRule(serves=SUBSCRIPTIONS))
    with pytest.raises(NotServed, match="the stream serves subscriptions and stores no objects; register a CRQ, CKQ"):
        client.ask(SRQ)


def test_a_stream_that_has_only_begun_cannot_be_asked_and_then_it_can(stream: Stream) -> None:
    for _ in range(2):
        with pytest.raises(Unavailable, match=r"the stream has just started: .*; waited 0 s"):
            stream.session().ask(SRQ, timeout=0.0)
        stream.round(NEVER)
    stream.round(5)
    assert stream.session().ask(SRQ)["objects"] == []


def test_at_least_waits_for_the_clock(stream: Stream) -> None:
    stream.round(1_000, objects(1, 900))

    def later(seconds: float) -> None:
        stream.pauses.append(seconds)
        assert stream.turn is not None
        stream.round(stream.turn.watermark + 10, objects(1, stream.turn.watermark + 5))

    session = SnapshotClient(stream.newest, stream.ask, PLANE, pause=later)
    assert session.ask(SRQ, at_least=1_000)["as_of"]["clock"] == 1_000
    assert not stream.pauses
    row = session.ask(SRQ | {"t": 1_030}, at_least=1_035)
    assert (row["t"], row["as_of"]["clock"], len(row["objects"])) == (1_030, 1_040, 4)
    assert stream.pauses == [0.002, 0.004, 0.008, 0.016]
    assert session.ask(SRQ, at_least="1970-01-01T00:00:01.050Z")["as_of"]["clock"] == 1_050
    with pytest.raises(Unavailable, match=r"the stream's clock has not reached 9999: it is at 1050; waited 0 s"):
        session.ask(SRQ, at_least=9_999, timeout=0.0)
    with pytest.raises(SettingError, match=r"at_least: 'soon' is not"):
        session.ask(SRQ, at_least="soon")


def test_what_has_gone_is_asked_for_again_at_the_newest_round(stream: Stream) -> None:
    stream.round(1_000, objects(10, 900))
    tries = iter([Gone("the view has gone"), ActorLost("the actor has gone")])

    def ask(request: Request) -> Rows:
        rows = stream.ask(request)
        if (error := next(tries, None)) is not None:
            next(rows)  # what has come is not used
            stream.round(1_000 + math.floor(10 * len(stream.seen)), objects(1, 900))
            raise error
        yield from rows

    row = stream.session(ask).ask(SRQ)
    assert row["as_of"] == {"round": 2, "clock": 1_110}
    assert len(row["objects"]) == 12
    assert len(stream.pauses) == 2
    views.forget()
    with pytest.raises(Unavailable, match=r"slot 0 has no view of round 2 here: try again.*; waited 0 s"):
        stream.session().ask(SRQ, timeout=0.0)


def test_what_is_held_for_rows_is_given_back_where_they_are_asked_for_again(stream: Stream) -> None:
    stream.round(1_000, objects(10, 900))
    tries, held = iter([Gone("the view has gone")]), list[int]()

    def ask(request: Request) -> Rows:
        yield from stream.ask(request)
        if (error := next(tries, None)) is not None:
            raise error

    (line,) = stream.session(ask).lines([("q", SRQ)], bounds=AnswerBounds(hold=held.append))
    size = len(line.encode())
    assert held == [size, -size, size]
