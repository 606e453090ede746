"""The fields of a segment's objects: in blocks, through merges and files, and in answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.local.snapshot.segment import Segment
from spatialstream.local.snapshot.segments import SegmentStore
from spatialstream.local.snapshot.stored import StoredBlocks
from spatialstream.model.expressions import Expression
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.properties.cql2 import parse_where
from spatialstream.model.properties.declared import ANY_PROPERTIES
from spatialstream.model.ranking.asked import Ranking
from spatialstream.model.regions import Box
from spatialstream.model.space import Space
from tests.unit.memory_files import MemoryFiles

PLANE = Space.planar(-8.0, -8.0, 8.0, 8.0)
ALWAYS = (-(2**62), 2**62)
LINES = st.lists(st.one_of(st.just(""), st.text('ab"é', max_size=5), st.integers(9_000, 20_000).map("x".__mul__)))


def column(lines: list[str]) -> pa.LargeStringArray:
    return pa.array(lines, pa.large_string())


@given(LINES, st.data())
def test_blocks_give_back_what_they_were_made_of(lines: list[str], data: st.DataObject) -> None:
    blocks = StoredBlocks.of(column(["before", *lines]).slice(1))
    assert len(blocks) == len(lines)
    assert blocks.all().to_pylist() == lines
    places = data.draw(st.lists(st.integers(0, len(lines) - 1))) if lines else []
    again = StoredBlocks.from_arrays(blocks.to_arrays())
    assert again.at(np.array(places, np.int32)).to_pylist() == [lines[place] for place in places]


def test_a_block_is_small_whatever_the_number_of_objects() -> None:
    blocks = StoredBlocks.of(column([f'"text": "report number {i}"' for i in range(20_000)]))
    assert int(blocks.sizes.max()) < 17_000
    assert blocks.nbytes < 20_000 * 8


def alike(n: int, first: int = 0) -> list[SpatialObject]:
    """Objects that differ in their fields alone."""
    return [SpatialObject("o", 5, 1.0, 1.0, ("a",), (), f'"text": "{i:03d}"') for i in range(first, first + n)]


def others(n: int) -> list[SpatialObject]:
    return [SpatialObject(f"p{i}", i, i % 7 - 3.0, i % 5 - 2.0, ("a", "b"), (), f'"text": "p{i}"') for i in range(n)]


def stores() -> list[SegmentStore]:
    """The same objects in one segment, in several, merged, and read again from files."""
    every = others(60) + alike(30)
    one, several, merged = SegmentStore(PLANE), SegmentStore(PLANE), SegmentStore(PLANE)
    one.append(ObjectBatch.of(every))
    for first in range(0, len(every), 17):
        several.append(ObjectBatch.of(every[first : first + 17][::-1]))
    for first in range(0, len(every), 5):
        merged.append(ObjectBatch.of(every[first : first + 5]))
    assert merged.segments < 18
    files = MemoryFiles()
    again = SegmentStore.restore(PLANE, merged.checkpoint(files.write), files.read)
    return [one, several, merged, again]


@pytest.mark.parametrize("store", stores(), ids=["one", "several", "merged", "again"])
@pytest.mark.parametrize("keywords", [(), ("a",), ("a", "!zzz")])
def test_answers_have_the_fields_and_ties_are_broken_by_them(store: SegmentStore, keywords: tuple[str, ...]) -> None:
    found = store.range_query(Box(1.0, 1.0, 1.0, 1.0), keywords, *ALWAYS)
    assert found.stored is not None
    expected = sorted((o.t, o.id, o.stored) for o in others(60) + alike(30) if (o.x, o.y) == (1.0, 1.0))
    assert [*zip(found.t.tolist(), found.ids.to_pylist(), found.stored.to_pylist(), strict=True)] == expected
    for k in (1, 7, 29, 30, 40):
        near = store.nearest(1.0, 1.0, k, keywords, 4, 5)
        assert near.stored is not None
        told = [each for each in near.stored.to_pylist() if each < '"text": "p']
        assert told == [f'"text": "{i:03d}"' for i in range(min(k, 30))]
    none = store.nearest(1.0, 1.0, 3, keywords, 4, 5, fields=())
    assert none.stored is not None
    assert none.stored.to_pylist() == [""] * 3


def test_objects_that_leave_have_their_fields() -> None:
    store = stores()[2]
    left = ObjectBatch.concat(list(store.leaving(2**62)))
    assert sorted(left[i].stored or "" for i in range(len(left))) == sorted(
        o.stored or "" for o in others(60) + alike(30)
    )


def test_a_segment_without_fields_has_none_and_merges_with_one_that_has() -> None:
    plain = Segment.build(PLANE, ObjectBatch.of([replace(o, stored=None) for o in alike(2)]))
    assert plain.stored is None
    assert not any(name.startswith("stored") for name in plain.to_arrays())
    both = Segment.merge([plain, Segment.build(PLANE, ObjectBatch.of(alike(1)))])
    assert both.stored is not None
    assert sorted(both.stored.all().to_pylist()) == ["", "", '"text": "000"']


def test_the_best_have_all_that_are_alike() -> None:
    from spatialstream.local.snapshot.corpora import CorpusTable

    corpus = CorpusTable.of(0, 90, pa.array(["a"]), np.array([30]))
    ranking = Ranking(("a",), 1.0, 1, half_life=1_000)
    found: Any = stores()[1].best((1.0, 1.0), 2, ranking, (), (-1, 5), 5, corpus)
    assert {f'"text": "{i:03d}"' for i in range(30)} <= {*found.rows.stored.to_pylist()}


def test_so_have_the_best_that_satisfy_a_condition() -> None:
    from spatialstream.local.snapshot.corpora import CorpusTable

    store, said = SegmentStore(PLANE), [(("p", float(i % 3)),) for i in range(60)]
    store.append(ObjectBatch.of([replace(o, properties=p) for o, p in zip(alike(60), said, strict=True)]))
    corpus = CorpusTable.of(0, 90, pa.array(["a"]), np.array([30]))
    ranking = Ranking(("a",), 1.0, 1, half_life=1_000)
    where = Expression(where=parse_where("p = 1", ANY_PROPERTIES)).literals
    for k in (1, 2, 20, 21):
        found: Any = store.best((1.0, 1.0), k, ranking, where, (-1, 5), 5, corpus)
        assert sorted(found.rows.stored.to_pylist()) == [f'"text": "{i:03d}"' for i in range(1, 60, 3)]
