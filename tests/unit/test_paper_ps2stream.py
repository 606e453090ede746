"""PS2Stream's figures (``tests/benchmarks/paper/ps2stream.py``): rivals do what they should, and what is judged."""

from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.index.kd_t.frequencies import Frequencies
from spatialstream.index.kd_t.migration import greedy
from spatialstream.index.kd_t.workload import Workload
from spatialstream.model.expressions import Expression, expanded
from tests.benchmarks.paper import page, ps2stream, subscriptions, usa
from tests.benchmarks.paper.__main__ import DOCS
from tests.benchmarks.paper.rivals import gi2, migration, words
from tests.benchmarks.paper.rivals.gi2 import Gi2
from tests.lengths import AT_LENGTH

SMALL = 0.02


@pytest.fixture(scope="module")
def comes():
    return subscriptions.stream(SMALL / 4, "Q3")


@pytest.fixture(scope="module")
def history():
    return subscriptions.before(SMALL, "Q3")


def matches(comes):
    """The pairs of an object and a query that match, one by one."""
    found, asked = comes
    west, south, east, north = asked.regions.shape.T
    expressions = [Expression.of(asked.keywords[q]) for q in range(len(asked))]
    terms = [found.terms[o] for o in range(len(found))]
    for q in range(len(asked)):
        inside = (found.x >= west[q]) & (found.x <= east[q]) & (found.y >= south[q]) & (found.y <= north[q])
        for o in np.flatnonzero(inside).tolist():
            if expressions[q].holds(terms[o]):
                yield o, q


@pytest.mark.parametrize("way", ps2stream.WAYS)
def test_each_match_meets_in_a_slot(comes, history, way):
    build, filtered = ps2stream.WAYS[way]
    version = build(history, ps2stream.statistics_of(history), 5)

    divided = ps2stream.Divided.of(version, comes, filtered)

    objects, queries = (
        [{*rows.tolist()} for rows in of] for of in (divided.objects, divided.queries)
    )  # fmt: skip
    pairs = list(matches(comes))
    assert len(pairs) > 100
    for o, q in pairs:
        assert any(o in objects[slot] and q in queries[slot] for slot in range(5))
    assert all(sorted(rows) == rows.tolist() for rows in map(np.unique, divided.objects))
    some = set().union(*objects)
    assert len(some) == len(comes[0]) if not filtered else len(some) < len(comes[0])


def test_words_are_divided_evenly_by_what_each_way_weighs(history):
    known = ps2stream.statistics_of(history)
    workload = Workload.of(history[0], known, Frequencies.of(history[0].terms), ps2stream.SIDE)
    offsets, _ = workload.postings
    for method in ("frequency", "hypergraph"):
        hashes, of = words.METHODS[method](workload, 4)
        at = np.searchsorted(workload.hashes, hashes)
        objects = (offsets[at + 1] - offsets[at]).astype(np.float64)
        asked = np.bincount(workload.word, workload.standing, len(workload.hashes))[at]
        weight = objects if method == "frequency" else objects * asked
        loads = np.bincount(of, weight, 4)
        assert loads.max() <= 1.2 * loads.mean()
        assert (np.diff(hashes.astype(object)) > 0).all()


def test_an_object_has_its_words_in_fewer_slots_by_the_hypergraph_than_by_frequency(history):
    found = {}
    for method in ("frequency", "hypergraph"):
        version = ps2stream.WAYS[method][0](history, ps2stream.statistics_of(history), 4)
        found[method] = sum(map(len, ps2stream.Divided.of(version, history, True).objects))
    assert found["hypergraph"] < found["frequency"]


def test_a_gi2_checks_the_lists_of_an_object_s_words_in_its_cell(comes):
    found, asked = comes[0], comes[1].take(np.arange(400))
    frequencies = Frequencies.of(found.terms)
    rows = [np.arange(0, 1_000, 2), np.arange(700)], [np.arange(300), np.arange(200, 400)]

    checks = Gi2(usa.USA, found, asked, frequencies).checks(*rows)

    cells, parts = gi2.cells_at(usa.USA, found), expanded(asked.keywords)
    rarest = frequencies.rarest(parts.groups)
    lists: dict[tuple[int, int], list[int]] = {}
    for cell, query in zip(*(each.tolist() for each in gi2.met(usa.USA, asked)), strict=True):
        for group in np.flatnonzero(parts.owner == query):
            lists.setdefault((cell, int(rarest[group])), []).append(query)
    hashes = dict(zip(found.terms.vocabulary.to_pylist(), frequencies_of(found), strict=True))
    for slot in range(2):
        there = {*rows[1][slot].tolist()}
        expected = sum(
            sum(query in there for query in lists.get((int(cells[o]), hashes[word]), ()))
            for o in rows[0][slot].tolist()
            for word in found.terms[o]
        )
        assert checks[slot] == expected
    assert checks.min() > 0


def frequencies_of(objects):
    return [int(each) for each in ps2stream.hash_strings(objects.terms.vocabulary)]


