"""Splits and merges without objects: origins of leaves, unchanged routing elsewhere, and keyword lists from J."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spatialstream.index.qt.construction import DEEPEST, SPLITS, build_tree
from spatialstream.index.qt.editor import TreeEditor
from spatialstream.index.qt.tree import SPATIAL, TEXTUAL
from spatialstream.index.qt.wordlists import split_words
from spatialstream.index.statistics import SKQ, SRQ, Statistics
from spatialstream.model.hashing import hash_strings
from spatialstream.model.kinds import TYPES
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import QueryBatch
from spatialstream.model.regions import Box
from tests.unit.index.qt.test_construction import HASHES
from tests.unit.index.samples import (
    PLANE,
    adjust_at_random,
    carry_queries,
    leaf_nodes,
    merge,
    obj,
    objects,
    query,
    samples,
    spaces,
    split,
    trees,
)

EVERYWHERE = Box(0.0, 0.0, 4.0, 4.0)
NO_OBJECTS = ObjectBatch.of([])


def one_leaf(sample=NO_OBJECTS, asked=(), levels=2):
    """A tree of one leaf, and J."""
    statistics = Statistics.of(PLANE, sample, QueryBatch.of(list(asked)), 1000.0, levels)
    return build_tree(sample, 1, statistics), statistics


@st.composite
def adjustments(draw, space):
    """A tree, J, and the tree after a few splits and merges."""
    tree = draw(trees(space, SPLITS))
    statistics = Statistics.of(space, *draw(samples(space)), 1000.0, levels=2)
    editor = TreeEditor(tree, statistics)
    adjust_at_random(draw, editor)
    return tree, statistics, editor, editor.finish()


# ---------------------------------------------------------------------------------------------------------any of them


@given(st.data(), spaces)
def test_every_object_is_carried_over_once(data, space):
    tree, _, _, done = data.draw(adjustments(space))
    counts = np.arange(1.0, len(tree.leaves) + 1)

    carried = done.origins.carry_objects(counts)

    assert len(carried) == len(done.tree.leaves)
    assert carried.sum() == pytest.approx(counts.sum())
    assert np.bincount(done.origins.source, done.origins.objects) == pytest.approx(np.ones(len(tree.leaves)))
    assert (done.origins.objects >= 0).all()
    assert done.tree.leaves.objects.sum() == pytest.approx(tree.leaves.objects.sum())


@given(st.data(), spaces)
def test_a_leaf_comes_from_the_leaves_that_it_overlaps(data, space):
    tree, _, _, done = data.draw(adjustments(space))
    new, old = done.tree.leaves.box[done.origins.leaf], tree.leaves.box[done.origins.source]

    low, high = np.maximum(new[:, :2], old[:, :2]), np.minimum(new[:, 2:], old[:, 2:])

    assert (low < high).all()


@given(st.data(), spaces)
def test_objects_go_where_their_old_leaf_went(data, space):
    tree, _, _, done = data.draw(adjustments(space))
    batch = data.draw(objects(space, 30))
    pairs = set(zip(done.origins.leaf.tolist(), done.origins.source.tolist(), strict=True))

    before, after = tree.route_objects(batch).tolist(), done.tree.route_objects(batch).tolist()

    assert pairs.issuperset(zip(after, before, strict=True))


@given(st.data(), spaces)
def test_untouched_leaves_keep_exactly_their_objects(data, space):
    tree, _, _, done = data.draw(adjustments(space))
    batch = data.draw(objects(space, 30))
    origins = done.origins
    single = np.bincount(origins.leaf, minlength=origins.leaves)[origins.leaf] == 1
    whole = single & (np.bincount(origins.source)[origins.source] == 1)
    renamed = dict(zip(origins.source[whole].tolist(), origins.leaf[whole].tolist(), strict=True))

    before, after = tree.route_objects(batch).tolist(), done.tree.route_objects(batch).tolist()

    for old, new in zip(before, after, strict=True):
        assert renamed.get(old, new) == new
        assert (new in renamed.values()) == (old in renamed)


@given(st.data(), spaces)
def test_loads_while_editing_are_those_of_the_finished_tree(data, space):
    tree, statistics, editor, done = data.draw(adjustments(space))
    counts, rate = np.arange(1.0, len(tree.leaves) + 1), np.linspace(0.0, 1.0, len(tree.leaves))

    loads = editor.loads(editor.leaf_order(), counts, rate)

    cells = statistics.cells_of(done.tree.leaves.box)
    h = done.tree.coverage(statistics, cells)
    carried = done.origins.carry_objects(counts), done.origins.carry_objects(rate)
    assert loads == pytest.approx(statistics.workloads(cells, *carried, h))
    # where it was counted that leaves are asked so many times what J says, new ones are too
    factor = np.arange(1.0, len(TYPES) + 1)[:, np.newaxis]
    before, after = (statistics.asked(statistics.cells_of(each.leaves.box)) for each in (tree, done.tree))
    asked = done.origins.carry_asked(factor * before, before, after)
    known = np.array([done.origins.carry_objects(of_type) for of_type in before]) > 0.0
    assert asked == pytest.approx(np.where(known, factor * after, 0.0))
    counted = editor.loads(editor.leaf_order(), counts, rate, factor * before)
    assert counted == pytest.approx(statistics.workloads(cells, *carried, h, asked))


@given(st.data(), spaces)
def test_a_split_that_is_merged_again_changes_nothing(data, space):
    tree, batch = data.draw(trees(space, SPLITS)), data.draw(objects(space, 30))
    statistics = Statistics.of(space, *data.draw(samples(space)), 1000.0, levels=2)
    editor = TreeEditor(tree, statistics)
    leaf = data.draw(st.sampled_from(editor.leaf_order()))

    editor.split(leaf, data.draw(st.sampled_from([SPATIAL, TEXTUAL])))
    editor.merge(leaf)
    done = editor.finish()

    assert done.tree.route_objects(batch).tolist() == tree.route_objects(batch).tolist()
    assert done.tree.leaves.box.tolist() == tree.leaves.box.tolist()
    assert done.tree.leaves.textual.tolist() == tree.leaves.textual.tolist()
    assert done.origins.source.tolist() == done.origins.leaf.tolist() == list(range(len(tree.leaves)))
    assert done.origins.objects == pytest.approx(1.0)
    assert done.origins.queries == pytest.approx(1.0)


def test_nodes_of_a_merge_are_used_again():
    tree, statistics = one_leaf()
    for _ in range(3):
        tree = split(tree, 0, statistics, SPATIAL).tree
    size = len(tree.nodes.kind)
    for _ in range(5):
        tree = merge(tree, TreeEditor(tree, statistics).mergeable()[0], statistics).tree
        tree = split(tree, 0, statistics, TEXTUAL).tree

    assert len(tree.nodes.kind) == size


def test_what_cannot_be_done_is_told():
    tree, statistics = one_leaf()
    for _ in range(DEEPEST):
        tree = split(tree, 0, statistics, SPATIAL).tree

    editor = TreeEditor(tree, statistics)
    assert not editor.can_split(int(leaf_nodes(tree)[0]))
    assert len(split(tree, 20, statistics, SPATIAL).tree.leaves) == 64
    assert not editor.can_merge(0)


# ------------------------------------------------------------------------------------------------------------- by space


def test_quarters_get_the_objects_that_j_counted_in_them():
    sample = ObjectBatch.of([obj(f"o{i}", x, y) for i, (x, y) in enumerate([(1, 1), (1, 1), (3, 1), (3, 3)])])
    tree, statistics = one_leaf(sample, [query("CRQ", Box(0.1, 0.1, 0.2, 0.2))] * 3 + [query("CRQ", Box(0, 0, 3, 1))])

    done = split(tree, 0, statistics, SPATIAL)

    assert done.tree.leaves.box.tolist() == [[0, 0, 2, 2], [2, 0, 4, 2], [0, 2, 2, 4], [2, 2, 4, 4]]
    assert done.origins.carry_objects(np.array([100.0])).tolist() == [50.0, 25.0, 0.0, 25.0]
    assert carry_queries(done.origins, np.array([8.0])).tolist() == [8.0, 2.0, 0.0, 0.0]


def test_below_j_quarters_get_equal_shares():
    sample = ObjectBatch.of([obj("o", 0.1, 0.1)])
    tree, statistics = one_leaf(sample, [query("CRQ", EVERYWHERE)], levels=0)

    done = split(tree, 0, statistics, SPATIAL)

    assert done.origins.objects.tolist() == [0.25] * 4
    assert done.origins.queries.tolist() == [1.0] * 4


def test_a_merge_counts_queries_once():
    asked = [query("CRQ", EVERYWHERE)] * 6 + [query("CRQ", Box(0.1, 0.1, 0.2, 0.2))] * 4
    tree, statistics = one_leaf(asked=asked)
    tree = split(tree, 0, statistics, SPATIAL).tree

    done = merge(tree, 0, statistics)

    assert done.origins.carry_objects(np.array([1.0, 2.0, 3.0, 4.0])).tolist() == [10.0]
    assert carry_queries(done.origins, np.array([10.0, 6.0, 6.0, 6.0])) == pytest.approx([10.0])


# -------------------------------------------------------------------------------------------------------------- by text


def test_the_words_of_queries_are_dealt_to_four_lists():
    asked = [query("SRQ", EVERYWHERE, word) for word in "aabbccddef"]
    _, statistics = one_leaf(asked=asked)

    made = split_words(statistics, 0, ())

    words = [{word for word in "abcdef" if HASHES[word] in statistics.terms[listed].tolist()} for listed in lists(made)]
    assert sorted(len(each) for each in words) == [1, 1, 2, 2]
    assert set.union(*words) == set("abcdef")
    assert sum(len(each) for each in words) == 6
    assert not any({"e", "f"} <= each for each in words)
    assert made.share.sum() == pytest.approx(1.0)


def lists(made):
    return [made.lists.term[(made.lists.bits >> child) & 1 == 1] for child in range(4)]


def test_a_word_that_outweighs_all_others_is_in_every_list():
    asked = [query("SRQ", EVERYWHERE, "a")] * 99 + [query("SRQ", EVERYWHERE, "b")]
    _, statistics = one_leaf(asked=asked)

    made = split_words(statistics, 0, ())

    of_a = statistics.terms.tolist().index(HASHES["a"])
    assert [of_a in listed for listed in lists(made)] == [True] * 4
    assert sorted(len(listed) for listed in lists(made)) == [1, 1, 1, 2]


def test_objects_follow_their_words_and_others_are_spread():
    asked = [query("SRQ", EVERYWHERE, word) for word in "abcd"]
    tree, statistics = one_leaf(asked=asked)
    tree = split(tree, 0, statistics, TEXTUAL).tree

    batch = ObjectBatch.of([obj(f"o{i}", 1.0, 1.0, word) for i in range(50) for word in "abcd"])
    leaf = tree.route_objects(batch).reshape(50, 4)
    plain = tree.route_objects(ObjectBatch.of([obj(f"o{i}", 1.0, 1.0, "h") for i in range(400)]))

    assert (leaf == leaf[0]).all()
    assert sorted(leaf[0].tolist()) == [0, 1, 2, 3]
    assert np.bincount(plain, minlength=4).min() > 70
    assert tree.leaves.textual.all()


def test_nested_lists_share_out_the_words_of_their_own_list():
    asked = [query("SRQ", EVERYWHERE, word) for word in "abcdefgh" for _ in range(3)]
    tree, statistics = one_leaf(asked=asked)
    tree = split(tree, 0, statistics, TEXTUAL).tree
    first = leaf_nodes(tree)[0]
    tree = split(tree, 0, statistics, TEXTUAL).tree

    batch = ObjectBatch.of([obj(word, 1.0, 1.0, word) for word in "abcdefgh"])
    leaf = tree.route_objects(batch)

    assert tree.nodes.kind[first] == TEXTUAL
    assert np.bincount(leaf, minlength=7)[:4].tolist().count(1) == 2  # two words had the first list, now apart
    h = tree.coverage(statistics, np.zeros(7, np.int64))[:, SRQ]
    assert h.tolist() == (np.bincount(leaf, minlength=7) / 8).tolist()


@pytest.mark.parametrize("words", [1, 3, 8])
def test_shares_of_a_textual_split_come_out_about_equal(words):
    rng = np.random.default_rng(words)

    def zipf_words(n):
        return tuple({f"w{int(rank)}" for rank in np.exp(rng.random(n) * np.log(2000))})

    asked = [query("SRQ", EVERYWHERE, zipf_words(2)) for _ in range(1000)]
    tree, statistics = one_leaf(asked=asked)
    tree = split(tree, 0, statistics, TEXTUAL).tree

    batch = ObjectBatch.of([SpatialObject(f"o{i}", 0, 1.0, 1.0, zipf_words(words)) for i in range(4000)])
    counts = np.bincount(tree.route_objects(batch), minlength=4)

    assert counts.max() < 0.32 * 4000
    assert counts.min() > 0.18 * 4000


def test_without_words_ids_decide():
    tree, statistics = one_leaf(asked=[query("CRQ", EVERYWHERE)])
    tree = split(split(tree, 0, statistics, TEXTUAL).tree, 0, statistics, TEXTUAL).tree

    counts = np.bincount(tree.route_objects(ObjectBatch.of([obj(f"o{i}", 1, 1, "ab") for i in range(1600)])))

    assert len(counts) == 7
    assert counts[:4].min() > 60
    assert counts[4:].min() > 330


def test_new_words_do_not_change_how_old_nodes_route():
    rng = np.random.default_rng(1)
    sample = ObjectBatch.of([obj(f"o{i}", *(rng.random(2) * 4), "abcdefgh"[i % 7 :]) for i in range(300)])
    statistics = Statistics.of(PLANE, sample, QueryBatch.of([query("SRQ", EVERYWHERE, "ab")] * 9), 1.0, 2)
    tree = build_tree(sample, 16, statistics, {"textual"})
    today = Statistics.of(PLANE, sample, QueryBatch.of([query("SRQ", EVERYWHERE, "efgh")] * 9), 1.0, 2)

    done = split(tree, 15, today, TEXTUAL)

    before, after = tree.route_objects(sample), done.tree.route_objects(sample)
    assert done.tree.dictionary.size > tree.dictionary.size
    assert after[before < 15].tolist() == before[before < 15].tolist()


def test_a_tree_of_thousands_of_leaves_stays_small_on_the_wire():
    rng = np.random.default_rng(3)
    asked = []
    for i in range(3000):
        x, y = rng.random(2) * 3.9
        asked.append(query("SRQ", Box(x, y, x + 0.1, y + 0.1), [f"w{i % 1500}", f"w{rng.integers(0, 50)}"]))
    tree, statistics = one_leaf(asked=asked, levels=5)
    editor = TreeEditor(tree, statistics)
    for level in range(6):
        for leaf in editor.leaf_order():
            editor.split(leaf, SPATIAL if level < 4 else TEXTUAL)
    tree = editor.finish().tree

    arrays, _ = tree.to_arrays()

    assert (len(tree.leaves), len(tree.texts.cell)) == (4096, 1280)
    assert tree.texts.mask.nbytes + tree.texts.chance.nbytes > 15_000_000
    assert sum(array.nbytes for array in arrays.values()) < 2_000_000


# ------------------------------------------------------------------------------------------------------------coverage


@settings(max_examples=50)
@given(st.data(), spaces)
def test_coverage_against_plain_python(data, space):
    tree = data.draw(trees(space, SPLITS))
    statistics = Statistics.of(space, *data.draw(samples(space)), 1000.0, levels=2)
    cells = statistics.cells_of(tree.leaves.box)

    found = tree.coverage(statistics, cells)

    column = {int(term): i for i, term in enumerate(tree.dictionary)}
    parent = {first + i: node for node, first in enumerate(tree.nodes.child.tolist()) if first >= 0 for i in range(4)}
    for leaf, node in enumerate(leaf_nodes(tree).tolist()):
        held = dict.fromkeys(statistics.terms.tolist(), True)
        while node:
            above = parent[node]
            if tree.nodes.kind[above] == TEXTUAL:
                mask, child = tree.texts.mask[tree.nodes.row[above]], node - tree.nodes.child[above]
                for term in held:
                    bits = int(mask[column[term]]) if term in column else 0
                    held[term] &= bits == 0 or bool(bits >> child & 1)
            node = above
        for kind in (SRQ, SKQ):
            chance = statistics.keyword_distribution(int(cells[leaf]), kind)
            expected = sum(p for p, holds in zip(chance, held.values(), strict=True) if holds)
            if not tree.leaves.textual[leaf] or not chance.any():
                expected = 1.0
            assert found[leaf, kind] == pytest.approx(expected)


def test_the_dictionary_is_that_of_the_table():
    rng = np.random.default_rng(6)
    sample = ObjectBatch.of([obj(f"o{i}", *(rng.random(2) * 4), "abcdefgh"[i % 7 :]) for i in range(300)])
    statistics = Statistics.of(PLANE, sample, QueryBatch.of([query("SRQ", EVERYWHERE, "abc")]), 1.0, 2)
    tree = build_tree(sample, 16, statistics, {"textual"})

    assert sorted(tree.dictionary.tolist()) == sorted(HASHES[word] for word in "abc")
    assert len(hash_strings(sample.terms.vocabulary)) > 3
