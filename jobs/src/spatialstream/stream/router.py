"""The router of a live stream: what new messages make of the next epoch.

An epoch goes through four steps, each of which may be repeated after a crash with the same outcome:

1. *Ingest*: the messages that are new become runs (:mod:`~spatialstream.stages.ingest`). Until the record is written
   nothing depends on how many they are, so they may be more when it is repeated.
2. *Decide*: clocks say up to which time the epoch reaches (:mod:`~spatialstream.stream.clocks`); what is later waits
   in its run. The routing store says whether a new version is wanted (:mod:`~spatialstream.stream.adoption`). All
   decisions, and up to which offsets the input has been read, are written into the epoch's record, whole or not at all:
   from then on the epoch is fixed.
3. *Route*: the records of the epoch go out as blocks, under the version that the epoch's record names.
4. *Announce*: the epoch's record of offsets tells the worker that all blocks of the epoch are in the broker.

An epoch that cannot be routed for a record's sake leaves it out (:mod:`~spatialstream.stages.leaving`).

A replay that finds the record skips 1 and 2. Blocks that are sent again are equal to the first ones, and the worker
knows them by epoch, router partition and number.

The driver sees intakes, never records; what it keeps is O(partitions + runs not used up). Everything here is free of
Spark and of the broker: both are behind :class:`RouterJobs`.
"""

from __future__ import annotations

import io
import json
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spatialstream.model.errors import Conflict, SettingError, StateError, Unavailable
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.space import Space
from spatialstream.model.terms import TermRule
from spatialstream.sources.contracts import Storage, find
from spatialstream.sources.disk import DAMAGED, undamaged
from spatialstream.sources.keys import block_key
from spatialstream.sources.memory_storage import Overlay
from spatialstream.sources.owned import STREAM
from spatialstream.stages import messages
from spatialstream.stages.ingest import Intake
from spatialstream.stages.learning import write_sample
from spatialstream.stages.leaving import Left, culprits, dead_letter, failure
from spatialstream.stages.messages import numbers
from spatialstream.stages.moves import ACTIVATE, Control
from spatialstream.stages.plan import Run, unpack_place
from spatialstream.stages.route import Row, Share, queries_with_numbers, route
from spatialstream.stages.routing import PastVersion, Routing
from spatialstream.stages.runs import INPUT, queries_of_epoch, route_share, rows_of_share
from spatialstream.stages.state import OwnerState, Progress, get_json, put_json
from spatialstream.stages.versions import VERSIONS, load_version, number_of, save_version, version_name
from spatialstream.store.base import RoutingStore
from spatialstream.store.codec import checked_name
from spatialstream.stream.adoption import Adoption
from spatialstream.stream.clocks import NEVER, Clocks

__all__ = ["EpochRecord", "Router", "RouterJobs", "StreamSettings", "narrow_route", "route_epoch"]

_LONGEST_NAME = 200

LARGEST_BLOCK = 6 << 20
"""Bytes beyond which a block is cut in two. What cannot be cut, a record alone, is bounded by
:data:`~spatialstream.stages.ingest.LARGEST_RECORD`; the topic of blocks takes messages of more than that."""

_BLOCKS_KEPT = 86_400_000
"""ms for which blocks are kept in the broker, so that no worker is further behind."""

