"""The slots' counts by leaf, and the window over them: in a simulated stream with every kind of query, whose versions
change, against counts of the stream itself."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.balance.loads import TRANSFER
from spatialstream.balance.settings import DKM, SETTLE
from spatialstream.index.version import RoutingVersion, build
from spatialstream.model.kinds import CODE, QueryType
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import Cancellation, Query, QueryBatch
from spatialstream.model.space import WGS84
from spatialstream.model.terms import TermRule
from spatialstream.stages.turns import NEVER
from spatialstream.stages.versions import load_version
from spatialstream.stream.load_window import CONTINUOUS, SNAPSHOT, LoadWindow
from spatialstream.stream.settings import StreamSettings
from spatialstream.stream.worker import RoundRecord
from tests.simulation import IDLE, Simulation
from tests.streams import Stream, random_stream
from tests.unit.stream.loads import SLOTS, loads_of, sample

RANKING = TermRule(ranking=True)


@pytest.fixture(scope="module")
def stream() -> Stream:
    made = random_stream(7, 300, 30, WGS84, types=[*QueryType, "CBQ"])
    return Stream(
        made.space, sorted(made.objects, key=lambda item: item.t), sorted(made.queries, key=lambda query: query.t)
    )


@pytest.fixture(scope="module")
def version(stream: Stream) -> RoutingVersion:
    queries = QueryBatch.of([query for query in stream.queries if isinstance(query, Query)])
    return build(WGS84, ObjectBatch.of(list(stream.objects)), queries, 16, SLOTS)


Reported = list[tuple[RoundRecord, RoutingVersion, dict[int, dict[str, Any]]]]


def reported(stream: Stream, folder: Path, rebalances: float, slots: int = SLOTS, nearest: str = SETTLE) -> Reported:
    """What the slots reported, round by round, with the rounds and their versions."""
    given_: dict[str, Any] = {"slots": slots, "partitions": 2, "idle": IDLE, "epoch_records": 40, "nearest": nearest}
    settings = StreamSettings("s", space=stream.space, rule=RANKING, **given_)
    simulation = Simulation(folder, stream.space, stream.objects, stream.queries, settings, 3)
    simulation.run(rebalances, 0.0)
    return [
        (record, load_version(simulation.storage, record.round.version), summary.loads)
        for record, summary in simulation.rounds
    ]


def test_slots_report_what_came(stream: Stream, tmp_path: Path) -> None:
    loads = [load for *_, by_slot in reported(stream, tmp_path, 0.0) for load in by_slot.values()]

    assert sum(load["objects"] for load in loads) == len(stream.objects)
    kinds = [query.type for query in stream.queries if isinstance(query, Query)]
    came = {kind: sum(load.get("queries", {}).get(kind, 0) for load in loads) for kind in QueryType}
    assert came[QueryType.SKQ] == kinds.count("SKQ"), "first they come to one slot"
    assert came[QueryType.CKQ] == SLOTS * kinds.count("CKQ"), "these are on every slot"
    assert all(kinds.count(kind) <= count <= SLOTS * kinds.count(kind) for kind, count in came.items())
    for load in loads:
        assert sum(load.get("leaf_matches", ())) in (0, load["matches"])
        assert len(json.dumps(load)) < 4_000


def test_if_each_ckq_is_on_one_slot_it_comes_once_and_copies_are_told(stream: Stream, tmp_path: Path) -> None:
    window = LoadWindow(600_000, None)
    came, copies, stored = 0, 0, 0
    for record, version, loads in reported(stream, tmp_path, 0.0, nearest=DKM):
        window.use(version, record.round.watermark)
        window.take(record.round.watermark, loads)
        came += sum(load.get("queries", {}).get("CKQ", 0) for load in loads.values())
        copies += sum(load.get("copies", 0) for load in loads.values())
        stored += sum(load["objects"] for load in loads.values())
    asked = [query for query in stream.queries if isinstance(query, Query) and query.type == "CKQ"]
    assert came == len({(each.id, each.t) for each in asked})
    assert 0 < window.everywhere["CKQ"] <= came
    assert 0 < copies <= (SLOTS - 1) * stored
    assert stored == len(stream.objects)


@pytest.mark.parametrize("rebalances", [0.0, 0.5])
def test_the_times_of_leaves_add_up(rebalances: float, stream: Stream, tmp_path: Path) -> None:
    """To the slots' time for objects and snapshot queries, as far as it is of leaves of the active version."""
    whole = 0
    for record, version, loads in reported(stream, tmp_path, rebalances):
        window = LoadWindow(600_000, None)
        window.use(version, record.round.watermark)
        window.take(record.round.watermark, loads)
        spent = 0.0
        for load in loads.values():
            parts = load["spent"]
            assert sum(parts.values()) <= load["seconds"] + 1e-6
            spent += parts["match"] + parts["results"] + parts["objects"] if "leaves" in load else 0.0
            spent += parts["queries"] if any(kind in load.get("leaf_queries", {}) for kind in SNAPSHOT) else 0.0
            whole += "leaves" in load
        assert window.seconds.sum() == pytest.approx(spent, rel=1e-4)
    assert whole


