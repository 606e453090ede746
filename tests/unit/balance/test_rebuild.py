"""A tree built anew: from a skewed sample, with counts carried over, and leaves that stay where they can."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.balance.explanation import explanation
from spatialstream.balance.loads import LeafCounts, imbalance, slot_loads
from spatialstream.balance.proposal import propose
from spatialstream.balance.rebuild import SLACK, rebuild, settle
from spatialstream.balance.settings import BalanceSettings
from spatialstream.index.sample import Sample
from spatialstream.index.version import RoutingVersion, build
from spatialstream.model.errors import SettingError
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import QueryBatch
from spatialstream.model.regions import Box
from tests.unit.balance.cases import cases
from tests.unit.index.samples import PLANE, query, samples, spaces

SETTINGS = BalanceSettings()


def skewed(n: int = 3_000) -> Sample:
    """Nine in ten of the objects, and of the queries, in a hundredth of the space."""
    rng = np.random.default_rng(4)
    places = np.where(rng.random((n, 1)) < 0.9, 0.4 * rng.random((n, 2)), 4.0 * rng.random((n, 2)))
    objects = [SpatialObject(f"o{i}", i, *place, ("a", "bc"[i % 2])) for i, place in enumerate(places.tolist())]
    corners = places[rng.integers(0, n, 300)].tolist()
    asked = [query("CRQ", Box(x, y, x + 0.02, y + 0.02), "a", duration=10**9) for x, y in corners]
    return Sample.of(PLANE, ObjectBatch.of(objects), QueryBatch.of(asked), float(n))


def uniform(slots: int, leaves: int = 16) -> RoutingVersion:
    """What a stream begins with of which nothing is known."""
    return build(PLANE, ObjectBatch.of([]), QueryBatch.of([]), leaves, slots)


def counted(version: RoutingVersion, sample: Sample) -> LeafCounts:
    n = len(version.index.leaves)
    objects = np.bincount(version.index.route_objects(sample.objects), minlength=n).astype(np.float64)
    continuous = np.bincount(version.index.route_queries(sample.queries)[1], minlength=n).astype(np.float64)
    return LeafCounts(objects, objects, continuous, sample.span)


def test_a_stream_that_began_without_history_gets_an_even_tree() -> None:
    version, sample = uniform(4), skewed()
    counts = counted(version, sample)

    proposal = propose(version, counts, sample.statistics(), SETTINGS, "rebuild", sample=sample)

    assert proposal is not None
    assert proposal.imbalance_before > 6.0
    assert proposal.imbalance_after < 1.3
    routed = np.bincount(proposal.version.route_objects(sample.objects), minlength=4)
    assert proposal.loads_after.sum() > 0.0
    assert routed.max() < 3_000
    assert "the index is rebuilt" in explanation(proposal)
    assert proposal.to_record()["strategy"] == "rebuild"


def test_it_comes_last_and_only_with_a_large_enough_sample() -> None:
    version, sample = uniform(4), skewed()
    counts, statistics = counted(version, sample), sample.statistics()
    stuck = BalanceSettings(imbalance=1.0001, leaves=16)

    tried = propose(version, counts, statistics, stuck, sample=sample)
    without = propose(version, counts, statistics, stuck)

    assert tried is not None
    assert without is not None
    assert without.strategy != "rebuild"
    assert tried.imbalance_after <= without.imbalance_after
    small = skewed(900)
    with pytest.raises(SettingError, match="at least 1,000 sampled objects, and there are 900"):
        propose(version, counts, small.statistics(), SETTINGS, "rebuild", sample=small)
    with pytest.raises(SettingError, match="and there are 0"):
        propose(version, counts, statistics, SETTINGS, "rebuild")


def test_building_it_again_moves_little() -> None:
    sample = skewed()
    version = uniform(4)
    first = propose(version, counted(version, sample), sample.statistics(), SETTINGS, "rebuild", sample=sample)
    assert first is not None
    counts = counted(first.version, sample)

    again = propose(first.version, counts, sample.statistics(), SETTINGS, "rebuild", sample=sample)

    assert again is not None
    assert again.queries_moved <= 0.1 * counts.continuous.sum()
    assert again.imbalance_after < 1.3


@given(st.data(), spaces)
def test_every_old_leaf_goes_somewhere(data: st.DataObject, space) -> None:
    case = data.draw(cases(space))
    sample = Sample.of(space, *data.draw(samples(space)), 1000.0)

    made = rebuild(case.version, case.counts, sample, sample.statistics(2), SETTINGS)

    shares = np.bincount(made.origins.source, made.origins.objects, len(case.version.mapping))
    assert shares == pytest.approx(np.ones(len(shares)))
    assert (made.origins.queries >= 0.0).all()
    assert (made.origins.queries <= 1.0).all()
    assert made.index.leaves.objects.sum() == pytest.approx(case.counts.objects.sum())
    assert len(made.mapping) == len(made.index.leaves)
    assert set(made.mapping.tolist()) <= set(range(case.version.slots))
    order = np.lexsort((made.origins.source, made.origins.leaf))
    assert order.tolist() == list(range(len(order)))


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 4))
def test_leaves_that_may_stay_do_and_balance_holds(seed: int, n: int, slots: int) -> None:
    rng = np.random.default_rng(seed)
    loads, kept = rng.random(n), np.floor(5 * rng.random((n, slots)))
    mapping = rng.integers(0, slots, n).astype(np.int32)
    before = slot_loads(loads, mapping, slots)

    settled = settle(mapping, loads, kept)

    after = slot_loads(loads, settled, slots)
    assert after.max() <= max(before.max(), (1 + SLACK) * before.mean()) + 1e-9
    assert after.min() >= min(before.min(), (1 - SLACK) * before.mean()) - 1e-9
    rows = np.arange(n)
    assert kept[rows, settled].sum() >= kept[rows, mapping].sum()


def test_against_all_mappings_of_a_few_leaves() -> None:
    """Equal loads: what stays is the most that any mapping within the bounds keeps, where leaves can go home alone."""
    kept = np.array([[3.0, 0.0], [2.0, 1.0], [0.0, 4.0], [0.0, 2.0]])
    settled = settle(np.array([0, 1, 1, 0], np.int32), np.array([1.0, 0.05, 1.0, 0.05]), kept)

    def keeps(mapping: tuple[int, ...]) -> float:
        return sum(kept[leaf, slot] for leaf, slot in enumerate(mapping))

    assert keeps(tuple(settled.tolist())) == max(map(keeps, itertools.product((0, 1), repeat=4)))
    assert imbalance(slot_loads(np.array([1.0, 0.05, 1.0, 0.05]), settled, 2)) == 1.0
