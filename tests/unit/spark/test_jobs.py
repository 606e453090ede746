"""The loop of a live stream's jobs, without Spark and without a broker: turns that fail, offsets, and how it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from py4j.protocol import Py4JNetworkError

from spatialstream.index.version import build
from spatialstream.model.errors import RunError, StateError
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.space import WGS84
from spatialstream.sources.folder import Folder
from spatialstream.sources.kafka import Connection
from spatialstream.spark import jobs
from spatialstream.spark.jobs import RouterJob, WorkerJob, _Job, _limited, _rest_after, _unseen
from spatialstream.stages.ingest import Intake
from spatialstream.stages.learning import Learner
from spatialstream.stages.leaving import Left
from spatialstream.store.memory import MemoryStore
from spatialstream.stream.router import StreamSettings


def spark(*, ended: int | None = None, stopped: bool = False, answer: Exception | None = None) -> Any:
    """A session: its JVM has ended with a status, its context was stopped, or asking it fails."""
    context = MagicMock()
    context._gateway.proc.poll.return_value = ended
    context._jsc.sc.return_value.isStopped = MagicMock(return_value=stopped, side_effect=answer)
    return SimpleNamespace(sparkContext=context, stop=MagicMock())


class Given:
    """Attributes that a job has in any case."""

    def __init__(self, folder: Path) -> None:
        self.said: list[str] = []
        self.states: list[bool] = []
        self.arguments: dict[str, Any] = {
            "session": spark(),
            "connection": Connection("nowhere:1"),
            "settings": StreamSettings("s"),
            "storage": Folder(folder),
            "store": MemoryStore(),
            "report": self.said.append,
            "running": self.states.append,
            "warm_up": 0.0,
        }


@dataclass(slots=True)
class Turns(_Job):
    """A job whose turns are given: True, False, or an error to be raised; after the last one it is stopped."""

    turns: list[bool | Exception] = field(default_factory=list)
    warm: Callable[[], object] = lambda: None
    broken_off: bool = False
    rests: list[float] = field(default_factory=list)
    forgotten: int = 0
    narrowed: int = 0
    broken_narrowing: Exception | None = None
    found: list[Sequence[Left]] = field(default_factory=list)
    begun: list[bool] = field(default_factory=list)
    broken: Exception | None = None
    attended: threading.Event = field(default_factory=threading.Event)

    name = "job"

    def _prepare(self) -> None:
        self.begun.append(True)

    def _idle_turn(self) -> None:
        self.warm()

    def _break_off(self) -> None:
        self.broken_off = True

    def _rest(self, seconds: float) -> None:
        self.rests.append(seconds)

    def _input(self) -> Mapping[str, int]:
        return {}

    def _turn(self) -> bool:
        if self.broken is not None:
            assert self.attended.wait(10.0)
        outcome = self.turns.pop(0)
        if not self.turns:
            self.stop()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _narrow(self) -> Sequence[Left]:
        self.narrowed += 1
        if self.broken_narrowing is not None:
            raise self.broken_narrowing
        return self.found.pop(0) if self.found else ()

    def _forget(self) -> None:
        self.forgotten += 1

    def _beside(self) -> None:
        self.attended.set()
        if self.broken is not None:
            raise self.broken


@pytest.fixture
def given_(tmp_path: Path) -> Given:
    return Given(tmp_path)


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


def test_rests_after_failures_grow() -> None:
    assert [_rest_after(failures) for failures in range(1, 9)] == [0, 2, 4, 8, 16, 30, 30, 30]


def test_a_job_gives_up_after_many_failures_in_a_row(given_: Given) -> None:
    failures: list[bool | Exception] = [StateError(f"failure {i}") for i in range(3)]
    job = Turns(**given_.arguments, patience=2, turns=[*failures[:2], True, *failures, True])
    with pytest.raises(RunError, match="failed 3 times in a row: failure 2"):
        job.run()
    assert job.turns == [True]


def fault(text: str, task: int = 7) -> Exception:
    """What Spark says of a stage's own exception."""
    return OSError(
        f"Job aborted: Lost task 0.0 (TID {task})\nTraceback (most recent call last):\n  ...\nValueError: {text}"
    )


LEFT = Left("object", 7, "the letter")


def test_a_turn_that_fails_twice_of_the_same_exception_is_narrowed_down(given_: Given) -> None:
    job = Turns(**given_.arguments, turns=[fault("a", 1), fault("a", 2), fault("b", 3), fault("b", 4), True, True])
    job.found = [[LEFT], [LEFT, LEFT]]
    job.run()
    assert job.narrowed == 2
    assert given_.said == [
        "job: running",
        "job: ValueError: a; trying again",
        "job: looking for the records that cause this",
        "job: left out: the letter",
        "job: ValueError: b; trying again",
        "job: looking for the records that cause this",
        "job: left out: the letter",
        "job: left out: the letter",
    ]
    assert given_.states == [True, False, False, False, False, True, False]


