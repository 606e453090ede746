"""CKQs leave the slots that they do not need, and nothing else changes."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from spatialstream.balance.settings import EVERYWHERE, SETTLE
from spatialstream.connectors.memory_storage import MemoryStorage
from spatialstream.local.best.merger import BestMerger
from spatialstream.local.nearest.ckq import ContinuousNearestIndex
from spatialstream.local.nearest.skyband import Arrivals, NearestMerger
from spatialstream.model.errors import SettingError
from spatialstream.model.geometry import CIRCLE
from spatialstream.model.kinds import QueryType
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import Lifetime, Nearest, Predicate, Query, QueryBatch
from spatialstream.model.space import WGS84, Space
from spatialstream.oracle import answers, check
from spatialstream.stages.settling import RADII, load_radii, radii_name, save_radii
from spatialstream.stages.versions import load_version
from spatialstream.stages.work import SlotIndexes, slot_state
from spatialstream.stream.settings import StreamSettings
from tests.lengths import examples
from tests.simulation import IDLE, Simulation
from tests.streams import PLANE, Stream, random_stream
from tests.unit.stream.test_stream import differences, in_order

SLOTS = 8


class Settled(Simulation):
    """A simulation that looks at what its slots hold after the last round."""

    def slot(self, slot: int) -> SlotIndexes | None:
        """What a slot holds, if it is in memory."""
        found: SlotIndexes | None = slot_state(slot, self.rounds[-1][0].round, self.storage).ended()
        return found

    def nearest(self) -> dict[int, tuple[np.ndarray, QueryBatch]]:
        """By slot the CKQs that it has, by number."""
        watermark = self.rounds[-1][0].round.watermark
        found = {}
        for slot in range(SLOTS):
            if (indexes := self.slot(slot)) is not None:
                (index,) = indexes.settling()
                found[slot] = index.continuous(watermark)
        return found


class Fickle(Settled):
    """A simulation whose worker has another setting at each start."""

    def run_worker(self) -> None:
        if self.worker is None:
            (other,) = {SETTLE, EVERYWHERE} - {self.settings.nearest}
            self.settings = replace(self.settings, nearest=other)
        super().run_worker()


def simulated(
    stream: Stream,
    seed: int,
    chaos: float,
    rebalances: float,
    folder: str,
    nearest: str = SETTLE,
    kind: type[Settled] = Settled,
) -> Settled:
    setup = StreamSettings(
        "s",
        slots=SLOTS,
        space=stream.space,
        partitions=2,
        mergers=1 + seed % 2,
        idle=IDLE,
        epoch_records=[5, 40][seed % 2],
        rule=stream.rule,
        nearest=nearest,
    )
    simulation = kind(Path(folder), stream.space, stream.objects, stream.queries, setup, seed, chaos=chaos)
    simulation.run(rebalances)
    return simulation


def of_nearest(seed: int, space: Space, objects: int = 400) -> Stream:
    return in_order(random_stream(seed, objects, 40, space, types=[QueryType.CKQ], vocabulary=30, where=0.2))


@settings(max_examples=examples(3, 60), suppress_health_check=[HealthCheck.too_slow])
@example(113_585, WGS84)  # a query comes to a slot in the round that names a smaller radius of it
@given(st.integers(0, 10**6), st.sampled_from([WGS84, PLANE]))
def test_while_versions_change_rows_are_the_oracles_and_every_slot_has_what_it_needs(seed: int, space: Space) -> None:
    stream = of_nearest(seed, space)
    with tempfile.TemporaryDirectory() as folder:
        simulation = simulated(stream, seed, 0.004 * (seed % 3), 0.5, folder)
        assert differences(stream, simulation) == []
        held = simulation.nearest()
        named = simulation.rounds[-1][0].round
        version = load_version(simulation.storage, named.version)
    caps: dict[int, float] = {}
    everywhere: dict[int, set[int]] = {}
    for slot, (number, queries) in held.items():
        cap = np.where(queries.regions.kind == CIRCLE, queries.regions.shape[:, 2], np.inf)
        for each, radius in zip(number.tolist(), cap.tolist(), strict=True):
            assert caps.setdefault(each, radius) == radius, f"query {each} in slot {slot}"
            everywhere.setdefault(each, set()).add(slot)
    for number, queries in held.values():
        row, leaf = version.index.route_regions(queries.regions)
        for each, slot in zip(number[row].tolist(), version.mapping[leaf].tolist(), strict=True):
            assert slot in everywhere[each] or slot not in held, f"query {each} is not in slot {slot}"


@settings(max_examples=examples(2, 30), suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10**6), st.sampled_from([WGS84, PLANE]))
def test_everywhere_they_stay_on_all_slots_and_rows_are_the_oracles(seed: int, space: Space) -> None:
    stream = of_nearest(seed, space)
    with tempfile.TemporaryDirectory() as folder:
        simulation = simulated(stream, seed, 0.004 * (seed % 3), 0.5, folder, EVERYWHERE)
        assert differences(stream, simulation) == []
        held = [{*number.tolist()} for number, _ in simulation.nearest().values()]
        assert all(each == held[0] for each in held)
        assert simulation.storage.list(RADII) == []


@settings(max_examples=examples(2, 30), suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10**6), st.sampled_from([WGS84, PLANE]))
def test_where_they_are_may_change_at_each_start(seed: int, space: Space) -> None:
    stream = of_nearest(seed, space)
    with tempfile.TemporaryDirectory() as folder:
        simulation = simulated(stream, seed, 0.01, 0.5, folder, kind=Fickle)
        assert differences(stream, simulation) == []
        assert len({each.round.settling for each, _ in simulation.rounds}) == 2, "both were in force"


@pytest.mark.parametrize("nearest", ["near", ""])
def test_other_places_are_refused(nearest: str) -> None:
    with pytest.raises(SettingError, match="is not one of settle, everywhere, dkm") as caught:
        StreamSettings("s", nearest=nearest).validate()
    assert caught.value.setting == "nearest"


def test_most_slots_are_left() -> None:
    drawn = of_nearest(5, PLANE, 2_000)
    lasting = [
        replace(each, lifetime=replace(each.lifetime, duration=10**9)) if isinstance(each, Query) else each
        for each in drawn.queries
    ]
    stream = Stream(drawn.space, drawn.objects, lasting)
    with tempfile.TemporaryDirectory() as folder:
        simulation = simulated(stream, 5, 0.0, 0.0, folder)
        held = simulation.nearest()
        assert differences(stream, simulation) == []
    assert len(held) == SLOTS
    windows = {each for number, queries in held.values() for each in number[queries.window >= 0].tolist()}
    alive = {each for number, _ in held.values() for each in number.tolist()} - windows
    copies = sum(len({*number.tolist()} - windows) for number, _ in held.values())
    assert len(alive) > 10
    assert copies < 0.5 * SLOTS * len(alive)
    for each in windows:
        assert all(each in number for number, _ in held.values()), "objects leave its answer, so it stays"


def test_files_of_radii_are_deleted_once_no_replay_needs_them() -> None:
    stream = of_nearest(6, PLANE, 1_000)
    with tempfile.TemporaryDirectory() as folder:
        simulation = simulated(stream, 6, 0.0, 0.3, folder)
        record = simulation.rounds[-1][0]
        names = simulation.storage.list(RADII)
        told = [each.round.number for each, _ in simulation.rounds if each.round.radii]
    assert len(told) > 5
    assert record.since is not None
    assert all(name >= radii_name(record.since.round, 0) for name in names)


def test_radii_of_several_files_come_in_order() -> None:
    storage = MemoryStorage()
    save_radii(storage, (3, 0), 0, (np.array([4, 7]), np.array([1.0, 2.0])))
    save_radii(storage, (3, 0), 1, (np.array([5]), np.array([3.0])))
    number, radius = load_radii(storage, [radii_name((3, 0), part) for part in (0, 1)])
    assert (number.tolist(), radius.tolist()) == ([4, 5, 7], [1.0, 3.0, 2.0])
    assert len(load_radii(storage, [])[0]) == 0


# ----------------------------------------------------------------------------------------------------- what MERGE tells


def merger_with(k: int, window: int | None = None) -> NearestMerger:
    merger = NearestMerger(PLANE)
    query = Query("q", 0, Predicate(), Nearest(0.0, 0.0, k), Lifetime(10**6, True, window))
    merger.register(np.array([9]), QueryBatch.of([query]))
    return merger


def arrive(merger: NearestMerger, t: int, *distances: float) -> list[tuple[int, float]]:
    n = len(distances)
    ids = pa.array([f"o{t}-{i}" for i in range(n)], pa.string())
    columns = np.full(n, t), np.zeros(n), np.zeros(n), np.array(distances)
    list(merger.changes(Arrivals(np.full(n, 9), ids, *columns), t))
    return list(zip(*(each.tolist() for each in merger.radii()), strict=True))


def test_a_radius_is_told_when_there_are_k_and_when_half_of_the_area_is_left() -> None:
    merger = merger_with(2)
    assert arrive(merger, 1, 8.0) == []
    assert arrive(merger, 2, 10.0) == [(9, 10.0)]
    assert arrive(merger, 3, 9.0) == []  # 9 is more than 7.07
    assert arrive(merger, 4) == []
    assert arrive(merger, 5, 1.0, 7.0) == [(9, 7.0)]
    assert arrive(merger, 6, 0.0, 0.0) == [(9, 0.0)]
    assert arrive(merger, 7, 0.0) == []


def test_a_query_with_a_window_has_no_radius() -> None:
    merger = merger_with(1, window=100)
    assert arrive(merger, 1, 8.0) == arrive(merger, 2, 1.0) == []


def test_best_queries_have_no_radii() -> None:
    assert [len(each) for each in BestMerger(PLANE).radii()] == [0, 0]


# ----------------------------------------------------------------------------------------------------- what a slot does


def index_with(*numbers: int) -> ContinuousNearestIndex:
    index = ContinuousNearestIndex(PLANE)
    query = [Query(f"q{i}", 0, Predicate(None, ("a",)), Nearest(1.0, 1.0, 2), Lifetime(100, True)) for i in numbers]
    index.register(np.array(numbers, np.int64), QueryBatch.of(query))
    return index


def caps_of(index: ContinuousNearestIndex) -> dict[int, float]:
    number, queries = index.continuous(0)
    bounded = queries.regions.kind == CIRCLE
    return dict(zip(number.tolist(), np.where(bounded, queries.regions.shape[:, 2], np.inf).tolist(), strict=True))


def test_a_cap_comes_with_a_query_and_waits_for_one() -> None:
    index, other = index_with(1, 2), index_with(3)
    for each in (index, other):
        each.shrink(np.array([1, 2, 3]), np.array([0.5, 2.0, 1.0]), await_others=True)
        each.shrink(np.array([1, 2]), np.array([1.5, 0.75]), await_others=True)
    assert caps_of(index) == {1: 0.5, 2: 0.75}
    fresh = index_with(1, 2).continuous(0)
    other.register(*fresh)
    assert caps_of(other) == {1: 0.5, 2: 0.75, 3: 1.0}
    third = index_with()
    third.register(*other.continuous(0))
    assert caps_of(third) == caps_of(other)
    index.forget_others()
    index.register(*index_with(3).continuous(0))
    assert caps_of(index)[3] == np.inf


def test_what_is_farther_than_the_cap_is_not_found() -> None:
    index = index_with(1)
    index.shrink(np.array([1]), np.array([0.5]), await_others=False)
    objects = [(f"o{i}", 1, x, 1.0, ("a",)) for i, x in enumerate((1.0, 1.5, 1.5000001, 3.0))]
    batch = ObjectBatch.of([SpatialObject(*each) for each in objects])
    found = [(n, p) for each in index.match(batch) for n, p in zip(each.number, each.position, strict=True)]
    assert found == [(1, 0), (1, 1)]


@pytest.mark.parametrize("space", [WGS84, PLANE], ids=["wgs84", "planar"])
def test_a_stream_of_one_slot_writes_no_radii(space: Space, tmp_path: Path) -> None:
    stream = of_nearest(1, space, 200)
    setup = StreamSettings("s", slots=1, space=space, idle=IDLE, rule=stream.rule)
    simulation = Simulation(tmp_path, space, stream.objects, stream.queries, setup, 1)
    simulation.run(0.0)
    assert simulation.storage.list(RADII) == []
    expected, _ = answers(stream.objects, stream.queries, space)
    assert not [*check(simulation.rows(), expected, 5)]
