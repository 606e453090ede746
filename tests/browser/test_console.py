"""The console in a browser, on a live stream: each thing that people do with it.

Pictures are kept in ``browser-output/``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Route, TimeoutError, expect

from spatialstream.client import RecordWriter
from spatialstream.servers.process import await_condition
from tests.browser.conftest import ELSEWHERE
from tests.cluster.stream import LiveStream
from tests.cluster.test_gateway import TOKEN, GatewayServer
from tests.unit.gateway.http import Client

PATIENCE = 120_000.0  # ms
PICTURES = Path("browser-output")
AXE = Path(__file__).parent / "vendor" / "axe.min.js"

SILENT = """
const given = window.fetch;
const silent = () => new ReadableStream({ start: (to) => to.enqueue(new TextEncoder().encode(": nothing\\n\\n")) });
window.fetch = async (path, how) =>
  String(path).endsWith("console/objects") ? new Response(silent()) : given(path, how);
"""
"""A connection over which no object comes, and which stays: one that is fulfilled by a route ends at once."""

expect.set_options(timeout=PATIENCE)


@pytest.fixture(params=["dark", "light"])
def theme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Visit:
    """Somebody looks at the console.

    Attributes:
        page: what they see.
        problems: what the page says to its developers: errors, and what its policy has refused.
        planted: those that a test has made itself, and which may come until the page is closed.
        failed: requests that have failed, and why.
    """

    def __init__(self, browser: Browser, gateway: GatewayServer, host: str = "localhost", **how: Any) -> None:
        self.problems: list[str] = []
        self.planted: set[str] = set()
        self.failed: list[str] = []
        self.context = browser.new_context(**({"viewport": {"width": 1280, "height": 800}} | how))
        self.context.grant_permissions(["clipboard-read", "clipboard-write"])
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("console", self._told)
        self.page.on("requestfailed", lambda request: self.failed.append(f"{request.url}: {request.failure}"))
        self.page.goto(f"http://{host}:{gateway.port}/")

    def _told(self, message: ConsoleMessage) -> None:
        if "Content Security Policy" in message.text:
            self.problems.append(message.text)

    def sign_in(self, token: str = TOKEN) -> Visit:
        try:
            self.page.get_by_label("Bearer token").fill(token)
        except TimeoutError as error:
            raise self._why() from error
        self.page.get_by_role("button", name="Use it").click()
        self.live()
        return self

    def live(self) -> None:
        try:
            expect(self.page.locator("#state")).to_have_attribute("data-state", "live")
        except AssertionError as error:
            raise self._why() from error

    def _why(self) -> AssertionError:
        """What the page knows of its connections, if it has begun at all."""
        states = self.page.evaluate("() => JSON.stringify(window.spatialstream?.states ?? null)")
        return AssertionError(f"{states}; failed: {self.failed}")

    def flood(self) -> None:
        """A box around the flood, by numbers, and its word."""
        self.page.get_by_role("button", name="Box", exact=True).click()
        self.page.keyboard.press("Escape")
        for name, value in {"West": "3", "South": "51", "East": "6", "North": "54"}.items():
            self.page.get_by_label(name, exact=True).fill(value)
        self.page.get_by_role("textbox", name="Words").fill("flood")

    def card(self, label: str) -> Locator:
        return self.page.get_by_role("article", name=re.compile(label))

    def without_webgl(self) -> Visit:
        """From now on the browser has no WebGL."""
        self.context.add_init_script(NO_WEBGL)
        self.page.reload()
        return self

    def picture(self, name: str) -> None:
        PICTURES.mkdir(exist_ok=True)
        self.page.wait_for_timeout(1_500)  # for what moves to come to rest; nothing is checked by it
        self.page.screenshot(path=PICTURES / f"{name}.png")

    def accessible(self) -> None:
        """No rule of WCAG 2.2, levels A and AA, that axe knows is broken seriously."""
        found = self.page.evaluate(
            AXE.read_text() + "; axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa']})"
        )
        broken = [
            f"{each['id']}: {each['help']}: {[node['html'][:120] for node in each['nodes']]}"
            for each in found["violations"]
            if each["impact"] in ("serious", "critical")
        ]
        assert broken == []

    def end(self) -> None:
        self.context.close()
        assert [each for each in self.problems if each not in self.planted] == []


@pytest.fixture
def visit(browser: Browser, gateway: GatewayServer) -> Iterator[Visit]:
    made = Visit(browser, gateway)
    yield made
    made.end()


@pytest.fixture(params=["WebGL", "canvas"])
def either(request: pytest.FixtureRequest, visit: Visit) -> Visit:
    """Somebody whose map is drawn by the one or by the other."""
    return visit if request.param == "WebGL" else visit.without_webgl()


def test_a_wrong_token_is_refused_and_a_right_one_is_in_no_address(visit: Visit) -> None:
    page = visit.page
    page.get_by_label("Bearer token").fill("not-a-token-0123456789")
    page.get_by_role("button", name="Use it").click()
    expect(page.locator("#token-error")).not_to_be_empty()
    visit.picture("token")
    visit.sign_in()
    assert TOKEN not in page.url
    assert page.evaluate("() => JSON.stringify(localStorage)").find(TOKEN) < 0


def test_a_wrong_token_does_not_take_the_place_of_a_right_one(visit: Visit) -> None:
    visit.sign_in()
    page = visit.page
    page.get_by_role("button", name="Token").click()
    page.get_by_label("Bearer token").fill("not-a-token-0123456789")
    page.get_by_role("button", name="Use it").click()
    expect(page.locator("#token-error")).not_to_be_empty()
    page.keyboard.press("Escape")
    visit.live()
    page.reload()
    visit.live()


def test_a_link_that_hands_a_token_over_loses_it(visit: Visit) -> None:
    page = visit.page
    expect(page.locator("#token-dialog")).to_be_visible()
    page.goto(f"{page.url.partition('#')[0]}#token={TOKEN}&stream=gateway&map=4.5,52,6")
    visit.live()
    expect(page).to_have_url(re.compile("map=4.5,52,6"))
    assert TOKEN not in page.url


def test_who_may_only_ask_asks_once_and_no_more(visit: Visit, gateway: GatewayServer) -> None:
    token = "may-only-ask-0123456789"
    may = {"name": "session", "token": token, "rights": ["ask"], "streams": ["gateway"]}
    with (gateway.folder / "tokens").open("a") as tokens:
        tokens.write(f"\n{json.dumps(may)}")
    session = Client(gateway.port, token)
    assert await_condition(lambda: session("GET", "/console/session").status == 200, PATIENCE / 1000)
    page = visit.page
    page.goto(link(page, {"id": "others", "type": "CRQ", "region": {"box": [3, 51, 6, 54]}}))
    visit.sign_in(token)
    expect(page.locator("#rate")).to_have_text(re.compile(r"[1-9]"))
    expect(page.locator("#behind")).to_have_text(re.compile(r"\d"))
    expect(visit.card("Continuous query")).to_have_attribute("data-state", "unseen")
    expect(page.get_by_role("button", name="Inside")).to_be_disabled()
    expect(page.get_by_role("button", name="Register", exact=True)).to_be_disabled()
    visit.flood()
    page.get_by_role("button", name="Run once").click()
    expect(visit.card("Snapshot query")).to_have_attribute("data-state", "answered")
    visit.live()
    visit.accessible()


def test_objects_pass(visit: Visit) -> None:
    visit.sign_in()
    expect(visit.page.locator("#rate")).to_have_text(re.compile(r"[1-9]"))
    expect(visit.page.locator("#shown")).to_have_text("all")
    expect(visit.page.locator("#latest li").first).to_contain_text(re.compile("flood|festival"))


@pytest.mark.gate
def test_a_query_asked_once(visit: Visit) -> None:
    visit.sign_in()
    visit.flood()
    visit.page.get_by_role("button", name="Run once").click()
    card = visit.card("Snapshot query")
    expect(card).to_have_attribute("data-state", "answered")
    expect(card.locator(".figure b")).to_have_text(re.compile(r"[1-9]"))
    expect(card.locator(".objects li").first).to_contain_text("flood")
    visit.page.get_by_role("button", name=re.compile("^Remove")).click()
    expect(visit.page.get_by_text("No query yet.")).to_be_visible()


def test_the_queries_are_skipped_to_and_stay(visit: Visit) -> None:
    visit.sign_in()
    page = visit.page
    page.get_by_role("button", name="Everywhere").click()
    page.get_by_role("button", name="Run once").click()
    expect(visit.card("Snapshot query")).to_have_attribute("data-state", "answered")
    expect(page).to_have_url(re.compile("q="))
    page.get_by_role("link", name="Skip to the queries").press("Enter")
    expect(page.locator("#panel")).to_be_focused()
    page.evaluate("() => (location.hash = 'panel')")  # as a link to a place in the page
    expect(page).to_have_url(re.compile("q="))
    expect(visit.card("Snapshot query")).to_have_count(1)


@pytest.mark.gate
def test_a_box_is_drawn_on_the_map(either: Visit) -> None:
    visit = either.sign_in()
    page = visit.page
    page.get_by_role("button", name="Box", exact=True).click()
    place = page.locator("#map").bounding_box()
    assert place is not None
    x, y = place["x"] + place["width"] / 2, place["y"] + place["height"] / 2
    page.mouse.move(x - 100, y - 100)
    page.mouse.down()
    page.mouse.move(x + 100, y + 100, steps=6)
    page.mouse.up()
    west, east = (float(page.get_by_label(each, exact=True).input_value()) for each in ("West", "East"))
    assert west < east
    page.get_by_role("button", name="Run once").click()
    expect(visit.card("Snapshot query")).to_have_attribute("data-state", "answered")


@pytest.mark.gate
def test_a_polygon_is_drawn_by_its_corners(either: Visit) -> None:
    visit = either.sign_in()
    page = visit.page
    page.get_by_role("button", name="Polygon", exact=True).click()
    place = page.locator("#map").bounding_box()
    assert place is not None
    x, y = place["x"] + place["width"] / 2, place["y"] + place["height"] / 2
    corners = [(-120, -90), (110, -60), (90, 100), (-100, 70)]
    for dx, dy in [*corners, (corners[0][0] + 3, corners[0][1] - 3)]:
        page.mouse.move(x + dx, y + dy)
        page.mouse.down()
        page.mouse.up()
    expect(page.locator("#hint")).to_be_hidden()
    drawn = polygon_of(page)
    (ring,) = drawn["coordinates"]
    assert (drawn["type"], len(ring), ring[0]) == ("Polygon", 5, ring[-1])
    assert page.locator(".handle").count() == 4
    visit.picture("polygon")
    form, panel = (page.locator(each).bounding_box() for each in ("#composer .where", "#panel"))
    assert form is not None
    assert panel is not None
    assert form["x"] + form["width"] < panel["x"] + panel["width"], "the form is as wide as its panel"
    handle = page.locator(".handle").nth(1).bounding_box()
    assert handle is not None
    page.mouse.move(handle["x"] + 6, handle["y"] + 6)
    page.mouse.down()
    page.mouse.move(handle["x"] + 40, handle["y"] + 6, steps=4)
    page.mouse.up()
    (pulled,) = polygon_of(page)["coordinates"]
    assert pulled[1][0] > ring[1][0]
    assert [pulled[i] for i in (0, 2, 3, 4)] == [ring[i] for i in (0, 2, 3, 4)]
    page.get_by_role("button", name="Run once").click()
    card = visit.card("Snapshot query")
    expect(card).to_have_attribute("data-state", "answered")
    expect(card).to_contain_text("in a polygon of 4 corners")


@pytest.mark.gate
def test_a_polygon_is_pasted_and_dropped(visit: Visit) -> None:
    visit.sign_in()
    page = visit.page
    page.get_by_role("button", name="Polygon", exact=True).click()
    page.keyboard.press("Escape")
    around = [[3, 51], [6, 51], [6, 54], [3, 54], [3, 51]]
    without = [[4.4, 51.9], [5, 51.9], [5, 52.4], [4.4, 52.4], [4.4, 51.9]]
    for holes, found in (((), True), ((without,), False)):
        feature = {"type": "Feature", "geometry": {"type": "Polygon", "coordinates": [around, *holes]}}
        page.get_by_label("GeoJSON").fill(json.dumps(feature))
        page.get_by_label("GeoJSON").press("Tab")
        page.get_by_role("textbox", name="Words").fill("flood")
        page.get_by_role("button", name="Run once").click()
        card = visit.card("Snapshot query").first
        expect(card).to_contain_text(f"in a polygon of {4 + 4 * len(holes)} corners around 52.50° N 4.50° E")
        expect(card).to_have_attribute("data-state", "answered")
        expect(card.locator(".objects li").first).to_be_visible() if found else expect(
            card.locator(".objects li")
        ).to_have_count(0)
    margin = page.get_by_label("And within, m")
    for metres, shown, found in (
        ("60000", "60.0 km", True),
        ("10000", "10.0 km", False),
    ):  # the flood is 41 km to the south
        margin.fill(metres)
        margin.press("Tab")
        page.get_by_label("GeoJSON").fill('{"type": "LineString", "coordinates": [[3, 52.6], [6, 52.6]]}')
        page.get_by_label("GeoJSON").press("Tab")
        page.get_by_role("button", name="Run once").click()
        card = visit.card("Snapshot query").first
        expect(card).to_contain_text(f"within {shown} of a LineString around 52.60° N 4.50° E")
        expect(card).to_have_attribute("data-state", "answered")
        if found:
            expect(card.locator(".objects li").first).to_be_visible()
        else:
            expect(card.locator(".objects li")).to_have_count(0)
    margin.fill("0")
    margin.press("Tab")
    crossing = {"type": "Polygon", "coordinates": [[[3, 51], [6, 54], [6, 51], [3, 54], [3, 51]]]}
    drop(page, json.dumps({"type": "FeatureCollection", "features": [{"type": "Feature", "geometry": crossing}]}))
    assert polygon_of(page) == crossing
    page.get_by_role("button", name="Run once").click()
    expect(page.locator("#composer .error:not([id])")).to_contain_text("crosses or touches itself at [4.5, 52.5]")
    drop(page, '{"type": "Point", "coordinates": [1, 2]}')
    expect(page.locator("#composer .error:not([id])")).to_contain_text("this is a Point")
    drop(page, "no JSON")
    expect(page.locator("#composer .error:not([id])")).to_contain_text("This is not GeoJSON")


def polygon_of(page: Page) -> Any:
    return json.loads(page.get_by_label("GeoJSON").input_value())


def drop(page: Page, text: str) -> None:
    """A file is dropped on the page."""
    page.evaluate(
        """(text) => {
          const dataTransfer = new DataTransfer();
          dataTransfer.items.add(new File([text], "area.geojson"));
          document.body.dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true }));
        }""",
        text,
    )
    page.wait_for_timeout(200)  # until it is read


def test_a_corner_that_is_dragged_beyond_the_opposite_one_is_the_other_side(either: Visit) -> None:
    page = either.sign_in().page
    page.get_by_role("button", name="Box", exact=True).click()
    page.keyboard.press("Escape")

    def box() -> list[float]:
        return [float(each.input_value()) for each in page.locator(".numbers input").all()]

    west, _, east, north = box()
    corner, opposite = (page.locator(".handle").nth(each).bounding_box() for each in (0, 2))
    assert corner is not None
    assert opposite is not None
    page.mouse.move(corner["x"] + 6, corner["y"] + 6)
    page.mouse.down()
    page.mouse.move(opposite["x"] + 40, opposite["y"] - 40, steps=10)
    page.mouse.up()
    left, bottom, right, top = box()
    assert (left, bottom) == (east, north), "what was opposite stays"
    assert left < right < left + (east - west)
    assert bottom < top


def test_a_circle_is_made_with_keys(visit: Visit) -> None:
    visit.sign_in()
    page = visit.page
    page.get_by_role("button", name="Circle", exact=True).press("Enter")
    radius = page.get_by_label("Radius, km")
    assert float(radius.input_value()) > 0
    for name, value in (("Longitude", "4.5"), ("Latitude", "52"), ("Radius, km", "100")):
        page.get_by_label(name).fill(value)
    page.get_by_role("button", name="Run once").press("Enter")
    card = visit.card("Snapshot query")
    expect(card).to_have_attribute("data-state", "answered")
    expect(card).to_contain_text("within 100 km of 52.00° N 4.50° E")
    expect(card.locator(".objects li").first).to_contain_text("flood")


@pytest.mark.gate
def test_a_registered_query_has_its_matches_is_shared_by_its_address_and_ends(
    visit: Visit, browser: Browser, gateway: GatewayServer
) -> None:
    visit.sign_in()
    visit.flood()
    page = visit.page
    page.get_by_role("button", name="Register", exact=True).click()
    card = visit.card("Continuous query")
    expect(card).to_have_attribute("data-state", "registered")
    expect(card.locator(".figure b")).to_have_text(re.compile(r"[1-9]"))
    (query,) = Client(gateway.port, TOKEN)("GET", "/streams/gateway/queries").json["queries"][-1:]
    assert query["id"].startswith("console-")

    before = number(card)
    page.reload()
    visit.live()
    expect(card).to_have_attribute("data-state", "registered")
    expect(card.locator(".figure b")).not_to_have_text(re.compile(rf"^({before})?$"))
    assert number(card) >= before, "nothing is lost by a reload"

    page.get_by_role("button", name="Copy a link").click()
    other = Visit(browser, gateway)
    other.sign_in()
    other.page.goto(page.evaluate("() => navigator.clipboard.readText()"))
    other.page.reload()
    expect(other.card("Continuous query").locator(".figure b")).to_have_text(re.compile(r"[1-9]"))
    other.end()

    page.get_by_role("button", name=re.compile("^Cancel")).click()
    expect(card).to_have_attribute("data-state", "cancelled")
    left = Client(gateway.port, TOKEN)("GET", f"/streams/gateway/queries/{query['id']}")
    assert left.status == 404


def number(card: Locator) -> int:
    """How many matches a card shows."""
    return int(card.locator(".figure b").inner_text().replace(",", ""))


def link(page: Page, *queries: dict[str, Any]) -> str:
    """The address of the page with these queries."""
    said = urlencode({"stream": "gateway", "q": json.dumps(queries)})
    return f"{page.url.partition('#')[0]}#{said}"


def test_a_query_that_has_ended_says_so(visit: Visit, gateway: GatewayServer) -> None:
    visit.sign_in()
    query = {"id": "brief", "type": "CRQ", "region": {"box": [3, 51, 6, 54]}, "duration": "15s"}
    assert Client(gateway.port, TOKEN)("POST", "/streams/gateway/queries", query).status == 201
    visit.page.goto(link(visit.page, query, query | {"id": "nobody"}))
    brief, nobody = visit.card("Continuous query").nth(0), visit.card("Continuous query").nth(1)
    expect(brief).to_have_attribute("data-state", "registered")
    expect(brief.locator(".status")).to_contain_text("registered at")
    expect(nobody).to_have_attribute("data-state", "ended")
    expect(brief).to_have_attribute("data-state", "ended")  # while the page is open
    expect(brief.locator(".status")).to_contain_text("expired at")
    expect(visit.page).to_have_url(re.compile("brief.*nobody"))  # its results stay, and may be replayed
    visit.page.reload()
    expect(brief).to_have_attribute("data-state", "ended")
    for _ in range(2):
        visit.page.get_by_role("button", name=re.compile("^Remove")).first.click()
    expect(visit.page.locator(".card")).to_have_count(0)


def register(visit: Visit) -> Locator:
    """The flood's matches, a continuous query, of which some have come."""
    visit.flood()
    visit.page.get_by_role("button", name="Register", exact=True).click()
    card = visit.card("Continuous query")
    expect(card.locator(".figure b")).to_have_text(re.compile(r"[1-9]"))
    return card


