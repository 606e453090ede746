"""The stages as tasks of an engine: the parameters of a turn, and what is done with them in a :class:`World`.

A *task* is a method of one of these values, called with the world and an item. The values are plain, so a process that
has the world can receive a task as the names of class and method and the value as JSON (:data:`TASKS`).
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
from spatialstream.stages.corpus import write_tables
from spatialstream.stages.division import PartBlock, divided
from spatialstream.stages.ingest import Ingest, Part, files_of
from spatialstream.stages.merge import ask, merge, merge_second, merger_owner, merger_state, view
from spatialstream.stages.messages import Block
from spatialstream.stages.route import RouteFindings, admit, dead_letters, registry_owner, registry_state, route_epoch
from spatialstream.stages.rows import RowLimits
from spatialstream.stages.settling import save_radii
from spatialstream.stages.state import OwnerState, forget
from spatialstream.stages.turns import Epoch, Round
from spatialstream.stages.two_phase import Second
from spatialstream.stages.views import View, keep
from spatialstream.stages.views import forget as forget_views
from spatialstream.stages.work import BlockMessage, WorkSettings, slot_objects, slot_owner, slot_state, work

__all__ = ["TASKS", "EpochTasks", "IdleTasks", "InputTasks", "RoundTasks", "Routed", "SlotBlocks", "Summary", "World"]

SlotBlocks = tuple[int, int, int]
"""A slot, and the offsets of its blocks in its log, [start, end)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The environment of the tasks of a job, for as long as it runs.

    Attributes:
        storage: of the stream's state.
        channel: between router and worker.
        sink: of rows and dead letters.
        settings: of the slots; its space is the stream's.
        source: of the records; None if tasks read none.
        rule: term extraction.
        longest: maximum bytes of a record; longer ones are rejected.
        limits: maximum length of rows; None: unlimited.
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
    deferred: bool = False

    def read(self, world: World, part: Part) -> Iterator[str]:
        """INGEST of a part of the input: intakes as JSON."""
        assert world.source is not None
        given = world.storage, world.settings.space, world.rule, world.longest
        stage = Ingest(self.epoch, *given, self.floor, self.ceiling, self.attempt, self.deferred)
        return stage.part(world.source, part)


@dataclass(frozen=True, slots=True)
class Routed:
    """What the driver learns of ROUTE of a router partition.

    Attributes:
        ends: the end offset of each slot's log; each slot has got at least a marker.
        dropped: number of objects that no continuous query can match, and which were not sent.
    """

    ends: tuple[int, ...]
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class EpochTasks:
    """The tasks of an epoch, for each router partition.

    Attributes:
        epoch: the epoch.
        patience: maximum seconds to wait for a checkpoint.
    """

    epoch: Epoch
    patience: float = 0.0

    def _have(self, world: World, letters: tuple[str, ...] = ()) -> None:
        """Make sure that the runs of the epoch, and these dead letters, exist; those that were put late may be lost."""
        for run in self.epoch.runs:
            if run.origin is not None and any(find(world.storage, name) is None for name in files_of(run, letters)):
                assert world.source is not None
                given = world.storage, world.settings.space, world.rule, world.longest
                Ingest(self.epoch.number, *given).again(world.source, run)

    def route(self, world: World, partition: int) -> Iterator[str]:
        """ROUTE: runs to blocks; a :class:`Routed` as JSON. Partition 0 publishes dead letters too."""
        self._have(world, () if partition else self.epoch.letters)
        if partition == 0:
            quarantined = (each.letter for each in self.epoch.quarantined)
            letters = chain(quarantined, dead_letters(world.storage, self.epoch.letters))
            world.sink.rejected(self.epoch.number, "input", letters)
        found = RouteFindings()
        ends = world.channel.send(route_epoch(self.epoch, partition, world.storage, found))
        yield to_json(Routed(tuple(ends[slot] for slot in range(len(ends))), found.dropped))

    def tables(self, world: World, _: int) -> Iterator[str]:
        """Write the corpus tables of the epoch, whose partitions are all routed."""
        write_tables(self.epoch, world.storage)
        return iter(())

    def admit(self, world: World, partition: int) -> Iterator[str]:
        """ROUTE of an epoch whose blocks have been sent, only for the partition's state."""
        self._have(world)
        admit(self.epoch, partition, world.storage)
        return iter(())

    def checkpoint(self, world: World, partition: int) -> Iterator[str]:
        """Begin to checkpoint the registry as the epoch has left it; the progress, :class:`Written` as JSON."""
        yield to_json(registry_state(self.epoch, partition, world.storage).checkpoint())

    def written(self, world: World, partition: int) -> Iterator[str]:
        """The progress of that checkpoint now."""
        yield to_json(registry_state(self.epoch, partition, world.storage).written(self.patience))

    def narrow(self, world: World, partition: int) -> Iterator[str]:
        """Find the records on which ROUTE fails."""
        self._have(world)
        return map(to_json, bisect_route(self.epoch, partition, world.storage))


@dataclass(frozen=True, slots=True)
class Summary:
    """What the driver learns of a round; each part of MERGE reports its own.

    Attributes:
        lines: number of rows published, without those of second phases, which are jobs of their own.
        rejected: number of queries that were not admitted.
        counts: number of rows by query type, ``rejected`` and ``repeated``; of the round in MERGE's report, of the
            stream up to and with the round in the driver's.
        loads: load statistics of each slot.
        second: the slots that take part in a second phase that is still to come.
        foreign: number of messages among the blocks that are no blocks.
        radii: the parts of MERGE that have written a file of radii, see :mod:`~spatialstream.stages.settling`.
    """

    lines: int
    rejected: int
    counts: dict[str, int] = field(default_factory=dict)
    loads: dict[int, dict[str, Any]] = field(default_factory=dict)
    second: tuple[int, ...] = ()
    foreign: int = 0
    radii: tuple[int, ...] = ()

    @classmethod
    def of_parts(cls, parts: Sequence[Summary]) -> Summary:
        """The combined report of the parts of MERGE."""
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
            tuple(sorted(each for part in parts for each in part.radii)),
        )


