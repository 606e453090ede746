"""Synthetic streams: deterministic, readable by the parsers, distributed as they say, and worth asking about."""

import gzip
import json
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from spatialstream.generate import (
    GenerateSettings,
    object_batches,
    query_batch,
    write_stream,
)
from spatialstream.generate.events import EVENTS
from spatialstream.generate.objects import CHUNK
from spatialstream.generate.phrases import CORES, FILLERS, OPENERS, PLACES, TIMES, place_name
from spatialstream.generate.places import cities
from spatialstream.generate.queries import chosen, focuses
from spatialstream.model.errors import SettingError
from spatialstream.model.geometry import EARTH_RADIUS_M
from spatialstream.model.kinds import KINDS, TYPES, QueryType
from spatialstream.model.lifetimes import MOST_STEPS
from spatialstream.model.objects import ObjectBatch, parse_object
from spatialstream.model.properties.condition import Both, cql2_of
from spatialstream.model.properties.declared import NO_PROPERTIES, Properties
from spatialstream.model.queries import parse_query
from spatialstream.model.regions import Box, Circle, Polygon
from spatialstream.model.space import WGS84, Space
from spatialstream.model.terms import ANY_WORDS, TermRule, extract_terms
from spatialstream.model.times import TIME_LIMIT
from spatialstream.oracle import answers
from spatialstream.oracle.conditions import satisfies
from spatialstream.records.encode import object_lines, query_lines

PLANE = Space.planar(0.0, 0.0, 10.0, 10.0)
STREAMS = {
    "social": GenerateSettings(objects=3_000),
    "events": GenerateSettings(objects=3_000, events=2),
    "by day": GenerateSettings(objects=3_000, diurnal=True, rate=0.05),
    "uniform": GenerateSettings(kind="uniform", objects=3_000),
    "gaussian": GenerateSettings(kind="gaussian", objects=3_000, space=PLANE),
    "clusters": GenerateSettings(kind="clusters", objects=3_000, space=PLANE, vocabulary=1_000),
    "round the Earth": GenerateSettings(kind="gaussian", objects=3_000, sigma=300.0),
}
each_stream = pytest.mark.parametrize("settings", STREAMS.values(), ids=STREAMS)


def generated(settings):
    return ObjectBatch.concat(list(object_batches(settings)))


@each_stream
def test_lines_of_objects_say_what_the_columns_hold(settings):
    batch = generated(settings)

    records = [json.loads(line) for line in bytes(object_lines(batch, settings.space)).splitlines()]

    assert [parse_object(record, settings.space) for record in records] == [batch[i] for i in range(settings.objects)]
    assert [record["id"] for record in records] == [f"o{i}" for i in range(settings.objects)]


@each_stream
def test_lines_of_queries_say_what_the_columns_hold(settings):
    settings = replace(
        settings,
        queries=dict.fromkeys(QueryType, 60),
        circles=0.5,
        polygons=0.3,
        region=(0.0001, 60.0),
        keywords=(0, 2),
    )
    batch = query_batch(settings)

    records = [json.loads(line) for line in bytes(query_lines(batch)).splitlines()]

    parsed = [parse_query(record, settings.space) for record in records]
    assert parsed == [batch[i] for i in range(360)]
    assert [query.t for query in parsed] == sorted(query.t for query in parsed)
    assert sorted(query.id for query in parsed) == sorted(f"{t.lower()}{i}" for t in QueryType for i in range(60))


@each_stream
def test_the_same_settings_give_the_same_bytes(tmp_path, settings):
    settings = replace(settings, queries=dict.fromkeys(QueryType, 5))
    files = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        paths = [tmp_path / folder / name for name in ("o.jsonl", "q.jsonl", "o.jsonl.gz", "q.jsonl.gz")]
        write_stream(paths[0], paths[1], settings)
        write_stream(paths[2], None, settings)
        write_stream(None, paths[3], settings)
        files.append([path.read_bytes() for path in paths])

    assert files[0] == files[1]
    assert [gzip.decompress(packed) for packed in files[0][2:]] == files[0][:2]
    assert bytes(object_lines(generated(replace(settings, seed=1)), settings.space)) != files[0][0]


