"""A stream in one process gives the oracle's rows, however it is cut into micro-batches, and wherever it dies.

The list of its micro-batches stands in for Spark; the last one may come again.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spatialstream.balance.planner import first_plan
from spatialstream.connectors.folder import Folder
from spatialstream.connectors.result_files import ResultFiles
from spatialstream.index.kinds import AUTO, DEFAULT
from spatialstream.model.errors import RunError, SettingError, StateError
from spatialstream.model.kinds import TYPES
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.space import WGS84
from spatialstream.oracle import answers, check
from spatialstream.stages.ingest import Ingest, Intake
from spatialstream.stages.versions import load_version
from spatialstream.stream.embedded import embedded_world
from spatialstream.stream.micro_batches import LocalStream, WaitingClock, intakes_of_part
from spatialstream.stream.settings import StreamSettings
from tests.harness import Processes, forget
from tests.lengths import AT_LENGTH
from tests.streams import PLANE, Stream, object_record, query_record, random_stream, streams, write_lines

FOREVER = 10**12
Records = Sequence[tuple[str, str]]
"""(kind, line) of the rows of one part of a micro-batch."""


class Crash(BaseException):
    """The process has died."""


class Process:
    """A stream and the processes that come and go on its checkpoint."""

    def __init__(
        self, folder: Path, setup: StreamSettings, queries: str | None = None, *, chaos: float = 0.0, seed: int = 0
    ) -> None:
        self.folder, self.setup, self.queries = folder, setup, queries
        self.storage = Folder(folder)
        self.chaos, self.random = chaos, random.Random(seed)
        self.batches: list[list[Records]] = []
        self.committed = 0
        self.time = 0
        self.crashes = 0
        self.stream: LocalStream | None = None
        self.files: dict[str, bytes] = {}

    # ---------------------------------------------------------------------------------------------- what Spark would do

    def step(self, name: str) -> None:
        if self.random.random() < self.chaos:
            raise Crash(name)

    def ingest(self, parts: Sequence[Records], stage: Ingest) -> Sequence[Intake]:
        intakes: list[Intake] = []
        for number, part in enumerate(parts):
            intakes += intakes_of_part(stage, [rows(part)] if part else [], number)
            self.step("ingested")
        return intakes

    def begin(self, **more: Any) -> LocalStream:
        sink = ResultFiles(self.folder / "output" / "results", self.folder / "output" / "rejected")
        engine = Processes(embedded_world(self.setup, self.storage, sink), self.step, self.random)
        given: dict[str, Any] = {"leaves": 8, "queries": self.queries, "now": lambda: self.time, "step": self.step}
        given["due"] = lambda: self.random.random() < 0.4
        return LocalStream(self.setup, engine, **(given | more))

    # --------------------------------------------------------------------------------------------------------- the test

    def do(self, action: Callable[[LocalStream], object]) -> bool:
        """Do something with the stream, which may have to be restarted; returns whether no process died."""
        try:
            if self.stream is None:
                forget()
                self.stream = self.begin()
                self.stream.recover()
            action(self.stream)
        except Crash:
            self.crashes += 1
            self.stream = None
            return False
        finally:
            found = {str(path): path.read_bytes() for path in (self.folder / "output").glob("*/*.jsonl")}
            assert self.files.items() <= found.items(), "a file that was there has changed"
            self.files = found
        return True

    def batch(self, parts: list[Records] | None = None) -> None:
        """The next micro-batch, or again one that has not been committed."""
        if parts is not None:
            self.batches.append(parts)
        while self.committed < len(self.batches):
            if self.do(self.take):
                if self.random.random() < self.chaos:  # Spark dies before it has committed
                    self.stream = None
                else:
                    self.committed += 1

    def take(self, stream: LocalStream) -> None:
        parts = self.batches[self.committed]
        assert stream.micro_batch(self.committed, lambda task: self.ingest(parts, task))

    def flush(self) -> None:
        while not self.do(LocalStream.finish):
            self.batch()

    def lines(self, kind: str) -> list[dict[str, Any]]:
        return [
            json.loads(line)
            for path in sorted((self.folder / "output" / kind).glob("*.jsonl"))
            for line in path.read_text("utf-8").split("\n")[:-1]
        ]


def rows(part: Records) -> pa.RecordBatch:
    kinds, lines = zip(*part, strict=True)
    return pa.RecordBatch.from_pydict({"kind": pa.array(kinds), "value": pa.array([line.encode() for line in lines])})


def object_rows(stream: Stream, objects: Iterable[Any]) -> list[tuple[str, str]]:
    return [("objects", json.dumps(object_record(each, stream.space))) for each in objects]


def query_rows(queries: Iterable[Any]) -> list[tuple[str, str]]:
    return [("queries", json.dumps(query_record(each))) for each in queries]


def cut(chance: random.Random, stream: Stream, with_queries: bool) -> Iterable[list[Records]]:
    """Both sources in time order, cut into micro-batches; in one of them objects are in any order and any part."""
    objects = object_rows(stream, sorted(stream.objects, key=lambda o: o.t))
    queries = query_rows(sorted(stream.queries, key=lambda query: query.t)) if with_queries else []
    while objects or queries:
        some, objects = objects[: (n := chance.choice([0, 1, 5, 30]))], objects[n:]
        asked, queries = queries[: (n := chance.choice([0, 1, 2, 10]))], queries[n:]
        chance.shuffle(some)
        parts = chance.randint(1, 3)
        yield [*(some[i::parts] for i in range(parts)), asked]


def differences(stream: Stream, process: Process) -> list[str]:
    expected, refused = answers(stream.objects, stream.queries, stream.space)
    found = [str(each) for each in check(process.lines("results"), expected, 5)]
    rejected = sorted(letter["record"]["id"] for letter in process.lines("rejected"))
    if rejected != sorted(stream.queries[place].id for place, _ in refused):
        found.append(f"rejected {rejected}, expected {refused}")
    return found


def setup_of(stream: Stream, seed: int, **changes: Any) -> StreamSettings:
    values: dict[str, Any] = {
        "slots": 1 + seed % 4,
        "space": stream.space,
        "partitions": 1 + seed % 3,
        "idle": FOREVER,
        "epoch_records": [4, 40, 1_000_000][seed % 3],
        "rule": stream.rule,
    }
    return StreamSettings("frames", **(values | changes))


def answered(stream: Stream, seed: int, chaos: float, given_queries: bool) -> tuple[Process, list[str]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = write_lines(folder / "queries.jsonl", [line for _, line in query_rows(stream.queries)])
        queries = path.name if given_queries else None
        process = Process(folder, setup_of(stream, seed), queries, chaos=chaos, seed=seed)
        if not given_queries:
            stream = Stream(stream.space, stream.objects, sorted(stream.queries, key=lambda query: query.t))
        for parts in cut(random.Random(seed), stream, not given_queries):
            process.batch(parts)
            process.time += 50
            process.do(LocalStream.advance)
            process.batch()
        process.flush()
        return process, differences(stream, process)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(streams(where=True), st.integers(0, 10**6), st.booleans())
def test_every_row_is_the_oracles(stream: Stream, seed: int, given_queries: bool) -> None:
    assert answered(stream, seed, 0.0, given_queries)[1] == []


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(streams(where=True), st.integers(0, 10**6), st.booleans())
def test_wherever_it_dies(stream: Stream, seed: int, given_queries: bool) -> None:
    assert answered(stream, seed, 0.05, given_queries)[1] == []


@pytest.mark.parametrize("seed", [4, *([3] if AT_LENGTH else [])])
def test_a_larger_stream_that_dies_often(seed: int) -> None:
    stream = random_stream(seed, 250, 12, [WGS84, PLANE][seed % 2], types=TYPES)
    process, found = answered(stream, seed, 0.04, seed % 2 == 0)
    assert found == []
    assert process.crashes >= 10


@settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10**6))
def test_records_out_of_order_within_disorder_are_not_late(seed: int) -> None:
    chance = random.Random(seed)
    stream = random_stream(seed, 120, 5, WGS84, types=TYPES, span=10_000)
    disorder = 700
    arriving = sorted(stream.objects, key=lambda o: o.t + chance.randrange(disorder + 1))
    with tempfile.TemporaryDirectory() as name:
        path = write_lines(Path(name) / "q.jsonl", [line for _, line in query_rows(stream.queries)])
        process = Process(Path(name), setup_of(stream, seed, disorder=disorder), path.name)
        while arriving:
            n = chance.randint(1, 25)
            process.batch([object_rows(stream, arriving[:n])])
            arriving = arriving[n:]
        process.flush()
        process.flush()
        assert differences(stream, process) == []


# ------------------------------------------------------------------------------------------------------------- examples

EVERYWHERE = {"box": [-180, -90, 180, 90]}


def thing(name: str, t: int, text: str = "fire") -> tuple[str, str]:
    return "objects", json.dumps({"id": name, "t": t, "lon": 1.0, "lat": 2.0, "text": text})


def query(name: str, kind: str, t: int, **fields: Any) -> dict[str, Any]:
    return {"id": name, "type": kind, "t": t, "region": EVERYWHERE, "duration": "1h", **fields}


def started(folder: Path, queries: Sequence[object] | None, **changes: Any) -> Process:
    name = None if queries is None else write_lines(folder / "queries.jsonl", queries).name
    setup = StreamSettings("frames", slots=2, **({"idle": 100} | changes))
    return Process(folder, setup, name)


def seen(process: Process) -> list[tuple[str, int]]:
    return [(row["query"], row["t"]) for row in process.lines("results")]


def test_the_last_ms_waits_until_its_source_is_silent(tmp_path: Path) -> None:
    process = started(tmp_path, [query("c", "CRQ", 0), query("later", "SRQ", 99)])
    process.batch([[thing("a", 1), thing("b", 2)]])
    assert seen(process) == [("c", 1)]
    process.time = 99
    process.do(LocalStream.advance)
    assert seen(process) == [("c", 1)]
    assert process.stream is not None
    assert not process.stream.quiet
    process.time = 100
    process.do(LocalStream.advance)
    assert seen(process) == [("c", 1), ("c", 2)]
    assert process.stream.quiet


def test_queries_that_are_given_do_not_drive_time_but_a_flush_does(tmp_path: Path) -> None:
    process = started(tmp_path, [query("s", "SRQ", 1_000)])
    process.batch([[thing("a", 1)]])
    process.time = 5_000
    process.do(LocalStream.advance)
    process.batch([[thing("b", 500)]])
    process.time = 10_000
    process.do(LocalStream.advance)
    assert seen(process) == []
    process.flush()
    assert [[o["id"] for o in row["objects"]] for row in process.lines("results")] == [["a", "b"]]


def test_given_queries_alone_are_answered_by_a_flush(tmp_path: Path) -> None:
    process = started(tmp_path, [query("s", "SRQ", 7)])
    process.flush()
    assert process.lines("results") == [{"query": "s", "type": "SRQ", "t": 7, "objects": []}]


def test_a_flush_of_nothing_and_a_second_flush_do_nothing(tmp_path: Path) -> None:
    process = started(tmp_path, None, disorder=50)
    process.flush()
    process.batch([[thing("a", 1)], [("queries", json.dumps(query("c", "CRQ", 0)))]])
    process.flush()
    epochs = sorted(path.name for path in (tmp_path / "epochs").iterdir())
    process.flush()
    assert sorted(path.name for path in (tmp_path / "epochs").iterdir()) == epochs
    assert seen(process) == [("c", 1)]


def test_unusable_rows_are_dead_letters_with_their_part_and_place(tmp_path: Path) -> None:
    process = started(tmp_path, ["nonsense", query("c", "CRQ", 0), query("c", "CRQ", 1)])
    process.batch([[thing("a", 1)], [thing("b", 2), ("objects", '{"id": "\u2028"}')]])
    process.flush()
    letters = {(each["source"], each["offset"], each["line"]): each["reason"] for each in process.lines("rejected")}
    assert sorted(letters) == [("objects/1", 1, 1), ("queries/1000000", 0, 1), ("queries/1000000", 0, 3)]
    assert letters["objects/1", 1, 1].startswith("t: ")
    last = process.stream and process.stream.last
    assert last is not None
    assert last.refused == {"objects": 1, "queries": 1}  # the other one is the registry's
    assert seen(process) == [("c", 1), ("c", 2)]


def test_the_first_times_that_come_must_not_look_like_another_unit_unless_it_is_said(tmp_path: Path) -> None:
    process = started(tmp_path, None)
    seconds, moment = 1_795_880_000, 1_795_880_000_000
    asked = ("queries", json.dumps(query("c", "CRQ", seconds)))
    for sure, first in ((False, [[thing("a", seconds)]]), (True, [[thing("a", seconds)]])):
        stream = process.begin(sure=sure)
        stream.recover()
        if sure:
            assert stream.micro_batch(0, lambda task, first=first: process.ingest(first, task))
        else:
            with pytest.raises(SettingError, match="objects: as milliseconds, nearly all times lie in January 1970"):
                stream.micro_batch(0, lambda task, first=first: process.ingest(first, task))
            assert not list((tmp_path / "epochs").glob("*.json"))
    stream = process.begin(sure=False)  # of objects some have come; of queries none
    stream.recover()
    assert stream.micro_batch(1, lambda task: process.ingest([[thing("b", seconds + 1)]], task))
    with pytest.raises(SettingError, match="queries: "):
        stream.micro_batch(2, lambda task: process.ingest([[asked]], task))
    good = [[("queries", json.dumps(query("c", "CRQ", moment)))], [thing("d", moment)]]
    assert stream.micro_batch(2, lambda task: process.ingest(good, task))


def test_a_stream_that_is_closed_takes_nothing(tmp_path: Path) -> None:
    process = started(tmp_path, [])
    process.batch([[thing("a", 1)]])
    stream = process.stream
    assert stream is not None
    stream.close()
    assert not stream.micro_batch(1, lambda task: process.ingest([[thing("b", 2)]], task))
    process.time = 1_000
    assert not stream.advance()
    with pytest.raises(RunError, match="stopped"):
        stream.finish()
    assert [path.name for path in (tmp_path / "epochs").glob("*.json")] == ["000000000.json"]


def test_nothing_is_done_before_a_micro_batch_that_was_begun_has_come_again(tmp_path: Path) -> None:
    process = started(tmp_path, [query("c", "CRQ", 0)])
    process.batch([[thing("a", 1), thing("b", 2)]])
    process.batches.append([[thing("c", 3)]])
    process.chaos = 1.0  # it dies at the first step of the epoch
    assert not process.do(process.take)
    process.chaos = 0.0
    process.time = 1_000  # the clock of the process that comes next begins here
    process.do(lambda stream: stream.quiet)
    process.time = 2_000
    process.do(LocalStream.advance)
    assert process.stream is not None
    assert not process.stream.quiet
    with pytest.raises(RunError):
        process.stream.finish()
    assert seen(process) == [("c", 1)]
    process.batch()
    process.flush()
    assert seen(process) == [("c", 1), ("c", 2), ("c", 3)]


def test_micro_batches_that_go_back_are_refused(tmp_path: Path) -> None:
    process = started(tmp_path, [])
    process.batch([[thing("a", 1)]])
    process.batch([[thing("b", 2)]])
    assert process.stream is not None
    with pytest.raises(StateError, match="damaged"):
        process.stream.micro_batch(0, lambda task: ())


def test_an_index_can_be_planned_from_history(tmp_path: Path) -> None:
    stream = random_stream(1, 2_000, 0)
    found = {}
    for name, history, index in (
        ("planned", ObjectBatch.of(stream.objects), AUTO),
        ("few", ObjectBatch.of(stream.objects[:50]), AUTO),
        ("fixed", ObjectBatch.of(stream.objects), "a-grid"),
    ):
        (tmp_path / name).mkdir()
        process = started(tmp_path / name, [])
        begun = process.begin(leaves=8, index=index, history=lambda: history)  # noqa: B023
        begun.recover()
        begun.finish()
        assert process.begin(index=index).last is not None, "it is started again with the same option"
        found[name] = load_version(process.storage, 0).index
    setup, objects = process.setup, ObjectBatch.of(stream.objects)
    expected = first_plan(AUTO, 8, setup.slots, setup.space, objects, QueryBatch.of([]))
    assert (found["planned"].kind, expected.reason != "") == (expected.kind, True)
    assert abs(len(found["planned"].leaves) - expected.leaves) <= 3
    assert (found["few"].kind, abs(len(found["few"].leaves) - 8) <= 3) == (DEFAULT, True)
    assert found["fixed"].kind == "a-grid"


def test_the_tree_is_made_of_what_history_gives_and_only_once(tmp_path: Path) -> None:
    asked = []

    def history() -> ObjectBatch:
        asked.append(1)
        stream = random_stream(1, 500, 0)
        return ObjectBatch.of(stream.objects)

    process = started(tmp_path, [])
    for _ in range(2):
        stream = process.begin(leaves=16, history=history)
        stream.recover()
        stream.finish()
    assert asked == [1]


# ---------------------------------------------------------------------------------------------------------------- parts


def test_the_clock_stands_still_while_stopped_and_goes_on_from_where_it_was() -> None:
    now = [1_000]
    clock = WaitingClock(lambda: now[0], 70)
    assert clock() == 70
    now[0] += 5
    with clock.stopped():
        now[0] += 1_000
        assert clock() == 75
    assert clock() == 75
    now[0] += 1
    assert clock() == 76


def test_rows_are_numbered_through_all_batches_of_a_part(tmp_path: Path) -> None:
    stage = Ingest(7, Folder(tmp_path), WGS84, attempt="a")
    both = [("objects", "{"), ("queries", "["), ("objects", "}")]
    found = list(intakes_of_part(stage, [rows(both[:2]), rows(both), rows([("queries", "")] * 2)], 5))
    letters = [
        (letter["source"], letter["offset"])
        for intake in found
        for letter in map(json.loads, (tmp_path / "input" / intake.rejected).read_text().splitlines())
    ]
    assert sorted(letters) == [*(("objects/5", i) for i in (0, 2, 4)), *(("queries/5", i) for i in (1, 3))]
    assert len({intake.rejected for intake in found}) == len(found)
    assert list(intakes_of_part(stage, [], 5)) == []
