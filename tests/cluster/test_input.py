"""Bad input: every record that can be used is answered, every other one is a dead letter with its place and reason."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from spatialstream.model.space import Space
from spatialstream.pipeline.ingest import CLOCK, mark
from spatialstream.pipeline.kafka import Topics
from spatialstream.servers.process import await_condition
from tests.cluster.stream import PARTITIONS, LiveStream, Servers

PLANE = Space.planar(0.0, 0.0, 1.0, 1.0)
BAD = [
    '{"id": "bad", "t": 5, "x": 0.5, "text": "no y"}',
    '{"id": "bad", "t": 5, "x": 7, "y": 0.5, "text": "outside"}',
    '{"id": "bad", "t": "yesterday", "x": 0.5, "y": 0.5, "text": ""}',
    '{"id": "bad", "t": 5, "x": 0.5, "y": 0.5, "text": ',
    "not json at all",
    '["a", "list"]',
]


@pytest.mark.timeout(600)
def test_bad_records_among_good_ones(servers: Servers, tmp_path: Path) -> None:
    chance = random.Random(1)
    good, bad = 99_000, 1_000
    lines = [
        json.dumps({"id": f"o{i}", "t": 1_000 + i // 10, "x": chance.random(), "y": chance.random(), "text": "all"})
        for i in range(good)
    ]
    for place in sorted(chance.sample(range(good), bad), reverse=True):
        lines.insert(place, chance.choice(BAD))
    end = 1_000 + good // 10
    asked = [
        {"id": "each", "type": "CRQ", "t": 1, "keywords": ["all"], "duration": end, "region": {"box": [0, 0, 1, 1]}},
        {"id": "count", "type": "STQ", "t": end, "k": 1, "duration": end, "region": {"box": [0, 0, 1, 1]}},
        {"id": "broken", "type": "SRQ", "t": 2, "k": "many"},
        {"id": "each", "type": "CRQ", "t": 3, "duration": 1, "region": {"box": [0, 0, 1, 1]}},
    ]
    with LiveStream(servers, "input", tmp_path, PLANE) as stream:
        topics = Topics(stream.name)
        producer = stream.connection.producer()
        for query in asked:
            producer.produce(topics.queries, json.dumps(query).encode())
        for partition in range(PARTITIONS):
            part = lines[partition::PARTITIONS]
            for first in range(0, len(part), 100):
                producer.produce(topics.objects, "\n".join(part[first : first + 100]).encode(), partition=partition)
                producer.poll(0)
        poison = b"\x00\xff\xfe{{{\x80"
        huge = json.dumps({"id": "huge", "t": end, "x": 0.5, "y": 0.5, "text": "all " * 2_621_440}).encode()
        producer.produce(topics.objects, poison, partition=0)
        producer.produce(topics.objects, huge, partition=1)
        producer.produce(topics.objects, None, partition=1)
        for partition in range(PARTITIONS):
            producer.produce(topics.objects, mark(end + 1), CLOCK, partition)
        producer.produce(topics.queries, mark(end + 1), CLOCK)
        assert producer.flush(60.0) == 0
        stream.await_rows(good + 1, 240.0)
        rows = stream.rows()
        assert {row["object"]["id"] for row in rows if row["query"] == "each"} == {f"o{i}" for i in range(good)}
        assert [row["terms"] for row in rows if row["query"] == "count"] == [[{"term": "all", "count": good}]]
        assert await_condition(lambda: len(stream.rejected()) == bad + 4, 60.0)
        letters = stream.rejected()
        objects = [letter for letter in letters if letter["source"].startswith("objects/")]
        assert len(objects) == bad + 2
        assert all(letter["offset"] >= 0 and letter["line"] >= 1 and letter["reason"] for letter in letters)
        assert sum("too many" in letter["reason"] for letter in objects) == 1
        assert len(json.dumps(letters)) < 4_000_000
        refused = {letter["offset"]: letter["reason"] for letter in letters if letter["source"] == "queries/0"}
        assert refused[2].startswith("k: ") or "duration" in refused[2]
        assert "in use" in refused[3]
