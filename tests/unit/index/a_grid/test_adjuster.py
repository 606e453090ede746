"""SM and SH: Eqns 4 and 5 by hand and by brute force; adjusted indexes stay whole, and Origins add up."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spatialstream.balance.settings import BalanceSettings
from spatialstream.index.a_grid.a_grid import AGrid
from spatialstream.index.a_grid.adjuster import WORTHWHILE, shift, split_and_merge
from spatialstream.index.adjustment import LeafLoads
from spatialstream.index.sample import Sample
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.regions import Box
from tests.unit.index.samples import PLANE, WGS84, check_origins, divisions, obj, query, samples, spaces

LIMITS = BalanceSettings()
each_strategy = pytest.mark.parametrize("strategy", [split_and_merge, shift], ids=["SM", "SH"])


def sampled(cells, side, regions=(), space=PLANE) -> Sample:
    """A sample with a number of objects in the middle of each cell (column, row), and continuous queries."""
    width, height = (space.east - space.west) / side, (space.north - space.south) / side
    places = [
        (space.west + (column + 0.5) * width, space.south + (row + 0.5) * height)
        for (column, row), count in cells.items()
        for _ in range(count)
    ]
    objects = ObjectBatch.of([obj(f"o{i}", x, y) for i, (x, y) in enumerate(places)])
    return Sample.of(space, objects, QueryBatch.of([query("CRQ", region) for region in regions]), 1000.0)


def adjusted(strategy, rectangles, side, sample, load, **chosen):
    """The outcome for one leaf a slot, unless a mapping is given."""
    n = len(rectangles)
    mapping = np.array(chosen.pop("mapping", range(n)), np.int32)
    index = AGrid(sample.space, np.array(rectangles, np.int32), np.zeros(n), np.zeros(n), side)
    load = np.array(load, np.float64)
    continuous = np.array(chosen.pop("continuous", [0.0] * n))
    seconds, transfer = chosen.pop("seconds", 0.0), chosen.pop("transfer", 1.0)
    known = LeafLoads(load, load, None, load, continuous, mapping, seconds, transfer, sample)
    quiet = Sample.of(sample.space, sample.objects, QueryBatch.of([]), 1000.0)
    done = strategy(index, known, quiet.statistics(2), int(mapping.max()) + 1, LIMITS)
    assert done.mapping.tolist() == mapping.tolist()  # the leaves stay on their slots
    return done


# ------------------------------------------------------------------------------------------------ figure 3, by hand

STRIPES = [[0, 0, 2, 4], [2, 0, 3, 4], [3, 0, 4, 4]]
HOT = {(0, 0): 6, (1, 0): 6, (2, 0): 1, (3, 0): 2}


def test_a_leaf_is_split_and_two_are_merged_in_its_place():
    done = adjusted(split_and_merge, STRIPES, 4, sampled(HOT, 4), [12.0, 1.0, 2.0])

    # X = 0 into 6 and 6; Y and Z = 1 and 2 have 3 together: C_r = 12 - 6
    assert done.changes.counts == {"splits": 1, "merges": 1}
    assert done.changes.text == "1 leaf split, 1 pair merged"
    assert sorted(done.index.leaves.load.tolist()) == pytest.approx([3.0, 6.0, 6.0])
    assert sorted(done.index.rectangles.tolist()) == [[0, 0, 1, 4], [1, 0, 2, 4], [2, 0, 4, 4]]
    assert done.index.rectangles[0].tolist()[1:] in ([0, 1, 4], [0, 2, 4])  # X keeps a part of its own
    assert done.ended == "no further operation lowers a high load by more than it costs"


def test_the_part_with_fewer_queries_moves_and_the_fewer_are_merged_away():
    west, sole, east = Box(0.1, 0.1, 0.2, 0.2), Box(2.1, 1.1, 2.2, 1.2), Box(3.1, 1.1, 3.2, 1.2)
    sample = sampled(HOT, 4, [west, west, west, Box(1.1, 0.1, 1.2, 0.2), sole, sole, east])

    queries = {"continuous": [400.0, 200.0, 100.0], "seconds": 15.0, "transfer": 0.01}
    done = adjusted(split_and_merge, STRIPES, 4, sample, [12.0, 1.0, 2.0], **queries)

    # three quarters of X's queries are in its west: the east moves to 2's slot, whose 100 go to 1
    assert done.index.rectangles.tolist() == [[0, 0, 1, 4], [2, 0, 4, 4], [1, 0, 2, 4]]
    origins = done.origins
    pairs = zip(origins.leaf.tolist(), origins.source.tolist(), strict=True)
    shares = dict(zip(pairs, origins.queries.tolist(), strict=True))
    assert shares == {(0, 0): 0.75, (1, 1): 1.0, (1, 2): 1.0, (2, 0): 0.25}


@pytest.mark.parametrize(("transfer", "operations"), [(0.0299, 1), (0.0301, 0)])
def test_an_operation_is_carried_out_if_it_saves_more_time_than_it_takes(transfer, operations):
    west, east = [Box(0.1, 0.1, 0.2, 0.2)], [Box(1.1, 0.1, 1.2, 0.2)]
    sample = sampled(HOT, 4, west + east)

    # C_r: 6 of 15 units of load, which took 15 s; C_t: half of X's 200 queries, and Z's 100
    done = adjusted(
        split_and_merge, STRIPES, 4, sample, [12.0, 1.0, 2.0],
        continuous=[200.0, 150.0, 100.0], seconds=15.0, transfer=transfer,
    )  # fmt: skip

    assert done.changes.counts["splits"] == operations


# --------------------------------------------------------------------------------------------------- shifts, by hand


def test_the_side_between_two_moves_to_where_both_have_as_much():
    cells = {(0, 0): 1, (1, 0): 2, (2, 0): 3, (3, 0): 3, (4, 0): 1}

    done = adjusted(shift, [[0, 0, 4, 8], [4, 0, 8, 8]], 8, sampled(cells, 8), [9.0, 1.0])

    assert done.index.rectangles.tolist() == [[0, 0, 3, 8], [3, 0, 8, 8]]
    assert done.index.leaves.load.tolist() == pytest.approx([6.0, 4.0])
    assert done.changes.counts == {"straight_shifts": 1, "corner_shifts": 0}
    assert done.changes.text == "1 straight shift, 0 corner shifts"


def test_at_a_corner_a_is_cut_at_the_edge_of_b():
    # A is the west half, B the north-east quarter with little, the south-east one has as much as A
    cells = {(0, 3): 4, (1, 0): 5, (3, 3): 1, (3, 0): 9}

    done = adjusted(shift, [[0, 0, 2, 4], [2, 2, 4, 4], [2, 0, 4, 2]], 4, sampled(cells, 4), [9.0, 1.0, 8.0])

    assert done.index.rectangles[:2].tolist() == [[0, 0, 2, 2], [0, 2, 4, 4]]
    assert done.changes.counts["corner_shifts"] == 1


# ----------------------------------------------------------------------------------------------------- by brute force


@given(data=st.data(), side=st.integers(2, 6), seed=st.integers(0, 2**32 - 1))
def test_no_split_and_merge_is_better_than_the_first_one(data, side, seed):
    rectangles = data.draw(divisions(side))
    rng = np.random.default_rng(seed)
    cells = {(x, y): int(rng.integers(0, 4)) for x, y in product(range(side), repeat=2)}
    table = np.array([[cells[x, y] for x in range(side)] for y in range(side)])

    def cost(rectangle):
        west, south, east, north = rectangle
        return int(table[south:north, west:east].sum())

    def cut(rectangle):
        west, south, east, north = rectangle
        ways = [((west, south, at, north), (at, south, east, north)) for at in range(west + 1, east)]
        ways += [((west, south, east, at), (west, at, east, north)) for at in range(south + 1, north)]
        return min((max(map(cost, parts)) for parts in ways), default=None)

    loads = [cost(each) for each in rectangles.tolist()]
    done = adjusted(split_and_merge, rectangles, side, sampled(cells, side), loads)

    def gain(x):
        """Eqn 4 of the best way to split x, where each leaf has a slot of its own."""
        larger, gains = cut(rectangles[x].tolist()), [0]
        for y, z in product(range(len(loads)), repeat=2):
            one, other = rectangles[y], rectangles[z]
            low, high = np.minimum(one[:2], other[:2]), np.maximum(one[2:], other[2:])
            whole = np.prod(high - low) == np.prod(one[2:] - one[:2]) + np.prod(other[2:] - other[:2])
            if len({x, y, z}) == 3 and whole and larger is not None:
                gains.append(loads[x] - max(larger, loads[y] + loads[z]))
        return max(gains)

    heavy = sorted(range(len(loads)), key=lambda x: -loads[x])
    gains = {x: gain(x) for x in heavy if loads[x] * len(loads) > sum(loads)}
    worth = [x for x, best in gains.items() if best > 0 and best >= WORTHWHILE * max(loads)]
    if not worth:
        assert done.changes.counts["splits"] == 0
    else:
        assert done.changes.counts["splits"] >= 1
        # later operations lower no less: the highest load is at least that much lower, unless another leaf had as much
        x = worth[0]
        highest = max(done.index.leaves.load)
        assert highest <= max(loads[x] - gains[x], *(each for i, each in enumerate(loads) if i != x), 0) + 1e-9


@each_strategy
@settings(max_examples=60, deadline=None)
@given(data=st.data(), space=spaces, seed=st.integers(0, 2**32 - 1))
def test_an_adjusted_index_is_whole_and_its_highest_load_no_higher(data, space, seed, strategy):
    found, asked = data.draw(samples(space))
    side = data.draw(st.integers(2, 9))
    rectangles = data.draw(divisions(side))
    n, rng = len(rectangles), np.random.default_rng(seed)
    slots = int(rng.integers(1, n + 1))
    mapping = rng.integers(0, slots, n).astype(np.int32)
    load, continuous = np.floor(100 * rng.random((2, n)) * (rng.random((2, n)) < 0.8))
    index = AGrid(space, rectangles, np.zeros(n), np.zeros(n), side)
    sample = Sample.of(space, found, asked, 1000.0)
    times = float(rng.choice([0.0, 1.0])), float(rng.choice([0.0, 1e-3, 1.0]))
    known = LeafLoads(load + 1, load, None, load, continuous, mapping, *times, sample)

    done = strategy(index, known, sample.statistics(2), slots, LIMITS)

    before, after = (np.bincount(mapping, each, slots) for each in (load, done.index.leaves.load))
    assert after.max() <= before.max() + 1e-6
    assert after.sum() == pytest.approx(before.sum())
    assert len(done.index.leaves) == n
    assert done.index.leaves.objects.sum() == pytest.approx((load + 1).sum())
    check_origins(index, done, found)
    if not sum(done.changes.counts.values()):
        assert done.index.rectangles.tolist() == rectangles.tolist()


@each_strategy
def test_a_leaf_without_sampled_objects_costs_as_much_everywhere(strategy):
    sample = sampled({(7, 7): 1}, 8, space=WGS84)

    done = adjusted(strategy, [[0, 0, 4, 8], [4, 0, 6, 8], [6, 0, 8, 8]], 8, sample, [64.0, 2.0, 2.0])

    assert done.index.leaves.load.max() <= 40.0


def test_load_passes_on_from_neighbour_to_neighbour():
    stripes = [[16 * i, 0, 16 * i + 16, 64] for i in range(4)]

    done = adjusted(shift, stripes, 64, sampled({(x, 0): 1 for x in range(32)}, 64), [16.0, 16.0, 0.0, 0.0])

    assert done.index.leaves.load.max() <= 10.0
    assert done.index.leaves.load.min() >= 6.0
    assert done.changes.counts["straight_shifts"] > 3


def test_slots_with_several_leaves_count_as_a_whole():
    cells = {(0, 0): 5, (1, 0): 5, (3, 0): 5, (4, 0): 1, (6, 0): 1}
    rectangles = [[0, 0, 2, 8], [2, 0, 4, 8], [4, 0, 6, 8], [6, 0, 8, 8]]

    done = adjusted(shift, rectangles, 8, sampled(cells, 8), [10.0, 5.0, 1.0, 1.0], mapping=[0, 0, 1, 1])

    # only leaf 1 has a neighbour of the other slot; that leaf 0 is the costliest does not matter
    assert done.index.rectangles[0].tolist() == [0, 0, 2, 8]
    assert np.bincount([0, 0, 1, 1], done.index.leaves.load).tolist() == pytest.approx([10.0, 7.0])
