"""Figures 6, 7, 11 to 14 and 16 of PS2Stream (ICDE 2017): ``python -m tests.benchmarks.paper.ps2stream [FIGURE...]``.

The workload is that of :mod:`.subscriptions`: 200,000 objects, 100,000 registered queries, 8 slots. All ways to divide
it are kd^t-trees, with shares and without, and routed as such: objects go to the slots of their words under which
queries are registered (H2), in divisions of space to that of their place. ``kd-tree, H2`` also leaves out those that no
query asks for.

Throughput is that of the slowest slot: tuples (objects, and queries that come or end) by its work, µs, counted in three
ways:

- ``gi2``: Definition 1 with the pairs that a GI2 checks (:mod:`.rivals.gi2`), at the times that the planner has
  measured for a pair, an object and an entry of a query. This is the paper's measure, and judged.
- ``definition``: Definition 1 as printed, with the product of objects and queries.
- ``engine``: what the engine's own index looks at, as for the figures of SSTD (:mod:`.counting`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import permutations

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from spatialstream.balance.loads import LeafCounts
from spatialstream.balance.proposal import propose
from spatialstream.balance.settings import BalanceSettings
from spatialstream.index.a_grid.a_grid import SIDE, AGrid, lines
from spatialstream.index.base import GlobalIndex, LeafWords
from spatialstream.index.kd_t.construction import EVEN, place_kd_t
from spatialstream.index.kd_t.frequencies import Frequencies
from spatialstream.index.kd_t.workload import ENTRY, MATCH, OBJECT, Workload
from spatialstream.index.partition import karmarkar_karp
from spatialstream.index.sample import Sample
from spatialstream.index.statistics import Statistics
from spatialstream.index.version import RoutingVersion
from spatialstream.model.arrays import Codes, Flags, Floats, Ints, numpy_view
from spatialstream.model.expressions import expanded
from spatialstream.model.hashing import hash_strings
from spatialstream.model.kinds import CODE, TYPES, QueryType
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from tests.benchmarks.paper import usa, verdicts
from tests.benchmarks.paper.command import parsed
from tests.benchmarks.paper.counting import Counts, passing, worth
from tests.benchmarks.paper.rivals import gi2, space, words
from tests.benchmarks.paper.rivals.gi2 import Gi2
from tests.benchmarks.paper.rivals.migration import ALGORITHMS, at_random
from tests.benchmarks.paper.subscriptions import GROUPS, UPDATES, before, queries, stream
from tests.benchmarks.paper.usa import USA, Panels
from tests.benchmarks.paper.usa import Workload as Comes
from tests.benchmarks.paper.workloads import HOUR

SLOTS = 8
LEAVES, MOST_LEAVES = 64, 1_024
"""Leaves for each slot that the kd^t-tree may have, and in all (θ): those of a stream's limit."""

PIECES = 8
"""Leaves of the R-tree for each slot."""

TEXT, SPACE = ("frequency", "hypergraph", "metric"), ("grid", "R-tree", "kd-tree")

Made = tuple[RoutingVersion, bool]
"""A division, and whether objects that no query asks for are left out."""


# ---------------------------------------------------------------------------------------------- ways to divide the work


def statistics_of(history: Comes) -> Statistics:
    """J of a history."""
    found, asked = history
    return Statistics.of(USA, found, asked, float(found.t.max() - found.t.min()) or 1.0)


def rectangles_of(index: GlobalIndex) -> npt.NDArray[np.int32]:
    """The leaves of a division of space, as rectangles of fine cells."""
    if isinstance(index, AGrid):
        return index.rectangles
    x, y = lines(USA, SIDE)
    west, south, east, north = index.leaves.box.T
    sides = [np.searchsorted(of, at + 1e-9) - 1 for of, at in ((x, west), (y, south), (x, east), (y, north))]
    return np.stack(sides, axis=1).astype(np.int32)


def by_space(
    builder: Callable[[ObjectBatch, int, Statistics], GlobalIndex], pieces: int
) -> Callable[..., RoutingVersion]:
    """A division of space: pieces for each slot, which are assigned to slots by their loads."""

    def made(history: Comes, known: Statistics, slots: int) -> RoutingVersion:
        index = builder(history[0], pieces * slots, known)
        loads = index.leaves.load
        mapping = np.arange(slots, dtype=np.int32) if pieces == 1 else karmarkar_karp(loads, slots)
        divided = words.divided_space(USA, rectangles_of(index), Frequencies.of(history[0].terms))
        return RoutingVersion(0, divided, mapping, slots)

    return made


