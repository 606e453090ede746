"""Actors and drivers that are killed, suspended and resumed, slow to answer, or without the secret."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from pyarrow import flight

from spatialstream.actors.actor import Actor, ActorSpec, run_actor
from spatialstream.actors.engine import ActorEngine
from spatialstream.actors.query_metrics import none_asked
from spatialstream.actors.wire import CLIENT_OPTIONS, PINGS_SECONDS, ActorLost, Command, act, client_of, options
from spatialstream.connectors.requests import no_requests
from spatialstream.model.errors import RunError, SpatialStreamError
from spatialstream.stream.engine import StageError
from tests.contracts.engines import PROCESSES, TASKS, WITHIN, Processes, TestTasks, Threads, engine_of, until, world
from tests.lengths import AT_LENGTH

SILENCE = 3.0

_LEAST_SECONDS_OF_PINGS = 300
"""Default minimum interval of pings of a gRPC server: ``grpc.http2.min_recv_ping_interval_without_data_ms``."""

WORDS = tuple((str(item),) for item in range(6))
ALL = list(range(6))


class Turns:
    """Turns of an engine in threads beside the test."""

    def __init__(self, engine: ActorEngine, folder: Path) -> None:
        self.engine, self.folder = engine, folder
        self._pool = ThreadPoolExecutor(4)

    def begin(self, do: Callable[..., list[str]], *given: Any) -> Future[list[str]]:
        return self._pool.submit(do, *given)

    def marked(self, name: str) -> int:
        """The process that has written a marker file, once it has."""
        until((self.folder / name).exists)
        return int((self.folder / name).read_text())

    def tasks(self, item: int = 1) -> TestTasks:
        return TestTasks(folder=str(self.folder), words=WORDS, item=item)

    def works(self) -> bool:
        """Whether a turn succeeds; it may take several tries while actors go."""
        for _ in range(20):
            try:
                found = self.engine.map(self.tasks().lines, ALL)
                rows = self.engine.gather(TestTasks().rows_where, ALL, TestTasks().merged_where)
            except ActorLost:
                continue
            return found == [str(item) for item in ALL] and len(rows) == len(ALL) + 1
        return False

    def merger(self) -> int:
        return int(self.engine.gather(TestTasks().rows_where, ALL, TestTasks().merged_where)[-1].split()[1])

    def other(self) -> int:
        """An item whose actor does not merge."""
        *rows, last = self.engine.gather(TestTasks().rows_where, ALL, TestTasks().merged_where)
        merger = last.split()[1]
        return next(int(row.split()[0]) for row in rows if row.split()[1] != merger)


@contextmanager
def turns_of(launcher: Any, folder: Path, heartbeat_timeout: float = SILENCE, **given: Any) -> Iterator[Turns]:
    with engine_of(launcher, heartbeat_timeout, **given) as engine:
        yield Turns(engine, folder)


def lives(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def threads_of(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


# --------------------------------------------------------------------------------------------------------------- actors


def test_an_actor_that_is_killed_while_it_works_fails_the_turn_and_another_comes(tmp_path: Path) -> None:
    launcher = Processes(3)
    with turns_of(launcher, tmp_path) as turns:
        turn = turns.begin(turns.engine.map, turns.tasks().wait, ALL)
        os.kill(turns.marked("waiting-1"), signal.SIGKILL)
        with pytest.raises(ActorLost):
            turn.result()
        assert turns.works()
        until(lambda: len(turns.engine.observed()) == 3)
        assert turns.works()


@pytest.mark.parametrize("who", ["who streams", "who merges"])
def test_a_process_that_is_killed_amid_rows_fails_the_turn(tmp_path: Path, who: str) -> None:
    with turns_of(Processes(3), tmp_path) as turns:
        item = turns.other()
        turn = turns.begin(turns.engine.gather, turns.tasks(item).flow, ALL, turns.tasks().count)
        streaming, merging = turns.marked(f"flowing-{item}"), turns.marked("merging")
        os.kill(streaming if who == "who streams" else merging, signal.SIGKILL)
        with pytest.raises(ActorLost):
            turn.result()
        assert turns.works()
        until(lambda: len(turns.engine.observed()) == 3)
        assert turns.works()


def test_an_actor_that_stands_still_is_lost_and_ends_when_it_goes_on(tmp_path: Path) -> None:
    launcher = Processes(3)
    with turns_of(launcher, tmp_path) as turns:
        turn = turns.begin(turns.engine.map, turns.tasks().wait, ALL)
        pid = turns.marked("waiting-1")
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(ActorLost):
            turn.result()
        assert turns.works()  # while it is stopped
        (tmp_path / "go").touch()  # so it would have an answer at once
        os.kill(pid, signal.SIGCONT)
        until(lambda: [process.exitcode for process in launcher.ended if process.pid == pid] == [3])
        until(lambda: len(turns.engine.observed()) == 3)
        assert turns.works()


def test_a_merge_that_stands_still_holds_nobody_up(tmp_path: Path) -> None:
    with turns_of(Processes(3), tmp_path) as turns:
        item = turns.other()
        turn = turns.begin(turns.engine.gather, turns.tasks(item).flow, ALL, turns.tasks().count)
        turns.marked(f"flowing-{item}")
        pid = turns.marked("merging")
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(ActorLost):
            turn.result()
        assert turns.works()  # though an actor has a stream to it that nobody reads
        assert turns.marked(f"over-{item}")
        os.kill(pid, signal.SIGCONT)
        until(lambda: len(turns.engine.observed()) == 3)
        assert turns.works()


def test_an_actor_that_stands_still_for_a_while_goes_on(tmp_path: Path) -> None:
    with turns_of(Processes(2), tmp_path, 20.0) as turns:
        turn = turns.begin(turns.engine.map, turns.tasks().wait, ALL)
        pid = turns.marked("waiting-1")
        os.kill(pid, signal.SIGSTOP)
        (tmp_path / "go").touch()
        threading.Event().wait(2.0)  # two heartbeats do not come
        os.kill(pid, signal.SIGCONT)
        assert turn.result()[-5:] == [str(item) for item in ALL[1:]]
        assert pid in [actor.pid for actor in turns.engine.observed()]


def test_what_is_broken_off_ends_and_its_answer_has_no_effect(tmp_path: Path) -> None:
    with turns_of(Processes(2), tmp_path) as turns:
        turn = turns.begin(turns.engine.map, turns.tasks().wait, ALL)
        turns.marked("waiting-1")
        turns.engine.cancel()
        with pytest.raises(RunError, match="turn was cancelled"):
            turn.result()
        assert turns.works()
        assert turns.marked("over-1")
        assert not (tmp_path / "go").exists()


def test_actors_tell_how_much_memory_they_have(tmp_path: Path) -> None:
    with turns_of(Processes(2), tmp_path) as turns:
        assert turns.works()
        assert turns.engine.memory().keys() == {0, 1}
        assert min(turns.engine.memory().values()) > 10_000_000


# ---------------------------------------------------------------------------------------------------------- long turns


def seconds_of(begun: float) -> float:
    return time.monotonic() - begun


@pytest.mark.parametrize("how", ["pieces", "lines", "rows"])
def test_a_turn_may_take_many_times_as_long_as_any_limit_if_it_gets_on(tmp_path: Path, how: str) -> None:
    told: list[str] = []
    with turns_of(Processes(2), tmp_path, 1.0, stall=1.0, report=told.append) as turns:
        begun, tasks = time.monotonic(), turns.tasks(turns.other())
        if how == "rows":
            turn = turns.begin(turns.engine.gather, tasks.flow, ALL, tasks.count)
        else:
            turn = turns.begin(turns.engine.map, tasks.piecewise if how == "pieces" else tasks.wait, ALL)
        until(lambda: seconds_of(begun) > 8.0)
        assert not turn.done()
        (tmp_path / "go").touch()
        turn.result(WITHIN)
        assert len(turns.engine.observed()) == 2


@pytest.mark.parametrize("how", ["map", "errands", "gather", "merge"])
def test_a_turn_that_does_not_get_on_is_given_up_and_others_come(tmp_path: Path, how: str) -> None:
    launcher = Processes(2)
    with turns_of(launcher, tmp_path, stall=1.0) as turns:
        item = turns.other()
        before, tasks = {actor.pid for actor in turns.engine.observed()}, turns.tasks(item)
        calls = {
            "map": lambda: turns.engine.map(tasks.block, ALL),
            "errands": lambda: turns.engine.map(tasks.block, ALL, anywhere=True),
            "gather": lambda: turns.engine.gather(tasks.block_rows, ALL, tasks.count),
            "merge": lambda: turns.engine.gather(tasks.flow, ALL, tasks.stall),
        }
        with pytest.raises(ActorLost, match="no task of a turn was completed in 1 s by actor"):
            turns.begin(calls[how]).result(WITHIN)
        assert turns.works()
        stuck = turns.marked("merging" if how == "merge" else f"waiting-{item}")
        assert stuck in before
        until(lambda: stuck in [process.pid for process in launcher.ended])


def test_it_is_told_now_and_then_how_far_a_long_turn_is(tmp_path: Path) -> None:
    told: list[str] = []
    with turns_of(Threads(1), tmp_path, report=told.append, progress=0.2) as turns:
        turn = turns.begin(turns.engine.map, turns.tasks().piecewise, ALL)
        until(lambda: len(told) > 1)
        assert all(re.fullmatch(r"still at work after \d+ s, pieces .*: \d+ by actor 0", line) for line in told)
        (tmp_path / "go").touch()
        turn.result(WITHIN)


def test_what_is_given_up_ends_with_the_piece_that_it_is_at(tmp_path: Path) -> None:
    with turns_of(Processes(2), tmp_path) as turns:
        turn = turns.begin(turns.engine.map, turns.tasks().piecewise, ALL)
        turns.marked("waiting-1")
        turns.engine.cancel()
        with pytest.raises(RunError, match="turn was cancelled"):
            turn.result()
        assert turns.works()
        assert not (tmp_path / "over-1").exists()


def test_clients_do_not_ping_more_often_than_servers_take_it() -> None:
    given = dict(CLIENT_OPTIONS)
    assert given["grpc.keepalive_time_ms"] == 1_000 * PINGS_SECONDS > 1_000 * _LEAST_SECONDS_OF_PINGS
    assert not [name for name in given if "ping" in name and name != "grpc.http2.max_pings_without_data"]


@pytest.mark.skipif(not AT_LENGTH, reason="at length: with every change what is agreed on is compared")
@pytest.mark.timeout(1_200)
def test_a_call_on_which_nothing_comes_for_a_quarter_of_an_hour_is_answered(actor: Actor, tmp_path: Path) -> None:
    actor.heard += 2_000.0  # it hears no driver
    command = Command.of(TestTasks(folder=str(tmp_path), item=1).block, [1], 5)
    with ThreadPoolExecutor() as pool:
        call = pool.submit(lambda: act(client_of(actor.address), "map", command.to_json(), options("known")))
        with pytest.raises(TimeoutError):
            call.result(900.0)
        (tmp_path / "go").touch()
        assert call.result(WITHIN) == [["1"]]


def test_all_actors_killed_at_once(tmp_path: Path) -> None:
    launcher = Processes(3)
    with turns_of(launcher, tmp_path) as turns:
        for _ in range(2):
            assert turns.works()
            for process in list(launcher.running.values()):
                process.kill()
            assert turns.works()


def test_actors_that_do_not_come_again_are_told_by_who_starts_them(tmp_path: Path) -> None:
    launcher = Processes(1, again=False)
    with turns_of(launcher, tmp_path) as turns:
        assert turns.works()
        launcher.running[0].kill()
        with pytest.raises(RunError, match="lost all actors"):
            assert turns.works()


def test_who_waits_for_actors_can_be_broken_off(tmp_path: Path) -> None:
    with turns_of(Processes(0), tmp_path) as turns:
        turn = turns.begin(turns.engine.map, turns.tasks().lines, ALL)
        with pytest.raises(TimeoutError):
            turn.result(0.3)
        turns.engine.cancel()
        with pytest.raises(RunError, match="turn was cancelled"):
            turn.result()


def test_the_first_turn_waits_for_as_many_actors_as_there_are_to_be_but_not_for_ever(tmp_path: Path) -> None:
    with turns_of(Threads(4), tmp_path) as turns:
        assert turns.works()
        assert len(set(turns.engine.slots().values())) == 4
    launcher = Threads(2)
    launcher.count = 2
    begin = launcher.begin

    def fewer(spec: ActorSpec) -> None:
        begin(spec)
        launcher.count = 50

    launcher.begin = fewer  # type: ignore[method-assign]
    with turns_of(launcher, tmp_path) as turns:
        assert turns.works()


# ------------------------------------------------------------------------------------------------------------- failing


def test_a_hundred_turns_that_fail_leave_nothing_behind(tmp_path: Path) -> None:
    launcher = Processes(3)
    with turns_of(launcher, tmp_path) as turns:
        sizes = tuple((1 << 20,) * 10 for _ in ALL)
        tasks = [
            TestTasks(sizes=sizes, item=-1, raises="ValueError", at=3),  # the merge raises, and others stream
            TestTasks(sizes=sizes, item=turns.other(), raises="StateError", arguments=("x",), at=5),
            TestTasks(sizes=sizes, item=0, raises="MemoryError", at=0),
        ]

        def fail() -> None:
            for each in tasks:
                with pytest.raises((StageError, SpatialStreamError, MemoryError)):
                    turns.engine.gather(each.give, ALL, each.sums)

        def count() -> int:
            return threads_of(os.getpid()) + sum(threads_of(actor.pid) for actor in turns.engine.observed())

        for _ in range(10):
            fail()
        before = count()
        for _ in range(30):
            fail()
        assert turns.works()
        until(lambda: count() <= before + 12)  # those of gRPC come and go
        assert {actor.name for actor in turns.engine.observed()} == set(turns.engine.slots().values())


# -------------------------------------------------------------------------------------------------------------- driver


def _drive(folder: str) -> None:
    """A driver that does turns, and reports its actors and the number of turns done."""
    launcher, done = Processes(2), 0
    with engine_of(launcher, SILENCE) as engine:
        while not Path(folder, "stop").exists():
            try:
                engine.map(TestTasks(words=WORDS).lines, ALL)
            except ActorLost:
                continue
            done += 1
            told = Path(folder, "told.new")
            told.write_text(json.dumps({"done": done, "pids": [actor.pid for actor in engine.observed()]}))
            told.rename(Path(folder, "told"))


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Any]:
    process = PROCESSES.Process(target=_drive, args=(str(tmp_path),))
    process.start()
    until((tmp_path / "told").exists)
    yield process
    (tmp_path / "stop").touch()
    process.join(30)
    assert not process.is_alive()


def _told(folder: Path) -> tuple[int, list[int]]:
    given = json.loads((folder / "told").read_text())
    return given["done"], given["pids"]


def test_actors_end_when_their_driver_is_gone(tmp_path: Path, driver: Any) -> None:
    _, pids = _told(tmp_path)
    assert len(pids) == 2
    driver.kill()
    driver.join()
    until(lambda: not any(map(lives, pids)))


def test_a_driver_that_stands_still_for_too_long_gets_other_actors(tmp_path: Path, driver: Any) -> None:
    _, before = _told(tmp_path)
    os.kill(driver.pid, signal.SIGSTOP)
    until(lambda: not any(map(lives, before)))
    done, _ = _told(tmp_path)
    os.kill(driver.pid, signal.SIGCONT)
    until(lambda: _told(tmp_path)[0] > done + 10)
    until(lambda: len(_told(tmp_path)[1]) == 2 and not set(before) & set(_told(tmp_path)[1]))


def test_a_driver_that_ends_while_a_turn_is_under_way_leaves_no_actor(tmp_path: Path) -> None:
    launcher = Processes(2)
    with turns_of(launcher, tmp_path) as turns:
        turn = turns.begin(turns.engine.map, turns.tasks().wait, ALL)
        turns.marked("waiting-1")
    with pytest.raises((RunError, ActorLost)):
        turn.result()
    assert not [process for process in launcher.running.values() if process.is_alive()]
    assert {process.exitcode for process in [*launcher.running.values(), *launcher.ended]} == {0}


def test_an_actor_that_comes_when_all_is_over_ends(tmp_path: Path) -> None:
    late: list[ActorSpec] = []
    launcher = Threads(1)
    begin = launcher.begin
    launcher.begin = lambda spec: (late.append(spec), begin(spec))[1]  # type: ignore[method-assign]
    with turns_of(launcher, tmp_path) as turns:
        assert turns.works()
        turns.engine._registry.close()
        run_actor(late[0], 1)  # returns, instead of asking for ever
        assert len(turns.engine.observed()) == 1


# ------------------------------------------------------------------------------------------------- one actor by itself


@pytest.fixture
def actor() -> Iterator[Actor]:
    made = Actor(ActorSpec("127.0.0.1:1", "known", world(), "asks", 60.0, tasks=TASKS), "127.0.0.1")
    yield made
    threading.Thread(target=made.shutdown, daemon=True).start()


def ask(actor: Actor, command: Command, secret: str = "known") -> Any:
    return act(client_of(actor.address), "map", command.to_json(), options(secret, 30.0))


def test_a_command_of_yesterday_is_refused_and_a_newer_one_breaks_off_an_older_one(
    actor: Actor, tmp_path: Path
) -> None:
    tasks = TestTasks(folder=str(tmp_path), words=WORDS, item=1)
    with ThreadPoolExecutor() as pool:
        older = pool.submit(ask, actor, Command.of(tasks.wait, [1], 5))
        until((tmp_path / "waiting-1").exists)
        assert ask(actor, Command.of(tasks.lines, [2, 3], 6)) == [["2"], ["3"]]
        with pytest.raises(ActorLost, match="was abandoned"):
            older.result()
    with pytest.raises(ActorLost, match="was abandoned"):
        ask(actor, Command.of(tasks.lines, [2], 5))
    assert ask(actor, Command.of(tasks.lines, [2], 6)) == [["2"]]


def test_a_stream_that_nobody_reads_stands_in_nobodys_way(actor: Actor, tmp_path: Path) -> None:
    tasks, client = TestTasks(folder=str(tmp_path), words=WORDS, item=1), client_of(actor.address)
    reader = client.do_get(flight.Ticket(Command.of(tasks.flow, [1], 5).to_json()), options("known"))
    reader.read_chunk()
    until((tmp_path / "flowing-1").exists)
    assert ask(actor, Command.of(tasks.lines, [2], 5)) == [["2"]]  # of the same try
    assert not (tmp_path / "over-1").exists()
    assert ask(actor, Command.of(tasks.lines, [2], 6)) == [["2"]]  # of another one, for which the older ends first
    assert (tmp_path / "over-1").exists()
    reader.cancel()


def test_an_actor_that_was_silent_for_too_long_does_nothing_more(actor: Actor) -> None:
    actor.heard -= 100.0
    with pytest.raises(ActorLost, match="silent"):
        ask(actor, Command.of(TestTasks(words=WORDS).lines, [2], 1))


def test_an_actor_that_has_been_told_to_end_does_nothing_more(actor: Actor) -> None:
    act(client_of(actor.address), "end", b"null", options("known"))
    assert actor.ended.is_set()
    with pytest.raises(ActorLost):
        ask(actor, Command.of(TestTasks(words=WORDS).lines, [2], 10**9))


def test_work_is_counted_for_each_item_however_it_ends(actor: Actor) -> None:
    tasks = TestTasks(item=20)
    assert ask(actor, Command.of(tasks.spend, [5, 10], 1)) == [["5"], ["10"]]
    with pytest.raises(StageError, match="ValueError: spent"):
        ask(actor, Command.of(tasks.spend, [20, 30], 1))
    assert {item: round(seconds, 1) for item, seconds in actor.worked.items()} == {5: 0.1, 10: 0.1, 20: 0.2}


# ----------------------------------------------------------------------------------------------------------- strangers


@pytest.mark.parametrize("secret", ["", "other", "knownn", None, "asks"])
def test_strangers_are_not_let_in(actor: Actor, secret: str | None) -> None:
    command, client = Command.of(TestTasks(words=WORDS).lines, [2], 1), client_of(actor.address)
    how = flight.FlightCallOptions() if secret is None else options(secret)
    kinds = flight.FlightUnauthenticatedError, flight.FlightUnauthorizedError
    for action in ("map", "gather", "find"):
        with pytest.raises(kinds):
            list(client.do_action(flight.Action(action, command.to_json()), how))
    with pytest.raises(kinds):
        client.do_get(flight.Ticket(command.to_json()), how).read_all()
    with pytest.raises((*kinds, NotImplementedError)):
        list(client.list_flights(b"", how))
    assert not actor.worked


def test_two_drivers_have_nothing_to_do_with_each_other(tmp_path: Path) -> None:
    launcher = Processes(2)
    with turns_of(launcher, tmp_path) as one, turns_of(Processes(2), tmp_path) as two:
        assert one.works()
        assert two.works()
        for theirs in two.engine.observed():
            for address in (theirs.address, two.engine.query_endpoint["address"]):
                with pytest.raises(ActorLost, match="secret of this stream"):
                    act(client_of(address), "end", b"null", options(launcher.spec.secret))
        assert one.works()
        assert two.works()
        assert len(two.engine.observed()) == 2


def _noise(draw: random.Random) -> bytes:
    command = json.loads(Command.of(TestTasks(words=WORDS).lines, [1], draw.randrange(3)).to_json())
    about = {"name": "x", "number": 7, "address": "nowhere", "executor": "0", "pid": 1, "known": False}
    counts = {"asked": none_asked().tolist(), "requests": no_requests().tolist(), "progress": 1, "memory": 1}
    heartbeat = {**about, "worked": {}, **counts}
    values: list[Any] = [None, -1, 1e300, "x", [], {}, [[]], {"a": 1}, True, "\ud800", "_mark", "__class__", "folder"]
    asked = {"id": "q", "type": "SRQ", "t": 1, "region": {"box": [0, 0, 1, 1]}, "duration": 1}
    find = {"round": [0, 0], "wanted": draw.choice([[[0, asked, 0, [0, 1], True]], [[0, asked]], 7])}
    ask = {"asked": draw.choice([[asked], asked, [7]]), "seconds": 1.0}
    for given in (command, heartbeat, asked, find, ask):
        for _ in range(draw.randrange(3)):
            name = draw.choice(list(given))
            if draw.random() < 0.3:
                del given[name]
            else:
                given[name] = draw.choice(values)
            if not given:
                break
    whole: Any = {"merge": command, "sources": draw.choice([[], [["nowhere:1", command]], 5]), "actors": []}
    text = json.dumps(draw.choice([command, heartbeat, whole, find, ask, *values])).encode()
    cut = draw.randrange(len(text) + 1)
    return draw.choice([text, text[:cut], text[:cut] + draw.randbytes(5) + text[cut:], draw.randbytes(50), b""])


def test_no_message_ends_a_process(tmp_path: Path) -> None:
    draw = random.Random(1)
    launcher = Processes(1)
    with turns_of(launcher, tmp_path) as turns:
        assert turns.works()
        before = turns.engine.observed()
        how = options(launcher.spec.secret, 20.0)
        clients = [client_of(before[0].address), client_of(turns.engine.query_endpoint["address"])]
        known = flight.FlightError, OSError, ValueError, KeyError, NotImplementedError, StopIteration
        for _ in range(500):
            for client in clients:
                with suppress(*known):
                    name = draw.choice(
                        ["map", "gather", "find", "ask", "listed", "heartbeat", "hell", "", "read_point"]
                    )
                    list(client.do_action(flight.Action(name, _noise(draw)), how))
                with suppress(*known):
                    client.do_get(flight.Ticket(_noise(draw)), how).read_all()
        turns.engine.cancel()
        assert turns.works()
        assert lives(before[0].pid)
