"""Conditions on properties: CRQs with ``where``, beside the same CRQs whose country is one keyword more.

``python -m tests.benchmarks.bench_where``. 200,000 CRQs ask for the country of the object that they were made from, of
50 by Zipf's law, and for a priority of 3 or more, of 5. In the comparison the country is a word of texts and a keyword
of queries: the same objects pass. The floor of conditions is two thirds of its speed. Passes are in turn, times are CPU
times, and each is checked on a sample of objects by brute force.

The same objects are also in a store of segments, which snapshot queries ask by a condition, beside the same queries of
the country as one keyword more, beside a store of an earlier format, which checks conditions on candidates only, and
beside one of which half of the objects came with that format. Building and bytes are those of all stores; what postings
cost an append is measured beside the same appends without them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.local.range import crq
from spatialstream.local.range.crq import ContinuousRangeIndex
from spatialstream.local.snapshot import segment, segments
from spatialstream.local.snapshot.keywords import Decided
from spatialstream.local.snapshot.segments import SegmentStore
from spatialstream.model.expressions import Expression
from spatialstream.model.keyword_terms import beside, keyword_lists, with_keywords
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.properties.columns import PropertyColumns
from spatialstream.model.properties.condition import cql2_of
from spatialstream.model.properties.cql2 import parse_where
from spatialstream.model.properties.declared import Properties
from spatialstream.model.regions import Box
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
from tests.unit.memory_files import MemoryFiles

COUNTRIES, PRIORITIES = 50, 5
PASSES, SAMPLE = 5, 60
ASKED, EPOCHS = 300, (2_000, 50_000)
FOREVER = (-1, 2**62)
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
    return [*continuous(), *snapshots()]


def continuous() -> list[Row]:
    """The rate at which CRQs are matched."""
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


def filled(stream: ObjectBatch, epoch: int) -> tuple[SegmentStore, float]:
    """A store of the stream, in epochs of so many objects, and the CPU seconds of its appends."""
    store = SegmentStore(SPACE)
    epochs = [stream.take(np.arange(at, min(at + epoch, len(stream)))) for at in range(0, len(stream), epoch)]
    begun = time.process_time()
    for each in epochs:
        store.append(each)
    return store, time.process_time() - begun


def earlier(store: SegmentStore) -> SegmentStore:
    """The store as of files of an earlier format, of whose segments no keyword is looked for in postings."""
    files = MemoryFiles()
    manifest = store.checkpoint(files.write)

    def read(name: str) -> Any:
        arrays, extra = files.read(name)
        return {each: array for each, array in arrays.items() if each != "keyed"}, extra

    return SegmentStore.restore(SPACE, manifest, read)


def asked_of(store: SegmentStore, kind: str, box: Box, at: Sequence[float], literals: Sequence[str]) -> list[Any]:
    """The answer of a snapshot query."""
    match kind:
        case "SRQ":
            return store.range_query(box, literals, *FOREVER).ids.to_pylist()
        case "SKQ":
            return store.nearest(*at, 10, literals, *FOREVER).ids.to_pylist()
    terms, counts = store.term_counts(box, literals, *FOREVER)
    return sorted(zip(terms.to_pylist(), counts.tolist(), strict=True))


def as_words(batch: ObjectBatch) -> ObjectBatch:
    """As :func:`with_words`, in words that a text could have."""
    given = with_words(batch)
    words = pc.replace_substring(given.terms.vocabulary, '"country"', "of")
    return replace(given, terms=replace(given.terms, vocabulary=words))


def timed(ask: Callable[[int], list[Any]]) -> tuple[list[float], list[list[Any]]]:
    """CPU seconds of the queries, and their answers."""
    times, answers = [], []
    for i in range(ASKED):
        begun = time.process_time()
        answers.append(ask(i))
        times.append(time.process_time() - begun)
    return times, answers


def snapshots() -> list[Row]:
    """What keywords cost a store, and snapshot queries with a condition: CPU times.

    Raises:
        AssertionError: answers differ from those in which the condition is checked on candidates.
    """
    segments.prepare()
    source = with_properties(objects(OBJECTS, SOURCE_SEED), SOURCE_SEED)
    plain = replace(source, properties=PropertyColumns.none(len(source)))
    number = {"priority": source.properties.columns["priority"]}
    plates = pa.array([f"plate {i:06}" for i in range(len(source))])
    given = {
        "no properties": plain,
        "priority": replace(source, properties=PropertyColumns(len(source), number)),
        "country and priority": source,
        "another plate each": replace(source, properties=PropertyColumns(len(source), {"plate": plates})),
        "country as a word": as_words(source),
    }
    stores, rows = {}, list[Row]()
    for epoch in EPOCHS:
        for name, batch in given.items():
            stores[name], seconds = filled(batch, epoch)
            what = f"store, {name}: append, {epoch:,} at a time"
            rows.append({"name": what, "value": OBJECTS / seconds, "unit": "objects/s", "floor": None})
            rows[-1]["note"] = f"{stores[name].nbytes / len(source):.1f} bytes an object"
    stores["earlier format"] = earlier(stores["country and priority"])
    half = stores["half of it earlier"] = earlier(filled(source.take(np.arange(len(source) // 2)), len(source))[0])
    half.append(source.take(np.arange(len(source) // 2, len(source))))
    assert half.segments == 2
    rows += of_postings({name: given[name] for name in ("country and priority", "another plate each")})
    columns = queries(source, ASKED, QUERY_SEED, side=0.02)
    own = [tuple(columns.keywords[i]) for i in range(ASKED)]
    for kind in ("SRQ", "SKQ", "STQ"):
        rows += of_kind(kind, "", stores, columns, own_countries(source, columns), [()] * ASKED)
        rows += of_kind(kind, "1 to 3 words, ", stores, columns, own_countries(source, columns), own)
    return rows


def without_postings(terms: TermLists, columns: PropertyColumns, _: Decided) -> tuple[TermLists, Decided]:
    """In place of :func:`spatialstream.local.snapshot.keywords.with_postings`: no keyword has any."""
    return terms, dict.fromkeys(columns.columns, False)


def of_postings(given: dict[str, ObjectBatch]) -> list[Row]:
    """What postings add to the time of appends: stores with them and without, in turns."""
    rows, ways = list[Row](), (segment.with_postings, without_postings)
    for epoch in EPOCHS:
        for name, batch in given.items():
            best = dict.fromkeys(ways, np.inf)
            for _ in range(PASSES):
                for way in ways:
                    segment.with_postings = way
                    best[way] = min(best[way], filled(batch, epoch)[1])
            segment.with_postings = ways[0]
            times = [best[way] / len(batch) * 1e6 for way in ways]
            what = f"store, {name}: append with postings, {epoch:,} at a time"
            rows.append({"name": what, "value": times[0] / times[1], "unit": "of without", "floor": None})
            rows[-1]["note"] = f"{times[0]:.2f}, {times[1]:.2f} us an object"
    return rows


def of_kind(
    kind: str,
    what: str,
    stores: dict[str, SegmentStore],
    columns: QueryColumns,
    countries: pa.StringArray,
    words: Sequence[tuple[str, ...]],
) -> list[Row]:
    """Rows of the queries of a type, with these words and a country each."""
    boxes = [Box(*shape) for shape in columns.regions.shape.tolist()]
    where = [parse_where(f"country = '{each}'", DECLARED) for each in countries.to_pylist()]
    conditions = [Expression(where=each).literals for each in where]
    keyed, as_word = stores["country and priority"], stores["country as a word"]
    cases = {
        "where country = ...": (keyed, conditions),
        "the same, checked": (stores["earlier format"], conditions),
        "the same, checked in half of the objects": (stores["half of it earlier"], conditions),
        "country as one word more": (as_word, [(f"of{each}",) for each in countries.to_pylist()]),
    }
    rows, answers = list[Row](), []
    for name, (store, literals) in cases.items():
        asked = [(*a, *b) for a, b in zip(words, literals, strict=True)]
        times, found = timed(
            lambda i: asked_of(store, kind, boxes[i], columns.centres[i].tolist(), asked[i])  # noqa: B023 (called at once)
        )
        answers.append(found)
        note = f"p95 {np.percentile(times, 95) * 1e6:,.0f} us"
        rows.append({"name": f"{kind}, {what}{name}", "value": np.median(times) * 1e6, "unit": "us", "floor": None})
        rows[-1]["note"] = note
    assert answers[0] == answers[1] == answers[2]
    return rows


def main() -> None:
    """Print the rows as a table."""
    show("where", run())


if __name__ == "__main__":
    main()
