"""Whose decisions count, where two processes may be at one job: the log of announcements says so, by its order.

A lease (:mod:`spatialstream.store.lease`) keeps two processes from doing one job, but no process can be sure that it
still has it: it may have been paused, and wake up in the middle of a turn. Such a *zombie* goes on as if nothing had
happened. This is why it does no harm.

Interface
    :class:`Leadership` is one process's time at a job: :meth:`~Leadership.begin`, then :meth:`~Leadership.decide` for
    each turn, before anything follows from the decision, and :meth:`~Leadership.sign` for each announcement.
    :class:`Leader` is what a part of the log says; whoever reads announcements asks it which of them count.
    :class:`Alone` is for jobs that nobody else can be at.

Protocol
    Both jobs write into the log of announcements, besides announcements:

    - A *beginning*, before anything else: the id of the leadership, made of the lease's fencing number and a random
      part, and that number. A beginning counts unless one of a larger number comes before it.
    - A *decision* for each turn: the name of its record, and the record itself. No name is used twice.

    A decision or an announcement counts if its leadership is that of the last beginning that counts before it in the
    log. Who has written one of the first two reads the log up to it before going on; who learns so that it does not
    count is *superseded*, and ends. Who begins takes the last decision that counts before its beginning as its own.

Records
    The log is where records are: so they are kept within milliseconds wherever state is, and cost an object store
    nothing. It is kept for good, and *cut* where nobody needs it any more: before the oldest record that a way back to
    the last checkpoint needs, of either job, and before what the worker has not heard. Each decision tells up to where
    its job allows that; the worker cuts.

    So that a log without its beginning still says who leads, a leadership *restates* its beginning after each
    checkpoint, with what it knows, and a record is needed with the re-announcement under which it was decided. A
    re-announcement does not count where another leadership has begun since: it bears the offset at which its author
    first heard itself leadership, and of two leads of one number the later one began to hear itself later.

    In the storage are three kinds of records: the first of a stream; those that are too long for a message; and all
    that are needed, once nothing has happened for a while, for brokers that keep no log for longer than some days.

Invariant
    What counts is a function of the log up to there: all who read it agree, whenever they read it, and nothing that
    comes later changes it. Each turn has one decision at a time, made after the one of the turn before, and another one
    only from the same leadership, or a later one that knows of it (to leave records out). All else that a job writes is
    a function of the decision that counts and of what was there before, under names of the turn and its revision.

    So whatever a zombie is about to do when it wakes up:

    =====================================  ============================================================================
    it writes a record                     under a name that nobody else uses; no decision that counts ever names it
    it writes a decision, an announcement  it does not count, for the successor's beginning comes before it
    it restates its beginning              likewise
    it has the log cut                     where it was allowed when it reigned, and what is allowed only grows
    it sends blocks, its tasks still do    of a decision that counts: the successor sends the same ones, under the same
                                           keys; or the successor has left records out: then the revision is another one
    it publishes rows                      likewise. The successor does the same round, so they are the same rows, under
                                           the same keys
    it writes state, or cleans             state likewise; it removes what the turn after has no use for, nor any later
    =====================================  ============================================================================

    None of this asks whether the lease is held. So a job may begin turns while ZooKeeper is away, and be started then,
    without a number: it takes the one that counts. Two that do so supersede each other, which costs time and no answer.

Oracle
    Any number of processes that pause anywhere, against one that never fails
    (``tests/unit/stream/test_leadership.py``).

Cost: a message each turn, and the time until it can be read, some 3 ms.

Where the broker has removed what came after the newest record of the storage, that one counts, if it is the last; a
log that has lost decisions is noticed by what is known to be done. A beginning that it has removed is known by what
comes after it: the id of a leadership says its number.
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
"""Seconds within which what has been appended can be read."""

ROUTER, WORKER = "router", "worker"
"""The jobs."""

_LOOK = 0.1
_MOST = 1_000

_LONGEST = 256 << 10
"""Bytes of a record that is sent with its decision; brokers take messages of 1 MB whatever they have been told."""

_ITSELF = 2**62
"""When a leadership is known to have begun whose beginning has been read: later than any re-announcement says."""

_HEARSAY = -1
"""Likewise of one of which nothing but its messages has been read."""

_NAME = re.compile(r"(\d{9})(?:-(\d+)-[0-9a-f]{8}-(\d+))?\.json")


class Superseded(RunError):  # noqa: N818 (it says what is)
    """Another process has become the one to do this job; no repetition changes that."""


class Log(Protocol):
    """The part of a :class:`~spatialstream.connectors.contracts.Channel` that is told here."""

    def announce(self, announcement: Mapping[str, Any]) -> None:
        """See :class:`~spatialstream.connectors.contracts.Channel`."""

    def announced(self, after: int | None, most: int, patience: float) -> tuple[list[dict[str, Any] | None], int]:
        """See :class:`~spatialstream.connectors.contracts.Channel`."""

    def cut(self, before: int) -> None:
        """See :class:`~spatialstream.connectors.contracts.Channel`."""


@dataclass(frozen=True, slots=True)
class Leader:
    """What the log says of a job up to some offset.

    Attributes:
        job: its name.
        number: the fencing number of the last leadership.
        leadership: its id; empty before there is one.
        count: how many decisions it has made, those that got lost included.
        record: the name of the record that was decided last, in this leadership or before.
        announced: the last epoch that has been announced; -1 if none has. That is what an epoch is done by.
        offset: up to which it says so; None: from the oldest message on that is kept.
        begun: the offset at which the leadership has first heard itself, if a re-announcement has said it;
            :data:`_ITSELF` if its beginning has been read, :data:`_HEARSAY` if neither has.
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
        """Whether a decision or an announcement of this job counts that comes next."""
        return str(message.get("leadership", "")) == self.leadership

    def read(self, messages: Iterable[Mapping[str, Any]], offset: int) -> tuple[Leader, list[Mapping[str, Any]]]:
        """What the log says with some more messages, up to an offset, and the announcements among them that count."""
        leader, counting = self, []
        for message in messages:
            leader = leader.after(message)
            if "epoch" in message and leader.counts(message):
                counting.append(message)
        return replace(leader, offset=offset), counting

    def after(self, message: Mapping[str, Any]) -> Leader:
        """What the log says with one more message."""
        if message.get("job") != self.job:
            return self
        if "begun" in message:
            return self._restated(message)
        if "number" in message:
            number, leadership = int(message["number"]), str(message["leadership"])
            if number < self.number:
                return self
            # who has not been heard to begin may have announced what does not count; to announce again does no harm
            announced = -1 if self.begun == _HEARSAY else self.announced
            return replace(self, number=number, leadership=leadership, count=0, begun=_ITSELF, announced=announced)
        if not self.counts(message):
            began = _number_of(message)
            if began <= self.number:
                return self
            # the broker keeps its beginning no more, which counted: what a leadership writes comes after it
            known = replace(self, number=began, leadership=str(message["leadership"]), count=0, begun=_HEARSAY)
            return known.after(message)
        if "epoch" in message:
            return replace(self, announced=max(self.announced, message["epoch"]))
        if message["count"] > self.count:  # one that took long may come after its repetition
            return replace(self, count=message["count"], record=message["record"])
        return self

    def after_gap(self) -> Leader:
        """What it says where some messages cannot be read any more."""
        return replace(self, record="", offset=None, begun=_HEARSAY)

    def _restated(self, message: Mapping[str, Any]) -> Leader:
        """What the log says after a re-announcement; of what has been cut off before it that knows more."""
        number, begun = int(message["number"]), int(message["begun"])
        if (number, begun) <= (self.number, self.begun):
            return self
        record = self.record if self.counts(message) else ""
        count, announced = int(message["count"]), int(message["announced"])
        known = replace(self, number=number, begun=begun, count=count, announced=announced)
        return replace(known, leadership=str(message["leadership"]), record=record)


