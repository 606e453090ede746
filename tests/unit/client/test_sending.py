"""What a sender stamps: lines written once, with other timestamps each time."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.client import sending
from spatialstream.client.sending import Sender
from spatialstream.connectors.kafka import Topics
from spatialstream.model.errors import SettingError, Unavailable
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.space import WGS84
from spatialstream.records.encode import object_lines
from tests.unit.index.samples import query

_TEXTS = st.text(max_size=8) | st.sampled_from(['", "t": 1000000000000', '"t": 1000000000000', "1000000000000", "\n"])
_OBJECTS = st.lists(
    st.builds(
        SpatialObject,
        st.uuids().map(str).flatmap(lambda unique: _TEXTS.map(lambda text: text + unique)),
        st.integers(0, 10**13),
        st.floats(-180, 180),
        st.floats(-90, 90),
        st.lists(st.text("abcdé", min_size=1, max_size=4), max_size=3, unique=True).map(tuple),
    ),
    max_size=12,
)


def encode(batch: ObjectBatch) -> memoryview:
    return object_lines(batch, WGS84)


def records(text: bytes) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.split(b"\n")[:-1]]


@given(_OBJECTS, st.data())
def test_stamped_lines_are_those_of_stamped_objects(objects: list[SpatialObject], data: st.DataObject) -> None:
    batch = ObjectBatch.of(objects)
    lines = sending.StampedLines(batch, WGS84)
    assert len(lines) == len(batch)
    for _ in range(3):
        first = data.draw(st.integers(0, len(batch)))
        last = data.draw(st.integers(first, len(batch)))
        now = data.draw(st.integers(10**12, 10**13 - 1))
        part = batch.take(np.arange(first, last))
        expected = encode(replace(part, t=np.full(last - first, now, np.int64)))
        assert records(lines.stamped(first, last, now).tobytes()) == records(bytes(expected))


class Topic:
    """Stands for a connection, and for its producer, which keeps what it is given."""

    bootstrap = "nowhere:1"

    def __init__(self) -> None:
        self.messages: list[tuple[TopicPartition, bytes, bytes | None]] = []

    def topics(self, stream: str) -> Topics:
        return Topics(stream)

    def why(self, problem: str) -> str:
        return problem

    def producer(self, **options: object) -> Self:
        return self

    def list_topics(self, timeout: float) -> Any:
        return SimpleNamespace(topics={"s.objects": SimpleNamespace(partitions={0: None, 1: None})})

    def produce(self, topic: str, value: bytes, key: bytes | None, partition: int, **more: object) -> None:
        self.messages.append((TopicPartition(topic, partition), value, key))

    def poll(self, timeout: float) -> int:
        return 0

    def flush(self, timeout: float) -> int:
        return 0


def sending_to(topic: Topic, stream: str = "s", **more: Any) -> Sender:
    return Sender(topic, stream, WGS84, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(("count", "expected"), [(None, 7), (17, 17), (3, 3)])
def test_objects_are_sent_round_and_round(count: int | None, expected: int) -> None:
    objects = ObjectBatch.of([SpatialObject(f"o{i}", 0, float(i), 0.0, ("a",)) for i in range(7)])
    topic = Topic()
    sender = sending_to(topic, rate=1000.0, objects_per_message=2, tick=0.005)
    sender.live(objects, sending.QueryBatch.of([]), 0.0, 60.0, lambda: False, count)
    sent = [value for at, value, key in topic.messages if at.topic == "s.objects" and key is None]
    ids = [line.split(b'"')[3] for value in sent for line in value.split(b"\n")]
    assert ids == [b"o%d" % (i % 7) for i in range(expected)]
    assert sender.sent == expected


@given(st.lists(st.integers(0, 900), min_size=1, max_size=40), st.integers(1, 7))
def test_messages_have_so_many_lines_and_no_more_bytes_than_fit(lengths: list[int], most: int) -> None:
    text = b"".join(b"x" * length + b"\n" for length in lengths)
    messages = list(sending.messages_of(np.frombuffer(text, np.uint8), most, 1000))
    assert b"\n".join(messages) + b"\n" == text
    for message in messages:
        assert message.count(b"\n") < most
        assert len(message) <= 1000


def test_queries_of_two_calls_share_no_id() -> None:
    queries = sending.QueryBatch.of([replace(query("SRQ"), id=f"srq{i}") for i in range(3)])
    first, second = (set(sending.with_own_ids(queries, token).ids.to_pylist()) for token in ("00000000", "00000001"))
    assert first == {"srq0@00000000", "srq1@00000000", "srq2@00000000"}
    assert not first & second


def test_queries_are_registered_from_now_on() -> None:
    topic = Topic()
    sending_to(topic).register(sending.QueryBatch.of([query("CRQ")]), 5_000)
    (value, *watermarks) = [value for at, value, _ in topic.messages]
    (record,) = records(value + b"\n")
    assert record["duration"] == 5_000
    assert [json.loads(each) for each in watermarks] == [{"clock": record["t"]}] * 3


def test_continuous_queries_are_registered_for_as_long_as_objects_come() -> None:
    asked = [replace(query(kind), id=kind) for kind in ("SRQ", "CRQ", "CTQ")]
    topic = Topic()
    objects = ObjectBatch.of([SpatialObject("o", 0, 0.0, 0.0, ("a",))])
    sender = sending_to(topic, rate=1000.0, tick=0.005)
    sender.live(objects, sending.QueryBatch.of(asked), 1000.0, 2.0, lambda: False, 10)
    sent = [value for at, value, key in topic.messages if at.topic == "s.queries" and key is None]
    found = [record for value in sent for record in records(value + b"\n")]
    assert [(each["id"], each["duration"]) for each in found[:2]] == [("CRQ", 62_000), ("CTQ", 62_000)]
    assert {str(each["id"]).split("#")[0] for each in found[2:]} == {"SRQ"}


def test_a_stream_that_is_not_there_and_a_broker_that_is_away_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingError, match=r"stream: the broker has no topic other\.objects; start the router first"):
        sending_to(Topic(), "other")

    def away(self: Topic, timeout: float) -> Any:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    monkeypatch.setattr(Topic, "list_topics", away)
    with pytest.raises(Unavailable, match="the broker at nowhere:1 does not answer: "):
        sending_to(Topic())


def promised(topic: Topic) -> tuple[list[int], int]:
    """The times of all records, none of which comes after a watermark that says so; and of the last watermark."""
    passed, times = 0, list[int]()
    for _, value, key in topic.messages:
        for record in records(value + b"\n"):
            if key is not None:
                passed = max(passed, int(str(record["clock"])))
            else:
                times.append(int(str(record["t"])))
                assert times[-1] >= passed, "nothing comes that is earlier than a watermark before it"
    return times, passed


@given(st.lists(st.integers(-3, 400), min_size=1, max_size=9))
def test_what_is_sent_now_is_let_through_by_the_watermark_that_follows_it(waits: list[int]) -> None:
    """An epoch ends just before the slowest clock, so one of the same ms would hold it back."""
    topic, clock, turn = Topic(), [10**12], [0]
    objects = ObjectBatch.of([SpatialObject(f"o{i}", 0, float(i), 0.0, ("a",)) for i in range(7)])
    asked = sending.QueryBatch.of([query("SRQ")])

    def wait(until: float) -> None:
        times, passed = promised(topic)
        assert max(times) < passed
        clock[0] += waits[turn[0] % len(waits)]  # a clock may stand, and be put back
        turn[0] += 1

    sender = sending_to(topic, rate=1000.0, tick=0.005, now=lambda: clock[0], wait=wait)
    sender.live(objects, asked, 100.0, 60.0, lambda: False, 60)
    times, _ = promised(topic)
    assert len(times) == 60 + 6
    assert turn == [12]


@given(
    st.lists(st.lists(st.integers(0, 90) | st.just(900), max_size=8), max_size=5),
    st.sampled_from([0.5, 1.0, 60.0]),
    st.lists(st.integers(0, 400), min_size=1, max_size=9),
)
def test_a_stream_that_is_relived_keeps_its_pace_and_its_watermarks(
    gaps: list[list[int]], speed: float, waits: list[int]
) -> None:
    batches, t = list[ObjectBatch](), 5
    for some in gaps:
        times = np.cumsum([t, *some])[1:].tolist()
        batches.append(ObjectBatch.of([SpatialObject(f"o{each}", each, 0.0, 0.0, ("a",)) for each in times]))
        t = times[-1] if times else t
    topic, clock, turn = Topic(), [10**12], [0]
    steps = [*waits, 400]  # with steps of 1 ms alone it would go on for ever
    times = [each for batch in batches for each in batch.t.tolist()]
    due = [10**12 + int((each - times[0]) / speed) for each in times]
    ends = {due[end - 1] for end in np.cumsum([len(batch) for batch in batches]) if end}

    def wait(until: float) -> None:
        sent, passed = promised(topic)
        if sent:
            assert passed > sent[-1] or sent[-1] in ends, "what was sent waits for more only where a batch ends"
        clock[0] += steps[turn[0] % len(steps)] + 1
        turn[0] += 1

    sending_to(topic, now=lambda: clock[0], wait=wait).relive(batches, speed, lambda: False)
    assert promised(topic)[0] == due
