"""Every row of a live stream is the oracle's under each kind of index."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spatialstream.index.kinds import DEFAULT, KINDS
from spatialstream.model.kinds import TYPES
from spatialstream.model.space import WGS84, Space
from tests.lengths import examples
from tests.streams import PLANE, random_stream
from tests.unit.stream.test_stream import differences, in_order, simulated


@pytest.mark.parametrize("slots", [1, 3, 16])
@pytest.mark.parametrize("kind", sorted({*KINDS} - {DEFAULT}))
@settings(max_examples=examples(1, 30), suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 10**6), space=st.sampled_from([WGS84, PLANE]))
def test_with_another_kind_of_index(seed: int, space: Space, slots: int, kind: str) -> None:
    stream = in_order(random_stream(seed, 200, 40, space, types=TYPES, where=0.3))
    simulation = simulated(stream, seed, 0.005, rebalances=0.4, disturbances=0.03, slots=slots, index=kind)
    version = simulation.store.load(simulation.store.state().active.number)
    assert version.index.kind == kind
    assert differences(stream, simulation) == []