def test_chunks_follow_one_another(tmp_path):
    settings = GenerateSettings(
        kind="uniform", objects=CHUNK + 3, terms=1, vocabulary=2, rate=2.0, start=7, queries={QueryType.SRQ: 20}
    )
    told = []

    write_stream(tmp_path / "o", tmp_path / "q", settings, told.append)
    batch = generated(settings)

    assert told == [CHUNK, 3]
    assert (tmp_path / "o").read_bytes().count(b"\n") == CHUNK + 3
    assert batch.t.tolist() == list(range(7, 7 + 500 * (CHUNK + 3), 500))
    assert batch[CHUNK].id == f"o{CHUNK}"
    assert batch.x[0] != batch.x[CHUNK]


def test_chosen_objects_come_in_the_order_of_their_numbers():
    settings = GenerateSettings(kind="uniform", objects=CHUNK + 100, terms=1, vocabulary=2)
    numbers = np.array([CHUNK + 5, 3, CHUNK - 1, 3, CHUNK])

    found = chosen(object_batches(settings), numbers)

    assert found.ids.to_pylist() == [f"o{number}" for number in numbers]
    assert found.x.tolist() == generated(settings).x[numbers].tolist()


def test_a_stream_of_nothing(tmp_path):
    write_stream(tmp_path / "o", tmp_path / "q", GenerateSettings(objects=0))

    assert (tmp_path / "o").read_bytes() == (tmp_path / "q").read_bytes() == b""


# -------------------------------------------------------------------------------------------------------------- places


def test_uniform_objects_fill_the_space():
    batch = generated(GenerateSettings(kind="uniform", objects=20_000, space=PLANE))
    counts, _, _ = np.histogram2d(batch.x, batch.y, bins=4, range=[[0, 10], [0, 10]])

    assert counts.min() > 1_100
    assert counts.max() < 1_400


def test_gaussian_objects_lie_around_the_middle():
    batch = generated(GenerateSettings(kind="gaussian", objects=20_000, space=PLANE))

    for axis in (batch.x, batch.y):
        assert axis.mean() == pytest.approx(5.0, abs=0.05)
        assert axis.std() == pytest.approx(1.0, abs=0.05)
    assert abs(np.corrcoef(batch.x, batch.y)[0, 1]) < 0.05


def test_clusters_hold_seven_tenths_of_the_objects():
    settings = GenerateSettings(kind="clusters", objects=20_000, space=PLANE)
    batch, random = generated(settings), settings.random("centres")
    x, y = random.uniform(0, 10, 40), random.uniform(0, 10, 40)

    def in_a_cluster(points_x, points_y):
        return np.hypot(points_x[:, None] - x, points_y[:, None] - y).min(axis=1) < 0.4

    # A Gaussian in the plane has 1 - exp(-2) of its mass within two sigma; some of the uniform part falls there too.
    area = in_a_cluster(*(np.indices((100, 100)).reshape(2, -1) / 10)).mean()
    assert in_a_cluster(batch.x, batch.y).mean() == pytest.approx(0.7 * (1 - np.exp(-2)) + 0.3 * area, abs=0.03)


def test_social_objects_are_where_people_are():
    batch, world = generated(GenerateSettings(objects=20_000)), cities()
    tokyo = world.names.index("Tokyo")
    share = world.cumulated[tokyo] - world.cumulated[tokyo - 1]

    near = np.hypot(batch.x - world.x[tokyo], batch.y - world.y[tokyo]) < 0.1
    assert near.mean() > 0.4 * share
    assert (np.abs(batch.y) < 70).mean() > 0.99


def test_people_post_by_day():
    settings = GenerateSettings(objects=20_000, diurnal=True, start=0, rate=20_000 / 86_400)
    batch = generated(settings)

    hour = (batch.t / 3_600_000 + batch.x / 15) % 24
    counts, _ = np.histogram(hour, bins=24, range=(0, 24))

    assert counts[19:21].sum() > 3 * counts[7:9].sum()
    assert generated(replace(settings, diurnal=False)).t.tolist() == batch.t.tolist()


# --------------------------------------------------------------------------------------------------------------- words


