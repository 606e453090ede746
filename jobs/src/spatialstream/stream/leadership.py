"""Which decisions count if two processes do the same job: the order of the announcement log determines it.

A lease (:mod:`spatialstream.store.lease`) keeps two processes from doing one job, but no process can be sure that it
still holds it: it may have been paused, and resume in the middle of a turn. Such a *zombie* continues as if nothing had
happened. This is why it does no harm.

Interface
    :class:`Leadership` is one process's term at a job: :meth:`~Leadership.begin`, then :meth:`~Leadership.decide` for
    each turn, before anything follows from the decision, and :meth:`~Leadership.sign` for each announcement.
    :class:`Leader` is the state of a job according to a prefix of the log; readers of announcements ask it which of
    them count. :class:`Alone` is for jobs that no other process can do.

Protocol
    Both jobs write into the announcement log, besides announcements:

    - A *leader change*, before anything else: the id of the leadership, made of the lease's fencing number and a
      random part, and that number. A leader change counts unless one with a larger number comes before it. (Kafka's
      Raft log has control records of this name and purpose.)
    - A *decision* for each turn: the name of its record, and the record itself. No name is used twice.

    A decision or an announcement counts if its leadership is that of the last leader change that counts before it in
    the log. After writing a leader change or a decision, a process reads the log up to it before it continues; if it
    learns that it does not count, it is *superseded*, and exits. A process that begins adopts the last decision that
    counts before its leader change as its own.

Records
    Records are stored in the log: so they are persistent within milliseconds wherever state is, and cost an object
    store nothing. The log has no retention limit, and is *cut* where nobody needs it any more: before the oldest record
    that either job needs to return to its last checkpoint, and before what the worker has not read. Each decision
    carries the offset up to which its job allows that; the worker cuts.

    So that a log without its start still says who leads, a leadership *repeats* its leader change after each
    checkpoint, with what it knows, and a record is needed together with the repetition under which it was decided. A
    repetition does not count if another leadership has begun since: it carries the offset at which its author first
    read its own leader change, and of two leaderships with one number the later one read its own at a larger offset.

    The storage has three kinds of records: the first of a stream; those that are too long for a message; and all that
    are needed, once nothing has happened for a while, for brokers that keep no log for longer than some days.

Invariant
    What counts is a function of the log up to that point: all readers agree, whenever they read it, and nothing that
    comes later changes it. Each turn has one decision at a time, made after that of the turn before; another decision
    comes only from the same leadership, or from a later one that knows the first (to quarantine records). All else that
    a job writes is a function of the decision that counts and of what was there before, under names that contain the
    turn and its revision.

    So whatever a zombie is about to do when it resumes:

    =====================================  ============================================================================
    it writes a record                     under a name that nobody else uses; no decision that counts ever names it
    it writes a decision, an announcement  it does not count: the successor's leader change comes before it
    it repeats its leader change           likewise
    it has the log cut                     where it was allowed while it led, and what is allowed only grows
    it sends blocks, its tasks still do    of a decision that counts: the successor sends the same ones, under the same
                                           keys; or the successor has quarantined records: then the revision differs
    it publishes rows                      likewise. The successor does the same round, so they are the same rows, under
                                           the same keys
    it writes state, or cleans             state likewise; it removes what neither the next turn nor a later one needs
    =====================================  ============================================================================

    None of this asks whether the lease is held. So a job may begin turns while ZooKeeper is away, and may be started
    then, without a number: it takes the one that counts. Two processes that do so supersede each other, which costs
    time, but no answers.

Oracle
    Any number of processes that pause anywhere, against one that never fails
    (``tests/unit/stream/test_leadership.py``).

Cost: one message per turn, and the time until it can be read, some 3 ms.

If the broker has removed what came after the newest record of the storage, that record counts, if it is the last one;
a log that has lost decisions is detected by comparing it with the turns that are known to be done. A leader change that
the broker has removed is known from the messages after it: the id of a leadership contains its number.
"""

