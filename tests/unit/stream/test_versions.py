"""How long the router keeps routing versions, and their files."""

from __future__ import annotations

from pathlib import Path

import pytest

from spatialstream.connectors.memory_storage import MemoryStorage
from spatialstream.model.space import WGS84
from spatialstream.stages.ingest import Intake
from spatialstream.store.memory import MemoryStore
from spatialstream.store.reports import read_named, save_named
from spatialstream.stream.router import Router
from spatialstream.stream.settings import StreamSettings
from tests.simulation import IDLE, Simulation
from tests.streams import random_stream
from tests.unit.store.contract import SLOTS, version

HOUR = 3_600_000


def test_a_version_stays_for_a_day_after_no_epoch_names_it_any_more() -> None:
    storage, store, names = MemoryStorage(), MemoryStore(), ["objects/0"]
    now = t = 0
    settings = StreamSettings("s", slots=SLOTS, interval=1_000, retention=HOUR)
    store.create(version(0))

    def router() -> Router:
        return Router(settings, storage, store, names, lambda: now)

    def epoch(after: int) -> list[str]:
        """The versions that there are after another epoch, which comes so many ms after the one before."""
        nonlocal now, t
        now, t = now + after, t + after
        one = router()
        one.done(one.decide([Intake(name, t, None, "", 0, 0, t) for name in names]))
        one.tidy()
        return storage.list("versions/")

    old, new = "versions/000000.arrays", "versions/000001.arrays"
    assert epoch(1) == [old]
    store.publish(version(1), 0, "p", {})
    assert epoch(48 * HOUR) == [old, new]
    for stage in ("exported", "loaded"):
        store.acknowledge(1, stage, range(SLOTS))
        assert epoch(1) == [old, new]
    assert router().last.adoption.active == 1
    for _ in range(25):
        assert epoch(HOUR) == [old, new], "named by an epoch within the last day"
    assert epoch(HOUR) == [new]
    assert epoch(HOUR) == [new]
    assert router().last.retired == ()


@pytest.mark.parametrize("named", [None, 0, 1])
def test_a_version_stays_in_the_store_until_the_worker_has_come_past_it(named: int | None) -> None:
    storage, store, names = MemoryStorage(), MemoryStore(), ["objects/0"]
    now = t = 0
    settings = StreamSettings("s", slots=SLOTS, interval=1_000, retention=HOUR)
    store.create(version(0))
    if named is not None:
        save_named(store, named)

    def epoch(after: int) -> tuple[int, ...]:
        """The versions that the store has after another epoch, which comes so many ms after the one before."""
        nonlocal now, t
        now, t = now + after, t + after
        one = Router(settings, storage, store, names, lambda: now)
        one.done(one.decide([Intake(name, t, None, "", 0, 0, t) for name in names]))
        one.tidy()
        return store.versions()

    assert epoch(1) == (0,)
    store.publish(version(1), 0, "p", {})
    assert epoch(1) == (0, 1)
    for stage in ("exported", "loaded"):
        store.acknowledge(1, stage, range(SLOTS))
        assert epoch(1) == (0, 1)
    assert epoch(2 * HOUR) == (0, 1), "retention has not passed what came before"
    assert epoch(2 * HOUR) == ((1,) if named == 1 else (0, 1))
    assert epoch(2 * HOUR) == ((1,) if named == 1 else (0, 1))
    save_named(store, 1)
    assert epoch(1) == (1,)


def test_what_is_damaged_tells_of_no_version() -> None:
    store = MemoryStore()
    store.create(version(0))
    assert read_named(store) is None
    save_named(store, 3)
    assert read_named(store) == 3


class Lagging(Simulation):
    """A simulation whose worker falls behind, and whose router removes versions as soon as it may."""

    def __init__(self, *given: object, **more: object) -> None:
        super().__init__(*given, **more)  # type: ignore[arg-type]
        self.missing: list[tuple[int, int]] = []
        self.removed: set[int] = set()

    def run_router(self) -> None:
        super().run_router()
        before = set(self.store.memory.versions)
        if self.router is not None:
            self.router.tidy()
        self.removed |= before - set(self.store.memory.versions)
        self.look()

    def run_worker(self) -> None:
        if self.chaos == 0.0 or self.random.random() < 0.6:
            super().run_worker()
        self.look()

    def look(self) -> None:
        """Note the versions that the last done round names and the store lacks: query clients would need them."""
        if self.rounds:
            turn = self.rounds[-1][0].round
            named = {turn.version, *(version for version, *_ in turn.past)}
            self.missing += [(turn.number, each) for each in named - set(self.store.memory.versions)]


def test_whatever_the_router_removes_is_no_version_that_a_worker_behind_names(tmp_path: Path) -> None:
    removed = set[tuple[int, int]]()
    for seed in range(4):
        drawn = random_stream(seed, 600, 10, WGS84)
        objects, queries = (sorted(each, key=lambda item: item.t) for each in (drawn.objects, drawn.queries))
        setup = StreamSettings(
            "s", slots=2, space=WGS84, idle=IDLE, retention=60_000, interval=10_000, epoch_records=20
        )
        simulation = Lagging(tmp_path / str(seed), WGS84, objects, queries, setup, seed, chaos=0.003)
        simulation.run(rebalances=0.9)
        assert not simulation.missing
        removed |= {(seed, version) for version in simulation.removed}
    assert len(removed) > 3