@pytest.mark.parametrize("vocabulary", [16, 100_000])
def test_objects_have_distinct_terms_by_zipfs_law(vocabulary):
    batch = generated(GenerateSettings(kind="uniform", objects=5_000, vocabulary=vocabulary))

    sets = batch.terms.codes.reshape(5_000, 8)
    assert (np.diff(np.sort(sets, axis=1), axis=1) > 0).all()
    if vocabulary == 100_000:
        # The first draw is not disturbed by the wish for distinct ones.
        first = np.bincount(sets[:, 0], minlength=3)[:3] / 5_000
        harmonic = (1 / np.arange(1, vocabulary + 1)).sum()
        assert first == pytest.approx(1 / np.array([1, 2, 3]) / harmonic, abs=0.015)


SAYINGS = (*OPENERS, *CORES, *PLACES, *TIMES, *(says for event in EVENTS for says in event.says))


def test_a_social_post_is_a_sentence_that_now_and_then_names_its_city():
    batch = generated(GenerateSettings(objects=5_000))
    lengths, world = np.diff(batch.terms.offsets), cities()
    where = [int(np.argmin(np.hypot(world.x - o.x, world.y - o.y))) for o in (batch[i] for i in range(300))]
    named = sum({"in", *extract_terms(world.names[city])} <= set(batch[i].terms) for i, city in enumerate(where))

    assert [" ".join(batch[i].terms) for i in (0, 1, 2)] == [
        "this market is so foggy in carnot again",
        "the rabbit is asleep between happyknoll and shiproad because david said so",
        "my frog wants to go out around owlbay2 and it feels slow",
    ]
    assert lengths.min() >= 3  # of four words, one of which a city's name may repeat
    assert lengths.max() >= 12
    assert named > 15


def test_nothing_is_said_but_words_of_the_list_places_and_known_cities():
    batch, world = generated(GenerateSettings(objects=20_000, events=3)), cities()
    said = set(batch.terms.vocabulary.take(pa.array(np.unique(batch.terms.codes))).to_pylist())

    written = {word for saying in SAYINGS for word in saying.split()}.union(*FILLERS.values())
    known = {
        term for name, known in zip(world.names, world.known, strict=True) if known for term in extract_terms(name)
    }
    assert said - written - known <= {place_name(rank) for rank in range(100_000)}
    assert len(said) > 5_000


def test_sayings_are_terms_as_they_stand_and_their_gaps_can_be_filled():
    for saying in SAYINGS:
        fixed = [word for word in saying.split() if not word.startswith("{")]
        assert extract_terms(" ".join(fixed)) == fixed
        assert {word for word in saying.split() if word.startswith("{")} <= {
            f"{{{gap}}}" for gap in (*FILLERS, "name", "city")
        }
    for words in FILLERS.values():
        assert extract_terms(" ".join(words)) == list(words)


def test_places_do_not_run_out():
    names = [place_name(rank) for rank in range(100_000)]

    assert len(set(names)) == 100_000
    assert all(extract_terms(name) == [name] for name in names[::100])


@pytest.mark.parametrize("zipf", [0.5, 1.0])
def test_words_in_the_gaps_of_sentences_follow_zipfs_law(zipf):
    batch = generated(GenerateSettings(objects=60_000, zipf=zipf))
    counts = dict(zip(batch.terms.vocabulary.to_pylist(), np.bincount(batch.terms.codes).tolist(), strict=False))

    found = np.array([counts[food] for food in FILLERS["food"][1:21:3]])  # one is in a sentence of its own
    assert found / found[0] == pytest.approx((np.arange(2, 22, 3) / 2) ** -zipf, abs=0.12)


@pytest.mark.parametrize("terms", [1, 2, 3, 40])
def test_posts_may_be_of_any_length(terms):
    batch = generated(GenerateSettings(objects=2_000, terms=terms, vocabulary=1_000))

    lengths = np.diff(batch.terms.offsets)
    assert np.quantile(lengths, 0.1) >= terms - terms // 2
    assert np.quantile(lengths, 0.9) >= terms
    assert all(len(set(batch.terms[i])) == lengths[i] for i in range(200))


# ------------------------------------------------------------------------------------------------------------- queries


def asked(settings):
    """Each query with the object that it is centred on."""
    batch = query_batch(settings)
    centres = chosen(object_batches(settings), focuses(settings))
    by_id = {}
    number = 0
    for kind in TYPES:
        for i in range(settings.queries.get(kind, 0)):
            by_id[f"{kind.lower()}{i}"] = centres[number]
            number += 1
    return [(batch[i], by_id[batch[i].id]) for i in range(len(batch))]


