"""Snapshot queries to a live stream, with transport: a single client, and several clients in separate processes.

``live_asked NAME ZOOKEEPER SEED SECONDS TOGETHER`` is the command of such a client.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from spatialstream.client import connect
from spatialstream.model.queries import QueryBatch
from tests.benchmarks import bench_live as live_stream
from tests.benchmarks import ranked, workload
from tests.benchmarks.bench_asked import snapshot_queries
from tests.benchmarks.bench_live import Live, row, say

CLIENTS = 8
RATE = 20_000.0
"""Objects a second while it is asked under load."""
EACH = 500
TABLES = 10
"""Seconds between the times of corpus tables, where words are counted."""

SECONDS = 10.0


def asked(live: Live) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Snapshot queries over some millions of objects: idle, and while objects come."""
    held = live.scale.held
    _take_in(live)
    rows: list[dict[str, Any]] = []
    record: dict[str, Any] = {"held": held}
    for load, floor in (("idle", 10.0), (f"under {RATE:,.0f} objects/s", 40.0)):
        with _coming(live) if load != "idle" else _nothing():
            for kind, records in snapshot_queries(live.source).items():
                before = _spent(live)
                found = one_client(live, records)
                spent = {who: 1e3 * (now - before[who]) / EACH for who, now in _spent(live).items()}
                record[f"{kind}, {load}"] = found
                rows.append(row(f"asked {kind}, {held:,} objects, {load}, p50", found["p50"], "ms"))
                rows.append(row("   p95", found["p95"], "ms", floor, f"oldest answer {found['oldest']:.0f} ms old"))
                if load == "idle":  # otherwise most of it is that of turns
                    note = f"client {spent['client']:.2f}, driver {spent['driver']:.2f}"
                    rows.append(row("   CPU of the actors", spent["Python"], "ms/query", None, note))
            for together in (1, 100):
                rate, refused, spent = several_clients(live, together)
                name = f"asked snapshots, {CLIENTS} clients, {together} at a time, {load}"
                rows.append(row(name, rate, "queries/s", 1_500 if load == "idle" else None, f"{refused} refused"))
                if load == "idle":
                    rows += [row(f"   CPU of {who}", each, "ms/query") for who, each in spent.items()]
    return rows, record


def ranked_asked(live: Live) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """SBQs over as many objects, whose words have been counted: idle, and while objects come."""
    _take_in(live)
    time.sleep(2.0 * TABLES)  # until there is a table with all of them
    rows: list[dict[str, Any]] = []
    record: dict[str, Any] = {"held": live.scale.held}
    for load, floor in (("idle", 30.0), (f"under {RATE:,.0f} objects/s", None)):
        with _coming(live) if load != "idle" else _nothing():
            for words in (5, 1):
                found = one_client(live, ranked.records(live.source, 20 + EACH, words))
                record[f"{words} words, {load}"] = found
                name = f"asked SBQ, {words} words, k 5, {live.scale.held:,} objects, {load}"
                rows.append(row(f"{name}, p50", found["p50"], "ms"))
                note = f"oldest answer {found['oldest']:.0f} ms old"
                rows.append(row("   p95", found["p95"], "ms", floor if words == 5 else None, note))
    return rows, record


def _take_in(live: Live) -> None:
    """Have the objects there that are asked for.

    Raises:
        TimeoutError: they do not come.
    """
    sender = live.sender(400_000.0, 500)
    sender.live(live.objects, QueryBatch.of([]), 0.0, 600.0, lambda: False, live.scale.held)
    if not live_stream.drain(live, 600.0):
        raise TimeoutError("the objects that are to be asked for are not taken in")


def _spent(live: Live) -> dict[str, float]:
    """Seconds of processor time so far: of the worker, see :func:`~.bench_live.cpu_below`, and of this client."""
    return {**live_stream.cpu_below(live.worker.pid), "client": time.process_time()}


