"""The worker of a live stream: announced epochs become rounds, and rounds results.

A *round* is what all slots do in one go: the epochs that have been announced since the round before. All slots do the
same epochs, so a round is a consistent cut, and a snapshot query is complete within it; and a worker that has fallen
behind does many epochs for the price of one. Each round

1. is *recorded*: its epochs and the offsets of its blocks, so a replay does the same;
2. is *worked*: WORK for all slots, then MERGE, then the results go out;
3. has a *second phase*, if many SKQs need one (:mod:`~spatialstream.stages.two_phase`); a few are MERGE's affair;
4. is *confirmed* to the routing store, where it has prepared a new version.

A round that cannot be done for a record's sake leaves it out (:mod:`~spatialstream.stages.leaving`).

Everything here is free of Spark and of the broker: both are behind :class:`WorkerJobs`.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spatialstream.model.errors import Conflict, StateError, Unavailable
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.space import Space
from spatialstream.model.times import TIME_LIMIT
from spatialstream.sources.contracts import Storage, find
from spatialstream.sources.disk import DAMAGED, undamaged
from spatialstream.sources.keys import read_key
from spatialstream.sources.memory_storage import Overlay
from spatialstream.stages import merge as merging
from spatialstream.stages import messages
from spatialstream.stages import work as working
from spatialstream.stages.leaving import OBJECT, QUERY, Left, culprits, dead_letter, failure
from spatialstream.stages.merge import EpochResults, merge, merge_second
from spatialstream.stages.moves import ABORT, ACTIVATE, LOAD, PREPARE, drop_transfers
from spatialstream.stages.route import NUMBERS_PER_EPOCH, SEQUENCE_PER_EPOCH, Row
from spatialstream.stages.routing import PastVersion, Routing
from spatialstream.stages.rows import RowLimits
from spatialstream.stages.state import Progress, get_json, put_json
from spatialstream.stages.two_phase import Second, answer_second
from spatialstream.stages.versions import load_version
from spatialstream.stages.work import Round, WorkSettings, slot_objects, work
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
    "narrow_merge",
    "narrow_work",
    "second_round",
    "work_round",
]

FEW = 128
"""Questions of a second phase up to which MERGE asks them itself: they take less time than a job takes to begin."""

_ALL = 2**62
"""Questions up to which a rehearsal asks them itself."""

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

    def save(self, storage: Storage) -> None:
        """Write as JSON."""
        put_json(storage, round_name(self.round.number), asdict(self))

    @classmethod
    def load(cls, storage: Storage, name: str) -> RoundRecord:
        """What :meth:`save` wrote.

        Raises:
            StateError: it is damaged.
        """
        record = get_json(storage, name)
        with undamaged(f"{storage.place}/{name}", DAMAGED):
            order = record.pop("round")
            order["epochs"] = tuple(order["epochs"])
            order["controls"] = tuple((control, number) for control, number in order["controls"])
            order["past"] = tuple((number, first, last) for number, first, last in order["past"])
            order["takes"] = tuple(order.get("takes", ()))
            order["left"] = tuple(Left(**left) for left in order.get("left", ()))
            for name in ("starts", "ends", "births"):
                record[name] = tuple(record[name])
            return cls(Round(**order), **record)

    def routing(self, storage: Storage) -> Routing:
        """What tells which slots matter in the second phase of SKQs."""
        past = tuple(PastVersion(load_version(storage, each), first, last) for each, first, last in self.round.past)
        return Routing(load_version(storage, self.round.version), past=past)


@dataclass(frozen=True, slots=True)
class Summary:
    """What the driver learns of a round.

    Attributes:
        lines: rows published, those of second phases not counted yet.
        rejected: queries that were not admitted.
        counts: the stream's rows by query type up to and with the round.
        loads: load statistics of each slot.
        second: the slots that take part in a second phase that is still to come.
        foreign: messages among the blocks that are none.
    """

    lines: int
    rejected: int
    counts: dict[str, int] = field(default_factory=dict)
    loads: dict[int, dict[str, Any]] = field(default_factory=dict)
    second: tuple[int, ...] = ()
    foreign: int = 0

    def save(self, storage: Storage, number: int) -> None:
        """Write that of a round as JSON."""
        put_json(storage, round_name(number, "summary"), asdict(self))

    @classmethod
    def load(cls, storage: Storage, number: int) -> Summary:
        """What :meth:`save` wrote.

        Raises:
            StateError: it is damaged.
        """
        name = round_name(number, "summary")
        record = get_json(storage, name)
        with undamaged(f"{storage.place}/{name}", DAMAGED):
            record["loads"] = {int(slot): load for slot, load in record["loads"].items()}
            return cls(**(record | {"second": tuple(record["second"])}))


ROUNDS = "rounds/"
"""What the names of rounds' files begin with."""


