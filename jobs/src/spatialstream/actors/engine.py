"""The actor engine: has actors execute the tasks of turns, and decides which actor does what.

The driver's threads wait for calls to actors, and see nothing of the stream's records but the lines that tasks return.
An actor that goes fails the turn; its items get another actor in the next turn, and others stay where they are until
the stream is settled. What is still running for a try that was given up has an older generation: actors abort it.
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
from spatialstream.actors.releases import Releases
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
"""Seconds without a new actor after which the first turn stops waiting for more actors."""
_TELL_SECONDS = 30.0
_STALL_SECONDS = 600.0
"""Seconds without a finished piece of work after which a turn is given up: no piece takes nearly as long."""


class ActorLauncher(Protocol):
    """Starts the processes of actors, and replaces those that have gone."""

    @property
    def host(self) -> str:
        """The address at which actors reach this process."""

    @property
    def count(self) -> int:
        """The intended number of actors."""

    def begin(self, spec: ActorSpec) -> None:
        """Have :func:`~spatialstream.actors.actor.run_actor` called in :attr:`count` processes, numbered from 0."""

    def check(self) -> None:
        """Make sure that the processes run, or will run again.

        Raises:
            RunError: there will not.
        """

    def end(self) -> None:
        """Clean up: the actors have been told to exit, and what is left of them is of no use."""


class ActorEngine:
    """See :class:`~spatialstream.stream.engine.Engine`; a context manager that starts and ends the actors.

    Args:
        world: the environment of the tasks.
        launcher: starts the actors.
        report: called with messages for the operator.
        heartbeat_timeout: seconds without a sign of life after which an actor or the driver is lost.
        tasks: the task classes, by name.
        stall: seconds in which no actor of a turn finishes a piece of work after which the turn is given up. Otherwise
            a turn may take any time.
        progress: seconds after which it is reported how far a turn is, again and again.
        even: seconds between two checks whether the work of actors is even.

    Attributes:
        load: the work of each item, lately.
    """

    def __init__(
        self,
        world: World,
        launcher: ActorLauncher,
        report: Callable[[str], None] = lambda text: None,
        heartbeat_timeout: float = 10.0,
        tasks: Mapping[str, type] = TASKS,
        stall: float = _STALL_SECONDS,
        *,
        progress: float = 60.0,
        even: float = 10.0,
    ) -> None:
        self._progress, self._even = progress, even
        self._world, self._launcher, self._report, self._stall = world, launcher, report, stall
        self._host = launcher.host  # needed in turns, and asking a cluster manager takes longer than some of them
        self._secret, self._asking, self._heartbeat_timeout = (
            secrets.token_hex(32),
            secrets.token_hex(32),
            heartbeat_timeout,
        )
        self._identity = None if self.is_near else new_identity()
        self._registry = ActorRegistry(
            self._host, self._secret, heartbeat_timeout, self._identity, self._asking, self._read_point
        )
        self._published = PublishedReadPoint()
        self._tasks = tasks
        self._generation, self._lock = 1, threading.Lock()
        self._gatherings = count(1)
        self._placement: dict[int, str] = {}
        self._items: set[int] = set()
        self._moves = 0
        self._had: dict[Any, str] = {}
        self._releases = Releases(self._ask_to_forget, self._registry.doubt)
        self._all_came = False
        self.load = Load()
        self._even_at, self._is_uneven = 0.0, False
        self._placed_for: tuple[int, frozenset[str]] = 0, frozenset()
        self._retired: frozenset[str] = frozenset()
        self._errands: set[str] = set()
        self._accuser = ""

    def __enter__(self) -> Self:
        """Start the actors."""
        given = self._secret, self._world, self._asking, self._heartbeat_timeout, self._identity, self._tasks
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
        """End all actors."""
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
            lines_by_item = self._wherever(do, items, actors, generation)
        else:
            numbers = {_number(item): item for item in items}
            groups = self._by_actor(list(numbers), actors)
            over = Command.of(do, (), generation).over([numbers[each] for each in mine] for _, mine in groups)
            calls = {
                self._asked(actor, "map", body): (actor, mine) for (actor, mine), body in zip(groups, over, strict=True)
            }
            self._done({call: actor for call, (actor, _) in calls.items()}, generation)
            answered = [(mine, call.result()) for call, (_, mine) in calls.items()]
            lines_by_number = {
                number: lines for mine, of_mine in answered for number, lines in zip(mine, of_mine, strict=True)
            }
            lines_by_item = {item: lines_by_number[number] for number, item in numbers.items()}
        return [line for item in items for line in lines_by_item[item]]

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
        """See :class:`~spatialstream.stream.engine.Engine`; a move that only evens the load can wait."""
        return self._placed_for != (self._registry.changes, self._retired)

    @property
    def would_move(self) -> bool:
        """See :class:`~spatialstream.stream.engine.Engine`."""
        if time.monotonic() >= self._even_at:
            actors = self._registry.actors()
            self.load.update(actors)
            self._even_at = time.monotonic() + self._even
            self._is_uneven = bool(actors) and self._placed(actors, even=True) != self._placement
        return self.unsettled or self._is_uneven

    def settled(self) -> None:
        """See :class:`~spatialstream.stream.engine.Engine`."""
        there, actors, before = (self._registry.changes, self._retired), self._registry.actors(), self._placement
        if not actors or not self.would_move:
            return
        self._placed_for, self._is_uneven = there, False
        self._place(actors, even=True)
        self._releases.settle(before, self._placement, actors)

    def _ask_to_forget(self, actor: RegisteredActor, items: list[int], seconds: float) -> Future[Any]:
        body = Command.of(IdleTasks().forget, items, self._generation).to_json()
        return self._asked(actor, "map", body, seconds)

    def check(self) -> None:
        """See :class:`~spatialstream.stream.engine.Engine`."""
        self._launcher.check()

    def cancel(self) -> None:
        """See :class:`~spatialstream.stream.engine.Engine`."""
        with self._lock:
            self._generation += 1

    # ------------------------------------------------------------------------------------------------- what is observed

    def observed(self) -> list[RegisteredActor]:
        """The live actors."""
        return self._registry.actors()

    def slots(self) -> dict[int, str]:
        """The name of the actor of each slot, or partition."""
        return {item: name for item, name in self._placement.items() if item >= 0}

    def publish(self, known: Mapping[str, Any]) -> None:
        """Publish the stream's read point, JSON-able, to query clients.

        It becomes visible when no actor that has gone can take an earlier round for the newest one any more. Every
        actor has a view of the round for each of its items, including those that it got back.
        """
        self._releases.round_done(self._placement)
        self._published.tell(dict(known), self._registry.unsure_until)

    @property
    def query_endpoint(self) -> dict[str, Any]:
        """What a query client needs: the driver's address, the secret of query clients, and the certificate."""
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
        """The number of slots, or partitions, of each actor, by the actor's number."""
        names = list(self.slots().values())
        return {actor.number: names.count(actor.name) for actor in self._registry.actors()}

    def memory(self) -> dict[int, int]:
        """Resident bytes of each actor, by its number."""
        return {actor.number: actor.memory for actor in self._registry.actors()}

    def asked(self) -> Counts:
        """Counts of the snapshot queries that actors have answered between rounds."""
        return self._registry.asked

    def requests(self) -> Requests:
        """Requests of this process and of the actors to object stores."""
        return requests() + self._registry.requests

    def retire(self, executors: Iterable[str]) -> bool:
        """Let actors of these executors hold nothing once the stream is settled; whether they hold nothing now."""
        with self._lock:
            self._retired = frozenset(executors)
            names = {actor.name for actor in self._registry.actors() if actor.executor in self._retired}
            return names.isdisjoint(self._placement.values()) and names.isdisjoint(self._errands)

    # --------------------------------------------------------------------------------------------------------- actors

    def _actors(self, generation: int) -> list[RegisteredActor]:
        """The live actors, at least one; if there were none, all that come soon after the first."""
        tell_at = time.monotonic() + _TELL_SECONDS
        while True:
            changes, actors = self._registry.changes, self._registry.actors()
            if not actors:
                self._all_came = False
            elif self._all_came or len(actors) >= self._launcher.count or self._registry.quiet > _MORE_SECONDS:
                self._all_came = True
                return actors
            if generation != self._generation:
                raise RunError("the turn was cancelled while it waited for processes")
            self.check()
            if time.monotonic() > tell_at:
                self._report("waiting for Spark's processes: are the requested cores and executors available?")
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
        """Place items that have no actor, and with ``even`` rebalance the others; retired actors get none."""
        with self._lock:
            now = self._placed(actors, even=even)
            self._moves += now != self._placement
            self._placement = now

    def _placed(self, actors: Sequence[RegisteredActor], *, even: bool) -> dict[int, str]:
        """The placement that :meth:`_place` sets."""
        leaving = {actor.name for actor in actors if actor.executor in self._retired}
        given = self._items, [actor.name for actor in actors], self._placement, self.load.lately
        return placed(*given, even=even, leaving=leaving)

    # ---------------------------------------------------------------------------------------------------------- calls

    def _asked(self, actor: RegisteredActor, name: str, body: bytes, seconds: float | None = None) -> Future[Any]:
        return called(lambda: act(actor.client, name, body, options(self._secret, seconds), actor.address))

    def _wherever(
        self, do: Task[T], items: Sequence[T], actors: Sequence[RegisteredActor], generation: int
    ) -> dict[Any, list[str]]:
        """Lines of items, each done by an actor that is idle at that moment.

        Parts of incoming data go to the actor that read the same partition before: it has read ahead. Retired actors do
        nothing if there are others.
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
        own_items, unassigned = self._kept(items, actors)
        command = Command.of(do, (), generation)
        lines_by_item, calls = dict[Any, list[str]](), dict[Future[Any], tuple[RegisteredActor, Any]]()
        free = deque(sorted(actors, key=lambda actor: actor.name not in own_items))
        while unassigned or own_items or calls:
            while free and (unassigned or free[0].name in own_items):
                actor = free.popleft()
                batch = tuple(own_items.pop(actor.name)) if actor.name in own_items else unassigned.popleft()
                calls[self._asked(actor, "map", next(command.over([batch])))] = actor, batch
            for call in self._some_done({call: actor for call, (actor, _) in calls.items()}, generation):
                actor, batch = calls.pop(call)
                lines_by_item |= zip(batch, call.result(), strict=True)
                free.append(actor)
                self._had |= {item[0]: actor.name for item in batch if isinstance(item, tuple)}
        return lines_by_item

    def _kept(
        self, items: Sequence[T], actors: Sequence[RegisteredActor]
    ) -> tuple[dict[str, list[T]], deque[tuple[T, ...]]]:
        """The items that go to the actor that had the same name before, by actor, and the other items.

        No actor gets more than its share this way; and if several items have one name, all are among the others.
        """
        names = [item[0] if isinstance(item, tuple) else item for item in items]
        known = {actor.name for actor in actors} if len(set(names)) == len(names) else set()
        own_items, unassigned = dict[str, list[T]](), deque[tuple[T, ...]]()
        for name, item in zip(names, items, strict=True):
            before = self._had.get(name, "")
            if before in known and len(own_items.get(before, ())) * len(actors) < len(items):
                own_items.setdefault(before, []).append(item)
            else:
                unassigned.append((item,))
        return own_items, unassigned

    def _done(
        self, calls: Mapping[Future[Any], RegisteredActor], generation: int, working: Sequence[RegisteredActor] = ()
    ) -> None:
        """Wait for calls; other actors may be working for them too."""
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
            RunError: the turn was cancelled.
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
                raise RunError("the turn was cancelled")
            there = {actor.name for actor in self._registry.actors()}
            at_work = {actor.name: actor for actor in (*calls.values(), *working)}
            for name, actor in at_work.items():
                if name not in there:
                    self._give_up(ActorLost(f"{actor} has gone"), actor)
            now, moved = time.monotonic(), max(actor.moved for actor in at_work.values())
            if now - max(began, moved) > self._stall:
                self._give_up_stalled(list(at_work.values()))
            if now - tell_at > self._progress:
                self._report(f"still at work after {now - began:.0f} s, {_pieces(at_work.values())}")
                tell_at = now

    def _give_up_stalled(self, actors: Sequence[RegisteredActor]) -> NoReturn:
        """Fail a turn that makes no progress. Which actor is stuck is not known, so all of its actors are replaced.

        Raises:
            ActorLost: always.
        """
        for actor in actors:
            self._registry.drop(actor.address)
        self.cancel()
        raise ActorLost(f"no task of a turn was completed in {self._stall:g} s by {' or '.join(map(str, actors))}")

    @staticmethod
    def _cause(calls: Mapping[Future[Any], RegisteredActor]) -> tuple[BaseException, RegisteredActor]:
        """The root cause among the exceptions of several calls: others have failed, or will soon, because of it."""
        wait(calls, timeout=_LOOK_SECONDS)
        raised = [(error, actor) for call, actor in calls.items() if call.done() and (error := call.exception())]
        return min(raised, key=lambda each: isinstance(each[0], ActorLost) and not each[0].address)

    def _give_up(self, error: BaseException, actor: RegisteredActor) -> None:
        """Fail a turn, because a call to an actor has raised an error."""
        self.cancel()
        if isinstance(error, ActorLost) and error.address:
            self._registry.drop(error.address)
            if error.address != actor.address:
                # the actor cannot reach another one; if it cannot reach the next one either, it is itself cut off
                if self._accuser == actor.name:
                    self._registry.drop(actor.address)
                self._accuser = actor.name
        raise error


def _pieces(actors: Iterable[RegisteredActor]) -> str:
    """The progress of actors; comparing two reports shows whether it goes on."""
    known = sorted(actors, key=lambda actor: actor.number)
    return "pieces of work done since process start: " + ", ".join(
        f"{actor.progress} by actor {actor.number}" for actor in known
    )


def _number(item: Any) -> int:
    """The number of a slot or partition: the item itself, or its first element."""
    return int(item[0] if isinstance(item, tuple) else item)
