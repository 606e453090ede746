"""A stream that is silent for so long that the broker has removed all announcements: it continues."""

from __future__ import annotations

import time
import types
from collections.abc import Iterator
from typing import Any

import pytest

from spatialstream.connectors.memory import MemoryLog
from spatialstream.model.errors import StateError, Unavailable
from spatialstream.stages import views
from spatialstream.stages.state import forget
from spatialstream.stream.job import RouterJob, WorkerJob
from tests.unit.stream.test_full_disk import Stream


@pytest.fixture(autouse=True)
def nothing_is_kept() -> Iterator[None]:
    yield
    forget()
    views.forget()


class Silent:
    """A stream whose first half has come, and has been answered; processes have leases."""

    def __init__(self, checkpoint_interval: float = 10.0) -> None:
        self.stream, self.checkpoint_interval = Stream(), checkpoint_interval
        log = self.stream.source.logs["objects/0"]
        messages = log.read(*log.bounds)
        half = len(messages) // 2
        self.stream.source.logs["objects/0"] = MemoryLog()
        self.later = messages[half:]
        self.come(messages[:half])
        self.log, self.number, self.passed = self.stream.announced, 0, 0.0
        self.router, self.worker = self.new_router(), self.new_worker()
        self.work()

    def come(self, messages: list[Any]) -> None:
        self.stream.source.logs["objects/0"].append(*messages)

    def _arguments(self) -> dict[str, Any]:
        self.number += 1
        lease = types.SimpleNamespace(number=self.number, superseded=False)
        return {**self.stream.arguments(), "clock": lambda: time.monotonic() + self.passed, "lease": lease}

    def new_router(self) -> RouterJob:
        job = RouterJob(**self._arguments(), most_messages=40, checkpoint_interval=self.checkpoint_interval)
        job.prepare()
        return job

    def new_worker(self) -> WorkerJob:
        job = WorkerJob(**self._arguments(), checkpoint_interval=0.0)
        job.prepare()
        return job

    def work(self) -> None:
        """Work until there is nothing more to do."""
        while self.router.turn():
            pass
        idle = 0
        while idle < 3:
            idle = 0 if self.worker.turn() else idle + 1

    def a_day_passes(self) -> None:
        """With a broker that keeps nothing for longer, whatever its configuration."""
        self.passed += 86_400.0
        for job in (self.router, self.worker):
            assert not job.turn()
        self.log.remove(self.log.bounds[1])


@pytest.mark.parametrize("router", ["goes on", "restarted before", "restarted after"])
@pytest.mark.parametrize("worker", ["goes on", "has failed", "restarted"])
def test_a_stream_goes_on_after_a_day_of_silence(router: str, worker: str) -> None:
    silent = Silent()
    if router == "restarted before":
        silent.router = silent.new_router()
    silent.a_day_passes()
    if router == "restarted after":
        silent.router = silent.new_router()
    if worker == "has failed":
        silent.worker.forget()
    if worker == "restarted":
        silent.worker = silent.new_worker()
    silent.come(silent.later)
    silent.work()
    assert silent.stream.differences() == []


def test_what_was_announced_and_is_gone_is_missed() -> None:
    silent = Silent()
    silent.come(silent.later[:60])
    while silent.router.turn():
        pass
    silent.log.remove(silent.log.bounds[1])
    silent.worker.forget()
    silent.come(silent.later[60:])
    while silent.router.turn():
        pass
    with pytest.raises(StateError, match="the last one received is"):
        silent.worker.turn()


def test_decisions_that_are_lost_are_noticed() -> None:
    silent = Silent()
    silent.log.remove(silent.log.bounds[1])
    with pytest.raises(StateError, match=r"epochs/done in .* records turn \d+ as done, but .* have been lost"):
        silent.new_router()


def test_jobs_have_the_log_cut_and_go_on_from_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = Silent(checkpoint_interval=0.0)
    for _ in range(4):
        silent.come(silent.later[:10])
        del silent.later[:10]
        silent.work()
    assert silent.log.bounds[0] == 0

    def refused(before: int) -> None:
        raise Unavailable("epochs cannot be cut")

    with monkeypatch.context() as broken:
        broken.setattr(silent.stream.world.channel, "cut", refused)
        for _ in range(3):
            silent.worker.beside()
    assert [each for each in silent.stream.said if "cut" in each] == [
        "worker: epochs cannot be cut; the log grows until it can be truncated"
    ], "once in a while"
    assert silent.log.bounds[0] == 0
    silent.passed += 300.0
    silent.worker.beside()
    first, last = silent.log.bounds
    assert 0 < first < last
    silent.router, silent.worker = silent.new_router(), silent.new_worker()
    silent.come(silent.later)
    silent.work()
    assert silent.stream.differences() == []