def cancel(visit: Visit) -> None:
    visit.page.get_by_role("button", name=re.compile("^Cancel")).first.click()
    expect(visit.page.locator(".card[data-state=cancelled]")).not_to_have_count(0)


@pytest.mark.gate
def test_rows_are_followed_from_before_the_first_one_on(visit: Visit) -> None:
    visit.sign_in()
    visit.flood()
    page = visit.page
    with (
        page.expect_request(re.compile("/results[?]")) as followed,
        page.expect_response(lambda answer: answer.request.method == "POST") as registered,
    ):
        page.get_by_role("button", name="Register", exact=True).click()
    assert followed.value.headers["last-event-id"] == registered.value.json()["position"]
    expect(visit.card("Continuous query").locator(".figure b")).to_have_text(re.compile(r"[1-9]"))
    cancel(visit)


def test_a_changed_query_replaces_the_registered_one(visit: Visit, gateway: GatewayServer) -> None:
    visit.sign_in()
    card = register(visit)
    page, client = visit.page, Client(gateway.port, TOKEN)

    def registered() -> list[dict[str, Any]]:
        queries = client("GET", "/streams/gateway/queries").json["queries"]
        return [each for each in queries if each["id"].startswith("console-")]

    (before,) = registered()[-1:]
    card.get_by_role("button", name=re.compile("^Put into the form")).click()
    expect(page.locator("#composer")).to_contain_text("Registering replaces")
    expect(page.locator(".handle")).to_have_count(4)
    page.wait_for_timeout(1_000)  # for the map to come to rest
    corner = page.locator(".handle").first.bounding_box()
    assert corner is not None
    page.mouse.move(corner["x"] + 6, corner["y"] + 6)
    page.mouse.down()
    page.mouse.move(corner["x"] - 34, corner["y"] + 46, steps=5)
    page.mouse.up()
    page.get_by_role("button", name="Register", exact=True).click()
    expect(page.locator(".card")).to_have_count(1)
    expect(card).to_have_attribute("data-state", "registered")
    (after,) = registered()[-1:]
    assert after["id"] != before["id"]
    assert after["region"]["box"][0] < before["region"]["box"][0]
    assert client("GET", f"/streams/gateway/queries/{before['id']}").status == 404
    cancel(visit)


