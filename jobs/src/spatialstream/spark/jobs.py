"""The two jobs of a stream as Spark applications: the router, and the worker, with the broker between them.

Each does one turn after the other: epochs (router) and rounds (worker). What a turn does is decided by
:class:`~spatialstream.stream.router.Router` and :class:`~spatialstream.stream.worker.Worker`; this module gives them
Spark, with its Kafka connector, and the broker to do it with. The stages run in Spark's Python processes, as they do in
embedded mode.

On the driver there are records of epochs and rounds, never records of the stream.
"""

from __future__ import annotations

import json
import re
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from confluent_kafka import KafkaException, Producer
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from spatialstream.model.errors import RunError, StateError, Unavailable
from spatialstream.sources.contracts import Storage
from spatialstream.sources.kafka import LARGEST_MESSAGE, Announcements, Connection, Offsets, Topics
from spatialstream.spark.executors import Executors
from spatialstream.spark.tasks import (
    LEFT_TYPE,
    MESSAGE_TYPE,
    IdleTask,
    MergeTask,
    NarrowMergeTask,
    NarrowRouteTask,
    NarrowWorkTask,
    RouteTask,
    SecondMergeTask,
    SecondTask,
    WorkTask,
)
from spatialstream.stages import messages
from spatialstream.stages.ingest import Ingest, Intake
from spatialstream.stages.learning import Learner
from spatialstream.stages.leaving import AMBIENT, Left
from spatialstream.stages.rows import RowLimits
from spatialstream.stages.work import WorkSettings
from spatialstream.store.base import RoutingStore
from spatialstream.store.lease import Lease
from spatialstream.stream.load_report import LoadObserver, LoadReporter
from spatialstream.stream.router import EpochRecord, Router, StreamSettings
from spatialstream.stream.timeouts import done_within
from spatialstream.stream.worker import RoundRecord, Summary, Worker

__all__ = ["RouterJob", "WorkerJob", "spark_ended", "stop_spark"]

_FEW_MESSAGES = 2_000
_FEW_RECORDS = 20_000
"""Messages of an epoch, and records of a round, up to which a task does what is of several partitions or slots, so that
there are as many tasks as cores: with so little to do, what a task costs by itself counts for more than an even
distribution."""

_POLL_SECONDS = 0.02
_WAIT_SECONDS = 0.1
_ATTEND_SECONDS = 0.2
_LONGEST_REST = 30.0
_TELL_SECONDS = 10.0

_WARM_UP = "warm-up"
"""The tag of its Spark jobs."""

_ONE_LOOK = {"kafkaConsumer.pollTimeoutMs": "50"}
"""How Spark reads offsets that no message has yet: it looks once, and finds nothing."""

Ranges = dict[str, tuple[int, int]]
"""Offsets [start, end) of partitions such as ``objects/0``."""


# ------------------------------------------------------------------------------------------------------------ the jobs