def round_name(number: int, kind: str = "json") -> str:
    """The name of a file of a round: its record (``json``), its summary, or what its second phase needs."""
    return f"{ROUNDS}{number:09d}.{kind}"


# --------------------------------------------------------------------------------------- what runs in the stages' tasks


def work_round(
    slot: int,
    blocks: Sequence[tuple[bytes, Any]],
    order: Round,
    settings: WorkSettings,
    storage: Storage,
) -> Iterator[Row]:
    """WORK for one slot in a round.

    Args:
        slot: which one.
        blocks: (key, Arrow IPC stream) of the messages of the slot's partition, in the order of their offsets. There
            may be repeated ones, and ones of epochs before the round.
        order: the round.
        settings: of the stream.
        storage: of the stream's state.
    """
    rows, foreign = _blocks_of_round(slot, blocks, order)
    yield from work(slot, list(_without(slot, rows, order.left)), settings, storage, order)
    if foreign:
        yield slot, messages.FOREIGN, messages.columns(count=np.array([foreign], np.int64))


def _blocks_of_round(slot: int, blocks: Sequence[tuple[bytes | None, Any]], order: Round) -> tuple[list[Row], int]:
    """A slot's blocks, each once, and how many messages are none: those are not the router's, and are passed over."""
    takes = dict(zip(order.epochs, order.takes or (0,) * len(order.epochs), strict=True))
    seen: set[bytes] = set()
    rows: list[Row] = []
    foreign = 0
    for key, data in blocks:
        place = read_key(key)
        if place is None:
            foreign += 1
            continue
        epoch, kind, take = place
        if takes.get(epoch) == take and key is not None and key not in seen:
            try:
                content = messages.unpack(data)
            except (pa.ArrowException, OSError, StopIteration, TypeError):
                foreign += 1
                continue
            seen.add(key)
            rows.append((slot, kind, content))
    return rows, foreign


def _without(slot: int, rows: Sequence[Row], left: Sequence[Left]) -> Iterator[Row]:
    """A slot's blocks without what the round leaves out. Queries among that end, if they stand already."""
    if not left:
        yield from rows
        return
    seq, number = (np.array([each.number for each in left if each.what == what], np.int64) for what in (OBJECT, QUERY))
    for _, kind, content in rows:
        name, gone = ("seq", seq) if kind == messages.OBJECTS else ("number", number)
        if kind in (messages.OBJECTS, messages.REGISTERED, messages.ENDED) and len(gone):
            kept = np.flatnonzero(~np.isin(messages.numbers(content, name), gone))
            content = content if len(kept) == content.num_rows else content.take(pa.array(kept))
        if content.num_rows:
            yield slot, kind, content
    if len(number):
        yield slot, messages.ENDED, messages.columns(number=number, t=np.full(len(number), -TIME_LIMIT))


def narrow_work(
    slot: int, blocks: Sequence[tuple[bytes, Any]], order: Round, settings: WorkSettings, storage: Storage
) -> list[Left]:
    """What of a slot's blocks has to be left out for WORK not to fail; arguments as those of :func:`work_round`."""
    rows = list(_without(slot, _blocks_of_round(slot, blocks, order)[0], order.left))
    known = {(left.what, left.number) for left in order.left}
    items: dict[tuple[str, int], tuple[pa.RecordBatch, int]] = {}
    for kind, what, name in ((messages.REGISTERED, QUERY, "number"), (messages.OBJECTS, OBJECT, "seq")):
        for content in [content for _, each, content in rows if each == kind]:
            for row, number in enumerate(messages.numbers(content, name).tolist()):
                if (what, number) not in known:
                    items[what, number] = content, row
    names, settings = list(items), replace(settings, archive=None)
    copy = Overlay(storage)

    def outcome(kept: npt.NDArray[np.int64]) -> Exception | None:
        copy.renew()
        others = np.setdiff1d(np.arange(len(names)), kept).tolist()
        rehearsed = replace(order, left=(*order.left, *(Left(*names[i]) for i in others)))
        return failure(lambda: deque(work_round(slot, blocks, rehearsed, settings, copy), 0))

    found = culprits(len(names), outcome)
    working.forget(copy)
    return [_left(*names[i], *items[names[i]], error) for i, error in found]