@dataclass(frozen=True, slots=True)
class RoundTasks:
    """The tasks of a round, for each slot, and for each part of MERGE.

    Every actor gets all of this for each part of MERGE, so nothing here may grow with the number of slots.

    Attributes:
        turn: the round.
        asking: the parts of MERGE with queries that need a second phase.
        near: whether all tasks are executed on one machine.
        patience: maximum seconds to wait for a checkpoint.
    """

    turn: Round
    asking: tuple[int, ...] = ()
    near: bool = False
    patience: float = 0.0

    def _blocks(self, world: World, of: SlotBlocks) -> Iterator[BlockMessage]:
        slot, start, end = of
        if self.turn.number == 0:
            # before it there may be blocks of an earlier incarnation, which may be removed at any time; markers show
            # that all blocks of this incarnation are there
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
        radii = (part,) if len(results.radii[0]) else ()
        if radii:
            save_radii(world.storage, (number, self.turn.revision), part, results.radii)
        summary = Summary(lines, len(results.rejected), results.counts, results.loads, slots, results.foreign, radii)
        yield to_json(summary)

    def ask(self, world: World, slot: int) -> Iterator[PartBlock]:
        """A slot's part in the second phase."""
        for part in self.asking:
            known = Second.load(world.storage, self.turn, part)
            yield from ((part, row) for row in ask(slot, known, self.turn, world.storage))

    def merge_answers(self, world: World, part: int, rows: Iterable[Block]) -> Iterator[str]:
        """MERGE of the second phase; returns the number of its rows."""
        known = Second.load(world.storage, self.turn, part)
        lines = merge_second([*known, *rows], world.settings.space, world.limits)
        yield str(world.sink.rows(self.turn.number, 1, lines, part))

    def checkpoint(self, world: World, slot: int) -> Iterator[str]:
        """Begin to checkpoint a slot, or under ``~part`` a part of MERGE, as the round has left it; the progress."""
        yield to_json(self._state(world, slot).checkpoint())

    def written(self, world: World, slot: int) -> Iterator[str]:
        """The progress of that checkpoint now."""
        yield to_json(self._state(world, slot).written(self.patience))

    def _state(self, world: World, slot: int) -> OwnerState:
        if slot < 0:
            return merger_state(~slot, self.turn, world.storage)
        return slot_state(slot, self.turn, world.storage)

    def recall(self, world: World, slot: int) -> Iterator[str]:
        """Add a slot's view of this round, which is done, for queries; under ``~part`` that of a part of MERGE."""
        if slot < 0:
            listing = view(~slot, self.turn, world.settings.space, world.storage)
            keep(world.storage.place, slot, listing)
            return iter(())
        objects = slot_objects(slot, self.turn, world.storage)
        keep(world.storage.place, slot, View.of(objects, self.turn, world.settings.retention))
        return iter(())

    def bisect_work(self, world: World, of: SlotBlocks) -> Iterator[str]:
        """Find the records on which WORK fails."""
        given = list(self._blocks(world, of)), self.turn, world.settings, world.storage
        return map(to_json, bisect_work(of[0], *given))

    def bisect_merge(self, world: World, part: int, rows: Iterable[Block]) -> Iterator[str]:
        """Find the records on which MERGE fails."""
        given = list(rows), self.turn, world.settings, world.storage, world.limits
        return map(to_json, bisect_merge(*given, part))

    def bisect_ask(self, world: World, slot: int) -> Iterator[str]:
        """Find the queries on which a slot fails in a second phase."""
        return (to_json(left) for part in self.asking for left in bisect_ask(slot, self.turn, world.storage, part))

    def bisect_answers(self, world: World, part: int, rows: Iterable[Block]) -> Iterator[str]:
        """Find the queries on which MERGE fails in a second phase."""
        given = list(rows), self.turn, world.settings, world.storage, world.limits
        return map(to_json, bisect_answers(*given, part))


@dataclass(frozen=True, slots=True)
class IdleTasks:
    """The operations of turns without records, so that processes have loaded all kernels and are connected in advance.

    Existing messages are read once more, and nothing is sent.
    """

    def read(self, world: World, part: Part) -> Iterator[str]:
        """Like INGEST and ROUTE."""
        assert world.source is not None
        deque(world.source.read(*part), 0)
        world.channel.send(())
        world.sink.rejected(0, "input", ())
        return iter(())

    def take(self, world: World, of: SlotBlocks) -> Iterator[PartBlock]:
        """Like WORK."""
        deque(world.channel.blocks(*of), 0)
        return iter(())

    def forget(self, world: World, item: int) -> Iterator[str]:
        """Drop what this process holds of a slot and partition, or under ``~part`` of a part of MERGE."""
        for owner in (slot_owner(item), registry_owner(item)) if item >= 0 else (merger_owner(~item),):
            forget(world.storage, owner)
        forget_views(world.storage.place, item)
        return iter(())

    def publish(self, world: World, part: int, rows: Iterable[Block]) -> Iterator[str]:
        """Like MERGE."""
        deque(rows, 0)
        world.sink.rejected(0, "round", ())
        return iter(())


TASKS: Mapping[str, type] = {kind.__name__: kind for kind in (InputTasks, EpochTasks, RoundTasks, IdleTasks)}
"""The classes whose methods are tasks, by name."""
