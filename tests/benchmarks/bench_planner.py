"""The planner's choice compared with the best of what it chooses from, by counted work, on twelve workloads.

``python -m tests.benchmarks.bench_planner [NAME...] [--scale S] [--seed N]``, or ``make bench ARGS=planner``. Each
index that the planner tries is built from a sample, other objects come to it and other queries are asked
(:mod:`.paper.counting`), and the work of its slowest slot is counted: what the engine's own indexes look at and give
back, weighed by the worth of ``make paper``; and :data:`STORED` and :data:`ENTRY` for storing an object and registering
a query. A choice that needs up to 15 % more than the least is right.

``--costs`` measures what :data:`~spatialstream.balance.planner.MEASURED` holds: CPU time of one core, the least of
three.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from spatialstream.balance.planner import Costs, Plan, plan, whole
from spatialstream.balance.settings import BalanceSettings
from spatialstream.balance.word_join import WordJoin
from spatialstream.index.kinds import KINDS
from spatialstream.index.sample import OBJECTS
from spatialstream.index.version import RoutingVersion, build
from spatialstream.kernels import compile_kernels
from spatialstream.local.nearest.ckq import ContinuousNearestIndex
from spatialstream.local.range.crq import ContinuousRangeIndex
from spatialstream.local.snapshot.segments import SegmentStore
from spatialstream.model.arrays import Floats
from spatialstream.model.kinds import TYPES, QueryType
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.stages.snapshots import answer, reach
from tests.benchmarks.paper import workloads
from tests.benchmarks.paper.counting import asking, passing, taken, worth
from tests.benchmarks.paper.systems import Key, System
from tests.benchmarks.paper.workloads import HOUR, SPACE

COMING = OBJECTS
"""Objects that come to an index: as many as the sample stands for, so that queries are as many by object."""
RIGHT = 0.15
"""What a right choice may need more than the best, as a fraction."""
STORED, ENTRY = 0.82, 0.27
"""What storing an object and registering a query cost in µs, as ``--costs`` measured them, on a machine on which asking
a slot costs what it does in the worth of ``make paper``."""
TOWN = 0.002
"""By how much a town is smaller than the world of Gau."""
HOT = (0.0, 40.0, 12.0, 52.0)
"""Where everybody asks in ``crq-hot``: west, south, east, north."""


@dataclass(frozen=True)
class Case:
    """A workload.

    Attributes:
        data: how objects are spread, see :mod:`.paper.workloads`.
        queries: how many of each type.
        slots: slots.
        region: size of regions in percent of the space, from and to.
        keywords: fewest and most words of a query.
        shrunk: factor of all coordinates.
        hot: whether queries are in one region alone.
    """

    data: str
    queries: Mapping[str, int]
    slots: int = 8
    region: tuple[float, float] = (0.001, 0.1)
    keywords: tuple[int, int] = (1, 3)
    shrunk: float = 1.0
    hot: bool = False

    def objects(self, n: int, seed: int) -> ObjectBatch:
        """N objects."""
        found = workloads.objects(self.data, n, seed)
        return found if self.shrunk == 1.0 else replace(found, x=found.x * self.shrunk, y=found.y * self.shrunk)

    def asked(self, around: ObjectBatch, seed: int) -> QueryBatch:
        """The queries, around some of these objects."""
        if self.hot:
            west, south, east, north = HOT
            here = (around.x >= west) & (around.x <= east) & (around.y >= south) & (around.y <= north)
            around = around.take(np.flatnonzero(here))
        given = {QueryType(kind): count for kind, count in self.queries.items()}
        region = self.region[0] * self.shrunk**2, self.region[1] * self.shrunk**2
        return workloads.queries(
            around, given, seed, region=region, keywords=self.keywords, duration=73 * HOUR, window=8 * HOUR,
            step=4 * HOUR,
        )  # fmt: skip


CASES = {
    "crq-world": Case("TW", {"CRQ": 8_000}),
    "crq-wide": Case("TW", {"CRQ": 8_000}, region=(1.0, 5.0)),
    "crq-uniform": Case("Uni", {"CRQ": 8_000}),
    "crq-gaussian": Case("Gau", {"CRQ": 8_000}),
    "crq-town": Case("Gau", {"CRQ": 8_000}, shrunk=TOWN),
    "crq-hot": Case("TW", {"CRQ": 8_000}, hot=True),
    "crq-2-slots": Case("TW", {"CRQ": 8_000}, slots=2),
    "crq-32-slots": Case("TW", {"CRQ": 8_000}, slots=32),
    "srq-world": Case("TW", {"SRQ": 3_000}),
    "skq-world": Case("TW", {"SKQ": 3_000}, keywords=(1, 1)),
    "top-words": Case("Gau", {"STQ": 1_000, "CTQ": 300}, region=(0.1, 1.0)),
    "mix": Case("TW", {"SRQ": 800, "SKQ": 800, "STQ": 300, "CRQ": 2_000, "CKQ": 200, "CTQ": 200}),
}
"""The workloads, by name."""


class Built(System):
    """An index with some objects in its slots."""

    def __init__(self, version: RoutingVersion, objects: ObjectBatch) -> None:
        self.key = Key("", len(objects), "", 0, version.slots, 0.0, 0.0, "", 0)
        self.version, self.predicted = version, 0.0
        leaves = len(version.index.leaves)
        self.by_leaf = RoutingVersion(0, version.index, np.arange(leaves, dtype=np.int32), leaves)
        self.__dict__["objects"] = objects


def work(version: RoutingVersion, objects: ObjectBatch, queries: QueryBatch) -> Floats:
    """The counted work of each slot, µs."""
    slots = range(version.slots)
    came, _, where = version.deliver(objects)
    owner = where[: len(objects)]
    total = STORED * np.bincount(owner, minlength=version.slots)
    system = Built(version, objects)
    for code, kind in enumerate(TYPES):
        asked = taken(queries, np.flatnonzero(queries.code == code))
        if not len(asked):
            continue
        if kind in ("CRQ", "CKQ", "CTQ"):
            row, slot = version.route_queries(asked)
            has = [np.sort(came[where == i]) if kind == "CRQ" else np.flatnonzero(owner == i) for i in slots]
            given = has, [row[slot == i].astype(np.int64) for i in slots]
            total += ENTRY * np.bincount(slot, minlength=version.slots)
            total += worth(kind, passing(objects, asked, *given))
        else:
            total += sum(worth(kind, phase.counts) for phase in asking(system, asked))
    result: Floats = total
    return result


@dataclass(frozen=True)
class Judged:
    """The planner's choice on a workload.

    Attributes:
        name: of the workload.
        plan: the choice.
        seconds: CPU time of planning.
        work: the counted work of the slowest slot of each option, by kind and leaves, ms.
    """

    name: str
    plan: Plan
    seconds: float
    work: Mapping[tuple[str, int], float] = field(default_factory=dict)

    @property
    def best(self) -> tuple[str, int]:
        """What needs least."""
        return min(self.work, key=lambda each: self.work[each])

    @property
    def excess(self) -> float:
        """What the choice needs more than the best, as a fraction."""
        return self.work[self.plan.kind, self.plan.leaves] / self.work[self.best] - 1.0

    def row(self) -> str:
        """The line of a table in Markdown."""
        least = {
            kind: min((value, leaves) for (each, leaves), value in self.work.items() if each == kind)
            for kind in dict.fromkeys(kind for kind, _ in self.work)
        }
        kinds = (kind.name for kind in KINDS.values() if kind.adapts)
        cells = ["{:,.1f} ({:,})".format(*least[kind]) if kind in least else "" for kind in kinds]
        taken = f"`{self.plan.kind}`, {self.plan.leaves:,}"
        value = self.work[self.plan.kind, self.plan.leaves]
        return f"| `{self.name}` | {' | '.join(cells)} | {taken} | {value:,.1f} | {100 * self.excess:.0f} % |"


def judged(name: str, scale: float = 1.0, seed: int = 1) -> Judged:
    """Plan for a workload, and count the work of all that the planner chooses from."""
    case = CASES[name]
    before = case.objects(OBJECTS, 100 + seed)
    known = case.asked(before, 200 + seed)
    sample = whole(SPACE, before, known)
    began = time.process_time()
    chosen = plan(sample, case.slots, BalanceSettings())
    seconds = time.process_time() - began
    objects = case.objects(round(COMING * scale), 300 + seed)
    queries = case.asked(objects, 400 + seed)
    found = {}
    for option in chosen.table:
        version = build(SPACE, before, known, option.wanted, case.slots, kind=option.kind)
        found[option.kind, option.wanted] = 1e-3 * float(work(version, objects, queries).max())
    return Judged(name, chosen, seconds, found)


# -------------------------------------------------------------------------------------------------------------- costs


def _least(make: Callable[[], Any], run: Callable[[Any], object], tries: int = 3) -> float:
    """The least CPU time of a few runs in µs, each with what is made for it."""
    times = []
    for _ in range(tries):
        given = make()
        began = time.process_time()
        run(given)
        times.append(1e6 * (time.process_time() - began))
    return min(times)


def measured_costs(scale: float = 1.0) -> Costs:
    """What a slot takes for each, on the workload ``crq-world``."""
    n, batch = round(200_000 * scale), 10_000
    case = CASES["crq-world"]
    objects = case.objects(n, 1)
    parts = [objects.take(np.arange(first, min(first + batch, n))) for first in range(0, n, batch)]
    parts = [replace(part, terms=part.terms.compact()) for part in parts]
    join = WordJoin(SPACE, objects, np.ones(n))

    def queries(kind: str, count: int) -> QueryBatch:
        return replace(case, queries={kind: count}).asked(objects, 2)

    def filled(_: Any = None) -> SegmentStore:
        store = SegmentStore(SPACE, None)
        for part in parts:
            store.append(part)
        return store

    def continuous(index: Any, asked: QueryBatch) -> Any:
        index.register(np.arange(len(asked)), asked)
        return index

    def ranged(asked: QueryBatch) -> Any:
        return continuous(ContinuousRangeIndex(SPACE), asked)

    def passed(index: Any) -> None:
        for part in parts:
            list(index.match(part))

    crq, few, ckq = queries("CRQ", n // 2), queries("CRQ", n // 20), queries("CKQ", 1_000)
    stored = _least(lambda: None, filled) / n
    entry = _least(lambda: ContinuousRangeIndex(SPACE), lambda index: continuous(index, crq)) / len(crq)
    # many queries and few: what differs is due to their pairs, and the rest to the objects
    times = [_least(partial(ranged, some), passed) for some in (crq, few)]
    pairs = [join.matches(some, np.ones(len(some))).sum() for some in (crq, few)]
    match = (times[0] - times[1]) / (pairs[0] - pairs[1])
    looked = (times[1] - match * pairs[1]) / n
    alone = _least(lambda: continuous(ContinuousNearestIndex(SPACE), queries("CKQ", 1)), passed)
    nearest = _least(lambda: continuous(ContinuousNearestIndex(SPACE), ckq), passed) - alone
    candidate = nearest / join.matches(ckq, np.ones(len(ckq)), everywhere=True).sum()
    view = filled().view()

    def ask(asked: QueryBatch) -> float:
        number, looked_at = np.arange(len(asked)), reach(asked, None, None)
        return _least(lambda: None, lambda _: list(answer(0, view, asked, number, looked_at, two_phase=True)))

    small = replace(case, queries={"SRQ": 3_000}, region=(1e-7, 1e-7), keywords=(3, 3)).asked(objects, 3)
    large = replace(case, queries={"SRQ": 3_000}, region=(1.0, 1.0)).asked(objects, 3)
    asks = ask(small) / len(small)
    found = (ask(large) - asks * len(large)) / join.matches(large, np.ones(len(large))).sum()
    print(f"of an object {stored:.3g} are to store it, {looked:.3g} to look for CRQs")
    return Costs(*map(float, (stored + looked, entry, match, candidate, asks, found)))


# ------------------------------------------------------------------------------------------------------------- report


def run() -> list[dict[str, Any]]:
    """The figures: rows of name, value, unit and floor (None where none is set)."""
    compile_kernels()
    rows = []
    for name in CASES:
        found = judged(name)
        chosen = f"{found.plan.kind} with {found.plan.leaves} leaves"
        rows.append(
            {"name": f"{name}: {chosen} needs, of the least", "value": 100 * (1 + found.excess), "unit": "%",
             "floor": None}
        )  # fmt: skip
        rows.append({"name": f"{name}: planning", "value": found.seconds, "unit": "s", "floor": 3.0})
    return rows


def show(names: Iterable[str], scale: float, seed: int) -> None:
    """Print the table of :mod:`docs`, and why each choice was made."""
    first, *others = (f"`{kind.name}`" for kind in KINDS.values() if kind.adapts)
    heads = [f"least with {first}", *(f"with {each}" for each in others)]
    print(f"| workload | {' | '.join(heads)} | choice | its work | more than the least |")
    print("|---" * (len(heads) + 4) + "|")
    all_of = []
    for name in names:
        found = judged(name, scale, seed)
        all_of.append(found)
        print(found.row(), flush=True)
    for each in all_of:
        right = "right" if each.excess <= RIGHT else "WRONG"
        print(f"{each.name}: {right}, planned in {each.seconds:.2f} s of CPU; {each.plan.reason}")
        for option in each.plan.table:
            counted = each.work[option.kind, option.wanted]
            print(f"    {option.kind:8} {option.wanted:>6,} leaves: {1e3 * option.seconds:10,.1f} {counted:10,.1f} ms")


def main() -> None:
    """Print the table, or the costs."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.bench_planner")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(CASES)}; default: all")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies numbers of objects")
    parser.add_argument("--seed", type=int, default=1, help="of objects and queries")
    parser.add_argument("--costs", action="store_true", help="measure costs")
    options = parser.parse_args()
    if unknown := set(options.names) - set(CASES):
        parser.error(f"{', '.join(sorted(unknown))}: not one of {', '.join(CASES)}")
    compile_kernels()
    if options.costs:
        print(measured_costs(options.scale))
    else:
        show(options.names or CASES, options.scale, options.seed)


if __name__ == "__main__":
    main()