def test_the_times_of_objects_matches_and_queries_add_up(stream: Stream, tmp_path: Path) -> None:
    window, spent, matches, asks = LoadWindow(10**12, None), 0.0, 0, 0
    for record, version, loads in reported(stream, tmp_path, 0.0):
        window.use(version, record.round.watermark)
        window.take(record.round.watermark, loads)
        for load in loads.values():
            spent += sum(seconds for part, seconds in load["spent"].items() if part == "queries" or "leaves" in load)
            matches += sum(load.get("leaf_matches", ()))
            asks += sum(load.get("queries", {}).get(kind, 0) for kind in SNAPSHOT)
    counts = window.counts()
    assert counts is not None
    times = counts.times
    assert min(times.object, times.match, times.ask) > 0.0
    assert times.object * counts.arrivals.sum() + times.match * matches + times.ask * asks == pytest.approx(spent)


def test_registered_queries_are_counted_by_type(stream: Stream, tmp_path: Path) -> None:
    """The census of the first round, and what has been registered since: no second one comes in so few rounds."""
    window = LoadWindow(600_000, None)
    found = reported(stream, tmp_path, 0.0)
    for record, version, loads in found:
        window.use(version, record.round.watermark)
        window.take(record.round.watermark, loads)

    began = found[0][0].round.watermark
    ends = {each.id: each.t for each in stream.queries if isinstance(each, Cancellation)}
    counts = window.counts()
    assert counts is not None
    for kind in CONTINUOUS:
        asked = [query for query in stream.queries if isinstance(query, Query) and query.type == kind]
        ended = [min(each.t + each.lifetime.duration, ends.get(each.id, math.inf)) for each in asked]
        batch = QueryBatch.of([each for each, end in zip(asked, ended, strict=True) if end > began])
        expected = np.bincount(version.index.route_queries(batch)[1], minlength=window.leaves)
        np.testing.assert_array_equal(window.continuous[kind], expected)
        assert expected.any()
    np.testing.assert_array_equal(counts.continuous, sum(window.continuous.values()))


