"""J, compared with a plain count of the same queries and objects."""

from collections import Counter
from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.index.cost import expression_coverage
from spatialstream.index.statistics import LEAST, MOST, SKQ, SRQ, Statistics
from spatialstream.model.covers import region_parts
from spatialstream.model.hashing import hash_strings
from spatialstream.model.kinds import CODE, TYPES
from spatialstream.model.lifetimes import endless
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import (
    Cancellation,
    Everything,
    Lifetime,
    Nearest,
    Predicate,
    Query,
    QueryBatch,
    TopTerms,
)
from spatialstream.model.regions import Box, Circle
from spatialstream.model.space import WGS84, Space
from tests.unit.index.samples import PLANE, obj, points, query, samples, spaces

NO_OBJECTS = ObjectBatch.of([])
NO_QUERIES = QueryBatch.of([])
LEVELS = 2
PLANE_BOX = Box(0.0, 0.0, 4.0, 4.0)


def cell_boxes(space, levels=LEVELS):
    """The box of each cell, and whether it ends at the east and north bounds."""
    boxes = [space.bounds]
    for cell in range((4**levels - 1) // 3):
        west, south, east, north = boxes[cell]
        x, y = (west + east) / 2, (south + north) / 2
        boxes += [(west, south, x, y), (x, south, east, y), (west, y, x, north), (x, y, east, north)]
    return boxes


def clamp(value, low, high):
    return min(max(value, low), high)


def meets(space, part, box):
    """Whether a covering box, drawn into the space, meets a cell, which owns its west and south border."""
    if part[0] > part[2]:
        return False
    west, south, east, north = space.bounds
    w, e = clamp(part[0], west, east), clamp(part[2], west, east)
    s, n = clamp(part[1], south, north), clamp(part[3], south, north)
    in_x = e >= box[0] and (w < box[2] or box[2] == east)
    in_y = n >= box[1] and (s < box[3] or box[3] == north)
    return in_x and in_y


@given(st.data(), spaces)
def test_counts_are_those_of_counting(data, space):
    sample, asked = data.draw(samples(space, "SRQ STQ CRQ CTQ"))
    statistics = Statistics.of(space, sample, asked, 500.0, LEVELS)

    parts = region_parts(space, asked.regions)
    boxes = cell_boxes(space)
    vocabulary = asked.keywords.vocabulary
    names = dict(zip(hash_strings(vocabulary).tolist(), vocabulary.to_pylist(), strict=True))
    for cell, box in enumerate(boxes):
        reached = np.array([any(meets(space, part, box) for part in parts[q]) for q in range(len(asked))], np.bool_)
        assert statistics.reached[:, cell].tolist() == np.bincount(asked.code[reached], minlength=len(TYPES)).tolist()
        words = Counter(word for q in np.flatnonzero(reached & (asked.code == SRQ)) for word in asked.keywords[q])
        chances = dict(zip(statistics.terms.tolist(), statistics.keyword_distribution(cell, SRQ), strict=True))
        assert {names[term]: p for term, p in chances.items() if p} == pytest.approx(
            {word: count / words.total() for word, count in words.items()}
        )
        west, south, east, north = box
        within = (
            (sample.x >= west)
            & ((sample.x < east) | (east == space.east))
            & (sample.y >= south)
            & ((sample.y < north) | (north == space.north))
        )
        assert statistics.objects[cell] == within.sum()


def by_type(column):
    """The values of a column by type of query, without zeros."""
    return {kind: value for kind, value in zip(TYPES, column.tolist(), strict=True) if value}


def test_what_the_cost_model_is_told():
    asked = [
        query("SRQ", Box(0, 0, 1, 1), "ab"),
        query("SRQ", Box(0, 0, 4, 4), "c"),
        query("SRQ", Box(3, 3, 4, 4)),
        query("CRQ", Box(3, 3, 4, 4), duration=1_000),
        query("CRQ", Box(3, 3, 4, 4), duration=1_001),
        query("CRQ", Box(3, 3, 4, 4), duration=60_000),
        Cancellation("q", 5),
    ]
    statistics = Statistics.of(PLANE, NO_OBJECTS, QueryBatch.of(asked), 1.0, 1)

    cell = statistics.cell(4)  # north-east

    assert by_type(cell.arrival) == {"SRQ": 0.5, "CRQ": 0.5}
    assert by_type(cell.reach) == {"SRQ": pytest.approx(2 / 3), "CRQ": 1.0}
    assert cell.lengths[0] == pytest.approx([1 / 3, 1 / 3, 1 / 3])
    assert cell.lifetime[3] == pytest.approx(62_001 / 3)
    chance, duration = statistics.duration_distribution(CODE["CRQ"])
    assert sorted(zip(chance[chance > 0], duration[chance > 0], strict=True)) == [
        (pytest.approx(1 / 3), 60_000.0),
        (pytest.approx(2 / 3), 1_000.5),
    ]


def test_nothing_is_known_of_nothing():
    statistics = Statistics.of(WGS84, NO_OBJECTS, NO_QUERIES, 0.0)

    cell = statistics.cell(0)

    assert cell.arrival.tolist() == cell.reach.tolist() == cell.lifetime.tolist() == [0.0] * len(TYPES)
    assert cell.lengths.sum() == 0.0


@given(st.data(), spaces)
def test_rates_of_a_sample_add_up_to_the_rate_of_its_cells(data, space):
    (history, _), (sample, _) = data.draw(samples(space)), data.draw(samples(space))
    statistics = Statistics.of(space, history, NO_QUERIES, 1000.0, LEVELS)

    rates = statistics.rates(sample.x, sample.y)

    here = Statistics.of(space, sample, NO_QUERIES, 1000.0, LEVELS)
    finest = slice(-(4**LEVELS), None)
    seen = here.objects[finest] > 0
    assert rates.sum() == pytest.approx(statistics.objects[finest][seen].sum() / 1000.0)


# ------------------------------------------------------------------------------------------------ cells that cover


def test_every_cell_covers_itself():
    space = Space.planar(0.1, -3.3, 7.7, 1e3)  # halves of these bounds are not exact
    boxes = np.array(cell_boxes(space, 3))

    cells = Statistics.of(space, NO_OBJECTS, NO_QUERIES, 1.0, 3).cells_of(boxes)

    assert cells.tolist() == list(range(len(boxes)))


@given(st.data(), spaces)
def test_the_smallest_cell_covers_a_box(data, space):
    (x, y), (u, v) = data.draw(points(space)), data.draw(points(space))
    box = (min(x, u), min(y, v), max(x, u), max(y, v))
    boxes = cell_boxes(space, 3)

    cell = int(Statistics.of(space, NO_OBJECTS, NO_QUERIES, 1.0, 3).cells_of(np.array([box]))[0])

    def covers(outer, slack):
        wide, high = slack * (space.east - space.west), slack * (space.north - space.south)
        in_x = outer[0] - wide <= box[0] and box[2] <= outer[2] + wide
        return in_x and outer[1] - high <= box[1] and box[3] <= outer[3] + high

    assert covers(boxes[cell], 1e-6)
    assert not any(covers(boxes[below], -1e-6) for below in range(4 * cell + 1, 4 * cell + 5) if below < len(boxes))


def test_a_box_smaller_than_the_finest_cells_gets_the_one_that_it_is_in():
    statistics = Statistics.of(PLANE, NO_OBJECTS, NO_QUERIES, 1.0, 1)

    assert statistics.cells_of(np.array([[3.0, 1.0, 3.01, 1.01], [2.0, 2.0, 2.0, 2.0]])).tolist() == [2, 4]


# ------------------------------------------------------------------------------------------------------ similarity


def test_similarity_by_hand():
    asked = [query("SRQ", Box(0.1, 0.1, 0.2, 0.2))] * 3 + [query("SRQ", Box(0.1, 0.1, 3.0, 0.2))]
    asked += [query("STQ", Box(0.0, 0.0, 4.0, 4.0))]
    statistics = Statistics.of(PLANE, NO_OBJECTS, QueryBatch.of(asked), 1.0, 1)

    # p_srq: 1 in the whole; 1, 1/4, 0, 0 in the quarters; p_stq: 1 everywhere
    assert statistics.similarity(PLANE.bounds, weighted=False) == pytest.approx((1.25 + 4.0) / (4.0 * 2.0))
    assert statistics.similarity(PLANE.bounds) == pytest.approx((4 * 1.25 + 1 * 4.0) / (4.0 * 5.0))


def test_a_rare_type_that_goes_everywhere_does_not_decide():
    boxes = [Box(x, y, x + 0.1, y + 0.1) for x in (1.0, 3.0) for y in (1.0, 3.0)] * 25
    asked = [query("CRQ", box) for box in boxes] + [query("CKQ", at=(1.0, 1.0))]
    statistics = Statistics.of(PLANE, NO_OBJECTS, QueryBatch.of(asked), 1.0, 1)

    assert statistics.similarity(PLANE.bounds) < 0.27
    assert statistics.similarity(PLANE.bounds, weighted=False) == 0.625


def test_queries_that_meet_one_quarter_each_are_least_similar():
    boxes = [Box(x, y, x + 0.1, y + 0.1) for x in (1.0, 3.0) for y in (1.0, 3.0)]
    local = Statistics.of(PLANE, NO_OBJECTS, QueryBatch.of([query("CRQ", box) for box in boxes]), 1.0, 1)
    wide = Statistics.of(PLANE, NO_OBJECTS, QueryBatch.of([query("CRQ", Box(1, 1, 3, 3))]), 1.0, 1)

    assert local.similarity(PLANE.bounds) == 0.25
    assert wide.similarity(PLANE.bounds) == 1.0


def test_similarity_where_j_knows_nothing():
    asked = QueryBatch.of([query("SRQ", Box(0.1, 0.1, 0.2, 0.2))])
    statistics = Statistics.of(PLANE, NO_OBJECTS, asked, 1.0, 1)

    assert statistics.similarity((0.0, 0.0, 2.0, 2.0)) == 1.0  # the finest level
    assert statistics.similarity((0.0, 0.0, 0.5, 0.5)) == 1.0  # below it
    assert statistics.similarity((2.0, 2.0, 4.0, 4.0)) == 0.0  # no query comes here


# ---------------------------------------------------------------------------------------------------- kNN queries


def uniform(side=32, terms=""):
    places = (np.arange(side) + 0.5) * 4 / side
    return [obj(f"{x},{y}", x, y, terms) for x in places for y in places]


def reached_cells(asked, sample, span=1000.0, levels=5):
    statistics = Statistics.of(PLANE, ObjectBatch.of(sample), QueryBatch.of([asked]), span, levels)
    return int(statistics.reached[:, -(4**levels) :].sum())


def test_a_search_region_holds_about_k_objects():
    # 64 objects a unit of area: 16 of them in a circle of radius 0.28, which a square of about 5 cells of 1/8 bounds
    assert 9 <= reached_cells(query("SKQ", at=(2.05, 2.05), k=16), uniform()) <= 49
    assert reached_cells(query("SKQ", at=(2.05, 2.05), k=64), uniform()) > reached_cells(
        query("SKQ", at=(2.05, 2.05), k=4), uniform()
    )


def test_rare_keywords_and_short_durations_widen_it():
    sample = uniform(terms="a")[:-64] + [obj(f"b{i}", o.x, o.y, "ab") for i, o in enumerate(uniform()[-64:])]

    common = reached_cells(query("SKQ", None, "a", at=(2.05, 2.05)), sample)
    rare = reached_cells(query("SKQ", None, "b", at=(2.05, 2.05)), sample)
    brief = reached_cells(query("SKQ", None, "a", at=(2.05, 2.05), duration=10), sample)

    assert common <= 4
    assert rare > common
    assert brief > common
    assert reached_cells(query("SKQ", None, "z", at=(2.05, 2.05)), sample) == 4**5  # nothing has it: goes everywhere


def test_without_objects_a_search_reaches_everywhere():
    assert reached_cells(query("CKQ", at=(1.0, 1.0)), []) == 4**5


def test_search_regions_cross_the_antimeridian():
    sample = [obj(f"{i}", 179.0 + i / 100, 0.5) for i in range(100)]
    asked = query("SKQ", None, "", at=(179.99, 0.0), k=50)

    statistics = Statistics.of(WGS84, ObjectBatch.of(sample), QueryBatch.of([asked]), 1000.0, 1)

    assert statistics.reached[SKQ].tolist() == [1.0, 1.0, 1.0, 1.0, 1.0]


def test_circles_count_as_the_boxes_around_them():
    asked = QueryBatch.of([query("SRQ", Circle(1.0, 1.0, 0.5), "a"), query("SRQ", Circle(2.0, 2.0, 0.5), "a")])

    statistics = Statistics.of(PLANE, NO_OBJECTS, asked, 1.0, 1)

    assert statistics.reached[SRQ].tolist() == [2.0, 2.0, 1.0, 1.0, 1.0]


# ------------------------------------------------------------------------------------------------------ adaptive depth


def clustered(n=2_000):
    rng = np.random.default_rng(1)
    places = (1.0 + 0.01 * rng.random((n, 2))).tolist()
    return ObjectBatch.of([obj(f"o{i}", x, y, "a") for i, (x, y) in enumerate(places)])


def test_j_is_deep_where_objects_are_many_and_nowhere_else():
    statistics = Statistics.of(PLANE, clustered(), NO_QUERIES, 1.0)

    here, there = statistics.cells_of(np.array([[1.005, 1.005, 1.005, 1.005], [3.0, 3.0, 3.0, 3.0]])).tolist()
    assert statistics.cells.level[here] > 8
    assert statistics.cells.level[there] <= 2
    assert len(statistics.cells) <= MOST
    split = statistics.cells.first >= 0
    assert (statistics.objects[split] >= LEAST).all()
    for cell in np.flatnonzero(split).tolist():
        first = statistics.cells.first[cell]
        assert statistics.objects[cell] == statistics.objects[first : first + 4].sum()
        assert (statistics.cells.parent[first : first + 4] == cell).all()


def test_few_queries_are_smoothed_by_what_is_known_of_the_cells_above():
    """One query in a corner says little about its quarters; a thousand say all."""
    one = query("SRQ", Box(1.001, 1.001, 1.002, 1.002), "a")
    few, many = (Statistics.of(PLANE, clustered(), QueryBatch.of([one] * n), 1.0) for n in (1, 1_000))

    def part(statistics, place):
        """Which part of the queries that reach the cell above reach the cell of a place on level 9."""
        cell, cells = int(statistics.cells_of(np.array([[place] * 4]))[0]), statistics.cells
        while cells.level[cell] > 9:
            cell = int(cells.parent[cell])
        shares = statistics.reach(np.array([cell, cells.parent[cell]]))[SRQ]
        return float(shares[0] / shares[1])

    assert 0.0 < part(few, 1.0015) < 0.5
    assert part(many, 1.0015) > 0.9
    assert 0.0 < part(many, 1.009) < part(few, 1.009) < 0.5


def test_words_of_cells_with_few_queries_are_those_of_the_cell_above():
    asked = [query("SRQ", Box(1.001, 1.001, 1.002, 1.002), "a")] + [query("SRQ", PLANE_BOX, "b")] * 200
    statistics = Statistics.of(PLANE, clustered(), QueryBatch.of(asked), 1.0)
    cell = int(statistics.cells_of(np.array([[1.0015, 1.0015, 1.0015, 1.0015]]))[0])

    assert sorted(statistics.keyword_distribution(cell, SRQ).tolist()) == pytest.approx([1 / 201, 200 / 201])


# ------------------------------------------------------------------------------------------------- shapes and durations


@given(st.integers(1, 64), st.integers(0, 16), st.floats(0.0, 1.0))
def test_groups_of_one_length_cover_as_their_formula_says(groups, length, h):
    found = expression_coverage(np.array([groups]), np.array([length]), np.ones(1), np.array([h]))

    assert found == pytest.approx(1.0 - (1.0 - h**length) ** groups, abs=1e-12)


def test_the_coverage_of_different_expressions_is_their_mean():
    groups, length, chance = np.array([1, 3, 3, 1]), np.array([2, 1, 2, 0]), np.array([0.4, 0.1, 0.3, 0.2])

    found = expression_coverage(groups, length, chance, np.array([0.0, 0.5, 1.0]))

    group = 0.25 * 0.5 + 0.75 * 0.25  # of one of three groups
    assert found == pytest.approx([0.2, 0.4 * 0.25 + 0.4 * (1 - (1 - group) ** 3) + 0.2, 1.0])


def test_an_expression_covers_more_than_all_of_its_words():
    one_of = Predicate(PLANE_BOX, any=(("a",), ("b",), ("c",)))
    ors = Query("q", 0, one_of, Everything(), Lifetime(1, False))
    known = [
        Statistics.of(PLANE, NO_OBJECTS, QueryBatch.of([each]), 1.0) for each in (ors, query("SRQ", PLANE_BOX, "abc"))
    ]
    h, root = np.array([[0.25, 0.5]]), np.zeros(1, np.int64)

    assert known[0].coverage(root, h)[:, 0] == pytest.approx([1 - 0.75**3, 1.0])  # no SKQ is known
    assert known[1].coverage(root, h)[:, 0] == pytest.approx([0.25**3, 1.0])
    assert known[0].lengths[SRQ, 1] == known[1].lengths[SRQ, 3] == 1.0
    assert known[0].terms.tolist() == known[1].terms.tolist()


def test_what_lives_until_it_is_cancelled_counts_alike_whatever_its_type():
    """A CTQ without a duration ends after so many steps, of ten seconds after three years."""
    day = 86_400_000
    asked = [
        Query("crq", 0, Predicate(PLANE_BOX), Everything(), Lifetime(endless(None), True)),
        Query("ctq", 0, Predicate(PLANE_BOX), TopTerms(3), Lifetime(endless(10_000), True, 60_000, 10_000)),
        Query("ckq", 0, Predicate(None), Nearest(0.5, 0.5, 3), Lifetime(40 * day, True)),
    ]
    statistics = Statistics.of(PLANE, NO_OBJECTS, QueryBatch.of(asked), 1.0)

    lasting = {kind: float(statistics.lifetimes[CODE[kind], 0]) for kind in ("CRQ", "CTQ", "CKQ")}

    assert lasting == {"CRQ": 30 * day, "CTQ": 30 * day, "CKQ": 30 * day}


def test_lengths_and_durations_are_of_the_region_where_enough_is_known():
    """In the west queries have one word and last a second, in the east three words and an hour; elsewhere few come."""
    west, east, north = Box(0.1, 0.1, 0.2, 0.2), Box(3.1, 3.1, 3.2, 3.2), Box(0.1, 3.1, 0.2, 3.2)
    asked = [query("SRQ", west, "a"), query("CRQ", west, duration=1_000)] * 100
    asked += [query("SRQ", east, "abc"), query("CRQ", east, duration=3_600_000)] * 100
    asked += [query("SRQ", north, "abcde"), query("CRQ", north, duration=9)]
    statistics = Statistics.of(PLANE, NO_OBJECTS, QueryBatch.of(asked), 1.0)
    cells = statistics.cells_of(np.array([astuple(box) for box in (west, east, north, PLANE_BOX)]))
    assert len(set(cells.tolist())) == 4

    coverage = statistics.coverage(cells, np.full((4, 2), 0.5))[0]

    usual = (100 * 0.5 + 100 * 0.5**3 + 0.5**5) / 201
    assert coverage == pytest.approx([0.5, 0.5**3, usual, usual])
    words, basis = statistics.keywords(SRQ)
    assert words[cells] == pytest.approx([1.0, 3.0, 405 / 201, 405 / 201])
    assert basis[cells].tolist() == [*cells[:2], 0, 0]
    mean = (100 * 1_000 + 100 * 3_600_000 + 9) / 201
    assert statistics.lifetimes[CODE["CRQ"], cells] == pytest.approx([1_000, 3_600_000, mean, mean])
    assert statistics.basis[CODE["CRQ"], cells].tolist() == [*cells[:2], 0, 0]
    printed = Statistics.of(PLANE, NO_OBJECTS, QueryBatch.of(asked), 1.0, 3)
    assert printed.lifetimes[CODE["CRQ"]] == pytest.approx(np.full(len(printed.cells), mean))
    assert not printed.basis.any()
