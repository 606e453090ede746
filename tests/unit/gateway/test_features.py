"""Objects for GIS tools: pages that are all objects, newest first, and what a client of the standard looks for."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlsplit

import jsonschema
import pytest

from spatialstream.gateway.app import Gateway
from spatialstream.gateway.features import CONFORMANCE
from spatialstream.gateway.server import server_of
from spatialstream.model.answer_bounds import AnswerBounds
from spatialstream.model.errors import SettingError, TooLarge
from spatialstream.model.properties.condition import cql2_of
from spatialstream.model.properties.cql2 import parse_where
from spatialstream.model.properties.declared import Properties
from spatialstream.model.space import WGS84, Space
from spatialstream.model.terms import TermRule
from spatialstream.oracle.conditions import satisfies
from tests.unit.client.test_snapshot_client import PLANE
from tests.unit.gateway.http import Answer, Client, served, serving

NOW = 1_795_307_679_973


DECLARED = Properties.parse(["number:number"])
BELOW = {"op": "<", "args": [{"property": "number"}, 50]}


def number_of(each: dict[str, Any]) -> int:
    """The number at the end of an object's id."""
    last = str(each["id"]).split()[-1]
    return int(last) if last.isdecimal() else 10**9


class QuerySession:
    """Answers SRQs by looking at all objects."""

    def __init__(self, objects: list[dict[str, Any]], space: Space = WGS84) -> None:
        self.objects, self.space, self.asked = objects, space, 0
        self.rule = TermRule(properties=DECLARED)
        self.now, self.goes_on = NOW, 0
        self.retention: int | None = None
        self.largest = 1 << 30

    @property
    def snapshots(self) -> QuerySession:
        return self

    def as_of(self) -> dict[str, int]:
        return {"round": 1, "clock": self.now}

    def lines(self, records: list[tuple[str, dict[str, Any]]], bounds: AnswerBounds, **more: Any) -> list[str]:
        assert bounds.largest is not None
        found = list[str]()
        for _, query in records:
            objects = self.found({"t": self.now, **query})
            found.append(json.dumps({"objects": objects, "as_of": self.as_of()}))
            if len(found[-1]) > min(bounds.largest, self.largest):
                raise TooLarge(f"the answer would have more than {self.largest} bytes")
            bounds.hold(len(found[-1]))
            self.now += self.goes_on
        return found

    def found(self, query: dict[str, Any]) -> list[dict[str, Any]]:
        """What an SRQ finds."""
        kept = -math.inf if self.retention is None else self.now - self.retention
        return [each for each in self.objects if each["t"] > kept and self.within(each, query)]

    def within(self, each: dict[str, Any], query: dict[str, Any]) -> bool:
        self.asked += 1
        assert query["type"] == "SRQ"
        assert query["t"] <= self.now
        west, south, east, north = query["region"]["box"]
        groups = query.get("any", [query.get("keywords", [])])
        if "where" in query:
            where = parse_where(query["where"], DECLARED)
            if not satisfies(cql2_of(where), {"number": float(number_of(each))}):
                return False
        return (
            query["t"] - query["duration"] < each["t"] <= query["t"]
            and (west <= each["lon"] <= east if west <= east else each["lon"] >= west or each["lon"] <= east)
            and south <= each["lat"] <= north
            and any(all(word in each["id"] for word in group) for group in groups)
        )

    def close(self) -> None:
        pass


@pytest.fixture
def session() -> QuerySession:
    chance = random.Random(4)
    times = [NOW - int(10 ** chance.uniform(0, 9)) for _ in range(300)] + [NOW - 5_000] * 40
    places = [(chance.choice([-180.0, 180.0, chance.uniform(-180, 180)]), chance.uniform(-90, 90)) for _ in times]
    words = ["flood", "fire", "flood fire"]
    return QuerySession(
        [
            {
                "id": f"{chance.choice(words)} {i % 330}",
                "t": t,
                "lon": lon,
                "lat": lat,
                "text": f"It said {i}",
                "object": i,
            }
            for i, (t, (lon, lat)) in enumerate(zip(times, places, strict=True))
        ]
    )


