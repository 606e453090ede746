"""Every row that the pipeline gives is the oracle's, however the stream is cut, spread over slots, lost and
replayed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial, partialmethod
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spatialstream.local.nearest.skyband import NearestMerger
from spatialstream.local.range.crq import ContinuousRangeIndex
from spatialstream.local.terms.ctq import ContinuousTermsIndex
from spatialstream.model.kinds import TYPES
from spatialstream.model.space import LARGEST, SMALLEST, WGS84, Space
from spatialstream.oracle import answers, check
from spatialstream.stages import merge as merging
from spatialstream.stages import snapshots
from spatialstream.stages.external_sort import Spool
from spatialstream.stages.kinds import base as kinds_base
from spatialstream.stages.kinds import rows as kinds_rows
from tests.harness import Outcome, Shape, run_stream
from tests.lengths import examples
from tests.streams import Stream, random_stream, streams

SHAPES = st.builds(
    Shape,
    slots=st.sampled_from([1, 2, 3, 5]),
    leaves=st.sampled_from([1, 4, 16, 40]),
    partitions=st.sampled_from([1, 2, 3]),
    epoch_records=st.sampled_from([1, 2, 5, 13, 1_000]),
    forget=st.booleans(),
    replays=st.sampled_from([0.0, 0.3]),
    checkpoints=st.sampled_from([1.0, 0.3, 0.0]),
    blocks=st.sampled_from([1, 2, 4]),
)


def run(stream: Stream, shape: Shape) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        return run_stream(Path(folder), stream.space, stream.objects, stream.queries, shape)


def differences(stream: Stream, outcome: Outcome) -> list[str]:
    expected, refused = answers(stream.objects, stream.queries, stream.space)
    found = [str(each) for each in check(outcome.rows, expected, 5)]
    lines = sorted(record["line"] for record in outcome.rejected)
    if lines != [place + 1 for place, _ in refused]:
        found.append(f"rejected {lines}, expected {refused}")
    return found


@settings(max_examples=examples(100, 600), suppress_health_check=[HealthCheck.too_slow])
@given(streams(where=True), SHAPES)
def test_every_row_is_the_oracles(stream: Stream, shape: Shape) -> None:
    assert differences(stream, run(stream, shape)) == []


@settings(max_examples=examples(30, 200), suppress_health_check=[HealthCheck.too_slow])
@given(streams(where=True), SHAPES, SHAPES)
def test_results_are_the_same_bytes_for_any_shape(stream: Stream, one: Shape, other: Shape) -> None:
    found, again = run(stream, one), run(stream, other)
    assert found.text == again.text
    assert found.rejected == again.rejected


@contextmanager
def small_pieces() -> Iterator[None]:
    """Whatever is done in bounded pieces is done in pieces of a few rows, and nothing waits in memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kinds_base, "BLOCK_BYTES", 150)
        patch.setattr(snapshots, "BLOCK_BYTES", 150)
        for module in (merging, kinds_rows):
            patch.setattr(module, "Spool", partial(Spool, block_bytes=150, bytes_in_memory=0))
        patch.setattr(ContinuousRangeIndex, "match", partialmethod(ContinuousRangeIndex.match, limit=2))
        patch.setattr(ContinuousTermsIndex, "steps", partialmethod(ContinuousTermsIndex.steps, rows=2, counts=3))
        patch.setattr(NearestMerger, "changes", partialmethod(NearestMerger.changes, shown=3))
        yield


@settings(max_examples=examples(20, 200), suppress_health_check=[HealthCheck.too_slow])
@given(streams(where=True), SHAPES)
def test_results_are_the_same_bytes_in_pieces_of_any_size(stream: Stream, shape: Shape) -> None:
    with small_pieces():
        found = run(stream, shape)
    assert found.text == run(stream, shape).text


@pytest.mark.parametrize(
    "bounds",
    [
        (-LARGEST, -LARGEST, LARGEST, LARGEST),
        (0.0, 0.0, SMALLEST, SMALLEST),
        (-LARGEST, 0.0, LARGEST, SMALLEST),
        (1e16, 0.0, 1e16 + 4, 1.0),
    ],
)
def test_the_largest_and_the_smallest_planes_are_answered(bounds: tuple[float, float, float, float]) -> None:
    stream = random_stream(3, 150, 30, Space.planar(*bounds), types=TYPES)
    outcome = run(stream, Shape(slots=2, leaves=16))
    assert differences(stream, outcome) == []
    assert "inf" not in str(outcome.text).lower()


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("space", [WGS84, Space.planar(0.0, 0.0, 1.0, 1.0)], ids=["wgs84", "planar"])
def test_a_bigger_stream_of_one_type(kind: str, space: Space) -> None:
    stream = random_stream(7, 2_000, 100, space, types=[kind], where=0.5)
    shape = Shape(slots=3, leaves=40, partitions=2, epoch_records=400, blocks=3, replays=0.3, checkpoints=0.4)
    assert differences(stream, run(stream, shape)) == []
