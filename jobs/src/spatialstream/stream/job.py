"""The two jobs of a stream, router and worker: one turn after the other, and what happens when turns fail.

What a turn does is decided by :class:`~spatialstream.stream.router.Router` and
:class:`~spatialstream.stream.worker.Worker`, and done by :mod:`~spatialstream.stream.driver`. This module knows neither
what does the stages nor where records come from: all of that is given. On the driver there are records of epochs and
rounds, never records of the stream.
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

__all__ = ["RouterJob", "WorkerJob"]

_Item = TypeVar("_Item")

_POLL_SECONDS = 0.02
_WAIT_SECONDS = 0.1
_ATTEND_SECONDS = 0.2
_LONGEST_REST = 30.0
_WAIT_FOR_STORAGE = (1.0, 5.0)
"""Seconds from one look at a full disk, or a storage that is away, to the next: the first, and the longest."""
_PUT_OFF_SECONDS = 60.0
"""After which a checkpoint is tried again for which there was no room."""
_TELL_SECONDS = 10.0
_TROUBLE_SECONDS = 60.0
_TRIM_SECONDS = 5.0
_TRIM_AGAIN_SECONDS = 300.0
"""After which what could not be cut is to be cut once more: brokers are away for a while, or do not allow it at all."""


@dataclass(slots=True)
class _Job(ABC):
    """What both jobs have in common: one turn after the other, and how they are stopped.

    Attributes:
        engine: does the stages; the storage of its world is shared by both jobs.
        store: the routing store.
        settings: of the stream.
        incarnation: id of the stream's incarnation.
        pause: ms between the starts of turns, at least.
        patience: how often in a row a turn may fail before the job gives up. While the disk is full, or the storage
            away, it does not.
        checkpoint_interval: seconds from one checkpoint of all state to the next, about.
        warm_up: seconds that the warm-up may take before the job goes on without; 0: there is none.
        report: is told what a person should know.
        running: is told whether turns succeed.
        full: is told whether turns fail, or their state is not written, because there is no room where it is kept.
        away: is told whether they do because that cannot be reached, or denies.
        checkpointed: is called when a checkpoint is there.
        lease: of the job; None where nobody else can be at it.
        follow: is called now and then, beside the turns.
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
    _stopping: threading.Event = field(default_factory=threading.Event)
    _ended: threading.Event = field(default_factory=threading.Event)
    _parts: Parts = field(default_factory=Parts)
    _failure: Exception | None = None
    _checkpoints: Every = field(init=False)
    _no_checkpoint_before: float = 0.0
    _trouble_at: float = 0.0
    _troubled: bool = False
    _failing: Trouble | None = None
    _told: Trouble | None = None

    name = ""

    def __post_init__(self) -> None:
        """Checkpoints begin to be due."""
        self._checkpoints = Every(self.checkpoint_interval)

    @property
    def world(self) -> World:
        """What the stages have to do with."""
        return self.engine.world

    def _due(self) -> Callable[[], bool]:
        """Whether a turn is to end with a checkpoint: after some time, or for a new process to get its part at once."""

        def due() -> bool:
            put_off = time.monotonic() < self._no_checkpoint_before
            return not put_off and (self._checkpoints() or self.engine.unsettled)

        return due

    def _turn_ended(self) -> Mapping[str, float]:
        """The turn is done; seconds of each of its parts.

        One for which others were done again is soon followed by a checkpoint: who dies more often than checkpoints are
        due gets on all the same.
        """
        parts = self._parts.end()
        if "again" in parts:
            self._checkpoints.hasten()
        return parts

    def _settle(self, settled: bool) -> None:
        """In a stream in which nothing happens processes come and go too."""
        if settled and self.engine.unsettled:
            self.engine.settled()

    def _written(self, written: Written) -> None:
        """Tell that a checkpoint is there, or why not: metrics at once, a person now and then."""
        if written.there:
            self.checkpointed()
        if written.trouble:
            (self.full if written.full else self.away)(True)
            if time.monotonic() >= self._trouble_at:
                self.report(f"{self.name}: goes on without its state being written: {written.trouble}")
                self._trouble_at = time.monotonic() + _TROUBLE_SECONDS
        elif self._troubled:
            self.full(False)
            self.away(False)
        self._troubled = bool(written.trouble)

    def _leadership(self, folder: str) -> Leadership | Alone:
        """By which the decisions count whose records are in a folder."""
        if self.lease is None:
            return Alone(self.world.storage, folder)
        return Leadership(self.world.channel, self.world.storage, self.name, folder, self.lease.number)

    def stop(self) -> None:
        """Finish the turn under way and end."""
        self._stopping.set()

    def run(self) -> None:
        """Run until :meth:`stop`.

        Raises:
            RunError: turns have failed too often in a row, or Spark has ended, and with it all that they are done with.
        """
        self._prepare()
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
            self._forget()

    def _warm_up(self) -> bool:
        """Have done before the first turn what it would wait for: a stream that says that it runs answers in time.

        Turns need nothing of it, so whatever goes wrong is told, and no more; but whether they succeed is then not to
        be said before one has. Returns whether nothing has gone wrong.
        """
        if not self.warm_up:
            return True
        began = time.monotonic()
        self.report(f"{self.name}: warming up")
        try:
            warm = done_within(self.warm_up, self._idle_turn, self._stopping)
            if not warm:
                self.engine.cancel()
        except Exception as error:  # noqa: BLE001 - a turn that meets it too is tried again, and tells
            self.report(f"{self.name}: the warm-up has failed, so the first results may be late: {_cause(error)}")
            return False
        if warm:
            self.report(f"{self.name}: warm after {time.monotonic() - began:.1f} s")
        elif not self._stopping.is_set():
            self.report(f"{self.name}: not warm after {self.warm_up:g} s, so the first results may be late")
        return True

    def _rest(self, seconds: float) -> None:
        """Wait, but no longer than until the job is to stop."""
        self._stopping.wait(seconds)

    def _follow(self, running: bool) -> None:
        failures, begun, since = 0, running, 0
        before, narrowed = "", ""
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                worked = self._turn()
            except Superseded:
                raise
            except Exception as error:  # whatever it was: turns can be repeated, so it is worth another try
                failures += 1
                since = _now() if failures == 1 else since
                running = False
                self.running(running)
                self._forget()
                self._check_engine(error)
                full, away = is_full(error), isinstance(error, NoStorage)
                self.full(full)
                self.away(away)
                if failures > 1:  # the first is mostly a process that has gone, and another takes its place at once
                    self._failing = Trouble(_cause(error), since, _now())
                cause, before = before, _fingerprint(error)
                if before and before == cause != narrowed:
                    narrowed = cause
                    if self._leave_out():
                        failures, before, narrowed = 0, "", ""
                        continue
                if failures > self.patience and not (full or away):
                    raise RunError(f"the {self.name} has failed {failures} times in a row: {_cause(error)}") from error
                rest = _rest_after(failures)
                if full or away:
                    rest = min(max(rest, _WAIT_FOR_STORAGE[0]), _WAIT_FOR_STORAGE[1])
                if full:
                    self._write_less()
                self.report(f"{self.name}: {_cause(error)}; trying again" + (f" in {rest:.0f} s" if rest else ""))
                self._rest(rest)
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
                    self._rest(max(0.0, began + self.pause / 1000 - time.monotonic()))
        if self._failure is not None:
            raise RunError(f"the {self.name} has failed: {_cause(self._failure)}") from self._failure

    def _leave_out(self) -> bool:
        """Find what a turn fails on that has failed twice of the same exception, and leave it out; whether any was."""
        self.report(f"{self.name}: looking for the records that cause this")
        try:
            found = self._bisect()
        except Exception as error:  # noqa: BLE001 - the turn is tried again without, and fails as it would have
            self.report(f"{self.name}: none found: {_cause(error)}")
            return False
        for left in found:
            self.report(f"{self.name}: left out: {left.letter}")
        if not found:
            self.report(f"{self.name}: no record by itself, nor two or three together, cause this")
        return bool(found)

    def _check_engine(self, cause: Exception | None = None) -> None:
        """Make sure that there is still something to do turns with: no repetition brings it back.

        Raises:
            RunError: there is none.
        """
        try:
            self.engine.check()
        except RunError as error:
            raise RunError(f"the {self.name} has {error}") from cause

    def _attend(self) -> None:
        """What is to be done beside the turns, in a thread of its own."""
        while not self._ended.wait(_ATTEND_SECONDS):
            try:
                self._check_incarnation()
                self._check_lease()
                self._check_engine()
                self._tell_failing()
                self._beside()
                self.follow()
            except Unavailable:
                continue  # the next time will do
            except Exception as error:  # noqa: BLE001 - it is raised again by the main thread
                self._failure = error
                self._stopping.set()
                return

    def _tell_failing(self) -> None:
        """Leave in the routing store why turns fail, or that they do not any more: elsewhere only the log says it.

        What the process before this one has left stays until a turn has succeeded.
        """
        failing = self._failing
        if failing is not None and failing != self._told:
            save_trouble(self.store, self.name, failing)
            self._told = failing

    def _check_incarnation(self) -> None:
        """Notice that the stream has been removed and begun anew by somebody else.

        Raises:
            StateError: it has.
        """
        view = self.store.latest()
        if view is not None and view.incarnation != self.incarnation:
            raise StateError(
                f"the routing store is of another incarnation of the stream "
                f"({view.incarnation}, not {self.incarnation})"
            )

    def _check_lease(self) -> None:
        """Notice that another process has become the one to do this job.

        Raises:
            StateError: one has.
        """
        if self.lease is not None and self.lease.superseded:
            raise StateError(f"another {self.name} of {self.settings.name} has taken over")

    @abstractmethod
    def _prepare(self) -> None:
        """What is to be done before the first turn."""

    @abstractmethod
    def _idle_turn(self) -> None:
        """What a turn has the engine do, without a record: so its processes have all kernels, and clients of a broker.

        The last messages of some partitions are read once more, and nothing is sent.
        """

    @abstractmethod
    def _turn(self) -> bool:
        """Do one turn; or wait a little and return False if there is nothing to do."""

    @abstractmethod
    def _bisect(self) -> Sequence[QuarantinedRecord]:
        """Leave out of the turn that has failed what it fails on."""

    @abstractmethod
    def _write_less(self) -> None:
        """Have the turn that has failed do without what there is no room for, if that is possible."""

    @abstractmethod
    def _forget(self) -> None:
        """Let go of what a turn that failed may have left in disorder."""

    @abstractmethod
    def _beside(self) -> None:
        """What is to be done now and then, beside the turns."""


