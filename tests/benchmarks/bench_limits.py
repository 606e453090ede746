"""The capacity of one unit of each kind, on one core: ``python -m tests.benchmarks.bench_limits``.

Distributed work is divided into indivisible units (a router partition, a slot, a part of MERGE); decisions are made by
a single process. Each figure is the throughput of one such unit per second, or its cost per turn, in CPU time;
``docs/architecture.md`` draws the conclusions.
"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import flight

from spatialstream.actors.call_pool import CallPool, serve_calls
from spatialstream.actors.wire import client_of
from spatialstream.connectors.memory import MemoryChannel, MemoryLog, MemorySink
from spatialstream.connectors.memory_storage import MemoryStorage
from spatialstream.index.version import RoutingVersion, build
from spatialstream.local.row_counts import Counts
from spatialstream.model.jsonable import to_json
from spatialstream.model.queries import QueryBatch
from spatialstream.stages import messages
from spatialstream.stages.ingest import Intake
from spatialstream.stages.merge import merge
from spatialstream.stages.messages import Block
from spatialstream.stages.route import route_epoch
from spatialstream.stages.runs import write_run
from spatialstream.stages.tasks import EpochTasks, InputTasks, Routed, Summary, World
from spatialstream.stages.turns import NEVER, Epoch, Round, Run
from spatialstream.stages.versions import save_version, version_name
from spatialstream.store.memory import MemoryStore
from spatialstream.stream.driver import RouterTurns, WorkerTurns, news
from spatialstream.stream.router import Router
from spatialstream.stream.settings import StreamSettings
from spatialstream.stream.worker import Worker
from tests.benchmarks.bench_crq import continuous
from tests.benchmarks.bench_index import make_queries
from tests.benchmarks.workload import SPACE, objects, queries
from tests.harness import forget

Figure = dict[str, Any]

REGISTRATIONS = 20_000
"""Of an epoch; the first :data:`_WARM` epochs fill the registry and are not counted."""
_WARM, _EPOCHS = 10, 8
BLOCKS, SLOTS = 400_000, 4
HAVING = 200_000
"""Queries that rows are of."""
TURNS = 200


def cpu(work: Callable[[], object]) -> float:
    """CPU seconds of this process."""
    began = time.process_time()
    work()
    return time.process_time() - began


def _version(leaves: int, slots: int) -> RoutingVersion:
    stream = objects(50_000, seed=1)
    return build(SPACE, stream, make_queries(stream, 10_000, "CRQ"), leaves, slots)


# ------------------------------------------------------------------------------------------------------------ admission


def admission(partitions: int) -> Iterator[Figure]:
    """Registrations that one of so many router partitions admits, routes and sends, onto 200,000 that stand."""
    forget()
    storage, stream = MemoryStorage(), objects(50_000, seed=1)
    save_version(storage, _version(64, SLOTS))
    seconds, before = [], None
    for number in range(_WARM + _EPOCHS):
        ids = pa.array([f"q{number}-{i}" for i in range(REGISTRATIONS)])
        asked = continuous(ids, queries(stream, REGISTRATIONS, seed=number))
        asked = replace(asked, t=np.full(REGISTRATIONS, number), keywords=asked.keywords.compact())
        name = f"{number:09d}-queries.arrow"
        times = write_run(storage.put, name, asked, np.arange(len(asked)))
        run = Run(name, "queries", REGISTRATIONS, "queries/0", times)
        epoch = Epoch(number, partitions, NEVER, number, 0, None, (), (run,), ())
        epoch = replace(epoch, measured=True, before=before, checkpoint=False)
        before = number, 0
        seconds.append(cpu(lambda epoch=epoch: [len(each[2]) for each in route_epoch(epoch, 0, storage)]))
    least = min(seconds[_WARM:])
    name = f"an epoch of {REGISTRATIONS:,} registrations, one of {partitions} router partitions"
    yield {"name": name, "value": 1e3 * least, "unit": "ms", "note": f"{REGISTRATIONS / least:,.0f} registrations/s"}


def markers(slots: int) -> Iterator[Figure]:
    """What a router partition sends in an epoch without records."""
    forget()
    storage = MemoryStorage()
    save_version(storage, _version(slots, slots))
    epoch = Epoch(0, 1, NEVER, 0, 0, None, (), (), (), checkpoint=False)
    seconds = min(cpu(lambda: forget() or list(route_epoch(epoch, 0, storage))) for _ in range(5))
    yield {"name": f"an epoch without records, one partition to {slots:,} slots", "value": 1e3 * seconds, "unit": "ms"}


# ---------------------------------------------------------------------------------------------------------------- rows


def _lines() -> list[Block]:
    """Rows of CRQs as four slots give them: how many each query has, and then by time, in blocks of about 4 MB."""
    found: list[Block] = []
    text = json.dumps({"query": "q" * 12, "type": "CRQ", "t": 10**12, "object": {"id": "o" * 12, "x": 0.123456789}})
    for slot in range(SLOTS):
        rng = np.random.default_rng(slot)
        t = np.sort(rng.integers(0, 1_000, BLOCKS // SLOTS))
        counts = Counts.of(rng.integers(0, HAVING, len(t)), t)
        content = messages.columns(number=counts.numbers, rows=counts.rows, last=counts.last)
        found.append((slot, messages.COUNTED, content))
        for first in range(0, len(t), 25_000):
            some = t[first : first + 25_000]
            seq = np.arange(first, first + len(some)) * SLOTS + slot
            lines = pa.array([text] * len(some))
            found.append((slot, messages.LINES, messages.columns(t=some, seq=seq, line=lines)))
    return found


def rows() -> Iterator[Figure]:
    """What MERGE costs a row of a CRQ: put into order with those of other slots, and made into messages."""
    lines, storage, sink = _lines(), MemoryStorage(), MemorySink([MemoryLog()], MemoryLog())

    def merged_rows(given: Sequence[Block]) -> None:
        forget()
        turn = Round(0, (0,), (0,), 1_000, 0, two_phase=False, checkpoint=False)
        sink.rows(0, 0, merge(given, turn, SPACE, storage).lines)

    def sent() -> None:
        for slot in range(SLOTS):
            given = (each["line"] for of, kind, each in lines if (of, kind) == (slot, messages.LINES))
            sink.rows(0, 0, (pa.compute.cast(each, pa.large_string()) for each in given))

    both, alone = (min(cpu(work) for _ in range(5)) for work in (lambda: merged_rows(lines), sent))
    yield {"name": "rows of CRQs, one part of MERGE", "value": BLOCKS / both, "unit": "rows/s"}
    yield {"name": "of a row, messages", "value": 1e6 * alone / BLOCKS, "unit": "us"}
    yield {"name": "of a row, order and counts", "value": 1e6 * (both - alone) / BLOCKS, "unit": "us"}
    firsts = range(0, len(lines), len(lines) // SLOTS)  # of a slot: its counts, and its first lines
    few = [(slot, kind, content.slice(0, 20)) for at in firsts for slot, kind, content in lines[at : at + 2]]
    few_seconds = min(cpu(lambda: merged_rows(few)) for _ in range(50))
    yield {"name": f"a round of {20 * SLOTS} rows", "value": 1e3 * few_seconds, "unit": "ms"}
    packed = [messages.pack(content) for _, _, content in lines]
    passed = min(cpu(lambda: [messages.unpack(messages.pack(content)) for _, _, content in lines]) for _ in range(5))
    size = sum(each.size for each in packed) / BLOCKS
    note = f"{size:.0f} bytes"
    yield {"name": "of a row, packed and unpacked", "value": 1e6 * passed / BLOCKS, "unit": "us", "note": note}


# ---------------------------------------------------------------------------------------------------------------- turns


@dataclass(slots=True)
class _Idle:
    """An engine that does nothing: what is left of a turn is the driver's."""

    world: World
    slots: int
    watermark: int = 0
    is_near = True
    width = 1
    moves = 0
    unsettled = False

    def map(self, do: Any, items: Sequence[Any], *, anywhere: bool = False) -> list[str]:
        if do.__func__ is EpochTasks.route:
            return [to_json(Routed((self.watermark,) * self.slots)) for _ in items]
        if not isinstance(do.__self__, InputTasks):
            return []
        run = f"{do.__self__.epoch:09d}"
        found = []
        for i, (name, _, end) in enumerate(items):
            kind = name.partition("/")[0]
            times = tuple(range(self.watermark, self.watermark + 128))
            found.append(
                to_json(Intake(name, self.watermark, Run(f"{run}-{i}", kind, 200, name, times), "", 200, 0, end - 1))
            )
        return found

    def gather(self, do: Any, items: Sequence[Any], merged: Any, parts: Sequence[int] = (0,)) -> list[str]:
        load = {"objects": 50, "matches": 75, "held": 10**6, "bytes": 10**8, "continuous": {}, "spent": {}}
        loads = {int(slot): load for slot, *_ in items}
        return [to_json(Summary(100, 0, {"CRQ": 100}, {} if part else loads)) for part in parts]

    def settled(self) -> None: ...

    def check(self) -> None: ...

    def cancel(self) -> None: ...


