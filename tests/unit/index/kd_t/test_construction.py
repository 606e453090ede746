"""Algorithm 1: where text divides and where space does, how words are dealt, and which leaves share a slot."""

import numpy as np
import pytest

from spatialstream.balance.planner import MEASURED
from spatialstream.index.kd_t.construction import EVEN, SIMILAR, lacking, place_kd_t
from spatialstream.index.kd_t.dealing import Part, deal
from spatialstream.index.kd_t.frequencies import Frequencies
from spatialstream.index.kd_t.merging import merged
from spatialstream.index.kd_t.workload import ENTRY, MATCH, NO_WORD, OBJECT, Workload
from spatialstream.index.partition import imbalance
from spatialstream.index.statistics import Statistics
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import Everything, Lifetime, Predicate, Query, QueryBatch
from spatialstream.model.regions import Box
from tests.unit.index.samples import PLANE, query

SIDE = 64
SLOTS = 4


def crq(i: int, x: float, y: float, reach: float, *words: str) -> Query:
    box = Box(max(0.0, x - reach), max(0.0, y - reach), min(4.0, x + reach), min(4.0, y + reach))
    return Query(f"q{i}", 0, Predicate(box, words), Everything(), Lifetime(10**6, True))


def made(where: str, n: int = 1_500) -> tuple[ObjectBatch, QueryBatch]:
    """Objects of common words and rare ones. Queries are narrow and ask for common words (as Q1 of the paper), wide and
    ask for rare ones (Q2), or the former in the west and the latter elsewhere (Q3)."""
    rng = np.random.default_rng(1)
    common, rare = [f"c{i}" for i in range(30)], [f"r{i}" for i in range(400)]
    objects, queries = [], []
    for i in range(n):
        x, y = (4.0 * rng.random(2)).tolist()
        objects.append(SpatialObject(f"o{i}", i, x, y, (*rng.choice(common, 4, replace=False), rng.choice(rare))))
        narrow = where == "narrow" or (where == "both" and x < 1.0)
        if narrow:
            queries.append(crq(i, x, y, 0.05, *rng.choice(common, 2, replace=False)))
        else:
            queries.append(crq(i, x, y, 1.5, rng.choice(rare[:20])))
    return ObjectBatch.of(objects), QueryBatch.of(queries)


def statistics(objects: ObjectBatch, queries: QueryBatch) -> Statistics:
    return Statistics.of(PLANE, objects, queries, float(len(objects)))


def workload(where: str) -> Workload:
    objects, queries = made(where)
    return Workload.of(objects, statistics(objects, queries), Frequencies.of(objects.terms), SIDE)


@pytest.mark.parametrize(("where", "textual"), [("narrow", False), ("wide", True)])
def test_space_divides_narrow_queries_of_common_words_and_text_wide_ones_of_rare_words(where, textual):
    objects, queries = made(where)

    index, mapping = place_kd_t(objects, 64, statistics(objects, queries), SLOTS, SIDE)

    assert index.leaves.textual.all() if textual else not index.leaves.textual.any()
    assert set(mapping.tolist()) == set(range(SLOTS))
    loads = np.bincount(mapping, index.leaves.load, SLOTS)
    assert imbalance(loads) <= 1.5 * EVEN
    assert index.leaves.objects.sum() == len(objects)


def test_words_that_queries_share_with_few_objects_are_not_dealt_if_cells_cost_less():
    """The paper's Algorithm 1 would deal them: the words of objects and queries differ, on both sides of any cut."""
    objects, _ = made("narrow")
    around = zip(objects.x.tolist(), objects.y.tolist(), strict=True)
    queries = QueryBatch.of([crq(i, x, y, 0.05, f"r{i % 20}") for i, (x, y) in enumerate(around)])
    load = Workload.of(objects, statistics(objects, queries), Frequencies.of(objects.terms), SIDE)
    assert load.similarity(np.arange(len(load.rate)), np.arange(len(load.entry))) < SIMILAR

    index, _ = place_kd_t(objects, SLOTS, statistics(objects, queries), SLOTS, SIDE)

    assert not index.leaves.textual.any()
    dealt = deal(load, np.arange(len(load.rate)), np.arange(len(load.entry)), SLOTS)
    assert index.leaves.load.sum() < dealt.load


def test_both_in_one_stream_are_divided_each_in_its_own_way():
    objects, queries = made("both", 3_000)

    index, _ = place_kd_t(objects, 64, statistics(objects, queries), SLOTS, SIDE)

    west, *_ = index.leaves.box[index.leaves.textual].T
    assert len(west)
    assert (west >= 1.0).mean() > 0.5, "where rare words are asked for"
    assert not index.leaves.textual.all()


@pytest.mark.parametrize("leaves", [1, 2, 7, 30])
@pytest.mark.parametrize("slots", [1, 3, 8])
def test_there_are_as_many_leaves_as_wanted_at_most_and_one_for_each_slot_if_they_suffice(leaves, slots):
    objects, queries = made("both")

    index, mapping = place_kd_t(objects, leaves, statistics(objects, queries), slots, SIDE)

    assert min(leaves, slots) <= len(index.leaves) <= leaves
    assert mapping.shape == (len(index.leaves),)
    assert ((mapping >= 0) & (mapping < slots)).all()


