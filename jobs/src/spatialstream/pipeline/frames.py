"""The same from a notebook: DataFrames in, a DataFrame out, once or as a stream.

A stream of DataFrames is answered by one Structured Streaming query in the user's own Spark session; what it does with
its micro-batches is decided by :class:`~spatialstream.pipeline.streaming.LocalStream`.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, struct, to_json
from pyspark.sql.streaming import StreamingQuery

from spatialstream.model.decode import decode_objects
from spatialstream.model.errors import RunError, SettingError, SpatialStreamError, StateError
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.space import WGS84, Space
from spatialstream.model.terms import TermRule
from spatialstream.pipeline import messages
from spatialstream.pipeline.files import write_whole
from spatialstream.pipeline.ingest import Ingest, Intake
from spatialstream.pipeline.kernels import compile_kernels
from spatialstream.pipeline.lines import object_lines, query_lines
from spatialstream.pipeline.live import StreamSettings
from spatialstream.pipeline.rounds import RoundRecord
from spatialstream.pipeline.run import RunSettings, run
from spatialstream.pipeline.session import INTERRUPTED, embedded_session
from spatialstream.pipeline.start import locked
from spatialstream.pipeline.streaming import (
    LocalStream,
    MergeTask,
    RouteTask,
    WorkTask,
    numbered,
)
from spatialstream.pipeline.work import WorkSettings

__all__ = ["AnswerStream", "answer", "answer_stream", "result_schema"]

Queries = DataFrame | pd.DataFrame | Iterable[Mapping[str, Any]]
"""Records in the JSON form of queries, or a DataFrame with such columns."""

_POLL_SECONDS = 0.05
_HISTORY = 50_000


def result_schema(space: Space = WGS84) -> str:
    """The Spark schema of results in a space: a row has one of ``objects``, ``object`` and ``terms``.

    ``complete_after`` is null but for a snapshot query that reaches further back than the retention.
    """
    first, second = space.axes
    placed = f"struct<id: string, t: bigint, {first}: double, {second}: double"
    return (
        f"query string, type string, t long, objects array<{placed}, {space.distance_field}: double>>, "
        f"object {placed}>, terms array<struct<term: string, count: bigint>>, complete_after long"
    )


def answer(
    objects: DataFrame | pd.DataFrame,
    queries: Queries,
    *,
    spark: SparkSession | None = None,
    output: Path | str | None = None,
    **settings: Any,
) -> DataFrame:
    """Answer queries over objects, exactly as ``spatialstream run`` does over files.

    Args:
        objects: columns ``id``, ``t`` (ms or timestamp), ``lon``, ``lat`` (``x``, ``y`` in planar spaces) and ``text``,
        or
            ``terms`` (a list of strings).
        queries: records in the JSON form of queries, or a DataFrame with such columns.
        spark: the session to use; default: the active one, else a new one for this machine.
        output: folder for results, rejected records and the checkpoint; default: a temporary one, until Python ends.
        settings: as in :class:`~spatialstream.pipeline.run.RunSettings`, such as ``space``, ``slots``, ``leaves``.

    Returns:
        The result rows, see :func:`result_schema`; their order is that of the files.

    Raises:
        SettingError: a setting is unusable.
    """
    session = spark or SparkSession.getActiveSession() or embedded_session("spatialstream")
    folder = Path(tempfile.mkdtemp(prefix="spatialstream-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    frame = session.createDataFrame(objects) if isinstance(objects, pd.DataFrame) else objects
    frame.write.parquet((folder / "objects").as_uri())
    files = sorted((folder / "objects").glob("*.parquet"))
    asked = _write_queries(queries, folder / "queries.jsonl")
    setup = RunSettings(tuple(files), (asked,), Path(output or folder / "output"), **settings)
    run(setup, session)
    return session.read.schema(result_schema(setup.space)).json(setup.paths.results.as_uri())


def _write_queries(queries: Queries, path: Path) -> Path:
    with path.open("w", encoding="utf-8") as file:
        if isinstance(queries, DataFrame):
            for row in queries.select(to_json(struct("*")).alias("line")).toLocalIterator():
                file.write(f"{row.line}\n")
        elif isinstance(queries, pd.DataFrame):
            file.write(queries.to_json(orient="records", lines=True))
        else:
            for record in queries:
                file.write(json.dumps(dict(record), ensure_ascii=False) + "\n")
    return path


# -------------------------------------------------------------------------------------------------------------- streams


def answer_stream(
    objects: DataFrame,
    queries: Queries,
    *,
    checkpoint: Path | str,
    spark: SparkSession | None = None,
    output: Path | str | None = None,
    history: DataFrame | pd.DataFrame | None = None,
    slots: int | None = None,
    leaves: int = 64,
    space: Space = WGS84,
    interval: int = 300_000,
    retention: int | None = None,
    idle: int = 500,
    disorder: int = 0,
    epoch_records: int = 250_000,
    rule: TermRule | None = None,
) -> AnswerStream:
    """Answer queries over a streaming DataFrame, for as long as it runs, in the session that it belongs to.

    The order of the stream is that of its timestamps. Each source (objects; queries, if they are a stream too) gives
    its records in time order from micro-batch to micro-batch; within one the order does not matter. Answers reach up
    to where all sources are; a source that has been silent for ``idle`` ms is not waited for, and what comes from it
    later with an earlier timestamp is late: it counts from when it comes.

    Called again with the same checkpoint it goes on where it was stopped or killed: nothing is lost, and no row comes
    twice, provided that the sources can be read again from where Spark's checkpoint says (files and Kafka can).

    Args:
        objects: a streaming DataFrame with the columns ``id``, ``t`` (ms, timestamp, or ISO 8601), ``lon``, ``lat``
            (``x``, ``y`` in planar spaces) and ``text``, or ``terms`` (an array of strings).
        queries: a streaming DataFrame with the fields of queries as columns; or queries that are there from the
            start, as in :func:`answer`.
        checkpoint: folder of the stream's state, on a disk that all of Spark's processes share.
        spark: the session that does the work; default: that of ``objects``.
        output: folder of ``results`` and ``rejected``, JSON Lines; default: ``output`` in the checkpoint.
        history: objects like those to come, by which the space is divided; default: the first micro-batch.
        slots: worker slots; default: one for each core, two at least. As ``space``, ``interval``, ``retention`` and
            ``rule`` it must not change in the stream's life.
        leaves: least number of leaves of the QT-tree (θ).
        space: WGS84 or planar.
        interval: Δ, ms: granularity in which old objects are dropped.
        retention: ms that snapshot queries can look back; None keeps everything.
        idle: ms without input after which a source is left out.
        disorder: ms by which the records of a source may be out of order; all answers are later by it.
        epoch_records: records an epoch, about; a larger micro-batch becomes several epochs.
        rule: term extraction.

    Returns:
        The handle of the stream, which is running.

    Raises:
        SettingError: a setting or a column is unusable, or ``objects`` is no stream.
        StateError: the checkpoint belongs to a stream with other settings or queries, or is damaged.
        RunError: what was under way when the stream ended before cannot be finished.
    """
    settings = StreamSettings(
        "frames",
        slots=max(2, os.cpu_count() or 2) if slots is None else slots,
        space=space,
        interval=interval,
        retention=retention,
        rule=rule or TermRule(),
        idle=idle,
        disorder=disorder,
        epoch_records=epoch_records,
    )
    settings.validate()
    if not 1 <= leaves <= 65_536:
        raise SettingError("leaves", f"{leaves} is out of range; give 1 to 65536")
    folder = Path(checkpoint).absolute()
    source = _source(objects, queries, space)
    session = spark or objects.sparkSession
    before = None if history is None else _history_lines(history, session, space)
    with ExitStack() as stack:
        stack.enter_context(locked(folder, "stream"))
        settings.claim(folder)
        asked = _keep_queries(queries, folder)
        compile_kernels()
        jobs = _SparkJobs(session, settings, folder, Path(output or folder / "output").absolute())
        stream = LocalStream(
            settings,
            folder,
            jobs,
            leaves=leaves,
            queries=asked,
            history=None if before is None else lambda: _sampled(before, settings),
            now=lambda: int(time.monotonic() * 1000),
        )
        return AnswerStream(source, stream, jobs, stack.pop_all())


def _source(objects: DataFrame, queries: Queries, space: Space) -> DataFrame:
    """Both streams as one, as rows of (kind, value).

    Raises:
        SettingError: a column is unusable, or ``objects`` is no stream.
    """
    if not getattr(objects, "isStreaming", False):
        problem = "is not a streaming DataFrame; use spark.readStream, or answer() for objects that are all there"
        raise SettingError("objects", problem)
    source = object_lines(objects, space)
    if isinstance(queries, DataFrame):
        asked = query_lines(queries)
        source = source.union(asked) if queries.isStreaming else source
    return source


def _keep_queries(queries: Queries, checkpoint: Path) -> Path | None:
    """The file of the queries that are there from the start; None if they are a stream.

    Raises:
        StateError: the stream was begun with other ones.
    """
    path, record = checkpoint / "queries.jsonl", checkpoint / "queries.json"
    streaming = isinstance(queries, DataFrame) and queries.isStreaming
    aside = path.with_suffix(".new")
    digest = "stream" if streaming else _digest(_write_lines(queries, aside))
    if record.exists() and json.loads(record.read_bytes()) != digest:
        aside.unlink(missing_ok=True)
        raise StateError(
            f"{checkpoint} belongs to a stream with other queries; those that are there from the start must not change"
        )
    if not streaming:
        aside.replace(path)
    write_whole(record, json.dumps(digest).encode())
    return None if streaming else path


def _write_lines(queries: Queries, path: Path) -> Path:
    if not isinstance(queries, DataFrame):
        return _write_queries(queries, path)
    with path.open("wb") as file:
        for row in query_lines(queries).toLocalIterator():
            file.write(bytes(row.value) + b"\n")
    return path


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _history_lines(history: DataFrame | pd.DataFrame, session: SparkSession, space: Space) -> DataFrame:
    frame = session.createDataFrame(history) if isinstance(history, pd.DataFrame) else history
    if frame.isStreaming:
        raise SettingError("history", "is a streaming DataFrame; give one that is all there")
    return object_lines(frame, space, "history")


def _sampled(lines: DataFrame, settings: StreamSettings) -> ObjectBatch:
    """Some objects, evenly chosen; what is rejected is left out."""
    share = min(1.0, 1.2 * _HISTORY / max(1, lines.count()))
    rows = lines.sample(share, seed=1).limit(_HISTORY).collect()
    data = b"".join(bytes(row.value) + b"\n" for row in rows)
    return decode_objects(data, 1, settings.space, settings.rule).batch


# --------------------------------------------------------------------------------------------------------- Spark's part


@dataclass(frozen=True, slots=True)
class IngestTask:
    """Rows of (kind, value) to runs, as ``mapInArrow`` takes it: one row of JSON for each run.

    Attributes:
        ingest: what decodes them.
    """

    ingest: Ingest

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Decode one part of a micro-batch."""
        context = TaskContext.get()
        assert context is not None
        return self.ingest(numbered(batches, context.partitionId()))


