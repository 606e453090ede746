"""The worker of a live stream: announced epochs become rounds, and rounds results.

A *round* is what all slots do in one go: the epochs that have been announced since the round before. All slots do the
same epochs, so a round is a consistent cut, and a snapshot query is complete within it; and a worker that has fallen
behind does many epochs for the price of one. Each round

1. is *recorded*: its epochs and the offsets of its blocks, so a replay does the same;
2. is *worked*: WORK for all slots, then MERGE, then the results go out;
3. has a *second phase*, if many SKQs need one (:mod:`~spatialstream.pipeline.second`); a few are MERGE's affair;
4. is *confirmed* to the routing store, where it has prepared a new version.

Everything here is free of Spark and of the broker: both are behind :class:`WorkerJobs`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from spatialstream.model.errors import Conflict, StateError, Unavailable
from spatialstream.model.space import Space
from spatialstream.pipeline import messages
from spatialstream.pipeline.files import Progress, write_whole
from spatialstream.pipeline.merge import EpochResults, merge, merge_second
from spatialstream.pipeline.moves import ABORT, ACTIVATE, LOAD, PREPARE
from spatialstream.pipeline.results import RowLimits
from spatialstream.pipeline.route import Row
from spatialstream.pipeline.routing import PastVersion, Routing
from spatialstream.pipeline.second import Second, answer_second
from spatialstream.pipeline.work import Round, WorkSettings, load_version, slot_objects, version_path, work
from spatialstream.store.base import RoutingStore
from spatialstream.store.state import Stage

__all__ = [
    "RoundRecord",
    "Summary",
    "Worker",
    "WorkerJobs",
    "merge_round",
    "merge_second_at_once",
    "merge_second_round",
    "second_round",
    "work_round",
]

FEW = 128
"""Questions of a second phase up to which MERGE asks them itself: they take less time than a job takes to begin."""

_CENSUS = 64
"""Every so-many-th round the slots count their standing queries by leaf."""


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """All decisions about a round.

    Attributes:
        round: what the slots are told.
        announced: the offset of the first announcement that no round has taken yet.
        starts, ends: the offsets of its blocks in each slot's partition, [start, end).
        births: for each epoch, when it was decided, ms of the day's clock.
        pending: the version that is being prepared after the round.
        stage: what the slots have done for it: ``exported`` or ``loaded``.
        refused: records that the router has rejected.
        records: objects and queries of the round, at most.
    """

    round: Round
    announced: int
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    births: tuple[int, ...] = ()
    pending: int | None = None
    stage: Stage | None = None
    refused: int = 0
    records: int = 0

    def save(self, path: Path) -> None:
        """Write as JSON, whole or not at all."""
        write_whole(path, json.dumps(asdict(self)).encode())

    @classmethod
    def load(cls, path: Path) -> RoundRecord:
        """What :meth:`save` wrote."""
        record = json.loads(path.read_bytes())
        order = record.pop("round")
        order["epochs"] = tuple(order["epochs"])
        order["controls"] = tuple((control, number) for control, number in order["controls"])
        order["past"] = tuple((number, first, last) for number, first, last in order["past"])
        for name in ("starts", "ends", "births"):
            record[name] = tuple(record[name])
        return cls(Round(**order), **record)

    def routing(self, checkpoint: Path) -> Routing:
        """What tells which slots matter in the second phase of SKQs."""
        past = tuple(
            PastVersion(load_version(version_path(checkpoint, number)), first, last)
            for number, first, last in self.round.past
        )
        return Routing(load_version(version_path(checkpoint, self.round.version)), past=past)


@dataclass(frozen=True, slots=True)
class Summary:
    """What the driver learns of a round.

    Attributes:
        lines: rows published, those of second phases not counted yet.
        rejected: queries that were not admitted.
        counts: the stream's rows by query type up to and with the round.
        loads: load statistics of each slot.
        second: the slots that take part in a second phase that is still to come.
    """

    lines: int
    rejected: int
    counts: dict[str, int] = field(default_factory=dict)
    loads: dict[int, dict[str, Any]] = field(default_factory=dict)
    second: tuple[int, ...] = ()

    def save(self, path: Path) -> None:
        """Write as JSON, whole or not at all."""
        write_whole(path, json.dumps(asdict(self)).encode())

    @classmethod
    def load(cls, path: Path) -> Summary:
        """What :meth:`save` wrote."""
        record = json.loads(path.read_bytes())
        record["loads"] = {int(slot): load for slot, load in record["loads"].items()}
        return cls(**(record | {"second": tuple(record["second"])}))


def round_path(checkpoint: Path, number: int, kind: str = "json") -> Path:
    """A file of a round: its record (``json``), its summary, or what its second phase needs."""
    return checkpoint / "rounds" / f"{number:09d}.{kind}"


# --------------------------------------------------------------------------------------- what runs in the stages' tasks


def work_round(
    slot: int,
    blocks: Sequence[tuple[bytes, Any]],
    order: Round,
    settings: WorkSettings,
    checkpoint: Path,
) -> list[Row]:
    """WORK for one slot in a round.

    Args:
        slot: which one.
        blocks: (key, Arrow IPC stream) of the messages of the slot's partition, in the order of their offsets. There
            may be repeated ones, and ones of epochs before the round.
        order: the round.
        settings: of the stream.
        checkpoint: folder of the stream's state.
    """
    seen: set[bytes] = set()
    rows: list[Row] = []
    for key, data in blocks:
        epoch, _, _, kind = key.decode().split(" ")
        if int(epoch) in order.epochs and key not in seen:
            seen.add(key)
            rows.append((slot, kind, messages.unpack(data)))
    return list(work(slot, rows, settings, checkpoint, order))


def merge_round(
    rows: Sequence[Row],
    record: RoundRecord,
    space: Space,
    checkpoint: Path,
    few: int = FEW,
    limits: RowLimits | None = None,
) -> EpochResults:
    """MERGE of a round; writes its summary, and what a second phase needs that is a job.

    The results' ``second`` is what is left for :func:`merge_second_at_once`.
    """
    number = record.round.number
    results = merge(rows, space, checkpoint, record.round, record.routing(checkpoint), limits)
    slots: tuple[int, ...] = ()
    if results.second is not None and results.second.questions > few:
        results.second.save(round_path(checkpoint, number, "second"))
        slots, results = results.second.slots, replace(results, second=None)
    summary = Summary(len(results.lines), len(results.rejected), results.counts, results.loads, slots)
    summary.save(round_path(checkpoint, number, "summary"))
    return results


def merge_second_at_once(
    second: Second, number: int, settings: WorkSettings, checkpoint: Path, limits: RowLimits | None = None
) -> pa.LargeStringArray:
    """The lines of a second phase with few questions, which are asked here, one after the other."""
    rows = list(second.rows)
    for slot in second.slots:
        rows += answer_second(slot, second.rows, slot_objects(slot, number, settings, checkpoint))
    return merge_second(rows, settings.space, limits)


def second_round(slot: int, number: int, settings: WorkSettings, checkpoint: Path) -> list[Row]:
    """A slot's part in the second phase of a round."""
    rows = Second.load(round_path(checkpoint, number, "second"))
    return list(answer_second(slot, rows, slot_objects(slot, number, settings, checkpoint)))


