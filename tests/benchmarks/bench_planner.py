"""The planner's choice compared with the best of what it chooses from, by counted work, on fifteen workloads.

``python -m tests.benchmarks.bench_planner [NAME...] [--scale S] [--seed N]``, or ``make bench ARGS=planner``. Each
index that the planner tries is built from a sample, other objects come to it and other queries are asked
(:mod:`.paper.counting`), and the work of its slowest slot is counted: what the engine's own indexes look at and give
back, weighed by the worth of ``make paper``; and :data:`STORED` and :data:`ENTRY` for storing an object and registering
a query. CKQs have seen the sample's objects: those that settle are where their circles reach, others on one slot, which
gets a copy of each object with a word of one of them. A choice that needs up to 15 % more than the least is right.

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
from spatialstream.balance.query_partition import first_partition
from spatialstream.balance.settings import DKM, SETTLE, BalanceSettings
from spatialstream.balance.subscriptions import ObjectSample, entry_words
from spatialstream.balance.word_join import WordJoin
from spatialstream.index.kinds import DEFAULT, KINDS
from spatialstream.index.sample import OBJECTS
from spatialstream.index.version import RoutingVersion, build
from spatialstream.kernels import compile_kernels
from spatialstream.local.nearest.ckq import ContinuousNearestIndex
from spatialstream.local.range.crq import ContinuousRangeIndex
from spatialstream.local.snapshot.segments import SegmentStore
from spatialstream.model.arrays import Codes, Flags, Floats
from spatialstream.model.geometry import CIRCLE, EVERYWHERE
from spatialstream.model.kinds import TYPES, QueryType
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.regions import Regions
from spatialstream.model.terms import TermLists
from spatialstream.stages.messages import pack, unpack
from spatialstream.stages.snapshots import answer, reach
from tests.benchmarks.paper import workloads
from tests.benchmarks.paper.beside_settling import of_city, rare
from tests.benchmarks.paper.counting import asking, passing, taken, worth
from tests.benchmarks.paper.systems import Key as SystemKey
from tests.benchmarks.paper.systems import System
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
        city: whether queries are near the place where most objects are.
        rare: whether each query asks for one word, which fewer than k objects have.
        placed: whether the planner chooses where CKQs are, too.
    """

    data: str
    queries: Mapping[str, int]
    slots: int = 8
    region: tuple[float, float] = (0.001, 0.1)
    keywords: tuple[int, int] = (1, 3)
    shrunk: float = 1.0
    hot: bool = False
    city: bool = False
    rare: bool = False
    placed: bool = False

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
        if self.city:
            around = of_city(around)
        given = {QueryType(kind): count for kind, count in self.queries.items()}
        region = self.region[0] * self.shrunk**2, self.region[1] * self.shrunk**2
        found = workloads.queries(
            around, given, seed, region=region, keywords=self.keywords, duration=73 * HOUR, window=8 * HOUR,
            step=4 * HOUR,
        )  # fmt: skip
        if not self.rare:
            return found
        words = around.terms.vocabulary.take(rare(around)).to_pylist()
        chosen = np.random.default_rng((14, seed)).integers(0, len(words), len(found))
        return replace(found, keywords=TermLists.of([[words[i]] for i in chosen]))


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
    "ckq-world": Case("TW", {"CKQ": 8_000}, placed=True),
    "ckq-city": Case("TW", {"CKQ": 8_000}, city=True, placed=True),
    "ckq-rare": Case("TW", {"CKQ": 24_000}, rare=True, placed=True),
    "mix": Case("TW", {"SRQ": 800, "SKQ": 800, "STQ": 300, "CRQ": 2_000, "CKQ": 200, "CTQ": 200}),
}
"""The workloads, by name."""


Key = tuple[str, int, str]
"""Kind of index, leaves and placement of CKQs."""


class Built(System):
    """An index with some objects in its slots."""

    def __init__(self, version: RoutingVersion, objects: ObjectBatch) -> None:
        self.key = SystemKey("", len(objects), "", 0, version.slots, 0.0, 0.0, "", 0)
        self.version, self.predicted = version, 0.0
        leaves = len(version.index.leaves)
        self.by_leaf = RoutingVersion(0, version.index, np.arange(leaves, dtype=np.int32), leaves)
        self.__dict__["objects"] = objects


