"""Every row of a ranked query is the oracle's, bit by bit, however the stream is cut, spread over slots and lost."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spatialstream.model.space import WGS84, Space
from spatialstream.oracle import answers
from tests.harness import Outcome, Shape, run_stream
from tests.lengths import examples
from tests.streams import Stream, random_stream, streams
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


@settings(max_examples=examples(120, 2_000), suppress_health_check=[HealthCheck.too_slow])
@given(streams(types=["SBQ"], cancellations=False, where=True), SHAPES, TIMES)
def test_every_row_is_the_oracles(stream: Stream, shape: Shape, times: tuple[int, int | None]) -> None:
    outcome = run(stream, shape, *times)
    assert differences(stream, outcome, *times) == []


@settings(max_examples=examples(30, 200), suppress_health_check=[HealthCheck.too_slow])
@given(streams(types=["SBQ", "SRQ", "CKQ"], where=True), SHAPES, SHAPES, TIMES)
def test_results_are_the_same_bytes_for_any_shape(
    stream: Stream, one: Shape, other: Shape, times: tuple[int, int | None]
) -> None:
    found, again = run(stream, one, *times), run(stream, other, *times)
    assert found.text == again.text
    assert found.rejected == again.rejected


@pytest.mark.parametrize("space", [WGS84, Space.planar(0.0, 0.0, 1.0, 1.0)], ids=["wgs84", "planar"])
@pytest.mark.parametrize("retention", [None, 1_800_000])
def test_a_bigger_stream(space: Space, retention: int | None) -> None:
    stream = random_stream(7, 2_000, 100, space, types=["SBQ"], where=0.3)
    shape = Shape(slots=3, leaves=40, partitions=2, epoch_records=400, blocks=3, replays=0.3, checkpoints=0.4)
    outcome = run(stream, shape, 300_000, retention)
    assert differences(stream, outcome, 300_000, retention) == []
    found = [len(row["objects"]) for row in outcome.rows]
    assert sum(found) > 100
    assert len({row["corpus"] for row in outcome.rows}) > 5
    assert len({row["radius"] for row in outcome.rows}) > 5
