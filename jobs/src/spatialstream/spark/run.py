"""The embedded run: a bounded stream of files to result files, in one Spark application.

All input comes in with the first epoch; then epochs follow until none of it waits. A run is a function of its files. It
can be killed at any moment and started again with the same settings: everything it leaves on disk is either complete or
invisible, and its records say which epoch is next.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spatialstream.actors.engine import ActorEngine
from spatialstream.connectors.contracts import find
from spatialstream.connectors.disk import disk_errors, undamaged, write_whole
from spatialstream.connectors.folder import Folder
from spatialstream.connectors.input_files import InputFiles
from spatialstream.connectors.object_store import ObjectStorage
from spatialstream.connectors.owned import REJECTED, RESULTS, RUN
from spatialstream.connectors.places import storage_at
from spatialstream.connectors.result_files import ResultFiles
from spatialstream.index.kinds import DEFAULT, wanted_kind
from spatialstream.kernels import compile_kernels
from spatialstream.model.errors import RecordError, RunError, SettingError, SpatialStreamError, StateError
from spatialstream.model.space import WGS84, Space
from spatialstream.model.terms import TermRule, check_counts
from spatialstream.model.times import duration_of, time_unit, whole_number
from spatialstream.model.unicode_data import UNICODE
from spatialstream.records.columns import check_fields
from spatialstream.records.inputs import expanded
from spatialstream.records.layout import InputLayout
from spatialstream.spark.actor_launcher import SparkActorLauncher
from spatialstream.spark.failures import explained
from spatialstream.spark.session import used_session
from spatialstream.stages.ingest import Ingest, Intake
from spatialstream.stages.route import dead_letters
from spatialstream.stages.state import FORMAT, get_json
from spatialstream.stages.turns import NEVER, Run
from spatialstream.stream.bootstrap import locked
from spatialstream.stream.embedded import EmbeddedStream, embedded_world, ended, nothing
from spatialstream.stream.engine import Engine, StageError
from spatialstream.stream.router import EpochRecord, ends_of_epochs, latest_epoch
from spatialstream.stream.settings import StreamSettings
from spatialstream.stream.worker import rounds_done

__all__ = ["Progress", "RunSettings", "RunSummary", "open_run", "run"]


@dataclass(frozen=True, slots=True)
class Paths:
    """The paths of a run.

    Attributes:
        storage: of its state.
        local: folder of this machine for what is no state: the checkpoint, if that is a folder.
        results, rejected: folders of its output.
    """

    storage: Folder | ObjectStorage
    local: Path
    results: Path
    rejected: Path

    @property
    def frames(self) -> Path:
        """Folder of the lines of DataFrames, see :func:`spatialstream.spark.answers.answer`."""
        return self.local / "frames"


@dataclass(frozen=True, slots=True)
class RunSettings:
    """All settings of an embedded run.

    Attributes:
        objects, queries: input files: objects as JSON Lines, CSV, Parquet, GeoJSON or text with columns, or folders of
            such; queries as JSON Lines. Queries with one timestamp are in the order of the files.
        output: folder for ``results/`` and ``rejected/``.
        slots: worker slots. Results do not depend on it, nor on ``index``, ``leaves`` or ``epoch_records``.
        leaves: minimum number of leaves of the index (θ).
        index: kind of the global index, ``"qt-tree"``, ``"a-grid"``, ``"kd-t"``, ``"grid"``, or ``"auto"``: what suits
            the data, of as many leaves as it needs.
        interval: Δ: granularity in which old objects are dropped; this and the retention are ms, or text such as
            ``"30m"``, or time differences.
        retention: how far snapshot queries can look back; None keeps everything.
        space: a space, or its text: ``"wgs84"`` or ``"planar:x0,y0,x1,y1"``.
        checkpoint: the run's state: a folder, or ``s3://bucket/prefix``; default ``output/.checkpoint``.
        columns: our field name -> name in the input, or an expression (:mod:`~spatialstream.records.columns`), for
            objects.
        layout: how the records of objects are laid out, where files do not show it.
        rule: term extraction.
        time_unit: of numeric times, in objects and in queries: ``"s"``, ``"ms"`` or ``"us"``; None: ms, and
            times that look like another unit are rejected.
        strict: stop at the first rejected record.
        epoch_records: approximate number of records per epoch.
        cores: cores to use; default all.
        overwrite: delete an earlier run in ``output``. Only what runs have written is deleted; if there is more, the
            run does not start.
    """

    objects: tuple[Path, ...]
    queries: tuple[Path, ...]
    output: Path
    slots: int = field(default_factory=lambda: max(2, os.cpu_count() or 2))
    leaves: int = 64
    index: str = DEFAULT
    interval: int = 300_000
    retention: int | None = None
    space: Space = WGS84
    checkpoint: Folder | ObjectStorage | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    layout: InputLayout = field(default_factory=InputLayout)
    rule: TermRule = field(default_factory=TermRule)
    time_unit: str | None = "ms"
    strict: bool = False
    epoch_records: int = 250_000
    cores: int | None = None
    overwrite: bool = False

    def __post_init__(self) -> None:
        """Convert the settings to their types.

        Raises:
            SettingError: one of them is invalid.
        """
        meant: dict[str, Any] = {
            "objects": _paths(self.objects, "objects"),
            "queries": _paths(self.queries, "queries"),
            "output": _path(self.output, "output"),
            "checkpoint": None if self.checkpoint is None else _storage(self.checkpoint),
            "space": Space.of(self.space),
            "time_unit": None if self.time_unit is None else time_unit(self.time_unit),
            "interval": duration_of(self.interval, "interval"),
            "retention": None if self.retention is None else duration_of(self.retention, "retention"),
            **{name: whole_number(getattr(self, name), name) for name in ("slots", "leaves", "epoch_records")},
        }
        for name, value in meant.items():
            object.__setattr__(self, name, value)

    def validate(self) -> None:
        """Check the settings.

        Raises:
            SettingError: names the invalid setting and says what would be right.
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
        wanted_kind(self.index)
        if self.retention is not None and self.retention < self.interval:
            raise SettingError("retention", f"{self.retention} ms is shorter than the interval of {self.interval} ms")
        if not self.objects:
            raise SettingError("objects", "give at least one file")
        check_fields(self.columns, self.rule)
        check_counts(self.rule)

    @property
    def paths(self) -> Paths:
        """The paths of the run."""
        output = self.output.absolute()
        storage = self.checkpoint or Folder(output / ".checkpoint")
        local = storage.path if isinstance(storage, Folder) else output / ".checkpoint"
        return Paths(storage, local, output / "results", output / "rejected")

    def stream(self, partitions: int) -> StreamSettings:
        """The run's settings as a stream.

        Args:
            partitions: number of router partitions.
        """
        return StreamSettings(
            "run",
            self.slots,
            self.space,
            partitions,
            self.interval,
            self.retention,
            self.rule,
            idle=1,
            epoch_records=self.epoch_records,
        )

    def identity(self) -> dict[str, Any]:
        """The identity of a checkpoint: two runs with equal identities give equal results and can share one."""
        return {
            "format": FORMAT,
            "objects": [_file_identity(path) for path in self.objects],
            "queries": [_file_identity(path) for path in self.queries],
            "slots": self.slots,
            "index": self.index,
            "leaves": self.leaves,
            "interval": self.interval,
            "retention": self.retention,
            "space": str(self.space),
            "columns": dict(sorted(self.columns.items())),
            **({} if self.layout == InputLayout() else {"layout": asdict(self.layout)}),
            "time_unit": None if self.time_unit == "ms" else self.time_unit,
            "stop_words": sorted(self.rule.stop_words),
            "minimum_length": self.rule.minimum_length,
            "query_words": self.rule.query_words,
            "polygon_vertices": self.rule.polygon_vertices,
            "ranking": self.rule.ranking,
            "term_counts": self.rule.counts or None,
            "properties": self.rule.properties.declarations or None,
            "fields": [*(self.rule.fields or ())] or None,
            "unicode": UNICODE,
            "epoch_records": self.epoch_records,
        }


