"""The stages as an engine does them: over what a turn is told, between channel, sink and storage.

Methods of these values are pickled into the engine's processes; nothing else of the project is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import pyarrow as pa

from spatialstream.model.jsonable import to_json
from spatialstream.sources.contracts import Channel, Sink, Storage
from spatialstream.stages.merge import ask, ask_at_once, merge, merge_second
from spatialstream.stages.narrowing import narrow_merge, narrow_route, narrow_work
from spatialstream.stages.route import Row, dead_letters, route_epoch
from spatialstream.stages.rows import RowLimits
from spatialstream.stages.turns import Epoch, Round
from spatialstream.stages.two_phase import FEW, Second
from spatialstream.stages.work import Block, WorkSettings, work

__all__ = ["EpochTasks", "RoundTasks", "Summary"]


@dataclass(frozen=True, slots=True)
class EpochTasks:
    """What is done in an epoch, for each router partition.

    Attributes:
        epoch: the epoch.
        channel: where blocks go.
        sink: where the dead letters of the input go.
        storage: of the stream's state.
    """

    epoch: Epoch
    channel: Channel
    sink: Sink
    storage: Storage

    def route(self, partition: int) -> Iterator[str]:
        """ROUTE: runs to blocks. Partition 0 publishes dead letters too."""
        if partition == 0:
            left = (left.letter for left in self.epoch.left)
            letters = chain(left, dead_letters(self.storage, self.epoch.letters))
            self.sink.rejected(self.epoch.number, "input", letters)
        self.channel.send(route_epoch(self.epoch, partition, self.storage))
        return iter(())

    def narrow(self, partition: int) -> Iterator[str]:
        """What ROUTE fails on."""
        return map(to_json, narrow_route(self.epoch, partition, self.storage))


@dataclass(frozen=True, slots=True)
class Summary:
    """What the driver learns of a round.

    Attributes:
        lines: rows published, those of second phases that are jobs of their own not counted.
        rejected: queries that were not admitted.
        counts: the stream's rows by query type up to and with the round.
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


@dataclass(frozen=True, slots=True)
class RoundTasks:
    """What is done in a round, for each slot, and in one place of what that gives.

    Attributes:
        turn: the round.
        starts, ends: offsets of its blocks in each slot's log, [start, end).
        settings: of the slots.
        channel: where blocks come from.
        sink: where rows and dead letters go.
        storage: of the stream's state.
        limits: how long rows may be; None: any length.
        few: questions of a second phase up to which MERGE asks them itself.
    """

    turn: Round
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    settings: WorkSettings
    channel: Channel
    sink: Sink
    storage: Storage
    limits: RowLimits | None = None
    few: int = FEW

    def _blocks(self, slot: int) -> Iterator[Block]:
        start = self.starts[slot]
        if self.turn.number == 0:
            # before it there may be blocks of an earlier life, which may be removed at any time; that all of this life
            # are there is seen by their markers
            start = max(start, self.channel.begins()[slot])
        return self.channel.blocks(slot, start, self.ends[slot])

    def work(self, slot: int) -> Iterator[Row]:
        """WORK: a slot's blocks to partials."""
        return work(slot, self._blocks(slot), self.turn, self.settings, self.storage)

    def merge(self, rows: Iterable[Row]) -> Iterator[str]:
        """MERGE: partials of all slots to rows and dead letters; the round's :class:`Summary` as JSON."""
        number = self.turn.number
        results = merge(rows, self.turn, self.settings.space, self.storage, self.limits)
        second, slots = results.second, tuple[int, ...]()
        later: Iterable[pa.LargeStringArray] = ()
        if second is not None and second.questions > self.few:
            second.save(self.storage, number)
            slots = second.slots
        elif second is not None:  # before a row is sent: if this fails, other rows may get the same keys
            later = ask_at_once(second, self.turn, self.settings, self.storage, self.limits)
        lines = self.sink.rows(number, 0, results.lines)
        self.sink.rejected(number, "round", results.rejected)
        lines += self.sink.rows(number, 1, later)
        summary = Summary(lines, len(results.rejected), results.counts, results.loads, slots, results.foreign)
        yield to_json(summary)

    def ask(self, slot: int) -> Iterator[Row]:
        """A slot's part in the second phase."""
        return ask(slot, Second.load(self.storage, self.turn.number), self.turn, self.settings, self.storage)

    def merge_answers(self, rows: Iterable[Row]) -> Iterator[str]:
        """MERGE of the second phase; how many rows it has given."""
        known = Second.load(self.storage, self.turn.number)
        lines = merge_second([*known, *rows], self.settings.space, self.limits)
        yield str(self.sink.rows(self.turn.number, 1, lines))

    def narrow_work(self, slot: int) -> Iterator[str]:
        """What WORK fails on."""
        return map(to_json, narrow_work(slot, list(self._blocks(slot)), self.turn, self.settings, self.storage))

    def narrow_merge(self, rows: Iterable[Row]) -> Iterator[str]:
        """What MERGE fails on, or a second phase."""
        return map(to_json, narrow_merge(list(rows), self.turn, self.settings, self.storage, self.limits))
