"""Versions, counts and J for the tests of load balance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from spatialstream.balance.loads import LeafCounts
from spatialstream.index.qt.construction import SPLITS, build_tree
from spatialstream.index.statistics import Statistics
from spatialstream.index.version import RoutingVersion
from spatialstream.model.space import Space
from tests.unit.index.samples import samples


@dataclass(frozen=True)
class Case:
    """What the rebalancer looks at."""

    version: RoutingVersion
    counts: LeafCounts
    statistics: Statistics


def count_of(objects, continuous=None, arrivals=None, span: float = 1000.0) -> LeafCounts:
    """Counts; arrivals are the objects and no query is registered, unless given."""
    columns = [np.array(each, np.float64) for each in (objects, arrivals or objects, continuous or [0] * len(objects))]
    return LeafCounts(*columns, span)


@st.composite
def cases(draw: st.DrawFn, space: Space) -> Case:
    """A tree of up to 25 leaves on up to 6 slots in any allocation, with skewed counts and new queries."""
    found, asked = draw(samples(space))
    tree = build_tree(found, draw(st.integers(1, 25)), Statistics.of(space, found, asked, 1000.0, 2), SPLITS)
    n, slots = len(tree.leaves), draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    mapping = rng.integers(0, draw(st.integers(1, slots)), n).astype(np.int32)
    skew = draw(st.sampled_from([0.0, 1.0, 4.0]))

    def column() -> npt.NDArray[np.float64]:
        return np.floor(100 * rng.random(n) ** skew * (rng.random(n) < 0.8))

    counts = LeafCounts(column(), column(), column(), 1000.0)
    version = RoutingVersion(draw(st.integers(0, 9)), tree, mapping, slots)
    return Case(version, counts, Statistics.of(space, *draw(samples(space)), 1000.0, 2))
