"""The worker of a stream: announced epochs become rounds.

It decides, and does nothing else; what is done is the driver's (:mod:`~spatialstream.stream.driver`). A *round* is what
all slots do in one go: the epochs that have been announced since the round before. All slots do the same epochs, so a
round is a consistent cut, and a snapshot query is complete within it; and a worker that has fallen behind does many
epochs for the price of one. A round's record holds its epochs and the offsets of its blocks, so whoever does it again
does the same. What the slots have prepared for a new version is confirmed to the routing store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spatialstream.model.errors import Conflict, StateError, Unavailable
from spatialstream.model.jsonable import to_json
from spatialstream.sources.contracts import Storage
from spatialstream.stages.leaving import Left
from spatialstream.stages.moves import drop_transfers
from spatialstream.stages.state import Progress, get_value
from spatialstream.stages.turns import ABORT, ACTIVATE, LOAD, PREPARE, Past, Round
from spatialstream.stages.two_phase import second_name
from spatialstream.store.base import RoutingStore
from spatialstream.store.state import Stage
from spatialstream.stream.reign import ROUTER, Alone, Reign, Standing
from spatialstream.stream.settings import StreamSettings

__all__ = ["ROUNDS", "RoundRecord", "Worker", "rounds_done"]

ROUNDS = "rounds/"
"""What the names of rounds' files begin with."""

_CENSUS = 64
"""Every so-many-th round the slots count their standing queries by leaf."""


_FIRST = Standing(ROUTER)


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """All decisions about a round.

    Attributes:
        round: what the slots are told.
        announced: the offset of the first announcement that no round has taken yet.
        starts, ends: the offsets of its blocks in each slot's log, [start, end).
        births: for each epoch, when it was decided, ms of the day's clock.
        pending: the version that is being prepared after the round.
        stage: what the slots have done for it: ``exported`` or ``loaded``.
        refused: records that the router has rejected.
        records: objects and queries of the round, at most.
        router: by which it is told which announcements count, up to there.
        heard: what the worker knew of the log of announcements, see :mod:`~spatialstream.stream.reign`.
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
    router: Standing = _FIRST
    heard: Standing | None = None

    @classmethod
    def load(cls, storage: Storage, name: str) -> RoundRecord:
        """The record in a file.

        Raises:
            StateError: it is damaged.
        """
        return get_value(storage, name, cls)


def rounds_done(storage: Storage) -> Progress:
    """The last round that is known to be done."""
    return Progress(storage, f"{ROUNDS}done")


class Worker:
    """Decides rounds; one instance a process.

    Args:
        settings: of the stream.
        storage: of the stream's state.
        store: the routing store.
        step: is called before each step, with its name; tests stop the worker there.
        reign: by which its decisions count, see :mod:`~spatialstream.stream.reign`; None: nobody else decides.

    Attributes:
        last: the record of the last round, done or not.
        last_done: the last round that is known to be done; -1 if none is.
    """

    def __init__(
        self,
        settings: StreamSettings,
        storage: Storage,
        store: RoutingStore,
        step: Callable[[str], None] = lambda name: None,
        reign: Reign | Alone | None = None,
    ) -> None:
        self._settings = settings
        self._storage = storage
        self._store = store
        self._step = step
        self._reign = Alone(storage, ROUNDS, step) if reign is None else reign
        known = self._reign.begin()
        self.last = None if known is None else RoundRecord.load(storage, known)
        self._progress = rounds_done(storage)
        self.last_done = self._progress.load()

    @property
    def unfinished(self) -> RoundRecord | None:
        """The last round, if it has to be done again, because nobody knows whether it was done."""
        return None if self.last is None or self.last.round.number <= self.last_done else self.last

    @property
    def announced(self) -> int | None:
        """The offset of the first announcement that no round has taken; None before the first round."""
        return None if self.last is None else self.last.announced

    @property
    def router(self) -> Standing:
        """By which it is told which announcements count, up to there."""
        return _FIRST if self.last is None else self.last.router

    def decide(
        self,
        announcements: Sequence[Mapping[str, Any]],
        announced: int,
        router: Standing,
        begins: Callable[[], Sequence[int]],
    ) -> RoundRecord | None:
        """Decide the next round, after the last one, which is done; None if nothing new was announced.

        With its record written, a round is fixed.

        Args:
            announcements: some that count, in any order.
            announced: the offset of the first announcement after them.
            router: what the log says up to there.
            begins: says at which offset the first round begins to read each slot's blocks.

        Raises:
            StateError: an announcement is missing.
        """
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
        settings, version = self._settings, newest["adoption"]["active"]
        turn = Round(
            number=number,
            epochs=tuple(each["epoch"] for each in news),
            takes=tuple(each.get("take", 0) for each in news),
            upto=newest["upto"],
            version=version,
            controls=controls,
            past=_past(news),
            census=number % _CENSUS == 0 or before is None or before.round.version != version,
            two_phase=settings.two_phase,
            measured=settings.measured,
            before=0 if before is None else before.round.take,
        )
        pending, stage = (None, None) if before is None else (before.pending, before.stage)
        if before is not None and turn.version != before.round.version:
            pending, stage = None, None
        for control, version in controls:
            if control in (ABORT, ACTIVATE):
                pending, stage = None, None
            else:
                stage = "exported" if control == PREPARE else "loaded" if control == LOAD else stage
                pending = version
        record = RoundRecord(
            round=turn,
            announced=announced,
            starts=tuple(begins()) if before is None else before.ends,
            ends=tuple(newest["ends"]),
            births=tuple(each["born"] for each in news),
            pending=pending,
            stage=stage,
            refused=sum(each["refused"] for each in news),
            records=sum(each["records"] for each in news),
            router=router,
        )
        self._save(record)
        return record

    def _save(self, record: RoundRecord) -> None:
        self._reign.decide(record.round.number, to_json(replace(record, heard=self._reign.heard)))
        self.last = record

    def leave_out(self, found: Sequence[Left]) -> None:
        """Decide to leave records out of the round that is not done."""
        record = self.unfinished
        assert record is not None
        self._step("leave")
        self._save(replace(record, round=replace(record.round, left=(*record.round.left, *found))))

    def done(self, record: RoundRecord) -> None:
        """A round is done, and what no repetition can ask for any more is deleted."""
        number = record.round.number
        self._step("clean")
        self._reign.clean(number - 1)
        if number >= 2:
            self._storage.delete([second_name(number - 2)])
        drop_transfers(self._storage, record.round.version)
        self._step("done")
        self._progress.save(number)
        self.last_done = number

    def confirm(self) -> bool:
        """Tell the routing store what the slots have done for a pending version; whether there is nothing left to tell.

        Safe to call at any time and from another thread: only rounds that are done count, and what the store knows
        is not told again.
        """
        record, view = self.last, self._store.latest()
        if record is None or record.pending is None or record.stage is None or record.round.number > self.last_done:
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


def _past(announcements: Sequence[Mapping[str, Any]]) -> tuple[Past, ...]:
    """The earlier versions that matter to any of the epochs: (version, first, last timestamp of its objects)."""
    ranges: dict[int, tuple[int, int]] = {}
    for announcement in announcements:
        for version, first, last in announcement["past"]:
            low, high = ranges.get(version, (first, last))
            ranges[version] = min(low, first), max(high, last)
    return tuple((version, first, last) for version, (first, last) in sorted(ranges.items()))
