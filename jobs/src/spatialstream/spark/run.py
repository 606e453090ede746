"""The embedded run: input files through ORDER, ROUTE, WORK and MERGE to result files, in one Spark application.

A run is a function of its files. It can be killed at any moment and started again with the same settings: everything it
leaves on disk is either whole or invisible, epochs are numbered by the plan, and Spark's checkpoint says which is next.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from spatialstream.index.version import RoutingVersion, build
from spatialstream.kernels import compile_kernels
from spatialstream.model.errors import RecordError, RunError, SettingError, SpatialStreamError, StateError
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.space import WGS84, Space
from spatialstream.model.terms import TermRule
from spatialstream.model.times import duration_of, whole_number
from spatialstream.records.files import Chunk, Kind, plan
from spatialstream.sources.contracts import find
from spatialstream.sources.disk import disk_errors, undamaged, write_whole
from spatialstream.sources.folder import Folder
from spatialstream.sources.owned import REJECTED, RESULTS, RUN
from spatialstream.spark import run_stages
from spatialstream.spark.failures import explained
from spatialstream.spark.session import used_session
from spatialstream.stages.merge import counts_after
from spatialstream.stages.plan import PLAN_FILE, EpochPlan, Run, cut_epochs
from spatialstream.stages.runs import order_chunk, read_records
from spatialstream.stages.state import get_json, put_json
from spatialstream.stages.work import WorkSettings
from spatialstream.stream.beginning import locked

__all__ = ["Progress", "RunSettings", "RunSummary", "open_run", "run"]

_SAMPLE_OBJECTS = 50_000
_SAMPLE_QUERIES = 50_000
_POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class RunSettings:
    """Everything that an embedded run is told.

    Attributes:
        objects, queries: input files (JSON Lines, CSV, Parquet; the first two may be gzipped). The order of files
            decides between queries of one timestamp.
        output: folder for ``results/`` and ``rejected/``.
        slots: worker slots. Results do not depend on it, nor on ``leaves`` or ``epoch_records``.
        leaves: least number of leaves of the QT-tree (θ).
        interval: Δ: granularity in which old objects are dropped; this and the retention are ms, or given as text such
            as ``"30m"``, or as time differences.
        retention: how far snapshot queries can look back; None keeps everything.
        space: a space, or its text: ``"wgs84"`` or ``"planar:x0,y0,x1,y1"``.
        checkpoint: folder of the run's state; default ``output/.checkpoint``.
        columns: our field name -> name in the input, for objects.
        rule: term extraction.
        strict: stop at the first rejected record.
        epoch_records: records an epoch, about.
        cores: cores to use; default all.
        overwrite: forget an earlier run in ``output``. Only what runs have written is deleted; where there is more, the
            run is refused.
    """

    objects: tuple[Path, ...]
    queries: tuple[Path, ...]
    output: Path
    slots: int = field(default_factory=lambda: max(2, os.cpu_count() or 2))
    leaves: int = 64
    interval: int = 300_000
    retention: int | None = None
    space: Space = WGS84
    checkpoint: Path | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    rule: TermRule = field(default_factory=TermRule)
    strict: bool = False
    epoch_records: int = 250_000
    cores: int | None = None
    overwrite: bool = False

    def __post_init__(self) -> None:
        """Take the settings as what they mean.

        Raises:
            SettingError: one of them means nothing.
        """
        meant: dict[str, Any] = {
            "objects": _paths(self.objects, "objects"),
            "queries": _paths(self.queries, "queries"),
            "output": _path(self.output, "output"),
            "checkpoint": None if self.checkpoint is None else _path(self.checkpoint, "checkpoint"),
            "space": Space.of(self.space),
            "interval": duration_of(self.interval, "interval"),
            "retention": None if self.retention is None else duration_of(self.retention, "retention"),
            **{name: whole_number(getattr(self, name), name) for name in ("slots", "leaves", "epoch_records")},
        }
        for name, value in meant.items():
            object.__setattr__(self, name, value)

    def validate(self) -> None:
        """Refuse what cannot work.

        Raises:
            SettingError: names the setting and says what would be right.
        """
        for name, value, low, high in (
            ("slots", self.slots, 1, 1024),
            ("leaves", self.leaves, 1, 65_536),
            ("epoch_records", self.epoch_records, 1, 2**31),
            ("interval", self.interval, 1, None),
        ):
            if value < low or (high is not None and value > high):
                allowed = f"at least {low}" if high is None else f"{low} to {high}"
                raise SettingError(name, f"{value} is out of range; give {allowed}")
        if self.retention is not None and self.retention < self.interval:
            raise SettingError("retention", f"{self.retention} ms is shorter than the interval of {self.interval} ms")
        if not self.objects:
            raise SettingError("objects", "give at least one file")

    @property
    def paths(self) -> run_stages.Paths:
        """Where the run keeps its things."""
        checkpoint = self.checkpoint or self.output / ".checkpoint"
        return run_stages.Paths(
            checkpoint.absolute(), (self.output / "results").absolute(), (self.output / "rejected").absolute()
        )

    def identity(self) -> dict[str, Any]:
        """What a checkpoint belongs to: two runs with equal identities give equal results and can share one."""
        return {
            "objects": [_file_identity(path) for path in self.objects],
            "queries": [_file_identity(path) for path in self.queries],
            "slots": self.slots,
            "leaves": self.leaves,
            "interval": self.interval,
            "retention": self.retention,
            "space": str(self.space),
            "columns": dict(sorted(self.columns.items())),
            "stop_words": sorted(self.rule.stop_words),
            "minimum_length": self.rule.minimum_length,
            "epoch_records": self.epoch_records,
        }


def _path(value: Any, setting: str) -> Path:
    try:
        return Path(value)
    except TypeError:
        raise SettingError(setting, f"{value!r} is not a path") from None


def _paths(value: Any, setting: str) -> tuple[Path, ...]:
    """One path or several."""
    if isinstance(value, str | os.PathLike) or not isinstance(value, Iterable):
        return (_path(value, setting),)
    return tuple(_path(each, setting) for each in value)


def _file_identity(path: Path) -> list[Any]:
    try:
        status = path.stat()
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        raise SettingError(
            str(path), "there is no such file" if missing else f"cannot be read: {error.strerror}"
        ) from None
    return [str(path.absolute()), status.st_size, status.st_mtime_ns]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is: which phase, and how much of it is done, in the phase's unit."""

    phase: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What a run did.

    Attributes:
        objects, queries: records that were accepted while decoding.
        results: rows by query type.
        rejected: records that were rejected, while decoding or by the registry.
        epochs, epochs_done: of the plan; they differ only after a stop.
        seconds: from the start of this invocation.
    """

    objects: int
    queries: int
    results: dict[str, int]
    rejected: int
    epochs: int
    epochs_done: int
    seconds: float

    @property
    def complete(self) -> bool:
        """Whether every epoch has been answered."""
        return self.epochs_done == self.epochs


_ANEW = "give another output, or overwrite this one (--overwrite)"


def open_run(settings: RunSettings) -> None:
    """Take possession of the checkpoint: a new one, or one of the same run.

    Raises:
        SettingError: with ``overwrite``, a folder holds files that no run has written; nothing has been deleted then.
        StateError: it belongs to a run with other settings or files, is damaged, or lacks results that were written;
            or results of an unknown run are in the way.
    """
    paths = settings.paths
    storage = paths.storage
    identity = settings.identity()
    if settings.overwrite:
        _forget(settings)
    elif find(storage, RUN.marker) is not None:
        earlier = get_json(storage, RUN.marker, _ANEW)
        with undamaged(f"{storage.place}/{RUN.marker}", _ANEW):
            others = [name for name, value in identity.items() if earlier.get(name) != value]
        if others:
            raise StateError(f"{paths.checkpoint} belongs to a run with other {others[0]}; {_ANEW}")
        _check_published(settings)
        return
    for folder in (paths.results, paths.rejected):
        if folder.exists() and any(path.name != RESULTS.marker for path in folder.iterdir()):
            raise StateError(f"{folder} holds files of another run; {_ANEW}")
    if taken := RUN.taken(storage):
        raise StateError(f"{paths.checkpoint / taken} is not of a run, and in its way; give another checkpoint")
    RESULTS.mark(paths.results)
    REJECTED.mark(paths.rejected)
    put_json(storage, RUN.marker, identity)


def _forget(settings: RunSettings) -> None:
    """Delete what an earlier run has left, if all of that is of a run."""
    paths = settings.paths
    folders = ((RESULTS, paths.results), (REJECTED, paths.rejected), (RUN, paths.checkpoint))
    for owned, folder in folders:
        owned.check(folder, "overwrite")
    for owned, folder in folders:
        owned.empty(folder, (*settings.objects, *settings.queries))


def _check_published(settings: RunSettings) -> None:
    """Make sure that the rows are still there which an earlier start of this run has written.

    Raises:
        StateError: some are missing.
    """
    paths = settings.paths
    if find(paths.storage, PLAN_FILE) is None:
        return
    epochs = _load_plan(paths.storage)
    counts = counts_after(paths.storage, min(epochs_done(paths.checkpoint), epochs.epochs) - 1)
    refused = counts.pop("rejected", 0)
    for folder, written in ((paths.results, sum(counts.values())), (paths.rejected, epochs.rejected + refused)):
        there = sum(map(_lines_of, folder.glob("*.jsonl")))
        if there < written:
            raise StateError(
                f"{folder} holds {there:,} of the {written:,} rows that this run has written; put them back, or {_ANEW}"
            )


def _lines_of(path: Path) -> int:
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 22), b""))


def _load_plan(storage: Folder) -> EpochPlan:
    with undamaged(f"{storage.place}/{PLAN_FILE}", _ANEW):
        return EpochPlan.load(storage, _ANEW)


def run(
    settings: RunSettings,
    spark: SparkSession | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
) -> RunSummary:
    """Run, or continue a run that was stopped or killed.

    Args:
        settings: what to run.
        spark: a session to use; default: the active one, else one for this run, which is stopped at its end.
        report: is told the progress now and then.
        stop: is asked now and then; once true, the epoch under way is finished and the run ends, to be continued later.

    Raises:
        SettingError: a setting is unusable.
        StateError: the checkpoint or the output belongs to another run.
        RecordError: with ``strict``, the first rejected record.
    """
    settings.validate()
    started = time.monotonic()
    with ExitStack() as held:
        setting = "output" if settings.checkpoint is None else "checkpoint"
        with disk_errors(setting):
            held.enter_context(locked(settings.paths.checkpoint, "run"))
        with disk_errors("output"):
            open_run(settings)
        held.enter_context(disk_errors())
        chunks = [(kind, chunk) for kind, chunk in _chunks(settings)]
        compile_kernels(lambda _, done, total: report(Progress("compiling kernels (once)", done, total)))
        report(Progress("starting Spark", 0, 1))
        session = held.enter_context(used_session(spark, settings.cores))
        report(Progress("starting Spark", 1, 1))
        epochs = _ordered(settings, chunks, session, report)
        if settings.strict and epochs.rejected:
            raise _first_rejection(settings.paths.rejected)
        _versioned(settings, epochs)
        done = _answer(settings, epochs, session, report, stop)
        return _summary(settings, epochs, done, time.monotonic() - started)


def _inputs(settings: RunSettings) -> tuple[tuple[Kind, tuple[Path, ...]], ...]:
    return ("objects", settings.objects), ("queries", settings.queries)


def _chunks(settings: RunSettings) -> Iterator[tuple[Kind, Chunk]]:
    for kind, files in _inputs(settings):
        for chunk in plan(files, settings.columns if kind == "objects" else None, kind, space=settings.space):
            yield kind, chunk


def _ordered(
    settings: RunSettings,
    chunks: Sequence[tuple[Kind, Chunk]],
    session: SparkSession,
    report: Callable[[Progress], None],
) -> EpochPlan:
    """ORDER, unless an earlier start of this run has done it."""
    storage = settings.paths.storage
    if find(storage, PLAN_FILE) is not None:
        return _load_plan(storage)
    task = OrderTask(settings.paths, tuple(chunks), settings.space, settings.rule, dict(settings.columns))
    numbers = session.range(0, len(chunks), 1, max(1, len(chunks)))
    total, read = sum(chunk.size for _, chunk in chunks), 0
    report(Progress("reading", read, total))
    runs: list[Run] = []
    try:
        # a few numbers a block come to the driver, never records
        for row in numbers.mapInArrow(task, _RUN_TYPE).collect():
            runs.append(Run.from_json(row.run))
            read += row.size
            report(Progress("reading", read, total))
    except PySparkException as error:
        raise _failure(error, settings.paths.checkpoint / "error.log") from error
    report(Progress("reading", total, total))
    runs.sort(key=lambda each: each.name)
    epochs = cut_epochs(runs, settings.epoch_records, session.sparkContext.defaultParallelism)
    epochs.save(storage)
    return epochs


_RUN_TYPE = "run string, size long"


@dataclass(frozen=True, slots=True)
class OrderTask:
    """Rows (chunk number) to runs, as ``mapInArrow`` takes it."""

    paths: run_stages.Paths
    chunks: tuple[tuple[Kind, Chunk], ...]
    space: Space
    rule: TermRule
    columns: dict[str, str]

    def runs(self, number: int) -> Iterator[Run]:
        """Decode one chunk."""
        kind, chunk = self.chunks[number]
        columns = self.columns if kind == "objects" else {}
        yield from order_chunk(
            number, chunk, kind, self.space, self.rule, columns, self.paths.storage, Folder(self.paths.rejected)
        )

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """As ``mapInArrow`` takes it."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                size = self.chunks[number][1].size
                for run in self.runs(number):
                    columns = {"run": pa.array([run.to_json()]), "size": pa.array([size], pa.int64())}
                    yield pa.RecordBatch.from_pydict(columns)
                    size = 0  # a chunk's bytes are counted once


