"""A topic of results in memory that grows while it is read."""

from __future__ import annotations

import json
import time
from typing import Any

from spatialstream.client.results import Results
from spatialstream.connectors.delivery import Place
from tests.unit.client.broker import Broker, Topic


class Slow(Broker):
    """A broker that lets those wait a little who find nothing."""

    def consumer(self, group: str) -> Slow:
        return Slow(self.topic, self.letters)

    def poll(self, timeout: float) -> Any:
        message = super().poll(timeout)
        if message is None:
            time.sleep(0.002)
        return message


class Slower(Slow):
    """One that takes its time with each message."""

    def consumer(self, group: str) -> Slower:
        return Slower(self.topic, self.letters)

    def poll(self, timeout: float) -> Any:
        time.sleep(0.05)
        return super().poll(timeout)


def opener(*topic: Topic, broker: type[Slow] = Slow) -> Any:
    """Of the partitions of a topic."""
    return lambda start: Results(broker(topic), "s", start=start)  # type: ignore[arg-type]


def row(query: str, number: int) -> bytes:
    return json.dumps({"query": query, "type": "CRQ", "t": number, "object": {"id": f"o{number}"}}).encode()


def in_parts(query: str, number: int, count: int) -> list[bytes]:
    """The parts of a row."""
    head = f'{{"query": "{query}", "type": "SRQ", "t": {number}, "part": '
    return [f'{head}{i}, "parts": {count}, "objects": [{{"id": "o{i}"}}]}}'.encode() for i in range(count)]


def messages(
    lines: list[bytes], size: int, number: int, phase: int = 0, incarnation: str = "a"
) -> list[tuple[bytes, bytes]]:
    """The lines of a round's phase, so many to a message."""
    firsts = range(0, len(lines), size)
    return [(Place(number, phase, i, incarnation).key, b"\n".join(lines[i : i + size])) for i in firsts]
