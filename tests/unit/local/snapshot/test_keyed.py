"""Keywords of properties as terms of segments: they select as words do, and nothing else sees them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from spatialstream.local.snapshot import keywords, segments
from spatialstream.local.snapshot.corpora import CorpusTable
from spatialstream.local.snapshot.segment import Segment
from spatialstream.local.snapshot.segments import SegmentStore
from spatialstream.local.snapshot.views import ObjectsView
from spatialstream.local.wordtable import to_arrow
from spatialstream.model.expressions import Expression, keyed
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.properties.columns import PropertyColumns
from spatialstream.model.properties.condition import cql2_of
from spatialstream.model.properties.cql2 import parse_where
from spatialstream.model.ranking.asked import Ranking
from spatialstream.model.regions import Box
from spatialstream.model.space import Space
from spatialstream.model.terms import TermLists
from spatialstream.oracle import ranking as oracle
from spatialstream.oracle.conditions import satisfies
from tests.lengths import examples
from tests.unit.local.snapshot.test_best import corpus_of
from tests.unit.memory_files import MemoryFiles
from tests.unit.model.properties.conditions import DECLARED, KEYWORDS, condition, values

PLANE = Space.planar(0.0, 0.0, 1.0, 1.0)
WORDS = ("w0", "w1", "w2", "w3", "de", "fr")
BOXES = (None, Box(0.0, 0.0, 1.0, 1.0), Box(0.2, 0.2, 0.6, 0.7), Box(0.5, 0.5, 0.5, 0.5))
EXPRESSIONS = ((), ("w0",), ("w3", "w0"), ("de",), ("0|w0", "1|w1", "1|w2"), ("!w0",), ("w1", "!w2"))
LAST = 1_000
FOREVER = (-1, LAST)


def drawn(chance: random.Random, n: int, counted: bool = False) -> list[SpatialObject]:
    """Objects of a few words, of which one is a keyword, too; some have the same place and id."""
    places = [chance.random() for _ in range(20)]
    objects = [
        SpatialObject(
            f"o{i % (n // 2 + 1)}",
            chance.randrange(LAST),
            chance.choice([0.5, chance.choice(places), chance.random()]),
            chance.choice([0.5, chance.choice(places), chance.random()]),
            tuple(dict.fromkeys(chance.choices(WORDS, (8, 4, 2, 1, 1, 1), k=chance.randrange(5)))),
            tuple(values(chance).items()),
        )
        for i in range(n)
    ]
    if not counted:
        return objects
    return [replace(o, counts=tuple(chance.choice([1, 1, 2, 7]) for _ in o.terms)) for o in objects]


def asked(chance: random.Random) -> dict[str, Any]:
    """A condition, often one of tests that are terms."""
    if chance.random() < 0.3:
        return condition(chance)
    tests = [
        {"op": "in", "args": [{"property": name}, chance.sample(KEYWORDS, chance.choice([1, 1, 3]))]}
        for name in chance.sample(["country", "the place"], chance.choice([1, 1, 2]))
    ]
    tests += [condition(chance, 0)] if chance.random() < 0.3 else []
    return tests[0] if len(tests) == 1 else {"op": "and", "args": tests}


def earlier(objects: list[SpatialObject]) -> Segment:
    """A segment as files of an earlier format have it: the keywords of its properties have no postings."""
    batch = ObjectBatch.of(objects)
    plain = Segment.build(PLANE, replace(batch, properties=PropertyColumns.none(len(batch))))
    return Segment(PLANE, plain.columns, plain.signatures, Segment.build(PLANE, batch).properties)


def restored(objects: list[SpatialObject], files: MemoryFiles, capacity: int = 1 << 20) -> SegmentStore:
    """A store of these objects from a checkpoint of an earlier format."""
    store = SegmentStore(PLANE, capacity=capacity)
    store.append(ObjectBatch.of(objects))
    manifest = store.checkpoint(files.write)
    (name,) = files.files
    files.files[name] = earlier(objects).to_arrays(), {}
    return SegmentStore.restore(PLANE, manifest, files.read)


def stored(chance: random.Random, objects: list[SpatialObject], old: int) -> SegmentStore:
    """A store of the objects, of which the first so many came with an earlier format; perhaps one that was restored."""
    files, capacity = MemoryFiles(), chance.choice([64, 512, 1 << 20])
    store = restored(objects[:old], files, capacity) if old else SegmentStore(PLANE, capacity=capacity)
    size = chance.choice([17, 60, 400])
    for first in range(old, len(objects), size):
        store.append(ObjectBatch.of(objects[first : min(first + size, len(objects))]))
        if chance.random() < 0.2:
            store = SegmentStore.restore(PLANE, store.checkpoint(files.write), files.read)
    return store


def with_segments(segments: Sequence[Segment], files: MemoryFiles) -> SegmentStore:
    """A store of exactly these segments, at most seven, from a checkpoint."""
    store = SegmentStore(PLANE)
    for segment in segments:
        ids = to_arrow(segment.columns.id_offsets, segment.columns.ids)
        store.append(
            ObjectBatch(ids, segment.columns.t, segment.columns.x, segment.columns.y, TermLists.empty(len(ids)))
        )
    manifest = store.checkpoint(files.write)
    assert len(manifest["segments"]) == len(segments)
    for part, segment in zip(manifest["segments"], segments, strict=True):
        part["keyed"] = segment.keyed
        files.files[part["file"]] = segment.to_arrays(), {}
    return SegmentStore.restore(PLANE, manifest, files.read)


def mixed(chance: random.Random, objects: list[SpatialObject]) -> tuple[SegmentStore, set[frozenset[str]]]:
    """A store of the objects, in each of whose segments other keywords have no postings; and which have none."""
    n = chance.randrange(2, 8)
    if chance.random() < 0.5:  # segments of other times are not loaded
        objects = sorted(objects, key=lambda o: o.t)
    size = -(-len(objects) // n)
    segments = []
    for part in (objects[first : first + size] for first in range(0, len(objects), size)):
        decided = {name: chance.random() < 0.6 for name in ("country", "the place")}
        built = Segment.build(PLANE, ObjectBatch.of(part), decided)
        segments.append(earlier(part) if chance.random() < 0.2 else built)
    return with_segments(segments, MemoryFiles()), {segment.unkeyed for segment in segments}


def inside(box: Box | None, o: SpatialObject) -> bool:
    return box is None or (box.west <= o.x <= box.east and box.south <= o.y <= box.north)


def columns(found: Any) -> list[tuple[Any, ...]]:
    given = [found.t, found.ids, found.x, found.y]
    return list(zip(*(column.tolist() for column in given), strict=True))


def score_of(o: SpatialObject, at: tuple[float, float], by: Ranking, texts: oracle.Corpus) -> float:
    """The score of an object of a query at the end, by the oracle."""
    assert by.half_life is not None
    space = oracle.space_score(PLANE.distance(*at, o.x, o.y), by.radius)
    text = oracle.text_score(o.said, by.asked, texts, by.static)
    return oracle.decayed(by.shares[0], space, text, oracle.decay(LAST - o.t, by.half_life))


def compared(chance: random.Random, store: SegmentStore, objects: list[SpatialObject], corpus: CorpusTable) -> bool:
    """Compare one condition's answers with brute force; returns whether terms were looked for."""
    where, words, box = parse_where(asked(chance), DECLARED), chance.choice(EXPRESSIONS), chance.choice(BOXES)
    text = Expression.of(words)
    literals = (*words, *Expression(where=where).literals)
    times = chance.choice([FOREVER, (LAST // 3, LAST // 2)])
    there = [
        o
        for o in objects
        if text.holds(o.terms) and times[0] < o.t <= times[1] and satisfies(cql2_of(where), dict(o.properties))
    ]
    here = [o for o in there if inside(box, o)]
    assert columns(store.range_query(box, literals, *times)) == sorted((o.t, o.id, o.x, o.y) for o in here)
    terms, counts = store.term_counts(box, literals, *times)
    assert dict(zip(terms.to_pylist(), counts.tolist(), strict=True)) == Counter(w for o in here for w in o.terms)
    k, at = chance.choice([1, 7, 200]), (chance.random(), 0.5)
    near = sorted((PLANE.distance(*at, o.x, o.y), -o.t, o.id, o.x, o.y) for o in there)[:k]
    assert columns(store.nearest(*at, k, literals, *times)) == [(-t, *rest) for _, t, *rest in near]
    by = Ranking(("w0", "w3"), 2.0, 1, half_life=500)
    best = store.best(at, k, by, literals, times, LAST, corpus)
    candidates = [o for o in there if {*o.terms} & {*by.words}]
    found = Counter(columns(best.rows))
    assert found <= Counter((o.t, o.id, o.x, o.y) for o in candidates)
    texts = oracle.Corpus.of(o.terms for o in objects)
    scored = sorted((score_of(o, at, by, texts), -o.t, o.id, o.x, o.y) for o in candidates)
    assert found >= Counter((-t, *rest) for _, t, *rest in scored[:k])
    wanted = min(k, len(scored))
    assert wanted <= found.total() <= sum(each[0] <= scored[wanted - 1][0] for each in scored)
    return keyed(Expression(where=where)).any != ()


@pytest.mark.parametrize("seed", range(examples(24, 400)))
def test_answers_are_those_of_brute_force(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    for module in (keywords, segments):
        monkeypatch.setattr(module, "ENOUGH", 8_192 if seed % 2 else 100)
    monkeypatch.setattr(keywords, "ALIKE", chance.choice([16, 70, 200]))
    objects = drawn(chance, chance.choice([1, 40, 300, 900]), counted=seed % 3 == 0)
    store = stored(chance, objects, chance.choice([0, 0, len(objects) // 3]))
    corpus = corpus_of(objects)
    assert sum(compared(chance, store, objects, corpus) for _ in range(20)) > 4


@pytest.mark.parametrize("seed", range(examples(24, 400)))
def test_so_are_those_of_segments_of_which_some_have_no_postings(seed: int) -> None:
    chance = random.Random(seed)
    objects = drawn(chance, chance.choice([40, 300, 900]), counted=seed % 3 == 0)
    store, unkeyed = mixed(chance, objects)
    assert unkeyed
    corpus = corpus_of(objects)
    assert sum(compared(chance, store, objects, corpus) for _ in range(20)) > 4


def said(batch: ObjectBatch) -> list[tuple[str, list[tuple[str, int]]]]:
    """How often the texts of objects have their terms."""
    objects = (batch[i] for i in range(len(batch)))
    return sorted((o.id, sorted(Counter(o.said).items())) for o in objects)


def scores(store: SegmentStore, where: tuple[str, ...], corpus: CorpusTable) -> Any:
    """What SBQs are answered from: the places, the distances and the scores of texts."""
    found = store.best((0.5, 0.5), 50, Ranking(("w0", "w3"), 2.0, 1, half_life=500), where, FOREVER, LAST, corpus)
    return columns(found.rows), found.rows.distance.tolist(), found.textual.tolist()


@pytest.mark.parametrize("where", ["country = 'de'", "country IN ('de', 'fr') AND \"the place\" = 'd'", "priority = 1"])
@pytest.mark.parametrize("counted", [False, True])
def test_they_are_no_words_of_texts(where: str, counted: bool) -> None:
    """Sets, tables, counts, lengths and scores are those of segments without these terms."""
    objects = drawn(random.Random(3), 20_000, counted)
    literals = Expression(where=parse_where(where, DECLARED)).literals
    new, old = SegmentStore(PLANE), restored(objects, MemoryFiles())
    new.append(ObjectBatch.of(objects))
    corpus = corpus_of(objects)
    assert scores(new, literals, corpus) == scores(old, literals, corpus)
    assert scores(new, (), corpus) == scores(old, (), corpus)
    for asking in ((), literals, ("w1",)):
        for most in (None, 3):
            given = [store.term_counts(BOXES[1], asking, *FOREVER, most) for store in (new, old)]
            found = [dict(zip(terms.to_pylist(), counts.tolist(), strict=True)) for terms, counts in given]
            assert found[0] == found[1]
            assert not any(term.startswith('"') for term in found[0])
    (left,), (right,) = list(new.leaving(LAST + 1)), list(old.leaving(LAST + 1))
    assert [sorted(left.terms[i]) for i in range(200)] == [sorted(right.terms[i]) for i in range(200)]
    assert {*left.terms.vocabulary.to_pylist()} == {*right.terms.vocabulary.to_pylist()} == {*WORDS}
    assert left.properties.to_arrow() == right.properties.to_arrow()
    assert said(left) == said(right)
    assert all(count == 1 for _, counts in said(left) for _, count in counts) != counted


def test_each_keyword_has_postings_and_is_in_no_set() -> None:
    objects = drawn(random.Random(4), 500)
    segment = Segment.merge([Segment.build(PLANE, ObjectBatch.of(objects[i::3])) for i in range(3)])
    s, given = segment.columns, segment.properties
    assert given is not None
    column = given.columns().columns["country"].to_pylist()
    for code, term in enumerate(to_arrow(s.word_offsets, s.words).to_pylist()):
        if term.startswith('"country"'):
            expected = [i for i, value in enumerate(column) if value == term.removeprefix('"country"')]
            assert s.postings[s.posting_offsets[code] : s.posting_offsets[code + 1]].tolist() == expected
    assert {f'"country"{value}' for value in column if value is not None} <= {
        *to_arrow(s.word_offsets, s.words).to_pylist()
    }


def test_without_keywords_a_segment_is_as_it_was() -> None:
    """Other properties add their own arrays, and change no other."""
    chance = random.Random(5)
    objects = [
        replace(o, properties=tuple(each for each in o.properties if each[0] in ("priority", "open")))
        for o in drawn(chance, 300)
    ]
    batch = ObjectBatch.of(objects)
    plain = Segment.build(PLANE, replace(batch, properties=PropertyColumns.none(len(batch)))).to_arrays()
    given = Segment.build(PLANE, batch).to_arrays()
    assert {name for name in given if name not in plain} == {"property_types", "property_words", "property_data"}
    assert all(np.array_equal(given[name], plain[name]) for name in plain)


def test_a_file_says_whether_keywords_have_postings() -> None:
    objects = drawn(random.Random(6), 50)
    segment = Segment.build(PLANE, ObjectBatch.of(objects))
    arrays = segment.to_arrays()
    assert Segment.from_arrays(PLANE, arrays).keyed == segment.keyed == {"country": True, "the place": True}
    old = earlier(objects).to_arrays()
    assert {*arrays} - {*old} == {"keyed"}
    assert Segment.from_arrays(PLANE, old).unkeyed == {"country", "the place"}
    merged = Segment.merge([Segment.from_arrays(PLANE, old), segment])
    assert not merged.unkeyed, "a merge makes postings of what had none"


def found_in_germany(kind: str, view: ObjectsView, corpus: CorpusTable, k: int) -> int:
    """How many objects, at most k where k are asked for, a query of a type finds with a country."""
    literals = Expression(where=parse_where("country = 'de'", DECLARED)).literals
    match kind:
        case "SRQ":
            return len(view.range_query(None, literals, *FOREVER))
        case "SKQ":
            return len(view.nearest(0.1, 0.1, k, literals, *FOREVER))
        case "STQ":
            (count,) = view.term_counts(None, literals, *FOREVER)[1].tolist()
            return int(count)
        case _:
            by = Ranking(("w0",), 2.0, 1, half_life=500)
            return len(view.best((0.1, 0.1), k, by, literals, FOREVER, LAST, corpus).rows)


@pytest.mark.parametrize("kind", ["SRQ", "SKQ", "STQ", "SBQ"])
def test_only_objects_with_the_keyword_are_looked_at(kind: str) -> None:
    """Of 20,000 objects 20 have a country: no more are checked, where all were."""
    chance = random.Random(7)
    objects = [
        replace(o, terms=("w0",), properties=(("country", "de" if i % 1_000 == 0 else "fr"),))
        for i, o in enumerate(drawn(chance, 20_000))
    ]
    store = SegmentStore(PLANE)
    store.append(ObjectBatch.of(objects))
    view, corpus = store.view(), corpus_of(objects)
    assert found_in_germany(kind, view, corpus, 20) == 20
    assert view.checked <= (20 if kind != "SBQ" else len(objects))


@pytest.mark.parametrize("kind", ["SRQ", "SKQ", "STQ", "SBQ"])
def test_only_segments_without_postings_have_candidates_checked(kind: str) -> None:
    """Of 20,000 objects in a segment with postings 20 have a country, and of 100 in one without a single one."""
    chance = random.Random(8)
    objects = [
        replace(o, terms=("w0",), properties=(("country", "de" if i % 1_000 == 0 else "fr"),))
        for i, o in enumerate(drawn(chance, 20_100))
    ]
    given = [Segment.build(PLANE, ObjectBatch.of(objects[:20_000])), earlier(objects[20_000:])]
    view, corpus = with_segments(given, MemoryFiles()).view(), corpus_of(objects)
    assert found_in_germany(kind, view, corpus, 21) == 21
    assert view.checked <= (420 if kind != "SBQ" else len(objects) + 400)
