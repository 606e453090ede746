"""State between checkpoints: lost state is rebuilt from records, and nothing is sent for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from spatialstream.connectors.memory_storage import MemoryStorage
from spatialstream.local.state import Manifest, WriteFile
from spatialstream.model.errors import Lost
from spatialstream.model.objects import SpatialObject
from spatialstream.model.queries import Cancellation, Query
from spatialstream.model.space import WGS84
from spatialstream.oracle import answers, check
from spatialstream.stages.merge import merger_owner
from spatialstream.stages.route import registry_owner
from spatialstream.stages.state import OwnerState, forget
from spatialstream.stages.work import SlotIndexes, slot_objects
from spatialstream.stream.driver import WorkerTurns
from spatialstream.stream.router import Router
from spatialstream.stream.settings import StreamSettings
from spatialstream.stream.timeouts import Every
from spatialstream.stream.worker import Worker
from tests.remote import Remote
from tests.simulation import IDLE, Simulation
from tests.streams import random_stream


def given(seed: int) -> tuple[list[SpatialObject], list[Query | Cancellation]]:
    """Objects and queries."""
    stream = random_stream(seed, 150, 20, WGS84)
    return sorted(stream.objects, key=lambda one: one.t), sorted(stream.queries, key=lambda one: one.t)


def undisturbed(folder: Path, checkpoints: float, seed: int = 3) -> Simulation:
    """A stream that has been answered."""
    objects, queries = given(seed)
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
    simulation.due = lambda: True
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
    assert turns.quarantine() == ()
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

    def state(number: int, since: int | None, revision: int = 0) -> OwnerState:
        before = (number - 1, 0) if number else None
        return OwnerState(storage, "o", (number, revision), before, None if since is None else (since, 0))

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
    assert state(1, 0, revision=1).ended() is None
    forget(storage)
    with pytest.raises(Lost, match="the state of o after turn 1 is not in memory any more"):
        state(2, 0).begin(restore)


def test_every_so_many_seconds() -> None:
    now = [0.0]
    every = Every(10.0, lambda: now[0])
    found = []
    for now[0] in (0.0, 9.9, 10.0, 10.1, 19.9, 35.0, 36.0):
        found.append(every())
    assert found == [False, False, True, False, False, True, False]
    assert all(Every(0.0)() for _ in range(3))


def beside(folder: Path, storage: Remote, seed: int = 3) -> Simulation:
    """A stream that has been answered in part, with a round whose checkpoint is not complete yet."""
    storage.held = True
    setup = StreamSettings("s", slots=3, space=WGS84, idle=IDLE, epoch_records=10)
    simulation = Simulation(folder, WGS84, *given(seed), setup, seed, checkpoints=0.0, storage=storage)
    until(simulation, lambda: worker_of(simulation).last_done >= 2)
    simulation.due = lambda: True
    until(simulation, lambda: worker_of(simulation).last_done >= 6)
    return simulation


def until(simulation: Simulation, over: Callable[[], bool]) -> None:
    """Continue the stream."""
    while simulation.worker is None or simulation.router is None or not over():
        assert any(simulation.unsent.values())
        simulation.produce()
        simulation.run_router()
        simulation.run_worker()


def worker_of(simulation: Simulation) -> Worker:
    """Its worker."""
    assert simulation.worker is not None
    return simulation.worker


def router_of(simulation: Simulation) -> Router:
    """Its router."""
    assert simulation.router is not None
    return simulation.router


def test_turns_go_on_while_a_checkpoint_is_written_and_need_what_was_before_until_it_is_there(tmp_path: Path) -> None:
    simulation = beside(tmp_path, storage := Remote())
    worker, router = worker_of(simulation), router_of(simulation)
    assert worker.last is not None
    assert worker.writing is not None
    assert worker.writing.round.number < worker.last.round.number - 1, "and no other one begins"
    assert router.last is not None
    assert router.writing is not None
    assert worker.last.since is None
    assert router.last.epoch.since is None
    assert not worker.settled
    assert worker.settle() is None, "one is being written"
    assert all(log.bounds[0] == 0 for log in simulation.blocks)
    begun = worker.writing.checkpoint, (router.writing.epoch.number, router.writing.epoch.revision)
    storage.held, simulation.due = False, lambda: False
    until(simulation, lambda: None not in (worker.last and worker.last.since, router.last and router.last.epoch.since))
    assert (worker.last.since, router.last.epoch.since) == begun
    assert any(log.bounds[0] > 0 for log in simulation.blocks), "what it stands for has gone"


@pytest.mark.parametrize("job", ["router", "worker"])
def test_who_begins_while_a_checkpoint_is_written_goes_on_from_the_one_before(tmp_path: Path, job: str) -> None:
    simulation = beside(tmp_path, storage := Remote())
    storage.die()
    setattr(simulation, job, None)
    assert simulation.again == 0
    storage.held = False
    simulation.run(rebalances=0.0, disturbances=0.0)
    assert simulation.again > 2
    expected, _ = answers(*given(3), WGS84)
    assert [str(each) for each in check(simulation.rows(), expected, 5)] == []


def test_who_begins_when_a_checkpoint_is_there_goes_on_from_it(tmp_path: Path) -> None:
    simulation = beside(tmp_path, storage := Remote())
    storage.held = False
    worker = worker_of(simulation)
    turns = WorkerTurns(worker, simulation.processes, simulation.settings.slots, beside=True)
    while worker.writing is not None:
        turns.poll_checkpoint()
    settled(simulation)
    while not worker.settled:
        turns.poll_checkpoint()
    simulation.worker = None
    simulation.run(rebalances=0.0, disturbances=0.0)
    assert simulation.again == 0
    expected, _ = answers(*given(3), WGS84)
    assert [str(each) for each in check(simulation.rows(), expected, 5)] == []


def test_a_checkpoint_is_waited_for_where_slots_are_to_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = beside(tmp_path, storage := Remote())
    storage.held, worker, moved = False, worker_of(simulation), list[bool]()
    turns = WorkerTurns(worker, simulation.processes, simulation.settings.slots, beside=True)
    while worker.writing is not None:
        turns.poll_checkpoint()
    monkeypatch.setattr(simulation.processes, "would_move", True, raising=False)
    monkeypatch.setattr(simulation.processes, "settled", lambda: moved.append(worker.settled))
    record = worker.settle()
    assert record is not None
    turns.do(record)
    assert moved == [True]
    assert worker.writing is None


def test_who_goes_back_begins_with_the_last_checkpoint_whatever_turns_after_it_knew(tmp_path: Path) -> None:
    simulation = beside(tmp_path, storage := Remote())
    worker, router = worker_of(simulation), router_of(simulation)
    storage.held, simulation.due = False, lambda: False
    until(simulation, lambda: None not in (worker.last and worker.last.since, router.last and router.last.epoch.since))
    forget(simulation.storage)
    before = simulation.again
    until(simulation, lambda: simulation.again > before + 4)
    simulation.run(rebalances=0.0, disturbances=0.0)
    assert simulation.again < before + 20, "they are done again once"
    expected, _ = answers(*given(3), WGS84)
    assert [str(each) for each in check(simulation.rows(), expected, 5)] == []
