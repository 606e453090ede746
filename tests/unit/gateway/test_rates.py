"""What one client may have: a rate with a burst, told when to come again; others are not held back."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.gateway.access import Access
from spatialstream.gateway.app import Gateway, Limits
from spatialstream.gateway.problems import Problem
from spatialstream.gateway.rates import RateLimits, Rates
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
    assert len(rates._paid) == 1


def test_over_http_each_client_has_its_own(tmp_path: Path) -> None:
    tokens = [
        {"name": name, "token": f"{name}-0123456789012345", "rights": ["watch"], "streams": ["s"]}
        for name in ("one", "two")
    ]
    (tmp_path / "tokens").write_text("".join(json.dumps(each) + "\n" for each in tokens))
    limits = Limits(client=RateLimits(0.01, 250.0, connections=1))
    gateway = Gateway([served("s", results=opener(Topic()))], Access(tmp_path / "tokens"), limits=limits)
    with serving(gateway) as nobody:
        one, two = (Client(nobody.port, f"{name}-0123456789012345") for name in ("one", "two"))
        path = "/streams/s/results?query=q&wait=0"
        statuses = [one("GET", path).status for _ in range(4)]
        assert statuses == [200, 200, 200, 429]
        refused = one("GET", path)
        assert refused.errors == []
        assert 0 < int(refused.headers["retry-after"]) <= 51
        assert two("GET", path).status == 200
        assert [nobody("GET", path).status for _ in range(4)] == [401, 401, 401, 429]
        assert nobody("GET", "/openapi.json").status == 200


def test_polls_are_connections_too() -> None:
    topic = Topic()
    gateway = Gateway([served("s", results=opener(topic))], limits=Limits(client=RateLimits(connections=1)))
    with serving(gateway) as client, ThreadPoolExecutor(1) as thread:
        path = "/streams/s/results?query=q"
        for accept in ("application/jsonl", "text/event-stream"):
            first = thread.submit(client, "GET", path)
            assert await_condition(lambda: gateway.streams["s"].feed.listeners == 1, 60.0)
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
