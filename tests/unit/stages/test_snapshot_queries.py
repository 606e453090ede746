"""Queries that one process answers without blocks between: rows are those of the way by blocks, and the oracle's."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from spatialstream.model.objects import SpatialObject
from spatialstream.model.queries import Query, QueryBatch, parse_query
from spatialstream.model.terms import DEFAULT_RULE
from spatialstream.oracle import answers
from spatialstream.stages import snapshot_queries, views
from spatialstream.stages.snapshot_queries import Found, Wanted, blocks_of, found_in, found_of, lines_here, lines_of
from spatialstream.stages.views import View
from tests.unit.client.test_snapshot_client import PLACE, PLANE, SLOTS, Stream, objects

CLOCK, MOST = 3_000, 1 << 30


@pytest.fixture
def stream() -> Iterator[Stream]:
    views.forget()
    made = Stream()
    for t in (1_000, 2_000, CLOCK):
        made.round(t, objects(150, t - 100))
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


def by_blocks(stream: Stream, queries: list[Query]) -> list[str]:
    read_point = stream.newest(1.0)
    assert read_point is not None
    lines = lines_of(QueryBatch.of(queries), read_point, PLANE, stream.call, lambda: 1.0)
    return [line.decode() for line in lines]


class Elsewhere:
    """A second process, which has some slots of the stream, and what goes to and fro on the way that it would.

    Args:
        stream: all of whose views are in this process.
        slots: that only the second one has.
        silent: slots that do not answer.
    """

    def __init__(self, stream: Stream, slots: set[int], silent: frozenset[int] = frozenset()) -> None:
        self.place, self.silent, self.asked = f"{PLACE}-of-the-other", silent, 0
        assert stream.turn is not None
        self.round = stream.turn.number, stream.turn.revision
        for slot in slots:
            views.forget(PLACE, slot)
            views.keep(self.place, slot, View.of(stream.stores[slot], stream.turn, None))

    def begin(self, wanted: Sequence[Wanted]) -> Callable[[], Found]:
        self.asked += 1
        sent = json.loads(json.dumps([each.to_record() for each in wanted]))
        got = [Wanted.of(record, PLANE, DEFAULT_RULE) for record in sent]
        assert got == list(wanted)
        found = found_in(self.place, self.round, [each for each in got if self.silent.isdisjoint(each.slots)], MOST)
        blocks = blocks_of(got, found)
        return lambda: found_of(wanted, blocks, list(found))


def here(stream: Stream, queries: list[Query], most: int = MOST, retention: int | None = None) -> dict[int, str]:
    read_point = stream.newest(1.0)
    assert read_point is not None
    return lines_here(queries, read_point, PLANE, retention, PLACE, most)


@pytest.mark.parametrize("together", [1, 7, 120])
def test_rows_are_those_by_blocks_and_the_oracles(stream: Stream, together: int) -> None:
    queries = asked(120)
    for first in range(0, len(queries), together):
        some = queries[first : first + together]
        lines = here(stream, some)
        assert sorted(lines) == list(range(len(some)))
        assert [lines[i] for i in range(len(some))] == by_blocks(stream, some)
    rows, _ = answers(stream.seen, queries, PLANE)
    lines = here(stream, queries)
    right = {row["query"]: row for row in rows}
    assert [json.loads(lines[i]) for i in range(len(queries))] == [right[query.id] for query in queries]


def test_what_concerns_a_slot_that_is_elsewhere_is_left_out(stream: Stream) -> None:
    queries = asked(120)
    right = by_blocks(stream, queries)
    left_out = set[str]()
    for slot in range(SLOTS):
        views.forget(PLACE, slot)
        lines = here(stream, queries)
        assert all(lines[i] == right[i] for i in lines)
        left_out |= {queries[i].type.value for i in range(len(queries)) if i not in lines}
        assert stream.turn is not None
        views.keep(PLACE, slot, View.of(stream.stores[slot], stream.turn, None))
    assert left_out == {"SRQ", "SKQ", "STQ"}
    views.forget()
    assert here(stream, queries) == {}


@pytest.mark.parametrize("together", [1, 5, 120])
@pytest.mark.parametrize("elsewhere", [{0}, {1}, {0, 2}, {1, 2}])
def test_rows_are_the_same_with_slots_in_two_processes(stream: Stream, elsewhere: set[int], together: int) -> None:
    queries = asked(120)
    right, read_point = by_blocks(stream, queries), stream.newest(1.0)
    assert read_point is not None
    other = Elsewhere(stream, elsewhere)
    answered = 0
    for first in range(0, len(queries), together):
        some = queries[first : first + together]
        lines = lines_here(some, read_point, PLANE, None, PLACE, MOST, other.begin)
        assert all(line == right[first + i] for i, line in lines.items())
        answered += len(lines)
    assert answered == len(queries)
    assert other.asked


@pytest.mark.parametrize("elsewhere", [{1}, {0, 2}])
def test_what_a_slot_elsewhere_does_not_answer_is_left_out(stream: Stream, elsewhere: set[int]) -> None:
    queries = asked(120)
    random.Random(5).shuffle(queries)
    right, alone, read_point = by_blocks(stream, queries), {}, stream.newest(1.0)
    assert read_point is not None
    for slot in elsewhere:
        views.forget(PLACE, slot)
    alone = lines_here(queries, read_point, PLANE, None, PLACE, MOST)
    other = Elsewhere(stream, elsewhere, silent=frozenset(elsewhere))
    lines = lines_here(queries, read_point, PLANE, None, PLACE, MOST, other.begin)
    assert lines == alone
    assert 0 < len(lines) < len(queries)
    if len(elsewhere) > 1:
        lines = lines_here(
            queries, read_point, PLANE, None, PLACE, MOST, Elsewhere(stream, elsewhere, frozenset({2})).begin
        )
        assert len(alone) < len(lines) < len(queries)
        assert all(line == right[i] for i, line in lines.items())


def test_a_radius_that_reaches_a_slot_elsewhere_is_left_out(stream: Stream) -> None:
    queries = [query for query in asked(120) if query.k == 1_000]  # more than the first slot has
    assert set(here(stream, queries)) == set(range(len(queries)))
    views.forget(PLACE, 1)
    assert here(stream, queries) == {}


def test_of_another_round_there_is_nothing(stream: Stream) -> None:
    queries, read_point = asked(6), stream.newest(1.0)
    assert read_point is not None
    later = snapshot_queries.ReadPoint((read_point.round[0] + 1, 0), read_point.clock, read_point.routing)
    assert lines_here(queries, later, PLANE, None, PLACE, MOST) == {}


def test_what_is_too_much_together_is_left_out(stream: Stream) -> None:
    queries = asked(60)
    sizes = [len(here(stream, queries, most)) for most in (0, 2_000, 20_000, MOST)]
    assert sizes == sorted(sizes)
    assert sizes[1] < sizes[2] < sizes[3] == len(queries)
    right = by_blocks(stream, queries)
    assert all(line == right[i] for i, line in here(stream, queries, 20_000).items())


def test_no_more_is_looked_for_than_may_be_told(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = list[str]()
    search = snapshot_queries.search

    def counted(objects: Any, query: Query, *given: Any, **more: Any) -> Any:
        looked.append(query.id)
        return search(objects, query, *given, **more)

    monkeypatch.setattr(snapshot_queries, "search", counted)
    record = {"type": "SRQ", "region": {"box": [0, 0, 8, 8]}, "t": CLOCK, "duration": "1h"}
    wide = [parse_query(record | {"id": f"q{i}"}, PLANE) for i in range(50)]
    assert here(stream, [each for each in wide if isinstance(each, Query)], 1_000) == {}
    assert set(looked) == {"q0"}


def test_retention_says_what_is_not_complete(stream: Stream) -> None:
    assert stream.turn is not None
    for slot, store in enumerate(stream.stores):
        views.keep(PLACE, slot, View.of(store, stream.turn, 1_200))
    queries = asked(60)
    lines = here(stream, queries, retention=1_200)
    assert [lines[i] for i in range(len(queries))] == by_blocks(stream, queries)
    assert any("complete_after" in line for line in lines.values())


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
        query = parse_query(record, PLANE)
        assert isinstance(query, Query)
        queries.append(query)
    right, read_point = by_blocks(made, queries), made.newest(1.0)
    rows, _ = answers(made.seen, queries, PLANE)
    by_id = {row["query"]: row for row in rows}
    assert [json.loads(line) for line in right] == [by_id[query.id] for query in queries]
    assert read_point is not None
    other = Elsewhere(made, elsewhere)
    lines = lines_here(queries, read_point, PLANE, None, PLACE, MOST, other.begin)
    assert [lines[i] for i in range(len(queries))] == right
    assert not elsewhere or other.asked
    views.forget()