def _number_of(message: Mapping[str, Any]) -> int:
    """The number of the leadership that a message is of; 0: of none."""
    number, _, _ = str(message.get("leadership", "")).partition("-")
    return int(number) if number.isdecimal() else 0


@dataclass(slots=True)
class _Record:
    """What is known of a record.

    Attributes:
        turn: that it is of.
        since: the log may not be cut after this offset for as long as the record is needed.
        content: it, compressed; None if it is in the storage alone.
        stored: whether it is in the storage.
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
        """A record, by the name that :meth:`begin` or :meth:`decide` gave.

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
                f"{self._folder}done in {self._storage.place} says that turn {done} is done, but of the decisions the "
                f"last one that is there is of turn {decided}: messages of the stream's epochs topic have been lost. "
                f"Remove the stream with {program()} remove --checkpoint, and it begins anew"
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
        """Have all records that are needed outlast the log; to be called when nothing happens."""

    def trim(self) -> None:
        """Have the log cut before all that either job needs.

        Raises:
            Unavailable: it cannot be cut now.
        """

    def _put(self, turn: int, name: str, record: bytes, since: int = _ITSELF) -> None:
        self._known[name] = _Record(turn, since, stored=True)
        self._step("record")
        self._storage.put(name, record)

    def _newest(self) -> str:
        """The newest record of the storage: of the largest number, in it the latest turn, of that the last one.

        Returns:
            Its name; "" if there is none.
        """
        names = self._storage.list(self._folder)
        found = [(name, _NAME.fullmatch(name.removeprefix(self._folder))) for name in names]
        known = {(int(at[2] or 0), int(at[1]), int(at[3] or 0)): name for name, at in found if at is not None}
        self._known = {name: _Record(turn, _ITSELF, stored=True) for (_, turn, _), name in known.items()}
        return known[max(known)] if known else ""


