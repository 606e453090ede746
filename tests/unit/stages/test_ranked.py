"""Every row of a ranked query is the oracle's, bit by bit, however the stream is cut, spread over slots and lost."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spatialstream.local.snapshot import termlists
from spatialstream.local.snapshot.termlists import decode_counts
from spatialstream.model.ranking.asked import Ranking
from spatialstream.model.ranking.scores import spatial_score
from spatialstream.model.space import WGS84, Space
from spatialstream.oracle import answers
from spatialstream.stages.corpus import CorpusTables, load_table
from spatialstream.stages.kinds import best
from tests.harness import Outcome, Shape, run_stream
from tests.lengths import examples
from tests.streams import Stream, counted, random_stream, streams
from tests.unit.stages.test_exactness import SHAPES

TIMES = st.sampled_from([(300_000, None), (1, None), (3, None), (7, None), (3, 5), (2, 8), (300_000, 300_000)])
"""Δ and retention, ms; the streams are some 20 ms long."""


def run(stream: Stream, shape: Shape, interval: int, retention: int | None) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        given_ = stream.space, stream.objects, stream.queries, shape
        return run_stream(Path(folder), *given_, interval=interval, retention=retention)


def differences(stream: Stream, outcome: Outcome, interval: int, retention: int | None = None) -> list[str]:
    """Rows that differ from those of the oracle in any bit of any number, or in their order."""
    expected, _ = answers(stream.objects, stream.queries, stream.space, retention, interval)
    rows, wanted = ({row["query"]: [] for row in each} for each in (outcome.rows, expected))
    for found, each in ((rows, outcome.rows), (wanted, expected)):
        for row in each:
            found[row["query"]].append(row)
    return [f"{rows.get(name)} is not {row}" for name, row in wanted.items() if rows.get(name) != row]


def by_query(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The rows of each query, in order."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["query"], []).append(row)
    return found


@settings(max_examples=examples(120, 2_000), suppress_health_check=[HealthCheck.too_slow])
@given(streams(types=["CBQ", "CBQ", "CBQ", "SBQ"], where=True, counts=True), SHAPES, TIMES)
def test_every_change_of_a_continuous_one_is_the_oracles(
    stream: Stream, shape: Shape, times: tuple[int, int | None]
) -> None:
    outcome = run(stream, shape, *times)
    expected, _ = answers(stream.objects, stream.queries, stream.space, times[1], times[0])
    assert by_query(outcome.rows) == by_query(expected)


@settings(max_examples=examples(120, 2_000), suppress_health_check=[HealthCheck.too_slow])
@given(streams(types=["SBQ"], cancellations=False, where=True, counts=True), SHAPES, TIMES)
def test_every_row_is_the_oracles(stream: Stream, shape: Shape, times: tuple[int, int | None]) -> None:
    outcome = run(stream, shape, *times)
    assert differences(stream, outcome, *times) == []


@settings(max_examples=examples(30, 200), suppress_health_check=[HealthCheck.too_slow])
@given(streams(types=["SBQ", "SRQ", "CKQ", "CBQ", "CBQ"], where=True, counts=True), SHAPES, SHAPES, TIMES)
def test_results_are_the_same_bytes_for_any_shape(
    stream: Stream, one: Shape, other: Shape, times: tuple[int, int | None]
) -> None:
    found, again = run(stream, one, *times), run(stream, other, *times)
    assert found.text == again.text
    assert found.rejected == again.rejected


@pytest.mark.parametrize("space", [WGS84, Space.planar(0.0, 0.0, 1.0, 1.0)], ids=["wgs84", "planar"])
@pytest.mark.parametrize("retention", [None, 1_800_000])
def test_a_bigger_stream(space: Space, retention: int | None) -> None:
    stream = counted(random_stream(7, 2_000, 100, space, types=["SBQ"], where=0.3), 1)
    shape = Shape(slots=3, leaves=40, partitions=2, epoch_records=400, blocks=3, replays=0.3, checkpoints=0.4)
    outcome = run(stream, shape, 300_000, retention)
    assert differences(stream, outcome, 300_000, retention) == []
    found = [len(row["objects"]) for row in outcome.rows]
    assert sum(found) > 100
    assert len({row["corpus"] for row in outcome.rows}) > 5
    assert len({row["radius"] for row in outcome.rows}) > 5


@pytest.mark.parametrize("space", [WGS84, Space.planar(0.0, 0.0, 1.0, 1.0)], ids=["wgs84", "planar"])
@pytest.mark.parametrize("retention", [None, 1_800_000])
def test_a_bigger_stream_of_continuous_ones(space: Space, retention: int | None) -> None:
    stream = counted(random_stream(7, 2_000, 100, space, types=["CBQ"]), 1)
    shape = Shape(slots=3, leaves=40, partitions=2, epoch_records=400, blocks=3, replays=0.3, checkpoints=0.4)
    outcome = run(stream, shape, 300_000, retention)
    expected, _ = answers(stream.objects, stream.queries, space, retention, 300_000)
    assert by_query(outcome.rows) == by_query(expected)
    assert len(expected) > 200


WRONG = {
    "S by another radius": lambda patch: patch.setattr(
        best, "spatial_score", lambda distance, radius: spatial_score(distance, 1.5 * radius)
    ),
    "2 to the power of the library": lambda patch: patch.setattr(
        best, "growth", lambda age, h: 2.0 ** min(64.0, age / h)
    ),
    "words of queries once": lambda patch: patch.setattr(Ranking, "weighed", lambda self, weights: weights),
    "merged segments with terms that occur once": lambda patch: patch.setattr(
        termlists, "decode_counts", lambda units, beside: np.minimum(decode_counts(units, beside), 1)
    ),
    "words as they are counted now": lambda patch: patch.setattr(
        CorpusTables, "of", lambda self, t: load_table(self.storage, self.there[-1])
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_ranking_that_is_a_little_wrong_is_found(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    WRONG[wrong](monkeypatch)
    stream = counted(random_stream(7, 1_000, 40, WGS84, types=["SBQ"]), 1)
    outcome = run(stream, Shape(slots=2, epoch_records=100), 300_000, None)  # so many epochs that segments are merged
    assert differences(stream, outcome, 300_000, None) != []
