"""Files that are put at once, by processes that die before any of them: what is left over is asked for by nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spatialstream.model.errors import Lost, NoStorage
from spatialstream.model.space import WGS84
from spatialstream.oracle import answers, check
from spatialstream.sources.memory_storage import MemoryStorage
from spatialstream.stages.ingest import Ingest
from spatialstream.stages.state import OwnerState, forget
from spatialstream.stages.turns import Run
from spatialstream.stream.settings import StreamSettings
from tests.lengths import examples
from tests.remote import Remote
from tests.simulation import IDLE, Crash, Simulation
from tests.streams import random_stream


class Dying(Simulation):
    """A stream far from its storage; a process dies at one of the puts of several, and all that it has in memory is
    lost.

    Args:
        folder: for what is no state.
        seed: decides what is left to chance.
        at: the put; -1: at none.
        chaos: see :class:`Simulation`.
    """

    def __init__(self, folder: Path, seed: int, at: int = -1, chaos: float = 0.0) -> None:
        drawn = random_stream(seed, 40, 8, WGS84)
        self.puts, self.at, self.died = 0, at, 0
        self.given = tuple(sorted(each, key=lambda one: one.t) for each in (drawn.objects, drawn.queries))
        setup = StreamSettings("s", slots=2, space=WGS84, idle=IDLE, epoch_records=20, mergers=2)
        storage = Remote()
        super().__init__(folder, WGS84, *self.given, setup, seed, chaos=chaos, checkpoints=0.5, storage=storage)
        storage._step, storage._chance = self.step, self.random

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
        """What was on its way to the storage is lost with the process, and all copies on its machine."""
        assert isinstance(self.storage, Remote)
        self.storage.die()

    def differences(self) -> list[str]:
        """Between the rows and those of the oracle."""
        self.run(rebalances=0.3, disturbances=0.05)
        expected, refused = answers(*self.given, WGS84)
        assert self.refused() == sorted(place for place, _ in refused)
        return [str(each) for each in check(self.rows(), expected, 5)]


def test_a_process_may_die_before_any_of_several_puts(tmp_path: Path) -> None:
    whole = Dying(tmp_path / "whole", 1)
    assert whole.differences() == []
    tried = examples(10, whole.puts)
    assert whole.puts > 50
    for at in range(0, whole.puts, -(-whole.puts // tried)):
        dying = Dying(tmp_path / f"{at}", 1, at)
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
def test_what_a_checkpoint_that_failed_has_left_is_put_again_and_goes_with_the_others(at: int) -> None:
    left = [at]

    def fails(name: str) -> None:
        if left and left[0] == 0:
            left.clear()
            raise NoStorage("away")
        if left:
            left[0] -= 1

    storage = Remote()
    for turn in (0, 1, 2, 3):
        one = state(storage, turn, None if turn == 0 else turn - 1)
        one.end(Structure(turn))
        storage._step = fails if turn == 2 else lambda name: None
        one.checkpoint()
        if turn == 2:
            with pytest.raises(NoStorage):
                storage.await_puts()
            forget(storage)
            storage._begun.clear()
            assert names(storage) >= files(1), "turn 2 is done again from here"
            assert len(names(storage) & files(2)) == at
            one = state(storage, turn, turn - 1)
            one.end(Structure(turn))
            one.checkpoint()
        storage.await_puts()
        assert names(storage) == files(turn) | (files(turn - 1) if turn else set())
    assert state(storage, 4, 3).previous() == {"files": ["000000003-000-x.arrays", "000000003-001-y.arrays"]}


def test_which_files_there_are_is_asked_once() -> None:
    storage = Remote()
    storage.put("state/o/000000000-007-of-another-try.arrays", b"")
    for turn in range(6):
        one = state(storage, turn, None if turn == 0 else turn - 1)
        one.end(Structure(turn))
        one.checkpoint()
        storage.await_puts()
    asked = [each for each in storage.waited if each[0] != "put"]
    assert asked == []
    forget(storage)
    one = state(storage, 6, 5)
    one.end(Structure(6))
    one.checkpoint()
    storage.await_puts()
    assert [method for method, _ in storage.waited if method != "put"] == ["list", "get"]
    assert names(storage) == files(5) | files(6), "what others have left goes then"


def test_who_does_not_have_the_state_writes_nothing() -> None:
    storage = Remote()
    one = state(storage, 0)
    one.end(Structure(0))
    with pytest.raises(Lost, match="the state of o after turn 1 is in no memory any more"):
        state(storage, 1, 0).checkpoint()
    storage.await_puts()
    assert names(storage) == set()
