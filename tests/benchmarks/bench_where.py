"""Conditions on properties: CRQs with ``where``, beside the same CRQs whose country is one keyword more.

``python -m tests.benchmarks.bench_where``. 200,000 CRQs ask for the country of the object that they were made from, of
50 by Zipf's law, and for a priority of 3 or more, of 5. In the comparison the country is a word of texts and a keyword
of queries: the same objects pass. The floor of conditions is two thirds of its speed. Passes are in turn, times are CPU
times, and each is checked on a sample of objects by brute force.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from spatialstream.local.range import crq
from spatialstream.local.range.crq import ContinuousRangeIndex
from spatialstream.model.expressions import Expression
from spatialstream.model.keyword_terms import beside, keyword_lists, with_keywords
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.properties.columns import PropertyColumns
from spatialstream.model.properties.condition import cql2_of
from spatialstream.model.properties.cql2 import parse_where
from spatialstream.model.properties.declared import Properties
from spatialstream.model.terms import TermLists
from spatialstream.oracle.conditions import satisfies
from tests.benchmarks.__main__ import show
from tests.benchmarks.bench_crq import (
    BATCH,
    DEFAULT_QUERIES,
    OBJECTS,
    QUERY_SEED,
    SOURCE_SEED,
    STREAM_SEED,
    Row,
    cpu_seconds,
    match,
    register,
)
from tests.benchmarks.workload import SPACE, QueryColumns, objects, queries

COUNTRIES, PRIORITIES = 50, 5
PASSES, SAMPLE = 5, 60
DECLARED = Properties.parse(["country:keyword", "priority:number"])


def with_properties(batch: ObjectBatch, seed: int) -> ObjectBatch:
    """The objects with a country and a priority each."""
    rng, share = np.random.default_rng((9, seed)), 1.0 / np.arange(1, COUNTRIES + 1)
    names = pa.array([f"country {i}" for i in range(COUNTRIES)], pa.string())
    country = names.take(pa.array(rng.choice(COUNTRIES, len(batch), p=share / share.sum())))
    priority = pa.array(rng.integers(1, PRIORITIES + 1, len(batch)).astype(np.float64))
    return replace(batch, properties=PropertyColumns(len(batch), {"country": country, "priority": priority}))


def own_countries(source: ObjectBatch, columns: QueryColumns) -> pa.StringArray:
    """The country of the object that each query was made from."""
    rows = {place: row for row, place in enumerate(zip(source.x.tolist(), source.y.tolist(), strict=True))}
    return source.properties.columns["country"].take(
        pa.array([rows[each] for each in map(tuple, columns.centres.tolist())])
    )


def asking(columns: QueryColumns, countries: pa.StringArray, condition: str) -> QueryColumns:
    """The queries with a condition, in which ``{}`` is their country."""
    coded = countries.dictionary_encode()
    where = [parse_where(condition.format(each), DECLARED) for each in coded.dictionary.to_pylist()]
    literals = pa.array([Expression(where=each).literals[0] for each in where], pa.string())
    one = TermLists(np.arange(len(columns) + 1, dtype=np.int32), np.asarray(coded.indices), literals)
    if "{}" not in condition:
        one = TermLists(one.offsets, np.zeros(len(columns), np.int32), literals[:1])
    return replace(columns, keywords=beside(columns.keywords, one))


def with_words(batch: ObjectBatch) -> ObjectBatch:
    """The objects with their country as a word of the text, and without properties."""
    terms = with_keywords(batch.terms, batch.properties, ["country"])
    return replace(batch, terms=terms, properties=PropertyColumns.none(len(batch)))


def with_word(columns: QueryColumns, countries: pa.StringArray) -> QueryColumns:
    """The queries with their country as one keyword more."""
    word = keyword_lists(PropertyColumns(len(columns), {"country": countries}), "country")
    return replace(columns, keywords=beside(columns.keywords, word))


def parts_of(stream: ObjectBatch) -> list[ObjectBatch]:
    """The stream in batches, each with a vocabulary of its own words only, as they come from the router."""
    parts = [stream.take(np.arange(first, min(first + BATCH, len(stream)))) for first in range(0, len(stream), BATCH)]
    return [replace(part, terms=part.terms.compact()) for part in parts]


def check(index: ContinuousRangeIndex, columns: QueryColumns, stream: ObjectBatch) -> None:
    """The first objects of the stream give exactly what a scan of all queries gives.

    Raises:
        AssertionError: they do not.
    """
    (found,) = match(index, stream.take(np.arange(SAMPLE)))
    shape = columns.regions.shape
    for o in range(SAMPLE):
        x, y, terms, said = stream.x[o], stream.y[o], stream.terms[o], dict(stream.properties[o])
        inside = (shape[:, 0] <= x) & (x <= shape[:, 2]) & (shape[:, 1] <= y) & (y <= shape[:, 3])
        asked = ((int(q), Expression.of(columns.keywords[q])) for q in np.flatnonzero(inside))
        expected = [
            q for q, each in asked if each.holds(terms) and (each.where is None or satisfies(cql2_of(each.where), said))
        ]
        if found.number[found.object == o].tolist() != expected:
            raise AssertionError(f"object {o}: {found.number[found.object == o]} is not {expected}")


def run() -> list[Row]:
    """All figures as rows, see :func:`tests.benchmarks.bench_crq.run`."""
    crq.prepare()
    source = with_properties(objects(OBJECTS, SOURCE_SEED), SOURCE_SEED)
    stream = with_properties(objects(OBJECTS, STREAM_SEED), STREAM_SEED)
    columns = queries(source, DEFAULT_QUERIES, QUERY_SEED)
    countries = own_countries(source, columns)
    plain = replace(stream, properties=PropertyColumns.none(len(stream)))
    both = "country = '{}' AND priority >= 3"
    cases = {
        "boxes and keywords": (columns, plain),
        "country as one keyword more": (with_word(columns, countries), with_words(stream)),
        "where country = ...": (asking(columns, countries, "country = '{}'"), stream),
        "where country = ... and priority >= 3": (asking(columns, countries, both), stream),
        "where priority >= 3": (asking(columns, countries, "priority >= 3"), stream),
    }
    indexes, parts = {}, {name: parts_of(each) for name, (_, each) in cases.items()}
    for name, (asked, given) in cases.items():
        indexes[name] = ContinuousRangeIndex(SPACE)
        indexes[name].observe(given.take(np.arange(20_000)))
        register(indexes[name], asked)
        check(indexes[name], asked, given)
    best = dict.fromkeys(cases, np.inf)
    for _ in range(PASSES):
        for name, index in indexes.items():
            seconds = cpu_seconds(lambda: [match(index, part) for part in parts[name]])  # noqa: B023 (called at once)
            best[name] = min(best[name], seconds)
    rows: list[Row] = []
    for name, index in indexes.items():
        found = [matches for part in parts[name] for matches in match(index, part)]
        candidates = sum(int(each.checked.sum()) for each in found)
        per_object = f"{sum(map(len, found)) / len(stream):.2f} matches, {candidates / len(stream):.1f} candidates"
        note = f"{per_object} an object, {index.nbytes / len(columns):.0f} B a query"
        floor = OBJECTS / best["country as one keyword more"] * 2 / 3 if "country = " in name else None
        value = OBJECTS / best[name]
        rows.append({"name": f"{DEFAULT_QUERIES:,} CRQs, {name}", "value": value, "floor": floor, "note": note})
        rows[-1]["unit"] = "objects/s"
    return rows


def main() -> None:
    """Print the rows as a table."""
    show("where", run())


if __name__ == "__main__":
    main()