def turns(slots: int, partitions: int) -> Iterator[Figure]:
    """What an epoch and its round cost their drivers, without what stages, broker and storage do."""
    settings = StreamSettings("s", slots=slots, space=SPACE, partitions=partitions, mergers=min(partitions, 64))
    storage, store = MemoryStorage(), MemoryStore()
    store.create(_version(max(64, slots), slots))
    channel = MemoryChannel([MemoryLog() for _ in range(slots)], MemoryLog())
    engine = _Idle(settings.world(storage, channel, MemorySink([MemoryLog()], MemoryLog())), slots)
    names = [f"objects/{i}" for i in range(partitions)]
    router = Router(settings, storage, store, names, lambda: engine.watermark, due=lambda: False)
    worker = Worker(settings, storage, store, due=lambda: True)
    epochs, rounds = RouterTurns(router, engine), WorkerTurns(worker, engine, slots)
    spent = {"router": 0.0, "worker": 0.0}

    def epoch() -> None:
        bounds = dict.fromkeys(names, (0, engine.watermark))
        epochs.epoch(epochs.ingestion(news(bounds, router.read, 10**9)))

    def round_() -> None:
        record = rounds.next(64)
        assert record is not None
        rounds.do(record)

    for turn in range(TURNS + 20):
        engine.watermark += 200
        took = cpu(epoch), cpu(round_)
        for job, seconds in zip(spent, took, strict=True):
            spent[job] += seconds if turn >= 20 else 0.0
    for job, seconds in spent.items():
        name = f"{job}'s driver, a turn with {slots} slots, {partitions} partitions"
        yield {"name": name, "value": 1e3 * seconds / TURNS, "unit": "ms"}


