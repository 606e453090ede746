"""The router of a stream: decides the next epoch from new records.

It only decides; the driver (:mod:`~spatialstream.stream.driver`) acts. The watermarks of the
partitions (:mod:`~spatialstream.stream.watermarks`) give the timestamp up to which an epoch reaches; later records wait
in their runs.
The routing store says whether a new version is wanted (:mod:`~spatialstream.stream.adoption`). All decisions, and the
offsets up to which the input has been read, are written atomically into the epoch's record: from then on the epoch is
fixed, and a process that repeats it does the same.

The router sees intakes, never records; it keeps O(partitions + unfinished runs).

A record also says whether the epoch ends with a checkpoint of the registry. If the registry is lost, the epochs since
the last complete checkpoint are admitted again (:meth:`Router.since_checkpoint`), so the files of their queries are
kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np

from spatialstream.connectors.contracts import Storage, find
from spatialstream.model.errors import Conflict, Unavailable
from spatialstream.model.jsonable import to_json
from spatialstream.records.commonest import commonest
from spatialstream.stages.ingest import Ingest, Intake
from spatialstream.stages.quarantine import QuarantinedRecord
from spatialstream.stages.runs import INPUT
from spatialstream.stages.state import Progress, Turn, get_value
from spatialstream.stages.turns import ACTIVATE, NEVER, Census, Control, Epoch, Past, Run, next_turn
from spatialstream.stages.versions import VERSIONS, number_of, save_version, version_name
from spatialstream.stages.words import LATEST, drop_words
from spatialstream.store.base import RoutingStore
from spatialstream.store.reports import read_named
from spatialstream.stream.adoption import Adoption
from spatialstream.stream.leadership import Alone, Leadership
from spatialstream.stream.settings import StreamSettings
from spatialstream.stream.watermarks import Watermarks

__all__ = ["EPOCHS", "LOOK_FOR_WORDS", "EpochRecord", "Router", "TakenWords", "ends_of_epochs", "latest_epoch"]

EPOCHS = "epochs/"
"""Prefix of the names of epochs' files."""

LOOK_FOR_WORDS = 32
"""Epochs between two looks for a census of words, which takes a remote storage time."""

_BLOCKS_KEPT = 86_400_000
"""ms for which the broker keeps blocks, so no worker is further behind."""


@dataclass(frozen=True, slots=True)
class TakenWords:
    """What the filters have taken over last (:mod:`~spatialstream.stages.words`).

    Attributes:
        epoch: the epoch with which they did, by a census or by a new version; -1: none.
        round: the round of the last census that they have; -1: none.
    """

    epoch: int = -1
    round: int = -1


_NO_WORDS = TakenWords()


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """All decisions about an epoch.

    Attributes:
        epoch: the parameters of ROUTE.
        clocks: after the epoch.
        adoption: after the epoch.
        controls: sent to the slots.
        intakes: what has come in since the epoch before.
        read: for each partition, such as ``"objects/0"``, the offset of the first message not read yet.
        under: first and last timestamp of objects routed under the active version so far; None if there are none.
        born: ms of the time of day at which it was decided.
        spoken: the last epoch before it that was announced; -1 if there is none.
        taken: records of each kind that have come in up to and with it.
        retired: (version, ms of the day's clock) of the versions that epochs have named within the last day, but do not
            name since then.
        previous: the name of the record of the epoch before; empty if there is none.
        admitted: the files of the queries, and where words are counted, or objects dropped, of the objects, of the
            epochs between the last known complete checkpoint of the registry and this epoch.
        unknown: the most common unknown fields of the objects in ``taken``, and how many objects have each.
        refused: records and watermarks of each kind that were rejected when they came in, up to and with it.
        words: what the filters of the router partitions have taken over last, up to and with it.
    """

    epoch: Epoch
    clocks: Watermarks
    adoption: Adoption
    controls: tuple[Control, ...]
    intakes: tuple[Intake, ...]
    read: Mapping[str, int]
    under: tuple[int, int] | None
    born: int
    spoken: int
    taken: Mapping[str, int]
    retired: tuple[tuple[int, int], ...] = ()
    previous: str = ""
    admitted: tuple[str, ...] = ()
    unknown: Mapping[str, int] = field(default_factory=dict)
    refused: Mapping[str, int] = field(default_factory=dict)
    words: TakenWords = _NO_WORDS

    @property
    def silent(self) -> bool:
        """Whether nothing happens in the epoch; then it is not announced, and the slots never learn of it."""
        epoch = self.epoch
        late = any(run.first <= epoch.watermark and epoch.is_new(run) for run in epoch.runs)
        refused = any(intake.refused for intake in self.intakes)
        return epoch.watermark == epoch.after and not self.controls and not late and not refused and epoch.number > 0

    @property
    def versions(self) -> set[int]:
        """The versions by which it is routed, and the one that is being prepared."""
        pending = set() if self.epoch.pending is None else {self.epoch.pending}
        return {self.epoch.version, *pending, *(number for number, _, _ in self.epoch.past)}

    @property
    def files(self) -> set[str]:
        """The files of its runs and dead letters, and those that may be needed to rebuild the registry."""
        return {run.name for run in self.epoch.runs} | set(self.epoch.letters) | set(self.admitted)

    @property
    def held(self) -> bool:
        """Whether records wait for a later epoch."""
        return any(run.last > self.epoch.watermark for run in self.epoch.runs)


