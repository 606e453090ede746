"""Objects for GIS tools: pages that are all objects, newest first, and what a client of the standard looks for."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from spatialstream.gateway.app import Gateway
from spatialstream.gateway.features import CONFORMANCE
from spatialstream.gateway.server import server_of
from spatialstream.model.errors import SettingError
from spatialstream.model.space import WGS84, Space
from tests.unit.client.test_snapshots import PLANE
from tests.unit.gateway.http import Answer, Client, served, serving

NOW = 1_795_307_679_973


class Asker:
    """Answers SRQs by looking at all objects."""

    def __init__(self, objects: list[dict[str, Any]], space: Space = WGS84) -> None:
        self.objects, self.space, self.asked = objects, space, 0

    def as_of(self) -> dict[str, int]:
        return {"round": 1, "clock": NOW}

    def ask(self, queries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{"objects": [each for each in self.objects if self.within(each, query)]} for query in queries]

    def within(self, each: dict[str, Any], query: dict[str, Any]) -> bool:
        self.asked += 1
        assert query["type"] == "SRQ"
        assert query["t"] <= NOW
        west, south, east, north = query["region"]["box"]
        groups = query.get("any", [query.get("keywords", [])])
        return (
            query["t"] - query["duration"] < each["t"] <= query["t"]
            and west <= each["lon"] <= east
            and south <= each["lat"] <= north
            and any(all(word in each["id"] for word in group) for group in groups)
        )

    def close(self) -> None:
        pass


@pytest.fixture
def asker() -> Asker:
    chance = random.Random(4)
    times = [NOW - int(10 ** chance.uniform(0, 9)) for _ in range(300)] + [NOW - 5_000] * 40
    places = [(chance.choice([-180.0, 180.0, chance.uniform(-180, 180)]), chance.uniform(-90, 90)) for _ in times]
    words = ["flood", "fire", "flood fire"]
    return Asker(
        [
            {"id": f"{chance.choice(words)} {i % 330}", "t": t, "lon": lon, "lat": lat}
            for i, (t, (lon, lat)) in enumerate(zip(times, places, strict=True))
        ]
    )


@pytest.fixture
def client(asker: Asker) -> Iterator[Client]:
    with serving(Gateway([served("s", lambda: asker), served("flat", lambda: Asker([], PLANE))])) as client:
        yield client


def pages(client: Client, path: str) -> Iterator[Answer]:
    while path:
        answer = client("GET", path)
        assert (answer.status, answer.headers["content-type"]) == (200, "application/geo+json"), answer
        yield answer
        links = {each["rel"]: urlsplit(each["href"]) for each in answer.json["links"]}
        path = f"{links['next'].path}?{links['next'].query}" if "next" in links else ""


@pytest.mark.parametrize(
    ("parameters", "holds"),
    [
        ("limit=7", lambda each: True),
        ("limit=1000", lambda each: True),
        ("limit=50&bbox=-10,-20,100,30.5", lambda each: -10 <= each["lon"] <= 100 and -20 <= each["lat"] <= 30.5),
        (
            "limit=50&bbox=-1e1,-20,-11034,1.e%2B2,%2B30.5,8848.86",
            lambda each: -10 <= each["lon"] <= 100 and -20 <= each["lat"] <= 30.5,
        ),
        ("bbox=170,-90,0,-170,90,9", lambda each: each["lon"] >= 170 or each["lon"] <= -170),
        (f"datetime={NOW - 60_000}/..", lambda each: each["t"] >= NOW - 60_000),
        (f"datetime=../{NOW - 60_000}", lambda each: each["t"] <= NOW - 60_000),
        ("datetime=2026-11-21T00:00:00Z/2999-01-01T00:00:00Z", lambda each: each["t"] >= 1_795_219_200_000),
        ("datetime=2026-11-21T%2F..", lambda each: each["t"] >= 1_795_219_200_000),  # GDAL: time >= '2026-11-21'
        (  # GDAL: time <= ... AND time >= ...
            f"datetime=../{NOW - 5_000}&limit=50&datetime={NOW - 60_000}%2F..",
            lambda each: NOW - 60_000 <= each["t"] <= NOW - 5_000,
        ),
        (f"datetime={NOW - 5_000}/..&datetime=../{NOW - 60_000}", lambda each: False),
        (f"datetime={NOW - 5_000}&limit=3", lambda each: each["t"] == NOW - 5_000),
        ("datetime=2999-01-01T00:00:00Z/..", lambda each: False),
        ("q=flood,fire%201", lambda each: "flood" in each["id"] or ("fire" in each["id"] and "1" in each["id"])),
        ("q=flood%20fire", lambda each: "flood fire" in each["id"]),
    ],
)
def test_pages_are_all_objects_newest_first(client: Client, asker: Asker, parameters: str, holds: Any) -> None:
    features = list[dict[str, Any]]()
    for answer in pages(client, f"/collections/s/items?{parameters}"):
        assert answer.json["numberReturned"] == len(answer.json["features"])
        assert answer.json["as_of"] == {"round": 1, "clock": NOW}
        features += answer.json["features"]
        asker.objects.append({"id": "flood late", "t": NOW + 1, "lon": 0.0, "lat": 0.0})  # what comes meanwhile
    right = sorted(
        (
            (each["t"], each["id"], each["lon"], each["lat"])
            for each in asker.objects
            if each["t"] <= NOW and holds(each)
        ),
        reverse=True,
    )
    found = [
        (each["properties"]["t"], each["properties"]["object"], *each["geometry"]["coordinates"]) for each in features
    ]
    assert found == right
    for each in features[:3]:
        same = client("GET", f"/collections/s/items/{quote(each['id'], safe='')}").json
        assert {name: value for name, value in same.items() if name != "links"} == each


def test_an_item_is_asked_for_by_what_a_gis_tool_takes_for_its_id(client: Client) -> None:
    for each in client("GET", "/collections/s/items").json["features"]:
        column = {"id": each["id"]} | each["properties"]  # as GDAL has it: the property, where both are there
        answer = client("GET", f"/collections/s/items/{quote(column['id'], safe='')}")
        assert (answer.status, answer.json["id"]) == (200, each["id"])


def test_an_item_of_any_id_is_where_its_link_says(client: Client, asker: Asker) -> None:
    asker.objects[:] = [{"id": name, "t": NOW, "lon": 0.0, "lat": 0.0} for name in ("a b/c?d#e%20", "é\n\n", "")]
    features = client("GET", "/collections/s/items").json["features"]
    assert len(features) == 3
    for each in features:
        answer = client("GET", f"/collections/s/items/{quote(each['id'], safe='')}")
        assert answer.json["id"] == each["id"]
        links = {link["rel"]: link["href"] for link in answer.json["links"]}
        assert client("GET", urlsplit(links["self"]).path).json == answer.json


def test_a_page_of_many_does_not_look_at_all(client: Client, asker: Asker) -> None:
    asker.objects[:] = [{"id": f"{i}", "t": NOW - 100 * i, "lon": 0.0, "lat": 0.0} for i in range(3_000)]
    given = list[int]()
    ask = asker.ask
    asker.ask = lambda queries: given.append(sum(len(row["objects"]) for row in ask(queries))) or ask(queries)  # type: ignore[method-assign, func-returns-value]
    assert client("GET", "/collections/s/items?limit=20").json["numberReturned"] == 20
    assert sum(given) < 500


def test_what_a_client_of_the_standard_looks_for(client: Client) -> None:
    links = {each["rel"]: urlsplit(each["href"]).path for each in client("GET", "/").json["links"]}
    assert client("GET", links["conformance"]).json == {"conformsTo": list(CONFORMANCE)}
    assert client("GET", links["service-desc"]).json["openapi"].startswith("3.1")
    (found,) = client("GET", links["data"]).json["collections"]
    assert found == client("GET", "/collections/s").json
    assert found["extent"]["spatial"]["bbox"] == [[-180, -90, 180, 90]]
    there = {each["rel"]: urlsplit(each["href"]) for each in found["links"]}["items"]
    assert client("GET", there.path).json["type"] == "FeatureCollection"
    assert client("GET", "/collections/flat").status == 404
    assert client("GET", "/collections/flat/items").status == 404


@pytest.mark.parametrize(
    "wrong",
    [
        *(
            "bbox=1,2,3",
            "bbox=1,2,3,x",
            "bbox=1,2,3,nan",
            "bbox=1,2,3,1e999",
            "bbox=0,0,0,91",
            "bbox=0,10,1,5",
            "bbox=-181,0,0,0",
            "bbox=",
            "limit=0",
        ),
        *(
            "limit=-1",
            "datetime=x",
            "datetime=1/2/3",
            "datetime=5/4",
            "datetime=T",
            "datetime=5T",
            "page=[]",
            "page={}",
            "page=[1,2,3,4]",
            "page=[",
            'page=[1,"a",' + "9" * 400 + ",0]",
            'page=[1,"a",0,NaN]',
            'page=[1,"a",0,-90.5]',
        ),
        *('page=["1","a",0,0]', "bbox-crs=EPSG:4326", "colour=red", "datetime=T", "datetime=5T"),
    ],
)
def test_what_cannot_be_used_is_named(client: Client, wrong: str) -> None:
    name, _, value = wrong.partition("=")
    answer = client("GET", f"/collections/s/items?{name}={quote(value)}")
    assert (answer.status, answer.errors[0]["parameter"]) == (400, name)


def test_items_that_are_none(client: Client) -> None:
    for name in ("x", "5", "5.", f"{NOW}.none", f"{NOW + 10}.flood", "9" * 30, "..%2f..%2fetc"):
        assert client("GET", f"/collections/s/items/{name}").status == 404


@pytest.mark.parametrize(
    ("proxies", "scheme"), [((), "http"), (("10.0.0.0/8",), "http"), (("10.0.0.0/8", "127.0.0.1"), "https")]
)
def test_links_are_those_of_who_is_believed_to_end_tls(asker: Asker, proxies: tuple[str, ...], scheme: str) -> None:
    with serving(Gateway([served("s", lambda: asker)]), *proxies) as client:
        links = client("GET", "/", X_Forwarded_Proto="https").json["links"]
        assert {urlsplit(each["href"]).scheme for each in links} == {scheme}


def test_a_proxy_that_is_no_address_is_refused(asker: Asker) -> None:
    with pytest.raises(SettingError, match="trusted-proxy: 'ingress'"):
        server_of(Gateway([served("s", lambda: asker)]), proxies=["ingress"])
