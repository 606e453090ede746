"""The console's areas in a browser, on a live stream: drawn, chosen, kept from a file, changed, and registered anew."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from spatialstream.servers.process import await_condition
from tests.browser.test_console import PATIENCE, TOKEN, Visit, drop
from tests.cluster.test_gateway import GatewayServer
from tests.unit.gateway.http import Client

HOLLAND = {"type": "Polygon", "coordinates": [[[3, 51], [7, 51], [7, 54], [3, 54], [3, 51]]]}
DELTA = {"type": "Polygon", "coordinates": [[[4.2, 51.8], [5, 51.8], [5, 52.4], [4.2, 52.4], [4.2, 51.8]]]}
LARGER = {"type": "Polygon", "coordinates": [[[4, 51.5], [5.5, 51.5], [5.5, 52.6], [4, 52.6], [4, 51.5]]]}
AREAS = "/streams/gateway/areas"


def feature(geometry: Any, **properties: Any) -> dict[str, Any]:
    return {"type": "Feature", "properties": properties, "geometry": geometry}


def collection(*features: Any) -> str:
    return json.dumps({"type": "FeatureCollection", "features": features})


@pytest.fixture
def client(gateway: GatewayServer) -> Iterator[Client]:
    """Who may do everything; in the end the stream knows no areas, as before."""
    made = Client(gateway.port, TOKEN)
    yield made
    for each in made("GET", AREAS).json["areas"]:
        made("DELETE", f"{AREAS}/{quote(each['name'], safe='')}")


@pytest.fixture
def visit(browser: Browser, gateway: GatewayServer, request: pytest.FixtureRequest) -> Iterator[Visit]:
    made = Visit(browser, gateway)
    if getattr(request, "param", "WebGL") == "canvas":
        made.without_webgl()
    yield made.sign_in()
    made.end()


def panel(page: Page) -> Any:
    return page.locator("#areas")


def open_panel(page: Page) -> None:
    if panel(page).get_attribute("open") is None:
        page.locator("#areas summary").click()


def place(page: Page, lon: float, lat: float) -> tuple[float, float]:
    """Where a place is on the page."""
    x, y = page.evaluate("(at) => window.spatialstream.map.pixel(at)", [lon, lat])
    box = page.locator("#map").bounding_box()
    assert box is not None
    return box["x"] + x, box["y"] + y


def region(page: Page) -> Any:
    return page.evaluate("() => window.spatialstream.composer.region")


def drawn(page: Page) -> list[str]:
    names: list[str] = page.evaluate("() => window.spatialstream.map.areas.map((each) => each.name)")
    return names


@pytest.mark.gate
@pytest.mark.parametrize("visit", ["WebGL", "canvas"], indirect=True)
def test_areas_are_drawn_and_a_click_takes_one(visit: Visit, client: Client) -> None:
    page = visit.page
    for name, shape in (("Holland", HOLLAND), ("Rotterdam & Leiden", DELTA)):
        assert client("PUT", f"{AREAS}/{quote(name)}", shape).status == 201
    open_panel(page)
    expect(panel(page).locator(".listed li")).to_have_count(2)
    assert drawn(page) == []
    panel(page).get_by_label("Show them on the map").check()
    assert await_condition(lambda: sorted(drawn(page)) == ["Holland", "Rotterdam & Leiden"], 60.0)
    panel(page).get_by_role("button", name="Holland").click()
    assert region(page) == {"area": "Holland"}
    expect(page.locator("#composer .named")).to_have_text("In the area Holland")
    page.wait_for_timeout(1_500)  # for the map to come to rest: a click is on a place of it
    visit.picture("areas")
    page.mouse.move(*place(page, 4.6, 52.1))
    expect(page.locator("#tip")).to_be_visible()
    page.mouse.click(*place(page, 4.6, 52.1))
    assert region(page) == {"area": "Rotterdam & Leiden"}, "the smaller one of both"
    page.mouse.click(*place(page, 6.5, 53.5))
    assert region(page) == {"area": "Holland"}
    page.get_by_role("textbox", name="Words").fill("flood")
    page.get_by_role("button", name="Run once").click()
    card = visit.card("Snapshot query")
    expect(card).to_contain_text("in Holland")
    expect(card).to_have_attribute("data-state", "answered")
    expect(card.locator(".objects li").first).to_be_visible()
    panel(page).get_by_label("Show them on the map").uncheck()
    assert drawn(page) == []
    page.mouse.click(*place(page, 4.6, 52.1))
    assert region(page) == {"area": "Holland"}, "what is not shown is not taken"


def test_a_file_of_districts_is_a_layer_and_is_kept(visit: Visit, client: Client) -> None:
    page = visit.page
    features = [
        feature(HOLLAND, code=1, name="Holland"),
        feature(DELTA, code=2, name="Delta"),
        feature({"type": "Point", "coordinates": [4, 52]}, code=3, name="a point"),
    ]
    page.get_by_role("button", name="Inside").click()
    drop(page, collection(*features))
    expect(page.locator("#live")).to_be_visible()
    expect(panel(page).locator(".dropped")).to_contain_text("2 polygons, and 1 feature that is no polygon")
    assert drawn(page) == ["Holland", "Delta"]
    naming = panel(page).get_by_label("Names are in")
    naming.select_option(label="code")
    assert drawn(page) == ["1", "2"]
    naming.select_option(label="name")
    page.wait_for_timeout(1_500)
    visit.picture("areas-file")
    page.mouse.click(*place(page, 4.6, 52.1))
    assert region(page) == {"polygon": DELTA}
    panel(page).get_by_role("button", name="Keep 2 areas").click()
    expect(panel(page).locator(".dropped")).to_be_hidden()
    expect(panel(page).locator(".listed li")).to_have_count(2)
    kept = client("GET", AREAS, accept="application/geo+json").json["features"]
    assert {each["id"]: each["geometry"] for each in kept} == {"Holland": HOLLAND, "Delta": DELTA}
    crossed = {"type": "Polygon", "coordinates": [[[3, 51], [6, 54], [6, 51], [3, 54], [3, 51]]]}
    drop(page, collection(feature(crossed, name="Crossed"), feature(DELTA, name="Delta")))
    panel(page).get_by_role("button", name="Keep 2 areas").click()
    expect(panel(page).get_by_role("alert")).to_contain_text("feature 1 (Crossed): coordinates[0]: crosses or touches")
    panel(page).get_by_role("button", name="Take it off the map").click()
    drop(page, collection(feature({"type": "Point", "coordinates": [1, 2]}), feature(None)))
    expect(page.locator("#composer .error:not([id])")).to_contain_text("2 features, and none is a polygon")


def test_who_may_not_write_has_the_file_as_a_layer_alone(browser: Browser, gateway: GatewayServer) -> None:
    token = "areas-only-to-ask-0123456789"
    may = {"name": "asks", "token": token, "rights": ["ask"], "streams": ["gateway"]}
    with (gateway.folder / "tokens").open("a") as tokens:
        tokens.write(f"\n{json.dumps(may)}")
    session = Client(gateway.port, token)
    assert await_condition(lambda: session("GET", "/console/session").status == 200, PATIENCE / 1000)
    visit = Visit(browser, gateway).sign_in(token)
    page = visit.page
    drop(page, json.dumps(feature(DELTA, name="Delta")))
    open_panel(page)
    expect(panel(page).get_by_role("button", name="Keep it as an area")).to_be_disabled()
    expect(panel(page)).to_contain_text("Your token lacks the right to write")
    assert region(page) == {"polygon": DELTA}
    visit.end()


@pytest.mark.gate
def test_a_query_of_an_area_that_has_changed_says_so_and_is_registered_anew(visit: Visit, client: Client) -> None:
    page = visit.page
    drop(page, json.dumps(feature(DELTA, name="delta")))
    open_panel(page)
    panel(page).get_by_label("Name", exact=True).fill("Delta")
    panel(page).get_by_role("button", name="Keep it as an area").click()
    expect(page.locator("#composer .named")).to_have_text("In the area Delta")
    page.get_by_role("textbox", name="Words").fill("flood")
    page.get_by_role("button", name="Register", exact=True).click()
    card = visit.card("Continuous query")
    expect(card).to_have_attribute("data-state", "registered")
    expect(card.locator(".outdated")).to_be_hidden()
    id = page.evaluate("() => window.spatialstream.cards[0].query.id")
    assert client("GET", f"/streams/gateway/queries/{id}").json["so_far"]["geometry"] == "current"
    drop(page, json.dumps(feature(LARGER, name="Delta")))
    panel(page).get_by_role("button", name="Keep it as an area").click()
    expect(card.locator(".outdated")).to_contain_text("The area Delta has another geometry now.")
    page.locator("#registered summary").click()
    expect(page.locator('#registered li[data-geometry="outdated"]')).to_have_count(1)
    visit.picture("areas-outdated")
    page.reload()  # the address has its name alone
    visit.live()
    assert "polygon" not in page.url
    expect(card.locator(".outdated")).to_contain_text("The area Delta has another geometry now.")
    card.get_by_role("button", name="Register its queries anew").click()
    expect(page.locator("#toast")).to_have_text("Registered anew: 1 query of Delta")
    expect(card.locator(".outdated")).to_be_hidden()
    registered = client("GET", f"/streams/gateway/queries/{id}").json
    assert registered["query"]["region"] == {"polygon": LARGER, "area": "Delta"}
    assert registered["so_far"]["geometry"] == "current"
    assert client("DELETE", f"/streams/gateway/queries/{id}").status == 200


def test_it_can_be_used_by_everybody(visit: Visit, client: Client) -> None:
    page = visit.page
    client("PUT", f"{AREAS}/Holland", HOLLAND)
    open_panel(page)
    expect(panel(page).locator(".listed li")).to_have_count(1)
    drop(page, collection(feature(HOLLAND, name="Holland"), feature(DELTA, name="Delta")))
    visit.accessible()
    panel(page).get_by_role("button", name="Delta").focus()
    page.keyboard.press("Enter")
    assert region(page) == {"polygon": DELTA}
    expect(page.get_by_label("GeoJSON")).to_have_value(json.dumps(DELTA, separators=(",", ":")), timeout=PATIENCE)