def _path(value: Any, setting: str) -> Path:
    try:
        return Path(value)
    except TypeError:
        raise SettingError(setting, f"{value!r} is not a path") from None


def _storage(value: Any) -> Folder | ObjectStorage:
    if isinstance(value, Folder | ObjectStorage):
        return value
    return storage_at(value if isinstance(value, str) else _path(value, "checkpoint"), "checkpoint")


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
    """The progress of a run: its phase, and how much of it is done, in the phase's unit."""

    phase: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The outcome of a run.

    Attributes:
        objects, queries: number of records accepted while decoding.
        results: number of rows by query type.
        rejected: number of records rejected, while decoding or by the registry.
        refused: those of them that were rejected while decoding, by kind; the others are among ``queries``.
        repeated: number of queries that came again, and were recognized as such.
        unknown: the most common unknown fields of objects, and how many objects have each; others under ``""``.
        epochs, epochs_done: of the plan; they differ only after a stop.
        seconds: from the start of this invocation.
    """

    objects: int
    queries: int
    results: dict[str, int]
    rejected: int
    repeated: int
    epochs: int
    epochs_done: int
    seconds: float
    unknown: Mapping[str, int] = field(default_factory=dict)
    refused: Mapping[str, int] = field(default_factory=dict)

    @property
    def by_kind(self) -> dict[str, tuple[int, int]]:
        """Of objects and of queries how many were rejected, and how many there are."""
        of_objects, of_queries = (self.refused.get(kind, 0) for kind in ("objects", "queries"))
        late = self.rejected - of_objects - of_queries
        return {
            "objects": (of_objects, self.objects + of_objects),
            "queries": (of_queries + late, self.queries + of_queries),
        }

    @property
    def nothing_left(self) -> list[str]:
        """``"objects"`` and ``"queries"``, if there are some and every one of them was rejected."""
        return [kind for kind, (rejected, total) in self.by_kind.items() if total and rejected == total]

    @property
    def much_rejected(self) -> bool:
        """Whether more than a tenth of objects, or of queries, was rejected."""
        return any(10 * rejected > total for rejected, total in self.by_kind.values())

    @property
    def complete(self) -> bool:
        """Whether every epoch has been answered."""
        return self.epochs_done == self.epochs


_SHOWN = 5
"""Files that are named."""
_ANEW = "give another output, or overwrite this one (--overwrite)"


def open_run(settings: RunSettings) -> None:
    """Claim the checkpoint: a new one, or one of the same run.

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
            others = [name for name, value in (identity | _belongs(paths)).items() if earlier.get(name) != value]
        if others:
            raise StateError(f"{storage.place} belongs to a run with other {others[0]}; {_ANEW}")
        _check_published(settings)
        return
    for folder in (paths.results, paths.rejected):
        if folder.exists() and any(path.name != RESULTS.marker for path in folder.iterdir()):
            raise StateError(f"{folder} holds files of another run; {_ANEW}")
    if taken := RUN.taken(storage):
        raise StateError(
            f"{storage.place}/{taken} already exists and does not belong to a run; give another checkpoint"
        )
    RESULTS.mark(paths.results)
    REJECTED.mark(paths.rejected)
    if not storage.create(RUN.marker, json.dumps(identity | _belongs(paths)).encode()):
        raise StateError(f"{storage.place} has just been taken by another run; give another checkpoint")


