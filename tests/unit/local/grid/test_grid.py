from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.connectors.folder import Folder
from spatialstream.local.grid import building, keyword_grid, matching
from spatialstream.local.grid.keyword_grid import KeywordGrid
from spatialstream.local.grid.matching import BLOCK
from spatialstream.local.grid.probing import ProbeBatch
from spatialstream.local.keywords import KeywordTable, TermKeys
from spatialstream.local.range import crq
from spatialstream.model.arrays import pack_arrays, unpack_arrays
from spatialstream.model.errors import RecordError
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.polygons.geojson import parse_polygon
from spatialstream.model.polygons.polygon import Polygon
from spatialstream.model.progress import watched
from spatialstream.model.regions import Box, Circle, Region, Regions
from spatialstream.model.space import WGS84, Space
from spatialstream.model.terms import TermLists
from spatialstream.oracle.polygons import region_containment
from tests.unit.flooding import GOLDEN, colliding_words, longest_run, packed

PLANE = Space.planar(-2.0, 1.0, 3.0, 5.0)
WORDS = ["a", "b", "ab", "flood", "a rather long one", "a rather long two", "日本語", "ÿ"]


def in_region(space: Space, region: Region | None, x: float, y: float) -> bool:
    if region is None:
        return True
    if isinstance(region, Circle):
        return space.distance(region.x, region.y, x, y) <= region.radius
    if isinstance(region, Polygon):
        return region_containment(region.to_geojson(), space.geographic, region.within, space.distance)(x, y)
    if not region.south <= y <= region.north:
        return False
    if region.west <= region.east:
        return region.west <= x <= region.east
    return x >= region.west or x <= region.east


def brute_force(space, objects, queries):
    return [
        (o, q)
        for o, (x, y, terms) in enumerate(objects)
        for q, (region, keywords) in enumerate(queries)
        if set(keywords) <= set(terms) and in_region(space, region, x, y)
    ]


def batch(objects) -> ObjectBatch:
    return ObjectBatch(
        pa.array([f"o{i}" for i in range(len(objects))], pa.string()),
        np.zeros(len(objects), np.int64),
        np.array([x for x, _, _ in objects], np.float64),
        np.array([y for _, y, _ in objects], np.float64),
        TermLists.of([terms for _, _, terms in objects]),
    )


def build(space, queries, **options) -> KeywordGrid:
    return KeywordGrid.build(
        space, Regions.of([region for region, _ in queries]), TermLists.of([words for _, words in queries]), **options
    )


def pairs(index: KeywordGrid, objects) -> list[tuple[int, int]]:
    return pairs_of(index, batch(objects))


def pairs_of(index: KeywordGrid, objects: ObjectBatch) -> list[tuple[int, int]]:
    found = index.probe(ProbeBatch.of(index.space, objects))
    assert (found.objects.dtype, found.queries.dtype) == (np.int32, np.int32)
    return list(zip(found.objects.tolist(), found.queries.tolist(), strict=True))


@pytest.mark.parametrize("n", [1, 100, 400])
def test_candidates_of_queries_are_those_of_objects(n):
    queries, objects = many(PLANE, 200, 3)
    index, made = build(PLANE, queries), ProbeBatch.of(PLANE, batch(objects[:n]))
    found = index.probe(made)
    counts = np.sum([index.candidates(made, first) for first in range(0, n, BLOCK)], axis=0)
    assert counts.sum() == found.checked.sum()
    assert np.all(counts >= np.bincount(found.queries, minlength=len(counts)))


def coordinates(low: float, high: float):
    """Often the same few numbers: ties, borders of regions and of cells."""
    grid_lines = [low + (high - low) * i / 8 for i in range(9)]
    near = [low, high, low + 1e-9, high - 1e-9, 0.5 * (low + high) + 1e-10]
    return st.one_of(st.sampled_from(grid_lines + near), st.floats(low, high))


def points(space: Space):
    west, south, east, north = space.bounds
    return st.tuples(coordinates(west, east), coordinates(south, north))


def boxes(space: Space):
    def box(corners):
        (x1, y1), (x2, y2) = corners
        if not space.geographic:
            x1, x2 = min(x1, x2), max(x1, x2)
        return Box(x1, min(y1, y2), x2, max(y1, y2))

    free = st.tuples(points(space), points(space)).map(box)
    at_point = points(space).map(lambda p: Box(p[0], p[1], p[0], p[1]))
    return st.one_of(free, at_point)