def _left(what: str, number: int, content: pa.RecordBatch, row: int, error: Exception) -> Left:
    one = content.slice(row, 1)
    if what == QUERY:
        record = QueryBatch.from_arrow(one.drop_columns(["number"]))[0].to_record()
    else:
        record = asdict(ObjectBatch.from_arrow(one.drop_columns(["seq", "leaf"]))[0])
    echo = json.dumps(record, ensure_ascii=False)
    return Left(what, number, dead_letter(error, "WORK", echo, *_origin(what, number)))


def _origin(what: str, number: int) -> tuple[str, int]:
    """What is known of where a record came from: the kind of its topic, and its epoch."""
    if what == QUERY:
        return "queries", number // NUMBERS_PER_EPOCH
    return "objects", number // SEQUENCE_PER_EPOCH


def merge_round(
    rows: Iterable[Row],
    record: RoundRecord,
    space: Space,
    storage: Storage,
    few: int = FEW,
    limits: RowLimits | None = None,
) -> EpochResults:
    """MERGE of a round; writes its summary, and what a second phase needs that is a job.

    The results' ``second`` is what is left for :func:`merge_second_at_once`.
    """
    number = record.round.number
    results = merge(rows, space, storage, record.round, record.routing(storage), limits)
    if record.round.left:
        results = replace(results, rejected=[*(left.letter for left in record.round.left), *results.rejected])
    slots: tuple[int, ...] = ()
    if results.second is not None and results.second.questions > few:
        results.second.save(storage, round_name(number, "second"))
        slots, results = results.second.slots, replace(results, second=None)
    summary = Summary(results.rows, len(results.rejected), results.counts, results.loads, slots, results.foreign)
    summary.save(storage, number)
    return results


def narrow_merge(
    rows: Sequence[Row],
    record: RoundRecord,
    settings: WorkSettings,
    storage: Storage,
    limits: RowLimits | None = None,
) -> list[Left]:
    """What has to be left out of a round for MERGE not to fail, nor its second phase.

    Args:
        rows: the partials of all slots, which have done the round.
        record: of the round.
        settings: of the stream.
        storage: of the stream's state.
        limits: how long rows may be.
    """
    items: dict[tuple[str, int], str] = {}
    for _, kind, content in rows:
        if "number" in content.schema.names and kind != messages.ENDED:
            ids = next((content.column(name) for name in ("id", "query") if name in content.schema.names), None)
            named = None if kind in (messages.SNAPSHOT_OBJECTS, messages.SNAPSHOT_LISTS, messages.ARRIVALS) else ids
            for row, number in enumerate(messages.numbers(content, "number").tolist()):
                echo = json.dumps({"number": number} if named is None else {"id": named[row].as_py()})
                items[QUERY, number] = items.get((QUERY, number), echo) if named is None else echo
    for _, kind, content in rows:
        if kind == messages.LINES:
            lines = content.column("line")
            for row, seq in enumerate(messages.numbers(content, "seq").tolist()):
                items.setdefault((OBJECT, seq), lines[row].as_py())
    names = sorted(items, key=lambda name: (name[0] == OBJECT, name[1]))
    copy = Overlay(storage)

    def outcome(kept: npt.NDArray[np.int64]) -> Exception | None:
        copy.renew()
        others = [names[i] for i in np.setdiff1d(np.arange(len(names)), kept).tolist()]
        return failure(lambda: _rehearse_merge(rows, record, settings, copy, others, limits))

    found = culprits(len(names), outcome)
    merging.forget(copy)
    return [Left(*names[i], dead_letter(error, "MERGE", items[names[i]], *_origin(*names[i]))) for i, error in found]


def _rehearse_merge(
    rows: Sequence[Row],
    record: RoundRecord,
    settings: WorkSettings,
    storage: Storage,
    others: Sequence[tuple[str, int]],
    limits: RowLimits | None,
) -> None:
    """MERGE without some queries and without the matches of some objects."""
    seq, number = (np.array([each for what, each in others if what == kind], np.int64) for kind in (OBJECT, QUERY))
    kept: list[Row] = []
    for slot, kind, content in rows:
        name, gone = ("seq", seq) if kind == messages.LINES else ("number", number)
        if name in content.schema.names and len(gone):
            content = content.take(pa.array(np.flatnonzero(~np.isin(messages.numbers(content, name), gone))))
        kept.append((slot, kind, content))
    results = merge_round(kept, record, settings.space, storage, few=_ALL, limits=limits)
    deque(results.lines, 0)
    if results.second is not None:
        deque(merge_second_at_once(results.second, record.round.number, settings, storage, limits), 0)


