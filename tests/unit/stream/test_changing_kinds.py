"""Every row of a live stream is the oracle's while one kind of index follows another."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spatialstream.index.kinds import AUTO
from spatialstream.model.kinds import TYPES
from spatialstream.model.space import WGS84, Space
from tests.lengths import examples, portions
from tests.streams import PLANE, random_stream
from tests.unit.stream.test_stream import differences, in_order, simulated


@portions(4)
@settings(max_examples=examples(3, 25), suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 10**6), space=st.sampled_from([WGS84, PLANE]))
def test_while_kinds_of_index_follow_each_other(portion: int, seed: int, space: Space) -> None:
    """Objects are found under the kind that they came under, and continuous queries move from one kind to another."""
    stream = in_order(random_stream(seed, 200, 40, space, types=TYPES, where=0.3))
    simulation = simulated(stream, seed, 0.01, rebalances=0.5, disturbances=0.03, index=AUTO)
    assert differences(stream, simulation) == []


def test_kinds_do_follow_each_other() -> None:
    stream = in_order(random_stream(20, 300, 40, WGS84))
    simulation = simulated(stream, 20, chaos=0.01, rebalances=0.5, disturbances=0.02, index=AUTO)
    store = simulation.store
    kinds = [store.load(each).index.kind for each in store.versions()]
    assert len({*kinds}) >= 2, "some versions are gone again"
    assert simulation.rebuilt >= 2
    assert simulation.crashes >= 10
    assert differences(stream, simulation) == []
