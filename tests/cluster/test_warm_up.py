"""A stream that says it is running is warm, and nothing has been done to it for that."""

from __future__ import annotations

from pathlib import Path

import pytest

from spatialstream.connectors.kafka import Offsets
from spatialstream.model.space import Space
from tests.cluster.stream import PARTITIONS, LiveStream, Servers

PLANE = Space.planar(0.0, 0.0, 1.0, 1.0)


@pytest.mark.timeout(1200)
def test_a_warm_up_has_no_effect_on_the_stream(servers: Servers, tmp_path: Path) -> None:
    with LiveStream(servers, "warm", tmp_path, PLANE) as stream:
        for job in (stream.router, stream.worker):
            assert f"{job.name}: warm after" in job.log.read_text()
        topics = stream.connection.topics(stream.name)
        counts = {topics.objects: PARTITIONS, topics.blocks: stream.slots, topics.epochs: 1}
        counts |= {topics.queries: 1, topics.results: 1, topics.rejected: 1}
        ends = Offsets(stream.connection).latest(counts)
        beginnings = {topics.epochs: [2]}  # that it begins is all that a job has said
        assert ends == {topic: [0] * count for topic, count in counts.items()} | beginnings
        for folder in ("epochs", "rounds", "input", "samples"):
            assert list((stream.checkpoint / folder).glob("*")) == []