_LETTERS = 10_000
"""Dead letters that are read at a time."""


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """What both jobs of a stream are told, and what must not change in the stream's life.

    Attributes:
        name: of the stream.
        slots: worker slots.
        space: WGS84 or planar.
        partitions: router partitions.
        interval: Δ, ms.
        retention: ms that snapshot queries can look back; None keeps everything.
        rule: term extraction.
        idle: ms after which a silent topic partition does not hold the others back.
        disorder: ms by which records of a partition may be out of order.
        epoch_records: records an epoch, about, when there are many waiting.
        longest: bytes of a record beyond which it is rejected.
        ahead: ms by which a record's time may be ahead of the day's clock; None: any.
    """

    name: str
    slots: int = 4
    space: Space = field(default_factory=lambda: Space.parse("wgs84"))
    partitions: int = 2
    interval: int = 300_000
    retention: int | None = None
    rule: TermRule = field(default_factory=TermRule)
    idle: int = 500
    disorder: int = 0
    epoch_records: int = 250_000
    longest: int = 1 << 20
    ahead: int | None = None

    def validate(self) -> None:
        """Refuse what cannot work.

        Raises:
            SettingError: names the setting and says what would be right.
        """
        try:
            checked_name(self.name)
        except ValueError as error:
            raise SettingError("stream", str(error)) from None
        if len(self.name) > _LONGEST_NAME:
            raise SettingError("stream", f"{self.name!r} is longer than {_LONGEST_NAME} characters")
        for name, value, low, high in (
            ("slots", self.slots, 1, 1024),
            ("partitions", self.partitions, 1, 1024),
            ("epoch-records", self.epoch_records, 1, 2**31),
            ("interval", self.interval, 1, 2**62),
            ("idle", self.idle, 0, 2**62),
            ("disorder", self.disorder, 0, 2**62),
            ("longest", self.longest, 1024, 8 << 20),
        ):
            if not low <= value <= high:
                raise SettingError(name, f"{value} is out of range; give {low} to {high}")
        if self.retention is not None and self.retention < self.interval:
            raise SettingError("retention", f"{self.retention} ms is shorter than the interval of {self.interval} ms")

    def identity(self) -> dict[str, Any]:
        """What must not change while there is state of the stream."""
        return {
            "stream": self.name,
            "slots": self.slots,
            "space": str(self.space),
            "partitions": self.partitions,
            "interval": self.interval,
            "retention": self.retention,
            "stop_words": sorted(self.rule.stop_words),
            "minimum_length": self.rule.minimum_length,
        }

    def claim(self, storage: Storage) -> str:
        """Take a checkpoint for this stream, or make sure that it is this stream's. Nobody else may be doing the same.

        Returns:
            The id of the stream's life: made with its first state, and never again; empty if the stream began before
            lives had ids.

        Raises:
            StateError: it belongs to a stream with other settings, is damaged, or holds what no stream has written.
        """
        identity = self.identity()
        if find(storage, STREAM.marker) is None:
            if taken := STREAM.taken(storage):
                raise StateError(f"{storage.place}/{taken} is not of a stream, and in its way; give another checkpoint")
            put_json(storage, STREAM.marker, {**identity, "life": uuid.uuid4().hex[:12]})
        way_out = "begin anew with another checkpoint"
        known = get_json(storage, STREAM.marker, way_out)
        if not isinstance(known, dict):
            raise StateError(f"{storage.place}/{STREAM.marker} is damaged; {way_out}")
        for name, value in identity.items():
            if known.get(name) != value:
                raise StateError(f"{storage.place} belongs to a stream with {name} {known.get(name)!r}, not {value!r}")
        return str(known.get("life", ""))


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """All decisions about an epoch; implements :class:`spatialstream.stages.runs.Epochs`.

    Attributes:
        epoch: its number.
        after, upto: its range of time (after, upto].
        clocks: after the epoch.
        adoption: after the epoch.
        controls: what the slots are told.
        runs: those that have records for it or for later ones.
        intakes: what has come in since the epoch before.
        read: for each topic partition, such as ``"objects/0"``, the offset of the first message not read yet.
        under: first and last timestamp of objects routed under the active version so far; None if there are none.
        past: (version, first, last timestamp) of the versions before it of which objects are kept.
        born: ms of the day's clock at which it was decided.
        spoken: the last epoch before it that was announced; -1 if there is none.
        left: the records that it leaves out.
        before: the take of the epoch before by which that was done.
        retired: (version, ms of the day's clock) of the versions that epochs have named within the last day, but do not
            name since then.
    """

    epoch: int
    after: int
    upto: int
    clocks: Clocks
    adoption: Adoption
    controls: tuple[Control, ...]
    runs: tuple[Run, ...]
    intakes: tuple[Intake, ...]
    read: Mapping[str, int]
    under: tuple[int, int] | None
    past: tuple[tuple[int, int, int], ...]
    born: int
    spoken: int
    left: tuple[Left, ...] = ()
    before: int = 0
    retired: tuple[tuple[int, int], ...] = ()

    @property
    def take(self) -> int:
        """How often it was decided to leave records out, see :mod:`~spatialstream.stages.leaving`."""
        return len(self.left)

    @property
    def silent(self) -> bool:
        """Whether nothing happens in the epoch; then it is not announced, and the slots never hear of it."""
        late = any(run.first <= self.upto and self.is_new(run) for run in self.runs)
        refused = any(intake.refused for intake in self.intakes)
        return self.upto == self.after and not self.controls and not late and not refused and self.epoch > 0

    def is_new(self, run: Run) -> bool:
        """Whether a run has come with this epoch: of such a run earlier timestamps belong to it too."""
        return run.name.startswith(f"{self.epoch:09d}-")

    @property
    def versions(self) -> set[int]:
        """The versions by which it is routed, and the one that is being prepared."""
        adoption, past = self.adoption, {number for number, _, _ in self.past}
        return {adoption.active, *past} | ({adoption.pending} if adoption.pending is not None else set())

    @property
    def files(self) -> set[str]:
        """The files of its runs and dead letters."""
        names = {run.name for run in self.runs} | {intake.rejected for intake in self.intakes}
        return names - {""}

    def bounds_of(self, epoch: int, run: Run) -> tuple[int, int]:
        """See :class:`spatialstream.stages.runs.Epochs`."""
        return (NEVER if self.is_new(run) else self.after), self.upto

    def left_of(self, run: Run) -> Sequence[int]:
        """See :class:`spatialstream.stages.runs.Epochs`."""
        return [left.number for left in self.left if left.what == run.name]

    def runs_of(self, epoch: int, kind: str) -> list[Run]:
        """See :class:`spatialstream.stages.runs.Epochs`."""
        return [
            run
            for run in self.runs
            if run.kind == kind and run.first <= self.upto and (run.last > self.after or self.is_new(run))
        ]

    @property
    def span(self) -> int:
        """Length of the epoch in ms; 0 if nothing is known of what came before."""
        return self.upto - self.after if self.after > NEVER else 0

    @property
    def held(self) -> bool:
        """Whether records wait for a later epoch."""
        return any(run.last > self.upto for run in self.runs)

    def routing(self, storage: Storage) -> Routing:
        """What the epoch is routed by."""

        def version(number: int) -> Any:
            return load_version(storage, number)

        past = tuple(PastVersion(version(number), first, last) for number, first, last in self.past)
        pending = self.adoption.pending
        return Routing(
            version(self.adoption.active), None if pending is None else version(pending), past, two_phase=True
        )

    def save(self, storage: Storage) -> None:
        """Write as JSON."""
        record = {
            "epoch": self.epoch,
            "after": self.after,
            "upto": self.upto,
            "clocks": self.clocks.to_record(),
            "adoption": self.adoption.to_record(),
            "controls": self.controls,
            "runs": [asdict(run) for run in self.runs],
            "intakes": [intake.to_json() for intake in self.intakes],
            "read": self.read,
            "under": self.under,
            "past": self.past,
            "born": self.born,
            "spoken": self.spoken,
            "left": [left.to_json() for left in self.left],
            "before": self.before,
            "retired": self.retired,
        }
        put_json(storage, epoch_name(self.epoch), record)

    @classmethod
    def load(cls, storage: Storage, name: str) -> EpochRecord:
        """What :meth:`save` wrote.

        Raises:
            StateError: it is damaged.
        """
        record = get_json(storage, name)
        with undamaged(f"{storage.place}/{name}", DAMAGED):
            return cls(
                record["epoch"],
                record["after"],
                record["upto"],
                Clocks.from_record(record["clocks"]),
                Adoption(**record["adoption"]),
                tuple((control, number) for control, number in record["controls"]),
                tuple(Run.from_dict(run) for run in record["runs"]),
                tuple(Intake.from_json(intake) for intake in record["intakes"]),
                record["read"],
                None if record["under"] is None else (record["under"][0], record["under"][1]),
                tuple((number, first, last) for number, first, last in record["past"]),
                record["born"],
                record["spoken"],
                tuple(Left.from_json(left) for left in record.get("left", ())),
                record.get("before", 0),
                tuple((number, since) for number, since in record.get("retired", ())),
            )