def _rest_after(failures: int) -> float:
    """Seconds until a turn that has failed so often in a row is tried again.

    At first none: mostly a process has gone, and there will be another. What fails twice may need time.
    """
    return 0.0 if failures == 1 else min(_LONGEST_REST, 0.5 * 2**failures)


def _cause(error: Exception) -> str:
    """What went wrong, in a few words."""
    lines = [line.strip() for line in str(error).split("SQLSTATE")[0].splitlines() if line.strip()]
    for line in reversed(lines):
        if "Error: " in line or "Exception: " in line or line.startswith("spatialstream."):
            return line
    return lines[-1] if lines else repr(error)


def _fingerprint(error: Exception) -> str:
    """By which two failures of the same cause are known; "" where no stage's own code has raised anything."""
    return re.sub(r"\d+", "#", _cause(error)) if isinstance(error, StageError) else ""


@dataclass(slots=True)
class RouterJob(_Job):
    """``spatialstream router``: records to blocks.

    Attributes:
        most_messages: messages an epoch, at most.
        learn_every: seconds between two renewals of the sample, and two looks at what is left to read besides those of
            turns.
        lag: is told how many messages of a kind no epoch has read.
        observe: is told what each epoch has been, and how long it took, in s: without the look at what is new, and
            part by part (:data:`~spatialstream.stream.parts.ROUTER_PARTS`).
    """

    most_messages: int = 200_000
    learn_every: float = 10.0
    lag: Callable[[str, int], object] = lambda kind, messages: None
    observe: Callable[[EpochRecord, float, Mapping[str, float]], object] = lambda record, seconds, parts: None
    _turns: RouterTurns | None = None
    _learner: Learner | None = None
    _learn_at: float = 0.0
    _unknown: Mapping[str, int] = field(default_factory=dict)
    _worked_at: float = 0.0

    name = "router"

    def _prepare(self) -> None:
        storage, names, leadership = self.world.storage, list(self._source.bounds()), self._leadership(EPOCHS)
        due = self._due()
        router = Router(self.settings, storage, self.store, names, _now, leadership=leadership, due=due)
        self._turns = RouterTurns(router, self.engine, self._parts.step, beside=True, told=self._written)
        self._learner = Learner(storage, self.store, self.settings.space)

    @property
    def _source(self) -> Source:
        assert self.world.source is not None
        return self.world.source

    def _idle_turn(self) -> None:
        ends = [(name, max(first, end - 1), end) for name, (first, end) in self._source.bounds().items()]
        self.engine.map(IdleTasks().read, _for_each(ends, self.engine.width), anywhere=True)

    def _turn(self) -> bool:
        assert self._turns is not None
        turns, router = self._turns, self._turns.router
        self._parts.begin("look")
        bounds = {} if router.unfinished else self._look_behind()
        ranges = news(bounds, router.read, self.most_messages)
        if not ranges and not router.unfinished and not router.wants_epoch():
            # of a silent stream the registry is soon made anew, from the epochs since its last checkpoint
            silent = time.monotonic() - self._worked_at >= self.checkpoint_interval
            turns.look()
            self._settle(silent or router.settled)
            if silent:
                router.keep()
            self._stopping.wait(_POLL_SECONDS)
            return False
        began = time.monotonic()
        record = turns.epoch(turns.ingestion(ranges))
        self._worked_at = time.monotonic()
        self.observe(record, self._worked_at - began, self._turn_ended())
        return True

    def _bisect(self) -> Sequence[QuarantinedRecord]:
        assert self._turns is not None
        return self._turns.leave_out()

    def _write_less(self) -> None:
        pass  # an epoch that is not decided needs room for what it reads

    def _forget(self) -> None:
        pass

    def _beside(self) -> None:
        """Keep the sample, and tell what is left to read."""
        assert self._turns is not None
        if time.monotonic() >= self._learn_at:
            self._learn()
            self._tell_unknown()
            self._turns.router.tidy()
            self._look_behind()
            self._learn_at = time.monotonic() + self.learn_every

    def _learn(self) -> None:
        """Keep the sample, which no answer needs: records on which that fails would be there again after a restart."""
        assert self._learner is not None
        try:
            self._learner.learn()
        except AMBIENT:
            raise
        except Exception as error:  # noqa: BLE001 - it is told, and its cause removed
            self._learner.drop()
            self.report(
                f"router: samples of the last epochs are dropped, for learning from them fails: {_cause(error)}"
            )

    def _tell_unknown(self) -> None:
        """Tell the routing store which fields are in objects that are not known, if that has changed."""
        assert self._turns is not None
        last = self._turns.router.last
        if last is not None and last.unknown != self._unknown:
            with suppress(Unavailable):  # the next time will do
                save_unknown(self.store, last.unknown)
                self._unknown = last.unknown

    def _look_behind(self) -> Ranges:
        """Look at the bounds of the source, and tell how many messages are left to read."""
        assert self._turns is not None
        left, read, bounds = dict[str, int](), self._turns.router.read, self._source.bounds()
        for name, (first, end) in bounds.items():
            kind = name.partition("/")[0]
            left[kind] = left.get(kind, 0) + max(0, end - read.get(name, first))
        for kind, messages in left.items():
            self.lag(kind, messages)
        return bounds


