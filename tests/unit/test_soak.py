"""The verdict of the soak benchmark."""

from __future__ import annotations

import pytest

from tests.benchmarks.bench_soak import Soak, figures, growth


def test_what_came_before_the_retention_counts_for_nothing() -> None:
    times = [float(minute) for minute in range(60)]
    filling = [min(1.0, t / 10.0) for t in times]
    assert growth(times, filling, 12.5) == 0.0
    assert growth(times, filling, 0.0) > 0.05


def test_a_peak_is_no_growth_and_creeping_is() -> None:
    times = [float(minute) for minute in range(60)]
    assert abs(growth(times, [3.0 if t == 55 else 1.0 for t in times], 12.5)) < 1e-12
    assert growth(times, [1.0 + t / 100 for t in times], 12.5) > 0.05


def test_each_process_has_a_row_and_those_that_grow_say_so() -> None:
    looks = [(float(t), {"worker actor-0": 1e6 * (1 + t / 50), "state": 1e6}) for t in range(60)]
    rows = {row["name"]: row for row in figures(looks, Soak())}
    assert "flat" in rows["memory of state"]["note"]
    assert "GROWS by more than 5%" in rows["memory of worker actor-0"]["note"]


def test_a_time_in_which_nothing_can_be_judged_is_refused() -> None:
    with pytest.raises(ValueError, match=r"3 minutes have to be more than 1\.25 times"):
        Soak(minutes=3.0)
