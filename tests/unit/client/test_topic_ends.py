"""What is read from the ends of a stream's topics before something is sent to it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from spatialstream.client import topic_ends
from spatialstream.connectors.kafka import Topics
from spatialstream.model.objects import ObjectBatch, parse_object
from spatialstream.model.space import WGS84
from spatialstream.stages.ingest import CLOCK, watermark
from spatialstream.stages.turns import NEVER

_ANNOUNCED = dict.fromkeys(("epoch", "before", "watermark", "born", "refused", "records", "revision"), 0)
_ANNOUNCED |= {
    "adoption": {"active": 1},
    "controls": [],
    "past": [],
    "ends": [],
    "job": "router",
    "leadership": "",
    "incarnation": "",
}


class Log:
    """Partitions of messages, each with a key and a value; stands for a broker's connection."""

    def __init__(self, *partitions: Sequence[tuple[bytes | None, bytes]]) -> None:
        self._partitions = partitions

    def topics(self, stream: str) -> Topics:
        return Topics(stream)

    def partitions(self, topics: Sequence[str]) -> dict[str, int]:
        return {topic: len(self._partitions) for topic in topics if self._partitions}

    def bounds(self, partitions: dict[str, int]) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
        (topic,) = partitions
        return {topic: [0] * len(self._partitions)}, {topic: [len(each) for each in self._partitions]}

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[list[Any]]:
        for key, value in self._partitions[partition][start:end]:
            yield [SimpleNamespace(key=lambda key=key: key, value=lambda value=value: value)]


@pytest.fixture(autouse=True)
def reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_ends, "offsets", lambda log: log)
    monkeypatch.setattr(topic_ends, "read", lambda log, *place: log.read(*place))


def reached(*announced: Any) -> int | None:
    log: Any = Log([(None, json.dumps(each).encode()) for each in announced])
    return topic_ends.reached(log, "s")


def test_a_stream_has_come_to_the_end_of_its_newest_epoch() -> None:
    first, second = (_ANNOUNCED | {"watermark": watermark} for watermark in (7_000, 9_000))
    assert reached(first, second, {"number": 3, "job": "worker"}, "not one", None) == 9_000
    assert reached(_ANNOUNCED | {"watermark": NEVER}) is None
    assert reached() is None
    nothing: Any = Log()
    assert topic_ends.reached(nothing, "s") is None


def test_the_objects_that_have_come_last_are_found_among_marks_and_rubbish() -> None:
    lines = [json.dumps({"id": str(i), "t": i, "lon": i, "lat": 0, "text": ""}).encode() for i in range(30)]
    log: Any = Log([*[(None, line) for line in lines], (CLOCK, watermark(5))], [(None, b"rubbish\n" + lines[0])])
    found = topic_ends.latest_objects(log, "s", WGS84)
    assert found.ids.to_pylist() == [*(str(i) for i in range(11, 30)), "0"]


def test_no_objects_are_not_exchanged() -> None:
    some = ObjectBatch.of([parse_object({"id": "a", "t": 0, "lon": 1, "lat": 2, "text": ""}, WGS84)])
    none = ObjectBatch.of([])
    assert not topic_ends.look_exchanged(none, some)
    assert not topic_ends.look_exchanged(some, none)
    assert not topic_ends.look_exchanged(some, some)
