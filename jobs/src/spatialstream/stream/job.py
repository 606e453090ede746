"""The two jobs of a stream, router and worker: a loop of turns, and the handling of failed turns.

:class:`~spatialstream.stream.router.Router` and :class:`~spatialstream.stream.worker.Worker` decide what a turn does,
and :mod:`~spatialstream.stream.driver` does it. This module knows neither what executes the stages nor where records
come from; both are passed in. The driver process holds records of epochs and rounds, never records of the stream.
"""

from __future__ import annotations

import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from spatialstream.connectors.contracts import Ranges, Source
from spatialstream.connectors.disk import is_full
from spatialstream.model.errors import NoStorage, RunError, StateError, Unavailable
from spatialstream.stages.learning import Learner
from spatialstream.stages.quarantine import AMBIENT, QuarantinedRecord
from spatialstream.stages.state import Written
from spatialstream.stages.tasks import IdleTasks, Summary, World
from spatialstream.stages.turns import Round
from spatialstream.store.base import RoutingStore
from spatialstream.store.lease import Lease
from spatialstream.store.reports import Trouble, save_trouble, save_unknown
from spatialstream.stream.driver import RouterTurns, WorkerTurns, news
from spatialstream.stream.engine import Engine, StageError
from spatialstream.stream.leadership import Alone, Leadership, Superseded
from spatialstream.stream.load_report import LoadObserver, LoadReporter
from spatialstream.stream.parts import Parts
from spatialstream.stream.router import EPOCHS, EpochRecord, Router
from spatialstream.stream.settings import CHECKPOINT_SECONDS, StreamSettings
from spatialstream.stream.timeouts import Every, done_within
from spatialstream.stream.worker import ROUNDS, RoundRecord, Worker

__all__ = ["Job", "RouterJob", "WorkerJob"]

_Item = TypeVar("_Item")

_POLL_SECONDS = 0.02
_WAIT_SECONDS = 0.1
_LONGEST_REST = 30.0
_WAIT_FOR_STORAGE = (1.0, 5.0)
"""Interval, s, of checks whether a full disk has room, or the storage is reachable: the first, and the longest."""
_PUT_OFF_SECONDS = 60.0
"""After which a checkpoint is retried for which there was no room."""
_LOOK_SECONDS = 5.0
"""Interval, s, of checks whether all topics are there."""
_TELL_SECONDS = 10.0
_TROUBLE_SECONDS = 60.0
_TRIM_SECONDS = 5.0
_TRIM_AGAIN_SECONDS = 300.0
"""After which a failed cut of the log is retried: brokers may be away for a while, or may not allow it at all."""


