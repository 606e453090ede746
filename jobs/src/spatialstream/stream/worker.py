"""The worker of a stream: decides rounds from announced epochs.

It only decides; the driver (:mod:`~spatialstream.stream.driver`) acts. A *round* is what all slots do in one go: the
epochs announced since the round before. All slots do the same epochs, so a round is a consistent cut, and a snapshot
query is complete within it; and a worker that has fallen behind does many epochs for the price of one. A round's record
holds its epochs and the offsets of its blocks, so a process that repeats it does the same. What the slots have prepared
for a new version is confirmed to the routing store.

A record also says whether the round ends with a checkpoint of all state, and names the last earlier round whose
checkpoint is complete: writing one may take longer than the round, so other rounds may follow meanwhile. If state is
lost, the rounds since that checkpoint are replayed (:meth:`Worker.since_checkpoint`), so whatever they need is kept
until a round is done whose record names a later checkpoint.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from spatialstream.connectors.contracts import Storage, find
from spatialstream.model.errors import Conflict, StateError, Unavailable
from spatialstream.model.jsonable import to_json
from spatialstream.stages.corpus import drop_tables
from spatialstream.stages.moves import drop_transfers
from spatialstream.stages.quarantine import QuarantinedRecord
from spatialstream.stages.settling import RADII, radii_name
from spatialstream.stages.state import Progress, Turn, put_value
from spatialstream.stages.turns import ABORT, ACTIVATE, LOAD, PREPARE, Census, Past, Round, next_turn
from spatialstream.stages.two_phase import second_name
from spatialstream.stages.words import LATEST
from spatialstream.store.base import RoutingStore
from spatialstream.store.reports import save_named
from spatialstream.store.state import Stage
from spatialstream.stream.leadership import ROUTER, Alone, Leader, Leadership
from spatialstream.stream.settings import StreamSettings

__all__ = ["CENSUS", "ROUNDS", "Checkpoint", "RoundRecord", "Worker", "rounds_done"]

ROUNDS = "rounds/"
"""Prefix of the names of rounds' files."""

CENSUS = 64
"""Interval, in rounds, at which the slots count their continuous queries by leaf, and write their words."""


_FIRST = Leader(ROUTER)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint of all state after a round.

    Attributes:
        round: the round.
        ends: the offset after its blocks in each slot's log.
        version: the routing version after it.
        watermark: of the round.
    """

    round: Turn
    ends: tuple[int, ...]
    version: int
    watermark: int


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """All decisions about a round.

    Attributes:
        round: the parameters of WORK and MERGE.
        announced: the offset of the first announcement that is in no round yet.
        starts, ends: the offsets of its blocks in each slot's log, [start, end).
        last: the last epoch known after it.
        births: for each epoch, when it was decided, ms of the time of day.
        pending: the version that is being prepared after the round.
        stage: what the slots have done for it: ``exported`` or ``loaded``.
        refused: number of records that the router has rejected.
        records: upper bound of the number of objects and queries of the round.
        router: the router's leadership at that offset, which says which announcements count.
        previous: the name of the record of the round before; empty if there is none.
        since: the last checkpoint that was known to be complete.
        counts: numbers of the stream's rows before it by query type, ``rejected`` for queries that were not admitted,
            and ``repeated`` for queries that came again.
    """

    round: Round
    announced: int
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    last: int = -1
    births: tuple[int, ...] = ()
    pending: int | None = None
    stage: Stage | None = None
    refused: int = 0
    records: int = 0
    router: Leader = _FIRST
    previous: str = ""
    since: Checkpoint | None = None
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint with which it ends, once that is complete."""
        turn = self.round
        return Checkpoint((turn.number, turn.revision), self.ends, turn.version, turn.watermark)


def rounds_done(storage: Storage) -> Progress:
    """The last round that is known to be done, and the number of the stream's rows up to and with it."""
    return Progress(storage, f"{ROUNDS}done")