@dataclass(slots=True)
class _Job(ABC):
    """What both jobs have in common: one turn after the other, and how they are stopped.

    A turn is an epoch or a round. It is done by Spark's batch jobs between offsets that its record fixes, so there is
    no streaming query: that would keep the same offsets a second time, and take longer over it than many a turn takes
    (``docs/architecture.md``).

    Attributes:
        session: the Spark session.
        connection: how to reach the broker.
        settings: of the stream.
        storage: of the stream's state, shared by both jobs.
        store: the routing store.
        pause: ms between the starts of turns, at least.
        patience: how often in a row a turn may fail before the job gives up.
        warm_up: seconds that the warm-up may take before the job goes on without; 0: there is none.
        observe: is told what each turn has done, and how long it took, in s.
        report: is told what a person should know.
        running: is told whether turns succeed.
        life: id of the stream's life, which all that it sends bears, and all that it takes has to bear.
        lease: of the job; None where nobody else can be at it.
    """

    session: SparkSession
    connection: Connection
    settings: StreamSettings
    storage: Storage
    store: RoutingStore
    pause: int = 0
    patience: int = 8
    warm_up: float = 120.0
    observe: Callable[[Any, Any, float], None] = lambda record, summary, seconds: None
    report: Callable[[str], None] = lambda text: None
    running: Callable[[bool], object] = lambda running: None
    life: str = ""
    lease: Lease | None = None
    _stopping: threading.Event = field(default_factory=threading.Event)
    _ended: threading.Event = field(default_factory=threading.Event)
    _failure: Exception | None = None

    name = ""

    @property
    def topics(self) -> Topics:
        """The stream's topics."""
        return self.connection.topics(self.settings.name)

    def _messages(self, ranges: Mapping[str, Mapping[int, tuple[int, int]]], **more: str) -> DataFrame:
        """The messages of some topics between offsets [start, end) of their partitions, a Spark partition each.

        Args:
            ranges: topic -> partition -> offsets.
            more: options of Spark's connector besides.
        """
        starts = {topic: {str(i): start for i, (start, _) in parts.items()} for topic, parts in ranges.items()}
        ends = {topic: {str(i): end for i, (_, end) in parts.items()} for topic, parts in ranges.items()}
        options = {
            "assign": json.dumps({topic: sorted(parts) for topic, parts in ranges.items()}),
            "startingOffsets": json.dumps(starts),
            "endingOffsets": json.dumps(ends),
            # consumers are kept by the name of their group: with one name they stay connected from turn to turn
            "kafka.group.id": f"{self.settings.name}-{self.name}",
            "kafka.max.partition.fetch.bytes": str(LARGEST_MESSAGE),
            "kafka.fetch.max.wait.ms": "50",
            # what a transaction has sent that was aborted has never been said
            "kafka.isolation.level": "read_committed",
            **more,
        }
        return self.session.read.format("kafka").options(**self.connection.options(), **options).load()

    @property
    def _cores(self) -> int:
        """Tasks that run at the same time."""
        return self.session.sparkContext.defaultParallelism

    def _send(self, frame: DataFrame) -> None:
        writer = frame.write.format("kafka").mode("append").options(**self.connection.options())
        writer.option("kafka.max.request.size", str(LARGEST_MESSAGE)).option("kafka.linger.ms", "5").save()

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
            self._warm_up()
            if not self._stopping.is_set():
                self.running(True)
                self.report(f"{self.name}: running")
            self._follow()
        finally:
            self.running(False)
            self._ended.set()
            attendant.join(10.0)
            self._forget()

    def _warm_up(self) -> None:
        """Have done before the first turn what it would wait for: a stream that says that it runs answers in time.

        Turns need nothing of it, so whatever goes wrong is told, and no more.
        """
        if not self.warm_up:
            return
        began = time.monotonic()
        self.report(f"{self.name}: warming up")
        try:
            warm = done_within(self.warm_up, self._idle_turn, self._stopping)
            if not warm:
                self._break_off()
        except Exception as error:  # noqa: BLE001 - a turn that meets it too is tried again, and tells
            self.report(f"{self.name}: the warm-up has failed, so the first results may be late: {_cause(error)}")
            return
        if warm:
            self.report(f"{self.name}: warm after {time.monotonic() - began:.1f} s")
        elif not self._stopping.is_set():
            self.report(f"{self.name}: not warm after {self.warm_up:g} s, so the first results may be late")

    def _idle_turn(self) -> None:
        """What a turn has Spark do, without a record: read, shuffle, run a task on every core, and send.

        Executors then have their Python processes with all kernels, clients of the broker, and the classes for it, and
        the driver has made such plans before. The last message of some partitions is read once more, and nothing sent.
        """
        self.session.sparkContext.addJobTag(_WARM_UP)  # of the jobs of this thread
        cores, offsets, topics = self._cores, Offsets(self.connection, self._stopping), self._input()
        begins, ends = offsets.earliest(topics), offsets.latest(topics)
        nexts = [(topic, i, end) for topic, of_topic in ends.items() for i, end in enumerate(of_topic)]
        lasts = [(topic, i, end - 1) for topic, i, end in nexts if begins[topic][i] < end]
        ranges = dict[str, dict[int, tuple[int, int]]]()
        for topic, i, at in islice(lasts or nexts, cores):  # one for each core will do
            ranges.setdefault(topic, {})[i] = (at, at + 1)
        read = self._messages(ranges, **({} if lasts else _ONE_LOOK), failOnDataLoss="false")
        nothing = read.select("topic", "partition", "offset", "key", "value").repartition(cores)
        self._send(nothing.mapInArrow(IdleTask(), MESSAGE_TYPE))

    def _break_off(self) -> None:
        """Take the warm-up's tasks off the executors."""
        self.session.sparkContext.cancelJobsWithTag(_WARM_UP)

    def _rest(self, seconds: float) -> None:
        """Wait, but no longer than until the job is to stop."""
        self._stopping.wait(seconds)

    def _follow(self) -> None:
        failures, running = 0, True
        before, narrowed = "", ""
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                worked = self._turn()
            except Exception as error:  # whatever it was: turns can be repeated, so it is worth another try
                failures += 1
                running = False
                self.running(running)
                self._forget()
                self._check_spark(error)
                cause, before = before, _fingerprint(error)
                if before and before == cause != narrowed:
                    narrowed = cause
                    if self._leave_out():
                        failures, before, narrowed = 0, "", ""
                        continue
                if failures > self.patience:
                    raise RunError(f"the {self.name} has failed {failures} times in a row: {_cause(error)}") from error
                rest = _rest_after(failures)
                self.report(f"{self.name}: {_cause(error)}; trying again" + (f" in {rest:.0f} s" if rest else ""))
                self._rest(rest)
            else:
                if not running:
                    running = True
                    self.running(running)
                failures, before, narrowed = 0, "", ""
                if worked:
                    self._rest(max(0.0, began + self.pause / 1000 - time.monotonic()))
        if self._failure is not None:
            raise RunError(f"the {self.name} has failed: {_cause(self._failure)}") from self._failure

    def _leave_out(self) -> bool:
        """Find what a turn fails on that has failed twice of the same exception, and leave it out; whether any was."""
        self.report(f"{self.name}: looking for the records that cause this")
        try:
            found = self._narrow()
        except Exception as error:  # noqa: BLE001 - the turn is tried again without, and fails as it would have
            self.report(f"{self.name}: none found: {_cause(error)}")
            return False
        for left in found:
            self.report(f"{self.name}: left out: {left.letter}")
        if not found:
            self.report(f"{self.name}: no record by itself, nor two or three together, cause this")
        return bool(found)

    def _check_spark(self, cause: Exception | None = None) -> None:
        """Make sure that there is a Spark to do turns with: no repetition brings one back.

        Raises:
            RunError: there is none.
        """
        if spark_ended(self.session):
            raise RunError(f"the {self.name} has lost Spark: its process or its context has ended") from cause

    def _attend(self) -> None:
        """What is to be done beside the turns, in a thread of its own."""
        while not self._ended.wait(_ATTEND_SECONDS):
            try:
                self._check_life()
                self._check_lease()
                self._check_spark()
                self._beside()
            except Unavailable:
                continue  # the next time will do
            except Exception as error:  # noqa: BLE001 - it is raised again by the main thread
                self._failure = error
                self._stopping.set()
                return

    def _check_life(self) -> None:
        """Notice that the stream has been removed and begun anew by somebody else.

        Raises:
            StateError: it has.
        """
        view = self.store.latest()
        if view is not None and view.life != self.life:
            raise StateError(f"the routing store is of another life of the stream ({view.life}, not {self.life})")

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
    def _input(self) -> Mapping[str, int]:
        """The topics that Spark reads, and how many partitions each has."""

    @abstractmethod
    def _turn(self) -> bool:
        """Do one turn; or wait a little and return False if there is nothing to do."""

    @abstractmethod
    def _narrow(self) -> Sequence[Left]:
        """Leave out of the turn that has failed what it fails on."""

    @abstractmethod
    def _forget(self) -> None:
        """Let go of what a turn that failed may have left in disorder."""

    @abstractmethod
    def _beside(self) -> None:
        """What is to be done now and then, beside the turns."""


