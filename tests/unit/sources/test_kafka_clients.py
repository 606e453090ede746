"""The clients of the broker that nobody uses, without a broker."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from spatialstream.sources import kafka_clients


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
