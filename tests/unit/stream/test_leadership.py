"""Routers and workers of one stream, several of each alive at once, paused and killed anywhere: rows as of one of each.

Their turns are as simple as possible, but keep what matters: what a router takes of its input and how a worker cuts
rounds is random, rows depend on how rounds are cut, and what is sent again has the same key.
"""

from __future__ import annotations

import json
import random
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spatialstream.connectors.contracts import find
from spatialstream.connectors.folder import Folder
from spatialstream.connectors.memory import MemoryChannel
from spatialstream.connectors.memory_storage import MemoryStorage
from spatialstream.model.errors import Missing, StateError, Unavailable
from spatialstream.model.space import WGS84
from spatialstream.oracle import answers, check
from spatialstream.stream.driver import RouterTurns, WorkerTurns, news
from spatialstream.stream.leadership import Alone, Leader, Leadership, Superseded
from spatialstream.stream.router import EPOCHS, Router
from spatialstream.stream.settings import StreamSettings
from spatialstream.stream.worker import ROUNDS, Worker
from tests.lengths import examples
from tests.simulation import IDLE, Simulation
from tests.streams import PLANE, Stream, random_stream


class Killed(BaseException):
    """The process has died."""


class Scheduler:
    """Processes, one of which does a step at a time, chosen at random."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.back = threading.Semaphore(0)
        self.waiting: dict[threading.Thread, threading.Semaphore] = {}
        self.doomed: set[threading.Thread] = set()
        self.errors: list[BaseException] = []

    def spawn(self, work: Callable[[], None]) -> threading.Thread:
        go = threading.Semaphore(0)

        def run() -> None:
            go.acquire()
            try:
                work()
            except (Killed, Superseded):
                pass
            except BaseException as error:  # noqa: BLE001 - it is raised again by the test
                self.errors.append(error)
            finally:
                del self.waiting[thread]
                self.back.release()

        thread = threading.Thread(target=run, daemon=True)
        self.waiting[thread] = go
        thread.start()
        return thread

    def step(self, name: str = "") -> None:
        """Called by a process: another one may do something now."""
        thread = threading.current_thread()
        self.back.release()
        self.waiting[thread].acquire()
        if thread in self.doomed:
            raise Killed(name)

    def let(self, thread: threading.Thread) -> None:
        self.waiting[thread].release()
        self.back.acquire()
        if self.errors:
            raise self.errors[0]

    def kill(self, thread: threading.Thread) -> None:
        self.doomed.add(thread)
        self.let(thread)


class Files(MemoryStorage):
    """A storage that asserts that a file which is written again has the same content."""

    def put(self, name: str, *parts: bytes | memoryview | pa.Buffer) -> None:
        before = find(self, name)
        super().put(name, *parts)
        assert name.endswith("/done") or before is None or before.equals(self.get(name)), (
            f"{name} is written another way"
        )

    def write(self, name: str, value: object) -> None:
        self.put(name, json.dumps(value).encode())

    def read(self, name: str) -> Any:
        return json.loads(self.get(name).to_pybytes())


@dataclass
class Messages:
    """A log of announcements, which may accept a message and not say so, and may deliver it late."""

    messages: list[dict[str, Any] | None] = field(default_factory=list)
    begin: int = 0
    lost: Callable[[], bool] = lambda: False
    late: list[dict[str, Any]] = field(default_factory=list)

    def announce(self, announcement: Mapping[str, Any]) -> None:
        message = json.loads(json.dumps(announcement))
        if self.lost():
            self.late.append(message)
            raise Unavailable("no answer")
        self.messages.append(message)

    def arrive(self) -> None:
        """Deliver what was on its way."""
        self.messages += self.late
        self.late.clear()

    def cut(self, before: int) -> None:
        assert before <= len(self.messages)
        self.begin = max(self.begin, before)

    def announced(self, after: int | None, most: int, patience: float) -> tuple[list[dict[str, Any] | None], int]:
        start = self.begin if after is None else after
        if start < self.begin:
            raise StateError("gone")
        part = self.messages[start : start + most]
        return part, start + len(part)


class World:
    """A stream whose objects are the numbers 0, 1, 2, ..., and whose rows are (number, sum so far,
    rows of the round)."""

    def __init__(self, seed: int, chaos: float = 0.0) -> None:
        self.seed, self.scheduler = seed, Scheduler(seed)
        self.random, self.step = self.scheduler.random, self.scheduler.step
        self.files, self.log = Files(), Messages()
        self.log.lost = lambda: self.random.random() < chaos
        self.input = 0
        self.announced: dict[Leadership, int] = {}
        self.last: dict[Leadership, dict[str, Any]] = {}
        self.blocks: list[tuple[tuple[int, int], int]] = []
        self.rows: dict[tuple[int, int], tuple[int, int, int]] = {}
        self.leases = {"router": 0, "worker": 0}
        self.unleased = chaos
        self.cuts = 0

    def number(self, job: str) -> int:
        """The number of the lease; 0 if ZooKeeper could not be reached."""
        if self.random.random() < self.unleased:
            return 0
        self.leases[job] += 1
        return self.leases[job]

    def spawn(self, job: str) -> threading.Thread:
        number, turn = self.number(job), {"router": self.route, "worker": self.work}[job]
        folder = {"router": "epochs/", "worker": "rounds/"}[job]

        def process() -> None:
            self.step()
            while True:
                try:
                    leadership = Leadership(self.log, self.files, job, folder, number, self.step)
                    known = leadership.begin()
                except Unavailable:
                    continue
                break
            if known is not None:
                self.last[leadership] = leadership.value(known, dict)
            while True:
                try:
                    turn(leadership)
                except Unavailable:
                    continue
                except (Missing, StateError):  # its successor has cleaned up
                    assert self.leader(job).leadership != leadership.id
                    return

        return self.scheduler.spawn(process)

    def fails(self, epoch: int, revision: int) -> bool:
        """Whether an epoch cannot be routed; the same for whoever tries."""
        return random.Random(f"{self.seed} {epoch} {revision}").random() < 0.1

    # -------------------------------------------------------------------------------------------------------- turns

    def decide(self, leadership: Leadership, turn: int, record: dict[str, Any]) -> None:
        leadership.decide(turn, json.dumps(record))
        self.last[leadership] = record

    def route(self, leadership: Leadership) -> None:
        """Do an epoch, or redo the last one."""
        before = self.last.get(leadership, {"epoch": -1, "watermark": 0, "revision": 0})
        if before["epoch"] <= self.announced.get(leadership, leadership.announced):
            watermark = self.random.randint(before["watermark"], self.input)
            record = {"epoch": before["epoch"] + 1, "after": before["watermark"], "watermark": watermark, "revision": 0}
            record["before"] = before["revision"]
            self.decide(leadership, record["epoch"], record)
        elif self.fails(before["epoch"], before["revision"]):  # for its records' sake: half of them have to wait
            record = {
                **before,
                "watermark": (before["after"] + before["watermark"]) // 2,
                "revision": before["revision"] + 1,
            }
            self.decide(leadership, record["epoch"], record)
        record = self.last[leadership]
        if self.fails(record["epoch"], record["revision"]):
            return
        self.step("registry")
        epoch, revision = record["epoch"], record["revision"]
        known = self.files.read(f"registry/{epoch - 1}-{record['before']}") if epoch else 0
        self.files.write(f"registry/{epoch}-{revision}", known + sum(range(record["after"], record["watermark"])))
        for number in range(record["after"], record["watermark"]):
            self.step("send")
            self.blocks.append(((record["epoch"], record["revision"]), number))
        self.step("announce")
        kept = {name: record[name] for name in ("epoch", "revision", "after", "watermark")}
        self.log.announce(leadership.sign({**kept, "ends": len(self.blocks)}))
        self.announced[leadership] = epoch
        self.step("clean")
        leadership.clean(epoch - 1)
        if self.random.random() < 0.1:
            leadership.keep()

    def work(self, leadership: Leadership) -> None:
        """Do a round, or redo the last one."""
        before = self.last.get(leadership, {"round": -1, "ends": 0, "next": 0, "epoch": -1, "router": None})
        done = self.files.read("rounds/done") if self.files.list("rounds/done") else -1
        if before["round"] <= done:
            record = self.decided(before)
            if record is None:
                self.step("wait")
                return
            self.decide(leadership, record["round"], record)
        record = self.last[leadership]
        number = record["round"]
        total = self.files.read(f"state/{number - 1}") if number else 0
        within = self.blocks[record["starts"] : record["ends"]]
        numbers = sorted({each for (epoch, revision), each in within if record["takes"].get(str(epoch)) == revision})
        rows = []
        for each in numbers:
            total += each
            rows.append((each, total, len(numbers)))
        for i, row in enumerate(rows):
            self.step("publish")
            assert self.rows.setdefault((number, i), row) == row, "a key has rows that differ"
        self.step("state")
        self.files.write(f"state/{number}", total)
        self.step("clean")
        leadership.clean(number - 1, record["next"])
        if self.random.random() < 0.3:
            self.step("trim")
            leadership.trim()
            self.cuts += 1
        self.files.delete([f"state/{number - 2}"])
        self.step("done")
        self.files.write("rounds/done", number)

    def decided(self, before: dict[str, Any]) -> dict[str, Any] | None:
        """The content of a round; None if nothing is new."""
        leader = Leader("router") if before["router"] is None else Leader(**before["router"])
        takes: dict[str, int] = {}
        at, last, ends = before["next"], before["epoch"], before["ends"]
        while not takes:
            messages, at = self.log.announced(at, self.random.randint(1, 20), 0.0)
            if not messages:
                return None
            leader, counting = leader.read([each for each in messages if each is not None], at)
            for each in counting:
                if each["epoch"] > last:
                    last, ends = each["epoch"], each["ends"]
                    takes[str(last)] = each["revision"]
        return {
            "round": before["round"] + 1,
            "takes": takes,
            "starts": before["ends"],
            "ends": ends,
            "next": at,
            "epoch": last,
            "router": asdict(leader),
        }

    def leader(self, job: str) -> Leader:
        """The current state of the log."""
        leader = Leader(job)
        for message in self.log.messages:
            assert message is not None
            leader = leader.after(message)
        return leader

    # --------------------------------------------------------------------------------------------------- what happens

    def disorder(self, steps: int) -> None:
        """Processes come, pause, resume and die, and the log loses sight of messages."""
        alive: dict[threading.Thread, str] = {}
        for _ in range(steps):
            alive = {thread: job for thread, job in alive.items() if thread in self.scheduler.waiting}
            self.input += self.random.choice([0, 0, 0, 1, 3])
            if self.random.random() < 0.05:
                self.log.arrive()
            for job in ("router", "worker"):
                there = list(alive.values()).count(job)
                if there == 0 or (there < 3 and self.random.random() < 0.03):
                    alive[self.spawn(job)] = job
            chosen = self.random.choice(list(alive))
            if self.random.random() < 0.01:
                self.scheduler.kill(chosen)
            for _ in range(self.random.choice([1, 1, 3, 30])):
                if chosen in self.scheduler.waiting:
                    self.scheduler.let(chosen)

    def order(self) -> None:
        """New processes with leases do the rest; then paused ones resume, one after the other."""
        self.unleased = 0.0
        self.log.lost = lambda: False
        zombies = list(self.scheduler.waiting)
        last = [self.spawn("router"), self.spawn("worker")]
        for _ in range(20_000):
            if sum(1 for _ in self.rows) == self.input:
                break
            self.scheduler.let(self.random.choice(last))
        self.log.arrive()
        for _ in range(2_000):
            awake = [each for each in zombies if each in self.scheduler.waiting]
            if awake:
                self.scheduler.let(self.random.choice(awake))
        for each in [*zombies, *last]:
            if each in self.scheduler.waiting:
                self.scheduler.kill(each)


def check_world(world: World) -> None:
    """Check that the rows are those of one router and one worker that never fail."""
    rows = [row for _, row in sorted(world.rows.items())]
    assert [number for number, _, _ in rows] == list(range(world.input))
    assert [total for _, total, _ in rows] == [sum(range(i + 1)) for i in range(world.input)]


@pytest.mark.parametrize("chaos", [0.0, 0.1])
@given(seed=st.integers(0, 10**9))
def test_whoever_is_alive_the_rows_are_those_of_one(chaos: float, seed: int) -> None:
    world = World(seed, chaos)
    world.disorder(300)
    world.order()
    check_world(world)
    assert world.log.begin > 0 or world.cuts < 5


# --------------------------------------------------------------------------------------------------- with real turns


PROCESS = ContextVar("PROCESS", default="")
"""The name of a thread, which stands for a process. Its ident may be given to the next thread when it has ended."""


class Own(Folder):
    """A folder as one process has it, with a memory of its own."""

    @property
    def place(self) -> str:
        return f"{self.path} {PROCESS.get()}"


class Crowd(Simulation):
    """A stream with several routers and workers at once; see :class:`World`, whose turns are simpler."""

    def __init__(self, folder: Path, stream: Stream, setup: StreamSettings, seed: int) -> None:
        self.scheduler = Scheduler(seed)
        super().__init__(folder, stream.space, stream.objects, stream.queries, setup, seed, storage=Own(folder))
        self.channel = MemoryChannel(self.blocks, self.announced)
        self.leases = {"router": 0, "worker": 0}
        self.idle: dict[threading.Thread, int] = {}
        self.superseded = 0

    def step(self, name: str) -> None:
        self.time += 1
        self.scheduler.step(name)

    def spawn(self, job: str, leased: bool = True) -> threading.Thread:
        number = self.leases[job] = self.leases[job] + 1
        work = {"router": self.routing, "worker": self.working}[job]
        folder = {"router": EPOCHS, "worker": ROUNDS}[job]

        def process() -> None:
            PROCESS.set(f"{job} {number}")
            leadership = Leadership(self.channel, self.storage, job, folder, number if leased else 0, self.step)
            try:
                self.step("start")
                for bound in work(leadership):
                    self.idle[threading.current_thread()] = bound
                    self.step("idle")
            except Superseded:
                self.superseded += 1
            except StateError:  # of a zombie, whose successor has cleaned up
                messages = [json.loads(value or b"") for _, value in self.announced.read(*self.announced.bounds)]
                leader, _ = Leader(job).read(messages, 0)
                if leader.leadership == leadership.leader.leadership:
                    raise

        return self.scheduler.spawn(process)

    def routing(self, leadership: Leadership) -> Iterator[int]:
        names = list(self.source.logs)
        given = self.settings, self.storage, self.views[0], names, lambda: self.time
        router = Router(*given, self.step, leadership, self.due)
        turns = RouterTurns(router, self.processes, self.step)
        while True:
            fresh = {} if router.unfinished else news(self.source.bounds(), router.read, 10**9)
            if fresh or router.unfinished or router.last is None or router.wants_epoch():
                turns.epoch(turns.ingestion(fresh))
                router.tidy()
            else:
                yield 0 if any(self.unsent.values()) else 1

    def working(self, leadership: Leadership) -> Iterator[int]:
        worker = Worker(self.settings, self.storage, self.views[1], self.step, leadership, self.due)
        turns = WorkerTurns(worker, self.processes, self.settings.slots, self.step)
        while True:
            bound = self.announced.bounds[1]
            if self.random.random() < 0.3:
                worker.trim()
            if (record := turns.next(self.random.randint(1, 9)) or worker.settle()) is not None:
                turns.do(record)
            else:
                worker.confirm()
                worker.keep()
                yield bound

    def disorder(self) -> None:
        """Processes come, pause, resume and die, while there is input."""
        alive: dict[threading.Thread, str] = {}
        while any(self.unsent.values()):
            if self.random.random() < 0.1:
                self.produce()
            if self.random.random() < 0.02:
                self.rebalance()
            alive = {thread: job for thread, job in alive.items() if thread in self.scheduler.waiting}
            for job in ("router", "worker"):
                there = list(alive.values()).count(job)
                if there == 0 or (there < 3 and self.random.random() < 0.02):
                    alive[self.spawn(job, self.random.random() < 0.8)] = job
            chosen = self.random.choice(list(alive))
            if self.random.random() < 0.005:
                self.scheduler.kill(chosen)
            self.burst(chosen, self.random.choice([1, 3, 30, 100]))

    def burst(self, thread: threading.Thread, steps: int) -> None:
        for _ in range(steps):
            if thread in self.scheduler.waiting:
                self.scheduler.let(thread)

    def order(self) -> None:
        """New processes with leases do the rest, while paused ones resume now and then."""
        zombies = list(self.scheduler.waiting)
        router, worker = self.spawn("router"), self.spawn("worker")
        while self.idle.get(router) != 1 or self.idle.get(worker) != self.announced.bounds[1]:
            for each in (router, worker):
                assert each in self.scheduler.waiting, "nobody supersedes it"
                self.burst(each, 50)
            if zombies and self.random.random() < 0.5:
                self.burst(self.random.choice(zombies), 20)
        for each in list(self.scheduler.waiting):
            self.burst(each, 100)
            if each in self.scheduler.waiting:
                self.scheduler.kill(each)


@settings(max_examples=examples(3, 60), suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10**6))
def test_whoever_is_alive_every_row_is_the_oracles(seed: int) -> None:
    drawn = random_stream(seed, 100, 25, [WGS84, PLANE][seed % 2])
    objects, queries = (sorted(each, key=lambda one: one.t) for each in (drawn.objects, drawn.queries))
    setup = StreamSettings("s", slots=1 + seed % 3, space=drawn.space, partitions=1 + seed % 2, idle=IDLE)
    setup = replace(setup, epoch_records=[5, 40, 1_000_000][seed % 3], mergers=1 + seed // 3 % 2)
    with tempfile.TemporaryDirectory() as folder:
        crowd = Crowd(Path(folder), Stream(drawn.space, objects, queries), setup, seed)
        crowd.disorder()
        crowd.order()
    expected, refused = answers(objects, queries, drawn.space)
    assert [str(each) for each in check(crowd.rows(), expected, 5)] == []
    assert crowd.refused() == sorted(place for place, _ in refused)
    contents: dict[tuple[int, bytes | None], bytes | None] = {}
    for part, log in enumerate(crowd.results):
        for key, value in log.read(*log.bounds):
            assert contents.setdefault((part, key), value) == value, f"{key!r} has rows that differ"


# ------------------------------------------------------------------------------------------------------- one by one


def leadership(log: Messages, files: Files, number: int, job: str = "router") -> Leadership:
    return Leadership(log, files, job, "epochs/", number)


def record(turn: int) -> str:
    return json.dumps({"turn": turn})


def begun(log: Messages, files: Files, number: int) -> tuple[Leadership, int | None]:
    """A leadership, and the turn of the record from which it continues."""
    new = leadership(log, files, number)
    known = new.begin()
    return new, None if known is None else new.value(known, dict)["turn"]


def test_who_begins_goes_on_from_the_last_decision_that_counts() -> None:
    log, files = Messages(), Files()
    first, known = begun(log, files, 1)
    assert known is None
    first.decide(0, record(0))
    first.decide(1, record(1))
    second, known = begun(log, files, 2)
    assert known == 1
    with pytest.raises(Superseded, match="another router has taken over"):
        first.decide(2, record(2))
    third, known = begun(log, files, 3)
    assert known == 1, "what the first one has decided afterwards does not count"
    with pytest.raises(Superseded):
        second.decide(2, record(2))
    third.decide(2, record(2))
    third.clean(2)
    assert files.list("epochs/") == []


def test_an_older_lease_supersedes_nobody_but_none_at_all_goes_on_under_the_number_that_counts() -> None:
    log, files = Messages(), Files()
    newer, _ = begun(log, files, 7)
    with pytest.raises(Superseded):
        leadership(log, files, 6).begin()
    newer.decide(0, record(0))
    without, known = begun(log, files, 0)
    assert (known, without.leader.number) == (0, 7)
    with pytest.raises(Superseded):
        newer.decide(1, record(1))


def test_each_job_has_leadership_of_its_own() -> None:
    log, files = Messages(), Files()
    router, _ = begun(log, files, 5)
    worker = Leadership(log, files, "worker", "rounds/", 1)
    assert worker.begin() is None
    worker.decide(0, record(0))
    router.decide(0, record(0))


def test_whether_the_last_epoch_was_announced_is_what_the_log_says() -> None:
    log, files = Messages(), Files()
    first, _ = begun(log, files, 1)
    first.decide(0, record(0))
    log.announce(first.sign({"epoch": 0}))
    first.decide(1, record(1))
    second, _ = begun(log, files, 2)
    log.announce(first.sign({"epoch": 1}))
    third, known = begun(log, files, 3)
    assert (second.announced, third.announced, known) == (0, 0, 1)


def test_a_decision_that_took_long_does_not_undo_its_repetition() -> None:
    log, files = Messages(), Files()
    first, _ = begun(log, files, 1)
    log.lost = lambda: True
    with pytest.raises(Unavailable):
        first.decide(0, json.dumps({"turn": "lost"}))
    log.lost = lambda: False
    first.decide(0, record(0))
    log.arrive()
    assert begun(log, files, 2)[1] == 0


def test_records_are_in_the_log_but_the_first_one_and_long_ones() -> None:
    log, files = Messages(), Files()
    first, _ = begun(log, files, 1)
    long = json.dumps({"turn": 3, "much": "x" * 300_000})
    names = [first.decide(turn, long if turn == 3 else record(turn)) for turn in range(6)]
    assert files.list("epochs/") == [names[0], names[3]]
    second, known = begun(log, files, 2)
    assert known == 5
    assert [second.value(name, dict)["turn"] for name in names] == list(range(6))
    second.decide(6, record(6))
    second.clean(4)
    assert files.list("epochs/") == []
    with pytest.raises(StateError, match="epochs/000000003"):
        second.value(names[3], dict)


def taken(by: Leadership, turns: range, needed: int | None = None, much: str = "") -> None:
    """Decide and do turns that each end with a checkpoint."""
    for turn in turns:
        by.decide(turn, json.dumps({"turn": turn} | ({"much": much} if much else {})))
        by.clean(turn, needed)


def test_who_goes_on_from_a_long_record_that_is_the_last_of_a_log_that_was_cut() -> None:
    log, files = Messages(), Files()
    first, _ = begun(log, files, 1)
    worker = Leadership(log, files, "worker", "rounds/", 1)
    worker.begin()
    taken(first, range(4), much="x" * 300_000)
    taken(worker, range(3), len(log.messages))
    taken(first, range(4, 5), much="x" * 300_000)
    worker.decide(3, record(3))
    worker.trim()
    assert log.begin > 0
    assert begun(log, files, 2)[1] == 4


def test_a_log_that_has_lost_its_beginning_and_one_that_has_lost_everything() -> None:
    log, files = Messages(), Files()
    first, _ = begun(log, files, 1)
    first.decide(0, record(0))
    first.decide(1, record(1))
    log.begin = len(log.messages) - 1
    second, known = begun(log, files, 2)
    assert known == 1
    second.decide(2, record(2))
    with pytest.raises(Superseded):
        first.decide(2, record(2))
    second.keep()
    log.begin = len(log.messages)
    assert begun(log, files, 3)[1] == 2, "that which was put into the storage when nothing happened"
    fourth, _ = begun(log, files, 4)
    fourth.decide(3, record(3))
    log.begin = len(log.messages)
    fifth, known = begun(log, files, 5)
    assert known == 2
    fifth.check(2, 2)
    with pytest.raises(StateError, match=r"turn 3 as done, but the last decision in the epochs topic is of turn 2"):
        fifth.check(3, 2)


def test_a_log_is_cut_before_all_that_either_job_needs() -> None:
    log, files = Messages(), Files()
    router, _ = begun(log, files, 1)
    worker = Leadership(log, files, "worker", "rounds/", 1)
    worker.begin()
    taken(router, range(10))
    worker.trim()
    assert log.begin == 0, "the worker may need all of it"
    heard = len(log.messages)
    taken(worker, range(3), heard)
    worker.trim()
    assert 0 < log.begin < heard, "the router needs the last record"
    kept = log.messages[log.begin :]
    assert next(each for each in kept if each and each["job"] == "router").get("begun"), "first it says who leads"
    assert [each["turn"] for each in kept if each and each["job"] == "router" and "turn" in each] == [8, 9]
    assert begun(log, files, 2)[1] == 9
    worker = Leadership(log, files, "worker", "rounds/", 2)
    assert worker.value(worker.begin() or "", dict) == {"turn": 2}


@pytest.mark.parametrize("sleeper", ["announces", "repeats"])
def test_who_wakes_up_after_the_log_was_cut_does_no_harm(sleeper: str) -> None:
    """Both have begun without a lease, under the number of the one before."""
    log, files = Messages(), Files()
    begun(log, files, 7)
    old, _ = begun(log, files, 0)
    taken(old, range(3))
    new, known = begun(log, files, 0)
    assert (known, new.leader.number) == (2, 7)
    at = len(log.messages)
    if sleeper == "announces":
        log.announce(old.sign({"epoch": 5}))
    else:
        with pytest.raises(Superseded):
            old.decide(3, record(3))
    taken(new, range(3, 6))
    for cut in range(at, at + 2):
        log.begin = cut
        third, known = begun(log, files, 0)
        assert (known, third.announced) == (5, -1)
        log.messages.pop()


def test_a_leader_change_that_is_not_kept_is_known_by_what_comes_after_it() -> None:
    def of(number: int, epoch: int) -> dict[str, Any]:
        return {"job": "router", "leadership": f"{number}-{number:08x}", "epoch": epoch}

    known = Leader("router", number=2, leadership=of(2, 0)["leadership"], count=5, record="r", announced=3)
    leader, counting = known.read([of(3, 4), of(2, 5), of(1, 5), of(3, 5)], 9)
    assert counting == [of(3, 4), of(3, 5)], "of the largest number; the older ones have been superseded"
    assert (leader.number, leader.announced, leader.count, leader.offset) == (3, 5, 0, 9)
    decision = {"job": "router", "leadership": of(4, 0)["leadership"], "count": 2, "record": "s"}
    assert leader.after(decision).record == "s"
    assert leader.after({"job": "worker", "leadership": "9-0", "count": 1, "record": "t"}) == leader


def test_what_somebody_has_announced_who_was_never_heard_to_begin_may_not_count() -> None:
    log, files = Messages(), Files()
    log.announce({"job": "router", "leadership": "3-0a1b2c3d", "epoch": 9})
    second, _ = begun(log, files, 0)
    assert (second.leader.number, second.announced) == (3, -1), "it is announced again"


def test_who_is_alone_writes_over_what_was_decided_before() -> None:
    files = Files()
    alone = Alone(files, "epochs/")
    assert alone.begin() is None
    for turn in range(3):
        alone.decide(turn, record(turn))
    alone.clean(1)
    assert files.list("epochs/") == ["epochs/000000001.json", "epochs/000000002.json"]
    assert Alone(files, "epochs/").begin() == "epochs/000000002.json"
    assert alone.value("epochs/000000002.json", dict) == {"turn": 2}
    assert alone.sign({"epoch": 1}) == {"epoch": 1}