def circles(space: Space):
    radii = st.sampled_from([0.0, 1.0, 1e4, 3e5, 5e6, 2.5e7]) if space.geographic else st.floats(0.0, 6.0)
    return st.builds(lambda p, radius: Circle(p[0], p[1], radius), points(space), radii)


def polygons(space: Space):
    """Triangles and quadrangles, some with longitudes beyond 180, some with a hole; some with a margin, and lines."""

    def read(given):
        corners, turned, inner, within, kind = given
        ring = [[x + 360.0 if turned and x < 0 else x, y] for x, y in corners]
        value = {"type": "Polygon", "coordinates": [[*ring, ring[0]]]}
        if inner:
            (ax, ay), (bx, by), (cx, cy) = ring[:3]
            hole = [
                [(2 * p + q + r) / 4 for p, q, r in zip(*each, strict=True)]
                for each in (
                    ((ax, ay), (bx, by), (cx, cy)),
                    ((bx, by), (ax, ay), (cx, cy)),
                    ((cx, cy), (ax, ay), (bx, by)),
                )
            ]
            value["coordinates"].append([*hole, hole[0]])
        if within and kind != "Polygon":
            value = {"type": kind, "coordinates": ring[:2] if kind == "LineString" else ring}
        try:
            return parse_polygon(value, space, within=within)
        except RecordError:
            return None

    corners = st.lists(points(space), min_size=3, max_size=4, unique=True)
    turned = st.booleans() if space.geographic else st.just(False)
    margins = st.sampled_from([0.0, 0.0, 1.0, 3e4, 4e5, 6e6] if space.geographic else [0.0, 0.0, 1e-9, 0.1, 1.0])
    kinds = st.sampled_from(["Polygon", "LineString", "MultiPoint"])
    drawn = st.tuples(corners, turned, st.booleans(), margins, kinds)
    return drawn.map(read).filter(lambda each: each is not None)


def word_sets(largest: int):
    return st.lists(st.sampled_from(WORDS), max_size=largest, unique=True)


def cases(space: Space):
    regions = st.one_of(st.none(), boxes(space), circles(space), polygons(space))
    queries = st.lists(st.tuples(regions, word_sets(5)), max_size=40)
    objects = st.lists(st.builds(lambda p, w: (p[0], p[1], w), points(space), word_sets(8)), max_size=25)
    return st.tuples(queries, objects)


@given(cases(WGS84))
def test_matches_on_the_globe_are_those_of_brute_force(case):
    queries, objects = case
    assert pairs(build(WGS84, queries), objects) == brute_force(WGS84, objects, queries)


@given(cases(PLANE))
def test_matches_in_a_plane_are_those_of_brute_force(case):
    queries, objects = case
    assert pairs(build(PLANE, queries), objects) == brute_force(PLANE, objects, queries)


@given(cases(WGS84), st.permutations(WORDS))
def test_the_estimated_frequencies_change_no_match(case, order):
    queries, objects = case
    index = build(WGS84, queries, frequency=lambda words: np.array([order.index(w.as_py()) for w in words], float))
    assert pairs(index, objects) == brute_force(WGS84, objects, queries)


def many(space: Space, n: int, seed: int):
    """Queries of all sizes and a few thousand objects on a lattice, so that borders are hit all the time."""
    rng = np.random.default_rng(seed)
    west, south, east, north = space.bounds
    width, height = east - west, north - south
    x, y = west + width * rng.integers(0, 65, n) / 64, south + height * rng.integers(0, 65, n) / 64
    extents = 2.0 ** -rng.integers(0, 12, n)
    queries = []
    for i in range(n):
        words = rng.choice(WORDS, rng.integers(0, 5), replace=False).tolist()
        if rng.random() < 0.3:
            reach = extents[i] * (1e7 if space.geographic else width)
            queries.append((Circle(x[i], y[i], reach), words))
            continue
        x2, y2 = x[i] + width * extents[i], y[i] + height * extents[i]
        if space.geographic:
            x2, y2 = x2 - 360.0 if x2 > 180.0 else x2, min(y2, 90.0)
        queries.append((Box(x[i], y[i], x2, y2), words))
    objects = [
        (west + width * a / 256, south + height * b / 256, rng.choice(WORDS, c, replace=False).tolist())
        for a, b, c in zip(rng.integers(0, 257, 400), rng.integers(0, 257, 400), rng.integers(0, 9, 400), strict=True)
    ]
    return queries, objects


