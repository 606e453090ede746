"""Cost of every component at 1,000 slots, 10^7 continuous queries and 1,000,000 objects/s, measured in the real code.

``python -m tests.benchmarks.bench_scale [PART...]``; parts are those of :data:`PARTS`. A stream of that size would need
a thousand machines, so none is run: each component gets the input of such a stream, from memory, and its work is
counted: CPU time, bytes, calls, messages, series. 10^7 queries are measured as 10^4 to 10^6 of a slot: one of 1,024
slots has about 20,000 of them. ``docs/scale.md`` draws the conclusions.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
from prometheus_client import generate_latest

from spatialstream.actors.actor import Actor, ActorSpec
from spatialstream.actors.wire import Command, Gathering, act, client_of, options
from spatialstream.balance.loads import LeafCounts
from spatialstream.balance.proposal import propose
from spatialstream.balance.settings import BalanceSettings
from spatialstream.cli.metrics import RouterMetrics, WorkerMetrics
from spatialstream.connectors.memory import MemoryChannel, MemoryLog, MemorySink
from spatialstream.connectors.memory_storage import MemoryStorage
from spatialstream.index.qt.construction import build_tree
from spatialstream.index.statistics import Statistics
from spatialstream.index.version import RoutingVersion, build
from spatialstream.local.range.crq import ContinuousRangeIndex
from spatialstream.model.arrays import pack_arrays, unpack_arrays
from spatialstream.model.kinds import TYPES, QueryType
from spatialstream.stages.route import route_epoch
from spatialstream.stages.runs import write_run
from spatialstream.stages.tasks import RoundTasks, Summary
from spatialstream.stages.turns import NEVER, Epoch, Round, Run
from spatialstream.stages.versions import save_version
from spatialstream.store.blobs import Blob
from spatialstream.store.records import acknowledgement
from spatialstream.stream.load_window import LoadWindow
from spatialstream.stream.settings import StreamSettings
from spatialstream.stream.worker import RoundRecord
from tests.benchmarks import bench_crq
from tests.benchmarks.bench_index import make_queries
from tests.benchmarks.workload import SPACE, objects, queries
from tests.harness import forget
from tests.mute_actors import Driven, MuteActorLauncher

Figure = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Size:
    """How large a stream is.

    Attributes:
        slots, partitions, actors: of the worker, of the router (and parts of MERGE), of each job.
        leaves: of the routing version.
    """

    slots: int
    partitions: int
    actors: int
    leaves: int

    def __str__(self) -> str:
        return f"{self.slots:,} slots, {self.partitions} partitions, {self.actors} actors"


SIZES = (Size(4, 2, 1, 64), Size(64, 16, 16, 1_024), Size(1_024, 64, 256, 16_384))
LARGE = SIZES[-1]

OBJECTS, QUERIES = 1_000_000, 10_000_000
"""Registrations a second; registered queries."""
TURNS_A_SECOND = 5
"""Epochs, and rounds: results come within half a second."""
WINDOW_SECONDS = 600
TRIES = 3


def cpu(work: Callable[[], object]) -> float:
    """CPU seconds of this process."""
    began = time.process_time()
    work()
    return time.process_time() - began


@dataclass(slots=True)
class Figures:
    """Figures as the other benchmarks give them, and by name."""

    rows: list[Figure] = field(default_factory=list)
    told: Callable[[Figure], object] = lambda row: None

    def add(self, name: str, value: float, unit: str, note: str = "") -> float:
        """One more; its value."""
        row = {"name": name, "value": float(value), "unit": unit, "note": note}
        self.rows.append(row)
        self.told(row)
        return float(value)

    def of(self, name: str) -> float:
        """The value of one."""
        return float(next(row["value"] for row in self.rows if row["name"] == name))


@cache
def version(leaves: int, slots: int) -> RoutingVersion:
    """A routing version by space alone, which takes a tenth of the time to build."""
    stream = objects(50_000, seed=1)
    builder = partial(build_tree, splits={"spatial"})
    return build(SPACE, stream, make_queries(stream, 10_000, "CRQ"), leaves, slots, builder=builder)


def loads(size: Size) -> dict[int, dict[str, Any]]:
    """What each slot says of a round in which all its leaves have had objects."""
    mapping = version(size.leaves, size.slots).mapping
    told = {}
    for slot in range(size.slots):
        leaves = np.flatnonzero(mapping == slot).tolist()
        of_leaves = {f"leaf_{name}": [7] * len(leaves) for name in ("objects", "checked", "matches")}
        told[slot] = {
            "objects": 195,
            "matches": 300,
            "seconds": 0.0123,
            "held": 10**6,
            "bytes": 10**8,
            "queries": {"CRQ": 3},
            "continuous": {kind.value: 10**4 for kind in QueryType},
            "spent": {"match": 0.01, "results": 0.001, "objects": 0.001, "queries": 0.0},
            "leaves": leaves,
            **of_leaves,
        }
    return told


# -------------------------------------------------------------------------------------------------------------- drivers


def drivers(size: Size, found: Figures) -> None:
    """Both drivers with the real engine and actors that do nothing, and what the worker's makes of the slots' loads."""
    with Driven(version(size.leaves, size.slots), size.partitions, size.actors, loads(size)) as driven:
        metrics, window = WorkerMetrics(size.slots, size.leaves), LoadWindow(1_000 * WINDOW_SECONDS, None)
        spent: dict[str, list[tuple[float, int, int]]] = {"epoch": [], "round": [], "loads": []}
        done: list[tuple[RoundRecord, Summary]] = []

        def observe() -> None:
            record, summary = done.pop()
            metrics.observe(record, summary, 0.1, {})
            window.use(version(size.leaves, size.slots), record.round.watermark)
            window.take(record.round.watermark, summary.loads)

        steps = (("epoch", driven.epoch), ("round", lambda: done.append(driven.round())), ("loads", observe))
        for _ in range(1 + TRIES):
            for name, work in steps:
                calls, size_ = driven.counted()
                seconds = cpu(work)
                again, more = driven.counted()
                spent[name].append((seconds, again - calls, more - size_))
        for name, job in (("epoch", "router"), ("round", "worker"), ("loads", "worker")):
            seconds = min(each[0] for each in spent[name][1:])
            _, calls, told = spent[name][-1]
            what = f"{job}'s driver, {'loads of a round' if name == 'loads' else 'a turn'}: {size}"
            found.add(what, 1e3 * seconds, "ms", "" if name == "loads" else f"{calls} calls, {told:,} bytes")


def series(size: Size, found: Figures) -> None:
    """What Prometheus reads of both jobs."""
    worker, router = WorkerMetrics(size.slots, size.leaves), RouterMetrics()
    worker.actors(lambda: dict.fromkeys(range(size.actors), size.slots // size.actors))
    router.actors(lambda: dict.fromkeys(range(size.actors), 1))
    for job, registry in (("worker", worker.registry), ("router", router.registry)):
        text = generate_latest(registry)
        count = sum(line[:1] != b"#" for line in text.splitlines())
        seconds = cpu(lambda registry=registry: generate_latest(registry))
        note = f"{len(text):,} bytes, {1e3 * seconds:.0f} ms a scrape"
        found.add(f"series of the {job}: {size}", count, "series", note)


def windows(size: Size, found: Figures) -> None:
    """Counts by leaf of ten minutes, in the worker's driver."""
    given, window = loads(size), LoadWindow(1_000 * WINDOW_SECONDS, None)
    window.use(version(size.leaves, size.slots), 0)
    step = 1_000 // TURNS_A_SECOND
    rounds = WINDOW_SECONDS * TURNS_A_SECOND
    few = dict(list(given.items())[:1])  # columns are as long as there are leaves, whoever has had anything
    for at in range(rounds):
        window.take(at * step, few)
    held = f"{window.nbytes / 1e6:,.1f} MB"
    seconds = min(cpu(window.view) for _ in range(TRIES))
    found.add(f"counts of {size.leaves:,} leaves in ten minutes, looked at", 1e3 * seconds, "ms", held)
    found.add(f"counts of {size.leaves:,} leaves in ten minutes, held", window.nbytes, "bytes")