def by_text(method: str) -> Callable[..., RoutingVersion]:
    """A division of words."""

    def made(history: Comes, known: Statistics, slots: int) -> RoutingVersion:
        index = words.partitioned(method, history[0], known, slots)
        return RoutingVersion(0, index, np.arange(slots, dtype=np.int32), slots)

    return made


def hybrid(history: Comes, known: Statistics, slots: int) -> RoutingVersion:
    """A kd^t-tree."""
    return RoutingVersion(0, *place_kd_t(history[0], min(LEAVES * slots, MOST_LEAVES), known, slots), slots)


WAYS: dict[str, tuple[Callable[..., RoutingVersion], bool]] = {
    **{method: (by_text(method), True) for method in TEXT},
    "grid": (by_space(space.grid, PIECES), False),
    "R-tree": (by_space(space.r_tree, PIECES), False),
    "kd-tree": (by_space(space.kd_tree, 1), False),
    "kd-tree, H2": (by_space(space.kd_tree, 1), True),
    "hybrid": (hybrid, True),
}
"""Name -> how the work is divided, and whether objects that no query asks for are left out."""


# ------------------------------------------------------------------------------------------------------------- routing


def asked_for(objects: ObjectBatch, leaf: Codes, registered: LeafWords) -> Flags:
    """Whether each object has a word under which a query is registered at its leaf, bool[n]."""
    offsets, hashes = registered
    known = np.unique(hashes)
    keys = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)) * len(known) + np.searchsorted(known, hashes)
    said = hash_strings(objects.terms.vocabulary)
    at = np.minimum(np.searchsorted(known, said), len(known) - 1)
    code = np.where(known[at] == said, at, -1)[objects.terms.codes]
    owner = np.repeat(np.arange(len(objects)), np.diff(objects.terms.offsets))[code >= 0]
    has = np.isin(leaf.astype(np.int64)[owner] * len(known) + code[code >= 0], keys)
    return np.bincount(owner[has], minlength=len(objects)) > 0


@dataclass(frozen=True)
class Divided:
    """What comes to each slot: rows of objects, ascending, and of queries."""

    objects: list[Ints]
    queries: list[Ints]

    @classmethod
    def of(cls, version: RoutingVersion, comes: Comes, filtered: bool) -> Divided:
        """By a version; ``filtered`` leaves out objects that no query asks for."""
        found, asked = comes
        query, target = version.route_queries(asked)
        registered = version.index.registered(asked)
        home = version.index.route_objects(found)
        row, leaf = version.index.copies(found, registered)  # these are asked for
        kept = np.flatnonzero(asked_for(found, home, registered)) if filtered else np.arange(len(found))
        slot = version.mapping[np.concatenate([home[kept], leaf])].astype(np.int64)
        each = range(version.slots)
        pairs = np.unique(slot * len(found) + np.concatenate([kept, row]))
        owner, rows = np.divmod(pairs, len(found))
        return cls([rows[owner == i] for i in each], [query[target == i].astype(np.int64) for i in each])


def measured(made: Made, comes: Comes, looked: Gi2, pair: float, engine: bool = True) -> Counts:
    """Throughput of a division in the three ways, million tuples/s, and what it comes from.

    Args:
        made: the division.
        comes: objects and queries.
        looked: the lists of all queries.
        pair: c1 of Definition 1 as printed.
        engine: whether what the engine looks at is counted too.
    """
    found, asked = comes
    divided = Divided.of(made[0], comes, made[1])
    n = len(found)
    objects, stand = (np.array([*map(len, of)], np.float64) for of in (divided.objects, divided.queries))
    coming = stand / len(asked) * n / UPDATES / 2.0
    entries = np.bincount(expanded(asked.keywords).owner, minlength=len(asked))
    checks = looked.checks(divided.objects, divided.queries)
    received = OBJECT * objects + ENTRY * coming
    ways = {
        "gi2": MATCH * checks + received,
        "definition": pair * objects * [float(entries[of].sum()) for of in divided.queries] + received,
    }
    if engine:
        ways["engine"] = worth("CRQ", passing(found, asked, divided.objects, divided.queries)) + ENTRY * coming
    tuples = n * (1.0 + 1.0 / UPDATES)
    work = ways["gi2"]
    return {way: tuples / float(each.max()) for way, each in ways.items()} | {
        "deliveries": float(objects.sum()) / n,
        "registrations": float(stand.sum()) / len(asked),
        "checks": float(checks.sum()) / n,
        "skew": float(work.max() / work.mean()),
    }