EPOCHS = "epochs/"
"""What the names of epochs' records begin with."""


def epoch_name(epoch: int) -> str:
    """The name of an epoch's record."""
    return f"{EPOCHS}{epoch:09d}.json"


# --------------------------------------------------------------------------------------- what runs in the stages' tasks


def route_epoch(record: EpochRecord, partition: int, partitions: int, storage: Storage) -> Iterator[tuple[bytes, Row]]:
    """ROUTE for one router partition in a live stream: blocks with the keys of their messages.

    Dead letters of the epoch's messages, and of what it leaves out, come from partition 0, as blocks of the kind
    REJECTED for slot -1.
    """
    if partition == 0:
        if record.left:
            yield b"", (-1, messages.REJECTED, messages.columns(line=pa.array([left.letter for left in record.left])))
        for intake in record.intakes:
            if intake.rejected:
                file = pa.BufferReader(storage.get(INPUT + intake.rejected))
                with io.TextIOWrapper(file, encoding="utf-8", newline="\n") as letters:
                    while lines := [line.removesuffix("\n") for line in islice(letters, _LETTERS)]:
                        yield b"", (-1, messages.REJECTED, messages.columns(line=pa.array(lines)))
    queries = queries_of_epoch(record, record.epoch, storage) if partition == 0 else None
    objects = route_share(record, record.epoch, storage, partition, partitions)
    share = Share(record.epoch, record.upto, partition, partitions, objects, queries)
    takes = record.take, record.before
    state = OwnerState(storage, "registry", record.epoch, *takes) if partition == 0 else None
    sent: dict[int, int] = {}
    for slot, kind, content in route(share, record.routing(storage), state):
        for part in _parts(kind, content):
            number = sent[slot] = sent.get(slot, -1) + 1
            yield block_key(record.epoch, partition, number, kind, record.take), (slot, kind, part)
    if partition == 0:
        asked = None if queries is None else queries.queries
        write_sample(storage, record.epoch, record.span, objects, asked, partitions)