@pytest.mark.parametrize("slots", [1, SLOTS])
def test_queries_counted_by_leaf_are_those_that_came(slots: int, stream: Stream, tmp_path: Path) -> None:
    """Every pair of a query and a leaf that it concerns is counted once, at the leaf's slot, whatever the slots."""
    window = LoadWindow(10**12, None)
    for record, version, loads in reported(stream, tmp_path, 0.0, slots):
        window.use(version, record.round.watermark)
        window.take(record.round.watermark, loads)
        for slot, load in loads.items():
            for leaves, count in load.get("leaf_queries", {}).values():
                assert (version.mapping[leaves] == slot).all()
                assert min(count) > 0

    counts = window.counts()
    assert counts is not None
    assert counts.queries is not None
    assert len({version.mapping[leaf] for leaf in range(window.leaves)}) == slots
    asked = [each for each in stream.queries if isinstance(each, Query)]
    first = {(each.id, each.t): each for each in reversed(asked)}  # others of one id and time are rejected
    for kind in SNAPSHOT:
        batch = QueryBatch.of([each for each in first.values() if each.type == kind])
        pairs = version.index.route_regions(batch.regions)[1]
        of_leaf = version.index.nearest_leaves(batch.at) if kind == QueryType.SKQ else pairs
        expected = [sum(1 for each in of_leaf.tolist() if each == leaf) for leaf in range(window.leaves)]
        assert counts.queries[CODE[kind]].tolist() == expected
    for kind in CONTINUOUS:
        assert counts.queries[CODE[kind]].tolist() == window.continuous[kind].tolist()
    assert set(counts.queries[CODE[QueryType.CKQ]].tolist()) == {window.everywhere["CKQ"]}


def test_each_version_begins_with_a_census(stream: Stream, tmp_path: Path) -> None:
    window = LoadWindow(600_000, None)
    asked = [query for query in stream.queries if isinstance(query, Query)]
    registered_kinds: set[str] = set()
    for record, version, loads in reported(stream, tmp_path, 0.5):
        changed = window.version is not None and window.version.number != version.number
        window.use(version, record.round.watermark)
        window.take(record.round.watermark, loads)
        for kind in CONTINUOUS:
            batch = QueryBatch.of(
                [query for query in asked if query.type == kind and query.t <= record.round.watermark]
            )
            most = np.bincount(version.index.route_queries(batch)[1], minlength=window.leaves)
            assert (window.continuous[kind] <= most).all(), kind
            if changed and window.continuous[kind].any():
                registered_kinds.add(kind)
    assert registered_kinds == set(CONTINUOUS)


@given(st.data())
def test_counts_by_type_add_up(version: RoutingVersion, data: st.DataObject) -> None:
    """Records of some worker, their censuses and registrations, against plain sums."""
    n = len(version.index.leaves)
    window = LoadWindow(10_000, 1_000)
    window.use(version, 0)
    continuous = {kind: np.zeros(n) for kind in CONTINUOUS}
    came: list[tuple[int, dict[QueryType, np.ndarray]]] = []
    counts = st.lists(st.integers(0, 9), min_size=n, max_size=n).map(np.array)
    for watermark in range(1_000, 1_000 + 2_000 * data.draw(st.integers(1, 12)), 2_000):
        census = data.draw(st.booleans())
        new = {kind: data.draw(counts) for kind in (*SNAPSHOT, *CONTINUOUS)}
        registered = {kind: data.draw(counts) for kind in CONTINUOUS} if census else {}
        loads = {}
        for slot in range(SLOTS):
            mine = version.mapping == slot
            loads[slot] = {"leaf_queries": cells(new, mine)} | (
                {"leaf_continuous": cells(registered, mine)} if census else {}
            )
        window.take(watermark, loads)
        came = [(then, each) for then, each in [*came, (watermark, new)] if then > watermark - 10_000]
        continuous = registered if census else {kind: continuous[kind] + new[kind] for kind in CONTINUOUS}

        found = window.counts()
        assert found is not None
        for kind in CONTINUOUS:
            np.testing.assert_array_equal(window.continuous[kind], continuous[kind])
        np.testing.assert_array_equal(found.continuous, sum(continuous.values()))
        for kind in SNAPSHOT:
            np.testing.assert_array_equal(window.queries(kind), sum(each[kind] for _, each in came))


def cells(counts: dict[QueryType, np.ndarray], mine: np.ndarray) -> dict[str, list[list[int]]]:
    """Cells as a slot reports them: of its own leaves, without zeros."""
    where = {kind: np.flatnonzero(mine & (each > 0)) for kind, each in counts.items()}
    return {kind: [at.tolist(), counts[kind][at].tolist()] for kind, at in where.items() if len(at)}


