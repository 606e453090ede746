"""What answering costs: what is counted, which is the same on every machine, and CPU time beside it.

Counts of one batch of queries, all per query unless it says otherwise:

=====================  ================================================================================================
``leaves``             leaves that routing reaches, by space
``covering``           of these, leaves whose objects have all the keywords
``visited``            objects held by the covering leaves: the workload of Eqn 2, measured (throughput: not counted)
``visited_slowest``    the same of the slot that has most
``slots``              (query, slot) pairs: indexes that are asked, both phases of SKQs together
``candidates``         objects that the indexes look at one by one (throughput: postings, per object)
``results``            rows that the slots give back, terms of STQs included (throughput: matches, per object)
``bytes``              of queries and results between router, slots and merger
``work``               work of all slots in µs, see :data:`WORTH`
``work_slowest``       of the slot that has most; for SKQs the sum of that of either phase
``cpu_slowest``        CPU time of the slowest slot, µs; the least of several tries
``cpu``                of all slots
``skew``               ``work_slowest`` by the mean over slots
``coverage``           ``covering`` by ``leaves``
``scan``               work of the slowest slot, µs, if it looked at each object of a covering leaf as at a candidate
``longest_slot``       objects of the covering leaves at the slot that has most of them for the query
``longest_leaf``       of the covering leaf that has most: what the slowest machine looks at if each leaf has its own
=====================  ================================================================================================

A slot is one after the other here, on one core, as if each were a machine of its own; a batch takes as long as its
slowest slot.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spatialstream.local.grid.keyword_grid import KeywordGrid
from spatialstream.local.nearest.ckq import ContinuousNearestIndex
from spatialstream.local.range.crq import ContinuousRangeIndex
from spatialstream.local.terms.ctq import ContinuousTermsIndex
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.regions import Circle, Regions
from spatialstream.stages import messages
from spatialstream.stages.route import Block
from spatialstream.stages.routing import Routing
from spatialstream.stages.snapshots import answer, reach
from spatialstream.stages.two_phase import answer_second, asked_of, requests, second_phase
from tests.benchmarks.paper.systems import System, Units
from tests.benchmarks.paper.workloads import SPACE

Counts = dict[str, float]
T = TypeVar("T")

WORTH = {
    "SRQ": {"slots": 27.0, "candidates": 0.06, "results": 0.1},
    "SKQ": {"slots": 22.0, "candidates": 0.18, "results": 0.1},
    "STQ": {"slots": 27.0, "candidates": 0.12, "results": 0.016},
    "CRQ": {"objects": 0.29, "candidates": 0.003, "results": 0.018},
    "CKQ": {"objects": 0.25, "candidates": 0.003, "results": 0.5},
    "CTQ": {"objects": 0.83, "candidates": 0.003, "results": 0.02},
}
"""What asking a slot, an object of the stream, a candidate and a result cost, in µs: about what a fit of CPU times to
counts gives on one machine. Counts weighed like this say the same at every load, and on every machine."""

BATCH = 10_000
"""Objects of the whole stream that come to the slots at a time."""


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """CPU seconds, and the value."""
    began = time.process_time()
    value = work()
    return time.process_time() - began, value


def taken(queries: QueryBatch, rows: npt.NDArray[np.int64]) -> QueryBatch:
    """Some queries, with the words that they use."""
    some = queries.take(rows)
    return replace(some, keywords=some.keywords.compact())


def worth(kind: str, counts: dict[str, npt.NDArray[Any]]) -> npt.NDArray[np.float64]:
    """Work of each slot for queries of a type, µs."""
    return np.sum([weight * counts[name] for name, weight in WORTH[kind].items()], axis=0)


# --------------------------------------------------------------------------------------------------- snapshot queries


def snapshot(system: System, queries: QueryBatch, layout: str = "slot", tries: int = 3) -> Counts:
    """Ask a batch of snapshot queries.

    Args:
        system: whom.
        queries: SRQs, SKQs or STQs.
        layout: one index a ``slot``, or one a ``leaf``; a leaf that lacks a keyword is not asked then. ``sorted``: one
            index a slot, in the order of its leaves; what it would look at is counted on those of leaves, no time is.
            ``routed``: none, see :func:`routed`.
        tries: how often; CPU times are the least.
    """
    if layout == "routed":
        return routed(system, queries)
    n, kind = len(queries), str(queries[0].type)
    wall = time.monotonic()
    phases = asking(system, queries, layout, tries)
    first, partials = phases[0], [row for phase in phases for row in phase.rows]
    wall = time.monotonic() - wall

    if layout == "sorted":
        for phase in phases:
            phase.ask_slots()
    counts = {name: sum(phase.counts[name] for phase in phases) for name in first.counts}
    slowest = sum(worth(kind, phase.counts).max() for phase in phases)
    work = worth(kind, counts)
    leaves = _leaves(system, queries, first.rows)
    result = {name: float(values.sum()) / n for name, values in counts.items()}
    result |= {name: value / n for name, value in leaves.items()}
    if layout != "sorted":
        result["cpu"] = 1e6 * float(counts["seconds"].sum()) / n
        result["cpu_slowest"] = 1e6 * float(sum(phase.counts["seconds"].max() for phase in phases)) / n
    return result | {
        "work": float(work.sum()) / n,
        "work_slowest": float(slowest) / n,
        "skew": float(slowest) / max(float(work.mean()), 1e-9),
        "wall": wall,
        "digest": digest(queries, partials),
    }


def asking(system: System, queries: QueryBatch, layout: str = "slot", tries: int = 1) -> list[_Phase]:
    """Ask a batch of snapshot queries of one type: one phase, or two; see :func:`snapshot`."""
    units = system.units(layout)
    pruned = layout != "slot"
    kind = str(queries[0].type)
    routing = Routing(units.version, two_phase=True)
    row, unit = routing.route_queries(queries)
    first = _Phase(units, row, unit)
    if pruned and kind != "SKQ":
        kept = covers(system, queries, row, unit)
        row, unit = row[kept], unit[kept]
    number, (since, whole) = np.arange(len(queries)), reach(queries, None, None)
    views = [store.view() for store in units.stores]
    for each in np.unique(unit).tolist():
        mine = row[unit == each].astype(np.int64)
        asked = taken(queries, mine)

        def ask(u: int = each, mine: Any = mine, asked: QueryBatch = asked) -> list[Block]:
            looked_at = since[mine], whole[mine]
            return list(answer(u, views[u], asked, number[mine], looked_at, two_phase=True))

        first.add(each, asked.to_arrow().nbytes, len(mine), views[each], ask, tries)
    phases = [first]
    if (second := second_phase(first.rows, routing, SPACE)) is not None:
        phases.append(_second(system, queries, units, second.rows, views, pruned, tries))
    return phases


class _Phase:
    """Counts by slot, and partials, of one phase.

    Args:
        units: what is asked.
        row, unit: which query reaches which unit by space.
    """

    def __init__(self, units: Units, row: npt.NDArray[Any], unit: npt.NDArray[Any]) -> None:
        self.units, self.rows = units, list[Block]()
        slots = int(units.slot.max(initial=0)) + 1
        names = ("slots", "candidates", "results", "bytes", "seconds")
        self.counts = {name: np.zeros(slots) for name in names}
        pairs = np.unique(row.astype(np.int64) * slots + units.slot[unit])
        self._reached = np.bincount(pairs % slots, minlength=slots)

    def add(self, unit: int, sent: int, pairs: int, view: Any, ask: Callable[[], list[Block]], tries: int) -> None:
        """Ask a unit some of the queries."""
        looked_at = view.checked
        found = [timed(ask) for _ in range(tries)]
        rows = found[0][1]
        gives = [content for _, kind, content in rows if kind in _RESULTS]
        slot, counts = self.units.slot[unit], self.counts
        counts["slots"][slot] += pairs
        counts["candidates"][slot] += (view.checked - looked_at) / tries
        counts["results"][slot] += sum(content.num_rows for content in gives)
        counts["bytes"][slot] += sent + sum(content.nbytes for content in gives)
        counts["seconds"][slot] += min(seconds for seconds, _ in found)
        self.rows += rows

    def ask_slots(self) -> None:
        """Count as if each slot were asked once for all of its leaves, and not known to lack keywords before."""
        self.counts["slots"] = self._reached.astype(np.float64)


_RESULTS = (messages.SNAPSHOT_LISTS, messages.SNAPSHOT_OBJECTS, messages.SNAPSHOT_TERMS)


def _second(
    system: System,
    queries: QueryBatch,
    units: Units,
    rows: tuple[Block, ...],
    views: list[Any],
    pruned: bool,
    tries: int,
) -> _Phase:
    """The second phase of SKQs."""
    phase = _Phase(units, *_pairs(_asked(rows)))
    if pruned:
        rows = tuple((slot, kind, _covering(system, queries, each) if kind == messages.ASKED else each)
                     for slot, kind, each in rows)  # fmt: skip
    record = _asked(rows)
    for unit in np.unique(_pairs(record)[1]).tolist():
        pairs = len(asked_of(unit, record))
        sent = record.drop_columns(["slots"]).nbytes * pairs // max(record.num_rows, 1)
        phase.add(unit, sent, pairs, views[unit], lambda u=unit: list(answer_second(u, rows, views[u])), tries)
    return phase


def _asked(rows: tuple[Block, ...]) -> pa.RecordBatch:
    return next(each for _, kind, each in rows if kind == messages.ASKED)


def _pairs(record: pa.RecordBatch) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """The rows of second queries and the units that they are for."""
    lists = record.column("slots")
    return np.repeat(np.arange(record.num_rows), np.diff(lists.offsets.to_numpy())), lists.flatten().to_numpy()


def _covering(system: System, queries: QueryBatch, record: pa.RecordBatch) -> pa.RecordBatch:
    """Second queries, without the leaves that lack a keyword."""
    owner, leaf = _pairs(record)
    kept = covers(system, queries, messages.numbers(record, "number")[owner], leaf)
    return requests(record.drop_columns(["slots"]), owner[kept], leaf[kept])


def covers(system: System, queries: QueryBatch, row: npt.NDArray[Any], leaf: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Whether the leaf of each (query, leaf) pair has objects with each of the keywords."""
    keywords, result = queries.keywords, np.ones(len(row), np.bool_)
    places = {word: i for i, word in enumerate(keywords.vocabulary.to_pylist())}
    known = system.objects.terms.vocabulary.to_pylist()
    column = np.full(len(places), -1)
    for i, word in enumerate(known):
        if word in places:
            column[places[word]] = i
    lengths = np.diff(keywords.offsets)[row]
    for nth in range(int(lengths.max(initial=0))):
        has = np.flatnonzero(lengths > nth)
        code = column[keywords.codes[keywords.offsets[:-1][row[has]] + nth]]
        result[has] &= (code >= 0) & system.words[leaf[has], code]
    return result


