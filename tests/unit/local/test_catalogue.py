"""The catalogue lists active queries, compared with a dictionary of all queries."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from spatialstream.local.catalogue import Catalogue
from spatialstream.local.registry import last_instant
from spatialstream.local.row_counts import Counts
from spatialstream.model.queries import Query, QueryBatch, parse_query
from spatialstream.model.space import WGS84
from tests.lengths import examples
from tests.unit.memory_files import MemoryFiles

TRIANGLE = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]}


def corners(record: dict[str, Any]) -> int:
    return 3 if "polygon" in record.get("region", {}) else 0


def query(chance: random.Random, number: int, t: int) -> Query:
    name = f"q{number % 40}"  # ids come again
    record: dict[str, Any] = {"id": name, "t": t, "keywords": [f"w{number % 7}", "ä"]}
    if chance.random() < 0.7:
        record["duration"] = chance.randint(1, 50)
    if chance.random() < 0.5:
        record["by"] = f"system:serviceaccount:geo:{number % 3}"
    more: dict[str, Any] = chance.choice(
        [
            {"type": "CRQ", "region": {"circle": [1, 2, 1000]}},
            {"type": "CRQ", "region": {"polygon": TRIANGLE}},
            {"type": "CKQ", "at": [1.5, 2], "k": 3},
            {"type": "CTQ", "region": {"box": [0, 0, 1, 1]}, "k": 2, "window": 10, "step": 5},
        ]
    )
    found = parse_query(record | more, WGS84)
    assert isinstance(found, Query)
    return found


@pytest.mark.parametrize("seed", range(examples(30, 500)))
def test_it_is_its_twin(seed: int) -> None:
    chance, files = random.Random(seed), MemoryFiles()
    catalogue, known, ended, number = Catalogue(), dict[int, Query](), dict[int, int](), 0
    before, then = catalogue.listing(0), list[Any]()
    rows, last = Counter[int](), dict[int, int]()
    for clock in range(0, chance.randint(1, 60)):
        numbers = list[int]()
        for _ in range(chance.choice([0, 0, 1, 3, 30])):
            number += chance.randint(1, 5)
            known[number] = query(chance, number, clock)
            numbers += [number] * chance.randint(1, 3)  # from several slots
        chance.shuffle(numbers)
        catalogue.register(np.array(numbers, np.int64), QueryBatch.of([known[each] for each in numbers]))
        cancelled = chance.sample(range(number + 3), min(number, chance.choice([0, 1, 9])))
        times = [clock + chance.randint(0, 2) for _ in cancelled]
        catalogue.end_at(np.array(cancelled, np.int64), np.array(times, np.int64))
        for each, t in zip(cancelled, times, strict=True):
            ended[each] = min(t, ended.get(each, t)) if each in known else ended.get(each, 10**9)
        some = chance.choices([*known], k=chance.choice([0, 1, 50])) if known else []
        had = [(each, clock - chance.randint(0, 3)) for each in some]
        catalogue.count(Counts.of(*np.array(had, np.int64).reshape(-1, 2).T.copy()))
        for each, t in had:
            rows[each], last[each] = rows[each] + 1, max(t, last.get(each, t))
        if chance.random() < 0.3:
            catalogue.drop(clock)
        if chance.random() < 0.2:
            catalogue = Catalogue.restore(catalogue.checkpoint(files.write), files.read)
        right = [
            (each, query.to_record(), rows[each], last.get(each))
            for each, query in sorted(known.items())
            if last_instant(QueryBatch.of([query]))[0] > clock and ended.get(each, 10**9) > clock
        ]
        listing = catalogue.listing(clock)
        found, after = list[Any](), -1
        while page := listing.page(after, limit := chance.randint(1, 40), vertices := chance.randint(1, 40)).queries:
            assert len(page) <= limit
            assert sum(corners(each[1]) for each in page[:-1]) < vertices
            found += page
            after = page[-1][0]
        assert found == right
        assert before.page(-1, 10**6).queries == then, "what is being read stays"
        before, then = listing, right
        for name in ("q1", "q2", "none"):
            mine = [each for each in right if each[1]["id"] == name]
            assert listing.named(name) == (mine[-1] if mine else None)


def test_what_has_ended_is_forgotten() -> None:
    catalogue = Catalogue()
    queries = QueryBatch.of(
        [
            parse_query({"id": f"q{i}", "type": "CKQ", "t": 0, "at": [0, 0], "k": 1, "duration": 10}, WGS84)
            for i in range(9)
        ]
    )
    catalogue.register(np.arange(9), queries)
    catalogue.end_at(np.array([3]), np.array([5]))
    catalogue.count(Counts.of(np.arange(9), np.full(9, 4)))
    before = catalogue.listing(0)
    catalogue.drop(20)
    assert len(catalogue) == 0
    assert len(before.page(-1, 99).queries) == 9, "what is being read stays"
    assert catalogue.checkpoint(MemoryFiles().write) == {"tiers": [], "ended": [], "counts": []}


def test_a_page_ends_with_the_query_with_which_it_has_vertices_enough() -> None:
    records = [{"id": f"q{i}", "type": "CRQ", "t": 0, "region": {"polygon": TRIANGLE}} for i in range(4)]
    records.insert(1, {"id": "box", "type": "CRQ", "t": 0, "region": {"box": [0, 0, 1, 1]}})
    catalogue = Catalogue()
    catalogue.register(np.arange(5), QueryBatch.of([parse_query(each, WGS84) for each in records]))
    listing = catalogue.listing(0)

    def page(after: int, limit: int, vertices: int) -> tuple[list[int], bool]:
        queries, cut = listing.page(after, limit, vertices)
        return [each[0] for each in queries], cut

    assert page(-1, 9, 1) == ([0], True), "one at least"
    assert page(-1, 9, 6) == ([0, 1, 2], True)
    assert page(-1, 2, 6) == ([0, 1], False), "as many as were wanted"
    assert page(2, 9, 6) == ([3, 4], False), "there are none after it"
    assert page(-1, 9, 10**6) == ([0, 1, 2, 3, 4], False)
