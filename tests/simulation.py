"""A simulated stream without Spark and servers: the real router, worker and rebalancer, with in-memory logs and an
in-memory routing store, in arbitrary interleavings, with crashes before each of their steps.

A stage can be made to fail on a record: a test replaces it by a function that raises :class:`StageError`. After a job
has failed twice in a row, bisection finds the record, as in the real jobs.

An epoch reads the messages in the logs when it starts; a retry of the epoch may read more.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from spatialstream.balance.loads import LeafCounts
from spatialstream.balance.planner import Plan
from spatialstream.balance.proposal import propose
from spatialstream.balance.query_partition import dealt_evenly, partition_queries
from spatialstream.balance.rebuild import rebuild
from spatialstream.balance.settings import BalanceSettings
from spatialstream.balance.subscriptions import ObjectSample, Subscriptions
from spatialstream.connectors.contracts import Storage
from spatialstream.connectors.delivery import Assembler, Deduplicator
from spatialstream.connectors.folder import Folder
from spatialstream.connectors.memory import MemoryChannel, MemoryLog, MemorySink, MemorySource, Message
from spatialstream.index.kinds import AUTO, DEFAULT, KINDS, kind_named
from spatialstream.index.query_partition import QueryPartition, keys_of
from spatialstream.index.version import RoutingVersion, build
from spatialstream.model.errors import Conflict, Lost, NoStorage, Unavailable
from spatialstream.model.kinds import CODE, QueryType
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import Cancellation, Query, QueryBatch
from spatialstream.model.regions import Regions
from spatialstream.model.space import Space
from spatialstream.stages.ingest import CLOCK, watermark
from spatialstream.stages.learning import Learner
from spatialstream.stages.merge import merger_owner
from spatialstream.stages.quarantine import QuarantinedRecord
from spatialstream.stages.route import registry_owner
from spatialstream.stages.rows import RowLimits
from spatialstream.stages.state import forget, owners_in_memory
from spatialstream.stages.tasks import Summary
from spatialstream.stages.work import WorkSettings, slot_owner
from spatialstream.store.memory import MemoryStore
from spatialstream.store.reports import read_sample
from spatialstream.stream.driver import RouterTurns, WorkerTurns, news
from spatialstream.stream.router import Router
from spatialstream.stream.settings import StreamSettings
from spatialstream.stream.worker import RoundRecord, Worker
from tests.harness import Processes
from tests.streams import object_record

IDLE = 10**12
LIMITS = RowLimits(part=300)


class Crash(BaseException):
    """A simulated crash of the process."""


class StageError(Exception):
    """A stage fails on one of its records."""


class Topic(MemoryLog):
    """A log whose producer may crash before each message."""

    def __init__(self, step: Callable[[str], None]) -> None:
        super().__init__()
        self._step = step

    def append(self, *messages: Message) -> int:
        for message in messages:
            self._step("send")
            super().append(message)
        return self.bounds[1]


class Channel(MemoryChannel):
    """A channel whose server was unavailable: it does not know yet which messages were accepted meanwhile."""

    def ends(self) -> list[int]:
        return self.begins()


class Simulation:
    """A simulated stream.

    Args:
        folder: folder of the state, unless another storage is given.
        space, objects, queries: the stream, in time order.
        settings: settings of the stream.
        seed: seed of all random decisions.
        chaos: probability that a process crashes before a step; an owner's state is lost with a quarter of it.
        checkpoints: probability that a turn ends with a checkpoint.
        beside: whether turns continue while a checkpoint is being written.
        index: kind of the global index; ``auto``: each version's is a random one.
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
        checkpoints: float = 0.3,
        sample: tuple[ObjectBatch, QueryBatch] | None = None,
        storage: Storage | None = None,
        beside: bool = True,
        index: str = DEFAULT,
    ) -> None:
        self.index = index
        self.random, self.beside = random.Random(seed), beside
        self.storage, self.settings, self.chaos = storage or Folder(folder), settings, chaos
        self.due = lambda: self.random.random() < checkpoints
        self.again = 0
        self.source = MemorySource([*(f"objects/{i}" for i in range(object_partitions)), "queries/0"])
        self.blocks: list[MemoryLog] = [Topic(self.step) for _ in range(settings.slots)]
        self.announced, self.rejected = Topic(self.step), Topic(self.step)
        self.results: list[MemoryLog] = [Topic(self.step) for _ in range(settings.mergers)]
        self.store = MemoryStore()
        self.views = [MemoryStore(self.store.memory) for _ in range(2)]
        self.time = 0
        self.crashes = 0
        self.away = 0
        self.rebuilt = self.moved = 0
        self.learner = Learner(self.storage, self.store, space, clock=itertools.count(step=3_600.0).__next__)
        archive = None if settings.retention is None else Folder(folder / "archive")
        self.work_settings = WorkSettings(space, settings.interval, settings.retention, archive)
        self.unsent = self._unsent(space, objects, queries)
        self.sample = sample or (ObjectBatch.of(list(objects)), QueryBatch.of(list(queries)))
        self.store.create(self.version(0))
        self.router: Router | None = None
        self.worker: Worker | None = None
        self.failures = {"router": 0, "worker": 0}
        self.quarantined: list[QuarantinedRecord] = []
        self.rounds: list[tuple[RoundRecord, Summary]] = []
        channel, sink = Channel(self.blocks, self.announced), MemorySink(self.results, self.rejected, 3)
        world = settings.world(self.storage, channel, sink, archive, source=self.source, limits=LIMITS)
        self.processes = Processes(world, self.step, self.random)

    # ------------------------------------------------------------------------------------------------------ producers

    def _unsent(
        self, space: Space, objects: Sequence[SpatialObject], queries: Sequence[Query | Cancellation]
    ) -> dict[str, list[Message]]:
        """The messages of each partition: records in time order, sometimes several per message, and watermarks."""
        lanes: dict[str, list[tuple[int, bytes]]] = {name: [] for name in self.source.logs}
        first, second = space.axes
        for item in objects:
            if item.stored is not None:
                record = object_record(item, space)
            else:
                record = {"id": item.id, "t": item.t, first: item.x, second: item.y, "terms": list(item.said)}
                record |= dict(item.properties)
            lanes[f"objects/{self.random.randrange(len(lanes) - 1)}"].append((item.t, json.dumps(record).encode()))
        for query in queries:
            lanes["queries/0"].append((query.t, json.dumps(query.to_record()).encode()))
        end = max((t for lane in lanes.values() for t, _ in lane), default=0) + 1
        sent = {lane: self._messages(lane, records, end) for lane, records in lanes.items()}
        records = [i for i, (key, _) in enumerate(sent["queries/0"]) if key != CLOCK]
        self.query_at = {offset: i for i, offset in enumerate(records)}
        return sent

    def _messages(self, lane: str, records: list[tuple[int, bytes]], end: int) -> list[Message]:
        result: list[Message] = []
        i = 0
        while i < len(records):
            if self.random.random() < 0.3:
                result.append((CLOCK, watermark(records[i][0])))
            size = self.random.choice([1, 1, 2, 5]) if lane.startswith("objects") else 1
            result.append((None, b"\n".join(text for _, text in records[i : i + size])))
            i += size
        return [*result, (CLOCK, watermark(end))]

    def produce(self) -> None:
        """Append some messages to the broker's logs."""
        lanes = [lane for lane, messages_ in self.unsent.items() if messages_]
        if lanes:
            lane = self.random.choice(lanes)
            count = self.random.choice([1, 2, 5, 20])
            self.source.logs[lane].append(*self.unsent[lane][:count])
            del self.unsent[lane][:count]

    # --------------------------------------------------------------------------------------------------------- router

    def step(self, name: str) -> None:
        """Called before each step of a process, which may crash now."""
        self.time += 1
        self.again += name == "again"
        if self.random.random() < self.chaos:
            raise Crash(name)
        if self.random.random() < self.chaos / 4:
            self.lose()

    def lose(self) -> None:
        """Drop the in-memory state of an owner, as if its process had crashed."""
        if known := owners_in_memory(self.storage):
            forget(self.storage, self.random.choice(known))

    def run_router(self) -> None:
        """Run an epoch, or repeat it."""
        try:
            if self.router is None:
                names, view = list(self.source.logs), self.views[0]
                for partition in range(self.settings.partitions):
                    forget(self.storage, registry_owner(partition))
                now, due = (lambda: self.time), (lambda: self.due())
                self.router = Router(self.settings, self.storage, view, names, now, self.step, due=due)
                self._epochs = RouterTurns(self.router, self.processes, self.step, self.beside)
            turns = self._epochs
            turns.epoch(turns.ingestion(news(self.source.bounds(), self.router.read, 10**9)))
            self.failures["router"] = 0
        except StageError:
            self._failed("router", turns.quarantine)
        except Lost:  # again, while the state was being rebuilt
            pass
        except Crash:
            self.crashes += 1
            self.router = None
        except NoStorage:  # retried later, as jobs do
            self.away += 1
        except Unavailable:
            assert self.router is not None
            assert self.router.last is None, "without the store there is no first version; with one, the stream goes on"

    def _failed(self, name: str, quarantine: Callable[[], Sequence[QuarantinedRecord]]) -> None:
        """Handle a failed turn; after the second failure, bisect it, unless its process crashes meanwhile."""
        self.failures[name] += 1
        assert self.failures[name] < 50, "nothing was found"
        if self.failures[name] % 2:
            return
        try:
            self.quarantined += quarantine()
        except Lost:
            pass
        except Crash:
            self.crashes += 1
            setattr(self, name, None)

    @property
    def unheard(self) -> int:
        """Number of announcements that no round has processed."""
        taken = 0 if self.worker is None else self.worker.announced or 0
        return self.announced.bounds[1] - taken

    @property
    def behind(self) -> bool:
        """Whether an epoch has been announced that no round has processed.

        A router that dies when it has announced an epoch announces it again, perhaps after its round: that makes no
        other round.
        """
        last = -1 if self.worker is None or self.worker.last is None else self.worker.last.last
        sent = self.announced.read(self.announced.bounds[1] - self.unheard, self.announced.bounds[1])
        return any(json.loads(value or b"{}").get("epoch", -1) > last for _, value in sent)

    @property
    def _owners(self) -> list[str]:
        settings = self.settings
        return [*map(merger_owner, range(settings.mergers)), *map(slot_owner, range(settings.slots))]

    def run_worker(self) -> None:
        """Run a round, or repeat it."""
        try:
            if self.worker is None:
                for owner in self._owners:
                    forget(self.storage, owner)
                self.worker = Worker(self.settings, self.storage, self.views[1], self.step, due=lambda: self.due())
                given = self.worker, self.processes, self.settings.slots, self.step, self.beside
                self._rounds = WorkerTurns(*given)
            record = self._rounds.next(self.random.randint(1, max(1, self.unheard))) or self.worker.settle()
            if record is None:
                self.worker.confirm()
            else:
                self.rounds.append((record, self._rounds.do(record)))
            self.failures["worker"] = 0
        except StageError:
            self._rounds.forget()
            self._failed("worker", self._rounds.quarantine)
        except NoStorage:
            if self.worker is not None:
                self._rounds.forget()
            self.away += 1
        except Lost:
            self._rounds.forget()
        except Crash:
            self.crashes += 1
            self.worker = None

    # ----------------------------------------------------------------------------------------------------- rebalancing

    def version(self, number: int) -> RoutingVersion:
        """A random version; if each CKQ is on one slot, with a random partition, or that of the version before."""
        found = self._version(number)
        if not self.settings.placing or (found.nearest is not None and self.random.random() < 0.5):
            return found
        return replace(found, nearest=self._partition())

    def _partition(self) -> QueryPartition:
        objects, queries = self.sample
        space = self.work_settings.space
        if self.random.random() < 0.3:
            return dealt_evenly(space, self.settings.slots)
        queries = queries.take(np.flatnonzero(queries.code == CODE[QueryType.CKQ]))
        sample = ObjectSample(objects)
        balls = Regions.of([None] * len(queries))
        those = Subscriptions.of(space, queries.at, balls, queries.keywords, sample)
        gamma = self.random.choice([1, 4, 20]), self.random.choice([0, 1_000])
        found = partition_queries(those, keys_of(queries), sample, space, self.settings.slots, gamma)
        slots = [self.random.randrange(self.settings.slots) for _ in found.slot]
        return found.moved(np.array(slots, np.int32))

    def _version(self, number: int) -> RoutingVersion:
        """A random version with a different index and mapping, or one by a strategy of the rebalancer."""
        objects, queries = self.sample
        learned = self.random.random() < 0.5 and self.learner.learn()
        sample = read_sample(self.store) if learned else None
        if sample is not None and len(sample.objects):  # as the rebalancer does it
            known, active = sample.statistics(2), self.store.load(self.store.state().active.number)
            columns = [np.array([self.random.randrange(100) for _ in active.mapping], np.float64) for _ in range(3)]
            wanted = BalanceSettings(2.0, leaves=self.random.choice([1, 16, 40]))
            strategies = kind_named(active.index.kind).strategies
            strategy = "rebuild" if self.index in (DEFAULT, AUTO) else self.random.choice(strategies)
            if strategy != "rebuild":
                self.moved += 1
                proposal = propose(active, LeafCounts(*columns, 1_000.0), known, wanted, strategy, number, sample)
                assert proposal is not None
                return proposal.version
            into = None if self.index != AUTO else Plan(self._kind(), self.random.choice([1, 4, 16]), "")
            made = rebuild(active, LeafCounts(*columns, 1_000.0), sample, known, wanted, into)
            self.rebuilt += 1
            return RoutingVersion(number, made.index, made.mapping, active.slots)
        leaves = self.random.choice([1, 4, 7, 16, 40])
        given = self.work_settings.space, objects, queries, leaves, self.settings.slots
        version = build(*given, number=number, kind=self._kind())
        slots = [self.random.randrange(self.settings.slots) for _ in version.mapping]
        return RoutingVersion(number, version.index, pa.array(slots, pa.int32()).to_numpy().copy(), version.slots)

    def _kind(self) -> str:
        """The kind of the next index."""
        return self.random.choice([*KINDS]) if self.index == AUTO else self.index

    def rebalance(self) -> None:
        """Publish a new version, or withdraw the pending one."""
        try:
            state = self.store.state()
            if state.pending is None:
                self.store.publish(self.version(state.last + 1), state.active.number, f"p{state.last}", {})
            elif self.random.random() < 0.2:
                self.store.withdraw(state.pending.number, state.pending.proposal)
        except NoStorage:
            self.away += 1
        except (Conflict, Unavailable):
            pass

    def disturb(self) -> None:
        """Simulate an unreachable store, or a lost response, for one of the jobs."""
        view = self.random.choice(self.views)
        if self.random.random() < 0.5:
            view.reachable = not view.reachable
        elif view.reachable:
            view.fail_next_write(self.random.choice(["before", "after"]))

    # ------------------------------------------------------------------------------------------------------------ runs

    def run(self, rebalances: float = 0.2, disturbances: float = 0.1) -> None:
        """Run all processes in random order until all produced messages have been processed."""
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
        while self.worker is None or self.worker.unfinished or self.behind:
            self.run_worker()
        assert self.worker.last is not None
        left = {int(name[7:16]) for name in self._listed("rounds/") if name.endswith(".second")}
        assert left <= {self.worker.last.round.number}, "what second phases needed goes with the next round"

    def _listed(self, prefix: str) -> list[str]:
        """Names in the storage, which may be temporarily unavailable."""
        while True:
            with suppress(NoStorage):
                return self.storage.list(prefix)

    def _drained(self) -> bool:
        router = self.router
        if router is None or router.last is None or router.unfinished:
            return False
        if news(self.source.bounds(), router.read, 10**9):
            return False
        return not router.last.held and not router.wants_epoch()

    def rows(self) -> list[dict[str, Any]]:
        """The rows that a consumer of the results sees: without repeated messages, with parts joined, by partition."""
        return [row for part in range(len(self.results)) for row in self.rows_of(part)]

    def rows_of(self, part: int) -> list[dict[str, Any]]:
        """The rows that a consumer of one partition sees."""
        known, whole = Deduplicator(), Assembler()
        sent = self.results[part].read(*self.results[part].bounds)
        parts = (part for key, value in sent for part in known.new_rows(key or b"", value or b""))
        return [json.loads(row) for part in parts for row in whole.add(part)]

    def refused(self) -> list[int]:
        """Positions of the rejected queries, without repeated dead letters."""
        return sorted(self.query_at[letter["offset"]] for letter in self.letters() if "epoch" not in letter)

    def letters(self) -> list[dict[str, Any]]:
        """The dead letters, without repetitions."""
        return [json.loads(value or b"") for _, value in dict.fromkeys(self.rejected.read(*self.rejected.bounds))]