@pytest.mark.parametrize("effort", [0, 1_000, 100_000])
def test_work_that_is_done_in_pieces_gives_the_same_and_tells_of_each(effort, monkeypatch):
    queries, objects = many(WGS84, 500, 7)
    index, made = build(WGS84, queries), ProbeBatch.of(WGS84, batch(objects))
    whole, told = index.probe(made), []
    monkeypatch.setattr(keyword_grid, "_EFFORT", effort)
    with watched(lambda: told.append(1)):
        pieces = index.probe(made)
    for name in ("starts", "queries", "checked"):
        assert getattr(pieces, name).tolist() == getattr(whole, name).tolist()
    assert (1 if effort else 2) <= len(told) <= -(-len(objects) // 128)
    most = len(whole.queries)
    assert index.probe_within(made, most) is not None
    assert index.probe_within(made, most - 1) is None


def test_work_is_broken_off_between_two_pieces(monkeypatch):
    queries, objects = many(WGS84, 500, 7)
    index, made, told = build(WGS84, queries), ProbeBatch.of(WGS84, batch(objects)), []

    def enough():
        told.append(1)
        if len(told) == 2:
            raise KeyError("given up")

    monkeypatch.setattr(keyword_grid, "_EFFORT", 0)
    with watched(enough), pytest.raises(KeyError, match="given up"):
        index.probe(made)
    assert len(told) == 2


@pytest.mark.parametrize("space", [WGS84, PLANE], ids=str)
def test_thousands_of_queries_of_all_sizes_match_as_in_brute_force(space):
    queries, objects = many(space, 1500, 1)
    expected = brute_force(space, objects, queries)
    assert len(expected) > 5_000
    assert pairs(build(space, queries), objects) == expected


def test_a_planar_box_may_reach_out_of_the_space():
    queries = [
        (Box(-1e300, -50.0, 1e300, 2.0), ["a"]),
        (Box(-9.0, -9.0, -8.0, -8.0), []),
        (Box(-9.0, 0.0, -2.0, 9.0), []),
    ]
    objects = [(-2.0, 1.0, ["a"]), (3.0, 5.0, ["a"]), (0.0, 2.0, ["a", "b"])]
    assert pairs(build(PLANE, queries), objects) == [(0, 0), (0, 2), (2, 0)]


def test_a_box_across_the_antimeridian_is_found_once_however_coarse_its_cells():
    around = Box(1.0, -80.0, -1.0, 80.0)  # all longitudes but a strip: both parts share cells
    narrow = Box(179.9999, 0.0, -179.9999, 0.0001)
    objects = [(-180.0, 0.0, []), (180.0, 0.0, []), (0.0, 0.0, []), (90.0, 10.0, [])]
    assert pairs(build(WGS84, [(around, []), (narrow, [])]), objects) == [(0, 0), (0, 1), (1, 0), (1, 1), (3, 0)]


def test_words_that_share_a_prefix_length_or_hash_bucket_stay_apart():
    words = [f"word-{i:06d}" for i in range(3000)] + [f"{i:x}" for i in range(3000)]
    queries = [(None, [word]) for word in words]
    objects = [
        (0.0, 2.0, [words[i], words[-i - 1], "unknown", "word-000000-", "word-00000"]) for i in range(0, 3000, 7)
    ]
    found = pairs(build(PLANE, queries), objects)
    assert found == [(o, q) for o, i in enumerate(range(0, 3000, 7)) for q in sorted({i, len(words) - i - 1})]


def test_equal_keys_of_different_words_are_told_apart_by_their_bytes():
    table, other = (KeywordTable.build(pa.array([word])) for word in ("longer than eight", "longer than EIGHT"))
    keys = TermKeys.of_vocabulary(pa.array(["longer than EIGHT", "longer than eight"]))
    forged = KeywordTable(table.slots, table.seed, other.offsets, other.data)
    assert table.translate(keys, np.array([7])).tolist() == [0, 7]
    assert forged.translate(keys, np.array([7])).tolist() == [0, 0]


def by_the_golden_ratio(letters):
    """Where words of up to 8 letters lie, if only their bytes decide."""
    key = packed(letters, "big")
    return (key ^ key >> np.uint64(32) ^ np.uint64(letters.shape[1])) * GOLDEN


def test_no_choice_of_words_fills_one_part_of_a_table():
    words = colliding_words(4000, 8, by_the_golden_ratio)
    long_words = [f"{word}{i % 7}" for i, word in enumerate(words)]
    for each in (words, long_words):
        table = KeywordTable.build(pa.array(each))
        assert longest_run(table.slots[:, 1] != 0) < 200
        assert table.translate(TermKeys.of_vocabulary(pa.array(each)), np.arange(4000)).tolist() == list(range(4000))


def test_no_choice_of_places_fills_one_part_of_the_directory():
    rng, space = np.random.default_rng(3), Space.planar(0.0, 0.0, 1.0, 1.0)
    column, row = rng.integers(0, 1 << 20, (2, 1 << 21)).astype(np.uint64)
    key = (np.uint64(20) << np.uint64(40) | column << np.uint64(20) | row) + np.uint64(1)
    chosen = (key ^ key >> np.uint64(29)) * GOLDEN >> np.uint64(55) == 0
    x, y = ((each[chosen][:4000] + 0.5) / 2.0**20 for each in (column, row))
    index = build(space, [(Box(*place, *place), ["a"]) for place in zip(x.tolist(), y.tolist(), strict=True)])
    assert len(np.flatnonzero(index.index.directory[:, 0])) == 4000
    assert longest_run(index.index.directory[:, 0] != 0) < 200


def test_no_choice_of_keywords_fills_one_part_of_a_cell():
    numbers = np.arange(1, 8193, dtype=np.uint64)
    together = numbers * GOLDEN >> np.uint64(60) == 0
    boxes = [Box(0.0, 2.0, 0.0, 2.0), Box(1.0, 3.0, 1.0, 3.0)]
    queries = [(boxes[int(each)], [f"w{i}"]) for i, each in enumerate(together)]
    index = build(PLANE, queries)
    cell = KeywordGrid.build(PLANE, Regions.of([boxes[1]]), TermLists.of([["w"]])).index.directory[:, 0].max()
    entry = int(index.index.directory[index.index.directory[:, 0] == cell, 1][0])
    size, base = 1 << (entry & 63), (entry >> 12) + (1 << (entry & 63) >> 3)
    used = index.index.slots[base : base + size] != 0
    assert used.sum() == together.sum() > 500
    assert longest_run(used) < 100
    assert pairs(index, [(1.0, 3.0, ["w0", "w1", f"w{int(np.flatnonzero(together)[-1])}"])]) == [
        (0, int(np.flatnonzero(together)[-1]))
    ]


def test_an_object_with_a_long_text_matches_queries_with_many_keywords():
    words = [f"w{i}" for i in range(500)]
    queries = [(None, words[i : i + 10]) for i in range(0, 500, 5)] + [(None, [*words[:9], "absent"])]
    assert pairs(build(PLANE, queries), [(0.0, 2.0, words)]) == [(0, q) for q in range(99)] + [(0, 99)]


def test_no_queries_and_no_objects():
    assert pairs(build(WGS84, []), [(0.0, 0.0, ["a"])]) == []
    assert pairs(build(WGS84, [(None, [])]), []) == []


def test_sliced_columns_are_taken_as_they_are():
    queries, objects = many(PLANE, 60, 2)
    whole = batch(objects)
    part = ObjectBatch.from_arrow(whole.to_arrow().slice(100, 150))
    index = build(PLANE, queries)
    assert pairs_of(index, part) == brute_force(PLANE, objects[100:250], queries)


def test_rarest_keyword_decides_how_many_candidates_are_seen():
    box = Box(0.0, 2.0, 0.1, 2.1)
    index = build(PLANE, [(box, ["common", "rare"])] * 100, frequency=lambda words: np.array([9.0, 1.0]))
    common = ProbeBatch.of(PLANE, batch([(0.05, 2.05, ["common"])] * 10))
    assert index.probe(common).checked.sum() == 0
    both = index.probe(ProbeBatch.of(PLANE, batch([(0.05, 2.05, ["common", "rare"])])))
    assert (both.checked.sum(), len(both.queries)) == (100, 100)


@pytest.mark.parametrize("space", [WGS84, PLANE], ids=str)
def test_each_object_is_told_what_it_takes_to_match_it_alone(space):
    queries, objects = many(space, 300, 6)
    index = build(space, queries)
    together = index.probe(ProbeBatch.of(space, batch(objects)))
    alone = [index.probe(ProbeBatch.of(space, batch([each]))) for each in objects[:100]]
    assert together.checked.dtype == np.int32
    assert together.checked[:100].tolist() == [each.checked.sum() for each in alone]
    assert (together.checked >= np.diff(together.starts)).all()
    assert together.checked.sum() > len(together.queries)


def test_a_list_of_postings_may_be_longer_than_what_is_compared_at_once():
    box = Box(0.0, 2.0, 0.1, 2.1)
    queries = [(box, ["a"])] * 3000 + [(box, ["a", "b"])] * 2000 + [(box, ["c"])] * 4097 + [(None, [])] * 10
    index = build(PLANE, queries)
    objects = [(0.05, 2.05, ["a"]), (0.05, 2.05, ["b", "a", "c"]), (0.05, 2.5, ["a"]), (0.1, 2.1, ["c"])] * 3
    assert pairs(index, objects) == brute_force(PLANE, objects, queries)


def test_a_circle_of_a_quarter_of_the_earth_is_covered():
    # near 90 degrees the arcsine that gives its width is steep
    circle, place = Circle(-88.98925708025125, 1e-06, 10007557.090709854), (1.0107421875, 60.0)
    assert in_region(WGS84, circle, *place)
    assert pairs(build(WGS84, [(circle, [])]), [(*place, [])]) == [(0, 0)]


def test_lifetimes_are_half_open_and_the_horizon_hides_the_expired():
    index = build(PLANE, [(None, [])] * 4)
    life = np.array([[0, 10], [5, 6], [5, 5], [-3, 5]])
    objects = batch([(0.0, 2.0, [])] * 3)
    objects.t[:] = [4, 5, 6]
    probe = ProbeBatch.of(PLANE, objects)
    found = index.probe(probe, life)
    assert list(zip(found.objects.tolist(), found.queries.tolist(), strict=True)) == [
        (0, 0),
        (0, 3),
        (1, 0),
        (1, 1),
        (2, 0),
    ]
    assert index.probe(probe, life, 6).queries.tolist() == [0, 0, 0]


@pytest.mark.parametrize("n", [0, 1, 300])
def test_a_grid_survives_its_file(tmp_path: Path, n: int):
    queries, objects = many(WGS84, n, 3)
    index = build(WGS84, queries)
    storage = Folder(tmp_path)
    storage.put("grid", *pack_arrays(*index.to_arrays()))
    mapped = KeywordGrid.from_arrays(WGS84, *unpack_arrays(storage.get("grid"), "grid"))
    assert len(mapped) == n
    assert pairs(mapped, objects) == pairs(index, objects)
    assert [mapped.keywords[i] for i in range(n)] == [index.keywords[i] for i in range(n)]


def test_building_twice_gives_equal_bytes():
    queries, _ = many(PLANE, 200, 4)
    (first, _), (second, _) = (build(PLANE, queries).to_arrays() for _ in range(2))
    assert all(first[name].tobytes() == second[name].tobytes() for name in first)


def test_every_kernel_has_a_single_signature():
    crq.prepare()
    for space in (WGS84, PLANE):
        queries, objects = many(space, 100, 5)
        pairs(build(space, queries, frequency=lambda words: np.arange(float(len(words)))), objects)
    called_from_python = [
        *(
            getattr(building, f"_{name}")
            for name in ("index_keywords", "natural_levels", "level_masks", "assign_cells")
        ),
        *(building._write_postings, building._group_by_keyword, matching.arrange, matching.match, matching.unpack),
    ]
    assert {each.__name__: len(each.signatures) for each in called_from_python} == {
        each.__name__: 1 for each in called_from_python
    }


def test_many_queries_of_few_polygons_know_their_objects_apart() -> None:
    rng = np.random.default_rng(5)
    triangles = [
        parse_polygon({"type": "Polygon", "coordinates": [[*ring, ring[0]]]}, PLANE)
        for ring in (
            [[-2.0, 1.0], [3.0, 1.0], [-2.0, 5.0]],
            [[3.0, 5.0], [3.0, 1.0], [-2.0, 5.0]],
            [[0, 2], [1, 2], [0, 3]],
        )
    ]
    queries = [(triangles[i % 3], [WORDS[i % 4]][: i % 5]) for i in range(300)]
    places = np.concatenate([rng.uniform((-2, 1), (3, 5), (300, 2)), np.array([[-2, 5], [3, 1], [0.5, 3.0], [0, 2]])])
    objects = [(float(x), float(y), [WORDS[i] for i in rng.choice(4, 2, replace=False)]) for x, y in places]
    assert sorted(pairs(build(PLANE, queries), objects)) == brute_force(PLANE, objects, queries)
