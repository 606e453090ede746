"""Tornado's figures (``tests/benchmarks/paper/tornado.py``): what is compared gives the same answers."""

import numpy as np
import pytest

from tests.benchmarks.paper import tornado
from tests.lengths import AT_LENGTH

SMALL = 0.004


def test_looking_at_each_cell_finds_what_the_index_finds():
    history = tornado.before(SMALL)
    index = tornado.built("a-grid", history, 40).index
    asked = tornado.queries(history[0], 300, 1, side=0.05).regions

    found = tornado.scanned(index.table, tornado.cells_of_boxes(index, asked), np.full(40, -1, np.int64))

    assert found == len(index.route_regions(asked)[0])


@pytest.mark.parametrize("figure", ["8", "13"] if AT_LENGTH else ["8"])
def test_all_ways_answer_alike(figure):
    for panel, found in tornado.FIGURES[figure](SMALL).items():
        tornado.judged(panel, found)  # raises otherwise
        assert all(counts["results"] > 0 for points in found.values() for counts in points.values())


def test_an_adjusted_index_spreads_a_stream_that_has_shrunk():
    version = tornado.built("a-grid", tornado.before(0.04))
    comes = tornado.stream(0.02, factor=0.4)

    static, adaptive = (
        np.bincount(each.route_objects(comes[0]), minlength=tornado.SLOTS).max()
        for each in (version, tornado.adapted(version, tornado.before(0.04, 2, 0.4), ("SM", "SH")))
    )

    assert adaptive < 0.7 * static


def test_differing_answers_have_no_verdict():
    counts = {"throughput": 1.0, "digest": 1.0}
    with pytest.raises(AssertionError, match="8a: answers differ at 25"):
        tornado.judged(
            "8a", {"a-grid": {25.0: counts}, "grid": {25.0: counts | {"digest": 2.0}}, "textual": {25.0: counts}}
        )