@pytest.mark.parametrize("frequent", [False, True])
def test_queries_are_centred_on_objects_and_take_their_words(frequent):
    settings = GenerateSettings(
        kind="clusters",
        objects=2_000,
        space=PLANE,
        queries=dict.fromkeys(QueryType, 50),
        frequent=frequent,
        circles=0.4,
        polygons=0.2,
    )
    for query, focus in asked(settings):
        words, ranks = query.predicate.keywords, sorted(int(term[1:]) for term in focus.terms)
        if query.type in (QueryType.STQ, QueryType.CTQ):
            assert words == ()
        else:
            assert 1 <= len(words) <= 3
            assert set(words) <= set(focus.terms)
            if frequent:
                assert [int(word[1:]) for word in words] == ranks[: len(words)]
        match query.predicate.region:
            case Box(west, south, east, north):
                assert west <= focus.x <= east
                assert south <= focus.y <= north
                assert (east - west) * (north - south) <= 0.01 * 1.0001
            case Circle(x, y, radius):
                assert (x, y) == (focus.x, focus.y)
                assert np.pi * radius**2 == pytest.approx(0.01, rel=1e-5)
            case Polygon() as polygon:
                west, south, east, north = polygon.box
                assert west < focus.x < east
                assert south < focus.y < north
                assert (east - west) * (north - south) <= 0.01 * 1.0001
            case None:
                assert (query.selection.x, query.selection.y) == (focus.x, focus.y)


def test_regions_have_the_chosen_size_on_the_earth():
    settings = GenerateSettings(
        kind="uniform", objects=500, region=(1.0, 1.0), circles=0.5, queries={QueryType.SRQ: 200}
    )
    regions = [query.predicate.region for query, _ in asked(settings)]
    boxes, circles = ([r for r in regions if isinstance(r, kind)] for kind in (Box, Circle))

    assert {round((box.east - box.west) % 360.0, 3) for box in boxes} == {36.0}
    assert any(box.west > box.east for box in boxes)
    assert max(round(box.north - box.south, 3) for box in boxes) == 18.0
    for circle in circles:
        assert (1 - np.cos(circle.radius / EARTH_RADIUS_M)) / 2 == pytest.approx(0.01, rel=1e-6)
    assert len(boxes) > 50
    assert len(circles) > 50


def test_polygons_are_around_objects_with_holes_in_every_other_one():
    settings = GenerateSettings(
        kind="uniform", objects=500, region=(1.0, 1.0), circles=0.3, queries={QueryType.SRQ: 200}
    )
    before, after = (
        {query.id: query.predicate.region for query, _ in asked(each)}
        for each in (settings, replace(settings, polygons=0.5))
    )
    polygons = [region for region in after.values() if isinstance(region, Polygon)]
    assert 60 < len(polygons) < 120
    assert 0.3 < np.mean([len(each.rings) == 3 for each in polygons]) < 0.7
    assert any(west > east for west, _, east, _ in (each.box for each in polygons))
    for name, region in before.items():
        assert region == after[name] or isinstance(after[name], Polygon), "what is no polygon stays what it is"


def test_some_polygons_have_margins_and_every_other_one_of_them_is_a_line():
    settings = GenerateSettings(
        kind="uniform", objects=500, region=(1.0, 1.0), polygons=1.0, queries={QueryType.SRQ: 200}
    )
    plain, some = (
        [query.predicate.region for query, _ in asked(each)] for each in (settings, replace(settings, margins=0.5))
    )
    polygons = [region for region in some if isinstance(region, Polygon)]
    wide = [region for region in polygons if region.within]
    assert 0.3 < len(wide) / len(polygons) < 0.7
    assert 0.3 < np.mean([region.is_of_lines for region in wide]) < 0.7
    assert max(region.within for region in wide) < 111_195 * 9
    assert all(region in plain for region in polygons if not region.within)


def test_sizes_are_mixed_over_their_logarithm():
    settings = GenerateSettings(
        kind="uniform", space=PLANE, objects=500, region=(0.0001, 1.0), circles=1.0, queries={QueryType.CRQ: 4_000}
    )

    percent = np.array([np.pi * query.predicate.region.radius**2 for query, _ in asked(settings)])

    counts, _ = np.histogram(np.log10(percent), bins=4, range=(-4, 0))
    assert counts.min() > 900


