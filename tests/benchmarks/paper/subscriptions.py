"""The workload of PS2Stream's figures (section VI-A): objects in the USA, and STS queries of the groups Q1, Q2 and Q3.

An STS query is a CRQ with one to three words of an object, all of which or any of which are asked for, in a square
around the object. In Q1 the square's sides are 1 to 50 km; words have the frequencies that they have in objects. In Q2
they are 1 to 100 km, and one word at least is not among the most frequent hundredth. In Q3 the USA are 100 regions of
equal size, each with queries as in Q1 or as in Q2.

To five objects comes one update, a query that is registered or one that is dropped, of which there are equally many: so
with n objects n/10 queries come, and as many end, while the number of registered ones stays. The objects, their words
and their places are those of :mod:`.usa`.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import Everything, Lifetime, Predicate, Query, QueryBatch
from spatialstream.model.regions import Box
from tests.benchmarks.paper import usa
from tests.benchmarks.paper.usa import USA, Workload
from tests.benchmarks.paper.workloads import HOUR

GROUPS = ("Q1", "Q2", "Q3")
OBJECTS, QUERIES = 200_000, 100_000
UPDATES = 5
"""Objects for each update."""

REGIONS = 10
"""Columns and rows of the regions of Q3."""

FREQUENT = 0.01
"""Part of the words that are frequent: Q2 asks for another one."""

WIDEST = {"Q1": 50.0, "Q2": 100.0}
_DEGREE = 111.2
"""Of latitude, in km."""


def turned(times: int, seed: int = 5) -> npt.NDArray[np.bool_]:
    """Which regions of Q3 are as Q2, bool[100], after a tenth of them has changed so many times."""
    random = np.random.default_rng((9, seed))
    wide = random.random(REGIONS * REGIONS) < 0.5
    for _ in range(times):
        wide[random.choice(len(wide), len(wide) // 10, replace=False)] ^= True
    return wide


def region_of(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """The region of Q3 of each place."""
    column, row = (
        np.clip((at - low) / (high - low) * REGIONS, 0, REGIONS - 1).astype(np.int64)
        for at, low, high in ((x, USA.west, USA.east), (y, USA.south, USA.north))
    )
    return row * REGIONS + column


def queries(around: ObjectBatch, n: int, seed: int, group: str, times: int = 0) -> QueryBatch:
    """n STS queries around objects, from the first object on.

    Args:
        around: the objects.
        n: how many queries.
        seed: of all.
        group: one of :data:`GROUPS`.
        times: of Q3, see :func:`turned`.
    """
    random = np.random.default_rng((11, seed))
    chosen = random.integers(0, len(around), n)
    terms = around.terms
    counts = np.bincount(terms.codes, minlength=len(terms.vocabulary))
    common = np.argsort(-counts, kind="stable")[: max(1, round(FREQUENT * np.count_nonzero(counts)))]
    rare = np.ones(len(counts), np.bool_)
    rare[common] = False
    wide = {"Q1": False, "Q2": True}.get(group)
    of_region = turned(times)[region_of(around.x[chosen], around.y[chosen])]
    vocabulary, made = terms.vocabulary.to_pylist(), []
    for i, each in enumerate(chosen.tolist()):
        as_q2 = bool(of_region[i]) if wide is None else wide
        codes = random.permutation(terms.codes[terms.offsets[each] : terms.offsets[each + 1]])
        if as_q2:
            codes = codes[np.argsort(~rare[codes], kind="stable")]  # a rare one first, if there is one
        words = tuple(vocabulary[code] for code in codes[: random.integers(1, 4)].tolist())
        side = random.uniform(1.0, WIDEST["Q2" if as_q2 else "Q1"])
        box = _square(float(around.x[each]), float(around.y[each]), side)
        together = len(words) == 1 or random.random() < 0.5
        predicate = Predicate(box, words) if together else Predicate(box, (), tuple((word,) for word in sorted(words)))
        made.append(Query(f"q{i}", int(around.t[0]), predicate, Everything(), Lifetime(73 * HOUR, True)))
    return QueryBatch.of(made)


def _square(x: float, y: float, side: float) -> Box:
    """A square around a place, whose sides are so many km, within the plane."""
    height = side / _DEGREE / 2.0
    width = height / np.cos(np.radians(y))
    return Box(
        max(x - width, USA.west), max(y - height, USA.south), min(x + width, USA.east), min(y + height, USA.north)
    )


@lru_cache(maxsize=4)
def before(scale: float, group: str, times: int = 0) -> Workload:
    """The history that a partitioning is made from: other objects and queries than those that come."""
    found = usa.objects(round(50_000 * scale), 120 + times)
    return found, queries(found, round(30_000 * scale), 220 + times, group, times)


@lru_cache(maxsize=4)
def stream(scale: float, group: str, times: int = 0) -> Workload:
    """The objects that come, and the queries that are registered meanwhile."""
    found = usa.objects(round(OBJECTS * scale), 320 + times)
    return found, queries(found, round(QUERIES * scale), 420 + times, group, times)