def test_a_query_is_registered_also_where_the_page_is_not_served_safely(
    browser: Browser, gateway: GatewayServer
) -> None:
    visit = Visit(browser, gateway, ELSEWHERE)
    assert not visit.page.evaluate("() => isSecureContext")
    visit.sign_in()
    register(visit)
    cancel(visit)
    visit.end()


def test_what_a_query_has_had_is_replayed_and_live_again_without_a_gap(visit: Visit) -> None:
    visit.sign_in()
    card = register(visit)
    before = number(card)
    card.get_by_role("button", name=re.compile("^Replay")).click()
    page, replay = visit.page, visit.page.get_by_role("region", name="Replay")
    expect(page.locator("#state")).to_have_text("replay")
    expect(replay).to_have_attribute("aria-busy", "false")
    expect(replay.locator(".message")).to_have_text(re.compile(r"[1-9][0-9]* rows?$"))
    moment = replay.get_by_role("slider", name="Moment")
    expect(moment).to_be_focused()
    expect(card.locator(".objects li").first).to_contain_text("flood")
    card.get_by_role("button", name=re.compile("^Show on the map")).click()
    visit.picture("replay-light")

    replay.get_by_label("How far back").select_option("15m")
    expect(replay).to_have_attribute("aria-busy", "false")
    expect(moment).to_have_attribute("aria-valuetext", re.compile(r"[1-9][0-9]* rows?$"))
    at = int(moment.input_value())
    assert at > 30, "it begins with the newest rows"
    moment.press("Home")
    expect(card.locator(".figure b")).to_have_text("0")  # long before the stream had begun
    expect(replay.locator(".message")).to_have_text(re.compile("0 rows$"))
    expect(page).to_have_url(re.compile("replay=console-.*span=15m.*at=[0-9]+"))
    replay.get_by_label("Speed").select_option("5")
    replay.get_by_role("button", name="Play").click()
    expect(moment).to_have_value("59")
    expect(replay.get_by_role("button", name="Play")).to_be_visible()  # it has come to the end

    page.reload()  # as who is given the link
    expect(page.locator("#state")).to_have_text("replay")
    expect(moment).to_have_attribute("aria-valuetext", re.compile("rows?$"))
    visit.accessible()
    page.locator("#theme").click()
    visit.accessible()
    moment.press("End")
    expect(card.locator(".objects li").first).to_be_visible()
    visit.picture("replay-dark")
    moment.press("Escape")
    visit.live()
    expect(replay).to_be_hidden()
    expect(card.locator(".figure b")).not_to_have_text(re.compile(rf"^({before})?$"))
    assert number(card) >= before
    cancel(visit)


