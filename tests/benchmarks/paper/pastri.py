"""Figures 11 to 15 and 18 to 21 of Pastri (JOSIS 24, 2022): ``python -m tests.benchmarks.paper.pastri [FIGURE...]``.

Objects are around the cities of the USA by population, over 72 hours, of two sizes: 200,000 and 2,000,000, as the
paper's smaller sets of tweets. Queries are drawn as in its section 7.1.2, with the defaults of its Table 6: k 5,
100 km, 5 words, a selectivity of 20 %, a half-life of 7 days (:mod:`tests.benchmarks.peers.workload`). Times are CPU
times of one core; figures 11 and 14, about several threads, have processes, each of which is an actor, and wall-clock
times. Counted is how many objects a query looks at: for each of them the weights of its words are added up.

I3 and IR-tree, the paper's baselines, are not built. Lucene stands in their place, where ``scripts/peers.sh`` has
fetched it. Figures 9, 10, 16 and 17 are about means that this project does not have: its balancing of threads, its
grid, and profiles of the baselines.
"""

from __future__ import annotations

import json
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from spatialstream.local.snapshot.segments import SegmentStore
from spatialstream.model.space import WGS84
from spatialstream.records.encode import object_lines
from spatialstream.stages.corpus import CorpusCounts
from tests.benchmarks.paper import verdicts
from tests.benchmarks.paper.command import parsed
from tests.benchmarks.paper.counting import Counts, timed
from tests.benchmarks.paper.verdicts import Claims
from tests.benchmarks.peers import lucene, workload
from tests.benchmarks.peers.lucene import Lucene
from tests.benchmarks.peers.workload import EPOCH, World
from tests.unit.memory_files import MemoryFiles

SIZES = (200_000, 2_000_000)
QUERIES = 500
INTERVAL = 300_000
OURS, OTHER = "segments", "Lucene"

Panels = dict[str, dict[str, dict[float, Counts]]]
"""panel -> series -> x -> counts"""


@cache
def world(n: int) -> World:
    """n objects, and what follows from them."""
    return World(workload.objects(n))


def sizes(scale: float) -> dict[str, World]:
    """The data sets, by their names in the paper."""
    return {name: world(round(n * scale)) for name, n in zip(("200k", "2mi"), SIZES, strict=True)}


def answered(found: World, scale: float, **how: Any) -> Counts:
    """What answering some queries costs."""
    ms, ids, looked = workload.answers(found.store, workload.asked(found.batch, max(20, round(QUERIES * scale)), **how))
    return {"ms": ms, "looked": looked, "rows": sum(map(len, ids)) / len(ids)}


def varied(scale: float, name: str, values: Sequence[float], **how: Any) -> dict[str, dict[float, Counts]]:
    """The same for each value of a parameter, and each size."""
    number = int if name == "words" else float
    return {
        size: {float(x): answered(found, scale, **{name: number(x)}, **how) for x in values}
        for size, found in sizes(scale).items()
    }


# -------------------------------------------------------------------------------------------------------------- ingest


def taken_in(found: World, rows: np.ndarray) -> SegmentStore:
    """Have the objects of some rows in segments, and their words counted."""
    store, counts = SegmentStore(WGS84), CorpusCounts(INTERVAL, 0)
    for first in range(0, len(rows), EPOCH):
        part = found.batch.take(rows[first : first + EPOCH])
        store.append(part)
        counts.add(part)
    return store


def at_once(works: Sequence[Callable[[], object]]) -> float:
    """Wall-clock seconds from when all begin to when the last one ends, each in a process of its own."""
    context = multiprocessing.get_context("fork")  # which has the objects without sending them
    barrier = context.Barrier(len(works) + 1)

    def do(work: Callable[[], object]) -> None:
        barrier.wait()
        work()
        barrier.wait()

    processes = [context.Process(target=do, args=(work,)) for work in works]
    for each in processes:
        each.start()
    barrier.wait()
    began = time.monotonic()
    barrier.wait()
    seconds = time.monotonic() - began
    for each in processes:
        each.join()
    return seconds


def actors_of(found: World, actors: int) -> list[np.ndarray]:
    """The rows of each actor: strips of equally many objects, by longitude."""
    return [np.sort(part) for part in np.array_split(np.argsort(found.batch.x, kind="stable"), actors)]


