"""The watermark: up to which time all records have arrived."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spatialstream.model.jsonable import from_json, to_json
from spatialstream.stages.turns import NEVER
from spatialstream.stream.watermarks import PartitionWatermark, Watermarks


def test_the_slowest_partition_decides_and_its_last_ms_waits() -> None:
    clocks = Watermarks.start(["a", "b"], 0).heard({"a": 100, "b": 70}, 10)
    assert clocks.watermark(20, idle=1_000) == 69


def test_a_partition_that_has_never_spoken_holds_all_back_until_it_is_idle() -> None:
    clocks = Watermarks.start(["a", "b"], 0).heard({"a": 100}, 900)
    assert clocks.watermark(999, idle=1_000) == NEVER - 1 or clocks.watermark(999, idle=1_000) == NEVER
    assert clocks.watermark(1_000, idle=1_000) == 99


def test_when_all_are_idle_everything_is_released() -> None:
    clocks = Watermarks.start(["a", "b"], 0).heard({"a": 100, "b": 70}, 10)
    assert clocks.watermark(5_000, idle=1_000) == 100


def test_a_clock_never_goes_back() -> None:
    clocks = Watermarks.start(["a"], 0).heard({"a": 100}, 1).heard({"a": 50}, 2)
    assert clocks.partitions["a"] == PartitionWatermark(100, 2)
    assert clocks.at(99).at(10).end == 99


GIVEN = st.lists(
    st.tuples(st.dictionaries(st.sampled_from("abc"), st.integers(-1_000, 1_000), max_size=3), st.integers(0, 300)),
    max_size=20,
)


@given(GIVEN, st.integers(1, 500))
def test_epochs_never_go_back_and_survive_being_written_down(
    given_: list[tuple[dict[str, int], int]], idle: int
) -> None:
    now, clocks = 0, Watermarks.start(["a", "b", "c"], 0)
    for heard, passed in given_:
        now += passed
        clocks = clocks.heard(heard, now)
        watermark = clocks.watermark(now, idle)
        assert watermark >= clocks.end
        active = [clock.t for clock in clocks.partitions.values() if now - clock.heard < idle]
        if active and watermark > clocks.end:
            assert watermark < min(active)
        clocks = clocks.at(watermark)
        assert from_json(Watermarks, to_json(clocks)) == clocks
