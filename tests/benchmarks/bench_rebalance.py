"""The paper's load-balancing experiment in small (SSTD, section 7.6, figures 14 and 15).

``python -m tests.benchmarks.bench_rebalance [--short] [--output DIR]``. Continuous queries and objects are preloaded
into 8 slots under a QT-tree of 64 leaves; then one region gets (a) many objects, which go on to come, or (b) many
continuous queries. From that very state six plans are tried: no action, PM, FM, PM then FM, FG, and PM, FM, FG.

In the paper each worker is a machine of its own. Here slots work one after the other on one core, and a round takes as
long as its *slowest slot*, in CPU time: what would pass on eight machines that wait for one another. So the figures say
what balance does, and leave out what Spark, the broker and the router cost. ROUTE, WORK and the two-step adjustment are
those of the live pipeline.

- queries moved: pairs of continuous query and slot that receives it.
- time to adjust: proposing, then preparing, loading and activating the version, each as long as its slowest slot takes.
- latency: of snapshot queries (a third each SRQ, SKQ, STQ) in rounds of 5,000 objects and 200 queries. All are
  complete when the slowest slot is done; SKQs when their second phase is.
- throughput: objects a second in rounds of 100,000 objects.

Both are computed from the median of each slot's times, so that what else the machine does counts for little. The region
is the first of those drawn at random whose change makes Lmax/Lmin exceed λ: without that there is nothing to repair.

The stream goes on as it was when it became imbalanced. Objects never move, so early snapshot queries still visit the
slots of the version before.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spatialstream.balance.loads import LeafCounts, imbalance, leaf_loads, slot_loads
from spatialstream.balance.proposal import Proposal, propose
from spatialstream.balance.settings import BalanceSettings
from spatialstream.connectors.folder import Folder
from spatialstream.connectors.keys import block_key
from spatialstream.index.statistics import Statistics
from spatialstream.index.version import RoutingVersion, build
from spatialstream.kernels import compile_kernels
from spatialstream.model.geometry import EVERYWHERE
from spatialstream.model.kinds import QueryType
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.terms import TermLists
from spatialstream.stages import messages
from spatialstream.stages.division import buckets_of, numbers_of
from spatialstream.stages.messages import Block
from spatialstream.stages.route import RouteFindings, Share, registry_state, route
from spatialstream.stages.routing import PastVersion, Routing
from spatialstream.stages.runs import ObjectShare, QueryShare, in_order
from spatialstream.stages.turns import LOAD, NEVER, PREPARE, Control, Epoch, Round
from spatialstream.stages.two_phase import answer_second, second_phase
from spatialstream.stages.versions import save_version
from spatialstream.stages.work import BlockMessage, WorkSettings, slot_objects, slot_state, work
from tests.benchmarks import workload
from tests.benchmarks.bench_index import make_queries
from tests.benchmarks.workload import SPACE
from tests.harness import forget

SLOTS, LEAVES = 8, 64
PLANS = ("none", "PM", "FM", "PM+FM", "FG", "PM+FM+FG")
PAPER = {"PM": (-69.3, 78.4), "FM": (-76.6, 86.6), "FG": (-85.1, 97.9)}
"""Changes of latency and throughput in percent, at 50 million objects (section 7.6)."""

RATE = 1_000.0
"""Objects a second of event time, before anything is inserted."""

LIFETIME, REACH = 3_600_000, 60_000
"""Durations of continuous and of snapshot queries, ms."""


@dataclass(frozen=True)
class Scale:
    """How large the experiment is. The paper: 40,000 queries, 30 million objects, and 10, 30, 50 million more.

    Attributes:
        preload: objects before.
        continuous: continuous queries before.
        while_inserting: objects from everywhere that come while objects or queries are inserted.
        objects: inserted into the region, case (a), one run each.
        queries: inserted into the region, case (b), one run each.
        round: objects a round.
        rounds: rounds of which throughput is measured.
        batches: rounds of which latency is measured.
        asked: snapshot queries in each of these.
        beside: objects in each of these.
    """

    preload: int = 600_000
    continuous: int = 40_000
    while_inserting: int = 200_000
    objects: tuple[int, ...] = (200_000, 600_000, 1_000_000)
    queries: tuple[int, ...] = (100_000, 300_000, 600_000)
    round: int = 100_000
    rounds: int = 6
    batches: int = 10
    asked: int = 200
    beside: int = 5_000


SHORT = Scale(60_000, 4_000, 20_000, (100_000,), (60_000,), 40_000, 2, 3, 200, 1_000)
TINY = Scale(6_000, 400, 2_000, (10_000,), (1_600,), 1_000, 1, 1, 6, 100)
"""Only loads all that is compiled."""

SIDE = 0.2
"""Side of the region where the load changes: 4 % of the space."""

Region = tuple[float, float, float, float]
"""West, south, east, north."""


# ------------------------------------------------------------------------------------------------------------ the input


def spread(n: int, seed: int, start: int, rate: float) -> ObjectBatch:
    """Objects of the default workload."""
    return workload.objects(n, seed, start, rate)


def within(region: Region, n: int, seed: int, start: int, rate: float) -> ObjectBatch:
    """Objects of the default workload's words, spread evenly over a region."""
    west, south, east, north = region
    points = np.random.default_rng((7, seed)).random((n, 2))
    batch = workload.objects(n, seed, start, rate)
    return replace(batch, x=west + (east - west) * points[:, 0], y=south + (north - south) * points[:, 1])