# ------------------------------------------------------------------------------------------------------- actors to
# actors


def fan_in(size: Size, found: Figures) -> None:
    """What a part of MERGE costs by the actors that it reads, none of which has anything to say."""
    settings = StreamSettings("s", slots=size.slots, space=SPACE, partitions=size.partitions)
    channel = MemoryChannel([MemoryLog()], MemoryLog())
    storage = MemoryStorage()
    save_version(storage, version(size.leaves, size.slots))
    world = settings.world(storage, channel, MemorySink([MemoryLog()], MemoryLog()))
    launcher = MuteActorLauncher(1, {})
    with Actor(ActorSpec("127.0.0.1:0", "known", world, heartbeat_timeout=1e6), "127.0.0.1") as actor:
        address = launcher.serve()
        client, spent = client_of(actor.address), []
        each = size.slots // size.actors
        for gathering in range(1 + TRIES):
            forget()
            tasks = RoundTasks(Round(gathering, (gathering,), (0,), 10**12, 0, checkpoint=False))
            work, merge = (Command.of(do, (), 1, gathering) for do in (tasks.work, tasks.merge))
            told = [(slot, 10**9, 10**9 + 64) for slot in range(size.slots)]
            sources = [(address, tuple(told[at : at + each])) for at in range(0, size.slots, each)]
            body = next(Gathering(merge, work, sources, [address]).of_parts([0]))
            spent.append(cpu(lambda body=body: act(client, "gather", body, options("known"), actor.address)))
        ticket = len(Gathering.read(json.loads(body)).commands()[0][1].to_json())
        launcher.end()
    note = f"{ticket} bytes are what each is told; {size.partitions * size.actors:,} calls a round in all"
    found.add(f"a part of MERGE that reads {size.actors} actors, nothing else", 1e3 * min(spent[1:]), "ms", note)