def test_lifetimes_are_the_chosen_ones():
    settings = GenerateSettings(
        objects=1_001,
        rate=1.0,
        start=0,
        queries=dict.fromkeys(QueryType, 40),
        duration=5,
        window=6,
        step=7,
        k=8,
        asked=(0.25, 0.5),
        registered=(0.0, 0.0),
    )
    queries = [query for query, _ in asked(settings)]

    assert {query.lifetime.duration for query in queries} == {5}
    assert {query.t for query in queries if query.lifetime.continuous} == {0}
    times = [query.t for query in queries if not query.lifetime.continuous]
    assert 250_000 <= min(times) < 270_000
    assert 480_000 < max(times) <= 500_000
    assert {(q.lifetime.window, q.lifetime.step) for q in queries if q.type == QueryType.CTQ} == {(6, 7)}
    assert sorted(str(q.lifetime.window) for q in queries if q.type == QueryType.CKQ) == ["6"] * 20 + ["None"] * 20
    assert {query.k for query in queries} == {0, 8}


def test_queries_without_an_end_and_with_alternatives():
    settings = GenerateSettings(
        objects=1_000, queries=dict.fromkeys(QueryType, 20), keywords=(3, 3), endless=True, alternatives=True
    )
    queries = [query for query, _ in asked(settings)]

    assert {query.lifetime.duration > TIME_LIMIT for query in queries if query.type in ("CRQ", "CKQ")} == {True}
    assert {query.lifetime.duration for query in queries if query.type == "CTQ"} == {settings.step * MOST_STEPS}
    texts = [query.predicate for query in queries if query.type in ("SRQ", "SKQ", "CRQ", "CKQ")]
    assert {(each.keywords, len(each.any)) for each in texts} == {((), 3)}
    assert all(parse_query(query.to_record(), settings.space) == query for query in queries)


