"""What DkM-SKS's placement of CKQs costs beside CKQs that settle (:mod:`spatialstream.stages.settling`), counted.

*settle*: an object comes to one slot, that of its leaf, and all CKQs whose circles reach a leaf of a slot are there.
*dkm*: each CKQ is on one slot, and an object goes to the slot of its leaf, and as a copy to the others with a CKQ that
an index finds for it (:mod:`.monitoring`, ``cells``), the fewest copies that a filter could send; *dkm, sent to all*
has copies for all slots, as the paper sends objects.

An object finds the same entries of CKQs whoever has them. The work of a slot is the objects that it gets, by the
planner's time (:data:`spatialstream.balance.planner.MEASURED`), and the entries that it looks at (:data:`LOOKED`). What
is kept is counted beside it: how many slots have a CKQ. The QT-tree is built from the objects before, and from the
circles of the CKQs as regions of CRQs, so it knows where these are.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from spatialstream.balance.dkm import place
from spatialstream.balance.planner import MEASURED
from spatialstream.balance.subscriptions import ObjectSample
from spatialstream.index.version import RoutingVersion, build
from spatialstream.model.arrays import Floats, Ints
from spatialstream.model.geometry import BOX
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.regions import Regions
from spatialstream.model.terms import TermLists
from tests.benchmarks.paper import usa
from tests.benchmarks.paper.counting import Counts
from tests.benchmarks.paper.monitoring import INDEXES, Monitored, drawn, thinned
from tests.benchmarks.paper.rivals.subscriptions import as_queries
from tests.benchmarks.paper.usa import USA, Panels

OBJECTS, COMING = 100_000, 10_000
QUERIES = (1_000, 10_000, 100_000)
SLOTS, K = 8, 10
LEAVES, MORE = 64, 1_024
WORDS = (3, 4, 5, 6, 7, 8)
LOOKED = 0.028
"""What an entry that is looked at costs in µs: measured of CKQs that fill, of which most objects are too far away."""
COMMON, CITY, BUILT_FROM = 10, 0.3, 10_000
"""The most frequent words; degrees from the middle of a city; CKQs from which the QT-tree is built."""


def asking(subscriptions: Monitored, codes: Ints, seed: int) -> Monitored:
    """Subscriptions with one of some words each."""
    n = len(subscriptions)
    chosen = np.random.default_rng((13, seed)).choice(codes, n).astype(np.int32)
    words = TermLists(np.arange(n + 1, dtype=np.int32), chosen, subscriptions.words.vocabulary)
    return Monitored.new(USA, subscriptions.x, subscriptions.y, subscriptions.k, words)


def by_frequency(objects: ObjectBatch) -> tuple[Ints, Ints]:
    """The codes of words by falling frequency, and how many objects have each."""
    often = np.bincount(objects.terms.codes, minlength=len(objects.terms.vocabulary))
    order = np.argsort(-often, kind="stable")
    return order, often[order]


def common(objects: ObjectBatch) -> Ints:
    """The most frequent words."""
    return by_frequency(objects)[0][:COMMON]


def rare(objects: ObjectBatch) -> Ints:
    """Words that fewer than k objects have."""
    order, often = by_frequency(objects)
    return order[(often > 0) & (often < K)]


def of_city(objects: ObjectBatch) -> ObjectBatch:
    """The objects near the place where most are."""
    cells = np.floor(objects.x / CITY) * 1_000 + np.floor(objects.y / CITY)
    _, first, counts = np.unique(cells, return_index=True, return_counts=True)
    middle = first[counts.argmax()]
    near = np.hypot(objects.x - objects.x[middle], objects.y - objects.y[middle]) < CITY
    return objects.take(np.flatnonzero(near))


Workload = Callable[[ObjectBatch, int], Monitored]

WORKLOADS: dict[str, Workload] = {
    "spread": lambda around, n: drawn(around, n, 1, K, USA),
    "spread, common words": lambda around, n: asking(drawn(around, n, 1, K, USA), common(around), 1),
    "spread, rare words": lambda around, n: asking(drawn(around, n, 1, K, USA), rare(around), 1),
    "one city": lambda around, n: drawn(of_city(around), n, 1, K, USA),
    "one city, common words": lambda around, n: asking(drawn(of_city(around), n, 1, K, USA), common(around), 1),
}
"""CKQs around objects, each with one to five of an object's words or with one of some words."""


