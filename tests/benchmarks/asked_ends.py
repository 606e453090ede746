"""Cost of a snapshot query with transport: ``python -m tests.benchmarks.asked_ends [objects] [seconds] [together]``.

An actor registry, two actors with two slots each, and clients that send one query per call, or ``together`` queries,
all as processes: no Kafka, no Spark, no rounds. Reports the CPU time per query of each kind of process, which hardly
depends on the load of the machine.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from spatialstream import kernels
from spatialstream.actors.actor import ActorSpec, run_actor
from spatialstream.actors.query_endpoint import QueryEndpoint
from spatialstream.actors.read_point import ReadPoint
from spatialstream.actors.registry import ActorRegistry
from spatialstream.client import Stream
from spatialstream.connectors.memory import MemoryChannel, MemoryLog, MemorySink
from spatialstream.connectors.memory_storage import MemoryStorage
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.terms import DEFAULT_RULE
from spatialstream.stages.turns import Round
from spatialstream.stages.versions import save_version
from spatialstream.store.memory import MemoryStore
from spatialstream.stream.settings import StreamSettings
from tests.benchmarks.bench_asked import EPOCH, PLACE, SLOTS, Slots, snapshot_queries
from tests.benchmarks.workload import SPACE, objects

HOST, OWN, ASKING = "127.0.0.1", "own", "asking"
ACTORS = 2
WARM = 100
RUNS = [(kind, clients) for clients in (1, 8) for kind in ("SRQ", "SKQ", "STQ", "all")]


def slots_of(n: int) -> tuple[Slots, ObjectBatch]:
    """Slots without objects, and the objects."""
    batch = objects(n, seed=1)
    return Slots(batch.take(np.arange(0, n, max(1, n // 50_000)))), batch


def spent() -> float:
    """Processor time of this process, ms."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return (used.ru_utime + used.ru_stime) * 1e3


def serve() -> None:
    """Print the CPU time whenever a line is read, until the end of input."""
    for _ in sys.stdin:
        print(spent(), flush=True)


