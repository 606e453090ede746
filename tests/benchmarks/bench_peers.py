"""Ranked queries beside other systems: ``make bench-peers``, ``python -m tests.benchmarks.bench_peers [objects]``.

Objects, queries, corpus table and score are the same for all (:mod:`tests.benchmarks.peers`): 5 words, k 5, 100 km,
from objects as the paper has it, and from an object always. The ids of an answer have to be the same, in order. Times
are CPU times of one thread, of the fastest of three passes; this project's are from a parsed query to the JSON of its
row. A system that is not there is left out, and said to be.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spatialstream.model.queries import Query
from tests.benchmarks.peers import lucene, postgis
from tests.benchmarks.peers.lucene import Lucene
from tests.benchmarks.peers.workload import World, answers, asked, objects

Row = dict[str, Any]

QUERIES = 200
SELECTIVITIES = (0.2, 1.0)
TIMES_LUCENE, TIMES_POSTGIS = 3.0, 20.0
"""How many times their rates are the floors of ours."""


def run(n: int = 1_000_000, queries: int = QUERIES) -> list[Row]:
    """Every figure as (name, value, unit, floor, note)."""
    world = World(objects(n))
    sets = {f"{share:.0%} about objects": asked(world.batch, queries, selectivity=share) for share in SELECTIVITIES}
    result: list[Row] = []

    def row(name: str, value: float, unit: str, floor: float | None = None, note: str = "") -> None:
        result.append({"name": name, "value": round(value, 4), "unit": unit, "floor": floor, "note": note})

    own = {}
    for name, each in sets.items():
        spent, ids, looked = answers(world.store, each)
        own[name] = spent, [list(map(int, found)) for found in ids]
        row(f"SBQ, {name}", spent, "ms", None, f"{looked:,.0f} objects looked at")
    with tempfile.TemporaryDirectory() as folder:
        if lucene.jars() is None:
            row("Lucene: not there, scripts/peers.sh fetches it", 0.0, "")
        else:
            beside_lucene(world, sets, own, Path(folder), row)
    with tempfile.TemporaryDirectory() as folder:
        if postgis.programs() is None:
            row("PostGIS: not there (Debian: postgresql-15-postgis-3)", 0.0, "")
        else:
            beside_postgis(world, sets, own, Path(folder), row)
    return result


Sets = dict[str, list[Query]]
Own = dict[str, tuple[float, list[list[int]]]]


def beside_lucene(world: World, sets: Sets, own: Own, folder: Path, row: Any) -> None:
    """Lucene sorting by the score as a double, by a FunctionScoreQuery, and as it comes."""
    found = Lucene(folder)
    seconds, size = found.index(world, features=True)
    row(
        "Lucene: index", len(world.batch) / seconds, "objects/s", None, f"{size / len(world.batch):.0f} bytes an object"
    )
    for name, queries in sets.items():
        spent, ids = own[name]
        for way in ("exact", "function", "plain"):
            theirs, rows = found.search(world, queries, way)
            same = sum(one == other for one, other in zip(ids, rows, strict=True))
            if way == "exact" and same < len(queries):
                raise AssertionError(f"Lucene, {name}: {len(queries) - same} answers differ: {_first(ids, rows)}")
            row(f"   {name}, {way}", theirs, "ms", None, f"{same} of {len(queries)} answers the same")
            if way == "function":
                row("      by ours", theirs / spent, "times ours", TIMES_LUCENE)


def beside_postgis(world: World, sets: Sets, own: Own, folder: Path, row: Any) -> None:
    """PostGIS with the score in SQL."""
    with postgis.cluster(folder) as found:
        found.index(world)
        for name, queries in sets.items():
            spent, ids = own[name]
            theirs, rows = found.search(world, queries)
            if ids != rows:
                raise AssertionError(f"PostGIS, {name}: answers differ: {_first(ids, rows)}")
            row(f"PostGIS, {name}", theirs, "ms", None, f"{len(queries)} answers the same")
            row("      by ours", theirs / spent, "times ours", TIMES_POSTGIS)


def _first(ids: Sequence[list[int]], rows: Sequence[list[int]]) -> str:
    i = next(i for i in range(len(ids)) if ids[i] != rows[i])
    return f"query {i} has {ids[i]} here and {rows[i]} there"


def main() -> None:
    """Print the figures."""
    for each in run(*map(int, sys.argv[1:])):
        floor = f"   (floor {each['floor']:g})" if each["floor"] else ""
        print(f"{each['name']:<60} {each['value']:>14,.3f} {each['unit']:<12}{floor}   {each['note']}", flush=True)


if __name__ == "__main__":
    main()