def merge_second_round(
    rows: Sequence[Row], number: int, space: Space, checkpoint: Path, limits: RowLimits | None = None
) -> pa.LargeStringArray:
    """The lines of the second phase of a round."""
    return merge_second([*Second.load(round_path(checkpoint, number, "second")), *rows], space, limits)


# ------------------------------------------------------------------------------------------------------- on the driver


class WorkerJobs(Protocol):
    """What the worker has done by Spark and the broker."""

    def work(self, record: RoundRecord) -> None:
        """WORK, MERGE, and the results' way out; leaves the round's summary."""

    def second(self, record: RoundRecord, slots: Sequence[int]) -> None:
        """The second phase, on some slots, and its results' way out."""


class Worker:
    """Decides rounds; one instance a process.

    Args:
        slots: number of slots.
        checkpoint: folder of the stream's state.
        store: the routing store.
        jobs: what does the work.
        step: is called before each step, with its name; tests stop the worker there.

    Attributes:
        last: the record of the last round, done or not.
        done: the last round that is known to be done; -1 if none is.
    """

    def __init__(
        self,
        slots: int,
        checkpoint: Path,
        store: RoutingStore,
        jobs: WorkerJobs,
        step: Callable[[str], None] = lambda name: None,
    ) -> None:
        self._slots = slots
        self._checkpoint = checkpoint
        self._store = store
        self._jobs = jobs
        self._step = step
        records = sorted((checkpoint / "rounds").glob("*.json"))
        self.last: RoundRecord | None = RoundRecord.load(records[-1]) if records else None
        self._progress = Progress(checkpoint / "rounds" / "done")
        self.done = self._progress.load()

    @property
    def unfinished(self) -> bool:
        """Whether the last round has to be done again, because nobody knows whether it was done."""
        return self.last is not None and self.last.round.number > self.done

    @property
    def announced(self) -> int | None:
        """The offset of the first announcement that no round has taken; None before the first round."""
        return None if self.last is None else self.last.announced

    def round(
        self, announcements: Sequence[Mapping[str, Any]], announced: int = 0
    ) -> tuple[RoundRecord, Summary] | None:
        """Do what has been announced since the last round, which must be done; None if there was nothing new.

        Args:
            announcements: some, in any order.
            announced: the offset of the first announcement after them.

        Raises:
            StateError: an announcement is missing.
        """
        record = self._decide(announcements, announced)
        if record is None:
            return None
        self._step("record")
        record.save(round_path(self._checkpoint, record.round.number))
        self.last = record
        return self.again()

    def again(self) -> tuple[RoundRecord, Summary]:
        """Do the last round, for the first time or once more."""
        record = self.last
        assert record is not None
        self._step("work")
        self._jobs.work(record)
        summary = Summary.load(round_path(self._checkpoint, record.round.number, "summary"))
        if summary.second:
            self._step("second")
            self._jobs.second(record, summary.second)
        self._step("clean")
        self._clean(record.round.number)
        self._step("done")
        self._progress.save(record.round.number)
        self.done = record.round.number
        self._step("confirm")
        self.confirm()
        return record, summary

    def _decide(self, announcements: Sequence[Mapping[str, Any]], announced: int) -> RoundRecord | None:
        before = self.last
        last = -1 if before is None else before.round.last
        news: list[Mapping[str, Any]] = []
        for announcement in sorted(announcements, key=lambda each: int(each["epoch"])):
            if announcement["epoch"] > last:
                if announcement["before"] != last:
                    raise StateError(
                        f"epoch {announcement['epoch']} was announced after {announcement['before']}, "
                        f"but the last one that has come is {last}"
                    )
                news.append(announcement)
                last = announcement["epoch"]
        if not news:
            return None
        number = 0 if before is None else before.round.number + 1
        controls = tuple((control, version) for each in news for control, version in each["controls"])
        newest = news[-1]
        order = Round(
            number,
            tuple(each["epoch"] for each in news),
            newest["upto"],
            newest["adoption"]["active"],
            controls,
            _past(news),
            number % _CENSUS == 0 or before is None or before.round.version != newest["adoption"]["active"],
        )
        pending, stage = (None, None) if before is None else (before.pending, before.stage)
        if before is not None and order.version != before.round.version:
            pending, stage = None, None
        for control, version in controls:
            if control in (ABORT, ACTIVATE):
                pending, stage = None, None
            else:
                stage = "exported" if control == PREPARE else "loaded" if control == LOAD else stage
                pending = version
        starts = (0,) * self._slots if before is None else before.ends
        return RoundRecord(
            order,
            announced,
            starts,
            tuple(newest["ends"]),
            tuple(each["born"] for each in news),
            pending,
            stage,
            sum(each["refused"] for each in news),
            sum(each["records"] for each in news),
        )

    def confirm(self) -> bool:
        """Tell the routing store what the slots have done for a pending version; whether there is nothing left to tell.

        Safe to call at any time and from another thread: only rounds that are done count, and what the store knows
        is not told again.
        """
        record, view = self.last, self._store.latest()
        if record is None or record.pending is None or record.stage is None or record.round.number > self.done:
            return True
        if view is None:
            return False
        if view.pending is None or view.pending.number != record.pending or view.confirmed(record.stage):
            return True
        try:
            if record.stage == "loaded":
                self._store.acknowledge(record.pending, "exported", range(self._slots))
            self._store.acknowledge(record.pending, record.stage, range(self._slots))
        except (Unavailable, Conflict):
            return False
        return True

    def _clean(self, number: int) -> None:
        """Delete what no replay can ask for."""
        for kind in ("json", "summary", "second"):
            round_path(self._checkpoint, number - 2, kind).unlink(missing_ok=True)
        assert self.last is not None
        for folder in (self._checkpoint / "transfers").glob("*"):
            if int(folder.name) <= self.last.round.version:
                shutil.rmtree(folder, ignore_errors=True)


def _past(announcements: Sequence[Mapping[str, Any]]) -> tuple[tuple[int, int, int], ...]:
    """The earlier versions that matter to any of the epochs: (version, first, last timestamp of its objects)."""
    ranges: dict[int, tuple[int, int]] = {}
    for announcement in announcements:
        for version, first, last in announcement["past"]:
            low, high = ranges.get(version, (first, last))
            ranges[version] = min(low, first), max(high, last)
    return tuple((version, first, last) for version, (first, last) in sorted(ranges.items()))