def test_records_of_an_earlier_release_are_taken(version: RoutingVersion) -> None:
    leaves = np.flatnonzero(version.mapping == 0).tolist()
    old = {
        "objects": 4,
        "seconds": 0.5,
        "leaves": leaves,
        "leaf_objects": [4] * len(leaves),
        "leaf_checked": [9] * len(leaves),
        "registered": [leaves, [1] * len(leaves)],
        "census": [2] * len(version.mapping),
    }
    window = LoadWindow(600_000, None)
    window.use(version, 0)
    window.take(1_000, {0: old})

    counts = window.counts()
    assert counts is not None
    assert counts.arrivals[leaves].tolist() == [4] * len(leaves)
    assert window.checked[leaves].tolist() == [9] * len(leaves)
    assert window.seconds.tolist() == counts.continuous.tolist() == [0] * len(version.mapping)


def test_what_a_leaf_holds_is_not_counted_from_before_there_was_a_clock() -> None:
    """The first round may end before every timestamp: partitions of which nothing has been heard hold it back."""
    version = build(WGS84, *sample(), 4, SLOTS)
    window = LoadWindow(span=600_000, retention=None)
    window.use(version, NEVER)
    window.take(NEVER, {})
    window.take(1_000, loads_of(version))
    window.take(61_000, loads_of(version))
    counts = window.counts()
    assert counts is not None
    np.testing.assert_array_equal(counts.objects, np.full(len(version.mapping), 8.0))
    np.testing.assert_array_equal(counts.arrivals, np.full(len(version.mapping), 8.0))
    assert counts.span == 60_000


def test_a_window_takes_no_more_room_for_more_rounds() -> None:
    """And what it counts is that of the window, and of a 64th more at most."""
    version = build(WGS84, *sample(), 4, SLOTS)
    window = LoadWindow(span=60_000, retention=None)
    window.use(version, 0)
    given, sizes = loads_of(version), []
    each = sum(sum(load["leaf_objects"]) for load in given.values())
    for at in range(1, 3_001):
        window.take(at * 100, given)
        sizes.append(window.nbytes)
        came = window.counts()
        assert came is not None
        within = min(at, 600)
        assert within * each <= came.arrivals.sum() <= (within + 10) * each
    assert max(sizes[600:]) == max(sizes[2_400:]) <= 66 * 5 * 8 * len(version.mapping)


def test_how_long_a_query_takes_to_move_is_measured_at_the_last_move(version: RoutingVersion) -> None:
    window = LoadWindow(600_000, None)
    window.use(version, 0)
    assert window.transfer == TRANSFER

    window.take(1_000, {0: {"moved": {"exported": [100, 0.5]}}, 1: {"moved": {"exported": [300, 1.5]}}})
    assert window.transfer == TRANSFER, "half of a move says nothing of the whole"
    window.take(2_000, {0: {"moved": {"registered": [0, 0.1]}}, 1: {"moved": {"registered": [400, 0.7]}}})
    assert window.transfer == pytest.approx(2.0 / 400 + 0.8 / 400)

    counts = window.counts()
    assert counts is not None
    assert counts.transfer == window.transfer
    window.take(3_000, {0: {"moved": {"exported": [0, 0.2]}}})
    assert window.transfer == counts.transfer, "a move without queries measures nothing"


def test_slots_report_what_moved(stream: Stream, tmp_path: Path) -> None:
    moved: dict[str, int] = {"exported": 0, "registered": 0}
    for _, _, loads in reported(stream, tmp_path, 0.5):
        for load in loads.values():
            for step, (queries, seconds) in load.get("moved", {}).items():
                moved[step] += queries
                assert 0.0 < seconds <= load["seconds"]

    assert moved["exported"] > 0
    assert 0 < moved["registered"] <= moved["exported"], "those of withdrawn versions are not registered"