def test_a_replay_of_nothing_and_one_that_cannot_be_read(visit: Visit) -> None:
    visit.sign_in()
    page = visit.page
    visit.flood()
    page.get_by_role("textbox", name="Words").fill("nobody-says-this")
    page.get_by_role("button", name="Register", exact=True).click()
    expect(visit.card("Continuous query")).to_have_attribute("data-state", "registered")
    page.route("**/results/counts?**", lambda route: route.fulfill(status=503, json={"detail": "the broker is away"}))
    page.get_by_role("button", name=re.compile("^Replay")).click()
    replay = page.get_by_role("region", name="Replay")
    expect(replay.locator(".message")).to_contain_text("the broker is away")
    page.unroute("**/results/counts?**")
    replay.get_by_role("button", name="Try again").click()
    expect(replay.locator(".message")).to_contain_text("No row of this query arrived")
    expect(replay.get_by_role("slider")).to_be_disabled()
    visit.accessible()
    replay.get_by_role("button", name="Back to live").click()
    expect(page.get_by_role("button", name=re.compile("^Replay"))).to_be_focused()
    cancel(visit)


def test_queries_that_are_registered_are_listed_and_followed(
    visit: Visit, browser: Browser, gateway: GatewayServer
) -> None:
    visit.sign_in()
    register(visit)
    other = Visit(browser, gateway, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    other.sign_in()
    other.page.get_by_text("Registered queries").click()
    listed = other.page.locator("#registered").get_by_role("button", name=re.compile("flood")).first
    expect(listed).to_contain_text(re.compile(r"since .* by test; (no rows yet|[\d,]+ rows?, the last at )"))
    listed.click()
    card = other.card("Continuous query")
    expect(card.locator(".figure b")).to_have_text(re.compile(r"[1-9]"))
    card.get_by_role("button", name=re.compile("^Replay")).click()
    expect(other.page.get_by_role("slider", name="Moment")).to_have_attribute("aria-valuetext", re.compile("rows?$"))
    other.picture("replay-phone")
    assert other.page.evaluate("() => document.documentElement.scrollWidth") <= 390
    other.accessible()
    other.end()
    cancel(visit)


def test_a_card_has_what_came_before_it_was_opened_and_its_cross_asks(visit: Visit, gateway: GatewayServer) -> None:
    client = Client(gateway.port, TOKEN)
    box = {"region": {"box": [3, 51, 6, 54]}, "duration": "1h"}
    near = {"at": [4.5, 52], "k": 2, "window": "1h", "duration": "1h"}
    queries = [{"id": "others-box", "type": "CRQ"} | box, {"id": "others-near", "type": "CKQ"} | near]
    for query in queries:
        assert client("POST", "/streams/gateway/queries", query).status == 201

    def had() -> bool:
        return all(
            client("GET", f"/streams/gateway/queries/{each['id']}").json["so_far"]["rows"] > 1 for each in queries
        )

    assert await_condition(had, PATIENCE / 1000)
    page = visit.sign_in().page
    page.route(re.compile("/results[?]"), lambda route: route.abort())  # nothing comes from now on
    page.goto(f"{page.url.partition('#')[0]}#stream=gateway&follow=all")
    page.reload()
    card = page.locator(".card", has_text="51.00° N").first
    expect(card.locator(".figure b")).to_have_text(re.compile(r"[1-9]"))
    expect(card.locator(".objects li")).not_to_have_count(0)
    expect(page.locator(".card[data-type=CKQ] .ranked li")).to_have_count(2)
    expect(page).to_have_url(re.compile("others-box"))

    dialog = page.get_by_role("dialog", name="Cancel the query for everybody?")
    card.get_by_role("button", name=re.compile("^Cancel")).click()
    expect(dialog).to_contain_text(re.compile("You registered it, on another page|Registered by"))
    visit.picture("cancel")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    assert client("GET", "/streams/gateway/queries/others-box").status == 200
    card.get_by_role("button", name=re.compile("^Cancel")).click()
    dialog.get_by_role("button", name="Cancel it").click()
    expect(page.locator(".card[data-state=cancelled]")).to_have_count(1)
    assert client("GET", "/streams/gateway/queries/others-box").status == 404
    page.unroute(re.compile("/results[?]"))
    assert client("DELETE", "/streams/gateway/queries/others-near").status < 300


def test_a_query_that_was_asked_once_may_be_registered(visit: Visit) -> None:
    visit.sign_in()
    visit.flood()
    visit.page.get_by_role("button", name="Run once").click()
    expect(visit.card("Snapshot query")).to_have_attribute("data-state", "answered")
    visit.page.get_by_role("button", name="Register", exact=True).click()
    expect(visit.card("Continuous query")).to_have_attribute("data-state", "registered")
    cancel(visit)


def test_escape_leaves_an_empty_replay(visit: Visit) -> None:
    page = visit.sign_in().page
    visit.flood()
    page.get_by_role("textbox", name="Words").fill("nobody-says-this")
    page.get_by_role("button", name="Register", exact=True).click()
    expect(visit.card("Continuous query")).to_have_attribute("data-state", "registered")
    page.get_by_role("button", name=re.compile("^Replay")).click()
    replay = page.get_by_role("region", name="Replay")
    expect(replay.locator(".message")).to_contain_text("No row of this query arrived")
    page.keyboard.press("Escape")
    expect(replay).to_be_hidden()
    visit.live()
    cancel(visit)


def test_each_job_has_a_light_and_a_quiet_stream_is_not_late(visit: Visit) -> None:
    page = visit.page
    change: dict[str, Any] = {}

    def look(route: Route) -> None:
        said = route.fetch().json()
        if "behind" in change:
            said["as_of"]["clock"] = change["clock"] if "clock" in change else said["now"] - change["behind"]
        route.fulfill(json=said | {name: change[name] for name in ("answers", "as_of") if name in change})

    page.route("**/console/inside", look)
    visit.sign_in()
    router, worker, behind = (page.locator(each) for each in ("#job-router", "#job-worker", "#behind"))
    expect(worker).to_have_attribute("data-light", "good")
    expect(router).to_have_attribute("data-light", "good")
    change |= {"answers": False, "as_of": None}
    expect(worker).to_have_attribute("data-light", "bad")
    expect(router).to_have_attribute("data-light", "unknown")
    expect(page.locator("#state")).to_have_attribute("data-state", "stopped")
    expect(page.locator("#banner")).to_contain_text("The worker does not answer")
    visit.picture("no-worker")
    visit.accessible()
    change.clear()
    visit.live()
    expect(page.locator("#banner")).to_be_hidden()
    change["behind"] = 1_500_000
    expect(behind).to_have_text("25 min")
    expect(router).to_have_attribute("data-light", "late")
    change["clock"] = 1_000 * (page.evaluate("() => Date.now()") // 1_000)
    expect(router).to_have_attribute("data-light", "bad")  # objects come, and the clock stands still
    del change["clock"]
    visit.context.add_init_script(SILENT)
    page.reload()
    expect(behind).to_have_text("quiet")
    expect(page.locator(".behind")).to_have_attribute("data-late", "false")
    expect(router).to_have_attribute("data-light", "good")


def test_the_nearest_and_the_top_words(visit: Visit) -> None:
    visit.sign_in()
    page = visit.page
    page.get_by_role("radio", name="Nearest").check(force=True)
    page.get_by_role("button", name="the middle of the map").click()
    page.get_by_label("Longitude").fill("4.5")
    page.get_by_label("Latitude").fill("52")
    page.get_by_label("How many").fill("3")
    page.get_by_role("button", name="Register", exact=True).click()
    nearest = visit.card("Continuous query.*").filter(has=page.locator(".ranked"))
    expect(nearest.locator(".ranked li")).to_have_count(3)
    page.get_by_role("radio", name="Top words").check(force=True)
    page.get_by_role("button", name="Everywhere").click()
    page.get_by_label("Repeat every").select_option("5s")
    page.get_by_label("Over the last").select_option("1m")
    page.get_by_role("button", name="Register", exact=True).click()
    words = page.locator(".card table.terms")
    expect(words.get_by_role("rowheader", name="news")).to_be_visible()
    visit.picture("queries")
    for _ in range(2):
        page.get_by_role("button", name=re.compile("^Cancel")).first.click()
        expect(page.locator(".card[data-state=cancelled]")).not_to_have_count(0)
        page.locator(".card[data-state=cancelled]").get_by_role("button", name=re.compile("^Remove")).first.click()
    expect(page.locator(".card")).to_have_count(0)


@pytest.mark.gate
def test_the_streams_inside(visit: Visit, stream: LiveStream) -> None:
    bad = {"id": "bad", "t": 5, "lon": 500, "lat": 1, "text": "x"}  # which the gateway itself would refuse
    RecordWriter(stream.connection, stream.name).objects(json.dumps(bad).encode() + b"\n")
    visit.sign_in()
    visit.page.get_by_role("button", name="Inside").click()
    inside = visit.page.get_by_role("region", name="Inside the stream")
    expect(inside.get_by_role("rowheader", name="2")).to_be_visible()  # of three slots
    expect(inside).to_contain_text("lon")  # the reason of the rejected record
    visit.picture("inside")


def test_what_cannot_be_shown_costs_a_row_and_not_the_connection(visit: Visit) -> None:
    visit.sign_in()
    asked = list[str | None]()

    def rows(route: Route) -> None:
        asked.append(route.request.headers.get("last-event-id"))
        query = re.findall("query=([^&]+)", route.request.url)[0]
        row = {"query": query, "type": "CRQ", "t": 1, "object": {"id": "a", "t": 1, "lon": 4.5, "lat": 52}}
        bad = {"query": query, "type": "CRQ", "t": 1}
        said = "".join(f"id: {i}\ndata: {json.dumps(each)}\n\n" for i, each in enumerate([row, bad, row]))
        route.fulfill(body=said, content_type="text/event-stream")

    page = visit.page
    page.route(re.compile("/results[?]"), rows)
    visit.flood()
    page.get_by_role("button", name="Register", exact=True).click()
    card = visit.card("Continuous query")
    expect(card.locator(".figure b")).to_have_text(re.compile("[2-9]"))
    expect(page.locator("#toast")).to_contain_text("has failed")
    page.unroute(re.compile("/results[?]"))
    assert set(asked[1:]) <= {"2"}, "it goes on after the last row"
    visit.planted.add("Cannot read properties of undefined (reading 'lon')")  # what is on its way yet says it once more
    assert set(visit.problems) == visit.planted
    cancel(visit)


def test_what_is_refused_is_said_and_may_be_tried_again(visit: Visit) -> None:
    page, state, told = visit.page, visit.page.locator("#state"), visit.page.get_by_role("alert")
    visit.sign_in()
    card = register(visit)
    page.route("**/console/inside", lambda route: route.fulfill(status=403, json={"detail": "you may not"}))
    page.reload()
    expect(state).to_have_text("refused")
    expect(told.filter(has_text="Refused: you may not")).to_be_visible()
    page.unroute("**/console/inside")
    page.get_by_role("button", name="Try again").click()
    visit.live()
    expect(page.locator("#banner")).to_be_hidden()
    expect(card).to_have_attribute("data-state", "registered")
    cancel(visit)


def test_a_stream_that_is_not_there_may_come(visit: Visit) -> None:
    visit.sign_in()
    page = visit.page
    page.route("**/console/objects", lambda route: route.fulfill(status=404, json={"detail": "there is no stream"}))
    page.reload()
    expect(page.locator("#state")).to_have_text("reconnecting")
    page.unroute("**/console/objects")
    visit.live()


def test_an_answer_that_is_cut_off_is_asked_for_again(visit: Visit) -> None:
    visit.sign_in()
    page = visit.page
    page.get_by_role("button", name="Inside").click()
    page.route("**/console/inside", lambda route: route.fulfill(body='{"space": "wg', content_type="application/json"))
    inside = page.get_by_role("region", name="Inside the stream")
    expect(inside).to_contain_text("the answer was cut off")
    page.unroute("**/console/inside")
    expect(inside).not_to_contain_text("the answer was cut off")


@pytest.mark.parametrize("part", ["query.js", "main.js"])
def test_a_page_of_which_a_part_does_not_come_is_loaded_again(visit: Visit, part: str) -> None:
    visit.page.route(f"**/console/{part}", lambda route: route.abort(), times=1)
    visit.page.reload()
    expect(visit.page.get_by_role("alert").filter(has_text="a part of this page could not be loaded")).to_be_visible()
    visit.sign_in()


def test_a_style_sheet_that_does_not_come_is_asked_for_again(visit: Visit) -> None:
    visit.page.route("**/console/style.css", lambda route: route.abort(), times=1)
    visit.page.reload()
    visit.page.wait_for_function("() => [...document.styleSheets].some((each) => each.href?.endsWith('/style.css'))")
    assert any("style.css" in each for each in visit.failed)


def test_what_is_never_answered_is_asked_for_again(visit: Visit) -> None:
    held: list[Route] = []
    visit.context.add_init_script(IMPATIENT)
    visit.page.route("**/console/session", lambda route: held.append(route), times=1)
    visit.page.reload()
    expect(visit.page.get_by_role("alert").filter(has_text="the gateway does not answer")).to_be_visible()
    visit.sign_in()
    assert len(held) == 1


def test_the_gateway_goes_and_comes_again(visit: Visit, gateway: GatewayServer) -> None:
    visit.sign_in()
    gateway.kill()
    expect(visit.page.locator("#state")).to_have_attribute("data-state", "waiting")
    expect(visit.page.get_by_role("alert").filter(has_text="Reconnecting")).to_be_visible()
    visit.picture("reconnecting")
    gateway.start(timeout=120.0)
    visit.live()
    expect(visit.page.locator("#banner")).to_be_hidden()


def test_nothing_can_be_asked_before_the_stream_is_known(browser: Browser, gateway: GatewayServer) -> None:
    visit = Visit(browser, gateway)
    held: list[Route] = []
    visit.page.route("**/console/inside", lambda route: route.continue_() if held else held.append(route))
    visit.page.get_by_label("Bearer token").fill(TOKEN)
    with visit.page.expect_request("**/console/inside"):
        visit.page.get_by_role("button", name="Use it").click()
    expect(visit.page.locator("#composer")).to_have_attribute("inert", "")
    expect(visit.page.locator("#state")).not_to_have_attribute("data-state", "live")
    held[0].continue_()
    visit.live()
    visit.flood()
    visit.page.get_by_role("button", name="Run once").click()
    expect(visit.card("Snapshot query")).to_have_attribute("data-state", "answered")
    visit.end()


NO_WEBGL = """const get = HTMLCanvasElement.prototype.getContext;
HTMLCanvasElement.prototype.getContext = function (kind, ...more) {
  return kind.startsWith("webgl") ? null : get.call(this, kind, ...more);
};"""
IMPATIENT = """const timeout = AbortSignal.timeout.bind(AbortSignal);
AbortSignal.timeout = (ms) => timeout(ms / 10);"""
LOSE = """() => {
  const canvas = document.querySelector("canvas.maplibregl-canvas");
  window.graphics = canvas.getContext("webgl2").getExtension("WEBGL_lose_context");
  graphics.loseContext();
}"""


# of the map that is drawn without WebGL: whether some object is drawn that is not part of the ground, ...
OBJECT_DRAWN = """() => {
  const { map } = spatialstream;
  const colour = (canvas, pixel) => {
    const [x, y] = pixel.map((each) => each * devicePixelRatio);
    return canvas.getContext("2d").getImageData(x, y, 1, 1).data.join();
  };
  return [...map.points.shown()].map((each) => map.pixel([each.about.x, each.about.y]))
    .some((pixel) => colour(map.map.canvas, pixel) !== colour(map.map.ground, pixel));
}"""
# ... and whether the corner of a region has had several colours
REGION_LIGHTS_UP = """(place) => {
  const { map } = spatialstream;
  const [x, y] = map.pixel(place).map((each) => each * devicePixelRatio);
  window.seen ??= new Set();
  seen.add(map.overlay.getContext("2d").getImageData(x, y, 1, 1).data.join());
  return seen.size > 2;
}"""


@pytest.mark.gate
def test_without_webgl_objects_pass_and_matches_light_up(visit: Visit) -> None:
    page = visit.without_webgl().sign_in().page
    assert page.locator(".maplibregl-canvas").count() == 0
    page.wait_for_function(OBJECT_DRAWN)
    card = register(visit)
    card.get_by_role("button", name=re.compile("^Show on the map")).click()
    page.wait_for_function(REGION_LIGHTS_UP, arg=[3.3, 53.7])
    page.wait_for_timeout(2_000)
    visit.picture("canvas-light")
    x, y = page.evaluate("() => spatialstream.map.pixel(spatialstream.map.center)")
    flood = page.evaluate("() => spatialstream.map.pixel([4.68, 52.1])")
    place = page.locator("#map").bounding_box()
    assert place is not None
    for dx, dy in ((0, 0), (2, 2)):
        page.mouse.move(place["x"] + flood[0] + dx, place["y"] + flood[1] + dy)
    expect(page.locator("#tip")).to_contain_text("flood")
    assert abs(x - place["width"] / 2) < 1
    assert abs(y - place["height"] / 2) < 1
    visit.accessible()
    page.locator("#theme").click()
    visit.accessible()
    visit.picture("canvas-dark")
    cancel(visit)


def test_without_webgl_the_map_is_moved_with_keys_and_the_inside_is_on_it(visit: Visit) -> None:
    page = visit.without_webgl().sign_in().page
    canvas = page.locator("#map canvas[tabindex]")
    canvas.focus()
    page.keyboard.press("+")
    before = page.evaluate("() => spatialstream.map.view")
    page.keyboard.press("ArrowRight")
    after = page.evaluate("() => spatialstream.map.view")
    assert after["center"][0] > before["center"][0]
    assert after["zoom"] == before["zoom"]
    expect(page).to_have_url(re.compile(f"map={str(after['center'][0])[:4]}"))
    page.get_by_role("button", name="what the map shows").click()
    west, east = (float(page.get_by_label(each, exact=True).input_value()) for each in ("West", "East"))
    assert west < after["center"][0] < east
    page.reload()  # the address shows the same part
    visit.live()
    assert page.evaluate("() => spatialstream.map.view.zoom") == pytest.approx(after["zoom"], abs=0.01)

    page.get_by_role("button", name="Circle", exact=True).click()
    assert float(page.get_by_label("Radius, km").input_value()) > 0
    page.get_by_role("button", name="Run once").click()
    expect(visit.card("Snapshot query")).to_have_attribute("data-state", "answered")
    page.get_by_role("button", name="Inside").click()
    inside = page.get_by_role("region", name="Inside the stream")
    expect(inside.get_by_role("rowheader", name="2")).to_be_visible()
    page.mouse.move(900, 400)
    page.mouse.move(902, 402)
    expect(page.locator("#tip")).to_contain_text("of the load")
    visit.picture("canvas-inside")
    visit.accessible()


def test_without_webgl_on_a_phone(browser: Browser, gateway: GatewayServer) -> None:
    visit = Visit(browser, gateway, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page = visit.without_webgl().sign_in().page
    page.wait_for_function(OBJECT_DRAWN)
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
    visit.picture("canvas-phone")
    visit.end()


def test_a_map_that_is_lost_comes_back(visit: Visit) -> None:
    visit.sign_in()
    page = visit.page
    page.evaluate(LOSE)
    expect(page.locator("#no-map")).to_contain_text("graphics")
    card = register(visit)
    page.locator("#theme").click()
    page.evaluate("() => graphics.restoreContext()")
    expect(page.locator("#no-map")).to_be_hidden()
    assert page.evaluate("() => ['land', 'points', 'past'].every((id) => spatialstream.map.map.getLayer(id))")
    before = card.locator(".figure b").inner_text()
    expect(card.locator(".figure b")).not_to_have_text(before)
    visit.picture("map-back")
    cancel(visit)


def test_it_can_be_used_by_everybody(browser: Browser, gateway: GatewayServer, theme: str) -> None:
    visit = Visit(browser, gateway, color_scheme=theme)
    visit.accessible()  # the query for the token
    visit.sign_in()
    visit.flood()
    visit.page.get_by_role("button", name="Run once").click()
    expect(visit.card("Snapshot query")).to_have_attribute("data-state", "answered")
    visit.accessible()
    visit.picture(f"live-{theme}")
    visit.page.get_by_role("button", name="Inside").click()
    expect(
        visit.page.get_by_role("region", name="Inside the stream").get_by_role("rowheader", name="2")
    ).to_be_visible()
    visit.accessible()
    visit.end()


def test_on_a_phone(browser: Browser, gateway: GatewayServer) -> None:
    visit = Visit(browser, gateway, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    visit.sign_in()
    wide = visit.page.evaluate("() => document.documentElement.scrollWidth")
    visit.picture("phone")
    visit.end()
    assert wide <= 390
