"""What people ask in the form of the console of a stream that keeps fields and counts words: fields, the best."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from spatialstream.servers.process import await_condition
from tests.browser.test_console import TOKEN, Visit
from tests.cluster.test_gateway import GatewayServer
from tests.unit.gateway.http import Client

ROWS = ".objects li"


@pytest.fixture
def visit(browser: Browser, gateway: GatewayServer) -> Iterator[Visit]:
    made = Visit(browser, gateway)
    yield made.sign_in()
    made.end()


def asked(page: Page, card: Any) -> dict[str, Any]:
    """The query of a card, from what the page would give as a command."""
    card.get_by_role("button", name=re.compile("^Copy as a command")).click()
    command = page.evaluate("() => navigator.clipboard.readText()")
    words = shlex.split(command)
    found: dict[str, Any] = json.loads(words[words.index("--json") + 1])
    return found


def click_on_map(page: Page, lon: float, lat: float) -> None:
    """A click on a place, with the map around it."""
    page.evaluate(
        "(at) => window.spatialstream.map.fit([[at[0] - 2, at[1] - 2], [at[0] + 2, at[1] + 2]], 0)", [lon, lat]
    )
    page.wait_for_timeout(1_500)  # for the map to come to rest
    x, y = page.evaluate("(at) => window.spatialstream.map.pixel(at)", [lon, lat])
    box = page.locator("#map").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + x, box["y"] + y)


@pytest.mark.gate
def test_rows_show_the_fields_that_are_wanted(visit: Visit) -> None:
    page = visit.page
    visit.flood()
    page.get_by_role("textbox", name="Where").fill("priority >= 3 AND country = 'nl'")
    shown = page.get_by_role("group", name="Rows show")
    expect(shown.get_by_role("checkbox")).to_have_count(3)
    page.get_by_role("button", name="Run once").click()
    card = visit.card("Snapshot query")
    first = card.locator(ROWS).first
    expect(first.locator(".text")).to_have_text("flood river rising news")
    expect(first.locator(".properties")).to_contain_text(re.compile(r"priority [345]"))
    expect(first.locator(".properties")).to_contain_text("country nl")
    assert "fields" not in asked(page, card)
    visit.picture("fields")
    card.get_by_role("button", name=re.compile("^Remove")).click()

    shown.get_by_label("text").uncheck()
    shown.get_by_label("country").uncheck()
    page.get_by_role("button", name="Run once").click()
    card = visit.card("Snapshot query")
    expect(card.locator(ROWS).first.locator(".properties")).to_have_text(re.compile(r"^priority [345]$"))
    expect(card.locator(ROWS).first.locator(".text")).to_have_count(0)
    assert asked(page, card)["fields"] == ["priority"]

    shown.get_by_label("text").check()  # into the form again with the fields of the card
    card.get_by_role("button", name=re.compile("^Put into the form")).click()
    expect(shown.get_by_label("text")).not_to_be_checked()
    expect(shown.get_by_label("priority")).to_be_checked()
    visit.accessible()


def test_the_best_are_asked_with_a_click_on_the_map(visit: Visit) -> None:
    page = visit.page
    page.get_by_role("radio", name="Best").check(force=True)
    page.get_by_role("button", name="Point", exact=True).click()
    click_on_map(page, 4.6, 52.1)
    page.get_by_role("button", name="Run once").click()
    expect(page.locator("#composer .error").last).to_have_text(re.compile("Words are required"))
    page.get_by_role("textbox", name="Words").fill("flood river -festival")
    page.get_by_label("Within, km").fill("80")
    page.get_by_label("How many").fill("4")
    page.get_by_label("Half-life of words").select_option("1h")
    page.get_by_label("Over the last").select_option("1h")
    page.get_by_role("button", name="Run once").click()
    card = visit.card("Snapshot query")
    expect(card.locator(".ranked li")).to_have_count(4)
    for row in card.locator(".ranked li").all():
        expect(row.locator(".text")).to_contain_text("flood")
        expect(row.locator(".more")).to_have_text(re.compile(r" · \d.* k?m · score 0\.\d+$"))
    expect(card).to_contain_text("4 best about “flood river -festival”")
    expect(card).to_contain_text("within 80.0 km of")
    query = asked(page, card)
    assert {name: query[name] for name in ("type", "words", "none", "radius", "halfLife", "duration", "k")} == {
        "type": "SBQ",
        "words": ["flood", "river"],
        "none": ["festival"],
        "radius": 80_000,
        "halfLife": "1h",
        "duration": "1h",
        "k": 4,
    }
    assert query["at"] == pytest.approx([4.6, 52.1], abs=0.05)
    visit.picture("best")

    page.get_by_role("button", name="Register", exact=True).click()
    continuous = visit.card("Continuous query")
    expect(continuous.locator(".ranked li")).to_have_count(4)
    expect(continuous.locator(".ranked li").first.locator(".more")).to_have_text(re.compile(r"score \d\.\d+$"))
    assert asked(page, continuous)["type"] == "CBQ"
    visit.picture("best-registered")
    visit.accessible()
    continuous.get_by_role("button", name=re.compile("^Cancel")).click()
    expect(continuous).to_have_attribute("data-state", "cancelled")


def test_the_best_between_two_times(visit: Visit, gateway: GatewayServer) -> None:
    page = visit.page
    page.get_by_role("radio", name="Best").check(force=True)
    page.get_by_role("button", name="Point", exact=True).click()
    page.keyboard.press("Escape")
    page.get_by_label("Longitude").fill("4.5")
    page.get_by_label("Latitude").fill("52")
    page.get_by_role("textbox", name="Words").fill("flood")
    page.get_by_label("Half-life of words").select_option("between")
    expect(page.get_by_role("button", name="Register", exact=True)).to_be_hidden()
    expect(page.get_by_label("Over the last")).to_be_hidden()
    page.get_by_role("button", name="Run once").click()
    expect(page.locator("#composer .error").last).to_have_text(re.compile("Two times are required"))
    clock = Client(gateway.port, TOKEN)("GET", "/streams/gateway/console/clock").json["as_of"]["clock"]
    last = datetime.fromtimestamp(clock // 1000, UTC)
    first = last - timedelta(minutes=30)
    page.get_by_label("From, UTC").fill(first.strftime("%Y-%m-%dT%H:%M:%S"))
    page.get_by_label("Until, UTC").fill(last.strftime("%Y-%m-%dT%H:%M:%S"))
    page.get_by_role("button", name="Run once").click()
    card = visit.card("Snapshot query")
    expect(card.locator(".ranked li").first).to_contain_text("score 0.")
    query = asked(page, card)
    assert query["between"] == [1000 * int(each.timestamp()) for each in (first, last)]
    assert not {"halfLife", "duration"} & {*query}
    expect(card.locator("footer")).to_contain_text(f"between {first:%Y-%m-%d %H:%M} and {last:%Y-%m-%d %H:%M}")
    page.get_by_role("radio", name="Range").check(force=True)
    card.get_by_role("button", name=re.compile("^Put into the form")).click()
    expect(page.get_by_label("From, UTC")).to_have_value(re.compile(first.strftime("^%Y-%m-%dT%H:%M")))
    visit.picture("best-between")


def test_a_stream_that_counts_no_words_and_keeps_nothing_is_offered_neither(visit: Visit) -> None:
    page = visit.page

    def less(route: Any) -> None:
        route.fulfill(json=route.fetch().json() | {"ranking": False, "fields": []})

    page.route(re.compile(r"console/(inside|clock)([?]|$)"), less)
    page.reload()
    visit.live()
    expect(page.get_by_role("radio", name="Range")).to_be_attached()
    expect(page.get_by_role("radio", name="Best")).to_be_hidden()
    expect(page.get_by_role("group", name="Rows show")).to_be_hidden()
    assert await_condition(lambda: page.locator("#composer .kinds label:visible").count() == 3, 60.0)