def settle(scale: float) -> Panels:
    """By the number of CKQs: work of the slowest slot, of all, copies, and slots that have a CKQ."""
    n = round(OBJECTS * scale)
    before, coming = (thinned(usa.objects(size, seed), WORDS, seed) for size, seed in ((n, 601), (COMING, 602)))
    panels: Panels = {}
    for name, workload in WORKLOADS.items():
        panel: dict[str, dict[float, Counts]] = {}
        for queries in QUERIES:
            nearest = workload(before, round(queries * scale))
            nearest.arrive(before)
            for way, counts in both_ways(nearest, before, coming).items():
                panel.setdefault(way, {})[float(queries)] = counts
        panels[name] = panel
    return panels


def both_ways(nearest: Monitored, before: ObjectBatch, coming: ObjectBatch) -> dict[str, Counts]:
    """What some objects cost."""
    sample, those = ObjectSample(before), nearest.subscriptions()
    version, finer = (tree(nearest, before, sample, leaves) for leaves in (LEAVES, MORE))
    slot = place(those, sample, USA, SLOTS).slot
    home = version.route_objects(coming)
    looked = nearest.arrive(coming, home=home, worker=slot)
    stored = np.bincount(home, minlength=SLOTS).astype(np.float64)
    placed = np.bincount(slot, looked.entries[:, INDEXES.index("cells")], SLOTS).astype(np.float64)
    copies = np.pad(looked.copies, (0, SLOTS - len(looked.copies)))
    n, everything = len(coming), np.full(SLOTS, float(len(coming)))
    return {
        "settle": settled(nearest, those.ball, version, coming, looked.objects),
        f"settle, {MORE:,} leaves": settled(nearest, those.ball, finer, coming, looked.objects),
        "dkm": counted(stored + copies, placed, n, 1.0),
        "dkm, sent to all": counted(everything, placed, n, 1.0),
    }


def settled(nearest: Monitored, ball: Floats, version: RoutingVersion, coming: ObjectBatch, entries: Ints) -> Counts:
    """What objects cost at home, each with so many entries."""
    home = version.route_objects(coming)
    objects, at_home = (np.bincount(home, each, SLOTS).astype(np.float64) for each in (np.ones(len(home)), entries))
    return counted(objects, at_home, len(coming), slots_of(nearest, ball, version))


def tree(nearest: Monitored, before: ObjectBatch, sample: ObjectSample, leaves: int) -> RoutingVersion:
    """A QT-tree that knows where the circles are."""
    rows = np.linspace(0, len(nearest) - 1, min(BUILT_FROM, len(nearest))).astype(np.int64)
    some = nearest.take(rows).subscriptions()
    return build(USA, before, as_queries(some, some.ball, sample), leaves, SLOTS)


def slots_of(nearest: Monitored, ball: Floats, version: RoutingVersion) -> float:
    """The number of slots that have a CKQ which has settled, on average; all have one that has not."""
    settled = np.isfinite(nearest.radius)
    boxes = Regions.plain(np.full(len(nearest), BOX, np.uint8), ball)
    row, leaf = version.index.route_regions(boxes)
    pairs = np.unique(row.astype(np.int64) * version.slots + version.mapping[leaf])
    reached = np.bincount(pairs // version.slots, minlength=len(nearest))
    return float(np.where(settled, reached, version.slots).mean())


def counted(objects: Floats, entries: Floats, n: int, held: float) -> Counts:
    """What slots do for n objects.

    Args:
        objects: float64[slots], those that each gets.
        entries: float64[slots], those that each looks at.
        n: all objects.
        held: slots that have a CKQ.
    """
    work = MEASURED.object * objects + LOOKED * entries
    return {
        "slowest": float(work.max()) / n,
        "all": float(work.sum()) / n,
        "skew": float(work.max() / work.mean()),
        "copies": float(objects.sum()) / n - 1.0,
        "entries": float(entries.sum()) / n,
        "held": held,
    }