def _first_rejection(folder: Path) -> SpatialStreamError:
    """The first dead letter, in the order of files and lines, as an error."""
    first = min(folder.glob("*.jsonl"))
    letter = json.loads(first.read_bytes().split(b"\n")[0])
    return RecordError(f"{letter['source']} line {letter['line']}", letter["reason"])


def _versioned(settings: RunSettings, epochs: EpochPlan) -> RoutingVersion:
    """The routing version, built from a sample of the input, unless an earlier start of this run has built it."""
    storage = settings.paths.storage
    if find(storage, run_stages.VERSION_FILE) is not None:
        with undamaged(f"{storage.place}/{run_stages.VERSION_FILE}", _ANEW):
            return run_stages.run_version(storage)
    objects = _sample(storage, epochs, "objects", _SAMPLE_OBJECTS)
    queries = _sample(storage, epochs, "queries", _SAMPLE_QUERIES)
    version = build(
        settings.space,
        ObjectBatch.of([]) if objects is None else ObjectBatch.from_arrow(objects),
        QueryBatch.of([]) if queries is None else QueryBatch.from_arrow(queries.drop_columns(["line"])),
        settings.leaves,
        settings.slots,
    )
    storage.put(run_stages.VERSION_FILE, *version.pack())
    return version


def _sample(storage: Folder, epochs: EpochPlan, kind: str, size: int) -> pa.RecordBatch | None:
    """Every so-many-th record of all runs of a kind."""
    runs = [each for each in epochs.runs if each.kind == kind]
    stride = max(1, -(-sum(each.rows for each in runs) // size))
    parts = [read_records(storage, each.name, np.arange(0, each.rows, stride)) for each in runs]
    if not parts:
        return None
    table = pa.Table.from_batches(parts).unify_dictionaries().combine_chunks()
    return table.to_batches()[0]


def answers(settings: RunSettings, session: SparkSession) -> DataFrame:
    """The streaming DataFrame of published epochs: merge(work(route(source)))."""
    paths = settings.paths
    partitions = EpochPlan.load(paths.storage).partitions
    work_settings = WorkSettings(settings.space, settings.interval, settings.retention)
    # P numbers a micro-batch, the same ones when it is replayed: micro-batch e is epoch e. The data does not pass
    # through the source; ROUTE maps its share of the runs itself.
    source = (
        session.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", partitions)
        .option("numPartitions", partitions)
        .load()
        .select("value")
    )
    routed = run_stages.route_stage(source, run_stages.RouteStage(paths, partitions))
    worked = run_stages.work_stage(routed, run_stages.WorkStage(paths, work_settings), settings.slots)
    return run_stages.merge_stage(worked, run_stages.MergeStage(paths, work_settings))


def epochs_done(checkpoint: Path) -> int:
    """Epochs that Spark has committed."""
    commits = checkpoint / "spark" / "commits"
    if not commits.is_dir():
        return 0
    return max((int(path.name) + 1 for path in commits.iterdir() if path.name.isdigit()), default=0)


def _answer(
    settings: RunSettings,
    epochs: EpochPlan,
    session: SparkSession,
    report: Callable[[Progress], None],
    stop: Callable[[], bool],
) -> int:
    """The streaming query, to the end of the plan or until asked to stop; returns the epochs done."""
    paths = settings.paths
    done = min(epochs_done(paths.checkpoint), epochs.epochs)
    report(Progress("answering", done, epochs.epochs))
    if done == epochs.epochs:
        return done
    query = (
        answers(settings, session)
        .writeStream.format("noop")
        .queryName(f"spatialstream {paths.checkpoint}")  # a session has each name once
        .option("checkpointLocation", str(paths.checkpoint / "spark"))
        .start()
    )
    try:
        _follow(query, settings, epochs, done, report, stop)
    except PySparkException as error:
        raise _failure(error, paths.checkpoint / "error.log") from error
    finally:
        query.stop()
    done = min(epochs_done(paths.checkpoint), epochs.epochs)
    if settings.strict and _any_rejected(settings):
        raise _first_rejection(paths.rejected)
    return done


def _follow(
    query: StreamingQuery,
    settings: RunSettings,
    epochs: EpochPlan,
    done: int,
    report: Callable[[Progress], None],
    stop: Callable[[], bool],
) -> None:
    """Wait until the plan is done, or until the epoch is done during which the stop was asked for.

    Spark begins the next micro-batch at once; stopping the query breaks it off, and it is run again when the run
    goes on.
    """
    checkpoint, last = settings.paths.checkpoint, epochs.epochs
    pause = threading.Event()
    while done < last:
        if stop() or (settings.strict and _any_rejected(settings)):
            last = min(last, done + 1)
        if not query.isActive:
            raise query.exception() or RunError("the streaming query has ended by itself")
        pause.wait(_POLL_SECONDS)
        now = epochs_done(checkpoint)
        if now > done:
            done = now
            report(Progress("answering", min(done, epochs.epochs), epochs.epochs))


def _failure(error: Exception, log: Path) -> SpatialStreamError:
    """What went wrong in a few words; all of it goes into a file."""
    text = str(error)
    write_whole(log, text.encode())
    failure = explained(text)
    if isinstance(failure, RunError):
        return RunError(f"the streaming query failed: {failure} (all of it in {log})")
    return failure


def _any_rejected(settings: RunSettings) -> bool:
    return any(settings.paths.rejected.glob("*.jsonl"))


def _summary(settings: RunSettings, epochs: EpochPlan, done: int, seconds: float) -> RunSummary:
    counts = counts_after(settings.paths.storage, done - 1)
    rows = {kind: sum(each.rows for each in epochs.runs if each.kind == kind) for kind in ("objects", "queries")}
    refused = counts.pop("rejected", 0)
    return RunSummary(rows["objects"], rows["queries"], counts, epochs.rejected + refused, epochs.epochs, done, seconds)
