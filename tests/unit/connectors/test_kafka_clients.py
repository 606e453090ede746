"""The clients of the broker that nobody uses, without a broker."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

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