# --------------------------------------------------------------------------------------------------------------- broker


def blocks(slots: int, count: int, found: Figures) -> None:
    """What a router partition sends of so many objects: blocks, markers, their bytes, and its CPU time."""
    forget()
    storage, stream = MemoryStorage(), objects(max(count, 1), seed=5)
    save_version(storage, version(max(slots, 64), slots))
    runs: tuple[Run, ...] = ()
    if count:
        stream = replace(stream, t=np.sort(np.arange(count) % 200))
        name = "000000000-objects.arrow"
        file = write_run(storage.put, name, stream, np.arange(count))
        runs = (Run(name, "objects", count, "objects/0", file),)
    epoch = Epoch(0, 1, NEVER, 200, 0, None, (), runs, (), measured=False, checkpoint=False)

    def sent() -> list[tuple[int, bytes, pa.Buffer]]:
        forget()
        return list(route_epoch(epoch, 0, storage))

    rows, seconds = sent(), min(cpu(sent) for _ in range(TRIES))
    size = sum(len(key) + content.size for _, key, content in rows)
    note = f"{len(rows):,} messages, {size:,} bytes, {size / max(count, 1):,.0f} an object"
    found.add(f"ROUTE, {count:,} objects to {slots:,} slots", 1e3 * seconds, "ms", note)
    found.add(f"ROUTE, {count:,} objects to {slots:,} slots, bytes", size, "bytes")


# ------------------------------------------------------------------------------------------------------------ ZooKeeper


@dataclass(slots=True)
class _Written:
    """A client of ZooKeeper that counts what it is given to write."""

    sizes: list[int] = field(default_factory=list)

    def ensure_path_async(self, path: str) -> None: ...

    def create_async(self, path: str, data: bytes) -> None:
        self.sizes.append(len(data))


def routing_store(size: Size, found: Figures) -> None:
    """Nodes and bytes of a version, of the confirmations of its slots, and of a load report."""
    n = size.leaves
    rng = np.random.default_rng(0)
    columns = ("objects", "arrivals", "continuous", "checked", "seconds")
    counts = {name: rng.poisson(100.0, n).astype(float) for name in columns}
    counts["queries"] = rng.poisson(3.0, (len(TYPES), n)).astype(float)
    for name, parts in (
        ("a version", version(n, size.slots).pack()),
        ("a load report", pack_arrays(counts, {"version": 1, "span": 600_000, "watermark": 10**12})),
    ):
        client: Any = _Written()
        Blob(client, "/spatialstream/stream/versions/1/block", parts).write(lambda result: result)
        note = f"{len(client.sizes)} nodes, the largest of {max(client.sizes):,} bytes"
        found.add(f"ZooKeeper: {name} of {n:,} leaves, {size.slots:,} slots", sum(client.sizes), "bytes", note)
    names = [f"/spatialstream/stream/acks/{acknowledgement(1, 'exported', slot)}" for slot in range(size.slots)]
    transaction = sum(len(name) + 100 for name in names)  # as the store counts it before it sends it
    note = f"{len(names):,} nodes; refused beyond 1,000,000 bytes"
    found.add(f"ZooKeeper: a transaction of {size.slots:,} confirmations", transaction, "bytes", note)


# ------------------------------------------------------------------------------------------------------------- operator


