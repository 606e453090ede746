"""The two jobs of a stream as Spark applications: the router, and the worker, with the broker between them.

Each is one Structured Streaming query on Spark's Kafka source whose micro-batches are epochs (router) and rounds
(worker). What a micro-batch does is decided by :class:`~spatialstream.pipeline.live.Router` and
:class:`~spatialstream.pipeline.rounds.Worker`; this module gives them Spark and the broker to do it with. The stages
run in Spark's Python processes, as they do in embedded mode.

On the driver there are records of epochs and rounds, never records of the stream.
"""

from __future__ import annotations

import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from spatialstream.model.errors import RunError, Unavailable
from spatialstream.pipeline import messages
from spatialstream.pipeline.delivery import result_messages
from spatialstream.pipeline.executors import Executors
from spatialstream.pipeline.ingest import CONTROL, Ingest, Intake
from spatialstream.pipeline.kafka import LARGEST_MESSAGE, Connection, Topics, ends
from spatialstream.pipeline.learning import Learner
from spatialstream.pipeline.live import EpochRecord, Router, StreamSettings, route_epoch
from spatialstream.pipeline.rounds import (
    RoundRecord,
    Worker,
    merge_round,
    merge_second_round,
    second_round,
    work_round,
)
from spatialstream.pipeline.session import INTERRUPTED
from spatialstream.pipeline.work import WorkSettings
from spatialstream.store.base import RoutingStore

__all__ = ["RouterJob", "WorkerJob"]

_MESSAGE = "topic string, partition int, key binary, value binary"
_ROUTED = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("key", pa.binary()), ("value", pa.binary())])
_POLL_SECONDS = 0.05


def _message(topic: str, partition: int | None, key: bytes | None, value: bytes | pa.Buffer) -> pa.RecordBatch:
    size = value.size if isinstance(value, pa.Buffer) else len(value)
    offsets = pa.py_buffer(memoryview(bytearray((0).to_bytes(4, "little") + size.to_bytes(4, "little"))))
    content = value if isinstance(value, pa.Buffer) else pa.py_buffer(value)
    data = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, content])
    return pa.RecordBatch.from_arrays(
        [pa.array([topic]), pa.array([partition], pa.int32()), pa.array([key], pa.binary()), data], schema=_ROUTED
    )


# ------------------------------------------------------------------------------------------- what runs in Spark's tasks


@dataclass(frozen=True, slots=True)
class RouteTask:
    """Numbers of router partitions to messages, as ``mapInArrow`` takes it."""

    epoch: int
    partitions: int
    checkpoint: Path
    blocks: str
    rejected: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """ROUTE of an epoch."""
        record = EpochRecord.load(self.checkpoint / "epochs" / f"{self.epoch:09d}.json")
        for batch in batches:
            for partition in batch.column(0).to_pylist():
                for key, (slot, kind, content) in route_epoch(record, partition, self.partitions, self.checkpoint):
                    if kind == messages.REJECTED and slot < 0:
                        for line in content.column("line").to_pylist():
                            yield _message(self.rejected, None, None, line.encode())
                    else:
                        yield _message(self.blocks, slot, key, messages.pack(content))


@dataclass(frozen=True, slots=True)
class WorkTask:
    """Messages of one slot's partition to partials, as ``mapInArrow`` takes it."""

    record: RoundRecord
    settings: WorkSettings
    checkpoint: Path

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """WORK of a round."""
        blocks: list[tuple[bytes, Any]] = []
        slot = -1
        for batch in batches:
            if batch.num_rows:
                slot = batch.column("partition")[0].as_py()
            key, value = batch.column("key"), batch.column("value")
            blocks += [(key[i].as_py(), value[i].as_buffer()) for i in range(batch.num_rows)]
        if slot >= 0:
            for row in work_round(slot, blocks, self.record.round, self.settings, self.checkpoint):
                yield messages.message(*row)


@dataclass(frozen=True, slots=True)
class MergeTask:
    """Partials of all slots to messages of results, as ``mapInArrow`` takes it; there is one partition."""

    record: RoundRecord
    settings: WorkSettings
    checkpoint: Path
    results: str
    rejected: str
    rows_per_message: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """MERGE of a round."""
        rows = [row for batch in batches for row in messages.blocks(batch)]
        if not rows:
            return
        results = merge_round(rows, self.record, self.settings.space, self.checkpoint)
        for key, value in result_messages(results.lines, self.record.round.number, 0, self.rows_per_message):
            yield _message(self.results, None, key, value)
        for line in results.rejected:
            yield _message(self.rejected, None, None, line.encode())