def registry(n: int) -> None:
    """The driver's endpoint."""
    known: dict[str, Any] = {}
    made = ActorRegistry(HOST, OWN, 10.0, None, ASKING, lambda: known)
    print(made.port, flush=True)
    while len(there := made.actors()) < ACTORS:
        made.wait(made.changes, 1.0)
    addresses, last = [each.address for each in there], (n - 1) // EPOCH
    known |= ReadPoint.record(Round(last, (last,), (0,), int(objects(n, seed=1).t[-1]), 0))
    known |= {"actors": {str(i): addresses[i * ACTORS // SLOTS] for i in range(SLOTS)}, "parts": {}}
    print("ready", flush=True)
    serve()


def actor(n: int, port: int, number: int) -> None:
    """An actor with all objects."""
    kernels.prepare()
    slots, batch = slots_of(n)
    for start in range(0, n, EPOCH):
        slots.round(batch.take(np.arange(start, min(start + EPOCH, n))))
    channel = MemoryChannel([MemoryLog() for _ in range(SLOTS)], MemoryLog())
    settings = StreamSettings("s", slots=SLOTS, space=SPACE)
    world = settings.world(MemoryStorage(), channel, MemorySink([MemoryLog()], MemoryLog()))
    world.storage.place = PLACE
    save_version(world.storage, slots.version)
    spec = ActorSpec(f"{HOST}:{port}", OWN, world, ASKING)
    threading.Thread(target=run_actor, args=(spec, number), daemon=True).start()
    serve()


def client(n: int, port: int, kind: str, number: int, seconds: float, together: int) -> None:
    """Send one query after the other; print their number, the seconds, the CPU time, p50 and p95 (ms)."""
    slots, batch = slots_of(n)
    store = MemoryStore()
    store.create(slots.version)
    QueryEndpoint.of({"address": f"{HOST}:{port}", "secret": ASKING, "certificate": None}, SPACE, DEFAULT_RULE).save(
        store
    )
    kinds = [records for name, records in snapshot_queries(batch).items() if kind == "all" or name.startswith(kind)]
    records = [each[i] for i in range(len(kinds[0])) for each in kinds]
    with Stream(store) as stream:
        for record in records[:WARM]:
            stream.ask(record, timeout=120.0)
        print("ready", flush=True)
        sys.stdin.readline()
        times, at, began, before = [], 997 * number, time.monotonic(), spent()
        while time.monotonic() - began < seconds:
            asked = time.perf_counter()
            if together == 1:
                stream.ask(records[at % len(records)], timeout=120.0)
            else:
                first = at % (len(records) - together)
                stream.ask(records[first : first + together], timeout=120.0)
            times.append((time.perf_counter() - asked) * 1e3)
            at += together
        p50, p95 = np.percentile(times, [50, 95]).tolist()
        print(json.dumps([len(times) * together, time.monotonic() - began, spent() - before, p50, p95]), flush=True)


def begun(*arguments: object) -> subprocess.Popen[str]:
    """Start one of the above as a process."""
    command = [sys.executable, "-m", "tests.benchmarks.asked_ends", *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def said(process: subprocess.Popen[str], line: str = "") -> str:
    """Read a line from a process, after sending it a line if given."""
    assert process.stdin is not None
    assert process.stdout is not None
    if line:
        process.stdin.write(line + "\n")
        process.stdin.flush()
    return process.stdout.readline().strip()


def measure(n: int, seconds: float, together: int) -> None:
    """Print a line for each run."""
    driver = begun("registry", n)
    port = int(said(driver))
    actors = [begun("actor", n, port, number) for number in range(ACTORS)]
    assert said(driver) == "ready"
    for kind, clients in RUNS:
        given = n, port, kind
        asking = [begun("client", *given, number, seconds, together) for number in range(clients)]
        for each in asking:
            assert said(each) == "ready"
        before = [_sum([driver]), _sum(actors)]
        told = np.array([json.loads(each) for each in _all(asking)])
        asked = told[:, 0].sum()
        rest = (np.array([_sum([driver]), _sum(actors)]) - before) / asked
        own = told[:, 2].sum() / asked
        print(
            f"{kind}, {clients} clients: {own + rest.sum():.2f} ms CPU each "
            f"(clients {own:.2f}, driver {rest[0]:.2f}, actors {rest[1]:.2f}); "
            f"{(told[:, 0] / told[:, 1]).sum():.0f}/s, p50 {np.median(told[:, 3]):.1f}, "
            f"p95 {np.median(told[:, 4]):.1f} ms",
            flush=True,
        )
        for each in asking:
            each.wait(60.0)
    for each in (driver, *actors):
        each.kill()
        each.wait(60.0)


def _sum(processes: Sequence[subprocess.Popen[str]]) -> float:
    return sum(float(said(each, "spent")) for each in processes)


def _all(processes: Sequence[subprocess.Popen[str]]) -> list[str]:
    """The output of processes that are started at the same time."""
    found = [""] * len(processes)

    def go(i: int) -> None:
        found[i] = said(processes[i], "go")

    threads = [threading.Thread(target=go, args=(i,)) for i in range(len(processes))]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return found


def main(given: Sequence[str]) -> None:
    """Measure, or run as one of the measured processes."""
    match given:
        case ["registry", n]:
            registry(int(n))
        case ["actor", n, port, number]:
            actor(int(n), int(port), int(number))
        case ["client", n, port, kind, number, seconds, together]:
            client(int(n), int(port), kind, int(number), float(seconds), int(together))
        case _:
            n, seconds, together = (*given, *("1000000", "10", "1")[len(given) :])
            measure(int(n), float(seconds), int(together))


if __name__ == "__main__":
    main(sys.argv[1:])
