"""The parameters of a turn: of an epoch's ROUTE, and of a round's WORK and MERGE.

A turn is a function of these values and of the content of the storage: every repetition does the same. The records of
:mod:`spatialstream.stream` contain how they were decided.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spatialstream.connectors.contracts import Storage
from spatialstream.model.errors import StateError
from spatialstream.stages.quarantine import QuarantinedRecord
from spatialstream.stages.routing import PastVersion, Routing
from spatialstream.stages.state import Turn
from spatialstream.stages.versions import load_version

__all__ = [
    "ABORT",
    "ACTIVATE",
    "LAST_TURN",
    "LOAD",
    "NEVER",
    "PREPARE",
    "Census",
    "Control",
    "Counted",
    "Epoch",
    "Origin",
    "Past",
    "Round",
    "Run",
    "next_turn",
]

NEVER = -(2**62)
"""Before every timestamp."""

LAST_TURN = 10**9 - 1
"""The largest number of an epoch or a round: file names have nine digits, and numbers of queries room for 2**30."""

PREPARE, LOAD, ABORT, ACTIVATE = "prepare", "load", "abort", "activate"

Control = tuple[str, int]
"""One of PREPARE, LOAD, ABORT, ACTIVATE, and the number of the version that it concerns."""

Past = tuple[int, int, int]
"""A version that is not active any more: its number, first and last timestamp of the objects routed under it."""


def next_turn(last: int) -> int:
    """The number of the epoch or round after the last one, -1 for none.

    Raises:
        StateError: there is none; at 20 turns a second the numbers last a year and a half.
    """
    if last >= LAST_TURN:
        raise StateError(f"the stream has reached the maximum of {LAST_TURN + 1} turns; remove it and create it again")
    return last + 1


@dataclass(frozen=True, slots=True)
class Origin:
    """What a run was made of, so that it can be made again.

    Attributes:
        start, end: offsets of its messages, [start, end).
        floor: objects with this timestamp or an earlier one were too old; None: none were.
        ceiling: records with later timestamps were from the future; None: none were.
    """

    start: int
    end: int
    floor: int | None
    ceiling: int | None


@dataclass(frozen=True, slots=True)
class Run:
    """One sorted Arrow file of decoded records.

    Attributes:
        name: file name under ``input/`` in the storage.
        kind: ``"objects"`` or ``"queries"``.
        rows: number of records.
        source: the input file, or the topic partition.
        times: a sample of its timestamps at regular intervals, first and last included, ascending.
        packed: whether its records' lines are places in a topic partition, see
            :func:`~spatialstream.stages.runs.pack_place`.
        origin: of a run whose file may be missing, because nobody has waited for its put; None: the file exists.
    """

    name: str
    kind: str
    rows: int
    source: str
    times: tuple[int, ...]
    packed: bool = False
    origin: Origin | None = None

    @property
    def first(self) -> int:
        """Smallest timestamp."""
        return self.times[0]

    @property
    def last(self) -> int:
        """Largest timestamp."""
        return self.times[-1]


@dataclass(frozen=True, slots=True)
class Counted:
    """How a stream counts words for ranked queries, see :mod:`~spatialstream.stages.corpus`.

    Attributes:
        interval: Δ, ms.
        intervals: number of intervals that a table covers; 0: all.
    """

    interval: int
    intervals: int


@dataclass(frozen=True, slots=True)
class Census:
    """A round after which all slots have written the words of their continuous queries.

    Attributes:
        round, revision: the round.
        epoch: its last epoch.
        version: the routing version of that epoch, by whose leaves they have written.
    """

    round: int
    revision: int
    epoch: int
    version: int


@dataclass(frozen=True, slots=True)
class Epoch:
    """The parameters of ROUTE.

    Attributes:
        number: of the epoch; epochs count from 0 without a gap.
        partitions: number of router partitions.
        after, watermark: its range of time (after, watermark].
        version: the active routing version.
        pending: the version that is being prepared.
        past: earlier versions under which objects that are kept were routed.
        runs: the runs that have records for it or for later epochs, in input order.
        letters: names of the files of dead letters that have come in with it, under ``input/``.
        two_phase: whether an SKQ goes only to the nearest slot first, see :mod:`~spatialstream.stages.two_phase`.
        measured: whether samples are written, from which J is learnt.
        quarantined: the quarantined records; ``what`` is the name of a run, ``number`` a row in it.
        before: the last routed epoch before; None if there is none. An epoch in which nothing happens is not routed.
        since: the last epoch before that ended with a checkpoint of the registry; None if none did.
        checkpoint: whether this one does.
        counted: how words are counted; None: they are not.
        filtered: whether objects that no continuous query can match are dropped (:mod:`~spatialstream.stages.words`).
        placing: whether each CKQ is on one slot, to which only objects with its words are copied.
        census: the census that the filters take over with this epoch, if any.
    """

    number: int
    partitions: int
    after: int
    watermark: int
    version: int
    pending: int | None
    past: tuple[Past, ...]
    runs: tuple[Run, ...]
    letters: tuple[str, ...]
    two_phase: bool = True
    measured: bool = True
    quarantined: tuple[QuarantinedRecord, ...] = ()
    before: Turn | None = None
    since: Turn | None = None
    checkpoint: bool = True
    counted: Counted | None = None
    filtered: bool = False
    placing: bool = False
    census: Census | None = None

    @property
    def has_words(self) -> bool:
        """Whether router partitions know words of continuous queries (:mod:`~spatialstream.stages.words`)."""
        return self.filtered or self.placing

    @property
    def revision(self) -> int:
        """How often it was decided to quarantine records, see :mod:`~spatialstream.stages.quarantine`."""
        return len(self.quarantined)

    @property
    def span(self) -> int:
        """Its length in ms; 0 if nothing is known of the time before."""
        return self.watermark - self.after if self.after > NEVER else 0

    def is_new(self, run: Run) -> bool:
        """Whether a run has come with this epoch: then its earlier timestamps belong to the epoch too."""
        return run.name.startswith(f"{self.number:09d}-")

    def bounds_of(self, run: Run) -> tuple[int, int]:
        """The part of a run that belongs to it: timestamps in (after, watermark]."""
        return (NEVER if self.is_new(run) else self.after), self.watermark

    def left_of(self, run: Run) -> Sequence[int]:
        """The quarantined rows of a run."""
        return [each.number for each in self.quarantined if each.what == run.name]

    def runs_of(self, kind: str) -> list[Run]:
        """The runs of a kind that reach into it, in input order."""
        return [run for run in self.runs if run.kind == kind and self._reaches(run)]

    def _reaches(self, run: Run) -> bool:
        return run.first <= self.watermark and (run.last > self.after or self.is_new(run))

    def routing(self, storage: Storage) -> Routing:
        """The routing of the epoch."""
        pending = None if self.pending is None else load_version(storage, self.pending)
        return Routing(load_version(storage, self.version), pending, _past(self.past, storage), self.two_phase)


@dataclass(frozen=True, slots=True)
class Round:
    """The parameters of WORK and MERGE.

    Attributes:
        number: of the round; rounds count from 0 without a gap.
        epochs: its epochs, ascending; none in a round that exists only for its checkpoint.
        revisions: for each epoch, its revision that counts.
        watermark: all records with this timestamp or an earlier one have arrived.
        version: the routing version of the last epoch.
        controls: what the router announces about future versions, in order.
        past: earlier versions under which objects that are kept were routed.
        census: whether the slots count their continuous queries by leaf.
        two_phase: whether SKQs have been routed to one slot each, see :class:`Epoch`.
        measured: whether the slots report their load.
        quarantined: the quarantined records.
        before: the round before; None if there is none.
        since: the last round before that ended with a checkpoint of all slots and of the merger; None if none did.
        checkpoint: whether this one does.
        known: whether its rows have been published: it is replayed for the state only.
        settling: whether CKQs leave slots that they do not need, see :mod:`~spatialstream.stages.settling`.
        radii: the parts of MERGE of which the round before has a file of radii, which the slots take at the beginning.
    """

    number: int
    epochs: tuple[int, ...]
    revisions: tuple[int, ...]
    watermark: int
    version: int
    controls: tuple[Control, ...] = ()
    past: tuple[Past, ...] = ()
    census: bool = False
    two_phase: bool = True
    measured: bool = True
    quarantined: tuple[QuarantinedRecord, ...] = ()
    before: Turn | None = None
    since: Turn | None = None
    checkpoint: bool = True
    known: bool = False
    settling: bool = False
    radii: tuple[int, ...] = ()

    @property
    def revision(self) -> int:
        """How often it was decided to quarantine records."""
        return len(self.quarantined)

    def routing(self, storage: Storage) -> Routing:
        """The routing that determines the slots of the second phase of SKQs."""
        return Routing(load_version(storage, self.version), past=_past(self.past, storage))


def _past(versions: Iterable[Past], storage: Storage) -> tuple[PastVersion, ...]:
    return tuple(PastVersion(load_version(storage, number), first, last) for number, first, last in versions)