@dataclass(frozen=True, slots=True)
class SecondTask:
    """Positions in a list of slots to what these slots say in the second phase, as ``mapInArrow`` takes it."""

    number: int
    slots: tuple[int, ...]
    settings: WorkSettings
    checkpoint: Path

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The second phase of a round."""
        for batch in batches:
            for position in batch.column(0).to_pylist():
                for row in second_round(self.slots[position], self.number, self.settings, self.checkpoint):
                    yield messages.message(*row)


@dataclass(frozen=True, slots=True)
class SecondMergeTask:
    """What slots say in the second phase to messages of results, as ``mapInArrow`` takes it; one partition."""

    number: int
    settings: WorkSettings
    checkpoint: Path
    results: str
    rows_per_message: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """MERGE of the second phase of a round."""
        rows = [row for batch in batches for row in messages.blocks(batch)]
        lines = merge_second_round(rows, self.number, self.settings.space, self.checkpoint)
        for key, value in result_messages(lines, self.number, 1, self.rows_per_message):
            yield _message(self.results, None, key, value)


# ------------------------------------------------------------------------------------------------------------ the jobs


@dataclass(slots=True)
class _Job(ABC):
    """What both jobs have in common: a streaming query, its micro-batches, and how it is stopped.

    Attributes:
        session: the Spark session.
        connection: how to reach the broker.
        settings: of the stream.
        checkpoint: folder of the stream's state, shared by both jobs.
        store: the routing store.
        pause: ms between the starts of micro-batches, at least.
        patience: how often in a row the query may fail before the job gives up.
        observe: is told what each micro-batch has done, and how long it took, in s.
        report: is told what a person should know.
        running: is told when the query begins and ends.
    """

    session: SparkSession
    connection: Connection
    settings: StreamSettings
    checkpoint: Path
    store: RoutingStore
    pause: int = 0
    patience: int = 8
    observe: Callable[[Any, Any, float], None] = lambda record, summary, seconds: None
    report: Callable[[str], None] = lambda text: None
    running: Callable[[bool], object] = lambda running: None
    _stopping: threading.Event = field(default_factory=threading.Event)
    _failure: list[BaseException] = field(default_factory=list)
    _query: StreamingQuery | None = None
    _begun: int = -1
    _done: int = -1

    name = ""

    @property
    def topics(self) -> Topics:
        """The stream's topics."""
        return self.connection.topics(self.settings.name)

    def _source(self, topics: str, **options: Any) -> DataFrame:
        reader = self.session.readStream.format("kafka").options(**self.connection.options())
        defaults = {"subscribe": topics, "startingOffsets": "earliest", "failOnDataLoss": "true"}
        return reader.options(**(defaults | options)).load()

    def _send(self, frame: DataFrame) -> None:
        writer = frame.write.format("kafka").options(**self.connection.options())
        writer.option("kafka.max.request.size", str(LARGEST_MESSAGE)).option("kafka.linger.ms", "5").save()

    @abstractmethod
    def _batch(self, frame: DataFrame, number: int) -> None:
        """Do one micro-batch, or do it again."""

    def _guarded(self, frame: DataFrame, number: int) -> None:
        """One micro-batch; none is begun once the job is to stop."""
        if self._stopping.is_set():
            while self._query is None or self._query.isActive:
                time.sleep(_POLL_SECONDS)
            raise RunError(INTERRUPTED)
        self._begun = number
        self._batch(frame, number)
        self._done = number

    def stop(self) -> None:
        """Finish the micro-batch under way and end."""
        self._stopping.set()

    def _start(self, frame: DataFrame) -> StreamingQuery:
        writer = frame.writeStream.queryName(f"spatialstream-{self.name}").foreachBatch(self._guarded)
        if self.pause:
            writer = writer.trigger(processingTime=f"{self.pause} milliseconds")
        return writer.option("checkpointLocation", str(self.checkpoint / f"spark-{self.name}")).start()

    @abstractmethod
    def _idle(self) -> None:
        """What is to be done now and then, beside the micro-batches."""

    def _follow(self, frame: Callable[[], DataFrame]) -> None:
        """Run the query until it is to stop; begin it anew when it fails, a few times before giving up."""
        failures, done = 0, self._done
        while not self._stopping.is_set():
            try:
                self._follow_once(frame())
            except (PySparkException, RunError, Unavailable) as error:
                failures = 1 if self._done > done else failures + 1
                done = self._done
                if failures > self.patience:
                    raise RunError(f"the {self.name} has failed {failures} times in a row: {_cause(error)}") from error
                wait = min(30.0, 0.5 * 2**failures)
                self.report(f"{self.name}: {_cause(error)}; trying again in {wait:.0f} s")
                self._stopping.wait(wait)

    def _follow_once(self, frame: DataFrame) -> None:
        self._query = query = self._start(frame)
        self.running(True)
        try:
            while query.isActive:
                if self._stopping.is_set() and self._committed() >= self._begun:
                    return
                self._idle()
                time.sleep(_POLL_SECONDS)
            if error := query.exception():
                raise RunError(_cause(error)) from error
        finally:
            self.running(False)
            query.stop()

    def _committed(self) -> int:
        commits = self.checkpoint / f"spark-{self.name}" / "commits"
        if not commits.is_dir():
            return -1
        return max((int(path.name) for path in commits.iterdir() if path.name.isdigit()), default=-1)