def narrow_route(record: EpochRecord, partition: int, partitions: int, storage: Storage) -> list[Left]:
    """What of a router partition's share has to be left out for ROUTE not to fail; see :mod:`.leaving`."""
    pieces = rows_of_share(record, record.epoch, storage, partition, partitions)
    known = {(left.what, left.number) for left in record.left}
    items = [
        (at, row)
        for at, (run, first, piece) in enumerate(pieces)
        for row in range(first, first + piece.num_rows)
        if (run.name, row) not in known
    ]
    copy = Overlay(storage)

    def outcome(kept: npt.NDArray[np.int64]) -> Exception | None:
        copy.renew()
        others = np.setdiff1d(np.arange(len(items)), kept).tolist()
        left = (*record.left, *(Left(pieces[items[i][0]][0].name, items[i][1]) for i in others))
        rehearsed = replace(record, left=left)
        return failure(lambda: deque(route_epoch(rehearsed, partition, partitions, copy), 0))

    found = culprits(len(items), outcome)
    return [_left(record.epoch, *pieces[items[i][0]], items[i][1], error) for i, error in found]


def _left(epoch: int, run: Run, first: int, piece: pa.RecordBatch, row: int, error: Exception) -> Left:
    place, content = dict[str, int](), piece.slice(row - first, 1)
    if run.kind == "queries":
        offset, line = unpack_place(content.column("line")[0].as_py())
        place = {"offset": offset, "line": line}
        echo = json.dumps(QueryBatch.from_arrow(content.drop_columns(["line"]))[0].to_record(), ensure_ascii=False)
    else:
        echo = json.dumps(asdict(ObjectBatch.from_arrow(content)[0]), ensure_ascii=False)
    return Left(run.name, row, dead_letter(error, "ROUTE", echo, run.source, epoch, **place))


