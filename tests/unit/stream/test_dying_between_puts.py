"""Concurrent puts of processes that die before any of them: nobody reads what is left over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spatialstream.connectors.memory_storage import MemoryStorage
from spatialstream.local.state import Manifest, WriteFile
from spatialstream.model.errors import Lost
from spatialstream.model.space import WGS84
from spatialstream.oracle import answers, check
from spatialstream.stages.ingest import Ingest
from spatialstream.stages.state import OwnerState, Written, forget
from spatialstream.stages.turns import Run
from spatialstream.stream.settings import StreamSettings
from tests.lengths import examples
from tests.remote import Remote
from tests.simulation import IDLE, Crash, Simulation
from tests.streams import random_stream


class Dying(Simulation):
    """A stream far from its storage; a process dies at one of several concurrent puts, and loses all that it has in
    memory.

    Args:
        folder: for what is no state.
        seed: of random decisions.
        at: the put; -1: none.
        chaos: see :class:`Simulation`.
    """

    def __init__(self, folder: Path, seed: int, at: int = -1, chaos: float = 0.0) -> None:
        drawn = random_stream(seed, 40, 8, WGS84)
        self.puts, self.at, self.died = 0, at, 0
        self.given = tuple(sorted(each, key=lambda one: one.t) for each in (drawn.objects, drawn.queries))
        setup = StreamSettings("s", slots=2, space=WGS84, idle=IDLE, epoch_records=20, mergers=2)
        storage = Remote()
        super().__init__(folder, WGS84, *self.given, setup, seed, chaos=chaos, checkpoints=0.5, storage=storage)
        storage.step, storage.chance, storage.haste = self.step, self.random, self.random.choice([0.3, 1.0, 1.0])

    def step(self, name: str) -> None:
        if name == "put":
            self.puts += 1
            if self.puts - 1 == self.at:
                self.died += 1
                forget(self.storage)
                self.die()
                raise Crash(name)
        try:
            super().step(name)
        except Crash:
            self.die()
            raise

    def die(self) -> None:
        """Lose, with the process, what was on its way to the storage, and all copies on its machine."""
        assert isinstance(self.storage, Remote)
        self.storage.die()

    def differences(self) -> list[str]:
        """Differences of the rows from the oracle's."""
        self.run(rebalances=0.3, disturbances=0.05)
        expected, refused = answers(*self.given, WGS84)
        assert self.refused() == sorted(place for place, _ in refused)
        return [str(each) for each in check(self.rows(), expected, 5)]