def test_a_turn_for_which_no_record_is_to_blame_is_narrowed_down_once(given_: Given) -> None:
    job = Turns(**given_.arguments, patience=4, turns=[fault("a", i) for i in range(5)] + [True])
    with pytest.raises(RunError, match="failed 5 times in a row: ValueError: a"):
        job.run()
    assert job.narrowed == 1
    assert "job: no record by itself, nor two or three together, cause this" in given_.said


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

    def _turn(self) -> bool:
        assert self._stopping.wait(10.0)
        return False


LOST = {
    "the JVM has been killed": spark(ended=-9),
    "its context was stopped": spark(stopped=True),
    "its gateway is dead": spark(answer=Py4JNetworkError("Answer from Java side is empty")),
    "nobody listens": spark(answer=ConnectionRefusedError(111, "Connection refused")),
}


@pytest.mark.parametrize("session", LOST.values(), ids=LOST.keys())
def test_a_job_that_has_lost_spark_ends_at_the_first_failure(
    given_: Given, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "_ATTEND_SECONDS", 60.0)
    turns: list[bool | Exception] = [True, ConnectionRefusedError(111, "Connection refused"), True]
    job = Turns(**given_.arguments | {"session": session}, turns=turns)
    with pytest.raises(RunError, match="the job has lost Spark"):
        job.run()
    assert job.turns == [True]
    assert given_.states == [True, False, False]
    assert given_.said == ["job: running"]


@pytest.mark.parametrize("session", LOST.values(), ids=LOST.keys())
def test_a_job_without_a_turn_to_do_notices_too(given_: Given, session: Any) -> None:
    job = Idle(**given_.arguments | {"session": session})
    with pytest.raises(RunError, match="has lost Spark"):
        job.run()


@pytest.mark.parametrize("session", LOST.values(), ids=LOST.keys())
def test_a_session_that_has_ended_is_not_stopped_again(session: Any) -> None:
    jobs.stop_spark(session)
    session.stop.assert_not_called()
    running = spark()
    jobs.stop_spark(running)
    running.stop.assert_called_once_with()


def test_samples_from_which_nothing_can_be_learnt_are_dropped(given_: Given) -> None:
    storage = given_.arguments["storage"]
    storage.put("samples/000000001-objects.arrow", b"no samples")
    job = router(given_, Ends([], []), None)
    store = given_.arguments["store"]
    store.create(build(WGS84, ObjectBatch.of([]), QueryBatch.of([]), 1, 1))
    job._learn(Learner(storage, store, WGS84))
    assert storage.list("samples/") == []
    assert given_.said[0].startswith("router: samples of the last epochs are dropped")


