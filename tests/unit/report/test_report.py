import json
import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.index.statistics import Statistics
from spatialstream.model.geometry import EARTH_RADIUS_M
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import Everything, Lifetime, Predicate, Query, QueryBatch
from spatialstream.model.regions import Box, Circle, Regions, parse_region
from spatialstream.model.space import WGS84, Space
from spatialstream.report import LeafTable, statistics_svg, statistics_text, tree_svg, tree_text, write_page
from spatialstream.report.land import land_rings
from spatialstream.report.page import script_json
from spatialstream.report.payload import MOST_ITEMS, MOST_PLACES, MOST_ROWS, payload, sentence
from spatialstream.report.shapes import outline
from spatialstream.web import FOLDER

DAY = 86_400_000
PLANE = Space.planar(0, 0, 100, 50)

# ------------------------------------------------------------------------------------------------------------- outlines


def inside(rings, x, y):
    """The even-odd rule."""
    crossings = 0
    for ring in rings:
        for (ax, ay), (bx, by) in zip(ring, ring[1:] + ring[:1], strict=True):
            if (ay > y) != (by > y) and x < ax + (bx - ax) * (y - ay) / (by - ay):
                crossings += 1
    return crossings % 2 == 1


def test_box_across_the_antimeridian_becomes_two_rings():
    rings = outline(WGS84, Box(170, -20, -160, 10))

    assert [(min(x for x, _ in ring), max(x for x, _ in ring)) for ring in rings] == [(170, 180), (-180, -160)]


def test_circle_across_the_antimeridian_is_cut_there():
    rings = outline(WGS84, Circle(179.5, 10, 200_000))

    assert len(rings) == 2
    assert all(any(abs(x) == 180 for x, _ in ring) for ring in rings)
    assert inside(rings, 179, 10)
    assert inside(rings, -179.5, 10)
    assert not inside(rings, 0, 10)


@pytest.mark.parametrize("angle", [10, 150])
@pytest.mark.parametrize("pole", [90, -90])
def test_circle_around_a_pole_is_a_band_of_the_map(pole, angle):
    rings = outline(WGS84, Circle(30, pole, math.radians(angle) * EARTH_RADIUS_M))

    assert len(rings) == 1
    assert {round(y / pole * 90, 6) for _, y in rings[0]} == {90 - angle, 90}
    assert {-180, 180} <= {x for x, _ in rings[0]}


centres = st.tuples(st.floats(-180, 180), st.floats(-90, 90))


@given(centres, st.floats(0.02, 3.1), st.lists(centres, min_size=20, max_size=20))
def test_outline_of_a_circle_encloses_what_the_circle_contains(centre, angle, points):
    circle = Circle(*centre, angle * EARTH_RADIUS_M)
    rings = outline(WGS84, circle)
    region = Regions.of([circle])

    assert all(-180 <= x <= 180 and -90 <= y <= 90 for ring in rings for x, y in ring)
    for x, y in points:
        gap = abs(WGS84.distance(*centre, x, y) - circle.radius) / EARTH_RADIUS_M
        # The outline is a polygon on the map: near its border, and near poles, it may differ from the circle.
        if gap > 0.03 and abs(y) < 85 and abs(x) < 179.9:
            assert inside(rings, x, y) == region.contain(WGS84, 0, x, y)


def test_outline_of_a_polygon_is_its_rings_cut_at_the_antimeridian():
    hole = [[179, 0], [181, 0], [181, 2], [179, 2], [179, 0]]
    ring = [[170, -5], [190, -5], [190, 5], [170, 5], [170, -5]]
    region = parse_region({"polygon": {"type": "Polygon", "coordinates": [ring, hole]}}, WGS84)
    rings = outline(WGS84, region)
    assert sorted(max(abs(x) for x, _ in each) for each in rings) == [180.0] * 4
    for x, y in ((171, 0), (-171, 4), (179.5, 1), (-179.5, 1), (-169, 0), (0, 0)):
        assert inside(rings, x, y) == Regions.of([region]).contain(WGS84, 0, x, y), (x, y)
    plane = parse_region({"polygon": {"type": "Polygon", "coordinates": [[[0, 0], [9, 0], [0, 9], [0, 0]]]}}, PLANE)
    assert outline(PLANE, plane) == [[(0, 0), (9, 0), (0, 9)]]
    query = Query("q", 0, Predicate(region), Everything(), Lifetime(5, True))
    assert sentence(query, 0, WGS84).startswith(
        "Each object in a polygon of 8 vertices, from 5°S 170°E to 5°N 170°W, as it arrives"
    )


