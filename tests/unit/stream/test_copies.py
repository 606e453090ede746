"""Every row of a live stream is the oracle's when slots have copies of objects, and several of them find one match."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spatialstream.index.kinds import AUTO
from spatialstream.model.kinds import QueryType
from spatialstream.model.space import WGS84, Space
from spatialstream.stages.copies import Delivery
from tests.lengths import examples, portions
from tests.simulation import Simulation
from tests.streams import PLANE, Stream, random_stream
from tests.unit.index.samples import replicating_kind
from tests.unit.stream.test_stream import differences, in_order, simulated


@pytest.fixture(scope="module", autouse=True)
def kinds() -> Iterator[None]:
    with replicating_kind():
        yield


def some_stream(seed: int, space: Space = WGS84) -> Stream:
    return in_order(random_stream(seed, 200, 40, space, where=0.3, expressions=0.6))


def copies(simulation: Simulation) -> int:
    return sum(load.get("copies", 0) for _, summary in simulation.rounds for load in summary.loads.values())


@pytest.mark.parametrize("slots", [1, 2, 5, 16])
@settings(max_examples=examples(2, 60), suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 10**6), space=st.sampled_from([WGS84, PLANE]))
def test_while_versions_change_and_everything_fails(seed: int, space: Space, slots: int) -> None:
    stream = some_stream(seed, space)
    simulation = simulated(stream, seed, 0.005, 0.4, 0.03, slots=slots, index="replicating")
    assert differences(stream, simulation) == []
    assert slots > 1 or copies(simulation) == 0


@portions(2)
@settings(max_examples=examples(4, 50), suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 10**6), space=st.sampled_from([WGS84, PLANE]))
def test_while_an_index_that_replicates_follows_one_that_does_not_and_the_other_way_round(
    portion: int, seed: int, space: Space
) -> None:
    stream = some_stream(seed, space)
    simulation = simulated(stream, seed, 0.01, 0.5, 0.03, slots=4, index=AUTO)
    assert differences(stream, simulation) == []


def test_each_object_is_stored_once() -> None:
    stream = some_stream(11)
    simulation = simulated(stream, 11, 0.0, 0.4, 0.0, slots=4, index="replicating")
    loads = [load for _, summary in simulation.rounds for load in summary.loads.values()]
    assert sum(load["objects"] for load in loads) == len(stream.objects)
    assert copies(simulation) > 100


def test_without_reporters_matches_are_reported_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the tests above would notice if they were wrong."""
    stream = in_order(random_stream(6, 400, 60, WGS84, types=[QueryType.CRQ], expressions=1.0, vocabulary=60))
    given_ = {"chaos": 0.0, "rebalances": 0.3, "disturbances": 0.0, "slots": 5, "index": "replicating"}
    assert differences(stream, simulated(stream, 6, **given_)) == []
    monkeypatch.setattr(Delivery, "reported", lambda self, objects, row, *_: np.ones(len(row), np.bool_))
    assert differences(stream, simulated(stream, 6, **given_)) != []
