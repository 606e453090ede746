"""Queries are counted once, in the actor of their first slot, and stay counted when the actor has gone."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from spatialstream.actors.query_metrics import ASKED, LIMITS, OUTCOMES, Counts, QueryMetrics, none_asked
from spatialstream.actors.registry import ActorRegistry
from spatialstream.actors.wire import act, client_of, options
from spatialstream.connectors.requests import no_requests
from spatialstream.model.errors import Gone
from spatialstream.model.queries import QueryBatch, parse_query
from spatialstream.model.space import WGS84
from spatialstream.stages.route import queries_with_numbers
from spatialstream.stages.two_phase import requests

BASE = {"id": "q", "t": 0, "duration": "1h", "region": {"box": [0, 0, 1, 1]}, "at": [0, 0], "k": 3}
FIELDS = {"SRQ": ("region",), "SKQ": ("at", "k"), "STQ": ("region", "k")}


def query_block(asked: Sequence[tuple[str, Sequence[int]]]) -> pa.RecordBatch:
    """Queries of types, for slots."""
    records = [
        {name: BASE[name] for name in ("id", "t", "duration", *FIELDS[kind])} | {"type": kind} for kind, _ in asked
    ]
    queries = QueryBatch.of([parse_query(each, WGS84) for each in records])
    row = np.repeat(np.arange(len(asked)), [len(slots) for _, slots in asked])
    slot = np.array([each for _, slots in asked for each in slots], np.int32)
    return requests(queries_with_numbers(queries, np.arange(len(asked))), row, slot)


def outcomes(counts: Counts) -> dict[str, list[int]]:
    """The counts of the types by outcome, without zeros."""
    columns = {name: counts[:, i].astype(int).tolist() for i, name in enumerate(OUTCOMES)}
    return {name: column for name, column in columns.items() if any(column)}


def test_an_answer_is_counted_once_of_all_actors() -> None:
    batch = query_block([("SRQ", [0, 2]), ("SRQ", [2]), ("SKQ", [1]), ("STQ", [1, 0])])
    metrics = [QueryMetrics() for _ in range(2)]
    for each, slots in zip(metrics, ([0, 1], [2]), strict=True):
        with each.counting(slots, batch):
            pass
    assert [outcomes(each.counts) for each in metrics] == [{"answered": [1, 1, 1]}, {"answered": [1, 0, 0]}]
    times = metrics[0].counts[:, len(OUTCOMES) :]
    assert times[:, :-1].sum(axis=1).tolist() == [1, 1, 1]
    assert (times[:, -1] > 0).all()


def test_a_second_phase_is_no_other_query_but_has_its_time() -> None:
    batch = query_block([("SKQ", [1])])
    metrics = QueryMetrics()
    with metrics.counting([1], batch.append_column("since", pa.array([0]))):
        pass
    assert outcomes(metrics.counts) == {}
    assert metrics.counts[1, len(OUTCOMES) : -1].sum() == 1


def test_what_is_not_answered_is_counted_by_why() -> None:
    batch, metrics = query_block([("SRQ", [0, 2]), ("SKQ", [1])]), QueryMetrics()
    for error in (Gone("it has gone"), ValueError("a defect"), GeneratorExit()):
        with pytest.raises(type(error)), metrics.counting([2], batch):
            raise error
    assert outcomes(metrics.counts) == {name: [1, 1, 0] for name in ("again", "failed", "abandoned")}
    assert not metrics.counts[:, len(OUTCOMES) :].any()


def test_a_query_for_no_slot_is_nobodys() -> None:
    metrics = QueryMetrics()
    with metrics.counting([0], query_block([("SRQ", [0]), ("STQ", [])])):
        pass
    assert outcomes(metrics.counts) == {"answered": [1, 0, 0]}


def test_the_limits_are_those_of_a_histogram() -> None:
    assert list(LIMITS) == sorted(LIMITS)
    assert LIMITS[-1] == float("inf")
    assert [each.value for each in ASKED] == ["SRQ", "SKQ", "STQ"]


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