def _now() -> int:
    """The day's clock, ms."""
    return int(time.time() * 1000)


def _for_each(items: Sequence[_Item], count: int) -> list[_Item]:
    """So many items, some of them several times if there are fewer."""
    return [items[i % len(items)] for i in range(count)] if items else []


@dataclass(slots=True)
class WorkerJob(_Job):
    """``spatialstream worker``: blocks to results.

    Attributes:
        most_epochs: epochs a round, at most.
        publish: is told the newest round that can be asked about.
        foreign: is told how many messages of the internal logs are not the router's.
        observe: is told what each round has been, and how long it took, in s: without the wait for an announcement, and
            part by part (:data:`~spatialstream.stream.parts.WORKER_PARTS`).
        loads: is told the loads of leaves and slots that the job reports to the routing store.
    """

    most_epochs: int = 64
    publish: Callable[[Round], object] = lambda turn: None
    foreign: Callable[[int], object] = lambda messages: None
    observe: Callable[[RoundRecord, Summary, float, Mapping[str, float]], object] = (
        lambda record, summary, seconds, parts: None
    )
    loads: LoadObserver = field(default_factory=LoadObserver)
    _reporter: LoadReporter | None = None
    _turns: WorkerTurns | None = None
    _recalled: int = -1
    _worked_at: float = 0.0
    _passed_over: int = 0
    _tell_at: float = 0.0
    _trim_at: float = 0.0

    name = "worker"

    def _prepare(self) -> None:
        settings, storage = self.settings, self.world.storage
        due = self._due()
        worker = Worker(settings, storage, self.store, leadership=self._leadership(ROUNDS), due=due)
        self._turns = WorkerTurns(
            worker, self.engine, settings.slots, self._parts.step, beside=True, told=self._written
        )
        self._reporter = LoadReporter(storage, self.store, settings.retention, self.loads)

    def _idle_turn(self) -> None:
        begins, ends = self.world.channel.begins(), self.world.channel.ends()
        lasts = [(slot, max(begins[slot], end - 1), end) for slot, end in enumerate(ends)]
        self.engine.gather(IdleTasks().take, lasts, IdleTasks().publish)

    def _turn(self) -> bool:
        assert self._turns is not None
        turns = self._turns
        self._parts.begin("wait")
        record = turns.next(self.most_epochs, _WAIT_SECONDS) or turns.worker.settle()
        foreign, turns.foreign = turns.foreign, 0
        if record is not None:
            began, moves = time.monotonic(), self.engine.moves
            summary = turns.do(record)
            self.publish(record.round)
            self.observe(record, summary, time.monotonic() - began, self._turn_ended())
            self._report_load(record, summary)
            foreign += summary.foreign
            self._worked_at = time.monotonic()
            self._recalled = moves  # not those after the round: who has got a slot then has done no round with it
        else:
            self._settle(turns.worker.settled)
            if time.monotonic() - self._worked_at >= self.checkpoint_interval:
                turns.worker.keep()
            if self._recalled != self.engine.moves:  # slots are in processes that have done no round yet
                moves, turn = self.engine.moves, turns.recall()
                if turn is not None:
                    self.publish(turn)
                self._recalled = moves
        self._tell_foreign(foreign)
        return record is not None

    def _report_load(self, record: RoundRecord, summary: Summary) -> None:
        """Report loads, which no answer needs: the round is done, whatever comes of it."""
        assert self._reporter is not None
        try:
            self._reporter.observe(record, summary)
        except Exception as error:  # noqa: BLE001 - it is told
            self.report(f"worker: loads are not reported: {_cause(error)}")

    def _tell_foreign(self, count: int) -> None:
        """Tell of messages that were passed over: metrics at once, a person now and then, for there may be many."""
        if count:
            self.foreign(count)
            self._passed_over += count
        if self._passed_over and time.monotonic() >= self._tell_at:
            self.report(
                f"worker: {self._passed_over} messages among blocks or announcements are not the router's, and were "
                "passed over"
            )
            self._passed_over, self._tell_at = 0, time.monotonic() + _TELL_SECONDS

    def _bisect(self) -> Sequence[QuarantinedRecord]:
        assert self._turns is not None
        return self._turns.leave_out()

    def _write_less(self) -> None:
        """Do without the checkpoint, which is what needs room: the turn leaves its state in memory, as others do."""
        assert self._turns is not None
        try:
            if self._turns.worker.put_off_checkpoint():
                self._no_checkpoint_before = time.monotonic() + _PUT_OFF_SECONDS
                self.report("worker: goes on without a checkpoint, for which there is no room")
        except (OSError, Unavailable) as error:  # there is not even room for the decision
            self.report(f"worker: {_cause(error)}")

    def _forget(self) -> None:
        if self._turns is not None:
            self._turns.forget()

    def _beside(self) -> None:
        """Confirm what is pending, and keep the log short; who may not cut it is told so now and then."""
        assert self._turns is not None
        worker = self._turns.worker
        worker.confirm()
        if time.monotonic() < self._trim_at:
            return
        try:
            worker.trim()
        except Unavailable as error:
            self.report(f"worker: {_cause(error)}; it grows until that can be done")
            self._trim_at = time.monotonic() + _TRIM_AGAIN_SECONDS
        else:
            self._trim_at = time.monotonic() + _TRIM_SECONDS