def leaves_reached(
    system: System, queries: QueryBatch, rows: list[Block]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Leaves that SKQs reach, as (query, leaf): the nearest one, and those as near as what the first phase found."""
    index = system.version.index
    nearest = index.nearest_leaves(queries.at)
    row, leaf = index.route_regions(Regions.of(circles(queries, rows)))
    pairs = np.unique(np.concatenate([row.astype(np.int64) * len(index.leaves) + leaf,
                                      np.arange(len(queries)) * len(index.leaves) + nearest]))  # fmt: skip
    row, leaf = np.divmod(pairs, len(index.leaves))
    return row, leaf


def _leaves(system: System, queries: QueryBatch, rows: list[Block]) -> Counts:
    """Leaves that the queries reach, and what they hold."""
    if queries[0].type == "SKQ":
        row, leaf = leaves_reached(system, queries, rows)
    else:
        row, leaf = system.version.index.route_regions(queries.regions)
    kept = covers(system, queries, row, leaf)
    held = np.where(kept, system.held[leaf], 0)
    by_slot = np.bincount(system.version.mapping[leaf], held)
    return {
        "leaves": float(len(row)),
        "covering": float(kept.sum()),
        "visited": float(held.sum()),
        "visited_slowest": float(by_slot.max(initial=0.0)),
    }


def routed(system: System, queries: QueryBatch) -> Counts:
    """What SRQs reach, without indexes of objects: nobody is asked, so there are no answers to compare."""
    n, slots = len(queries), system.version.slots
    row, leaf = system.version.index.route_regions(queries.regions)
    held = np.where(covers(system, queries, row, leaf), system.held[leaf], 0)
    pair = row.astype(np.int64) * slots + system.version.mapping[leaf]
    by_slot = np.bincount(pair, held, n * slots).reshape(n, slots)
    asked = np.bincount(pair, minlength=n * slots).reshape(n, slots) > 0
    longest = np.zeros(n)
    np.maximum.at(longest, row, held)
    found = _leaves(system, queries, [])
    worked = WORTH["SRQ"]["slots"] * asked.sum(axis=0) + WORTH["SRQ"]["candidates"] * by_slot.sum(axis=0)
    return {name: value / n for name, value in found.items()} | {
        "slots": float(asked.sum()) / n,
        "coverage": found["covering"] / found["leaves"],
        "scan": float(worked.max()) / n,
        "longest_slot": float(by_slot.max(axis=1).mean()),
        "longest_leaf": float(longest.mean()),
        "digest": 0.0,
    }


def circles(queries: QueryBatch, rows: list[Block]) -> list[Circle | None]:
    """What SKQs ask for in the second phase: to the k-th object of the first, everywhere if there are fewer."""
    nearest: dict[int, list[float]] = {}
    for _, kind, content in rows:
        if kind == messages.SNAPSHOT_OBJECTS:
            pairs = zip(content.column("number").to_pylist(), content.column("distance").to_pylist(), strict=True)
            for number, distance in pairs:
                nearest.setdefault(number, []).append(distance)
    regions = list[Circle | None]()
    for i in range(len(queries)):
        found, k = sorted(nearest.get(i, ())), int(queries.k[i])
        x, y = queries.at[i].tolist()
        regions.append(Circle(x, y, found[k - 1]) if len(found) >= k else None)
    return regions


def digest(queries: QueryBatch, rows: list[Block]) -> float:
    """A number that follows from the answers, however many slots have given parts of them."""
    if queries[0].type == "SKQ":
        numbers, distances = (
            np.concatenate([np.asarray(messages.numbers(each, name)) for _, kind, each in rows if kind in _RESULTS])
            for name in ("number", "distance")
        )
        order = np.lexsort((distances, numbers))
        numbers, distances = numbers[order], distances[order]
        rank = np.arange(len(numbers)) - np.searchsorted(numbers, numbers)
        return float(f"{distances[rank < queries.k[numbers]].sum():.10g}")
    column = "t" if queries[0].type == "SRQ" else "count"
    return float(sum(int(messages.numbers(each, column).sum()) for _, kind, each in rows if kind in _RESULTS) % 2**52)


# ------------------------------------------------------------------------------------------------- continuous queries


def throughput(system: System, queries: QueryBatch, stream: ObjectBatch, tries: int = 2) -> Counts:
    """Let a stream of objects pass continuous queries, CRQs, CKQs or CTQs, all of one type.

    The indexes of CKQs and CTQs change with what passes, so each try begins with new ones.
    """
    row, slot = Routing(system.version).route_queries(queries)
    owner = system.version.route_objects(stream)
    each = range(system.version.slots)
    given = (
        [np.flatnonzero(owner == number) for number in each],
        [row[slot == number].astype(np.int64) for number in each],
    )
    leaves = float(len(system.version.index.route_queries(queries)[0])) / len(queries)
    return passed(stream, queries, *given, tries) | {"leaves": leaves}


def passed(
    stream: ObjectBatch,
    queries: QueryBatch,
    objects_of: list[npt.NDArray[np.int64]],
    queries_of: list[npt.NDArray[np.int64]],
    tries: int = 2,
) -> Counts:
    """Let objects pass continuous queries, of one type, at slots of which each gets some of both: rows of theirs."""
    n, kind = len(stream), str(queries[0].type)
    wall = time.monotonic()
    counts = passing(stream, queries, objects_of, queries_of, tries)
    work = worth(kind, counts)
    result = {name: float(values.sum()) / n for name, values in counts.items()}
    return result | {
        "slots": float(sum(map(len, queries_of))) / len(queries),
        "work": float(work.sum()) / n,
        "work_slowest": float(work.max()) / n,
        "skew": float(work.max() / max(work.mean(), 1e-9)),
        "cpu": 1e6 * float(counts["seconds"].sum()) / n,
        "cpu_slowest": 1e6 * float(counts["seconds"].max()) / n,
        "throughput": 1e6 * n / float(work.max()),
        "cpu_throughput": n / float(counts["seconds"].max()),
        "wall": time.monotonic() - wall,
        "digest": float(counts["results"].sum()) if kind == "CRQ" else 0.0,
    }


def passing(
    stream: ObjectBatch,
    queries: QueryBatch,
    objects_of: list[npt.NDArray[np.int64]],
    queries_of: list[npt.NDArray[np.int64]],
    tries: int = 1,
) -> dict[str, npt.NDArray[Any]]:
    """The counts of :func:`passed` by slot."""
    slots, kind = len(objects_of), str(queries[0].type)
    counts = {name: np.zeros(slots) for name in ("objects", "candidates", "results", "bytes", "seconds", "queries")}
    counts["seconds"][:] = np.inf
    for each in range(slots):
        mine = queries_of[each]
        parts = [part for part in _parts(stream, objects_of[each]) if len(part)]
        counts["objects"][each] = sum(map(len, parts))
        counts["bytes"][each] = sum(part.to_arrow().nbytes for part in parts)
        counts["queries"][each] = len(mine)
        make = partial(_continuous, kind, stream, mine, taken(queries, mine))
        index = make()
        for attempt in range(tries):
            if attempt and kind != "CRQ":
                index = make()
            with _counting() as looked_at:
                seconds, results = timed(lambda i=index, p=parts: sum(_passed(i, part) for part in p))
            counts["candidates"][each] = looked_at[0]
            counts["results"][each] = results
            counts["seconds"][each] = min(counts["seconds"][each], seconds)
    return counts


_CONTINUOUS: dict[str, Callable[..., Any]] = {
    "CRQ": ContinuousRangeIndex,
    "CKQ": ContinuousNearestIndex,
    "CTQ": ContinuousTermsIndex,
}


def _continuous(kind: str, stream: ObjectBatch, numbers: npt.NDArray[np.int64], queries: QueryBatch) -> Any:
    """An index of continuous queries."""
    index = _CONTINUOUS[kind](SPACE)
    if isinstance(index, ContinuousRangeIndex):
        index.observe(stream.take(np.arange(0, len(stream), max(1, len(stream) // 20_000))))
    index.register(numbers, queries)
    return index


def _parts(stream: ObjectBatch, rows: npt.NDArray[np.int64]) -> Iterator[ObjectBatch]:
    for first in range(0, len(stream), BATCH):
        part = stream.take(rows[np.searchsorted(rows, first) : np.searchsorted(rows, first + BATCH)])
        yield ObjectBatch(part.ids, part.t, part.x, part.y, part.terms.compact())


def _passed(index: Any, part: ObjectBatch) -> int:
    """Let a batch pass; how much comes out."""
    if isinstance(index, ContinuousRangeIndex):
        return sum(len(found) for _, found in index.match(part))
    found = sum(map(len, index.match(part)))
    if isinstance(index, ContinuousTermsIndex):
        found += sum(len(step.counts) for step in index.steps(int(part.t[-1])))
    return found


@contextmanager
def _counting() -> Iterator[list[int]]:
    """Counts the postings that indexes of continuous queries look at."""
    looked_at, probe = [0], KeywordGrid.probe_within

    def counted(*arguments: Any, **more: Any) -> Any:
        found = probe(*arguments, **more)
        if found is not None:
            looked_at[0] += int(found.checked.sum())
        return found

    KeywordGrid.probe_within = counted  # type: ignore[method-assign]
    try:
        yield looked_at
    finally:
        KeywordGrid.probe_within = probe  # type: ignore[method-assign]
