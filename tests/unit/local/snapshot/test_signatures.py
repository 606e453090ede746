"""Signatures rule out only what is not there, by a look at every object; a filter that lacks a word is noticed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spatialstream.local.snapshot.segment import Segment
from spatialstream.local.snapshot.segments import SegmentStore
from spatialstream.local.snapshot.signatures import (
    BITS,
    BLOCK,
    BLOCK_BITS,
    Signatures,
    SignedSegment,
    SlotSignatures,
    WordGroups,
)
from spatialstream.model.arrays import pack_arrays, unpack_arrays
from spatialstream.model.covers import region_parts
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.regions import Box, Region, Regions
from spatialstream.model.space import WGS84, Space
from tests.lengths import examples
from tests.unit.local.snapshot.test_segments import PLANE, TERMS, batches, regions, times
from tests.unit.local.snapshot.twin import Twin, distance, inside
from tests.unit.memory_files import MemoryFiles

EVERYWHERE = np.array([[-np.inf, -np.inf, np.inf, np.inf]])
ALWAYS = (-(2**62), 2**62)

Groups = Sequence[Sequence[str]]
Asked = tuple[Region | None, Groups, tuple[int, int]]
Slots = list[tuple[list[SpatialObject], Signatures | None]]

groups = st.lists(
    st.lists(st.sampled_from([*TERMS, "never"]), unique=True, max_size=3).map(tuple), min_size=1, max_size=3
)


def signatures_of(space: Space, objects: Sequence[SpatialObject], size: int = BLOCK) -> Signatures:
    return Signatures.of(Segment.build(space, ObjectBatch.of([*objects])).columns, size)


def parts(space: Space, region: Region | None) -> Any:
    return region_parts(space, Regions.of([region]))[0]


def matching(
    space: Space, objects: Sequence[SpatialObject], region: Region | None, given: Groups, span: tuple[int, int]
) -> list[SpatialObject]:
    """The objects that satisfy a query: a look at each of them."""
    return [
        each
        for each in objects
        if span[0] < each.t <= span[1]
        and any(set(group) <= set(each.terms) for group in given)
        and inside(space, region, each.x, each.y)
    ]


def check(space: Space, slots: Slots, region: Region | None, given: Groups, span: tuple[int, int]) -> list[int]:
    """Make sure that no slot is ruled out that has a match; returns those that are not."""
    made = SlotSignatures([[SignedSegment(*ALWAYS, signatures)] for _, signatures in slots])
    kept = made.may_have([*range(len(slots))], WordGroups(given), parts(space, region), span)
    for slot, (objects, _) in enumerate(slots):
        if slot not in kept:
            assert not matching(space, objects, region, given, span), f"slot {slot} was ruled out"
    return kept


@pytest.mark.parametrize("space", [WGS84, PLANE], ids=str)
@settings(max_examples=examples(150, 3_000))
@given(data=st.data())
def test_what_is_ruled_out_has_no_match(space: Space, data: st.DataObject) -> None:
    size = data.draw(st.sampled_from([1, 2, 3, BLOCK]))
    slots: Slots = []
    for _ in range(data.draw(st.integers(1, 5))):
        objects = data.draw(batches(space))
        known = data.draw(st.integers(0, 9)) > 0
        slots.append((objects, signatures_of(space, objects, size) if known else None))
    for _ in range(8):
        kept = check(space, slots, data.draw(regions(space)), data.draw(groups), data.draw(times))
        assert kept == sorted(kept)


@pytest.mark.parametrize("space", [WGS84, PLANE], ids=str)
@settings(max_examples=examples(60, 1_000))
@given(data=st.data())
def test_views_of_stores_that_merge_drop_and_are_restored_rule_out_nothing_that_they_find(
    space: Space, data: st.DataObject
) -> None:
    files, twin = MemoryFiles(), Twin(space)
    store = SegmentStore(space, data.draw(st.sampled_from([None, 4])), data.draw(st.sampled_from([8, 1 << 20])))
    for _ in range(data.draw(st.integers(1, 12))):
        batch = data.draw(batches(space))
        store.append(ObjectBatch.of(batch))
        twin.append(batch)
        match data.draw(st.integers(0, 5)):
            case 0:
                store.drop_before(data.draw(st.integers(0, 6)))
                twin.drop_before(store.floor)
            case 1:
                store = SegmentStore.restore(space, store.checkpoint(files.write), files.read)
        made = SlotSignatures([store.view().signed])
        region, given, span = data.draw(regions(space)), data.draw(groups), data.draw(times)
        if not made.may_have([0], WordGroups(given), parts(space, region), span):
            assert not matching(space, twin.objects, region, given, span)


def test_a_filter_that_lacks_a_word_is_noticed() -> None:
    """The check above is one: it fails if one word of one object was left out, or any block's box or times."""
    objects = [SpatialObject(str(i), i, 0.01 * i, 0.0, ("a", f"w{i}")) for i in range(100)]
    right = signatures_of(PLANE, objects, 10)
    asked: Asked = None, [("w37",)], ALWAYS
    assert check(PLANE, [(objects, right)], *asked) == [0]
    without = [replace(each, terms=("a",)) if each.id == "37" else each for each in objects]
    boxes, spans = right.boxes.copy(), right.spans.copy()
    boxes[0:4], spans[0:2] = 9.0, 99
    cases: list[tuple[Signatures, Asked]] = [
        (signatures_of(PLANE, without, 10), asked),
        (replace(right, whole=signatures_of(PLANE, without, 10).whole), asked),
        (replace(signatures_of(PLANE, without, 10), whole=right.whole), asked),
        (replace(right, boxes=boxes), (Box(0.0, 0.0, 0.05, 0.0), [("a",)], ALWAYS)),
        (replace(right, spans=spans), (None, [("a",)], (-1, 9))),
    ]
    for wrong, query in cases:
        assert check(PLANE, [(objects, right)], *query) == [0]
        with pytest.raises(AssertionError, match="was ruled out"):
            check(PLANE, [(objects, wrong)], *query)