def test_the_cells_of_a_query_are_those_that_hold_its_corners_and_all_between(comes):
    _, asked = comes
    cells, row = gi2.met(usa.USA, asked)
    x, y = gi2.middles(usa.USA)[cells].T
    half = (usa.USA.east - usa.USA.west) / 128, (usa.USA.north - usa.USA.south) / 128
    west, south, east, north = asked.regions.shape[row].T
    assert (x + half[0] >= west).all()
    assert (x - half[0] <= east).all()
    assert (y + half[1] >= south).all()
    assert (y - half[1] <= north).all()
    assert {*row.tolist()} == {*range(len(asked))}


figures = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=9)


@given(cells=figures, share=st.floats(0.05, 1.0))
def test_dynamic_programming_finds_the_least(cells, share):
    loads, sizes = np.array(cells, np.float64).T
    if not loads.any():
        return
    target = share * loads.sum()

    chosen = migration.dynamic(loads, sizes, target)

    each = chain.from_iterable(combinations(range(len(cells)), n) for n in range(len(cells) + 1))
    least = min(sizes[list(some)].sum() for some in each if loads[list(some)].sum() >= target * (1.0 - 1e-12))
    assert sizes[chosen].sum() == least
    assert loads[chosen].sum() >= target * (1.0 - 1e-9)
    assert sizes[greedy(loads, sizes, target)].sum() >= least


def test_dynamic_programming_says_what_it_would_need():
    with pytest.raises(MemoryError, match="1,000 cells of 1,000,000,000 together"):
        migration.dynamic(np.ones(1_000), np.full(1_000, 1e6), 1e3)


def test_the_largest_or_any_cells_until_they_suffice():
    loads, sizes = np.array([1.0, 2.0, 3.0, 4.0]), np.array([9.0, 1.0, 7.0, 8.0])
    assert migration.largest_first(loads, sizes, 5.0).tolist() == [0, 3]
    for seed in range(5):
        chosen = migration.at_random(loads, sizes, 5.0, seed)
        assert loads[chosen].sum() >= 5.0


def test_queries_are_as_the_groups_say():
    around = usa.objects(3_000, 1)
    counts = np.bincount(around.terms.codes, minlength=len(around.terms.vocabulary))
    frequent = {
        around.terms.vocabulary[int(code)].as_py()
        for code in np.argsort(-counts, kind="stable")[: round(0.01 * np.count_nonzero(counts))]
    }

    def sides(asked):
        _, south, _, north = asked.regions.shape.T
        return (north - south) * 111.2, asked

    for group, widest in (("Q1", 50.0), ("Q2", 100.0)):
        side, asked = sides(subscriptions.queries(around, 400, 3, group))
        assert 0.9 * widest < side.max() <= widest + 1e-6
        said = [{word for group_ in Expression.of(asked.keywords[q]).groups for word in group_} for q in range(400)]
        assert {len(each) for each in said} == {1, 2, 3}
        common = np.mean([each <= frequent for each in said])
        assert common < 0.01 if group == "Q2" else common > 0.03
    assert subscriptions.turned(0).sum() not in (0, 100)
    for times in range(3):
        assert (subscriptions.turned(times) != subscriptions.turned(times + 1)).sum() == 10


@pytest.mark.parametrize("figure", [*ps2stream.FIGURES] if AT_LENGTH else ["6", "12"])
def test_a_tiny_run_has_what_is_judged(figure):
    for panel, found in ps2stream.FIGURES[figure](SMALL).items():
        assert all(ps2stream.CLAIMS[panel].measure in at for points in found.values() for at in points.values())
        assert ps2stream.verdict(panel, found).startswith(panel)
        assert len(ps2stream.table(panel, found).splitlines()) > 2


def test_a_hybrid_index_is_adjusted_where_regions_change():
    history = subscriptions.before(0.05, "Q3")
    first = ps2stream.hybrid(history, ps2stream.statistics_of(history), 4)
    learnt = subscriptions.before(0.05, "Q3", 1)

    made = ps2stream.adjusted(first, learnt, "CM")

    assert made.index.route_objects(learnt[0]).tolist() != first.index.route_objects(learnt[0]).tolist() or (
        made.mapping.tolist() != first.mapping.tolist()
    )


def at(**values):
    return {name: {8.0: {"gi2": value}} for name, value in values.items()}


def test_the_best_of_one_kind_is_judged_by_the_best_of_the_other():
    found = at(frequency=1.0, hypergraph=2.0, metric=1.0) | {"grid": {8.0: {"gi2": 2.9}}}
    found |= {"R-tree": {8.0: {"gi2": 1.0}}, "kd-tree": {8.0: {"gi2": 1.0}}}
    assert ps2stream.judged("6-Q1", found) == ["grid is 1.45 times as good as hypergraph at 8, 1.5 wanted"]
    found["grid"][8.0]["gi2"] = 3.1
    assert ps2stream.judged("6-Q1", found) == []


def test_of_bytes_less_is_better():
    found = {name: {1.0: {"KB": value, "ms": 1.0}} for name, value in (("GR", 9.0), ("SI", 10.0), ("RA", 20.0))}
    assert ps2stream.judged("14", found) == ["GR is 1.11 times as good as SI at 1, 1.25 wanted"]


def test_the_page_says_how_each_figure_came_out():
    text = page.PS2STREAM.read_text()
    assert DOCS.joinpath("paper.md").read_text().endswith(text)
    assert all(f"\n| {figure}" in text for figure in ps2stream.FIGURES)