def _spent_by_all(live: Live) -> dict[str, float]:
    """Seconds of processor time so far of the stream's processes, but for those that have just gone."""
    return {
        f"{name} {kind}" if kind != "driver" else name: seconds
        for name, server in live.servers.items()
        if server.pid is not None
        for kind, seconds in live_stream.cpu_below(server.pid).items()
    }


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextmanager
def _coming(live: Live) -> Iterator[None]:
    """Objects come at a rate."""
    over, sender = threading.Event(), live.sender(RATE, 50)
    given = live.objects, QueryBatch.of([]), 0.0, 600.0, over.is_set, int(RATE * 600)
    thread = threading.Thread(target=sender.live, args=given)
    thread.start()
    time.sleep(3.0)
    try:
        yield
    finally:
        over.set()
        thread.join()


def one_client(live: Live, records: list[dict[str, Any]]) -> dict[str, float]:
    """Percentiles of one query after the other, ms; and how old the clock of an answer was at most."""
    times, ages = [], []
    with connect(live.name, live.zookeeper.hosts) as stream:
        stream.ask(records[:20], timeout=120.0)
        for record in records[:EACH]:
            began = time.perf_counter()
            answer = stream.ask(record, timeout=30.0)
            times.append((time.perf_counter() - began) * 1e3)
            ages.append(time.time() * 1e3 - answer["as_of"]["clock"])
    p50, p95 = np.percentile(times, [50, 95]).tolist()
    return {"p50": p50, "p95": p95, "oldest": max(ages)}


def several_clients(live: Live, together: int) -> tuple[float, int, dict[str, float]]:
    """Queries answered a second, calls without an answer, and the processor time of a query by process, ms."""
    command = [sys.executable, "-m", "tests.benchmarks.live_asked", live.name, live.zookeeper.hosts]
    piped = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    clients = [subprocess.Popen([*command, str(seed), str(SECONDS), str(together)], **piped) for seed in range(CLIENTS)]
    for client in clients:  # that one is still starting is not to be measured
        assert client.stdout is not None
        assert client.stdout.readline() == "ready\n"
    before = _spent_by_all(live)
    told = [json.loads(answer) for answer in _begun(clients)]
    total = {name: sum(each[name] for each in told) for name in ("answered", "refused", "cpu")}
    say(f"{together} at a time: {total['answered']} answers")
    gained = {who: now - before.get(who, 0.0) for who, now in _spent_by_all(live).items()} | {"clients": total["cpu"]}
    most = sorted(gained.items(), key=lambda item: -item[1])
    spent = {who: 1e3 * seconds / max(1, total["answered"]) for who, seconds in most}
    return sum(each["answered"] / each["seconds"] for each in told), int(total["refused"]), spent


def _begun(clients: list[subprocess.Popen[str]]) -> list[str]:
    """What clients that are ready say in the end, when all have begun at once."""
    for client in clients:
        assert client.stdin is not None
        client.stdin.write("go\n")
        client.stdin.flush()
    return [client.communicate(timeout=240.0)[0] for client in clients]


def client(name: str, zookeeper: str, seed: int, seconds: float, together: int) -> dict[str, float]:
    """One client: asks all kinds, as fast as it is answered, from when it is told to on."""
    kinds = list(snapshot_queries(workload.objects(200_000, seed=1)).values())
    records = [kind[i] for i in range(len(kinds[0])) for kind in kinds]
    answered = refused = 0
    with connect(name, zookeeper) as stream:
        stream.ask(records[:3], timeout=120.0)
        print("ready", flush=True)
        sys.stdin.readline()
        began, before, at = time.monotonic(), time.process_time(), 997 * seed
        while time.monotonic() - began < seconds:
            part = [records[(at + i) % len(records)] for i in range(together)]
            at += together
            try:
                answered += len(stream.ask(part, timeout=30.0))
            except Exception:  # noqa: BLE001 -- it is counted, whatever it is
                refused += 1
        told = {"answered": answered, "refused": refused, "seconds": time.monotonic() - began}
        return {**told, "cpu": time.process_time() - before}


if __name__ == "__main__":
    told = client(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
    print(json.dumps(told))
