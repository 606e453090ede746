"""Requests to a remote storage for which turns wait: one after the other, counted, not timed.

Everything is done by one process, which is the largest number of sequential requests: those of several actors are
concurrent.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from spatialstream.connectors.memory import MemoryChannel, MemoryLog, MemorySink, MemorySource
from spatialstream.index.version import build
from spatialstream.model.kinds import QueryType
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.space import WGS84
from spatialstream.store.memory import MemoryStore
from spatialstream.stream.driver import RouterTurns, WorkerTurns, news
from spatialstream.stream.engine import Inline
from spatialstream.stream.leadership import Leadership
from spatialstream.stream.router import EPOCHS, Router
from spatialstream.stream.settings import StreamSettings
from spatialstream.stream.worker import ROUNDS, Worker
from tests.remote import Remote
from tests.streams import object_record, query_record, random_stream

SLOTS, LANES = 4, 4


@dataclass
class Turns:
    """Both jobs of a stream, with some input before each epoch.

    Attributes:
        due: whether turns end with checkpoints.
        spent: how far the storage's clock has advanced in each phase of a turn.
        requests: for which each phase has waited, method and name.
    """

    due: bool = False
    spent: Counter[str] = field(default_factory=Counter)
    requests: dict[str, list[tuple[str, str]]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        drawn = random_stream(5, 3_000, 20, WGS84)
        self.objects = sorted(drawn.objects, key=lambda each: each.t)
        queries = [each for each in drawn.queries if getattr(each, "type", None) is not QueryType.SKQ]
        self.storage = Remote()
        lanes = [f"objects/{i}" for i in range(LANES)]
        self.source = MemorySource([*lanes, "queries/0"])
        settings = StreamSettings("s", slots=SLOTS, partitions=2, idle=0, epoch_records=1_000_000, retention=None)
        channel = MemoryChannel([MemoryLog() for _ in range(SLOTS)], MemoryLog())
        world = settings.world(self.storage, channel, MemorySink([MemoryLog()], MemoryLog()), source=self.source)
        store = MemoryStore()
        store.create(build(WGS84, ObjectBatch.of(self.objects), QueryBatch.of([]), 16, SLOTS))
        self.source.logs["queries/0"].append(*((None, json.dumps(query_record(each)).encode()) for each in queries))
        engine = Inline(world)
        self.part, self.before, self.seen = "", 0, 0
        leadership = Leadership(channel, self.storage, "router", EPOCHS, 1, self.step)
        given = settings, self.storage, store, list(self.source.logs), lambda: 10**13
        self.router = RouterTurns(
            Router(*given, leadership=leadership, due=lambda: self.due), engine, self.step, beside=True
        )
        leadership = Leadership(channel, self.storage, "worker", ROUNDS, 1, self.step)
        worker = Worker(settings, self.storage, store, leadership=leadership, due=lambda: self.due)
        self.worker = WorkerTurns(worker, engine, SLOTS, self.step, beside=True)

    def step(self, name: str) -> None:
        """Begin a phase of a turn; the decision includes the log."""
        if spent := self.storage.now - self.before:
            self.spent[self.part] += spent
            self.requests[self.part] += self.storage.waited[self.seen :]
        self.before, self.seen = self.storage.now, len(self.storage.waited)
        self.part = {"record": "decide", "begin": "decide", "hear": "decide"}.get(name, name)

    def turn(self, *, due: bool = False) -> Counter[str]:
        """Do an epoch and its round; returns what each phase has waited for."""
        self.due, many = due, 60
        for i, each in enumerate(self.objects[:many]):
            self.source.logs[f"objects/{i % LANES}"].append((None, json.dumps(object_record(each, WGS84)).encode()))
        del self.objects[:many]
        self.step("")
        self.spent.clear()
        self.requests.clear()
        bounds = self.source.bounds()
        self.router.epoch(self.router.ingestion(news(bounds, self.router.router.read, 10**9)))
        self.step("next")
        record = self.worker.next(10)
        assert record is not None
        assert record.round.checkpoint == due
        self.worker.do(record)
        self.step("")
        return Counter(self.spent)


def test_a_turn_waits_for_nothing() -> None:
    turns = Turns()
    for _ in range(3):
        turns.turn()
    for _ in range(3):
        assert turns.turn() == {}


def test_a_turn_waits_for_no_checkpoint() -> None:
    turns = Turns()
    turns.turn(due=True)
    for _ in range(9):
        turns.turn()  # after the first checkpoint it is looked what versions before have left
    for _ in range(4):
        before = set(turns.storage.list("state/"))
        assert turns.turn(due=True) == {}
        while turns.router.router.writing or turns.worker.worker.writing:
            assert turns.turn(due=False) == {}
        assert len(set(turns.storage.list("state/")) - before) > 3 * SLOTS
