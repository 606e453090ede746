"""The newest round as an actor knows it is the one that its driver would return, whatever has happened meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from spatialstream.actors.query_metrics import none_asked
from spatialstream.actors.read_point import PublishedReadPoint, ReadPoint, ReadPoints, trust
from spatialstream.actors.registry import ActorRegistry
from spatialstream.connectors.memory import MemoryChannel, MemoryLog, MemorySink
from spatialstream.connectors.memory_storage import MemoryStorage
from spatialstream.connectors.requests import no_requests
from spatialstream.model.errors import Gone, Unavailable
from spatialstream.stages import views
from spatialstream.stages.tasks import World
from spatialstream.stages.turns import Round
from spatialstream.stages.versions import save_version
from spatialstream.stream.settings import StreamSettings
from tests.unit.client.test_snapshot_client import PLANE, SLOTS, Stream

SILENCE = 10.0
VERSION = Stream(PLANE).version


def world_of() -> World:
    """The world of a process of its own: views are identified by the place of its storage."""
    channel = MemoryChannel([MemoryLog() for _ in range(SLOTS)], MemoryLog())
    made = StreamSettings("s", slots=SLOTS, space=PLANE).world(
        MemoryStorage(), channel, MemorySink([MemoryLog()], MemoryLog())
    )
    save_version(made.storage, VERSION)
    return made


def told(round_id: tuple[int, int], actors: dict[int, str]) -> dict[str, Any]:
    turn = Round(round_id[0], (round_id[0],), (0,), 1_000, VERSION.number)
    return {
        **ReadPoint.record(turn),
        "round": list(round_id),
        "actors": {str(slot): address for slot, address in actors.items()},
    }


def keep(world: World, slot: int, round_id: tuple[int, int], now: float = 0.0) -> None:
    view: Any = SimpleNamespace(round=round_id, kept=now)
    views.keep(world.storage.place, slot, view)


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    views.forget()
    yield
    views.forget()


class Asked:
    """A driver that counts how often it is asked."""

    def __init__(self, world: World) -> None:
        self.round, self.actors, self.times, self.trusted = (1, 0), {0: "me", 1: "other"}, 0, float("inf")
        self.newest = ReadPoints(world, "me", self.ask, lambda: self.trusted)

    def ask(self, seconds: float) -> dict[str, Any]:
        self.times += 1
        return told(self.round, self.actors)

    def known(self) -> tuple[int, int]:
        found = self.newest(1.0)
        assert found is not None
        return found.read_point.round


def test_the_driver_is_asked_once_for_a_round() -> None:
    world = world_of()
    driver = Asked(world)
    keep(world, 0, (1, 0))
    assert [driver.known() for _ in range(3)] == [(1, 0)] * 3
    assert driver.times == 1
    keep(world, 0, (2, 0))  # it has done its part; whether the others have, the driver knows
    assert [driver.known() for _ in range(3)] == [(1, 0)] * 3
    assert driver.times == 4
    driver.round = (2, 0)
    assert [driver.known() for _ in range(3)] == [(2, 0)] * 3
    assert driver.times == 5


@pytest.mark.parametrize("why", ["doubt", "trust", "forgotten", "another revision", "no slot"])
def test_the_driver_is_asked_where_its_word_may_not_hold(why: str) -> None:
    world = world_of()
    driver = Asked(world)
    if why == "no slot":
        driver.actors = {0: "other"}
    keep(world, 0, (1, 0))
    driver.known()
    match why:
        case "doubt":
            driver.newest.doubt()
        case "trust":
            driver.trusted = 0.0
        case "forgotten":
            views.forget(world.storage.place, 0)
        case "another revision":
            keep(world, 0, (1, 1))
    driver.known()
    assert driver.times == 2


def test_a_driver_that_has_done_no_round_is_asked_again() -> None:
    asked = list[float]()
    newest = ReadPoints(world_of(), "me", asked.append, lambda: float("inf"))
    assert newest(1.0) is None
    assert newest(2.0) is None
    assert asked == [1.0, 2.0]


def test_a_round_is_told_when_who_is_doubted_is_trusted_no_more() -> None:
    clock = SimpleNamespace(now=1_000.0)
    clock.monotonic = lambda: clock.now
    with patch("spatialstream.actors.registry.time", clock):
        registry = ActorRegistry("127.0.0.1", "own", SILENCE)
    try:
        with patch("spatialstream.actors.registry.time", clock):
            clock.now += 100.0
            said = heartbeat_of("actor0", known=False)
            assert registry.unsure_until < clock.now
            assert registry.heartbeat(said) == "stay"
            assert registry.unsure_until < clock.now, "what it knows is known of every round"
            registry.doubt(["actor0"])
            until = registry.unsure_until
            assert until == clock.now + trust(SILENCE)
            clock.now += 1.0
            assert registry.heartbeat(said | {"known": True}) == "ask"
            assert registry.unsure_until == until
            registry.doubt([])
            assert registry.heartbeat(said | {"known": True}) == "stay"
            registry.drop("actor0")
            assert registry.unsure_until == clock.now + trust(SILENCE)
    finally:
        registry.shutdown()


def heartbeat_of(name: str, *, known: bool) -> dict[str, Any]:
    """The heartbeat of an actor whose address is its name."""
    counts = {"asked": none_asked().tolist(), "requests": no_requests().tolist(), "progress": 0, "memory": 0}
    about = {"number": int(name[5:]), "address": name, "executor": "1", "pid": 1}
    return {"name": name, "known": known, "worked": {}, **about, **counts}


@dataclass(eq=False)
class Process:
    """An actor in a process of its own.

    Attributes:
        known: whether the actor registry has accepted it.
        trusted: see :class:`~spatialstream.actors.actor.Actor`.
        ended: whether it was told that it is lost.
        cut: whether it cannot reach the driver, nor the driver it.
        moved: slots that another actor has got since this one did a round with them, and that it has not released.
    """

    name: str
    world: World
    newest: Any = None
    known: bool = False
    trusted: float = 0.0
    ended: bool = False
    cut: bool = False
    moved: set[int] = field(default_factory=set)


class Driver(RuleBasedStateMachine):
    """A driver, its registry, and actors that are cut off, lost, and have slots taken away."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.number, self.count = 1_000.0, 0, 0
        self.patched = ExitStack()
        clock = SimpleNamespace(monotonic=lambda: self.now)
        for module in ("registry", "read_point"):
            self.patched.enter_context(patch(f"spatialstream.actors.{module}.time", clock))
        self.registry, self.published = ActorRegistry("127.0.0.1", "own", SILENCE), PublishedReadPoint()
        self.processes: dict[str, Process] = {}
        self.placement: dict[int, str] = {}
        for _ in range(SLOTS):
            self.start()
        self.now += trust(SILENCE)
        self.all_send_heartbeats()
        self.does_a_round(SLOTS, recalled=False)
        self.all_are_asked()

    def teardown(self) -> None:
        self.registry.shutdown()
        self.patched.close()
        views.forget()

    def start(self) -> None:
        """Start another actor."""
        made = Process(f"actor{self.count}", world_of())
        self.count += 1
        made.newest = ReadPoints(made.world, made.name, lambda seconds: self.asked_by(made), lambda: made.trusted)
        self.processes[made.name] = made
        self.heartbeat(made, 0.0, heard=True)

    def asked_by(self, process: Process) -> dict[str, Any] | None:
        if process.cut:
            raise Unavailable("cut off")
        return self.tells()

    def tells(self) -> dict[str, Any] | None:
        """The read point that the driver returns."""
        now = self.published.now
        return None if now is None else {**now, "actors": {str(slot): name for slot, name in self.placement.items()}}

    def heartbeat(self, process: Process, late: float, *, heard: bool) -> None:
        """A heartbeat, which comes late, and whose response may be lost."""
        if process.cut or process.ended:
            return
        asked = self.now
        self.now += late
        answered = self.registry.heartbeat(heartbeat_of(process.name, known=process.known))
        if heard:
            process.known = True
            process.ended = answered == "lost"
            if answered == "stay":
                process.trusted = asked + trust(SILENCE)

    def there(self) -> list[Process]:
        """The actors that the driver knows."""
        return [self.processes[actor.name] for actor in self.registry.actors()]

    @rule(index=st.integers(0, 9), late=st.sampled_from([0.0, 0.0, 0.4, 1.0]), heard=st.booleans())
    def says_hello(self, index: int, late: float, heard: bool) -> None:
        living = [each for each in self.processes.values() if not each.ended]
        if living:
            self.heartbeat(living[index % len(living)], late, heard=heard)

    @rule()
    def all_send_heartbeats(self) -> None:
        for process in list(self.processes.values()):
            self.heartbeat(process, 0.0, heard=True)

    @rule(seconds=st.sampled_from([0.1, 0.5, 1.0, 1.4, 1.6, 11.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def comes(self) -> None:
        if len(self.processes) < 8:
            self.start()

    @rule(done=st.sampled_from([SLOTS, SLOTS, SLOTS, *range(SLOTS)]), recalled=st.booleans())
    def does_a_round(self, done: int, recalled: bool) -> None:
        """Slots of lost actors get another one; so many actors do their part, and if all do, the round is done."""
        there = self.there()
        if not there:
            return
        names = [each.name for each in there]
        for slot in range(SLOTS):
            if self.placement.get(slot) not in names:
                self.placement[slot] = names[(slot + self.number) % len(names)]
                if recalled and self.published.now is not None:
                    number, revision = self.published.now["round"]
                    keep(self.processes[self.placement[slot]].world, slot, (number, revision), self.now)
        for slot in range(done):
            process = self.processes[self.placement[slot]]
            if process.cut:
                self.registry.drop(process.name)
                return
            keep(process.world, slot, (self.number, 0), self.now)
        if done == SLOTS:
            for process in there:
                process.moved -= {slot for slot, name in self.placement.items() if name == process.name}
            self.doubts()
            self.published.tell(told((self.number, 0), {}), self.registry.unsure_until)
            self.number += 1

    @rule(index=st.integers(0, 9))
    def is_cut_off(self, index: int) -> None:
        there = self.there()
        if there:
            there[index % len(there)].cut = True

    @rule(index=st.integers(0, 9))
    def is_taken_for_lost(self, index: int) -> None:
        there = self.there()
        if there:
            self.registry.drop(there[index % len(there)].name)

    @rule(slot=st.integers(0, SLOTS - 1), index=st.integers(0, 9), forgets=st.booleans())
    def moves_a_slot(self, slot: int, index: int, forgets: bool) -> None:
        """Move a slot, as the engine does when the stream is settled."""
        there = self.there()
        if not there or slot not in self.placement:
            return
        old, new = self.placement[slot], there[index % len(there)].name
        self.placement[slot] = new
        if old != new:
            self.processes[old].moved.add(slot)
        self.doubts()
        for process in there:
            if forgets and not process.cut:
                for each in [each for each in process.moved if self.placement[each] != process.name]:
                    views.forget(process.world.storage.place, each)
                    process.moved.remove(each)
        self.doubts()

    def doubts(self) -> None:
        self.registry.doubt(each.name for each in self.there() if each.moved)

    @rule()
    def all_are_asked(self) -> None:
        for process in self.processes.values():
            if not process.ended:
                with suppress(Unavailable):
                    process.newest(1.0)

    @precondition(lambda self: self.published.now is not None)
    @invariant()
    def an_actor_says_what_the_driver_would_say(self) -> None:
        tells = self.published.now
        assert tells is not None
        for process in self.processes.values():
            known = process.newest.certain()
            if known is not None:
                assert list(known.read_point.round) == tells["round"]


def test_a_slot_that_comes_back_to_an_actor_that_did_not_let_go_of_it() -> None:
    driver = Driver()
    try:
        first, names = driver.placement[0], [each.name for each in driver.there()]
        driver.moves_a_slot(0, (names.index(first) + 1) % len(names), forgets=False)
        for _ in range(2):
            driver.does_a_round(SLOTS, recalled=False)
            driver.time_passes(trust(SILENCE) + 0.1)
        driver.moves_a_slot(0, names.index(first), forgets=False)
        driver.all_send_heartbeats()
        driver.an_actor_says_what_the_driver_would_say()
        driver.does_a_round(SLOTS, recalled=False)
        driver.all_send_heartbeats()
        driver.all_are_asked()
        driver.an_actor_says_what_the_driver_would_say()
        process = driver.processes[first]
        assert process.newest.certain() is not None, "it is trusted again"
    finally:
        driver.teardown()


TestDriver = Driver.TestCase
TestDriver.settings = settings(stateful_step_count=40)


def test_a_version_that_has_been_removed_meanwhile_is_asked_for_again() -> None:
    removed = told((1, 0), {0: "me"}) | {"version": 5}
    newest = ReadPoints(world_of(), "me", lambda seconds: removed, lambda: 0.0)
    with pytest.raises(Gone, match="the stream has advanced meanwhile: try again"):
        newest(1.0)