def compared(
    scale: float, group: str, ways: Sequence[str], slots: int = SLOTS, engine: bool = True
) -> dict[str, Counts]:
    """Ways to divide the work of a group of queries."""
    history, comes = before(scale, group), stream(scale, group)
    known = statistics_of(history)
    frequencies = Frequencies.of(history[0].terms)
    looked, pair = Gi2(USA, *comes, frequencies), Workload.of(history[0], known, frequencies, SIDE).pair
    found = {}
    for way in ways:
        build, filtered = WAYS[way]
        found[way] = measured((build(history, known, slots), filtered), comes, looked, pair, engine)
    return found


# ------------------------------------------------------------------------------------------------------------- figures


def figure_6(scale: float) -> Panels:
    """The baselines: divisions of words, and of space."""
    return {
        f"6-{group}": {way: {float(SLOTS): each} for way, each in compared(scale, group, TEXT + SPACE).items()}
        for group in GROUPS[:2]
    }


def figure_7(scale: float) -> Panels:
    """Hybrid partitioning beside the best of them."""
    ways = ("hybrid", "metric", "kd-tree", "kd-tree, H2")
    return {
        f"7-{group}": {way: {float(SLOTS): each} for way, each in compared(scale, group, ways).items()}
        for group in GROUPS
    }


def figure_11(scale: float) -> Panels:
    """The same, by the number of slots."""
    ways = ("hybrid", "metric", "kd-tree")
    panels: Panels = {}
    for group in GROUPS:
        panels[f"11-{group}"] = {way: {} for way in ways}
        for slots in (8, 16, 32, 64, 128):
            for way, each in compared(scale, group, ways, slots, engine=False).items():
                panels[f"11-{group}"][way][float(slots)] = each
    return panels


Migration = tuple[Floats, Floats, float]
"""The cells of a slot: L (Definition 3), S in bytes, and τ."""


def migrations(n: int, seed: int) -> list[Migration]:
    """What each of 8 slots, divided by a kd-tree, is to give to each that has clearly less load (:data:`EVEN`).

    Args:
        n: registered queries.
        seed: of all.
    """
    history = usa.objects(min(50_000, n), 500 + seed)
    comes = usa.objects(min(200_000, 2 * n), 600 + seed)
    asked = queries(comes, n, 700 + seed, "Q1")
    index = space.kd_tree(history, SLOTS, statistics_of((history, QueryBatch.of([]))))
    cells, row = gi2.met(USA, asked)
    places = gi2.cells_at(USA, comes)
    slot_of = index.nearest_leaves(gi2.middles(USA))
    sizes = numpy_view(pc.binary_length(asked.ids)).astype(np.float64) + 5 * 8  # id, times, box
    terms = numpy_view(pc.binary_length(asked.keywords.vocabulary))[asked.keywords.codes]
    sizes += np.bincount(np.repeat(np.arange(n), np.diff(asked.keywords.offsets)), terms, n)
    count = gi2.SIDE * gi2.SIDE
    load = np.bincount(places, minlength=count).astype(np.float64) * np.bincount(cells, minlength=count)
    size = np.bincount(cells, sizes[row], count).astype(np.float64)
    loads = np.bincount(slot_of, load, SLOTS)
    found = []
    for heavy, light in permutations(range(SLOTS), 2):
        if loads[heavy] > EVEN * loads[light]:
            mine = np.flatnonzero((slot_of == heavy) & (load > 0.0))
            found.append((load[mine], size[mine], float(loads[heavy] - loads[light]) / 2.0))
    return found


SITUATIONS, DRAWS = 5, 10
"""Samples on whose migrations the algorithms are compared; and how often RA draws for each."""


def migrated(n: int, algorithms: Sequence[str]) -> dict[str, Counts]:
    """What algorithms choose, and how long they take; the mean over situations."""
    found: dict[str, list[Counts]] = {each: [] for each in algorithms}
    for loads, sizes, target in (each for seed in range(SITUATIONS) for each in migrations(n, seed)):
        for name in algorithms:
            ways = [ALGORITHMS[name]]
            if name == "RA":
                ways = [partial(at_random, seed=draw) for draw in range(DRAWS)]
            for way in ways:
                way(loads, sizes, target)  # compiled, and in the caches
                began = time.process_time()
                chosen = way(loads, sizes, target)
                ms = 1e3 * (time.process_time() - began)
                assert loads[chosen].sum() >= target * (1.0 - 1e-9)
                found[name].append({"KB": float(sizes[chosen].sum()) / 1e3, "ms": ms, "cells": float(len(chosen))})
    return {
        name: {key: float(np.mean([each[key] for each in counts])) for key in counts[0]}
        for name, counts in found.items()
    }


