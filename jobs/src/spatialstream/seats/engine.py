"""The engine of seats: has them do the tasks of turns, and decides which of them does what.

The driver's threads wait for calls of seats, and see nothing of the stream's records but the lines that tasks give. A
seat that goes fails the turn; its items get another seat with the next one, and others stay where they are until the
stream is settled. What a try that was given up has still under way is of an older generation: seats let go of it.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from itertools import count
from types import TracebackType
from typing import Any, NoReturn, Protocol, Self, TypeVar

from spatialstream.model.errors import RunError
from spatialstream.seats.desk import Desk, Seated
from spatialstream.seats.identity import is_loopback, new_identity
from spatialstream.seats.load import Load
from spatialstream.seats.newest import Published
from spatialstream.seats.placement import placed
from spatialstream.seats.seat import Invitation
from spatialstream.seats.tally import Counts
from spatialstream.seats.wire import Command, Gathering, SeatLost, act, endpoint, options
from spatialstream.sources.calls import called
from spatialstream.sources.requests import Requests, requests
from spatialstream.stages.tasks import TASKS, IdleTasks, World
from spatialstream.stream.engine import Merge, Task, Work

__all__ = ["SeatEngine", "Seating"]

T = TypeVar("T")

_LOOK_SECONDS = 0.2
_MORE_SECONDS = 2.0
"""Seconds without a new seat after which the first turn waits for no more of them."""
_TELL_SECONDS = 30.0
_FORGET_SECONDS = 2.0
_STALL_SECONDS = 600.0
"""Seconds without a piece of work done after which a turn is given up: no piece takes nearly as long."""
_WORKING_SECONDS = 60.0
"""Seconds after which it is told how far a turn is, and between two times that it is."""
_EVEN_SECONDS = 10.0
"""Seconds between two looks at whether work is even, and seats have let go of what others have."""


class Seating(Protocol):
    """Starts the processes of seats, and others in place of those that have gone."""

    @property
    def host(self) -> str:
        """The address at which seats reach this process."""

    @property
    def count(self) -> int:
        """How many seats there are to be."""

    def begin(self, invitation: Invitation) -> None:
        """Have :func:`~spatialstream.seats.seat.sit` called in so many processes, with numbers from 0."""

    def check(self) -> None:
        """Make sure that there are processes, or will be again.

        Raises:
            RunError: there will not.
        """

    def end(self) -> None:
        """The seats have been told to end; what is left of them is of no use."""


class SeatEngine:
    """See :class:`~spatialstream.stream.engine.Engine`; as a context manager it has seats within, and none after.

    Args:
        world: what tasks have to do with.
        seating: starts the seats.
        report: is told what a person should know.
        silence: seconds after which a seat or driver that says nothing is lost.
        tasks: the classes of tasks, by name.
        stall: seconds after which a turn is given up of which no seat has done another piece. It may take as long as it
            likes otherwise.
    """

    def __init__(
        self,
        world: World,
        seating: Seating,
        report: Callable[[str], None] = lambda text: None,
        silence: float = 10.0,
        tasks: Mapping[str, type] = TASKS,
        stall: float = _STALL_SECONDS,
    ) -> None:
        self._world, self._seating, self._report, self._stall = world, seating, report, stall
        self._host = seating.host  # turns need it, and to ask a cluster manager takes longer than some of them
        self._secret, self._asking, self._silence = secrets.token_hex(32), secrets.token_hex(32), silence
        self._identity = None if self.is_near else new_identity()
        self._desk = Desk(self._host, self._secret, silence, self._identity, self._asking, self._directory)
        self._published = Published()
        self._tasks = tasks
        self._generation, self._lock = 1, threading.Lock()
        self._gatherings = count(1)
        self._placement: dict[int, str] = {}
        self._items: set[int] = set()
        self._moves = 0
        self._had: dict[Any, str] = {}
        self._to_forget: dict[str, set[int]] = {}
        self._all_came = False
        self._load = Load()
        self._even_at, self._is_uneven = 0.0, False
        self._placed_for: tuple[int, frozenset[str]] = 0, frozenset()
        self._retired: frozenset[str] = frozenset()
        self._errands: set[str] = set()
        self._accuser = ""

    def __enter__(self) -> Self:
        """Begin to have seats."""
        given = self._secret, self._world, self._asking, self._silence, self._identity, self._tasks
        self._seating.begin(Invitation(self._address, *given))
        return self

    @property
    def is_near(self) -> bool:
        """See :class:`~spatialstream.stream.engine.Engine`."""
        return is_loopback(self._host)

    @property
    def _address(self) -> str:
        """Of the driver's endpoint."""
        return endpoint(self._host, self._desk.port)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let all seats end."""
        self.cancel()
        self._desk.close()
        wait([self._asked(seat, "end", b"null", 2.0) for seat in self._desk.seats()], timeout=2.0)
        self._seating.end()
        threading.Thread(target=self._desk.shutdown, daemon=True).start()

    # ---------------------------------------------------------------------------------------------------- the contract

    @property
    def world(self) -> World:
        """See :class:`~spatialstream.stream.engine.Engine`."""
        return self._world

    @property
    def width(self) -> int:
        """See :class:`~spatialstream.stream.engine.Engine`."""
        return self._seating.count

    @property
    def moves(self) -> int:
        """See :class:`~spatialstream.stream.engine.Engine`."""
        return self._moves

    def map(self, do: Task[T], items: Sequence[T], *, anywhere: bool = False) -> list[str]:
        """See :class:`~spatialstream.stream.engine.Engine`."""
        if not items:
            return []
        generation = self._generation
        seats = self._seats(generation)
        if anywhere:
            found = self._wherever(do, items, seats, generation)
        else:
            numbers = {_number(item): item for item in items}
            groups = self._by_seat(list(numbers), seats)
            over = Command.of(do, (), generation).over([numbers[each] for each in mine] for _, mine in groups)
            calls = {
                self._asked(seat, "map", body): (seat, mine) for (seat, mine), body in zip(groups, over, strict=True)
            }
            self._done({call: seat for call, (seat, _) in calls.items()}, generation)
            answered = [(mine, call.result()) for call, (_, mine) in calls.items()]
            told = {number: lines for mine, of_mine in answered for number, lines in zip(mine, of_mine, strict=True)}
            found = {item: told[number] for number, item in numbers.items()}
        return [line for item in items for line in found[item]]

    def gather(self, do: Work[T], items: Sequence[T], merge: Merge, parts: Sequence[int] = (0,)) -> list[str]:
        """See :class:`~spatialstream.stream.engine.Engine`."""
        generation, gathering = self._generation, next(self._gatherings)
        seats = self._seats(generation)
        numbers = {_number(item): item for item in items}
        mergers = {~item: seat for seat, mine in self._by_seat([~part for part in parts], seats) for item in mine}
        groups = self._by_seat(list(numbers), seats)
        working, merging = (Command.of(each, (), generation, gathering) for each in (do, merge))
        sources = [(seat.address, tuple(numbers[each] for each in mine)) for seat, mine in groups]
        bodies = Gathering(merging, working, sources, [seat.address for seat in seats]).of_parts(parts)
        calls = {part: self._asked(mergers[part], "gather", body) for part, body in zip(parts, bodies, strict=True)}
        self._done({call: mergers[part] for part, call in calls.items()}, generation, [seat for seat, _ in groups])
        self._accuser = ""
        return [line for call in calls.values() for line in call.result()]

    @property
    def unsettled(self) -> bool:
        """See :class:`~spatialstream.stream.engine.Engine`; what would only be more even waits."""
        return self._placed_for != (self._desk.changes, self._retired)

    @property
    def would_move(self) -> bool:
        """See :class:`~spatialstream.stream.engine.Engine`."""
        if time.monotonic() >= self._even_at:
            seats = self._desk.seats()
            self._load.look(seats)
            self._even_at = time.monotonic() + _EVEN_SECONDS
            self._is_uneven = bool(seats) and self._placed(seats, even=True) != self._placement
        return self.unsettled or self._is_uneven

    def settled(self) -> None:
        """See :class:`~spatialstream.stream.engine.Engine`."""
        there, seats, before = (self._desk.changes, self._retired), self._desk.seats(), self._placement
        if not seats or not self.would_move:
            return
        self._placed_for, self._is_uneven = there, False
        self._place(seats, even=True)
        self._have_forgotten(before, seats)

    def _have_forgotten(self, before: Mapping[int, str], seats: Sequence[Seated]) -> None:
        """Have seats let go of what other ones have now; one that does not is told again.

        Until it has it is not trusted to know the newest round, for that may be done without it. If it gets back what
        it has not let go of, it is trusted when there is a round with it: what it knows of it is of the time before.
        """
        for item, name in before.items():
            if self._placement.get(item) != name:
                self._to_forget.setdefault(name, set()).add(item)
        self._to_forget = {seat.name: self._to_forget.get(seat.name, set()) for seat in seats}
        self._doubt()
        calls = dict[Future[Any], tuple[str, list[int]]]()
        for seat in seats:
            gone = sorted(item for item in self._to_forget[seat.name] if self._placement.get(item) != seat.name)
            if gone:
                body = Command.of(IdleTasks().forget, gone, self._generation).to_json()
                calls[self._asked(seat, "map", body, _FORGET_SECONDS)] = seat.name, gone
        for call in wait(calls, timeout=_FORGET_SECONDS).done:
            if call.exception() is None:
                name, gone = calls[call]
                self._to_forget[name].difference_update(gone)
        self._doubt()

    def _doubt(self) -> None:
        self._desk.doubt(name for name, items in self._to_forget.items() if items)

    def check(self) -> None:
        """See :class:`~spatialstream.stream.engine.Engine`."""
        self._seating.check()

    def cancel(self) -> None:
        """See :class:`~spatialstream.stream.engine.Engine`."""
        with self._lock:
            self._generation += 1

    # ------------------------------------------------------------------------------------------------- what is observed

    def observed(self) -> list[Seated]:
        """The seats that there are."""
        return self._desk.seats()

    def slots(self) -> dict[int, str]:
        """The name of the seat that each slot, or partition, has."""
        return {item: name for item, name in self._placement.items() if item >= 0}

    def publish(self, known: Mapping[str, Any]) -> None:
        """Tell those who ask what the stream has got to; JSON-able.

        It is told when no seat that has gone can take another round for the newest any more. Every seat has a view of
        it, of each of its items: those too that it got back.
        """
        for name, items in self._to_forget.items():
            items -= {item for item in items if self._placement.get(item) == name}
        self._doubt()
        self._published.tell(dict(known), self._desk.unsure_until)

    @property
    def door(self) -> dict[str, Any]:
        """What one has to know to ask: where the driver is, the secret of those who may ask, and its certificate."""
        root = None if self._identity is None else self._identity[0].decode()
        return {"address": self._address, "secret": self._asking, "certificate": root}

    def _directory(self) -> Any:
        published = self._published.now
        if published is None:
            return None
        addresses = {seat.name: seat.address for seat in self._desk.seats()}
        placed = {item: addresses.get(name) for item, name in self._placement.items()}
        seats = {item: address for item, address in placed.items() if item >= 0}
        return {**published, "seats": seats, "parts": {~item: placed[item] for item in placed if item < 0}}

    def held(self) -> dict[int, int]:
        """How many slots, or partitions, each seat has, by its number."""
        names = list(self.slots().values())
        return {seat.number: names.count(seat.name) for seat in self._desk.seats()}

    def memory(self) -> dict[int, int]:
        """Bytes of memory that each seat has, by its number."""
        return {seat.number: seat.memory for seat in self._desk.seats()}

    def asked(self) -> Counts:
        """The questions that seats have been asked between rounds."""
        return self._desk.asked

    def requests(self) -> Requests:
        """What this process and the seats have asked of object stores."""
        return requests() + self._desk.requests

    def retire(self, executors: Iterable[str]) -> bool:
        """Let seats of these executors hold nothing once the stream is settled; whether they have nothing now."""
        with self._lock:
            self._retired = frozenset(executors)
            names = {seat.name for seat in self._desk.seats() if seat.executor in self._retired}
            return names.isdisjoint(self._placement.values()) and names.isdisjoint(self._errands)

    # --------------------------------------------------------------------------------------------------------- seats

    def _seats(self, generation: int) -> list[Seated]:
        """The seats that there are, one at least; where there was none, as many as come soon after the first."""
        tell_at = time.monotonic() + _TELL_SECONDS
        while True:
            changes, seats = self._desk.changes, self._desk.seats()
            if not seats:
                self._all_came = False
            elif self._all_came or len(seats) >= self._seating.count or self._desk.quiet > _MORE_SECONDS:
                self._all_came = True
                return seats
            if generation != self._generation:
                raise RunError("was broken off while it waited for processes")
            self.check()
            if time.monotonic() > tell_at:
                self._report("waiting for Spark's processes; has it the cores and executors that it asks for?")
                tell_at = time.monotonic() + _TELL_SECONDS
            self._desk.wait(changes, _LOOK_SECONDS)

    def _by_seat(self, items: list[int], seats: Sequence[Seated]) -> list[tuple[Seated, list[int]]]:
        """The items of each seat, in their order."""
        self._items |= set(items)
        names = {seat.name: seat for seat in seats}
        if any(self._placement.get(item) not in names for item in items):
            self._place(seats, even=False)
        groups: dict[str, list[int]] = {}
        for item in items:
            groups.setdefault(self._placement[item], []).append(item)
        return [(names[name], mine) for name, mine in groups.items()]

    def _place(self, seats: Sequence[Seated], *, even: bool) -> None:
        """Give items a seat that have none, and with ``even`` others another one; seats that are to go get none."""
        with self._lock:
            now = self._placed(seats, even=even)
            self._moves += now != self._placement
            self._placement = now

    def _placed(self, seats: Sequence[Seated], *, even: bool) -> dict[int, str]:
        """What :meth:`_place` gives."""
        leaving = {seat.name for seat in seats if seat.executor in self._retired}
        given = self._items, [seat.name for seat in seats], self._placement, self._load.lately
        return placed(*given, even=even, leaving=leaving)

    # ---------------------------------------------------------------------------------------------------------- calls

    def _asked(self, seat: Seated, name: str, body: bytes, seconds: float | None = None) -> Future[Any]:
        return called(lambda: act(seat.client, name, body, options(self._secret, seconds), seat.address))

    def _wherever(
        self, do: Task[T], items: Sequence[T], seats: Sequence[Seated], generation: int
    ) -> dict[Any, list[str]]:
        """Lines of items, each done by a seat that has nothing else to do then.

        Parts of what comes in go where those of the same partition went before: their seat has read ahead. Seats that
        are to go do nothing where there are others.
        """
        with self._lock:
            seats = [seat for seat in seats if seat.executor not in self._retired] or seats
            self._errands = {seat.name for seat in seats}
        try:
            return self._errand(do, items, seats, generation)
        finally:
            self._errands = set()

    def _errand(
        self, do: Task[T], items: Sequence[T], seats: Sequence[Seated], generation: int
    ) -> dict[Any, list[str]]:
        kept, left = self._kept(items, seats)
        command = Command.of(do, (), generation)
        found, calls = dict[Any, list[str]](), dict[Future[Any], tuple[Seated, Any]]()
        free = deque(sorted(seats, key=lambda seat: seat.name not in kept))
        while left or kept or calls:
            while free and (left or free[0].name in kept):
                seat = free.popleft()
                some = tuple(kept.pop(seat.name)) if seat.name in kept else left.popleft()
                calls[self._asked(seat, "map", next(command.over([some])))] = seat, some
            for call in self._some_done({call: seat for call, (seat, _) in calls.items()}, generation):
                seat, some = calls.pop(call)
                found |= zip(some, call.result(), strict=True)
                free.append(seat)
                self._had |= {item[0]: seat.name for item in some if isinstance(item, tuple)}
        return found

    def _kept(self, items: Sequence[T], seats: Sequence[Seated]) -> tuple[dict[str, list[T]], deque[tuple[T, ...]]]:
        """The items that go where those of the same name went before, by seat, and the others.

        No seat gets more than its share so; nor does any item of a name that several have.
        """
        names = [item[0] if isinstance(item, tuple) else item for item in items]
        known = {seat.name for seat in seats} if len(set(names)) == len(names) else set()
        kept, left = dict[str, list[T]](), deque[tuple[T, ...]]()
        for name, item in zip(names, items, strict=True):
            before = self._had.get(name, "")
            if before in known and len(kept.get(before, ())) * len(seats) < len(items):
                kept.setdefault(before, []).append(item)
            else:
                left.append((item,))
        return kept, left

    def _done(self, calls: Mapping[Future[Any], Seated], generation: int, working: Sequence[Seated] = ()) -> None:
        """Wait for calls, for which other seats may be working too."""
        pending = dict(calls)
        while pending:
            for call in self._some_done(pending, generation, working):
                del pending[call]

    def _some_done(
        self, calls: Mapping[Future[Any], Seated], generation: int, working: Sequence[Seated] = ()
    ) -> set[Future[Any]]:
        """Wait until some calls are done, and have not failed.

        Raises:
            SeatLost: a seat has gone.
            RunError: the wait was broken off.
            Exception: what a task has raised.
        """
        tell_at = began = time.monotonic()
        while True:
            done, _ = wait(calls, timeout=_LOOK_SECONDS, return_when=FIRST_COMPLETED)
            if any(call.exception() is not None for call in done):
                self._give_up(*self._cause(calls))
            if done:
                return done
            if generation != self._generation:
                raise RunError("was broken off")
            there = {seat.name for seat in self._desk.seats()}
            at_work = {seat.name: seat for seat in (*calls.values(), *working)}
            for name, seat in at_work.items():
                if name not in there:
                    self._give_up(SeatLost(f"{seat} has gone"), seat)
            now, moved = time.monotonic(), max(seat.moved for seat in at_work.values())
            if now - max(began, moved) > self._stall:
                self._give_up_stalled(list(at_work.values()))
            if now - tell_at > _WORKING_SECONDS:
                self._report(f"still at work after {now - began:.0f} s, {_pieces(at_work.values())}")
                tell_at = now

    def _give_up_stalled(self, seats: Sequence[Seated]) -> NoReturn:
        """Fail a turn that does not get on. Which of its seats stands still is not known, so others take their place.

        Raises:
            SeatLost: always.
        """
        for seat in seats:
            self._desk.drop(seat.address)
        self.cancel()
        raise SeatLost(f"no piece of a turn was done in {self._stall:g} s by {' or '.join(map(str, seats))}")

    @staticmethod
    def _cause(calls: Mapping[Future[Any], Seated]) -> tuple[BaseException, Seated]:
        """What one of several calls has raised because of which the others have failed too, or will soon."""
        wait(calls, timeout=_LOOK_SECONDS)
        raised = [(error, seat) for call, seat in calls.items() if call.done() and (error := call.exception())]
        return min(raised, key=lambda each: isinstance(each[0], SeatLost) and not each[0].address)

    def _give_up(self, error: BaseException, seat: Seated) -> None:
        """Fail a turn, because of what a call of a seat has raised."""
        self.cancel()
        if isinstance(error, SeatLost) and error.address:
            self._desk.drop(error.address)
            if error.address != seat.address:
                # it cannot reach another one; if that is so with the next one too, it is itself cut off
                if self._accuser == seat.name:
                    self._desk.drop(seat.address)
                self._accuser = seat.name
        raise error


def _pieces(seats: Iterable[Seated]) -> str:
    """How far seats are; that it goes on is seen where it is told again."""
    known = sorted(seats, key=lambda seat: seat.number)
    return "pieces of work done since it is there: " + ", ".join(
        f"{seat.progress} by seat {seat.number}" for seat in known
    )


def _number(item: Any) -> int:
    """Of a slot or partition: the item itself, or the first of what it says of it."""
    return int(item[0] if isinstance(item, tuple) else item)