# ----------------------------------------------------------------------------------------------------------------- tree


def trees() -> Iterator[Figure]:
    """What an object and a query cost to be routed, and how large the version is, by leaves."""
    stream = objects(100_000, seed=3)
    for leaves in (64, 1_024, 16_384):
        version = _version(leaves, 16)
        asked: QueryBatch = make_queries(stream, 20_000, "CRQ")
        version.route_objects(stream)
        version.route_queries(asked)
        object_, query = (
            min(cpu(work) for _ in range(3))
            for work in (
                lambda version=version: version.route_objects(stream),
                lambda version=version, asked=asked: version.route_queries(asked),
            )
        )
        storage = MemoryStorage()
        save_version(storage, version)
        note = f"version of {storage.get(version_name(0)).size:,} bytes"
        name = f"an object through {leaves:,} leaves"
        yield {"name": name, "value": 1e6 * object_ / len(stream), "unit": "us", "note": note}
        yield {"name": f"a CRQ through {leaves:,} leaves", "value": 1e6 * query / len(asked), "unit": "us"}


# ---------------------------------------------------------------------------------------------------------------- calls


def _held() -> int:
    """Bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


class _Echo(flight.FlightServerBase):  # type: ignore[misc]
    def do_action(self, context: Any, action: flight.Action) -> Iterator[flight.Result]:
        yield flight.Result(action.body)

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        serve_calls(reader, writer, lambda body: (each for each in (body,)))


def calls(continuous: int = 500) -> Iterator[Figure]:
    """What a query costs both sides in a call of its own, and on one that is open; and what open calls take."""
    server = _Echo("grpc+tcp://127.0.0.1:0")
    address, body = f"127.0.0.1:{server.port}", b"x" * 200
    client, asking = client_of(address), CallPool("echo", client_of)

    def of_its_own() -> None:
        for _ in range(2_000):
            list(client.do_action(flight.Action("echo", body)))

    def on_an_open_one() -> None:
        for _ in range(2_000):
            list(asking.ask(address, "", body, 60.0))

    for name, work in (("a call of its own", of_its_own), ("a call that is open", on_an_open_one)):
        work()
        yield {"name": f"a query in {name}, both sides", "value": 1e6 * cpu(work) / 2_000, "unit": "us"}
    before, held = _held(), []
    for _ in range(continuous):
        writer, reader = client.do_exchange(flight.FlightDescriptor.for_command("echo"))
        writer.write_metadata(pa.py_buffer(body))
        reader.read_chunk()
        held.append((writer, reader))
    yield {"name": "a call that is open, both sides", "value": (_held() - before) / continuous / 1e6, "unit": "MB"}
    for writer, _ in held:
        writer.close()
    asking.close()
    server.shutdown()


def _figures() -> Iterable[Figure]:
    for partitions in (1, 2, 8):
        yield from admission(partitions)
    yield from markers(1_024)
    yield from rows()
    for slots, partitions in ((4, 2), (64, 16), (1_024, 64)):
        yield from turns(slots, partitions)
    yield from trees()
    yield from calls()


def run() -> list[Figure]:
    """All figures."""
    return list(_figures())


if __name__ == "__main__":
    for row in _figures():
        print(f"{row['name']:<72}{row['value']:>16,.3f} {row['unit']:<8}{row.get('note', '')}", flush=True)
