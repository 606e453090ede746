"""The sequence of steps of a turn: decisions by router and worker, work by the stages, independent of the environment.

A crash may come between any two steps, and within each. The record of a turn fixes everything, so all that is done by
it may be done again, with the same outcome. Before the record is written, nothing depends on what has come in.

An epoch: INGEST of new records; its record; ROUTE, which writes blocks into the channel and dead letters into the sink;
the corpus tables that it passes, if the stream counts words; its announcement, which tells the worker that all its
blocks are there. A round: the record of what was announced; WORK for all slots, then MERGE, which writes rows into the
sink; a second phase, if many SKQs need one (:mod:`~spatialstream.stages.two_phase`).

State is in the memory of the processes that execute the stages, and in checkpoints. If any of it is lost, all owners go
back: the turns since the last checkpoint are replayed from their records, only for the state that they leave.

A checkpoint begins when a turn's output is complete. If it takes long to write, the following turns do not wait for it
(``beside``): it counts from the first turn that is decided after it is known to be complete. Turns wait for it only
if items are to move to other processes, which read it; and after a replay, so that a job makes progress even if it
crashes more often than a checkpoint takes.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from spatialstream.connectors.contracts import Ranges, find
from spatialstream.model.errors import Lost, StateError
from spatialstream.model.jsonable import from_json
from spatialstream.stages.corpus import is_passed
from spatialstream.stages.ingest import Ingest, Intake
from spatialstream.stages.quarantine import QuarantinedRecord
from spatialstream.stages.state import Written
from spatialstream.stages.tasks import EpochTasks, InputTasks, RoundTasks, Routed, SlotBlocks, Summary
from spatialstream.stages.turns import Round
from spatialstream.stages.two_phase import second_name
from spatialstream.stream.engine import Engine, Task
from spatialstream.stream.leadership import Leader
from spatialstream.stream.router import EpochRecord, Router
from spatialstream.stream.worker import Checkpoint, RoundRecord, Worker

__all__ = ["Ingestion", "RouterTurns", "WorkerTurns", "news"]

Ingestion = Callable[[Ingest], Sequence[Intake]]
"""Decodes new records into runs."""

_WAIT_SECONDS = 10.0
"""Maximum wait for a checkpoint that could be written concurrently with turns."""
_ASK_SECONDS = 0.5
"""Maximum wait of one request for the progress of a checkpoint."""


def _known(ask: Callable[[float], Iterable[str]], answers: Iterable[str], patience: float) -> Written:
    """The progress of a checkpoint by the time the next turn may begin.

    Args:
        ask: asks all owners for their progress, and lets them wait a number of seconds for completion.
        answers: the owners' answers when it began.
        patience: maximum seconds to wait for completion.
    """
    written = _of_all(answers)
    until = time.monotonic() + patience
    while not (written.there or written.lost) and (left := until - time.monotonic()) > 0:
        written = _of_all(ask(min(left, _ASK_SECONDS)))
    return written


def _patience(engine: Engine, *, beside: bool, again: bool) -> float:
    """Maximum seconds to wait for a checkpoint that an engine writes."""
    if not beside:
        return math.inf
    return _WAIT_SECONDS if again or engine.would_move else 0.0


def _of_all(answers: Iterable[str]) -> Written:
    return Written.of_all(from_json(Written, line) for line in answers)


# ------------------------------------------------------------------------------------------------------------- epochs


@dataclass(slots=True)
class RouterTurns:
    """The router's turns: epochs.

    Attributes:
        router: decides.
        engine: executes the stages.
        step: called before each step, with its name; tests stop a turn there.
        beside: whether turns continue while a checkpoint is being written.
        on_checkpoint: called with the progress of a checkpoint, whenever it is checked.
        dropped: number of objects of the last epoch that no continuous query could match, and which were not sent.
    """

    router: Router
    engine: Engine
    step: Callable[[str], None] = lambda name: None
    beside: bool = False
    on_checkpoint: Callable[[Written], object] = lambda written: None
    dropped: int = 0
    _again: bool = field(default=False)

    def epoch(self, ingestion: Ingestion) -> EpochRecord:
        """Do the next epoch, or redo the last one if it is not known to be done; redoing ingests nothing."""
        router, engine = self.router, self.engine
        self.poll_checkpoint()
        record = router.unfinished
        if record is None:
            self.step("ingest")
            # a task of a failed try may still be running, on other messages than this one
            intakes = ingestion(router.ingest(uuid.uuid4().hex[:8]))
            self.step("decide")
            record = router.decide(intakes)
        self.dropped = 0
        if not record.silent:
            self.step("route")
            try:
                ends = self._route(record)
            except Lost:
                self.go_back(record)
                self.step("route")
                ends = self._route(record)
            self.step("announce")
            engine.world.channel.announce({**router.announcement(record), "ends": ends})
        written = None
        if record.epoch.checkpoint:
            self.step("checkpoint")
            written = self._checkpoint(record)
        self.step("finish")
        router.done(record)
        if written is not None:
            self._note(record, written)
        return record

    def _route(self, record: EpochRecord) -> list[int]:
        """ROUTE; returns the end offset of the epoch's blocks in each slot's log."""
        tasks = EpochTasks(record.epoch)
        lines = self.engine.map(tasks.route, range(record.epoch.partitions))
        routed = [from_json(Routed, line) for line in lines]
        if is_passed(record.epoch):
            self.step("tables")
            self.engine.map(tasks.tables, [0], anywhere=True)
        self.dropped = sum(part.dropped for part in routed)
        return [max(of_slot) for of_slot in zip(*(part.ends for part in routed), strict=True)]

    def _checkpoint(self, record: EpochRecord) -> Written:
        """Have the registries checkpointed after the epoch's output; the progress when the next epoch may begin."""
        tasks, partitions = EpochTasks(record.epoch), range(record.epoch.partitions)
        try:
            answers = self.engine.map(tasks.checkpoint, partitions)
        except Lost:
            self.go_back(record)
            self.engine.map(tasks.admit, partitions)
            answers = self.engine.map(tasks.checkpoint, partitions)
        patience = _patience(self.engine, beside=self.beside, again=self._again)
        return _known(lambda seconds: self._ask(record, seconds), answers, patience)

    def _ask(self, record: EpochRecord, patience: float = 0.0) -> list[str]:
        """The progress of an epoch's checkpoint, after waiting at most ``patience`` s for its completion."""
        tasks = EpochTasks(record.epoch, patience)
        return self.engine.map(tasks.written, range(record.epoch.partitions))

    def _note(self, record: EpochRecord, written: Written) -> None:
        """Tell the router the progress of a checkpoint; once complete, let items move that can be read from it."""
        if written.there:
            self._again = False
            self.router.written(record)
            if self.router.settled:
                self.engine.settled()
        elif written.lost:
            self.router.not_written()
        self.on_checkpoint(written)

    def poll_checkpoint(self) -> None:
        """Check the progress of the checkpoint that is being written, if any."""
        if (record := self.router.writing) is not None:
            self._note(record, _of_all(self._ask(record)))

    def go_back(self, record: EpochRecord) -> None:
        """Rebuild the registries as the epochs before this one have left them."""
        for each in self.router.since_checkpoint(record):
            self._again = True
            self.step("again")
            self.engine.map(EpochTasks(each.epoch).admit, range(each.epoch.partitions))

    def ingestion(self, ranges: Ranges) -> Ingestion:
        """INGEST of ranges of the source."""
        parts = [(partition, start, end) for partition, (start, end) in ranges.items()]
        # a deferred put is visible only on the machine of its process until it is complete
        deferred = self.engine.world.storage.is_far and self.engine.is_near

        def ingest(stage: Ingest) -> Sequence[Intake]:
            tasks = InputTasks(stage.epoch, stage.floor, stage.ceiling, stage.attempt, deferred)
            return [from_json(Intake, line) for line in self.engine.map(tasks.read, parts, anywhere=True)]

        return ingest

    def quarantine(self) -> Sequence[QuarantinedRecord]:
        """Quarantine the records that make the routing of the unfinished epoch fail; returns them."""
        record = self.router.unfinished
        if record is None:
            return ()
        self.go_back(record)
        self.step("narrow")
        lines = self.engine.map(EpochTasks(record.epoch).narrow, range(record.epoch.partitions))
        if found := [from_json(QuarantinedRecord, line) for line in lines]:
            self.router.quarantine(found)
        return found


