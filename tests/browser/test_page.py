"""The page of a run in a browser: one file that is opened from the disk."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, Request, expect

from spatialstream.model.space import WGS84, Space
from spatialstream.report import LeafTable, write_page
from tests.browser.test_console import AXE, PICTURES

DAY = 86_400_000
PLACES = {"a": (1.0, 51.0), "b": (2.5, 52.0), "c": (179.0, -17.0), "d": (-179.0, -18.0)}
OBJECTS = [
    {"id": name, "t": (1 + i) * DAY, "lon": x, "lat": y, "text": f"text of {name}", "title": f"Object {name}"}
    for i, (name, (x, y)) in enumerate(PLACES.items())
]
QUERIES: list[dict[str, Any]] = [
    {"id": "box", "title": "In the box", "type": "CRQ", "t": 0, "region": {"box": [0, 50, 3, 53]}, "duration": "9d"},
    {"id": "far", "title": "Far away", "type": "SRQ", "t": 9 * DAY, "region": {"box": [178, -19, -178, -16]}}
    | {"duration": "9d"},
    {"id": "near", "title": "The nearest", "type": "CKQ", "t": 0, "at": [1, 51], "k": 1, "window": "3d"}
    | {"duration": "9d"},
    {"id": "words", "title": "The words", "type": "CTQ", "t": 0, "region": {"box": [0, 50, 3, 53]}, "k": 2}
    | {"window": "1d", "step": "1d", "duration": "9d"},
]


def found(i: int, **more: float) -> dict[str, Any]:
    return {key: OBJECTS[i][key] for key in ("id", "t", "lon", "lat")} | more


RESULTS: list[dict[str, Any]] = [
    {"query": "box", "type": "CRQ", "t": DAY, "object": found(0)},
    {"query": "box", "type": "CRQ", "t": 2 * DAY, "object": found(1)},
    {"query": "far", "type": "SRQ", "t": 9 * DAY, "objects": [found(2), found(3)]},
    {"query": "near", "type": "CKQ", "t": DAY, "objects": [found(0, distance_m=0.0)]},
    {"query": "near", "type": "CKQ", "t": 4 * DAY, "objects": [found(1, distance_m=152_000.0)]},
    {"query": "words", "type": "CTQ", "t": DAY, "terms": [{"term": "text", "count": 1}]},
    {"query": "words", "type": "CTQ", "t": 2 * DAY, "terms": [{"term": "text", "count": 3}, {"term": "b", "count": 1}]},
]
LEAVES = LeafTable(
    np.array([(-180, -90, 0, 90), (0, -90, 180, 90)], np.float64),
    np.zeros(2, np.bool_),
    np.ones(2),
    np.arange(2, dtype=np.int32),
    np.ones(2, np.int64),
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "index.html"
    write_page(path, "A run", WGS84, QUERIES, OBJECTS, RESULTS, LEAVES)
    return path


@pytest.fixture
def opened(browser: Browser, file: Path) -> Iterator[Callable[..., Page]]:
    """Opens the page; that it has failed, or has asked for anything, is an error."""
    problems, contexts = list[str](), []

    def requested(request: Request) -> None:
        if not request.url.startswith(("file:", "data:")):
            problems.append(request.url)

    def open_page(path: Path = file, **how: Any) -> Page:
        still = {"viewport": {"width": 1280, "height": 800}, "reduced_motion": "reduce"}  # the map is there at once
        contexts.append(browser.new_context(**(still | how)))
        page = contexts[-1].new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("request", requested)
        page.goto(path.as_uri())
        return page

    yield open_page
    for each in contexts:
        each.close()
    assert problems == []


def colour(page: Page, x: float, y: float) -> str:
    """Of the pixel of the map that is at a place, when what has been asked for is drawn."""
    page.evaluate("() => new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn)))")
    image = page.locator("#map canvas").evaluate(
        """(canvas, [x, y]) => {
          const found = canvas.getContext("2d").getImageData(canvas.width * x, canvas.height * y, 1, 1).data;
          return found.join();
        }""",
        [x, y],
    )
    return str(image)


def pick(page: Page, name: str) -> None:
    page.get_by_role("button", name=re.compile(name)).click()


@pytest.mark.gate
def test_answers_are_chosen_from_the_list_and_shown_on_the_map(opened: Callable[..., Page]) -> None:
    page = opened(color_scheme="light")
    answers = page.locator("#found")
    expect(page.locator("#figures")).to_contain_text("result rows7")
    expect(answers.get_by_role("term").first).to_have_text("Range, once (SRQ)")
    expect(answers).to_contain_text("Nearest, continuous (CKQ)")
    expect(page.locator("#queries h3").last).to_have_text("Top words, continuous (CTQ)")
    pick(page, "In the box")
    expect(answers.get_by_role("listitem")).to_have_text([re.compile("Object b"), re.compile("Object a")])
    inside = colour(page, 0.5, 0.3)
    page.get_by_text("all regions").click()
    assert colour(page, 0.5, 0.3) == inside, "the chosen one is drawn all the same"
    pick(page, "show all")
    assert colour(page, 0.5, 0.3) != inside
    pick(page, "Far away")
    expect(answers.get_by_role("listitem")).to_have_count(2)
    west, east, outside = (colour(page, x, 0.62) for x in (0.45, 0.55, 0.02))
    assert west == east != outside, "the map goes to it across the antimeridian"


def test_time_is_picked_and_played(opened: Callable[..., Page]) -> None:
    page = opened()
    now, answers = page.locator("#now"), page.locator("#found")
    pick(page, "The nearest")
    expect(answers).to_contain_text("change 2 of 2")
    expect(answers).to_contain_text("152 km")
    page.get_by_role("button", name="Previous change").press("Enter")
    expect(answers).to_contain_text("change 1 of 2")
    expect(now).to_contain_text("up to 1970-01-02")
    expect(page.get_by_role("button", name="Next change")).to_be_focused()
    page.get_by_role("slider").press("Home")
    expect(answers).to_contain_text("change 1 of 2")  # the first object came then
    pick(page, "whole period")
    expect(now).to_have_text("whole period")
    line = page.locator("#timeline").bounding_box()
    assert line is not None
    page.mouse.move(line["x"] + 30, line["y"] + 40)
    page.mouse.down()
    page.mouse.move(line["x"] + 120, line["y"] + 40, steps=4)
    page.mouse.up()
    expect(now).to_have_text(re.compile(r"1970-01-0\d .* to 1970-01-0\d"))
    pick(page, "Play")
    pick(page, "Pause")
    page.get_by_role("button", name=re.compile("The words")).click()
    pick(page, "whole period")
    expect(answers.get_by_role("row")).to_have_count(3)
    expect(answers.get_by_role("rowheader", name="text")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#clear")).to_be_hidden()


def test_the_map_is_used_with_keys_and_with_the_pointer(opened: Callable[..., Page]) -> None:
    page = opened()
    map_ = page.locator("#map canvas")
    first = colour(page, 0.2, 0.5)
    map_.focus()
    for key in ("+", "+", "+", "ArrowLeft", "ArrowUp"):
        page.keyboard.press(key)
    page.keyboard.press("0")
    assert colour(page, 0.2, 0.5) == first
    pick(page, "In the box")
    place = map_.bounding_box()
    assert place is not None
    page.mouse.move(place["x"] + place["width"] / 2, place["y"] + place["height"] / 2)
    page.mouse.wheel(0, -300)
    page.get_by_role("button", name=re.compile("Object a")).click()
    colour(page, 0, 0)
    page.mouse.move(place["x"] + place["width"] / 2 + 1, place["y"] + place["height"] / 2)
    expect(page.locator("#tip")).to_contain_text("Object a")
    expect(page.locator("#tip")).to_contain_text("51.00° N 1.00° E")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_can_be_used_by_everybody(opened: Callable[..., Page], theme: str) -> None:
    page = opened(color_scheme=theme)
    for name in ("In the box", "The nearest", "The words"):
        pick(page, name)
        found = page.evaluate(
            AXE.read_text() + "; axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa']})"
        )
        assert [(each["id"], each["nodes"][0]["html"]) for each in found["violations"]] == []
    PICTURES.mkdir(exist_ok=True)
    page.screenshot(path=PICTURES / f"page-{theme}.png", full_page=True)


def test_on_a_phone_and_of_a_plane(opened: Callable[..., Page], tmp_path: Path) -> None:
    plane = tmp_path / "plane.html"
    objects = [{"id": str(i), "t": i, "x": 10 * i, "y": 5 * i, "text": "a"} for i in range(10)]
    query = {"id": "q", "type": "CRQ", "t": 0, "region": {"circle": [50, 25, 20]}, "duration": "1h"}
    write_page(plane, "A plane", Space.planar(0, 0, 100, 50), [query], objects, [])
    for path in ({}, {"path": plane}):
        page = opened(**path, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
        page.locator(".query").first.click()
        colour(page, 0, 0)
        assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
        if not path:  # all of the tree is to be seen
            assert page.locator(".picture").evaluate("(each) => each.scrollWidth <= each.clientWidth")
        page.screenshot(path=PICTURES / f"page-phone{'-plane' * bool(path)}.png", full_page=True)