@dataclass(frozen=True, slots=True)
class _SparkJobs:
    """The work of a stream as jobs of Spark; on the driver there are records of epochs, never records of the stream."""

    session: SparkSession
    settings: StreamSettings
    checkpoint: Path
    output: Path

    @staticmethod
    def ingest(frame: DataFrame, ingest: Ingest) -> Sequence[Intake]:
        """Decode a micro-batch."""
        return [Intake.from_json(row.intake) for row in frame.mapInArrow(IngestTask(ingest), "intake string").collect()]

    def round(self, epoch: int, record: RoundRecord) -> None:
        """See :class:`~spatialstream.pipeline.streaming.LocalJobs`."""
        settings, order = self.settings, record.round
        work = WorkSettings(settings.space, settings.interval, settings.retention)
        route = RouteTask(epoch, settings.partitions, self.checkpoint)
        shares = self.session.range(0, settings.partitions, 1, settings.partitions)
        blocks = shares.mapInArrow(route, messages.BLOCK_TYPE).repartitionById(settings.slots, col("slot"))
        partials = blocks.mapInArrow(WorkTask(order, work, self.checkpoint), messages.BLOCK_TYPE).repartition(1)
        partials.mapInArrow(MergeTask(order, work, self.checkpoint, self.output), "rows long").collect()