def _forget(settings: RunSettings) -> None:
    """Delete what an earlier run has left, if all of that was written by a run."""
    paths = settings.paths
    folders = [(RESULTS, paths.results), (REJECTED, paths.rejected)]
    remote = None if isinstance(paths.storage, Folder) else paths.storage
    if remote is None or (paths.local / RUN.marker).exists():  # otherwise it holds a lock and a log, but no checkpoint
        folders.append((RUN, paths.local))
    for owned, folder in folders:
        owned.check(folder, "overwrite")
    if remote is not None:
        RUN.check_storage(remote, "overwrite")
        _check_output(paths)
        RUN.empty_storage(remote)
    for owned, folder in folders:
        owned.empty(folder, (*settings.objects, *settings.queries))


def _belongs(paths: Paths) -> dict[str, str]:
    """What ties a checkpoint that is no folder to this output, whose folder is locked.

    Two runs on two machines could not see each other's locks: so each has a checkpoint of its own.
    """
    return {} if isinstance(paths.storage, Folder) else {"output": RESULTS.mark(paths.results)}


def _check_output(paths: Paths) -> None:
    """Make sure that a checkpoint to be emptied is not in use by a run with another output.

    Raises:
        StateError: it may be.
    """
    anew = "give another checkpoint"
    if find(paths.storage, RUN.marker) is not None:
        earlier = get_json(paths.storage, RUN.marker, anew)
        with undamaged(f"{paths.storage.place}/{RUN.marker}", anew):
            other = earlier.get("output") != _belongs(paths)["output"]
        if other:
            raise StateError(f"{paths.storage.place} belongs to a run with other output; {anew}")


