"""Which fields the rows of CRQs show, through tails, tiers, merges of these, moves and checkpoints."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from spatialstream.local.range.crq import ContinuousRangeIndex, Tiering
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import Everything, Lifetime, Predicate, Query, QueryBatch
from spatialstream.model.regions import Box
from spatialstream.model.space import Space
from tests.unit.memory_files import MemoryFiles

PLANE = Space.planar(0.0, 0.0, 1.0, 1.0)
CHOICES = [None, (), ("text",), None, ("text", "n|!?"), ("text",), None]
OBJECTS = ObjectBatch.of([SpatialObject("o", 5, 0.5, 0.5, ("a", "b"))])


def queries() -> list[Query]:
    box, words = Box(0.0, 0.0, 1.0, 1.0), [(), ("a",), ("a", "b")]
    return [
        Query(f"q{i}", 0, Predicate(box, words[i % 3]), Everything(), Lifetime(9, True), fields=fields)
        for i, fields in enumerate(CHOICES)
    ]


def indexes() -> Iterator[ContinuousRangeIndex]:
    """The same queries, in one tier and in several, moved, and read again."""
    for tiering in (Tiering(), Tiering(tail=1, ratio=0), Tiering(tail=2, ratio=4)):
        index, files = ContinuousRangeIndex(PLANE, tiering), MemoryFiles()
        for i, query in enumerate(queries()):
            index.register(np.array([i]), QueryBatch.of([query]))
        yield index
        yield ContinuousRangeIndex.restore(PLANE, index.checkpoint(files.write), files.read, tiering)
        other = ContinuousRangeIndex(PLANE)
        other.register(*index.continuous(0))
        yield other


@pytest.mark.parametrize("number", range(9))
def test_a_match_knows_what_its_row_shows(number: int) -> None:
    index = list(indexes())[number]
    found: dict[str, tuple[str, ...] | None] = {}
    for _, matches in index.match(OBJECTS):
        shown = index.shown_of(matches)
        assert shown is not None
        of, choices = shown
        for name, choice in zip(index.ids_of(matches).to_pylist(), of.tolist(), strict=True):
            found[name] = None if choice < 0 else choices[choice]
    assert found == {f"q{i}": fields for i, fields in enumerate(CHOICES)}


def test_queries_that_choose_nothing_cost_nothing() -> None:
    index = ContinuousRangeIndex(PLANE)
    index.register(np.array([0]), QueryBatch.of([queries()[0]]))
    ((_, matches),) = index.match(OBJECTS)
    assert matches.shown == (None,)
    assert index.shown_of(matches) is None