def crowd(n: int, words: int, seed: int = 1) -> list[SpatialObject]:
    rng = np.random.default_rng(seed)
    terms, places = rng.zipf(1.3, (n, 8)) % words, rng.uniform(-1, 1, (n, 2)).tolist()
    return [
        SpatialObject(str(i), i, x, y, tuple(dict.fromkeys(f"w{term}" for term in row)))
        for i, ((x, y), row) in enumerate(zip(places, terms.tolist(), strict=True))
    ]


def test_few_words_that_are_not_there_look_as_if_they_were() -> None:
    objects = crowd(8 * BLOCK, 20_000)
    signatures = signatures_of(PLANE, objects)
    made = SlotSignatures([[SignedSegment(*ALWAYS, _block(signatures, i))] for i in range(len(signatures))])
    slots, n = [*range(len(signatures))], 5_000
    wrong = sum(
        len(made.may_have(slots, WordGroups([(f"absent-{i}",)]), EVERYWHERE, ALWAYS)) for i in range(n)
    ) / (n * len(slots))  # fmt: skip
    assert 0.03 < wrong < 0.08
    two = sum(
        len(made.may_have(slots, WordGroups([(f"absent-{i}", f"absent-{i + n}")]), EVERYWHERE, ALWAYS))
        for i in range(n)
    ) / (n * len(slots))
    assert two < 0.008
    whole = SlotSignatures([[SignedSegment(*ALWAYS, signatures)]])
    assert (
        sum(len(whole.may_have([0], WordGroups([(f"absent-{i}",)]), EVERYWHERE, ALWAYS)) for i in range(n)) < 0.002 * n
    )


def _block(signatures: Signatures, i: int) -> Signatures:
    """One block."""
    first, end = signatures.ends[i : i + 2].tolist()
    return Signatures(
        signatures.boxes[4 * i : 4 * i + 4].copy(),
        signatures.spans[2 * i : 2 * i + 2].copy(),
        np.array([0, end - first]),
        signatures.lines[8 * first : 8 * end].copy(),
        np.empty(0, np.uint64),
    )