def _check_published(settings: RunSettings) -> None:
    """Make sure that the rows that an earlier start of this run has written still exist.

    Raises:
        StateError: some are missing.
    """
    paths = settings.paths
    record = latest_epoch(paths.storage)
    if record is None:
        return
    counts = rounds_done(paths.storage).counts()
    refused = counts.pop("rejected", 0) + sum(record.refused.values())
    counts.pop("repeated", 0)
    for folder, written in ((paths.results, sum(counts.values())), (paths.rejected, refused)):
        there = sum(map(_lines_of, folder.glob("*.jsonl")))
        if there < written:
            raise StateError(
                f"{folder} holds {there:,} of the {written:,} rows that this run has written; put them back, or {_ANEW}"
            )


def _lines_of(path: Path) -> int:
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 22), b""))


def _of_files(settings: RunSettings) -> RunSettings:
    """The settings with the files of folders in place of these."""
    files, skipped = expanded(settings.objects)
    if skipped:
        named = ", ".join(map(str, skipped[:_SHOWN]))
        told = f"{len(skipped)} files are skipped, since their names do not end as those of objects do: {named}"
        warnings.warn(told, stacklevel=3)
    return replace(settings, objects=tuple(files))


def run(
    settings: RunSettings,
    spark: SparkSession | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
) -> RunSummary:
    """Run, or continue a run that was stopped or killed.

    Args:
        settings: of the run.
        spark: a session to use; default: the active one, else one for this run, which is stopped at its end.
        report: called with the progress periodically.
        stop: called periodically; once it returns true, the current epoch is finished and the run ends, to be continued
            later.

    Raises:
        SettingError: a setting is unusable.
        StateError: the checkpoint or the output belongs to another run.
        RecordError: with ``strict``, the first rejected record.
    """
    settings.validate()
    settings = _of_files(settings)
    started = time.monotonic()
    settings.identity()
    # before anything is written: input with invalid files or columns leaves nothing behind
    given = settings.objects, settings.queries, settings.space, settings.rule, settings.columns
    source = InputFiles.of(*given, settings.time_unit or "ms", settings.layout)
    with ExitStack() as held:
        setting = "checkpoint" if isinstance(settings.checkpoint, Folder) else "output"
        with disk_errors(setting):
            held.enter_context(locked(settings.paths.local, "run"))
        held.enter_context(disk_errors())
        compile_kernels(lambda _, done, total: report(Progress("compiling kernels (once)", done, total)))
        if settings.time_unit is None:  # before there is anything that the corrected command would have to delete
            source.check_times()
        with disk_errors("output"):
            open_run(settings)
        report(Progress("starting Spark", 0, 1))
        session = held.enter_context(used_session(spark, settings.cores))
        report(Progress("starting Spark", 1, 1))
        try:
            summary = _answered(settings, source, session, report, stop)
        except (PySparkException, StageError) as error:
            raise _failure(error, settings.paths.local / "error.log") from error
        return replace(summary, seconds=time.monotonic() - started)


def _answered(
    settings: RunSettings,
    source: InputFiles,
    session: SparkSession,
    report: Callable[[Progress], None],
    stop: Callable[[], bool],
) -> RunSummary:
    """Start actors, and answer with them."""
    paths, launcher = settings.paths, SparkActorLauncher(session, name="spatialstream run")
    stream = settings.stream(launcher.count)
    world = embedded_world(stream, paths.storage, ResultFiles(paths.results, paths.rejected), source)
    with ActorEngine(world, launcher) as engine:
        return _Run(settings, stream, source, engine, report).answer(stop)