def test_ranked_queries_are_about_words_of_their_objects_and_others_stay_the_same():
    settings = GenerateSettings(objects=2_000, rate=10.0, queries={"SBQ": 40, "CRQ": 20}, region=(0.1, 0.1), k=3)
    batch, queries = generated(settings), query_batch(settings)
    ranked = [queries[i] for i in range(len(queries)) if queries[i].type == "SBQ"]
    words = {(batch.x[i], batch.y[i]): set(batch[i].terms) for i in range(len(batch))}

    assert len(ranked) == 40
    for query in ranked:
        by = query.selection.ranking
        assert set(by.words) <= words[query.selection.x, query.selection.y] | {"w0"}
        assert (query.predicate.keywords, query.k, by.half_life) == ((), 3, settings.duration // 4)
        assert query.predicate.region.radius == by.reach
        assert parse_query(query.to_record(), settings.space, ANY_WORDS) == query
    found, _ = answers([batch[i] for i in range(len(batch))], ranked, settings.space)
    assert sum(len(row["objects"]) for row in found) > 40
    assert [queries[i].type for i in range(len(queries))].count("CRQ") == 20


PROPERTIES = Properties.parse(["country:keyword", "priority:number", "seen:time", "open:boolean"])
KEPT = ("text", "priority")
RULE = TermRule(ranking=True, properties=PROPERTIES, fields=KEPT)
DECLARED = GenerateSettings(
    objects=2_000,
    rate=10.0,
    properties=PROPERTIES,
    fields=KEPT,
    where=0.5,
    queries=dict.fromkeys(TYPES, 40),
    region=(0.1, 0.1),
)


def test_lines_say_the_properties_conditions_and_fields_of_the_columns():
    batch, queries = generated(DECLARED), query_batch(DECLARED)

    records = [json.loads(line) for line in bytes(object_lines(batch, WGS84)).splitlines()]
    assert [parse_object(record, WGS84, replace(RULE, fields=())) for record in records] == list(
        map(batch.__getitem__, range(2_000))
    )
    asked = [json.loads(line) for line in bytes(query_lines(queries)).splitlines()]
    assert [parse_query(record, WGS84, RULE) for record in asked] == list(map(queries.__getitem__, range(len(queries))))

    shares = {name: np.mean([record.get(name) is not None for record in records]) for name in PROPERTIES.names}
    assert all(0.87 < share < 0.93 for share in shares.values())
    assert {record["priority"] for record in records if "priority" in record} == {1, 2, 3, 4, 5}
    assert {record.get("open") for record in records} == {True, False, None}
    assert all(0 <= record["t"] - record["seen"] < 86_400_000 for record in records if "seen" in record)
    common = Counter(record.get("country") for record in records)
    assert common["country0"] > 3 * common["country9"] > 0


def test_objects_are_the_same_with_properties_and_without():
    plain, declared = generated(replace(DECLARED, properties=NO_PROPERTIES, where=0.0, fields=())), generated(DECLARED)
    assert plain.properties.columns == {}
    assert [plain[i] for i in range(2_000)] == [replace(declared[i], properties=()) for i in range(2_000)]


def test_conditions_hold_for_the_objects_that_queries_are_centred_on():
    conditional, fields = Counter(), Counter()
    operators = set()
    for query, focus in asked(DECLARED):
        where = query.predicate.where
        conditional[query.type] += where is not None
        fields[query.fields] += 1
        operators |= {test.op for test in (where.parts if isinstance(where, Both) else [where] if where else [])}
        assert where is None or satisfies(cql2_of(where), dict(focus.properties))
    assert all(
        10 < conditional[kind.type] < 30 if "where" in kind.fields else conditional[kind.type] == 0 for kind in KINDS
    )
    assert operators >= {"in", "like", "<=", ">="}
    assert set(fields) == {None, (), ("text",), ("priority",)}


def test_the_same_seed_gives_the_same_properties_and_another_does_not():
    one, again, other = (query_batch(replace(DECLARED, seed=seed)) for seed in (1, 1, 2))
    assert bytes(query_lines(one)) == bytes(query_lines(again)) != bytes(query_lines(other))
    one, again, other = (generated(replace(DECLARED, seed=seed)).properties[7] for seed in (1, 1, 2))
    assert one == again != other


def test_queries_with_conditions_have_answers():
    batch, queries = generated(DECLARED), query_batch(replace(DECLARED, where=1.0, keywords=(0, 1)))
    found, refused = answers([batch[i] for i in range(len(batch))], [queries[i] for i in range(len(queries))], WGS84)
    assert refused == []
    answered = {row["query"] for row in found if row.get("object") or row.get("objects") or row.get("terms")}
    for kind in TYPES:
        assert sum(name.startswith(kind.lower()) for name in answered) >= 10


def test_most_queries_have_answers():
    settings = GenerateSettings(
        objects=3_000, rate=10.0, queries=dict.fromkeys(QueryType, 30), keywords=(1, 1), region=(0.1, 0.1)
    )
    batch, queries = generated(settings), query_batch(settings)

    found, refused = answers(
        [batch[i] for i in range(len(batch))], [queries[i] for i in range(len(queries))], settings.space
    )

    assert refused == []
    answered = {row["query"] for row in found if row.get("object") or row.get("objects") or row.get("terms")}
    for kind in QueryType:
        assert sum(name.startswith(kind.lower()) for name in answered) >= 10


# ------------------------------------------------------------------------------------------------------------ settings


@pytest.mark.parametrize(
    ("setting", "values"),
    [
        ("kind", {"kind": "weather"}),
        ("space", {"space": PLANE}),
        ("objects", {"objects": -1}),
        ("seed", {"seed": -1}),
        ("rate", {"rate": 0.0}),
        ("rate", {"rate": float("nan")}),
        ("sigma", {"sigma": 0.0}),
        ("terms", {"terms": 0}),
        ("vocabulary", {"kind": "uniform", "vocabulary": 15}),
        ("vocabulary", {"vocabulary": 999}),
        ("zipf", {"zipf": -0.5}),
        ("queries", {"queries": {QueryType.SRQ: -1}}),
        ("queries", {"queries": {QueryType.SRQ: 1}, "objects": 0}),
        ("region", {"region": (0.0, 1.0)}),
        ("region", {"region": (2.0, 1.0)}),
        ("region", {"region": (1.0, 101.0)}),
        ("circles", {"circles": 1.5}),
        ("polygons", {"polygons": -0.5}),
        ("margins", {"margins": 1.5}),
        ("keywords", {"keywords": (3, 1)}),
        ("where", {"where": 0.5}),
        ("where", {"where": 1.5, "properties": Properties.parse(["a:number"])}),
        ("fields", {"fields": ("priority",)}),
        ("k", {"k": 0}),
        ("duration", {"duration": -1}),
        ("window", {"window": -1}),
        ("step", {"step": 0}),
        ("step", {"step": 1, "duration": 10_000_001}),
        ("asked", {"asked": (0.0, 1.1)}),
        ("registered", {"registered": (0.6, 0.5)}),
    ],
)
def test_settings_that_make_no_sense_are_refused(setting, values):
    with pytest.raises(SettingError, match=f"^{setting}: "):
        GenerateSettings(**values)


@pytest.mark.parametrize(
    ("space", "decimals"), [(WGS84, 6), (Space.planar(0, 0, 1, 1), 8), (Space.planar(0, 0, 1e9, 1), 0)]
)
def test_coordinates_have_a_sensible_number_of_digits(space, decimals):
    assert GenerateSettings(kind="uniform", space=space).decimals == decimals


# --------------------------------------------------------------------------------------------------------------- events


@pytest.fixture(scope="module")
def eventful():
    """Three cycles of events, the posts that have the word of each, and their phase."""
    settings = GenerateSettings(objects=60_000, events=3)
    batch = generated(settings)
    said = [set(batch.terms[i]) for i in range(len(batch))]
    about = {event.word: np.array([event.word in each for each in said]) for event in EVENTS}
    return batch, about, (batch.t - settings.start) / 20_000 % 1


def test_events_take_the_place_of_posts_and_change_no_time():
    plain, eventful = (generated(GenerateSettings(objects=3_000, events=events)) for events in (0, 2))

    assert plain.ids == eventful.ids
    assert (plain.t == eventful.t).all()
    same = (plain.x == eventful.x) & (plain.y == eventful.y)
    assert 0.6 < same.mean() < 0.95


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.word)
def test_an_event_grows_and_falls_off_in_each_cycle(eventful, event):
    _, about, phase = eventful
    mine = about[event.word]

    gone = (phase - event.begins) / (event.ends - event.begins)
    assert not mine[(gone < 0) | (gone > 1)].any()
    high = (gone >= event.rises) & (gone < event.rises + 0.04)
    assert mine[high].mean() == pytest.approx(event.share * 0.98, abs=0.05)
    assert mine[(gone > 0.95) & (gone < 1)].mean() < 0.3 * mine[high].mean()
    for cycle in range(3):
        assert mine[cycle * 20_000 : (cycle + 1) * 20_000].mean() == pytest.approx(mine.mean(), rel=0.15)


