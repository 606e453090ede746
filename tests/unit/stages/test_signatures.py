"""Slots that are skipped: rows are the oracle's with and without, in streams that change in every way."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from spatialstream.actors.read_point import ReadPoint
from spatialstream.index.version import RoutingVersion, build
from spatialstream.local.snapshot.segments import SegmentStore
from spatialstream.local.snapshot.signatures import SignedSegment
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import Query, QueryBatch, parse_query
from spatialstream.model.space import WGS84, Space
from spatialstream.oracle import answers
from spatialstream.stages import views
from spatialstream.stages.routing import PastVersion, Routing
from spatialstream.stages.signatures import ANYTHING, Signed, SlotPruning, has_words
from spatialstream.stages.snapshot_queries import Part, SnapshotRows, Wanted, found_here
from spatialstream.stages.turns import Round
from spatialstream.stages.views import View, view_of
from tests.unit.memory_files import MemoryFiles
from tests.unit.stages.test_snapshot_queries import Held

PLANE = Space.planar(0.0, 0.0, 8.0, 8.0)
PLACE, SLOTS, LEAVES = "signed", 8, 24
WORDS = 60
RETENTION = 6_000


class Changing:
    """A stream whose versions change, with late objects, retention, and slots that are restored from files.

    Attributes:
        seen: all objects.
        asked: slots that queries have been sent to.
    """

    def __init__(self, space: Space, seed: int) -> None:
        self.space, self.rng = space, np.random.default_rng(seed)
        self.stores = [SegmentStore(space, 1_000, phase=slot / SLOTS) for slot in range(SLOTS)]
        self.active, self.past = self.version(0), list[PastVersion]()
        self.seen, self.turn = list[SpatialObject](), Round(0, (0,), (0,), 0, 0)
        self.files, self.asked, self.first = MemoryFiles(), 0, 0

    def version(self, number: int) -> RoutingVersion:
        """Other leaves on other slots."""
        sample = ObjectBatch.of(self.objects(400, 0))
        return replace(build(self.space, sample, QueryBatch.of([]), LEAVES, SLOTS), number=number)

    def objects(self, n: int, clock: int) -> list[SpatialObject]:
        """Objects at a few places, each with words of its own, in time or late."""
        space, rng = self.space, self.rng
        low, high = np.array([space.west, space.south]), np.array([space.east, space.north])
        places = np.clip(rng.choice(PLACES, n) * (high - low) + low + rng.normal(0, 0.02, (n, 2)), low, high)
        late = rng.choice([0, 0, 0, 400, 2_500], n)
        return [
            SpatialObject(f"{clock}-{i}", max(1, clock - int(late[i]) - int(rng.integers(0, 300))), x, y, self.words())
            for i, (x, y) in enumerate(places.tolist())
        ]

    def words(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(f"w{word}" for word in (self.rng.zipf(1.4, 3) % WORDS).tolist()))

    def round(self, clock: int, n: int) -> None:
        """Objects come; now and then the version changes, and a slot is restored."""
        batch = self.objects(n, clock)
        number = self.turn.number + 1
        self.turn = Round(number, (number,), (0,), clock, self.active.number)
        if number % 3 == 0:
            self.past.append(PastVersion(self.active, self.first, max(each.t for each in self.seen)))
            self.active, self.first = self.version(self.active.number + 1), 0
        given = ObjectBatch.of(batch)
        slots = self.active.route_objects(given)
        for slot, store in enumerate(self.stores):
            store.append(given.take(np.flatnonzero(slots == slot)))
            store.drop_before(clock - RETENTION)
            if number % SLOTS == slot:
                self.stores[slot] = SegmentStore.restore(
                    self.space, store.checkpoint(self.files.write), self.files.read
                )
            views.keep(PLACE, slot, View.of(self.stores[slot], self.turn, RETENTION))
        self.seen += batch

    @property
    def read_point(self) -> ReadPoint:
        """Of the newest round."""
        done = self.turn.number, self.turn.revision
        return ReadPoint(done, self.turn.watermark, Routing(self.active, past=tuple(self.past), two_phase=True))

    def signed(self) -> dict[int, Signed]:
        """The signatures of all slots."""
        return {slot: view_of(PLACE, slot, self.read_point.round).objects.signed for slot in range(SLOTS)}

    def find(self, wanted: Sequence[Wanted]) -> Iterator[Part]:
        self.asked += sum(len(each.slots) for each in wanted)
        return found_here(PLACE, self.read_point.round, wanted)

    def rows(self, queries: Sequence[Query], known: Mapping[int, Signed] | None) -> list[dict[str, Any]]:
        """The rows of queries, and in ``asked`` how many slots were."""
        self.asked, point, lines = 0, self.read_point, dict[int, bytes]()
        pruning = None if known is None else lambda: SlotPruning(self.space, SLOTS, known, next(iter(known), None))
        made = SnapshotRows(queries, point.routing, point.clock, self.space, RETENTION, pruning=pruning)
        for numbers, some in made.rows(self.find, Held()):
            lines |= zip(numbers, some, strict=True)
        return [json.loads(lines[i]) for i in range(len(queries))]

    def queries(self, n: int) -> list[Query]:
        """Queries of all types, with many and few words."""
        found, rng, space = list[Query](), self.rng, self.space
        wide, clock = (space.east - space.west, space.north - space.south), self.turn.watermark
        for i in range(n):
            x, y = rng.uniform((space.west, space.south), (space.east, space.north)).tolist()
            side = float(rng.choice([0.01, 0.1, 0.5]))
            box = [x, y, min(space.east, x + side * wide[0]), min(space.north, y + side * wide[1])]
            circle = [x, y, side * (3e6 if space.geographic else 4.0)]
            region = {"circle": circle} if rng.integers(2) else {"box": box}
            t = clock - int(rng.choice([0, 0, 700, 3_000]))
            record: dict[str, Any] = {"id": f"q{i}", "t": t, "duration": int(rng.choice([300, 2_000, 9_000]))}
            kinds: list[dict[str, Any]] = [
                {"type": "SRQ", "region": region},
                {"type": "SKQ", "at": [x, y], "k": int(rng.choice([1, 5, 400]))},
                {"type": "STQ", "region": region, "k": 5},
            ]
            some = [f"w{word}" for word in rng.integers(0, WORDS, 3)]
            filters: list[dict[str, Any]] = [
                *({}, {"keywords": some[:1]}, {"keywords": some[:2]}, {"any": [some[:2], some[2:]]}),
                *({"none": some[:1]}, {"keywords": ["never"]}, {"any": [["never"], some[:1]]}),
            ]
            record |= kinds[i % 3] | filters[int(rng.integers(7))]
            query = parse_query(record, space)
            assert isinstance(query, Query)
            found.append(query)
        return found


PLACES = np.random.default_rng(7).uniform(0, 1, (12, 2))


@pytest.fixture(params=[PLANE, WGS84], ids=str)
def stream(request: pytest.FixtureRequest) -> Iterator[Changing]:
    views.forget()
    yield Changing(request.param, 1)
    views.forget()


def test_rows_are_the_same_whatever_is_known_of_the_slots(stream: Changing) -> None:
    saved = 0
    for number in range(1, 14):
        stream.round(1_000 * number, 120)
        queries = stream.queries(60)
        right, without = stream.rows(queries, None), stream.asked
        kept = [each for each in stream.seen if each.t > 1_000 * number - RETENTION]
        found = {row["query"]: row for row in answers(kept, queries, stream.space)[0]}
        assert [_without(row, "complete_after") for row in right] == [found[query.id] for query in queries]
        everything = stream.signed()
        assert stream.rows(queries, everything) == right
        saved += without - stream.asked
        assert stream.asked <= without
        for some in ({}, {0: everything[0]}, {slot: everything[slot] for slot in (1, 3, 4, 7)}):
            assert stream.rows(queries, some) == right
    assert len(stream.past) == 4
    assert saved > 100


def _without(row: dict[str, Any], name: str) -> dict[str, Any]:
    return {each: value for each, value in row.items() if each != name}


def test_rows_lack_objects_if_a_signature_lacks_words(stream: Changing) -> None:
    """So the test above would notice it."""
    for number in range(1, 6):
        stream.round(1_000 * number, 200)
    queries = [each for each in stream.queries(120) if has_words(each)]
    right, everything = stream.rows(queries, None), stream.signed()
    assert stream.rows(queries, everything) == right
    wrong = {slot: [_emptied(each) for each in some] for slot, some in everything.items()}
    assert stream.rows(queries, wrong) != right


def _emptied(segment: SignedSegment) -> SignedSegment:
    signatures = segment.signatures
    if signatures is None:
        return segment
    lines, whole = np.zeros_like(signatures.lines), np.zeros_like(signatures.whole)
    return replace(segment, signatures=replace(signatures, lines=lines, whole=whole))


def test_signatures_of_a_round_before_would_lose_what_has_come_since(stream: Changing) -> None:
    """Which is why they are never used for another round."""
    stream.round(1_000, 100)
    before = stream.signed()
    stream.round(2_000, 100)
    queries = [each for each in stream.queries(300) if has_words(each)]
    assert stream.rows(queries, stream.signed()) == stream.rows(queries, None) != stream.rows(queries, before)


def test_a_query_that_nothing_satisfies_asks_one_slot(stream: Changing) -> None:
    stream.round(1_000, 300)
    for kind in ({"type": "SKQ", "at": [4, 4], "k": 3}, {"type": "STQ", "region": {"box": [0, 0, 8, 8]}, "k": 3}):
        query = parse_query({**kind, "id": "q", "t": 1_000, "duration": "1h", "keywords": ["never"]}, stream.space)
        assert isinstance(query, Query)
        right = stream.rows([query], None)
        assert stream.rows([query], stream.signed()) == right
        assert stream.asked == 1


def test_an_skq_of_a_word_that_one_slot_has_goes_there_at_once(stream: Changing) -> None:
    stream.round(1_000, 300)
    rare = replace(stream.seen[7], terms=("rare",), t=1_500)
    batch = ObjectBatch.of([rare])
    slot = int(stream.active.route_objects(batch)[0])
    stream.turn = replace(stream.turn, number=stream.turn.number + 1, watermark=2_000)
    for each, store in enumerate(stream.stores):
        if each == slot:
            store.append(batch)
        views.keep(PLACE, each, View.of(store, stream.turn, RETENTION))
    centre = [(stream.space.west + stream.space.east) / 2, (stream.space.south + stream.space.north) / 2]
    record = {"type": "SKQ", "at": centre, "k": 3, "id": "q", "t": 2_000, "duration": "1h", "keywords": ["rare"]}
    query = parse_query(record, stream.space)
    assert isinstance(query, Query)
    right = stream.rows([query], None)
    assert [each["id"] for each in right[0]["objects"]] == [rare.id]
    assert stream.asked > 3, "the nearest one does not find three, so all others are asked"
    assert stream.rows([query], stream.signed()) == right
    assert stream.asked == 1


def test_an_skq_of_a_word_that_two_slots_have_asks_both_at_once(stream: Changing) -> None:
    stream.round(1_000, 300)
    stream.turn = replace(stream.turn, number=stream.turn.number + 1, watermark=2_000)
    for slot, store in enumerate(stream.stores):
        if slot in (2, 5):
            here = next(each for each in stream.seen if stream.active.route_objects(ObjectBatch.of([each]))[0] == slot)
            store.append(ObjectBatch.of([replace(here, terms=("rare",), t=1_500)] * 4))
        views.keep(PLACE, slot, View.of(store, stream.turn, RETENTION))
    record = {"type": "SKQ", "at": [4, 4], "k": 3, "id": "q", "t": 2_000, "duration": "1h", "keywords": ["rare"]}
    query, calls = parse_query(record, stream.space), list[list[tuple[int, ...]]]()
    assert isinstance(query, Query)
    right, find = stream.rows([query], None), stream.find

    def counted(wanted: Sequence[Wanted]) -> Iterator[Part]:
        calls.append([each.slots for each in wanted])
        return find(wanted)

    stream.find = counted  # type: ignore[method-assign]
    assert stream.rows([query], stream.signed()) == right
    assert calls == [[(2, 5)]]


def test_of_a_slot_of_which_nothing_is_known_anything_is_assumed() -> None:
    query = parse_query(
        {"type": "SKQ", "at": [4, 4], "k": 3, "id": "q", "t": 9, "duration": 5, "keywords": ["a"]}, PLANE
    )
    assert isinstance(query, Query)
    cases: list[dict[int, Signed]] = [{}, {0: ANYTHING}, {0: (), 1: ANYTHING}]
    for known in cases:
        pruning = SlotPruning(PLANE, 3, known)
        there = [slot for slot in range(3) if known.get(slot) != ()]
        assert pruning.may_have([0, 1, 2], query, 4, None) == there
        assert pruning.nearest(there, query, 4, (4, 4)) == there[0]
        assert pruning.knows == bool(known)