@dataclass(slots=True)
class Job(ABC):
    """What both jobs have in common: the loop of turns, and how it is stopped.

    Attributes:
        engine: executes the stages; both jobs share the storage of its world.
        store: the routing store.
        settings: of the stream.
        incarnation: id of the stream's incarnation.
        pause: minimum ms between the starts of turns.
        patience: how often in a row a turn may fail before the job gives up. While the disk is full, or the storage
            unreachable, the job does not give up.
        checkpoint_interval: approximate seconds between checkpoints of all state.
        warm_up: maximum seconds of the warm-up; 0: there is none.
        report: called with messages for the operator.
        running: called with whether turns succeed.
        full: called with whether turns fail, or their state is not written, because the storage is full.
        away: called with whether they do because the storage is unreachable, or denies access.
        checkpointed: called when a checkpoint is complete.
        lease: of the job; None if no other process can do it.
        follow: called periodically, concurrently with the turns.
        missing: called periodically, concurrently with the turns; returns which topics of the stream do not exist, in a
            sentence, and "" if none is missing. Turns that do not need them succeed, and others fail only when
            something has to be sent. If it raises anything but Unavailable, the job ends.
        attend_every: seconds between two rounds of the periodic work that is concurrent with the turns.
        clock: a monotonic clock, s.
    """

    engine: Engine
    store: RoutingStore
    settings: StreamSettings
    incarnation: str = ""
    pause: int = 0
    patience: int = 8
    checkpoint_interval: float = CHECKPOINT_SECONDS
    warm_up: float = 120.0
    report: Callable[[str], None] = lambda text: None
    running: Callable[[bool], object] = lambda running: None
    full: Callable[[bool], object] = lambda full: None
    away: Callable[[bool], object] = lambda away: None
    checkpointed: Callable[[], object] = lambda: None
    lease: Lease | None = None
    follow: Callable[[], object] = lambda: None
    missing: Callable[[], str] = lambda: ""
    attend_every: float = 0.2
    clock: Callable[[], float] = time.monotonic
    _stopping: threading.Event = field(default_factory=threading.Event)
    _ended: threading.Event = field(default_factory=threading.Event)
    _parts: Parts = field(default_factory=Parts)
    _failure: Exception | None = None
    _checkpoints: Every = field(init=False)
    _no_checkpoint_before: float = 0.0
    _trouble_at: float = 0.0
    _troubled: bool = False
    _failing: Trouble | None = None
    _lacking: Trouble = field(default_factory=Trouble)
    _look_at: float = 0.0
    _reported: Trouble | None = None

    name = ""

    def __post_init__(self) -> None:
        """Start the interval of checkpoints."""
        self._checkpoints = Every(self.checkpoint_interval, self.clock)

    @property
    def world(self) -> World:
        """The environment of the tasks."""
        return self.engine.world

    def _due(self) -> Callable[[], bool]:
        """Whether a turn is to end with a checkpoint: periodically, or so that a new process gets its part at once."""

        def due() -> bool:
            put_off = self.clock() < self._no_checkpoint_before
            return not put_off and (self._checkpoints() or self.engine.unsettled)

        return due

    def _turn_ended(self) -> Mapping[str, float]:
        """End a turn; returns the seconds of each of its phases.

        A turn with a replay is soon followed by a checkpoint, so that a job makes progress even if it crashes more
        often than checkpoints are due.
        """
        parts = self._parts.end()
        if "again" in parts:
            self._checkpoints.hasten()
        return parts

    def _settle(self, settled: bool) -> None:
        """Let items move on a silent stream too, in which processes come and go as well."""
        if settled and self.engine.unsettled:
            self.engine.settled()

    def _written(self, written: Written) -> None:
        """Report that a checkpoint is complete, or why not: to metrics at once, as a message now and then."""
        if written.there:
            self.checkpointed()
        if written.trouble:
            (self.full if written.full else self.away)(True)
            if self.clock() >= self._trouble_at:
                self.report(f"{self.name}: continuing without writing its state: {written.trouble}")
                self._trouble_at = self.clock() + _TROUBLE_SECONDS
        elif self._troubled:
            self.full(False)
            self.away(False)
        self._troubled = bool(written.trouble)

    def _leadership(self, folder: str) -> Leadership | Alone:
        """The leadership under which the decisions count whose records are in this folder."""
        if self.lease is None:
            return Alone(self.world.storage, folder)
        return Leadership(self.world.channel, self.world.storage, self.name, folder, self.lease.number)

    def stop(self) -> None:
        """Finish the turn in progress and end."""
        self._stopping.set()

    def run(self) -> None:
        """Run until :meth:`stop`.

        Raises:
            RunError: turns have failed too often in a row, or Spark has ended, and with it the processes of the engine.
        """
        self.prepare()
        attendant = threading.Thread(target=self._attend, name=f"{self.name}-attendant", daemon=True)
        attendant.start()
        try:
            warm = self._warm_up()
            if warm and not self._stopping.is_set():
                self.running(True)
                self.report(f"{self.name}: running")
            self._follow(warm)
        finally:
            self.running(False)
            self._ended.set()
            attendant.join(10.0)
            self.forget()

    def _warm_up(self) -> bool:
        """Do in advance what the first turn would wait for, so that a stream that reports to run answers in time.

        Turns need nothing of it, so whatever goes wrong is told, and no more; but whether they succeed is then not to
        be said before one has. Returns whether nothing has gone wrong.
        """
        if not self.warm_up:
            return True
        began = self.clock()
        self.report(f"{self.name}: warming up")
        try:
            warm = done_within(self.warm_up, self.idle_turn, self._stopping)
            if not warm:
                self.engine.cancel()
        except Exception as error:  # noqa: BLE001 - a turn with the same error is retried, and reports it
            self.report(f"{self.name}: the warm-up has failed, so the first results may be late: {_cause(error)}")
            return False
        if warm:
            self.report(f"{self.name}: warm after {self.clock() - began:.1f} s")
        elif not self._stopping.is_set():
            self.report(f"{self.name}: not warm after {self.warm_up:g} s, so the first results may be late")
        return True

    def _rest(self, seconds: float) -> None:
        """Wait for some time, or until the job is to stop."""
        self._stopping.wait(seconds)

    def _follow(self, running: bool) -> None:
        failures, begun, since = 0, running, 0
        before, narrowed = "", ""
        while not self._stopping.is_set():
            began = self.clock()
            try:
                worked = self.turn()
            except Superseded:
                raise
            except Exception as error:  # any: turns can be repeated, so a retry is worthwhile
                failures += 1
                since = _now() if failures == 1 else since
                running = False
                self.running(running)
                self.forget()
                self._check_engine(error)
                full, away = is_full(error), isinstance(error, NoStorage)
                self.full(full)
                self.away(away)
                if failures > 1:  # the first is mostly a process that has gone, and another takes its place at once
                    self._failing = Trouble(_cause(error), since, _now())
                cause, before = before, _fingerprint(error)
                if before and before == cause != narrowed:
                    narrowed = cause
                    if self._quarantine():
                        failures, before, narrowed = 0, "", ""
                        continue
                if failures > self.patience and not (full or away):
                    raise RunError(f"the {self.name} has failed {failures} times in a row: {_cause(error)}") from error
                delay = _rest_after(failures)
                if full or away:
                    delay = min(max(delay, _WAIT_FOR_STORAGE[0]), _WAIT_FOR_STORAGE[1])
                if full:
                    self.write_less()
                self.report(f"{self.name}: {_cause(error)}; trying again" + (f" in {delay:.0f} s" if delay else ""))
                self._rest(delay)
            else:
                if not running:
                    running = True
                    self.running(running)
                    self.full(False)
                    self.away(False)
                if not begun:
                    begun = True
                    self.report(f"{self.name}: running")
                self._failing = Trouble()
                failures, before, narrowed = 0, "", ""
                if worked:
                    self._rest(max(0.0, began + self.pause / 1000 - self.clock()))
        if self._failure is not None:
            raise RunError(f"the {self.name} has failed: {_cause(self._failure)}") from self._failure

    def _quarantine(self) -> bool:
        """Quarantine the records that made a turn fail twice with the same error; whether any was found."""
        self.report(f"{self.name}: looking for the records that cause this")
        try:
            quarantined = self.bisect()
        except Exception as error:  # noqa: BLE001 - the turn is retried with all records, and fails as before
            self.report(f"{self.name}: none found: {_cause(error)}")
            return False
        for each in quarantined:
            self.report(f"{self.name}: quarantined: {each.letter}")
        if not quarantined:
            self.report(f"{self.name}: no single record, and no two or three together, cause this")
        return bool(quarantined)

    def _check_engine(self, cause: Exception | None = None) -> None:
        """Make sure that there is something left to execute turns: no retry brings it back.

        Raises:
            RunError: there is nothing.
        """
        try:
            self.engine.check()
        except RunError as error:
            raise RunError(f"the {self.name} has {error}") from cause

    def _attend(self) -> None:
        """Periodic work concurrent with the turns, in a thread of its own."""
        while not self._ended.wait(self.attend_every):
            try:
                self._check_incarnation()
                self._check_lease()
                self._check_engine()
                self._tell_failing()
                self.beside()
                self.follow()
                self._look_for_missing()  # last: a broker that is away takes half a minute not to answer
            except Unavailable:
                continue  # retried next time
            except Exception as error:  # noqa: BLE001 - raised again by the main thread
                self._failure = error
                self._stopping.set()
                return

    def _tell_failing(self) -> None:
        """Store in the routing store why turns fail or will fail, or that they succeed again.

        Otherwise only the log would say it. What the process before this one has left stays until a turn has succeeded.
        """
        failing = self._lacking if self._lacking.text else self._failing
        if failing is not None and failing != self._reported:
            save_trouble(self.store, self.name, failing)
            self._reported = failing

    def _look_for_missing(self) -> None:
        """Report that topics have been deleted, or that they are there again."""
        if self.clock() < self._look_at:
            return
        self._look_at = self.clock() + _LOOK_SECONDS
        text, before = self.missing(), self._lacking
        if text != before.text:
            self._lacking = Trouble(text, before.since or _now(), _now()) if text else Trouble()
            self.report(f"{self.name}: {text or 'the broker has all topics of the stream again'}")

    def _check_incarnation(self) -> None:
        """Detect that the stream has been removed and created again.

        Raises:
            StateError: it has.
        """
        view = self.store.latest()
        if view is not None and view.incarnation != self.incarnation:
            raise StateError(
                f"the routing store belongs to another incarnation of the stream "
                f"({view.incarnation}, not {self.incarnation})"
            )

    def _check_lease(self) -> None:
        """Detect that another process has taken over this job.

        Raises:
            StateError: one has.
        """
        if self.lease is not None and self.lease.superseded:
            raise StateError(f"another {self.name} of {self.settings.name} has taken over")

    @abstractmethod
    def prepare(self) -> None:
        """Prepare for the first turn."""

    @abstractmethod
    def idle_turn(self) -> None:
        """Have the engine do the work of a turn without records, which loads all kernels and connects to the broker.

        The last messages of some partitions are read once more, and nothing is sent.
        """

    @abstractmethod
    def turn(self) -> bool:
        """Do one turn; or wait a little and return False if there is nothing to do."""

    @abstractmethod
    def bisect(self) -> Sequence[QuarantinedRecord]:
        """Quarantine the records that make the unfinished turn fail."""

    @abstractmethod
    def write_less(self) -> None:
        """Have the failed turn do without what there is no room for, if that is possible."""

    @abstractmethod
    def forget(self) -> None:
        """Drop state that a failed turn may have left inconsistent."""

    @abstractmethod
    def beside(self) -> None:
        """Periodic work concurrent with the turns."""