def figure_11(scale: float) -> Panels:
    """Objects a second, by actors."""
    panel: dict[str, dict[float, Counts]] = {}
    for size, found in sizes(scale).items():
        panel[size] = {}
        for actors in (1, 2):
            parts = actors_of(found, actors)
            seconds = min(at_once([lambda p=part, f=found: taken_in(f, p) for part in parts]) for _ in range(2))
            panel[size][float(actors)] = {"rate": len(found.batch) / seconds}
    return {"11": panel}


@cache
def built(n: int) -> dict[str, Counts]:
    """Building of n objects: CPU seconds and bytes, of each system that is there."""
    found = world(n)
    seconds, store = timed(lambda: taken_in(found, np.arange(n)))
    files = MemoryFiles()
    store.checkpoint(files.write)
    size = sum(array.nbytes for arrays, _ in files.files.values() for array in arrays.values())
    text = len(bytes(object_lines(found.batch.take(np.arange(min(n, 10_000))), WGS84))) / min(n, 10_000) * n
    made: dict[str, Counts] = {OURS: {"s": seconds, "MB": size / 1e6, "JSON": text / 1e6}}
    if lucene.jars() is not None:
        with tempfile.TemporaryDirectory() as folder:
            spent, size = Lucene(Path(folder)).index(found)
            made[OTHER] = {"s": spent, "MB": size / 1e6, "JSON": text / 1e6}
    return made


def by_size(scale: float) -> dict[str, dict[float, Counts]]:
    """The same, by the number of objects."""
    panel: dict[str, dict[float, Counts]] = {}
    for n in SIZES:
        for system, counts in built(round(n * scale)).items():
            panel.setdefault(system, {})[float(n)] = counts
    return panel


def figure_12(scale: float) -> Panels:
    """Seconds of building."""
    return {"12": by_size(scale)}


def figure_13(scale: float) -> Panels:
    """Bytes that are kept."""
    return {"13": by_size(scale)}


# ------------------------------------------------------------------------------------------------------------- queries


def figure_14(scale: float) -> Panels:
    """Queries a second, by actors, each with all objects."""
    panel: dict[str, dict[float, Counts]] = {}
    for size, found in sizes(scale).items():
        queries = workload.asked(found.batch, max(40, round(4 * QUERIES * scale)))
        workload.answers(found.store, queries, 1)
        panel[size] = {}
        for actors in (1, 2):
            works = [
                lambda i=i, s=actors, f=found, q=queries: workload.answers(f.store, q[i::s], 3) for i in range(actors)
            ]
            seconds = min(at_once(works) for _ in range(2))
            panel[size][float(actors)] = {"rate": 3 * len(queries) / seconds}
    return {"14": panel}


def figure_15(scale: float) -> Panels:
    """The time of a query, by the number of objects."""
    panel: dict[str, dict[float, Counts]] = {OURS: {}}
    for n, found in zip(SIZES, sizes(scale).values(), strict=True):
        panel[OURS][float(n)] = answered(found, scale)
        if lucene.jars() is not None:
            with tempfile.TemporaryDirectory() as folder:
                other = Lucene(Path(folder))
                other.index(found)
                queries = workload.asked(found.batch, max(20, round(QUERIES * scale)))
                ms, rows = other.search(found, queries, "function")
            panel.setdefault(OTHER, {})[float(n)] = {"ms": ms, "rows": sum(map(len, rows)) / len(rows)}
    return {"15": panel}


def figure_18(scale: float) -> Panels:
    """By selectivity, %."""
    found = varied(scale, "selectivity", (0.01, 0.05, 0.1, 0.2, 0.4))
    return {"18": {size: {100.0 * x: each for x, each in points.items()} for size, points in found.items()}}


def figure_19(scale: float) -> Panels:
    """By the number of words."""
    return {"19": varied(scale, "words", (1, 2, 3, 4, 5))}


def figure_20(scale: float) -> Panels:
    """By the radius, km."""
    found = varied(scale, "radius", (1e3, 1e4, 1e5))
    return {"20": {size: {x / 1e3: each for x, each in points.items()} for size, points in found.items()}}


def figure_21(scale: float) -> Panels:
    """TkSTTQs, by the number of words."""
    return {"21": varied(scale, "words", (1, 2, 3, 4, 5), between=True)}


# ------------------------------------------------------------------------------------------------------------ verdicts

