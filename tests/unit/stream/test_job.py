"""The jobs of a stream, without Spark and without a broker: failing turns, what is read, and how jobs end."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.connectors.delivery import Deduplicator
from spatialstream.connectors.memory import MemoryChannel, MemoryLog, MemorySink, MemorySource
from spatialstream.connectors.memory_storage import MemoryStorage
from spatialstream.index.version import build
from spatialstream.model.errors import RunError, StateError
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.space import WGS84
from spatialstream.oracle import answers, check
from spatialstream.stages import views
from spatialstream.stages.ingest import CLOCK, watermark
from spatialstream.stages.quarantine import QuarantinedRecord
from spatialstream.stages.tasks import World
from spatialstream.stages.turns import Round
from spatialstream.store.memory import MemoryStore
from spatialstream.store.reports import Trouble, read_trouble, read_unknown, save_trouble
from spatialstream.stream.driver import news
from spatialstream.stream.engine import Inline, StageError
from spatialstream.stream.job import Job, RouterJob, WorkerJob
from spatialstream.stream.settings import StreamSettings
from tests.streams import object_record, query_record, random_stream


class Lost(Inline):
    """An engine that can be lost."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.lost, self.cancelled = False, False

    def check(self) -> None:
        if self.lost:
            raise RunError("lost Spark: its process or its context has ended")

    def cancel(self) -> None:
        self.cancelled = True