def test_the_flood_spreads_along_the_coast(eventful):
    batch, about, phase = eventful
    event, mine = EVENTS[0], about["flood"]
    gone = (phase - event.begins) / (event.ends - event.begins)
    coast = np.array(event.path)

    reached = [np.quantile(batch.x[mine & (np.abs(gone - at) < 0.05)], 0.95) for at in (0.1, 0.3, 0.5)]
    assert reached == sorted(reached)
    assert reached[0] < 5.0
    assert reached[2] > 8.0
    points = np.column_stack([batch.x[mine], batch.y[mine]])
    places = np.linspace(0, len(coast) - 1, 500)
    fine = np.column_stack([np.interp(places, range(len(coast)), axis) for axis in coast.T])
    assert np.min(np.abs(points[:, None] - fine[None]).sum(axis=2), axis=1).max() < 2.0


def test_a_post_about_an_event_is_one_of_its_sentences(eventful):
    batch, about, _ = eventful
    for event in EVENTS:
        says = [re.sub(r"\{\w+\}", r"\\w+", saying) for saying in event.says]
        posts = {" ".join(batch.terms[i]) for i in np.flatnonzero(about[event.word])[:500]}
        used = {saying for post in posts for saying in says if re.fullmatch(saying, post)}

        assert all(any(re.fullmatch(saying, post) for saying in says) for post in posts)
        assert used == set(says)
        assert all(event.word in saying.split() for saying in event.says)


def test_the_same_seed_gives_the_same_events_and_another_does_not():
    one, again, other = (generated(GenerateSettings(objects=3_000, events=2, seed=seed)) for seed in (1, 1, 2))

    assert (one.x == again.x).all()
    assert (one.x != other.x).any()
