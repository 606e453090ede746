"""What signatures save, and what they cost: ``python -m tests.benchmarks.bench_signatures [objects]``.

*Leaves*: the SKQs of ``make paper`` (TW-like, 64 leaves, 8 slots, 1 to 3 keywords): leaves that the first phase's
radius reaches, and those of them whose signatures do not rule the query out. *Asked*: the :data:`SLOTS` slots of eight
actors in this process (:mod:`tests.asking`: messages are packed, no network), SKQs of rare words, of others, and SRQs,
in turn by a coordinator that knows all signatures and by one that knows none; CPU times of all actors together, which
are one thread here. *Bytes* and *ingest*:
of the stores of those slots, and of the embedded pipeline on Spark, CPU times.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from spatialstream import kernels
from spatialstream.actors.query_endpoint import AskedQuery, Request
from spatialstream.actors.read_point import ReadPoint
from spatialstream.index.version import build
from spatialstream.local.snapshot.segments import SegmentStore, phase_of
from spatialstream.local.snapshot.signatures import Signatures
from spatialstream.model.kinds import QueryType
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import Query, parse_query
from spatialstream.spark.session import embedded_session
from spatialstream.stages import views
from spatialstream.stages.routing import Routing
from spatialstream.stages.signatures import SlotPruning
from spatialstream.stages.turns import Round
from spatialstream.stages.views import View
from tests.asking import AskedActors, world_of
from tests.benchmarks import bench_pipeline
from tests.benchmarks.bench_index import make_queries
from tests.benchmarks.paper import counting, workloads
from tests.benchmarks.paper import systems as paper
from tests.benchmarks.profile_pipeline import processes
from tests.benchmarks.workload import SPACE, objects, queries

Row = dict[str, Any]

PAPER = paper.Key("TW", 1_000_000, "QT-tree", 64, 8, 0.0, 72.0, "mix", 0)
ASKED_SEED, PAPER_QUERIES = 3000, 400

SLOTS, ACTORS, LEAVES = 32, 8, 128
EPOCH, LAST = 50_000, 2_000
"""Objects of a round; of the last rounds, so that there are segments of all sizes."""
QUERIES, K = 300, 10
RARE, LESS_RARE = (1, 3), (4, 9)
"""In how many objects rare words are, and others of which an SKQ finds fewer than k too."""
PIPELINE = (1_000_000, 20_000)
"""Objects and CRQs of the pipeline."""


class Slots:
    """The slots of a stream after all their rounds.

    Attributes:
        stores: of the slots.
        read_point: of the last round.
        append: CPU seconds of appending the objects, signatures included.
        signing: CPU seconds of making the signatures, those of merged segments included.
    """

    def __init__(self, batch: ObjectBatch) -> None:
        sample = batch.take(np.arange(0, len(batch), max(1, len(batch) // 50_000)))
        self.version = build(SPACE, sample, make_queries(sample, 10_000, "SRQ"), LEAVES, SLOTS)
        self.stores = [SegmentStore(SPACE, phase=phase_of(slot)) for slot in range(SLOTS)]
        self.append, owners = 0.0, self.version.route_objects(batch)
        ends = [*range(EPOCH, len(batch) - 5 * LAST, EPOCH), *range(len(batch) - 4 * LAST, len(batch) + 1, LAST)]
        with timed() as spent:
            for first, last in zip([0, *ends], ends, strict=False):
                self._round(batch, owners, first, last)
        self.signing = spent[0]
        turn = Round(len(ends), (len(ends),), (0,), int(batch.t[-1]), 0)
        for slot, store in enumerate(self.stores):
            views.keep(place_of(slot), slot, View.of(store, turn, None))
        self.read_point = ReadPoint((turn.number, turn.revision), turn.watermark, Routing(self.version, two_phase=True))

    def _round(self, batch: ObjectBatch, owners: Any, first: int, last: int) -> None:
        for slot, store in enumerate(self.stores):
            part = batch.take(first + np.flatnonzero(owners[first:last] == slot))
            began = time.process_time()
            store.append(part)
            self.append += time.process_time() - began

    def actors(self, known: bool) -> AskedActors:
        """Actors that have these slots; with signatures, or without."""
        names = [f"actor-{i}" for i in range(ACTORS)]
        worlds = {name: world_of(SPACE, SLOTS, name) for name in names}
        made = AskedActors(
            lambda seconds: self.read_point, {slot: place_of(slot) for slot in range(SLOTS)}, worlds, signing=known
        )
        if not known:
            for each in made.coordinators.values():
                each.signatures = _Nothing()  # type: ignore[assignment]
        return made


class _Nothing:
    """In place of signatures: all slots are asked."""

    def pruning(self, known: Any) -> Callable[[], SlotPruning]:
        return lambda: SlotPruning(SPACE, SLOTS, {})

    def learn(self, known: Any, addresses: Any) -> None:
        pass


def place_of(slot: int) -> str:
    """The actor of a slot."""
    return f"actor-{slot * ACTORS // SLOTS}"


@contextmanager
def timed() -> Iterator[list[float]]:
    """CPU seconds of making signatures meanwhile."""
    spent, make = [0.0], Signatures.of

    def of(*arguments: Any) -> Signatures:
        began = time.process_time()
        made = make(*arguments)
        spent[0] += time.process_time() - began
        return made

    with patch.object(Signatures, "of", of):
        yield spent


def row(name: str, value: float, unit: str, floor: float | None = None, note: str = "") -> Row:
    """A figure."""
    return {"name": name, "value": round(float(value), 3), "unit": unit, "floor": floor, "note": note}


# -------------------------------------------------------------------------------------------------------------- leaves


def leaves() -> list[Row]:
    """Leaves that SKQs reach, with and without signatures."""
    system, rows = paper.system(PAPER), list[Row]()
    stores = system.units("leaf").stores
    pruning = SlotPruning(workloads.SPACE, len(stores), {i: store.view().signed for i, store in enumerate(stores)})
    slots = system.units("slot").stores
    held = sum(each.signatures.nbytes for store in slots for each in store.view().signed if each.signatures)
    for keywords in (1, 2, 3):
        asked = workloads.queries(
            system.objects, {QueryType.SKQ: PAPER_QUERIES}, ASKED_SEED, keywords=(keywords, keywords), k=K
        )
        first = counting.asking(system, asked)[0].rows
        query, leaf = counting.leaves_reached(system, asked, first)
        exact, kept = float(counting.covers(system, asked, query, leaf).sum()), 0
        regions = counting.circles(asked, first)
        for i in range(len(asked)):
            each = asked[i]
            assert isinstance(each, Query)
            since = each.t - each.lifetime.duration
            kept += len(pruning.may_have(leaf[query == i].tolist(), each, since, regions[i]))
        n = len(asked)
        note = f"{len(query) / n:.1f} -> {kept / n:.1f} leaves; {exact / n:.1f} have all words in some objects"
        rows.append(
            row(f"SKQ, {keywords} keywords: leaves reached, of those without", kept / len(query), "times", 0.5, note)
        )
    rows.append(row("TW-like, 8 slots: bytes of signatures an object", held / len(system.objects), "bytes/object", 6.0))
    return rows


# --------------------------------------------------------------------------------------------------------------- asked


def words_of(batch: ObjectBatch, least: int, most: int) -> list[str]:
    """Words that so many objects have."""
    count = np.bincount(batch.terms.codes, minlength=len(batch.terms.vocabulary))
    codes = np.flatnonzero((count >= least) & (count <= most))
    chosen = np.random.default_rng(5).permutation(codes)[:QUERIES]
    return [batch.terms.vocabulary[int(code)].as_py() for code in chosen]


def records(batch: ObjectBatch) -> dict[str, list[dict[str, Any]]]:
    """Queries by what they are."""
    source = queries(batch, QUERIES, seed=2)
    words, centres = [[*source.keywords[i]] for i in range(QUERIES)], source.centres.tolist()
    boxes = [{"box": box} for box in source.regions.shape.tolist()]
    some = {name: [[word] for word in words_of(batch, *of)] for name, of in (("rare", RARE), ("less", LESS_RARE))}
    drawn = {
        "a rare word": some["rare"],
        f"a word of {LESS_RARE[0]} to {LESS_RARE[1]} objects": some["less"],
        "a word that nobody has": [["never"]] * QUERIES,
        "1 to 3 words": words,
    }
    nearest = {
        name: [{"type": "SKQ", "at": at, "k": K, "keywords": some} for at, some in zip(centres, listed, strict=False)]
        for name, listed in drawn.items()
    }
    within = [{"type": "SRQ", "region": box, "keywords": some} for box, some in zip(boxes, words, strict=True)]
    return {f"SKQ, {name}": given for name, given in nearest.items()} | {"SRQ, 1 to 3 words": within}


def asked(slots: Slots, batch: ObjectBatch) -> list[Row]:
    """p50 and p95 of asked queries, with and without signatures."""
    rows, both = list[Row](), {known: slots.actors(known) for known in (True, False)}
    for name in both[True].coordinators:  # the first query that asks all of the others
        [*both[True].ask(request({"type": "SKQ", "at": [0.5, 0.5], "k": K, "keywords": ["never"]}), name)]
    both[True].searched.clear()
    for name, given in records(batch).items():
        times: dict[bool, list[float]] = {True: [], False: []}
        searched = {known: len(each.searched) for known, each in both.items()}
        for i, record in enumerate(given):
            found, body = dict[bool, Any](), request(record)
            for known in (i % 2 == 0, i % 2 == 1):
                began = time.thread_time()
                found[known] = [*both[known].ask(body, f"actor-{i % ACTORS}")]
                times[known].append((time.thread_time() - began) * 1e3)
            assert found[True] == found[False], "rows do not change"
        calls = {known: (len(each.searched) - searched[known]) / len(given) for known, each in both.items()}
        rows += compared(name, times, calls)
    return rows


def request(record: Mapping[str, Any]) -> Request:
    """Of a client."""
    query = parse_query({**record, "id": "q", "t": 0, "duration": 10**15}, SPACE)
    assert isinstance(query, Query)
    return Request([AskedQuery(query)], 60.0)


def compared(name: str, times: Mapping[bool, Sequence[float]], calls: Mapping[bool, float]) -> list[Row]:
    """Times of some queries, with and without signatures."""
    (p50, p95), (before, most) = (np.percentile(times[known], [50, 95]).tolist() for known in (True, False))
    floor = 0.5 if "a rare word" in name else None
    note = f"{most:.2f} -> {p95:.2f} ms; calls of other actors {calls[False]:.2f} -> {calls[True]:.2f}"
    halves = f"{before:.2f} -> {p50:.2f} ms"
    return [
        row(f"{name}, {SLOTS} slots: p95, of that without", p95 / most, "times", floor, note),
        row(f"{name}, {SLOTS} slots: p50, of that without", p50 / before, "times", None, halves),
    ]


# ---------------------------------------------------------------------------------------------------------------- cost


def cost(slots: Slots, n: int) -> list[Row]:
    """Bytes of signatures, and the time to make them."""
    signed = [each.signatures for store in slots.stores for each in store.view().signed if each.signatures]
    segments = sum(store.segments for store in slots.stores)
    held = sum(each.nbytes for each in signed) / n
    making, share = slots.signing / n, slots.signing / slots.append
    note = f"{segments} segments; {held / (sum(store.nbytes for store in slots.stores) / n):.1%} of the slots"
    return [
        row("bytes of signatures an object", held, "bytes/object", 6.0, note),
        row("CPU of signatures, an object in its life", making * 1e9, "ns", None, f"{share:.1%} of appending"),
        row("ingest with signatures, of that without", 1.0 - making / ingest(), "of 1", 0.97, "CPU of the pipeline"),
    ]


def ingest() -> float:
    """CPU seconds of an object in the embedded pipeline, from files to results, all processes together."""
    spark = embedded_session("signatures")
    try:
        with tempfile.TemporaryDirectory() as name:
            before: dict[str, float] = {}
            report = bench_pipeline.Clock.report

            def watch(self: Any, progress: Any) -> None:
                report(self, progress)
                if not before:
                    before.update(processes())

            with patch.object(bench_pipeline.Clock, "report", watch):
                bench_pipeline.throughput(spark, Path(name), *PIPELINE)
            after = processes()
        return sum(after[name] - before[name] for name in after) / PIPELINE[0]
    finally:
        spark.stop()


def run(n: int = 1_000_000) -> list[Row]:
    """Every figure as (name, value, unit, floor, note)."""
    kernels.prepare()
    batch = objects(n, seed=1)
    slots = Slots(batch)
    return [*leaves(), *asked(slots, batch), *cost(slots, n)]


if __name__ == "__main__":
    for each in run(*map(int, sys.argv[1:])):
        print(f"{each['name']:<70} {each['value']:>12,.3f} {each['unit']:<14} {each['note']}")