def together(*batches: ObjectBatch) -> ObjectBatch:
    """Several streams as one."""
    return in_order(ObjectBatch.concat([batch for batch in batches if len(batch)]))


def named(queries: QueryBatch, prefix: str, t: int, duration: int) -> QueryBatch:
    """Queries under new names, asked at one time."""
    n = len(queries)
    ids = pa.array([f"{prefix}{i}" for i in range(n)], pa.string())
    return replace(queries, ids=ids, t=np.full(n, t, np.int64), duration=np.full(n, duration, np.int64))


def continuous(objects: ObjectBatch, n: int, prefix: str, t: int) -> QueryBatch:
    """Continuous range queries around objects."""
    return named(make_queries(objects, n, "CRQ"), prefix, t, LIFETIME)


def snapshots(objects: ObjectBatch, n: int, prefix: str, t: int) -> QueryBatch:
    """SRQs, SKQs and STQs around objects, in turn."""
    share = -(-n // 3)
    parts = [
        make_queries(objects, share, QueryType.SRQ),
        make_queries(objects, share, QueryType.SKQ, EVERYWHERE),
        replace(make_queries(objects, share, QueryType.STQ), keywords=TermLists.empty(share)),
    ]
    mixed = QueryBatch.concat(parts).take(np.arange(3 * share).reshape(3, share).T.reshape(-1)[:n])
    return named(mixed, prefix, t, REACH)


# ----------------------------------------------------------------------------------------------------------- the system


@dataclass
class Slots:
    """All slots of a stream, one after the other, in this process.

    Attributes:
        storage: their state.
        active: the routing version.
        past: the ones before, with the times of their objects.
        number: of the next round.
        watermark: ms up to which objects have come.
    """

    storage: Folder
    active: RoutingVersion
    past: tuple[PastVersion, ...] = ()
    number: int = 0
    watermark: int = -1
    settings: WorkSettings = field(default_factory=lambda: WorkSettings(SPACE, 300_000, None))
    matches: int = 0

    def round(
        self,
        objects: ObjectBatch | None = None,
        queries: QueryBatch | None = None,
        controls: tuple[Control, ...] = (),
        pending: RoutingVersion | None = None,
    ) -> tuple[npt.NDArray[np.float64], list[Block]]:
        """One round: the CPU seconds of each slot, float64[slots], and the partials but those of CRQs."""
        if objects is not None and len(objects):
            self.watermark = int(objects.t[-1])
        past = tuple((each.version.number, each.first, each.last) for each in self.past)
        before = (self.number - 1, 0) if self.number else None
        versions = self.active.number, None if pending is None else pending.number
        epoch = Epoch(self.number, 1, NEVER, self.watermark, *versions, past, (), (), before=before, since=before)
        registry = registry_state(epoch, 0, self.storage)
        inbox: dict[int, list[BlockMessage]] = {slot: [] for slot in range(SLOTS)}
        routed = route(self._share(objects, queries), epoch, registry, self.storage, RouteFindings())
        for i, (slot, kind, content) in enumerate(routed):
            inbox[slot].append((block_key(self.number, 0, i, kind), messages.pack(content)))
        turn = Round(self.number, (self.number,), (0,), self.watermark, self.active.number, controls, past)
        turn = replace(turn, before=before, since=before)
        seconds, partials = np.zeros(SLOTS), []
        for slot, blocks in inbox.items():
            began = time.process_time()
            given = list(work(slot, blocks, turn, self.settings, self.storage))
            seconds[slot] = time.process_time() - began
            self.matches += sum(content.num_rows for _, kind, content in given if kind == messages.LINES)
            partials += [row for row in given if row[1] != messages.LINES]
        if any(kind == messages.ASKED for _, kind, _ in partials):
            seconds += self._second(partials, turn, epoch.routing(self.storage))
        registry.checkpoint()
        for slot in inbox:
            began = time.process_time()
            slot_state(slot, turn, self.storage).checkpoint()
            seconds[slot] += time.process_time() - began
        self.number += 1
        return seconds, partials

    def _share(self, objects: ObjectBatch | None, queries: QueryBatch | None) -> Share:
        asked = None
        if queries is not None and len(queries):
            nowhere, rows = np.zeros(len(queries), np.int64), np.arange(len(queries))
            number = numbers_of(self.number, rows, buckets_of(queries.ids))
            asked = QueryShare(queries, number, nowhere, nowhere, ("queries",))
        came = ObjectShare(objects, 0) if objects is not None and len(objects) else None
        return Share(self.number, self.watermark, 0, 1, came, asked)

    def _second(self, partials: Sequence[Block], turn: Round, routing: Routing) -> npt.NDArray[np.float64]:
        """The CPU seconds of each slot in the second phase of SKQs; it begins when all slots have done the first."""
        seconds = np.zeros(SLOTS)
        second = second_phase(partials, routing, SPACE)
        for slot in () if second is None else second.slots:
            assert second is not None
            held = slot_objects(slot, turn, self.storage)
            began = time.process_time()
            list(answer_second(slot, second.rows, held))
            seconds[slot] = time.process_time() - began
        return seconds

    def adopt(self, version: RoutingVersion, first: int) -> float:
        """Prepare, load and activate a version; the seconds that takes if each step takes as long as its slowest slot.

        Args:
            version: the version.
            first: the earliest timestamp of objects under the version before.
        """
        save_version(self.storage, version)
        taken = 0.0
        for control in (PREPARE, LOAD):
            taken += self.round(controls=((control, version.number),), pending=version)[0].max()
        self.past = (*self.past, PastVersion(self.active, first, self.watermark))
        self.active = version
        return float(taken + self.round()[0].max())

    def moved(self, number: int) -> int:
        """How many continuous queries were written down for other slots when a version was prepared."""
        count = 0
        for path in (self.storage.path / "transfers" / f"{number:06d}").glob("*.arrow"):
            with pa.ipc.open_file(pa.OSFile(str(path))) as reader:
                count += sum(reader.get_batch(i).num_rows for i in range(reader.num_record_batches))
        return count

    def twin(self, folder: Path) -> Slots:
        """The same slots once more; the files that they share never change."""
        shutil.copytree(self.storage.path, folder, copy_function=os.link)
        return replace(self, storage=Folder(folder), matches=0)


# ------------------------------------------------------------------------------------------------------- the experiment


@dataclass
class Outcome:
    """What became of one plan.

    Attributes:
        plan: its name.
        inserted: objects or queries that were inserted.
        adopted: the strategy that was carried out; "" for none.
        moved: continuous queries that moved.
        seconds: to adjust.
        expected: Lmax/Lmin by the cost model, after.
        measured: CPU time of the slowest slot by that of the least busy one, while throughput was measured.
        latency: of snapshot queries, ms.
        throughput: objects a second.
        matches: result rows of CRQs, which no plan may change.
    """

    plan: str
    inserted: int
    adopted: str = ""
    moved: int = 0
    seconds: float = 0.0
    expected: float = 0.0
    measured: float = 0.0
    latency: float = 0.0
    throughput: float = 0.0
    matches: int = 0


@dataclass
class Scene:
    """A system out of balance, and how its stream goes on.

    Attributes:
        slots: the system.
        counts: what was counted in its leaves.
        statistics: J.
        stream: objects to come after a time: (n, seed, start) -> objects.
        inserted: objects or queries that were inserted.
    """

    slots: Slots
    counts: LeafCounts
    statistics: Statistics
    stream: Callable[[int, int, int], ObjectBatch]
    inserted: int


@dataclass(frozen=True)
class Start:
    """What is preloaded: objects, continuous queries, and the version that was made for them."""

    objects: ObjectBatch
    continuous: QueryBatch
    version: RoutingVersion

    @classmethod
    def of(cls, scale: Scale) -> Start:
        """What a scale says."""
        before = spread(scale.preload, 1, 0, RATE)
        asked = continuous(spread(scale.continuous, 2, 0, RATE), scale.continuous, "c", 0)
        history = QueryBatch.concat([asked, snapshots(before, scale.continuous, "h", int(before.t[-1]))])
        sample = before.take(np.arange(0, len(before), max(1, len(before) // 100_000)))
        return cls(before, asked, build(SPACE, sample, history, LEAVES, SLOTS))


@dataclass(frozen=True)
class Change:
    """How the load changes: objects or queries that come to a region while a stream goes on everywhere.

    Attributes:
        region: where.
        objects, queries: how many; one of them is 0.
        meanwhile: objects from everywhere in the same time.
    """

    region: Region
    objects: int
    queries: int
    meanwhile: int

    @property
    def span(self) -> float:
        """Its time in s."""
        return self.meanwhile / RATE

    def stream(self, n: int, seed: int, start: int, thinned: int = 1) -> ObjectBatch:
        """Objects as they come during the change and from then on, or every so-many-th of them."""
        rate, hot = RATE / thinned, self.objects / self.span / thinned
        part = round(n * hot / (hot + rate))
        here = within(self.region, part, 1000 + seed, start, max(hot, 1e-3))
        return together(spread(n - part, seed, start, rate), here)

    def added(self, start: int) -> QueryBatch:
        """The queries."""
        return continuous(within(self.region, 50_000, 4, 0, RATE), self.queries, "r", start)

    def learned(self, start: Start, coming: ObjectBatch, thinned: int = 1) -> tuple[LeafCounts, Statistics]:
        """What the rebalancer knows after it: counts of leaves, and J of the time since the load has changed.

        Snapshot queries are as many as continuous ones, and asked where objects come. J is made from a sample of both.
        """
        version, span = start.version, self.span * 1000.0
        asked = QueryBatch.concat([start.continuous, self.added(0)]) if self.queries else start.continuous
        leaves = len(version.index.leaves)
        held = np.bincount(version.index.route_objects(start.objects), minlength=leaves)
        new = np.bincount(version.index.route_objects(coming), minlength=leaves) * float(thinned)
        concerned = np.bincount(version.index.route_queries(asked)[1], minlength=leaves)
        counts = LeafCounts(held + new, new, concerned.astype(float), span)
        sample = coming.take(np.arange(0, len(coming), max(1, len(coming) // 100_000)))
        some = asked.take(np.arange(0, len(asked), max(1, len(asked) // 50_000)))
        queries = QueryBatch.concat([some, snapshots(coming, len(some), "h", int(coming.t[-1]))])
        found = Statistics.of(SPACE, sample, queries, span)
        return counts, replace(found, objects=len(coming) * thinned / len(sample) * found.objects)


def placed(start: Start, objects: int, queries: int, meanwhile: int, draws: int = 20) -> Region:
    """The first region, of a few that are drawn at random, whose change makes Lmax/Lmin exceed λ; else the worst."""
    worst: tuple[float, Region] | None = None
    for draw in range(draws):
        west, south = (np.random.default_rng((8, draw)).random(2) * (1.0 - SIDE)).tolist()
        region = west, south, west + SIDE, south + SIDE
        change = Change(region, objects, queries, meanwhile)
        coming = change.stream((meanwhile + objects) // 10, 3, 0, 10)
        counts, statistics = change.learned(start, coming, 10)
        found = imbalance(slot_loads(leaf_loads(start.version, counts, statistics), start.version.mapping, SLOTS))
        if found > BalanceSettings().imbalance:
            return region
        if worst is None or found > worst[0]:
            worst = found, region
    assert worst is not None
    return worst[1]


def unbalanced(folder: Path, scale: Scale, start: Start, change: Change) -> Scene:
    """Preload, then insert objects or queries into the region."""
    save_version(Folder(folder), start.version)
    slots = Slots(Folder(folder), start.version)
    slots.round(queries=start.continuous)
    feed(slots, start.objects, scale.round)
    coming = change.stream(change.meanwhile + change.objects, 3, slots.watermark + 1)
    if change.queries:
        slots.round(queries=change.added(slots.watermark + 1))
    feed(slots, coming, scale.round)
    return Scene(slots, *change.learned(start, coming), change.stream, change.objects or change.queries)


def feed(slots: Slots, objects: ObjectBatch, size: int) -> list[npt.NDArray[np.float64]]:
    """Objects in rounds of a size; the seconds of all slots in each."""
    rounds = range(0, len(objects), size)
    return [slots.round(objects.take(np.arange(i, min(i + size, len(objects)))))[0] for i in rounds]


def chosen(plan: str, scene: Scene) -> Proposal | None:
    """What a plan proposes; later strategies only where the ones before would not restore balance."""

    def proposed(strategy: str) -> Proposal | None:
        return propose(scene.slots.active, scene.counts, scene.statistics, BalanceSettings(), strategy)

    if plan == "none":
        return None
    if plan == "PM+FM":
        first = proposed("PM")
        return first if first is not None and first.balanced else proposed("FM")
    return proposed("auto" if plan == "PM+FM+FG" else plan)


def tried(proposal: Proposal | None, scene: Scene, folder: Path, scale: Scale) -> Outcome:
    """Carry a proposal out, and measure what comes after."""
    forget()
    slots, outcome = scene.slots.twin(folder), Outcome("", scene.inserted)
    slots.round(scene.stream(scale.beside, 10, slots.watermark + 1))  # restores the slots from their files
    if proposal is not None:
        outcome.adopted = proposal.strategy
        outcome.seconds = slots.adopt(proposal.version, 0)
        outcome.moved = slots.moved(proposal.version.number)
    outcome.expected = imbalance(slot_model(scene) if proposal is None else proposal.after)
    slots.matches = 0
    seconds = feed(slots, scene.stream(scale.round * scale.rounds, 11, slots.watermark + 1), scale.round)
    outcome.matches = slots.matches
    busy = np.median(seconds, axis=0)
    outcome.throughput = scale.round / float(busy.max())
    outcome.measured = float(busy.max() / busy.min())
    outcome.latency = 1e3 * float(np.median(list(_asked(slots, scene, scale)), axis=0).max())
    forget()
    shutil.rmtree(folder)
    return outcome


def slot_model(scene: Scene) -> npt.NDArray[np.float64]:
    """Loads of slots by the cost model, without action."""
    version = scene.slots.active
    return slot_loads(leaf_loads(version, scene.counts, scene.statistics), version.mapping, SLOTS)


def _asked(slots: Slots, scene: Scene, scale: Scale) -> Iterator[npt.NDArray[np.float64]]:
    """Rounds with snapshot queries: the seconds of all slots in each."""
    for i in range(scale.batches):
        objects = scene.stream(scale.beside, 20 + i, slots.watermark + 1)
        queries = snapshots(objects, scale.asked, f"s{i}-", int(objects.t[-1]))
        yield slots.round(objects, queries)[0]


def outcomes(scale: Scale, folder: Path) -> dict[str, list[Outcome]]:
    """Both cases, all sizes, all plans.

    Raises:
        AssertionError: the continuous queries of one plan have other results than those of another.
    """
    cases = {
        "objects": [(count, 0) for count in scale.objects],
        "queries": [(0, count) for count in scale.queries],
    }
    start, result = Start.of(scale), dict[str, list[Outcome]]()
    for case, sizes in cases.items():
        region = placed(start, *max(sizes), scale.while_inserting)
        for size in sizes:
            forget()
            where = folder / f"{case}-{max(size)}"  # names never come again: versions are cached by their paths
            scene = unbalanced(where, scale, start, Change(region, *size, scale.while_inserting))
            found = list(compared(scene, folder, where.name, scale))
            same = {each.matches for each in found}
            assert len(same) == 1, f"plans have different numbers of matches: {same}"
            result.setdefault(case, []).extend(found)
            shutil.rmtree(where)
    print(file=sys.stderr)
    return result


def compared(scene: Scene, folder: Path, name: str, scale: Scale) -> Iterator[Outcome]:
    """All plans; what two of them propose alike is carried out once."""
    known: dict[str, Outcome] = {}
    for plan in PLANS:
        began = time.process_time()
        proposal = chosen(plan, scene)
        proposing = time.process_time() - began
        key = "" if proposal is None else proposal.id
        if key not in known:
            known[key] = tried(proposal, scene, folder / f"{name}-{plan}", scale)
            print(".", end="", file=sys.stderr, flush=True)
        outcome = known[key]
        yield replace(outcome, plan=plan, seconds=0.0 if proposal is None else outcome.seconds + proposing)


# ----------------------------------------------------------------------------------------------------------- the report


def change(now: float, before: float) -> float:
    """In percent."""
    return 100.0 * (now / before - 1.0)


def lines(found: dict[str, list[Outcome]]) -> Iterator[str]:
    """A table for the terminal."""
    for case, plans in found.items():
        for first in range(0, len(plans), len(PLANS)):
            none = plans[first]
            yield f"\n{none.inserted:,} {case} inserted into one region: {none.matches:,} matches under every plan"
            yield (
                f"  {'plan':<10}{'did':<5}{'moved':>9}{'adjusted in':>13}{'Lmax/Lmin model':>17}{'measured':>10}"
                f"{'latency':>21}{'throughput':>27}   paper"
            )
            for each in plans[first : first + len(PLANS)]:
                paper = PAPER.get(each.plan)
                said = "" if paper is None or case != "objects" else f"{paper[0]:+.0f} %, {paper[1]:+.0f} %"
                yield (
                    f"  {each.plan:<10}{each.adopted or '-':<5}{each.moved:>9,}{each.seconds:>11.2f} s"
                    f"{each.expected:>17.1f}{each.measured:>10.1f}"
                    f"{each.latency:>10.1f} ms {change(each.latency, none.latency):+6.0f} %"
                    f"{each.throughput:>14,.0f}/s {change(each.throughput, none.throughput):+8.0f} %   {said}"
                )


def figures(found: dict[str, list[Outcome]]) -> list[dict[str, Any]]:
    """Rows of the table of all benchmarks: the largest size of each case."""
    rows = []
    for case, plans in found.items():
        last = plans[-len(PLANS) :]
        none = last[0]
        rows.append(row(f"{none.inserted:,} {case} in one region, no action: latency", none.latency, "ms"))
        rows.append(row("   throughput", none.throughput, "objects/s"))
        for each in last[1:]:
            paper = PAPER.get(each.plan) if case == "objects" else None
            beside = ["", ""] if paper is None else [f"; paper {value:+.1f} %" for value in paper]
            by = f"{change(each.latency, none.latency):+.0f} %{beside[0]}"
            rows.append(row(f"   {each.plan}: latency", each.latency, "ms", by))
            by = f"{change(each.throughput, none.throughput):+.0f} %{beside[1]}"
            rows.append(row(f"   {each.plan}: throughput", each.throughput, "objects/s", by))
            rows.append(row(f"   {each.plan}: continuous queries moved", each.moved, "queries", each.adopted))
            rows.append(row(f"   {each.plan}: time to adjust", each.seconds, "s"))
    return rows


def row(name: str, value: float, unit: str, note: str = "") -> dict[str, Any]:
    return {"name": name, "value": float(value), "unit": unit, "floor": None, "note": note}


def draw(found: dict[str, list[Outcome]], path: Path) -> None:
    """Figures 14 and 15 of the paper: network cost, time, latency, throughput by what was inserted."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "spatialstream", "font.size": 8})
    from matplotlib import pyplot

    shown = (
        ("moved", "queries moved"),
        ("seconds", "time to adjust, s"),
        ("latency", "latency, ms"),
        ("throughput", "objects/s"),
    )
    colours = ("#888888", "#9ec5e8", "#2a5f8f", "#a8d5ba", "#b5482a", "#2a7f62")
    figure, grid = pyplot.subplots(2, 4, figsize=(11, 5), layout="constrained", squeeze=False)
    for axes_of_case, (case, plans) in zip(grid, found.items(), strict=True):
        sizes = [each.inserted for each in plans[:: len(PLANS)]]
        for axes, (name, label) in zip(axes_of_case, shown, strict=True):
            for i, plan in enumerate(PLANS):
                values = [getattr(each, name) for each in plans[i :: len(PLANS)]]
                axes.bar(np.arange(len(sizes)) + (i - 2.5) * 0.14, values, 0.13, color=colours[i], label=plan)
            axes.set_xticks(range(len(sizes)), [f"{size:,}" for size in sizes])
            axes.set(xlabel=f"{case} inserted", title=label)
            axes.spines[["top", "right"]].set_visible(False)
    figure.legend(*grid[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=6, frameon=False)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def run(output: str | Path = "bench-output", scale: Scale | None = None) -> list[dict[str, Any]]:
    """The figures; leaves ``rebalance.json`` and ``rebalance.svg``."""
    output = Path(output)
    output.mkdir(parents=True, exist_ok=True)
    compile_kernels()
    with tempfile.TemporaryDirectory() as name:
        outcomes(TINY, Path(name) / "tiny")
        found = outcomes(scale or Scale(), Path(name))
    for line in lines(found):
        print(line, file=sys.stderr)
    kept = {case: [asdict(each) for each in plans] for case, plans in found.items()}
    (output / "rebalance.json").write_text(json.dumps(kept, indent=1))
    draw(found, output / "rebalance.svg")
    return figures(found)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.bench_rebalance")
    parser.add_argument("--short", action="store_true", help="a tenth of it, to try")
    parser.add_argument("--output", type=Path, default=Path("bench-output"), help="for the table and the chart")
    options = parser.parse_args()
    began = time.monotonic()
    run(options.output, SHORT if options.short else None)
    print(f"{time.monotonic() - began:.0f} s; {options.output / 'rebalance.svg'}")


if __name__ == "__main__":
    main()
