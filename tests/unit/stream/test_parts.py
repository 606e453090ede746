"""Time of each phase of a turn."""

from __future__ import annotations

from spatialstream.stream.parts import Parts


def test_parts_follow_one_another_and_add_up() -> None:
    times = iter([1.0, 1.5, 3.5, 3.75, 4.0])
    parts = Parts(lambda: next(times))

    parts.begin("poll")
    parts.step("ingest")
    parts.step("route")
    parts.step("ingest")

    assert parts.end() == {"poll": 0.5, "ingest": 2.25, "route": 0.25}


def test_a_turn_that_came_to_nothing_counts_for_none() -> None:
    times = iter([1.0, 2.0, 5.0, 7.0, 7.5])
    parts = Parts(lambda: next(times))

    parts.begin("poll")
    parts.step("ingest")
    parts.begin("poll")
    parts.step("ingest")

    assert parts.end() == {"poll": 2.0, "ingest": 0.5}
