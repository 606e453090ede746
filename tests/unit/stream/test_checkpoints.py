"""State between checkpoints: what is lost is made anew from records, and nothing is sent for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from spatialstream.local.state import Manifest, WriteFile
from spatialstream.model.errors import Lost
from spatialstream.model.space import WGS84
from spatialstream.oracle import answers, check
from spatialstream.sources.memory_storage import MemoryStorage
from spatialstream.stages.merge import merger_owner
from spatialstream.stages.route import registry_owner
from spatialstream.stages.state import OwnerState, forget
from spatialstream.stages.work import SlotIndexes, slot_objects
from spatialstream.stream.driver import WorkerTurns
from spatialstream.stream.settings import StreamSettings
from spatialstream.stream.timeouts import Every
from tests.simulation import IDLE, Simulation
from tests.streams import random_stream


def undisturbed(folder: Path, checkpoints: float, seed: int = 3) -> Simulation:
    """A stream that has been answered."""
    stream = random_stream(seed, 150, 20, WGS84)
    objects, queries = (sorted(each, key=lambda one: one.t) for each in (stream.objects, stream.queries))
    setup = StreamSettings("s", slots=3, space=WGS84, idle=IDLE, epoch_records=10)
    simulation = Simulation(folder, WGS84, objects, queries, setup, seed, checkpoints=checkpoints)
    simulation.run(rebalances=0.5, disturbances=0.0)
    expected, _ = answers(objects, queries, WGS84)
    assert [str(each) for each in check(simulation.rows(), expected, 5)] == []
    return simulation


def settled(simulation: Simulation) -> None:
    """A round without epochs, which ends with a checkpoint."""
    worker = simulation.worker
    assert worker is not None
    simulation.due = worker._due = lambda: True
    turns = WorkerTurns(worker, simulation.processes, simulation.settings.slots, simulation.step)
    record = worker.settle()
    assert record is not None
    turns.do(record)
    assert worker.settle() is None, "nothing has happened since"


def test_a_checkpoint_that_fails_is_no_record_s_fault_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation = undisturbed(tmp_path, checkpoints=0.0)
    worker = simulation.worker
    assert worker is not None
    sent = simulation.results[0].bounds

    def fails(self: SlotIndexes, write: WriteFile) -> Manifest:
        raise ValueError("cannot be written")

    with monkeypatch.context() as broken:
        broken.setattr(SlotIndexes, "checkpoint", fails)
        with pytest.raises(ValueError, match="cannot be written"):
            settled(simulation)
    turns = WorkerTurns(worker, simulation.processes, simulation.settings.slots, simulation.step)
    assert turns.leave_out() == ()
    record = worker.unfinished
    assert record is not None
    turns.do(record)
    assert worker.unfinished is None
    assert simulation.results[0].bounds == sent
    assert simulation.storage.list("state/") != []


@pytest.mark.parametrize("owner", ["slot-0001", merger_owner(0)])
def test_lost_state_is_made_anew_from_all_rounds_and_no_row_is_sent_for_it(tmp_path: Path, owner: str) -> None:
    simulation = undisturbed(tmp_path, checkpoints=0.0)
    assert simulation.storage.list("state/") == []
    worker = simulation.worker
    assert worker is not None
    assert worker.last is not None
    rounds, sent = worker.last_done + 1, simulation.results[0].bounds
    forget(simulation.storage, owner)
    settled(simulation)
    assert simulation.again == rounds
    assert simulation.results[0].bounds == sent
    assert sum(worker.last.counts.values()) > 0
    owners = {name.split("/")[1] for name in simulation.storage.list("state/")}
    assert owners == {merger_owner(0), *(f"slot-{slot:04d}" for slot in range(3))}


def test_after_a_checkpoint_a_slot_can_be_asked_wherever_it_is(tmp_path: Path) -> None:
    simulation = undisturbed(tmp_path, checkpoints=0.0)
    settled(simulation)
    worker = simulation.worker
    assert worker is not None
    assert worker.last is not None
    held = [len(slot_objects(slot, worker.last.round, simulation.storage)) for slot in range(3)]
    forget(simulation.storage)
    assert [len(slot_objects(slot, worker.last.round, simulation.storage)) for slot in range(3)] == held
    assert sum(held) > 0
    turns = WorkerTurns(worker, simulation.processes, simulation.settings.slots, simulation.step)
    assert turns.recall() == worker.last.round
    assert simulation.again == 0


def test_what_is_in_memory_is_not_made_anew(tmp_path: Path) -> None:
    simulation = undisturbed(tmp_path, checkpoints=0.0)
    settled(simulation)
    assert simulation.again == 0


def test_records_and_blocks_stay_until_a_round_is_done_after_a_checkpoint(tmp_path: Path) -> None:
    simulation = undisturbed(tmp_path, checkpoints=0.0)
    assert simulation.worker is not None
    rounds = simulation.worker.last_done + 1
    assert len(simulation.storage.list("rounds/")) >= rounds
    assert all(log.bounds[0] == 0 for log in simulation.blocks)
    settled(simulation)
    assert all(log.bounds[0] == 0 for log in simulation.blocks), "it may have to be done again"
    assert len(simulation.storage.list("rounds/")) > rounds


@pytest.mark.parametrize("partition", [0, 1])
def test_a_registry_is_made_anew_from_the_queries_since_its_checkpoint(tmp_path: Path, partition: int) -> None:
    simulation = undisturbed(tmp_path, checkpoints=0.0)
    router = simulation.router
    assert router is not None
    record = router.last
    assert record is not None
    forget(simulation.storage, registry_owner(partition))
    numbers = [each.epoch.number for each in router.since_checkpoint(record)]
    assert numbers == sorted(numbers)
    assert numbers[0] == 0
    assert record.epoch.before is not None
    assert numbers[-1] == record.epoch.before[0]
    state = OwnerState.of(simulation.storage, registry_owner(partition), record.epoch)
    with pytest.raises(Lost):
        state.begin(lambda manifest, read: manifest)


def test_an_owner_goes_on_from_its_memory_or_from_a_checkpoint_and_from_nothing_else() -> None:
    storage = MemoryStorage()

    def state(number: int, since: int | None, take: int = 0) -> OwnerState:
        before = (number - 1, 0) if number else None
        return OwnerState(storage, "o", (number, take), before, None if since is None else (since, 0))

    def restore(manifest: dict[str, object] | None, read: object) -> list[int]:
        return [] if manifest is None else [-int(str(manifest["n"]))]

    first = state(0, None)
    assert first.begin(restore) == []
    first.end([0])
    first.commit({"n": 7})
    assert state(1, 0).begin(restore) == [0]
    assert state(1, 0).begin(restore) == [-7], "the structures have left the memory"
    state(1, 0).end([1])
    assert state(1, 0).ended() == [1]
    assert state(1, 0, take=1).ended() is None
    forget(storage)
    with pytest.raises(Lost, match="the state of o after turn 1 is in no memory any more"):
        state(2, 0).begin(restore)


def test_every_so_many_seconds() -> None:
    now = [0.0]
    every = Every(10.0, lambda: now[0])
    found = []
    for now[0] in (0.0, 9.9, 10.0, 10.1, 19.9, 35.0, 36.0):
        found.append(every())
    assert found == [False, False, True, False, False, True, False]
    assert all(Every(0.0)() for _ in range(3))
