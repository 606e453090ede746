"""The word filter keeps every object that a query may match, and after a census it knows no query that has ended."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spatialstream.balance.query_partition import dealt_evenly
from spatialstream.connectors.memory_storage import MemoryStorage
from spatialstream.index.version import RoutingVersion, build
from spatialstream.local.state import Manifest
from spatialstream.model.hashing import hash_strings
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import Cancellation, Lifetime, Nearest, Predicate, Query, QueryBatch, TopTerms
from spatialstream.model.ranking.asked import Ranking
from spatialstream.model.regions import Box
from spatialstream.model.selections import Best, Everything, Selection
from spatialstream.model.space import WGS84, Space
from spatialstream.oracle.objects import AllObjects
from spatialstream.stages.routing import Routing
from spatialstream.stages.turns import NEVER, Census, Epoch
from spatialstream.stages.words import (
    Entries,
    Frequencies,
    Groups,
    WordFilter,
    census_name,
    drop_words,
    prepared_name,
    write_groups,
)
from tests.lengths import examples
from tests.streams import PLANE, random_stream

LIFE = Lifetime(1_000, continuous=True)


class Files:
    def __init__(self) -> None:
        self.known: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}

    def write(self, kind: str, arrays: Mapping[str, Any], meta: Mapping[str, Any] | None = None) -> str:
        name = f"{len(self.known):03d}-{kind}.arrays"
        self.known[name] = {key: np.array(each) for key, each in arrays.items()}, dict(meta or {})
        return name

    def read(self, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
        return self.known[name]


def epoch_of(
    number: int, version: int = 0, pending: int | None = None, census: Census | None = None, drops: bool = True
) -> Epoch:
    more: dict[str, Any] = {"filtered": drops, "placing": True, "census": census}
    return Epoch(number, 1, NEVER, 0, version, pending, (), (), (), **more)


def thing(name: str, x: float, *words: str) -> SpatialObject:
    return SpatialObject(name, 0, x, 0.5, words)


def query(name: str, predicate: Predicate, selection: Selection | None = None, life: Lifetime = LIFE) -> Query:
    return Query(name, 0, predicate, selection or Everything(), life)


def left_of(*words: str, **more: Any) -> Predicate:
    """In the left half of the plane."""
    return Predicate(Box(PLANE.west, PLANE.south, _MIDDLE - 1e-6, PLANE.north), words, **more)


_MIDDLE = (PLANE.west + PLANE.east) / 2
_LEFT, _RIGHT = PLANE.west + (_MIDDLE - PLANE.west) / 4, PLANE.east - (PLANE.east - _MIDDLE) / 4


@pytest.fixture(scope="module")
def version() -> RoutingVersion:
    """Four equal cells."""
    return build(PLANE, ObjectBatch.of([]), QueryBatch.of([]), 4, 2, kind="grid")


class Filtered:
    """A filter, and the epochs that it has seen."""

    def __init__(self, version: RoutingVersion, drops: bool = True) -> None:
        self.filter, self.version, self.storage, self.number = WordFilter(), version, MemoryStorage(), -1
        self.drops = drops

    def take(self, *queries: Query | Cancellation, objects: ObjectBatch | None = None, **of_epoch: Any) -> None:
        self.number += 1
        pending: RoutingVersion | None = of_epoch.pop("coming", None)
        epoch = epoch_of(
            self.number,
            self.version.number,
            None if pending is None else pending.number,
            of_epoch.get("census"),
            self.drops,
        )
        given_ = QueryBatch.of(queries) if queries else None
        self.filter.advance(epoch, Routing(self.version, pending), objects, given_, self.storage)

    def kept(self, *objects: SpatialObject) -> str:
        batch = ObjectBatch.of(objects)
        return "".join(batch.ids[int(row)].as_py() for row in self.filter.kept(batch, self.version.index))


OBJECTS = (
    thing("a", _LEFT, "fire"),
    thing("b", _RIGHT, "fire"),
    thing("c", _LEFT, "the", "flood"),
    thing("d", _RIGHT, "the", "flood"),
    thing("e", _LEFT),
    thing("f", _LEFT, "other"),
)


@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        ((), ""),
        ((query("q", left_of("fire")),), "a"),
        ((query("q", Predicate(None, ("fire",)), Nearest(0.0, 0.0, 1)),), "ab"),
        ((query("q", Predicate(None), Nearest(0.0, 0.0, 1)),), "abcdef"),
        ((query("q", left_of()),), "acef"),
        ((query("q", left_of(none=("fire",))),), "acef"),
        ((query("q", left_of(), TopTerms(1), Lifetime(9, True, 9, 9)),), "acef"),
        ((query("q", left_of("flood"), TopTerms(1), Lifetime(9, True, 9, 9)),), "c"),
        ((query("q", left_of(any=(("fire", "x"), ("flood",)))),), "c"),
        ((query("q", left_of("fire", "flood")),), "c"),
        ((query("q", left_of("fire"), life=Lifetime(9)),), ""),
        ((Cancellation("q", 0),), ""),
        ((query("q", left_of("fire")), query("r", left_of("other"))), "af"),
    ],
)
def test_what_is_kept(version: RoutingVersion, asked: Sequence[Query | Cancellation], kept: str) -> None:
    """Of two words the rarer one counts; in the batch that comes first these are ``x`` and ``flood``."""
    filtered = Filtered(version)
    words = [thing(str(i), _LEFT, "fire", "x" if i < 9 else "y", "the") for i in range(30)]
    filtered.take(*asked, objects=ObjectBatch.of([*words, *OBJECTS]))
    assert filtered.kept(*OBJECTS) == kept


def test_a_ranked_query_keeps_objects_with_one_of_its_words(version: RoutingVersion) -> None:
    def best(name: str, predicate: Predicate) -> Query:
        by = Ranking(("fire", "flood"), 1.0, 1, 1, static=True, weights=(1, 1))
        return query(name, predicate, Best(_LEFT, 0.5, 1, by))

    for predicate, kept in ((left_of(), "ac"), (left_of("the"), "c"), (left_of(any=(("other",), ("x",))), "f")):
        filtered = Filtered(version)
        words = [thing(str(i), _LEFT, "the", "fire", "flood") for i in range(9)]
        filtered.take(
            best("q", predicate), objects=ObjectBatch.of(words[: 9 if "the" not in predicate.keywords else 0])
        )
        found = filtered.kept(*OBJECTS)
        assert set(kept) <= set(found)
        assert not {"b", "d", "e"} & set(found)


@settings(max_examples=examples(20, 400))
@given(st.integers(0, 10**6), st.sampled_from([WGS84, PLANE]), st.integers(1, 3))
def test_whatever_a_query_matches_is_kept(seed: int, space: Space, pieces: int) -> None:
    stream = random_stream(seed, 120, 6, space, types=["CRQ", "CKQ", "CTQ"], vocabulary=60)
    asked = [each for each in stream.queries if isinstance(each, Query) and all(each.predicate.expression.groups)]
    objects = ObjectBatch.of(stream.objects)
    version = build(space, objects, QueryBatch.of(asked), 16, 3)
    filtered = Filtered(version)
    for piece in range(pieces):
        filtered.take(*asked[piece::pieces], objects=objects)
    kept = set(filtered.filter.kept(objects, version.index).tolist())
    known = AllObjects(stream.objects, space, None)
    matched = {o.id for each in asked for o in known.matching(-math.inf, 2**62, each.predicate)}
    assert matched <= {stream.objects[i].id for i in kept}
    words = {word for each in asked for group in each.predicate.expression.groups for word in group}
    assert all(words & {*stream.objects[i].terms} for i in kept)


def test_a_census_forgets_what_has_ended_and_keeps_what_has_come_since(version: RoutingVersion) -> None:
    filtered = Filtered(version)
    filtered.take(query("q", left_of("fire")))
    filtered.take(query("r", left_of("other")))
    index = version.index
    for slot, asked in enumerate(([query("s", left_of("flood"))], [])):  # q has ended
        write_groups(filtered.storage, census_name((5, 1), slot), Groups.of(QueryBatch.of(asked), index))
    filtered.take(census=Census(5, 1, 0, 0))
    assert filtered.kept(*OBJECTS) == "cf"
    filtered.take(query("t", Predicate(None, ("fire",)), Nearest(0.0, 0.0, 1)))
    assert filtered.kept(*OBJECTS) == "abcf"


def test_a_version_begins_with_what_slots_have_written_and_what_has_come_since(version: RoutingVersion) -> None:
    filtered = Filtered(version)
    coming = RoutingVersion(
        3, build(PLANE, ObjectBatch.of([]), QueryBatch.of([]), 16, 2, kind="grid").index, np.zeros(16, np.int32), 2
    )
    filtered.take(query("q", left_of("fire")), query("gone", left_of("flood")))
    for slot, asked in enumerate(([], [query("q", left_of("fire"))])):
        write_groups(filtered.storage, prepared_name(3, slot), Groups.of(QueryBatch.of(asked), coming.index))
    filtered.take(query("r", left_of("other")), coming=coming)
    assert filtered.kept(*OBJECTS) == "acf"
    filtered.version = coming
    filtered.take()
    assert filtered.kept(*OBJECTS) == "af"


def test_a_withdrawn_version_leaves_nothing(version: RoutingVersion) -> None:
    filtered = Filtered(version)
    coming = RoutingVersion(3, version.index, version.mapping, 2)
    filtered.take(query("q", left_of("fire")), coming=coming)
    filtered.take()
    again = RoutingVersion(4, version.index, version.mapping, 2)
    filtered.take(query("r", left_of("other")), coming=again)
    for slot in range(2):
        write_groups(filtered.storage, prepared_name(4, slot), Groups.of(QueryBatch.of([]), version.index))
    filtered.version = again
    filtered.take()
    assert filtered.kept(*OBJECTS) == "f"


def restored(filtered: Filtered, files: Files) -> Filtered:
    manifest: Manifest = filtered.filter.checkpoint(files.write)
    again = Filtered(filtered.version)
    again.filter, again.storage = WordFilter.restore(manifest, files.read), filtered.storage
    again.number = filtered.number
    return again


def test_a_filter_is_the_same_after_a_checkpoint(version: RoutingVersion) -> None:
    stream = random_stream(1, 200, 30, PLANE, types=["CRQ"], vocabulary=60)
    coming = RoutingVersion(1, version.index, version.mapping, 2)
    asked = [each for each in stream.queries if isinstance(each, Query) and all(each.predicate.expression.groups)]
    objects = ObjectBatch.of(stream.objects)
    filtered, files = Filtered(version), Files()
    filtered.take(*asked[:10], objects=objects)
    filtered = restored(filtered, files)
    filtered.take(*asked[10:20], objects=objects, coming=coming)
    again = restored(filtered, files)
    for slot in range(2):
        write_groups(filtered.storage, prepared_name(1, slot), Groups.of(QueryBatch.of(asked[:10]), version.index))
    for each in (filtered, again):
        each.take(*asked[20:25], coming=coming)
        each.version = coming
        each.take(*asked[25:])
    kept = [each.filter.kept(objects, version.index).tolist() for each in (filtered, again)]
    assert kept[0] == kept[1]
    assert 0 < len(kept[0]) < len(objects)


def test_leaves_know_the_words_that_queries_ask_for(version: RoutingVersion) -> None:
    filtered = Filtered(version)
    filtered.take(query("q", left_of("fire")), query("r", Predicate(None, ("flood",)), Nearest(0.0, 0.0, 1)))
    offsets, words = filtered.filter.leaf_words(4)
    west = version.index.leaves.box[:, 0] < _MIDDLE
    assert np.diff(offsets).tolist() == west.astype(int).tolist()
    assert set(words.tolist()) == set(hash_strings(pa.array(["fire"], pa.string())).tolist())


def test_slots_get_the_words_of_their_ckqs(version: RoutingVersion) -> None:
    placed = replace(version, nearest=dealt_evenly(PLANE, 2))
    assert placed.nearest is not None
    predicates = [Predicate(None, ("fire",)), Predicate(None, any=(("flood", "the"), ("other",))), left_of("fire")]
    asked = [query(f"q{i}", each, Nearest(0.1 * i, 0.0, 1) if i < 2 else None) for i, each in enumerate(predicates)]
    slots = placed.nearest.slots_of(QueryBatch.of(asked[:2])).tolist()
    objects = ObjectBatch.of(OBJECTS)

    def expected(*of: int) -> list[tuple[int, int]]:
        """By the words alone, wherever objects are."""
        terms = [(i, set(each.terms)) for i, each in enumerate(OBJECTS)]
        needs = [{"fire"}, {"flood", "the", "other"}]
        return sorted({(i, slots[each]) for i, words in terms for each in of if words & needs[each]})

    def found(filtered: Filtered) -> list[tuple[int, int]]:
        row, slot = filtered.filter.slots_for(objects, 2)
        return list(zip(row.tolist(), slot.tolist(), strict=True))

    for drops in (False, True):
        filtered = Filtered(placed, drops)
        filtered.take(asked[0])
        assert found(filtered) == expected(0)
        filtered.take(*asked[1:])
        assert found(filtered) == expected(0, 1), "a CRQ is none of them"
        for slot in (0, 1):
            known = QueryBatch.of(asked[1:] if slot == slots[1] else asked[2:])
            groups = Groups.of(known, placed.index, placed.mapping == slot, placed.nearest)
            write_groups(filtered.storage, census_name((5, 1), slot), groups)
        filtered.take(census=Census(5, 1, 1, 0))
        assert found(filtered) == expected(1), "q0 has ended"
        coming = replace(placed, number=3, nearest=placed.nearest.moved(1 - placed.nearest.slot))
        filtered.take(coming=coming)
        for slot in (0, 1):
            known = QueryBatch.of(asked[1:] if slot == slots[1] else asked[2:])
            groups = Groups.of(known, coming.index, None, coming.nearest)
            write_groups(filtered.storage, prepared_name(3, slot), groups)
        filtered.take(query("r", Predicate(), Nearest(0.0, 0.0, 1)), coming=coming)
        rows = {slot: [row for row, each in found(filtered) if each == slot] for slot in (0, 1)}
        (all_to,) = placed.nearest.slots_of(QueryBatch.of([query("r", Predicate(), Nearest(0.0, 0.0, 1))])).tolist()
        assert rows[all_to] == [*range(len(OBJECTS))], "a CKQ without words needs all"
        filtered.version = coming
        filtered.take()
        rows = {slot: [row for row, each in found(filtered) if each == slot] for slot in (0, 1)}
        assert rows[1 - all_to] == [*range(len(OBJECTS))], "its slot is another one now"


def test_many_words_are_looked_up_as_few(version: RoutingVersion) -> None:
    """What comes is looked up apart from what is known, until it is merged with it."""
    filtered = Filtered(version)
    for number in range(5):
        filtered.take(*(query(f"q{number}-{i}", left_of(f"w{number}-{i}")) for i in range(1_500)))
    there = [thing("a", _LEFT, f"w{number}-{i}") for number in range(5) for i in (0, 700, 1_499)]
    assert filtered.kept(*there) == "a" * 15
    assert filtered.kept(thing("a", _RIGHT, "w0-0"), thing("b", _LEFT, "w9-0")) == ""
    assert len(filtered.filter) == 2 * 7_500


def test_frequencies_decay_and_are_sampled() -> None:
    counts = Frequencies()
    word = hash_strings(pa.array(["a", "b"], pa.string()))
    many = ObjectBatch.of([thing(str(i), 0.0, "a") for i in range(1 << 10)])
    for _ in range(1 << 10):
        counts.observe(many)
    assert counts.of(word).tolist() == [1 << 16, 0], "those of the first window"
    counts.observe(many)
    assert counts.of(word).tolist() == [(1 << 15) + (1 << 10), 0]
    files = Files()
    again = Frequencies.restore(counts.checkpoint(files.write), files.read)
    assert again.of(word).tolist() == counts.of(word).tolist()


def test_files_that_no_replay_reads_are_deleted() -> None:
    storage = MemoryStorage()
    empty = Groups.concat([])
    for round_ in (3, 7, 9):
        write_groups(storage, census_name((round_, 0), 0), empty)
    for number in (1, 2, 4):
        write_groups(storage, prepared_name(number, 0), empty)
    storage.put("words/census.json", b"{}")
    drop_words(storage, 7, 2)
    assert storage.list("words/") == [
        "words/census.json",
        "words/round-000000007-0-0000.arrays",
        "words/round-000000009-0-0000.arrays",
        "words/version-000004-0000.arrays",
    ]


def test_entries_are_distinct() -> None:
    leaf, word = np.array([1, 0, 1, -1], np.int32), np.array([5, 5, 5, 5], np.uint64)
    once = Entries.of(leaf, word)
    assert once.leaf.tolist() == [-1, 0, 1]
    assert len(Entries.union([once, once, Entries.none()])) == 3