def test_the_same_sample_in_another_order_makes_the_same_tree():
    objects, queries = made("both")
    shuffled = objects.take(np.random.default_rng(3).permutation(len(objects)))

    one, other = (place_kd_t(each, 20, statistics(each, queries), SLOTS, SIDE) for each in (objects, shuffled))

    assert one[0].cells.rectangles.tolist() == other[0].cells.rectangles.tolist()
    assert one[0].sizes.tolist() == other[0].sizes.tolist()


def test_shares_have_all_objects_with_their_words_and_all_entries_once():
    work = workload("wide")
    objects, entries = np.arange(len(work.rate)), np.arange(len(work.entry))

    dealt = deal(work, objects, entries, 3)

    assert np.sort(np.concatenate([part.entries for part in dealt.parts])).tolist() == entries.tolist()
    terms = [set(work.terms[1][work.terms[0][o] : work.terms[0][o + 1]].tolist()) for o in objects.tolist()]
    for share, part in enumerate(dealt.parts):
        words = set(work.word[part.entries].tolist())
        home = work.ids % np.uint64(3) == share
        assert part.objects.tolist() == [o for o in objects.tolist() if home[o] or terms[o] & words]
        assert part.load == pytest.approx(work.load(part.objects, part.entries))
    loads = [part.load for part in dealt.parts]
    assert max(loads) <= 1.3 * min(loads)


def test_words_of_the_same_objects_are_dealt_to_the_same_share():
    """Ten topics of ten words: dealt, a topic is in few shares; by hash, each would be in nearly all."""
    rng = np.random.default_rng(2)
    topics = [[f"{topic}-{i}" for i in range(10)] for topic in range(10)]
    chosen = [topics[i % 10] for i in range(2_000)]
    objects = ObjectBatch.of(
        [
            SpatialObject(f"o{i}", i, 1.0, 1.0, tuple(rng.choice(each, 4, replace=False)))
            for i, each in enumerate(chosen)
        ]
    )
    queries = QueryBatch.of([crq(i, 1.0, 1.0, 1.0, word) for i, word in enumerate(np.concatenate(topics).tolist() * 3)])
    work = Workload.of(objects, statistics(objects, queries), Frequencies.of(objects.terms), SIDE)

    dealt = deal(work, np.arange(2_000), np.arange(300), 4)

    copies = sum(len(part.objects) for part in dealt.parts) / 2_000
    assert copies < 1.9  # at home, and where it is asked for; by hash about 1 + 4 (1 - (3/4)^4) 3/4 = 3.05


def test_what_has_no_word_is_in_every_share():
    objects, _ = made("narrow", 200)
    asked = QueryBatch.of([crq(0, 2.0, 2.0, 2.0), crq(1, 2.0, 2.0, 2.0, "c1")])
    work = Workload.of(objects, statistics(objects, asked), Frequencies.of(objects.terms), SIDE)

    dealt = deal(work, np.arange(200), np.arange(2), 3)

    assert work.word.tolist()[0] == NO_WORD
    assert sorted(len(part.entries) for part in dealt.parts) == [1, 1, 2]
    assert all(0 in part.entries for part in dealt.parts)


def test_leaves_that_have_objects_in_common_share_a_slot():
    work = workload("wide")
    first, second = np.arange(0, 600), np.arange(600, 1_200)
    none = np.empty(0, np.int64)
    leaves = [Part(rows, none, work.load(rows, none)) for rows in (first, first[:500], second, second[:500])]

    mapping, loads = merged(work, leaves, 2)

    assert mapping[0] == mapping[1] != mapping[2] == mapping[3]
    assert loads == pytest.approx([work.load(rows, none) for rows in (first, second)])


def test_no_slot_takes_all():
    work = workload("wide")
    rows, entries = np.arange(900), [np.arange(10 * i, 10 * i + 10) for i in range(8)]
    leaves = [Part(rows, each, work.load(rows, each)) for each in entries]

    mapping, loads = merged(work, leaves, 4)

    assert np.bincount(mapping, minlength=4).min() > 0
    assert imbalance(loads) < EVEN


def test_the_load_is_definition_1_with_the_times_that_the_planner_measured():
    assert (MEASURED.object, MEASURED.entry, MEASURED.match) == (OBJECT, ENTRY, MATCH)
    work = workload("wide")
    some, asked = np.arange(100), np.arange(50)
    rate, coming = work.rate[some].sum(), work.coming[asked].sum()
    expected = work.pair * rate * work.standing[asked].sum() + 1.83 * rate + 0.56 * coming
    assert work.load(some, asked) == pytest.approx(expected)
    assert 0.0 < work.pair < MATCH


def test_a_sample_that_says_nothing_of_words_is_refused():
    objects, queries = made("wide")

    assert lacking(objects, queries) == ""
    assert "at least 1,000 objects, and there are 999" in lacking(objects.take(np.arange(999)), queries)
    for none in (QueryBatch.of([]), QueryBatch.of([crq(0, 1.0, 1.0, 1.0), query("SRQ", None, "a")])):
        assert "CRQs with keywords" in lacking(objects, none)
