"""Queries to a live stream between its rounds, while objects come, versions change and what answers is killed."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spatialstream.client import connect
from spatialstream.client.stream import Stream
from spatialstream.model.errors import Unavailable
from spatialstream.model.kinds import QueryType
from spatialstream.model.objects import SpatialObject
from spatialstream.model.queries import Query
from spatialstream.model.space import WGS84
from spatialstream.oracle import answers, check
from spatialstream.servers.process import await_condition
from tests.cluster.stream import PATIENCE, LiveStream, Servers
from tests.cluster.test_exact import rebalance
from tests.cluster.test_faults import kill_python, publish_moved
from tests.lengths import AT_LENGTH
from tests.streams import query_record, random_stream

SNAPSHOTS = (QueryType.SRQ, QueryType.SKQ, QueryType.STQ)
_MOST = 400
"""Answers that are compared with the oracle's."""

_KEPT = 20_000
"""Answers that are in memory until then."""


@dataclass
class Asking:
    """Asks a stream in threads of its own, as long as it lasts.

    Attributes:
        answers: queries as they were asked, and their rows: some of all, drawn at random, where there are many.
        given: how many there were.
        rounds: those that answers are as of.
        took: seconds of each call that gave answers.
        refused: what was said where there was no answer.
        failed: what else was raised.
    """

    stream: Stream
    query_block: list[Query]
    answers: list[tuple[Query, dict[str, Any]]] = field(default_factory=list)
    given: int = 0
    rounds: set[int] = field(default_factory=set)
    took: list[float] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    failed: list[BaseException] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)
    _chance: random.Random = field(default_factory=lambda: random.Random(3))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> Asking:
        self._threads = [threading.Thread(target=self._ask, args=(seed,)) for seed in range(3)]
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.over.set()
        for each in self._threads:
            each.join()

    def _ask(self, seed: int) -> None:
        chance = random.Random(seed)
        while not self.over.wait(0.02):
            self.ask(chance.choices(self.query_block, k=chance.choice([1, 1, 5])))

    def ask(self, query_block: list[Query], timeout: float = 2.0) -> bool:
        """Whether all were answered, as of one round."""
        records: list[dict[str, Any]] = [{**query_record(query), "t": None} for query in query_block]
        began = time.monotonic()
        try:
            rows = self.stream.ask(records, timeout=timeout)
        except Unavailable as error:
            self.refused.append(str(error))
            return False
        except Exception as error:  # noqa: BLE001 -- whatever it is, the test is to show it
            self.failed.append(error)
            return False
        self.took.append(time.monotonic() - began)
        for answer in zip(query_block, rows, strict=True):
            self._keep(answer)
        return len({str(row["as_of"]) for row in rows}) == 1

    def _keep(self, answer: tuple[Query, dict[str, Any]]) -> None:
        with self._lock:
            self.given += 1
            self.rounds.add(answer[1]["as_of"]["round"])
            if len(self.answers) < _KEPT:
                self.answers.append(answer)
            elif (at := self._chance.randrange(self.given)) < _KEPT:
                self.answers[at] = answer

    def answered_again(self) -> bool:
        """Whether it is answered, after what has just happened."""
        before = len(self.took)
        return await_condition(lambda: len(self.took) > before + 5, PATIENCE)

    def differences(self, objects: list[SpatialObject]) -> list[str]:
        """Where rows are not the oracle's over the objects up to their clock."""
        found = []
        for query, row in random.Random(1).sample(self.answers, min(_MOST, len(self.answers))):
            clock = row["as_of"]["clock"]
            if row["t"] != clock:
                found.append(f"{query}: at {row['t']}, not {clock}")
            expected, _ = answers([each for each in objects if each.t <= clock], [replace(query, t=clock)], WGS84)
            plain = {name: value for name, value in row.items() if name != "as_of"}
            found += [f"{query} as of {row['as_of']}: {each}" for each in check([plain], expected, 5)]
        return found


