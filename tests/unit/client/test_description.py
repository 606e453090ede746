"""What a stream is like inside: what the store has, as people are told it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from spatialstream.balance.loads import LeafCounts, leaf_loads
from spatialstream.client import description
from spatialstream.client.description import StreamDescription
from spatialstream.index.sample import Sample
from spatialstream.index.version import RoutingVersion, build
from spatialstream.model.errors import StateError
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import QueryBatch
from spatialstream.model.space import WGS84
from spatialstream.store.memory import MemoryStore
from spatialstream.store.reports import LoadReport, ask_executors, save_load, save_sample

ACTORS = {0: "host:1", 1: "host:2"}


def some_version() -> tuple[RoutingVersion, Sample]:
    rng = np.random.default_rng(5)
    objects = ObjectBatch.of(
        [SpatialObject(f"o{i}", i, *map(float, rng.uniform(-80, 80, 2)), ("a",)) for i in range(200)]
    )
    queries = QueryBatch.of([])
    return build(WGS84, objects, queries, 16, 3), Sample.of(WGS84, objects, queries, 1_000.0)


@pytest.fixture
def store() -> MemoryStore:
    made = MemoryStore()
    made.create(some_version()[0])
    return made


def look(store: MemoryStore) -> dict[str, object]:
    seen = StreamDescription(store, lambda: ACTORS).describe()
    json.dumps(seen, allow_nan=False)
    return seen


def test_before_anything_is_counted(store: MemoryStore) -> None:
    version, _ = some_version()
    seen = look(store)
    assert (seen["version"], seen["counted"], seen["before"], seen["pending"]) == (0, None, None, None)
    assert seen["space"] == "wgs84"
    assert sum(each["load"] for each in seen["leaves"]) == pytest.approx(version.index.leaves.load.sum())  # type: ignore[attr-defined]
    assert [each["actor"] for each in seen["slots"]] == ["host:1", "host:2", None]  # type: ignore[attr-defined]
    assert "queries" not in seen["slots"][0]  # type: ignore[index]


def test_what_was_counted_is_told_by_slot_and_leaf(store: MemoryStore) -> None:
    version, known = some_version()
    objects = np.arange(len(version.index.leaves), dtype=np.float64)
    counts = LeafCounts(objects, objects, 2 * objects, 1_000.0)
    save_load(store, LoadReport(version.number, counts, objects, 5))
    save_sample(store, known)
    ask_executors(store, "worker", 4)
    seen = look(store)
    loads = leaf_loads(version, counts, known.statistics())
    assert seen["counted"] == 5
    assert seen["executors"] == {"router": None, "worker": 4}
    for slot, told in enumerate(seen["slots"]):  # type: ignore[arg-type,var-annotated]
        mine = version.mapping == slot
        assert told["load"] == pytest.approx(loads[mine].sum())
        assert told["objects"] == told["rate"] == objects[mine].sum()
        assert told["queries"] == 2 * objects[mine].sum()
        assert told["leaves"] == mine.sum()
    told_loads = [each["load"] for each in seen["leaves"]]  # type: ignore[attr-defined]
    assert told_loads == sorted(loads.tolist(), reverse=True)


def test_before_and_after_a_rebalancing(store: MemoryStore) -> None:
    first, known = some_version()
    save_sample(store, known)
    second = replace(first, number=1, mapping=np.zeros_like(first.mapping))
    store.publish(second, 0, "p1", {})
    for slot in range(3):
        store.acknowledge(1, "exported", [slot])
    seen = look(store)
    assert seen["pending"] == {"version": 1, "base": 0, "proposal": "p1", "exported": [0, 1, 2], "loaded": []}
    for slot in range(3):
        store.acknowledge(1, "loaded", [slot])
    store.activate(1, 7)
    seen = look(store)
    assert (seen["version"], seen["since_epoch"], seen["proposal"]) == (1, 7, "p1")
    assert seen["after"] == {"share": [1.0, 0.0, 0.0]}
    before = np.bincount(first.route_objects(known.objects), minlength=3) / 200
    assert seen["before"] == {"version": 0, "leaves": len(first.index.leaves), "share": pytest.approx(before.tolist())}
    assert seen["imbalance"] is None  # a slot has nothing


def test_the_most_expensive_queries_are_described(store: MemoryStore) -> None:
    assert look(store)["most_expensive"] == []
    version = some_version()[0]
    column = np.ones(len(version.index.leaves))
    tested = {"": 9} | {f"q{i}": 100 - i for i in range(20)}
    save_load(store, LoadReport(7, LeafCounts(column, column, column, 1.0), column, 5, tested=tested))
    assert look(store)["most_expensive"] == [{"query": f"q{i}", "candidates": 100 - i} for i in range(10)]


def test_a_large_tree_is_told_by_its_fullest_leaves(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(description, "MOST_LEAVES", 5)
    seen = look(store)
    assert len(seen["leaves"]) == 5  # type: ignore[arg-type]
    assert seen["leaves_in_all"] == len(some_version()[0].index.leaves)


def test_a_sample_is_not_read_again_at_once(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    save_sample(store, some_version()[1])
    read, times = description.read_sample, []
    monkeypatch.setattr(description, "read_sample", lambda store: times.append(1) or read(store))  # type: ignore[func-returns-value]
    looked = StreamDescription(store, dict)
    for _ in range(5):
        looked.describe()
    assert len(times) == 1


def test_no_stream() -> None:
    with pytest.raises(StateError):
        StreamDescription(MemoryStore(), dict).describe()