def by_number(numbers: Sequence[float], scale: float, algorithms: Sequence[str]) -> dict[str, dict[float, Counts]]:
    """The same by the number of queries."""
    found: dict[str, dict[float, Counts]] = {each: {} for each in algorithms}
    for n in numbers:
        for name, counts in migrated(round(n * scale), algorithms).items():
            found[name][float(n)] = counts
    return found


def figure_12(scale: float) -> Panels:
    """Time of selecting cells, and bytes that migrate."""
    found = by_number((100_000,), scale, ("DP", "GR", "SI", "RA"))
    return {"12-time": found, "12-bytes": found}


def figure_13(scale: float) -> Panels:
    """Time and bytes with more queries, for which DP has no memory in the paper."""
    found = by_number((250_000, 500_000), scale, ("GR", "SI", "RA"))
    return {"13": found, "14": found}


def adjusted(version: RoutingVersion, learnt: Comes, strategy: str) -> RoutingVersion:
    """A version after a strategy that has seen a history."""
    found, asked = learnt
    leaves, span = len(version.index.leaves), float(72 * HOUR)
    sample = Sample.of(USA, found, asked, span)
    held = np.bincount(version.index.route_objects(found), minlength=leaves).astype(np.float64)
    stand = np.bincount(version.index.route_queries(asked)[1], minlength=leaves).astype(np.float64)
    by_type = np.zeros((len(TYPES), leaves))
    by_type[CODE[QueryType.CRQ]] = stand
    counts = LeafCounts(held, held, stand, span, by_type)
    limits = BalanceSettings(1.2, leaves=MOST_LEAVES)
    made = propose(version, counts, sample.statistics(), limits, strategy, sample=sample)
    assert made is not None
    return made.version


CHANGES = 5
"""How often a tenth of the regions of Q3 changes."""


def figure_16(scale: float) -> Panels:
    """Throughput while a tenth of the regions changes again and again: as it was, adjusted each time, and rebuilt."""
    history = before(scale, "Q3")
    first = hybrid(history, statistics_of(history), SLOTS)
    versions = {"static": first, "CM": first, "rebuild": first}
    panel: dict[str, dict[float, Counts]] = {way: {} for way in versions}
    for times in range(CHANGES + 1):
        learnt, comes = before(scale, "Q3", times), stream(scale, "Q3", times)
        frequencies = Frequencies.of(learnt[0].terms)
        looked = Gi2(USA, *comes, frequencies)
        pair = Workload.of(learnt[0], statistics_of(learnt), frequencies, SIDE).pair
        for way, strategy in (("CM", "CM"), ("rebuild", "rebuild")):
            if times:
                versions[way] = adjusted(versions[way], learnt, strategy)
        for way, version in versions.items():
            leaves = {"leaves": float(len(version.index.leaves))}
            panel[way][float(times)] = measured((version, True), comes, looked, pair) | leaves
    return {"16": panel}


FIGURES: dict[str, Callable[[float], Panels]] = {
    "6": figure_6, "7": figure_7, "11": figure_11, "12": figure_12, "13": figure_13, "14": figure_13, "16": figure_16,
}  # fmt: skip
"""By name. Figures 13 and 14 are of one measurement."""


# ------------------------------------------------------------------------------------------------------------ verdicts


@dataclass(frozen=True)
class Rule:
    """The best of some series is better than the best of others by a factor, at the last x."""

    better: tuple[str, ...]
    worse: tuple[str, ...]
    factor: float


@dataclass(frozen=True)
class Claim:
    """What the paper says of a panel.

    Attributes:
        measure: what is judged.
        lower: whether less is better.
        rules: what has to hold.
        rises: series that rise.
        text: in words.
    """

    measure: str
    lower: bool
    rules: tuple[Rule, ...]
    text: str
    rises: tuple[str, ...] = field(default=())


TIED = 1.0 / verdicts.TIE
_BEST = (Rule(("hybrid",), ("metric",), TIED), Rule(("hybrid",), ("kd-tree",), TIED))

