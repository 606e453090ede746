"""Maps for notebooks: what they show is there, on the right side of the antimeridian, and nothing of it is markup."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.client.answer import Answer
from spatialstream.model.space import WGS84, Space
from spatialstream.report import Map, answer_html
from spatialstream.report.map import MOST

PLANE = Space.planar(0.0, 0.0, 8.0, 8.0)
SVG = "{http://www.w3.org/2000/svg}"
SRQ = {"type": "SRQ", "region": {"box": [170, -30, -170, -10]}, "duration": "1h"}
TAGS = {"figure", "figcaption", "svg", "title", "path", "circle", "p", "table", "caption", "tr", "th", "td", "div"}
ATTRIBUTES = {"style", "xmlns", "viewbox", "role", "aria-label", "width", "d", "cx", "cy", "r", "scope"} | {
    "fill", "fill-opacity", "fill-rule", "stroke", "stroke-width"
}  # fmt: skip


def at(lon: float, lat: float, **more: Any) -> dict[str, Any]:
    return {"id": "a", "t": 0, "lon": lon, "lat": lat} | more


def dots(drawn: Map) -> list[tuple[float, float]]:
    """Where objects are on the picture, in shares of its width and height."""
    root = ET.fromstring(drawn.svg())
    _, _, width, height = (float(each) for each in root.get("viewBox", "").split())
    return [
        (float(each.get("cx", "")) / width, float(each.get("cy", "")) / height) for each in root.iter(f"{SVG}circle")
    ]


def path(drawn: Map, number: int) -> str:
    return [each.get("d", "") for each in ET.fromstring(drawn.svg()).iter(f"{SVG}path")][number]


def test_objects_on_both_sides_of_the_antimeridian_are_drawn_together() -> None:
    (ax, ay), (bx, by) = dots(Map([at(179, -20), at(-179, -22)]))
    assert 0.05 < ax < bx < 0.95
    assert 0.05 < ay < by < 0.95
    region = Map([at(-175, -20)], [SRQ])
    assert dots(region)[0][0] == pytest.approx(0.67, abs=0.01)
    assert len(path(region, 1).split("M")) == 3, "the region is cut in two where the world is"
    assert len(path(region, 2).split("M")) == 7, "of eight sides two are where it was cut"


def test_the_world_is_shown_as_people_know_it() -> None:
    (west, _), (middle, _), (east, _) = dots(Map([at(-150, 0), at(0, 0), at(150, 0)]))
    assert west < middle < east
    assert "0 0 720 360" in Map().svg()
    assert len(path(Map(), 0)) > 10_000, "land"


@given(st.floats(-180, 180), st.floats(-90, 90), st.floats(0, 2e7), st.booleans())
def test_every_place_is_within_the_picture(x: float, y: float, radius: float, near: bool) -> None:
    asked = {"type": "SKQ", "at": [x, y], "k": 1} if near else {"type": "SRQ", "region": {"circle": [x, y, radius]}}
    for px, py in dots(Map([at(x, y)], [asked | {"duration": 1}])):
        assert -0.001 <= px <= 1.001
        assert -0.001 <= py <= 1.001


def test_a_plane_has_no_land_and_no_turns() -> None:
    drawn = Map([{"id": "a", "t": 0, "x": 1, "y": 7}, {"id": "b", "t": 0, "x": 7, "y": 1}], [], PLANE)
    (ax, ay), (bx, by) = dots(drawn)
    assert ax < bx
    assert ay < by
    assert "<path" not in drawn.svg()


def test_what_has_no_place_is_left_out_and_of_many_the_last_are_drawn() -> None:
    assert len(dots(Map([at(1, 2), {"id": "b"}, at(1, 99), at(1, float("nan")), at(3, 4)]))) == 2
    many = Map([at(1, 2)] * (MOST + 5))
    assert len(dots(many)) == MOST
    assert "the last 2,000 of 2,005 objects" in many._repr_html_()


class Markup(HTMLParser):
    """Collects what is an element, or an attribute of one."""

    def __init__(self) -> None:
        super().__init__()
        self.tags, self.attributes, self.values = set[str](), set[str](), list[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.values += [value or "" for _, value in attrs]


EVIL = st.text(st.characters(codec=None, exclude_categories=()), max_size=30) | st.sampled_from(
    ["</title><script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "]]>", "<!--", "\ud800", "\0"]
)


@given(EVIL, EVIL)
def test_no_text_is_markup(name: str, word: str) -> None:
    query = {"type": "STQ", "region": {"box": [0, 0, 9, 9]}, "keywords": [word], "k": 3, "duration": 1}
    shown = [
        Map([at(1, 2, id=name, text=word, title=name)], [], WGS84, word)._repr_html_(),
        Answer({"t": 5, "terms": [{"term": word, "count": 3}]}, query)._repr_html_(),
        Answer({"t": 5, "error": word}, SRQ)._repr_html_(),
        answer_html([{"t": 5, "object": at(1, 2, id=name)}], {**SRQ, "type": "CRQ", "keywords": [word]}, WGS84),
    ]
    for each in shown:
        each.encode()
        read = Markup()
        read.feed(each)
        read.close()
        assert read.tags <= TAGS
        assert read.attributes <= ATTRIBUTES
        for svg in re.findall(r"<svg.*?</svg>", each):
            ET.fromstring(svg)


def test_nothing_is_fetched() -> None:
    drawn = answer_html([{"t": 5, "objects": [at(1, 2)]}], SRQ, WGS84)
    assert re.findall(r"https?://[^\"]*|url\(|src=|href", drawn) == ["http://www.w3.org/2000/svg"]


def test_an_answer_is_the_row_and_says_what_was_asked() -> None:
    row = {"query": "q", "type": "SKQ", "t": 0, "objects": [at(13.4, 52.5, distance_m=1_234.0)]}
    answer = Answer(row, {"type": "SKQ", "at": [13, 52], "k": 1, "duration": "1h"})
    assert answer == row
    shown = answer._repr_html_()
    assert "The 1 objects nearest to 52°N 13°E" in shown
    assert "1.2 km" in shown
    assert "1 object, as of 1970-01-01 00:00" in shown
    terms = Answer({"t": 0, "terms": [{"term": "sun", "count": 4}]}, {**SRQ, "type": "STQ", "k": 1})._repr_html_()
    assert '<th scope="row"' in terms
    assert "1 terms" in terms