def test_a_process_may_die_before_any_of_several_puts(tmp_path: Path) -> None:
    whole = Dying(tmp_path / "whole", 7)
    assert whole.differences() == []
    tried = examples(10, whole.puts)
    assert whole.puts > 40
    for at in range(0, whole.puts, -(-whole.puts // tried)):
        dying = Dying(tmp_path / f"{at}", 7, at)
        assert dying.differences() == [], f"died before put {at}"
        assert dying.died == 1


def test_processes_die_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[str]()
    again = Ingest.again

    def counted(self: Ingest, source: Any, run: Run) -> None:
        made.append(run.name)
        again(self, source, run)

    monkeypatch.setattr(Ingest, "again", counted)
    for seed in range(4):
        dying = Dying(tmp_path / f"{seed}", seed, chaos=0.06)
        assert dying.differences() == []
        assert dying.crashes > 3
    assert made, "runs that were lost with their process"


class Structure:
    """One of two files."""

    def __init__(self, number: int) -> None:
        self.number = number

    def checkpoint(self, write: object) -> dict[str, object]:
        assert callable(write)
        return {"files": [write("x", {}, {"n": self.number}), write("y", {}, {"n": self.number})]}


def state(storage: MemoryStorage, number: int, since: int | None = None) -> OwnerState:
    before = (number - 1, 0) if number else None
    return OwnerState(storage, "o", (number, 0), before, None if since is None else (since, 0))


def names(storage: MemoryStorage) -> set[str]:
    return {name.removeprefix("state/o/") for name in storage.list("state/o/")}


def files(turn: int) -> set[str]:
    named = f"{turn:09d}"
    return {f"epoch-{named}.json", f"{named}-000-x.arrays", f"{named}-001-y.arrays"}


@pytest.mark.parametrize("at", range(3))
def test_what_a_checkpoint_that_was_lost_has_left_goes_with_the_others(at: int) -> None:
    storage = Remote()
    for turn, since in ((0, None), (1, 0), (2, 1), (3, 1), (4, 3)):
        one = state(storage, turn, since)
        one.end(Structure(turn))
        storage.held = turn == 2
        if turn == 2:  # it is lost, and the next one is written by another process
            one.checkpoint()
            (under_way,) = storage.sets
            for _ in range(at):
                under_way.go_on(lambda name: None)
            forget(storage)
            storage.sets.clear()
            assert one.written().lost
            assert names(storage) >= files(1), "from here turns are done again"
            assert len(names(storage) & files(2)) == at
            continue
        one.checkpoint()
        assert one.written(1.0) == Written()
        left = set() if turn == 4 else names(storage) & files(2)
        assert names(storage) == files(turn) | (set() if since is None else files(since)) | left
    assert state(storage, 5, 4).previous() == {"files": ["000000004-000-x.arrays", "000000004-001-y.arrays"]}


def test_a_manifest_is_there_after_all_that_it_names_and_what_others_have_still_under_way() -> None:
    storage = Remote()
    storage.held = True
    first, second = state(storage, 0), state(storage, 1)
    for one, number in ((first, 0), (second, 1)):
        one.end(Structure(number))
        one.checkpoint()
    under_way = storage.sets
    seen = [names(storage)]
    while under_way[0].left or not under_way[1].is_there:
        for each in reversed(under_way):
            each.go_on(lambda name: None)
        seen.append(names(storage))
    for there in seen:
        for turn in (0, 1):
            manifests = {f"epoch-{number:09d}.json" for number in range(turn, 2)}
            assert files(turn) <= there or not manifests & there


class Growing:
    """An array that is modified."""

    def __init__(self) -> None:
        self.array = np.zeros(3, np.int64)

    def checkpoint(self, write: WriteFile) -> Manifest:
        return {"file": write("x", {"array": self.array})}


def test_what_is_written_is_as_the_turn_has_left_it() -> None:
    storage, growing = Remote(), Growing()
    one = state(storage, 0)
    one.end(growing)
    one.checkpoint()
    growing.array += 1
    assert one.written(1.0).there
    after = state(storage, 1, 0)
    manifest = after.previous()
    assert manifest is not None
    assert after.read(manifest["file"])[0]["array"].tolist() == [0, 0, 0]


def test_which_files_there_are_is_asked_once() -> None:
    storage = Remote()
    storage.put("state/o/000000000-007-of-another-try.arrays", b"")
    for turn in range(6):
        one = state(storage, turn, None if turn == 0 else turn - 1)
        one.end(Structure(turn))
        one.checkpoint()
        assert one.written(1.0).there
    asked = [each for each in storage.waited if each[0] != "put"]
    assert asked == []
    forget(storage)
    one = state(storage, 6, 5)
    one.end(Structure(6))
    one.checkpoint()
    assert one.written(1.0).there
    assert [method for method, _ in storage.waited if method != "put"] == ["list", "get"]
    assert names(storage) == files(5) | files(6), "what others have left goes then"


def test_who_does_not_have_the_state_writes_nothing() -> None:
    storage = Remote()
    one = state(storage, 0)
    one.end(Structure(0))
    with pytest.raises(Lost, match="the state of o after turn 1 is not in memory any more"):
        state(storage, 1, 0).checkpoint()
    assert names(storage) == set()
