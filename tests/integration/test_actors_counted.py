"""No work is done by one actor for all: of 8 actors the busiest has about an eighth, of each thing that is counted."""

from __future__ import annotations

from tests.benchmarks.bench_actors import COUNTED, counted

TOLERANCE = 1.3
"""By how much an actor's part may be more than an eighth: slots are even by expected work, ids by chance."""


def test_with_8_actors_each_has_an_eighth_of_the_work_of_one() -> None:
    one, eight = (counted(actors, 6_000, 3_000) for actors in (1, 8))
    for each in COUNTED:
        (whole,) = one[each]
        assert sum(eight[each]) == whole, each
        if each[0] != "INGEST":  # which is done by whoever is free
            assert len(eight[each]) == 8, each
            assert eight[each][0] <= TOLERANCE * whole / 8, (each, eight[each])
