"""A live stream without Spark and without servers: the router, the worker and the rebalancer of the real code, over
logs and a routing store in memory, in any interleaving, with crashes before each of their steps.

A stage can be made to fail on a record: a test puts a function that raises :class:`StageError` in its place. A job that
has failed twice in a row is then narrowed down, as the real ones are.

What stands for the broker are lists that only grow. An epoch reads what there is of them when it begins, which may be
more when it begins once again.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from spatialstream.index.version import RoutingVersion, build
from spatialstream.model.errors import Conflict, Unavailable
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import Cancellation, Query, QueryBatch
from spatialstream.model.space import Space
from spatialstream.sources.delivery import Assembler, Deduplicator, result_messages
from spatialstream.sources.folder import Folder
from spatialstream.spark import inline
from spatialstream.stages import messages
from spatialstream.stages.ingest import CLOCK, Ingest, Intake, mark
from spatialstream.stages.leaving import Left
from spatialstream.stages.rows import RowLimits
from spatialstream.stages.work import WorkSettings
from spatialstream.store.memory import MemoryStore
from spatialstream.stream.router import EpochRecord, Router, StreamSettings, narrow_route, route_epoch
from spatialstream.stream.worker import (
    RoundRecord,
    Worker,
    merge_round,
    merge_second_at_once,
    merge_second_round,
    narrow_merge,
    narrow_work,
    second_round,
    work_round,
)

Message = tuple[bytes | None, bytes]
IDLE = 10**12
LIMITS = RowLimits(part=300)


class Crash(BaseException):
    """The process has died."""


class StageError(Exception):
    """A stage cannot be done with one of its records."""


@dataclass
class Log:
    """A topic: partitions that only grow."""

    partitions: list[list[Message]]

    def ends(self) -> list[int]:
        return [len(partition) for partition in self.partitions]


class Simulation:
    """One stream.

    Args:
        folder: for state.
        space, objects, queries: the stream, in time order.
        settings: of the stream.
        seed: decides everything that is left to chance.
        chaos: chance that a step does not happen because its process dies.
    """

    def __init__(
        self,
        folder: Path,
        space: Space,
        objects: Sequence[SpatialObject],
        queries: Sequence[Query | Cancellation],
        settings: StreamSettings,
        seed: int,
        *,
        object_partitions: int = 2,
        chaos: float = 0.0,
        sample: tuple[ObjectBatch, QueryBatch] | None = None,
    ) -> None:
        self.random = random.Random(seed)
        self.storage, self.settings, self.chaos = Folder(folder), settings, chaos
        self.topics = {"objects": Log([[] for _ in range(object_partitions)]), "queries": Log([[]])}
        self.blocks = Log([[] for _ in range(settings.slots)])
        self.announced: list[dict[str, Any]] = []
        self.results: list[tuple[bytes, bytes]] = []
        self.rejected: list[str] = []
        self.heard = 0
        self.store = MemoryStore()
        self.views = [MemoryStore(self.store.memory) for _ in range(2)]
        self.time = 0
        self.crashes = 0
        self.tries: dict[
            int, list[tuple[Ingest, pa.RecordBatch]]
        ] = {}  # what the tasks of an epoch's last try have read
        archive = None if settings.retention is None else Folder(folder / "archive")
        self.work_settings = WorkSettings(space, settings.interval, settings.retention, archive)
        self.unsent = self._unsent(space, objects, queries)
        self.sample = sample or (ObjectBatch.of(list(objects)), QueryBatch.of(list(queries)))
        self.store.create(self.version(0))
        self.router: Router | None = None
        self.worker: Worker | None = None
        self.failures = {"router": 0, "worker": 0}
        self.left: list[Left] = []

    # ------------------------------------------------------------------------------------------------------ producers

    def _unsent(
        self, space: Space, objects: Sequence[SpatialObject], queries: Sequence[Query | Cancellation]
    ) -> dict[tuple[str, int], list[Message]]:
        """What each partition is going to get: records in time order, several to a message at times, and marks."""
        lanes: dict[tuple[str, int], list[tuple[int, bytes]]] = {
            (topic, i): [] for topic, log in self.topics.items() for i in range(len(log.partitions))
        }
        first, second = space.axes
        for item in objects:
            record = {"id": item.id, "t": item.t, first: item.x, second: item.y, "terms": list(item.terms)}
            lane = ("objects", self.random.randrange(len(self.topics["objects"].partitions)))
            lanes[lane].append((item.t, json.dumps(record).encode()))
        for query in queries:
            lanes["queries", 0].append((query.t, json.dumps(query.to_record()).encode()))
        end = max((t for lane in lanes.values() for t, _ in lane), default=0) + 1
        sent = {lane: self._messages(lane, records, end) for lane, records in lanes.items()}
        records = [i for i, (key, _) in enumerate(sent["queries", 0]) if key != CLOCK]
        self.query_at = {offset: i for i, offset in enumerate(records)}
        return sent

    def _messages(self, lane: tuple[str, int], records: list[tuple[int, bytes]], end: int) -> list[Message]:
        result: list[Message] = []
        i = 0
        while i < len(records):
            if self.random.random() < 0.3:
                result.append((CLOCK, mark(records[i][0])))
            size = self.random.choice([1, 1, 2, 5]) if lane[0] == "objects" else 1
            result.append((None, b"\n".join(text for _, text in records[i : i + size])))
            i += size
        return [*result, (CLOCK, mark(end))]

    def produce(self) -> None:
        """Some messages reach the broker."""
        lanes = [lane for lane, messages_ in self.unsent.items() if messages_]
        if lanes:
            lane = self.random.choice(lanes)
            count = self.random.choice([1, 2, 5, 20])
            topic, partition = lane
            self.topics[topic].partitions[partition] += self.unsent[lane][:count]
            del self.unsent[lane][:count]

    # --------------------------------------------------------------------------------------------------------- router

    def step(self, name: str) -> None:
        """A process is about to do a step; it may die now."""
        self.time += 1
        if self.random.random() < self.chaos:
            raise Crash(name)

    def run_router(self) -> None:
        """One epoch, or its repetition."""
        if self.router is None:
            names = [f"{kind}/{i}" for kind, log in self.topics.items() for i in range(len(log.partitions))]
            view = self.views[0]
            self.router = Router(
                self.settings, self.storage, view, _RouterJobs(self), names, lambda: self.time, self.step
            )
        try:
            self.router.epoch()
            self.failures["router"] = 0
        except StageError:
            self._failed("router", self.router, self._epoch_fails_on)
        except Crash:
            self.crashes += 1
            self.router = None
        except Unavailable:
            assert self.router.last is None, "without the store there is no first version; with one, the stream goes on"

    def _failed(self, name: str, job: Any, narrow: Callable[[Any], Sequence[Left]]) -> None:
        """A turn has failed; one that has done so twice is narrowed down, unless its process dies meanwhile."""
        self.failures[name] += 1
        assert self.failures[name] < 50, "nothing was found"
        if self.failures[name] % 2:
            return
        try:
            self.left += job.leave_out(narrow)
        except Crash:
            self.crashes += 1
            setattr(self, name, None)

    def _epoch_fails_on(self, record: EpochRecord) -> Sequence[Left]:
        partitions = self.settings.partitions
        return [left for i in range(partitions) for left in narrow_route(record, i, partitions, self.storage)]

    def _round_fails_on(self, record: RoundRecord) -> Sequence[Left]:
        blocks = [log[record.starts[slot] : record.ends[slot]] for slot, log in enumerate(self.blocks.partitions)]
        given = record.round, self.work_settings, self.storage
        if found := [left for slot, each in enumerate(blocks) for left in narrow_work(slot, each, *given)]:
            return found
        rows = [row for slot, each in enumerate(blocks) for row in work_round(slot, each, *given)]
        return narrow_merge(rows, record, self.work_settings, self.storage, LIMITS)

    def run_worker(self) -> None:
        """One round, or its repetition."""
        if self.worker is None:
            view = self.views[1]
            self.worker = Worker(self.settings.slots, self.storage, view, _WorkerJobs(self), self.step)
            self.heard = self.worker.announced or 0
            inline.forget()
        worker, first = self.worker, self.heard
        try:
            if worker.unfinished:
                worker.again()
            elif first == len(self.announced):
                worker.confirm()
            else:
                self.heard = self.random.randint(first + 1, len(self.announced))
                worker.round(self.announced[first : self.heard], self.heard)
            self.failures["worker"] = 0
        except StageError:
            self._failed("worker", worker, self._round_fails_on)
        except Crash:
            self.crashes += 1
            self.worker = None

    # ----------------------------------------------------------------------------------------------------- rebalancing

    def version(self, number: int) -> RoutingVersion:
        """Some version: another tree, other leaves on other slots."""
        objects, queries = self.sample
        leaves = self.random.choice([1, 4, 7, 16, 40])
        version = build(self.work_settings.space, objects, queries, leaves, self.settings.slots, number=number)
        slots = [self.random.randrange(self.settings.slots) for _ in version.mapping]
        return RoutingVersion(number, version.index, pa.array(slots, pa.int32()).to_numpy().copy(), version.slots)

    def rebalance(self) -> None:
        """Publish a new version, or take the pending one back."""
        try:
            state = self.store.state()
            if state.pending is None:
                self.store.publish(self.version(state.last + 1), state.active.number, f"p{state.last}", {})
            elif self.random.random() < 0.2:
                self.store.withdraw(state.pending.number, state.pending.proposal)
        except (Conflict, Unavailable):
            pass

    def disturb(self) -> None:
        """A store that cannot be reached, or the loss of an answer, for one of the jobs."""
        view = self.random.choice(self.views)
        if self.random.random() < 0.5:
            view.reachable = not view.reachable
        elif view.reachable:
            view.fail_next_write(self.random.choice(["before", "after"]))

    # ------------------------------------------------------------------------------------------------------------ runs

    def run(self, rebalances: float = 0.2, disturbances: float = 0.1) -> None:
        """Everything, in random order, until all that was produced has been answered."""
        while any(self.unsent.values()):
            self.produce()
            for action, chance in (
                (self.run_router, 0.6),
                (self.run_worker, 0.5),
                (self.rebalance, rebalances),
                (self.disturb, disturbances),
            ):
                if self.random.random() < chance:
                    action()
        self.chaos = 0.0
        for view in self.views:
            view.reachable = True
        while not self._drained():
            self.run_router()
            self.run_worker()
        while self.worker is None or self.worker.unfinished or self.heard < len(self.announced):
            self.run_worker()

    def _drained(self) -> bool:
        router = self.router
        if router is None or router.last is None or router.unfinished:
            return False
        ends = {f"{kind}/{i}": end for kind, log in self.topics.items() for i, end in enumerate(log.ends())}
        if any(router.last.read.get(name, 0) != end for name, end in ends.items()):
            return False
        return not router.last.held and not router.wants_epoch()

    def rows(self) -> list[dict[str, Any]]:
        """What a consumer of the results has: repeated messages dropped, parts put together."""
        known, whole = Deduplicator(), Assembler()
        parts = (part for key, value in self.results for part in known.new_rows(key, value))
        return [json.loads(row) for part in parts for row in whole.add(part)]

    def refused(self) -> list[int]:
        """Positions of the queries that were rejected, repeated dead letters dropped."""
        return sorted(self.query_at[letter["offset"]] for letter in self.letters() if "epoch" not in letter)

    def letters(self) -> list[dict[str, Any]]:
        """The dead letters, each once."""
        return [json.loads(line) for line in dict.fromkeys(self.rejected)]


class _RouterJobs:
    def __init__(self, simulation: Simulation) -> None:
        self._ = simulation

    def ingest(self, epoch: int) -> Sequence[Intake]:
        settings = self._.settings
        kinds = {"t.objects": "objects", "t.queries": "queries"}
        assert self._.router is not None
        read = {} if self._.router.last is None else self._.router.last.read
        limits = settings.longest, *self._.router.limits()
        last = *limits, f"{self._.time:08x}"
        stage = Ingest(epoch, self._.storage, kinds, settings.space, settings.rule, *last)
        intakes: list[Intake] = []
        tasks: list[tuple[Ingest, pa.RecordBatch]] = []
        for topic, log in self._.topics.items():
            for i, partition in enumerate(log.partitions):
                start = read.get(f"{topic}/{i}", 0)
                if part := partition[start:]:
                    offsets = range(start, len(partition))
                    tasks.append((stage, _batch(f"t.{topic}", i, offsets, part)))
                    intakes += stage.intakes([tasks[-1][1]])
        for late, batch in self._.tries.get(epoch, []):  # tasks of the try before are still at work
            if self._.random.random() < 0.5:
                list(late.intakes([batch]))
        self._.tries = {epoch: tasks}
        return intakes

    def route(self, record: EpochRecord) -> None:
        settings = self._.settings
        for partition in range(settings.partitions):
            for key, (slot, _kind, content) in route_epoch(record, partition, settings.partitions, self._.storage):
                if slot < 0:
                    self._.rejected += content.column("line").to_pylist()
                else:
                    self._.blocks.partitions[slot].append((key, messages.pack(content).to_pybytes()))
            self._.step("routed")

    def announce(self, epoch: int, announcement: Mapping[str, Any]) -> None:
        self._.announced.append(json.loads(json.dumps({**announcement, "ends": self._.blocks.ends()})))


class _WorkerJobs:
    def __init__(self, simulation: Simulation) -> None:
        self._ = simulation

    def work(self, record: RoundRecord) -> None:
        it = self._
        rows = []
        for slot, log in enumerate(it.blocks.partitions):
            blocks = log[record.starts[slot] : record.ends[slot]]
            rows += work_round(slot, blocks, record.round, it.work_settings, it.storage)
            it.step("worked")
        number = record.round.number
        few = it.random.choice([0, 10**9])
        results = merge_round(rows, record, it.work_settings.space, it.storage, few, LIMITS)
        it.step("merged")
        for key, value in result_messages(results.lines, number, 0, 3):
            it.results.append((key, value.to_pybytes()))
            it.step("sent")
        it.rejected += results.rejected
        if results.second is not None:
            lines = merge_second_at_once(results.second, number, it.work_settings, it.storage, LIMITS)
            for key, value in result_messages(lines, number, 1, 3):
                it.results.append((key, value.to_pybytes()))
                it.step("sent")

    def second(self, record: RoundRecord, slots: Sequence[int]) -> None:
        it = self._
        number = record.round.number
        rows = []
        for slot in slots:
            rows += second_round(slot, number, it.work_settings, it.storage)
            it.step("second")
        lines = merge_second_round(rows, number, it.work_settings.space, it.storage, LIMITS)
        for key, value in result_messages(lines, number, 1, 3):
            it.results.append((key, value.to_pybytes()))


def _batch(topic: str, partition: int, offsets: range, part: Sequence[Message]) -> pa.RecordBatch:
    n = len(part)
    return pa.RecordBatch.from_pydict(
        {
            "topic": pa.array([topic] * n),
            "partition": pa.array([partition] * n, pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "key": pa.array([key for key, _ in part], pa.binary()),
            "value": pa.array([value for _, value in part], pa.binary()),
        }
    )