def news(bounds: Ranges, read: Mapping[str, int], most: int) -> dict[str, tuple[int, int]]:
    """Ranges of the messages that have not been read yet, of at most ``most`` messages in all.

    Each partition that has anything contributes one message, and its proportional share of the rest.

    Raises:
        StateError: a partition ends before the offset up to which it has been read.
    """
    spans = dict[str, tuple[int, int]]()
    for name, (first, end) in bounds.items():
        start = read.get(name, first)
        if end < start:
            raise StateError(
                f"{name} ends at offset {end}, but has been read up to {start}: it does not belong to the source of "
                "this checkpoint"
            )
        if start < end:
            spans[name] = start, end
    others = sum(end - start - 1 for start, end in spans.values())
    room = max(0, most - len(spans))
    if others <= room:
        return spans
    return {name: (start, start + 1 + (end - start - 1) * room // others) for name, (start, end) in spans.items()}


# ------------------------------------------------------------------------------------------------------------- rounds


@dataclass(slots=True)
class WorkerTurns:
    """The worker's turns: rounds.

    Attributes:
        worker: decides.
        engine: executes the stages.
        slots: number of slots.
        step: called before each step, with its name; tests stop a turn there.
        beside: whether turns continue while a checkpoint is being written.
        on_checkpoint: called with the progress of a checkpoint, whenever it is checked.
        foreign: number of messages in the log that were no announcements, since the caller last set it to 0.
    """

    worker: Worker
    engine: Engine
    slots: int
    step: Callable[[str], None] = lambda name: None
    beside: bool = False
    on_checkpoint: Callable[[Written], object] = lambda written: None
    foreign: int = 0
    _heard: tuple[int, Leader] | None = field(default=None)
    _again: bool = field(default=False)
    _released: Checkpoint | None = field(default=None)

    def next(self, most: int = 1, patience: float = 0.0) -> RoundRecord | None:
        """The next round, or the last one if it is not known to be done; None if nothing was announced.

        Args:
            most: maximum epochs of the round.
            patience: seconds to wait for an announcement.
        """
        worker, channel = self.worker, self.engine.world.channel
        if worker.unfinished:
            return worker.unfinished
        self.poll_checkpoint()
        after, router = (worker.announced, worker.router) if self._heard is None else self._heard
        try:
            announced, offset = channel.announced(after, most, patience)
        except StateError:
            if after is None:
                raise
            # the log may have a limited retention, in which nothing has happened; if not, the next announcement shows
            router = router.after_gap()
            announced, offset = channel.announced(None, most, patience)
        known = [each for each in announced if each is not None]
        self.foreign += len(announced) - len(known)
        router, announcements = router.read(known, offset)
        self._heard = offset, router
        self.step("decide")
        return worker.decide(announcements, offset, router, channel.begins)

    def do(self, record: RoundRecord) -> Summary:
        """Do a round, for the first time or again."""
        self.step("work")
        try:
            summary = self._do(record)
        except Lost:
            self.go_back(record)
            self.step("work")
            summary = self._do(record)
        written = None
        if record.round.checkpoint:
            self.step("checkpoint")
            written = self._checkpoint(record)
        self.step("finish")
        counts = self.worker.done(record, summary.counts, summary.radii)
        if record.since is not None and record.since != self._released:
            self.engine.world.channel.release(record.since.ends)
            self._released = record.since
        if written is not None:
            self._note(record, written)
        self.step("confirm")
        self.worker.confirm()
        return replace(summary, counts=counts)

    def _do(self, record: RoundRecord) -> Summary:
        engine, tasks = self.engine, replace(_tasks(record), near=self.engine.is_near)
        answers = engine.gather(tasks.work, _blocks(record), tasks.merge, self._parts)
        parts = [from_json(Summary, line) for line in answers]
        summary = Summary.of_parts(parts)
        if summary.second:
            self.step("second")
            tasks = replace(tasks, asking=tuple(part for part, said in enumerate(parts) if said.second))
            engine.gather(tasks.ask, summary.second, tasks.merge_answers, tasks.asking)
        return summary

    def _checkpoint(self, record: RoundRecord) -> Written:
        """Have all state checkpointed after the round's output; the progress when the next round may begin."""
        answers = self._of_state(record, _tasks(record).checkpoint)
        patience = _patience(self.engine, beside=self.beside, again=self._again)
        return _known(lambda seconds: self._ask(record, seconds), answers, patience)

    def _ask(self, record: RoundRecord, patience: float = 0.0) -> list[str]:
        """The progress of a round's checkpoint, after waiting at most ``patience`` s for its completion."""
        return self.engine.map(replace(_tasks(record), patience=patience).written, self._owners)

    def _note(self, record: RoundRecord, written: Written) -> None:
        """Tell the worker the progress of a checkpoint; once complete, let items move that can be read from it."""
        if written.there:
            self._again = False
            self.worker.written(record)
            if self.worker.settled:
                self.engine.settled()
        elif written.lost:
            self.worker.not_written()
        self.on_checkpoint(written)

    def poll_checkpoint(self) -> None:
        """Check the progress of the checkpoint that is being written, if any."""
        if (record := self.worker.writing) is not None:
            self._note(record, _of_all(self._ask(record)))

    @property
    def _owners(self) -> range:
        """The slots, and ``~part`` for each part of MERGE."""
        return range(-len(self._parts), self.slots)

    @property
    def _parts(self) -> range:
        """The parts of MERGE."""
        return range(self.engine.world.settings.mergers)

    def go_back(self, record: RoundRecord) -> None:
        """Rebuild slots and parts of MERGE as the rounds before this one have left them."""
        for each in self.worker.since_checkpoint(record):
            self._again = True
            self.step("again")
            self._do(each)

    def recall(self) -> Round | None:
        """Have the views of the last round, which is done, made ready for queries; returns the round."""
        record = self.worker.last
        if record is None or self.worker.unfinished:
            return None
        turn = record.round if self.worker.has_checkpoint(record) else replace(record.round, checkpoint=False)
        self._of_state(record, RoundTasks(turn).recall)
        return record.round

    def _of_state(self, record: RoundRecord, do: Task[int]) -> list[str]:
        """Call a task for the state of each slot and part after a round; if any has lost it, it is rebuilt first."""
        try:
            return self.engine.map(do, self._owners)
        except Lost:
            self.go_back(record)
            self._do(replace(record, round=replace(record.round, known=True)))
            return self.engine.map(do, self._owners)

    def forget(self) -> None:
        """Read again what has been announced and is in no round's record."""
        self._heard = None

    def quarantine(self) -> Sequence[QuarantinedRecord]:
        """Quarantine the records that make the unfinished round fail; returns them."""
        record = self.worker.unfinished
        if record is None:
            return ()
        engine, tasks, slots = self.engine, _tasks(record), range(self.slots)
        self.go_back(record)
        self.step("narrow")
        lines = engine.map(tasks.bisect_work, _blocks(record))
        if not lines:
            self.go_back(record)
            lines = engine.gather(tasks.work, _blocks(record), tasks.bisect_merge, self._parts)
        if not lines and (asking := self._asking(record)):
            tasks = replace(tasks, asking=asking)
            lines = engine.map(tasks.bisect_ask, slots)
            lines = lines or engine.gather(tasks.ask, slots, tasks.bisect_answers, asking)
        found = {(left.what, left.number): left for left in (from_json(QuarantinedRecord, line) for line in lines)}
        if found:
            self.worker.quarantine(list(found.values()))
        return tuple(found.values())

    def _asking(self, record: RoundRecord) -> tuple[int, ...]:
        """The parts of MERGE that have a file for the second phase of a round."""
        storage, turn = self.engine.world.storage, record.round
        return tuple(part for part in self._parts if find(storage, second_name(turn.number, turn.revision, part)))


def _tasks(record: RoundRecord) -> RoundTasks:
    return RoundTasks(record.round)


def _blocks(record: RoundRecord) -> list[SlotBlocks]:
    """The blocks that each slot reads in a round."""
    return list(zip(range(len(record.ends)), record.starts, record.ends, strict=True))