def spark_ended(session: SparkSession) -> bool:
    """Whether a session's JVM has gone, or its context was stopped, as Spark does by itself when it is in trouble."""
    context: Any = session.sparkContext
    process = getattr(context._gateway, "proc", None)
    if process is not None and process.poll() is not None:
        return True
    try:
        return context._jsc is None or bool(context._jsc.sc().isStopped())
    except (Py4JError, OSError):
        return True


def stop_spark(session: SparkSession) -> None:
    """Stop a session, which may have ended already: what it then says is no news, and would hide why the job ends."""
    if not spark_ended(session):
        session.stop()


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


_OF_PYTHON = "Traceback (most recent call last)"
"""What is in Spark's errors where a stage's own code has raised something."""


def _fingerprint(error: Exception) -> str:
    """By which two failures of the same cause are known; "" where no stage's own code has raised anything."""
    return re.sub(r"\d+", "#", _cause(error)) if _OF_PYTHON in str(error) else ""


@dataclass(slots=True)
class RouterJob(_Job):
    """``spatialstream router``: messages to blocks.

    Attributes:
        counts: partitions of each topic.
        most_messages: messages an epoch, at most.
        learn_every: seconds between two renewals of J, and two looks at what is left to read.
        lag: is told how many messages of a kind no epoch has read.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    most_messages: int = 200_000
    learn_every: float = 10.0
    lag: Callable[[str, int], object] = lambda kind, messages: None
    _begin: dict[str, int] = field(default_factory=dict)
    _ranges: Ranges = field(default_factory=dict)
    _producer: Producer | None = None
    _offsets: Offsets | None = None
    _offsets_beside: Offsets | None = None
    _router: Router | None = None
    _learner: Learner | None = None
    _learn_at: float = 0.0

    name = "router"

    def _prepare(self) -> None:
        self._producer = self.connection.producer(**{"linger.ms": 0})
        self._offsets = Offsets(self.connection, self._stopping)
        self._offsets_beside = Offsets(self.connection, self._ended)
        self._learner = Learner(self.storage, self.store, self.settings.space)
        self._router = Router(self.settings, self.storage, self.store, self, list(self._partitions()), _now)

    def _partitions(self) -> dict[str, tuple[str, int]]:
        """What is read: names such as ``objects/0``, with topic and number."""
        kinds = self.topics.kinds.items()
        return {f"{kind}/{i}": (topic, i) for topic, kind in kinds for i in range(self.counts[topic])}

    def _input(self) -> Mapping[str, int]:
        return {topic: self.counts[topic] for topic in self.topics.kinds}

    def _turn(self) -> bool:
        router = self._router
        assert router is not None
        if not router.unfinished:
            self._ranges = _limited(self._news(), self.most_messages)
            if not self._ranges and not router.wants_epoch():
                self._stopping.wait(_POLL_SECONDS)
                return False
        began = time.monotonic()
        record = router.epoch()
        self.observe(record, None, time.monotonic() - began)
        return True

    def _news(self) -> Ranges:
        """The offsets [start, end) of what no epoch has read, of the partitions that have anything.

        Raises:
            StateError: a partition ends before what has been read of it.
        """
        assert self._router is not None
        assert self._offsets is not None
        places = self._partitions()  # once: there may be more of them at any time
        counts = {topic: 1 + max(i for of, i in places.values() if of == topic) for topic in self.topics.kinds}
        ends = self._offsets.latest(counts)
        read = self._begin if self._router.last is None else self._begin | dict(self._router.last.read)
        if missing := [name for name in places if name not in read]:
            first = self._offsets.earliest(counts)
            self._begin |= {name: first[places[name][0]][places[name][1]] for name in missing}
            read = self._begin | read
        news = {}
        for name, (topic, i) in places.items():
            start, end = read[name], ends[topic][i]
            if end < start:
                raise StateError(
                    f"{topic} ends at offset {end} in partition {i}, but {start} have been read: it is not the topic "
                    "that this checkpoint belongs to"
                )
            if start < end:
                news[name] = start, end
        return news

    def _forget(self) -> None:
        pass

    def _beside(self) -> None:
        """Keep J, and tell what is left to read."""
        assert self._learner is not None
        assert self._router is not None
        if time.monotonic() >= self._learn_at:
            self._learn(self._learner)
            self._router.tidy()
            self._look_behind()
            self._learn_at = time.monotonic() + self.learn_every

    def _learn(self, learner: Learner) -> None:
        """Keep J, which no answer needs: samples on which that fails would be there again after a restart."""
        try:
            learner.learn()
        except AMBIENT:
            raise
        except Exception as error:  # noqa: BLE001 - it is told, and its cause removed
            learner.drop()
            self.report(
                f"router: samples of the last epochs are dropped, for learning from them fails: {_cause(error)}"
            )

    def _look_behind(self) -> None:
        """Tell how many messages are left to read; topics may have got more partitions."""
        assert self._router is not None
        assert self._offsets_beside is not None
        offsets = self._offsets_beside
        known = {topic: max(self.counts[topic], n) for topic, n in offsets.partitions(self.topics.kinds).items()}
        self.counts = {**self.counts, **known}
        ends = offsets.latest({topic: self.counts[topic] for topic in self.topics.kinds})
        read = {} if self._router.last is None else self._router.last.read
        for topic, kind in self.topics.kinds.items():
            done = [read.get(f"{kind}/{i}", self._begin.get(f"{kind}/{i}", end)) for i, end in enumerate(ends[topic])]
            self.lag(kind, max(0, sum(ends[topic]) - sum(done)))

    def ingest(self, epoch: int) -> Sequence[Intake]:
        """See :class:`~spatialstream.stream.router.RouterJobs`."""
        assert self._router is not None
        if not self._ranges:
            return []
        settings, places = self.settings, self._partitions()
        ranges: dict[str, dict[int, tuple[int, int]]] = {}
        for name, span in self._ranges.items():
            topic, i = places[name]
            ranges.setdefault(topic, {})[i] = span
        limits = settings.longest, *self._router.limits()
        # a task of a try that has failed may still be at work, on other messages than this one
        last = *limits, uuid.uuid4().hex[:8]
        task = Ingest(epoch, self.storage, self.topics.kinds, settings.space, settings.rule, *last)
        frame = self._messages(ranges).select("topic", "partition", "offset", "key", "value")
        if sum(end - start for start, end in self._ranges.values()) <= _FEW_MESSAGES:
            frame = frame.coalesce(self._cores)
        intakes = [Intake.from_json(row.intake) for row in frame.mapInArrow(task, "intake string").collect()]
        return [*intakes, *_unseen(self._ranges, intakes)]

    def route(self, record: EpochRecord) -> None:
        """See :class:`~spatialstream.stream.router.RouterJobs`."""
        partitions = self.settings.partitions
        topics = self.topics.blocks, self.topics.rejected
        task = RouteTask(record.epoch, partitions, self.storage, *topics, self.life)
        tasks = min(partitions, self._cores)
        self._send(self.session.range(0, partitions, 1, tasks).mapInArrow(task, MESSAGE_TYPE))

    def _narrow(self) -> Sequence[Left]:
        assert self._router is not None
        return self._router.leave_out(self._fails_on)

    def _fails_on(self, record: EpochRecord) -> Sequence[Left]:
        partitions = self.settings.partitions
        task = NarrowRouteTask(record, partitions, self.storage)
        frame = self.session.range(0, partitions, 1, min(partitions, self._cores)).mapInArrow(task, LEFT_TYPE)
        return _lefts(frame)

    def announce(self, epoch: int, announcement: Mapping[str, Any]) -> None:
        """See :class:`~spatialstream.stream.router.RouterJobs`."""
        assert self._offsets is not None
        ends = self._offsets.latest({self.topics.blocks: self.settings.slots})[self.topics.blocks]
        _deliver(
            self._producer, self.topics.epochs, json.dumps({**announcement, "ends": ends, "life": self.life}).encode()
        )


def _lefts(frame: DataFrame) -> list[Left]:
    return [Left.from_json(row.left) for row in frame.collect()]


def _limited(news: Ranges, most: int) -> Ranges:
    """The ranges cut to so many messages in all: one of each, and of the others each range its proportion."""
    others = sum(end - start - 1 for start, end in news.values())
    room = max(0, most - len(news))
    if others <= room:
        return news
    return {name: (start, start + 1 + (end - start - 1) * room // others) for name, (start, end) in news.items()}


def _unseen(ranges: Ranges, intakes: Sequence[Intake]) -> list[Intake]:
    """Intakes of nothing, where a range ends after its last message: markers of transactions have offsets too."""
    seen = {intake.partition: intake.last for intake in intakes}
    last = {name: end - 1 for name, (start, end) in ranges.items() if seen.get(name, start - 1) < end - 1}
    return [Intake(name, None, None, "", 0, 0, at) for name, at in last.items()]


def _now() -> int:
    """The day's clock, ms."""
    return int(time.time() * 1000)