from __future__ import annotations

import re
import time
import uuid
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from spatialstream.connectors.contracts import Storage
from spatialstream.connectors.disk import DAMAGED, undamaged
from spatialstream.connectors.program import program
from spatialstream.model.errors import RunError, StateError, Unavailable
from spatialstream.model.jsonable import from_json
from spatialstream.stages.state import get_value

__all__ = ["ROUTER", "WORKER", "Alone", "Leader", "Leadership", "Log", "Superseded"]

T = TypeVar("T")

_PATIENCE = 120.0
"""Seconds within which an appended message must become readable."""

ROUTER, WORKER = "router", "worker"
"""The jobs."""

_LOOK = 0.1
_MOST = 1_000

_LONGEST = 256 << 10
"""Maximum bytes of a record that is sent with its decision; brokers accept messages of 1 MB however configured."""

_ITSELF = 2**62
"""``begun`` of a leadership whose leader change has been read: larger than that of any repetition."""

_HEARSAY = -1
"""``begun`` of a leadership whose leader change has not been read."""

_NAME = re.compile(r"(\d{9})(?:-(\d+)-[0-9a-f]{8}-(\d+))?\.json")


class Superseded(RunError):  # noqa: N818 (it says what is)
    """Another process has taken over this job; no retry changes that."""


class Log(Protocol):
    """The part of a :class:`~spatialstream.connectors.contracts.Channel` that is used here."""

    def announce(self, announcement: Mapping[str, Any]) -> None:
        """See :class:`~spatialstream.connectors.contracts.Channel`."""

    def announced(self, after: int | None, most: int, patience: float) -> tuple[list[dict[str, Any] | None], int]:
        """See :class:`~spatialstream.connectors.contracts.Channel`."""

    def cut(self, before: int) -> None:
        """See :class:`~spatialstream.connectors.contracts.Channel`."""


@dataclass(frozen=True, slots=True)
class Leader:
    """The state of a job according to the log up to some offset.

    Attributes:
        job: its name.
        number: the fencing number of the last leadership.
        leadership: its id; empty before there is one.
        count: the number of decisions that it has made, including lost ones.
        record: the name of the record that was decided last, in this leadership or before.
        announced: the last epoch that has been announced; -1 if none has. An epoch is done when it is announced.
        offset: up to which the log has been read; None: from the oldest message on that is kept.
        begun: the offset at which the leadership first read its own leader change, if a repetition carries it;
            :data:`_ITSELF` if its leader change has been read, :data:`_HEARSAY` if neither has.
    """

    job: str
    number: int = 0
    leadership: str = ""
    count: int = 0
    record: str = ""
    announced: int = -1
    offset: int | None = None
    begun: int = _HEARSAY

    def counts(self, message: Mapping[str, Any]) -> bool:
        """Whether a decision or an announcement of this job that comes next counts."""
        return str(message.get("leadership", "")) == self.leadership

    def read(self, messages: Iterable[Mapping[str, Any]], offset: int) -> tuple[Leader, list[Mapping[str, Any]]]:
        """The state after some more messages, up to an offset, and the announcements among them that count."""
        leader, counting = self, []
        for message in messages:
            leader = leader.after(message)
            if "epoch" in message and leader.counts(message):
                counting.append(message)
        return replace(leader, offset=offset), counting

    def after(self, message: Mapping[str, Any]) -> Leader:
        """The state after one more message."""
        if message.get("job") != self.job:
            return self
        if "begun" in message:
            return self._repeated(message)
        if "number" in message:
            number, leadership = int(message["number"]), str(message["leadership"])
            if number < self.number:
                return self
            # an unread leader change: it may have made announcements that do not count; repeating them does no harm
            announced = -1 if self.begun == _HEARSAY else self.announced
            return replace(self, number=number, leadership=leadership, count=0, begun=_ITSELF, announced=announced)
        if not self.counts(message):
            began = _number_of(message)
            if began <= self.number:
                return self
            # the broker no longer has its leader change, which counted: a leadership's messages come after that
            known = replace(self, number=began, leadership=str(message["leadership"]), count=0, begun=_HEARSAY)
            return known.after(message)
        if "epoch" in message:
            return replace(self, announced=max(self.announced, message["epoch"]))
        if message["count"] > self.count:  # a delayed message may come after its repetition
            return replace(self, count=message["count"], record=message["record"])
        return self

    def after_gap(self) -> Leader:
        """The state if some messages cannot be read any more."""
        return replace(self, record="", offset=None, begun=_HEARSAY)

    def _repeated(self, message: Mapping[str, Any]) -> Leader:
        """The state after a repeated leader change; after a cut, the one that knows more wins."""
        number, begun = int(message["number"]), int(message["begun"])
        if (number, begun) <= (self.number, self.begun):
            return self
        record = self.record if self.counts(message) else ""
        count, announced = int(message["count"]), int(message["announced"])
        known = replace(self, number=number, begun=begun, count=count, announced=announced)
        return replace(known, leadership=str(message["leadership"]), record=record)


