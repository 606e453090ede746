"""What might make splits by text pay (``make paper FIG=text``): its data sets, its trees, its counts, and its table."""

from dataclasses import replace

import numpy as np
import pytest

from spatialstream.model.hashing import hash_strings
from tests.benchmarks.paper import counting, text, workloads
from tests.benchmarks.paper.page import Judged
from tests.benchmarks.paper.specs import FIGURES
from tests.benchmarks.paper.systems import LEARNT, METHODS, Key, System, history

FIGURE = FIGURES["text"]
KEY = Key("TW", 6_000, "QT-tree", 16, 4, 0.0, 72.0, "SRQ-wide", 0)


# ---------------------------------------------------------------------------------------------------------- workloads


def said(objects):
    """Numbers of the words of each object."""
    return [[int(word[1:]) for word in words] for words in objects.terms]


def test_stop_words_are_in_no_object():
    usual, without = (said(workloads.objects(data, 3_000, 1)) for data in ("TW", "TW-no-stop"))

    assert min(map(min, usual)) == 0
    assert min(map(min, without)) >= workloads.STOP
    assert list(map(len, without)) == list(map(len, usual))
    assert all(len(set(words)) == len(words) for words in without)


def test_languages_have_no_word_in_common_and_places_have_three():
    objects = workloads.objects("TW-languages", 20_000, 1)
    spoken = [{word % workloads.LANGUAGES for word in words} for words in said(objects)]
    strip = ((objects.x + 180.0) // 45.0).astype(int)

    assert all(len(each) == 1 for each in spoken)
    ahead = (np.array([each.pop() for each in spoken]) - strip) % workloads.LANGUAGES
    assert np.bincount(ahead, minlength=8) / len(ahead) == pytest.approx([0.6, 0.25, 0.15, 0, 0, 0, 0, 0], abs=0.02)


@pytest.mark.parametrize(
    ("kind", "types", "lengths"), [("SRQ-wide", {"SRQ"}, {1}), ("SKQ-words", {"SKQ"}, {1, 2, 3}), ("SRQ", {"SRQ"}, {1})]
)
def test_histories_of_one_type(kind, types, lengths):
    queries = history("TW", 2_000, 1, kind)[1]

    assert {str(query.type) for query in queries} == types
    assert set(np.diff(queries.keywords.offsets).tolist()) == lengths


# -------------------------------------------------------------------------------------------------------------- trees


def textual(method, **more):
    """How many leaves are below splits by text."""
    key = replace(KEY, method=method, **more)
    tree = METHODS[method](*history(key.data, key.objects, key.seed, key.history), key.leaves, key.slots)
    return int(tree.index.leaves.textual.sum())


def test_another_estimate_is_of_its_own_trees_alone():
    before = textual("QT-tree")
    textual("In-sample")
    textual("Eager")

    assert textual("QT-tree") == before


def test_a_threshold_keeps_from_splits_by_text():
    assert textual("Eager", history="SKQ-words") > textual("QT-tree", history="SKQ-words")


def test_lists_learn_the_words_of_what_they_route():
    key = replace(KEY, method="Text", objects=2 * LEARNT + 100)
    before, queries = history(key.data, key.objects, key.seed, key.history)
    frozen, learning = (METHODS[name](before, queries, 16, 4).index for name in ("Text", "Learning"))
    objects = workloads.objects("TW", key.objects, 1)
    first = frozen.route_objects(objects)
    mask, held = frozen.texts.mask.copy(), frozen.texts.objects.copy()
    assert np.array_equal(learning.texts.mask, mask)

    leaf = learning.route_objects(objects)

    assert np.array_equal(first[:LEARNT], leaf[:LEARNT])
    assert not np.array_equal(first, leaf)
    assert np.array_equal(frozen.route_objects(objects), first)
    assert np.array_equal(frozen.texts.mask, mask)
    texts = learning.texts
    assert ((texts.mask & mask) == mask).all()
    assert texts.objects[0].sum() == held[0].sum() + len(objects)
    path = learning.textual_paths()[leaf[7]]
    known = {int(word): i for i, word in enumerate(learning.dictionary)}
    heard = [known[word] for word in hash_strings(objects.take(np.array([7])).terms.compact().vocabulary).tolist()
             if word in known]  # fmt: skip
    assert heard
    for row, child in path:
        assert all(texts.mask[row, word] >> child & 1 for word in heard)
    bits = (texts.mask[0] >> 2) & 1
    assert texts.mass[0, 2].tolist() == texts.chance[texts.cell[0]][bits == 1].astype(np.int64).sum(axis=0).tolist()


# ------------------------------------------------------------------------------------------------------------- counts


@pytest.mark.parametrize("method", ["QT-tree", "Text"])
def test_what_routing_reaches_is_what_is_asked(method):
    system = System(replace(KEY, method=method))
    queries = workloads.queries(system.objects, {"SRQ": 50}, 3, region=(1.0, 1.0))
    asked = counting.snapshot(system, queries, tries=1)

    routed = counting.snapshot(system, queries, "routed")

    for name in ("leaves", "covering", "visited", "visited_slowest", "slots"):
        assert routed[name] == pytest.approx(asked[name])
    assert routed["coverage"] == pytest.approx(routed["covering"] / routed["leaves"])
    assert 0 < routed["longest_leaf"] <= routed["longest_slot"] <= routed["visited"]


def test_the_longest_leaf_is_that_of_each_query():
    system = System(KEY)
    queries = workloads.queries(system.objects, {"SRQ": 20}, 3, region=(1.0, 1.0))
    longest, slowest = [], []
    for i in range(len(queries)):
        one = queries.take(np.array([i]))
        row, leaf = system.version.index.route_regions(one.regions)
        held = system.held[leaf] * counting.covers(system, one, row, leaf)
        longest.append(held.max())
        slowest.append(np.bincount(system.version.mapping[leaf], held).max())

    routed = counting.routed(system, queries)

    assert routed["longest_leaf"] == pytest.approx(np.mean(longest))
    assert routed["longest_slot"] == pytest.approx(np.mean(slowest))


# -------------------------------------------------------------------------------------------------------------- table


def judged(**changed):
    """The figure, with the same counts everywhere but for some panels' trees with splits by text."""
    usual = dict.fromkeys(("visited", "covering", "slots", "scan", "coverage", "longest_leaf"), 100.0)
    usual |= {"longest_slot": 300.0, "tree_textual": 8.0, "tree_leaves": 64.0}
    counts = {
        panel.name: {
            series: {x: usual | (changed.get(panel.name.split()[-1], {}) if series == panel.series[0] else {})
                     for x in panel.xs}
            for series in panel.series
        }
        for panel in FIGURE.panels
    }  # fmt: skip
    return Judged(FIGURE, counts, {}, "")


def verdicts(found):
    """By panel."""
    rows = [line.split(" | ") for line in text.section(found).splitlines() if line.startswith("| ")]
    return {row[0][2:]: row[-1][:-2] for row in rows if row[-1].startswith(("as", "**"))}


def test_every_experiment_has_a_verdict():
    assert list(text.HOLDS) == [panel.name for panel in FIGURE.panels] == list(verdicts(judged()))


@pytest.mark.parametrize(
    ("panel", "counts", "expected"),
    [
        ("estimator", {"visited": 120.0}, True),
        ("estimator", {"visited": 90.0}, False),
        ("estimator", {"visited": 120.0, "tree_textual": 0.0}, False),
        ("mix", {"visited": 80.0, "slots": 110.0}, True),
        ("mix", {"visited": 80.0}, False),
        ("mix", {"visited": 40.0, "slots": 110.0}, False),
        ("regions", {"visited": 90.0}, True),
        ("regions", {"visited": 50.0}, False),
        ("words", {"visited": 90.0}, True),
        ("words", {"visited": 50.0}, False),
        ("languages", {"visited": 70.0}, True),
        ("languages", {"visited": 90.0}, False),
        ("measure", {"visited": 90.0, "scan": 88.0}, True),
        ("measure", {"visited": 90.0, "scan": 60.0}, False),
        ("fan-out", {"longest_leaf": 90.0}, True),
        ("fan-out", {"longest_leaf": 20.0}, False),
    ],
)
def test_the_verdict_on_an_experiment(panel, counts, expected):
    found = verdicts(judged(**{panel: counts}))

    (name,) = (each.name for each in FIGURE.panels if each.name.split()[-1] == panel)
    assert (found[name] == "as expected") == expected


def test_the_largest_gain_is_told():
    assert "a factor of 2.00\n(*data: no stop words*)" in text.section(judged(words={"visited": 50.0}))
