"""How long the router keeps the files of routing versions."""

from __future__ import annotations

from spatialstream.sources.memory_storage import MemoryStorage
from spatialstream.stages.ingest import Intake
from spatialstream.store.memory import MemoryStore
from spatialstream.stream.router import Router
from spatialstream.stream.settings import StreamSettings
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