class Worker:
    """Decides rounds; one instance per process.

    Args:
        settings: of the stream.
        storage: of the stream's state.
        store: the routing store.
        step: called before each step, with its name; tests stop the worker there.
        leadership: under which it decides, see :mod:`~spatialstream.stream.leadership`; None: there is no other worker.
        due: called once per round, returns whether it is to end with a checkpoint.

    Attributes:
        last: the record of the last round, done or not.
        last_done: the last round that is known to be done; -1 if none is.
        writing: the record of the round whose checkpoint is being written, as far as known; None: there is none.
    """

    def __init__(
        self,
        settings: StreamSettings,
        storage: Storage,
        store: RoutingStore,
        step: Callable[[str], None] = lambda name: None,
        leadership: Leadership | Alone | None = None,
        due: Callable[[], bool] = lambda: True,
    ) -> None:
        self._settings = settings
        self._storage = storage
        self._store = store
        self._step = step
        self._leadership = Alone(storage, ROUNDS, step) if leadership is None else leadership
        self._due = due
        self._name = self._leadership.begin() or ""
        self.last = self._leadership.value(self._name, RoundRecord) if self._name else None
        self._progress = rounds_done(storage)
        self.last_done = self._progress.load()
        self._leadership.check(self.last_done, -1 if self.last is None else self.last.round.number)
        self._counts: Mapping[str, int] = self._progress.counts()
        self._dropped = -1
        self._counted = settings.counted
        self._passed: int | None = None
        self._named: int | None = None
        self._there = None if self.last is None else self.last.since
        self._radii = self._radii_of_last()
        self._radii_files = deque(sorted(storage.list(RADII)))
        # the progress of checkpoints before the last round is not known any more
        self.writing = self.last if self.last and self.last.round.checkpoint and not self.unfinished else None

    @property
    def unfinished(self) -> RoundRecord | None:
        """The last round, if it has to be redone because it is not known to be done."""
        return None if self.last is None or self.last.round.number <= self.last_done else self.last

    @property
    def announced(self) -> int | None:
        """The offset of the first announcement that is in no round; None before the first round."""
        return None if self.last is None else self.last.announced

    @property
    def router(self) -> Leader:
        """The router's leadership at that offset, which says which announcements count."""
        return _FIRST if self.last is None else self.last.router

    def decide(
        self,
        announcements: Sequence[Mapping[str, Any]],
        announced: int,
        router: Leader,
        begins: Callable[[], Sequence[int]],
    ) -> RoundRecord | None:
        """Decide the next round after the last one, which is done; None if nothing new was announced.

        Once its record is written, the round is fixed.

        Args:
            announcements: announcements that count, in any order.
            announced: the offset of the first announcement after them.
            router: the router's leadership at that offset.
            begins: returns the offsets at which the first round begins to read each slot's blocks.

        Raises:
            StateError: an announcement is missing.
        """
        before = self.last
        news = _news(announcements, -1 if before is None else before.last)
        if not news:
            return None
        controls = tuple((control, version) for each in news for control, version in each["controls"])
        newest = news[-1]
        settings, version = self._settings, newest["adoption"]["active"]
        number, previous, since = (0, None, None) if before is None else self._after(before)
        turn = Round(
            number=number,
            epochs=tuple(each["epoch"] for each in news),
            revisions=tuple(each["revision"] for each in news),
            watermark=newest["watermark"],
            version=version,
            controls=controls,
            past=_past(news),
            census=number % CENSUS == 0 or before is None or before.round.version != version,
            two_phase=settings.two_phase,
            measured=settings.measured,
            before=previous,
            since=None if since is None else since.round,
            checkpoint=self.writing is None and self._due(),
            settling=settings.settling,
            radii=self._radii,
        )
        pending, stage = _pending(before, turn)
        record = RoundRecord(
            round=turn,
            announced=announced,
            starts=tuple(begins()) if before is None else before.ends,
            ends=tuple(newest["ends"]),
            last=newest["epoch"],
            births=tuple(each["born"] for each in news),
            pending=pending,
            stage=stage,
            refused=sum(each["refused"] for each in news),
            records=sum(each["records"] for each in news),
            router=router,
            previous=self._name,
            since=since,
            counts=self._counts,
        )
        self._save(record)
        return record

    @property
    def settled(self) -> bool:
        """Whether no round has been done since the last complete checkpoint."""
        return self.last is None or (not self.unfinished and self.has_checkpoint(self.last))

    def has_checkpoint(self, record: RoundRecord) -> bool:
        """Whether the last complete checkpoint is that of this round."""
        return self._there is not None and self._there.round == (record.round.number, record.round.revision)

    def written(self, record: RoundRecord) -> None:
        """Take note that the checkpoint of a round, which is done, is complete."""
        self._there, self.writing = record.checkpoint, None

    def not_written(self) -> None:
        """Take note that the checkpoint that was being written will never be complete."""
        self.writing = None

    def settle(self) -> RoundRecord | None:
        """Decide a round without epochs, for its checkpoint; None if that is not due, or would contain nothing new.

        This keeps a silent stream from needing the blocks of its last rounds indefinitely.
        """
        before = self.last
        if before is None or self.settled or self.unfinished or self.writing is not None or not self._due():
            return None
        number, previous, since = self._after(before)
        turn = replace(
            before.round,
            number=number,
            epochs=(),
            revisions=(),
            controls=(),
            census=False,
            quarantined=(),
            before=previous,
            since=None if since is None else since.round,
            checkpoint=True,
            radii=self._radii,
        )
        record = replace(
            before,
            round=turn,
            starts=before.ends,
            births=(),
            refused=0,
            records=0,
            previous=self._name,
            since=since,
            counts=self._counts,
        )
        self._save(record)
        return record

    def _after(self, before: RoundRecord) -> tuple[int, Turn, Checkpoint | None]:
        """For the round after one that is done: its number, the round before, and the last complete checkpoint."""
        turn = before.round
        return next_turn(turn.number), (turn.number, turn.revision), self._there

    def since_checkpoint(self, record: RoundRecord) -> list[RoundRecord]:
        """The rounds between the checkpoint that a round's record names, and the round, as they are replayed for state.

        All of them are done: a round is decided after the one before is done. They are returned as beginning with that
        checkpoint, which the first of them could not name yet.
        """
        since, found = None if record.since is None else record.since.round, list[RoundRecord]()
        while record.round.number - 1 > (-1 if since is None else since[0]):
            record = self._leadership.value(record.previous, RoundRecord)
            found.append(replace(record, round=replace(record.round, since=since, known=True)))
        return found[::-1]

    def _save(self, record: RoundRecord) -> None:
        self._name = self._leadership.decide(record.round.number, to_json(record))
        self.last = record

    def quarantine(self, found: Sequence[QuarantinedRecord]) -> None:
        """Decide to quarantine records of the unfinished round."""
        record = self.unfinished
        assert record is not None
        self._step("leave")
        self._save(replace(record, round=replace(record.round, quarantined=(*record.round.quarantined, *found))))

    def put_off_checkpoint(self) -> bool:
        """Decide to do the unfinished round without its checkpoint; returns whether it was to have one.

        Its rows are the same, and so is its revision: if the checkpoint is written all the same, no record names it.
        """
        record = self.unfinished
        if record is None or not record.round.checkpoint:
            return False
        self._step("put off")
        self._save(replace(record, round=replace(record.round, checkpoint=False)))
        return True

    def done(self, record: RoundRecord, counts: Mapping[str, int], radii: Sequence[int] = ()) -> dict[str, int]:
        """Take note that a round is done, and delete what no replay can need any more.

        Args:
            record: of the round.
            counts: numbers of its rows, by query type.
            radii: the parts of MERGE that have written a file of radii.

        Returns:
            The numbers of the stream's rows up to and with it.
        """
        number, since = record.round.number, record.since
        total = {kind: record.counts.get(kind, 0) + counts.get(kind, 0) for kind in {**record.counts, **counts}}
        self._step("clean")
        self._leadership.clean(min(number - 1, 0 if since is None else since.round[0] + 1), record.announced)
        if record.round.before is not None:
            before, revision = record.round.before
            revisions, parts = range(revision + 1), range(self._settings.mergers)
            self._storage.discard(second_name(before, each, part) for each in revisions for part in parts)
        if since is not None and since.version != self._dropped:  # only on change: listing takes a remote storage time
            drop_transfers(self._storage, since.version)
            self._dropped = since.version
        if self._counted is not None and since is not None:
            self._drop_tables(self._counted.interval, since.watermark)
        if since is not None:
            self._drop_radii(since.round)
        if self._settings.has_words and record.round.census and record.last >= 0:
            self._step("census")
            put_value(self._storage, LATEST, Census(number, record.round.revision, record.last, record.round.version))
        self._step("done")
        self._progress.save(number, total)
        self.last_done, self._counts = number, total
        self._radii = tuple(radii)
        self._radii_files.extend(radii_name((number, record.round.revision), part) for part in radii)
        if record.round.checkpoint:
            self.writing = record
        return total

    def _drop_tables(self, interval: int, watermark: int) -> None:
        """Delete the corpus tables up to the last checkpoint, except those that it names, if it passed a multiple of Δ.

        A replay from there registers the continuous queries that have come since once more, by the same tables.
        """
        before, self._passed = self._passed, watermark
        if before is None or before // interval != watermark // interval:
            drop_tables(self._storage, watermark)

    def _radii_of_last(self) -> tuple[int, ...]:
        """The parts of MERGE of which the last round, if it is done, has a file of radii."""
        if self.last is None or self.unfinished:
            return ()
        done = self.last.round.number, self.last.round.revision
        parts = range(self._settings.mergers)
        return tuple(part for part in parts if find(self._storage, radii_name(done, part)) is not None)

    def _drop_radii(self, since: Turn) -> None:
        """Delete the radii that were named by rounds up to a checkpoint."""
        last = radii_name(since, 0)
        gone = list[str]()
        while self._radii_files and self._radii_files[0] < last:
            gone.append(self._radii_files.popleft())
        if gone:
            self._storage.discard(gone)

    def keep(self) -> None:
        """Save the records that are needed beyond the retention of the announcement log; call it on a silent stream."""
        self._leadership.keep()

    def trim(self) -> None:
        """Delete what neither job needs from the announcement log; safe to call from another thread.

        Raises:
            Unavailable: not possible at present.
        """
        self._leadership.trim()

    def confirm(self) -> bool:
        """Tell the routing store what the slots have done for a pending version, and which versions are still named.

        Returns whether there is nothing left to tell.

        Safe to call at any time and from another thread: only rounds that are done count, and what the store knows
        is not sent again.
        """
        record, view = self.last, self._store.latest()
        if record is None or record.round.number > self.last_done:
            return True
        oldest = min([record.round.version, *(version for version, *_ in record.round.past)])
        if oldest != self._named:
            try:
                save_named(self._store, oldest)
            except (Unavailable, Conflict):
                return False
            self._named = oldest
        if record.pending is None or record.stage is None:
            return True
        if view is None:
            return False
        if view.pending is None or view.pending.number != record.pending or view.confirmed(record.stage):
            return True
        try:
            if record.stage == "loaded":
                self._store.acknowledge(record.pending, "exported", range(self._settings.slots))
            self._store.acknowledge(record.pending, record.stage, range(self._settings.slots))
        except (Unavailable, Conflict):
            return False
        return True


