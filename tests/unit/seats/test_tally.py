"""Questions are counted once, where their first slot is, and stay counted when their seat has gone."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from spatialstream.model.errors import Gone
from spatialstream.model.queries import QueryBatch, parse_query
from spatialstream.model.space import WGS84
from spatialstream.seats.desk import Desk
from spatialstream.seats.tally import ASKED, LIMITS, OUTCOMES, Counts, Tally, none_asked
from spatialstream.seats.wire import act, client_of, options
from spatialstream.sources.requests import no_requests
from spatialstream.stages.route import queries_with_numbers
from spatialstream.stages.two_phase import requests

BASE = {"id": "q", "t": 0, "duration": "1h", "region": {"box": [0, 0, 1, 1]}, "at": [0, 0], "k": 3}
FIELDS = {"SRQ": ("region",), "SKQ": ("at", "k"), "STQ": ("region", "k")}


def questions(asked: Sequence[tuple[str, Sequence[int]]]) -> pa.RecordBatch:
    """Questions of types, for slots."""
    records = [
        {name: BASE[name] for name in ("id", "t", "duration", *FIELDS[kind])} | {"type": kind} for kind, _ in asked
    ]
    queries = QueryBatch.of([parse_query(each, WGS84) for each in records])
    row = np.repeat(np.arange(len(asked)), [len(slots) for _, slots in asked])
    slot = np.array([each for _, slots in asked for each in slots], np.int32)
    return requests(queries_with_numbers(queries, np.arange(len(asked))), row, slot)


def outcomes(counts: Counts) -> dict[str, list[int]]:
    """Counts of the types by outcome, those that are not 0."""
    columns = {name: counts[:, i].astype(int).tolist() for i, name in enumerate(OUTCOMES)}
    return {name: column for name, column in columns.items() if any(column)}


def test_an_answer_is_counted_once_of_all_seats() -> None:
    batch = questions([("SRQ", [0, 2]), ("SRQ", [2]), ("SKQ", [1]), ("STQ", [1, 0])])
    tallies = [Tally() for _ in range(2)]
    for tally, slots in zip(tallies, ([0, 1], [2]), strict=True):
        with tally.counting(slots, batch):
            pass
    assert [outcomes(each.counts) for each in tallies] == [{"answered": [1, 1, 1]}, {"answered": [1, 0, 0]}]
    times = tallies[0].counts[:, len(OUTCOMES) :]
    assert times[:, :-1].sum(axis=1).tolist() == [1, 1, 1]
    assert (times[:, -1] > 0).all()


def test_a_second_phase_is_no_other_question_but_has_its_time() -> None:
    batch = questions([("SKQ", [1])])
    tally = Tally()
    with tally.counting([1], batch.append_column("since", pa.array([0]))):
        pass
    assert outcomes(tally.counts) == {}
    assert tally.counts[1, len(OUTCOMES) : -1].sum() == 1


def test_what_is_not_answered_is_counted_by_why() -> None:
    batch, tally = questions([("SRQ", [0, 2]), ("SKQ", [1])]), Tally()
    for error in (Gone("it has gone"), ValueError("a defect"), GeneratorExit()):
        with pytest.raises(type(error)), tally.counting([2], batch):
            raise error
    assert outcomes(tally.counts) == {name: [1, 1, 0] for name in ("again", "failed", "abandoned")}
    assert not tally.counts[:, len(OUTCOMES) :].any()


def test_a_question_for_no_slot_is_nobodys() -> None:
    tally = Tally()
    with tally.counting([0], questions([("SRQ", [0]), ("STQ", [])])):
        pass
    assert outcomes(tally.counts) == {"answered": [1, 0, 0]}


def test_the_limits_are_those_of_a_histogram() -> None:
    assert list(LIMITS) == sorted(LIMITS)
    assert LIMITS[-1] == float("inf")
    assert [each.value for each in ASKED] == ["SRQ", "SKQ", "STQ"]


def test_what_seats_tell_adds_up_though_they_go() -> None:
    desk, how = Desk("127.0.0.1", "own", 10.0), options("own", 5.0)
    client = client_of(f"127.0.0.1:{desk.port}")
    about = {"number": 0, "address": "127.0.0.1:1", "executor": "1", "pid": 1, "worked": {}, "progress": 0, "memory": 0}

    def hello(name: str, known: bool, answered: int) -> str:
        asked = none_asked()
        asked[0, 0] = answered
        made = np.full_like(no_requests(), answered)
        said = {**about, "name": name, "known": known, "asked": asked.tolist(), "requests": made.tolist()}
        return str(act(client, "hello", json.dumps(said).encode(), how))

    try:
        assert [hello("a", False, 0), hello("a", True, 5), hello("a", True, 7)] == ["stay"] * 3
        assert [hello("b", False, 0), hello("b", True, 2)] == ["stay"] * 2  # in the place of the first
        assert hello("a", True, 100) == "lost"
        assert desk.asked[0, 0] == 9
        assert desk.asked.sum() == 9
        assert (desk.requests == 9).all()
    finally:
        desk.shutdown()
