"""Figures 8, 9, 10(b) and 13 of Tornado (SIGSPATIAL 2018): ``python -m tests.benchmarks.paper.tornado [FIGURE...]``.

The workload is that of :mod:`.usa`. Throughput is counted as for the figures of SSTD
(:mod:`tests.benchmarks.paper.counting`): the work of the slowest slot. Figures 8(c), 10(b) and 13(b) are measured in
:mod:`.routers`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from spatialstream.balance.loads import LeafCounts
from spatialstream.balance.proposal import propose
from spatialstream.balance.settings import BalanceSettings
from spatialstream.index.a_grid.a_grid import AGrid
from spatialstream.index.sample import Sample
from spatialstream.index.version import RoutingVersion
from spatialstream.model.hashing import hash_strings
from spatialstream.model.kernels import kernel
from spatialstream.model.kinds import CODE, TYPES, QueryType
from tests.benchmarks.paper import verdicts
from tests.benchmarks.paper.command import parsed
from tests.benchmarks.paper.counting import Counts, passed, timed
from tests.benchmarks.paper.routers import cells_of_boxes, figure_8c, figure_10, figure_13b, rarest
from tests.benchmarks.paper.usa import OBJECTS, SLOTS, USA, Panels, Workload, before, built, objects, queries, stream
from tests.benchmarks.paper.verdicts import Claims
from tests.benchmarks.paper.workloads import HOUR


def by_index(version: RoutingVersion, comes: Workload) -> Counts:
    """What passing costs under an index."""
    row, slot = version.route_queries(comes[1])
    owner = version.route_objects(comes[0])
    each = range(version.slots)
    return passed(*comes, [np.flatnonzero(owner == i) for i in each], [row[slot == i].astype(np.int64) for i in each])


# ----------------------------------------------------------------------------------------------------------- figure 8


def by_words(comes: Workload) -> Counts:
    """Textual routing: objects go to the slot of each of their words, queries to that of their rarest one."""
    found, asked = comes
    slot_of = (hash_strings(found.terms.vocabulary) % np.uint64(SLOTS)).astype(np.int64)
    owner = np.repeat(np.arange(len(found)), np.diff(found.terms.offsets))
    given = np.unique(np.stack([slot_of[found.terms.codes], owner]), axis=1)
    target = slot_of[rarest(comes)]
    each = range(SLOTS)
    return passed(found, asked, [given[1][given[0] == i] for i in each], [np.flatnonzero(target == i) for i in each])


def figure_8(scale: float) -> Panels:
    """Routing by A-Grid, by a uniform grid, and by words; with and without summaries."""
    history, comes = before(scale), stream(scale)
    found = {kind: {float(SLOTS): by_index(built(kind, history), comes)} for kind in ("a-grid", "grid", "qt-tree")}
    return {"8a": found | {"textual": {float(SLOTS): by_words(comes)}}} | figure_8c(scale)


# ----------------------------------------------------------------------------------------------------------- figure 9


@kernel
def scanned(table: npt.NDArray[np.int32], ranges: npt.NDArray[np.int64], seen: npt.NDArray[np.int64]) -> int:
    """Look for the leaves of ranges of cells by looking at each cell, as a grid without shortcuts does."""
    found = 0
    for q in range(len(ranges)):
        west, south, east, north = ranges[q]
        for row in range(south, north):
            for column in range(west, east):
                leaf = table[row, column]
                if seen[leaf] != q:
                    seen[leaf] = q
                    found += 1
    return found


def figure_9(scale: float) -> Panels:
    """Time of routing points by the number of partitions, and ranges by their size."""
    history = before(scale)
    found = objects(round(OBJECTS * scale), 301)
    points: dict[str, dict[float, Counts]] = {kind: {} for kind in ("a-grid", "grid", "qt-tree")}
    for leaves in (25, 100, 400, 1600):
        for kind, of_kind in points.items():
            version = built(kind, history, leaves)
            seconds = min(timed(lambda v=version: v.index.route_objects(found))[0] for _ in range(5))
            of_kind[float(leaves)] = {"ns": 1e9 * seconds / len(found)}
    version = built("a-grid", history)
    index = version.index
    assert isinstance(index, AGrid)
    ranges: dict[str, dict[float, Counts]] = {kind: {} for kind in ("a-grid", "scan", "grid", "qt-tree")}
    others = {kind: built(kind, history).index for kind in ("a-grid", "grid", "qt-tree")}
    for percent in (0.05, 0.1, 0.5, 1.0, 1.5):
        asked = queries(found, round(20_000 * scale), 401, percent / 100.0).regions
        for kind, each in others.items():
            seconds = min(timed(lambda i=each, r=asked: i.route_regions(r))[0] for _ in range(5))
            leaves = len(each.route_regions(asked)[0]) / len(asked)
            ranges[kind][percent] = {"ns": 1e9 * seconds / len(asked), "looked": leaves}
        cells = cells_of_boxes(index, asked)
        scanned(index.table, cells[:1], np.full(len(index.leaves), -1, np.int64))
        stamps = [np.full(len(index.leaves), -1, np.int64) for _ in range(5)]
        seconds = min(timed(lambda c=cells, s=stamp: scanned(index.table, c, s))[0] for stamp in stamps)
        area = float(((cells[:, 2] - cells[:, 0]) * (cells[:, 3] - cells[:, 1])).mean())
        ranges["scan"][percent] = {"ns": 1e9 * seconds / len(asked), "looked": area}
    return {"9a": points, "9b": ranges}


# ---------------------------------------------------------------------------------------------------------- figure 13


def adapted(version: RoutingVersion, comes: Workload, strategies: tuple[str, ...]) -> RoutingVersion:
    """The version after strategies, one after the other, each by the load that the one before has left."""
    found, asked = comes
    sample = Sample.of(USA, found, asked, float(72 * HOUR))
    known = sample.statistics()
    for strategy in strategies:
        leaves = len(version.index.leaves)
        held = np.bincount(version.index.route_objects(found), minlength=leaves).astype(np.float64)
        stand = np.bincount(version.index.route_queries(asked)[1], minlength=leaves).astype(np.float64)
        by_type = np.zeros((len(TYPES), leaves))
        by_type[CODE[QueryType.CRQ]] = stand
        counts = LeafCounts(held, held, stand, float(72 * HOUR), by_type)
        made = propose(version, counts, known, BalanceSettings(1.01), strategy, sample=sample)
        assert made is not None
        version = made.version
    return version


def figure_13(scale: float) -> Panels:
    """Throughput when all places shrink to the middle, as the index was, and adjusted to it; bytes of statistics."""
    version = built("a-grid", before(scale))
    ways: Mapping[str, tuple[str, ...]] = {
        "static": (),
        "SM": ("SM",),
        "SH": ("SH",),
        "adaptive": ("SM", "SH"),
        "rebuild": ("rebuild",),
    }
    found: dict[str, dict[float, Counts]] = {way: {} for way in ways}
    for factor in (1.0, 0.7, 0.6, 0.5, 0.4):
        learnt, comes = before(scale, 2, factor), stream(scale, 1, factor)
        for way, strategies in ways.items():
            found[way][factor] = by_index(adapted(version, learnt, strategies), comes)
    return {"13a": found} | figure_13b(scale)


# ------------------------------------------------------------------------------------------------------------ verdicts

FIGURES: dict[str, Callable[[float], Panels]] = {
    "8": figure_8, "8c": figure_8c, "9": figure_9, "10": figure_10, "13": figure_13, "13b": figure_13b,
}  # fmt: skip
"""By name; parts of figures have one too."""

LAST = float(SLOTS)
CLAIMS = {
    "8a": ("throughput", False, Claims(orders=(("a-grid", "grid"), ("a-grid", "textual")), ratios={LAST: 2.0}),
           "The A-Grid has twice the throughput of a uniform grid, and of textual routing."),
    "8c": ("throughput", False,
           Claims(orders=(("space and words", "space"),), trends={"space and words": "falls"}),
           "Throughput rises as the frequency of the queries' words falls, for fewer objects are forwarded."),
    "9a": ("ns", True, Claims(trends={"a-grid": "flat", "grid": "flat"}),
           "The time of points stays with the number of partitions for grid and A-Grid."),
    "9b": ("ns", True, Claims(orders=(("a-grid", "scan"),)),
           "Ranges are routed faster by an A-Grid than by a grid, which looks at each cell."),
    "10b": ("messages", True,
            Claims(orders=(("forward", "broadcast"),), ratios={12.0: 5.0}),
            "Forwarding new words in place of broadcasting queries improves query throughput by up to five times."),
    "13a": ("throughput", False,
            Claims(orders=(("adaptive", "static"),), trends={"adaptive": "flat", "static": "rises"}),
            "Adaptive throughput is stable; the smaller the scale factor, the lower the static one."),
    "13b": ("bytes", True,
            Claims(orders=(("decentralised", "centralised"),), behind={"centralised": 20.0}),
            "Decentralised load balancing has much less communication overhead (judged: at least 10 times less)."),
}  # fmt: skip
"""Panel -> measure, whether less is better, claims, what the paper says."""


def judged(panel: str, found: Mapping[str, Mapping[float, Counts]]) -> list[str]:
    """In what a panel disagrees with the paper."""
    measure, lower, claims, _ = CLAIMS[panel]
    values = {series: {x: each[measure] for x, each in points.items()} for series, points in found.items()}
    said = [each.text for each in verdicts.judge(values, claims, lower)]
    for x in next(iter(found.values())):
        answers = {at[x]["digest"] for at in found.values() if "digest" in at[x]}
        if len(answers) > 1:
            raise AssertionError(f"{panel}: answers differ at {x:g}: {answers}")
    if panel == "13a":  # at 0.4 adaptive keeps 90 %, static less than half
        for series, least, most in (("adaptive", 0.9, np.inf), ("static", 0.0, 0.5)):
            kept = values[series][0.4] / values[series][1.0]
            if not least <= kept < most:
                said.append(f"{series} keeps {100 * kept:.0f} % at 0.4")
    return said


def table(panel: str, found: Mapping[str, Mapping[float, Counts]]) -> str:
    """The measure as a table in Markdown."""
    measure = CLAIMS[panel][0]
    xs = list(next(iter(found.values())))
    lines = [f"| {measure} | {' | '.join(f'{x:g}' for x in xs)} |", "|---" * (len(xs) + 1) + "|"]
    lines += [f"| {name} | {' | '.join(f'{at[x][measure]:,.4g}' for x in xs)} |" for name, at in found.items()]
    return "\n".join(lines)


def main() -> None:
    """Measure figures, and say whether they agree."""
    figures, scale, folder = parsed("tornado", FIGURES)
    for figure in figures or [name for name in FIGURES if name.isdigit()]:
        began = time.monotonic()
        for panel, found in FIGURES[figure](scale).items():
            said = judged(panel, found)
            (folder / f"{panel}.json").write_text(json.dumps({"verdict": said, "counts": found}, indent=1))
            print(f"{panel}: {'disagrees: ' + '; '.join(said) if said else 'agrees'}\n\n{table(panel, found)}\n")
        print(f"figure {figure}: {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