class Given:
    """Attributes that every job has."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.states: list[bool] = []
        self.results, self.dead = MemoryLog(), MemoryLog()
        settings = StreamSettings("s", slots=2, idle=10**12, epoch_records=40)
        channel = MemoryChannel([MemoryLog() for _ in range(settings.slots)], MemoryLog())
        source = MemorySource(["objects/0", "objects/1", "queries/0"])
        world = settings.world(MemoryStorage(), channel, MemorySink([self.results], self.dead), source=source)
        self.engine = Lost(world)
        self.arguments: dict[str, Any] = {
            "engine": self.engine,
            "store": MemoryStore(),
            "settings": settings,
            "report": self.said.append,
            "running": self.states.append,
            "warm_up": 0.0,
        }


@dataclass(slots=True)
class Turns(Job):
    """A job with given turns: True, False, or an error to be raised; after the last one it is stopped."""

    turns: list[bool | Exception] = field(default_factory=list)
    warm: Callable[[], object] = lambda: None
    rests: list[float] = field(default_factory=list)
    forgotten: int = 0
    narrowed: int = 0
    broken_narrowing: Exception | None = None
    found: list[Sequence[QuarantinedRecord]] = field(default_factory=list)
    begun: list[bool] = field(default_factory=list)
    broken: Exception | None = None
    attended: threading.Event = field(default_factory=threading.Event)

    name = "job"

    def prepare(self) -> None:
        self.begun.append(True)

    def idle_turn(self) -> None:
        self.warm()

    def _rest(self, seconds: float) -> None:
        self.rests.append(seconds)

    def turn(self) -> bool:
        if self.broken is not None:
            assert self.attended.wait(60.0)
        outcome = self.turns.pop(0)
        if not self.turns:
            self.stop()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def bisect(self) -> Sequence[QuarantinedRecord]:
        self.narrowed += 1
        if self.broken_narrowing is not None:
            raise self.broken_narrowing
        return self.found.pop(0) if self.found else ()

    def write_less(self) -> None:
        pass

    def forget(self) -> None:
        self.forgotten += 1

    def beside(self) -> None:
        self.attended.set()
        if self.broken is not None:
            raise self.broken


@pytest.fixture
def given_() -> Given:
    return Given()


def test_turns_follow_one_another_until_the_job_is_stopped(given_: Given) -> None:
    job = Turns(**given_.arguments, turns=[True, False, True])
    job.run()
    assert job.turns == []
    assert given_.states == [True, False]
    assert given_.said == ["job: running"]


def test_a_turn_that_fails_is_tried_again(given_: Given) -> None:
    job = Turns(**given_.arguments, turns=[True, OSError("no space\nleft"), StateError("strange"), True, True])
    job.run()
    assert given_.said == ["job: running", "job: left; trying again", "job: strange; trying again in 2 s"]
    assert job.rests == [0, 0, 2, 0, 0]  # after a turn that has succeeded there is no pause here
    assert given_.states == [True, False, False, True, False]
    assert job.forgotten == 3  # after each failure, and at the end


def test_rests_after_failures_grow(given_: Given) -> None:
    job = Turns(**given_.arguments, turns=[*(StateError(f"failure {i}") for i in range(8)), True])
    job.run()
    assert job.rests == [0, 2, 4, 8, 16, 30, 30, 30, 0]


def test_a_job_gives_up_after_many_failures_in_a_row(given_: Given) -> None:
    failures: list[bool | Exception] = [StateError(f"failure {i}") for i in range(3)]
    job = Turns(**given_.arguments, patience=2, turns=[*failures[:2], True, *failures, True])
    with pytest.raises(RunError, match="failed 3 times in a row: failure 2"):
        job.run()
    assert job.turns == [True]


def fault(text: str, task: int = 7) -> Exception:
    """An engine's error for a stage's own exception."""
    return StageError(f"Job aborted: Lost task 0.0 (TID {task})\n  ...\nValueError: {text}")


LEFT = QuarantinedRecord("object", 7, "the letter")


def test_a_turn_that_fails_twice_of_the_same_exception_is_narrowed_down(given_: Given) -> None:
    job = Turns(**given_.arguments, turns=[fault("a", 1), fault("a", 2), fault("b", 3), fault("b", 4), True, True])
    job.found = [[LEFT], [LEFT, LEFT]]
    job.run()
    assert job.narrowed == 2
    assert given_.said == [
        "job: running",
        "job: ValueError: a; trying again",
        "job: looking for the records that cause this",
        "job: quarantined: the letter",
        "job: ValueError: b; trying again",
        "job: looking for the records that cause this",
        "job: quarantined: the letter",
        "job: quarantined: the letter",
    ]
    assert given_.states == [True, False, False, False, False, True, False]


def test_a_turn_for_which_no_record_is_to_blame_is_narrowed_down_once(given_: Given) -> None:
    job = Turns(**given_.arguments, patience=4, turns=[fault("a", i) for i in range(5)] + [True])
    with pytest.raises(RunError, match="failed 5 times in a row: ValueError: a"):
        job.run()
    assert job.narrowed == 1
    assert "job: no single record, and no two or three together, cause this" in given_.said


@pytest.mark.parametrize(
    "turns",
    [[fault("a"), fault("b"), True], [OSError("disk"), OSError("disk"), True], [fault("a"), True, fault("a"), True]],
    ids=["different causes", "no stage's exception", "not in a row"],
)
def test_other_failures_are_not_narrowed_down(given_: Given, turns: list[bool | Exception]) -> None:
    job = Turns(**given_.arguments, turns=[*turns, True])
    job.run()
    assert job.narrowed == 0


def test_a_narrowing_that_fails_is_told_and_the_turn_is_tried_again(given_: Given) -> None:
    job = Turns(**given_.arguments, turns=[fault("a"), fault("a"), True, True])
    job.broken_narrowing = OSError("no space left")
    job.run()
    assert "job: none found: no space left" in given_.said
    assert job.turns == []


@dataclass(slots=True)
class Idle(Turns):
    """A job that has nothing to do."""

    def turn(self) -> bool:
        assert self._stopping.wait(60.0)
        return False


def test_a_job_that_has_lost_its_engine_ends_at_the_first_failure(given_: Given) -> None:
    turns: list[bool | Exception] = [True, ConnectionRefusedError(111, "Connection refused"), True]
    given_.engine.lost = True
    job = Turns(**given_.arguments, turns=turns, attend_every=60.0)
    with pytest.raises(RunError, match="the job has lost Spark"):
        job.run()
    assert job.turns == [True]
    assert given_.states == [True, False, False]
    assert given_.said == ["job: running"]


def test_a_job_without_a_turn_to_do_notices_too(given_: Given) -> None:
    given_.engine.lost = True
    with pytest.raises(RunError, match="has lost Spark"):
        Idle(**given_.arguments).run()


def test_samples_from_which_nothing_can_be_learnt_are_dropped(given_: Given) -> None:
    storage, store = given_.engine.world.storage, given_.arguments["store"]
    storage.put("samples/000000001-objects.arrow", b"no samples")
    store.create(build(WGS84, ObjectBatch.of([]), QueryBatch.of([]), 1, 2))
    job = RouterJob(**given_.arguments)
    job.prepare()
    job.beside()
    assert storage.list("samples/") == []
    assert given_.said[0].startswith("router: samples of the last epochs are dropped")


def test_messages_that_are_passed_over_are_counted_at_once_and_told_now_and_then(given_: Given) -> None:
    counted: list[int] = []
    now = 100.0
    job = WorkerJob(**given_.arguments, foreign=counted.append, clock=lambda: now)
    job.prepare()

    def passing_over(count: int) -> None:
        assert job.turns is not None
        job.turns.foreign = count
        assert not job.turn()

    for count in (0, 3, 4, 5):
        passing_over(count)
    assert counted == [3, 4, 5]
    now += 11.0
    passing_over(0)
    passing_over(0)
    assert [text.split(" among ")[0] for text in given_.said] == ["worker: 3 messages", "worker: 9 messages"]


def test_what_fails_beside_the_turns_ends_the_job(given_: Given) -> None:
    job = Turns(**given_.arguments, turns=[True] * 1000, broken=ValueError("odd"))
    with pytest.raises(RunError, match="the job has failed: odd"):
        job.run()


# ------------------------------------------------------------------------------------------------------------- warm-up


def warming(given_: Given, warm: Callable[[], object], **more: Any) -> Turns:
    """A job with a warm-up and two turns."""
    return Turns(**(given_.arguments | {"warm_up": 60.0} | more), turns=[True, True], warm=warm)


def test_a_job_is_warm_before_it_says_that_it_is_running(given_: Given) -> None:
    seen: list[list[bool]] = []
    job = warming(given_, lambda: seen.append(list(given_.states)))
    job.run()
    assert seen == [[]]
    assert given_.states == [True, False]
    warming_up, warm, running = given_.said
    assert (warming_up, warm[:15], running) == ("job: warming up", "job: warm after", "job: running")
    assert not given_.engine.cancelled


def test_a_job_that_is_stopped_while_it_warms_up_has_not_been_running(given_: Given) -> None:
    over = threading.Event()
    job = warming(given_, lambda: (job.stop(), over.wait(60.0)))
    job.run()
    over.set()
    assert given_.states == [False]
    assert given_.said == ["job: warming up"]
    assert given_.engine.cancelled
    assert job.turns == [True, True]


def test_a_warm_up_that_fails_is_told_and_the_job_runs(given_: Given) -> None:
    def fail() -> None:
        raise OSError("no broker")

    job = warming(given_, fail)
    job.run()
    assert given_.states == [True, False]
    assert given_.said[1:] == [
        "job: the warm-up has failed, so the first results may be late: no broker",
        "job: running",
    ]
    assert job.turns == []


def test_a_job_whose_broker_is_away_from_the_start_does_not_say_that_it_runs(given_: Given) -> None:
    def fail() -> None:
        raise OSError("no broker")

    job = Turns(**(given_.arguments | {"warm_up": 60.0}), turns=[OSError("no broker")] * 3 + [True], warm=fail)
    job.run()
    assert given_.states == [False, False, False, True, False]
    assert given_.said[-1] == "job: running"


@pytest.mark.parametrize("end", [True, OSError("no topic")])
def test_why_turns_fail_is_left_in_the_routing_store_until_one_succeeds(given_: Given, end: bool | Exception) -> None:
    store, told, looks = given_.arguments["store"], list[Trouble](), threading.Semaphore(0)

    class Told(Turns):
        name = "router"

        def turn(self) -> bool:
            while looks.acquire(blocking=False):
                pass
            for _ in range(2):  # the first may have begun before
                assert looks.acquire(timeout=60.0)
            told.append(read_trouble(store, "router"))
            return Turns.turn(self)

    save_trouble(store, "router", Trouble("left by another", 1, 2))
    turns: list[bool | Exception] = [OSError("no topic"), OSError("no topic"), OSError("another"), end, True]
    Told(**given_.arguments, turns=turns, attend_every=0.001, follow=looks.release).run()

    texts = [each.text for each in told]
    assert texts == ["left by another", "left by another", "no topic", "another", "" if end is True else "no topic"]
    assert all(each.since <= each.at for each in told)


def test_missing_topics_are_left_in_the_routing_store_though_turns_succeed(given_: Given) -> None:
    store, texts = given_.arguments["store"], ["", "no topic a", "no topic a", "no topic b", "", ""]
    told, now = list[Trouble](), iter(range(0, 10**9, 100))  # every look is due
    looks, turns = threading.Semaphore(0), threading.Semaphore(0)  # one after the other, so that no text is missed

    class Told(Turns):
        name = "router"

        def turn(self) -> bool:
            assert looks.acquire(timeout=60.0)
            trouble = read_trouble(store, "router")
            if [trouble.text] != [each.text for each in told[-1:]]:
                told.append(trouble)
            turns.release()
            return Turns.turn(self)

    def missing() -> str:
        if not texts:
            return ""
        assert turns.acquire(timeout=60.0)
        return texts.pop(0)

    job = Told(
        **given_.arguments,
        turns=[True] * 40,
        attend_every=0.001,
        follow=looks.release,
        missing=missing,
        clock=lambda: float(next(now)),
    )
    job.run()
    assert [each.text for each in told] == ["", "no topic a", "no topic b", ""]
    assert 0 < told[1].since == told[2].since <= told[2].at
    said = [each for each in given_.said if "topic" in each]
    assert said == ["router: no topic a", "router: no topic b", "router: the broker has all topics of the stream again"]


def test_a_topic_that_is_there_again_without_its_messages_ends_the_job(given_: Given) -> None:
    def missing() -> str:
        raise StateError("a was deleted, and is there again")

    job = Idle(**given_.arguments, turns=[False] * 10**6, missing=missing)
    with pytest.raises(RunError, match="the job has failed: a was deleted, and is there again"):
        job.run()


def test_a_warm_up_that_takes_too_long_is_broken_off_and_the_job_runs(given_: Given) -> None:
    over = threading.Event()
    job = warming(given_, lambda: over.wait(60.0), warm_up=0.01)
    job.run()
    over.set()
    assert given_.states == [True, False]
    assert given_.said[1:] == ["job: not warm after 0.01 s, so the first results may be late", "job: running"]
    assert given_.engine.cancelled
    assert job.turns == []


# ------------------------------------------------------------------------------------------------------- what is read


@given(st.dictionaries(st.text(max_size=3), st.tuples(st.integers(0, 99), st.integers(1, 99)), max_size=9), st.data())
def test_ranges_are_cut_in_proportion(spans: dict[str, tuple[int, int]], data: st.DataObject) -> None:
    whole = {name: (start, start + size) for name, (start, size) in spans.items()}
    most = data.draw(st.integers(1, 300))
    cut = news(whole, {}, most)
    assert cut.keys() == whole.keys()
    assert sum(end - start for start, end in cut.values()) <= max(most, len(whole))
    for name, (start, end) in whole.items():
        assert cut[name][0] == start < cut[name][1] <= end


def test_an_epoch_begins_where_the_one_before_ended_and_a_new_partition_with_its_oldest_message() -> None:
    bounds = {"objects/0": (5, 9), "objects/1": (2, 4), "queries/0": (7, 8)}
    assert news(bounds, {}, 99) == bounds
    assert news(bounds, {"objects/0": 9, "queries/0": 7}, 99) == {"objects/1": (2, 4), "queries/0": (7, 8)}


def test_a_partition_that_was_made_anew_is_noticed() -> None:
    with pytest.raises(StateError, match=r"objects/0 ends at offset 3, but has been read up to 9"):
        news({"objects/0": (0, 3)}, {"objects/0": 9}, 99)


# --------------------------------------------------------------------------------------------------------------- whole


def test_both_jobs_answer_a_stream(given_: Given) -> None:
    stream = random_stream(3, 200, 8, WGS84)
    objects, queries = (sorted(each, key=lambda each: each.t) for each in (stream.objects, stream.queries))
    source = given_.engine.world.source
    for i, each in enumerate(objects):
        record = json.dumps(object_record(each, WGS84) | ({"size": 1} if i % 3 == 0 else {})).encode()
        source.logs[f"objects/{i % 2}"].append((None, record))
    source.logs["queries/0"].append(*((None, json.dumps(query_record(each)).encode()) for each in queries))
    end = max(objects[-1].t, queries[-1].t) + 1
    for log in source.logs.values():
        log.append((CLOCK, watermark(end)))
    given_.arguments["store"].create(build(WGS84, ObjectBatch.of(objects), QueryBatch.of([]), 8, 2))
    lags: dict[str, int] = {}
    told: list[tuple[int | None, str, int]] = []

    def lag(kind: str, messages: int) -> None:
        lags[kind] = messages
        told.append((threading.current_thread().ident, kind, messages))

    arguments = given_.arguments | {"warm_up": 60.0}
    router = RouterJob(**arguments, most_messages=50, learn_every=0.0, lag=lag)
    rounds: list[int] = []
    worker = WorkerJob(**arguments, observe=lambda record, *more: rounds.append(record.round.number))

    def stop_at_the_end() -> None:
        """Once everything has been answered."""
        for job, is_done in (
            (
                router,
                lambda: (
                    router.turns
                    and (last := router.turns.router.last)
                    and last.epoch.watermark == end - 1
                    and not any(lags.values())  # told beside the turns, now and then
                    and read_unknown(given_.arguments["store"]) == last.unknown
                ),
            ),
            (worker, lambda: worker.turns and (last := worker.turns.worker.last) and last.round.watermark == end - 1),
        ):
            while not is_done():
                assert len(given_.said) <= 6, given_.said
                threading.Event().wait(0.01)
            job.stop()

    threads = [threading.Thread(target=each) for each in (router.run, worker.run, stop_at_the_end)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
        assert not thread.is_alive()
    known = Deduplicator()
    sent = given_.results.read(*given_.results.bounds)
    rows = [json.loads(row) for key, value in sent for row in known.new_rows(key or b"", value or b"")]
    expected, _ = answers(objects, queries, WGS84)
    assert [str(each) for each in check(rows, expected, 5)] == []
    assert rounds == list(range(len(rounds)))
    assert read_unknown(given_.arguments["store"]) == {"size": len(objects[::3])}
    assert {kind: left for kind, left in lags.items() if left} == {}
    of_turns = [left for thread, kind, left in told if thread == threads[0].ident and kind == "objects"]
    assert of_turns[0] == len(objects) + 2, "a turn tells what waits when it begins"


class Moving(Lost):
    """An engine whose slots are in other processes after each round."""

    def settled(self) -> None:
        self.moves += 1
        self.unsettled = False
        views.forget(self.world.storage.place)


def test_slots_that_move_after_a_round_can_be_asked_though_no_other_round_comes(given_: Given) -> None:
    published: list[Round] = []
    engine = Moving(given_.engine.world)
    arguments = given_.arguments | {"engine": engine}
    source = engine.world.source
    for i, each in enumerate(random_stream(3, 20, 0, WGS84).objects):
        source.logs[f"objects/{i % 2}"].append((None, json.dumps(object_record(each, WGS84)).encode()))
    for log in source.logs.values():
        log.append((CLOCK, watermark(2_000_000_000_000)))
    given_.arguments["store"].create(build(WGS84, ObjectBatch.of([]), QueryBatch.of([]), 4, 2))
    router, worker = RouterJob(**arguments), WorkerJob(**arguments, publish=published.append, checkpoint_interval=0.0)
    for job in (router, worker):
        job.prepare()
    assert router.turn()
    assert worker.turn()
    while worker.turn():  # what a checkpoint takes
        pass
    assert engine.moves

    turn = published[-1]
    for slot in range(2):
        assert views.view_of(engine.world.storage.place, slot, (turn.number, turn.revision)).watermark == turn.watermark
    known = len(published)
    assert not worker.turn()
    assert len(published) == known, "once is enough"

    moves, engine.unsettled = engine.moves, True  # a process has come, or is to go
    assert not worker.turn()
    assert engine.moves == moves + 1
    assert len(published) == known + 1


def test_partitions_move_in_a_silent_stream_though_no_checkpoint_comes(given_: Given) -> None:
    engine = Moving(given_.engine.world)
    for log in engine.world.source.logs.values():
        log.append((CLOCK, watermark(2_000_000_000_000)))
    given_.arguments["store"].create(build(WGS84, ObjectBatch.of([]), QueryBatch.of([]), 4, 2))
    router = RouterJob(**given_.arguments | {"engine": engine}, checkpoint_interval=3600.0)
    router.prepare()
    assert router.turn()

    engine.unsettled = True  # a process is to go
    assert not router.turn()
    assert not engine.moves, "an epoch may come, with a checkpoint"
    router.checkpoint_interval = 0.0  # an hour passes
    assert not router.turn()
    assert engine.moves == 1
