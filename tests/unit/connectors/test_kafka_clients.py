"""The clients of the broker that nobody uses, without a broker."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition

from spatialstream.connectors import kafka_clients
from spatialstream.connectors.kafka import Connection
from spatialstream.connectors.kafka_stream import KafkaChannel
from spatialstream.model.errors import Unavailable


class Renewed:
    """A connection whose password is another one each time that it is looked at."""

    bootstrap, file = "h:1", Path("kafka.properties")
    _numbers = iter(range(1_000_000_000))

    @property
    def shown(self) -> Mapping[str, str]:
        return {"sasl.password": f"{next(self._numbers)}"}


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads take turns as often as can be."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty")
def test_several_threads_may_use_clients_that_are_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_clients, "_idle", {})
    monkeypatch.setattr(kafka_clients, "_shown", {})
    connection, together = Renewed(), threading.Barrier(4)

    def use(thread: int) -> None:
        together.wait(60)
        for number in range(2_000):
            kafka_clients._unused(connection, f"{thread}/{number % 50}")  # type: ignore[arg-type]

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(use, range(4)))
    assert len(kafka_clients._idle) == 1


@dataclass
class Delivered:
    """A message as a producer tells of it."""

    place: str
    of: int
    at: int | None

    def topic(self) -> str:
        return self.place

    def partition(self) -> int:
        return self.of

    def offset(self) -> int | None:
        return self.at


class Acknowledging:
    """A producer whose broker takes everything, and tells where it has put it, or not."""

    def __init__(self, offsets: Iterator[int | None], on_delivery: Callable[[object, Delivered], None]) -> None:
        self._offsets, self._tell = offsets, on_delivery

    def produce(self, topic: str, value: object, key: bytes | None, partition: int) -> None:
        self._tell(None, Delivered(topic, partition, next(self._offsets)))

    def poll(self, patience: float) -> None: ...

    def flush(self, patience: float) -> int:
        return 0


@pytest.mark.parametrize(("offsets", "ends"), [([0, 7, 8], {0: 8, 1: 9}), ([None, 7, 8], {0: 8, 1: 9})])
def test_blocks_end_after_the_last_that_was_acknowledged(
    monkeypatch: pytest.MonkeyPatch, offsets: list[int | None], ends: dict[int, int]
) -> None:
    assert sent(monkeypatch, offsets) == ends


@pytest.mark.parametrize("offsets", [[0, None, 8], [0, 7, None], [None, None, 0]])
def test_blocks_of_which_nobody_knows_where_they_are_have_to_be_sent_again(
    monkeypatch: pytest.MonkeyPatch, offsets: list[int | None]
) -> None:
    with pytest.raises(Unavailable, match=r"did not return the offsets of blocks .* of s\.blocks"):
        sent(monkeypatch, offsets)


def sent(monkeypatch: pytest.MonkeyPatch, offsets: list[int | None]) -> dict[int, int]:
    """Where a channel says that two blocks of slot 0 and then one of slot 1 end."""
    told = iter(offsets)
    monkeypatch.setattr(kafka_clients, "_idle", {})
    monkeypatch.setattr(Connection, "producer", lambda self, **settings: Acknowledging(told, settings["on_delivery"]))
    channel = KafkaChannel(Connection("h:1"), "s", 2)
    return channel.send((slot, b"key", pa.py_buffer(b"x")) for slot in (0, 0, 1))


@dataclass
class Received:
    """A message as a consumer returns it."""

    at: int

    def error(self) -> None:
        return None

    def offset(self) -> int:
        return self.at


class Reading:
    """A consumer of a partition without an end, which hears nothing from some offset on, and then cannot be closed."""

    def __init__(self, stuck_at: int | None = None) -> None:
        self.stuck_at, self.next, self.given_up = stuck_at, 0, threading.Event()

    def assign(self, places: Sequence[TopicPartition]) -> None:
        self.next = places[0].offset

    def unassign(self) -> None: ...

    def poll(self, patience: float) -> Received | None:
        if self.next == self.stuck_at:
            threading.Event().wait(min(patience, 0.01))
            return None
        self.next += 1
        return Received(self.next - 1)

    def consume(self, most: int, patience: float) -> list[Received]:
        return []

    def close(self) -> None:
        self.given_up.set()
        if self.stuck_at is not None:
            threading.Event().wait()


def test_a_reader_that_hears_nothing_is_left_for_another_although_it_cannot_be_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    readers = [Reading(stuck_at=3), Reading(stuck_at=5), Reading(), Reading()]
    made = iter(readers)
    monkeypatch.setattr(kafka_clients, "SILENCE", 0.02)
    monkeypatch.setattr(Connection, "consumer", lambda self, group, **settings: next(made))
    connection = Connection("stuck:1")

    found = [each.offset() for several in kafka_clients.read(connection, "s.blocks", 0, 1, 9) for each in several]
    again = [each.offset() for several in kafka_clients.read(connection, "s.blocks", 0, 9, 11) for each in several]

    assert found + again == [*range(1, 11)]
    assert [each.given_up.wait(60) for each in readers[:2]] == [True, True]
    assert not any(each.given_up.is_set() for each in readers[2:])


def test_a_broker_of_which_no_reader_hears_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_clients, "PATIENCE", 0.1)
    monkeypatch.setattr(kafka_clients, "SILENCE", 0.02)
    monkeypatch.setattr(Connection, "consumer", lambda self, group, **settings: Reading(stuck_at=1))
    with pytest.raises(Unavailable, match=r"s\.blocks cannot be read: no answer within"):
        list(kafka_clients.read(Connection("silent:1"), "s.blocks", 0, 1, 9))
