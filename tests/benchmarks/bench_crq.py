"""CRQ: objects matched against continuous queries, and queries registered, on one core.

``python -m tests.benchmarks.bench_crq [--large]``; ``--large`` adds 10,000,000 queries (some 4 GB). Times are CPU
times. Every figure of matching is checked on a sample of its objects against a scan of all queries.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import shapely

from spatialstream.local.range import crq
from spatialstream.local.range.crq import ContinuousRangeIndex, Matches
from spatialstream.model.expressions import Expression, absorbed, has_marks
from spatialstream.model.kinds import CODE, QueryType
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch, nobody
from spatialstream.model.terms import TermLists
from spatialstream.oracle.polygons import polygon_containment
from tests.benchmarks.workload import SPACE, TERMS, QueryColumns, objects, queries, vocabulary

Row = dict[str, Any]

SOURCE_SEED, STREAM_SEED, QUERY_SEED = 1, 2, 3
OBJECTS, BATCH = 200_000, 50_000
DEFAULT_QUERIES = 200_000
FOREVER = 1 << 60


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU time of a call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def register(index: ContinuousRangeIndex, columns: QueryColumns, first: int = 0) -> None:
    """All queries of ``columns`` at once, for ever, numbered from ``first``."""
    n = len(columns)
    ids = pa.array([f"q{i}" for i in range(first, first + n)], pa.string())
    index.register(np.arange(first, first + n), continuous(ids, columns))


def continuous(ids: pa.StringArray, columns: QueryColumns) -> QueryBatch:
    """CRQs that live for ever."""
    n = len(ids)
    absent = np.full(n, -1)
    return QueryBatch(
        ids,
        np.full(n, CODE[QueryType.CRQ], np.int8),
        np.zeros(n, np.int64),
        np.full(n, FOREVER),
        absent,
        absent,
        np.zeros(n, np.int32),
        np.zeros((n, 2)),
        columns.regions,
        columns.keywords,
        nobody(n),
        nobody(n),
    )


def match(index: ContinuousRangeIndex, objects: ObjectBatch) -> list[Matches]:
    """All matches of a batch, in the parts that they come in."""
    return [matches for _, matches in index.match(objects)]


def batches(stream: ObjectBatch, size: int = BATCH) -> list[ObjectBatch]:
    """The stream cut into batches, each with a vocabulary of its own words only, as they come from the router."""
    result = []
    for first in range(0, len(stream), size):
        part = stream.take(np.arange(first, min(first + size, len(stream))))
        result.append(ObjectBatch(part.ids, part.t, part.x, part.y, part.terms.compact()))
    return result


def matches_of(columns: QueryColumns, x: float, y: float, terms: npt.NDArray[np.int32]) -> list[int]:
    """Queries that one object matches, by a scan of all."""
    shape, offsets, codes = columns.regions.shape, columns.keywords.offsets, columns.keywords.codes
    inside = (shape[:, 0] <= x) & (x <= shape[:, 2]) & (shape[:, 1] <= y) & (y <= shape[:, 3])
    if (polygons := columns.regions.polygons).distinct:
        has = [polygon_containment(each.to_geojson(), SPACE.geographic)(x, y) for each in polygons.distinct]
        inside &= np.array(has)[polygons.codes]
    if has_marks(columns.keywords):
        there = vocabulary().take(pa.array(terms)).to_pylist()
        return [int(q) for q in np.flatnonzero(inside) if Expression.of(columns.keywords[q]).holds(there)]
    return [int(q) for q in np.flatnonzero(inside) if np.isin(codes[offsets[q] : offsets[q + 1]], terms).all()]


def check(index: ContinuousRangeIndex, columns: QueryColumns, stream: ObjectBatch, sample: int = 60) -> None:
    """The first objects of the stream give exactly what a scan gives.

    Raises:
        AssertionError: they do not.
    """
    (found,) = match(index, stream.take(np.arange(sample)))
    codes = stream.terms.codes.reshape(-1, TERMS)
    for o in range(sample):
        expected = matches_of(columns, stream.x[o], stream.y[o], codes[o])
        if found.number[found.object == o].tolist() != expected:
            raise AssertionError(f"object {o}: {found.number[found.object == o]} is not {expected}")


def matching(
    name: str, columns: QueryColumns, stream: ObjectBatch, floor: float | None = None, registered: float = 300_000
) -> list[Row]:
    """Register in bulk, match the stream in batches (best of 3 passes), check a sample."""
    index = ContinuousRangeIndex(SPACE)
    index.observe(stream.take(np.arange(20_000)))
    registration = cpu_seconds(lambda: register(index, columns))
    parts = batches(stream)
    match(index, parts[0])
    best = min(cpu_seconds(lambda: [match(index, part) for part in parts]) for _ in range(3))
    check(index, columns, stream)
    found = [matches for part in parts for matches in match(index, part)]
    candidates = sum(int(each.checked.sum()) for each in found)
    per_object = f"{sum(map(len, found)) / len(stream):.2f} matches, {candidates / len(stream):.1f}"
    note = f"{per_object} candidates an object, {index.nbytes / len(columns):.0f} B a query, tiers {index.tiers}"
    return [
        {"name": name, "value": len(stream) / best, "unit": "objects/s", "floor": floor, "note": note},
        {
            "name": f"{name}: bulk registration",
            "value": len(columns) / registration,
            "unit": "queries/s",
            "floor": registered,
            "note": "",
        },
    ]


def in_groups(columns: QueryColumns, groups: int = 3, most: int | None = None) -> QueryColumns:
    """Queries of which all, or so many, have the keywords of others besides their own, each as a group."""
    n = len(columns)
    own = [columns.keywords[i] for i in range(n)]
    having = [groups if most is None or i < most else 1 for i in range(n)]
    texts = [absorbed(own[(i + other) % n] for other in range(having[i])) for i in range(n)]
    literals = [Expression(any=text).literals if len(text) > 1 else text[0] for text in texts]
    return replace(columns, keywords=TermLists.of(literals))


def of_single_words(columns: QueryColumns, words: int = 3) -> QueryColumns:
    """Queries that look for any of some words: one keyword of their own, and one of each of some others."""
    own = vocabulary().take(pa.array(columns.keywords.codes[columns.keywords.offsets[:-1]])).to_pylist()
    n = len(own)
    texts = [absorbed((own[(i + other) % n],) for other in range(words)) for i in range(n)]
    literals = [Expression(any=text).literals if len(text) > 1 else text[0] for text in texts]
    return replace(columns, keywords=TermLists.of(literals))


def registration_one_at_a_time(source: ObjectBatch, n: int = 30_000) -> list[Row]:
    """Single registrations into an index that has the default number of queries; the longest is the pause."""
    index = ContinuousRangeIndex(SPACE)
    register(index, queries(source, DEFAULT_QUERIES, QUERY_SEED))
    more = queries(source, n, QUERY_SEED + 1)
    ids = pa.array([f"r{i}" for i in range(n)], pa.string())
    numbers, batch = np.arange(n) + DEFAULT_QUERIES, continuous(ids, more)
    columns = [(numbers[i : i + 1], batch.take(np.array([i]))) for i in range(n)]
    times = np.array([cpu_seconds(lambda each=each: index.register(*each)) for each in columns])
    return [
        {
            "name": "registration one at a time",
            "value": n / times.sum(),
            "unit": "queries/s",
            "floor": None,
            "note": f"into {DEFAULT_QUERIES:,}",
        },
        {
            "name": "registration one at a time: longest call",
            "value": times.max() * 1e3,
            "unit": "ms",
            "floor": None,
            "note": f"tiers {index.tiers}",
        },
    ]


def strtree(columns: QueryColumns, stream: ObjectBatch) -> Row:
    """The alternative: shapely's STRtree over the regions, then the keywords of each hit."""
    shape = columns.regions.shape
    tree = shapely.STRtree(shapely.box(*shape.T))
    keywords = [set(each.tolist()) for each in np.split(columns.keywords.codes, columns.keywords.offsets[1:-1])]
    codes = stream.terms.codes.reshape(-1, TERMS)

    def match() -> int:
        points, hits = tree.query(shapely.points(stream.x, stream.y), predicate="intersects")
        terms = [set(each) for each in codes.tolist()]
        return sum(keywords[q] <= terms[o] for o, q in zip(points.tolist(), hits.tolist(), strict=True))

    seconds = cpu_seconds(match)
    note = f"shapely {shapely.__version__}, {len(columns):,} queries"
    return {"name": "STRtree", "value": len(stream) / seconds, "unit": "objects/s", "floor": None, "note": note}


