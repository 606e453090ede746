"""The stages as an engine does them: what a turn is told, and what is done with it in a :class:`World`.

A *task* is a method of one of these values, which takes the world and an item. The values are plain, so that a process
that has the world can be told a task by the names of class and method and the value as JSON (:data:`TASKS`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from spatialstream.connectors.contracts import Channel, Sink, Source, Storage, find
from spatialstream.model.jsonable import to_json
from spatialstream.model.terms import TermRule
from spatialstream.stages.bisection import bisect_answers, bisect_ask, bisect_merge, bisect_route, bisect_work
from spatialstream.stages.division import PartBlock, divided
from spatialstream.stages.ingest import Ingest, Part, files_of
from spatialstream.stages.merge import ask, merge, merge_second, merger_owner, merger_state, view
from spatialstream.stages.messages import Block
from spatialstream.stages.route import admit, dead_letters, registry_owner, registry_state, route_epoch
from spatialstream.stages.rows import RowLimits
from spatialstream.stages.state import OwnerState, forget
from spatialstream.stages.turns import Epoch, Round
from spatialstream.stages.two_phase import Second
from spatialstream.stages.views import View, keep
from spatialstream.stages.views import forget as forget_views
from spatialstream.stages.work import BlockMessage, WorkSettings, slot_objects, slot_owner, slot_state, work

__all__ = ["TASKS", "EpochTasks", "IdleTasks", "InputTasks", "RoundTasks", "SlotBlocks", "Summary", "World"]

SlotBlocks = tuple[int, int, int]
"""A slot, and the offsets of its blocks in its log, [start, end)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What the tasks of a job have to do with, for as long as it runs.

    Attributes:
        storage: of the stream's state.
        channel: between router and worker.
        sink: of rows and dead letters.
        settings: of the slots; its space is the stream's.
        source: of the records; None where tasks read none.
        rule: which terms count.
        longest: bytes of a record beyond which it is rejected.
        limits: how long rows may be; None: any length.
    """

    storage: Storage
    channel: Channel
    sink: Sink
    settings: WorkSettings
    source: Source | None = None
    rule: TermRule = field(default_factory=TermRule)
    longest: int = 1 << 20
    limits: RowLimits | None = None


@dataclass(frozen=True, slots=True)
class InputTasks:
    """INGEST for an epoch; the attributes are those of :class:`~spatialstream.stages.ingest.Ingest`."""

    epoch: int
    floor: int | None
    ceiling: int | None
    attempt: str
    late: bool = False

    def read(self, world: World, part: Part) -> Iterator[str]:
        """INGEST of a part of what has come: intakes as JSON."""
        assert world.source is not None
        given = world.storage, world.settings.space, world.rule, world.longest
        stage = Ingest(self.epoch, *given, self.floor, self.ceiling, self.attempt, self.late)
        return stage.part(world.source, part)


@dataclass(frozen=True, slots=True)
class EpochTasks:
    """What is done in an epoch, for each router partition.

    Attributes:
        epoch: the epoch.
        patience: seconds to wait for what is being written, at most.
    """

    epoch: Epoch
    patience: float = 0.0

    def _have(self, world: World, letters: tuple[str, ...] = ()) -> None:
        """Have the runs of the epoch, and these dead letters; those that were put late may be lost."""
        for run in self.epoch.runs:
            if run.origin is not None and any(find(world.storage, name) is None for name in files_of(run, letters)):
                assert world.source is not None
                given = world.storage, world.settings.space, world.rule, world.longest
                Ingest(self.epoch.number, *given).again(world.source, run)

    def route(self, world: World, partition: int) -> Iterator[str]:
        """ROUTE: runs to blocks; where those of each slot end, as JSON. Partition 0 publishes dead letters too."""
        self._have(world, () if partition else self.epoch.letters)
        if partition == 0:
            left = (left.letter for left in self.epoch.left)
            letters = chain(left, dead_letters(world.storage, self.epoch.letters))
            world.sink.rejected(self.epoch.number, "input", letters)
        ends = world.channel.send(route_epoch(self.epoch, partition, world.storage))
        yield to_json([ends[slot] for slot in range(len(ends))])  # each has a marker at least

    def admit(self, world: World, partition: int) -> Iterator[str]:
        """ROUTE of an epoch that is known to be out, for the registry's state."""
        self._have(world)
        admit(self.epoch, partition, world.storage)
        return iter(())

    def checkpoint(self, world: World, partition: int) -> Iterator[str]:
        """Begin to write down the registry as the epoch has left it; how far that is, :class:`Written` as JSON."""
        yield to_json(registry_state(self.epoch, partition, world.storage).checkpoint())

    def written(self, world: World, partition: int) -> Iterator[str]:
        """How far that is now."""
        yield to_json(registry_state(self.epoch, partition, world.storage).written(self.patience))

    def narrow(self, world: World, partition: int) -> Iterator[str]:
        """What ROUTE fails on."""
        self._have(world)
        return map(to_json, bisect_route(self.epoch, partition, world.storage))


