"""Which properties have postings: not those whose values are different in nearly every object."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spatialstream.local.snapshot.keywords import ALIKE, ENOUGH, decided_in, flags_of, with_postings
from spatialstream.local.snapshot.segments import SegmentStore
from spatialstream.local.wordtable import to_arrow
from spatialstream.model.expressions import Expression
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.properties.columns import PropertyColumns
from spatialstream.model.properties.cql2 import parse_where
from spatialstream.model.properties.declared import Properties
from spatialstream.model.properties.table import PropertyTable
from spatialstream.model.space import Space
from spatialstream.model.terms import TermLists
from tests.unit.memory_files import MemoryFiles

PLANE = Space.planar(0.0, 0.0, 1.0, 1.0)
DECLARED = Properties.parse(["country:keyword", "plate:keyword", "city:keyword", "priority:number"])
FOREVER = (-1, 2**40)
PLAIN = 100
"""Bytes an object without properties, at least."""


def given(first: int, n: int, cities: int = 2_000) -> ObjectBatch:
    """Objects of few countries, some cities, and a plate each; some have none."""
    at = np.arange(first, first + n)
    batch = ObjectBatch.of([SpatialObject("", 0, 0.0, 0.0, ("w",))]).take(np.zeros(n, np.int64))
    columns = {
        "country": pa.array([f"c{i % 7}" if i % 5 else None for i in at]),
        "plate": pa.array([f"plate {i}" if i % 3 else None for i in at]),
        "city": pa.array([f"city {i * 7919 % cities}" for i in at]),
        "priority": pa.array(at.astype(np.float64)),
    }
    return replace(
        batch,
        ids=pa.array([f"o{i}" for i in at]),
        t=at.astype(np.int64),
        x=(at * 0.6180339887 % 1.0).astype(np.float64),
        y=(at * 0.7548776662 % 1.0).astype(np.float64),
        properties=PropertyColumns(n, columns),
    )


def asked(where: str) -> tuple[str, ...]:
    return Expression(where=parse_where(where, DECLARED)).literals


def ids(found: Any) -> list[str]:
    rows: list[str] = found.ids.to_pylist()
    return sorted(rows)


def test_enough_objects_decide_by_how_many_have_a_value() -> None:
    for n, values, expected in [
        (ENOUGH - 1, ENOUGH - 1, True),
        (ENOUGH, ENOUGH, False),
        (ENOUGH, ENOUGH // ALIKE, True),
        (ENOUGH, ENOUGH // ALIKE + 1, False),
    ]:
        columns = PropertyColumns(
            n, {"p": pa.array([f"v{i % values}" for i in range(n)]), "q": pa.nulls(n, pa.string())}
        )
        terms, decided = with_postings(TermLists.empty(n), columns, {})
        assert decided == {"p": expected, "q": True}
        assert len(terms.codes) == n * expected
        assert len(terms.vocabulary) == values * expected


def test_what_is_decided_holds() -> None:
    columns = PropertyColumns(9_000, {name: pa.array([f"{i}" for i in range(9_000)]) for name in ("p", "q", "r")})
    terms, decided = with_postings(TermLists.empty(9_000), columns, {"p": True, "q": False})
    assert decided == {"p": True, "q": False, "r": False}
    assert terms.vocabulary.to_pylist() == [f'"p"{i}' for i in range(9_000)]
    table = PropertyTable.of(columns)
    flags = np.array(flags_of(table, decided), np.int8)
    assert decided_in(table, flags) == decided
    assert (decided_in(table, None), decided_in(None, None), flags_of(None, {})) == ({}, {}, [])


@pytest.mark.parametrize("epoch", [500, 2_000, 20_000])
def test_a_store_gives_postings_to_what_several_objects_have(epoch: int) -> None:
    """Plates have none from the first larger segment on, countries always, and answers are the same."""
    store, files, n = SegmentStore(PLANE), MemoryFiles(), 40_000
    for first in range(0, n, epoch):
        store.append(given(first, epoch))
        if first == n // 2:
            store = SegmentStore.restore(PLANE, store.checkpoint(files.write), files.read)
    view = store.view()
    for where, expected in [
        ("plate = 'plate 31111'", ["o31111"]),
        ("plate IN ('plate 1', 'plate 39999', 'plate 20000', 'plate 7')", ["o1", "o20000", "o7"]),
        ("country = 'c3' AND plate = 'plate 38'", ["o38"]),
        ("country = 'c2' AND plate = 'plate 38'", []),
        (
            "city = 'city 5' AND country = 'c1'",
            [f"o{i}" for i in range(n) if i * 7919 % 2_000 == 5 and i % 7 == 1 and i % 5],
        ),
    ]:
        assert ids(view.range_query(None, asked(where), *FOREVER)) == sorted(expected)
        assert ids(view.nearest(0.5, 0.5, 100, asked(where), *FOREVER)) == sorted(expected)
        assert view.term_counts(None, asked(where), *FOREVER)[1].tolist() == [len(expected)] * (expected != [])
    before = view.checked
    country = ids(view.range_query(None, asked("country = 'c3'"), *FOREVER))
    assert len(country) == sum(1 for i in range(n) if i % 7 == 3 and i % 5)
    assert view.checked - before == len(country), "the postings of the country are looked at, and no other object"


def test_values_that_come_again_get_postings_in_larger_segments() -> None:
    """10,000 objects of 2,000 cities do not tell; when 60,000 do, smaller segments follow."""
    store, cities = SegmentStore(PLANE), asked("city = 'city 5'")
    store.append(given(0, 10_000))
    store.append(given(10_000, 500))
    view = store.view()
    view.range_query(None, cities, *FOREVER)
    assert view.checked == 10_500
    store = SegmentStore(PLANE)
    store.append(given(0, 60_000))
    store.append(given(60_000, 10_000))
    store.append(given(70_000, 500))
    view = store.view()
    found = view.range_query(None, cities, *FOREVER)
    assert view.checked == len(found) == sum(1 for i in range(70_500) if i * 7919 % 2_000 == 5)


def test_a_restored_store_decides_as_one_that_went_on() -> None:
    """A replay writes the same files, though it has not read the segment that smaller ones follow."""
    files, store = MemoryFiles(), SegmentStore(PLANE)
    store.append(given(0, 15_000))
    again = SegmentStore.restore(PLANE, store.checkpoint(files.write), files.read)
    written = []
    for each in (store, again):
        each.append(given(15_000, 500))
        written.append(files.files[each.checkpoint(files.write)["segments"][-1]["file"]][0])
    assert written[0].keys() == written[1].keys()
    assert all(np.array_equal(written[0][name], written[1][name]) for name in written[0])
    assert not any('"plate"' in term for term in to_arrow(written[1]["word_offsets"], written[1]["words"]).to_pylist())


def test_a_property_of_unique_values_costs_no_postings() -> None:
    sizes = {}
    for name in ("nothing", "plate", "country"):
        store = SegmentStore(PLANE)
        for first in range(0, 64_000, 2_000):
            batch = given(first, 2_000)
            columns = {each: column for each, column in batch.properties.columns.items() if each == name}
            store.append(replace(batch, properties=PropertyColumns(2_000, columns)))
        sizes[name] = store
    assert sizes["country"].nbytes - sizes["nothing"].nbytes < 13 * 64_000, "a word of a column, and a posting"
    plates = sum(len(f"plate {i}") for i in range(64_000) if i % 3)
    assert sizes["plate"].nbytes - sizes["nothing"].nbytes < 9 * 64_000 + plates, "a word of a column, and its string"