def latest_epoch(storage: Storage) -> EpochRecord | None:
    """The record of the last epoch, done or not; None before the first one."""
    records = [name for name in storage.list(EPOCHS) if name.endswith(".json")]
    return get_value(storage, records[-1], EpochRecord) if records else None


class Router:
    """Decides epochs; one instance per process.

    Args:
        settings: of the stream.
        storage: of the stream's state.
        store: the routing store.
        names: the partitions that the stream reads, such as ``"objects/0"``.
        now: the time of day, ms.
        step: called before each step, with its name; tests stop the router there.
        leadership: under which it decides, see :mod:`~spatialstream.stream.leadership`; None: there is no other router.
        due: called once for each epoch that is routed, returns whether it is to end with a checkpoint.

    Attributes:
        last: the record of the last epoch, done or not.
        last_done: the last epoch that is known to be done; -1 if none is.
        writing: the record of the epoch whose checkpoint is being written, as far as known; None: there is none.
    """

    def __init__(
        self,
        settings: StreamSettings,
        storage: Storage,
        store: RoutingStore,
        names: Sequence[str],
        now: Callable[[], int],
        step: Callable[[str], None] = lambda name: None,
        leadership: Leadership | Alone | None = None,
        due: Callable[[], bool] = lambda: True,
    ) -> None:
        self.settings = settings
        self._storage = storage
        self._store = store
        self._names = list(names)
        self._now = now
        self._step = step
        self._progress = Progress(storage, f"{EPOCHS}done")
        self._leadership = Alone(storage, EPOCHS, step) if leadership is None else leadership
        self._due = due
        self._name = self._leadership.begin() or ""
        self._before: EpochRecord | None = None
        self.last = self._leadership.value(self._name, EpochRecord) if self._name else None
        done = self._progress.load()
        self._leadership.check(done, -1 if self.last is None else self.last.epoch.number)
        # an epoch is done if its announcement counts, whatever a superseded process has written
        self.last_done = min(done, self._leadership.announced)
        self._there = None if self.last is None else self.last.epoch.since
        self._until_look = 0
        # the progress of checkpoints before the last epoch is not known any more
        self.writing = self.last if self.last and self.last.epoch.checkpoint and not self.unfinished else None

    @property
    def unfinished(self) -> EpochRecord | None:
        """The last epoch, if it has to be redone because it is not known to be done."""
        return None if self.last is None or self.last.epoch.number <= self.last_done else self.last

    @property
    def read(self) -> Mapping[str, int]:
        """For each partition that has been read, the offset of the first message not read yet."""
        return {} if self.last is None else self.last.read

    def ingest(self, attempt: str) -> Ingest:
        """The stage that makes runs of new records for the next epoch.

        Objects up to its floor are older than the retention; records after its ceiling are from the future.

        Args:
            attempt: a name that no other try of the epoch has had.
        """
        settings, watermark = self.settings, NEVER if self.last is None else self.last.epoch.watermark
        return Ingest(
            self.last_done + 1,
            self._storage,
            settings.space,
            settings.rule,
            settings.longest,
            floor=None if settings.retention is None or watermark <= NEVER else watermark - settings.retention,
            ceiling=None if settings.ahead is None else self._now() + settings.ahead,
            attempt=attempt,
        )

    def decide(self, intakes: Sequence[Intake]) -> EpochRecord:
        """Decide the next epoch after the last one, which is done; once its record is written, it is fixed.

        Args:
            intakes: what has come in.
        """
        before, settings, now = self.last, self.settings, self._now()
        number = next_turn(self.last_done)
        clocks = Watermarks.start(self._names, now) if before is None else before.clocks
        given: dict[str, int] = {}
        for intake in intakes:
            clock = NEVER if intake.clock is None else intake.clock
            given[intake.partition] = max(given.get(intake.partition, NEVER), clock)
        clocks = clocks.heard(given, now)
        waiting = () if before is None else tuple(run for run in before.epoch.runs if run.last > before.epoch.watermark)
        runs = (*waiting, *(intake.run for intake in intakes if intake.run is not None))
        latest = clocks.watermark(now, settings.idle)
        reach = max(clocks.end, latest if latest <= NEVER else latest - settings.disorder)
        watermark = next(ends_of_epochs(runs, clocks.end, reach, settings.epoch_records))
        adoption, controls = self._adopt(number, before)
        if before is not None and adoption.active != before.adoption.active:
            controls = (*controls, (ACTIVATE, adoption.active))
        under, past = self._ranges(before, adoption, runs, watermark)
        read, accepted, refused = dict[str, int](), Counter[str](), Counter[str]()
        if before is not None:
            read, accepted, refused = dict(before.read), Counter(before.taken), Counter(before.refused)
        for intake in intakes:
            read[intake.partition] = max(intake.last + 1, read.get(intake.partition, 0))
            if intake.refused:
                refused[intake.kind] += intake.refused
            if intake.run is not None:
                accepted[intake.run.kind] += intake.records
        epoch = Epoch(
            number=number,
            partitions=settings.partitions,
            after=clocks.end,
            watermark=watermark,
            version=adoption.active,
            pending=adoption.pending,
            past=past,
            runs=runs,
            letters=tuple(intake.rejected for intake in intakes if intake.rejected),
            two_phase=settings.two_phase,
            measured=settings.measured,
            before=None if before is None else _routed(before),
            since=self._there,
            checkpoint=False,
            counted=settings.counted,
            filtered=settings.filtered,
            placing=settings.placing,
        )
        spoken = -1 if before is None else before.spoken if before.silent else before.epoch.number
        record = EpochRecord(
            epoch=epoch,
            clocks=clocks.at(watermark),
            adoption=adoption,
            controls=controls,
            intakes=tuple(intakes),
            read=read,
            under=under,
            born=now,
            spoken=spoken,
            taken=dict(accepted),
            refused=dict(refused),
            previous=self._name,
            unknown=commonest([*([] if before is None else [before.unknown]), *(each.unknown for each in intakes)]),
        )
        if before is not None:
            record = replace(record, retired=_retired(before, record.versions, now), admitted=self._admitted(before))
            record = self._with_words(record, before)
        if not record.silent:
            epoch = record.epoch
            record = replace(record, epoch=replace(epoch, checkpoint=self.writing is None and self._due()))
        self._save(record)
        self._before = before
        return record

    def since_checkpoint(self, record: EpochRecord) -> list[EpochRecord]:
        """The epochs that were routed between the checkpoint that an epoch's record names, and the epoch, in order.

        They are returned as beginning with that checkpoint, which the first of them could not name yet.
        """
        since, records = record.epoch.since, list[EpochRecord]()
        while record.epoch.number - 1 > (-1 if since is None else since[0]):
            record = self._leadership.value(record.previous, EpochRecord)
            if not record.silent:
                records.append(replace(record, epoch=replace(record.epoch, since=since)))
        return records[::-1]

    def _admitted(self, before: EpochRecord) -> tuple[str, ...]:
        """:attr:`EpochRecord.admitted` of the epoch after this one."""
        since, files, record = -1 if self._there is None else self._there[0], list[Sequence[str]](), before
        while record.epoch.number > since:
            with_objects = record.epoch.counted is not None or record.epoch.has_words
            kinds = ("queries", "objects") if with_objects else ("queries",)
            files.append([run.name for kind in kinds for run in record.epoch.runs_of(kind)])
            if record.epoch.since == self._there:
                files.append(record.admitted)
                break
            record = self._leadership.value(record.previous, EpochRecord)
        return tuple(dict.fromkeys(chain.from_iterable(reversed(files))))

    @property
    def settled(self) -> bool:
        """Whether nothing has been routed since the last complete checkpoint of the registry."""
        if self.last is None:
            return True
        return not self.unfinished and self._there is not None and self._there == _routed(self.last)

    def written(self, record: EpochRecord) -> None:
        """Take note that the checkpoint of an epoch, which is done, is complete."""
        self._there, self.writing = _turn(record.epoch), None

    def not_written(self) -> None:
        """Take note that the checkpoint that was being written will never be complete."""
        self.writing = None

    def _save(self, record: EpochRecord) -> None:
        self._name = self._leadership.decide(record.epoch.number, to_json(record))
        self.last = record

    def quarantine(self, found: Sequence[QuarantinedRecord]) -> None:
        """Decide to quarantine records of the unfinished epoch."""
        record = self.unfinished
        assert record is not None
        self._step("leave")
        self._save(replace(record, epoch=replace(record.epoch, quarantined=(*record.epoch.quarantined, *found))))

    def announcement(self, record: EpochRecord) -> dict[str, Any]:
        """The announcement of an epoch to the worker."""
        epoch = record.epoch
        fields = {
            "epoch": epoch.number,
            "before": record.spoken,
            "watermark": epoch.watermark,
            "born": record.born,
            "adoption": {"active": epoch.version},
            "controls": record.controls,
            "past": epoch.past,
            "refused": sum(intake.refused for intake in record.intakes) + epoch.revision,
            "revision": epoch.revision,
            "records": sum(run.rows for kind in ("objects", "queries") for run in epoch.runs_of(kind)),
        }
        return self._leadership.sign(fields)

    def done(self, record: EpochRecord) -> None:
        """Take note that an epoch is done, and delete what no replay can need any more."""
        epoch = record.epoch
        self._step("clean")
        if self._before is not None:  # otherwise :meth:`tidy` does it
            self._storage.discard(INPUT + file for file in self._before.files - record.files)
        self._leadership.clean(min(epoch.number - 1, 0 if epoch.since is None else epoch.since[0] + 1))
        if epoch.census is not None:
            drop_words(self._storage, epoch.census.round, epoch.version)
        self._step("done")
        self._progress.save(epoch.number)
        self.last_done = epoch.number
        if epoch.checkpoint:
            self.writing = record

    def _adopt(self, number: int, before: EpochRecord | None) -> tuple[Adoption, tuple[Control, ...]]:
        view = self._store.latest()
        if before is None:
            active = self._store.state().active
            self._fetch(active.number)
            return Adoption(active.number), ()

        def activate(version: int) -> bool:
            self._step("activate")
            try:
                self._store.activate(version, number)
            except (Unavailable, Conflict):
                return False
            return True

        adoption, controls = before.adoption.next(view, activate)
        if adoption.pending is not None and adoption.pending != before.adoption.pending:
            try:
                self._fetch(adoption.pending)
            except Unavailable:
                return before.adoption, ()
        return adoption, controls

    def _fetch(self, number: int) -> None:
        """Copy a version to where the stages find it."""
        if find(self._storage, version_name(number)) is None:
            save_version(self._storage, self._store.load(number))

    def _with_words(self, record: EpochRecord, before: EpochRecord) -> EpochRecord:
        """The record of an epoch with what its filters take over.

        They take over the words of a census only if a checkpoint has what they took over before: so a replay needs no
        file but those of the last two.
        """
        epoch = record.epoch
        if not epoch.has_words or record.silent:
            return replace(record, words=before.words)
        if epoch.version != before.epoch.version:
            return replace(record, words=replace(before.words, epoch=epoch.number))
        self._until_look -= 1
        since = -1 if epoch.since is None else epoch.since[0]
        if self._until_look > 0 or since < before.words.epoch:
            return replace(record, words=before.words)
        self._until_look = LOOK_FOR_WORDS
        census = get_value(self._storage, LATEST, Census) if find(self._storage, LATEST) is not None else None
        if census is None or census.version != epoch.version or census.round <= before.words.round:
            return replace(record, words=before.words)
        taken = TakenWords(epoch.number, census.round)
        return replace(record, epoch=replace(epoch, census=census), words=taken)

    def _ranges(
        self, before: EpochRecord | None, adoption: Adoption, runs: Sequence[Run], watermark: int
    ) -> tuple[tuple[int, int] | None, tuple[Past, ...]]:
        """Timestamps of objects routed under the active version, and under earlier versions."""
        first = min((run.first for run in runs if run.kind == "objects"), default=watermark)
        if before is None:
            return (first, watermark), ()
        past = before.epoch.past
        under = before.under
        if adoption.active != before.adoption.active:
            if under is not None:
                past = (*past, (before.adoption.active, *under))
            under = None
        under = (first, watermark) if under is None else (min(under[0], first), max(under[1], watermark))
        if self.settings.filtered:
            past = ()  # there are no queries that look back
        elif self.settings.retention is not None:
            # the earliest query of the epoch comes right after the end of the epoch before
            floor = before.epoch.watermark - self.settings.retention
            past = tuple(each for each in past if each[2] > floor)
        return under, past

    def keep(self) -> None:
        """Save the records that are needed beyond the retention of the announcement log; call it on a silent stream."""
        self._leadership.keep()

    def tidy(self) -> None:
        """Remove versions from the routing store that retention has passed, and what failed tries have left.

        A worker that is behind may name a version in read points that no epoch needs any more: the version stays until
        the worker has passed it, or until the blocks of its epochs are no longer kept.
        """
        record = self.last
        if record is None:
            return
        known = record.files
        self._storage.delete(
            name
            for name in self._storage.list(INPUT)
            if (file := name.removeprefix(INPUT)) not in known and int(file[:9]) <= record.epoch.number
        )
        versions, active = record.versions, record.adoption.active
        recent = {number for number, since in record.retired if since > self._now() - _BLOCKS_KEPT}
        try:
            there = [number for number in self._store.versions() if number not in versions and number < active]
            named = read_named(self._store) if there else None
            old = [number for number in there if number not in recent or (named is not None and number < named)]
            if old:
                self._store.remove(old)
        except (Unavailable, Conflict):
            return  # retried next time
        files = {number_of(name): name for name in self._storage.list(VERSIONS)}
        self._storage.delete(files[number] for number in files.keys() - versions - recent if number < active)

    def wants_epoch(self) -> bool:
        """Whether an epoch without new messages would have an effect: records wait, or a version does."""
        if self.last is None:
            return False
        if self.last.adoption.wants(self._store.latest()):
            return True
        waiting = self.last.clocks.watermark(self._now(), self.settings.idle) - self.settings.disorder
        return self.last.held and waiting > self.last.epoch.watermark