def test_outline_of_a_margin_is_about_that_of_what_it_contains():
    line = {"type": "LineString", "coordinates": [[10, 50], [20, 52]]}
    region = parse_region({"polygon": line, "within": 50_000}, WGS84)
    rings, columns = outline(WGS84, region), Regions.of([region])
    assert len(rings) == 1
    for x, y in ((10, 50), (15, 51.3), (15, 50.7), (15, 52), (9.5, 50), (21, 52), (9, 49)):
        assert inside(rings, x, y) == columns.contain(WGS84, 0, x, y), (x, y)
    query = Query("q", 0, Predicate(region), Everything(), Lifetime(5, True))
    assert sentence(query, 0, WGS84).startswith("Each object within 50 km of lines or points, from ")


def test_outline_of_a_planar_circle_has_its_radius():
    (ring,) = outline(PLANE, Circle(50, 20, 5))

    assert {round(math.hypot(x - 50, y - 20), 9) for x, y in ring} == {5}


def test_land_lies_on_the_map_and_nothing_crosses_it():
    rings = land_rings()

    assert all(-180 <= x <= 180 and -90 <= y <= 90 for ring in rings for x, y in ring)
    for ring in rings:
        for (ax, ay), (bx, by) in zip(ring, ring[1:] + ring[:1], strict=True):
            assert abs(ax - bx) < 30 or (ay == by == -90)
    for x, y in [(10, 50), (-100, 40), (135, -25), (0, -85), (178, 67)]:
        assert inside(rings, x, y)
    for x, y in [(-30, 30), (-150, 0), (170, -50)]:
        assert not inside(rings, x, y)
    assert "Natural Earth" in json.loads((FOLDER / "land.json").read_text())["source"]


# ------------------------------------------------------------------------------------------------------------- the tree


def table(rows):
    """Leaves from (box, textual, load, slot, objects)."""
    boxes, textual, load, slot, objects = zip(*rows, strict=True)
    return LeafTable(
        np.array(boxes, np.float64),
        np.array(textual, np.bool_),
        np.array(load, np.float64),
        np.array(slot, np.int32),
        np.array(objects, np.int64),
    )


SMALL = table(
    [
        ((0, 0, 50, 25), False, 1.0, 0, 10),
        ((50, 0, 100, 25), False, 2.0, 1, 20),
        ((0, 25, 50, 50), False, 1.0, 1, 5),
        *(((50, 25, 100, 50), True, 0.5, slot, 1) for slot in (0, 0, 1)),
        *(((x, y, x + 25, y + 12.5), True, 0.25, 0, 1) for x in (50, 75) for y in (25, 37.5)),
    ]
)


def grid(n, space, slots):
    """n x n equal cells."""
    west, south, east, north = space.bounds
    dx, dy = (east - west) / n, (north - south) / n
    return table(
        [
            (
                (west + i * dx, south + j * dy, west + (i + 1) * dx, south + (j + 1) * dy),
                False,
                i + j + 1.0,
                (i + j) % slots,
                i,
            )
            for i in range(n)
            for j in range(n)
        ]
    )