def run(large: bool = False) -> list[Row]:
    """All figures as rows: name, value, unit, floor (None where there is none), note."""
    crq.prepare()
    source, stream = objects(OBJECTS, SOURCE_SEED), objects(OBJECTS, STREAM_SEED)
    default = queries(source, DEFAULT_QUERIES, QUERY_SEED)
    rows = []
    for n in (10_000, 100_000, DEFAULT_QUERIES, 1_000_000, *((10_000_000,) if large else ())):
        columns = default if n == DEFAULT_QUERIES else queries(source, n, QUERY_SEED)
        rows += matching(f"CRQ matching, {n:,} queries", columns, stream, 1e6 if n == DEFAULT_QUERIES else None)
    third = next(row["value"] for row in rows if row["floor"] == 1e6) / 3
    mixed = queries(source, DEFAULT_QUERIES, QUERY_SEED, side=(0.001, 0.1))
    rows += matching("CRQ matching, regions of 0.0001 % to 1 %", mixed, stream, third)
    frequent = queries(source, DEFAULT_QUERIES, QUERY_SEED, frequent=100)
    rows += matching("CRQ matching, keywords among the 100 most frequent", frequent, stream, third)
    rows += matching("CRQ matching, three groups of keywords", in_groups(default), stream, third, 100_000)
    rows += matching("CRQ matching, one of them with three groups", in_groups(default, most=1), stream, third, 100_000)
    million = of_single_words(queries(source, 1_000_000, QUERY_SEED))
    rows += matching("CRQ matching, 1,000,000 of any of three words", million, stream.slice(0, 50_000), None, 100_000)
    rows += registration_one_at_a_time(source)
    rows.append(strtree(default, stream.take(np.arange(5_000))))
    return rows


def main() -> None:
    """Print the rows as a table."""
    for row in run("--large" in sys.argv[1:]):
        floor = "" if row["floor"] is None else f"(floor {row['floor']:,.0f})"
        print(f"{row['name']:60} {row['value']:>14,.1f} {row['unit']:10} {floor:20} {row['note']}")


if __name__ == "__main__":
    main()