def _parts(kind: str, content: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A block cut by rows into parts that fit into a message, each with a dictionary of its own terms."""
    if content.nbytes <= LARGEST_BLOCK or content.num_rows < 2:
        yield content
        return
    half = content.num_rows // 2
    for piece in (content.slice(0, half), content.slice(half)):
        if kind == messages.OBJECTS:
            objects = ObjectBatch.from_arrow(piece.drop_columns(["seq", "leaf"]))
            own = replace(objects, terms=objects.terms.compact()).to_arrow()
            for name in ("seq", "leaf"):
                own = own.append_column(name, piece.column(name))
            yield from _parts(kind, own)
        elif kind == messages.REGISTERED:
            queries = QueryBatch.from_arrow(piece.drop_columns(["number"]))
            yield from _parts(kind, queries_with_numbers(queries, numbers(piece, "number")))
        else:
            yield from _parts(kind, piece)


class RouterJobs(Protocol):
    """What the router has done by Spark and the broker."""

    def ingest(self, epoch: int) -> Sequence[Intake]:
        """Turn new messages into runs, within :meth:`Router.limits`; those before ``Router.last.read`` are not new."""

    def route(self, record: EpochRecord) -> None:
        """Send the epoch's blocks and dead letters."""

    def announce(self, epoch: int, announcement: Mapping[str, Any]) -> None:
        """Tell the worker that all blocks of the epoch are in the broker, and up to which offsets."""


class Router:
    """Decides epochs; one instance a process.

    Args:
        settings: of the stream.
        storage: of the stream's state.
        store: the routing store.
        jobs: what does the work.
        names: the topic partitions that the stream reads, such as ``"objects/0"``.
        now: the day's clock, ms.
        step: is called before each step, with its name; tests stop the router there.

    Attributes:
        last: the record of the last epoch, done or not.
        done: the last epoch that is known to be done; -1 if none is.
    """

    def __init__(
        self,
        settings: StreamSettings,
        storage: Storage,
        store: RoutingStore,
        jobs: RouterJobs,
        names: Sequence[str],
        now: Callable[[], int],
        step: Callable[[str], None] = lambda name: None,
    ) -> None:
        self.settings = settings
        self._storage = storage
        self._store = store
        self._jobs = jobs
        self._names = list(names)
        self._now = now
        self._step = step
        self._progress = Progress(storage, f"{EPOCHS}done")
        self.last: EpochRecord | None = self._latest()
        self.done = self._progress.load()

    @property
    def unfinished(self) -> bool:
        """Whether the last epoch has to be done again, because nobody knows whether it was done."""
        return self.last is not None and self.last.epoch > self.done

    def _latest(self) -> EpochRecord | None:
        records = [name for name in self._storage.list(EPOCHS) if name.endswith(".json")]
        return EpochRecord.load(self._storage, records[-1]) if records else None

    def epoch(self) -> EpochRecord:
        """Do the next epoch, or the last one again if it is not known to be done."""
        record = self.last
        if record is None or record.epoch <= self.done:
            self._step("ingest")
            record = self._decide(self.done + 1, record, self._jobs.ingest(self.done + 1))
            self._step("record")
            record.save(self._storage)
            self.last = record
        number = record.epoch
        if record.silent:
            OwnerState(self._storage, "registry", number, record.take, record.before).carry()
        else:
            self._step("route")
            self._jobs.route(record)
            self._step("announce")
            self._jobs.announce(number, self.announcement(record))
        self._step("clean")
        self._clean(record)
        self._step("done")
        self._progress.save(number)
        self.done = number
        return record

    def leave_out(self, narrow: Callable[[EpochRecord], Sequence[Left]]) -> Sequence[Left]:
        """Decide to leave out of the epoch, which has failed, what it cannot be routed with; that, if there is any.

        Args:
            narrow: finds it.
        """
        record = self.last
        if record is None or not self.unfinished:
            return ()
        self._step("narrow")
        found = narrow(record)
        if found:
            record = replace(record, left=(*record.left, *found))
            self._step("leave")
            record.save(self._storage)
            self.last = record
        return found

    def limits(self) -> tuple[int | None, int | None]:
        """Objects up to the first are too old for retention now; records after the second are from the future."""
        before, retention, ahead = self.last, self.settings.retention, self.settings.ahead
        floor = None if retention is None or before is None or before.upto <= NEVER else before.upto - retention
        return floor, None if ahead is None else self._now() + ahead

    def _decide(self, number: int, before: EpochRecord | None, intakes: Sequence[Intake]) -> EpochRecord:
        now = self._now()
        clocks = Clocks.start(self._names, now) if before is None else before.clocks
        given: dict[str, int] = {}
        for intake in intakes:
            given[intake.partition] = max(
                given.get(intake.partition, NEVER), NEVER if intake.clock is None else intake.clock
            )
        clocks = clocks.heard(given, now)
        left = () if before is None else tuple(run for run in before.runs if run.last > before.upto)
        runs = (*left, *(intake.run for intake in intakes if intake.run is not None))
        watermark = clocks.watermark(now, self.settings.idle)
        reach = max(clocks.upto, watermark if watermark <= NEVER else watermark - self.settings.disorder)
        upto = _bounded(runs, clocks.upto, reach, self.settings.epoch_records)
        adoption, controls = self._adopt(number, before)
        if before is not None and adoption.active != before.adoption.active:
            controls = (*controls, (ACTIVATE, adoption.active))
        under, past = self._ranges(before, adoption, runs, upto)
        read = {} if before is None else dict(before.read)
        for intake in intakes:
            read[intake.partition] = max(intake.last + 1, read.get(intake.partition, 0))
        spoken = -1 if before is None else before.spoken if before.silent else before.epoch
        record = EpochRecord(
            number,
            clocks.upto,
            upto,
            clocks.at(upto),
            adoption,
            controls,
            runs,
            tuple(intakes),
            read,
            under,
            past,
            now,
            spoken,
            before=0 if before is None else before.take,
        )
        return record if before is None else replace(record, retired=_retired(before, record.versions, now))

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
        """Put a version where the stages find it."""
        if find(self._storage, version_name(number)) is None:
            save_version(self._storage, self._store.load(number))

    def _ranges(
        self, before: EpochRecord | None, adoption: Adoption, runs: Sequence[Run], upto: int
    ) -> tuple[tuple[int, int] | None, tuple[tuple[int, int, int], ...]]:
        """Timestamps of objects routed under the active version, and under those before it."""
        first = min((run.first for run in runs if run.kind == "objects"), default=upto)
        if before is None:
            return (first, upto), ()
        past = before.past
        under = before.under
        if adoption.active != before.adoption.active:
            if under is not None:
                past = (*past, (before.adoption.active, *under))
            under = None
        under = (first, upto) if under is None else (min(under[0], first), max(under[1], upto))
        if self.settings.retention is not None:
            # the earliest query of the epoch comes right after the end of the one before
            floor = before.upto - self.settings.retention
            past = tuple(each for each in past if each[2] > floor)
        return under, past

    def announcement(self, record: EpochRecord) -> dict[str, Any]:
        """What the worker is told about an epoch."""
        return {
            "epoch": record.epoch,
            "before": record.spoken,
            "upto": record.upto,
            "born": record.born,
            "adoption": record.adoption.to_record(),
            "controls": record.controls,
            "past": record.past,
            "refused": sum(intake.refused for intake in record.intakes) + len(record.left),
            "take": record.take,
            "records": sum(run.rows for kind in ("objects", "queries") for run in record.runs_of(record.epoch, kind)),
        }

    def _clean(self, record: EpochRecord) -> None:
        """Delete what no replay can ask for: the epoch before is done."""
        name = epoch_name(record.epoch - 1)
        if record.epoch >= 1 and find(self._storage, name) is not None:
            before = EpochRecord.load(self._storage, name)
            self._storage.delete(INPUT + file for file in before.files - record.files)
        if record.epoch >= 2:
            self._storage.delete([epoch_name(record.epoch - 2)])

    def tidy(self) -> None:
        """Remove versions from the routing store that retention has passed, and what failed tries have left."""
        record = self.last
        if record is None:
            return
        known = record.files
        self._storage.delete(
            name
            for name in self._storage.list(INPUT)
            if (file := name.removeprefix(INPUT)) not in known and int(file[:9]) <= record.epoch
        )
        kept, active = record.versions, record.adoption.active
        try:
            old = [number for number in self._store.versions() if number not in kept and number < active]
            if old:
                self._store.remove(old)
        except (Unavailable, Conflict):
            return  # the next time will do
        recent = {number for number, since in record.retired if since > self._now() - _BLOCKS_KEPT}
        there = {number_of(name): name for name in self._storage.list(VERSIONS)}
        self._storage.delete(there[number] for number in there.keys() - kept - recent if number < active)

    def wants_epoch(self) -> bool:
        """Whether an epoch without new messages would do something: records wait, or a version does."""
        if self.last is None:
            return False
        if self.last.adoption.wants(self._store.latest()):
            return True
        waiting = self.last.clocks.watermark(self._now(), self.settings.idle) - self.settings.disorder
        return self.last.held and waiting > self.last.upto


def _retired(before: EpochRecord, versions: set[int], now: int) -> tuple[tuple[int, int], ...]:
    """What :attr:`EpochRecord.retired` is for an epoch that names these versions."""
    since = dict(before.retired) | dict.fromkeys(before.versions - versions, now)
    return tuple((each, t) for each, t in sorted(since.items()) if each not in versions and t > now - _BLOCKS_KEPT)


def _bounded(runs: Sequence[Run], after: int, reach: int, most: int) -> int:
    """The end of an epoch of at most about ``most`` records, not beyond ``reach``.

    Runs show every so-many-th timestamp; one stands for those since the one before it.
    """
    times, weights = [], []
    for run in runs:
        shown = np.array(run.times, np.int64)
        times.append(shown)
        weights.append(np.full(len(shown), run.rows / len(shown)))
    if not times:
        return reach
    t, weight = np.concatenate(times), np.concatenate(weights)
    due = (t > after) & (t <= reach)
    if weight[due].sum() <= 1.5 * most:
        return reach
    order = np.argsort(t[due], kind="stable")
    filled = np.cumsum(weight[due][order])
    return int(t[due][order][np.searchsorted(filled, most)])