@pytest.fixture
def client(session: QuerySession) -> Iterator[Client]:
    with serving(Gateway([served("s", lambda: session), served("flat", lambda: QuerySession([], PLANE))])) as client:
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
        ("filter=number%20%3C%20100&limit=9", lambda each: number_of(each) < 100),
        (
            f"filter-lang=cql2-json&limit=20&q=fire&filter={quote(json.dumps(BELOW))}",
            lambda each: "fire" in each["id"] and number_of(each) < 50,
        ),
    ],
)
def test_pages_are_all_objects_newest_first(client: Client, session: QuerySession, parameters: str, holds: Any) -> None:
    features = list[dict[str, Any]]()
    for answer in pages(client, f"/collections/s/items?{parameters}"):
        assert answer.json["numberReturned"] == len(answer.json["features"])
        assert answer.json["as_of"] == {"round": 1, "clock": NOW}
        features += answer.json["features"]
        session.objects.append({"id": "flood late", "t": NOW + 1, "lon": 0.0, "lat": 0.0})  # what comes meanwhile
    right = sorted(
        (
            (each["t"], each["id"], each["lon"], each["lat"])
            for each in session.objects
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


def test_an_item_of_any_id_is_where_its_link_says(client: Client, session: QuerySession) -> None:
    session.objects[:] = [{"id": name, "t": NOW, "lon": 0.0, "lat": 0.0} for name in ("a b/c?d#e%20", "é\n\n", "")]
    features = client("GET", "/collections/s/items").json["features"]
    assert len(features) == 3
    for each in features:
        answer = client("GET", f"/collections/s/items/{quote(each['id'], safe='')}")
        assert answer.json["id"] == each["id"]
        links = {link["rel"]: link["href"] for link in answer.json["links"]}
        assert client("GET", urlsplit(links["self"]).path).json == answer.json


def test_what_was_sent_twice_is_there_twice_and_each_has_an_id_of_its_own(
    client: Client, session: QuerySession
) -> None:
    chance = random.Random(7)
    places = [(0.5, 0.0), (0.5, 1.0), (100.25, 1.0)]
    session.objects[:] = [
        {"id": name, "t": NOW - chance.randrange(3), "lon": lon, "lat": lat}
        for name in ("a", "a.b", "2.a", "~2.a")
        for lon, lat in chance.choices(places, k=9)
    ]
    right = sorted(((each["t"], each["id"], each["lon"], each["lat"]) for each in session.objects), reverse=True)
    assert len(set(right)) < len(right)
    by_id = dict[str, Any]()
    for parameters in ("limit=1", "limit=5", "limit=100"):
        features = [
            each for page in pages(client, f"/collections/s/items?{parameters}") for each in page.json["features"]
        ]
        found = [
            (each["properties"]["t"], each["properties"]["object"], *each["geometry"]["coordinates"])
            for each in features
        ]
        assert found == right
        ids = {each["id"]: each for each in features}
        assert len(ids) == len(features)
        assert not by_id or ids == by_id, "an id is the same on whatever page it stands"
        by_id = ids
    (some,) = pages(client, "/collections/s/items?limit=100&bbox=100,0,101,2")
    assert some.json["features"]
    for each in some.json["features"]:
        assert by_id[each["id"]] == each, "and whatever was asked for"
    for name, each in by_id.items():
        answer = client("GET", f"/collections/s/items/{quote(name, safe='')}").json
        assert {name: value for name, value in answer.items() if name != "links"} == each


@pytest.mark.parametrize("goes_on", [0, 1, 400, 7_000])
@pytest.mark.parametrize(
    "parameters",
    ["limit=4", "limit=1000", f"limit=1000&datetime={NOW - 3_000}/..", "limit=50&datetime=../2100-01-01T00:00:00Z"],
)
def test_a_page_has_what_an_srq_has_as_of_what_it_says(
    client: Client, session: QuerySession, parameters: str, goes_on: int
) -> None:
    """Though the clock goes on with each query, new objects come, and old ones are not kept any more."""
    session.objects[:] = [{"id": f"o{i}", "t": NOW - 9_000 + 37 * i, "lon": 0.0, "lat": 0.0} for i in range(3_000)]
    session.goes_on, session.retention = goes_on, 6_000
    since = NOW - 3_000 if "datetime=17" in parameters else -1
    path, before = f"/collections/s/items?{parameters}", None
    for _ in range(4):
        answer = client("GET", path)
        found = [(each["properties"]["t"], each["properties"]["object"]) for each in answer.json["features"]]
        clock = answer.json["as_of"]["clock"]
        right = sorted(
            ((each["t"], each["id"]) for each in session.objects if clock - 6_000 < each["t"] <= clock), reverse=True
        )
        right = [each for each in right if each[0] >= since and (before is None or each < before)]
        assert found == right[: int(parameters.partition("&")[0].removeprefix("limit="))]
        links = {each["rel"]: urlsplit(each["href"]) for each in answer.json["links"]}
        if "next" not in links:
            assert found == right
            return
        path, before = f"{links['next'].path}?{links['next'].query}", found[-1]


def test_a_time_of_which_there_is_too_much_is_shortened(client: Client, session: QuerySession) -> None:
    chance = random.Random(2)
    dense = [NOW - 100_000 - int(chance.expovariate(0.001)) for _ in range(2_000)]
    session.objects[:] = [
        {"id": f"o{i}", "t": t, "lon": 0.0, "lat": 0.0} for i, t in enumerate([NOW, NOW - 90_000, *dense])
    ]
    session.largest = 20_000  # some 400 objects
    found = [each["id"] for page in pages(client, "/collections/s/items?limit=100") for each in page.json["features"]]
    assert len(found) == len(set(found)) == 2_002
    answer = client("GET", "/collections/s/items?limit=1000")
    assert answer.status == 413
    assert "give a smaller limit or bbox" in answer.json["detail"]
    session.objects += [{"id": f"p{i}", "t": NOW, "lon": 0.0, "lat": 0.0} for i in range(1_000)]
    assert client("GET", "/collections/s/items?limit=10").status == 413
    assert client("GET", "/collections/s/items?limit=10&datetime=../2026-11-22T00:00:00Z").status == 200


def test_a_page_of_many_does_not_look_at_all(client: Client, session: QuerySession) -> None:
    session.objects[:] = [{"id": f"{i}", "t": NOW - 100 * i, "lon": 0.0, "lat": 0.0} for i in range(3_000)]
    given = list[int]()
    found = session.found

    def counted(query: dict[str, Any]) -> list[dict[str, Any]]:
        objects = found(query)
        given.append(len(objects))
        return objects

    session.found = counted  # type: ignore[method-assign]
    assert client("GET", "/collections/s/items?limit=20").json["numberReturned"] == 20
    assert sum(given) < 500


def test_what_a_client_of_the_standard_looks_for(client: Client) -> None:
    links = {each["rel"]: urlsplit(each["href"]).path for each in client("GET", "/").json["links"]}
    assert client("GET", links["conformance"]).json == {"conformsTo": list(CONFORMANCE)}
    assert client("GET", links["service-desc"]).json["openapi"].startswith("3.1")
    (found,) = client("GET", links["data"]).json["collections"]
    assert found == client("GET", "/collections/s").json
    assert found["extent"]["spatial"]["bbox"] == [[-180, -90, 180, 90]]
    there = {each["rel"]: urlsplit(each["href"]) for each in found["links"]}
    assert client("GET", there["items"].path).json["type"] == "FeatureCollection"
    schema = client("GET", there["http://www.opengis.net/def/rel/ogc/1.0/queryables"].path)
    assert schema.headers["content-type"] == "application/schema+json"
    jsonschema.Draft202012Validator.check_schema(schema.json)
    assert urlsplit(schema.json["$id"]).path == "/collections/s/queryables"
    assert schema.json["properties"] == {"number": {"title": "number", "type": "number"}}
    assert schema.json["additionalProperties"] is False
    assert client("GET", "/collections/flat").status == 404
    assert client("GET", "/collections/flat/items").status == 404
    assert client("GET", "/collections/flat/queryables").status == 404


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
            f"datetime=../{NOW // 1_000}",
            f"datetime={NOW * 1_000}",
            "page=[]",
            "page={}",
            "page=[1,2,3,4]",
            "page=[",
            'page=[1,"a",' + "9" * 400 + ",0,1]",
            'page=[1,"a",0,NaN,1]',
            'page=[1,"a",0,-90.5,1]',
            'page=[1,"a",0,0]',
            'page=[1,"a",0,0,0]',
            'page=[1,"a",0,0,1.0]',
        ),
        *("filter-lang=ecql&filter=number%20%3C%201", "filter-lang=cql2-json&filter=number%20%3C%201"),
        *('page=["1","a",0,0,1]', "bbox-crs=EPSG:4326", "colour=red", "datetime=T", "datetime=5T"),
        "filter-crs=EPSG:4326",
    ],
)
def test_what_cannot_be_used_is_named(client: Client, wrong: str) -> None:
    name, _, value = wrong.partition("=")
    answer = client("GET", f"/collections/s/items?{name}={quote(value)}")
    assert (answer.status, answer.errors[0]["parameter"]) == (400, name)


