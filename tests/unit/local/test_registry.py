"""Ids in use: the registry compared with a dictionary."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.local.registry import Admission, QueryRegistry
from spatialstream.model.queries import (
    Cancellation,
    Everything,
    Lifetime,
    Predicate,
    Query,
    QueryBatch,
    TopTerms,
    parse_query,
)
from spatialstream.model.space import WGS84
from spatialstream.model.times import FOREVER
from tests.unit.memory_files import MemoryFiles

Row = Query | Cancellation


def batch_admitted(registry: QueryRegistry, rows: Sequence[Row], first: int) -> Admission:
    """A batch is admitted; its numbers count from ``first``."""
    return registry.admit(QueryBatch.of(rows), np.arange(first, first + len(rows)))


@st.composite
def rows(draw: st.DrawFn) -> Row:
    name, t = draw(st.sampled_from("abcd")), draw(st.integers(0, 30))
    kind = draw(st.sampled_from(["cancel", "snapshot", "range", "terms"]))
    if kind == "cancel":
        return Cancellation(name, t)
    duration = draw(st.integers(0, 8) | st.just(FOREVER)) if kind != "snapshot" else draw(st.integers(0, 8))
    if kind == "terms":
        return Query(name, t, Predicate(), TopTerms(1), Lifetime(duration, True, 5, 1))
    return Query(name, t, Predicate(), Everything(), Lifetime(duration, kind == "range"))


class Twin:
    """The rules, one row at a time."""

    def __init__(self) -> None:
        self.until: dict[str, tuple[int, int, bool]] = {}
        self.holder: dict[str, Query] = {}

    def admit(self, row: Row, number: int) -> tuple[int, bool]:
        """(the row's number, whether it is accepted or a repetition)."""
        holder = self.until.get(row.id)
        active = holder is not None and row.t <= holder[1]
        if isinstance(row, Cancellation):
            if holder is None or not active or not holder[2]:
                return -1, False
            self.until[row.id] = (holder[0], row.t - 1, True)
            return holder[0], True
        if active:
            return -1, self.holder[row.id] == row
        continuous, end = row.lifetime.continuous, row.t + row.lifetime.duration
        last = row.t if not continuous else end if isinstance(row.selection, TopTerms) else end - 1
        self.until[row.id], self.holder[row.id] = (number, last, continuous), row
        return number, True


@given(st.lists(rows(), max_size=40), st.lists(st.integers(1, 40), max_size=8), st.booleans())
def test_the_registry_is_its_twin(stream: list[Row], cuts: list[int], restored: bool) -> None:
    stream.sort(key=lambda row: row.t)
    registry, twin, files = QueryRegistry(), Twin(), MemoryFiles()
    borders = sorted({0, len(stream), *(min(cut, len(stream)) for cut in cuts)})
    for low, high in itertools.pairwise(borders):
        found = batch_admitted(registry, stream[low:high], low)
        expected = [twin.admit(row, low + i) for i, row in enumerate(stream[low:high])]
        assert found.number.tolist() == [number for number, _ in expected]
        assert sorted(found.reasons) == [i for i, (_, accepted) in enumerate(expected) if not accepted]
        assert found.repeated == sum(number < 0 and accepted for number, accepted in expected)
        if restored:
            registry = QueryRegistry.restore(registry.checkpoint(files.write), files.read)


@given(st.lists(rows(), max_size=40), st.lists(st.integers(1, 40), max_size=8))
def test_late_rows_are_judged_by_what_came_before_them(stream: list[Row], cuts: list[int]) -> None:
    registry, twin, files, n = QueryRegistry(), Twin(), MemoryFiles(), 0
    borders = sorted({0, len(stream), *(min(cut, len(stream)) for cut in cuts)})
    for low, high in itertools.pairwise(borders):
        # nothing is forgotten, because a batch may hold a row as late as this
        batch = [Query(f"first-{low}", 0, Predicate(), Everything(), Lifetime(0)), *stream[low:high]]
        found = batch_admitted(registry, batch, n)
        assert found.number.tolist() == [twin.admit(row, n + i)[0] for i, row in enumerate(batch)]
        registry = QueryRegistry.restore(registry.checkpoint(files.write), files.read)
        n += len(batch)
    assert registry.nbytes >= 40 * len(twin.until)


def test_an_id_in_use_many_times_is_compared_once() -> None:
    registry = QueryRegistry()
    for first in (0, 20_000):
        again = [Query("dashboard", first + i, Predicate(), Everything(), Lifetime(0)) for i in range(20_000)]
        found = batch_admitted(registry, again, first)
        assert found.number.tolist() == list(range(first, first + 20_000))


def test_ids_that_are_out_of_use_are_forgotten() -> None:
    registry, sizes = QueryRegistry(), []
    for n in range(100):
        t = 20_000 * n
        queries = [Query(f"{t}-{i}", t, Predicate(), Everything(), Lifetime(30_000, True)) for i in range(50)]
        assert not batch_admitted(registry, queries, 50 * n).reasons
        sizes.append(registry.nbytes)
    assert max(sizes[50:]) <= 2 * max(sizes[:50])


def test_reasons_name_the_id_and_what_would_be_right() -> None:
    continuous = Query("q1", 5, Predicate(), Everything(), Lifetime(100, True))
    endless = Query("q3", 5, Predicate(), Everything(), Lifetime(FOREVER, True))
    others = [replace(each, t=6) for each in (continuous, endless)]
    found = batch_admitted(QueryRegistry(), [continuous, endless, *others, Cancellation("q2", 6)], 0)
    assert found.reasons == {
        2: "id: 'q1' is in use until 104; give another id, or cancel that query first",
        3: "id: 'q3' is in use until it is cancelled; give another id, or cancel that query first",
        4: "id: no continuous query 'q2' is active",
    }


def admitted(registry: QueryRegistry, base: int, *records: dict[str, object]) -> tuple[list[int], int, list[int]]:
    """(numbers, repetitions, rows with a reason) of records, in one batch."""
    found = batch_admitted(registry, [parse_query(record, WGS84) for record in records], base)
    return found.number.tolist(), found.repeated, sorted(found.reasons)


CRQ = {"id": "q", "type": "CRQ", "t": 5_000, "region": {"box": [0, 0, 1, 1]}, "keywords": ["fire", "flood"]}


@pytest.mark.parametrize(
    "again",
    [
        {},
        {"keywords": ["flood fire"]},
        {"keywords": ["Flood", "FIRE", "flood"]},
        {"t": "1970-01-01T00:00:05Z"},
        {"region": {"box": [-0.0, 0.0, 1.0, 1]}},
        {"duration": None, "title": "x"},
        {"by": "somebody else"},
    ],
)
def test_a_query_that_comes_again_is_no_error_however_it_is_spelled(again: dict[str, object]) -> None:
    registry = QueryRegistry()
    assert admitted(registry, 0, CRQ, CRQ | again) == ([0, -1], 1, [])
    assert admitted(registry, 2, CRQ | again, CRQ) == ([-1, -1], 2, [])


@pytest.mark.parametrize(
    "other",
    [
        {"keywords": ["fire"]},
        {"keywords": []},
        {"t": 5_001},
        {"duration": "1h"},
        {"region": {"box": [0, 0, 1, 1.5]}},
        {"region": {"circle": [0, 0, 1]}},
        {"type": "SRQ", "duration": 1},
        {"type": "CTQ", "k": 1, "window": 1, "step": 1},
    ],
)
def test_another_query_of_its_id_is_one(other: dict[str, object]) -> None:
    assert admitted(QueryRegistry(), 0, CRQ, CRQ | other) == ([0, -1], 0, [1])


def test_after_a_cancellation_a_repetition_is_one_still_and_a_later_query_is_new() -> None:
    registry = QueryRegistry()
    cancelled, later = {"id": "q", "type": "CANCEL", "t": 6_000}, CRQ | {"t": 6_000}
    assert admitted(registry, 0, CRQ, cancelled) == ([0, 0], 0, [])
    assert admitted(registry, 2, CRQ) == ([-1], 1, [])
    assert admitted(registry, 3, later, later, CRQ) == ([3, -1, -1], 1, [2])


@pytest.mark.parametrize("again", [6_001, 300_000])
def test_a_cancelled_query_that_is_sent_again_late_is_not_registered_again(again: int) -> None:
    registry, files = QueryRegistry(), MemoryFiles()
    assert admitted(registry, 0, CRQ, {"id": "q", "type": "CANCEL", "t": 6_000}) == ([0, 0], 0, [])
    for number, t in enumerate(range(6_001, again + 6_000, max(1, again // 40)), 1):
        batch_admitted(registry, [Query(f"other-{t}", t, Predicate(), Everything(), Lifetime(1, True))], 10 * number)
        registry = QueryRegistry.restore(registry.checkpoint(files.write), files.read)
    assert admitted(registry, 10**6, CRQ) == ([-1], 1, [])


@pytest.mark.parametrize("after", [500, 300_000])
def test_a_snapshot_query_that_is_sent_again_later_is_not_answered_twice(after: int) -> None:
    registry, files = QueryRegistry(), MemoryFiles()
    snapshot = {"id": "s", "type": "SRQ", "t": 5_000, "region": {"box": [0, 0, 1, 1]}, "duration": "1h"}
    assert admitted(registry, 0, snapshot) == ([0], 0, [])
    for number, t in enumerate(range(5_001, 5_001 + after, max(1, after // 40)), 1):
        batch_admitted(registry, [Query(f"other-{t}", t, Predicate(), Everything(), Lifetime(0))], 10 * number)
        registry = QueryRegistry.restore(registry.checkpoint(files.write), files.read)
    assert admitted(registry, 10**6, snapshot) == ([-1], 1, [])


def test_snapshot_queries_are_forgotten_too() -> None:
    registry, sizes = QueryRegistry(), []
    for n in range(100):
        queries = [Query(f"{n}-{i}", 20_000 * n, Predicate(), Everything(), Lifetime(0)) for i in range(50)]
        assert not batch_admitted(registry, queries, 50 * n).reasons
        sizes.append(registry.nbytes)
    assert max(sizes[50:]) <= 2 * max(sizes[:50])


def test_queries_that_live_until_they_are_cancelled_are_known_until_then() -> None:
    registry, files = QueryRegistry(), MemoryFiles()
    admitted(registry, 0, CRQ)
    for t in range(6_000, 6_100):
        others = [Query(f"{t}-{i}", t, Predicate(), Everything(), Lifetime(1, True)) for i in range(50)]
        batch_admitted(registry, others, 100 * t)
        registry = QueryRegistry.restore(registry.checkpoint(files.write), files.read)
    # the batch is late as a whole, and what ended long ago may have been forgotten
    assert admitted(registry, 10**7, CRQ) == ([-1], 1, [])
    assert admitted(registry, 10**7 + 1, {"id": "q", "type": "CANCEL", "t": 7_000}) == ([0], 0, [])


def test_many_ids_and_cancellations_stay_small_in_the_manifest() -> None:
    registry, files = QueryRegistry(), MemoryFiles()
    n = 20_000
    queries = [Query(f"q{i}", 0, Predicate(), Everything(), Lifetime(1_000_000, True)) for i in range(n)]
    batch_admitted(registry, queries, 0)
    for start in range(0, n, 1_000):
        ended = [Cancellation(f"q{i}", 1 + start) for i in range(start, start + 1_000)]
        assert not batch_admitted(registry, ended, n + start).reasons
    manifest = registry.checkpoint(files.write)
    assert len(manifest["shortened"]) <= 6_000
    late = [Query(f"q{i}", n, Predicate(), Everything(), Lifetime(9, True)) for i in range(0, n, 999)]
    assert not batch_admitted(QueryRegistry.restore(manifest, files.read), late, 10 * n).reasons
