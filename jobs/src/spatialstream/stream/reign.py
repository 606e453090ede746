"""Whose decisions count, where two processes may be at one job: the log of announcements says so, by its order.

A lease (:mod:`spatialstream.store.lease`) keeps two processes from doing one job, but no process can be sure that it
still has it: it may have been paused, and wake up in the middle of a turn. Such a *zombie* goes on as if nothing had
happened. This is why it does no harm.

Interface
    :class:`Reign` is one process's time at a job: :meth:`~Reign.begin`, then :meth:`~Reign.decide` for each turn,
    before anything follows from the decision, and :meth:`~Reign.sign` for each announcement. :class:`Standing` is what
    a part of the log says; whoever reads announcements asks it which of them count. :class:`Alone` is for jobs that
    nobody else can be at.

Protocol
    Both jobs write into the log of announcements, besides announcements:

    - A *beginning*, before anything else: the id of the reign, made of the lease's fencing number and a random part,
      and that number. A beginning counts unless one of a larger number comes before it.
    - A *decision* for each turn: the name of its record, which is in the storage already. No name is used twice.

    A decision or an announcement counts if its reign is that of the last beginning that counts before it in the log.
    Who has written one of the first two reads the log up to it before going on; who learns so that it does not count is
    *superseded*, and ends. Who begins takes the last decision that counts before its beginning as its own.

Invariant
    What counts is a function of the log up to there: all who read it agree, whenever they read it, and nothing that
    comes later changes it. Each turn has one decision at a time, made after the one of the turn before, and another one
    only from the same reign, or a later one that knows of it (to leave records out). All else that a job writes is a
    function of the decision that counts and of what was there before, under names of the turn and its take.

    So whatever a zombie is about to do when it wakes up:

    =====================================  ============================================================================
    it writes a record                     under a name that nobody else uses; no decision that counts ever names it
    it writes a decision, an announcement  it does not count, for the successor's beginning comes before it
    it sends blocks, its tasks still do    of a decision that counts: the successor sends the same ones, under the same
                                           keys; or the successor has left records out: then the take is another one
    it publishes rows                      likewise. The successor does the same round, so they are the same rows, under
                                           the same keys
    it writes state, or cleans             state likewise; it removes what the turn after has no use for, nor any later
    =====================================  ============================================================================

    None of this asks whether the lease is held. So a job may begin turns while ZooKeeper is away, and be started then,
    without a number: it takes the one that counts. Two that do so supersede each other, which costs time and no answer.

Oracle
    Any number of processes that pause anywhere, against one that never fails (``tests/unit/stream/test_reigns.py``).

Cost: a message each turn, and the time until it can be read, some 3 ms.

Where the broker has removed what came after the newest record, because nothing has been decided for a day, the newest
record of the largest number counts. A beginning that it has removed is known by what comes after it: the id of a reign
says its number.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from spatialstream.model.errors import Missing, RunError, StateError, Unavailable
from spatialstream.sources.contracts import Storage
from spatialstream.sources.disk import DAMAGED, undamaged

__all__ = ["ROUTER", "WORKER", "Alone", "Log", "Reign", "Standing", "Superseded"]

_PATIENCE = 120.0
"""Seconds within which what has been appended can be read."""

ROUTER, WORKER = "router", "worker"
"""The jobs."""

_LOOK = 0.1
_MOST = 1_000

_NAME = re.compile(r"(\d{9})(?:-(\d+)-[0-9a-f]{8}-(\d+))?\.json")


class Superseded(RunError):  # noqa: N818 (it says what is)
    """Another process has become the one to do this job; no repetition changes that."""


class Log(Protocol):
    """The part of a :class:`~spatialstream.sources.contracts.Channel` that is told here."""

    def announce(self, announcement: Mapping[str, Any]) -> None:
        """See :class:`~spatialstream.sources.contracts.Channel`."""

    def announced(self, after: int | None, most: int, patience: float) -> tuple[list[dict[str, Any] | None], int]:
        """See :class:`~spatialstream.sources.contracts.Channel`."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What the log says of a job up to some offset.

    Attributes:
        job: its name.
        number: the fencing number of the last reign.
        reign: its id; empty before there is one, as in streams that began before there were reigns.
        count: how many decisions it has made, those that got lost included.
        record: the name of the record that was decided last, in this reign or before.
        announced: the last epoch that has been announced; -1 if none has. That is what an epoch is done by.
        offset: up to which it says so; None: from the oldest message on that is kept.
    """

    job: str
    number: int = 0
    reign: str = ""
    count: int = 0
    record: str = ""
    announced: int = -1
    offset: int | None = None

    def counts(self, message: Mapping[str, Any]) -> bool:
        """Whether a decision or an announcement of this job counts that comes next."""
        return str(message.get("reign", "")) == self.reign

    def read(self, messages: Iterable[Mapping[str, Any]], offset: int) -> tuple[Standing, list[Mapping[str, Any]]]:
        """What the log says with some more messages, up to an offset, and the announcements among them that count."""
        standing, counting = self, []
        for message in messages:
            standing = standing.after(message)
            if "epoch" in message and standing.counts(message):
                counting.append(message)
        return replace(standing, offset=offset), counting

    def after(self, message: Mapping[str, Any]) -> Standing:
        """What the log says with one more message."""
        if message.get("job", ROUTER) != self.job:  # there were announcements before there were reigns
            return self
        if "number" in message:
            number, reign = int(message["number"]), str(message["reign"])
            return self if number < self.number else replace(self, number=number, reign=reign, count=0)
        if not self.counts(message):
            began = _number_of(message)
            if began <= self.number:
                return self
            # the broker keeps its beginning no more, which counted: what a reign writes comes after it
            return replace(self, number=began, reign=str(message["reign"]), count=0).after(message)
        if "epoch" in message:
            return replace(self, announced=max(self.announced, message["epoch"]))
        if message["count"] > self.count:  # one that took long may come after its repetition
            return replace(self, count=message["count"], record=message["record"])
        return self


def _number_of(message: Mapping[str, Any]) -> int:
    """The number of the reign that a message is of; 0: of none."""
    number, _, _ = str(message.get("reign", "")).partition("-")
    return int(number) if number.isdecimal() else 0


class _Records:
    """The records of a job's turns, in the storage."""

    def __init__(self, storage: Storage, folder: str, step: Callable[[str], None]) -> None:
        self._storage, self._folder, self._step = storage, folder, step
        self._known: dict[str, int] = {}

    def clean(self, turn: int) -> None:
        """Remove the records of the turns before one, which must have been decided."""
        old = [name for name, of_turn in self._known.items() if of_turn < turn]
        self._storage.discard(self._folder + name for name in old)
        for name in old:
            del self._known[name]

    def _put(self, turn: int, name: str, record: str) -> None:
        self._known[name] = turn
        self._step("record")
        self._storage.put(self._folder + name, record.encode())

    def _newest(self) -> str:
        """The newest record: that of the largest number, in it the latest turn, of that the last one; "" if none is."""
        found = [_NAME.fullmatch(name.removeprefix(self._folder)) for name in self._storage.list(self._folder)]
        known = {(int(at[2] or 0), int(at[1]), int(at[3] or 0)): at[0] for at in found if at is not None}
        self._known = {name: turn for (_, turn, _), name in known.items()}
        return known[max(known)] if known else ""