def test_items_that_are_none(client: Client, session: QuerySession) -> None:
    session.objects.append({"id": "one", "t": NOW, "lon": 0.5, "lat": 0.0})
    assert client("GET", f"/collections/s/items/{NOW}@0.5,0.0.one").status == 200
    none = ("@0.5,0.0.two", "@0.5,0.one", "@0.50,0.0.one", "@0.5,0.0~1.one", "@0.5,0.0~2.one", "@1e999,0.0.one", ".one")
    for name in (
        "x",
        "5",
        "5.",
        *(f"{NOW}{each}" for each in none),
        f"{NOW + 10}@0.5,0.0.one",
        "9" * 30,
        "..%2f..%2fetc",
    ):
        assert client("GET", f"/collections/s/items/{name}").status == 404


@pytest.mark.parametrize(
    ("proxies", "scheme"), [((), "http"), (("10.0.0.0/8",), "http"), (("10.0.0.0/8", "127.0.0.1"), "https")]
)
def test_links_are_those_of_who_is_believed_to_end_tls(
    session: QuerySession, proxies: tuple[str, ...], scheme: str
) -> None:
    with serving(Gateway([served("s", lambda: session)]), *proxies) as client:
        links = client("GET", "/", X_Forwarded_Proto="https").json["links"]
        assert {urlsplit(each["href"]).scheme for each in links} == {scheme}


def test_a_proxy_that_is_no_address_is_refused(session: QuerySession) -> None:
    with pytest.raises(SettingError, match="trusted-proxy: 'ingress'"):
        server_of(Gateway([served("s", lambda: session)]), proxies=["ingress"])