@dataclass(frozen=True, slots=True)
class Summary:
    """What the driver learns of a round; a part of MERGE says what it knows of it.

    Attributes:
        lines: rows published, those of second phases that are jobs of their own not counted.
        rejected: queries that were not admitted.
        counts: the rows by query type, ``rejected`` and ``repeated``; of the round as MERGE says it, of the stream up
            to and with the round as the driver does.
        loads: load statistics of each slot.
        second: the slots that take part in a second phase that is still to come.
        foreign: messages among the blocks that are none.
    """

    lines: int
    rejected: int
    counts: dict[str, int] = field(default_factory=dict)
    loads: dict[int, dict[str, Any]] = field(default_factory=dict)
    second: tuple[int, ...] = ()
    foreign: int = 0

    @classmethod
    def of_parts(cls, parts: Sequence[Summary]) -> Summary:
        """What the parts of MERGE say together."""
        counts: dict[str, int] = {}
        for part in parts:
            counts |= {kind: counts.get(kind, 0) + rows for kind, rows in part.counts.items()}
        return cls(
            sum(part.lines for part in parts),
            sum(part.rejected for part in parts),
            counts,
            {slot: load for part in parts for slot, load in part.loads.items()},
            tuple(sorted({slot for part in parts for slot in part.second})),
            sum(part.foreign for part in parts),
        )


