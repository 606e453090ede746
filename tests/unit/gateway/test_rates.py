"""What one client may have: a rate with a burst, told when to come again, and turns; others are not held back."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.gateway.access import Access
from spatialstream.gateway.app import Gateway, Limits
from spatialstream.gateway.problems import Problem
from spatialstream.gateway.rates import RateLimits, Rates, Turn, Turns
from spatialstream.servers.process import await_condition
from tests.unit.client.broker import Topic
from tests.unit.gateway.http import Client, served, serving
from tests.unit.gateway.results import messages, opener, row


@given(st.floats(0.5, 100), st.floats(0.1, 10), st.lists(st.tuples(st.floats(0, 3), st.integers(1, 50)), max_size=60))
def test_nobody_has_more_than_rate_and_burst(rate: float, burst: float, asked: list[tuple[float, int]]) -> None:
    now, had, largest = 0.0, 0, 0
    rates = Rates(RateLimits(rate, burst), lambda: now)
    for pause, cost in asked:
        now += pause
        try:
            rates.take("one", cost)
        except Problem as problem:
            now += int(problem.headers["Retry-After"]) + 1e-6
            rates.take("one", cost)  # as it is told
        had, largest = had + cost, max(largest, cost)
        assert had <= rate * (now + burst) + largest + 1e-6
        rates.take("another")


def test_who_has_nothing_to_pay_is_forgotten() -> None:
    now = 0.0
    rates = Rates(RateLimits(10.0), lambda: now)
    for name in range(10_000):
        rates.take(f"{name}")
    now = 5.0
    rates.take("one more")
    assert len(rates) == 1


def test_over_http_each_client_has_its_own(tmp_path: Path) -> None:
    tokens = [
        {"name": name, "token": f"{name}-0123456789012345", "rights": ["watch"], "streams": ["s"]}
        for name in ("one", "two", "new")
    ]
    (tmp_path / "tokens").write_text("".join(json.dumps(each) + "\n" for each in tokens))
    limits = Limits(client=RateLimits(0.01, 250.0, connections=1))
    gateway = Gateway([served("s", results=opener(Topic()))], Access(tmp_path / "tokens"), limits=limits)
    with serving(gateway) as nobody:
        one, two, new = (Client(nobody.port, f"{name}-0123456789012345") for name in ("one", "two", "new"))
        path = "/streams/s/results?query=q&wait=0"
        statuses = [one("GET", path).status for _ in range(4)]
        assert statuses == [200, 200, 200, 429]
        refused = one("GET", path)
        assert refused.errors == []
        assert 0 < int(refused.headers["retry-after"]) <= 51
        assert two("GET", path).status == 200
        assert [nobody("GET", path).status for _ in range(4)] == [401, 401, 401, 429]
        assert two("GET", path).status == 200
        assert new("GET", path).status == 429, "else one could go on trying tokens out"
        assert nobody("GET", "/openapi.json").status == 200


def test_polls_are_connections_too() -> None:
    topic = Topic()
    gateway = Gateway([served("s", results=opener(topic))], limits=Limits(client=RateLimits(connections=1)))
    feed = gateway.streams["s"].feed
    with serving(gateway) as client, ThreadPoolExecutor(1) as thread:
        path = "/streams/s/results?query=q"
        for accept in ("application/jsonl", "text/event-stream"):
            first = thread.submit(client, "GET", path)
            assert await_condition(lambda: feed.listeners == 1, 60.0)
            assert feed.clients == ["127.0.0.1"]
            refused = client("GET", path, accept=accept)
            assert (refused.status, refused.headers["retry-after"]) == (429, "5")
            topic.messages += messages([row("q", len(topic.messages))], 1, len(topic.messages))
            assert first.result().status == 200


def test_connections_of_a_client_are_counted() -> None:
    rates = Rates(RateLimits(connections=1))
    with (
        rates.connected("one"),
        rates.connected("two"),
        pytest.raises(Problem, match="one has 1 connections"),
        rates.connected("one"),
    ):
        pass
    with rates.connected("one"):
        pass


class Places:
    """Who has a place, each by whom and when they came."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self.having, self.left = dict[str, Turn](), list[str]()
        self.tasks = set[asyncio.Task[None]]()

    async def want(self, *names: str) -> None:
        for name in names:
            self.tasks.add(asyncio.create_task(self._take(name)))
            await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def _take(self, name: str) -> None:
        self.having[name] = await self._turns.take(name[0], lambda: self._leave(name))

    def _leave(self, name: str) -> None:
        self.left.append(name)
        self.give(name)

    def give(self, name: str) -> None:
        self._turns.give(self.having.pop(name))


def test_a_client_has_a_part_of_the_places() -> None:
    async def test() -> None:
        places = Places(Turns(4, 2, 60.0))
        await places.want("a1", "a2", "a3", "a4", "b1", "b2", "c1")
        assert list(places.having) == ["a1", "a2", "b1", "b2"]
        places.give("b1")
        await places.want()
        assert list(places.having) == ["a1", "a2", "b2", "c1"]
        places.give("a2")
        await places.want()
        assert list(places.having) == ["a1", "b2", "c1", "a3"]
        for each in places.tasks:
            each.cancel()  # who waits has gone
        await places.want("a5")
        places.give("a1")
        await places.want()
        assert list(places.having) == ["b2", "c1", "a3", "a5"]
        assert not places.left

    asyncio.run(test())


def test_who_has_had_a_place_for_long_leaves_it_to_who_waits() -> None:
    async def test() -> None:
        places = Places(Turns(2, 1, 0.05))
        await places.want("a1", "b1")
        await asyncio.sleep(0.1)
        assert not places.left, "nobody waits"
        await places.want("c1")
        assert places.left == ["a1"]
        await places.want("b2")
        assert places.left == ["a1", "b1"], "one's own, where that is all one may have"
        await places.want("d1")
        assert list(places.having) == ["c1", "b2"]
        await asyncio.sleep(0.1)
        assert (places.left, list(places.having)) == (["a1", "b1", "c1"], ["b2", "d1"])

    asyncio.run(test())