class Reign(_Records):
    """One process's time at a job.

    Args:
        log: the log of announcements, read by nobody else through this object.
        storage: where records are.
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
        self._standing = Standing(job)

    @property
    def heard(self) -> Standing:
        """What this process knows of the log; a record holds it, so that others need not begin at its beginning."""
        return self._standing

    @property
    def announced(self) -> int:
        """The last epoch that was announced before the reign began; -1 if none was, or nobody knows any more."""
        return self._standing.announced

    def begin(self) -> str | None:
        """Begin; to be called once.

        Returns:
            The name of the record of the last turn that was decided; None if none was.

        Raises:
            Superseded: somebody else has begun already, under a larger number.
            Unavailable: the log cannot be written or read.
            StateError: a record is damaged.
        """
        newest = self._resume()
        while self._standing.reign != self._id or not self._id:
            if self._id and self._number:
                raise self._superseded()
            number = self._number or self._standing.number
            self._id = f"{number}-{uuid.uuid4().hex[:8]}"
            self._tell("begin", {"number": number})
        if newest and not self._standing.record:
            self._settle(newest)
        return self._folder + self._standing.record if self._standing.record else None

    def decide(self, turn: int, record: str) -> str:
        """Decide a turn, for the first time or another way than before. If this raises, it may be decided or not.

        Args:
            turn: its number.
            record: the decision as a JSON object, in which ``heard`` is :attr:`heard`.

        Returns:
            The name of its record.

        Raises:
            Superseded: somebody else has begun.
            Unavailable: the log cannot be written or read.
            OSError: the storage cannot be written.
        """
        self._count += 1
        name = f"{turn:09d}-{self._id}-{self._count}.json"
        self._put(turn, name, record)
        self._settle(name)
        return self._folder + name

    def sign(self, announcement: Mapping[str, Any]) -> dict[str, Any]:
        """An announcement as one of this reign."""
        return {**announcement, "job": self._standing.job, "reign": self._id}

    def _settle(self, name: str) -> None:
        self._count = max(self._count, 1)
        self._tell("decide", {"count": self._count, "record": name})
        if self._standing.reign != self._id:
            raise self._superseded()

    def _tell(self, step: str, message: Mapping[str, Any]) -> None:
        """Write a message, and read the log up to it."""
        told = {"job": self._standing.job, "reign": self._id, **message}
        self._step(step)
        self._log.announce(told)
        self._step("hear")
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                given, offset = self._log.announced(self._standing.offset, _MOST, _LOOK)
            except StateError:
                if self._standing.offset is None:
                    raise
                self._standing = replace(self._standing, record="", offset=None)
                continue
            heard = [each for each in given if each is not None]
            self._standing, _ = self._standing.read(heard, offset)
            if any(told.items() <= each.items() for each in heard):
                return
            if time.monotonic() > until:
                raise Unavailable("the log of announcements does not give what was written into it")

    def _resume(self) -> str:
        """Begin to read where the author of the newest record was, whoever it was: what it had read was so."""
        while newest := self._newest():
            try:
                content = self._storage.get(self._folder + newest).to_pybytes()
            except Missing:  # somebody is still at it
                continue
            with undamaged(f"{self._storage.place}/{self._folder}{newest}", DAMAGED):
                heard = json.loads(content).get("heard")
                self._standing = self._standing if heard is None else Standing(**heard)
            break
        return newest

    def _superseded(self) -> Superseded:
        return Superseded(f"another {self._standing.job} has taken over")


class Alone(_Records):
    """A job that nobody else can be at, for a lock of this machine keeps them off: what it writes counts.

    Attributes:
        heard: None: there is nobody to hear.
        announced: of an epoch it is known elsewhere whether it is done.

    Args:
        storage: where records are.
        folder: what the names of its records begin with.
        step: see :class:`Reign`.
    """

    def __init__(self, storage: Storage, folder: str, step: Callable[[str], None] = lambda name: None) -> None:
        super().__init__(storage, folder, step)

    heard = None
    announced = 2**62

    def begin(self) -> str | None:
        """See :class:`Reign`."""
        newest = self._newest()
        return self._folder + newest if newest else None

    def decide(self, turn: int, record: str) -> str:
        """See :class:`Reign`; another decision about a turn takes the place of the one before."""
        name = f"{turn:09d}.json"
        self._put(turn, name, record)
        return self._folder + name

    def sign(self, announcement: Mapping[str, Any]) -> dict[str, Any]:
        """See :class:`Reign`."""
        return dict(announcement)