CLAIMS = {
    "6-Q1": Claim("gi2", False, (Rule(SPACE, TEXT, 1.5),), "Space beats text: 160,659 to 76,921 tuples/s."),
    "6-Q2": Claim("gi2", False, (Rule(TEXT, SPACE, 1.1),), "Text beats space: 267,415 to 181,542 tuples/s."),
    "7-Q1": Claim("gi2", False, _BEST, "Hybrid is as good as the kd-tree, and better than metric."),
    "7-Q2": Claim("gi2", False, _BEST, "Hybrid is as good as metric, and better than the kd-tree."),
    "7-Q3": Claim(
        "gi2",
        False,
        (Rule(("hybrid",), ("metric",), 1.15), Rule(("hybrid",), ("kd-tree",), 1.15)),
        "Hybrid has 30 % more than metric and kd-tree (judged: 15 %).",
    ),
    "11-Q1": Claim(
        "gi2",
        False,
        (*_BEST, Rule(("kd-tree",), ("metric",), 1.0)),
        "Hybrid is best in most cases and scales well; metric is worst.",
        ("hybrid",),
    ),
    "11-Q2": Claim(
        "gi2",
        False,
        (*_BEST, Rule(("metric",), ("kd-tree",), 1.0)),
        "Hybrid is best in most cases and scales well; the kd-tree is worst.",
        ("hybrid",),
    ),
    "11-Q3": Claim("gi2", False, _BEST, "Hybrid is best in most cases and scales well.", ("hybrid",)),
    "12-time": Claim("ms", True, (Rule(("GR",), ("DP",), 10.0),), "DP takes significantly longer (judged: 10 times)."),
    "12-bytes": Claim(
        "KB",
        True,
        (Rule(("DP",), ("GR",), 1.0), Rule(("GR",), ("SI",), 1.25), Rule(("GR",), ("RA",), 1.25)),
        "DP and GR migrate least (judged: 20 % less than SI and RA).",
    ),
    "13": Claim("ms", True, (), "The time of GR, SI and RA does not depend on the number of queries."),
    "14": Claim(
        "KB",
        True,
        (Rule(("GR",), ("SI",), 1.25), Rule(("GR",), ("RA",), 1.25)),
        "GR migrates 30 to 40 % less than SI and RA (judged: 20 %).",
    ),
    "16": Claim(
        "gi2", False, (Rule(("CM",), ("static",), 1.1),), "26 % more throughput with adjustment (judged: 10 %)."
    ),
}
"""Panel -> claim."""

NEAR = verdicts.FLAT
"""Of a time that does not depend on the number of queries: the most to the least."""


def judged(panel: str, found: Mapping[str, Mapping[float, Counts]], measure: str = "") -> list[str]:
    """In what a panel disagrees with the paper, by its own measure or another one."""
    claim = CLAIMS[panel]
    measure = measure or claim.measure
    values = {series: {x: each[measure] for x, each in at.items()} for series, at in found.items()}
    last = max(next(iter(values.values())))
    best = min if claim.lower else max
    said = []
    for rule in claim.rules:
        one, other = (best(each, key=lambda series: values[series][last]) for each in (rule.better, rule.worse))
        pair = values[one][last], values[other][last]
        ratio = pair[1] / pair[0] if claim.lower else pair[0] / pair[1]
        if ratio < rule.factor * (1.0 - 1e-9):
            said.append(f"{one} is {ratio:.2f} times as good as {other} at {last:g}, {rule.factor:.3g} wanted")
    for series in claim.rises:
        if not verdicts.goes([values[series][x] for x in sorted(values[series])], "rises"):
            said.append(f"{series} does not rise")
    if panel == "13":
        said += [f"{series} changes" for series, at in values.items() if max(at.values()) > NEAR * min(at.values())]
    return said


def table(panel: str, found: Mapping[str, Mapping[float, Counts]]) -> str:
    """All measures as a table in Markdown."""
    lines = list[str]()
    for series, points in found.items():
        for x, counts in points.items():
            if not lines:
                lines += [f"| {panel} | at | {' | '.join(counts)} |", "|---" * (len(counts) + 2) + "|"]
            lines.append(f"| {series} | {x:g} | {' | '.join(f'{each:,.4g}' for each in counts.values())} |")
    return "\n".join(lines)


def verdict(panel: str, found: Mapping[str, Mapping[float, Counts]]) -> str:
    """Whether a panel agrees by the paper's measure, and by what the engine counts, where it does."""
    said = [f"{panel}: {verdicts.in_words(judged(panel, found))}"]
    counted = {key for points in found.values() for counts in points.values() for key in counts}
    for measure in ("definition", "engine"):
        if measure in counted:
            said.append(f"by {measure}: {verdicts.in_words(judged(panel, found, measure))}")
    return "; ".join(said)


def main() -> None:
    """Measure figures, and say whether they agree."""
    figures, scale, folder = parsed("ps2stream", FIGURES)
    for figure in figures or [name for name in FIGURES if name != "14"]:
        began = time.monotonic()
        for panel, found in FIGURES[figure](scale).items():
            result = {"verdict": judged(panel, found), "counts": found}
            (folder / f"{panel}.json").write_text(json.dumps(result, indent=1))
            print(f"{verdict(panel, found)}\n{CLAIMS[panel].text}\n\n{table(panel, found)}\n")
        print(f"figure {figure}: {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