def _rest_after(failures: int) -> float:
    """Seconds until a turn that has failed so often in a row is retried.

    After the first failure none: usually a process has gone, and another one will take its place.
    """
    return 0.0 if failures == 1 else min(_LONGEST_REST, 0.5 * 2**failures)


def _cause(error: Exception) -> str:
    """The cause of an error, in one line."""
    lines = [line.strip() for line in str(error).split("SQLSTATE")[0].splitlines() if line.strip()]
    for line in reversed(lines):
        if "Error: " in line or "Exception: " in line or line.startswith("spatialstream."):
            return line
    return lines[-1] if lines else repr(error)


def _fingerprint(error: Exception) -> str:
    """Equal for two failures with the same cause; "" unless a stage's own code has raised the error."""
    return re.sub(r"\d+", "#", _cause(error)) if isinstance(error, StageError) else ""


@dataclass(slots=True)
class RouterJob(Job):
    """``spatialstream router``: records to blocks.

    Attributes:
        most_messages: maximum messages per epoch.
        learn_every: seconds between two updates of the sample, and between two checks of the input's lag besides those
            of turns.
        lag: called with a kind and the number of its messages that no epoch has read.
        observe: called with each epoch's record, its duration in s without the look for new records, and the duration
            of each phase (:data:`~spatialstream.stream.parts.ROUTER_PARTS`).
        dropped: called with the number of objects of each epoch that no continuous query could match.
        turns: what the job's turns do; None before :meth:`prepare`.
    """

    most_messages: int = 200_000
    learn_every: float = 10.0
    lag: Callable[[str, int], object] = lambda kind, messages: None
    observe: Callable[[EpochRecord, float, Mapping[str, float]], object] = lambda record, seconds, parts: None
    dropped: Callable[[int], object] = lambda objects: None
    turns: RouterTurns | None = field(default=None, init=False)
    _learner: Learner | None = None
    _learn_at: float = 0.0
    _unknown: Mapping[str, int] = field(default_factory=dict)
    _worked_at: float = 0.0

    name = "router"

    def prepare(self) -> None:
        """Go on from the last epoch."""
        storage, names, leadership = self.world.storage, list(self._source.bounds()), self._leadership(EPOCHS)
        due = self._due()
        router = Router(self.settings, storage, self.store, names, _now, leadership=leadership, due=due)
        self.turns = RouterTurns(router, self.engine, self._parts.step, beside=True, on_checkpoint=self._written)
        self._learner = Learner(storage, self.store, self.settings.space)

    @property
    def _source(self) -> Source:
        assert self.world.source is not None
        return self.world.source

    def idle_turn(self) -> None:
        """Read the last messages of some partitions."""
        ends = [(name, max(first, end - 1), end) for name, (first, end) in self._source.bounds().items()]
        self.engine.map(IdleTasks().read, _for_each(ends, self.engine.width), anywhere=True)

    def turn(self) -> bool:
        """Do one epoch, if there are new records or it is time for one."""
        assert self.turns is not None
        turns, router = self.turns, self.turns.router
        self._parts.begin("poll")
        bounds = {} if router.unfinished else self._look_behind()
        ranges = news(bounds, router.read, self.most_messages)
        if not ranges and not router.unfinished and not router.wants_epoch():
            # on a silent stream the registry is quickly rebuilt from the epochs since its last checkpoint
            silent = self.clock() - self._worked_at >= self.checkpoint_interval
            turns.poll_checkpoint()
            self._settle(silent or router.settled)
            if silent:
                router.keep()
            self._stopping.wait(_POLL_SECONDS)
            return False
        began = self.clock()
        record = turns.epoch(turns.ingestion(ranges))
        self._worked_at = self.clock()
        self.observe(record, self._worked_at - began, self._turn_ended())
        self.dropped(turns.dropped)
        return True

    def bisect(self) -> Sequence[QuarantinedRecord]:
        """Quarantine the records because of which the unfinished epoch fails."""
        assert self.turns is not None
        return self.turns.quarantine()

    def write_less(self) -> None:
        """Nothing: an epoch that is not decided yet needs room for what it reads."""

    def forget(self) -> None:
        """Nothing: an epoch that is not decided yet leaves nothing."""

    def beside(self) -> None:
        """Update the sample, and report the lag of the input."""
        assert self.turns is not None
        if self.clock() >= self._learn_at:
            self._learn()
            self._tell_unknown()
            self.turns.router.tidy()
            self._look_behind()
            self._learn_at = self.clock() + self.learn_every

    def _learn(self) -> None:
        """Update the sample. No answer depends on it, so records on which this fails are dropped, not retried."""
        assert self._learner is not None
        try:
            self._learner.learn()
        except AMBIENT:
            raise
        except Exception as error:  # noqa: BLE001 - reported, and its cause removed
            self._learner.drop()
            self.report(
                f"router: samples of the last epochs are dropped, because learning from them fails: {_cause(error)}"
            )

    def _tell_unknown(self) -> None:
        """Save the unknown fields of objects to the routing store, if they have changed."""
        assert self.turns is not None
        last = self.turns.router.last
        if last is not None and last.unknown != self._unknown:
            with suppress(Unavailable):  # retried next time
                save_unknown(self.store, last.unknown)
                self._unknown = last.unknown

    def _look_behind(self) -> Ranges:
        """Get the bounds of the source, and report how many messages are left to read."""
        assert self.turns is not None
        left, read, bounds = dict[str, int](), self.turns.router.read, self._source.bounds()
        for name, (first, end) in bounds.items():
            kind = name.partition("/")[0]
            left[kind] = left.get(kind, 0) + max(0, end - read.get(name, first))
        for kind, messages in left.items():
            self.lag(kind, messages)
        return bounds