def _cause(error: Exception) -> str:
    """What went wrong, in a few words."""
    lines = [line.strip() for line in str(error).split("SQLSTATE")[0].splitlines() if line.strip()]
    for line in reversed(lines):
        if "Error: " in line or "Exception: " in line or line.startswith("spatialstream."):
            return line
    return lines[-1] if lines else repr(error)


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
    _read: dict[str, int] = field(default_factory=dict)
    _producer: Producer | None = None
    _admin: AdminClient | None = None
    _frame: DataFrame | None = None
    _router: Router | None = None
    _learner: Learner | None = None
    _learn_at: float = 0.0
    _woken: int = -1

    name = "router"

    def run(self) -> None:
        """Run until :meth:`stop`."""
        topics = self.topics
        names = [
            f"{kind}/{i}" for topic, kind in topics.kinds.items() if kind != CONTROL for i in range(self.counts[topic])
        ]
        self._producer, self._admin = self.connection.producer(), self.connection.admin()
        self._learner = Learner(self.checkpoint / "samples", self.store, self.settings.space)
        self._router = Router(self.settings, self.checkpoint, self.store, self, names, lambda: int(time.time() * 1000))
        columns = ("topic", "partition", "offset", "key", "value")
        most = self.most_messages
        self._follow(lambda: self._source(",".join(topics.kinds), maxOffsetsPerTrigger=most).select(*columns))

    def _batch(self, frame: DataFrame, number: int) -> None:
        assert self._router is not None
        began = time.monotonic()
        self._frame = frame
        record = self._router.epoch(number)
        self._read |= {intake.partition: intake.last + 1 for intake in record.intakes}
        self.observe(record, None, time.monotonic() - began)

    def _idle(self) -> None:
        """Keep J; wake the router where an epoch without input has something to do."""
        if self._learner is not None and self._router is not None and time.monotonic() >= self._learn_at:
            self._learner.learn()
            self._router.tidy()
            self._look_behind()
            self._learn_at = time.monotonic() + self.learn_every
        if self._router is None or self._producer is None or self._begun != self._done or self._woken == self._done:
            return
        if self._router.wants_epoch():
            self._woken = self._done
            self._producer.produce(self.topics.control, b"{}", key=b"wake")
            self._producer.poll(0)

    def _look_behind(self) -> None:
        """Tell how many messages are left to read, of the partitions from which anything has been read."""
        assert self._admin is not None
        for topic, kind in self.topics.kinds.items():
            if kind != CONTROL:
                try:
                    self._admin, offsets = ends(self.connection, self._admin, topic, self.counts[topic])
                except Unavailable:
                    continue
                read = [self._read.get(f"{kind}/{partition}", end) for partition, end in enumerate(offsets)]
                self.lag(kind, sum(offsets) - sum(read))

    def ingest(self, epoch: int) -> Sequence[Intake]:
        """See :class:`~spatialstream.pipeline.live.RouterJobs`."""
        assert self._frame is not None
        assert self._router is not None
        settings = self.settings
        folder = self.checkpoint / "input"
        limits = settings.longest, *self._router.limits()
        task = Ingest(epoch, folder, self.topics.kinds, settings.space, settings.rule, *limits)
        return [Intake.from_json(row.intake) for row in self._frame.mapInArrow(task, "intake string").collect()]

    def route(self, record: EpochRecord) -> None:
        """See :class:`~spatialstream.pipeline.live.RouterJobs`."""
        partitions = self.settings.partitions
        task = RouteTask(record.epoch, partitions, self.checkpoint, self.topics.blocks, self.topics.rejected)
        self._send(self.session.range(0, partitions, 1, partitions).mapInArrow(task, _MESSAGE))

    def announce(self, epoch: int, announcement: Mapping[str, Any]) -> None:
        """See :class:`~spatialstream.pipeline.live.RouterJobs`."""
        assert self._admin is not None
        self._admin, offsets = ends(self.connection, self._admin, self.topics.blocks, self.settings.slots)
        _deliver(self._producer, self.topics.epochs, json.dumps({**announcement, "ends": offsets}).encode())


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
        archive: folder for the objects that retention drops; None: they are gone.
        most_epochs: epochs a round, at most.
        rows_per_message: result rows a message, at most.
        executors: keeps their number; None: it stays as it is.
    """

    archive: Path | None = None
    most_epochs: int = 64
    rows_per_message: int = 500
    executors: Executors | None = None
    _worker: Worker | None = None

    name = "worker"

    @property
    def _work_settings(self) -> WorkSettings:
        return WorkSettings(self.settings.space, self.settings.interval, self.settings.retention, self.archive)

    def run(self) -> None:
        """Run until :meth:`stop`."""
        self._worker = Worker(self.settings.slots, self.checkpoint, self.store, self, self._committed())
        most = self.most_epochs
        self._follow(lambda: self._source(self.topics.epochs, maxOffsetsPerTrigger=most).select("value"))

    def _batch(self, frame: DataFrame, number: int) -> None:
        assert self._worker is not None
        began = time.monotonic()
        announcements = [json.loads(bytes(row.value)) for row in frame.collect()]  # a few numbers an epoch
        done = self._worker.batch(number, announcements)
        if done is not None:
            self.observe(*done, time.monotonic() - began)

    def _idle(self) -> None:
        if self._worker is not None:
            self._worker.confirm()
        if self.executors is not None:
            self.executors.follow()

    def work(self, record: RoundRecord) -> None:
        """See :class:`~spatialstream.pipeline.rounds.WorkerJobs`."""
        topics, settings = self.topics, self._work_settings
        blocks = (
            self.session.read.format("kafka")
            .options(**self.connection.options())
            .option("assign", json.dumps({topics.blocks: list(range(self.settings.slots))}))
            .option("startingOffsets", _offsets(topics.blocks, record.starts))
            .option("endingOffsets", _offsets(topics.blocks, record.ends))
            .option("kafka.max.partition.fetch.bytes", str(LARGEST_MESSAGE))
            .option("kafka.fetch.max.wait.ms", "50")
            .load()
            .select("partition", "key", "value")
        )
        partials = blocks.mapInArrow(WorkTask(record, settings, self.checkpoint), messages.BLOCK_TYPE)
        task = MergeTask(record, settings, self.checkpoint, topics.results, topics.rejected, self.rows_per_message)
        self._send(partials.repartition(1).mapInArrow(task, _MESSAGE))

    def second(self, record: RoundRecord, slots: Sequence[int]) -> None:
        """See :class:`~spatialstream.pipeline.rounds.WorkerJobs`."""
        number, settings = record.round.number, self._work_settings
        ask = SecondTask(number, tuple(slots), settings, self.checkpoint)
        asked = self.session.range(0, len(slots), 1, len(slots)).mapInArrow(ask, messages.BLOCK_TYPE)
        task = SecondMergeTask(number, settings, self.checkpoint, self.topics.results, self.rows_per_message)
        self._send(asked.repartition(1).mapInArrow(task, _MESSAGE))


def _offsets(topic: str, offsets: Sequence[int]) -> str:
    return json.dumps({topic: {str(partition): offset for partition, offset in enumerate(offsets)}})
