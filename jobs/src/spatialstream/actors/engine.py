"""The engine of actors: has them do the tasks of turns, and decides which of them does what.

The driver's threads wait for calls of actors, and see nothing of the stream's records but the lines that tasks give. A
actor that goes fails the turn; its items get another actor with the next one, and others stay where they are until the
stream is settled. What a try that was given up has still under way is of an older generation: actors let go of it.
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

from spatialstream.actors.actor import ActorSpec
from spatialstream.actors.identity import is_loopback, new_identity
from spatialstream.actors.load import Load
from spatialstream.actors.placement import placed
from spatialstream.actors.query_metrics import Counts
from spatialstream.actors.read_point import PublishedReadPoint
from spatialstream.actors.registry import ActorRegistry, RegisteredActor
from spatialstream.actors.wire import ActorLost, Command, Gathering, act, endpoint, options
from spatialstream.connectors.calls import called
from spatialstream.connectors.requests import Requests, requests
from spatialstream.model.errors import RunError
from spatialstream.stages.tasks import TASKS, IdleTasks, World
from spatialstream.stream.engine import Merge, Task, Work

__all__ = ["ActorEngine", "ActorLauncher"]

T = TypeVar("T")

_LOOK_SECONDS = 0.2
_MORE_SECONDS = 2.0
"""Seconds without a new actor after which the first turn waits for no more of them."""
_TELL_SECONDS = 30.0
_FORGET_SECONDS = 2.0
_STALL_SECONDS = 600.0
"""Seconds without a piece of work done after which a turn is given up: no piece takes nearly as long."""
_WORKING_SECONDS = 60.0
"""Seconds after which it is told how far a turn is, and between two times that it is."""
_EVEN_SECONDS = 10.0
"""Seconds between two looks at whether work is even, and actors have let go of what others have."""


class ActorLauncher(Protocol):
    """Starts the processes of actors, and others in place of those that have gone."""

    @property
    def host(self) -> str:
        """The address at which actors reach this process."""

    @property
    def count(self) -> int:
        """How many actors there are to be."""

    def begin(self, spec: ActorSpec) -> None:
        """Have :func:`~spatialstream.actors.actor.run_actor` called in so many processes, with numbers from 0."""

    def check(self) -> None:
        """Make sure that there are processes, or will be again.

        Raises:
            RunError: there will not.
        """

    def end(self) -> None:
        """The actors have been told to end; what is left of them is of no use."""


class ActorEngine:
    """See :class:`~spatialstream.stream.engine.Engine`; as a context manager it has actors within, and none after.

    Args:
        world: what tasks have to do with.
        launcher: starts the actors.
        report: is told what a person should know.
        silence: seconds after which an actor or driver that says nothing is lost.
        tasks: the classes of tasks, by name.
        stall: seconds after which a turn is given up of which no actor has done another piece. It may take as long as
            it likes otherwise.
    """

    def __init__(
        self,
        world: World,
        launcher: ActorLauncher,
        report: Callable[[str], None] = lambda text: None,
        silence: float = 10.0,
        tasks: Mapping[str, type] = TASKS,
        stall: float = _STALL_SECONDS,
    ) -> None:
        self._world, self._launcher, self._report, self._stall = world, launcher, report, stall
        self._host = launcher.host  # turns need it, and to ask a cluster manager takes longer than some of them
        self._secret, self._asking, self._silence = secrets.token_hex(32), secrets.token_hex(32), silence
        self._identity = None if self.is_near else new_identity()
        self._registry = ActorRegistry(
            self._host, self._secret, silence, self._identity, self._asking, self._read_point
        )
        self._published = PublishedReadPoint()
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
        """Begin to have actors."""
        given = self._secret, self._world, self._asking, self._silence, self._identity, self._tasks
        self._launcher.begin(ActorSpec(self._address, *given))
        return self

    @property
    def is_near(self) -> bool:
        """See :class:`~spatialstream.stream.engine.Engine`."""
        return is_loopback(self._host)

    @property
    def _address(self) -> str:
        """Of the driver's endpoint."""
        return endpoint(self._host, self._registry.port)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let all actors end."""
        self.cancel()
        self._registry.close()
        wait([self._asked(actor, "end", b"null", 2.0) for actor in self._registry.actors()], timeout=2.0)
        self._launcher.end()
        threading.Thread(target=self._registry.shutdown, daemon=True).start()

    # ---------------------------------------------------------------------------------------------------- the contract

    @property
    def world(self) -> World:
        """See :class:`~spatialstream.stream.engine.Engine`."""
        return self._world

    @property
    def width(self) -> int:
        """See :class:`~spatialstream.stream.engine.Engine`."""
        return self._launcher.count

    @property
    def moves(self) -> int:
        """See :class:`~spatialstream.stream.engine.Engine`."""
        return self._moves

    def map(self, do: Task[T], items: Sequence[T], *, anywhere: bool = False) -> list[str]:
        """See :class:`~spatialstream.stream.engine.Engine`."""
        if not items:
            return []
        generation = self._generation
        actors = self._actors(generation)
        if anywhere:
            found = self._wherever(do, items, actors, generation)
        else:
            numbers = {_number(item): item for item in items}
            groups = self._by_actor(list(numbers), actors)
            over = Command.of(do, (), generation).over([numbers[each] for each in mine] for _, mine in groups)
            calls = {
                self._asked(actor, "map", body): (actor, mine) for (actor, mine), body in zip(groups, over, strict=True)
            }
            self._done({call: actor for call, (actor, _) in calls.items()}, generation)
            answered = [(mine, call.result()) for call, (_, mine) in calls.items()]
            told = {number: lines for mine, of_mine in answered for number, lines in zip(mine, of_mine, strict=True)}
            found = {item: told[number] for number, item in numbers.items()}
        return [line for item in items for line in found[item]]

    def gather(self, do: Work[T], items: Sequence[T], merge: Merge, parts: Sequence[int] = (0,)) -> list[str]:
        """See :class:`~spatialstream.stream.engine.Engine`."""
        generation, gathering = self._generation, next(self._gatherings)
        actors = self._actors(generation)
        numbers = {_number(item): item for item in items}
        mergers = {~item: actor for actor, mine in self._by_actor([~part for part in parts], actors) for item in mine}
        groups = self._by_actor(list(numbers), actors)
        working, merging = (Command.of(each, (), generation, gathering) for each in (do, merge))
        sources = [(actor.address, tuple(numbers[each] for each in mine)) for actor, mine in groups]
        bodies = Gathering(merging, working, sources, [actor.address for actor in actors]).of_parts(parts)
        calls = {part: self._asked(mergers[part], "gather", body) for part, body in zip(parts, bodies, strict=True)}
        self._done({call: mergers[part] for part, call in calls.items()}, generation, [actor for actor, _ in groups])
        self._accuser = ""
        return [line for call in calls.values() for line in call.result()]

    @property
    def unsettled(self) -> bool:
        """See :class:`~spatialstream.stream.engine.Engine`; what would only be more even waits."""
        return self._placed_for != (self._registry.changes, self._retired)

    @property
    def would_move(self) -> bool:
        """See :class:`~spatialstream.stream.engine.Engine`."""
        if time.monotonic() >= self._even_at:
            actors = self._registry.actors()
            self._load.look(actors)
            self._even_at = time.monotonic() + _EVEN_SECONDS
            self._is_uneven = bool(actors) and self._placed(actors, even=True) != self._placement
        return self.unsettled or self._is_uneven

    def settled(self) -> None:
        """See :class:`~spatialstream.stream.engine.Engine`."""
        there, actors, before = (self._registry.changes, self._retired), self._registry.actors(), self._placement
        if not actors or not self.would_move:
            return
        self._placed_for, self._is_uneven = there, False
        self._place(actors, even=True)
        self._have_forgotten(before, actors)

    def _have_forgotten(self, before: Mapping[int, str], actors: Sequence[RegisteredActor]) -> None:
        """Have actors let go of what other ones have now; one that does not is told again.

        Until it has it is not trusted to know the newest round, for that may be done without it. If it gets back what
        it has not let go of, it is trusted when there is a round with it: what it knows of it is of the time before.
        """
        for item, name in before.items():
            if self._placement.get(item) != name:
                self._to_forget.setdefault(name, set()).add(item)
        self._to_forget = {actor.name: self._to_forget.get(actor.name, set()) for actor in actors}
        self._doubt()
        calls = dict[Future[Any], tuple[str, list[int]]]()
        for actor in actors:
            gone = sorted(item for item in self._to_forget[actor.name] if self._placement.get(item) != actor.name)
            if gone:
                body = Command.of(IdleTasks().forget, gone, self._generation).to_json()
                calls[self._asked(actor, "map", body, _FORGET_SECONDS)] = actor.name, gone
        for call in wait(calls, timeout=_FORGET_SECONDS).done:
            if call.exception() is None:
                name, gone = calls[call]
                self._to_forget[name].difference_update(gone)
        self._doubt()

    def _doubt(self) -> None:
        self._registry.doubt(name for name, items in self._to_forget.items() if items)

    def check(self) -> None:
        """See :class:`~spatialstream.stream.engine.Engine`."""
        self._launcher.check()

    def cancel(self) -> None:
        """See :class:`~spatialstream.stream.engine.Engine`."""
        with self._lock:
            self._generation += 1

    # ------------------------------------------------------------------------------------------------- what is observed

    def observed(self) -> list[RegisteredActor]:
        """The actors that there are."""
        return self._registry.actors()

    def slots(self) -> dict[int, str]:
        """The name of the actor that each slot, or partition, has."""
        return {item: name for item, name in self._placement.items() if item >= 0}

    def publish(self, known: Mapping[str, Any]) -> None:
        """Tell those who ask what the stream has got to; JSON-able.

        It is told when no actor that has gone can take another round for the newest any more. Every actor has a view of
        it, of each of its items: those too that it got back.
        """
        for name, items in self._to_forget.items():
            items -= {item for item in items if self._placement.get(item) == name}
        self._doubt()
        self._published.tell(dict(known), self._registry.unsure_until)

    @property
    def query_endpoint(self) -> dict[str, Any]:
        """What one has to know to ask: where the driver is, the secret of those who may ask, and its certificate."""
        root = None if self._identity is None else self._identity[0].decode()
        return {"address": self._address, "secret": self._asking, "certificate": root}

    def _read_point(self) -> Any:
        published = self._published.now
        if published is None:
            return None
        addresses = {actor.name: actor.address for actor in self._registry.actors()}
        placed = {item: addresses.get(name) for item, name in self._placement.items()}
        actors = {item: address for item, address in placed.items() if item >= 0}
        return {**published, "actors": actors, "parts": {~item: placed[item] for item in placed if item < 0}}

    def held(self) -> dict[int, int]:
        """How many slots, or partitions, each actor has, by its number."""
        names = list(self.slots().values())
        return {actor.number: names.count(actor.name) for actor in self._registry.actors()}

    def memory(self) -> dict[int, int]:
        """Bytes of memory that each actor has, by its number."""
        return {actor.number: actor.memory for actor in self._registry.actors()}

    def asked(self) -> Counts:
        """The queries that actors have been asked between rounds."""
        return self._registry.asked

    def requests(self) -> Requests:
        """What this process and the actors have asked of object stores."""
        return requests() + self._registry.requests

    def retire(self, executors: Iterable[str]) -> bool:
        """Let actors of these executors hold nothing once the stream is settled; whether they have nothing now."""
        with self._lock:
            self._retired = frozenset(executors)
            names = {actor.name for actor in self._registry.actors() if actor.executor in self._retired}
            return names.isdisjoint(self._placement.values()) and names.isdisjoint(self._errands)

    # --------------------------------------------------------------------------------------------------------- actors

    def _actors(self, generation: int) -> list[RegisteredActor]:
        """The actors that there are, one at least; where there was none, as many as come soon after the first."""
        tell_at = time.monotonic() + _TELL_SECONDS
        while True:
            changes, actors = self._registry.changes, self._registry.actors()
            if not actors:
                self._all_came = False
            elif self._all_came or len(actors) >= self._launcher.count or self._registry.quiet > _MORE_SECONDS:
                self._all_came = True
                return actors
            if generation != self._generation:
                raise RunError("was broken off while it waited for processes")
            self.check()
            if time.monotonic() > tell_at:
                self._report("waiting for Spark's processes; has it the cores and executors that it asks for?")
                tell_at = time.monotonic() + _TELL_SECONDS
            self._registry.wait(changes, _LOOK_SECONDS)

    def _by_actor(self, items: list[int], actors: Sequence[RegisteredActor]) -> list[tuple[RegisteredActor, list[int]]]:
        """The items of each actor, in their order."""
        self._items |= set(items)
        names = {actor.name: actor for actor in actors}
        if any(self._placement.get(item) not in names for item in items):
            self._place(actors, even=False)
        groups: dict[str, list[int]] = {}
        for item in items:
            groups.setdefault(self._placement[item], []).append(item)
        return [(names[name], mine) for name, mine in groups.items()]

    def _place(self, actors: Sequence[RegisteredActor], *, even: bool) -> None:
        """Give items an actor that have none, and with ``even`` others another one; actors that are to go get none."""
        with self._lock:
            now = self._placed(actors, even=even)
            self._moves += now != self._placement
            self._placement = now

    def _placed(self, actors: Sequence[RegisteredActor], *, even: bool) -> dict[int, str]:
        """What :meth:`_place` gives."""
        leaving = {actor.name for actor in actors if actor.executor in self._retired}
        given = self._items, [actor.name for actor in actors], self._placement, self._load.lately
        return placed(*given, even=even, leaving=leaving)

    # ---------------------------------------------------------------------------------------------------------- calls

    def _asked(self, actor: RegisteredActor, name: str, body: bytes, seconds: float | None = None) -> Future[Any]:
        return called(lambda: act(actor.client, name, body, options(self._secret, seconds), actor.address))

    def _wherever(
        self, do: Task[T], items: Sequence[T], actors: Sequence[RegisteredActor], generation: int
    ) -> dict[Any, list[str]]:
        """Lines of items, each done by an actor that has nothing else to do then.

        Parts of what comes in go where those of the same partition went before: their actor has read ahead. Actors that
        are to go do nothing where there are others.
        """
        with self._lock:
            actors = [actor for actor in actors if actor.executor not in self._retired] or actors
            self._errands = {actor.name for actor in actors}
        try:
            return self._errand(do, items, actors, generation)
        finally:
            self._errands = set()

    def _errand(
        self, do: Task[T], items: Sequence[T], actors: Sequence[RegisteredActor], generation: int
    ) -> dict[Any, list[str]]:
        kept, left = self._kept(items, actors)
        command = Command.of(do, (), generation)
        found, calls = dict[Any, list[str]](), dict[Future[Any], tuple[RegisteredActor, Any]]()
        free = deque(sorted(actors, key=lambda actor: actor.name not in kept))
        while left or kept or calls:
            while free and (left or free[0].name in kept):
                actor = free.popleft()
                some = tuple(kept.pop(actor.name)) if actor.name in kept else left.popleft()
                calls[self._asked(actor, "map", next(command.over([some])))] = actor, some
            for call in self._some_done({call: actor for call, (actor, _) in calls.items()}, generation):
                actor, some = calls.pop(call)
                found |= zip(some, call.result(), strict=True)
                free.append(actor)
                self._had |= {item[0]: actor.name for item in some if isinstance(item, tuple)}
        return found

    def _kept(
        self, items: Sequence[T], actors: Sequence[RegisteredActor]
    ) -> tuple[dict[str, list[T]], deque[tuple[T, ...]]]:
        """The items that go where those of the same name went before, by actor, and the others.

        No actor gets more than its share so; nor does any item of a name that several have.
        """
        names = [item[0] if isinstance(item, tuple) else item for item in items]
        known = {actor.name for actor in actors} if len(set(names)) == len(names) else set()
        kept, left = dict[str, list[T]](), deque[tuple[T, ...]]()
        for name, item in zip(names, items, strict=True):
            before = self._had.get(name, "")
            if before in known and len(kept.get(before, ())) * len(actors) < len(items):
                kept.setdefault(before, []).append(item)
            else:
                left.append((item,))
        return kept, left

    def _done(
        self, calls: Mapping[Future[Any], RegisteredActor], generation: int, working: Sequence[RegisteredActor] = ()
    ) -> None:
        """Wait for calls, for which other actors may be working too."""
        pending = dict(calls)
        while pending:
            for call in self._some_done(pending, generation, working):
                del pending[call]

    def _some_done(
        self, calls: Mapping[Future[Any], RegisteredActor], generation: int, working: Sequence[RegisteredActor] = ()
    ) -> set[Future[Any]]:
        """Wait until some calls are done, and have not failed.

        Raises:
            ActorLost: an actor has gone.
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
            there = {actor.name for actor in self._registry.actors()}
            at_work = {actor.name: actor for actor in (*calls.values(), *working)}
            for name, actor in at_work.items():
                if name not in there:
                    self._give_up(ActorLost(f"{actor} has gone"), actor)
            now, moved = time.monotonic(), max(actor.moved for actor in at_work.values())
            if now - max(began, moved) > self._stall:
                self._give_up_stalled(list(at_work.values()))
            if now - tell_at > _WORKING_SECONDS:
                self._report(f"still at work after {now - began:.0f} s, {_pieces(at_work.values())}")
                tell_at = now

    def _give_up_stalled(self, actors: Sequence[RegisteredActor]) -> NoReturn:
        """Fail a turn that does not get on. Which of its actors stands still is not known, so others take their place.

        Raises:
            ActorLost: always.
        """
        for actor in actors:
            self._registry.drop(actor.address)
        self.cancel()
        raise ActorLost(f"no piece of a turn was done in {self._stall:g} s by {' or '.join(map(str, actors))}")

    @staticmethod
    def _cause(calls: Mapping[Future[Any], RegisteredActor]) -> tuple[BaseException, RegisteredActor]:
        """What one of several calls has raised because of which the others have failed too, or will soon."""
        wait(calls, timeout=_LOOK_SECONDS)
        raised = [(error, actor) for call, actor in calls.items() if call.done() and (error := call.exception())]
        return min(raised, key=lambda each: isinstance(each[0], ActorLost) and not each[0].address)

    def _give_up(self, error: BaseException, actor: RegisteredActor) -> None:
        """Fail a turn, because of what a call of an actor has raised."""
        self.cancel()
        if isinstance(error, ActorLost) and error.address:
            self._registry.drop(error.address)
            if error.address != actor.address:
                # it cannot reach another one; if that is so with the next one too, it is itself cut off
                if self._accuser == actor.name:
                    self._registry.drop(actor.address)
                self._accuser = actor.name
        raise error


def _pieces(actors: Iterable[RegisteredActor]) -> str:
    """How far actors are; that it goes on is seen where it is told again."""
    known = sorted(actors, key=lambda actor: actor.number)
    return "pieces of work done since it is there: " + ", ".join(
        f"{actor.progress} by actor {actor.number}" for actor in known
    )


def _number(item: Any) -> int:
    """Of a slot or partition: the item itself, or the first of what it says of it."""
    return int(item[0] if isinstance(item, tuple) else item)
