"""A look at objects and dead letters: some are shown, all are counted."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spatialstream.client import live_sample
from spatialstream.client.live_sample import LiveSample, dead_letters
from spatialstream.connectors.kafka import Topics
from spatialstream.model.space import WGS84

MARK = b"clock"


class Message:
    def __init__(self, partition: int, offset: int, key: bytes | None, value: bytes) -> None:
        self._said = partition, offset, key, value

    def error(self) -> None:
        return None

    def partition(self) -> int:
        return self._said[0]

    def offset(self) -> int:
        return self._said[1]

    def key(self) -> bytes | None:
        return self._said[2]

    def value(self) -> bytes:
        return self._said[3]

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_000 + self._said[1]


class Broker:
    """Two partitions, read from where they ended; stands for a connection and its consumer."""

    shown = None

    def __init__(self) -> None:
        self.log: list[list[tuple[bytes | None, bytes]]] = [[(None, b"before")], []]
        self.next: dict[int, int] = {}

    def topics(self, stream: str) -> Topics:
        return Topics(stream)

    def consumer(self, group: str) -> Broker:
        return self

    def list_topics(self, topic: str, timeout: float) -> Any:
        described = type("Topic", (), {"error": None, "partitions": dict.fromkeys(range(len(self.log)))})
        return type("Topics", (), {"topics": {topic: described}})

    def get_watermark_offsets(self, place: Any, timeout: float) -> tuple[int, int]:
        return 0, len(self.log[place.partition])

    def assign(self, places: list[Any]) -> None:
        self.next = {each.partition: each.offset for each in places}

    def poll(self, timeout: float) -> Message | None:
        for partition, offset in self.next.items():
            if offset < len(self.log[partition]):
                self.next[partition] += 1
                return Message(partition, offset, *self.log[partition][offset])
        return None

    def close(self) -> None:
        pass


def line(name: str, **more: Any) -> bytes:
    return json.dumps({"id": name, "t": 5, "lon": 1.0, "lat": 2.0, "text": f"text of {name}"} | more).encode()


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def seeing(broker: Broker) -> LiveSample:
    return LiveSample(broker, "s", WGS84)  # type: ignore[arg-type]


def test_what_comes_is_counted_and_shown_with_its_text(broker: Broker, seeing: LiveSample) -> None:
    broker.log[0] += [(None, line("a") + b"\n" + line("b")), (MARK, b"{}")]
    broker.log[1] += [(None, line("c", terms=["x", "y"], text=None))]
    seen = seeing.take(0.05, 10)
    assert (seen.count, seen.exact) == (3, True)
    assert {(each.id, text) for each, text in seen.objects} == {("a", "text of a"), ("b", "text of b"), ("c", "x y")}
    assert seeing.take(0.02, 10).count == 0


def test_some_of_many_are_shown(broker: Broker, seeing: LiveSample) -> None:
    broker.log[1] += [(None, b"\n".join(line(f"o{i}.{j}") for j in range(10))) for i in range(30)]
    seen = seeing.take(0.05, 20)
    assert (seen.count, seen.exact) == (300, True)
    assert len({each.id for each, _ in seen.objects}) == 20


def test_what_is_too_much_is_passed_over_and_estimated(broker: Broker) -> None:
    seeing = LiveSample(broker, "s", WGS84, 20_000)  # type: ignore[arg-type]
    message = b"\n".join(line(f"o{j}") for j in range(10))
    for _ in range(6):  # until it knows how many are in a message
        broker.log[0] += [(None, message)] * 200
        seen = seeing.take(0.02, 20)
    assert not seen.exact
    assert seen.count == pytest.approx(2_000, rel=0.1)
    assert len(seen.objects) == 20
    broker.log[0].append((None, line("last")))
    assert [each.id for each, _ in seeing.take(0.02, 20).objects] == ["last"]


def test_what_the_stream_will_not_take_is_counted_and_not_shown(broker: Broker, seeing: LiveSample) -> None:
    odd = [
        b"no json",
        b"[]",
        b"3",
        line("far", lon=500),
        line("x", t="yesterday"),
        b'{"id": ' * 2000,
        line("good", text="t" * 999),
    ]
    broker.log[0] += [(None, each) for each in odd]
    seen = seeing.take(0.05, 20)
    assert seen.count == len(odd)
    ((each, text),) = seen.objects
    assert (each.id, len(text)) == ("good", 280)


def test_the_newest_dead_letters_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    letters = [
        {"source": "objects/1", "offset": i, "line": 1, "reason": f"r{i}", "record": {"id": "é"}} for i in range(9)
    ]

    class Offsets:
        def partitions(self, topics: list[str]) -> dict[str, int]:
            return dict.fromkeys(topics, 1)

        def bounds(self, partitions: dict[str, int]) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
            return {each: [2] for each in partitions}, {each: [9] for each in partitions}

    def read(connection: object, topic: str, partition: int, start: int, end: int) -> Any:
        assert (topic, partition) == ("s.rejected", 0)
        yield [Message(0, i, None, json.dumps(letters[i]).encode()) for i in range(start, end)]

    monkeypatch.setattr(live_sample, "offsets", lambda connection: Offsets())
    monkeypatch.setattr(live_sample, "read", read)
    found = dead_letters(Broker(), "s", 3)  # type: ignore[arg-type]
    assert found.count == 7
    assert [each["reason"] for each in found.newest] == ["r8", "r7", "r6"]
    assert found.newest[0] == letters[8] | {"record": '{"id": "é"}', "at": 1_008}