def _turn(epoch: Epoch) -> Turn:
    return epoch.number, epoch.revision


def _routed(record: EpochRecord) -> Turn | None:
    """The last routed epoch up to and with this one."""
    return record.epoch.before if record.silent else _turn(record.epoch)


def _retired(before: EpochRecord, versions: set[int], now: int) -> tuple[tuple[int, int], ...]:
    """:attr:`EpochRecord.retired` of an epoch that names these versions."""
    since = dict(before.retired) | dict.fromkeys(before.versions - versions, now)
    return tuple((each, t) for each, t in sorted(since.items()) if each not in versions and t > now - _BLOCKS_KEPT)


def ends_of_epochs(runs: Sequence[Run], after: int, reach: int, most: int) -> Iterator[int]:
    """The ends of the epochs, of about ``most`` records at most, into which time is cut from ``after`` to ``reach``.

    A run gives a sample of its timestamps; each represents the records since the sample before. All records with the
    same timestamp belong to the same epoch.
    """
    t = np.concatenate([np.empty(0, np.int64), *(np.array(run.times, np.int64) for run in runs)])
    weight = np.concatenate([np.empty(0), *(np.full(len(run.times), run.rows / len(run.times)) for run in runs)])
    due = (t > after) & (t <= reach)
    t, weight = t[due], weight[due]
    order = np.argsort(t, kind="stable")
    t, filled = t[order], np.cumsum(weight[order])
    first, before = 0, 0.0
    while first < len(t) and filled[-1] - before > 1.5 * most:
        end = int(t[np.searchsorted(filled, before + most)])
        yield end
        first = int(np.searchsorted(t, end, "right"))
        before = float(filled[first - 1])
    if first < len(t) or not first:
        yield reach