def _kill_worker(stream: LiveStream) -> None:
    stream.worker.kill()
    stream.worker.start(timeout=PATIENCE)


@pytest.mark.gate
@pytest.mark.timeout(2400)
def test_answers_are_the_oracles_as_of_their_rounds(
    servers: Servers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = random_stream(8, 20_000, 40, WGS84, types=SNAPSHOTS)
    objects = sorted(drawn.objects, key=lambda each: each.t)
    query_block = [query for query in drawn.queries if isinstance(query, Query)]
    lines = []

    with (
        LiveStream(servers, "asked", tmp_path, WGS84) as stream,
        connect("asked", servers.zookeeper.hosts) as opened,
        connect("asked", servers.zookeeper.hosts) as another,
    ):
        sending, unaware = stream.send(objects, [], rate=100.0, lasting=True), Asking(another, query_block)
        with Asking(opened, query_block) as asking:
            assert asking.answered_again()
            faults: list[tuple[str, Callable[[], object]]] = [
                *(
                    (f"{strategy} adopted", lambda strategy=strategy: _adopt(stream, strategy))
                    for strategy in (("FG", "PM", "FM") if AT_LENGTH else ("FG",))
                ),
                ("all actors killed", lambda: kill_python(stream)),
                ("the worker killed", lambda: _kill_worker(stream)),
                ("ZooKeeper away", lambda: _lose_zookeeper_after_an_adoption(stream, unaware)),
            ]
            for name, fault in faults:
                before, began = len(asking.refused), time.monotonic()
                fault()
                assert asking.answered_again(), f"{name}: {asking.refused[-1:]}"
                refused = len(asking.refused) - before
                lines.append(f"{name:<20} {time.monotonic() - began:5.1f} s, {refused} calls without an answer")
            assert await_condition(lambda: len(asking.rounds) > 10, PATIENCE)
            together = [each for each in query_block for _ in range(1 + 1000 // len(query_block))][:1000]
            began = time.monotonic()
            assert asking.ask(together, timeout=PATIENCE), asking.refused[-1:]
            lines.append(f"1,000 queries at once: {time.monotonic() - began:.2f} s")
            stream.sending.rate = 0.0  # the rest as fast as can be
            sending.join()
            end = objects[-1].t
            row = opened.ask(query_record(query_block[0]) | {"t": end}, at_least=end, timeout=PATIENCE)
            assert row["as_of"]["clock"] >= end
        assert not asking.failed + unaware.failed
        assert unaware.differences(objects) == []
        assert asking.differences(objects) == []
        took = np.percentile(asking.took, [50, 95]) * 1000
        with capsys.disabled():
            print("\n" + "\n".join(lines))
            print(
                f"{asking.given} answers as of {len(asking.rounds)} rounds; a call: {took[0]:.1f} ms, p95 {took[1]:.1f}"
            )


def _lose_zookeeper_after_an_adoption(stream: LiveStream, asking: Asking) -> None:
    """A client that has not seen the version when ZooKeeper goes is answered: the actors have it."""
    assert await_condition(lambda: asking.ask(asking.query_block[:1]), PATIENCE)
    number = publish_moved(stream)
    assert await_condition(lambda: stream.store.state().active.number == number, PATIENCE)
    stream.servers.zookeeper.kill()
    try:
        known = set(asking.rounds)
        assert await_condition(  # rounds under it among them
            lambda: asking.ask(asking.query_block) and len(asking.rounds - known) > 5, PATIENCE
        ), asking.refused[-1:]
    finally:
        stream.servers.zookeeper.start(timeout=PATIENCE)
    assert await_condition(lambda: asking.ask(asking.query_block), PATIENCE)


def _adopt(stream: LiveStream, strategy: str) -> None:
    before = stream.store.state().active.number
    assert await_condition(lambda: rebalance(stream, strategy), PATIENCE)
    assert await_condition(lambda: stream.store.state().active.number > before, PATIENCE)
