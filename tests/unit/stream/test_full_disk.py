"""A disk that is full, or has no room only for checkpoints, or a storage that is unreachable: nothing is lost, and
everything continues when that is over."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from spatialstream.connectors.delivery import Deduplicator
from spatialstream.connectors.memory import MemoryChannel, MemoryLog, MemorySink, MemorySource
from spatialstream.connectors.memory_storage import MemoryStorage
from spatialstream.index.version import build
from spatialstream.model.errors import NoStorage
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import QueryBatch
from spatialstream.model.space import WGS84
from spatialstream.oracle import answers, check
from spatialstream.stages import views
from spatialstream.stages.ingest import CLOCK, watermark
from spatialstream.stages.state import Written, forget
from spatialstream.store.memory import MemoryStore
from spatialstream.stream.engine import Inline
from spatialstream.stream.job import RouterJob, WorkerJob
from spatialstream.stream.settings import StreamSettings
from tests.remote import Remote
from tests.streams import object_record, query_record, random_stream


class Disk(MemoryStorage):
    """A disk that has no room for files whose names begin with a prefix, or cannot be reached for them."""

    full: tuple[str, ...] = ()
    away = False
    refused = 0

    def put(self, name: str, *parts: bytes | memoryview | pa.Buffer) -> None:
        if self.full and name.startswith(self.full):
            self.refused += 1
            if self.away:
                raise NoStorage(f"{name} cannot be reached")
            raise OSError(errno.ENOSPC, "No space left on device", name)
        super().put(name, *parts)


class Worker(WorkerJob):
    """A worker that does not rest, and reports when it would."""

    rested: Callable[[WorkerJob, float], None]

    def _rest(self, seconds: float) -> None:
        self.rested(self, seconds)


@dataclass
class Stream:
    """Both jobs over memory, one turn at a time; records their messages."""

    disk: Any = field(default_factory=Disk)
    said: list[str] = field(default_factory=list)
    full: list[bool] = field(default_factory=list)
    away: list[bool] = field(default_factory=list)
    running: list[bool] = field(default_factory=list)
    rests: list[float] = field(default_factory=list)
    rounds: list[tuple[int, bool]] = field(default_factory=list)
    results: MemoryLog = field(default_factory=MemoryLog)
    room: float = 0.0

    def __post_init__(self) -> None:
        self.drawn = random_stream(3, 200, 8, WGS84)
        self.objects = sorted(self.drawn.objects, key=lambda each: each.t)
        self.queries = sorted(self.drawn.queries, key=lambda each: each.t)
        self.settings = StreamSettings("s", slots=2, idle=10**12, epoch_records=20)
        self.source = MemorySource(["objects/0", "queries/0"])
        self.announced = MemoryLog()
        channel = MemoryChannel([MemoryLog() for _ in range(2)], self.announced)
        self.world = self.settings.world(
            self.disk, channel, MemorySink([self.results], MemoryLog()), source=self.source
        )
        self.store = MemoryStore()
        self.store.create(build(WGS84, ObjectBatch.of(self.objects), QueryBatch.of([]), 8, 2))
        self.source.logs["queries/0"].append(
            *((None, json.dumps(query_record(each)).encode()) for each in self.queries)
        )
        for each in self.objects:
            self.source.logs["objects/0"].append((None, json.dumps(object_record(each, WGS84)).encode()))
        end = max(self.objects[-1].t, self.queries[-1].t) + 1
        for log in self.source.logs.values():
            log.append((CLOCK, watermark(end)))
        self.end = end - 1

    def arguments(self) -> dict[str, Any]:
        """The arguments of a job."""
        told = {
            "report": self.said.append,
            "running": self.running.append,
            "full": self.full.append,
            "away": self.away.append,
        }
        given = {"engine": Inline(self.world), "store": self.store, "settings": self.settings}
        return {**given, **told, "patience": 2, "warm_up": 0.0}

    def route(self) -> None:
        """Have all records routed."""
        router = RouterJob(**self.arguments(), most_messages=40)
        router.prepare()
        while router.turn():
            pass

    def work(self, room: float, interval: float = 10.0) -> WorkerJob:
        """Run the worker until all is done; after so many seconds of rests there is room."""
        job = Worker(**self.arguments(), most_epochs=1, checkpoint_interval=interval)
        job.observe = lambda record, *rest: self.rounds.append((record.round.number, record.round.checkpoint))
        job.rested = self.rested
        self.room = room
        job.run()
        return job

    def rested(self, job: WorkerJob, seconds: float) -> None:
        """Called when the job has rested."""
        self.rests.append(seconds)
        if sum(self.rests) >= self.room:
            self.disk.full = ()
        assert job.turns is not None
        worker = job.turns.worker
        if worker.last is not None and not worker.unfinished and worker.last.round.watermark == self.end:
            job.stop()

    def differences(self) -> list[str]:
        known = Deduplicator()
        sent = self.results.read(*self.results.bounds)
        rows = [json.loads(row) for key, value in sent for row in known.new_rows(key or b"", value or b"")]
        expected, _ = answers(self.objects, self.queries, WGS84)
        return [str(each) for each in check(rows, expected, 5)]


@pytest.fixture(autouse=True)
def _views() -> Iterator[None]:
    views.forget()
    yield
    views.forget()


def test_a_job_waits_for_room_as_long_as_it_takes_and_loses_nothing() -> None:
    stream = Stream()
    stream.route()
    stream.disk.full = ("rounds/",)
    stream.work(room=1_000.0)
    assert stream.differences() == []
    failures = [seconds for seconds in stream.rests if seconds]
    assert failures == [1.0, 2.0, 4.0, *([5.0] * (len(failures) - 3))], "it looks again soon"
    assert len(failures) > 100, "patience is for other failures"
    assert (stream.full[0], stream.full[-1]) == (True, False)
    assert "No space left on device" in stream.said[1]
    assert not any(stream.away)


def test_a_job_waits_for_a_storage_that_is_away_likewise() -> None:
    stream = Stream()
    stream.route()
    stream.disk.full, stream.disk.away = ("rounds/", "state/"), True
    stream.work(room=1_000.0)
    assert stream.differences() == []
    assert len([seconds for seconds in stream.rests if seconds]) > 100, "patience is for other failures"
    assert (stream.away[0], stream.away[-1]) == (True, False)
    assert not any(stream.full)
    assert "cannot be reached" in stream.said[1]


def test_where_there_is_no_room_for_a_checkpoint_rounds_go_on_without() -> None:
    stream = Stream()
    stream.route()
    stream.disk.full = ("state/",)
    stream.work(room=1_000.0, interval=0.0)
    assert stream.differences() == []
    assert not any(checkpoint for _, checkpoint in stream.rounds), "none has been done"
    assert stream.disk.refused < 5, "it is not tried with each round"
    assert stream.said.count("worker: continuing without a checkpoint, because the storage is full") == 1
    assert stream.running[-2:] == [True, False]
    assert stream.disk.list("state/slot") == []

    stream.disk.full = ()
    stream.work(room=0.0, interval=0.0)
    assert stream.rounds[-1][1]
    assert {name.split("/")[1] for name in stream.disk.list("state/slot")} == {"slot-0000", "slot-0001"}
    assert stream.differences() == []


def test_a_store_that_takes_no_state_stops_no_turn_and_is_told_of() -> None:
    stream = Stream(disk := Remote())
    stream.route()
    disk.held, disk.trouble = True, NoStorage("state/slot-0000 cannot be reached")
    stream.work(room=0.0, interval=0.0)
    assert stream.differences() == []
    assert [checkpoint for _, checkpoint in stream.rounds].count(True) == 1, "one at a time"
    told = "worker: continuing without writing its state: state/slot-0000 cannot be reached"
    assert stream.said.count(told) == 1, "not with every turn"
    assert stream.away[-1]
    assert not any(stream.full)
    assert stream.running == [True, False]
    assert disk.list("state/slot") == []


def test_that_a_store_takes_no_state_is_told_for_as_long_as_it_does() -> None:
    told = list[tuple[str, bool]]()
    stream = Stream()
    gauges = {name: lambda on, name=name: told.append((name, on)) for name in ("full", "away")}
    job = WorkerJob(**stream.arguments() | gauges)
    job.prepare()
    assert job.turns is not None
    job.turns.on_checkpoint(Written(there=False))
    assert told == []
    job.turns.on_checkpoint(Written(there=False, trouble="away"))
    assert told == [("away", True)]
    job.turns.on_checkpoint(Written(there=False, trouble="no room", full=True))
    assert told == [("away", True), ("full", True)]
    job.turns.on_checkpoint(Written())
    assert dict(told) == {"away": False, "full": False}
    assert len(stream.said) == 1


def test_where_there_is_room_for_nothing_a_checkpoint_is_put_off_as_soon_as_there_is() -> None:
    stream = Stream()
    stream.route()

    class Filling(Disk):
        def put(self, name: str, *parts: bytes | memoryview | pa.Buffer) -> None:
            if name.startswith("state/slot") and len(stream.rounds) == 3 and not stream.disk.refused:
                self.full = ("rounds/", "state/")
            super().put(name, *parts)

    stream.disk.__class__ = Filling
    stream.work(room=20.0, interval=0.0)
    assert stream.differences() == []
    assert stream.full[-1] is False


def test_who_goes_back_over_rounds_has_a_checkpoint_soon() -> None:
    stream = Stream()
    stream.route()
    stream.work(room=0.0)
    before = len(stream.rounds)
    assert not any(checkpoint for _, checkpoint in stream.rounds), "all within one interval"
    forget(stream.disk)

    more = SpatialObject("late", stream.end + 1, 0.0, 0.0, ("a",))
    stream.source.logs["objects/0"].append((None, json.dumps(object_record(more, WGS84)).encode()))
    for log in stream.source.logs.values():
        log.append((CLOCK, watermark(stream.end + 11)))
    stream.objects.append(more)
    stream.end += 10
    stream.route()
    job = stream.work(room=0.0)
    assert job.turns is not None
    assert len(stream.rounds) == before + 1
    record = job.turns.worker.settle()
    assert record is not None, "it is due at once"
    assert record.round.checkpoint
    assert stream.differences() == []