def _news(announcements: Sequence[Mapping[str, Any]], last: int) -> list[Mapping[str, Any]]:
    """The announcements of the epochs after the last one, in order.

    Raises:
        StateError: one is missing.
    """
    news: list[Mapping[str, Any]] = []
    for announcement in sorted(announcements, key=lambda each: int(each["epoch"])):
        if announcement["epoch"] > last:
            if announcement["before"] != last:
                raise StateError(
                    f"epoch {announcement['epoch']} was announced after {announcement['before']}, "
                    f"but the last one received is {last}"
                )
            news.append(announcement)
            last = announcement["epoch"]
    return news


def _pending(before: RoundRecord | None, turn: Round) -> tuple[int | None, Stage | None]:
    """The version that is being prepared after a round, and what the slots have done for it."""
    pending: int | None = None
    stage: Stage | None = None
    if before is not None and turn.version == before.round.version:
        pending, stage = before.pending, before.stage
    for control, version in turn.controls:
        if control in (ABORT, ACTIVATE):
            pending, stage = None, None
        else:
            stage = "exported" if control == PREPARE else "loaded" if control == LOAD else stage
            pending = version
    return pending, stage


def _past(announcements: Sequence[Mapping[str, Any]]) -> tuple[Past, ...]:
    """The earlier versions that matter to any of the epochs: (version, first, last timestamp of its objects)."""
    ranges: dict[int, tuple[int, int]] = {}
    for announcement in announcements:
        for version, first, last in announcement["past"]:
            low, high = ranges.get(version, (first, last))
            ranges[version] = min(low, first), max(high, last)
    return tuple((version, first, last) for version, (first, last) in sorted(ranges.items()))