def operator(size: Size, found: Figures) -> None:
    """What it takes to decide about a stream, and how large its status is by that."""
    known, stream = version(size.leaves, size.slots), objects(50_000, seed=2)
    asked = make_queries(stream, 10_000, "CRQ")
    statistics = Statistics.of(SPACE, stream, asked, 3.6e6)
    n = len(known.index.leaves)
    arrivals = np.bincount(known.index.route_objects(stream), minlength=n).astype(float)
    arrivals[: n // 20] *= 20  # a part of the space has become busy
    counts = LeafCounts(arrivals * 10, arrivals, np.full(n, 100.0), 6e5, None)
    for strategy in ("PM", "FM", "FG") if n <= 1_024 else ("PM", "FM"):
        settings = BalanceSettings(leaves=max(1_024, 2 * n))
        given = known, counts, statistics, settings, strategy
        seconds = cpu(lambda given=given: propose(*given))
        found.add(f"operator: {strategy} with {n:,} leaves, {size.slots:,} slots", 1e3 * seconds, "ms")
    status = {"slotLoads": [float(f"{each:.4g}") for each in arrivals[: size.slots] * 1.234567]}
    told = len(json.dumps(status))
    found.add(f"operator: loads of {size.slots:,} slots in a status", told, "bytes", "etcd: 1,500,000 for all of it")
    labels = {"__name__": "spatialstream_slot_load", "instance": "10.0.0.1:9464", "job": "spatialstream/pods"}
    labels |= {"namespace": "geo", "pod": "quakes-worker-driver", "container": "driver", "slot": "1000"}
    answer = len(json.dumps({"metric": labels, "value": [1764000000.123, "12345.6789"]}))
    found.add(f"operator: Prometheus' answer with the loads of {size.slots:,} slots", answer * size.slots, "bytes")


# ---------------------------------------------------------------------------------------------------------------- slots


def slots(found: Figures) -> None:
    """A slot's continuous queries: how many it has, and what these take in memory, on disk and to be read again."""
    source = objects(100_000, seed=bench_crq.SOURCE_SEED)
    for size in SIZES:
        row, _ = version(max(size.slots, 64), size.slots).route_queries(queries(source, 20_000, seed=3))
        found.add(f"slots of a CRQ, of {size.slots:,}", len(row) / 20_000, "slots")
    stream = objects(50_000, seed=bench_crq.STREAM_SEED)
    for count in (10_000, 100_000, 1_000_000):
        index = ContinuousRangeIndex(SPACE)
        index.observe(stream.take(np.arange(20_000)))
        bench_crq.register(index, queries(source, count, seed=bench_crq.QUERY_SEED), 0)
        files: dict[str, bytes] = {}

        def write(kind: str, arrays: Any, meta: Any = None, files: dict[str, bytes] = files) -> str:
            files[f"{kind}-{len(files)}"] = b"".join(pack_arrays(arrays, meta or {}))
            return list(files)[-1]

        manifest = index.checkpoint(write)
        size_ = sum(map(len, files.values()))

        def read(name: str, files: dict[str, bytes] = files) -> Any:
            return unpack_arrays(pa.py_buffer(files[name]), name)

        seconds = cpu(lambda manifest=manifest, read=read: ContinuousRangeIndex.restore(SPACE, manifest, read))
        note = f"{index.nbytes / count:.0f} in memory, {len(files)} files, restored in {1e3 * seconds:.0f} ms"
        found.add(f"{count:,} CRQs of a slot, in a checkpoint", size_ / count, "bytes", f"a query; {note}")


# ------------------------------------------------------------------------------------------------------------------ all


def broker(size: Size, found: Figures) -> None:
    """What one router partition sends in an epoch without objects, and in one with its share of all."""
    for count in (0, OBJECTS // TURNS_A_SECOND // size.partitions):
        blocks(size.slots, count, found)


PARTS: dict[str, Callable[[Size, Figures], None]] = {
    "drivers": drivers,
    "series": series,
    "broker": broker,
    "store": routing_store,
    "windows": windows,
    "merge": fan_in,
    "operator": operator,
}
"""What is counted by size, by name; besides these, ``slots``."""


def _figures(names: Collection[str] = (), told: Callable[[Figure], object] = lambda row: None) -> Figures:
    found = Figures(told=told)
    for name, part in PARTS.items():
        if not names or name in names:
            for size in SIZES:
                part(size, found)
    if not names or "slots" in names:
        slots(found)
    return found


def run() -> list[Figure]:
    """All figures."""
    return _figures().rows


def show(row: Figure) -> None:
    """A figure as a line."""
    print(f"{row['name']:<72}{row['value']:>16,.1f} {row['unit']:<8}{row['note']}", flush=True)


if __name__ == "__main__":
    _figures(sys.argv[1:], show)
