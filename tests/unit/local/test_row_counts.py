"""Row counts by query, compared with a dictionary."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from spatialstream.local.row_counts import Counts, RowCounts, rows_so_far
from tests.lengths import examples
from tests.unit.memory_files import MemoryFiles


def counts(rows: list[tuple[int, int]]) -> Counts:
    numbers, t = np.array(rows, np.int64).reshape(-1, 2).T
    return Counts.of(numbers.copy(), t.copy())


@pytest.mark.parametrize("seed", range(examples(60, 1000)))
def test_it_is_its_twin(seed: int) -> None:
    chance, files = random.Random(seed), MemoryFiles()
    counted, rows, last = RowCounts(), Counter[int](), dict[int, int]()
    distinct = chance.choice([1, 5, 300])
    before, then = counted.tiers, dict[int, tuple[int, int]]()
    for turn in range(chance.randint(1, 40)):
        new = [
            (chance.randrange(distinct) * 64, turn * 10 - chance.randint(-50, 50))
            for _ in range(chance.choice([0, 1, 7, 200]))
        ]
        cut = chance.randint(0, len(new))  # of two slots
        of_turn = RowCounts()
        for part in chance.sample([new[:cut], new[cut:]], 2):
            of_turn.add(counts(part))
        counted.add(of_turn.total())
        for number, t in new:
            rows[number] += 1
            last[number] = max(t, last.get(number, t))
        if chance.random() < 0.2:
            gone = np.array(chance.sample(range(distinct), distinct // 3), np.int64) * 64
            counted.retain(lambda numbers, gone=gone: ~np.isin(numbers, gone))
            for number in gone.tolist():
                del rows[number]
                last.pop(number, None)
        if chance.random() < 0.2:
            counted = RowCounts.restore(counted.checkpoint(files.write), files.read)
        right = {number: (rows[number], last[number]) for number in rows}
        asked = range(-64, distinct * 64 + 64, 64)
        assert rows_so_far(counted.tiers, asked) == [right.get(number, (0, None)) for number in asked]
        assert rows_so_far(before, [*then]) == [*then.values()], "what is being read stays"
        before, then = counted.tiers, right
        total = counted.total()
        assert total.numbers.tolist() == sorted(right)
        assert len(counted) <= 16 * len(right)


def test_a_checkpoint_writes_one_file_for_what_is_new() -> None:
    files, counted = MemoryFiles(), RowCounts()
    counted.add(counts([(i, 5) for i in range(1_000)]))
    first = counted.checkpoint(files.write)
    assert len(first) == 1
    assert counted.checkpoint(files.write) == first
    for size in (9, 4, 1):
        counted.add(counts([(i, 6) for i in range(size)]))
    second = counted.checkpoint(files.write)
    assert second[:-1] == first
    assert RowCounts.restore(second, files.read).total().rows[:5].tolist() == [4, 3, 3, 3, 2]
