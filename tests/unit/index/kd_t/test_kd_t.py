"""The grid^t: which shares objects and CRQs go to."""

from dataclasses import replace

import numpy as np
import pytest

from spatialstream.index.a_grid.a_grid import AGrid
from spatialstream.index.kd_t.frequencies import Frequencies
from spatialstream.index.kd_t.kd_t import KdT
from spatialstream.index.statistics import Statistics
from spatialstream.model.errors import StateError
from spatialstream.model.kinds import CODE
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import Everything, Lifetime, Predicate, Query, QueryBatch
from spatialstream.model.regions import Box
from spatialstream.model.terms import TermLists
from tests.unit.index.samples import HASHES, PLANE, WORDS, obj, query

SIDE = 4
FREQUENT = Frequencies.of(TermLists.of(["abcd", "abc", "ab", "a"]))
"""``a`` is in most objects, ``d`` in one; ``e`` to ``h`` are unknown."""


def tree(west: dict[str, int], shares: int = 3) -> KdT:
    """The plane in two cells; the western one has shares, to which words were dealt."""
    rectangles = np.array([[0, 0, 2, SIDE], [2, 0, SIDE, SIDE]], np.int32)
    known = sorted((int(HASHES[WORDS.index(word)]), share) for word, share in west.items())
    words, dealt = np.array([each[0] for each in known], np.uint64), np.array([each[1] for each in known], np.int32)
    table = np.array([0, shares, shares + 1], np.int32), np.array([0, len(known), len(known)], np.int64)
    cells = AGrid(PLANE, rectangles, np.zeros(2), np.zeros(2), SIDE)
    n = shares + 1
    return KdT(cells, *table, words, dealt, FREQUENT, np.zeros(n), np.ones(n))


DEALT = tree({"a": 0, "b": 1, "c": 2, "d": 1})
WEST, BOTH = Box(0.1, 0.1, 0.9, 0.9), Box(1.0, 1.0, 3.0, 3.0)


def crq(region, *groups: str, none: str = "") -> QueryBatch:
    keywords, some = (tuple(groups[0]), ()) if len(groups) == 1 else ((), tuple(tuple(each) for each in groups))
    predicate = Predicate(region, keywords, some, tuple(none))
    return QueryBatch.of([Query("q", 0, predicate, Everything(), Lifetime(1000, True))])


@pytest.mark.parametrize(
    ("asked", "leaves"),
    [
        (crq(WEST, "a"), [0]),
        (crq(WEST, "abc"), [2]),  # c is the rarest
        (crq(WEST, "abcd"), [1]),
        (crq(BOTH, "b"), [1, 3]),
        (crq(WEST, "a", "b"), [0, 1]),
        (crq(WEST, "ac", "bc"), [2]),
        (crq(WEST, ""), [0, 1, 2]),
        (crq(BOTH, "", none="a"), [0, 1, 2, 3]),
        (QueryBatch.of([query("SRQ", WEST, "a")]), [0, 1, 2]),
        (QueryBatch.of([query("CTQ", WEST)]), [0, 1, 2]),
    ],
)
def test_a_crq_is_registered_by_the_rarest_word_of_each_group_and_others_by_space(asked, leaves):
    assert DEALT.route_queries(asked)[1].tolist() == leaves


def test_a_word_that_was_not_dealt_has_a_share_by_its_hash():
    for word in "efgh":
        share = int(HASHES[WORDS.index(word)] % np.uint64(3))
        assert DEALT.route_queries(crq(WEST, word))[1].tolist() == [share]


def test_an_object_comes_where_its_words_are_and_with_a_filter_where_they_are_asked_for():
    batch = ObjectBatch.of([obj("o", 0.5, 0.5, "abc"), obj("o", 3.5, 0.5, "abc"), obj("p", 0.5, 0.5)])
    home = DEALT.route_objects(batch).tolist()
    assert home[1] == 3

    def all_leaves(words=None):
        row, leaf = DEALT.copies(batch, words)
        return [sorted({home[i], *leaf[row == i].tolist()}) for i in range(3)]

    assert all_leaves() == [[0, 1, 2], [3], [home[2]]]
    assert all_leaves(DEALT.registered(crq(WEST, "d"))) == [[home[0]], [3], [home[2]]]
    assert all_leaves(DEALT.registered(crq(WEST, "bc"))) == [sorted({home[0], 2}), [3], [home[2]]]
    both = QueryBatch.concat([crq(WEST, "a"), crq(BOTH, "c")])
    assert all_leaves(DEALT.registered(both)) == [sorted({home[0], 0, 2}), [3], [home[2]]]


def test_homes_are_spread_over_the_shares_of_a_cell():
    batch = ObjectBatch.of([obj(f"o{i}", 0.5, 0.5, "a") for i in range(300)])

    counts = np.bincount(DEALT.route_objects(batch), minlength=4)

    assert counts[:3].min() > 70
    assert counts[3] == 0


def test_the_first_group_that_the_object_satisfies_reports():
    asked = crq(WEST, "ac", "b", "d")
    for terms, leaf in (("abcd", 2), ("abd", 1), ("b", 1), ("d", 1), ("ac", 2)):
        batch = ObjectBatch.of([obj("o", 0.5, 0.5, terms)])
        assert DEALT.reporter(batch, np.zeros(1, np.int32), asked.keywords, np.zeros(1, np.int32)).tolist() == [leaf]


def test_of_the_crqs_of_a_cell_each_share_has_its_part():
    sample = ObjectBatch.of([obj(f"o{i}", 0.5, 0.5, "a", t=i) for i in range(9)])
    asked = QueryBatch.concat([crq(WEST, "a"), QueryBatch.of([query("STQ", WEST)])])
    statistics = Statistics.of(PLANE, sample, asked, 9.0, levels=2)

    figures = DEALT.by_leaf(statistics, statistics.reached)

    assert figures[CODE["CRQ"], :3].tolist() == [1 / 3] * 3
    assert figures[CODE["STQ"], :3].tolist() == [1.0] * 3
    assert DEALT.composition().counts == {"cells": 2, "shares": 3}


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("first", np.array([0, 3], np.int32), "as many runs of shares"),
        ("first", np.array([0, 0, 4], np.int32), "each cell of a kd-t has a share"),
        ("words.shares", np.array([0, 1, 3, 1], np.int32), "share of its cell"),
        ("words", np.zeros(4, np.uint64), "ascend by hash"),
        ("leaves.load", np.zeros(3), "as many numbers of objects and loads"),
        ("rectangles", np.array([[0, 0, 2, 4], [1, 0, 4, 4]], np.int32), "overlap"),
    ],
)
def test_arrays_that_are_not_those_of_a_tree_are_refused(name, value, said):
    arrays, meta = DEALT.to_arrays()

    with pytest.raises(StateError, match=said):
        KdT.from_arrays({**arrays, name: value}, meta)


def test_a_tree_without_shares_is_its_cells():
    plain = tree({}, shares=1)
    batch = ObjectBatch.of([obj(f"o{i}", x, 1.0, "abc") for i, x in enumerate((0.0, 1.9, 2.0, 4.0))])

    assert plain.route_objects(batch).tolist() == [0, 0, 1, 1]
    assert plain.copies(batch)[0].tolist() == []
    assert not plain.leaves.textual.any()
    assert replace(plain.leaves, load=plain.leaves.load).box.tolist() == [[0, 0, 2, 4], [2, 0, 4, 4]]