@dataclass(frozen=True, slots=True)
class RoundTasks:
    """What is done in a round, for each slot, and for each part of MERGE of what that gives.

    Every actor is told all of this for each part of MERGE, so nothing here may be as long as there are slots.

    Attributes:
        turn: the round.
        asking: the parts of MERGE of which queries need a second phase.
        near: whether all tasks are done on one machine.
        patience: seconds to wait for what is being written, at most.
    """

    turn: Round
    asking: tuple[int, ...] = ()
    near: bool = False
    patience: float = 0.0

    def _blocks(self, world: World, of: SlotBlocks) -> Iterator[BlockMessage]:
        slot, start, end = of
        if self.turn.number == 0:
            # before it there may be blocks of an earlier incarnation, which may be removed at any time; that all of
            # this incarnation are there is seen by their markers
            start = max(start, world.channel.begins()[slot])
        return world.channel.blocks(slot, start, end)

    def work(self, world: World, of: SlotBlocks) -> Iterator[PartBlock]:
        """WORK: a slot's blocks to partials."""
        partials = work(of[0], self._blocks(world, of), self.turn, world.settings, world.storage)
        return divided(partials, world.settings.mergers)

    def merge(self, world: World, part: int, rows: Iterable[Block]) -> Iterator[str]:
        """MERGE: a part's partials of all slots to rows and dead letters; its :class:`Summary` as JSON."""
        number = self.turn.number
        results = merge(rows, self.turn, world.settings.space, world.storage, world.limits, part)
        if self.turn.known:
            yield to_json(Summary(0, 0))
            return
        slots = tuple[int, ...]()
        if results.second is not None:
            results.second.save(world.storage, self.turn, part, near=self.near)
            slots = results.second.slots
        lines = world.sink.rows(number, 0, results.lines, part)
        world.sink.rejected(number, "round", results.rejected)
        summary = Summary(lines, len(results.rejected), results.counts, results.loads, slots, results.foreign)
        yield to_json(summary)

    def ask(self, world: World, slot: int) -> Iterator[PartBlock]:
        """A slot's part in the second phase."""
        for part in self.asking:
            known = Second.load(world.storage, self.turn, part)
            yield from ((part, row) for row in ask(slot, known, self.turn, world.storage))

    def merge_answers(self, world: World, part: int, rows: Iterable[Block]) -> Iterator[str]:
        """MERGE of the second phase; how many rows it has given."""
        known = Second.load(world.storage, self.turn, part)
        lines = merge_second([*known, *rows], world.settings.space, world.limits)
        yield str(world.sink.rows(self.turn.number, 1, lines, part))

    def checkpoint(self, world: World, slot: int) -> Iterator[str]:
        """Begin to write down a slot as the round has left it, under ``~part`` a part of MERGE; how far that is."""
        yield to_json(self._state(world, slot).checkpoint())

    def written(self, world: World, slot: int) -> Iterator[str]:
        """How far that is now."""
        yield to_json(self._state(world, slot).written(self.patience))

    def _state(self, world: World, slot: int) -> OwnerState:
        if slot < 0:
            return merger_state(~slot, self.turn, world.storage)
        return slot_state(slot, self.turn, world.storage)

    def recall(self, world: World, slot: int) -> Iterator[str]:
        """Have a slot's view as of this round, which is done, to be asked; under ``~part`` that of a part of MERGE."""
        if slot < 0:
            listing = view(~slot, self.turn, world.settings.space, world.storage)
            keep(world.storage.place, slot, listing)
            return iter(())
        objects = slot_objects(slot, self.turn, world.storage)
        keep(world.storage.place, slot, View.of(objects, self.turn, world.settings.retention))
        return iter(())

    def bisect_work(self, world: World, of: SlotBlocks) -> Iterator[str]:
        """What WORK fails on."""
        given = list(self._blocks(world, of)), self.turn, world.settings, world.storage
        return map(to_json, bisect_work(of[0], *given))

    def bisect_merge(self, world: World, part: int, rows: Iterable[Block]) -> Iterator[str]:
        """What MERGE fails on."""
        given = list(rows), self.turn, world.settings, world.storage, world.limits
        return map(to_json, bisect_merge(*given, part))

    def bisect_ask(self, world: World, slot: int) -> Iterator[str]:
        """What a slot fails on in a second phase."""
        return (to_json(left) for part in self.asking for left in bisect_ask(slot, self.turn, world.storage, part))

    def bisect_answers(self, world: World, part: int, rows: Iterable[Block]) -> Iterator[str]:
        """What MERGE fails on in a second phase."""
        given = list(rows), self.turn, world.settings, world.storage, world.limits
        return map(to_json, bisect_answers(*given, part))


@dataclass(frozen=True, slots=True)
class IdleTasks:
    """What turns do, without a record, so that processes have all kernels, and are connected, when the first one comes.

    What is there already is read once more, and nothing is sent.
    """

    def read(self, world: World, part: Part) -> Iterator[str]:
        """As INGEST and ROUTE."""
        assert world.source is not None
        deque(world.source.read(*part), 0)
        world.channel.send(())
        world.sink.rejected(0, "input", ())
        return iter(())

    def take(self, world: World, of: SlotBlocks) -> Iterator[PartBlock]:
        """As WORK."""
        deque(world.channel.blocks(*of), 0)
        return iter(())

    def forget(self, world: World, item: int) -> Iterator[str]:
        """Let go of what this process holds of a slot and partition, or under ``~part`` of a part of MERGE."""
        for owner in (slot_owner(item), registry_owner(item)) if item >= 0 else (merger_owner(~item),):
            forget(world.storage, owner)
        forget_views(world.storage.place, item)
        return iter(())

    def publish(self, world: World, part: int, rows: Iterable[Block]) -> Iterator[str]:
        """As MERGE."""
        deque(rows, 0)
        world.sink.rejected(0, "round", ())
        return iter(())


TASKS: Mapping[str, type] = {kind.__name__: kind for kind in (InputTasks, EpochTasks, RoundTasks, IdleTasks)}
"""Whose methods are tasks."""
