"""The worker's load report: its content, and that no round waits for the routing store."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spatialstream.balance.attribution import UnitTimes
from spatialstream.balance.loads import LeafCounts, slot_loads
from spatialstream.connectors.folder import Folder
from spatialstream.connectors.memory import MemoryChannel, MemoryLog, MemorySink
from spatialstream.index.sample import Sample
from spatialstream.index.version import RoutingVersion, build
from spatialstream.model.errors import StateError, Unavailable
from spatialstream.model.kinds import TYPES
from spatialstream.model.space import WGS84
from spatialstream.servers.process import await_condition
from spatialstream.stages.versions import save_version
from spatialstream.store.memory import MemoryStore
from spatialstream.store.reports import LOAD, LoadReport, read_load, save_load, save_sample
from spatialstream.stream.driver import WorkerTurns
from spatialstream.stream.engine import Inline
from spatialstream.stream.job import WorkerJob
from spatialstream.stream.load_report import LoadObserver, known_leaves
from spatialstream.stream.load_window import WindowView
from spatialstream.stream.settings import StreamSettings
from tests.unit.stream.loads import SLOTS, Hourly, loads_of, round_of, sample


@pytest.fixture
def version(tmp_path: Path) -> RoutingVersion:
    made = build(WGS84, *sample(), 16, SLOTS)
    save_version(Folder(tmp_path), made)
    return made


class Seen(LoadObserver):
    """Records what it is called with."""

    def __init__(self) -> None:
        self.views: list[WindowView] = []
        self.slots: list[np.ndarray] = []

    def counted(self, view: WindowView) -> None:
        self.views.append(view)

    def estimated(self, view: WindowView, leaves: np.ndarray, slots: np.ndarray) -> None:
        assert view is self.views[-1]
        np.testing.assert_allclose(slot_loads(leaves, view.version.mapping, SLOTS), slots)
        self.slots.append(slots)


def test_a_report_adds_rounds_up(tmp_path: Path, version: RoutingVersion) -> None:
    store = MemoryStore()
    reporter = Hourly(Folder(tmp_path), store)
    for number in range(2):
        reporter.observe(*round_of(number, version, loads_of(version)))
        assert reporter.reported(60.0)

    load = read_load(store)
    assert load.version == version.number
    assert load.watermark == 1_000
    assert load.counts.arrivals.tolist() == [8] * len(version.mapping)
    assert load.counts.continuous.tolist() == [3] * len(version.mapping)
    assert load.checked.tolist() == [18] * len(version.mapping)
    assert load.seconds is not None
    assert slot_loads(load.seconds, version.mapping, SLOTS) == pytest.approx([0.4] * SLOTS)


def test_a_worker_without_metrics_reports(
    tmp_path: Path, version: RoutingVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, record_and_summary = MemoryStore(), round_of(1, version, loads_of(version))
    channel = MemoryChannel([MemoryLog() for _ in range(SLOTS)], MemoryLog())
    settings = StreamSettings("s", slots=SLOTS)
    world = settings.world(Folder(tmp_path), channel, MemorySink([MemoryLog()], MemoryLog()))
    job = WorkerJob(Inline(world), store, settings)
    job.prepare()
    monkeypatch.setattr(WorkerTurns, "next", lambda self, *more: record_and_summary[0])
    monkeypatch.setattr(WorkerTurns, "do", lambda self, record: record_and_summary[1])
    assert job.turn()
    assert await_condition(lambda: store.load_statistics(LOAD) is not None, 60.0)

    assert read_load(store).counts.arrivals.tolist() == [4] * len(version.mapping)


def test_loads_are_estimated_once_the_router_has_learned(tmp_path: Path, version: RoutingVersion) -> None:
    store, seen = MemoryStore(), Seen()
    reporter = Hourly(Folder(tmp_path), store, seen)
    for number in range(2):
        reporter.observe(*round_of(number, version, loads_of(version)))
        assert reporter.reported(60.0)
        assert len(seen.slots) == number
        save_sample(store, Sample.of(WGS84, *sample(), 1_000))
    assert [view.watermark for view in seen.views] == [0, 1_000]
    assert (seen.slots[0] > 0.0).all()


def test_the_leaves_that_are_known(version: RoutingVersion) -> None:
    store = MemoryStore()
    assert known_leaves(store) == 0
    store.create(version, "incarnation")
    assert known_leaves(store) == len(version.mapping)


class AwayStore(MemoryStore):
    """A routing store that answers only once it is reachable again."""

    def __init__(self) -> None:
        super().__init__()
        self.back = threading.Event()

    def save_statistics(self, name: str, arrays: Any, meta: Any) -> None:
        if not self.back.wait(60.0):
            raise Unavailable("away")
        super().save_statistics(name, arrays, meta)


def test_no_round_waits_for_a_routing_store_that_is_away(tmp_path: Path, version: RoutingVersion) -> None:
    store = AwayStore()
    reporter = Hourly(Folder(tmp_path), store)
    for number in range(3):
        reporter.observe(*round_of(number, version, loads_of(version)))
    assert not reporter.reported(0.05)
    store.back.set()
    assert reporter.reported(60.0)
    assert read_load(store).watermark == 2_000  # what came last; nobody needs what came between


def test_what_slots_hold_is_reported_as_they_count_it(tmp_path: Path, version: RoutingVersion) -> None:
    store, loads = MemoryStore(), loads_of(version)
    reporter = Hourly(Folder(tmp_path), store)
    reporter.observe(*round_of(0, version, {slot: loads[slot] for slot in (0, 1)}))
    assert reporter.reported(60.0)
    assert read_load(store).kept is None, "a slot has not told yet"

    loads[1] |= {"held": 51_000, "continuous": {"CRQ": 10_000, "CKQ": 2, "CTQ": 1}}
    reporter = Hourly(Folder(tmp_path), store)
    reporter.observe(*round_of(1, version, loads))
    assert reporter.reported(60.0)
    kept = read_load(store).kept
    assert kept is not None
    assert kept.tolist() == [[7, 51_000, 7], [6, 10_003, 6]]


def test_there_are_no_load_statistics_before_the_first_round() -> None:
    with pytest.raises(StateError, match="there are no load statistics yet"):
        read_load(MemoryStore())


def test_statistics_without_times_are_read() -> None:
    """As an earlier release has written them."""
    store, column = MemoryStore(), np.ones(2)
    save_load(store, LoadReport(4, LeafCounts(column, column, column, 1_000.0), column, 5))

    assert read_load(store).seconds is None


def test_queries_counted_by_leaf_are_read_as_they_were_written() -> None:
    store, column, queries = MemoryStore(), np.ones(2), np.arange(2.0 * len(TYPES)).reshape(-1, 2)
    save_load(store, LoadReport(4, LeafCounts(column, column, column, 1_000.0, queries), column, 5))

    np.testing.assert_array_equal(read_load(store).counts.queries, queries)


def test_what_slots_measured_is_read_as_it_was_written() -> None:
    store, column, times = MemoryStore(), np.ones(2), UnitTimes(1e-6, 2e-7, 3e-4)
    save_load(store, LoadReport(4, LeafCounts(column, column, column, 1_000.0, times=times), column, 5))
    assert read_load(store).counts.times == times
    arrays, meta = store.load_statistics(LOAD) or ({}, {})
    store.save_statistics(LOAD, arrays, {name: value for name, value in meta.items() if name != "times"})
    assert read_load(store).counts.times == UnitTimes(), "an earlier release wrote it"


def test_counts_of_another_release_are_those_of_its_types() -> None:
    """One that has named no types has six, and one that names them may have more, or others."""
    store, column = MemoryStore(), np.ones(2)
    for named in ({}, {"types": ["CTQ", "CKQ", "CRQ", "STQ", "SKQ", "SRQ", "SOQ"]}):
        types = named.get("types", ["SRQ", "SKQ", "STQ", "CRQ", "CKQ", "CTQ"])
        arrays = dict.fromkeys(("objects", "arrivals", "continuous", "checked"), column)
        arrays["queries"] = np.arange(2.0 * len(types)).reshape(-1, 2)
        store.save_statistics("load", arrays, {"version": 4, "span": 1_000.0, "watermark": 5} | named)

        found = read_load(store).counts.queries

        assert found is not None
        expected = {kind: [2.0 * place, 2.0 * place + 1.0] for place, kind in enumerate(types) if kind != "SOQ"}
        assert dict(zip(TYPES, found.tolist(), strict=True)) == {"SBQ": [0.0, 0.0], "CBQ": [0.0, 0.0]} | expected