class _Run:
    """A run in progress."""

    def __init__(
        self,
        settings: RunSettings,
        stream: StreamSettings,
        source: InputFiles,
        engine: Engine,
        report: Callable[[Progress], None],
    ) -> None:
        self._settings, self._source, self._report = settings, source, report
        self._paths, self._sink = settings.paths, engine.world.sink
        self._stream = EmbeddedStream(
            stream,
            engine,
            list(source.bounds()),
            index=settings.index,
            leaves=settings.leaves,
            now=lambda: 0,
        )

    def answer(self, stop: Callable[[], bool]) -> RunSummary:
        """Do the epochs that are not done yet, up to the one during which a stop is requested.

        Raises:
            RecordError: with ``strict``, the first rejected record.
        """
        stop()  # the caller may have something to set up right after Spark has started
        self._stream.recover()
        record = self._stream.router.last or self._stream.turn(self._ingest)
        while True:
            if self._settings.strict and any(self._paths.rejected.glob("*.jsonl")):
                raise _first_rejection(self._paths.rejected)
            self._tell(record)
            if not record.held or stop():
                return self._summary(record)
            record = self._stream.turn(nothing)

    def _ingest(self, stage: Ingest) -> Sequence[Intake]:
        """Ingest all input, including its end."""
        source, size = self._source, self._source.size
        self._report(Progress("reading", 0, size))
        intakes = self._stream.turns.ingestion(source.bounds())(stage)
        self._report(Progress("reading", size, size))
        letters = [intake.rejected for intake in intakes if intake.rejected]
        if self._settings.strict and letters:
            self._sink.rejected(0, "input", dead_letters(self._paths.storage, letters))
            raise _first_rejection(self._paths.rejected)
        runs = [intake.run for intake in intakes if intake.run is not None]
        self._report(Progress("answering", 0, self._epochs(runs)))
        return [*intakes, *(ended(list(source.bounds()), max(run.last for run in runs)) if runs else ())]

    def _epochs(self, runs: Sequence[Run], after: int = NEVER) -> int:
        """The number of epochs into which time is cut from ``after`` to the end of some runs."""
        latest = max((run.last for run in runs), default=NEVER)
        return len(list(ends_of_epochs(runs, after, latest, self._settings.epoch_records))) if latest > after else 0

    def _counted(self, record: EpochRecord) -> tuple[int, int]:
        """How many epochs are done, and how many there are; without records there are none."""
        epoch = record.epoch
        done = epoch.number + 1 if epoch.watermark > NEVER else 0
        return done, done + self._epochs(epoch.runs, epoch.watermark)

    def _tell(self, record: EpochRecord) -> None:
        self._report(Progress("answering", *self._counted(record)))

    def _summary(self, record: EpochRecord) -> RunSummary:
        done, epochs = self._counted(record)
        counts, taken = rounds_done(self._paths.storage).counts(), record.taken
        rejected = counts.pop("rejected", 0) + sum(record.refused.values())
        again = counts.pop("repeated", 0)
        of_kind = taken.get("objects", 0), taken.get("queries", 0)
        return RunSummary(*of_kind, counts, rejected, again, epochs, done, 0.0, record.unknown, record.refused)


def _first_rejection(folder: Path) -> SpatialStreamError:
    """The first dead letter, in the order of files and lines, as an error."""
    first = min(folder.glob("*.jsonl"))
    letter = json.loads(first.read_bytes().split(b"\n")[0])
    return RecordError(f"{letter['source']} line {letter['line']}", letter["reason"])


def _failure(error: Exception, log: Path) -> SpatialStreamError:
    """The error in a few words; its full text is written to a file."""
    text = str(error)
    write_whole(log, text.encode())
    failure = explained(text)
    if isinstance(failure, RunError):
        return RunError(f"the run has failed: {failure} (details in {log})")
    return failure