def work(version: RoutingVersion, before: ObjectBatch, objects: ObjectBatch, queries: QueryBatch) -> Floats:
    """The counted work of each slot, µs, for objects and queries that come after others."""
    slots = range(version.slots)
    came, _, where = replace(version, nearest=None).deliver(objects)
    owner = where[: len(objects)]
    total: Floats = STORED * np.bincount(owner, minlength=version.slots).astype(np.float64)
    system = Built(version, objects)
    for code, kind in enumerate(TYPES):
        asked = taken(queries, np.flatnonzero(queries.code == code))
        if not len(asked):
            continue
        if kind == "CKQ":
            total = total + nearest_work(version, before, objects, owner, asked)
        elif kind in ("CRQ", "CTQ"):
            row, slot = version.route_queries(asked)
            has = [np.sort(came[where == i]) if kind == "CRQ" else np.flatnonzero(owner == i) for i in slots]
            given = has, [row[slot == i].astype(np.int64) for i in slots]
            registered = ENTRY * np.bincount(slot, minlength=version.slots)
            total = total + registered + worth(kind, passing(objects, asked, *given))
        else:
            total = total + sum(worth(kind, phase.counts) for phase in asking(system, asked))
    return total


def nearest_work(
    version: RoutingVersion, before: ObjectBatch, objects: ObjectBatch, home: Codes, ckqs: QueryBatch
) -> Floats:
    """The counted work of each slot for CKQs, µs.

    Args:
        version: whose ``nearest`` says where they are.
        before: objects that they have seen.
        objects: objects that come.
        home: int32[n], the slot of each of these.
        ckqs: the CKQs.
    """
    slots, sample = version.slots, ObjectSample(before)
    radius = sample.radii(SPACE, ckqs.at, ckqs.k, ckqs.keywords)
    settled = np.isfinite(radius)
    shape = np.column_stack([ckqs.at, np.where(settled, radius, 0.0), np.zeros(len(ckqs))])
    circles = replace(ckqs, regions=Regions.plain(np.where(settled, CIRCLE, EVERYWHERE).astype(np.uint8), shape))
    if version.nearest is None:
        row, leaf = version.index.route_regions(circles.regions)
        row, slot = np.divmod(np.unique(row.astype(np.int64) * slots + version.mapping[leaf]), slots)
        entries, has = np.full(slots, float(len(ckqs))), [np.flatnonzero(home == i) for i in range(slots)]
    else:
        row, slot = np.arange(len(ckqs)), version.nearest.slots_of(ckqs).astype(np.int64)
        entries = np.bincount(slot, minlength=slots).astype(np.float64)
        has = [np.flatnonzero((home == i) | having(objects, ckqs.take(row[slot == i]))) for i in range(slots)]
    mine = [row[slot == i].astype(np.int64) for i in range(slots)]
    work: Floats = ENTRY * entries + worth("CKQ", passing(objects, circles, has, mine))
    return work


def having(objects: ObjectBatch, ckqs: QueryBatch) -> Flags:
    """Which objects a slot gets because they have a word under which one of its CKQs is looked up."""
    words = entry_words(ckqs.keywords, ObjectSample(objects)).codes
    wanted = np.isin(np.arange(len(objects.terms.vocabulary) + 1), words)
    if wanted[-1]:
        return np.ones(len(objects), np.bool_)
    owner = np.repeat(np.arange(len(objects)), np.diff(objects.terms.offsets))
    return np.bincount(owner[wanted[objects.terms.codes]], minlength=len(objects)) > 0


@dataclass(frozen=True)
class Judged:
    """The planner's choice on a workload.

    Attributes:
        name: of the workload.
        plan: the choice.
        seconds: CPU time of planning.
        work: the counted work of the slowest slot of each option, by kind, leaves and placement of CKQs, ms.
    """

    name: str
    plan: Plan
    seconds: float
    work: Mapping[Key, float] = field(default_factory=dict)

    @property
    def best(self) -> Key:
        """What needs least."""
        return min(self.work, key=lambda each: self.work[each])

    @property
    def chosen(self) -> float:
        """What the choice needs."""
        return self.work[self.plan.kind, self.plan.leaves, self.plan.nearest]

    @property
    def excess(self) -> float:
        """What the choice needs more than the best, as a fraction."""
        return self.chosen / self.work[self.best] - 1.0

    def row(self) -> str:
        """The line of a table in Markdown."""
        ways = {(kind, nearest) for kind, _, nearest in self.work}
        least = {
            way: min((value, key[1]) for key, value in self.work.items() if (key[0], key[2]) == way) for way in ways
        }
        columns = [*((kind.name, SETTLE) for kind in KINDS.values() if kind.adapts), (DEFAULT, DKM)]
        cells = ["{:,.1f} ({:,})".format(*least[way]) if way in least else "" for way in columns]
        taken = f"`{self.plan.kind}`, {self.plan.leaves:,}" + (f", `{DKM}`" if self.plan.nearest == DKM else "")
        return f"| `{self.name}` | {' | '.join(cells)} | {taken} | {self.chosen:,.1f} | {100 * self.excess:.0f} % |"


