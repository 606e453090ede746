"""What counting words (``--ranking``, ``--term-counts``) costs: ``python -m tests.benchmarks.bench_corpus [objects]``.

Three streams in one process take the same JSON Lines, turn by turn, of which one counts words, and one their
occurrences, too: so whatever else the machine does, it does to all. In a text one word of eight is there twice. A turn
decodes and routes 100,000 objects, and its slots append them to their segments; every third turn passes a multiple of Δ
(5 minutes, at 1,000 objects a second) and writes a table, every fifth ends with a checkpoint. Then the tables of a
million words. Figures are CPU times.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from spatialstream import kernels
from spatialstream.connectors.memory import MemoryLog, MemorySink, MemorySource, Message
from spatialstream.connectors.memory_storage import MemoryStorage
from spatialstream.model.arrays import pack_arrays
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.terms import TermLists, TermRule
from spatialstream.records.encode import object_lines
from spatialstream.stages.corpus import CORPUS, CorpusCounts, Tally, load_table, write_parts, write_tables
from spatialstream.stages.turns import Counted, Epoch
from spatialstream.stream.driver import news
from spatialstream.stream.embedded import EmbeddedStream, embedded_world
from spatialstream.stream.engine import Inline
from spatialstream.stream.settings import StreamSettings
from tests.benchmarks.workload import SPACE, TERMS, objects

Row = dict[str, Any]

EPOCH = 100_000
LARGE_EPOCH = 250_000
"""As many records as an epoch of a live stream has at most, if nothing is said."""

MILLION = 1_000_000
LINES = 500
"""Of a message."""

PARTITION = "objects/0"


class Ingesting:
    """A stream without queries, whose turns are measured."""

    def __init__(self, rule: TermRule) -> None:
        self.source, self.storage, self.written = MemorySource([PARTITION]), MemoryStorage(), 0
        setup = StreamSettings("s", slots=2, space=SPACE, partitions=1, rule=rule, epoch_records=2**31)
        world = embedded_world(setup, self.storage, MemorySink([MemoryLog()], MemoryLog()), self.source)
        turns = count()
        self.stream = EmbeddedStream(
            setup, Inline(world), [PARTITION], leaves=16, now=lambda: 0, due=lambda: next(turns) % 10 > 7
        )

    def turn(self, messages: list[Message]) -> tuple[float, bool]:
        """Take in messages: CPU seconds, and whether a table was written."""
        before = set(self.storage.list(CORPUS))
        self.source.logs[PARTITION].append(*messages)
        begun = time.process_time()
        ranges = news(self.source.bounds(), self.stream.router.read, 10**9)
        self.stream.turn(self.stream.turns.ingestion(ranges))
        return time.process_time() - begun, bool(set(self.storage.list(CORPUS)) - before)

    def bytes_of(self, owner: str) -> int:
        """Bytes in the last checkpoints of owners of a kind."""
        return sum(len(self.storage.get(name)) for name in self.storage.list(f"state/{owner}"))


def messages_of(batch: ObjectBatch) -> list[Message]:
    """Objects as messages of some lines."""
    lines = bytes(object_lines(batch, SPACE)).splitlines(keepends=True)
    return [(None, b"".join(lines[i : i + LINES])) for i in range(0, len(lines), LINES)]


def run(n: int = 2_000_000) -> list[Row]:
    """Every figure as (name, value, unit, floor, note)."""
    kernels.prepare()
    result: list[Row] = []

    def row(name: str, value: float, unit: str, floor: float | None = None, note: str = "") -> None:
        result.append({"name": name, "value": round(value, 3), "unit": unit, "floor": floor, "note": note})

    counted(objects(n, seed=1), row)
    taken_in(n, row)
    million(row)
    turns_of_a_million(row)
    return result


def repeating(batch: ObjectBatch) -> ObjectBatch:
    """The objects with one word of eight twice."""
    counts = np.ones(len(batch.terms.codes), np.uint8)
    counts[::8] = 2
    return replace(batch, terms=replace(batch.terms, counts=counts))


def counted(batch: ObjectBatch, row: Any) -> None:
    """Counting alone."""
    spent, counts = 0.0, CorpusCounts(300_000, 0)
    for start in range(0, len(batch), EPOCH):
        part = batch.take(np.arange(start, min(start + EPOCH, len(batch))))
        begun = time.process_time()
        counts.add(part)
        spent += time.process_time() - begun
    row("count words", len(batch) / spent, "objects/s", None, f"epochs of {EPOCH:,}")


def taken_in(n: int, row: Any) -> None:
    """Objects from JSON to segments, without tables, with them, and with occurrences."""
    without, with_tables = Ingesting(TermRule()), Ingesting(TermRule(ranking=True))
    streams = without, with_tables, Ingesting(TermRule(ranking=True, counts=True))
    seconds, tables = [0.0, 0.0, 0.0], 0
    for i, first in enumerate(range(0, n, EPOCH)):
        part = messages_of(repeating(objects(EPOCH, seed=2 + i, start=first)))
        found = {each: each.turn(part) for each in streams[i % 3 :] + streams[: i % 3]}
        if i:  # the first turn builds the index
            seconds = [spent + found[each][0] for spent, each in zip(seconds, streams, strict=True)]
            tables += found[with_tables][1]
    taken = n - EPOCH
    off, on, counting = (taken / each for each in seconds)
    row("taken in, without --ranking", off, "objects/s", None, "JSON to segments, one core")
    row("taken in, with --ranking", on, "objects/s", None, f"{tables} tables of some 100,000 words")
    row("   of that without", 100.0 * on / off, "%", 85.0)
    row("taken in, with --term-counts too", counting, "objects/s", None, f"{TERMS} words an object")
    row("   of that without --ranking", 100.0 * counting / off, "%", 75.0)
    kept = [each.bytes_of("slot") for each in streams]
    name, note = "more for an object in checkpoints of slots", f"{kept[0] / n:.0f} without --ranking"
    row(name, (kept[1] - kept[0]) / n, "bytes/object", None, note)
    row("   with --term-counts", (kept[2] - kept[0]) / n, "bytes/object", 14.0)
    counts = with_tables.bytes_of("registry") - without.bytes_of("registry")
    row("counts in checkpoints of the router", counts, "bytes", None, "of 100,000 words")


def million(row: Any) -> None:
    """A table of a million words."""
    words = pa.array([f"word{i:07d}" for i in range(MILLION)])
    tally = Tally(10_000_000, [(words, np.arange(2, MILLION + 2))])
    storage, epoch = MemoryStorage(), Epoch(0, 1, 9, 10, 0, None, (), (), (), counted=Counted(10, 0))
    begun = time.process_time()
    write_parts(epoch, 0, [(10, tally)], storage)
    write_tables(epoch, storage)
    row("table of a million words: write", time.process_time() - begun, "s", 1.0)
    begun = time.process_time()
    table = load_table(storage, 10)
    row("table of a million words: read", time.process_time() - begun, "s")
    size = sum(len(part) for part in pack_arrays(*table.to_arrays()))
    row("table of a million words: size", size, "bytes", 30_000_000)


def turns_of_a_million(row: Any) -> None:
    """How much longer a turn takes that writes a table of a million words, of objects that have any of these."""
    stream = Ingesting(TermRule(ranking=True))
    spent: dict[bool, list[float]] = {False: [], True: []}
    for i, batch in enumerate(of_a_million(16)):
        seconds, wrote = stream.turn(messages_of(batch))
        if i > 3:
            spent[wrote].append(seconds)
    usual, writing = median(spent[False]), median(spent[True])
    note = f"{writing:.2f} s, usually {usual:.2f}; {len(spent[True])} of {len(spent[True]) + len(spent[False])} turns"
    row(f"turn of {LARGE_EPOCH:,} that writes a table of a million words", writing / usual, "times", 2.0, note)


def of_a_million(turns: int) -> Iterator[ObjectBatch]:
    """Objects at 4,000 a second, with words of a million that are equally frequent."""
    words = pa.array([f"word{i:07d}" for i in range(MILLION)])
    for i in range(turns):
        batch = objects(LARGE_EPOCH, seed=50 + i, start=i * LARGE_EPOCH // 4, rate=4_000.0)
        rng = np.random.default_rng(i)
        first = rng.integers(0, MILLION, LARGE_EPOCH)
        codes = (first[:, None] + np.cumsum(rng.integers(1, MILLION // TERMS, (LARGE_EPOCH, TERMS)), axis=1)) % MILLION
        terms = TermLists(batch.terms.offsets, codes.reshape(-1).astype(np.int32), words)
        yield replace(batch, terms=terms)


if __name__ == "__main__":
    for each in run(*map(int, sys.argv[1:])):
        print(f"{each['name']:<70} {each['value']:>15,.1f} {each['unit']:<14} {each['note']}")
