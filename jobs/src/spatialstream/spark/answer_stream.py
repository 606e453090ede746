"""Streams of DataFrames, answered by one Structured Streaming query in the user's own Spark session.

:class:`~spatialstream.stream.micro_batches.LocalStream` decides what is done with its micro-batches.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType

import pandas as pd
import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from spatialstream.actors.engine import ActorEngine
from spatialstream.connectors.contracts import Storage, find
from spatialstream.connectors.disk import disk_errors
from spatialstream.connectors.folder import Folder
from spatialstream.connectors.object_store import is_url
from spatialstream.connectors.owned import REJECTED, RESULTS
from spatialstream.connectors.result_files import ResultFiles
from spatialstream.index.kinds import wanted_kind
from spatialstream.kernels import compile_kernels
from spatialstream.model.errors import RunError, SettingError, SpatialStreamError, StateError
from spatialstream.model.jsonable import from_json, to_json
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.properties.declared import Properties
from spatialstream.model.space import WGS84, Space
from spatialstream.model.terms import TermRule
from spatialstream.model.times import check_times, duration_of, whole_number
from spatialstream.model.times import time_unit as unit_of
from spatialstream.records.decode import decode_objects
from spatialstream.records.decode_queries import decode_queries
from spatialstream.spark.actor_launcher import SparkActorLauncher
from spatialstream.spark.answers import Answers, Queries, rejected_records, result_schema
from spatialstream.spark.failures import explained
from spatialstream.spark.frame_records import object_lines, query_lines
from spatialstream.spark.pandas_records import object_records, query_records
from spatialstream.spark.session import INTERRUPTED, right_python
from spatialstream.stages.ingest import Ingest, Intake
from spatialstream.stages.state import get_json, put_json
from spatialstream.stages.tasks import World
from spatialstream.stream.bootstrap import locked
from spatialstream.stream.driver import Ingestion
from spatialstream.stream.embedded import embedded_world
from spatialstream.stream.engine import Engine, Inline, StageError
from spatialstream.stream.micro_batches import LocalStream, intakes_of_part
from spatialstream.stream.settings import StreamSettings

__all__ = ["AnswerStream", "answer_stream"]

_POLL_SECONDS = 0.05
_HISTORY = 50_000
_DAMAGED = "start again with another checkpoint"


def answer_stream(
    objects: DataFrame,
    queries: Queries,
    *,
    checkpoint: Path | str,
    spark: SparkSession | None = None,
    output: Path | str | None = None,
    history: DataFrame | pd.DataFrame | None = None,
    slots: int | None = None,
    index: str | None = None,
    leaves: int = 64,
    space: Space | str = WGS84,
    interval: int | str | timedelta = 300_000,
    retention: int | str | timedelta | None = None,
    idle: int | str | timedelta = 500,
    disorder: int | str | timedelta = 0,
    epoch_records: int = 250_000,
    rule: TermRule | None = None,
    time_unit: str | None = None,
) -> AnswerStream:
    """Answer queries over a streaming DataFrame, for as long as it runs, in the session that it belongs to.

    The order of the stream is that of its timestamps. Each source (objects; queries, if they are a stream too) delivers
    its records in time order from micro-batch to micro-batch; within one the order does not matter. Answers reach up
    to the time that all sources have reached; a source that has been silent for ``idle`` ms is not waited for, and what
    it delivers later with an earlier timestamp is late: it counts from its arrival.

    Called again with the same checkpoint it continues where it was stopped or killed: nothing is lost, and no row comes
    twice, provided that the sources can be read again from where Spark's checkpoint says (files and Kafka can).

    Args:
        objects: a streaming DataFrame with the columns ``id``, ``t`` (ms, timestamp, or ISO 8601), ``lon``, ``lat``
            (``x``, ``y`` in planar spaces) and ``text``, or ``terms`` (an array of strings). Values are converted to
            what they mean, as in :func:`answer`.
        queries: a streaming DataFrame with the fields of queries as columns; or queries that exist from the start, as
            in :func:`answer`.
        checkpoint: folder of the stream's state, on a disk that all of Spark's processes share.
        spark: the session that does the work; default: that of ``objects``.
        output: folder of ``results`` and ``rejected``, JSON Lines; default: ``output`` in the checkpoint.
        history: objects like those to come, by which the space is divided; default: the first micro-batch.
        slots: worker slots; default: one for each core, at least two. Like ``space``, ``interval``, ``retention`` and
            ``rule`` it must not change during the stream's lifetime.
        index: kind of the global index, ``"qt-tree"``, ``"a-grid"``, ``"kd-t"``, ``"grid"``, or ``"auto"``: what suits
            the first objects; default: that of the checkpoint, else a QT-tree. It must not change during the stream's
            lifetime.
        leaves: minimum number of leaves of the index (θ).
        space: a space, or its text: ``"wgs84"`` or ``"planar:x0,y0,x1,y1"``.
        interval: Δ: granularity in which old objects are dropped. This and the other durations are ms, or text such as
            ``"30m"``, or time differences.
        retention: how far snapshot queries can look back; None keeps everything.
        idle: time without input after which a source is not waited for.
        disorder: time by which the records of a source may be out of order; it delays all answers.
        epoch_records: approximate maximum of records per epoch; a larger micro-batch becomes several epochs.
        rule: term extraction, and the properties that are declared, which are columns of ``objects``.
        time_unit: of times that are numbers, in objects and in queries: ``"s"``, ``"ms"`` or ``"us"``; default: ms, and
            times that look as if they were of another unit are refused: queries that are there from the start at once,
            what comes as a stream with the first micro-batch that has any, which ends the stream before it takes
            anything in.

    Returns:
        The handle of the stream, which is running.

    Raises:
        SettingError: a setting or a column is unusable, times look as if they were not ms, or ``objects`` is no
            streaming DataFrame.
        StateError: the checkpoint belongs to a stream with other settings or queries, or is damaged.
        RunError: the turn that was in progress when the stream last ended cannot be finished.
    """
    space = Space.of(space)
    settings = StreamSettings(
        "frames",
        slots=max(2, os.cpu_count() or 2) if slots is None else whole_number(slots, "slots"),
        space=space,
        interval=duration_of(interval, "interval"),
        retention=None if retention is None else duration_of(retention, "retention"),
        rule=rule or TermRule(),
        idle=duration_of(idle, "idle"),
        disorder=duration_of(disorder, "disorder"),
        epoch_records=whole_number(epoch_records, "epoch_records"),
    )
    settings.validate()
    if not 1 <= whole_number(leaves, "leaves") <= 65_536:
        raise SettingError("leaves", f"{leaves} is out of range; give 1 to 65536")
    if index is not None:
        wanted_kind(index)
    if is_url(str(checkpoint)):
        raise SettingError("checkpoint", f"{checkpoint} is not a folder: Spark's own checkpoint must be beside it")
    folder = Path(checkpoint).absolute()
    storage = Folder(folder)
    unit, sure = "ms" if time_unit is None else unit_of(time_unit, "time_unit"), time_unit is not None
    properties = settings.rule.properties
    source = _source(objects, queries, space, unit, properties)
    session = spark or objects.sparkSession
    right_python(session)
    before = None if history is None else _history_lines(history, space, unit, properties)
    encoded = _query_lines(queries, unit)
    if encoded is not None and not sure:
        check_times(decode_queries(encoded, 1, space, settings.rule).batch.t, "queries")
    with ExitStack() as stack:
        with disk_errors("checkpoint"):
            stack.enter_context(locked(folder, "stream"))
            settings.claim(storage)
            asked = _keep_queries(encoded, storage)
        compile_kernels()
        out = Path(output or folder / "output").absolute()
        world = embedded_world(settings, storage, ResultFiles(out / "results", out / "rejected"))
        stream = LocalStream(
            settings,
            stack.enter_context(_engine(session, world)),
            index=index,
            leaves=leaves,
            queries=asked,
            history=None if before is None else lambda: _sampled(before, settings),
            now=lambda: int(time.monotonic() * 1000),
            sure=sure,
        )
        schema = result_schema(space, settings.rule)
        return AnswerStream(source, stream, session, schema, folder, out, stack.pop_all())


@contextmanager
def _engine(session: SparkSession, world: World) -> Iterator[Engine]:
    """Actors on half of the session's cores, because Spark needs some to read the frames; with one core, no actors."""
    cores = session.sparkContext.defaultParallelism
    if cores < 2:
        yield Inline(world)
        return
    with ActorEngine(world, SparkActorLauncher(session, cores // 2, "answer_stream")) as engine:
        yield engine


def _source(objects: DataFrame, queries: Queries, space: Space, unit: str, properties: Properties) -> DataFrame:
    """Both streams as one, as rows of (kind, value).

    Raises:
        SettingError: a column is unusable, or ``objects`` is no streaming DataFrame.
    """
    if not getattr(objects, "isStreaming", False):
        problem = "is not a streaming DataFrame; use spark.readStream, or answer() for a static one"
        raise SettingError("objects", problem)
    source = object_lines(objects, space, unit=unit, properties=properties)
    if isinstance(queries, DataFrame):
        asked = query_lines(queries, unit=unit)
        source = source.union(asked) if queries.isStreaming else source
    return source


def _query_lines(queries: Queries, unit: str) -> pa.Buffer | None:
    """The queries that are there from the start, JSON Lines; None if they are a stream."""
    if isinstance(queries, DataFrame):
        if queries.isStreaming:
            return None
        lines: Iterable[bytes] = (bytes(row.value) for row in query_lines(queries, unit=unit).toLocalIterator())
    else:
        lines = query_records(queries, unit)
    sink = pa.BufferOutputStream()
    for line in lines:
        sink.write(line + b"\n")
    return sink.getvalue()


def _keep_queries(lines: pa.Buffer | None, storage: Storage) -> str | None:
    """The name of the file of the queries that exist from the start; None if they are a stream.

    Raises:
        StateError: the stream was started with other queries.
    """
    name, record = "queries.jsonl", "queries.json"
    digest = "stream" if lines is None else hashlib.sha256(lines).hexdigest()
    if find(storage, record) is not None and get_json(storage, record, _DAMAGED) != digest:
        raise StateError(
            f"{storage.place} belongs to a stream with other queries; queries that exist from the start must not change"
        )
    if lines is not None:
        storage.put(name, lines)
    put_json(storage, record, digest)
    return None if lines is None else name


def _history_lines(
    history: DataFrame | pd.DataFrame, space: Space, unit: str, properties: Properties
) -> DataFrame | Iterator[bytes]:
    if isinstance(history, pd.DataFrame):
        some = history.iloc[:: max(1, -(-len(history) // _HISTORY))]
        return object_records(some, space, "history", unit, properties)
    if not isinstance(history, DataFrame):
        raise SettingError("history", f"is of type {type(history).__name__}; give a pandas or a Spark DataFrame")
    if history.isStreaming:
        raise SettingError("history", "is a streaming DataFrame; give a static one")
    return object_lines(history, space, "history", unit, properties)


def _sampled(lines: DataFrame | Iterator[bytes], settings: StreamSettings) -> ObjectBatch:
    """An even sample of objects, without rejected ones."""
    if isinstance(lines, DataFrame):
        share = min(1.0, 1.2 * _HISTORY / max(1, lines.count()))
        lines = (bytes(row.value) for row in lines.sample(share, seed=1).limit(_HISTORY).collect())
    return decode_objects(b"".join(line + b"\n" for line in lines), 1, settings.space, settings.rule).batch


# --------------------------------------------------------------------------------------------------------- Spark's part


@dataclass(frozen=True, slots=True)
class _IngestTask:
    """INGEST of rows of (kind, value), for ``mapInArrow``: intakes as lines of JSON."""

    stage: Ingest

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Decode one part of a micro-batch."""
        context = TaskContext.get()
        assert context is not None
        for intake in intakes_of_part(self.stage, batches, context.partitionId()):
            yield pa.RecordBatch.from_pydict({"intake": [to_json(intake)]})


def _ingestion(frame: DataFrame) -> Ingestion:
    """INGEST of a micro-batch; one line per block comes to the driver, never records."""

    def ingest(stage: Ingest) -> Sequence[Intake]:
        rows = frame.mapInArrow(_IngestTask(stage), "intake string").collect()
        return [from_json(Intake, row.intake) for row in rows]

    return ingest


class AnswerStream:
    """A stream that is being answered; created by :func:`answer_stream`. As a context manager it stops at the end.

    Attributes:
        query: Spark's query, for its progress and status.
        output: folder of ``results`` and ``rejected``, JSON Lines: complete files, one per epoch, that never change.
    """

    def __init__(
        self,
        source: DataFrame,
        stream: LocalStream,
        session: SparkSession,
        schema: str,
        checkpoint: Path,
        output: Path,
        held: ExitStack,
    ) -> None:
        self.output = output
        self._stream, self._session, self._schema, self._held = stream, session, schema, held
        self._begun, self._ending = threading.Event(), threading.Event()
        self._failure: SpatialStreamError | None = None
        try:
            with disk_errors("output"):
                RESULTS.mark(self.output / "results")
                REJECTED.mark(self.output / "rejected")
            with _explained():
                stream.recover()
            writer = source.writeStream.foreachBatch(self._batch)
            place = (checkpoint / "spark").as_uri()
            self.query: StreamingQuery = writer.option("checkpointLocation", place).start()
            self._begun.set()
        except BaseException:
            held.close()
            raise
        self._follower = threading.Thread(target=self._follow, name="spatialstream", daemon=True)
        self._follower.start()

    # ----------------------------------------------------------------------------------------------------- for the user

    def results(self) -> Answers:
        """The result rows and the rejected records so far. What comes later is in the result of a later call."""
        rows = self._session.read.schema(self._schema).json((self.output / "results").as_uri())
        schema = "source string, offset long, line long, reason string, record string"
        return Answers(rows, rejected_records(self._session, self.output / "rejected", schema))

    def process_all_available(self) -> None:
        """Wait until all available input is ingested. Records ahead of a source that is behind keep waiting.

        Raises:
            RunError: the stream has failed.
        """
        self._check()
        with _explained():
            self.query.processAllAvailable()
        self._check()

    def flush(self) -> None:
        """Ingest all available input, and answer all of it, as if it were the end of the input.

        What comes later is late, unless its timestamp is later than that of every object and query so far.

        Raises:
            RunError: the stream has failed, or has been stopped.
        """
        self.process_all_available()
        with _explained():
            self._stream.finish()

    def await_idle(self, timeout: float | None = None) -> bool:
        """Wait until all sources have been silent for ``idle`` ms, and all that can be answered so far is answered.

        Args:
            timeout: seconds; None waits for ever.

        Returns:
            Whether it is so.

        Raises:
            RunError: the stream has failed.
        """
        ends = None if timeout is None else time.monotonic() + timeout
        while not (self._waiting() and self._stream.quiet):
            self._check()
            if not self.query.isActive or (ends is not None and time.monotonic() > ends):
                return False
            self._ending.wait(_POLL_SECONDS)
        return True

    def stop(self) -> None:
        """Finish the micro-batch in progress and end; a stream with the same checkpoint continues from there."""
        self._stream.close()
        self._ending.set()
        self.query.stop()
        self._follower.join()
        self._held.close()

    def exception(self) -> SpatialStreamError | None:
        """Why the stream has ended by itself; None if it has not."""
        if self._failure is None and not self._ending.is_set() and (error := self.query.exception()):
            self._failure = _failure(error)
        return self._failure

    def __enter__(self) -> AnswerStream:
        """The stream itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.stop()

    # -------------------------------------------------------------------------------------------------------- for Spark

    def _batch(self, frame: DataFrame, number: int) -> None:
        try:
            taken = self._stream.micro_batch(number, _ingestion(frame))
        except (PySparkException, StageError, SpatialStreamError, OSError) as error:
            if not self._begun.is_set() or self.query.isActive:  # else it has been stopped, and its jobs cancelled
                self._failure = _failure(error)
            raise
        if not taken:
            # The query is about to be stopped, and must not commit the micro-batch. Its stop waits for this function,
            # and accepts only an interruption as its own doing.
            while self.query.isActive:
                time.sleep(_POLL_SECONDS)
            raise RunError(INTERRUPTED)

    def _follow(self) -> None:
        """Do the epochs that are due without input, while Spark sees no input."""
        try:
            while self.query.isActive and not self._ending.wait(_POLL_SECONDS):
                if self._waiting():
                    self._stream.advance()
        except (PySparkException, StageError, SpatialStreamError, OSError) as error:
            self._failure = _failure(error)
            self.query.stop()
        if not self._ending.is_set():
            self._held.close()

    def _waiting(self) -> bool:
        """Whether Spark has looked for input and found none."""
        return str(self.query.status["message"]).startswith("Waiting for data")

    def _check(self) -> None:
        if error := self.exception():
            raise error


@contextmanager
def _explained() -> Iterator[None]:
    """Raises errors of Spark as errors of this package, in a few words."""
    try:
        yield
    except (PySparkException, StageError, OSError) as error:
        raise _failure(error) from error


def _failure(error: Exception) -> SpatialStreamError:
    """The error in a few words: the message of the Python process that failed, if one did."""
    if isinstance(error, SpatialStreamError):
        return error
    of_spark = isinstance(error, PySparkException | StageError)
    failure = explained(str(error) or repr(error)) if of_spark else RunError(str(error))
    if isinstance(failure, RunError):
        failure = RunError(f"the stream has failed: {failure}")
    failure.__cause__ = error
    return failure
