"""The word filter: what a stream saves that serves subscriptions only, from JSON to matches.

``python -m tests.benchmarks.bench_words``. CPU times in one process, without servers: INGEST of lines of JSON, ROUTE of
epochs of 100,000 objects in one router partition, and WORK of four slots, of which each receives its blocks as bytes.
1,000 CRQs of the whole space, each on one word; the words are those of 1 % of the objects. The same stream with a
filter and without one, and with all words of the objects registered, where the filter can drop little and costs most.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from spatialstream.connectors.keys import read_key
from spatialstream.connectors.memory_storage import MemoryStorage
from spatialstream.index.version import RoutingVersion, build
from spatialstream.kernels import compile_kernels
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import Everything, Lifetime, Predicate, Query, QueryBatch
from spatialstream.model.regions import Box
from spatialstream.records.decode import decode_objects
from spatialstream.stages.messages import OBJECTS
from spatialstream.stages.route import RouteFindings, route_epoch
from spatialstream.stages.runs import write_run
from spatialstream.stages.state import forget
from spatialstream.stages.turns import Epoch, Round, Run
from spatialstream.stages.versions import save_version
from spatialstream.stages.work import WorkSettings, work
from tests.benchmarks.workload import SPACE, objects

SLOTS, EPOCH, QUERIES, SHARE = 4, 100_000, 1_000, 0.01

Row = dict[str, Any]


@dataclass
class Spent:
    """CPU seconds of each stage, bytes of the blocks of objects, and the objects that were dropped."""

    ingest: float = 0.0
    route: float = 0.0
    work: float = 0.0
    bytes: int = 0
    dropped: int = 0
    matches: int = 0

    @property
    def seconds(self) -> float:
        return self.ingest + self.route + self.work


def lines(batch: ObjectBatch) -> bytes:
    """Objects as lines of JSON."""
    first, second = SPACE.axes
    t, x, y = batch.t.tolist(), batch.x.tolist(), batch.y.tolist()
    rows = (
        {"id": name, "t": t[i], first: x[i], second: y[i], "text": " ".join(batch.terms[i])}
        for i, name in enumerate(batch.ids.to_pylist())
    )
    return b"\n".join(json.dumps(row).encode() for row in rows) + b"\n"


def rare_words(batch: ObjectBatch, count: int, share: float) -> list[str]:
    """So many words that are, all together, in about a share of the objects."""
    terms = batch.terms
    frequency = np.bincount(terms.codes, minlength=len(terms.vocabulary))
    order = np.argsort(frequency, kind="stable")
    order = order[frequency[order] > 0]
    wanted = share * len(batch) / count
    first = int(np.searchsorted(frequency[order], wanted))
    first = max(0, min(first - count // 2, len(order) - count))
    return [str(each) for each in terms.vocabulary.take(pa.array(order[first : first + count])).to_pylist()]


def everywhere(words: list[str]) -> QueryBatch:
    """A CRQ of the whole space for each word."""
    west, south, east, north = SPACE.bounds
    region, life = Box(west, south, east, north), Lifetime(10**9, continuous=True)
    made = (Query(f"q{i}", 0, Predicate(region, (word,)), Everything(), life) for i, word in enumerate(words))
    return QueryBatch.of(list(made))


def streamed(parts: Sequence[bytes], queries: QueryBatch, version: RoutingVersion, *, filtered: bool) -> Spent:
    """Take a stream through the stages, an epoch a part; the first one, with the queries, does not count."""
    forget()
    storage, spent = MemoryStorage(), Spent()
    save_version(storage, version)
    settings = WorkSettings(SPACE, 300_000, None, stores=not filtered)
    times = write_run(storage.put, "queries", queries, np.arange(len(queries)))
    runs: tuple[Run, ...] = (Run("queries", "queries", len(queries), "queries/0", times),)
    after = -1
    for number, data in enumerate(parts):
        now = time.process_time()
        decoded = decode_objects(data, 1, SPACE)
        times = write_run(storage.put, f"run{number}", decoded.batch, np.arange(len(decoded.batch)))
        spent.ingest += time.process_time() - now
        runs = (*runs, Run(f"run{number}", "objects", len(decoded.batch), "objects/0", times))
        before = None if number == 0 else (number - 1, 0)
        epoch = Epoch(
            number, 1, after, times[-1], 0, None, (), runs, (), measured=False, before=before, filtered=filtered
        )
        now, found = time.process_time(), RouteFindings()
        blocks: list[list[tuple[bytes, pa.Buffer]]] = [[] for _ in range(SLOTS)]
        for slot, key, content in route_epoch(epoch, 0, storage, found):
            blocks[slot].append((key, content))
        spent.route += time.process_time() - now
        spent.bytes += sum(content.size for each in blocks for key, content in each if is_of_objects(key))
        spent.dropped += found.dropped
        turn = Round(number, (number,), (0,), times[-1], 0, two_phase=False, measured=False, before=before)
        now = time.process_time()
        for slot in range(SLOTS):
            for _, kind, content in work(slot, blocks[slot], turn, settings, storage):
                spent.matches += content.num_rows if kind == "lines" else 0
        spent.work += time.process_time() - now
        if number == 0:
            spent = Spent()
        after, runs = times[-1], ()
    return spent


def is_of_objects(key: bytes) -> bool:
    place = read_key(key)
    return place is not None and place[1] == OBJECTS


def pieces(batch: ObjectBatch) -> Iterator[ObjectBatch]:
    for start in range(0, len(batch), EPOCH):
        yield batch.take(np.arange(start, min(start + EPOCH, len(batch))))


def run(n: int = 400_000) -> list[Row]:
    """Every figure as (name, value, unit, floor, note)."""
    compile_kernels()
    batch = objects(n, seed=1)
    batch = replace(batch, t=batch.t + 1)
    version = build(SPACE, batch.take(np.arange(0, n, 50)), QueryBatch.of([]), 64, SLOTS)
    counted, parts = n - EPOCH, [lines(part) for part in pieces(batch)]
    result: list[Row] = []

    def row(name: str, value: float, unit: str, floor: float | None = None, note: str = "") -> None:
        result.append({"name": name, "value": float(value), "unit": unit, "floor": floor, "note": note})

    words = rare_words(batch, QUERIES, SHARE)
    alone = [streamed(parts, everywhere(words), version, filtered=filtered) for filtered in (False, True)]
    off, on = alone
    assert off.matches == on.matches
    share = 1.0 - on.dropped / counted
    row(
        f"{QUERIES:,} CRQs on words of {share:.1%} of the objects, without a filter", counted / off.seconds, "objects/s"
    )
    row("   with the filter", counted / on.seconds, "objects/s", None, "INGEST is the same")
    later = [counted / (each.route + each.work) for each in alone]
    row("   ROUTE and WORK alone, without it", later[0], "objects/s")
    row("   ROUTE and WORK alone, with it", later[1], "objects/s", 3.0 * later[0], "floor: 3 times as many")
    row("   INGEST, ROUTE, WORK without it", 1e9 * off.seconds / counted, "ns/object", None, told(off, counted))
    row("   INGEST, ROUTE, WORK with it", 1e9 * on.seconds / counted, "ns/object", None, told(on, counted))
    row("   bytes of blocks that are saved", 100.0 * (1.0 - on.bytes / off.bytes), "%", 90.0)
    every = rare_words(batch, len(batch.terms.vocabulary), 1.0)
    costs = [streamed(parts, everywhere(every), version, filtered=filtered) for filtered in (False, True)]
    told_ = f"{len(every):,} CRQs: on each word; ROUTE without it {1e9 * costs[0].route / counted:,.0f}"
    row("   ROUTE where nearly all objects are kept", 1e9 * costs[1].route / counted, "ns/object", None, told_)
    return result


def told(spent: Spent, n: int) -> str:
    return ", ".join(f"{1e9 * each / n:,.0f}" for each in (spent.ingest, spent.route, spent.work))


if __name__ == "__main__":
    for each in run():
        print(f"{each['name']:<80} {each['value']:>14,.1f} {each['unit']} {each['note']}")