class Leadership(_Records):
    """One process's time at a job.

    Args:
        log: the log of announcements, read by nobody else through this object.
        storage: of the stream's state.
        job: its name.
        folder: what the names of its records begin with, such as ``epochs/``.
        number: the lease's fencing number; 0 if it could not be had.
        step: is called before each step, with its name; tests stop the process there.
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
        self._since = 0  # the last (re)statement of who leads is not before this offset
        self._begun, self._restate, self._cleaned = _HEARSAY, False, 0
        self._allowed, self._others, self._cut = 0, 0, 0

    @property
    def leader(self) -> Leader:
        """What this process knows of the log."""
        return self._leader

    @property
    def announced(self) -> int:
        """The last epoch that was announced before the leadership began; -1 if none was, or nobody knows any more."""
        return self._leader.announced

    def begin(self) -> str | None:
        """Begin; to be called once.

        Returns:
            The name of the record of the last turn that was decided; None if none was.

        Raises:
            Superseded: somebody else has begun already, under a larger number.
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
        """Decide a turn, for the first time or another way than before. If this raises, it may be decided or not.

        Args:
            turn: its number.
            record: the decision as a JSON object.

        Returns:
            The name of its record.

        Raises:
            Superseded: somebody else has begun.
            Unavailable: the log cannot be written or read.
            OSError: the storage cannot be written.
        """
        if self._restate:
            known = {"number": self._leader.number, "begun": self._begun}
            self._tell("restate", {**known, "count": self._leader.count, "announced": self._leader.announced})
            self._check()
            self._restate = False
        self._count += 1
        name, content = f"{self._folder}{turn:09d}-{self._id}-{self._count}.json", record.encode()
        is_long = len(content) > _LONGEST
        if is_long or not self._leader.record:
            self._put(turn, name, content, self._since)
        self._settle(name, turn, {} if is_long else {"content": record})
        return name

    def sign(self, announcement: Mapping[str, Any]) -> dict[str, Any]:
        """An announcement as one of this leadership."""
        return {**announcement, "job": self._leader.job, "leadership": self._id}

    def clean(self, turn: int, needed: int | None = None) -> None:
        """See :class:`_Records`; the log may be cut before what is left."""
        super().clean(turn, needed)
        if turn > self._cleaned:
            self._cleaned, self._restate = turn, True
        since = min((record.since for record in self._known.values()), default=self._since)
        self._allowed = since if needed is None else min(since, needed)  # at once: another thread may have the log cut

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
        told = {"job": self._leader.job, "leadership": self._id, **message}
        self._step(step)
        self._log.announce(told)
        self._step("hear")
        until, at = time.monotonic() + _PATIENCE, self._leader.offset
        gap = at is None
        while True:
            try:
                given, offset = self._log.announced(self._leader.offset, _MOST, _LOOK)
            except StateError:
                if time.monotonic() > until:
                    raise
                self._leader, gap = self._leader.after_gap(), True
                continue
            heard = [each for each in given if each is not None]
            self._hear(heard, offset)
            if any(told.items() <= each.items() for each in heard) or (gap and self._is_over):
                return
            if offset != at:
                until, at = time.monotonic() + _PATIENCE, offset
            elif time.monotonic() > until:
                raise Unavailable("the log of announcements does not give what was written into it")

    @property
    def _is_over(self) -> bool:
        """Whether another leadership counts, so that what this one has written may have been cut off."""
        leader = self._leader
        return leader.leadership != self._id and (self._begun != _HEARSAY or leader.number > self._number)

    def _hear(self, messages: Iterable[Mapping[str, Any]], offset: int) -> None:
        """Take in what the log says next, up to an offset."""
        start, job = self._leader.offset or 0, self._leader.job
        for each in messages:
            self._leader = self._leader.after(each)
            if each.get("job") != job:
                self._others = max(self._others, each.get("keep", 0))
            elif self._leader.counts(each):
                if "number" in each:
                    self._since = start
                if "record" in each:
                    self._note(each)
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
    """A job that nobody else can be at, for a lock of this machine keeps them off: what it writes counts.

    Attributes:
        announced: of an epoch it is known elsewhere whether it is done.

    Args:
        storage: where records are.
        folder: what the names of its records begin with.
        step: see :class:`Leadership`.
    """

    def __init__(self, storage: Storage, folder: str, step: Callable[[str], None] = lambda name: None) -> None:
        super().__init__(storage, folder, step)

    announced = 2**62

    def begin(self) -> str | None:
        """See :class:`Leadership`."""
        return self._newest() or None

    def decide(self, turn: int, record: str) -> str:
        """See :class:`Leadership`; another decision about a turn takes the place of the one before."""
        name = f"{self._folder}{turn:09d}.json"
        self._put(turn, name, record.encode())
        return name

    def sign(self, announcement: Mapping[str, Any]) -> dict[str, Any]:
        """See :class:`Leadership`."""
        return dict(announcement)