def test_messages_that_are_passed_over_are_counted_at_once_and_told_now_and_then(
    given_: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []
    job = WorkerJob(**given_.arguments, foreign=counted.append)
    now = 100.0
    monkeypatch.setattr(jobs.time, "monotonic", lambda: now)
    for count in (0, 3, 4, 5):
        job._tell_foreign(count)
    assert counted == [3, 4, 5]
    now += 11.0
    job._tell_foreign(0)
    job._tell_foreign(0)
    assert [text.split(" in ")[0] for text in given_.said] == ["worker: 3 messages", "worker: 9 messages"]


def test_what_fails_beside_the_turns_ends_the_job(given_: Given, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert not job.broken_off


def test_a_job_that_is_stopped_while_it_warms_up_has_not_been_running(given_: Given) -> None:
    over = threading.Event()
    job = warming(given_, lambda: (job.stop(), over.wait(10.0)))
    job.run()
    over.set()
    assert given_.states == [False]
    assert given_.said == ["job: warming up"]
    assert job.broken_off
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


def test_a_warm_up_that_takes_too_long_is_broken_off_and_the_job_runs(given_: Given) -> None:
    over = threading.Event()
    job = warming(given_, lambda: over.wait(10.0), warm_up=0.01)
    job.run()
    over.set()
    assert given_.states == [True, False]
    assert given_.said[1:] == ["job: not warm after 0.01 s, so the first results may be late", "job: running"]
    assert job.broken_off
    assert job.turns == []


@pytest.mark.parametrize(
    ("first", "last", "read", "patient"),
    [
        ([5, 0, 7], [9, 0, 8], {"s.objects": {0: (8, 9)}, "s.queries": {0: (7, 8)}}, True),
        ([5, 1, 7], [9, 4, 8], {"s.objects": {0: (8, 9), 1: (3, 4)}}, True),  # as many as there are cores
        ([5, 0, 7], [5, 0, 7], {"s.objects": {0: (5, 6), 1: (0, 1)}}, False),
    ],
    ids=["one is empty", "none is empty", "all are empty"],
)
def test_an_idle_turn_reads_last_messages_or_where_the_next_will_be(
    given_: Given,
    monkeypatch: pytest.MonkeyPatch,
    first: list[int],
    last: list[int],
    read: dict[str, dict[int, tuple[int, int]]],
    patient: bool,
) -> None:
    asked: list[tuple[Any, dict[str, str]]] = []
    frame, sent = MagicMock(), []
    monkeypatch.setattr(jobs, "Offsets", lambda connection, stopping: Ends(first, last))
    monkeypatch.setattr(RouterJob, "_cores", 2)
    monkeypatch.setattr(RouterJob, "_messages", lambda self, ranges, **more: asked.append((ranges, more)) or frame)
    monkeypatch.setattr(RouterJob, "_send", lambda self, frame: sent.append(frame))
    job = router(given_, Ends([], []), None)
    job.session = MagicMock()
    job._idle_turn()
    ((ranges, options),) = asked
    assert ranges == read
    assert options["failOnDataLoss"] == "false"
    assert ("kafkaConsumer.pollTimeoutMs" not in options) == patient
    (task, _), _ = frame.select().repartition(2).mapInArrow.call_args
    assert sent == [frame.select().repartition(2).mapInArrow()]
    assert list(task(iter([pa.record_batch({"value": [b"a message", None]})]))) == []


# ------------------------------------------------------------------------------------------------------------- offsets


@given(st.dictionaries(st.text(max_size=3), st.tuples(st.integers(0, 99), st.integers(1, 99)), max_size=9), st.data())
def test_ranges_are_cut_in_proportion(spans: dict[str, tuple[int, int]], data: st.DataObject) -> None:
    news = {name: (start, start + size) for name, (start, size) in spans.items()}
    most = data.draw(st.integers(1, 300))
    cut = _limited(news, most)
    assert cut.keys() == news.keys()
    assert sum(end - start for start, end in cut.values()) <= max(most, len(news))
    for name, (start, end) in news.items():
        assert cut[name][0] == start < cut[name][1] <= end


class Ends:
    """Where partitions begin and end."""

    def __init__(self, first: list[int], last: list[int]) -> None:
        self.first, self.last = first, last

    def _both(self, offsets: list[int], partitions: Mapping[str, int]) -> dict[str, list[int]]:
        assert partitions == {"s.objects": 2, "s.queries": 1}
        return {"s.objects": offsets[:2], "s.queries": offsets[2:]}

    def earliest(self, partitions: Mapping[str, int]) -> dict[str, list[int]]:
        return self._both(self.first, partitions)

    def latest(self, partitions: Mapping[str, int]) -> dict[str, list[int]]:
        return self._both(self.last, partitions)


def router(given_: Given, ends: Ends, read: dict[str, int] | None) -> RouterJob:
    job = RouterJob(**given_.arguments, counts={"s.objects": 2, "s.queries": 1, "s.blocks": 4})
    job._offsets = ends  # type: ignore[assignment]
    last = None if read is None else SimpleNamespace(read=read)
    job._router = SimpleNamespace(last=last, limits=lambda: (None, None))  # type: ignore[assignment]
    return job


def test_a_new_stream_begins_with_the_oldest_messages(given_: Given) -> None:
    job = router(given_, Ends([5, 0, 7], [9, 0, 8]), None)
    assert job._news() == {"objects/0": (5, 9), "queries/0": (7, 8)}


def test_an_epoch_begins_where_the_one_before_ended(given_: Given) -> None:
    job = router(given_, Ends([5, 0, 7], [9, 4, 8]), {"objects/0": 9, "queries/0": 7})
    assert job._news() == {"objects/1": (0, 4), "queries/0": (7, 8)}


def test_a_topic_that_was_made_anew_is_noticed(given_: Given) -> None:
    job = router(given_, Ends([0, 0, 0], [3, 0, 0]), {"objects/0": 9, "objects/1": 0, "queries/0": 0})
    with pytest.raises(StateError, match=r"s\.objects ends at offset 3 in partition 0, but 9 have been read"):
        job._news()


def test_offsets_that_no_message_has_are_read_too() -> None:
    """Markers of transactions have offsets, but Spark does not show them."""
    ranges = {"objects/0": (0, 9), "objects/1": (0, 4), "queries/0": (7, 9)}
    seen = [Intake("objects/0", 5, None, "", 1, 0, 3), Intake("objects/0", 6, None, "", 1, 0, 8)]
    unseen = _unseen(ranges, [*seen, Intake("queries/0", 6, None, "", 1, 0, 7)])
    assert [(each.partition, each.last, each.clock) for each in unseen] == [
        ("objects/1", 3, None),
        ("queries/0", 8, None),
    ]