def _number_of(message: Mapping[str, Any]) -> int:
    """The number of the leadership of a message; 0: it has none."""
    number, _, _ = str(message.get("leadership", "")).partition("-")
    return int(number) if number.isdecimal() else 0


@dataclass(slots=True)
class _Record:
    """What is known of a record.

    Attributes:
        turn: its turn.
        since: the log must not be cut after this offset while the record is needed.
        content: the record, compressed; None if only the storage has it.
        stored: whether the storage has it.
    """

    turn: int
    since: int
    content: bytes | None = None
    stored: bool = False


class _Records:
    """The records of a job's turns, by their names, which begin with the job's folder."""

    def __init__(self, storage: Storage, folder: str, step: Callable[[str], None]) -> None:
        self._storage, self._folder, self._step = storage, folder, step
        self._known: dict[str, _Record] = {}

    def value(self, name: str, kind: type[T]) -> T:
        """Load a record by the name that :meth:`begin` or :meth:`decide` returned.

        Raises:
            StateError: it is missing, or damaged.
        """
        known = self._known.get(name)
        if known is None or known.content is None:
            return get_value(self._storage, name, kind)
        with undamaged(f"the record {name} in the epochs topic", DAMAGED):
            return from_json(kind, zlib.decompress(known.content))

    def check(self, done: int, decided: int) -> None:
        """Make sure that the last turn that is known to be done is not after the last one that was decided.

        Raises:
            StateError: it is.
        """
        if done > decided:
            raise StateError(
                f"{self._folder}done in {self._storage.place} records turn {done} as done, but the last decision "
                f"in the epochs topic is of turn {decided}: messages of that topic have been lost. "
                f"Remove the stream with {program()} remove --checkpoint; then it starts anew"
            )

    def clean(self, turn: int, needed: int | None = None) -> None:
        """Remove the records of the turns before one, which must have been decided.

        Args:
            turn: as above.
            needed: the offset of the first announcement that the job still needs.
        """
        old = [name for name, record in self._known.items() if record.turn < turn]
        self._storage.discard(name for name in old if self._known[name].stored)
        for name in old:
            del self._known[name]

    def keep(self) -> None:
        """Save all records that are needed beyond the log's retention; call it on a silent stream."""

    def trim(self) -> None:
        """Cut the log before all that either job needs.

        Raises:
            Unavailable: it cannot be cut at present.
        """

    def _put(self, turn: int, name: str, record: bytes, since: int = _ITSELF) -> None:
        self._known[name] = _Record(turn, since, stored=True)
        self._step("record")
        self._storage.put(name, record)

    def _newest(self) -> str:
        """The newest record of the storage: largest number, then latest turn, then last decision.

        Returns:
            Its name; "" if there is none.
        """
        names = self._storage.list(self._folder)
        found = [(name, _NAME.fullmatch(name.removeprefix(self._folder))) for name in names]
        known = {(int(at[2] or 0), int(at[1]), int(at[3] or 0)): name for name, at in found if at is not None}
        self._known = {name: _Record(turn, _ITSELF, stored=True) for (_, turn, _), name in known.items()}
        return known[max(known)] if known else ""


