"""Continuous top-k terms queries: slots and merge together against brute force over the whole stream."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.local import ctq, groups
from spatialstream.local.ctq import ContinuousTermsIndex, StepPartials, merge_steps
from spatialstream.local.state import MemoryFiles
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import Lifetime, Predicate, Query, QueryBatch, TopTerms
from spatialstream.model.regions import Box, Circle, Regions
from spatialstream.model.space import WGS84, Space
from tests.unit.local.continuous import LAST, PLANE, WORDS, Epoch, Stream, streams
from tests.unit.local.test_ckq import Digests

Row = tuple[int, str, list[tuple[str, int]]]

REGIONS = {
    PLANE: [
        None, Box(0.0, 0.0, 1.0, 1.0), Box(0.0, 0.0, 2.0, 1.0), Box(0.0, 0.0, 2.0, 1.5), Box(0.0, 0.0, 3.5, 4.0),
        Box(0.0, 0.0, 3.0, 4.0), Box(0.5, 0.0, 3.5, 4.0), Box(1.0, 1.0, 1.0, 1.0), Circle(1.0, 1.0, 1.0), Circle(0.0, 0.0, 0.0),
    ],
    WGS84: [
        None, Box(170.0, -1.0, -170.0, 1.0), Box(175.0, -1.0, -170.0, 1.0), Circle(0.0, 90.0, 10.0), Circle(180.0, 0.0, 80_000.0),
        Box(10.0, 50.0, 11.0, 51.0), Box(10.0, 50.0, 10.6, 51.0), Box(10.0, 50.0, 10.25, 51.0),
    ],
}  # fmt: skip


def expected(stream: Stream) -> list[Row]:
    """Every step of every query, from its definition."""
    rows = []
    last = stream.epochs[-1].before - 1 if stream.epochs else -1
    for number, query in enumerate(stream.queries):
        region = Regions.of([query.predicate.region])
        window, step = query.lifetime.window, query.lifetime.step
        now = query.t + step
        while now <= min(query.t + query.lifetime.duration, last) and now < stream.end[number]:
            counts = Counter(
                term
                for o in stream.objects
                if max(query.t, now - window + 1) <= o.t <= now
                and set(query.predicate.keywords) <= set(o.terms)
                and region.contain(stream.space, 0, o.x, o.y)
                for term in o.terms
            )
            best = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[: query.k]
            rows.append((now, query.id, best))
            now += step
    return sorted(rows, key=lambda row: row[:2])


def rows_of(partials: list[StepPartials]) -> list[Row]:
    rows = merge_steps(partials)
    answers = list(zip(rows.terms.to_pylist(), rows.counts.tolist(), strict=True))
    return [
        (int(rows.t[i]), rows.query[i].as_py(), answers[rows.offsets[i] : rows.offsets[i + 1]]) for i in range(len(rows))
    ]


class Run:
    """Slots, epoch by epoch."""

    def __init__(self, stream: Stream, files: MemoryFiles) -> None:
        self.stream, self.files = stream, files
        self.slots = [ContinuousTermsIndex(stream.space) for _ in range(stream.slots)]

    def epoch(self, epoch: Epoch) -> list[Row]:
        numbers, ids, queries, start = self.stream.batch(epoch.numbers)
        partials = []
        for slot, index in enumerate(self.slots):
            index.register(numbers, ids, queries, start, start + queries.duration)
            index.end_at(
                np.array([i for i, _ in epoch.cancelled] + [999], np.int64),
                np.array([t for _, t in epoch.cancelled] + [0], np.int64),
            )
            index.update(ObjectBatch.of([o for o, s in zip(epoch.objects, epoch.slots, strict=True) if s == slot]))
            partials.append(index.step(epoch.before - 1))
            index.expire(epoch.before - 1)
        return rows_of(partials)

    def checkpoint(self) -> list[dict]:
        return [index.checkpoint(self.files.write) for index in self.slots]

    def restart(self) -> None:
        manifests = self.checkpoint()
        self.slots = [ContinuousTermsIndex.restore(self.stream.space, m, self.files.read) for m in manifests]


def queries_in(space: Space) -> st.SearchStrategy[list[Query]]:
    lifetime = st.builds(
        lambda duration, window, step: Lifetime(duration, True, window, step),
        st.sampled_from([0, 1, 6, 7, 100]),
        st.sampled_from([0, 1, 2, 3, 5, 8, 100]),
        st.sampled_from([1, 2, 3, 5]),
    )
    query = st.builds(
        lambda t, region, keywords, k, lifetime: (t, Predicate(region, tuple(keywords)), TopTerms(k), lifetime),
        st.integers(0, LAST // 2),
        st.sampled_from(REGIONS[space]),
        st.one_of(st.just([]), st.sets(st.sampled_from(WORDS), max_size=2).map(sorted)),
        st.sampled_from([1, 2, 3, 100]),
        st.one_of(lifetime, st.just(Lifetime(100, True, 5, 2))),
    )
    return st.lists(query, max_size=8).map(lambda parts: [Query(f"q{(7 * i) % 10}", *part) for i, part in enumerate(parts)])


@pytest.mark.parametrize("space", [PLANE, WGS84], ids=str)
@given(data=st.data())
def test_every_step_is_reported_exactly(space, data):
    stream = data.draw(streams(queries_in(space), space))
    run = Run(stream, MemoryFiles())
    rows = []
    for epoch in stream.epochs:
        rows += run.epoch(epoch)
        if epoch.restart:
            run.restart()

    assert rows == expected(stream)


@given(data=st.data())
def test_a_restored_structure_writes_the_same_files(data):
    stream = data.draw(streams(queries_in(PLANE), PLANE))
    one, other = Run(stream, Digests()), Run(stream, Digests())
    for epoch in stream.epochs:
        one.epoch(epoch)
        other.epoch(epoch)
        assert one.checkpoint() == other.checkpoint()
        if epoch.restart:
            other.restart()