def parsed(svg):
    root = ET.fromstring(svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    return root


def tiles(root):
    """Rectangles of leaves, by leaf: (left, top, width, height)."""
    found = {}
    for rect in root.iter("{http://www.w3.org/2000/svg}rect"):
        title = rect.find("{http://www.w3.org/2000/svg}title")
        if title is not None and title.text.startswith("leaf "):
            place = tuple(float(rect.get(key)) for key in ("x", "y", "width", "height"))
            found.setdefault(int(title.text.split()[1]), []).append(place)
    return found


def overlap(a, b):
    wide = min(a[0] + a[2], b[0] + b[2]) - max(a[0], b[0])
    high = min(a[1] + a[3], b[1] + b[3]) - max(a[1], b[1])
    return wide > 0.2 and high > 0.2


def test_tree_text_lists_leaves_slots_and_imbalance():
    lines = tree_text(SMALL, PLANE).splitlines()

    assert lines[0].split() == ["leaf", "west", "south", "east", "north", "kind", "objects", "load", "slot"]
    assert lines[1].split() == ["0", "0.00", "0.00", "50.00", "25.00", "spatial", "10", "15.38", "%", "0"]
    assert lines[5].split()[5] == "textual"
    assert re.fullmatch(r"   0 +7 +16 +46\.15 % +█+", lines[13])
    assert lines[-1] == "10 leaves, 7 of them textual shares, on 2 slots; Lmax/Lmin = 1.17"


def test_slot_without_leaves_has_no_finite_ratio():
    idle = table([((0, 0, 100, 50), False, 1.0, 2, 1)])

    assert idle.slot_load.tolist() == [0, 0, 1]
    assert tree_text(idle, PLANE).endswith("Lmax/Lmin = ∞\n")
    assert "Lmax/Lmin ∞" in tree_svg(idle, PLANE)
    assert replace(SMALL, slots=4).slot_load.tolist() == [*SMALL.slot_load, 0, 0]


def test_tree_without_load_or_leaves_is_drawn():
    nothing = LeafTable(
        np.empty((0, 4)), np.empty(0, np.bool_), np.empty(0), np.empty(0, np.int32), np.empty(0, np.int64)
    )

    assert "0 leaves" in tree_text(nothing, PLANE)
    parsed(tree_svg(nothing, WGS84))
    parsed(tree_svg(table([((0, 0, 100, 50), False, 0.0, 0, 0)]), PLANE))


def test_every_leaf_has_a_tile_of_its_own():
    found = tiles(parsed(tree_svg(SMALL, PLANE)))

    assert found.keys() == set(range(len(SMALL)))
    places = [place for places in found.values() for place in places]
    assert len(places) == len(SMALL)
    assert not any(overlap(a, b) for i, a in enumerate(places) for b in places[:i])


def test_four_textual_shares_stand_two_by_two():
    shares = table([((0, 0, 100, 50), True, 1.0, slot, 1) for slot in range(4)])
    found = tiles(parsed(tree_svg(shares, PLANE)))

    assert len({place[0] for (place,) in found.values()}) == len({place[1] for (place,) in found.values()}) == 2


def test_leaves_too_small_for_a_label_are_drawn_again_in_an_inset():
    quarters = [(-180, -90, 0, 0), (0, -90, 180, 0), (0, 0, 180, 90)]
    rows = [(box, False, 1.0, 0, 1) for box in quarters]  # the fourth is divided into 16 x 16
    rows += [
        ((-180 + 11.25 * i, 5.625 * j, -168.75 + 11.25 * i, 5.625 * (j + 1)), False, 1.0, 1, 1)
        for i in range(16)
        for j in range(16)
    ]
    found = tiles(parsed(tree_svg(table(rows), WGS84, width=700)))

    assert len(found) == len(rows)
    assert all(len(found[leaf]) >= 2 for leaf in range(3, len(rows)))
    assert all(len(found[leaf]) == 1 for leaf in range(3))


@pytest.mark.parametrize(("n", "slots", "space"), [(8, 4, WGS84), (16, 16, PLANE), (16, 80, WGS84)])
def test_picture_is_xml_and_loads_nothing(n, slots, space):
    points = np.random.default_rng(1).uniform(space.bounds[:2], space.bounds[2:], (5000, 2))
    svg = tree_svg(grid(n, space, slots), space, points)

    assert tiles(parsed(svg)).keys() == set(range(n * n))
    assert set(re.findall(r"\w+://[^\s\"']+", svg)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"href|<script|<image|@import", svg)


def test_picture_refuses_a_width_without_room():
    with pytest.raises(ValueError, match="at least 480"):
        tree_svg(SMALL, PLANE, width=100)


# ------------------------------------------------------------------------------------------------------------- the page

EVIL = "</script><script>alert(1)</script> \"quotes\" 'single' & <b>  {{data}} ]]> \\"
QUERIES = [
    {"id": "box", "type": "SRQ", "t": 5 * DAY, "region": {"box": [170, -20, -160, 10]}, "duration": "5d"},
    {"id": "near", "type": "SKQ", "t": 5 * DAY, "at": [0, 0], "k": 2, "duration": "5d"},
    {"id": "top", "type": "STQ", "t": 5 * DAY, "region": {"circle": [0, 0, 1000]}, "k": 3, "duration": "5d"},
    {"id": EVIL, "type": "CRQ", "t": 0, "region": {"circle": [0, 90, 1e6]}, "keywords": ["Flood"], "duration": "9d"},
    {"id": "ckq", "type": "CKQ", "t": 0, "at": [0, 0], "k": 1, "window": "1d", "duration": "9d"},
    {"id": "ctq", "title": "Title", "type": "CTQ", "t": 0, "region": {"box": [-1, -1, 1, 1]}, "k": 2, "window": "1d"}
    | {"step": "1d", "duration": "9d"},
    {"id": "ckq", "type": "CANCEL", "t": 4 * DAY},
    {"id": "bad", "type": "SRQ"},
]
OBJECTS = [
    {"id": "a", "t": 1 * DAY, "lon": 0, "lat": 0, "text": EVIL},
    {"id": "b", "t": "1970-01-03T00:00:00Z", "lon": 175, "lat": 0, "terms": ["flood", "now"], "title": "Big flood"},
    {"id": "c", "t": 3 * DAY, "lon": 0.5, "lat": 89, "text": "flood"},
    {"id": "lost", "t": "yesterday", "lon": 0, "lat": 0, "text": ""},
]


def placed(o, **more):
    return {"id": o["id"], "t": DAY * (1 + "abc".index(o["id"])), "lon": o["lon"], "lat": o["lat"], **more}


A, B, C = OBJECTS[:3]
RESULTS = [
    {"query": "box", "type": "SRQ", "t": 5 * DAY, "objects": [placed(B)]},
    {"query": "near", "type": "SKQ", "t": 5 * DAY, "objects": [placed(A, distance_m=0.0), placed(C, distance_m=9e6)]},
    {"query": "top", "type": "STQ", "t": 5 * DAY, "terms": [{"term": EVIL, "count": 1}]},
    {"query": EVIL, "type": "CRQ", "t": 3 * DAY, "object": placed(C)},
    {"query": "ckq", "type": "CKQ", "t": 1 * DAY, "objects": [placed(A, distance_m=0.0)]},
    {"query": "ckq", "type": "CKQ", "t": 2 * DAY, "objects": []},
    {"query": "ctq", "type": "CTQ", "t": 1 * DAY, "terms": [{"term": "flood", "count": 1}]},
]


class Page(HTMLParser):
    """Elements with their attributes, and the text of each script."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.scripts, self.styles, self._open = [], [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._open = self.scripts if tag == "script" else self.styles
            self._open.append("")

    def handle_endtag(self, tag):
        if tag in ("script", "style"):
            self._open = None

    def handle_data(self, data):
        if self._open is not None:
            self._open[-1] += data


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "deeper" / "page.html"
    summary = {"objects": 3, "queries": 7, "rejected": 2, "seconds": 1.5}
    write_page(path, f"Title {EVIL}", WGS84, QUERIES, OBJECTS, iter(RESULTS), grid(4, WGS84, 2), summary)
    return path.read_text("utf-8")


@pytest.fixture(scope="module")
def data(page):
    return json.loads(Page(page).scripts[0])


def test_page_is_one_file_that_loads_nothing(page):
    read = Page(page)

    assert not [
        tag for tag, _ in read.elements if tag in ("img", "iframe", "object", "embed", "base", "audio", "video")
    ]
    for tag, attributes in read.elements:
        assert "src" not in attributes
        assert attributes.get("href", "data:,") == "data:,", tag
    policy = next(a["content"] for _, a in read.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")
    assert not re.search(r"@import|url\((?!#)", "".join(read.styles))
    assert not re.search(r"fetch\(|XMLHttpRequest|import\(|innerHTML|insertAdjacentHTML|eval\(", read.scripts[1])
    addresses = set(re.findall(r"https?://[^\s\"'<]+", page))
    assert addresses == {"http://www.w3.org/2000/svg"}  # the name of a vocabulary, not a place to load from


def test_texts_cannot_become_markup(page):
    read = Page(page)

    assert [a.get("type") for tag, a in read.elements if tag == "script"] == ["application/json", "module"]
    assert not [tag for tag, _ in read.elements if tag == "b"]
    assert "alert(1)</script>" not in page


def test_payload_holds_texts_unchanged(data):
    assert EVIL in data["places"]["label"]
    assert [query["id"] for query in data["queries"]] == ["box", "near", "top", EVIL, "ckq", "ctq"]
    assert data["queries"][2]["rows"] == [{"t": 5 * DAY, "terms": [[EVIL, 1]]}]


@given(st.text(st.characters(exclude_categories=[])))
def test_script_json_never_ends_the_script(text):
    written = script_json({"key": text})

    assert written.isascii()
    assert not set(written) & set("<>&")
    assert json.loads(written) == {"key": text}


def test_payload_relates_results_to_queries_and_places(data):
    queries = {query["id"]: query for query in data["queries"]}
    ids = data["places"]["id"]

    assert data["totals"] == {"SRQ": 1, "SKQ": 1, "STQ": 1, "CRQ": 1, "CKQ": 2, "CTQ": 1}
    assert data["objects"] == 3
    assert data["asked"] == 6
    assert [ids[i] for i in queries["box"]["rows"][0]["o"]] == ["b"]
    assert [ids[i] for i in queries["near"]["rows"][0]["o"]] == ["a", "c"]
    assert queries["near"]["rows"][0]["d"] == [0.0, 9e6]
    assert [row["o"] for row in queries["ckq"]["rows"]] == [[ids.index("a")], []]
    assert queries["ckq"]["span"] == [0, 4 * DAY]  # cancelled
    assert queries["top"]["span"] == [0, 5 * DAY]
    assert [ids[i] for i in queries["top"]["counted"]] == ["a"]
    assert len(queries["box"]["rings"]) == 2
    assert queries["ctq"]["title"] == "Title"
    assert data["places"]["label"][ids.index("b")] == "Big flood"
    assert data["places"]["t"] == [2 * DAY, 1 * DAY, 3 * DAY]


def test_payload_says_what_a_query_asks(data):
    says = {query["type"]: query["says"] for query in data["queries"]}

    assert says == {
        "SRQ": "Objects in the box from 20°S 170°E to 10°N 160°W, in the 5d up to 1970-01-06 00:00.",
        "SKQ": "The 2 objects nearest to 0°N 0°E, in the 5d up to 1970-01-06 00:00.",
        "STQ": "The 3 terms found in most objects within 1 km of 0°N 0°E, in the 5d up to 1970-01-06 00:00.",
        "CRQ": "Each object within 1000 km of 90°N 0°E with “flood”, as it arrives, "
        "from 1970-01-01 00:00 to 1970-01-10 00:00.",
        "CKQ": "The 1 objects of the last 1d nearest to 0°N 0°E, at each change, "
        "from 1970-01-01 00:00 to 1970-01-05 00:00.",
        "CTQ": "The 2 terms found in most objects of the last 1d in the box from 1°S 1°W to 1°N 1°E, every 1d, "
        "from 1970-01-01 00:00 to 1970-01-10 00:00.",
    }


def test_histogram_counts_every_object(data):
    time = data["time"]

    assert sum(time["counts"]) == 3
    assert time["start"] <= time["first"] == DAY
    assert time["start"] + time["width"] * len(time["counts"]) > time["last"] == 5 * DAY


def test_page_keeps_a_part_of_many_and_counts_all():
    objects = [{"id": str(i), "t": i, "x": i % 100, "y": i % 50, "text": ""} for i in range(MOST_PLACES + 3_000)]
    queries = [{"id": "q", "type": "CRQ", "t": 0, "region": {"box": [0, 0, 100, 50]}, "duration": 10_000}]
    queries += [{"id": "s", "type": "SRQ", "t": 9_000, "region": {"box": [0, 0, 100, 50]}, "duration": 10_000}]
    found = [{key: o[key] for key in ("id", "t", "x", "y")} for o in objects]
    results = [{"query": "q", "type": "CRQ", "t": o["t"], "object": o} for o in found[: MOST_ROWS + 500]]
    results.append({"query": "s", "type": "SRQ", "t": 9_000, "objects": found})
    value = payload(PLANE, queries, objects, results)
    snapshot, continuous = value["queries"]

    assert value["objects"] == sum(value["time"]["counts"]) == len(objects)
    assert continuous["total"] == MOST_ROWS + 500
    assert [row["t"] for row in continuous["rows"]] == list(range(500, MOST_ROWS + 500))
    assert snapshot["rows"][0]["n"] == len(objects)
    assert len(snapshot["rows"][0]["o"]) == MOST_ITEMS
    assert len(set(value["places"]["id"])) == len(value["places"]["id"]) < len(objects)


def test_id_that_is_used_again_gets_its_own_rows():
    region = {"region": {"box": [0, 0, 1, 1]}}
    queries = [{"id": "q", "type": "CRQ", "t": t, "duration": 10} | region for t in (0, 10)]
    row = {"query": "q", "type": "CRQ"}
    results = [row | {"t": t, "object": {"id": str(t), "t": t, "x": 0, "y": 0}} for t in (3, 12)]
    first, second = payload(PLANE, queries, [], results)["queries"]

    assert [row["t"] for row in first["rows"]] == [3]
    assert [row["t"] for row in second["rows"]] == [12]


def test_page_of_nothing_is_written(tmp_path):
    write_page(tmp_path / "page.html", "Nothing", PLANE, [], [], [])
    value = json.loads(Page((tmp_path / "page.html").read_text("utf-8")).scripts[0])

    assert value["queries"] == []
    assert value["land"] == []
    assert value["time"]["counts"] == [0]
    assert "tree" not in value


# ------------------------------------------------------------------------------------------------------------------- J


@pytest.mark.parametrize("space", [PLANE, WGS84])
def test_statistics_have_a_map_of_objects_and_one_of_each_type_of_query(space):
    found = ObjectBatch.of([SpatialObject(f"o{i}", 1_000 * i, i % 7, i % 5, ("a",)) for i in range(100)])
    continuous = Query("q", 0, Predicate(Box(1, 1, 2, 2)), Everything(), Lifetime(5_000, True))
    known = Statistics.of(space, found, QueryBatch.of([continuous] * 9), 100_000.0)

    names = re.findall('<tspan class="name">(.*?)</tspan>', statistics_svg(known))
    text = statistics_text(known)

    assert names == ["objects", "CRQ"]
    assert all(said in text for said in ("CRQ", "5 s", "100 objects, 1.0 a second", "do not differ by region"))
    assert "no queries" in statistics_text(Statistics.of(space, found, QueryBatch.of([]), 1.0))


@pytest.mark.parametrize(
    ("space", "west", "east"), [(PLANE, "3.12, 1.56", "9.38, 1.56"), (WGS84, "3.2°N 0.7°E", "3.5°N 7°E")]
)
def test_statistics_say_what_differs_by_region(space, west, east):
    """In the west queries stand for five minutes, and have one word; in the east six hours, and three."""

    def asked(number: int, x: float, words: str, duration: int) -> list[Query]:
        region = Box(x, 3, x + 1, 4)
        once = Query(f"s{number}", 0, Predicate(region, tuple(words)), Everything(), Lifetime(1_000))
        continuous = Query(f"c{number}", 0, Predicate(region), Everything(), Lifetime(duration, True))
        return [once, continuous]

    queries = [each for i in range(100) for each in asked(i, 1, "a", 300_000) + asked(i, 8, "abc", 21_600_000)]
    known = Statistics.of(space, ObjectBatch.of([]), QueryBatch.of(queries), 1.0)

    text, picture = statistics_text(known), statistics_svg(known)

    by_region = [re.split(r"  +", line) for line in text.splitlines() if line.startswith(("SRQ   key", "CRQ   dur"))]
    assert [row[:2] + row[3:] for row in by_region] == [
        ["SRQ", "keywords", "2.0", "1.0", west, "3.0", east],
        ["CRQ", "duration", "3 h", "5 min", west, "6 h", east],
    ]
    assert re.findall('<tspan class="name">(.*?)</tspan>', picture)[-2:] == [
        "SRQ: number of keywords",
        "CRQ: duration of queries",
    ]
    assert {"1.0", "3.0", "5 min", "6 h"} <= set(re.findall("<title>(.*?)</title>", picture))