class Leadership(_Records):
    """One process's term at a job.

    Args:
        log: the announcement log, read by nobody else through this object.
        storage: of the stream's state.
        job: its name.
        folder: prefix of the names of its records, such as ``epochs/``.
        number: the lease's fencing number; 0 if the lease could not be had.
        step: called before each step, with its name; tests stop the process there.
    """

    def __init__(
        self,
        log: Log,
        storage: Storage,
        job: str,
        folder: str,
        number: int,
        step: Callable[[str], None] = lambda name: None,
    ) -> None:
        super().__init__(storage, folder, step)
        self._log = log
        self._number, self._id, self._count = number, "", 0
        self._leader = Leader(job)
        self._since = 0  # the last leader change or its repetition is not before this offset
        self._begun, self._repeat_due, self._cleaned = _HEARSAY, False, 0
        self._allowed, self._others, self._cut = 0, 0, 0

    @property
    def leader(self) -> Leader:
        """The state of the job, as far as this process has read the log."""
        return self._leader

    @property
    def id(self) -> str:
        """The id of this leadership, unique over all processes; "" before it has begun."""
        return self._id

    @property
    def announced(self) -> int:
        """The last epoch that was announced before the leadership began; -1 if none was, or if it is not known."""
        return self._leader.announced

    def begin(self) -> str | None:
        """Begin the term; to be called once.

        Returns:
            The name of the record of the last turn that was decided; None if none was.

        Raises:
            Superseded: another process has begun already, under a larger number.
            Unavailable: the log cannot be written or read.
            StateError: a record is damaged.
        """
        newest = self._newest()
        while self._leader.leadership != self._id or not self._id:
            if self._id and self._number:
                raise self._superseded()
            number = self._number or self._leader.number
            self._id = f"{number}-{uuid.uuid4().hex[:8]}"
            self._tell("begin", {"number": number})
        self._begun = self._leader.offset or 0
        if newest and not self._leader.record:
            self._settle(newest, self._known[newest].turn, {})
        return self._folder + self._leader.record if self._leader.record else None

    def decide(self, turn: int, record: str) -> str:
        """Decide a turn, for the first time or differently than before. If this raises, it may be decided or not.

        Args:
            turn: its number.
            record: the decision as a JSON object.

        Returns:
            The name of its record.

        Raises:
            Superseded: another process has begun.
            Unavailable: the log cannot be written or read.
            OSError: the storage cannot be written.
        """
        if self._repeat_due:
            known = {"number": self._leader.number, "begun": self._begun}
            self._tell("repeat", {**known, "count": self._leader.count, "announced": self._leader.announced})
            self._check()
            self._repeat_due = False
        self._count += 1
        name, content = f"{self._folder}{turn:09d}-{self._id}-{self._count}.json", record.encode()
        is_long = len(content) > _LONGEST
        if is_long or not self._leader.record:
            self._put(turn, name, content, self._since)
        self._settle(name, turn, {} if is_long else {"content": record})
        return name

    def sign(self, announcement: Mapping[str, Any]) -> dict[str, Any]:
        """The announcement with this leadership's id."""
        return {**announcement, "job": self._leader.job, "leadership": self._id}

    def clean(self, turn: int, needed: int | None = None) -> None:
        """See :class:`_Records`; the log may be cut before what remains."""
        super().clean(turn, needed)
        if turn > self._cleaned:
            self._cleaned, self._repeat_due = turn, True
        since = min((record.since for record in self._known.values()), default=self._since)
        self._allowed = since if needed is None else min(since, needed)  # in one step: another thread may cut the log

    def keep(self) -> None:
        """See :class:`_Records`."""
        for name, record in self._known.items():
            if record.content is not None and not record.stored:
                self._storage.put_later(name, zlib.decompress(record.content))
                record.stored = True

    def trim(self) -> None:
        """See :class:`_Records`."""
        before = min(self._allowed, self._others)
        if before > self._cut:
            self._log.cut(before)
            self._cut = before

    def _settle(self, name: str, turn: int, content: Mapping[str, str]) -> None:
        self._count = max(self._count, 1)
        decision = {"count": self._count, "record": name.removeprefix(self._folder), "turn": turn, **content}
        self._tell("decide", {**decision, "keep": self._allowed})
        self._check()

    def _check(self) -> None:
        if self._leader.leadership != self._id:
            raise self._superseded()

    def _tell(self, step: str, message: Mapping[str, Any]) -> None:
        """Write a message, and read the log up to it."""
        announcement = {"job": self._leader.job, "leadership": self._id, **message}
        self._step(step)
        self._log.announce(announcement)
        self._step("hear")
        until, at = time.monotonic() + _PATIENCE, self._leader.offset
        gap = at is None
        while True:
            try:
                announcements, offset = self._log.announced(self._leader.offset, _MOST, _LOOK)
            except StateError:
                if time.monotonic() > until:
                    raise
                self._leader, gap = self._leader.after_gap(), True
                continue
            heard = [each for each in announcements if each is not None]
            self._hear(heard, offset)
            if any(announcement.items() <= each.items() for each in heard) or (gap and self._is_over):
                return
            if offset != at:
                until, at = time.monotonic() + _PATIENCE, offset
            elif time.monotonic() > until:
                raise Unavailable("a message written to the announcement log cannot be read back in time")

    @property
    def _is_over(self) -> bool:
        """Whether another leadership counts, so that this one's messages may have been cut off."""
        leader = self._leader
        return leader.leadership != self._id and (self._begun != _HEARSAY or leader.number > self._number)

    def _hear(self, messages: Iterable[Mapping[str, Any]], offset: int) -> None:
        """Process the next messages of the log, up to an offset."""
        start, job = self._leader.offset or 0, self._leader.job
        for message in messages:
            self._leader = self._leader.after(message)
            if message.get("job") != job:
                self._others = max(self._others, message.get("keep", 0))
            elif self._leader.counts(message):
                if "number" in message:
                    self._since = start
                if "record" in message:
                    self._note(message)
        self._leader = replace(self._leader, offset=offset)

    def _note(self, decision: Mapping[str, Any]) -> None:
        """Remember a decision that counts."""
        name, content = self._folder + decision["record"], decision.get("content")
        stored = name in self._known and self._known[name].stored
        if stored or content is not None:
            packed = None if content is None else zlib.compress(content.encode(), 1)
            self._known[name] = _Record(decision["turn"], self._since, packed, stored)

    def _superseded(self) -> Superseded:
        return Superseded(f"another {self._leader.job} has taken over")


class Alone(_Records):
    """A job that no other process can do, because a lock of this machine excludes others: all that it writes counts.

    Attributes:
        announced: larger than any epoch: whether an epoch is done is known elsewhere.

    Args:
        storage: of the records.
        folder: prefix of the names of its records.
        step: see :class:`Leadership`.
    """

    def __init__(self, storage: Storage, folder: str, step: Callable[[str], None] = lambda name: None) -> None:
        super().__init__(storage, folder, step)

    announced = 2**62

    def begin(self) -> str | None:
        """See :class:`Leadership`."""
        return self._newest() or None

    def decide(self, turn: int, record: str) -> str:
        """See :class:`Leadership`; another decision about a turn replaces the one before."""
        name = f"{self._folder}{turn:09d}.json"
        self._put(turn, name, record.encode())
        return name

    def sign(self, announcement: Mapping[str, Any]) -> dict[str, Any]:
        """See :class:`Leadership`."""
        return dict(announcement)