FIGURES: dict[str, Callable[[float], Panels]] = {
    "11": figure_11,
    "12": figure_12,
    "13": figure_13,
    "14": figure_14,
    "15": figure_15,
    "18": figure_18,
    "19": figure_19,
    "20": figure_20,
    "21": figure_21,
}

_RISES = {"200k": "rises", "2mi": "rises"}

CLAIMS = {
    "11": ("rate", False, Claims(trends=_RISES),
           "Throughput of updates rises with the partitions of the store: 133,000, 187,000, 206,000 objects/s of 2mi "
           "with 1, 2, 4."),
    "12": ("s", True, Claims(orders=((OURS, OTHER),)),
           "Pastri is built an order of magnitude faster than I3, two faster than an IR-tree."),
    "13": ("MB", True, Claims(orders=((OURS, OTHER),)),
           "Pastri takes much less space than I3 and IR-tree: 1,114 MB of 20 million, 27 and 33 times less."),
    "14": ("rate", False, Claims(trends=_RISES),
           "Throughput of queries rises with threads, 1 to 2: 1.8 times with 200k, 2.1 with 20 million."),
    "15": ("ms", True, Claims(orders=((OURS, OTHER),), trends={OURS: "rises"}),
           "A query takes one to two orders of magnitude less than with I3, and more with more objects; below 5 ms."),
    "18": ("ms", True, Claims(trends=_RISES),
           "The time rises with selectivity, of 20 million from 1.6 ms at 5 % to 7.5 ms at 40 %."),
    "19": ("ms", True, Claims(trends=_RISES), "The time rises with the number of words, notably of 20 million."),
    "20": ("ms", True, Claims(trends=_RISES), "The time rises with the radius, to 4.2 ms of 20 million at 100 km."),
    "21": ("ms", True, Claims(trends=_RISES),
           "The time of a TkSTTQ rises with the number of words, of 20 million from 1.5 ms to 9 ms."),
}  # fmt: skip
"""Panel -> measure, whether less is better, claims, what the paper says."""

RATIOS = {"14": (1.0, 2.0, 1.7)}
"""Panel -> two x, and how many times the first value the second one has to be at least, in each series."""


def judged(panel: str, found: Mapping[str, Mapping[float, Counts]], measure: str = "") -> list[str]:
    """In what a panel disagrees with the paper, by its own measure or another one."""
    own, lower, claims, _ = CLAIMS[panel]
    measure = measure or own
    values = {
        series: {x: each[measure] for x, each in points.items()}
        for series, points in found.items()
        if all(measure in each for each in points.values())
    }
    said = [each.text for each in verdicts.judge(values, claims, lower)]
    if panel in RATIOS:
        first, second, least = RATIOS[panel]
        for series, points in values.items():
            if (ratio := points[second] / points[first]) < least:
                said.append(f"{series} has {ratio:.2f} times as much at {second:g}, {least:g} are wanted")
    return said


def table(panel: str, found: Mapping[str, Mapping[float, Counts]]) -> str:
    """All measures as a table in Markdown."""
    xs = list(next(iter(found.values())))
    lines = [f"| | {' | '.join(f'{x:g}' for x in xs)} |", "|---" * (len(xs) + 1) + "|"]
    for series, points in found.items():
        for measure in points[xs[0]]:
            lines.append(f"| {series}, {measure} | {' | '.join(f'{points[x][measure]:,.4g}' for x in xs)} |")
    return "\n".join(lines)


def verdict(panel: str, found: Mapping[str, Mapping[float, Counts]]) -> str:
    """Whether a panel agrees, by its measure, and by what is counted where that is there."""
    said = [f"{panel}: {verdicts.in_words(judged(panel, found))}"]
    if CLAIMS[panel][0] == "ms":
        said.append(f"by objects looked at: {verdicts.in_words(judged(panel, found, 'looked'))}")
    return "; ".join(said)


def main() -> None:
    """Measure figures, and say whether they agree."""
    figures, scale, folder = parsed("pastri", FIGURES)
    if lucene.jars() is None:
        print("Lucene is not there (scripts/peers.sh fetches it): figures 12, 13 and 15 have nothing beside it")
    for figure in figures or FIGURES:
        began = time.monotonic()
        for panel, found in FIGURES[figure](scale).items():
            result = {"verdict": judged(panel, found), "counts": found}
            (folder / f"{panel}.json").write_text(json.dumps(result, indent=1))
            print(f"{verdict(panel, found)}\n\n{table(panel, found)}\n")
        print(f"figure {figure}: {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