class AnswerStream:
    """A stream that is being answered; made by :func:`answer_stream`. As a context manager it stops at the end.

    Attributes:
        query: Spark's query, for its progress and status.
        output: folder of ``results`` and ``rejected``, JSON Lines: whole files, one an epoch, that never change.
    """

    def __init__(self, source: DataFrame, stream: LocalStream, jobs: _SparkJobs, held: ExitStack) -> None:
        self.output = jobs.output
        self._stream, self._jobs, self._held = stream, jobs, held
        self._begun, self._ending = threading.Event(), threading.Event()
        self._failure: SpatialStreamError | None = None
        for name in ("results", "rejected"):
            (self.output / name).mkdir(parents=True, exist_ok=True)
        try:
            with _explained():
                stream.recover()
            writer = source.writeStream.foreachBatch(self._batch)
            place = (jobs.checkpoint / "spark").as_uri()
            self.query: StreamingQuery = writer.option("checkpointLocation", place).start()
            self._begun.set()
        except BaseException:
            held.close()
            raise
        self._follower = threading.Thread(target=self._follow, name="spatialstream", daemon=True)
        self._follower.start()

    # ----------------------------------------------------------------------------------------------------- for the user

    def results(self) -> DataFrame:
        """The rows that there are now, see :func:`result_schema`."""
        schema = result_schema(self._jobs.settings.space)
        return self._jobs.session.read.schema(schema).json((self.output / "results").as_uri())

    def process_all_available(self) -> None:
        """Wait until all that the sources have now is taken in. What lies ahead of a source that is behind waits on.

        Raises:
            RunError: the stream has failed.
        """
        self._check()
        with _explained():
            self.query.processAllAvailable()
        self._check()

    def flush(self) -> None:
        """Take in all that the sources have, and answer all of it, as if it were the end of the input.

        What comes later with a timestamp that is not later than the latest so far, of any object or query, is late.

        Raises:
            RunError: the stream has failed, or has been stopped.
        """
        self.process_all_available()
        with _explained():
            self._stream.finish()

    def await_idle(self, timeout: float | None = None) -> bool:
        """Wait until all sources have been silent for ``idle`` ms, and all that can be answered without more is.

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
        """Finish the micro-batch under way and end; a stream of the same checkpoint goes on from there."""
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
            taken = self._stream.micro_batch(number, lambda ingest: self._jobs.ingest(frame, ingest))
        except (PySparkException, SpatialStreamError) as error:
            if not self._begun.is_set() or self.query.isActive:  # else it has been stopped, and its jobs broken off
                self._failure = _failure(error)
            raise
        if not taken:
            # The query is about to be stopped, and must not commit the micro-batch. Its stop waits for this function,
            # and takes nothing but an interruption for its own doing.
            while self.query.isActive:
                time.sleep(_POLL_SECONDS)
            raise RunError(INTERRUPTED)

    def _follow(self) -> None:
        """Do the epochs that are due although nothing comes, while Spark sees no input."""
        try:
            while self.query.isActive and not self._ending.wait(_POLL_SECONDS):
                if self._waiting():
                    self._stream.advance()
        except (PySparkException, SpatialStreamError) as error:
            self._failure = _failure(error)
            self.query.stop()
        if not self._ending.is_set():
            self._held.close()

    def _waiting(self) -> bool:
        """Whether Spark has looked and found no input."""
        return str(self.query.status["message"]).startswith("Waiting for data")

    def _check(self) -> None:
        if error := self.exception():
            raise error


@contextmanager
def _explained() -> Iterator[None]:
    """Errors of Spark as one of ours, in a few words."""
    try:
        yield
    except PySparkException as error:
        raise _failure(error) from error


def _failure(error: Exception) -> SpatialStreamError:
    """What went wrong in a few words: the message of the Python process that failed, if it was one."""
    if isinstance(error, SpatialStreamError):
        return error
    lines = [line.strip() for line in str(error).split("SQLSTATE")[0].splitlines() if line.strip()]
    failure = RunError(f"the stream has failed: {lines[-1] if lines else error!r}")
    failure.__cause__ = error
    return failure