def _now() -> int:
    """The time of day, ms."""
    return int(time.time() * 1000)


def _for_each(items: Sequence[_Item], count: int) -> list[_Item]:
    """A list of ``count`` items; repeats items if there are fewer."""
    return [items[i % len(items)] for i in range(count)] if items else []


@dataclass(slots=True)
class WorkerJob(Job):
    """``spatialstream worker``: blocks to results.

    Attributes:
        most_epochs: maximum epochs per round.
        publish: called with the newest round that can be queried.
        foreign: called with the number of messages in the internal logs that the router has not written.
        observe: called with each round's record and summary, its duration in s without the wait for an announcement,
            and the duration of each phase (:data:`~spatialstream.stream.parts.WORKER_PARTS`).
        loads: observes the loads of leaves and slots that the job reports to the routing store.
        turns: what the job's turns do; None before :meth:`prepare`.
    """

    most_epochs: int = 64
    publish: Callable[[Round], object] = lambda turn: None
    foreign: Callable[[int], object] = lambda messages: None
    observe: Callable[[RoundRecord, Summary, float, Mapping[str, float]], object] = (
        lambda record, summary, seconds, parts: None
    )
    loads: LoadObserver = field(default_factory=LoadObserver)
    _reporter: LoadReporter | None = None
    turns: WorkerTurns | None = field(default=None, init=False)
    _recalled: int = -1
    _worked_at: float = 0.0
    _passed_over: int = 0
    _tell_at: float = 0.0
    _trim_at: float = 0.0

    name = "worker"

    def prepare(self) -> None:
        """Go on from the last round."""
        settings, storage = self.settings, self.world.storage
        due = self._due()
        worker = Worker(settings, storage, self.store, leadership=self._leadership(ROUNDS), due=due)
        self.turns = WorkerTurns(
            worker, self.engine, settings.slots, self._parts.step, beside=True, on_checkpoint=self._written
        )
        self._reporter = LoadReporter(storage, self.store, settings.retention, self.loads)

    def idle_turn(self) -> None:
        """Read the last block of each slot."""
        begins, ends = self.world.channel.begins(), self.world.channel.ends()
        lasts = [(slot, max(begins[slot], end - 1), end) for slot, end in enumerate(ends)]
        self.engine.gather(IdleTasks().take, lasts, IdleTasks().publish)

    def turn(self) -> bool:
        """Do one round, if an epoch has been announced."""
        assert self.turns is not None
        turns = self.turns
        self._parts.begin("wait")
        record = turns.next(self.most_epochs, _WAIT_SECONDS) or turns.worker.settle()
        foreign, turns.foreign = turns.foreign, 0
        if record is not None:
            began, moves = self.clock(), self.engine.moves
            summary = turns.do(record)
            self.publish(record.round)
            self.observe(record, summary, self.clock() - began, self._turn_ended())
            self._report_load(record, summary)
            foreign += summary.foreign
            self._worked_at = self.clock()
            self._recalled = moves  # not the moves after the round: a slot's new process has done no round with it
        else:
            self._settle(turns.worker.settled)
            if self.clock() - self._worked_at >= self.checkpoint_interval:
                turns.worker.keep()
            if self._recalled != self.engine.moves:  # slots are in processes that have done no round yet
                moves, turn = self.engine.moves, turns.recall()
                if turn is not None:
                    self.publish(turn)
                self._recalled = moves
        self._tell_foreign(foreign)
        return record is not None

    def _report_load(self, record: RoundRecord, summary: Summary) -> None:
        """Report loads. No answer depends on them: the round is done, whether this succeeds or not."""
        assert self._reporter is not None
        try:
            self._reporter.observe(record, summary)
        except Exception as error:  # noqa: BLE001 - reported
            self.report(f"worker: loads are not reported: {_cause(error)}")

    def _tell_foreign(self, count: int) -> None:
        """Report foreign messages: to metrics at once, as a message now and then, since there may be many."""
        if count:
            self.foreign(count)
            self._passed_over += count
        if self._passed_over and self.clock() >= self._tell_at:
            self.report(
                f"worker: {self._passed_over} messages among blocks or announcements were not written by the router, "
                "and were skipped"
            )
            self._passed_over, self._tell_at = 0, self.clock() + _TELL_SECONDS

    def bisect(self) -> Sequence[QuarantinedRecord]:
        """Quarantine the records that make the unfinished round fail."""
        assert self.turns is not None
        return self.turns.quarantine()

    def write_less(self) -> None:
        """Skip the checkpoint, which needs the storage: the turn leaves its state in memory, as other turns do."""
        assert self.turns is not None
        try:
            if self.turns.worker.put_off_checkpoint():
                self._no_checkpoint_before = self.clock() + _PUT_OFF_SECONDS
                self.report("worker: continuing without a checkpoint, because the storage is full")
        except (OSError, Unavailable) as error:  # there is no room even for the decision
            self.report(f"worker: {_cause(error)}")

    def forget(self) -> None:
        """Drop what the slots of a failed round have in memory."""
        if self.turns is not None:
            self.turns.forget()

    def beside(self) -> None:
        """Confirm what is pending, and cut the log; if cutting is not possible, report it now and then."""
        assert self.turns is not None
        worker = self.turns.worker
        worker.confirm()
        if self.clock() < self._trim_at:
            return
        try:
            worker.trim()
        except Unavailable as error:
            self.report(f"worker: {_cause(error)}; the log grows until it can be truncated")
            self._trim_at = self.clock() + _TRIM_AGAIN_SECONDS
        else:
            self._trim_at = self.clock() + _TRIM_SECONDS