def judged(name: str, scale: float = 1.0, seed: int = 1) -> Judged:
    """Plan for a workload, and count the work of all that the planner chooses from."""
    case = CASES[name]
    before = case.objects(OBJECTS, 100 + seed)
    known = case.asked(before, 200 + seed)
    sample = whole(SPACE, before, known)
    began = time.process_time()
    chosen = plan(sample, case.slots, BalanceSettings(), nearest=(SETTLE, DKM) if case.placed else (SETTLE,))
    seconds = time.process_time() - began
    objects = case.objects(round(COMING * scale), 300 + seed)
    queries = case.asked(objects, 400 + seed)
    found = {}
    for option in chosen.table:
        version = build(SPACE, before, known, option.wanted, case.slots, kind=option.kind)
        if option.nearest == DKM:
            version = replace(version, nearest=first_partition(SPACE, before, known, 1.0, case.slots))
        found[option.kind, option.wanted, option.nearest] = 1e-3 * float(work(version, before, objects, queries).max())
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

    def passed(index: Any) -> Any:
        for part in parts:
            list(index.match(part))
        return index

    crq, few, ckq = queries("CRQ", n // 2), queries("CRQ", n // 20), queries("CKQ", n // 20)
    stored = _least(lambda: None, filled) / n
    received = _least(lambda: None, lambda _: [ObjectBatch.from_arrow(unpack(pack(part.to_arrow()))) for part in parts])
    entry = _least(lambda: ContinuousRangeIndex(SPACE), lambda index: continuous(index, crq)) / len(crq)
    # many queries and few: what differs is due to their pairs, and the rest to the objects
    times = [_least(partial(ranged, some), passed) for some in (crq, few)]
    pairs = [join.matches(some, np.ones(len(some))).sum() for some in (crq, few)]
    match = (times[0] - times[1]) / (pairs[0] - pairs[1])
    looked = (times[1] - match * pairs[1]) / n

    def nearest(asked: QueryBatch) -> float:  # the objects have come before, so the circles stay
        return _least(lambda: passed(continuous(ContinuousNearestIndex(SPACE), asked)), passed)

    circles = replace(ckq, regions=join.reach(ckq))
    alone = nearest(queries("CKQ", 1))
    candidate = (nearest(ckq) - alone) / join.matches(circles, np.ones(len(ckq))).sum()
    view = filled().view()

    def ask(asked: QueryBatch) -> float:
        number, looked_at = np.arange(len(asked)), reach(asked, None, None)
        return _least(lambda: None, lambda _: list(answer(0, view, asked, number, looked_at, two_phase=True)))

    small = replace(case, queries={"SRQ": 3_000}, region=(1e-7, 1e-7), keywords=(3, 3)).asked(objects, 3)
    large = replace(case, queries={"SRQ": 3_000}, region=(1.0, 1.0)).asked(objects, 3)
    asks = ask(small) / len(small)
    found = (ask(large) - asks * len(large)) / join.matches(large, np.ones(len(large))).sum()
    copy = (received + alone) / n + looked
    print(f"of an object {stored:.3g} are to store it, {looked:.3g} to look for CRQs, {alone / n:.3g} for CKQs")
    return Costs(*map(float, (stored + copy, copy, entry, match, candidate, asks, found)))


# ------------------------------------------------------------------------------------------------------------- report


def run() -> list[dict[str, Any]]:
    """The figures: rows of name, value, unit and floor (None where none is set)."""
    compile_kernels()
    rows = []
    for name in CASES:
        found = judged(name)
        chosen = f"{found.plan.kind} with {found.plan.leaves} leaves and {found.plan.nearest}"
        rows.append(
            {"name": f"{name}: {chosen} needs, of the least", "value": 100 * (1 + found.excess), "unit": "%",
             "floor": None}
        )  # fmt: skip
        rows.append({"name": f"{name}: planning", "value": found.seconds, "unit": "s", "floor": 3.0})
    return rows


def show(names: Iterable[str], scale: float, seed: int) -> None:
    """Print the table of :mod:`docs`, and why each choice was made."""
    first, *others = (f"`{kind.name}`" for kind in KINDS.values() if kind.adapts)
    heads = [f"least with {first}", *(f"with {each}" for each in others), f"`{DEFAULT}` and `{DKM}`"]
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
            counted = each.work[option.kind, option.wanted, option.nearest]
            named = f"{option.kind:8} {option.wanted:>6,} leaves, {option.nearest:6}"
            print(f"    {named}: {1e3 * option.seconds:10,.1f} {counted:10,.1f} ms")


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