def test_filters_are_as_large_as_they_have_words() -> None:
    objects = crowd(4 * BLOCK + 100, 20_000)
    segment = Segment.build(PLANE, ObjectBatch.of(objects))
    signatures = Signatures.of(segment.columns)
    assert len(signatures) == 5
    places = {(each.x, each.y): set(each.terms) for each in objects}
    for i in range(5):
        here = slice(i * BLOCK, (i + 1) * BLOCK)
        x, y, t = (getattr(segment.columns, name)[here] for name in "xyt")
        assert signatures.boxes[4 * i : 4 * i + 4].tolist() == [x.min(), y.min(), x.max(), y.max()]
        assert signatures.spans[2 * i : 2 * i + 2].tolist() == [t.min(), t.max()]
        words = set().union(*(places[place] for place in zip(x.tolist(), y.tolist(), strict=True)))
        assert signatures.ends[i + 1] - signatures.ends[i] == -(-len(words) * BLOCK_BITS // 512)
    assert len(signatures.whole) == 8 * -(-segment.terms * BITS // 512)
    one = Signatures.of(segment.columns, len(segment))
    assert one.ends.tolist() == [0, len(signatures.whole) // 8]
    assert one.lines.tolist() == signatures.whole.tolist()
    assert len(one.whole) == 0


@pytest.mark.parametrize("terms", [(), ("a", "überlänge")])
def test_signatures_are_the_same_when_they_have_been_written(terms: tuple[str, ...]) -> None:
    segment = Segment.build(PLANE, ObjectBatch.of([SpatialObject("1", 5, 0.5, 0.5, terms)]))
    file = pa.py_buffer(b"".join(pack_arrays(segment.to_arrays())))
    again = Segment.from_arrays(PLANE, unpack_arrays(file, "segment")[0])
    for name, array in segment.signatures.to_arrays().items():
        assert again.signatures.to_arrays()[name].tolist() == array.tolist()
    assert again.nbytes == segment.nbytes > segment.signatures.nbytes
    assert again.signatures.key != segment.signatures.key, "who has the one does not take the other for known"
    cases: list[tuple[Groups, bool]] = [([("a",)], bool(terms)), ([()], True), ([("b",), ("überlänge",)], bool(terms))]
    for groups_asked, there in cases:
        made = SlotSignatures([[each.signed] for each in (segment, again)])
        kept = made.may_have([0, 1], WordGroups(groups_asked), EVERYWHERE, (4, 5))
        assert kept == ([0, 1] if there else [])


def test_of_segments_that_are_not_read_only_the_times_are_known() -> None:
    files, store = MemoryFiles(), SegmentStore(PLANE)
    store.append(ObjectBatch.of([SpatialObject("1", 5, 0.5, 0.5, ("a",))]))
    restored = SegmentStore.restore(PLANE, store.checkpoint(files.write), files.read)
    view, never = restored.view(), WordGroups([("never",)])
    before = SlotSignatures([view.signed])
    assert before.may_have([0], never, EVERYWHERE, (4, 5)) == [0]
    assert before.may_have([0], never, EVERYWHERE, (5, 9)) == before.may_have([0], never, EVERYWHERE, (0, 4)) == []
    assert len(view.range_query(None, ["a"], 4, 5)) == 1
    assert SlotSignatures([view.signed]).may_have([0], never, EVERYWHERE, (4, 5)) == []


@pytest.mark.parametrize("space", [WGS84, PLANE], ids=str)
def test_the_nearest_slot_is_that_of_the_nearest_block_with_the_words(space: Space) -> None:
    rng = np.random.default_rng(1)
    places = rng.uniform((space.west, space.south), (space.east, space.north), (40, 2)).tolist()
    slots: Slots = [([SpatialObject(str(i), 1, x, y, ("a", f"w{i % 2}"))], None) for i, (x, y) in enumerate(places)]
    made = SlotSignatures([[SignedSegment(*ALWAYS, signatures_of(space, objects))] for objects, _ in slots])
    every = [*range(len(slots))]
    for x, y in rng.uniform((space.west, space.south), (space.east, space.north), (50, 2)).tolist():
        for words, there in ((("a",), every), (("w1",), every[1::2]), (("a", "w0"), every[::2])):
            found = made.nearest(every, WordGroups([words]), EVERYWHERE, ALWAYS, (x, y), geographic=space.geographic)
            assert found == min(there, key=lambda slot: distance(space, x, y, *places[slot]))