def _deliver(producer: Producer | None, topic: str, value: bytes) -> None:
    """Send one message and wait until the broker has it."""
    assert producer is not None
    failed: list[str] = []

    def on_delivery(error: Any, message: Any) -> None:
        if error is not None:
            failed.append(str(error))

    try:
        producer.produce(topic, value, on_delivery=on_delivery)
        left = producer.flush(120.0)
    except (KafkaException, BufferError) as error:
        raise Unavailable(f"{topic} takes no message: {error}") from None
    if left or failed:
        raise Unavailable(f"{topic} takes no message: {failed[0] if failed else 'no answer'}")


@dataclass(slots=True)
class WorkerJob(_Job):
    """``spatialstream worker``: blocks to results.

    Attributes:
        archive: where the objects go that retention drops; None: they are gone.
        most_epochs: epochs a round, at most.
        rows_per_message: result rows a message, at most.
        limits: how long rows may be.
        executors: keeps their number; None: it stays as it is.
        foreign: is told how many messages of the internal topics are not the router's.
        loads: is told the loads of leaves and slots that the job reports to the routing store.
    """

    archive: Storage | None = None
    most_epochs: int = 64
    rows_per_message: int = 500
    limits: RowLimits = field(default_factory=RowLimits)
    executors: Executors | None = None
    foreign: Callable[[int], object] = lambda messages: None
    loads: LoadObserver = field(default_factory=LoadObserver)
    _reporter: LoadReporter | None = None
    _worker: Worker | None = None
    _announcements: Announcements | None = None
    _passed_over: int = 0
    _tell_at: float = 0.0

    name = "worker"

    @property
    def _work_settings(self) -> WorkSettings:
        return WorkSettings(self.settings.space, self.settings.interval, self.settings.retention, self.archive)

    def _prepare(self) -> None:
        self._worker = Worker(self.settings.slots, self.storage, self.store, self, begins=self._begins)
        self._reporter = LoadReporter(self.storage, self.store, self.settings.retention, self.loads)

    def _begins(self) -> Sequence[int]:
        """Where the slots' partitions begin; in topics that an earlier life left, the first messages may be gone."""
        topic = self.topics.blocks
        return Offsets(self.connection, self._stopping).earliest({topic: self.settings.slots})[topic]

    def _input(self) -> Mapping[str, int]:
        return {self.topics.blocks: self.settings.slots}

    def _turn(self) -> bool:
        worker = self._worker
        assert worker is not None
        if worker.unfinished:
            began = time.monotonic()
            self._done(*worker.again(), time.monotonic() - began)
            return True
        if self._announcements is None:
            self._announcements = Announcements(self.connection, self.topics.epochs, worker.announced)
        taken = self._announcements.take(self.most_epochs, _WAIT_SECONDS)
        announcements = [each for each in taken if each.get("life", "") == self.life]  # not those of an earlier life
        self._tell_foreign(self._announcements.foreign)
        self._announcements.foreign = 0
        began = time.monotonic()
        done = worker.round(announcements, self._announcements.next)
        if done is not None:
            self._done(*done, time.monotonic() - began)
        return done is not None

    def _done(self, record: RoundRecord, summary: Summary, seconds: float) -> None:
        """A round has been done: tell of it, and report its loads."""
        assert self._reporter is not None
        self.observe(record, summary, seconds)
        self._reporter.observe(record, summary)
        self._tell_foreign(summary.foreign)

    def _tell_foreign(self, count: int) -> None:
        """Tell of messages that were passed over: metrics at once, a person now and then, for there may be many."""
        if count:
            self.foreign(count)
            self._passed_over += count
        if self._passed_over and time.monotonic() >= self._tell_at:
            names = f"{self.topics.blocks} or {self.topics.epochs}"
            self.report(f"worker: {self._passed_over} messages in {names} are not the router's, and were passed over")
            self._passed_over, self._tell_at = 0, time.monotonic() + _TELL_SECONDS

    def _forget(self) -> None:
        """What has been announced and is in no round's record has to be read again."""
        if self._announcements is not None:
            self._announcements.close()
            self._announcements = None

    def _beside(self) -> None:
        if self._worker is not None:
            self._worker.confirm()
        if self.executors is not None:
            self.executors.follow()

    def work(self, record: RoundRecord) -> None:
        """See :class:`~spatialstream.stream.worker.WorkerJobs`."""
        topics, settings, blocks = self.topics, self._work_settings, self._blocks(record)
        partials = blocks.mapInArrow(WorkTask(record, settings, self.storage, self.life), messages.BLOCK_TYPE)
        how = self.rows_per_message, self.limits, self.life
        task = MergeTask(record, settings, self.storage, topics.results, topics.rejected, *how)
        self._send(partials.repartition(1).mapInArrow(task, MESSAGE_TYPE))

    def _blocks(self, record: RoundRecord) -> DataFrame:
        """The messages of a round."""
        ranges = dict(enumerate(zip(record.starts, record.ends, strict=True)))
        # before the first round there may be blocks of an earlier life, which the broker may remove at any time; that
        # all of this life are there is seen by their markers
        whole = {} if record.round.number else {"failOnDataLoss": "false"}
        blocks = self._messages({self.topics.blocks: ranges}, **whole).select("partition", "key", "value")
        return blocks.coalesce(self._cores) if record.records <= _FEW_RECORDS else blocks

    def _narrow(self) -> Sequence[Left]:
        assert self._worker is not None
        return self._worker.leave_out(self._fails_on)

    def _fails_on(self, record: RoundRecord) -> Sequence[Left]:
        given = record, self._work_settings, self.storage
        blocks = self._blocks(record)
        if found := _lefts(blocks.mapInArrow(NarrowWorkTask(*given, self.life), LEFT_TYPE)):
            return found
        partials = blocks.mapInArrow(WorkTask(*given, self.life), messages.BLOCK_TYPE)
        return _lefts(partials.repartition(1).mapInArrow(NarrowMergeTask(*given, self.limits), LEFT_TYPE))

    def second(self, record: RoundRecord, slots: Sequence[int]) -> None:
        """See :class:`~spatialstream.stream.worker.WorkerJobs`."""
        number, settings = record.round.number, self._work_settings
        ask = SecondTask(number, tuple(slots), settings, self.storage)
        tasks = min(len(slots), self._cores)
        asked = self.session.range(0, len(slots), 1, tasks).mapInArrow(ask, messages.BLOCK_TYPE)
        how = self.rows_per_message, self.limits, self.life
        task = SecondMergeTask(number, settings, self.storage, self.topics.results, *how)
        self._send(asked.repartition(1).mapInArrow(task, MESSAGE_TYPE))