def merge_second_at_once(
    second: Second, number: int, settings: WorkSettings, storage: Storage, limits: RowLimits | None = None
) -> Iterable[pa.LargeStringArray]:
    """The lines of a second phase with few questions, which are asked here, one after the other."""
    rows, take = list(second.rows), _take(storage, number)
    for slot in second.slots:
        rows += answer_second(slot, second.rows, slot_objects(slot, number, settings, storage, take))
    return merge_second(rows, settings.space, limits)


def second_round(slot: int, number: int, settings: WorkSettings, storage: Storage) -> list[Row]:
    """A slot's part in the second phase of a round."""
    rows = Second.load(storage, round_name(number, "second"))
    objects = slot_objects(slot, number, settings, storage, _take(storage, number))
    return list(answer_second(slot, rows, objects))


def _take(storage: Storage, number: int) -> int:
    """The take of a round by its record; embedded mode keeps no records of rounds, and leaves nothing out."""
    name = round_name(number)
    return 0 if find(storage, name) is None else RoundRecord.load(storage, name).round.take


def merge_second_round(
    rows: Sequence[Row], number: int, space: Space, storage: Storage, limits: RowLimits | None = None
) -> Iterable[pa.LargeStringArray]:
    """The lines of the second phase of a round."""
    return merge_second([*Second.load(storage, round_name(number, "second")), *rows], space, limits)


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
        storage: of the stream's state.
        store: the routing store.
        jobs: what does the work.
        step: is called before each step, with its name; tests stop the worker there.
        begins: says at which offset the first round begins to read each slot's blocks; None: at 0.

    Attributes:
        last: the record of the last round, done or not.
        done: the last round that is known to be done; -1 if none is.
    """

    def __init__(
        self,
        slots: int,
        storage: Storage,
        store: RoutingStore,
        jobs: WorkerJobs,
        step: Callable[[str], None] = lambda name: None,
        begins: Callable[[], Sequence[int]] | None = None,
    ) -> None:
        self._slots = slots
        self._begins = (lambda: (0,) * slots) if begins is None else begins
        self._storage = storage
        self._store = store
        self._jobs = jobs
        self._step = step
        records = [name for name in storage.list(ROUNDS) if name.endswith(".json")]
        self.last: RoundRecord | None = RoundRecord.load(storage, records[-1]) if records else None
        self._progress = Progress(storage, f"{ROUNDS}done")
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
        record.save(self._storage)
        self.last = record
        return self.again()

    def leave_out(self, narrow: Callable[[RoundRecord], Sequence[Left]]) -> Sequence[Left]:
        """Decide to leave out of the round, which has failed, what it cannot be done with; that, if there is any.

        Args:
            narrow: finds it; the same may be found by several slots.
        """
        record = self.last
        if record is None or not self.unfinished:
            return ()
        self._step("narrow")
        found = {(left.what, left.number): left for left in narrow(record)}
        if found:
            record = replace(record, round=replace(record.round, left=(*record.round.left, *found.values())))
            self._step("leave")
            record.save(self._storage)
            self.last = record
        return tuple(found.values())

    def again(self) -> tuple[RoundRecord, Summary]:
        """Do the last round, for the first time or once more."""
        record = self.last
        assert record is not None
        self._step("work")
        self._jobs.work(record)
        summary = Summary.load(self._storage, record.round.number)
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
            tuple(each.get("take", 0) for each in news),
            before=0 if before is None else before.round.take,
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
        starts = tuple(self._begins()) if before is None else before.ends
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
        assert self.last is not None
        if number >= 2:
            self._storage.delete(round_name(number - 2, kind) for kind in ("json", "summary", "second"))
        drop_transfers(self._storage, self.last.round.version)


def _past(announcements: Sequence[Mapping[str, Any]]) -> tuple[tuple[int, int, int], ...]:
    """The earlier versions that matter to any of the epochs: (version, first, last timestamp of its objects)."""
    ranges: dict[int, tuple[int, int]] = {}
    for announcement in announcements:
        for version, first, last in announcement["past"]:
            low, high = ranges.get(version, (first, last))
            ranges[version] = min(low, first), max(high, last)
    return tuple((version, first, last) for version, (first, last) in sorted(ranges.items()))
