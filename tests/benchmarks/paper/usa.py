"""The workload of Tornado's figures, and the indexes that are compared under it.

Objects are around the cities of the USA by population, in a plane of longitudes and latitudes around them, so that a
cell of the A-Grid is as large as in the paper (a thousandth of the country). Queries are CRQs around objects: a box
with sides of 0.1 % of the plane's, and three words of an object, all of which are asked for (CONTAINS). There are 25
slots, and an A-Grid has a leaf for each, as in the paper (table 1).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spatialstream.generate.objects import object_times
from spatialstream.generate.places import spread_by_city
from spatialstream.generate.settings import GenerateSettings
from spatialstream.index.version import RoutingVersion, build
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import Everything, Lifetime, Predicate, Query, QueryBatch
from spatialstream.model.regions import Box
from spatialstream.model.space import WGS84, Space
from tests.benchmarks.paper import workloads
from tests.benchmarks.paper.counting import Counts
from tests.benchmarks.paper.workloads import HOUR

USA = Space.planar(-125.0, 24.0, -66.0, 50.0)
SLOTS, WORDS, SIDE = 25, 3, 0.001
OBJECTS, QUERIES = 100_000, 100_000

_START = 1_735_689_600_000
_CHUNK = 1 << 18

Panels = dict[str, dict[str, dict[float, Counts]]]
"""panel -> series -> x -> counts"""

Workload = tuple[ObjectBatch, QueryBatch]
"""Objects and queries."""


def objects(n: int, seed: int, factor: float = 1.0) -> ObjectBatch:
    """n objects in the USA over 72 hours.

    Args:
        n: how many.
        seed: of all.
        factor: of their distance from the middle of the plane: the scale factor of section 6.4.
    """
    settings = GenerateSettings("social", n, WGS84, seed, _START, n / (72 * 3600.0))
    found: list[npt.NDArray[np.float64]] = []
    chunk = 0
    while sum(map(len, found)) < n:
        x, y = spread_by_city(settings, chunk, object_times(settings, np.arange(_CHUNK)))[0]
        inside = (x > USA.west) & (x < USA.east) & (y > USA.south) & (y < USA.north)
        found.append(np.stack([x[inside], y[inside]], axis=1))
        chunk += 1
    middle = np.array([USA.west + USA.east, USA.south + USA.north]) / 2.0
    x, y = (middle + factor * (np.concatenate(found)[:n] - middle)).T
    ids = pa.array([f"{seed}-{i}" for i in range(n)], pa.string())
    t = object_times(settings, np.arange(n))
    return ObjectBatch(ids, t, x.copy(), y.copy(), workloads.words(n, np.random.default_rng((7, seed))))


def queries(
    around: ObjectBatch, n: int, seed: int, side: float = SIDE, said: Sequence[Sequence[str]] = ()
) -> QueryBatch:
    """n CRQs around objects, from the time of the first object on.

    Args:
        around: objects to draw from: each gives its place and three of its words.
        n: how many.
        seed: of the choice.
        side: of their boxes, by those of the plane.
        said: the words of each, in place of the object's.
    """
    random = np.random.default_rng((8, seed))
    width, height = side * (USA.east - USA.west) / 2.0, side * (USA.north - USA.south) / 2.0
    chosen = random.integers(0, len(around), n)
    lifetime, t = Lifetime(73 * HOUR, True), int(around.t[0])
    made = []
    for i, each in enumerate(chosen.tolist()):
        x, y = float(around.x[each]), float(around.y[each])
        box = Box(
            max(x - width, USA.west), max(y - height, USA.south), min(x + width, USA.east), min(y + height, USA.north)
        )
        words = said[i] if said else random.permutation(np.array(around.terms[each]))[:WORDS].tolist()
        made.append(Query(f"q{i}", t, Predicate(box, tuple(words)), Everything(), lifetime))
    return QueryBatch.of(made)


def built(kind: str, history: Workload, leaves: int = SLOTS) -> RoutingVersion:
    """An index of a kind, a slot for each leaf."""
    index = build(USA, *history, leaves, leaves, kind=kind).index
    n = len(index.leaves)
    return RoutingVersion(0, index, np.arange(n, dtype=np.int32), n)


def before(scale: float, seed: int = 1, factor: float = 1.0) -> Workload:
    """The history that an index is built from: other objects and queries than those that come."""
    found = objects(round(50_000 * scale), 100 + seed, factor)
    return found, queries(found, round(30_000 * scale), 200 + seed)


def stream(scale: float, seed: int = 1, factor: float = 1.0) -> Workload:
    """What comes."""
    found = objects(round(OBJECTS * scale), 300 + seed, factor)
    return found, queries(found, round(QUERIES * scale), 400 + seed)
