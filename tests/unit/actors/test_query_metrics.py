"""Queries are counted once, in the actor that answers, and stay counted when the actor has gone."""

from __future__ import annotations

import json

import numpy as np
import pytest

from spatialstream.actors.query_metrics import ASKED, LIMITS, OUTCOMES, Counts, QueryMetrics, none_asked
from spatialstream.actors.registry import ActorRegistry
from spatialstream.actors.wire import act, client_of, options
from spatialstream.connectors.requests import no_requests


def outcomes(counts: Counts) -> dict[str, list[int]]:
    """The counts of the types by outcome, without zeros."""
    columns = {name: counts[:, i].astype(int).tolist() for i, name in enumerate(OUTCOMES)}
    return {name: column for name, column in columns.items() if any(column)}


def test_queries_are_counted_by_type_and_outcome_and_answers_by_latency() -> None:
    metrics, (srq, skq, stq, _) = QueryMetrics(), ASKED
    metrics.count([srq, stq, srq], "answered", 0.0015)
    metrics.count([skq], "answered", 3.0)
    for outcome in ("again", "failed", "abandoned"):
        metrics.count([srq, skq], outcome, 1.0)
    assert outcomes(metrics.counts) == {
        "answered": [2, 1, 1, 0],
        **{name: [1, 1, 0, 0] for name in ("again", "failed", "abandoned")},
    }
    buckets, seconds = metrics.counts[:, len(OUTCOMES) : -1], metrics.counts[:, -1]
    assert buckets[:, LIMITS.index(0.002)].tolist() == [2, 0, 1, 0]
    assert buckets[:, LIMITS.index(5.0)].tolist() == [0, 1, 0, 0]
    assert buckets.sum() == 4
    assert seconds.tolist() == pytest.approx([0.003, 3.0, 0.0015, 0.0])


def test_the_limits_are_those_of_a_histogram() -> None:
    assert list(LIMITS) == sorted(LIMITS)
    assert LIMITS[-1] == float("inf")
    assert [*ASKED] == ["SRQ", "SKQ", "STQ", "SBQ"]


def test_what_actors_tell_adds_up_though_they_go() -> None:
    registry, how = ActorRegistry("127.0.0.1", "own", 10.0), options("own", 5.0)
    client = client_of(f"127.0.0.1:{registry.port}")
    about = {"number": 0, "address": "127.0.0.1:1", "executor": "1", "pid": 1, "worked": {}, "progress": 0, "memory": 0}

    def heartbeat(name: str, known: bool, answered: int) -> str:
        asked = none_asked()
        asked[0, 0] = answered
        made = np.full_like(no_requests(), answered)
        said = {**about, "name": name, "known": known, "asked": asked.tolist(), "requests": made.tolist()}
        return str(act(client, "heartbeat", json.dumps(said).encode(), how))

    try:
        assert [heartbeat("a", False, 0), heartbeat("a", True, 5), heartbeat("a", True, 7)] == ["stay"] * 3
        assert [heartbeat("b", False, 0), heartbeat("b", True, 2)] == ["stay"] * 2  # in the place of the first
        assert heartbeat("a", True, 100) == "lost"
        assert registry.asked[0, 0] == 9
        assert registry.asked.sum() == 9
        assert (registry.requests == 9).all()
    finally:
        registry.shutdown()
