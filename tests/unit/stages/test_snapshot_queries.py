"""Rows of queries that are asked between rounds: they are those that MERGE makes, to the byte, and the oracle's."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from spatialstream.local.snapshot.segments import SegmentStore
from spatialstream.model.errors import Gone, Missing
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import Query, QueryBatch, parse_query
from spatialstream.model.stored_fields import fragment
from spatialstream.oracle import answers
from spatialstream.stages import messages, snapshot_queries, snapshots, views
from spatialstream.stages.external_sort import Spool
from spatialstream.stages.snapshot_queries import Part, SnapshotRows, Wanted, found_here, gathered, joined, scattered
from spatialstream.stages.turns import Round
from spatialstream.stages.views import View
from tests.unit.client.test_snapshot_client import PLACE, PLANE, SLOTS, Stream, objects
from tests.unit.memory_files import MemoryFiles

CLOCK = 3_000


@pytest.fixture(params=["plain", "keeping"])
def stream(request: pytest.FixtureRequest) -> Iterator[Stream]:
    """Without fields, and with a text of each object that its stream keeps."""
    views.forget()
    made = Stream()
    for t in (1_000, 2_000, CLOCK):
        given = objects(150, t - 100)
        if request.param == "keeping":
            said = [fragment(("text",), f'{each.id} says "{i}"', ()) for i, each in enumerate(given)]
            given = [replace(each, stored=stored) for each, stored in zip(given, said, strict=True)]
        made.round(t, given)
    yield made
    views.forget()


def asked(n: int) -> list[Query]:
    rng = np.random.default_rng(n)
    found = []
    for i in range(n):
        x, y = rng.uniform(0, 8, 2).tolist()
        side = float(rng.choice([0.0, 0.3, 2.0, 20.0]))
        box = {"box": [max(0.0, x - side), max(0.0, y - side), min(8.0, x + side), min(8.0, y + side)]}
        region = {"circle": [x, y, side]} if i % 2 else box
        record: dict[str, Any] = {"id": f'q"{i}', "t": CLOCK, "duration": int(rng.choice([1, 900, 1_500, 9_000]))}
        match i % 3:
            case 0:
                record |= {"type": "SRQ", "region": region}
            case 1:
                record |= {"type": "SKQ", "at": [x, y], "k": int(rng.choice([1, 3, 40, 1_000]))}
            case _:
                record |= {"type": "STQ", "region": region, "k": int(rng.choice([1, 2, 50]))}
        record |= [{}, {"keywords": ["w3"]}, {"any": [["w1", "a"], ["w2"]]}, {"none": ["w5"]}, {"keywords": ["no"]}][
            i % 5
        ]
        query = parse_query(record, PLANE)
        assert isinstance(query, Query)
        found.append(query)
    return found


def by_merge(stream: Stream, queries: list[Query], retention: int | None = None) -> list[bytes]:
    """The rows of the stream itself: all slots answer all queries at once, and MERGE makes the rows."""
    batch, by_kind = QueryBatch.of(queries), dict[str, list[Any]]()
    looked_at = snapshots.reach(batch, retention, CLOCK)
    for slot, store in enumerate(stream.stores):
        for _, kind, block in snapshots.answer(slot, store, batch, np.arange(len(queries)), looked_at, two_phase=False):
            by_kind.setdefault(kind, []).append(block)
    spools = {kind: Spool("number") for kind in (messages.SNAPSHOT_LISTS, messages.SNAPSHOT_TERMS)}
    for kind, spool in spools.items():
        for block in by_kind.get(kind, ()):
            spool.add(block)
    lines = dict[int, bytes]()
    for some in snapshots.answers(by_kind, spools, PLANE, None, None):
        lines |= zip(some.number.tolist(), map(str.encode, some.lines.to_pylist()), strict=True)
    return [lines[i] for i in range(len(queries))]


class Held:
    """Keeps count of what is held.

    Attributes:
        now: bytes.
        most: at any time.
        sizes: bytes of which rows were made at once.
    """

    def __init__(self) -> None:
        self.now = self.most = 0
        self.sizes: list[int] = []

    def found(self, size: int, *, listed: bool) -> None:
        self.now += size
        self.most = max(self.most, self.now)

    def making(self, size: int) -> AbstractContextManager[object]:
        self.sizes.append(size)
        return nullcontext()

    def sent(self, size: int) -> None:
        self.now -= size


class Slots:
    """The slots of a stream, some of which are in another process.

    Args:
        stream: all of whose views are in this process.
        elsewhere: slots that only the other one has.

    Attributes:
        asked: queries of each search, by process.
    """

    def __init__(self, stream: Stream, elsewhere: set[int] = frozenset()) -> None:  # type: ignore[assignment]
        self.stream, self.elsewhere, self.other = stream, elsewhere, f"{PLACE}-of-the-other"
        self.asked: list[tuple[list[Wanted], list[Wanted]]] = []
        assert stream.turn is not None
        for slot in elsewhere:
            views.forget(PLACE, slot)
            views.keep(self.other, slot, View.of(stream.stores[slot], stream.turn, None))

    def find(self, wanted: Sequence[Wanted]) -> Iterator[Part]:
        mine, others = list[Wanted](), list[Wanted]()
        for each in wanted:
            for some, slots in (
                (mine, tuple(slot for slot in each.slots if slot not in self.elsewhere)),
                (others, tuple(slot for slot in each.slots if slot in self.elsewhere)),
            ):
                if slots:
                    some.append(replace(each, slots=slots))
        self.asked.append((mine, others))
        assert self.stream.turn is not None
        done = self.stream.turn.number, self.stream.turn.revision
        sent = json.loads(json.dumps([each.to_record() for each in others]))
        got = [Wanted.of(record) for record in sent]
        assert got == others
        blocks = scattered(found_here(self.other, done, got), {each.number: each.query.type for each in got})
        return joined([(mine, found_here(PLACE, done, mine)), (others, gathered(blocks))])


def rows(
    stream: Stream,
    queries: Sequence[Query],
    slots: Slots | None = None,
    held: Held | None = None,
    **more: Any,
) -> list[bytes]:
    read_point = stream.newest(1.0)
    assert read_point is not None
    made = SnapshotRows(queries, read_point.routing, read_point.clock, PLANE, **more)
    held, lines = held or Held(), dict[int, bytes]()
    for numbers, some in made.rows((slots or Slots(stream)).find, held):
        lines |= zip(numbers, some, strict=True)
    assert held.now == 0
    return [lines[i] for i in range(len(queries))]


@pytest.mark.parametrize("together", [1, 7, 120])
def test_rows_are_those_of_merge_and_the_oracles(stream: Stream, together: int) -> None:
    queries = asked(120)
    for first in range(0, len(queries), together):
        some = queries[first : first + together]
        assert rows(stream, some) == by_merge(stream, some)
    right = {row["query"]: row for row in answers(stream.seen, queries, PLANE)[0]}
    assert [json.loads(line) for line in rows(stream, queries)] == [right[query.id] for query in queries]


@pytest.mark.parametrize("together", [1, 5, 120])
@pytest.mark.parametrize("elsewhere", [{0}, {1}, {0, 2}, {0, 1, 2}])
@pytest.mark.parametrize("block", [500, 1 << 22])
def test_rows_are_the_same_with_slots_in_two_processes_in_blocks_of_any_size(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, elsewhere: set[int], together: int, block: int
) -> None:
    monkeypatch.setattr(snapshot_queries, "BLOCK_BYTES", block)
    queries = asked(120)
    right, slots = by_merge(stream, queries), Slots(stream, elsewhere)
    for first in range(0, len(queries), together):
        assert rows(stream, queries[first : first + together], slots) == right[first : first + together]
    assert any(others for _, others in slots.asked)


def test_what_is_held_is_some_blocks_or_what_one_query_finds(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    queries, held = asked(360), Held()
    right, found = rows(stream, queries, held=held), held.most
    largest = max(_found(stream, query) for query in queries)
    monkeypatch.setattr(snapshot_queries, "BLOCK_BYTES", 10_000)
    held = Held()
    assert rows(stream, queries, held=held) == right
    assert held.most < 2 * 10_000 + 2 * largest < found / 2
    assert sum(held.sizes) == found
    assert len(held.sizes) > 5


def _found(stream: Stream, query: Query) -> int:
    held = Held()
    rows(stream, [query], held=held)
    return held.most


def test_a_view_that_has_gone_is_no_empty_answer(stream: Stream) -> None:
    views.forget(PLACE, 1)
    wide = [query for query in asked(120) if query.k == 1_000]  # more than the first slot has
    with pytest.raises(Gone, match="slot 1 has no view of round 2 here: try again"):
        rows(stream, wide)
    assert stream.turn is not None
    views.keep(PLACE, 1, View.of(stream.stores[1], stream.turn, None))
    assert len(rows(stream, wide)) == len(wide)
    read_point = stream.newest(1.0)
    assert read_point is not None
    wanted = [Wanted(0, wide[0], 0, (0, 1), False)]
    with pytest.raises(Gone, match="slot 0 has no view of round 3 here"):
        next(found_here(PLACE, (3, 0), wanted))


def test_a_slot_that_says_nothing_is_no_empty_answer(stream: Stream) -> None:
    queries, slots = asked(6), Slots(stream)

    def find(wanted: Sequence[Wanted]) -> Iterator[Part]:
        parts = [part for part in slots.find(wanted) if part[0] != 3]
        return joined([(wanted, iter(parts))])

    slots_of = Slots(stream)
    slots_of.find = find  # type: ignore[method-assign]
    with pytest.raises(Gone, match="a slot has not answered"):
        rows(stream, queries, slots_of)


def test_a_view_that_is_read_stays_to_the_end(stream: Stream) -> None:
    wanted = [Wanted(i, query, 0, tuple(range(SLOTS)), False) for i, query in enumerate(asked(6))]
    right = [[len(part["number"]) for part in parts] for _, parts in found_here(PLACE, (2, 0), wanted)]
    parts = found_here(PLACE, (2, 0), wanted)
    first = next(parts)
    views.forget()
    assert [[len(part["number"]) for part in some] for _, some in (first, *parts)] == right


def test_a_segment_that_was_never_read_and_is_deleted_is_gone() -> None:
    views.forget()
    made, files = Stream(), MemoryFiles()
    made.round(CLOCK, objects(5, 900))
    manifest = made.stores[0].checkpoint(files.write)

    def read(name: str) -> Any:
        raise Missing(f"{name} is not there")

    assert made.turn is not None
    views.keep(PLACE, 0, View.of(SegmentStore.restore(PLANE, manifest, read), made.turn, None))
    everything = {"id": "q", "type": "SRQ", "t": CLOCK, "region": {"box": [0, 0, 8, 8]}, "duration": "1h"}
    with pytest.raises(Gone, match=r"segment.* is not there: try again"):
        rows(made, [_parsed(everything)])
    views.forget()


def _parsed(record: Mapping[str, Any]) -> Query:
    query = parse_query(dict(record), PLANE)
    assert isinstance(query, Query)
    return query


def test_an_only_slot_gives_no_terms_that_cannot_be_among_the_first() -> None:
    views.forget()
    store, terms = SegmentStore(PLANE), [("a", "b", "x"), ("a", "b"), ("a", "y"), ("c", "z"), ("c",)]
    store.append(ObjectBatch.of([SpatialObject(f"o{i}", 1, 1.0, 1.0, each) for i, each in enumerate(terms)]))
    views.keep(PLACE, 0, View.of(store, Round(0, (0,), (0,), 99, 0), None))
    query = _parsed({"id": "q", "type": "STQ", "t": 99, "region": {"box": [0, 0, 8, 8]}, "k": 2, "duration": 99})
    found = []
    for alone in (False, True):
        ((_, (part,)),) = found_here(PLACE, (0, 0), [Wanted(0, query, 0, (0,), alone)])
        found.append(set(part["term"].to_pylist()))
    assert found == [set("abcxyz"), {"a", "b", "c"}], "b and c are as many"
    views.forget()


@pytest.mark.parametrize("retention", [1_200, 100])
def test_retention_says_what_is_not_complete(stream: Stream, retention: int) -> None:
    queries = asked(60)
    lines = rows(stream, queries, retention=retention)
    assert lines == by_merge(stream, queries, retention)
    assert any(b"complete_after" in line for line in lines)


@pytest.mark.parametrize("longest", [90, 300, 3_000, 30_000])
def test_a_row_is_complete_or_says_how_long_it_would_be(stream: Stream, longest: int) -> None:
    queries = asked(120)
    right, cut = by_merge(stream, queries), rows(stream, queries, longest=longest)
    for whole, line in zip(right, cut, strict=True):
        said = f'"error": "the row would have {len(whole)} bytes, and the most is {longest}; ask for less of it"}}'
        assert line.endswith(said.encode()) if len(whole) > longest else line == whole
    assert any(b"error" in line for line in cut) != all(len(whole) <= longest for whole in right)


@pytest.mark.parametrize("elsewhere", [set(), {1}, {0, 2}])
def test_the_nearest_of_other_slots_are_told_up_to_the_distance_that_is_known(elsewhere: set[int]) -> None:
    """On a lattice many are equally far, in slots that are asked first and in others, and times and ids decide."""
    views.forget()
    made, half = Stream(), np.arange(17) / 2
    times = np.random.default_rng(1).integers(100, CLOCK, (17, 17)).tolist()
    lattice = [
        SpatialObject(f"{i}-{j}", times[i][j], float(half[i]), float(half[j]), ("a",))
        for i in range(17)
        for j in range(17)
    ]
    made.round(CLOCK, sorted(lattice, key=lambda each: each.t))
    queries = []
    for number, (i, j) in enumerate(np.ndindex(17, 17)):
        at = [float(half[i]), float(half[j])]
        record = {"id": f"q{number}", "type": "SKQ", "t": CLOCK, "duration": "1h", "at": at, "k": 1 + number % 13}
        queries.append(_parsed(record))
    right = by_merge(made, queries)
    by_id = {row["query"]: row for row in answers(made.seen, queries, PLANE)[0]}
    assert [json.loads(line) for line in right] == [by_id[query.id] for query in queries]
    slots = Slots(made, elsewhere)
    assert rows(made, queries, slots) == right
    assert len(slots.asked) == 2, "two phases"
    assert all(each.within < np.inf for each in slots.asked[1][0])
    views.forget()
